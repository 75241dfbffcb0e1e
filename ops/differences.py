"""Differences of neighbours, numerical derivatives and convolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from ops.catalog import handles, structural
from ops.create import _is_recorded, array
from ops.multilinear import in_turn, shielded
from ops.shape import shape_of


def _array(x: Any) -> Any:
    return x if hasattr(x, "shape") else array(x)


# ---------------------------------------------------------------- differences
@handles(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Give the differences of consecutive elements, with elements put before and after them."""
    flat = np.reshape(ary, (-1,))
    parts = [] if to_begin is None else [_flat_as(to_begin, flat)]
    parts.append(flat[1:] - flat[:-1])
    if to_end is not None:
        parts.append(_flat_as(to_end, flat))
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def _flat_as(x: Any, like: Any) -> Any:
    if not hasattr(x, "dtype"):
        x = np.asarray(x, like.dtype)
    if not np.can_cast(x.dtype, like.dtype, casting="same_kind"):
        raise TypeError(
            "dtype of `to_begin` and `to_end` must be compatible with input `ary` under the `same_kind` rule."
        )
    return np.reshape(x if x.dtype == like.dtype else x.astype(like.dtype), (-1,))


# ---------------------------------------------------------------- convolution
def _full(g: Any, first: int, second: int, mode: str, correlates: bool) -> Any:
    """Put the adjoint of a convolution back to where it stands in the full one."""
    small = min(first, second)
    length = shape_of(g)[0]
    if mode == "full":
        return g
    start = small - 1 if mode == "valid" else small - 1 - small // 2
    if mode == "same" and correlates and second > first:
        start = small // 2
    end = first + second - 1 - length - start
    return np.concatenate([np.zeros(start, g.dtype), g, np.zeros(end, g.dtype)])


def _product_pullback(correlates: bool) -> Callable[..., Any]:
    def pullback(position: int, g: Any, out: Any, a: Any, v: Any, *, mode: str) -> Any:
        g = _full(g, shape_of(a)[0], shape_of(v)[0], mode, correlates)
        other = a if position == 1 else v[::-1] if correlates else v
        slope = shielded(lambda g, other: np.correlate(g, other, "valid"), g, other)
        return slope[::-1] if correlates and position == 1 else slope

    return pullback


def _product_examples(rng: np.random.Generator) -> Any:
    for n, m in ((5, 3), (3, 5), (6, 4), (4, 6), (4, 4), (1, 3), (7, 1)):
        for mode in ("full", "same", "valid"):
            yield (rng.normal(size=n), rng.normal(size=m)), {"mode": mode}


convolve_op = structural(
    lambda a, v, *, mode: np.convolve(a, v, mode),
    every=_product_pullback(False),
    pushforward=in_turn(np.convolve),
    name="convolve",
    examples=_product_examples,
)
correlate_op = structural(
    lambda a, v, *, mode: np.correlate(a, v, mode),
    every=_product_pullback(True),
    pushforward=in_turn(np.correlate),
    name="correlate",
    examples=_product_examples,
)


def _vectors(a: Any, v: Any) -> tuple[Any, Any]:
    a, v = (x if shape_of(x) else np.reshape(x, (1,)) for x in (_array(a), _array(v)))
    if a.ndim > 1 or v.ndim > 1:
        raise ValueError("object too deep for desired array")
    if 0 in (a.shape[0], v.shape[0]):
        raise ValueError("a cannot be empty" if a.shape[0] == 0 else "v cannot be empty")
    return a, v


@handles(np.convolve)
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """Convolve two vectors."""
    return convolve_op(*_vectors(a, v), mode=_mode(mode))


@handles(np.correlate)
def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """Correlate two vectors."""
    return correlate_op(*_vectors(a, v), mode=_mode(mode))


def _mode(mode: Any) -> str:
    names = {0: "valid", 1: "same", 2: "full"}
    found = names.get(mode, mode)
    if found not in names.values():
        raise ValueError("mode must be one of 'valid', 'same', or 'full'")
    return str(found)


# ---------------------------------------------------------------- numerical derivatives
def _spacings(f: Any, varargs: tuple[Any, ...], axes: tuple[int, ...]) -> list[Any]:
    """Give for each axis the step, a number or the steps between the points."""
    if not varargs:
        return [1.0] * len(axes)
    if len(varargs) == 1 and not shape_of(varargs[0]):
        return list(varargs) * len(axes)
    if len(varargs) != len(axes):
        raise TypeError("invalid number of arguments")
    steps = []
    for points, axis in zip(varargs, axes, strict=True):
        if not shape_of(points):
            steps.append(points)
            continue
        points = _array(points)
        if points.ndim != 1:
            raise ValueError("distances must be either scalars or 1d")
        if points.shape[0] != shape_of(f)[axis]:
            raise ValueError("when 1d, distances must match the length of the corresponding dimension")
        step = np.diff(points if points.dtype.kind == "f" else points.astype(np.float64))
        # Equal steps are one number, unless each of them is to have its gradient.
        steps.append(step[0] if not _is_recorded(step) and (step == step[0]).all() else step)
    return steps


def _second_order(d1: Any, d2: Any, kind: str) -> tuple[Any, Any, Any]:
    """Give the weights of three unevenly spaced points for the derivative at the first, the middle or the last."""
    if kind == "first":
        return -(2.0 * d1 + d2) / (d1 * (d1 + d2)), (d1 + d2) / (d1 * d2), -d1 / (d2 * (d1 + d2))
    if kind == "last":
        return d2 / (d1 * (d1 + d2)), -(d2 + d1) / (d1 * d2), (2.0 * d2 + d1) / (d2 * (d1 + d2))
    return -(d2) / (d1 * (d1 + d2)), (d2 - d1) / (d1 * d2), d1 / (d2 * (d1 + d2))


def _derivative(f: Any, step: Any, axis: int, edge_order: int) -> Any:
    def at(start: Any, stop: Any) -> Any:
        return f[(slice(None),) * axis + (slice(start, stop),)]

    def along(weights: Any) -> Any:
        return np.reshape(weights, tuple(-1 if d == axis else 1 for d in range(f.ndim)))

    uneven = bool(shape_of(step))
    if uneven:
        a, b, c = (along(w) for w in _second_order(step[:-1], step[1:], "middle"))
        middle = a * at(None, -2) + b * at(1, -1) + c * at(2, None)
    else:
        middle = (at(2, None) - at(None, -2)) / (2.0 * step)
    if edge_order == 1:
        first, last = (step[0], step[-1]) if uneven else (step, step)
        ends = (at(1, 2) - at(0, 1)) / first, (at(-1, None) - at(-2, -1)) / last
    else:
        first = _second_order(step[0], step[1], "first") if uneven else (-1.5 / step, 2.0 / step, -0.5 / step)
        last = _second_order(step[-2], step[-1], "last") if uneven else (0.5 / step, -2.0 / step, 1.5 / step)
        ends = (
            first[0] * at(0, 1) + first[1] * at(1, 2) + first[2] * at(2, 3),
            last[0] * at(-3, -2) + last[1] * at(-2, -1) + last[2] * at(-1, None),
        )
    return np.concatenate([ends[0], middle, ends[1]], axis=axis)


@handles(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: Any = 1) -> Any:
    """Give numerical derivatives along axes; differentiable in the values and in the spacing."""
    f = _array(f)
    f = f if f.dtype.kind == "f" else f.astype(np.float64)
    axes = tuple(range(f.ndim)) if axis is None else normalize_axis_tuple(axis, f.ndim)
    if edge_order not in (1, 2):
        raise ValueError("'edge_order' greater than 2 not supported")
    steps = _spacings(f, varargs, axes)
    if any(f.shape[d] < edge_order + 1 for d in axes):
        raise ValueError("Shape of array too small to calculate a numerical gradient, "
                         "at least (edge_order + 1) elements are required.")  # fmt: skip
    results = tuple(_derivative(f, step, d, edge_order) for step, d in zip(steps, axes, strict=True))
    return results[0] if len(results) == 1 else results
