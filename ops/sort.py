"""Sorting, order statistics, positions and counts.

A sorted array is gathered by the positions that sort it, so its elements keep their gradients. Positions and counts
have zero slope; they are ops too, so that they stand on the tape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ops.catalog import LINEAR, handles, structural
from ops.index import ARRAY, index_op
from ops.reduce import NOT_GIVEN, _check, max_op, min_op
from ops.shape import shape_of


def _flat_or_axis(a: Any, axis: Any) -> tuple[Any, int]:
    if axis is None:
        return np.reshape(a, (-1,)), 0
    return a, normalize_axis_index(axis, a.ndim)


def _array(x: Any) -> Any:
    if hasattr(x, "shape"):
        return x
    from ops.create import array

    return array(x)


# ---------------------------------------------------------------- sorting
argsort_op = structural(lambda x, *, axis, kind: np.argsort(x, axis=axis, kind=kind), name="argsort")


def _refuse_order(order: Any, name: str) -> None:
    if order is not None:
        raise TypeError(f"np.{name} with order= is for structured arrays, which are not supported on recorded values")


def _kind(kind: Any, stable: Any) -> Any:
    return ("stable" if stable else None) if stable is not None else kind


@handles(np.argsort)
def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """Give the positions that sort an array."""
    _refuse_order(order, "argsort")
    a, axis = _flat_or_axis(a, axis)
    return argsort_op(a, axis=axis, kind=_kind(kind, stable))


@handles(np.sort)
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """Sort along an axis; equal elements keep their order, and each its gradient."""
    _refuse_order(order, "sort")
    a, axis = _flat_or_axis(a, axis)
    positions = argsort_op(a, axis=axis, kind="stable")
    return a[positions] if a.ndim == 1 else np.take_along_axis(a, positions, axis)


def _partition_positions(x: Any, *, kth: Any, axis: int) -> Any:
    """Give the positions of the elements in NumPy's partitioned array: the k-th smallest of both are the same."""
    parted = np.partition(x, kth, axis=axis)
    ranks = np.argsort(np.argsort(parted, axis=axis, kind="stable"), axis=axis, kind="stable")
    return np.take_along_axis(np.argsort(x, axis=axis, kind="stable"), ranks, axis=axis)


partition_op = structural(_partition_positions, name="partition_positions")
argpartition_op = structural(lambda x, *, kth, axis: np.argpartition(x, kth, axis=axis), name="argpartition")


def _kth(kth: Any) -> Any:
    return int(kth) if np.ndim(kth) == 0 else tuple(int(k) for k in kth)


@handles(np.partition)
def partition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    """Put the k-th smallest element in its place, smaller ones before it and larger ones after."""
    _refuse_order(order, "partition")
    a, axis = _flat_or_axis(a, axis)
    return np.take_along_axis(a, partition_op(a, kth=_kth(kth), axis=axis), axis)


@handles(np.argpartition)
def argpartition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    """Give the positions that partition an array."""
    _refuse_order(order, "argpartition")
    a, axis = _flat_or_axis(a, axis)
    return argpartition_op(a, kth=_kth(kth), axis=axis)


lexsort_op = structural(lambda *keys, axis: np.lexsort(keys, axis=axis), name="lexsort")


@handles(np.lexsort)
def lexsort(keys: Any, axis: int = -1) -> Any:
    """Give the positions that sort by several keys, the last one first."""
    return lexsort_op(*(_array(k) for k in keys), axis=axis)


# ---------------------------------------------------------------- positions of extremes
def _position(function: Callable[..., Any]) -> Callable[..., Any]:
    name = function.__name__
    op = structural(lambda x, *, axis, keepdims: function(x, axis=axis, keepdims=keepdims), name=name)

    def position(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = NOT_GIVEN) -> Any:
        _check(a, None, out, True, name)
        axis = None if axis is None else normalize_axis_index(axis, a.ndim)
        return op(a, axis=axis, keepdims=bool(keepdims is not NOT_GIVEN and keepdims))

    position.__name__ = name
    position.__doc__ = f"See `numpy.{name}`."
    return handles(function)(position)


argmax = _position(np.argmax)
argmin = _position(np.argmin)
nanargmax = _position(np.nanargmax)
nanargmin = _position(np.nanargmin)


# ---------------------------------------------------------------- searching
def _search(a: Any, v: Any, *sorter: Any, side: str) -> Any:
    return np.searchsorted(a, v, side, sorter[0] if sorter else None)  # type: ignore[call-overload]


search_op = structural(_search, name="searchsorted")
digitize_op = structural(lambda x, bins, *, right: np.digitize(x, bins, right), name="digitize")
isin_op = structural(lambda x, y, *, invert: np.isin(x, y, invert=invert), name="isin")


@handles(np.searchsorted)
def searchsorted(a: Any, v: Any, side: Any = "left", sorter: Any = None) -> Any:
    """Give the positions where elements would be inserted into a sorted array."""
    extra = () if sorter is None else (_array(sorter),)
    return search_op(_array(a), _array(v), *extra, side=side)


@handles(np.digitize)
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """Give the number of the bin that each element lies in."""
    return digitize_op(_array(x), _array(bins), right=bool(right))


@handles(np.isin)
def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Any:
    """Tell which elements are among others."""
    return isin_op(_array(element), _array(test_elements), invert=bool(invert))


def _unique_part(part: int) -> Callable[..., Any]:
    def forward(x: Any, *, axis: Any, equal_nan: bool) -> Any:
        return np.unique(x, True, True, True, axis, equal_nan=equal_nan)[part]

    return forward


unique_ops = [structural(_unique_part(p), name=f"unique_{n}") for p, n in ((1, "index"), (2, "inverse"), (3, "counts"))]


@handles(np.unique)
def unique(ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
           axis: Any = None, *, equal_nan: bool = True, sorted: bool = True) -> Any:  # fmt: skip
    """Give the distinct elements, sorted; of equal ones the first has the gradient."""
    keywords = {"axis": axis if axis is None else normalize_axis_index(axis, ar.ndim), "equal_nan": bool(equal_nan)}
    index = unique_ops[0](ar, **keywords)
    values = np.reshape(ar, (-1,))[index] if axis is None else np.take(ar, index, axis=keywords["axis"])
    wanted = zip((return_inverse, return_counts), unique_ops[1:], strict=True)
    rest = [index] * bool(return_index) + [op(ar, **keywords) for asked, op in wanted if asked]
    return (values, *rest) if rest else values


@handles(np.setdiff1d)
def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    """Give the elements of one array that are not in another."""
    ar1 = np.reshape(_array(ar1), (-1,))
    ar1 = ar1 if assume_unique else np.unique(ar1)
    return ar1[np.isin(ar1, ar2, invert=True)]


# ---------------------------------------------------------------- counting
def _bincount_examples(rng: np.random.Generator) -> Any:
    yield (np.array([0, 2, 2, 1]), rng.normal(size=4)), {"minlength": 0}
    yield (np.array([1, 1]), rng.normal(size=2)), {"minlength": 4}
    yield (np.array([], np.int64), rng.normal(size=0)), {"minlength": 2}


bincount_op = structural(
    lambda x, *weights, minlength: np.bincount(x, weights[0] if weights else None, minlength),
    None,
    lambda g, out, x, weights, *, minlength: index_op(g, x, spec=(ARRAY,)).astype(weights.dtype),
    pushforward=LINEAR,
    name="bincount",
    examples=_bincount_examples,
)


@handles(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    """Count whole numbers, or add up their weights, which are differentiable."""
    x = _array(x)
    if x.dtype.kind == "f":
        raise TypeError("Cannot cast array data from float64 to int64 according to the rule 'safe'")
    if weights is None:
        return bincount_op(x, minlength=int(minlength))
    weights = _array(weights)
    if shape_of(weights) != shape_of(x):
        raise ValueError("The weights and list don't have the same length.")
    return bincount_op(x, weights, minlength=int(minlength))


def _edges(a: Any, *, bins: int) -> Any:
    return np.histogram_bin_edges(a, bins)


def _ends(a: Any, out: Any, bins: int) -> Any:
    """Give the op of each end, its result, its parameters, and its share in each edge."""
    weight = (np.arange(bins + 1) / bins).astype(out.dtype)
    parameters = {"axis": tuple(range(len(shape_of(a)))), "keepdims": False}
    return [(op, op(a, **parameters), parameters, share) for op, share in ((min_op, 1 - weight), (max_op, weight))]


def _edges_pullback(g: Any, out: Any, a: Any, *, bins: int) -> Any:
    total = 0.0 * a
    for op, end, parameters, share in _ends(a, out, bins):
        total = total + op.pullback(0)(np.sum(g * share), end, a, **parameters)
    return total


def _edges_pushforward(tangents: Any, out: Any, a: Any, *, bins: int) -> Any:
    low, high = (op.push(tangents, end, a, **parameters) * share for op, end, parameters, share in _ends(a, out, bins))
    return low + high


def _edges_examples(rng: np.random.Generator) -> Any:
    yield (rng.normal(size=(2, 3)),), {"bins": 3}


edges_op = structural(
    _edges,
    _edges_pullback,
    pushforward=_edges_pushforward,
    name="histogram_bin_edges",
    examples=_edges_examples,
)


def _counts(a: Any, edges: Any, *weights: Any, bins: Any, limits: Any) -> Any:
    return np.histogram(a, edges if bins is None else bins, limits, weights=weights[0] if weights else None)[0]


def _counts_pullback(position: int, g: Any, out: Any, a: Any, edges: Any, *weights: Any, bins: Any, limits: Any) -> Any:
    if position < 2:
        return None
    number = np.where(a == edges[-1], shape_of(g)[0] - 1, np.searchsorted(edges, a, "right") - 1)
    inside = (a >= edges[0]) & (a <= edges[-1])
    picked = index_op(g, np.astype(np.where(inside, number, 0), np.int64), spec=(ARRAY,))
    return np.where(inside, picked, 0.0).astype(weights[0].dtype)


def _counts_pushforward(tangents: Any, out: Any, a: Any, edges: Any, *weights: Any, bins: Any, limits: Any) -> Any:
    if len(tangents) < 3 or tangents[2] is None:
        return np.zeros(shape_of(out), out.dtype)
    return counts_op(a, edges, tangents[2], bins=bins, limits=limits)


def _counts_examples(rng: np.random.Generator) -> Any:
    a, edges = np.array([0.1, 0.4, 0.8, 1.7, -3.0, 2.4]), np.array([-1.0, 0.5, 1.0, 2.0])
    yield (a, edges, rng.normal(size=6)), {"bins": None, "limits": None}
    yield (a, np.linspace(0, 2, 5), rng.normal(size=6)), {"bins": 4, "limits": (0.0, 2.0)}
    yield (a.reshape(2, 3), edges, rng.normal(size=(2, 3))), {"bins": None, "limits": None}


counts_op = structural(
    _counts, every=_counts_pullback, pushforward=_counts_pushforward, name="histogram", examples=_counts_examples
)


@handles(np.histogram)
def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    """Count elements between edges, or add up their weights; differentiable in the weights, the edges in `a`."""
    a = _array(a)
    if isinstance(bins, str):
        raise TypeError(
            f"np.histogram with bins={bins!r} is not supported on recorded values: give a number or the edges"
        )
    count = int(bins) if not shape_of(bins) else None
    limits = None if range is None else (float(range[0]), float(range[1]))
    if count is None:
        edges = _array(bins)
    elif limits is not None:
        edges = np.histogram_bin_edges(np.zeros(0), count, limits)
    else:
        edges = edges_op(a, bins=count)
    extra = () if weights is None else (_array(weights),)
    counts = counts_op(a, edges, *extra, bins=count, limits=limits if count is not None else None)
    if density:
        return counts / np.diff(edges) / np.sum(counts), edges
    return counts, edges
