"""Running sums and products, and the reductions that leave NaN out."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ops.catalog import LINEAR, handles, structural
from ops.elementwise import root, scale
from ops.reduce import NOT_GIVEN, _check, _extreme_pullback, _extreme_pushforward, axes_of, reduction_examples
from ops.shape import shape_of

FEW_ROWS = 24
"""Up to this many rows a recurrence runs on Python numbers, which cost less than NumPy's calls."""


def _running_examples(rng: np.random.Generator) -> Any:
    for shape, axis in (((2, 3, 4), 1), ((5,), 0), ((3, 1), 1), ((0, 3), 0), ((2, 0), 1), ((30, 4), 1)):
        yield (rng.normal(size=shape),), {"axis": axis}
    yield (rng.normal(size=(4, 6))[::2, ::-1].T,), {"axis": 0}


def _number_as_vector(x: Any) -> Any:
    return x if shape_of(x) else np.reshape(x, (1,))


def _running(x: Any, axis: Any, dtype: Any, out: Any, name: str) -> tuple[Any, int]:
    """Give the array and the axis along which a running function goes: flattened if there is none."""
    _check(x, None, out, True, name)
    if dtype is not None and np.dtype(dtype) != x.dtype:
        x = x.astype(dtype)
    if axis is None:
        return np.reshape(x, (-1,)), 0
    x = _number_as_vector(x)
    return x, normalize_axis_index(axis, len(shape_of(x)))


# ---------------------------------------------------------------- running sums
cumsum_op = structural(
    lambda x, *, axis: np.cumsum(x, axis=axis),
    lambda g, out, x, *, axis: np.flip(np.cumsum(np.flip(g, axis), axis=axis), axis),
    pushforward=LINEAR,
    name="cumsum",
    examples=_running_examples,
)


@handles(np.cumsum)
def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Give the running sum along an axis."""
    a, axis = _running(a, axis, dtype, out, "cumsum")
    return cumsum_op(a, axis=axis)


# ---------------------------------------------------------------- linear recurrences
def _recurrence(a: Any, b: Any, *, reverse: bool) -> Any:
    n = b.shape[-1]
    rows = b.size // n if n else 0
    if 0 < rows <= FEW_ROWS:
        # Going backwards, the factor of each step stands one place before it.
        factors = np.concatenate([a[..., 1:], a[..., :1]], axis=-1)[..., ::-1] if reverse else a
        factors = np.reshape(factors, (rows, n))
        terms = np.reshape(b[..., ::-1] if reverse else b, (rows, n))
        lines = [
            list(itertools.accumulate(zip(f, t, strict=True), _step, initial=0.0))[1:]
            for f, t in zip(factors.tolist(), terms.tolist(), strict=True)
        ]
        with np.errstate(over="ignore"):
            made = np.array(lines, b.dtype).reshape(b.shape)
        return made[..., ::-1] if reverse else made
    result = np.array(b)
    with np.errstate(all="ignore"):
        for t in range(n - 2, -1, -1) if reverse else range(1, n):
            before = result[..., t + 1] if reverse else result[..., t - 1]
            factor = a[..., t + 1] if reverse else a[..., t]
            result[..., t] += np.where(before == 0, 0, factor * before)
    return result


def _step(y: float, now: tuple[float, float]) -> float:
    return now[1] + now[0] * y if y else now[1]


def _shifted(x: Any) -> Any:
    """Move the last axis on by one place; 0 comes in."""
    return np.concatenate([np.zeros_like(x[..., :1]), x[..., :-1]], axis=-1)


def _shifted_back(x: Any) -> Any:
    """Move the last axis back by one place; 0 comes in."""
    return np.concatenate([x[..., 1:], np.zeros_like(x[..., :1])], axis=-1)


def _recurrence_pullback(position: int, g: Any, out: Any, a: Any, b: Any, *, reverse: bool) -> Any:
    h = recurrence_op(a, g, reverse=not reverse)
    if position == 1:
        return h
    return scale(_shifted(h), out) if reverse else scale(h, _shifted(out))


def _recurrence_pushforward(tangents: Any, out: Any, a: Any, b: Any, *, reverse: bool) -> Any:
    """Run the recurrence on ``db[t] + da[t] * y[t - 1]``."""
    da, terms = tangents
    if da is not None:
        added = _shifted_back(scale(da, out)) if reverse else scale(da, _shifted(out))
        terms = added if terms is None else terms + added
    return recurrence_op(a, terms, reverse=reverse)


def _recurrence_examples(rng: np.random.Generator) -> Any:
    for shape in ((5,), (2, 4), (30, 3), (1,), (0,), (2, 0)):
        for reverse in (False, True):
            yield (rng.normal(size=shape), rng.normal(size=shape)), {"reverse": reverse}


recurrence_op = structural(
    _recurrence,
    every=_recurrence_pullback,
    pushforward=_recurrence_pushforward,
    name="linear_recurrence",
    examples=_recurrence_examples,
)
"""Along the last axis ``y[t] = b[t] + a[t] * y[t - 1]``; in reverse its transpose,
``y[t] = b[t] + a[t + 1] * y[t + 1]``.

A step from y = 0 adds nothing whatever its factor is.
"""


# ---------------------------------------------------------------- running products
def _before(products: Any) -> Any:
    """Give the product of all elements before each: 1 for the first."""
    return np.concatenate([np.ones_like(products[..., :1]), products[..., :-1]], axis=-1)


def _cumprod_pullback(g: Any, out: Any, x: Any, *, axis: int) -> Any:
    """Give the product of all before times the sum over what follows, by a recurrence: nothing is divided."""
    after = recurrence_op(np.moveaxis(x, axis, -1), np.moveaxis(g, axis, -1), reverse=True)
    return np.moveaxis(scale(after, _before(np.moveaxis(out, axis, -1))), -1, axis)


def _cumprod_pushforward(tangents: Any, out: Any, x: Any, *, axis: int) -> Any:
    """Run the recurrence ``dy[t] = dx[t] * y[t - 1] + x[t] * dy[t - 1]``."""
    added = scale(np.moveaxis(tangents[0], axis, -1), _before(np.moveaxis(out, axis, -1)))
    return np.moveaxis(recurrence_op(np.moveaxis(x, axis, -1), added, reverse=False), -1, axis)


cumprod_op = structural(
    lambda x, *, axis: np.cumprod(x, axis=axis),
    _cumprod_pullback,
    pushforward=_cumprod_pushforward,
    name="cumprod",
    examples=_running_examples,
)


@handles(np.cumprod)
def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Give the running product along an axis; its derivatives are exact with zeros."""
    a, axis = _running(a, axis, dtype, out, "cumprod")
    return cumprod_op(a, axis=axis)


def _cumulative(running: Callable[..., Any], start: Callable[..., Any], name: str) -> Callable[..., Any]:
    def cumulative(x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None,
                   include_initial: bool = False) -> Any:  # fmt: skip
        x = np.atleast_1d(x)
        if axis is None:
            if x.ndim != 1:
                raise ValueError("For arrays which have more than one dimension ``axis`` argument is required.")
            axis = 0
        result = running(x, axis, dtype, out)
        if not include_initial:
            return result
        axis = normalize_axis_index(axis, result.ndim)
        shape = list(result.shape)
        shape[axis] = 1
        return np.concatenate([start(shape, result.dtype), result], axis=axis)

    cumulative.__name__ = name
    cumulative.__doc__ = f"See `numpy.{name}`."
    return cumulative


cumulative_sum = handles(np.cumulative_sum)(_cumulative(cumsum, np.zeros, "cumulative_sum"))
cumulative_prod = handles(np.cumulative_prod)(_cumulative(cumprod, np.ones, "cumulative_prod"))


# ---------------------------------------------------------------- NaN left out
def _without_nan(a: Any, neutral: float) -> Any:
    return np.where(np.isnan(a), np.asarray(neutral, a.dtype), a) if a.dtype.kind == "f" else a


def _skipping(reduce: Any, neutral: float, name: str) -> Callable[..., Any]:
    def skipping(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NOT_GIVEN,
                 initial: Any = NOT_GIVEN, where: Any = NOT_GIVEN) -> Any:  # fmt: skip
        where = True if where is NOT_GIVEN else where
        return reduce(_without_nan(a, neutral), axis, dtype, out, keepdims, initial, where)

    skipping.__name__ = name
    skipping.__doc__ = f"See `numpy.{name}`: NaN counts as {neutral:g}."
    return skipping


nansum = handles(np.nansum)(_skipping(np.sum, 0.0, "nansum"))
nanprod = handles(np.nanprod)(_skipping(np.prod, 1.0, "nanprod"))


@handles(np.nancumsum)
def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Give the running sum; NaN counts as 0."""
    return cumsum(_without_nan(a, 0.0), axis, dtype, out)


@handles(np.nancumprod)
def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Give the running product; NaN counts as 1."""
    return cumprod(_without_nan(a, 1.0), axis, dtype, out)


nanmax_op = structural(
    lambda x, *, axis, keepdims: np.fmax.reduce(x, axis=axis, keepdims=keepdims),
    _extreme_pullback,
    pushforward=_extreme_pushforward,
    name="nanmax",
    examples=reduction_examples(empty=False),
)
nanmin_op = structural(
    lambda x, *, axis, keepdims: np.fmin.reduce(x, axis=axis, keepdims=keepdims),
    _extreme_pullback,
    pushforward=_extreme_pushforward,
    name="nanmin",
    examples=reduction_examples(empty=False),
)


def _nan_extreme(op: Any, name: str) -> Callable[..., Any]:
    def reduce(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOT_GIVEN,
               initial: Any = NOT_GIVEN, where: Any = NOT_GIVEN) -> Any:  # fmt: skip
        _check(a, None, out, where, name)
        if initial is not NOT_GIVEN:
            raise TypeError(
                f"np.{name} with initial= is not supported on recorded values: take np.maximum or np.minimum after"
            )
        return op(a, axis=axes_of(a, axis), keepdims=_kept(keepdims))

    reduce.__name__ = name
    reduce.__doc__ = f"See `numpy.{name}`: ties share evenly."
    return reduce


def _kept(keepdims: Any) -> bool:
    return bool(keepdims is not NOT_GIVEN and keepdims)


nanmax = handles(np.nanmax)(_nan_extreme(nanmax_op, "nanmax"))
nanmin = handles(np.nanmin)(_nan_extreme(nanmin_op, "nanmin"))


def _count(a: Any, axis: Any, keepdims: bool) -> Any:
    """Count the numbers, in the dtype of the array."""
    return np.sum(~np.isnan(a), axis=axis, keepdims=keepdims).astype(a.dtype)


@handles(np.nanmean)
def nanmean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NOT_GIVEN,
            *, where: Any = NOT_GIVEN) -> Any:  # fmt: skip
    """Average what is not NaN."""
    if a.dtype.kind != "f":
        return np.mean(a, axis, dtype, out, _kept(keepdims), where=True if where is NOT_GIVEN else where)
    _check(a, dtype, out, where, "nanmean")
    total = np.sum(_without_nan(a, 0.0), axis=axis, keepdims=_kept(keepdims))
    return _ratio(total, _count(a, axis, _kept(keepdims)), "Mean of empty slice")


def _ratio(total: Any, count: Any, message: str) -> Any:
    if np.any(count <= 0):
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    with np.errstate(invalid="ignore", divide="ignore"):
        return total / count


@handles(np.nanvar)
def nanvar(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = NOT_GIVEN,
           *, where: Any = NOT_GIVEN, mean: Any = NOT_GIVEN, correction: Any = NOT_GIVEN) -> Any:  # fmt: skip
    """Give the mean squared deviation of what is not NaN."""
    ddof = ddof if correction is NOT_GIVEN else correction
    if a.dtype.kind != "f":
        return np.var(a, axis, ddof=ddof, keepdims=_kept(keepdims))
    _check(a, dtype, out, where, "nanvar")
    there = ~np.isnan(a)
    with np.errstate(invalid="ignore", divide="ignore"):
        centre = np.sum(_without_nan(a, 0.0), axis=axis, keepdims=True) / _count(a, axis, True)
    centre = centre if mean is NOT_GIVEN else mean
    deviation = np.where(there, _without_nan(a, 0.0) - centre, np.zeros((), a.dtype))
    total = np.sum(deviation * deviation, axis=axis, keepdims=_kept(keepdims))
    free = _count(a, axis, _kept(keepdims)) - ddof
    result = _ratio(total, free, "Degrees of freedom <= 0 for slice.")
    return np.where(free <= 0, np.asarray(np.nan, a.dtype), result) if np.any(free <= 0) else result


@handles(np.nanstd)
def nanstd(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = NOT_GIVEN,
           *, where: Any = NOT_GIVEN, mean: Any = NOT_GIVEN, correction: Any = NOT_GIVEN) -> Any:  # fmt: skip
    """Give the standard deviation of what is not NaN; where all values are equal its slope is 0."""
    return root(nanvar(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction))
