"""Determinants and cofactors, exact for singular matrices too."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.catalog import structural
from ops.elementwise import scale
from ops.index import ARRAY, index_op, scatter_op
from ops.linalg import lift, transposed
from ops.shape import shape_of

SMALL = 12
"""Up to this size the second derivative of a singular matrix's determinant is told in terms of its minors."""


def _limit(dtype: Any) -> float:
    """Give the condition number up to which the inverse is accurate enough."""
    return float(np.finfo(dtype).eps ** -0.5)


def _products(s: Any) -> tuple[Any, Any]:
    """Give the products of all values but one, and of all but two (0 on the diagonal); nothing is divided."""
    n = shape_of(s)[-1]
    one = np.ones((*shape_of(s)[:-1], 1), s.dtype)
    before = np.concatenate([one, np.cumprod(s[..., :-1], axis=-1)], axis=-1)
    after = np.flip(np.concatenate([one, np.cumprod(np.flip(s[..., 1:], -1), axis=-1)], axis=-1), -1)
    shifted = np.concatenate([one, s[..., :-1]], axis=-1)
    step = np.arange(n)
    inside = step[None, :] - 1 > step[:, None]
    between = np.cumprod(np.where(inside, np.expand_dims(shifted, -2), 1.0), axis=-1)
    upper = np.where(step[None, :] > step[:, None], lift(before) * between * np.expand_dims(after, -2), 0.0)
    return before * after, upper + transposed(upper)


def _parity(u: Any, vh: Any) -> Any:
    """Give the sign of det(U) det(V)."""
    return lift(np.sign(np.linalg.slogdet(u)[0] * np.linalg.slogdet(vh)[0]), 2)


def _cofactors(a: Any) -> Any:
    """Give the matrix of cofactors, det(a) times the transposed inverse: by SVD where the inverse is not accurate."""
    if a.size == 0:
        return np.array(a)
    bad = ~np.isfinite(a).all(axis=(-2, -1), keepdims=True)
    a = np.where(bad, np.zeros((), a.dtype), a)
    with np.errstate(all="ignore"):
        try:
            inverse = np.linalg.inv(a)
            condition = np.linalg.norm(a, axis=(-2, -1)) * np.linalg.norm(inverse, axis=(-2, -1))
            accurate = bool(np.all(condition < _limit(inverse.dtype)))
        except np.linalg.LinAlgError:
            accurate = False
        if accurate:
            result = lift(np.linalg.det(a), 2) * transposed(inverse)
        else:
            u, s, vh = np.linalg.svd(a, full_matrices=False)
            result = _parity(u, vh) * np.matmul(u * np.expand_dims(_products(s)[0], -2), vh)
    return np.where(bad, np.full((), np.nan, result.dtype), result)


def _cofactors_pullback(g: Any, out: Any, a: Any) -> Any:
    """Differentiate cofactors: by themselves where the matrix is regular, by its minors or its SVD where it is not."""
    shape = shape_of(a)
    n = shape[-1]
    if 0 in shape or n == 1:
        return np.zeros(shape, a.dtype)
    value = lift(np.linalg.det(a), 2)
    size = np.sum(a * a, axis=(-2, -1), keepdims=True) * np.sum(out * out, axis=(-2, -1), keepdims=True)
    if bool(np.all(size < _limit(a.dtype) ** 2 * value * value)):
        inner = out * np.sum(g * out, axis=(-2, -1), keepdims=True)
        return (inner - np.matmul(out, np.matmul(transposed(g), out))) / value
    if n <= SMALL:
        step = np.arange(n)
        rest = step[None, :-1] + (step[None, :-1] >= step[:, None])
        rows, columns = rest[:, None, :, None], rest[None, :, None, :]
        sign = np.where((step[:, None] + step[None, :]) % 2, -1.0, 1.0).astype(a.dtype)
        spec = (Ellipsis, ARRAY, ARRAY)
        minors = index_op(a, rows, columns, spec=spec)
        return scatter_op(lift(g * sign, 2) * cofactors_op(minors), rows, columns, spec=spec, shape=tuple(shape))
    # With a = U S V^T the cofactors of S + M are, to first order, sums of products of all but two values.
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    pairs = _products(s)[1]
    turned = _parity(u, vh) * np.matmul(transposed(u), np.matmul(g, transposed(vh)))
    diagonal = np.eye(n, dtype=a.dtype) * turned
    inner = np.eye(n, dtype=a.dtype) * np.matmul(pairs, np.sum(diagonal, axis=-1, keepdims=True))
    return np.matmul(u, np.matmul(inner - pairs * transposed(turned), vh))


def _square_examples(rng: np.random.Generator) -> Any:
    for shape in ((3, 3), (1, 1), (2, 2, 2), (0, 0), (2, 0, 0), (0, 2, 2)):
        yield (rng.normal(size=shape),), {}
    yield (rng.normal(size=(4, 8))[:, ::2].T,), {}
    yield (np.outer(rng.normal(size=3), rng.normal(size=3)),), {}
    yield (np.array([np.eye(3), np.zeros((3, 3)), np.ones((3, 3))]),), {}


def _large_examples(rng: np.random.Generator) -> Any:
    yield from _square_examples(rng)
    n = SMALL + 2
    yield (rng.normal(size=(n, n)) @ np.diag([0.0, 0.0, *[0.5] * (n - 2)]) @ rng.normal(size=(n, n)) / n,), {}


def _pushed(t: Any, slope: Any) -> Any:
    """Give the tangent of a function of matrices from its slope."""
    return np.sum(scale(t, slope), axis=(-2, -1))


# Cofactors are the slope of the determinant, so their own is symmetric: it pushes as it pulls.
cofactors_op = structural(
    _cofactors,
    _cofactors_pullback,
    pushforward=lambda tangents, out, a: _cofactors_pullback(tangents[0], out, a),
    name="cofactors",
    examples=_large_examples,
)
det_op = structural(
    lambda a: np.linalg.det(a),
    lambda g, out, a: scale(lift(g, 2), cofactors_op(a)),
    pushforward=lambda tangents, out, a: _pushed(tangents[0], cofactors_op(a)),
    name="det",
    examples=_square_examples,
)


def _logarithmic_slope(out: Any, a: Any) -> Any:
    """Give the slope of the logarithm, the transposed inverse; it is infinite for a singular matrix."""
    singular = lift(out[..., 0] == 0, 2)
    if not bool(np.any(singular)):
        return transposed(np.linalg.inv(a))
    regular = np.where(singular, np.eye(shape_of(a)[-1], dtype=a.dtype), a)
    return np.where(singular, cofactors_op(a) / 0.0, transposed(np.linalg.inv(regular)))


def _slogdet_pushforward(tangents: Any, out: Any, a: Any) -> Any:
    pushed = _pushed(tangents[0], _logarithmic_slope(out, a))
    return np.stack([np.zeros_like(pushed), pushed], axis=-1)


def _regular_examples(rng: np.random.Generator) -> Any:
    for shape in ((3, 3), (1, 1), (2, 2, 2), (0, 0), (2, 0, 0), (0, 2, 2)):
        yield (rng.normal(size=shape) + 3 * np.eye(shape[-1]),), {}


slogdet_op = structural(
    lambda a: np.stack(np.linalg.slogdet(a), axis=-1),
    lambda g, out, a: scale(lift(g[..., 1], 2), _logarithmic_slope(out, a)),
    pushforward=_slogdet_pushforward,
    name="slogdet",
    examples=_regular_examples,
)
