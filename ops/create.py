"""Making arrays inside a differentiated function.

NumPy's `zeros_like(t)` and kin reach us by themselves. `zeros(shape)`, `array([...])` and others do not, since none of
their arguments need be recorded: their twins here give a recorded array while a function is being differentiated
in this thread, and NumPy's own otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ops.catalog import FUNCTIONS, handles
from ops.elementwise import positive
from ops.shape import shape_of

recorded: list[Callable[[np.ndarray[Any, Any]], Any]] = [lambda array: array]
"""What brings a new array onto the tape that is being recorded, if any; the tape puts it here."""


def _new(array: np.ndarray[Any, Any]) -> Any:
    return recorded[-1](array)


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    """Give an array of zeros that recorded values can be written into.

    Examples
    --------
    >>> import numpy as np, ops
    >>> from tape import grad
    >>> def f(x):
    ...     y = ops.zeros(2)
    ...     y[0] = x * x
    ...     return np.sum(y)
    >>> grad(f)(3.0)
    6.0
    """
    return _new(np.zeros(shape, dtype))


def ones(shape: Any, dtype: Any = None, order: str = "C") -> Any:
    """Give an array of ones that recorded values can be written into."""
    return _new(np.ones(shape, dtype))


def empty(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    """Give an array (of zeros) that recorded values can be written into."""
    return _new(np.zeros(shape, dtype))


def _is_recorded(x: Any) -> bool:
    return hasattr(type(x), "__record__")


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> Any:
    """Give an array with every element equal to a value, which may be recorded."""
    shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    if _is_recorded(fill_value):
        return positive(np.broadcast_to(fill_value if dtype is None else fill_value.astype(dtype), shape))
    return _new(np.full(shape, fill_value, dtype))


def array(object: Any, dtype: Any = None, **keywords: Any) -> Any:
    """Make an array of nested lists of numbers and recorded values.

    Parameters
    ----------
    object : nested list or tuple, array or recorded value
    dtype : dtype, optional
        The dtype of the result.

    Examples
    --------
    >>> import numpy as np, ops
    >>> from tape import grad
    >>> grad(lambda x: np.sum(ops.array([x[0] * x[1], x[1]]) ** 2))(np.array([1.0, 2.0]))
    array([8., 8.])
    """
    if _is_recorded(object):
        return +object if dtype is None else object.astype(dtype)
    if isinstance(object, list | tuple) and _has_recorded(object):
        result = _stack(object)
        return result if dtype is None else result.astype(dtype)
    return np.array(object, dtype, **keywords)


def asarray(a: Any, dtype: Any = None, **keywords: Any) -> Any:
    """Make an array of nested lists of numbers and recorded values; leave arrays as they are."""
    if _is_recorded(a):
        return a if dtype is None else a.astype(dtype)
    return array(a, dtype, **keywords)


def _has_recorded(items: Any) -> bool:
    return any(_is_recorded(x) or (isinstance(x, list | tuple) and _has_recorded(x)) for x in items)


def _stack(items: Any) -> Any:
    rows = [_stack(x) if isinstance(x, list | tuple) else x for x in items]
    return np.stack([r if hasattr(r, "shape") else np.asarray(r) for r in rows])


FUNCTIONS["array"] = array


def _pattern(a: Any) -> Any:
    """Give an array of the shape, dtype and order in memory of a recorded value; its elements are never touched."""
    return np.lib.stride_tricks.as_strided(np.empty((), a.dtype), a.shape, a.strides)


def _like(a: Any, shape: Any) -> Any:
    return shape_of(a) if shape is None else shape


@handles(np.zeros_like)
def zeros_like(
    a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Any:
    """Give zeros of the shape and dtype of a recorded value."""
    return _new(np.zeros_like(_pattern(a), dtype, order, shape=shape))


@handles(np.ones_like)
def ones_like(
    a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Any:
    """Give ones of the shape and dtype of a recorded value."""
    return _new(np.ones_like(_pattern(a), dtype, order, shape=shape))


@handles(np.empty_like)
def empty_like(
    prototype: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Any:
    """Give an array (of zeros) of the shape and dtype of a recorded value."""
    return zeros_like(prototype, dtype, order, shape=shape)


@handles(np.full_like)
def full_like(a: Any, fill_value: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None,
              *, device: Any = None) -> Any:  # fmt: skip
    """Give an array of one value with the shape and dtype of another."""
    return full(_like(a, shape), fill_value, a.dtype if dtype is None else dtype)


@handles(np.copy)
def copy(a: Any, order: Any = "K", subok: bool = False) -> Any:
    """Give a copy."""
    return +a


@handles(np.linspace)
def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
             axis: int = 0, *, device: Any = None) -> Any:  # fmt: skip
    """Give evenly spaced numbers; start and stop are differentiable."""
    span = num - 1 if endpoint else num
    shape = np.broadcast_shapes(shape_of(start), shape_of(stop))
    weight = np.arange(num).reshape((num,) + (1,) * len(shape)) / max(span, 1)
    result = start * (1.0 - weight) + stop * weight
    result = result if axis == 0 else np.moveaxis(result, 0, axis)
    return (result, (stop - start) / span) if retstep else result


@handles(np.shape)
def shape(a: Any) -> Any:
    """Give the shape."""
    return a.shape


@handles(np.size)
def size(a: Any, axis: Any = None) -> Any:
    """Give the number of elements, of all axes or of one."""
    return a.size if axis is None else int(np.prod([a.shape[d] for d in np.atleast_1d(axis)]))


@handles(np.ndim)
def ndim(a: Any) -> Any:
    """Give the number of axes."""
    return a.ndim


@handles(np.result_type)
def result_type(*arrays_and_dtypes: Any) -> Any:
    """Give the dtype of a result by NumPy's promotion."""
    return np.result_type(*(x.dtype if _is_recorded(x) else x for x in arrays_and_dtypes))


@handles(np.can_cast)
def can_cast(from_: Any, to: Any, casting: str = "safe") -> Any:
    """Tell whether a dtype can be cast to another."""
    return np.can_cast(from_.dtype if _is_recorded(from_) else from_, to, casting)  # type: ignore[arg-type]


@handles(np.iscomplexobj)
def iscomplexobj(x: Any) -> bool:
    """Tell whether the dtype is complex."""
    return bool(x.dtype.kind == "c")


@handles(np.isrealobj)
def isrealobj(x: Any) -> bool:
    """Tell whether the dtype is real."""
    return not iscomplexobj(x)
