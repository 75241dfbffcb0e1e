"""Operations that are not recorded: NumPy computes them, and their results are tensors without a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tape import record
from tape.imperative.variable import Variable, constant
from tape.layout import CODES
from tape.tensor import Tensor
from tape.views import ViewRule, watch


def collect(values: Any, found: list[Tensor]) -> None:
    """Add the Tensors in nested lists and tuples to a list."""
    for x in values:
        if isinstance(x, Tensor):
            found.append(x)
        elif type(x) in (list, tuple):
            collect(x, found)


def mapped(x: Any, change: Callable[[Any], Any]) -> Any:
    """Change the Tensors in nested lists and tuples."""
    if isinstance(x, Tensor):
        return change(x)
    if type(x) is tuple:
        return tuple([mapped(item, change) for item in x])
    if type(x) is list:
        return [mapped(item, change) for item in x]
    return x


def array_of(t: Any) -> Any:
    """Give the value of a Tensor as NumPy takes it."""
    value = t._state.array if isinstance(t, Variable) else t._value
    return value[()] if type(value) is np.ndarray and not value.shape else value


def plainly(function: Callable[..., Any], args: Any, kwargs: Any, found: list[Tensor]) -> Any:
    """Carry out an operation on plain values."""
    result = function(*mapped(args, array_of), **{name: mapped(x, array_of) for name, x in kwargs.items()})
    return wrapped(result, found)


def wrapped(result: Any, found: list[Tensor]) -> Any:
    """Give arrays and numbers that were computed without recording as tensors without a gradient."""
    if isinstance(result, np.ndarray):
        if result.dtype not in CODES:
            return constant(record.supported(result)) if result.dtype.kind in "fiu" else result
        if result.flags.owndata:
            if all(result is not t for t in map(array_of, found)):
                return constant(result)
        return _view_of(found, result)
    if isinstance(result, np.generic) and result.dtype.kind in "fiub":
        return wrapped(np.asarray(result), [])
    if type(result) in (tuple, list):
        return type(result)([wrapped(x, found) for x in result])
    return result


def _view_of(found: list[Tensor], result: Any) -> Any:
    """Make a tensor of an array that refers to memory of others: a view of a variable, or a copy."""
    for v in found:
        if isinstance(v, Variable) and np.may_share_memory(result, v._state.array):
            made = constant(result, v._state.storage)
            base: Any = v
            while isinstance(above := getattr(base, "_base", (None,))[0], Variable):
                base = above
            return watch(base, made, _rule(base._state.array, result))
    return constant(result.copy(order="K"))


def _rule(base: Any, view: Any) -> ViewRule:
    """Tell how to take a view from its base, and how to write its new value there, by where its elements stand."""
    offset = view.ctypes.data - base.ctypes.data
    shape, strides, itemsize = view.shape, view.strides, base.itemsize

    def where() -> Any:
        if not base.ndim:
            return ...
        numbers = np.empty_like(base, np.int64)
        numbers[...] = np.arange(base.size).reshape(base.shape)
        steps = [s // itemsize * 8 for s in strides]
        seen: Any = np.ndarray(shape, np.int64, numbers.ravel(order="K"), offset // itemsize * 8, steps)
        return np.unravel_index(seen, base.shape)

    def take(owner: Any) -> Any:
        return np.reshape(owner[where()], shape)

    def write_back(owner: Any, new: Any) -> None:
        owner[where()] = new if base.ndim else np.reshape(new, ())

    return take, write_back
