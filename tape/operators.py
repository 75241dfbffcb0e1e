"""Operators, methods and NumPy protocols of Tensor.

Arithmetic on two numbers is the case that loops are made of; its code is written out once, below, and bound to each
operator, so that it costs one Python call.
"""

from __future__ import annotations

from _thread import get_ident
from typing import Any

import numpy as np

from ops import elementwise as e
from ops.catalog import FUNCTIONS, UFUNCS, Elementwise
from tape import dispatch, inplace, record
from tape.layout import FLOAT
from tape.tensor import Tensor
from tape.wengert import ENTRY, PackError, pack_number

_OPERATOR = '''
def operator(x, y):
    tape = x._tape
    if tape.owner != get_ident():
        tape.refuse()
    value = x._value
    if type(value) is float:
        kind = type(y)
        if kind is Tensor:
            other = y._value
            if type(other) is float and y._tape is tape:
                layout = x._layout
                if layout is not y._layout:
                    layout = FLOAT
                operand = y._slot
            else:
                return general({order})
        elif kind is float:
            other = y
            layout = x._layout
            operand = tape.constants.get(y)
            if operand is None:
                operand = number_slot(tape, y)
        else:
            return general({order})
        {compute}
        slot = tape.count
        try:
            pack(tape.buffer, slot * ENTRY, CODE, {slots}, 0, result)
        except PackError:
            tape.grow()
            pack(tape.buffer, slot * ENTRY, CODE, {slots}, 0, result)
        tape.count = slot + 1
        t = new(Tensor)
        t._tape = tape
        t._slot = slot
        t._value = result
        t._layout = layout
        return t
    return general({order})
'''

_PLAIN = "result = {left} {symbol} {right}"
_DIVISION = """try:
            result = {left} {symbol} {right}
        except ZeroDivisionError:
            return general({order})"""


def _make(name: str, symbol: str, op: Elementwise, *, reflected: bool) -> Any:
    left, right = ("other", "value") if reflected else ("value", "other")
    order = "y, x" if reflected else "x, y"
    slots = "operand, x._slot" if reflected else "x._slot, operand"
    compute = (_DIVISION if symbol == "/" else _PLAIN).format(left=left, right=right, symbol=symbol, order=order)
    source = _OPERATOR.format(order=order, slots=slots, compute=compute)
    general = _general(dispatch.recorder(op.forward))
    scope = {
        "Tensor": Tensor, "FLOAT": FLOAT, "CODE": op.code, "ENTRY": ENTRY, "PackError": PackError, "pack": pack_number,
        "get_ident": get_ident, "general": general, "new": object.__new__, "number_slot": record.number_slot,
    }  # fmt: skip
    exec(compile(source, f"<operator {name}>", "exec"), scope)
    made = scope["operator"]
    made.__name__ = made.__qualname__ = name  # type: ignore[attr-defined]
    return made


def _general(recorder: Any) -> Any:
    """Let other types of operand answer for themselves, as Python's operators do."""

    def general(x: Any, y: Any) -> Any:
        for operand in (x, y):
            if not isinstance(operand, Tensor | np.ndarray | np.generic | int | float | complex | list | tuple):
                return NotImplemented
        return recorder(x, y)

    return general


def _binary(op: Elementwise) -> tuple[Any, Any]:
    general = _general(dispatch.recorder(op.forward))
    return general, lambda x, y: general(y, x)


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


_powers = _binary(e.power)


def _install() -> None:
    arithmetic = (("add", "+", e.add), ("sub", "-", e.subtract), ("mul", "*", e.multiply), ("truediv", "/", e.divide))
    for name, symbol, op in arithmetic:
        setattr(Tensor, f"__{name}__", _make(name, symbol, op, reflected=False))
        setattr(Tensor, f"__r{name}__", _make(f"r{name}", symbol, op, reflected=True))
    others = (
        ("floordiv", np.floor_divide), ("mod", np.remainder), ("and", np.bitwise_and), ("or", np.bitwise_or),
        ("xor", np.bitwise_xor), ("lshift", np.left_shift), ("rshift", np.right_shift),
    )  # fmt: skip
    for name, ufunc in others:
        plain, reflected = _binary(UFUNCS[ufunc])
        setattr(Tensor, f"__{name}__", plain)
        setattr(Tensor, f"__r{name}__", reflected)
    comparisons = (
        ("eq", np.equal), ("ne", np.not_equal), ("lt", np.less), ("le", np.less_equal), ("gt", np.greater),
        ("ge", np.greater_equal),
    )  # fmt: skip
    for name, ufunc in comparisons:
        setattr(Tensor, f"__{name}__", _binary(UFUNCS[ufunc])[0])
    methods: dict[str, Any] = {
        "__pow__": _power,
        "__rpow__": _powers[1],
        "__matmul__": lambda x, y: np.matmul(x, y),
        "__rmatmul__": lambda x, y: np.matmul(y, x),
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


def _astype(self: Tensor, dtype: Any, **keywords: Any) -> Any:
    """See `numpy.astype`."""
    return FUNCTIONS[np.astype](self, dtype)


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
        np.diagonal, np.nonzero, np.round, np.searchsorted, np.compress, np.choose, np.partition, np.argpartition,
    )  # fmt: skip
    for function in functions:
        setattr(Tensor, function.__name__, _method(function))
    aliases: dict[str, Any] = {
        "flatten": lambda self, order="C": +np.ravel(self, order),
        "copy": lambda self, order="C": +self,
        "__copy__": lambda self: +self,
        "__deepcopy__": lambda self, memo: +self,
        "conj": lambda self: np.conjugate(self),
        "conjugate": lambda self: np.conjugate(self),
        "reshape": _reshape,
        "transpose": _transpose,
        "astype": _astype,
        "fill": _fill,
        "sort": _sort,
        "T": property(lambda self: np.transpose(self)),
        "mT": property(lambda self: np.matrix_transpose(self)),
        "real": property(lambda self: self),
        "imag": property(lambda self: np.zeros_like(self)),
        "flat": property(lambda self: iter(np.ravel(self))),
    }
    for name, method in aliases.items():
        setattr(Tensor, name, method)


_install()
