"""Linear algebra: singular values and vectors.

As in `ops.solve`, the factors are packed into one array: the rows of U, the singular values, the rows of V.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ops.catalog import handles, structural
from ops.elementwise import scale
from ops.linalg import lift, transposed
from ops.shape import shape_of
from ops.solve import along, diagonal_row, eigh, eigvalsh, eye_like, gaps, quiet, reciprocal

SVDResult: Any = type(np.linalg.svd(np.eye(1)))


def _svd(a: Any) -> Any:
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return np.concatenate([u, s[..., None, :], transposed(vh)], axis=-2)


def _turns(s: Any) -> tuple[Any, Any]:
    """Give 1 / (s[j] - s[i]) and 1 / (s[j] + s[i]), 0 where that is undefined."""
    gap, tolerance = gaps(s)
    return reciprocal(gap, tolerance), reciprocal(np.expand_dims(s, -2) + lift(s))


@quiet
def _svd_pullback(g: Any, out: Any, a: Any) -> Any:
    """Rotate the gradient of the factors back.

    With X, Y the antisymmetric parts of U^T g and V^T g, the divisions by s[j]^2 - s[i]^2 are split into
    (X + Y) / (s[j] - s[i]) and (X - Y) / (s[j] + s[i]): where values coincide only the first is left out, so that
    functions of U V^T are exact too.
    """
    if 0 in shape_of(a):
        return a
    m, n = shape_of(a)[-2:]
    u, s, v = out[..., :m, :], out[..., m, :], out[..., m + 1 :, :]
    gu, gs, gv = g[..., :m, :], g[..., m, :], g[..., m + 1 :, :]
    left, right = np.matmul(transposed(u), gu), np.matmul(transposed(v), gv)
    x, y = left - transposed(left), right - transposed(right)
    apart, together = _turns(s)
    inner = 0.5 * (apart * (x + y) + together * (x - y)) + eye_like(s) * np.expand_dims(gs, -2)
    rows, columns = np.matmul(u, inner), transposed(v)
    inverse = np.expand_dims(reciprocal(s), -2)
    if m > n:
        rows = rows + (gu - np.matmul(u, left)) * inverse
    gradient = np.matmul(rows, columns)
    if n > m:
        gradient = gradient + np.matmul(u * inverse, transposed(gv - np.matmul(v, right)))
    return gradient


def _svd_along(t: Any, out: Any, a: Any) -> Any:
    """Give the tangents of the factors: the transpose of the pullback, with P = U^T t V."""
    if 0 in shape_of(a):
        return np.zeros(shape_of(out), out.dtype)
    m, n = shape_of(a)[-2:]
    u, s, v = out[..., :m, :], out[..., m, :], out[..., m + 1 :, :]
    apart, together = _turns(s)
    rows, columns = np.matmul(t, v), np.matmul(transposed(t), u)
    turned = np.matmul(transposed(u), rows)
    x, y = apart * (turned + transposed(turned)), together * (turned - transposed(turned))
    du, dv = np.matmul(u, 0.5 * (x + y)), np.matmul(v, 0.5 * (x - y))
    inverse = np.expand_dims(reciprocal(s), -2)
    if m > n:
        du = du + (rows - np.matmul(u, turned)) * inverse
    if n > m:
        dv = dv + (columns - np.matmul(v, transposed(turned))) * inverse
    return np.concatenate([du, diagonal_row(turned), dv], axis=-2)


def _tall_examples(rng: np.random.Generator) -> Any:
    for shape in ((3, 3), (4, 2), (1, 1), (2, 3, 2), (2, 1), (0, 0), (3, 0), (0, 2, 2)):
        yield (rng.normal(size=shape) + 2 * np.eye(*shape[-2:]) * np.arange(1, shape[-1] + 1),), {}
    yield (rng.normal(size=(4, 6))[:, ::2],), {}


def _matrix_examples(rng: np.random.Generator) -> Any:
    yield from _tall_examples(rng)
    for shape in ((2, 4), (2, 1, 3), (0, 3)):
        yield (rng.normal(size=shape) + 2 * np.eye(*shape[-2:]) * np.arange(1, shape[-1] + 1),), {}


svd_op = structural(_svd, _svd_pullback, pushforward=along(_svd_along), name="svd", examples=_matrix_examples)


def _svdvals_pullback(g: Any, out: Any, a: Any) -> Any:
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    return np.matmul(scale(np.expand_dims(g, -2), u), vh)


def _svdvals_pushforward(tangents: Sequence[Any], out: Any, a: Any) -> Any:
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    return np.sum(u * np.matmul(tangents[0], transposed(vh)), axis=-2)


svdvals_op = structural(
    lambda a: np.linalg.svd(a, compute_uv=False),
    _svdvals_pullback,
    pushforward=_svdvals_pushforward,
    name="svdvals",
    examples=_matrix_examples,
)


@handles(np.linalg.svd)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """Give the singular value decomposition."""
    if hermitian and not compute_uv:
        return np.flip(np.sort(np.abs(eigvalsh(a)), axis=-1), -1)
    if hermitian:
        values, vectors = eigh(a)
        order = np.flip(np.argsort(np.abs(values), axis=-1), -1)
        values = np.take_along_axis(values, order, axis=-1)
        u = np.take_along_axis(vectors, np.expand_dims(order, -2), axis=-1)
        return SVDResult(u, np.abs(values), transposed(u * np.expand_dims(np.sign(values), -2)))
    if not compute_uv:
        return svdvals_op(a)
    m, n = shape_of(a)[-2:] if len(shape_of(a)) > 1 else (0, 0)
    if full_matrices and m != n:
        raise TypeError(
            "np.linalg.svd of matrices that are not square needs full_matrices=False on recorded values: the further "
            "vectors are not determined, so they have no derivative"
        )
    packed = svd_op(a)
    return SVDResult(packed[..., :m, :], packed[..., m, :], transposed(packed[..., m + 1 :, :]))


@handles(np.linalg.svdvals)
def svdvals(x: Any, /) -> Any:
    """Give singular values."""
    return svdvals_op(x)
