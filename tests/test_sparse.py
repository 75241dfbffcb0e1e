"""Sparse Jacobians and Hessians: their elements, their patterns, and the colourings behind them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import rosen_hess
from test_catalogue import SMOOTH, draw, fix, generator
from test_pushforward import examples_of, floating

import ops.special
from ops.catalog import OPS, Structural
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
    vjp,
)
from tape.colouring import colour_columns, colour_symmetric
from tape.compression import plan, plan_symmetric
from tape.unions import Unions

X = np.array([0.3, -1.2, 0.8, 1.7, -0.4, 0.9])


def rosenbrock(x: Any) -> Any:
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def flat(values: Any) -> Any:
    return np.concatenate([np.ravel(v) for v in values]) if isinstance(values, tuple | list) else np.ravel(values)


def dense(f: Any, *args: Any) -> Any:
    """Give the Jacobian by all arguments, a row for each element of the result, by pullbacks."""
    value, pullback = vjp(f, *args)
    rows = []
    for k in range(np.size(value)):
        unit = np.zeros(np.size(value), np.asarray(value).dtype)
        unit[k] = 1.0
        rows.append(flat(list(pullback(unit.reshape(np.shape(value)) if np.ndim(value) else unit[0]))))
    width = sum(np.size(a) for a in args)
    return np.array(rows).reshape(np.size(value), width)


def differences(f: Any, x: Any, step: float = 1e-5) -> Any:
    """Give the Jacobian by central differences."""
    columns = []
    for k in range(x.size):
        change = np.zeros(x.size)
        change[k] = step
        up, down = f(x + change.reshape(x.shape)), f(x - change.reshape(x.shape))
        columns.append((np.ravel(up) - np.ravel(down)) / (2 * step))
    return np.array(columns).T.reshape(np.size(f(x)), x.size)


def check(f: Any, *args: Any, exact: bool = True, tolerance: float = 1e-12) -> Any:
    """Hold the sparse Jacobian against the dense one, and (exact) the pattern against its elements."""
    argnums = tuple(range(len(args)))
    expected = dense(f, *args)
    got = sparse_jacobian(f, argnums)(*args)
    assert isinstance(got, sp.csr_array)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.toarray(), expected, rtol=tolerance, atol=tolerance)
    pattern = jacobian_sparsity(f, argnums)(*args).toarray()
    assert pattern.dtype == bool
    if exact:
        np.testing.assert_array_equal(pattern, expected != 0)
    else:
        assert not np.any((expected != 0) & ~pattern)
    return got


# ---------------------------------------------------------------- every kind of entry
def loop(x: Any) -> Any:
    total = 0.0
    found = []
    for i in range(len(x) - 1):
        total = x[i] * 2.0 if i % 2 else x[i + 1] * x[i]
        found.append(total)
    return np.stack(found)


def filling(x: Any) -> Any:
    y = np.zeros_like(x)
    for i in range(1, len(x)):
        y[i] = x[i] * x[i - 1]
    return y


def rows_written(x: Any) -> Any:
    y = np.reshape(x, (3, 2)) * 2
    y[1] = y[0] * y[2]
    y[0, 1] = y[2, 0]
    return y


def masked(x: Any) -> Any:
    y = x * 1.0
    y[x > 0] = np.sum(x[:2])
    return y


MATRIX = np.array([[1.0, 0.0, 2.0, 0, 0, 0], [0, 3.0, 0, 0, 0, 1], [1, 1, 1, 1, 1, 1]])

EXACT = {
    "elementwise": lambda x: np.sin(x) * x,
    "difference": lambda x: x[1:] * x[:-1],
    "same operand twice": lambda x: x * x,
    "broadcast rows": lambda x: np.reshape(x, (2, 3)) * x[:3],
    "broadcast columns": lambda x: np.reshape(x, (2, 3)) + np.reshape(x[:2], (2, 1)),
    "outer": lambda x: x[:, None] * x[None, :],
    "negative strides": lambda x: x[::-1] * np.arange(1.0, 7.0) + x,
    "steps": lambda x: x[::2] * x[1::2],
    "transpose": lambda x: np.reshape(x, (2, 3)).T,
    "column": lambda x: np.reshape(x, (2, 3))[:, 1],
    "reversed rows": lambda x: np.reshape(x, (2, 3))[::-1, ::-1] * 2,
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 6)),
    "sum": lambda x: np.sum(x**2),
    "sum of rows": lambda x: np.sum(np.reshape(x, (2, 3)), axis=1),
    "sum of columns": lambda x: np.sum(np.reshape(x, (2, 3)), axis=0, keepdims=True),
    "mean of middle": lambda x: np.mean(np.reshape(x, (1, 2, 3)), axis=(0, 1)),
    "product": lambda x: np.prod(np.reshape(x, (2, 3)), axis=0),
    "matrix times vector": lambda x: np.reshape(x[:4], (2, 2)) @ x[4:],
    "matrix product": lambda x: np.reshape(x[:4], (2, 2)) @ np.reshape(x[2:], (2, 2)),
    "vector product": lambda x: x[:3] @ x[3:],
    "data with zeros": lambda x: MATRIX @ x,
    "vector times data": lambda x: x[:3] @ MATRIX,
    "data on both sides": lambda x: MATRIX @ np.reshape(x, (6, 1)) @ np.ones((1, 2)),
    "data transposed": lambda x: MATRIX.T @ x[::2],
    "gather": lambda x: x[np.array([0, 2, 2, -1])],
    "gather rows": lambda x: np.reshape(x, (3, 2))[np.array([[0, 2], [2, 1]])],
    "boolean index": lambda x: x[x > 0] ** 2,
    "two index arrays": lambda x: np.reshape(x, (2, 3))[np.array([0, 1]), np.array([2, 0])],
    "joined": lambda x: np.concatenate([x[3:], np.ones(2), x[:2] ** 2]),
    "joined columns": lambda x: np.concatenate([np.reshape(x, (3, 2)), np.ones((3, 1))], axis=1),
    "stack": lambda x: np.stack([x[0], x[1] * x[2], 3.0 * x[5]]),
    "padded": lambda x: np.pad(x, 2),
    "rolled": lambda x: np.roll(x, 2) * x,
    "repeated": lambda x: np.repeat(x, 2),
    "tiled": lambda x: np.tile(x, 2),
    "diff": lambda x: np.diff(x, 2),
    "loop": loop,
    "filling": filling,
    "rows written": rows_written,
    "masked write": masked,
    "cumsum": lambda x: np.cumsum(x),
    "cumsum of rows": lambda x: np.cumsum(np.reshape(x, (2, 3)), axis=1),
    "cumprod": lambda x: np.cumprod(x),
    "sort": lambda x: np.sort(x),
    "maximum": lambda x: np.maximum(x, 0.0)[x > 0],
    "batched product": lambda x: np.matmul(np.reshape(x, (3, 1, 2)), np.reshape(x, (3, 2, 1))),
    "einsum": lambda x: np.einsum("ij,kj->ik", np.reshape(x, (2, 3)), np.reshape(x, (2, 3))),
    "einsum diagonal": lambda x: np.einsum("ii->i", np.reshape(x[:4], (2, 2))),
    "convolve": lambda x: np.convolve(x, [1.0, 2.0, 3.0], "same"),
    "correlate": lambda x: np.correlate(x, [1.0, 2.0, 3.0], "valid"),
    "add.at": lambda x: np.bincount(np.array([0, 2, 2, 1, 0, 4]), x),
    "inverse of a stack": lambda x: np.linalg.inv(np.reshape(x, (6, 1, 1))),
    "softmax of rows": lambda x: ops.special.softmax(np.reshape(x, (2, 3)), axis=1),
    "constant": lambda x: np.ones(3),
    "nothing differentiable": lambda x: np.sign(x) + np.floor(x),
    "identity": lambda x: x,
    "one element": lambda x: x[2],
    "no elements": lambda x: x[:0],
    "dense": lambda x: np.exp(x) * np.sum(x**2) + np.cos(x),
    "where": lambda x: np.where(x > 0, x[::-1], 0.0)[x > 0],
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_exact_pattern(name: str) -> None:
    check(EXACT[name], X)


CONSERVATIVE = {
    "where": lambda x: np.where(x > 0, x**2, x[::-1]),
    "max": lambda x: np.max(np.reshape(x, (2, 3)), axis=1),
    "max of all": lambda x: np.max(x) * x,
    "relu": lambda x: np.maximum(x, 0.0),
    "times zero": lambda x: x * np.array([0.0, 1, 0, 1, 1, 0]),
    "solve": lambda x: np.linalg.solve(np.reshape(x[:4], (2, 2)), x[4:]),
    "determinants": lambda x: np.linalg.det(np.reshape(x[:4], (1, 2, 2))),
    "eigenvalues": lambda x: np.linalg.eigvalsh(np.reshape(x[:4], (2, 2)) + np.reshape(x[:4], (2, 2)).T),
    "interp": lambda x: np.interp(x, np.array([-2.0, 0.0, 2.0]), x[:3]),
    "interp at": lambda x: np.interp(x, np.array([-2.0, 0.0, 2.0]), np.array([1.0, 3.0, 2.0])),
    "median": lambda x: np.median(x) * x[:2],
}


@pytest.mark.parametrize("name", CONSERVATIVE)
def test_pattern_lacks_nothing(name: str, rng: np.random.Generator) -> None:
    for x in (X, rng.normal(size=6), rng.normal(size=6)):
        check(CONSERVATIVE[name], x, exact=False, tolerance=1e-9)


@pytest.mark.parametrize("name", ["difference", "outer", "matrix product", "loop", "filling", "masked write", "rolled"])
def test_agrees_with_differences(name: str) -> None:
    f = EXACT[name]
    np.testing.assert_allclose(sparse_jacobian(f)(X).toarray(), differences(f, X), atol=1e-6)


@pytest.mark.parametrize("name", ["elementwise", "broadcast rows", "sum of rows", "matrix product", "gather", "joined"])
def test_single_precision(name: str) -> None:
    f = EXACT[name]

    def single(x: Any) -> Any:
        return f(x).astype(np.float32)

    got = sparse_jacobian(single)(X.astype(np.float32))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got.toarray(), sparse_jacobian(f)(X).toarray(), rtol=1e-4, atol=1e-5)


OPERATIONS = [op for op in OPS if isinstance(op, Structural) and op.differentiable]


@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: op.name)
def test_every_structural_op(op: Structural) -> None:
    for operands, parameters in examples_of(op):
        positions = floating(op, operands)
        if not positions or np.asarray(op.forward(*operands, **parameters)).dtype.kind != "f":
            continue

        def f(*given: Any, operands: Any = operands, positions: Any = positions, parameters: Any = parameters) -> Any:
            whole = list(operands)
            for k, x in zip(positions, given, strict=True):
                whole[k] = x
            return op(*whole, **parameters)

        for chosen in {(k,) for k in range(len(positions))} | {tuple(range(len(positions)))}:
            arguments = [np.asarray(operands[k]) for k in positions]
            if sum(a.size for a in arguments) > 200:
                continue
            every = tuple(range(len(arguments)))
            expected = dense(f, *arguments)
            pattern = jacobian_sparsity(f, every)(*arguments).toarray()
            assert not np.any((expected != 0) & ~pattern)
            if len(chosen) < len(every):  # the other operands are constants
                one = chosen[0]
                start = sum(a.size for a in arguments[:one])
                part = expected[:, start : start + arguments[one].size]
                alone = jacobian_sparsity(f, one)(*arguments).toarray()
                assert not np.any((part != 0) & ~alone)


@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
def test_every_elementwise_op(op: Any) -> None:
    for shapes in ([(4,)] * op.nin, [(2, 3)] * (op.nin - 1) + [(3,)], [()] * op.nin):
        operands = fix(op, draw(op, generator(op), shapes))
        for k in range(op.nin):
            if not op.has_rule(k) or np.asarray(operands[k]).dtype.kind != "f":
                continue

            def f(x: Any, k: int = k, operands: Any = operands) -> Any:
                return op(*operands[:k], x, *operands[k + 1 :])

            size = np.size(operands[k])
            pattern = jacobian_sparsity(f)(operands[k]).toarray()
            expected = np.zeros(pattern.shape, bool)
            count = len(pattern)
            expected[np.arange(count), np.arange(count) % size if count > size else np.arange(count)] = True
            np.testing.assert_array_equal(pattern, expected)
            assert not np.any((dense(f, operands[k]) != 0) & ~pattern)


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


# ---------------------------------------------------------------- colourings
patterns = st.integers(0, 12).flatmap(
    lambda m: st.integers(1, 12).flatmap(
        lambda n: st.lists(st.tuples(st.integers(0, max(m - 1, 0)), st.integers(0, n - 1)), max_size=40).map(
            lambda places: _pattern(m, n, places)
        )
    )
)


def _pattern(m: int, n: int, places: Any) -> Any:
    made = np.zeros((m, n), bool)
    for i, j in places:
        if m:
            made[i, j] = True
    return sp.csr_array(made)


def rebuilt(matrix: Any, made: Any) -> Any:
    """Carry out a plan on a dense matrix."""
    data = np.full(made.pattern.nnz, np.nan)
    for group in made.groups:
        seeds = np.zeros((group.number, len(group.colours)))
        for k, colour in enumerate(group.colours):
            if colour >= 0:
                seeds[colour, k] = 1.0
        results = seeds @ (matrix.T if group.forward else matrix)
        data[group.elements] = results[group.sweeps, group.places]
    return sp.csr_array((data, made.pattern.indices, made.pattern.indptr), shape=matrix.shape).toarray()


@given(patterns)
@settings(deadline=None, max_examples=300)
def test_columns_of_one_colour_meet_in_no_row(pattern: Any) -> None:
    colours = colour_columns(pattern)
    for row in pattern.toarray():
        met = colours[row]
        assert len(set(met.tolist())) == len(met)
        assert np.all(met >= 0)


@given(patterns, st.integers(0, 1000))
@settings(deadline=None, max_examples=300)
def test_a_plan_gives_every_element(pattern: Any, seed: int) -> None:
    matrix = np.where(pattern.toarray(), np.random.default_rng(seed).integers(1, 9, pattern.shape), 0).astype(float)
    made = plan(pattern)
    np.testing.assert_array_equal(rebuilt(matrix, made), matrix)
    assert made.sweeps <= min(np.count_nonzero(matrix.any(axis=0)), np.count_nonzero(matrix.any(axis=1)))


@given(st.integers(1, 14), st.floats(0, 1), st.integers(0, 1000), st.booleans())
@settings(deadline=None, max_examples=400)
def test_star_colouring(n: int, density: float, seed: int, diagonal: bool) -> None:
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.uniform(size=(n, n)) < density, 0 if diagonal else 1)
    full = upper | upper.T
    pattern = sp.csr_array(full)
    colours = colour_symmetric(pattern)
    edges = full & ~np.eye(n, dtype=bool)
    for a, b in zip(*np.nonzero(edges), strict=True):
        assert colours[a] != colours[b]
        for c in np.flatnonzero(edges[b]):  # no path a-b-c-d in two colours
            if c != a and colours[c] == colours[a]:
                for d in np.flatnonzero(edges[c]):
                    assert d == b or colours[d] != colours[b]
    matrix = np.where(full, rng.integers(1, 9, (n, n)), 0).astype(float)
    matrix = matrix + matrix.T
    np.testing.assert_array_equal(rebuilt(matrix, plan_symmetric(pattern)), matrix)


# ---------------------------------------------------------------- unions
@given(st.integers(1, 150), st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=60))
@settings(deadline=None, max_examples=100)
def test_unions_are_spelled_out(inputs: int, pairs: Any) -> None:
    from tape.unions import spell, spell_in_words

    unions = Unions(inputs, 1)
    sets = [set(), *({k} for k in range(inputs))]
    nodes = list(range(inputs + 1))
    for a, b in pairs:
        first, second = a % len(nodes), b % len(nodes)
        nodes.append(unions.of_all([np.array([nodes[first], nodes[second]], np.int32)]))
        sets.append(sets[first] | sets[second])
    got = unions.spelled(np.array(nodes, np.int32))
    for row, expected in enumerate(sets):
        assert set(got.indices[got.indptr[row] : got.indptr[row + 1]].tolist()) == expected
    made = unions.graph.pairs[: unions.graph.used[0]]
    roots = np.array(nodes, np.int32)
    rows, columns = spell_in_words(made, inputs, roots)
    again = sp.coo_array((np.ones(len(rows), bool), (rows, columns)), shape=got.shape).toarray()
    np.testing.assert_array_equal(again, got.toarray())
    starts, _ = spell(made, inputs, roots, 0)
    assert not len(starts) or not any(sets)
