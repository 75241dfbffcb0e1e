"""Ops that join and split arrays: concatenate, and what is told in terms of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ops.catalog import Structural, handles, structural
from ops.shape import shape_of


def _concatenate_pullback(position: int, g: Any, out: Any, *arrays: Any, axis: int) -> Any:
    start = 0
    for array in arrays[:position]:
        start += shape_of(array)[axis]
    stop = start + shape_of(arrays[position])[axis]
    return g[(slice(None),) * axis + (slice(start, stop),)]


def _tangents(tangents: Any, out: Any, arrays: Any) -> Any:
    """Give zeros for what has no tangent."""
    return [np.zeros(shape_of(x), out.dtype) if t is None else t for t, x in zip(tangents, arrays, strict=True)]


def _examples(rng: np.random.Generator) -> Any:
    yield tuple(rng.normal(size=(2, n)) for n in (1, 3, 0)), {"axis": 1}
    yield (rng.normal(size=3), rng.normal(size=2)), {"axis": 0}
    yield (rng.normal(size=(3, 2)).T, rng.normal(size=(2, 6))[:, ::2]), {"axis": 0}


concatenate_op: Structural = structural(
    lambda *arrays, axis: np.concatenate(arrays, axis=axis),
    every=_concatenate_pullback,
    pushforward=lambda tangents, out, *arrays, axis: concatenate_op(*_tangents(tangents, out, arrays), axis=axis),
    name="concatenate",
    native="concatenate",
    examples=_examples,
)


numbers_op: Structural = structural(
    lambda *numbers: np.array(numbers),
    every=lambda position, g, out, *numbers: g[position],
    pushforward=lambda tangents, out, *numbers: numbers_op(*_tangents(tangents, out, numbers)),
    name="numbers",
    native="concatenate",
    examples=lambda rng: [(tuple(rng.normal(size=n)), {}) for n in (1, 3)],
)
"""Numbers as the elements of a vector."""


def _arrays(items: Any) -> list[Any]:
    return [
        x if hasattr(x, "shape") else np.asarray(x) if not isinstance(x, list | tuple) else _array(x) for x in items
    ]


def _array(x: Any) -> Any:
    from ops.create import array

    return array(x)


@handles(np.concatenate, np.concat)
def concatenate(arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = None) -> Any:
    """Join arrays along an axis."""
    parts = _arrays(arrays)
    if axis is None:
        parts, axis = [np.reshape(p, -1) for p in parts], 0
    if not parts:
        raise ValueError("need at least one array to concatenate")
    if not shape_of(parts[0]):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    return _finish(concatenate_op(*parts, axis=normalize_axis_index(axis, len(shape_of(parts[0])))), out, dtype)


def _finish(result: Any, out: Any, dtype: Any) -> Any:
    if dtype is not None:
        result = result.astype(dtype)
    if out is not None:
        out[...] = result
        return out
    return result


@handles(np.stack)
def stack(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: Any = None) -> Any:
    """Join arrays along a new axis."""
    parts = _arrays(arrays)
    if not parts:
        raise ValueError("need at least one array to stack")
    shapes = {shape_of(p) for p in parts}
    if len(shapes) != 1:
        raise ValueError("all input arrays must have the same shape")
    shape = shapes.pop()
    if not shape and axis in (0, -1):
        return _finish(numbers_op(*parts), out, dtype)
    axis = normalize_axis_index(axis, len(shape) + 1)
    slab = (*shape[:axis], 1, *shape[axis:])
    return concatenate([np.reshape(p, slab) for p in parts], axis=axis, out=out, dtype=dtype)


@handles(np.unstack)
def unstack(x: Any, /, *, axis: int = 0) -> Any:
    """Split along an axis, which is dropped."""
    return tuple(np.moveaxis(x, axis, 0))


@handles(np.vstack)
def vstack(tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
    """Join arrays as rows."""
    return concatenate([np.atleast_2d(x) for x in _arrays(tup)], axis=0, dtype=dtype)


@handles(np.hstack)
def hstack(tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
    """Join arrays along the second axis, vectors along their own."""
    parts = [np.atleast_1d(x) for x in _arrays(tup)]
    return concatenate(parts, axis=0 if len(shape_of(parts[0])) == 1 else 1, dtype=dtype)


@handles(np.dstack)
def dstack(tup: Any) -> Any:
    """Join arrays along the third axis."""
    return concatenate([np.atleast_3d(x) for x in _arrays(tup)], axis=2)


@handles(np.column_stack)
def column_stack(tup: Any) -> Any:
    """Join vectors as columns."""
    parts = [x if len(shape_of(x)) >= 2 else np.reshape(x, (-1, 1)) for x in _arrays(tup)]
    return concatenate(parts, axis=1)


@handles(np.block)
def block(arrays: Any) -> Any:
    """Put an array together from nested lists of blocks."""
    depth = _depth(arrays)
    ndim = max(depth, _most_axes(arrays))

    def assemble(item: Any, level: int) -> Any:
        if level == depth:
            item = item if hasattr(item, "shape") else np.asarray(item)
            return np.reshape(item, (1,) * (ndim - len(shape_of(item))) + shape_of(item))
        return concatenate([assemble(x, level + 1) for x in item], axis=ndim - depth + level)

    return assemble(arrays, 0)


def _depth(item: Any) -> int:
    return 1 + max(_depth(x) for x in item) if isinstance(item, list) else 0


def _most_axes(item: Any) -> int:
    return max(_most_axes(x) for x in item) if isinstance(item, list) else len(shape_of(item))


@handles(np.append)
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    """Join two arrays, flattened if no axis is given."""
    return concatenate([arr, values], axis=axis)


@handles(np.array_split)
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Split into parts of nearly equal length, or at given positions."""
    length = ary.shape[axis]
    if np.ndim(indices_or_sections) == 0:
        sections = int(indices_or_sections)
        if sections <= 0:
            raise ValueError("number sections must be larger than 0.")
        each, extra = divmod(length, sections)
        bounds = np.cumsum([0] + extra * [each + 1] + (sections - extra) * [each]).tolist()
    else:
        bounds = [0, *(int(i) for i in indices_or_sections), None]
    lead = (slice(None),) * normalize_axis_index(axis, ary.ndim)
    return [ary[(*lead, slice(start, stop))] for start, stop in pairwise(bounds)]


@handles(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Split into parts of equal length, or at given positions."""
    if np.ndim(indices_or_sections) == 0 and ary.shape[axis] % int(indices_or_sections):
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


@handles(np.hsplit)
def hsplit(ary: Any, indices_or_sections: Any) -> Any:
    """Split along the second axis, a vector along its own."""
    if ary.ndim == 0:
        raise ValueError("hsplit only works on arrays of 1 or more dimensions")
    return split(ary, indices_or_sections, 1 if ary.ndim > 1 else 0)


@handles(np.vsplit)
def vsplit(ary: Any, indices_or_sections: Any) -> Any:
    """Split along the first axis."""
    if ary.ndim < 2:
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return split(ary, indices_or_sections, 0)


@handles(np.dsplit)
def dsplit(ary: Any, indices_or_sections: Any) -> Any:
    """Split along the third axis."""
    if ary.ndim < 3:
        raise ValueError("dsplit only works on arrays of 3 or more dimensions")
    return split(ary, indices_or_sections, 2)


@handles(np.pad)
def pad(array: Any, pad_width: Any, mode: str = "constant", **keywords: Any) -> Any:
    """Extend an array at its edges, in each of NumPy's modes that copies elements or a constant."""
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(d, pad_width.get(d - array.ndim, (0, 0))) for d in range(array.ndim)]
    widths = np.broadcast_to(np.asarray(pad_width), (array.ndim, 2))
    if mode == "constant":
        return _pad_constant(array, widths, keywords.get("constant_values", 0))
    if mode in ("edge", "wrap", "reflect", "symmetric"):
        for d in range(array.ndim):
            positions = np.pad(np.arange(array.shape[d]), tuple(widths[d]), mode=mode)  # type: ignore[call-overload]
            array = np.take(array, positions, axis=d)
        return array
    raise TypeError(
        f"np.pad with mode={mode!r} is not supported on recorded values: use 'constant', 'edge', 'wrap', 'reflect' or "
        "'symmetric'"
    )


def _pad_constant(array: Any, widths: Any, values: Any) -> Any:
    constants = np.broadcast_to(np.asarray(values, array.dtype), (array.ndim, 2))
    for d in range(array.ndim):
        parts = []
        for side in (0, 1):
            shape = list(array.shape)
            shape[d] = int(widths[d, side])
            parts.append(np.full(shape, constants[d, side], array.dtype))
        array = concatenate([parts[0], array, parts[1]], axis=d)
    return array
