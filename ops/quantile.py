"""Medians and quantiles: gathered from the sorted values, so their gradient goes to the elements they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ops.catalog import handles
from ops.create import array
from ops.index import ARRAY, index_op
from ops.reduce import NOT_GIVEN, _check, axes_of
from ops.shape import shape_of


def _array(x: Any) -> Any:
    return x if hasattr(x, "shape") else array(x)


def _reduced_last(a: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """Bring the axes that are reduced to the end, as one; give also the shape for keepdims."""
    axes = axes_of(a, axis)
    shape = shape_of(a)
    rest = [d for d in range(len(shape)) if d not in axes]
    kept = tuple(1 if d in axes else n for d, n in enumerate(shape))
    moved = np.transpose(a, (*rest, *axes)) if len(shape) > 1 else a
    return np.reshape(moved, (*(shape[d] for d in rest), int(np.prod([shape[d] for d in axes])))), kept


def _finish(result: Any, kept: tuple[int, ...], lead: tuple[int, ...], keepdims: Any) -> Any:
    return np.reshape(result, (*lead, *kept)) if keepdims is not NOT_GIVEN and keepdims else result


def _floating(a: Any) -> Any:
    return a if a.dtype.kind == "f" else a.astype(np.float64)


@handles(np.median)
def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    """Give the middle element, or the mean of the two in the middle; NaN where there is one."""
    _check(a, None, out, True, "median")
    last, kept = _reduced_last(_floating(a), axis)
    n = last.shape[-1]
    ordered = np.sort(last, axis=-1)
    result = np.mean(ordered[..., (n - 1) // 2 : n // 2 + 1], axis=-1)
    if n and np.any(np.isnan(ordered[..., -1])):
        result = np.where(np.isnan(ordered[..., -1]), ordered[..., -1], result)
    return _finish(result, kept, (), keepdims)


# Hyndman and Fan's constants of the continuous methods.
_CONTINUOUS = {
    "interpolated_inverted_cdf": (0, 1), "hazen": (0.5, 0.5), "weibull": (0, 0),
    "median_unbiased": (1 / 3.0, 1 / 3.0), "normal_unbiased": (3 / 8.0, 3 / 8.0),
}  # fmt: skip
_DISCRETE: dict[str, Callable[..., Any]] = {
    "lower": np.floor, "higher": np.ceil, "nearest": np.rint,
}  # fmt: skip


def _virtual(n: Any, q: Any, method: str) -> Any:
    """Give the place of a quantile between the sorted elements; n may differ from row to row."""
    if method in _CONTINUOUS:
        alpha, beta = _CONTINUOUS[method]
        return n * q + (alpha + q * (1 - alpha - beta)) - 1
    place = (n - 1) * q
    if method in _DISCRETE:
        return _DISCRETE[method](place)
    if method == "midpoint":
        return 0.5 * (np.floor(place) + np.ceil(place))
    if method == "linear":
        return place
    raise TypeError(
        f"method={method!r} is not supported on recorded values: use 'linear', 'lower', 'higher', 'nearest', "
        f"'midpoint' or one of {', '.join(_CONTINUOUS)}"
    )


def _pick(ordered: Any, index: Any, ragged: bool) -> Any:
    """Take elements of the first axis; in ragged rows each row has its own positions."""
    if not ragged:
        return index_op(ordered, index, spec=(ARRAY,))
    rest = shape_of(ordered)[1:]
    others = [np.arange(n).reshape((n,) + (1,) * (len(rest) - d - 1)) for d, n in enumerate(rest)]
    return index_op(ordered, index, *others, spec=(ARRAY,) * (1 + len(rest)))


def _quantile(a: Any, q: Any, axis: Any, keepdims: Any, method: str, ragged: bool) -> Any:
    a = _floating(a)
    last, kept = _reduced_last(a, axis)
    weak = isinstance(q, float | int)
    q = np.asarray(q) if weak else q
    if np.any(q < 0) or np.any(q > 1):
        raise ValueError("Quantiles must be in the range [0, 1]")
    ordered = np.moveaxis(np.sort(last, axis=-1), -1, 0)
    lead, rest = shape_of(q), shape_of(ordered)[1:]
    n = ordered.shape[0]
    if n == 0:
        raise IndexError("index -1 is out of bounds for axis 0 with size 0")
    count = np.maximum(np.sum(~np.isnan(ordered), axis=0), 1) if ragged else n
    spread = np.reshape(q, (*lead, *(1,) * len(rest))) if ragged else q
    place = _virtual(count, spread, method)
    place = np.clip(place, 0, count - 1)
    before = np.floor(place)
    weight = place - before
    if method == "midpoint":
        weight = np.where(weight == 0, 0.0, 0.5)
    if not ragged:
        weight = np.reshape(weight, (*lead, *(1,) * len(rest))) if rest or lead else weight
    first = np.astype(before, np.int64)
    low = _pick(ordered, first, ragged)
    if method in _DISCRETE:
        result = low
    else:
        high = _pick(ordered, np.astype(np.minimum(before + 1, count - 1), np.int64), ragged)
        if weak:  # a Python number does not promote
            weight = float(weight) if not ragged else np.astype(weight, a.dtype)
        step = high - low
        # NumPy's way to interpolate, which is exact at both ends.
        result = np.where(weight >= 0.5, high - step * (1 - weight), low + step * weight)
    spoilt = ordered[0] if ragged else ordered[-1]
    if np.any(np.isnan(spoilt)):
        result = np.where(np.isnan(spoilt), spoilt, result)
    return _finish(result, kept, lead, keepdims)


def _quantiles(name: str, ragged: bool, hundred: bool) -> Callable[..., Any]:
    def quantile(a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
                 method: str = "linear", keepdims: Any = False, *, weights: Any = None) -> Any:  # fmt: skip
        a, q = _array(a), q if isinstance(q, float | int) else _array(q)
        _check(a, None, out, True, name)
        if weights is not None:
            raise TypeError(f"np.{name} with weights= is not supported on recorded values")
        return _quantile(a, q / 100 if hundred else q, axis, keepdims, method, ragged)

    quantile.__name__ = name
    quantile.__doc__ = f"See `numpy.{name}`; differentiable in the values and in q."
    return quantile


quantile = handles(np.quantile)(_quantiles("quantile", False, False))
percentile = handles(np.percentile)(_quantiles("percentile", False, True))
nanquantile = handles(np.nanquantile)(_quantiles("nanquantile", True, False))
nanpercentile = handles(np.nanpercentile)(_quantiles("nanpercentile", True, True))


@handles(np.nanmedian)
def nanmedian(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    """Give the median of what is not NaN."""
    _check(a, None, out, True, "nanmedian")
    last, kept = _reduced_last(_floating(a), axis)
    ordered = np.moveaxis(np.sort(last, axis=-1), -1, 0)
    count = np.maximum(np.sum(~np.isnan(ordered), axis=0), 1)
    low = _pick(ordered, np.astype((count - 1) // 2, np.int64), True)
    high = _pick(ordered, np.astype(count // 2, np.int64), True)
    return _finish(np.mean(np.stack([low, high]), axis=0), kept, (), keepdims)
