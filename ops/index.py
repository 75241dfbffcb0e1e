"""Ops that pick and replace elements: indexing of every kind, and the NumPy functions told in terms of it.

An index is kept as `spec`, a hashable tuple in which the sentinel `ARRAY` stands for each array operand and a triple
("slice", start, stop, step) for a slice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ops.catalog import LINEAR, Structural, handles, structural
from ops.shape import shape_of, sum_to

ARRAY = "array"


def spec_of(index: Any) -> tuple[tuple[Any, ...], list[Any]]:
    """Split an index into its spec and its array operands."""
    items = index if isinstance(index, tuple) else (index,)
    spec: list[Any] = []
    arrays: list[Any] = []
    for item in items:
        if item is None or item is Ellipsis or (isinstance(item, int | np.integer) and not isinstance(item, bool)):
            spec.append(int(item) if item is not None and item is not Ellipsis else item)
        elif isinstance(item, slice):
            spec.append(
                ("slice", *(None if s is None else int(s.__index__()) for s in (item.start, item.stop, item.step)))
            )
        else:
            spec.append(ARRAY)
            array = item if hasattr(item, "shape") else np.asarray(item)
            if not array.size and not hasattr(item, "shape"):
                array = array.astype(np.intp)
            if array.dtype.kind not in "biu":
                raise IndexError(
                    "arrays used as indices must be of integer (or boolean) type"
                    if array.ndim and hasattr(item, "shape")
                    else "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean "
                    "arrays are valid indices"
                )
            arrays.append(array)
    return tuple(spec), arrays


def index_of(spec: tuple[Any, ...], arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """Put an index together again."""
    rest = iter(arrays)
    return tuple(
        next(rest) if item is ARRAY or item == ARRAY else slice(*item[1:]) if isinstance(item, tuple) else item
        for item in spec
    )


def _index(x: Any, *arrays: Any, spec: tuple[Any, ...]) -> Any:
    return x[index_of(spec, arrays)]


def _scatter(g: Any, *arrays: Any, spec: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    total = np.zeros(shape, g.dtype)
    index = index_of(spec, arrays)
    if _distinct(spec, arrays):
        total[index] = g
    else:
        np.add.at(total, index, g)
    return total


def _distinct(spec: tuple[Any, ...], arrays: tuple[Any, ...]) -> bool:
    """Tell whether no element can be picked twice."""
    return not arrays or (len(arrays) == 1 and np.asarray(arrays[0]).dtype == np.bool_)


def _assign(x: Any, v: Any, *arrays: Any, spec: tuple[Any, ...]) -> Any:
    result = np.array(x)
    result[index_of(spec, arrays)] = v
    return result


def _last_writes(arrays: tuple[Any, ...], spec: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    """Give 1 for each written element whose value stayed, 0 where a later one replaced it."""
    index = index_of(spec, tuple(np.asarray(a.numpy() if hasattr(a, "numpy") else a) for a in arrays))
    order = np.zeros(shape, np.int64)
    count = order[index].shape
    numbers = np.arange(int(np.prod(count))).reshape(count)
    order[index] = numbers
    return (order[index] == numbers).astype(np.float64)


def _assign_pullback(position: int, g: Any, out: Any, x: Any, v: Any, *arrays: Any, spec: tuple[Any, ...]) -> Any:
    if position == 0:
        return assign_op(g, np.zeros((), g.dtype), *arrays, spec=spec)
    if position > 1:
        return None
    picked = index_op(g, *arrays, spec=spec)
    if not _distinct(spec, arrays):
        picked = picked * _last_writes(arrays, spec, shape_of(x)).astype(g.dtype)
    lead = len(shape_of(v)) - len(shape_of(picked))
    if lead > 0:  # leading axes of length 1
        return np.reshape(sum_to(picked, shape_of(v)[lead:]), shape_of(v))
    return sum_to(picked, shape_of(v))


def _assign_pushforward(tangents: Any, out: Any, x: Any, v: Any, *arrays: Any, spec: tuple[Any, ...]) -> Any:
    """Write the tangent of v into that of x: zeros where one has none, which an array of integers never has."""
    onto, written = (
        np.zeros(shape_of(y), out.dtype) if t is None else t for t, y in zip(tangents[:2], (x, v), strict=True)
    )
    return assign_op(onto, written, *arrays, spec=spec)


def _index_examples(rng: np.random.Generator) -> Any:
    x = rng.normal(size=(4, 3, 2))
    yield (x,), {"spec": (1,)}
    yield (x,), {"spec": (("slice", 3, 0, -2), None, Ellipsis, 0)}
    yield (x, np.array([0, 2, 0, -1])), {"spec": (ARRAY,)}
    yield (x, np.array([[0, 2], [1, 1]]), np.array([0, 2])), {"spec": (ARRAY, ARRAY)}
    yield (x, np.array([0, 2, 2]), np.array([0, 1, 1])), {"spec": (ARRAY, ("slice", None, None, None), ARRAY)}
    yield (x, x[..., 0] > 0), {"spec": (ARRAY,)}
    yield (x, np.array([], np.int64)), {"spec": (ARRAY,)}
    yield (rng.normal(size=5), np.array([1, 1, 3, -1])), {"spec": (ARRAY,)}


def _assign_examples(rng: np.random.Generator) -> Any:
    x = rng.normal(size=(4, 3))
    yield (x, rng.normal(size=3)), {"spec": (1,)}
    yield (x, rng.normal(size=(2, 1))), {"spec": (("slice", None, None, 2),)}
    yield (x, rng.normal(size=(3, 3)), np.array([0, 2, 0])), {"spec": (ARRAY,)}
    yield (x, np.array(0.5), x > 0), {"spec": (ARRAY,)}
    yield (x, rng.normal(size=()), np.array([0, 0]), np.array([1, 2])), {"spec": (ARRAY, ARRAY)}


def _scatter_examples(rng: np.random.Generator) -> Any:
    yield (rng.normal(size=(4, 3)), np.array([0, 1, 1, 0])), {"spec": (ARRAY,), "shape": (2, 3)}
    yield (rng.normal(size=3),), {"spec": (1,), "shape": (2, 3)}


index_op: Structural = structural(
    _index,
    lambda g, out, x, *arrays, spec: scatter_op(g, *arrays, spec=spec, shape=shape_of(x)),
    pushforward=LINEAR,
    name="index",
    native="index",
    examples=_index_examples,
)
scatter_op: Structural = structural(
    _scatter,
    lambda g, out, x, *arrays, spec, shape: index_op(g, *arrays, spec=spec),
    pushforward=LINEAR,
    name="scatter",
    examples=_scatter_examples,
)
assign_op = structural(
    _assign, every=_assign_pullback, pushforward=_assign_pushforward, name="assign", examples=_assign_examples
)


def _strided(x: Any, offset: int, strides: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """See part of the elements of a C-contiguous array, steps counted in elements."""
    start = x.reshape(-1)[offset:]
    return (
        np.lib.stride_tricks.as_strided(start, shape, [x.itemsize * s for s in strides])
        if 0 not in shape
        else (np.empty(shape, x.dtype))
    )


def _window(x: Any, *, offset: int, strides: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    return _strided(np.ascontiguousarray(x), offset, strides, shape).copy()


def _embed(g: Any, *, offset: int, strides: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    total = np.zeros(shape, g.dtype)
    _strided(total, offset, strides, np.shape(g))[...] = g
    return total


def _window_examples(rng: np.random.Generator) -> Any:
    yield (rng.normal(size=(4, 3)),), {"offset": 3, "strides": (6, 1), "shape": (2, 3)}
    yield (rng.normal(size=(3, 4)).T,), {"offset": 11, "strides": (-3, -1), "shape": (4, 2)}


def _embed_examples(rng: np.random.Generator) -> Any:
    yield (rng.normal(size=(2, 3)),), {"offset": 3, "strides": (6, 1), "shape": (4, 3)}
    yield (rng.normal(size=(4, 2)),), {"offset": 11, "strides": (-3, -1), "shape": (4, 3)}
    yield (rng.normal(size=(0, 2)),), {"offset": 0, "strides": (3, 1), "shape": (4, 3)}


window_op: Structural = structural(
    _window,
    lambda g, out, x, *, offset, strides, shape: embed_op(g, offset=offset, strides=strides, shape=shape_of(x)),
    pushforward=LINEAR,
    name="window",
    native="window",
    examples=_window_examples,
)
"""A basic index told by where it begins and its steps along each axis, in elements of a C-contiguous array."""

embed_op: Structural = structural(
    _embed,
    lambda g, out, x, *, offset, strides, shape: window_op(g, offset=offset, strides=strides, shape=shape_of(x)),
    pushforward=LINEAR,
    name="embed",
    native="embed",
    examples=_embed_examples,
)
"""Zeros, but for the elements that `window` takes."""


# ---------------------------------------------------------------- functions
@handles(np.take)
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    """Take elements along an axis by an integer array."""
    if mode != "raise":
        length = a.size if axis is None else a.shape[axis]
        indices = np.mod(indices, length) if mode == "wrap" else np.clip(indices, 0, length - 1)
    if axis is None:
        return np.reshape(a, -1)[indices]
    axis = normalize_axis_index(axis, a.ndim)
    return a[(slice(None),) * axis + (indices,)]


@handles(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    """Take along an axis the elements whose positions stand in an array of the same number of axes."""
    if axis is None:
        return np.reshape(arr, -1)[indices]
    axis = normalize_axis_index(axis, arr.ndim)
    index = []
    for d, length in enumerate(shape_of(arr)):
        if d == axis:
            index.append(indices)
        else:
            index.append(np.arange(length).reshape((1,) * d + (-1,) + (1,) * (arr.ndim - d - 1)))
    return arr[tuple(index)]


@handles(np.compress)
def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    """Take the slices along an axis for which a condition holds."""
    if axis is None:
        a, axis = np.reshape(a, -1), 0
    return np.take(a, np.flatnonzero(condition), axis=axis)


@handles(np.extract)
def extract(condition: Any, arr: Any) -> Any:
    """Take the elements for which a condition holds."""
    return np.take(np.reshape(arr, -1), np.flatnonzero(condition))


@handles(np.diagonal)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Take the diagonals of the matrices in two axes, as the last axis."""
    first, second = normalize_axis_index(axis1, a.ndim), normalize_axis_index(axis2, a.ndim)
    if first == second:
        raise ValueError("axis1 and axis2 cannot be the same")
    rest = [d for d in range(a.ndim) if d not in (first, second)]
    moved = np.transpose(a, (*rest, first, second))
    rows, columns = moved.shape[-2:]
    length = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    step = np.arange(length)
    return moved[(..., step - min(offset, 0), step + max(offset, 0))]


@handles(np.diag, np.linalg.diagonal)
def diag(v: Any, k: int = 0, **keywords: Any) -> Any:
    """Take the diagonal of a matrix, or make a diagonal matrix of a vector."""
    k = keywords.pop("offset", k)
    if v.ndim == 1:
        n = v.shape[0] + abs(k)
        step = np.arange(v.shape[0])
        return scatter_op(v, step - min(k, 0), step + max(k, 0), spec=(ARRAY, ARRAY), shape=(n, n))
    if v.ndim < 2:
        raise ValueError("Input must be 1- or 2-d.")
    return np.diagonal(v, k, -2, -1)


@handles(np.diagflat)
def diagflat(v: Any, k: int = 0) -> Any:
    """Make a diagonal matrix of all elements."""
    return diag(np.reshape(v, -1), k)


@handles(np.trace)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    """Sum the diagonals of the matrices in two axes."""
    return np.sum(np.diagonal(a, offset, axis1, axis2), axis=-1)


@handles(np.linalg.trace)
def matrix_trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Sum the diagonals of the matrices in the last two axes."""
    return np.trace(x, offset, -2, -1)


@handles(np.tril)
def tril(m: Any, k: int = 0) -> Any:
    """Keep the lower triangle."""
    return np.where(np.tri(m.shape[-2], m.shape[-1], k=k, dtype=bool), m, np.zeros((), m.dtype))


@handles(np.triu)
def triu(m: Any, k: int = 0) -> Any:
    """Keep the upper triangle."""
    return np.where(np.tri(m.shape[-2], m.shape[-1], k=k - 1, dtype=bool), np.zeros((), m.dtype), m)


@handles(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Shift elements along axes; those shifted out come in at the other end."""
    if axis is None:
        return np.reshape(roll(np.reshape(a, -1), shift, 0), a.shape)
    unrolled = a
    shifts, axes = np.broadcast_arrays(shift, axis)
    for s, d in zip(shifts.reshape(-1), axes.reshape(-1), strict=True):
        d = normalize_axis_index(int(d), a.ndim)
        length = a.shape[d]
        if length:
            s = int(s) % length
            lead = (slice(None),) * d
            if s:
                a = np.concatenate([a[(*lead, slice(length - s, None))], a[(*lead, slice(None, length - s))]], axis=d)
    return +a if a is unrolled else a


@handles(np.repeat)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    """Repeat elements along an axis."""
    if axis is None:
        a, axis = np.reshape(a, -1), 0
    return np.take(a, np.repeat(np.arange(a.shape[axis]), np.asarray(repeats)), axis=axis)


@handles(np.tile)
def tile(A: Any, reps: Any) -> Any:
    """Repeat a whole array along axes."""
    counts = (int(reps),) if np.ndim(reps) == 0 else tuple(int(r) for r in reps)
    counts = (1,) * (A.ndim - len(counts)) + counts
    shape = (1,) * (len(counts) - A.ndim) + A.shape
    pairs = tuple(n for c, s in zip(counts, shape, strict=True) for n in (c, s))
    alone = tuple(n for s in shape for n in (1, s))
    total = tuple(c * s for c, s in zip(counts, shape, strict=True))
    return np.reshape(np.broadcast_to(np.reshape(A, alone), pairs), total)


@handles(np.resize)
def resize(a: Any, new_shape: Any) -> Any:
    """Repeat the elements in order until a shape is filled."""
    shape = (new_shape,) if isinstance(new_shape, int | np.integer) else tuple(new_shape)
    total = int(np.prod(shape))
    return np.reshape(np.reshape(a, -1)[np.arange(total) % max(a.size, 1)], shape)


nonzero_op = structural(lambda x: np.flatnonzero(x), name="flatnonzero")


@handles(np.flatnonzero)
def flatnonzero(a: Any) -> Any:
    """Give the positions, counted along the flattened array, of the elements that are not zero."""
    return nonzero_op(a)


@handles(np.nonzero)
def nonzero(a: Any) -> Any:
    """Give the positions of the elements that are not zero, an array for each axis."""
    flat = nonzero_op(a)
    result = []
    for length in reversed(a.shape):
        result.append(np.remainder(flat, length))
        flat = np.floor_divide(flat, length)
    return tuple(reversed(result))


@handles(np.argwhere)
def argwhere(a: Any) -> Any:
    """Give the positions of the elements that are not zero, a row for each."""
    return np.stack(np.nonzero(a), axis=-1)
