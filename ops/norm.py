"""Linear algebra: norms, condition numbers, and what rests on a choice of rank (pinv, lstsq), and qr."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from ops.catalog import handles, structural
from ops.elementwise import root
from ops.linalg import dot, lift, operand, stand_in, transposed
from ops.shape import shape_of
from ops.singular import svdvals_op
from ops.solve import QRResult, along, eye_like, idle, inv, quiet

NOT_GIVEN: Any = np._NoValue


# ---------------------------------------------------------------- norms
def _powered(x: Any, p: Any) -> Any:
    """Give |x|**p with slope 0 at 0, where it has a cusp or, for negative p, is infinite."""
    x = np.abs(x)
    at_zero = 0.0 if p > 0 else np.inf
    return np.where(x == 0, at_zero, np.power(np.where(x == 0, 1.0, x), p))


def _largest(x: Any, axis: int, keepdims: bool = False) -> Any:
    """Give the maximum of values that are not negative; of none it is 0."""
    if shape_of(x)[axis] == 0:
        return np.sum(x, axis=axis, keepdims=keepdims)
    return np.max(x, axis=axis, keepdims=keepdims)


def _vector(x: Any, ord: Any, axis: int, keepdims: bool) -> Any:
    if isinstance(ord, str):
        raise ValueError(f"Invalid norm order '{ord}' for vectors")
    if ord == np.inf:
        return _largest(np.abs(x), axis, keepdims)
    if ord == -np.inf:
        return np.min(np.abs(x), axis=axis, keepdims=keepdims)
    if ord == 0:
        return np.sum((x != 0).astype(x.dtype), axis=axis, keepdims=keepdims)
    if ord == 1:
        return np.sum(np.abs(x), axis=axis, keepdims=keepdims)
    if ord is None or ord == 2:
        return root(np.sum(x * x, axis=axis, keepdims=keepdims))
    total = np.sum(_powered(x, ord), axis=axis, keepdims=keepdims)
    # NumPy rounds the exponent to the precision of x.
    return _powered(total, np.reciprocal(ord, dtype=x.dtype)) if ord > 0 else total ** np.reciprocal(ord, dtype=x.dtype)


def _matrix(x: Any, ord: Any, rows: int, columns: int) -> Any:
    if ord in (2, -2, "nuc"):
        # Where a singular value is 0 its absolute value has slope 0: the least of the subgradients.
        values = np.abs(svdvals_op(np.moveaxis(x, (rows, columns), (-2, -1))))
        if ord == "nuc":
            return np.sum(values, axis=-1)
        return _largest(values, -1) if ord == 2 else np.min(values, axis=-1)
    if ord in (1, -1, np.inf, -np.inf):
        summed, kept = (rows, columns) if ord in (1, -1) else (columns, rows)
        sums = np.sum(np.abs(x), axis=summed)
        kept -= kept > summed
        return _largest(sums, kept) if ord > 0 else np.min(sums, axis=kept)
    if ord in (None, "fro", "f"):
        return root(np.sum(x * x, axis=(rows, columns)))
    raise ValueError("Invalid norm order for matrices.")


@handles(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Give the norm of vectors or matrices; where it is 0 the slope is 0, the least of its subgradients."""
    if x.dtype.kind != "f":
        x = x.astype(np.float64)
    shape = shape_of(x)
    ndim = len(shape)
    if axis is None and (ord is None or (ord in ("f", "fro") and ndim == 2) or (ord == 2 and ndim == 1)):
        flat = np.reshape(x, -1)
        result = root(dot(flat, flat))
        return np.reshape(result, (1,) * ndim) if keepdims else result
    if axis is None:
        axis = tuple(range(ndim))
    elif not isinstance(axis, tuple):
        try:
            axis = (int(axis),)
        except Exception as error:
            raise TypeError("'axis' must be None, an integer or a tuple of integers") from error
    if len(axis) == 1:
        return _vector(x, ord, normalize_axis_index(axis[0], ndim), keepdims)
    if len(axis) != 2:
        raise ValueError("Improper number of dimensions to norm.")
    rows, columns = (normalize_axis_index(d, ndim) for d in axis)
    if rows == columns:
        raise ValueError("Duplicate axes given.")
    result = _matrix(x, ord, rows, columns)
    return np.reshape(result, [1 if d in (rows, columns) else n for d, n in enumerate(shape)]) if keepdims else result


@handles(np.linalg.vector_norm)
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Give the norm of vectors, of all elements or along axes."""
    shape = shape_of(x)
    axes = tuple(range(len(shape))) if axis is None else normalize_axis_tuple(axis, len(shape))
    if axis is None:
        result = norm(np.reshape(x, -1), ord, 0)
    elif isinstance(axis, tuple):
        rest = [d for d in range(len(shape)) if d not in axes]
        moved = np.transpose(x, [*axes, *rest])
        count = int(np.prod([shape[d] for d in axes]))
        result = norm(np.reshape(moved, (count, *(shape[d] for d in rest))), ord, 0)
    else:
        result = norm(x, ord, axis)
    return np.reshape(result, [1 if d in axes else n for d, n in enumerate(shape)]) if keepdims else result


@handles(np.linalg.matrix_norm)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Give the norm of matrices."""
    return norm(x, ord, (-2, -1), keepdims)


@handles(np.linalg.cond)
def cond(x: Any, p: Any = None) -> Any:
    """Give the condition number of matrices, infinite where they are singular."""
    shape = shape_of(x)
    if len(shape) < 2 or 0 in shape[-2:]:
        return np.linalg.cond(stand_in(x), p)
    with np.errstate(all="ignore"):
        if p is None or p in (2, -2):
            values = svdvals_op(x)
            ratio = values[..., -1] / values[..., 0] if p == -2 else values[..., 0] / values[..., -1]
        else:
            singular = lift(np.linalg.slogdet(x)[0] == 0, 2)
            inverse = inv(np.where(singular, eye_like(x), x))
            ratio = norm(x, p, (-2, -1)) * norm(inverse, p, (-2, -1))
            ratio = np.where(singular[..., 0, 0], np.nan, ratio)
        undefined = np.logical_and(np.isnan(ratio), np.logical_not(np.any(np.isnan(x), axis=(-2, -1))))
    return np.where(undefined, np.inf, ratio) if bool(np.any(undefined)) else ratio


matrix_rank_op = structural(
    lambda a, *, tol, hermitian, rtol: np.linalg.matrix_rank(a, tol, hermitian, rtol=rtol), name="matrix_rank"
)


@handles(np.linalg.matrix_rank)
def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """Give the rank of matrices; it has no slope."""
    return matrix_rank_op(A, tol=tol, hermitian=hermitian, rtol=rtol)


# ---------------------------------------------------------------- of a given rank
@quiet
def _pinv_pullback(g: Any, out: Any, a: Any, *, cutoff: Any, hermitian: bool) -> Any:
    """Give the gradient among matrices of the same rank (Golub and Pereyra)."""
    p, pt, gt = out, transposed(out), transposed(g)
    left = np.matmul(gt, np.matmul(p, pt))
    right = np.matmul(np.matmul(pt, p), gt)
    result = -np.matmul(pt, np.matmul(g, pt))
    return result + left - np.matmul(a, np.matmul(p, left)) + right - np.matmul(np.matmul(right, p), a)


def _pinv_along(t: Any, out: Any, a: Any, *, cutoff: Any, hermitian: bool) -> Any:
    """Give -P t P + P P^T t^T (1 - A P) + (1 - P A) t^T P^T P."""
    p, pt, tt = out, transposed(out), transposed(t)
    left = np.matmul(np.matmul(p, pt), tt)
    right = np.matmul(tt, np.matmul(pt, p))
    result = -np.matmul(p, np.matmul(t, p))
    return result + left - np.matmul(np.matmul(left, a), p) + right - np.matmul(p, np.matmul(a, right))


def _pinv(a: Any, *, cutoff: Any, hermitian: bool) -> Any:
    return np.linalg.pinv(a, hermitian=hermitian, **dict(cutoff))


def _pinv_examples(rng: np.random.Generator) -> Any:
    for shape in ((3, 2), (2, 3), (3, 3), (1, 1), (2, 4, 2), (3, 0), (0, 2)):
        yield (rng.normal(size=shape) + 2 * np.eye(*shape[-2:]),), {"cutoff": (), "hermitian": False}
    yield (rng.normal(size=(4, 6))[:, ::2],), {"cutoff": (("rcond", 1e-6),), "hermitian": False}


pinv_op = structural(_pinv, _pinv_pullback, pushforward=along(_pinv_along), name="pinv", examples=_pinv_examples)


@handles(np.linalg.pinv)
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = NOT_GIVEN) -> Any:
    """Give the pseudo-inverse of matrices; its rank counts as fixed."""
    cutoff = [("rcond", rcond)] if rcond is not None else []
    if rtol is not NOT_GIVEN:
        cutoff.append(("rtol", rtol))
    return pinv_op(a, cutoff=tuple(cutoff), hermitian=bool(hermitian))


def _lstsq_inverse(a: Any, rcond: Any) -> Any:
    """Give the pseudo-inverse of the rank that lstsq finds."""
    limit = max(shape_of(a)) * float(np.finfo(a.dtype).eps) if rcond is None else max(rcond, 2.3e-16)
    return np.linalg.pinv(a, limit)


def _lstsq_pullback(position: int, g: Any, out: Any, a: Any, b: Any, *, rcond: Any) -> Any:
    """Differentiate pinv(a) b without making the large matrices of its derivative."""
    vector = len(shape_of(b)) == 1
    if vector:
        g, out, b = lift(g), lift(out), lift(b)
    p = _lstsq_inverse(a, rcond)
    right = np.matmul(transposed(p), g)
    if position == 1:
        return np.reshape(right, -1) if vector else right
    residual = b - np.matmul(a, out)
    result = np.matmul(residual, transposed(np.matmul(p, right))) - np.matmul(right, transposed(out))
    rest = g - np.matmul(p, np.matmul(a, g))
    return result + np.matmul(np.matmul(transposed(p), out), transposed(rest))


def _lstsq_pushforward(tangents: Any, out: Any, a: Any, b: Any, *, rcond: Any) -> Any:
    """Give P (db - t x + P^T t^T r) + (1 - P A) t^T P^T x, with t the tangent of A and r = b - A x."""
    vector = len(shape_of(b)) == 1
    t, right = tangents
    if vector:
        out, b, right = lift(out), lift(b), right if right is None else lift(right)
    p = _lstsq_inverse(a, rcond)
    if t is None:
        result = np.matmul(p, right)
    else:
        pt, tt = transposed(p), transposed(t)
        moved = np.matmul(pt, np.matmul(tt, b - np.matmul(a, out))) - np.matmul(t, out)
        beyond = np.matmul(tt, np.matmul(pt, out))
        result = np.matmul(p, moved if right is None else right + moved) + beyond - np.matmul(p, np.matmul(a, beyond))
    return np.reshape(result, -1) if vector else result


def _lstsq_examples(rng: np.random.Generator) -> Any:
    for first, second in (((4, 2), (4,)), ((4, 2), (4, 3)), ((2, 4), (2,)), ((3, 3), (3, 1)), ((1, 1), (1,))):
        yield (rng.normal(size=first) + 2 * np.eye(*first), rng.normal(size=second)), {"rcond": None}


lstsq_op = structural(
    lambda a, b, *, rcond: np.linalg.lstsq(a, b, rcond)[0],
    every=_lstsq_pullback,
    pushforward=_lstsq_pushforward,
    name="lstsq",
    examples=_lstsq_examples,
)


@handles(np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """Give the least-squares solution, the sums of squared residuals, the rank and the singular values."""
    a, b = operand(a), operand(b)
    x = lstsq_op(a, b, rcond=rcond)
    plain = a.numpy() if hasattr(a, "numpy") else a
    rank = np.linalg.lstsq(plain, np.zeros(shape_of(b)), rcond)[2]
    m, n = shape_of(a)
    residual = b - np.matmul(a, x)
    if rank != n or m <= n:
        sums: Any = np.array([], residual.dtype)
    else:
        sums = np.sum(np.reshape(residual * residual, (m, -1)), axis=0)
    return x, sums, rank, np.linalg.svdvals(a)


# ---------------------------------------------------------------- orthogonal factors
def _qr(a: Any) -> Any:
    return np.concatenate(np.linalg.qr(a), axis=-2)


@quiet
def _qr_pullback(g: Any, out: Any, a: Any) -> Any:
    """Give (g of Q + Q M) R^-T, M symmetric with the lower triangle of R gR^T - gQ^T Q."""
    m = shape_of(a)[-2]
    q, r = out[..., :m, :], out[..., m:, :]
    gq, gr = g[..., :m, :], np.triu(g[..., m:, :])
    inner = np.tril(np.matmul(r, transposed(gr)) - np.matmul(transposed(gq), q))
    inner = inner + transposed(np.tril(inner, -1))
    r = np.where(idle(g), eye_like(r), r)
    return transposed(np.linalg.solve(r, transposed(gq + np.matmul(q, inner))))


def _qr_along(t: Any, out: Any, a: Any) -> Any:
    """Give t R^-1 - Q M and M R, M the upper triangle of C + C^T with the diagonal of C = Q^T t R^-1."""
    m = shape_of(a)[-2]
    q, r = out[..., :m, :], out[..., m:, :]
    regular = np.where(idle(t), eye_like(r), r)
    moved = transposed(np.linalg.solve(transposed(regular), transposed(t)))
    turned = np.matmul(transposed(q), moved)
    inner = np.triu(turned) + transposed(np.tril(turned, -1))
    return np.concatenate([moved - np.matmul(q, inner), np.matmul(inner, r)], axis=-2)


def _qr_examples(rng: np.random.Generator) -> Any:
    for shape in ((3, 3), (4, 2), (1, 1), (2, 3, 2), (3, 0), (0, 0), (0, 2, 2)):
        yield (rng.normal(size=shape),), {}
    yield (rng.normal(size=(4, 6))[:, ::2],), {}


qr_op = structural(_qr, _qr_pullback, pushforward=along(_qr_along), name="qr", examples=_qr_examples)


@handles(np.linalg.qr)
def qr(a: Any, mode: Any = "reduced") -> Any:
    """Give orthonormal columns and the upper triangle that make up a matrix."""
    if mode not in ("reduced", "complete", "r"):
        return np.linalg.qr(stand_in(a), mode) if mode != "raw" else _refuse_qr(mode)
    if len(shape_of(a)) < 2:
        return np.linalg.qr(stand_in(a))
    m, n = shape_of(a)[-2:]
    if mode == "complete" and m > n:
        return _refuse_qr(mode)
    # The columns beyond the square part do not enter Q.
    packed = qr_op(a[..., :m])
    q, r = packed[..., :m, :], packed[..., m:, :]
    if n > m:
        r = np.concatenate([r, np.matmul(transposed(q), a[..., m:])], axis=-1)
    return r if mode == "r" else QRResult(q, r)


def _refuse_qr(mode: str) -> Any:
    raise TypeError(f"np.linalg.qr with mode={mode!r} is not supported on recorded values: use mode='reduced'")
