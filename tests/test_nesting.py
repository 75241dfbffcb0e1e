"""Derivatives inside functions that are being differentiated: any mixture of the transforms, to any depth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from nested import (
    SECOND,
    WAYS,
    Function,
    X,
    d_grad,
    d_jvp,
    d_linearize,
    d_vjp,
    exact,
    smooth,
)
from numeric import directional, gradient

from tape import (
    Tensor,
    elementwise_grad,
    grad,
    hessian,
    hessian_diagonal,
    hvp,
    jacobian,
    jacobian_forward,
    jacobian_reverse,
    jvp,
    stop_gradient,
    vhp,
    vjp,
)


# ---------------------------------------------------------------- mixtures
@pytest.mark.parametrize("outer", WAYS)
@pytest.mark.parametrize("inner", WAYS)
def test_every_pair_and_triple_of_first_derivatives(outer: Any, inner: Any) -> None:
    assert outer(inner(smooth))(0.4) == pytest.approx(exact(2), rel=1e-12)
    for outermost in WAYS:
        assert outermost(outer(inner(smooth)))(0.4) == pytest.approx(exact(3), rel=1e-12)


@pytest.mark.parametrize("number", range(len(SECOND)))
@pytest.mark.parametrize("way", WAYS)
def test_second_derivatives_inside_and_outside_of_first_ones(way: Any, number: int) -> None:
    second = SECOND[number]
    assert second(smooth)(0.4) == pytest.approx(exact(2), rel=1e-12)
    assert second(way(smooth))(0.4) == pytest.approx(exact(3), rel=1e-12)
    assert way(second(smooth))(0.4) == pytest.approx(exact(3), rel=1e-12)
    for other in SECOND:
        assert other(second(smooth))(0.4) == pytest.approx(exact(4), rel=1e-11)


def test_deep_mixtures() -> None:
    for ways in ([d_grad] * 6, [d_jvp] * 6, [d_grad, d_jvp] * 3, [d_jvp, d_grad] * 3, [d_vjp, d_linearize, d_jvp] * 2):
        f = smooth
        for order, way in enumerate(ways):
            f = way(f)
            assert f(0.4) == pytest.approx(exact(order + 1), rel=1e-10)


def test_arrays_to_third_order() -> None:
    """The derivatives of a product of all elements, in every mixture."""

    def f(x: Any) -> Any:
        return np.prod(x) * np.sum(x)

    expected = jacobian(jacobian(grad(f)))(X)
    for first in (grad, jacobian_forward, jacobian_reverse):
        for second in (jacobian, jacobian_forward, jacobian_reverse):
            for third in (jacobian_forward, jacobian_reverse):
                np.testing.assert_allclose(third(second(first(f)))(X), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(jacobian(hessian(f))(X), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(hessian(lambda x: np.sum(grad(f)(x) * X))(X).shape, (3, 3))
    for i in range(3):
        step = directional(hessian(f), [X], 0, np.eye(3)[i])
        np.testing.assert_allclose(expected[:, :, i], step, rtol=1e-8, atol=1e-8)
    v = np.array([1.0, -1.0, 2.0])
    np.testing.assert_allclose(jacobian(lambda x: hvp(f, x, v))(X), expected @ v, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(jacobian(lambda x: vhp(f, x, v))(X), expected @ v, rtol=1e-12, atol=1e-13)
    diagonal = np.einsum("iij->ij", expected)
    np.testing.assert_allclose(jacobian(hessian_diagonal(f))(X), diagonal, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("way", WAYS)
def test_derivatives_of_a_power_at_zero_are_exact(way: Any) -> None:
    for power in (lambda x: x**4, lambda x: x * x * x * x, lambda x: np.power(x, 4.0), lambda x: np.square(x) ** 2):
        f, found = power, []
        for _ in range(5):
            f = way(f)
            found.append(f(0.0))
        assert found == [0, 0, 0, 24, 0]
    f = lambda x: np.sum(x**4)
    for expected in (0, 0, 0, 24, 0):
        f = elementwise_grad(f)
        np.testing.assert_array_equal(f(np.zeros(2)), [expected] * 2)


@pytest.mark.parametrize("way", WAYS)
def test_integer_powers(way: Any) -> None:
    for n in range(-3, 6):
        f: Function = lambda x, n=n: x**n
        factor = 1.0
        for order in range(1, 5):
            factor *= n - order + 1
            f = way(f)
            for x in (-2.0, 1.5) if n < 0 or order > n else (-2.0, 0.0, 1.5):
                assert f(x) == pytest.approx(factor * x ** (n - order) if factor else 0.0, rel=1e-13)


# ---------------------------------------------------------------- perturbation confusion
@pytest.mark.parametrize("outer", WAYS)
@pytest.mark.parametrize("inner", WAYS)
def test_an_inner_derivative_that_closes_over_an_outer_variable(outer: Any, inner: Any) -> None:
    assert outer(lambda x: x * inner(lambda y: x + y)(1.0))(1.0) == 1.0
    assert outer(lambda x: x * inner(lambda y: x * y)(2.0))(3.0) == 6.0
    assert outer(lambda x: inner(lambda y: x * x * y * y)(x))(2.0) == 3 * 2 * 4.0
    # The variable of the inner one is the outer one's itself: one of them is a copy.
    assert outer(lambda x: inner(lambda y: x * y)(x))(5.0) == 1.0
    assert outer(lambda x: inner(lambda x: x * x * x)(x))(2.0) == 12.0
    assert outer(lambda x: inner(lambda y: outer(lambda z: x * y * z * z)(y))(x))(2.0) == pytest.approx(8 * 2.0)
    # What the outer one must not see of the inner one, and the other way round.
    assert outer(lambda x: inner(lambda y: stop_gradient(x) * y)(1.0) + x)(3.0) == 1.0
    assert outer(lambda x: inner(lambda y: x * stop_gradient(y) + y)(2.0) * x)(3.0) == 1.0


def test_three_levels_that_close_over_each_other() -> None:
    for a in WAYS:
        for b in WAYS[:4]:
            for c in WAYS[:4]:
                # d/dx [x * d/dy (y * d/dz (x * y * z**2))], at z = y, y = x
                f = lambda x: x * b(lambda y, x=x: y * c(lambda z: x * y * z * z)(y))(x)  # noqa: B023
                # inner: 2 x y**2; times y: 2 x y**3; by y: 6 x y**2; times x at y = x: 6 x**4
                assert a(f)(1.5) == pytest.approx(24 * 1.5**3, rel=1e-13)


def test_tangents_and_cotangents_that_depend_on_the_outer_variable() -> None:
    assert grad(lambda x: jvp(lambda y: y**3, (2.0,), (x,))[1])(7.0) == 12.0
    assert grad(lambda x: jvp(lambda y: y**3, (x,), (x,))[1])(2.0) == 3 * 3 * 4.0
    assert grad(lambda x: vjp(lambda y: y**3, 2.0)[1](x)[0])(7.0) == 12.0
    assert grad(lambda x: vjp(lambda y: y**3, x)[1](x)[0])(2.0) == 36.0
    assert jvp(lambda x: jvp(lambda y: y**3, (2.0,), (x,))[1], (7.0,), (1.0,))[1] == 12.0
    assert jvp(lambda x: vjp(lambda y: y**3, 2.0)[1](x)[0], (7.0,), (1.0,))[1] == 12.0
    got = grad(lambda v: np.sum(hvp(lambda x: np.sum(x**3), X, v) * np.arange(3.0)))(np.ones(3))
    np.testing.assert_allclose(got, 6 * X * np.arange(3.0), rtol=1e-14)
    got = grad(lambda v: np.sum(vhp(lambda x: np.sum(x**3), X, v) * np.arange(3.0)))(np.ones(3))
    np.testing.assert_allclose(got, 6 * X * np.arange(3.0), rtol=1e-14)


# ---------------------------------------------------------------- control flow
def test_derivatives_inside_loops_and_branches() -> None:
    def newton(a: Any) -> Any:
        """Find the square root of a by steps that take the derivative each time."""
        x = 1.0 + 0.0 * a
        while abs(x * x - a) > 1e-13:
            f = lambda t: t * t - a
            x = x - f(x) / grad(f)(x)
        return x

    assert newton(2.0) == pytest.approx(math.sqrt(2.0))
    for way in WAYS:
        assert way(newton)(2.0) == pytest.approx(0.5 / math.sqrt(2.0), rel=1e-6)

    def branching(x: Any) -> Any:
        slope = grad(lambda y: y**3 if y > 0 else -y)(x)
        return slope * x if slope > 1 else slope + x

    for x, expected in ((2.0, 3 * 3 * 4.0), (0.1, 6 * 0.1 + 1), (-3.0, 1.0)):
        for way in WAYS:
            assert way(branching)(x) == pytest.approx(expected)

    def recursion(x: Any, depth: int) -> Any:
        return np.sin(x) if depth == 0 else grad(lambda y: recursion(y, depth - 1))(x)

    for depth in range(6):
        assert recursion(0.3, depth) == pytest.approx(math.sin(0.3 + depth * math.pi / 2))


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_meta_learning_of_a_quadratic(steps: int) -> None:
    """The loss after some gradient steps, by learning rate and initial weights, against the closed form."""
    curvature, rate, start = np.array([0.5, 1.0, 3.0]), 0.1, X

    def loss(w: Any) -> Any:
        return 0.5 * np.sum(curvature * w * w)

    def trained(rate: Any, w: Any) -> Any:
        for _ in range(steps):
            w = w - rate * grad(loss)(w)
        return loss(w)

    shrink = 1 - rate * curvature
    by_rate = np.sum(curvature * start**2 * steps * shrink ** max(0, 2 * steps - 1) * -curvature)
    by_start = curvature * shrink ** (2 * steps) * start
    for transform in (lambda f: grad(f, (0, 1)), lambda f: jacobian_forward(f, (0, 1))):
        found = transform(trained)(rate, start)
        assert found[0] == pytest.approx(by_rate, rel=1e-12, abs=1e-15)
        np.testing.assert_allclose(found[1], by_start, rtol=1e-12)
    second = hessian(trained, (0, 1))(rate, start)
    np.testing.assert_allclose(second[1][1], np.diag(curvature * shrink ** (2 * steps)), rtol=1e-12, atol=1e-15)
    mixed = -2 * steps * curvature**2 * shrink ** max(0, 2 * steps - 1) * start
    np.testing.assert_allclose(second[0][1], mixed, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(second[1][0], mixed, rtol=1e-12, atol=1e-15)


def test_meta_learning_of_a_network() -> None:
    """Gradient descent with momentum on a dict of weights, against finite differences."""
    rng = np.random.default_rng(1)
    inputs, targets = rng.normal(size=(8, 2)), rng.normal(size=8)

    def loss(p: Any) -> Any:
        return np.mean((np.tanh(inputs @ p["w"] + p["b"]) @ p["v"] - targets) ** 2)

    def trained(hyper: Any, w: Any) -> Any:
        p = {"w": w, "b": np.zeros(3), "v": np.ones(3)}
        speed = dict.fromkeys(p, 0.0)
        for _ in range(3):
            g = grad(loss)(p)
            speed = {name: hyper["momentum"] * speed[name] + g[name] for name in p}
            p = {name: p[name] - hyper["rate"] * speed[name] for name in p}
        return loss(p)

    hyper, w = {"momentum": 0.5, "rate": 0.2}, rng.normal(size=(2, 3))
    found, by_start = grad(trained, (0, 1))(hyper, w)
    for name in hyper:
        numeric = directional(lambda t, name=name: trained(hyper | {name: t}, w), [hyper[name]], 0, 1.0)
        assert found[name] == pytest.approx(float(numeric), rel=1e-7)
    np.testing.assert_allclose(by_start, gradient(lambda w: trained(hyper, w), w), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(jvp(trained, (hyper, w), (None, w))[1], np.sum(by_start * w), rtol=1e-11)


# ---------------------------------------------------------------- nothing to differentiate
def test_functions_that_ignore_an_argument() -> None:
    x, y = X.astype(np.float32), np.ones((2, 2))

    def f(x: Any, y: Any) -> Any:
        return np.sum(y**2)

    g = grad(f, (0, 1))(x, y)
    assert g[0].dtype == np.float32
    np.testing.assert_array_equal(g[0], np.zeros(3))
    blocks = hessian(f, (0, 1))(x, y)
    for row, first in zip(blocks, (x, y), strict=True):
        for block, second in zip(row, (x, y), strict=True):
            assert block.shape == (*first.shape, *second.shape)
    np.testing.assert_array_equal(blocks[0][0], np.zeros((3, 3)))
    np.testing.assert_array_equal(blocks[0][1], np.zeros((3, 2, 2)))
    np.testing.assert_array_equal(blocks[1][0], np.zeros((2, 2, 3)))
    np.testing.assert_array_equal(blocks[1][1], 2 * np.eye(4).reshape(2, 2, 2, 2))
    products = hvp(f, x, (x, y), y, argnums=(0, 1)), vhp(f, x, (x, y), y, argnums=(0, 1))
    for product in products:
        np.testing.assert_array_equal(product[0], np.zeros(3))
        assert product[0].dtype == np.float32
        np.testing.assert_array_equal(product[1], 2 * y)
    value, tangent = jvp(lambda x: y, (x,), (x,))
    np.testing.assert_array_equal(value, y)
    np.testing.assert_array_equal(tangent, np.zeros((2, 2)))
    for kind in (jacobian, jacobian_forward, jacobian_reverse):
        np.testing.assert_array_equal(kind(lambda x: np.ones(2))(x), np.zeros((2, 3)))
        assert kind(lambda x: 1.0)(2.0) == 0.0
    _, pullback = vjp(lambda x: np.ones(2), x)
    assert pullback(np.ones(2))[0].dtype == np.float32
    np.testing.assert_array_equal(hessian_diagonal(f)(x, y), np.zeros(3))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_linear_functions_have_second_derivatives_of_zero(dtype: Any) -> None:
    x = X.astype(dtype)
    for f in (np.sum, lambda x: x[1], lambda x: x @ np.arange(3).astype(dtype), lambda x: np.sum(x[::-1] * 2)):
        for found in (
            hessian(f)(x),
            jacobian(grad(f))(x),
            jacobian_forward(grad(f))(x),
            jacobian_reverse(grad(f))(x),
        ):
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, np.zeros((3, 3)))
        for found in (
            hvp(f, x, x),
            vhp(f, x, x),
            hessian_diagonal(f)(x),
            jvp(grad(f), (x,), (x,))[1],
            grad(lambda x, f=f: np.sum(grad(f)(x)))(x),
            grad(lambda x, f=f: jvp(f, (x,), (np.ones(3, dtype),))[1])(x),
        ):
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, np.zeros(3))
    for way in WAYS:
        assert way(way(lambda x: 3 * x + 1))(2.0) == 0.0
        assert isinstance(way(way(lambda x: 3 * x + 1))(2.0), float)


def test_an_inner_derivative_of_constants_is_plain() -> None:
    """What does not depend on the outer variable is swept natively and gives arrays."""
    seen: list[Any] = []

    def f(x: Any) -> Any:
        a = grad(lambda y: np.sum(y**2))(X)
        b = hessian(lambda y: np.sum(y**3))(X)
        c = jacobian(np.sin)(X)
        d = jvp(np.sin, (X,), (X,))[1]
        e = vjp(np.sin, X)[1](X)[0]
        h = hvp(lambda y: np.sum(y**3), X, X)
        seen.extend([a, b, c, d, e, h, grad(lambda y: y * y)(2.0)])
        return np.sum(a * x)

    for run in (grad(f), lambda x: jvp(f, (x,), (x,))[1]):
        run(X)
        assert not any(isinstance(s, Tensor) for s in seen)
        np.testing.assert_array_equal(seen[0], 2 * X)
        np.testing.assert_allclose(seen[1], np.diag(6 * X), rtol=1e-14)
        np.testing.assert_array_equal(seen[2], np.diag(np.cos(X)))
        np.testing.assert_allclose(seen[5], 6 * X * X, rtol=1e-14)
        assert seen.pop() == 4.0
        seen.clear()
    np.testing.assert_array_equal(grad(f)(X), 2 * X)
