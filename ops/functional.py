"""Choosing, interpolating, windows, applying functions and covariances, told in terms of other functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from ops.catalog import LINEAR, handles, structural
from ops.create import array
from ops.elementwise import scale
from ops.index import ARRAY, index_op, scatter_op
from ops.shape import shape_of


def _array(x: Any) -> Any:
    return x if hasattr(x, "shape") else array(x)


# ---------------------------------------------------------------- zero slope
round_op = structural(lambda x, *, decimals: np.round(x, decimals), name="round")


@handles(np.round, np.around)
def round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    """Round to a number of decimals; the slope is zero."""
    result = round_op(a, decimals=int(decimals))
    if out is None:
        return result
    out[...] = result
    return out


@handles(np.array_equiv)
def array_equiv(a1: Any, a2: Any) -> bool:
    """Tell whether two arrays are equal when broadcast."""
    a1, a2 = _array(a1), _array(a2)
    try:
        np.broadcast_shapes(shape_of(a1), shape_of(a2))
    except ValueError:
        return False
    return bool(np.all(a1 == a2))


# ---------------------------------------------------------------- choosing
@handles(np.select)
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """Choose by the first condition that holds; what is not chosen gets no gradient."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not len(condlist):
        raise ValueError("select with an empty condition list is not possible")
    result = default
    for number, (condition, choice) in enumerate(reversed(list(zip(condlist, choicelist, strict=True)))):
        condition = _array(condition)
        if condition.dtype != np.bool_:
            raise TypeError(f"invalid entry {len(condlist) - 1 - number} in condlist: should be boolean ndarray")
        result = np.where(condition, choice, result)
    return result


@handles(np.choose)
def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    """Choose for each element by its number among arrays."""
    a, count = _array(a), len(choices)
    if a.dtype.kind not in "iub":
        raise TypeError("Cannot cast array data from float64 to int64 according to the rule 'safe'")
    if mode == "wrap":
        a = np.remainder(a, count)
    elif mode == "clip":
        a = np.clip(a, 0, count - 1)
    elif np.any(a < 0) or np.any(a >= count):
        raise ValueError("invalid entry in choice array")
    result = choices[count - 1]
    for k in range(count - 2, -1, -1):
        result = np.where(a == k, choices[k], result)
    result = np.broadcast_to(result, np.broadcast_shapes(shape_of(result), a.shape))
    if out is None:
        return result
    out[...] = result
    return out


@handles(np.piecewise)
def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """Apply to each part of x the function of the condition that holds there; the last one is the default."""
    x = _array(x)
    if not shape_of(x):
        conditions = [np.reshape(c, (1,)) for c in (condlist if isinstance(condlist, list | tuple) else [condlist])]
        return np.reshape(piecewise(np.reshape(x, (1,)), conditions, funclist, *args, **kw), ())
    if not (isinstance(condlist, list | tuple) and len(condlist) and hasattr(condlist[0], "shape")):
        nested = isinstance(condlist, list | tuple) and len(condlist) and isinstance(condlist[0], list | tuple)
        condlist = [_array(c) for c in condlist] if nested or len(shape_of(condlist)) > x.ndim else [_array(condlist)]
    conditions = [c if c.dtype == np.bool_ else c.astype(bool) for c in condlist]
    functions = list(funclist)
    if len(functions) == len(conditions) + 1:
        held = conditions[0]
        for c in conditions[1:]:
            held = held | c
        conditions.append(~held)
    if len(functions) != len(conditions):
        raise ValueError(f"with {len(conditions)} condition(s), either {len(conditions)} or {len(conditions) + 1} "
                         "functions are expected")  # fmt: skip
    y = np.zeros_like(x)
    for condition, function in zip(conditions, functions, strict=True):
        if callable(function):
            part = x[condition]
            if part.size:
                y[condition] = function(part, *args, **kw)
        else:
            y[condition] = function
    return y


# ---------------------------------------------------------------- interpolation
def _segment(x: Any, xp: Any) -> Any:
    """Give the number of the segment that x lies in; a knot belongs to the one on its right, the last to its left."""
    return np.astype(np.clip(np.searchsorted(xp, x, "right") - 1, 0, max(shape_of(xp)[0] - 2, 0)), np.int64)


def _pick(x: Any, index: Any) -> Any:
    """Give x[index], recorded if either is."""
    return index_op(x, index, spec=(ARRAY,))


def _interp_parts(x: Any, xp: Any, fp: Any) -> tuple[Any, Any, Any, Any]:
    """Give the knots on either side of x, the share of the right one in the result, and the slope."""
    n = shape_of(xp)[0]
    j = _segment(x, xp)
    k = np.astype(np.minimum(j + 1, n - 1), np.int64)
    low, high = _pick(xp, j), _pick(xp, k)
    width = high - low
    inside = (x >= xp[0]) & (x <= xp[-1]) & (width > 0)
    safe = np.where(inside, width, 1.0)
    share = np.clip((x - low) / safe, 0.0, 1.0)
    share = np.where(inside, share, np.where(x > xp[-1], 1.0 * (k > j), 0.0))
    slope = np.where(inside, (_pick(fp, k) - _pick(fp, j)) / safe, 0.0)
    return j, k, share, slope


def _interp_pullback(position: int, g: Any, out: Any, x: Any, xp: Any, fp: Any) -> Any:
    n = shape_of(xp)[0]
    j, k, share, slope = _interp_parts(x, xp, fp)
    if position == 0:
        return np.where(g == 0, 0.0, g * slope)
    weight = g if position == 2 else np.where(g == 0, 0.0, -g * slope)
    flat = np.reshape(j, (-1,)), np.reshape(k, (-1,))
    left = scatter_op(np.reshape(weight * (1.0 - share), (-1,)), flat[0], spec=(ARRAY,), shape=(n,))
    return left + scatter_op(np.reshape(weight * share, (-1,)), flat[1], spec=(ARRAY,), shape=(n,))


def _interp_pushforward(tangents: Any, out: Any, x: Any, xp: Any, fp: Any) -> Any:
    """Give slope * (dx - dxp) + dfp, each of dxp and dfp interpolated between the two knots."""
    j, k, share, slope = _interp_parts(x, xp, fp)

    def between(t: Any) -> Any:
        return _pick(t, j) * (1.0 - share) + _pick(t, k) * share

    dx, dxp, dfp = tangents
    parts = [] if dx is None else [scale(dx, slope)]
    parts += [] if dxp is None else [scale(between(-dxp), slope)]
    parts += [] if dfp is None else [between(dfp)]
    return sum(parts, np.zeros((), out.dtype))


def _interp_examples(rng: np.random.Generator) -> Any:
    knots = np.array([-1.0, 0.0, 0.7, 2.0])
    yield (np.array([-2.0, -0.5, 0.3, 0.4, 1.0, 3.0]), knots, rng.normal(size=4)), {}
    yield (rng.uniform(0.1, 0.6, size=(2, 3)), knots, rng.normal(size=4)), {}


interp_op = structural(
    lambda x, xp, fp: np.asarray(np.interp(x, xp, fp)),
    every=_interp_pullback,
    pushforward=_interp_pushforward,
    name="interp",
    examples=_interp_examples,
)


@handles(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Interpolate linearly; differentiable in x, xp and fp, with the slope on the right of a knot."""
    x, xp, fp = _array(x), _array(xp), _array(fp)
    if xp.ndim != 1 or fp.ndim != 1 or xp.shape != fp.shape:
        raise ValueError("fp and xp are not of the same length.")
    if xp.size == 0:
        raise ValueError("array of sample points is empty")
    if period is not None:
        if period == 0:
            raise ValueError("period must be a non-zero value")
        period = abs(period)
        left = right = None
        x, xp = np.remainder(x, period), np.remainder(xp, period)
        order = np.argsort(xp)
        xp, fp = xp[order], fp[order]
        xp = np.concatenate([xp[-1:] - period, xp, xp[:1] + period])
        fp = np.concatenate([fp[-1:], fp, fp[:1]])
    result = interp_op(x, xp, fp)
    if left is not None:
        result = np.where(x < xp[0], left, result)
    return result if right is None else np.where(x > xp[-1], right, result)


# ---------------------------------------------------------------- building
@handles(np.i0)
def i0(x: Any) -> Any:
    """Give the modified Bessel function of order 0."""
    from ops.bessel import numpy_i0

    return numpy_i0(x)


@handles(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """Give coordinate arrays of a grid."""
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    count = len(xi)
    places = list(range(count))
    if indexing == "xy" and count > 1:
        places[:2] = 1, 0
    flat = [np.reshape(x, (-1,)) for x in map(_array, xi)]
    parts = [np.reshape(x, tuple(-1 if d == p else 1 for d in range(count))) for x, p in zip(flat, places, strict=True)]
    if sparse:
        return tuple(parts)
    shape = np.broadcast_shapes(*(shape_of(p) for p in parts))
    return tuple(np.broadcast_to(p, shape) for p in parts)


# ---------------------------------------------------------------- windows
def _window_pullback(g: Any, out: Any, x: Any, *, axis: int, width: int) -> Any:
    """Add up the adjoints of each place in the window, moved to where it was taken from."""
    n = shape_of(x)[axis]
    count = n - width + 1
    total: Any = None
    for k in range(width):
        part = g[..., k]
        edges = [
            np.zeros((*shape_of(part)[:axis], m, *shape_of(part)[axis + 1 :]), g.dtype) for m in (k, n - count - k)
        ]
        part = np.concatenate([edges[0], part, edges[1]], axis=axis)
        total = part if total is None else total + part
    return total


def _window_examples(rng: np.random.Generator) -> Any:
    for shape, axis, width in (((6,), 0, 3), ((4, 5), 0, 2), ((4, 5), 1, 5), ((3, 4, 2), 1, 1)):
        yield (rng.normal(size=shape),), {"axis": axis, "width": width}


window_op = structural(
    lambda x, *, axis, width: np.lib.stride_tricks.sliding_window_view(x, width, axis),
    _window_pullback,
    pushforward=LINEAR,
    name="sliding_window_view",
    examples=_window_examples,
)


@handles(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Any:
    """Give all windows of a shape along axes, as further axes; the result is a copy, not a view."""
    widths = tuple(window_shape) if np.iterable(window_shape) else (window_shape,)
    if axis is None:
        axes = tuple(range(x.ndim))
        if len(widths) != len(axes):
            raise ValueError("Since axis is None, must provide window_shape for all dimensions of `x`; "
                             f"got {len(widths)} window_shape elements and `x.ndim` is {x.ndim}.")  # fmt: skip
    else:
        axes = normalize_axis_tuple(axis, x.ndim, allow_duplicate=True)
        if len(widths) != len(axes):
            raise ValueError("Must provide matching length window_shape and axis; got "
                             f"{len(widths)} window_shape elements and {len(axes)} axes elements.")  # fmt: skip
    for width, d in zip(widths, axes, strict=True):
        if width < 0 or width > x.shape[d]:
            raise ValueError("window shape cannot be larger than input array shape")
        x = window_op(x, axis=d, width=int(width))
    return x


# ---------------------------------------------------------------- applying functions
@handles(np.apply_along_axis)
def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply a function to each vector along an axis."""
    axis = normalize_axis_index(axis, arr.ndim)
    moved = np.moveaxis(arr, axis, -1)
    rest = moved.shape[:-1]
    results = [_array(func1d(moved[index], *args, **kwargs)) for index in np.ndindex(rest)]
    if not results:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    inner = shape_of(results[0])
    made = np.reshape(np.stack(results), (*rest, *inner))
    lead = len(rest)
    order = [*range(axis), *range(lead, lead + len(inner)), *range(axis, lead)]
    return np.transpose(made, order) if order else made


# ---------------------------------------------------------------- phases, statistics
@handles(np.unwrap)
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * np.pi) -> Any:
    """Take out jumps by adding whole periods, which have slope 0."""
    p = _array(p)
    axis = normalize_axis_index(axis, p.ndim)
    step = np.diff(p, axis=axis)
    half = period / 2
    wrapped = np.remainder(step + half, period) - half
    wrapped = np.where((wrapped == -half) & (step > 0), half, wrapped)
    correction = np.where(abs(step) < (half if discont is None else discont), 0.0 * step, wrapped - step)
    lead = (slice(None),) * axis
    return np.concatenate(
        [p[(*lead, slice(0, 1))], p[(*lead, slice(1, None))] + np.cumsum(correction, axis)], axis=axis
    )


def _rows(m: Any, rowvar: bool) -> Any:
    m = _array(m)
    if m.ndim > 2:
        raise ValueError("m has more than 2 dimensions")
    m = m if m.dtype.kind == "f" else m.astype(np.float64)
    if m.ndim < 2:
        return np.reshape(m, (1, -1))
    return m if rowvar or m.shape[0] == 1 else m.T


@handles(np.cov)
def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None, fweights: Any = None,
        aweights: Any = None, *, dtype: Any = None) -> Any:  # fmt: skip
    """Estimate the covariance matrix of the rows."""
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    m = _array(m)
    rows = _rows(m.T if m.ndim == 2 and not rowvar else m, True)
    if y is not None:
        rows = np.concatenate([rows, _rows(y, rowvar)], axis=0)
    if dtype is None or np.dtype(dtype) != np.float32:
        rows = rows if rows.dtype == np.float64 else rows.astype(np.float64)
    ddof = (0 if bias else 1) if ddof is None else ddof
    weights = None if fweights is None else 1.0 * _array(fweights)
    if aweights is not None:
        aweights = 1.0 * _array(aweights)
        weights = aweights if weights is None else weights * aweights
    mean, total = np.average(rows, axis=1, weights=weights, returned=True)
    if weights is None:
        fact: Any = rows.shape[1] - ddof
    elif ddof == 0:
        fact = total[0]
    elif aweights is None:
        fact = total[0] - ddof
    else:
        fact = total[0] - ddof * np.sum(weights * aweights) / total[0]
    rows = rows - mean[:, None]
    columns = rows.T if weights is None else (rows * weights).T
    product = np.matmul(rows, columns) * np.true_divide(1, np.maximum(fact, 0.0))
    return np.squeeze(product)


@handles(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """Estimate the correlation matrix of the rows."""
    c = cov(x, y, rowvar, dtype=dtype)
    if not shape_of(c):
        return c / c
    deviation = np.sqrt(np.diag(c))
    return np.clip(c / deviation[:, None] / deviation[None, :], -1, 1)
