"""Operators, methods and NumPy protocols of Tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import elementwise as e
from ops.catalog import FUNCTIONS, UFUNCS
from tape import dispatch, inplace, natives, products, record, recorders
from tape.layout import layout_of
from tape.tensor import Tensor


def _power(x: Any, y: Any) -> Any:
    # NumPy's operator computes these exponents by other ufuncs, which are quicker and exact.
    if type(y) in (int, float) and isinstance(x, Tensor) and x._layout.dtype.kind == "f":
        if y == 2:
            return np.square(x)
        if y == 1:
            return np.positive(x)
        if y == 0.5 and x._layout.shape:
            return np.sqrt(x)
    return _powers[0](x, y)


_powers = recorders.binary(e.power)


def _install() -> None:
    arithmetic = (("add", "+", e.add), ("sub", "-", e.subtract), ("mul", "*", e.multiply), ("truediv", "/", e.divide))
    for name, symbol, op in arithmetic:
        plain, reflected = recorders.binary(op, symbol)
        setattr(Tensor, f"__{name}__", plain)
        setattr(Tensor, f"__r{name}__", reflected)
    others: tuple[tuple[str, Any], ...] = (
        ("floordiv", np.floor_divide), ("mod", np.remainder), ("and", np.bitwise_and), ("or", np.bitwise_or),
        ("xor", np.bitwise_xor), ("lshift", np.left_shift), ("rshift", np.right_shift),
    )  # fmt: skip
    for name, ufunc in others:
        plain, reflected = recorders.binary(UFUNCS[ufunc])
        setattr(Tensor, f"__{name}__", plain)
        setattr(Tensor, f"__r{name}__", reflected)
    comparisons: tuple[tuple[str, Any], ...] = (
        ("eq", np.equal), ("ne", np.not_equal), ("lt", np.less), ("le", np.less_equal), ("gt", np.greater),
        ("ge", np.greater_equal),
    )  # fmt: skip
    for name, comparison in comparisons:
        setattr(Tensor, f"__{name}__", recorders.binary(UFUNCS[comparison])[0])
    methods: dict[str, Any] = {
        "__pow__": _power,
        "__rpow__": _powers[1],
        "__matmul__": products.product,
        "__rmatmul__": lambda x, y: products.product(y, x),
        "__divmod__": lambda x, y: (x // y, x % y),
        "__rdivmod__": lambda x, y: (y // x, y % x),
        "__neg__": lambda x: np.negative(x),
        "__pos__": lambda x: np.positive(x),
        "__abs__": lambda x: np.absolute(x),
        "__invert__": lambda x: np.invert(x),
        "__round__": lambda x, ndigits=None: np.round(x, ndigits or 0),
        "__getitem__": inplace.get,
        "__setitem__": inplace.assign,
        "__array_ufunc__": dispatch.ufunc,
        "__array_function__": dispatch.function,
    }
    for name in ("add", "sub", "mul", "truediv", "pow", "floordiv", "mod", "matmul", "and", "or", "xor"):
        methods[f"__i{name}__"] = inplace.augmented(name)
    for name, method in methods.items():
        setattr(Tensor, name, method)
    _install_methods()


def _method(function: Any) -> Any:
    """Make a method of a NumPy function: the Tensor is its first argument."""

    def method(self: Tensor, *arguments: Any, **keywords: Any) -> Any:
        return function(self, *arguments, **keywords)

    method.__name__ = function.__name__
    method.__doc__ = f"See `numpy.{function.__name__}`."
    return method


def _reshape(self: Tensor, *shape: Any, **keywords: Any) -> Any:
    """See `numpy.reshape`; the lengths may be given one by one."""
    return np.reshape(self, shape[0] if len(shape) == 1 else shape, **keywords)


def _transpose(self: Tensor, *axes: Any) -> Any:
    """See `numpy.transpose`; the axes may be given one by one."""
    if not axes or axes == (None,):
        return np.transpose(self)
    return np.transpose(self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)


def _astype(self: Tensor, dtype: Any, _: str = "K", casting: Any = "unsafe", **__: Any) -> Any:
    """See `numpy.astype`."""
    if not np.can_cast(self.dtype, dtype, casting):
        raise TypeError(
            f"Cannot cast array data from {self.dtype} to {np.dtype(dtype)} according to the rule {casting!r}"
        )
    return FUNCTIONS[np.astype](self, dtype)


def _copy(self: Tensor, order: str = "C") -> Any:
    """See `numpy.ndarray.copy`: C order unless another is asked for."""
    copied: Any = np.copy(self)
    wanted = layout_of(self.shape, self.dtype, np.empty(self.shape, self.dtype, order=order).strides)  # type: ignore[call-overload]
    return copied if order in "KA" or copied._layout.strides == wanted.strides else record.in_order(copied, wanted)


def _fill(self: Tensor, value: Any) -> None:
    """Set every element to a value."""
    self[...] = value


def _sort(self: Tensor, axis: int = -1, **keywords: Any) -> None:
    """Sort in place along an axis."""
    self[...] = np.sort(self, axis=axis, **keywords)


def _install_methods() -> None:
    functions = (
        np.sum, np.mean, np.prod, np.max, np.min, np.var, np.std, np.all, np.any, np.argmax, np.argmin, np.argsort,
        np.cumsum, np.cumprod, np.dot, np.clip, np.ravel, np.squeeze, np.swapaxes, np.repeat, np.take, np.trace,
        np.diagonal, np.nonzero, np.round, np.searchsorted, np.choose, np.partition, np.argpartition,
    )  # fmt: skip
    for function in functions:
        setattr(Tensor, function.__name__, _method(function))
    aliases: dict[str, Any] = {
        "flatten": lambda self, order="C": +np.ravel(self, order),
        "copy": _copy,
        "__copy__": lambda self: +self,
        "__deepcopy__": lambda self, memo: +self,
        "conj": lambda self: np.conjugate(self),
        "conjugate": lambda self: np.conjugate(self),
        "compress": lambda self, condition, axis=None: np.compress(condition, self, axis=axis),
        "reshape": _reshape,
        "transpose": _transpose,
        "astype": _astype,
        "fill": _fill,
        "sort": _sort,
        "T": property(natives.transposed),
        "mT": property(lambda self: np.matrix_transpose(self)),
        "real": property(lambda self: self),
        "imag": property(lambda self: np.zeros_like(self)),
        "flat": property(lambda self: iter(np.ravel(self))),
    }
    for name, method in aliases.items():
        setattr(Tensor, name, method)


_install()
