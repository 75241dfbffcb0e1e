"""Solvers, determinants and factorisations: closed forms, exact corners, derivatives of derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numeric import gradient
from recorded import check, values

from ops.catalog import OPS, Structural
from tape import grad


# ---------------------------------------------------------------- closed forms
def test_closed_forms(rng: np.random.Generator) -> None:
    """Gradients that are known."""
    a = rng.normal(size=(4, 4)) + 4 * np.eye(4)
    np.testing.assert_allclose(grad(lambda a: np.log(np.linalg.det(a)))(a), np.linalg.inv(a).T, rtol=1e-11)
    np.testing.assert_allclose(grad(lambda a: np.linalg.slogdet(a)[1])(a), np.linalg.inv(a).T, rtol=1e-11)
    s, r = np.array([[2.0, 0.3], [0.3, 1.0]]), np.array([1.0, -2.0])
    got = grad(lambda s: -0.5 * np.linalg.slogdet(s)[1] - 0.5 * r @ np.linalg.solve(s, r))(s)
    p = np.linalg.inv(s)
    np.testing.assert_allclose(got, 0.5 * (np.outer(p @ r, p @ r) - p), rtol=1e-12)

    def density(s: Any) -> Any:
        factor = np.linalg.cholesky(s)
        return -np.sum(np.log(np.diag(factor))) - 0.5 * np.sum(np.linalg.solve(factor, r) ** 2)

    np.testing.assert_allclose(grad(density)(s), 0.5 * (np.outer(p @ r, p @ r) - p), rtol=1e-12)
    np.testing.assert_allclose(grad(lambda a: np.sum(np.linalg.svdvals(a) ** 2))(a), 2 * a, rtol=1e-12, atol=1e-12)
    u, _, vh = np.linalg.svd(a)
    np.testing.assert_allclose(grad(lambda a: np.linalg.norm(a, "nuc"))(a), u @ vh, rtol=1e-11, atol=1e-12)
    assert grad(lambda x: np.linalg.matrix_rank(x) * 1.0)(a).any() == 0
    assert grad(lambda x: np.linalg.slogdet(x)[0])(a).any() == 0


def test_determinants_of_singular_matrices(rng: np.random.Generator) -> None:
    """The gradient is the matrix of cofactors whatever the rank, in stacks too."""
    singular = np.array([[1.0, 2.0], [2.0, 4.0]])
    np.testing.assert_allclose(grad(np.linalg.det)(singular), [[4, -2], [-2, 1]], rtol=1e-13)
    np.testing.assert_array_equal(grad(np.linalg.det)(np.zeros((1, 1))), [[1.0]])
    for n in (2, 3, 5):
        for rank in range(n):
            a = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, n))
            cofactors = [
                [(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for j in range(n)]
                for i in range(n)
            ]
            np.testing.assert_allclose(grad(np.linalg.det)(a), cofactors, rtol=1e-9, atol=1e-12)
    stack = np.array([singular, np.eye(2), np.zeros((2, 2))])
    expected = [[[4, -2], [-2, 1]], np.eye(2), np.zeros((2, 2))]
    np.testing.assert_allclose(grad(lambda a: np.sum(np.linalg.det(a)))(stack), expected, atol=1e-14)


def test_repeated_eigenvalues_and_singular_values() -> None:
    """Where values coincide gradients are finite, and exact for functions of the values and of U V^T."""
    a = 2 * np.eye(3)
    np.testing.assert_allclose(grad(lambda a: np.sum(np.linalg.eigh(a)[0] ** 2))(a), 4 * np.eye(3), atol=1e-14)
    np.testing.assert_allclose(grad(lambda a: np.sum(np.linalg.eigvalsh(a) ** 2))(a), 4 * np.eye(3), atol=1e-14)
    np.testing.assert_allclose(grad(lambda a: np.sum(np.linalg.svd(a)[1] ** 2))(a), 4 * np.eye(3), atol=1e-14)
    for f in (np.linalg.eigh, np.linalg.svd):
        for x in (a, np.zeros((3, 3)), np.ones((3, 3))):
            assert np.isfinite(grad(lambda x, f=f: sum(np.sum(part * 1.5) for part in f(x)))(x)).all()
    turn, _ = np.linalg.qr(np.arange(9.0).reshape(3, 3) + np.eye(3))
    near = turn @ np.diag([2.0, 2.0, 5.0]) @ turn.T
    weight = np.array([[1.0, 2.0, -1.0], [2.0, 0.5, 3.0], [-1.0, 3.0, 2.0]])

    def projector(a: Any) -> Any:
        vectors = np.linalg.eigh(a)[1][:, :2]
        return np.sum(weight * (vectors @ vectors.T))

    got = grad(projector)(near)
    p = turn[:, :2] @ turn[:, :2].T
    q = np.eye(3) - p
    np.testing.assert_allclose(got, (p @ weight @ q + q @ weight @ p) / -3, atol=1e-12)

    def polar(a: Any) -> Any:
        u, _, vh = np.linalg.svd(a)
        return np.sum(weight[:, ::-1] * (u @ vh))

    direction = np.array([[0.3, -1.0, 0.2], [0.7, 0.1, 0.4], [-0.6, 0.9, 0.5]])
    step = 1e-5 * direction
    np.testing.assert_allclose(
        np.sum(grad(polar)(near) * direction), (polar(near + step) - polar(near - step)) / 2e-5, rtol=1e-6
    )


def test_condition_numbers_of_singular_matrices() -> None:
    """They are infinite, as NumPy's."""
    for order in (None, 2, -2, 1, "fro", np.inf):
        for x in (np.zeros((2, 2)), np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([np.eye(2), np.zeros((2, 2))])):
            np.testing.assert_array_equal(
                values(lambda x, order=order: np.linalg.cond(x, order), [x]), np.linalg.cond(x, order)
            )


def test_results_are_numpys_named_tuples(rng: np.random.Generator) -> None:
    """Fields can be named; NumPy's types."""
    a = rng.normal(size=(3, 3))
    seen: list[Any] = []

    def record(a: Any) -> float:
        seen.extend([np.linalg.slogdet(a), np.linalg.eigh(a @ a.T), np.linalg.svd(a), np.linalg.qr(a)])
        return 0.0

    grad(record)(a)
    plain = [np.linalg.slogdet(a), np.linalg.eigh(a @ a.T), np.linalg.svd(a), np.linalg.qr(a)]
    assert [type(x) for x in seen] == [type(x) for x in plain]


def test_rank_and_cutoffs(rng: np.random.Generator) -> None:
    """The rank counts as fixed; small singular values are left out as NumPy leaves them out."""
    a = rng.normal(size=(4, 2)) @ rng.normal(size=(2, 3))
    b = rng.normal(size=4)
    assert values(np.linalg.matrix_rank, [a]) == 2
    assert values(lambda a: np.linalg.matrix_rank(a, tol=100.0), [a]) == 0
    for keywords in ({}, {"rcond": 1e-5}, {"rtol": 1e-5}, {"rtol": None}):
        np.testing.assert_array_equal(
            values(lambda a, k=keywords: np.linalg.pinv(a, **k), [a]), np.linalg.pinv(a, **keywords)
        )
    x, _, rank, s = np.linalg.lstsq(a, b)
    seen: list[Any] = []
    grad(lambda a: seen.extend(getattr(r, "numpy", lambda r=r: r)() for r in np.linalg.lstsq(a, b)) or 0.0)(a)
    np.testing.assert_allclose(seen[0], x)
    assert seen[1].shape == (0,)
    assert seen[2] == rank
    np.testing.assert_allclose(seen[3], s, atol=1e-14)
    left, right = rng.normal(size=(4, 2)), rng.normal(size=(2, 3))
    check(lambda u, v: np.linalg.pinv(u @ v, rcond=1e-8), [left, right], rng, 1e-5)
    check(lambda u, v: np.linalg.lstsq(u @ v, b, rcond=1e-8)[0], [left, right], rng, 1e-5)


# ---------------------------------------------------------------- derivatives of derivatives
NAMES = {
    "matmul", "dot", "vecdot", "matvec", "vecmat", "einsum", "solve", "inv", "det", "slogdet", "cofactors", "svd",
    "svdvals", "pinv",
    "lstsq", "qr",
}  # fmt: skip


@pytest.mark.parametrize("op", [op for op in OPS if op.name in NAMES], ids=lambda op: op.name)
def test_rules_can_be_differentiated(op: Structural, rng: np.random.Generator) -> None:
    """A pullback runs on recorded values, and its own gradient agrees with finite differences."""
    assert op.examples is not None
    for operands, parameters in op.examples(rng):
        if op.name == "pinv" and operands[0].shape == (0, 2):
            continue
        for position in range(len(operands)):
            g = rng.normal(size=np.shape(op.forward(*operands, **parameters)))
            rule = op.pullback(position)
            assert rule is not None

            def f(g: Any, *xs: Any, rule: Any = rule, op: Any = op, parameters: Any = parameters) -> Any:
                return rule(g, op(*xs, **parameters), *xs, **parameters)

            check(f, [g, *operands], rng, 1e-4)


def test_second_derivatives_of_determinants() -> None:
    """They are exact for singular matrices: the determinant is a polynomial."""
    rule = next(op for op in OPS if op.name == "det").pullback(0)  # type: ignore[attr-defined]
    for a in (np.zeros((3, 3)), np.ones((3, 3)), np.diag([1.0, 0.0, 0.0]), np.diag([1.0, 1.0, 0.0]), np.eye(3)):
        weight = np.arange(9.0).reshape(3, 3)
        f = lambda a, w=weight: np.sum(w * rule(np.ones(()), None, a))
        exact = lambda a, w=weight: sum(
            w[i, j] * (-1) ** (i + j) * np.linalg.det(np.delete(np.delete(a, i, 0), j, 1))
            for i in range(3)
            for j in range(3)
        )
        np.testing.assert_allclose(grad(f)(a), gradient(exact, a, 1e-2), atol=1e-9)
