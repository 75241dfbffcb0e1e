"""Linear algebra: solvers, determinants and factorisations.

An op has one result, so a function with several (eigh, svd, ...) packs them into one array, whose slices are the
results: its pullback sees all their adjoints at once. Gradients by a symmetric matrix are symmetric.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ops.catalog import handles, structural
from ops.determinant import det_op, slogdet_op
from ops.elementwise import scale
from ops.linalg import lift, operand, stand_in, transposed
from ops.shape import shape_of

EighResult: Any = type(np.linalg.eigh(np.eye(1)))
QRResult: Any = type(np.linalg.qr(np.eye(1)))
SlogdetResult: Any = type(np.linalg.slogdet(np.eye(1)))


def idle(g: Any) -> Any:
    """Tell for each matrix whether its whole adjoint is 0."""
    return np.all(g == 0, axis=(-2, -1), keepdims=True)


def quiet(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Keep the gradient of a pullback 0 for each matrix of the result whose whole adjoint is 0."""

    def pullback(g: Any, out: Any, *operands: Any, **parameters: Any) -> Any:
        gradient = rule(g, out, *operands, **parameters)
        return gradient if bool(np.all(np.isfinite(gradient))) else np.where(idle(g), 0.0, gradient)

    return pullback


def along(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Make the pushforward of a function of one matrix of a rule for the tangent; that of a zero tangent is 0."""

    def pushforward(tangents: Sequence[Any], out: Any, a: Any, **parameters: Any) -> Any:
        return quiet(rule)(tangents[0], out, a, **parameters)

    return pushforward


def reciprocal(x: Any, tolerance: Any = 0.0) -> Any:
    """Give 1/x, and 0 where x is within the tolerance of 0."""
    none = np.abs(x) <= tolerance
    return np.where(none, 0.0, 1.0 / np.where(none, 1.0, x))


def gaps(values: Any) -> tuple[Any, Any]:
    """Give values[j] - values[i], and how small it is where the two coincide but for rounding."""
    size = np.max(np.abs(values), axis=-1, keepdims=True)
    tolerance = shape_of(values)[-1] * np.finfo(values.dtype).eps * size
    return np.expand_dims(values, -2) - lift(values), lift(tolerance)


def eye_like(x: Any) -> Any:
    """Give the identity with as many columns as x has."""
    return np.eye(shape_of(x)[-1], dtype=x.dtype)


def _regular(n: int, *lead: int) -> Callable[[np.random.Generator], Any]:
    return lambda rng: rng.normal(size=(*lead, n, n)) + 3 * np.eye(n)


def _square_examples(rng: np.random.Generator) -> Any:
    for make in (_regular(3), _regular(1), _regular(2, 2), _regular(0), _regular(2, 0), _regular(4, 2, 1)):
        yield (make(rng),), {}
    yield (_regular(3)(rng)[::-1].T,), {}


def _no_examples(rng: np.random.Generator) -> Any:
    """Leave an op of symmetric matrices to tests of its own: its gradient is symmetric, by convention."""
    return iter(())


# ---------------------------------------------------------------- solving
def _solve_pullback(position: int, g: Any, out: Any, a: Any, b: Any) -> Any:
    vector = len(shape_of(b)) == 1
    if vector:
        g, out = lift(g), lift(out)
    right = np.linalg.solve(transposed(a), g)
    if position == 1:
        right = np.where(idle(g), 0.0, right)
        return np.reshape(right, shape_of(right)[:-1]) if vector else right
    return np.where(idle(g), 0.0, -np.matmul(right, transposed(out)))


def _solve_pushforward(tangents: Sequence[Any], out: Any, a: Any, b: Any) -> Any:
    """Solve a dx = db - da x."""
    vector = len(shape_of(b)) == 1
    x, (da, right) = lift(out) if vector else out, tangents
    if vector and right is not None:
        right = lift(right)
    if da is not None:
        moved = np.where(idle(da), 0.0, np.matmul(da, x))
        right = -moved if right is None else right - moved
    dx = np.where(idle(right), 0.0, np.linalg.solve(a, right))
    return np.reshape(dx, shape_of(dx)[:-1]) if vector else dx


def _solve_examples(rng: np.random.Generator) -> Any:
    for make, shape in (
        (_regular(3), (3,)), (_regular(3), (3, 2)), (_regular(2, 4), (2,)), (_regular(2, 4), (2, 3)),
        (_regular(1), (1,)),
        (_regular(2, 4, 1), (3, 2, 2)), (_regular(2), (3, 2, 1)), (_regular(0), (0, 2)), (_regular(0), (0,)),
        (_regular(2), (2, 0)),
    ):  # fmt: skip
        yield (make(rng), rng.normal(size=shape)), {}


solve_op = structural(
    lambda a, b: np.linalg.solve(a, b),
    every=_solve_pullback,
    pushforward=_solve_pushforward,
    name="solve",
    examples=_solve_examples,
)
inv_op = structural(
    lambda a: np.linalg.inv(a),
    quiet(lambda g, out, a: -np.matmul(transposed(out), np.matmul(g, transposed(out)))),
    pushforward=along(lambda t, out, a: -np.matmul(out, np.matmul(t, out))),
    name="inv",
    examples=_square_examples,
)


@handles(np.linalg.solve)
def solve(a: Any, b: Any) -> Any:
    """Solve linear equations."""
    return solve_op(operand(a), operand(b))


@handles(np.linalg.inv)
def inv(a: Any) -> Any:
    """Invert square matrices."""
    return inv_op(a)


@handles(np.linalg.tensorsolve)
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """Solve tensordot(a, x, x.ndim) = b."""
    a, b = operand(a), operand(b)
    ndim = len(shape_of(a))
    if axes is not None:
        order = list(range(ndim))
        for d in axes:
            order.remove(d)
            order.insert(ndim, d)
        a = np.transpose(a, order)
    shape = shape_of(a)[len(shape_of(b)) - ndim :]
    n = math.prod(shape)
    if math.prod(shape_of(a)) != n * n:
        return np.linalg.tensorsolve(stand_in(a), stand_in(b))
    return np.reshape(solve(np.reshape(a, (n, n)), np.reshape(b, -1)), shape)


@handles(np.linalg.tensorinv)
def tensorinv(a: Any, ind: int = 2) -> Any:
    """Give the inverse with respect to tensordot over `ind` axes."""
    shape = shape_of(a)
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    rows = math.prod(shape[ind:])
    return np.reshape(inv(np.reshape(a, (rows, math.prod(shape[:ind])))), (*shape[ind:], *shape[:ind]))


@handles(np.linalg.det)
def det(a: Any) -> Any:
    """Give determinants."""
    return det_op(a)


@handles(np.linalg.slogdet)
def slogdet(a: Any) -> Any:
    """Give the sign and the logarithm of the absolute value of determinants."""
    packed = slogdet_op(a)
    return SlogdetResult(packed[..., 0], packed[..., 1])


# ---------------------------------------------------------------- symmetric matrices
def _symmetric(x: Any) -> Any:
    return 0.5 * (x + transposed(x))


def _halved(x: Any) -> Any:
    """Give the lower triangle, its diagonal halved."""
    lower = np.tril(x)
    return lower - 0.5 * eye_like(x) * lower


@quiet
def _cholesky_pullback(g: Any, out: Any, a: Any, *, upper: bool) -> Any:
    """Give L^-T P L^-1 with P the symmetric part of the lower triangle of L^T g, its diagonal halved."""
    lower, g = (transposed(out), transposed(g)) if upper else (out, g)
    inner = _symmetric(_halved(np.matmul(transposed(lower), g)))
    half = np.linalg.solve(transposed(lower), inner)
    return np.linalg.solve(transposed(lower), transposed(half))


def _cholesky_along(t: Any, out: Any, a: Any, *, upper: bool) -> Any:
    """Give L P with P the lower triangle of the symmetric part of L^-1 t L^-T, its diagonal halved."""
    lower = transposed(out) if upper else out
    half = np.linalg.solve(lower, t)
    pushed = np.matmul(lower, _halved(_symmetric(np.linalg.solve(lower, transposed(half)))))
    return transposed(pushed) if upper else pushed


cholesky_op = structural(
    lambda a, *, upper: np.linalg.cholesky(a, upper=upper),
    _cholesky_pullback,
    pushforward=along(_cholesky_along),
    name="cholesky",
    examples=_no_examples,
)


@handles(np.linalg.cholesky)
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """Give the triangular factor of positive definite matrices."""
    return cholesky_op(a, upper=bool(upper))


def _eigh(a: Any, *, uplo: Any) -> Any:
    values, vectors = np.linalg.eigh(a, uplo)
    return np.concatenate([values[..., None, :], vectors], axis=-2)


@quiet
def _eigh_pullback(g: Any, out: Any, a: Any, *, uplo: Any) -> Any:
    """Rotate diag(g of the values) + F * (V^T g of the vectors) back, F[i, j] = 1 / (w[j] - w[i]).

    F is 0 where two values coincide: what is smooth there does not turn the vectors within their space.
    """
    if 0 in shape_of(a):
        return a
    values, vectors = out[..., 0, :], out[..., 1:, :]
    gap, tolerance = gaps(values)
    inner = reciprocal(gap, tolerance) * np.matmul(transposed(vectors), g[..., 1:, :])
    inner = inner + eye_like(a) * np.expand_dims(g[..., 0, :], -2)
    return _symmetric(np.matmul(vectors, np.matmul(inner, transposed(vectors))))


def _eigh_along(t: Any, out: Any, a: Any, *, uplo: Any) -> Any:
    """Give the diagonal of P = V^T t V, t made symmetric, and V (F * P)."""
    if 0 in shape_of(a):
        return np.zeros(shape_of(out), out.dtype)
    values, vectors = out[..., 0, :], out[..., 1:, :]
    gap, tolerance = gaps(values)
    turned = np.matmul(transposed(vectors), np.matmul(_symmetric(t), vectors))
    turning = np.matmul(vectors, reciprocal(gap, tolerance) * turned)
    return np.concatenate([diagonal_row(turned), turning], axis=-2)


def diagonal_row(x: Any) -> Any:
    """Give the diagonal as a row."""
    return np.expand_dims(np.diagonal(x, axis1=-2, axis2=-1), -2)


eigh_op = structural(_eigh, _eigh_pullback, pushforward=along(_eigh_along), name="eigh", examples=_no_examples)


def _eigvalsh_pullback(g: Any, out: Any, a: Any, *, uplo: Any) -> Any:
    vectors = np.linalg.eigh(a, uplo)[1]
    return np.matmul(scale(np.expand_dims(g, -2), vectors), transposed(vectors))


def _eigvalsh_pushforward(tangents: Sequence[Any], out: Any, a: Any, *, uplo: Any) -> Any:
    vectors = np.linalg.eigh(a, uplo)[1]
    return np.sum(vectors * np.matmul(tangents[0], vectors), axis=-2)


eigvalsh_op = structural(
    lambda a, *, uplo: np.linalg.eigvalsh(a, uplo),
    _eigvalsh_pullback,
    pushforward=_eigvalsh_pushforward,
    name="eigvalsh",
    examples=_no_examples,
)


@handles(np.linalg.eigh)
def eigh(a: Any, UPLO: Any = "L") -> Any:
    """Give eigenvalues and eigenvectors of symmetric matrices."""
    packed = eigh_op(a, uplo=UPLO.upper())
    return EighResult(packed[..., 0, :], packed[..., 1:, :])


@handles(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: Any = "L") -> Any:
    """Give eigenvalues of symmetric matrices."""
    return eigvalsh_op(a, uplo=UPLO.upper())
