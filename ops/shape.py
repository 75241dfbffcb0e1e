"""Ops that rearrange elements: reshape, transpose, broadcast_to, and the NumPy functions told in terms of them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from ops.catalog import LINEAR, handles, structural


def shape_of(x: Any) -> tuple[int, ...]:
    """Give the shape of an array, a recorded value or a number."""
    shape = getattr(x, "shape", None)
    return np.shape(x) if shape is None else shape


def _reshape(x: Any, shape: tuple[int, ...]) -> Any:
    return np.asarray(x).reshape(shape)


def _transpose(x: Any, axes: tuple[int, ...]) -> Any:
    return np.asarray(x).transpose(axes)


def _broadcast(x: Any, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(x, shape)


def sum_to(x: Any, shape: tuple[int, ...]) -> Any:
    """Sum over the axes along which `shape` was broadcast to the shape of x."""
    own = shape_of(x)
    if own == shape:
        return x
    lead = len(own) - len(shape)
    axes = tuple(range(lead)) + tuple(lead + a for a, n in enumerate(shape) if n == 1 and own[lead + a] != 1)
    return np.reshape(np.sum(x, axis=axes), shape)


def fit_to(x: Any, shape: tuple[int, ...]) -> Any:
    """Sum x to a shape that was broadcast to its own, or repeat it to one that its own broadcasts to."""
    own = shape_of(x)
    if own == shape:
        return x
    if len(own) > len(shape) or any(n == 1 != m for m, n in zip(own[::-1], shape[::-1], strict=False)):
        return sum_to(x, shape)
    return np.broadcast_to(x, shape)


def _shapes(rng: np.random.Generator) -> Any:
    yield (rng.normal(size=(2, 3)),), {"shape": (3, 2)}
    yield (rng.normal(size=(2, 0)),), {"shape": (0,)}
    yield (rng.normal(size=6),), {"shape": (1, 2, 3)}
    yield (rng.normal(size=(3, 2)).T,), {"shape": (6,)}
    yield (rng.normal(size=(1, 1)),), {"shape": ()}


def _axes(rng: np.random.Generator) -> Any:
    yield (rng.normal(size=(2, 3, 4)),), {"axes": (2, 0, 1)}
    yield (rng.normal(size=(2, 3)),), {"axes": (1, 0)}
    yield (rng.normal(size=(2, 0)),), {"axes": (1, 0)}


def _targets(rng: np.random.Generator) -> Any:
    yield (rng.normal(size=(3, 1)),), {"shape": (2, 3, 4)}
    yield (rng.normal(size=()),), {"shape": (2, 3)}
    yield (rng.normal(size=3),), {"shape": (3,)}
    yield (rng.normal(size=(1, 3)),), {"shape": (0, 3)}


reshape_op = structural(
    _reshape,
    lambda g, out, x, *, shape: np.reshape(g, shape_of(x)),
    pushforward=LINEAR,
    name="reshape",
    native="reshape",
    examples=_shapes,
)
transpose_op = structural(
    _transpose,
    lambda g, out, x, *, axes: np.transpose(g, tuple(int(a) for a in np.argsort(axes))),
    pushforward=LINEAR,
    name="transpose",
    native="transpose",
    examples=_axes,
)
broadcast_op = structural(
    _broadcast,
    lambda g, out, x, *, shape: sum_to(g, shape_of(x)),
    pushforward=LINEAR,
    name="broadcast_to",
    native="broadcast",
    examples=_targets,
)


@handles(np.reshape)
def reshape(a: Any, /, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: Any = None) -> Any:
    """Give the elements a new shape; one length may be -1."""
    shape = newshape if shape is None else shape
    shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    shape = tuple(operator.index(n) for n in shape)
    if order == "F":
        return np.transpose(np.reshape(np.transpose(a), shape[::-1]))
    if -1 in shape:
        # NumPy resolves the length, with its own message where that cannot be.
        shape = np.broadcast_to(np.empty(()), a.shape).reshape(shape).shape
    return reshape_op(a, shape=shape)


@handles(np.ravel)
def ravel(a: Any, order: str = "C") -> Any:
    """Give the elements as one axis, next to each other in memory: a view only where they are."""
    flat = reshape(a, (a.size,), order="F" if order == "F" else "C")
    return flat if flat.size < 2 or flat.strides == (flat.itemsize,) else np.positive(flat)


@handles(np.transpose, np.permute_dims)
def transpose(a: Any, axes: Sequence[int] | None = None) -> Any:
    """Permute the axes; reverse them if no order is given."""
    if axes is None:
        return transpose_op(a, axes=tuple(range(a.ndim))[::-1])
    if len(axes) != a.ndim:
        raise ValueError("axes don't match array")
    order = normalize_axis_tuple(axes, a.ndim)
    return transpose_op(a, axes=order)


@handles(np.matrix_transpose, np.linalg.matrix_transpose)
def matrix_transpose(x: Any, /) -> Any:
    """Swap the last two axes."""
    if x.ndim < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {x.ndim}")
    return np.swapaxes(x, -1, -2)


@handles(np.swapaxes)
def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Swap two axes."""
    order = list(range(a.ndim))
    i, j = normalize_axis_index(axis1, a.ndim, "axis1"), normalize_axis_index(axis2, a.ndim, "axis2")
    order[i], order[j] = j, i
    return transpose_op(a, axes=tuple(order))


@handles(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Move axes to new positions."""
    origin = normalize_axis_tuple(source, a.ndim, "source")
    goal = normalize_axis_tuple(destination, a.ndim, "destination")
    if len(origin) != len(goal):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [axis for axis in range(a.ndim) if axis not in origin]
    for to, from_ in sorted(zip(goal, origin, strict=True)):
        order.insert(to, from_)
    return transpose_op(a, axes=tuple(order))


@handles(np.rollaxis)
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """Roll an axis backwards until it lies before `start`."""
    axis = normalize_axis_index(axis, a.ndim)
    start = start + a.ndim if start < 0 else start
    if not 0 <= start <= a.ndim:
        raise np.exceptions.AxisError(
            f"start arg requires {-a.ndim} <= start < {a.ndim + 1}, but {start} was passed in"
        )
    order = [d for d in range(a.ndim) if d != axis]
    order.insert(start - 1 if axis < start else start, axis)
    return transpose_op(a, axes=tuple(order))


@handles(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Any:
    """Insert axes of length 1."""
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    ndim = a.ndim + len(axes)
    places = normalize_axis_tuple(axes, ndim)
    lengths = iter(a.shape)
    return np.reshape(a, tuple(1 if d in places else next(lengths) for d in range(ndim)))


@handles(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> Any:
    """Drop axes of length 1."""
    if axis is None:
        return np.reshape(a, tuple(n for n in a.shape if n != 1))
    places = normalize_axis_tuple(axis, a.ndim)
    if any(a.shape[d] != 1 for d in places):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return np.reshape(a, tuple(n for d, n in enumerate(a.shape) if d not in places))


@handles(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    """Repeat the elements along new axes and along axes of length 1."""
    shape = (shape,) if isinstance(shape, int | np.integer) else tuple(int(n) for n in shape)
    return broadcast_op(array, shape=shape)


@handles(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    """Broadcast arrays against one another."""
    shape = np.broadcast_shapes(*(shape_of(a) for a in args))
    return tuple(np.broadcast_to(a, shape) for a in args)


def _at_least(ndim: int, arrays: tuple[Any, ...]) -> Any:
    results = []
    for x in arrays:
        shape = shape_of(x)
        if len(shape) < ndim:
            full = {1: (1,), 2: (1,) * (2 - len(shape)) + shape, 3: (1, 1, 1)}[ndim]
            if ndim == 3 and shape:
                full = (1, *shape, 1) if len(shape) == 1 else (*shape, 1)
            x = np.reshape(x, full)
        results.append(x)
    return results[0] if len(results) == 1 else tuple(results)


@handles(np.atleast_1d)
def atleast_1d(*arys: Any) -> Any:
    """Give numbers an axis."""
    return _at_least(1, arys)


@handles(np.atleast_2d)
def atleast_2d(*arys: Any) -> Any:
    """Give arrays at least two axes."""
    return _at_least(2, arys)


@handles(np.atleast_3d)
def atleast_3d(*arys: Any) -> Any:
    """Give arrays at least three axes."""
    return _at_least(3, arys)


@handles(np.flip)
def flip(m: Any, axis: Any = None) -> Any:
    """Reverse the order along axes."""
    axes = range(m.ndim) if axis is None else normalize_axis_tuple(axis, m.ndim)
    index = [slice(None)] * m.ndim
    for d in axes:
        index[d] = slice(None, None, -1)
    return m[tuple(index)]


@handles(np.fliplr)
def fliplr(m: Any) -> Any:
    """Reverse the second axis."""
    if m.ndim < 2:
        raise ValueError("Input must be >= 2-d.")
    return np.flip(m, 1)


@handles(np.flipud)
def flipud(m: Any) -> Any:
    """Reverse the first axis."""
    if m.ndim < 1:
        raise ValueError("Input must be >= 1-d.")
    return np.flip(m, 0)


@handles(np.rot90)
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """Rotate by 90 degrees in the plane of two axes."""
    first, second = normalize_axis_tuple(axes, m.ndim)
    k %= 4
    if k == 0:
        return +m
    if k == 2:
        return np.flip(m, (first, second))
    if k == 1:
        return np.swapaxes(np.flip(m, second), first, second)
    return np.flip(np.swapaxes(m, first, second), second)


stopped_op = structural(lambda x: np.array(x), name="stop_gradient")
"""The identity, without slope."""


def _cast_examples(rng: np.random.Generator) -> Any:
    yield (rng.normal(size=(2, 3)),), {"dtype": "float64"}
    yield (rng.normal(size=()),), {"dtype": "float64"}


cast_op = structural(
    lambda x, *, dtype: np.asarray(x).astype(dtype),
    lambda g, out, x, *, dtype: g.astype(x.dtype),
    pushforward=LINEAR,
    name="astype",
    examples=_cast_examples,
)


@handles(np.astype)
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """Convert to another dtype."""
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        raise TypeError("complex dtypes are not supported yet on recorded values")
    return +x if dtype == x.dtype else cast_op(x, dtype=dtype.name)
