"""Sparse Jacobians and Hessians: arguments and results, numbers of sweeps, patterns of the caller's, errors."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import rosen_hess
from sparsely import EXACT, MATRIX, X, dense, rosenbrock

from tape import (
    InputError,
    OutputError,
    PatternError,
    ScalarOutputError,
    UnsupportedError,
    grad,
    hessian_sparsity,
    jacobian_sparsity,
    jvp,
    sparse_hessian,
    sparse_jacobian,
)


# ---------------------------------------------------------------- arguments and results
def test_numbers() -> None:
    np.testing.assert_array_equal(sparse_jacobian(lambda a: a**2)(3.0).toarray(), [[6.0]])
    np.testing.assert_array_equal(sparse_hessian(lambda a: a**3)(2.0).toarray(), [[12.0]])
    np.testing.assert_array_equal(sparse_hessian(lambda a, b: a * b, (0, 1))(2, 3.0).toarray(), [[0, 1], [1, 0]])


def test_containers_are_concatenated() -> None:
    p = {"a": np.array([1.0, 2.0]), "b": (3.0, np.array([[4.0], [5.0]]))}

    def f(p: Any) -> Any:
        return {"x": p["a"] * p["b"][0], "constant": np.ones(2), "y": (p["b"][1], p["a"][0])}

    got = sparse_jacobian(f)(p).toarray()
    expected = [  # constant (2), x (2), y (2 and 1)
        [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [3, 0, 1, 0, 0], [0, 3, 2, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1],
        [1, 0, 0, 0, 0],
    ]  # fmt: skip
    np.testing.assert_array_equal(got, expected)


def test_one_value_returned_twice() -> None:
    def f(x: Any) -> Any:
        y = x[1:] * x[:-1]
        return y, x, y

    y = dense(lambda x: x[1:] * x[:-1], X)
    for g in (f, lambda x: (*f(x), np.sum(x))):
        expected = np.vstack([y, np.eye(6), y, *([np.ones((1, 6))] if g is not f else [])])
        np.testing.assert_array_equal(sparse_jacobian(g)(X).toarray(), expected)


def test_hessian_of_gradients_in_one_slot() -> None:
    got = sparse_hessian(lambda a, b: np.sum((a + b) ** 3), (0, 1))(X[:2], X[2:4])
    s = np.diag(6 * (X[:2] + X[2:4]))
    np.testing.assert_allclose(got.toarray(), np.block([[s, s], [s, s]]))


def test_argnums_keywords_and_aux() -> None:
    @sparse_jacobian(argnums="y", has_aux=True)
    def f(x: Any, y: Any, *, power: int) -> Any:
        return x * y**power, {"seen": x * 2}

    jacobian, aux = f(X, X, power=2)
    np.testing.assert_allclose(jacobian.toarray(), np.diag(2 * X * X))
    np.testing.assert_array_equal(aux["seen"], 2 * X)
    hessian, extra = sparse_hessian(lambda x: (np.sum(x**3), x), has_aux=True)(X)
    np.testing.assert_allclose(hessian.toarray(), np.diag(6 * X))
    np.testing.assert_array_equal(extra, X)
    both = sparse_jacobian(lambda x, y: x * y, argnums=(0, 1))(X, 2 * X)
    np.testing.assert_array_equal(both.toarray(), np.hstack([np.diag(2 * X), np.diag(X)]))


def test_empty() -> None:
    assert sparse_jacobian(lambda x: x * 2)(np.empty(0)).shape == (0, 0)
    assert sparse_jacobian(lambda x: np.sum(x))(np.empty((0, 2))).shape == (1, 0)
    assert sparse_jacobian(lambda x: x[:0])(X).shape == (0, 6)
    assert sparse_hessian(lambda x: np.sum(x**2))(np.empty(0)).shape == (0, 0)
    assert sparse_hessian(lambda x: np.sum(x))(X).nnz == 0
    assert sparse_hessian(lambda x: 3.0)(X).nnz == 0


def test_method_and_pickle() -> None:
    class Model:
        @sparse_jacobian(argnums=1)
        def jacobian(self, x: Any) -> Any:
            return x[1:] - x[:-1]

    assert Model().jacobian(X).nnz == 10
    made = pickle.loads(pickle.dumps(sparse_hessian(rosenbrock, pattern=hessian_sparsity(rosenbrock)(X))))
    np.testing.assert_allclose(made(X).toarray(), rosen_hess(X), rtol=1e-12)


# ---------------------------------------------------------------- Hessians
HESSIANS = {
    "rosenbrock": rosenbrock,
    "separable": lambda x: np.sum(np.exp(x) * np.cos(x)),
    "linear": lambda x: np.sum(x * np.arange(6.0)),
    "arrow-head": lambda x: np.sum(x[0] * x[1:] ** 2) + x[0] ** 3,
    "dense": lambda x: np.sum(x**2) ** 2,
    "blocks": lambda x: np.sum(np.sum(np.reshape(x, (3, 2)), axis=1) ** 3),
    "quotient": lambda x: np.sum(x[1:] / (2.0 + x[:-1] ** 2)),
    "product of all": lambda x: np.prod(x),
    "quadratic form": lambda x: x @ (MATRIX.T @ MATRIX) @ x,
    "log-sum-exp of rows": lambda x: np.sum(np.log(np.sum(np.exp(np.reshape(x, (2, 3))), axis=1))),
    "gather": lambda x: np.sum(x[np.array([0, 2, 2])] * x[np.array([1, 3, 5])] ** 2),
    "loop": lambda x: sum(x[i] * x[i + 1] ** 2 for i in range(5)),
    "branch": lambda x: np.sum(x[x > 0] ** 3) + (x[0] * x[1] if x[0] > 0 else 0.0),
    "cumulative": lambda x: np.sum(np.cumsum(x) ** 2),
    "sorted": lambda x: np.sum(np.sort(x)[:3] ** 3),
    "maximum": lambda x: np.max(x) ** 2 + np.sum(np.maximum(x, 0.0) ** 2),
    "determinant": lambda x: np.linalg.det(np.reshape(x[:4], (2, 2))),
}


@pytest.mark.parametrize("name", HESSIANS)
def test_hessian(name: str, rng: np.random.Generator) -> None:
    f = HESSIANS[name]
    for x in (X, rng.normal(size=6)):
        got = sparse_hessian(f)(x)
        expected = dense(grad(f), x)
        np.testing.assert_allclose(got.toarray(), expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(got.toarray(), got.toarray().T)
        pattern = hessian_sparsity(f)(x).toarray()
        assert not np.any((np.abs(expected) > 1e-12) & ~pattern)


@pytest.mark.parametrize("name", ["rosenbrock", "separable", "linear", "arrow-head", "blocks", "quotient", "gather"])
def test_hessian_pattern_is_exact(name: str) -> None:
    f = HESSIANS[name]
    expected = dense(grad(f), X) != 0
    if name == "arrow-head":
        expected[0, 0] = True
    np.testing.assert_array_equal(hessian_sparsity(f)(X).toarray(), expected)


def test_rosenbrock(rng: np.random.Generator) -> None:
    x = rng.normal(size=300)
    made = sparse_hessian(rosenbrock)
    np.testing.assert_allclose(made(x).toarray(), rosen_hess(x), rtol=1e-12, atol=1e-12)
    assert made.plan.sweeps == 3
    large = rng.normal(size=100_000)
    got = made(large)
    assert made.plan.sweeps == 3
    np.testing.assert_allclose(got.diagonal(), 1200 * large**2 * (np.arange(100_000) < 99_999) - np.append(
        400 * large[1:] - 2, 0) + 200 * (np.arange(100_000) > 0), rtol=1e-12, atol=1e-9)  # fmt: skip
    np.testing.assert_allclose(got.diagonal(1), -400 * large[:-1], rtol=1e-12)


def test_long_loop_over_numbers() -> None:
    def f(x: Any) -> Any:
        total = 0.0
        for i in range(len(x) - 1):
            total += 100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2
        return total

    x = np.linspace(-1, 1, 2000)
    np.testing.assert_allclose(sparse_hessian(f)(x).toarray(), rosen_hess(x), rtol=1e-12, atol=1e-12)
    assert sparse_jacobian(f)(x).nnz == 2000


# ---------------------------------------------------------------- numbers of sweeps
def residual(u: Any) -> Any:
    """Give the residual of a nonlinear equation on a square grid."""
    side = int(np.sqrt(np.size(u)))
    u = np.reshape(u, (side, side))
    p = np.pad(u, 1)
    return np.ravel(4 * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2] + np.exp(u))


def test_laplacian(rng: np.random.Generator) -> None:
    made = sparse_jacobian(residual)
    u = rng.normal(size=144)
    np.testing.assert_allclose(made(u).toarray(), dense(residual, u), rtol=1e-12)
    u = rng.normal(size=10_000)
    got = made(u)
    assert got.nnz == 5 * 10_000 - 4 * 100
    assert made.plan.sweeps <= 8
    direction = rng.normal(size=10_000)
    np.testing.assert_allclose(got @ direction, jvp(residual, (u,), (direction,))[1], rtol=1e-9, atol=1e-12)


SWEEPS = {
    "diagonal": (lambda x: np.exp(x), 1),
    "band": (lambda x: x[2:] * x[1:-1] * x[:-2], 3),
    "arrow-head": (lambda x: np.concatenate([np.sum(x**2, keepdims=True), x[1:] * x[0]]), 3),
    "full row": (lambda x: np.concatenate([x**2, np.sum(x**3, keepdims=True)]), 2),
    "full column": (lambda x: x * x[0], 2),
    "blocks": (lambda x: np.reshape(x, (-1, 2)) @ np.array([[1.0, 2.0], [3.0, 4.0]]), 2),
    "gradient": (lambda x: np.sum(x**2), 1),
    "one input": (lambda x: x[0] * np.arange(50.0), 1),
    "dense": (lambda x: np.sum(x) * np.sin(x), 40),
    "wide": (lambda x: np.ones((3, 40)) @ x**2, 3),
    "constant": (lambda x: np.ones(4), 0),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_number_of_sweeps(name: str) -> None:
    f, count = SWEEPS[name]
    made = sparse_jacobian(f)
    x = np.linspace(0.5, 1.5, 40)
    np.testing.assert_allclose(made(x).toarray(), dense(f, x), rtol=1e-12)
    assert made.plan.sweeps == count


def test_number_of_sweeps_of_hessians() -> None:
    for f, count in (
        (lambda x: np.sum(x**4), 1),
        (lambda x: np.sum(x[0] * x[1:] ** 2), 2),
        (lambda x: np.sum(x[0] * x[2:] ** 2 + x[1] * x[2:]), 3),
        (lambda x: np.sum(x) ** 2, 40),
    ):
        made = sparse_hessian(f)
        made(np.linspace(0.5, 1.5, 40))
        assert made.plan.sweeps == count


def test_large_arrow_head() -> None:
    x = np.linspace(0.5, 1.5, 50_000)
    made = sparse_hessian(lambda x: np.sum(x[0] * x[1:] ** 2))
    got = made(x)
    assert made.plan.sweeps == 2
    np.testing.assert_allclose(got[[0], :].toarray()[0, 1:], 2 * x[1:])
    np.testing.assert_allclose(got.diagonal()[1:], 2 * x[0])


# ---------------------------------------------------------------- patterns of the caller's
def test_given_pattern(rng: np.random.Generator) -> None:
    f = EXACT["difference"]
    pattern = jacobian_sparsity(f)(X)
    expected = dense(f, X)
    more = pattern.toarray() | (rng.uniform(size=pattern.shape) < 0.3)
    for given_pattern in (pattern, pattern.tocoo(), sp.csc_matrix(pattern), more, more.astype(float).tolist()):
        got = sparse_jacobian(f, pattern=given_pattern)(X)
        np.testing.assert_allclose(got.toarray(), expected)
    kept = pattern.copy()
    sparse_jacobian(f, pattern=pattern)(X)
    assert (kept != pattern).nnz == 0
    upper = sp.triu(hessian_sparsity(rosenbrock)(X))
    np.testing.assert_allclose(sparse_hessian(rosenbrock, pattern=upper)(X).toarray(), rosen_hess(X), rtol=1e-12)


def test_pattern_that_lacks_an_element() -> None:
    f = EXACT["difference"]
    pattern = jacobian_sparsity(f)(X).tolil()
    pattern[2, 3] = False
    with pytest.raises(PatternError, match="lacks elements"):
        sparse_jacobian(f, pattern=pattern.tocsr())(X)
    with pytest.raises(PatternError, match="lacks elements"):
        sparse_jacobian(f, pattern=np.zeros((5, 6)))(X)
    with pytest.raises(PatternError, match="lacks elements"):
        sparse_hessian(rosenbrock, pattern=np.eye(6))(X)
    branching = sparse_jacobian(lambda x: x * x[::-1] if x[0] > 0 else x, pattern=np.eye(6))
    assert branching(-np.abs(X)).nnz == 6
    with pytest.raises(ValueError, match="row 0"):
        branching(np.abs(X))


def test_pattern_that_does_not_fit() -> None:
    with pytest.raises(PatternError, match=r"must have the shape \(6, 6\), but its shape is \(5, 6\)"):
        sparse_jacobian(lambda x: x, pattern=np.ones((5, 6)))(X)
    with pytest.raises(PatternError, match="must be a matrix"):
        sparse_jacobian(lambda x: x, pattern="dense")(X)


def test_pattern_follows_branches() -> None:
    made = sparse_jacobian(lambda x: x * x[::-1] if x[0] > 0 else x)
    assert made(np.abs(X)).nnz == 12
    assert made(-np.abs(X)).nnz == 6
    assert made(np.abs(X)).nnz == 12


# ---------------------------------------------------------------- errors
def test_errors() -> None:
    with pytest.raises(ScalarOutputError):
        sparse_hessian(lambda x: x)(X)
    with pytest.raises(InputError, match="int64"):
        sparse_jacobian(lambda x: x)(np.arange(3))
    with pytest.raises(OutputError):
        sparse_jacobian(lambda x: np.argsort(x))(X)
    with pytest.raises(InputError, match="sparse_jacobian needs a function"):
        sparse_jacobian(3)
    with pytest.raises(UnsupportedError, match="use jacobian"):
        grad(lambda x: np.sum(sparse_jacobian(lambda y: y * x)(x).data))(X)


def test_inside_a_recorded_function() -> None:
    def f(x: Any) -> Any:
        fixed = sparse_jacobian(lambda y: y[1:] * y[:-1])(X)
        return np.sum(x**2) * fixed.sum()

    np.testing.assert_allclose(grad(f)(X), 2 * X * (2 * X.sum() - X[0] - X[-1]))
