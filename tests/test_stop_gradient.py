"""stop_gradient makes a constant of a value, in every mode and at every order."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape import grad, hessian, hvp, jacobian, jacobian_forward, jvp, linearize, stop_gradient, vjp

X = np.linspace(-1.0, 2.0, 5)
V = np.array([0.3, -1.0, 0.5, 2.0, 0.1])


def stopped(x: Any) -> Any:
    return np.sum(stop_gradient(np.sin(x)) * x**2)


def test_stop_gradient_in_every_mode() -> None:
    """The stopped factor is a constant: sum(c x**2) with c = sin(x)."""
    c = np.sin(X)
    np.testing.assert_allclose(grad(stopped)(X), 2 * c * X)
    np.testing.assert_allclose(jvp(stopped, (X,), (V,))[1], 2 * c * X @ V)
    np.testing.assert_allclose(vjp(stopped, X)[1](1.0)[0], 2 * c * X)
    np.testing.assert_allclose(linearize(stopped, X)[1](V), 2 * c * X @ V)
    np.testing.assert_allclose(jacobian(lambda x: stop_gradient(x) * x)(X), np.diag(X))
    np.testing.assert_allclose(jacobian_forward(lambda x: stop_gradient(x) * x)(X), np.diag(X))
    np.testing.assert_array_equal(grad(lambda x: np.sum(stop_gradient(x)))(X), np.zeros(5))
    assert jvp(lambda x: np.sum(stop_gradient(x)), (X,), (V,))[1] == 0.0


def test_stop_gradient_in_nested_derivatives() -> None:
    """At every order the stopped value is a constant of the derivative."""
    c = np.sin(X)
    expected = 2 * c * V
    np.testing.assert_allclose(hvp(stopped, X, V), expected)
    np.testing.assert_allclose(np.diag(hessian(stopped)(X)), 2 * c)
    np.testing.assert_allclose(grad(lambda x: grad(stopped)(x) @ V)(X), expected)
    np.testing.assert_allclose(jvp(grad(stopped), (X,), (V,))[1], expected)
    np.testing.assert_allclose(grad(lambda x: jvp(stopped, (x,), (V,))[1])(X), expected)
    np.testing.assert_allclose(jvp(lambda x: jvp(stopped, (x,), (V,))[1], (X,), (V,))[1], expected @ V)
    # Of a derivative: the stopped gradient is a constant of the outer one only.
    np.testing.assert_allclose(grad(lambda x: stop_gradient(grad(lambda z: z**3)(x)) * x)(2.0), 12.0)
    np.testing.assert_allclose(grad(lambda x: grad(lambda z: stop_gradient(x) * x * z)(1.0))(2.0), 2.0)


def test_stop_gradient_of_containers_and_plain_values() -> None:
    tree = {"a": X, "b": [2.0, None, "text"]}
    got = stop_gradient(tree)
    assert got["b"] == [2.0, None, "text"]
    assert got["a"] is X

    def f(p: Any) -> Any:
        q = stop_gradient(p)
        return np.sum(q["a"] * p["a"]) * q["b"] + p["b"]

    g = grad(f)({"a": X, "b": 3.0})
    np.testing.assert_allclose(g["a"], 3.0 * X)
    assert g["b"] == 1.0
