"""Leaving out and putting in elements, and the NumPy functions that write into their argument.

The latter write through ``x[index] = v``, so they work on recorded arrays as assignments do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from ops.catalog import handles
from ops.create import _is_recorded, array
from ops.shape import shape_of


def _array(x: Any) -> Any:
    return x if hasattr(x, "shape") else array(x)


def _plain_index(obj: Any) -> Any:
    return obj.numpy() if _is_recorded(obj) else obj


@handles(np.delete)
def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    """Leave out elements along an axis."""
    arr = _array(arr)
    if axis is None:
        arr, axis = np.reshape(arr, (-1,)), 0
    axis = normalize_axis_index(axis, arr.ndim)
    return np.take(arr, np.delete(np.arange(arr.shape[axis]), _plain_index(obj)), axis=axis)


@handles(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    """Put values before given positions along an axis."""
    arr, values = _array(arr), _array(values)
    if axis is None:
        arr, axis = np.reshape(arr, (-1,)), 0
    axis = normalize_axis_index(axis, arr.ndim)
    obj = _plain_index(obj)
    n = arr.shape[axis]
    single = not isinstance(obj, slice) and np.ndim(obj) == 0
    if values.ndim < arr.ndim:
        values = np.reshape(values, (1,) * (arr.ndim - values.ndim) + shape_of(values))
    if single:
        values = np.moveaxis(values, 0, axis)
        count = values.shape[axis]
        places = np.insert(np.arange(n), obj, np.arange(n, n + count))
    else:
        chosen = np.arange(n)[obj] if isinstance(obj, slice) else np.asarray(obj)
        count = int(np.sum(chosen)) if chosen.dtype == np.bool_ else chosen.size
        # NumPy takes one index in a list for one index, but does not move the axes of the values.
        count = max(count, values.shape[axis]) if count == 1 else count
        places = np.insert(np.arange(n), obj, np.arange(n, n + count))
    shape = tuple(count if d == axis else m for d, m in enumerate(arr.shape))
    values = np.broadcast_to(values if values.dtype == arr.dtype else values.astype(arr.dtype), shape)
    return np.take(np.concatenate([arr, values], axis=axis), places, axis=axis)


@handles(np.trim_zeros)
def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    """Leave out zeros at the ends."""
    filt = _array(filt)
    axes = range(filt.ndim) if axis is None else normalize_axis_tuple(axis, filt.ndim)
    index = [slice(None)] * filt.ndim
    for d in axes:
        rest = tuple(e for e in range(filt.ndim) if e != d)
        there = np.flatnonzero(np.any(filt != 0, axis=rest) if rest else filt != 0)
        if there.size == 0:
            index[d] = slice(0, 0)
            continue
        start, stop = int(there[0]), int(there[-1]) + 1
        index[d] = slice(start if "f" in trim.lower() else None, stop if "b" in trim.lower() else None)
    return filt[tuple(index)]


# ---------------------------------------------------------------- in place
def _check_target(target: Any, name: str) -> None:
    if not _is_recorded(target):
        raise TypeError(
            f"np.{name} would write a recorded value into a plain array and drop its gradient: allocate the array with "
            "`np.zeros_like(t)` or `ops.zeros(...)`"
        )


def _repeated(values: Any, count: int) -> Any:
    """Repeat values until there are enough of them."""
    flat = np.reshape(_array(values), (-1,))
    return flat if flat.shape[0] == count else flat[np.arange(count) % max(flat.shape[0], 1)]


@handles(np.copyto)
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """Copy values, where a mask is true."""
    _check_target(dst, "copyto")
    kind = src.dtype if hasattr(src, "dtype") else np.asarray(src).dtype
    if hasattr(src, "dtype") and not np.can_cast(kind, dst.dtype, casting):  # type: ignore[arg-type]
        raise TypeError(f"Cannot cast array data from {kind!r} to {dst.dtype!r} according to the rule {casting!r}")
    dst[...] = src if where is True else np.where(where, src, dst)


@handles(np.put)
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """Write values at positions counted along the flattened array."""
    _check_target(a, "put")
    places = np.reshape(np.asarray(_plain_index(ind)), (-1,))
    if mode == "wrap":
        places = places % a.size
    elif mode == "clip":
        places = np.clip(places, 0, a.size - 1)
    elif np.any((places < -a.size) | (places >= a.size)):
        raise IndexError(f"index out of bounds for array of size {a.size}")
    if places.size:
        a[np.unravel_index(places % a.size, a.shape)] = _repeated(v, places.size)


@handles(np.place)
def place(arr: Any, mask: Any, vals: Any) -> None:
    """Write values one after another where a mask is true."""
    _check_target(arr, "place")
    places = np.flatnonzero(np.asarray(_plain_index(mask)))
    if places.size:
        if not np.size(vals):
            raise ValueError("Cannot insert from an empty array!")
        arr[np.unravel_index(places, arr.shape)] = _repeated(vals, places.size)


@handles(np.putmask)
def putmask(a: Any, mask: Any, values: Any) -> None:
    """Write where a mask is true the values that stand at the same places."""
    _check_target(a, "putmask")
    a[...] = np.where(np.reshape(mask, a.shape), np.reshape(_repeated(values, a.size), a.shape), a)


@handles(np.fill_diagonal)
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """Write the main diagonal."""
    _check_target(a, "fill_diagonal")
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if a.ndim > 2 and len(set(a.shape)) != 1:
        raise ValueError("All dimensions of input must be of equal length")
    step = a.shape[1] + 1 if a.ndim == 2 else 1 + int(np.sum(np.cumprod(a.shape[:-1])))
    end = None if a.ndim > 2 or wrap else a.shape[1] * a.shape[1]
    places = np.arange(a.size)[:end:step]
    a[np.unravel_index(places, a.shape)] = _repeated(val, places.size)


@handles(np.put_along_axis)
def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    """Write along an axis at the positions that stand in an array of the same number of axes."""
    _check_target(arr, "put_along_axis")
    indices = _array(indices)
    if axis is None:
        arr[np.unravel_index(np.asarray(_plain_index(indices)), arr.shape)] = values
        return
    axis = normalize_axis_index(axis, arr.ndim)
    shape = shape_of(arr)
    places = [np.arange(n).reshape((-1,) + (1,) * (len(shape) - d - 1)) for d, n in enumerate(shape)]
    arr[tuple(indices if d == axis else p for d, p in enumerate(places))] = values
