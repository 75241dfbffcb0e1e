"""Reductions: sum, mean, prod, max, min, var, std and what is told in terms of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from ops.catalog import LINEAR, handles, structural
from ops.elementwise import root, scale
from ops.shape import shape_of

NOT_GIVEN: Any = np._NoValue


def axes_of(x: Any, axis: Any) -> tuple[int, ...]:
    """Give the axes that a reduction runs over, all for None."""
    ndim = len(shape_of(x))
    if axis is None:
        return tuple(range(ndim))
    if type(axis) is int:
        if -ndim <= axis < ndim:
            return (axis % ndim,)
        if ndim == 0 and axis in (0, -1):  # as NumPy has it for numbers
            return ()
    return normalize_axis_tuple(axis, ndim)


def restore(g: Any, x: Any, axis: tuple[int, ...]) -> Any:
    """Give a reduced value its reduced axes back, with length 1."""
    shape = shape_of(x)
    return np.reshape(g, tuple(1 if d in axis else n for d, n in enumerate(shape)))


def spread(g: Any, x: Any, axis: tuple[int, ...]) -> Any:
    """Repeat a reduced value over the axes that were reduced."""
    return np.broadcast_to(restore(g, x, axis), shape_of(x))


def count_of(x: Any, axis: tuple[int, ...]) -> int:
    """Count the elements that go into each result of a reduction."""
    shape = shape_of(x)
    count = 1
    for d in axis:
        count *= shape[d]
    return count


def reduction_examples(low: float = -2.0, high: float = 2.0, empty: bool = True) -> Callable[..., Any]:
    """Make the examples of a reduction: every form of axis, keepdims, empty and non-contiguous operands."""

    def examples(rng: np.random.Generator) -> Any:
        for shape, axis in (((2, 3, 4), (1,)), ((2, 3, 4), (0, 2)), ((2, 3), (0, 1)), ((5,), (0,)), ((), ())):
            yield (rng.uniform(low, high, size=shape),), {"axis": axis, "keepdims": False}
            yield (rng.uniform(low, high, size=shape),), {"axis": axis, "keepdims": True}
        yield (rng.uniform(low, high, size=(4, 6))[::2, ::-1].T,), {"axis": (0,), "keepdims": False}
        if empty:
            yield (rng.uniform(size=(0, 3)),), {"axis": (0,), "keepdims": False}

    return examples


sum_op = structural(
    lambda x, *, axis, keepdims: np.add.reduce(x, axis=axis, keepdims=keepdims),
    lambda g, out, x, *, axis, keepdims: spread(g, x, axis),
    pushforward=LINEAR,
    name="sum",
    native="sum",
    examples=reduction_examples(),
)
mean_op = structural(
    lambda x, *, axis, keepdims: np.mean(x, axis=axis, keepdims=keepdims),
    lambda g, out, x, *, axis, keepdims: spread(g / count_of(x, axis), x, axis),
    pushforward=lambda tangents, out, x, *, axis, keepdims: sum_op(
        tangents[0] / (count_of(x, axis) or 1), axis=axis, keepdims=keepdims
    ),
    name="mean",
    native="mean",
    examples=reduction_examples(empty=False),
)


def _check(x: Any, dtype: Any, out: Any, where: Any, name: str) -> None:
    if out is not None and out is not NOT_GIVEN:
        raise TypeError(f"np.{name} with out= is not supported on recorded values: write `out[...] = np.{name}(...)`")
    if dtype is not None and dtype is not NOT_GIVEN and np.dtype(dtype) != x.dtype:
        raise TypeError(f"np.{name} with dtype= is not supported on recorded values: write `x.astype(dtype)` first")
    if where is not True and where is not NOT_GIVEN:
        raise TypeError(
            f"np.{name} with where= is not supported on recorded values: reduce `np.where(mask, x, neutral)` instead"
        )


@handles(np.sum)
def sum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
        initial: Any = NOT_GIVEN, where: Any = True) -> Any:  # fmt: skip
    """Sum over axes."""
    if where is not True and where is not NOT_GIVEN:
        a = np.where(where, a, np.zeros((), a.dtype))
    _check(a, dtype, out, True, "sum")
    result = sum_op(a, axis=axes_of(a, axis), keepdims=bool(keepdims is not NOT_GIVEN and keepdims))
    return result if initial is NOT_GIVEN or initial is None else result + initial


@handles(np.mean)
def mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
         *, where: Any = True) -> Any:  # fmt: skip
    """Average over axes."""
    keepdims = bool(keepdims is not NOT_GIVEN and keepdims)
    if where is not True and where is not NOT_GIVEN:
        weight = np.broadcast_to(where, a.shape)
        return np.sum(a, axis, where=where, keepdims=keepdims) / np.sum(weight, axis, keepdims=keepdims)
    _check(a, dtype, out, where, "mean")
    if a.dtype.kind != "f":
        a = a.astype(np.float64)
    return mean_op(a, axis=axes_of(a, axis), keepdims=keepdims)


# ---------------------------------------------------------------- products
def _others(x: Any, axis: tuple[int, ...]) -> Any:
    """Give for each element the product of all others that share its result: exact with zeros.

    Products of all elements before and of all after, so nothing is divided; written with functions that have rules.
    """
    rest = [d for d in range(len(shape_of(x))) if d not in axis]
    order = rest + list(axis)
    moved = np.transpose(x, order)
    shape = shape_of(moved)
    flat = np.reshape(moved, (*shape[: len(rest)], count_of(x, axis)))
    ones = np.ones((*shape[: len(rest)], 1), x.dtype)
    before = np.concatenate([ones, np.cumprod(flat[..., :-1], axis=-1)], axis=-1)
    after = np.flip(np.concatenate([ones, np.cumprod(np.flip(flat[..., 1:], -1), axis=-1)], axis=-1), -1)
    back = tuple(int(d) for d in np.argsort(order))
    return np.transpose(np.reshape(before * after, shape), back)


def _prod_pushforward(tangents: Any, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    terms = scale(tangents[0], _others(x, axis)) if x.size else tangents[0]
    return sum_op(terms, axis=axis, keepdims=keepdims)


prod_op = structural(
    lambda x, *, axis, keepdims: np.multiply.reduce(x, axis=axis, keepdims=keepdims),
    lambda g, out, x, *, axis, keepdims: scale(restore(g, x, axis), _others(x, axis)) if x.size else x,
    pushforward=_prod_pushforward,
    name="prod",
    examples=reduction_examples(),
)


@handles(np.prod)
def prod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
         initial: Any = NOT_GIVEN, where: Any = True) -> Any:  # fmt: skip
    """Multiply over axes."""
    if where is not True and where is not NOT_GIVEN:
        a = np.where(where, a, np.ones((), a.dtype))
    _check(a, dtype, out, True, "prod")
    result = prod_op(a, axis=axes_of(a, axis), keepdims=bool(keepdims is not NOT_GIVEN and keepdims))
    return result if initial is NOT_GIVEN or initial is None else result * initial


# ---------------------------------------------------------------- extremes: ties share evenly
def _extreme_pullback(g: Any, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    winners = x == restore(out, x, axis)
    shares = np.sum(winners, axis=axis, keepdims=True)
    return np.where(winners, restore(g, x, axis) / np.maximum(shares, 1), 0.0)


def _extreme_pushforward(tangents: Any, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    winners = x == restore(out, x, axis)
    shares = np.sum(winners, axis=axis, keepdims=keepdims).astype(out.dtype)
    return sum_op(np.where(winners, tangents[0], 0.0), axis=axis, keepdims=keepdims) / np.maximum(shares, 1)


max_op = structural(
    lambda x, *, axis, keepdims: np.maximum.reduce(x, axis=axis, keepdims=keepdims),
    _extreme_pullback,
    pushforward=_extreme_pushforward,
    name="max",
    native="extreme",
    examples=reduction_examples(empty=False),
)
min_op = structural(
    lambda x, *, axis, keepdims: np.minimum.reduce(x, axis=axis, keepdims=keepdims),
    _extreme_pullback,
    pushforward=_extreme_pushforward,
    name="min",
    native="extreme",
    examples=reduction_examples(empty=False),
)


def _extreme(op: Any, pairwise: Any, name: str) -> Callable[..., Any]:
    def reduce(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False,
               initial: Any = NOT_GIVEN, where: Any = True) -> Any:  # fmt: skip
        _check(a, None, out, where, name)
        result = op(a, axis=axes_of(a, axis), keepdims=bool(keepdims is not NOT_GIVEN and keepdims))
        return result if initial is NOT_GIVEN or initial is None else pairwise(result, initial)

    reduce.__name__ = name
    return reduce


max = handles(np.max, np.amax)(_extreme(max_op, np.maximum, "max"))
min = handles(np.min, np.amin)(_extreme(min_op, np.minimum, "min"))


@handles(np.ptp)
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    """Give the range, largest less smallest."""
    _check(a, None, out, True, "ptp")
    keepdims = bool(keepdims is not NOT_GIVEN and keepdims)
    return np.max(a, axis=axis, keepdims=keepdims) - np.min(a, axis=axis, keepdims=keepdims)


# ---------------------------------------------------------------- spread
@handles(np.var)
def var(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False,
        *, where: Any = True, mean: Any = NOT_GIVEN, correction: Any = NOT_GIVEN) -> Any:  # fmt: skip
    """Give the mean squared deviation from the mean."""
    _check(a, dtype, out, where, "var")
    if correction is not NOT_GIVEN:
        ddof = correction
    if a.dtype.kind != "f":
        a = a.astype(np.float64)
    axes = axes_of(a, axis)
    centre = np.mean(a, axis=axes, keepdims=True) if mean is NOT_GIVEN else mean
    deviation = a - centre
    total = np.sum(deviation * deviation, axis=axes, keepdims=bool(keepdims is not NOT_GIVEN and keepdims))
    return total / np.maximum(count_of(a, axes) - ddof, 0)


@handles(np.std)
def std(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False,
        *, where: Any = True, mean: Any = NOT_GIVEN, correction: Any = NOT_GIVEN) -> Any:  # fmt: skip
    """Give the standard deviation; where all values are equal its slope is 0, the least of its subgradients."""
    keywords = {"where": where, "mean": mean, "correction": correction}
    return root(np.var(a, axis, dtype, out, ddof, keepdims, **keywords))


@handles(np.average)
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False) -> Any:
    """Average with weights; the weights are differentiable too."""
    keepdims = bool(keepdims is not NOT_GIVEN and keepdims)
    if weights is None:
        mean = np.mean(a, axis=axis, keepdims=keepdims)
        return (mean, np.full(shape_of(mean), count_of(a, axes_of(a, axis)), float)) if returned else mean
    if shape_of(weights) != shape_of(a):
        axes = axes_of(a, axis)
        if axis is None:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        if shape_of(weights) != tuple(shape_of(a)[d] for d in axes):
            raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
        weights = np.transpose(weights, np.argsort(axes))
        weights = np.reshape(weights, tuple(n if d in axes else 1 for d, n in enumerate(shape_of(a))))
        weights = np.broadcast_to(weights, shape_of(a))
    total = np.sum(weights, axis=axis, keepdims=keepdims)
    mean = np.sum(a * weights, axis=axis, keepdims=keepdims) / total
    return (mean, np.broadcast_to(total, shape_of(mean))) if returned else mean


# ---------------------------------------------------------------- zero slope
all_op = structural(lambda x, *, axis, keepdims: np.all(x, axis=axis, keepdims=keepdims), name="all")
any_op = structural(lambda x, *, axis, keepdims: np.any(x, axis=axis, keepdims=keepdims), name="any")
count_op = structural(
    lambda x, *, axis, keepdims: np.count_nonzero(x, axis=axis, keepdims=keepdims), name="count_nonzero"
)


def _truth(op: Any, name: str) -> Callable[..., Any]:
    def reduce(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True) -> Any:
        _check(a, None, out, where, name)
        return op(a, axis=axes_of(a, axis), keepdims=bool(keepdims is not NOT_GIVEN and keepdims))

    reduce.__name__ = name
    return reduce


all = handles(np.all)(_truth(all_op, "all"))
any = handles(np.any)(_truth(any_op, "any"))


@handles(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Count the elements that are not zero."""
    return count_op(a, axis=axes_of(a, axis), keepdims=keepdims)
