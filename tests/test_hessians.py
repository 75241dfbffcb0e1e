"""Hessians and products with them: closed forms, containers, and every kind of entry by every way."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from bounded import CASES

from tape import (
    ScalarOutputError,
    TangentError,
    batch,
    gauss_newton_product,
    grad,
    hessian,
    hessian_diagonal,
    hvp,
    jacobian,
    jvp,
    vhp,
)

RNG = np.random.default_rng(5)
X = RNG.normal(size=12)
V = RNG.normal(size=12)


def rosenbrock(x: Any) -> Any:
    """Give the Rosenbrock function, as SciPy has it."""
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def looped(x: Any) -> Any:
    """Give the same by single elements."""
    total = 0.0
    for i in range(len(x) - 1):
        total = total + 100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2
    return total


@pytest.mark.parametrize("f", [rosenbrock, looped])
def test_rosenbrock(f: Any) -> None:
    expected = scipy.optimize.rosen_hess(X)
    product = scipy.optimize.rosen_hess_prod(X, V)
    np.testing.assert_allclose(hessian(f)(X), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(jacobian(grad(f))(X), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(hvp(f, X, V), product, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(vhp(f, X, V), product, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(hessian_diagonal(f)(X), np.diag(expected), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(jvp(grad(f), (X,), (V,))[1], product, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(grad(lambda x: jvp(f, (x,), (V,))[1])(X), product, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_entry_by_every_way(name: str) -> None:
    """Second-order sweeps, reverse over reverse, and reverse over forward agree; so do rows and products."""
    rng = np.random.default_rng(3)
    for f, shape in CASES[name]():
        x, v = rng.uniform(0.2, 1.2, size=shape), rng.uniform(-1, 1, size=shape)
        for g in (f, lambda x, f=f: f(x) * np.sum(np.exp(x))):
            for dtype, tolerance in ((np.float64, 1e-10), (np.float32, 2e-3)):
                at, along = x.astype(dtype), v.astype(dtype)
                product = vhp(g, at, along)
                close = {"rtol": tolerance, "atol": tolerance * max(1.0, np.max(np.abs(product), initial=0.0))}
                assert product.dtype == dtype
                np.testing.assert_allclose(hvp(g, at, along), product, **close)
                np.testing.assert_allclose(grad(lambda x, g=g, v=along: jvp(g, (x,), (v,))[1])(at), product, **close)
                if 0 < x.size < 30:
                    rows = hessian(g)(at).reshape(x.size, x.size)
                    np.testing.assert_allclose(rows @ along.ravel(), product.ravel(), **close)
                    np.testing.assert_allclose(hessian_diagonal(g)(at).ravel(), np.diag(rows), **close)


def test_closed_forms() -> None:
    # log-sum-exp: diag(p) - p p^T
    p = np.exp(X) / np.sum(np.exp(X))
    np.testing.assert_allclose(hessian(lambda x: np.log(np.sum(np.exp(x))))(X), np.diag(p) - np.outer(p, p), atol=1e-15)
    # logistic regression: A^T diag(s (1 - s)) A
    a = RNG.normal(size=(30, 12))
    s = 1 / (1 + np.exp(-a @ X))
    np.testing.assert_allclose(
        hessian(lambda w: np.sum(np.logaddexp(0, a @ w)))(X), a.T @ ((s * (1 - s))[:, None] * a), rtol=1e-11
    )
    # log det: d2 = -tr(M^-1 D M^-1 E)
    m = np.eye(3) * 3 + 0.3 * np.ones((3, 3))
    inverse = np.linalg.inv(m)
    found = hessian(lambda m: np.linalg.slogdet(m)[1])(m)
    np.testing.assert_allclose(found, -np.einsum("li,jk->ijkl", inverse, inverse), rtol=1e-12)


def test_containers_and_arguments() -> None:
    at = {"a": np.array([1.0, 2.0]), "b": 3.0}
    found = hessian(lambda p: np.sum(p["a"] ** 2) * p["b"] ** 2)(at)
    np.testing.assert_array_equal(found["a"]["a"], 18 * np.eye(2))
    np.testing.assert_array_equal(found["a"]["b"], [12.0, 24.0])
    np.testing.assert_array_equal(found["b"]["a"], [12.0, 24.0])
    assert found["b"]["b"] == 10.0
    product = hvp(lambda p: np.sum(p["a"] ** 2) * p["b"] ** 2, at, {"a": np.array([1.0, 0.0]), "b": 1.0})
    np.testing.assert_array_equal(product["a"], [30.0, 24.0])
    assert product["b"] == 22.0

    def f(x: Any, k: float, shift: float = 0.0) -> Any:
        return np.sum(x**3) * k + shift, "extra"

    block, extra = hessian(f, argnums=(0, 1), has_aux=True)(X[:2], 2.0, shift=1.0)
    assert extra == "extra"
    np.testing.assert_allclose(block[0][0], np.diag(12 * X[:2]))
    np.testing.assert_allclose(block[0][1], 3 * X[:2] ** 2)
    assert block[1][1] == 0.0
    product, extra = hvp(f, X[:2], (np.ones(2), 1.0), 2.0, argnums=(0, 1), has_aux=True)
    np.testing.assert_allclose(product[0], 12 * X[:2] + 3 * X[:2] ** 2)
    np.testing.assert_allclose(product[1], np.sum(3 * X[:2] ** 2))
    assert hessian(lambda x: x**3)(2.0) == 12.0
    np.testing.assert_array_equal(hessian(lambda x: np.sum(x))(X), np.zeros((12, 12)))
    np.testing.assert_array_equal(hessian(lambda _: 3.0)(X), np.zeros((12, 12)))
    np.testing.assert_array_equal(hvp(lambda _: 3.0, X, V), np.zeros(12))


def test_threads_and_progress(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")

    def f(x: Any) -> Any:
        return np.sum(np.tanh(np.outer(x, x) @ x)) * np.max(x)

    alone = hessian(f)(X)
    monkeypatch.setattr(batch, "SERIAL", 0.0)
    np.testing.assert_array_equal(hessian(f, progress=True)(X), alone)
    assert "12/12" in capsys.readouterr().err


def test_inside_an_outer_derivative() -> None:
    def f(x: Any) -> Any:
        return np.sum(np.sin(x) * x**2)

    third = -np.cos(X) * X**2 - 6 * X * np.sin(X) + 6 * np.cos(X)
    for total in (
        lambda x: np.sum(hessian(f)(x)),
        lambda x: np.sum(hessian_diagonal(f)(x)),
        lambda x: np.sum(hvp(f, x, np.ones(12))),
        lambda x: np.sum(vhp(f, x, np.ones(12))),
    ):
        np.testing.assert_allclose(grad(total)(X), third, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(grad(lambda v: np.sum(hvp(f, X, v)))(V), grad(lambda v: np.sum(vhp(f, X, v)))(V))


def test_gauss_newton() -> None:
    a = RNG.normal(size=(20, 12))

    def model(x: Any) -> Any:
        return np.tanh(a @ x)

    j = jacobian(model)(X)
    np.testing.assert_allclose(gauss_newton_product(model, X, V), j.T @ j @ V, rtol=1e-11)
    weight = np.cosh(model(X))
    found = gauss_newton_product(model, X, V, loss=lambda r: np.sum(np.cosh(r)))
    np.testing.assert_allclose(found, j.T @ (weight * (j @ V)), rtol=1e-11)
    by_shift = gauss_newton_product(lambda x, shift: model(x) + shift, X, 2.0, 0.5, argnums="shift")
    assert by_shift == pytest.approx(40.0)
    both = gauss_newton_product(lambda x, shift: model(x) + shift, X, (V, 2.0), 0.5, argnums=(0, 1))
    np.testing.assert_allclose(both[0], j.T @ (j @ V + 2.0), rtol=1e-11)
    assert both[1] == pytest.approx(np.sum(j @ V) + 40.0)


def test_corners() -> None:
    """A branch that was not taken, or a slope of 0, spoils nothing."""
    x = np.array([0.0, -1.0, 2.0])
    f = partial(np.where, x > 0)
    found = hessian(lambda x: np.sum(f(np.sqrt(np.abs(x)), x**2)))(x)
    np.testing.assert_allclose(np.diag(found), [2.0, 2.0, -0.25 * 2.0**-1.5])
    with np.errstate(divide="ignore"):
        assert hessian(lambda x: np.where(x > 0, np.log(x), 0.0))(0.0) == 0.0
    np.testing.assert_array_equal(
        hessian(lambda x: np.sum(np.maximum(x, 0) ** 2))(x), np.diag([0.5, 0.0, 2.0])
    )  # a tie is shared, twice


def test_errors() -> None:
    with pytest.raises(ScalarOutputError, match="hessian needs a function whose result is one number"):
        hessian(lambda x: x)(X)
    with pytest.raises(ScalarOutputError, match="hvp"):
        hvp(lambda x: x, X, V)
    with pytest.raises(TangentError, match=r"vector.*shape of argument 0, \(12,\)"):
        hvp(rosenbrock, X, V[:3])
    with pytest.raises(TangentError, match="structure"):
        hvp(lambda p: np.sum(p["a"]), {"a": X}, [X])
