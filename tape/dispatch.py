"""What runs when NumPy meets a Tensor: ufuncs and functions find their ops here."""

from __future__ import annotations

import difflib
from _thread import get_ident
from collections.abc import Callable
from typing import Any

import numpy as np

from ops.catalog import FUNCTIONS, UFUNCS
from ops.elementwise import MULTIPLE_OUTPUTS, where
from tape import inplace, natives, products, record, recorders
from tape.errors import DetachedError, UnsupportedError
from tape.tensor import Tensor

_recorders: dict[Any, Callable[..., Any]] = {np.matmul: products.multiply}


def recorder(ufunc: Any) -> Callable[..., Any]:
    """Give what records a ufunc; made on first use."""
    made = _recorders.get(ufunc)
    if made is None:
        op = UFUNCS.get(ufunc)
        if op is None:
            raise UnsupportedError(_unsupported(f"the ufunc {ufunc.__name__}", ufunc.__name__))
        if op.nin == 1:
            made = recorders.unary(op)
        elif op.nin == 2:
            made = recorders.binary(op)[0]
        else:
            made = op
        _recorders[ufunc] = made
    return made


def answer(ufunc: Any, made: Callable[..., Any]) -> None:
    """Let a user's function record a ufunc; numba's may come as the ufunc that is inside it."""
    for found in (ufunc, getattr(ufunc, "ufunc", ufunc)):
        _recorders[found] = made


def forget(ufunc: Any) -> None:
    """Undo `answer`."""
    for found in (ufunc, getattr(ufunc, "ufunc", ufunc)):
        _recorders.pop(found, None)


def _unsupported(what: str, name: str) -> str:
    known = sorted({f.__name__ for f in (*UFUNCS, *FUNCTIONS) if not getattr(f, "__name__", "_").startswith("_")})
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f" The nearest supported functions are: {', '.join(near)}." if near else ""
    return (
        f"{what} has no derivative rule here.{hint} Write it with supported functions, "
        "or apply it to `t.numpy()` if no gradient is wanted"
    )


def ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
    """Record a ufunc (NumPy's ``__array_ufunc__``)."""
    if method == "__call__":
        if not keywords:  # the recorders see for themselves to a tape that is held
            made = _recorders.get(ufunc)
            if made is not None:
                return made(*inputs)
            return _first(ufunc, inputs)
        if self._tape.owner != get_ident():
            return record.apart(ufunc, inputs, keywords)
        return _with_keywords(ufunc, inputs, keywords)
    if self._tape.owner != get_ident():
        return record.apart(getattr(ufunc, method), inputs, keywords)
    return _method(ufunc, method, inputs, keywords)


def _first(ufunc: Any, inputs: tuple[Any, ...]) -> Any:
    if ufunc not in UFUNCS and ufunc not in MULTIPLE_OUTPUTS and ufunc not in _FUNCTION_OF_UFUNC:
        import ops.special  # noqa: F401  # its declarations are read when first needed
    several: Any = MULTIPLE_OUTPUTS.get(ufunc)
    if several is not None:
        return several(*inputs)
    twin = _FUNCTION_OF_UFUNC.get(ufunc)
    if twin is not None:
        return FUNCTIONS[twin](*inputs)
    return recorder(ufunc)(*inputs)


_FUNCTION_OF_UFUNC: dict[Any, Any] = {
    np.vecdot: np.vecdot,
    np.matvec: np.matvec,
    np.vecmat: np.vecmat,
}
"""Ufuncs over whole vectors and matrices: handled like functions."""


def _with_keywords(ufunc: Any, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    out = keywords.pop("out", None)
    mask = keywords.pop("where", True)
    dtype = keywords.pop("dtype", None)
    keywords.pop("casting", None)
    keywords.pop("order", None)
    keywords.pop("subok", None)
    if keywords:
        raise UnsupportedError(f"{ufunc.__name__} with {', '.join(keywords)}= is not supported on recorded values")
    if dtype is not None:
        inputs = tuple(x.astype(dtype) if hasattr(x, "astype") else np.asarray(x, dtype) for x in inputs)
    targets = out if isinstance(out, tuple) else (out,) if out is not None else ()
    for target in targets:
        if target is not None and not isinstance(target, Tensor):
            raise DetachedError(
                f"{ufunc.__name__} with out= a plain array would drop the gradient: allocate it with `np.zeros_like` "
                "or `ops.zeros(...)` on the tape, or use the result that is returned"
            )
    result = _first(ufunc, inputs) if any(isinstance(x, Tensor) for x in inputs) else ufunc(*inputs)
    if not targets:
        if mask is not True:
            raise UnsupportedError(
                f"{ufunc.__name__} with where= but no out= leaves elements undefined: give out=, "
                f"or write `np.where(mask, np.{ufunc.__name__}(x), other)`"
            )
        return result
    results = result if isinstance(result, tuple) else (result,)
    written = tuple(
        value if target is None else inplace.write(target, value if mask is True else where(mask, value, target))
        for value, target in zip(results, targets, strict=True)
    )
    return written if isinstance(result, tuple) else written[0]


def _method(ufunc: Any, method: str, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    reductions: dict[Any, Any] = {
        np.add: np.sum, np.multiply: np.prod, np.maximum: np.max, np.minimum: np.min,
        np.logical_and: np.all, np.logical_or: np.any,
    }  # fmt: skip
    running: dict[Any, Any] = {np.add: np.cumsum, np.multiply: np.cumprod}
    if method == "reduce" and ufunc in reductions:
        keywords.setdefault("axis", 0)
        return reductions[ufunc](*inputs, **keywords)
    if method == "accumulate" and ufunc in running:
        keywords.setdefault("axis", 0)
        return running[ufunc](*inputs, **keywords)
    if method == "outer" and not keywords:
        x, y = inputs
        return ufunc(np.reshape(x, (*np.shape(x), *(1,) * np.ndim(y))), y)
    if method == "at":
        target, index, *values = inputs
        if isinstance(target, Tensor) and ufunc in (np.add, np.subtract):
            from ops.index import scatter_op, spec_of

            spec, arrays = spec_of(index)
            picked = target[index]
            amount = np.broadcast_to(values[0], picked.shape) if np.shape(values[0]) != picked.shape else values[0]
            total = (
                scatter_op(amount, *arrays, spec=spec, shape=target.shape)
                if isinstance(amount, Tensor)
                else scatter_op(picked * 0 + amount, *arrays, spec=spec, shape=target.shape)
            )
            inplace.write(target, ufunc(target, total))
            return None
    raise UnsupportedError(_unsupported(f"{ufunc.__name__}.{method}", ufunc.__name__))


def function(self: Tensor, func: Any, _: Any, args: Any, kwargs: Any) -> Any:
    """Record a NumPy function (NumPy's ``__array_function__``)."""
    if self._tape.owner != get_ident():
        return record.apart(func, args, kwargs)
    if len(args) == 1:
        if not kwargs:
            fast = natives.FAST.get(func)
            if fast is not None:
                return fast(*args)
        elif len(kwargs) == 1 and type(kwargs.get("axis")) is int:
            along = natives.ALONG.get(func)
            if along is not None:
                return along(args[0], kwargs["axis"])
    handler = FUNCTIONS.get(func)
    if handler is not None:
        return handler(*args, **kwargs)
    from tape.retarget import run

    return run(
        func, args, kwargs, _unsupported(f"{func.__module__.replace('numpy', 'np', 1)}.{func.__name__}", func.__name__)
    )
