"""Derivatives inside functions that are being differentiated: any mixture of the transforms, to any depth."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numeric import directional, gradient
from test_memory import growth

import ops
from tape import (
    InputError,
    StaleTensorError,
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
    linearize,
    stop_gradient,
    value_and_grad,
    value_and_jacobian,
    vhp,
    vjp,
)

Function = Callable[..., Any]
X = np.array([0.3, -1.2, 0.8])


def d_grad(f: Function) -> Function:
    return grad(f)


def d_jvp(f: Function) -> Function:
    return lambda x: jvp(f, (x,), (1.0,))[1]


def d_vjp(f: Function) -> Function:
    def derivative(x: Any) -> Any:
        _, pullback = vjp(f, x)
        return pullback(1.0)[0]

    return derivative


def d_linearize(f: Function) -> Function:
    return lambda x: linearize(f, x)[1](1.0)


def d_value(f: Function) -> Function:
    return lambda x: value_and_grad(f)(x)[1]


def d_elementwise(f: Function) -> Function:
    return elementwise_grad(f)


def d_forward(f: Function) -> Function:
    return jacobian_forward(f)


def d_reverse(f: Function) -> Function:
    return jacobian_reverse(f)


def d_both(f: Function) -> Function:
    return lambda x: value_and_jacobian(f)(x)[1]


WAYS = [d_grad, d_jvp, d_vjp, d_linearize, d_value, d_elementwise, d_forward, d_reverse, d_both]
SECOND = [hessian, hessian_diagonal, lambda f: lambda x: hvp(f, x, 1.0), lambda f: lambda x: vhp(f, x, 1.0)]


def smooth(x: Any) -> Any:
    return np.exp(np.sin(x)) / (1.0 + x * x)


def exact(order: int, x: float = 0.4) -> float:
    """Differentiate `smooth` by its Taylor series around x, computed on coefficients."""
    n = 8
    s, c = np.zeros(n), np.zeros(n)
    for k in range(n):
        s[k] = (math.sin(x), math.cos(x), -math.sin(x), -math.cos(x))[k % 4] / math.factorial(k)
    e = np.zeros(n)
    e[0] = math.exp(s[0])
    for k in range(1, n):
        e[k] = sum(j * s[j] * e[k - j] for j in range(1, k + 1)) / k
    q = np.zeros(n)
    q[:3] = 1 + x * x, 2 * x, 1
    for k in range(n):
        c[k] = (e[k] - sum(q[j] * c[k - j] for j in range(1, k + 1))) / q[0]
    return float(c[order] * math.factorial(order))


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
    f = lambda x: np.sum(x**4)  # noqa: E731
    for expected in (0, 0, 0, 24, 0):
        f = elementwise_grad(f)
        np.testing.assert_array_equal(f(np.zeros(2)), [expected] * 2)


@pytest.mark.parametrize("way", WAYS)
def test_integer_powers(way: Any) -> None:
    for n in range(-3, 6):
        f: Function = lambda x, n=n: x**n  # noqa: E731
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
                f = lambda x: x * b(lambda y, x=x: y * c(lambda z: x * y * z * z)(y))(x)  # noqa: B023, E731
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
            f = lambda t: t * t - a  # noqa: E731
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


# ---------------------------------------------------------------- branches not taken
def guarded(x: Any) -> Any:
    """Defined everywhere; each branch has infinite derivatives where it is not taken."""
    y = np.where(x > 0, np.sqrt(x) * x, 0.0) + np.where(x < 0, x / (1.0 - x), np.log1p(x))
    return y + np.where(x == 0, 0.0, np.sin(x) / x)


def test_branches_not_taken_stay_out_of_second_derivatives() -> None:
    x = np.array([-1.0, 2.0, 0.7, -0.5])

    def f(x: Any) -> Any:
        return np.sum(guarded(x) * np.arange(1.0, 5))

    with np.errstate(all="ignore"):
        products = {
            "hessian": np.diag(hessian(f)(x)),
            "diagonal": hessian_diagonal(f)(x),
            "hvp": hvp(f, x, np.ones(4)),
            "vhp": vhp(f, x, np.ones(4)),
            "forward over reverse": jvp(grad(f), (x,), (np.ones(4),))[1],
            "reverse over forward": grad(lambda x: jvp(f, (x,), (np.ones(4),))[1])(x),
            "reverse over reverse": grad(lambda x: np.sum(grad(f)(x)))(x),
        }
        expected = directional(grad(f), [x], 0, np.ones(4))
        for name, product in products.items():
            np.testing.assert_allclose(product, expected, rtol=1e-8, err_msg=name)
        np.testing.assert_allclose(jvp(f, (x,), (np.ones(4),))[1], np.sum(grad(f)(x)), rtol=1e-13)
        np.testing.assert_allclose(jacobian_forward(guarded)(x), jacobian_reverse(guarded)(x), rtol=1e-13)


@pytest.mark.parametrize("x", [0.0, -1.0])
def test_the_double_where_is_not_needed(x: float) -> None:
    for branch in (np.sqrt, np.log, lambda t: 1 / t, lambda t: t**-1.5, lambda t: np.sqrt(t) * np.log(t)):

        def f(x: Any, branch: Any = branch) -> Any:
            return np.where(x > 0, branch(x), x * x)

        array = np.full(2, x)
        with np.errstate(all="ignore"):
            for way in WAYS[:5]:
                assert way(f)(x) == 2 * x
                for outer in WAYS[:5]:
                    assert outer(way(f))(x) == 2.0
                    assert d_jvp(outer(way(f)))(x) == 0.0
                    assert d_grad(outer(way(f)))(x) == 0.0
            np.testing.assert_array_equal(hessian(lambda x, f=f: np.sum(f(x)))(array), 2 * np.eye(2))
            np.testing.assert_array_equal(hvp(lambda x, f=f: np.sum(f(x)), array, np.ones(2)), [2.0, 2.0])
            np.testing.assert_array_equal(jvp(f, (array,), (np.ones(2),))[1], 2 * array)
            np.testing.assert_array_equal(jacobian_forward(f)(array), np.diag(2 * array))


def test_a_zero_tangent_stays_zero() -> None:
    """Forward mode keeps the convention of reverse mode: an infinite slope does not meet a tangent of 0."""
    x = np.array([0.0, 4.0])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(jvp(np.sqrt, (x,), (np.array([0.0, 1.0]),))[1], [0.0, 0.25])
        np.testing.assert_array_equal(
            grad(lambda x: jvp(np.sqrt, (x,), (np.array([0.0, 1.0]),))[1][1])(x), [0, -1 / 32]
        )
        np.testing.assert_array_equal(hvp(lambda x: np.sqrt(x)[1], x, np.ones(2)), [0.0, -1 / 32])
        np.testing.assert_array_equal(hessian(lambda x: np.sqrt(x)[1])(x), [[0, 0], [0, -1 / 32]])
        np.testing.assert_array_equal(hvp(lambda x: np.sum(np.sqrt(x)), x, np.array([0.0, 1.0])), [0.0, -1 / 32])


# ---------------------------------------------------------------- writing in place
def test_in_place_writes_and_views_inside_nested_functions() -> None:
    def f(x: Any) -> Any:
        y = x * x
        view = y[1:]
        view *= x[:-1]
        y[0] += np.sum(view)
        x[1] = y[2] * x[0]
        x += y
        return np.sum(np.sin(x))

    def plain(x: Any) -> Any:
        return f(np.array(x))

    x = X.copy()
    first = gradient(plain, x)
    np.testing.assert_allclose(grad(f)(x), first, rtol=1e-8)
    second = np.array([directional(lambda x: grad(f)(x), [x], 0, unit) for unit in np.eye(3)])
    for found in (
        hessian(f)(x),
        jacobian_forward(grad(f))(x),
        jacobian_reverse(grad(f))(x),
        np.array([hvp(f, x, unit) for unit in np.eye(3)]),
        np.array([grad(lambda x, u=unit: jvp(f, (x,), (u,))[1])(x) for unit in np.eye(3)]),
    ):
        np.testing.assert_allclose(found, second, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(x, X)
    third = np.array([directional(hessian(f), [x], 0, unit) for unit in np.eye(3)])
    np.testing.assert_allclose(jacobian(hessian(f))(x), third, rtol=1e-7, atol=1e-7)


def test_writes_of_an_inner_function_stay_inside() -> None:
    def inner(y: Any) -> Any:
        y[0] = 5.0 * y[1]
        return np.sum(y * y)

    def f(x: Any) -> Any:
        before = x * 1.0
        g = grad(inner)(x)
        assert np.all(x == before)
        h = jvp(inner, (x,), (np.ones(3),))[1]
        return np.sum(g * x) + h

    # inner: 26 y1**2 + y2**2; its gradient (0, 52 y1, 2 y2)
    expected = np.array([0.0, 104 * X[1] + 52, 4 * X[2] + 2])
    np.testing.assert_allclose(grad(f)(X), expected, rtol=1e-13)
    np.testing.assert_allclose([jvp(f, (X,), (u,))[1] for u in np.eye(3)], expected, rtol=1e-13)


def test_filling_inside_nested_functions() -> None:
    def f(x: Any) -> Any:
        y = ops.zeros(len(x))
        for i in range(len(x)):
            y[i] = x[i] ** 2 * x[i - 1]
        table = ops.zeros((2, len(x)))
        table[0] = y
        table[1, 1:] = np.sin(y[:-1])
        return np.sum(table * table[::-1]) + np.sum(table)

    np.testing.assert_allclose(grad(f)(X), gradient(f, X), rtol=1e-8)
    second = np.array([directional(grad(f), [X], 0, unit) for unit in np.eye(3)])
    for found in (hessian(f)(X), jacobian_forward(grad(f))(X), jacobian_reverse(grad(f))(X)):
        np.testing.assert_allclose(found, second, rtol=1e-8, atol=1e-8)

    def with_slopes(x: Any) -> Any:
        slopes = ops.zeros(3)
        for i in range(3):
            slopes[i] = grad(lambda t, i=i: t**3 * x[i - 1])(x[i])
        return np.sum(slopes)

    expected = 6 * X * np.roll(X, 1) + 3 * np.roll(X, -1) ** 2
    np.testing.assert_allclose(grad(with_slopes)(X), expected, rtol=1e-13)
    np.testing.assert_allclose([jvp(with_slopes, (X,), (u,))[1] for u in np.eye(3)], expected, rtol=1e-13)


# ---------------------------------------------------------------- dtypes, containers, arguments
def test_float32_stays_float32_at_every_depth() -> None:
    x = X.astype(np.float32)

    def f(x: Any) -> Any:
        return np.sum(np.sin(x) * x**2)

    wide = X.astype(np.float32).astype(float)
    for found, expected in (
        (hessian(f)(x), hessian(f)(wide)),
        (hvp(f, x, x), hvp(f, wide, wide)),
        (vhp(f, x, x), vhp(f, wide, wide)),
        (jacobian(grad(f))(x), hessian(f)(wide)),
        (grad(lambda x: jvp(f, (x,), (np.ones(3, np.float32),))[1])(x), hvp(f, wide, np.ones(3))),
        (jacobian(hessian(f))(x), jacobian(hessian(f))(wide)),
        (hessian_diagonal(f)(x), hessian_diagonal(f)(wide)),
        (jvp(jacobian(np.sin), (x,), (x,))[1], jvp(jacobian(np.sin), (wide,), (wide,))[1]),
    ):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_jacobians_are_of_the_dtype_of_the_argument_in_either_mode() -> None:
    """As gradients are; so the dtype does not depend on which mode is the cheaper one."""
    x, wide = X.astype(np.float32), np.arange(1.0, 4.0)
    kinds = (jacobian, jacobian_forward, jacobian_reverse)
    for kind in kinds:
        for f in (lambda x: x * wide, lambda x: np.sum(x * wide), lambda x: np.outer(x, wide), lambda x: wide):
            found = kind(f)(x)
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, kind(f)(x.astype(float)), rtol=1e-6)
            inside: list[Any] = []
            grad(lambda x, f=f, k=kind, inside=inside: (inside.append(k(f)(x)), np.sum(x))[1])(x)
            assert inside[0].dtype == np.float32
            assert inside[0].shape == found.shape
        assert kind(lambda x: x.astype(np.float32))(X).dtype == np.float64
        assert kind(lambda s: x * s)(2.0).dtype == np.float64
        blocks = kind(lambda x, y: x * y, (0, 1))(x, wide)
        assert [b.dtype for b in blocks] == [np.float32, np.float64]


def test_containers_in_and_out() -> None:
    p = {"a": np.array([1.0, 2.0]), "b": (np.array([[3.0]]), 0.5)}

    def f(p: Any) -> Any:
        return np.sum(p["a"] ** 3) * p["b"][1] + np.sum(p["a"]) * p["b"][0][0, 0] ** 2

    h = hessian(f)(p)
    assert list(h) == ["a", "b"]
    assert isinstance(h["b"], tuple)
    np.testing.assert_allclose(h["a"]["a"], np.diag(3 * p["a"]))
    np.testing.assert_allclose(h["a"]["b"][0], np.full((2, 1, 1), 6.0))
    np.testing.assert_allclose(h["b"][0]["a"], np.full((1, 1, 2), 6.0))
    np.testing.assert_allclose(h["a"]["b"][1], 3 * p["a"] ** 2)
    np.testing.assert_allclose(h["b"][0]["b"][0], np.full((1, 1, 1, 1), 6.0))
    assert h["b"][1]["b"][1] == 0.0
    nested = jacobian(grad(f))(p)
    np.testing.assert_allclose(nested["a"]["b"][0], h["a"]["b"][0])
    product = hvp(f, p, p)
    np.testing.assert_allclose(product["a"], 3 * p["a"] ** 2 + 18.0 + 0.5 * 3 * p["a"] ** 2)
    inside = grad(lambda s: np.sum(hvp(f, {"a": p["a"] * s, "b": p["b"]}, p)["a"]))(1.0)
    assert inside == pytest.approx(30.0)
    j = jacobian(lambda p: {"y": [p["a"] * p["b"][1], p["b"][1]]})(p)
    np.testing.assert_allclose(j["y"][0]["b"][1], p["a"])
    assert j["y"][1]["b"][1] == 1.0
    _, tangent = jvp(lambda p: {"y": [p["a"] * p["b"][1]], "n": p["b"][1]}, (p,), (p,))
    np.testing.assert_allclose(tangent["y"][0], p["a"])
    assert isinstance(tangent["n"], float)
    _, pullback = vjp(lambda p: {"y": [p["a"] * p["b"][1]], "n": p["b"][1]}, p)
    back = pullback({"y": [np.ones(2)], "n": 2.0})[0]
    assert back["b"][1] == pytest.approx(5.0)
    assert isinstance(back["b"][1], float)


def test_auxiliary_results() -> None:
    def f(x: Any) -> Any:
        return np.sum(x**3), {"square": x**2, "text": "kept"}

    for found, aux in (
        grad(f, has_aux=True)(X),
        jacobian(f, has_aux=True)(X),
        hessian(f, has_aux=True)(X),
        hessian_diagonal(f, has_aux=True)(X),
        hvp(f, X, X, has_aux=True),
        vhp(f, X, X, has_aux=True),
    ):
        assert not isinstance(found, Tensor)
        assert aux["text"] == "kept"
        assert type(aux["square"]) is np.ndarray
        np.testing.assert_array_equal(aux["square"], X**2)
    value, tangent, aux = jvp(f, (X,), (X,), has_aux=True)
    assert (tangent, aux["text"]) == (pytest.approx(3 * value), "kept")
    value, pullback, aux = vjp(f, X, has_aux=True)
    np.testing.assert_allclose(pullback(1.0)[0], 3 * X**2)
    value, pushforward, aux = linearize(f, X, has_aux=True)
    assert pushforward(X) == pytest.approx(3 * value)

    # Inside, the extra values are part of what is differentiated.
    def outer(x: Any) -> Any:
        _, aux = grad(f, has_aux=True)(x)
        _, _, more = jvp(f, (x,), (X,), has_aux=True)
        return np.sum(aux["square"]) + np.sum(more["square"])

    np.testing.assert_allclose(grad(outer)(X), 4 * X)
    np.testing.assert_allclose(jvp(outer, (X,), (X,))[1], 4 * X @ X)


def test_argnums_and_names() -> None:
    def f(x: Any, y: Any, *, scale: Any = 1.0) -> Any:
        return np.sum(x**2 * y) * scale

    y = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(hessian(f, "x")(X, y), np.diag(2 * y))
    np.testing.assert_allclose(hessian(f, 1)(X, y), np.zeros((3, 3)))
    blocks = hessian(f, ("y", 0))(X, y)
    np.testing.assert_allclose(blocks[0][1], np.diag(2 * X))
    np.testing.assert_allclose(blocks[1][1], np.diag(2 * y))
    blocks = hessian(f, (0, "scale"))(X, y, scale=2.0)
    np.testing.assert_allclose(blocks[0][1], 2 * X * y)
    assert blocks[1][1] == 0.0
    np.testing.assert_allclose(jacobian(grad(f, "x"), "y")(X, y), np.diag(2 * X))
    np.testing.assert_allclose(jacobian(grad(f, (0, 1)), -1)(X, y)[0], np.diag(2 * X))
    product = hvp(f, X, (X, y), y, argnums=("x", "y"))
    np.testing.assert_allclose(product[0], 4 * X * y)
    np.testing.assert_allclose(product[1], 2 * X * X)
    np.testing.assert_allclose(hvp(f, X, X, y, argnums="y"), np.zeros(3))
    with pytest.raises(InputError, match="names no argument"):
        hessian(f, "z")(X, y)


# ---------------------------------------------------------------- pullbacks and pushforwards
LARGE = np.linspace(0.5, 1.5, 50_000)


@pytest.mark.parametrize("x", [X, LARGE], ids=["small", "large"])
def test_a_pullback_may_be_called_many_times_after_its_inputs_were_overwritten(x: Any) -> None:
    given, other = x.copy(), x + 1.0
    constant = other.copy()
    y, pullback = vjp(lambda a: np.sin(a) * constant + a[0], given)
    same, pushforward = linearize(lambda a: np.sin(a) * constant + a[0], given)
    kept = y.copy()
    given[:] = np.nan
    constant[:] = np.nan
    y[:] = 0.0
    for k in range(3):
        c = np.cos(k * x)
        expected = c * np.cos(x) * other
        expected[0] += np.sum(c)
        got = pullback(c)[0]
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
        got[:] = np.nan  # it is the caller's
        np.testing.assert_allclose(pushforward(c), c * np.cos(x) * other + c[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(same, kept)


def test_a_pullback_of_views_and_in_place_writes_stays_right() -> None:
    x = LARGE.copy()
    work = np.ones(LARGE.shape)

    def f(a: Any) -> Any:
        b = a.reshape(-1, 2)
        b *= work.reshape(-1, 2) * 3.0
        return b[:, 0] * b[:, 1]

    y, pullback = vjp(f, x)
    np.testing.assert_array_equal(x, LARGE)
    x[:] = 7.0
    work[:] = 7.0
    g = pullback(np.ones(len(y)))[0].reshape(-1, 2)
    np.testing.assert_allclose(g, 9 * LARGE.reshape(-1, 2)[:, ::-1], rtol=1e-14)


def test_a_pullback_that_leaked_out_of_its_function_is_refused() -> None:
    leaked: list[Any] = []

    def f(x: Any) -> Any:
        _, pullback = vjp(np.sin, x)
        _, pushforward = linearize(np.sin, x)
        leaked.extend([pullback, pushforward])
        return np.sum(pullback(np.ones(3))[0] + pushforward(np.ones(3)))

    np.testing.assert_allclose(grad(f)(X), -2 * np.sin(X), rtol=1e-14)
    for call in leaked:
        with pytest.raises(StaleTensorError, match=r"made inside a function .* has returned"):
            call(np.ones(3))


def test_a_constant_pullback_inside_a_function_too() -> None:
    """One of constants, made inside a function that is being differentiated, belongs to that function all the same."""
    leaked: list[Any] = []

    def f(x: Any) -> Any:
        _, pullback = vjp(np.sin, X)
        leaked.append(pullback)
        return np.sum(pullback(x)[0] * x)

    np.testing.assert_allclose(grad(f)(X), 2 * X * np.cos(X), rtol=1e-14)
    np.testing.assert_allclose(jvp(f, (X,), (X,))[1], 2 * X @ (X * np.cos(X)), rtol=1e-14)
    for pullback in leaked:
        with pytest.raises(StaleTensorError, match="has returned"):
            pullback(X)


def test_a_pullback_is_a_linear_map_inside_other_derivatives() -> None:
    """Made outside, it is applied to what is being recorded: one entry, whose transpose is the Jacobian."""
    _, pullback = vjp(lambda x: x[1:] * x[:-1], X)
    _, pushforward = linearize(lambda x: x[1:] * x[:-1], X)
    j = jacobian(lambda x: x[1:] * x[:-1])(X)
    c = np.array([0.5, 2.0])
    for way in (jacobian_forward, jacobian_reverse):
        np.testing.assert_allclose(way(lambda c: pullback(c**2)[0])(c), j.T * 2 * c, rtol=1e-14)
        np.testing.assert_allclose(way(lambda t: pushforward(t**2))(X), j * 2 * X, rtol=1e-14)
        np.testing.assert_allclose(way(grad(lambda c: np.sum(pullback(c**3)[0])))(c), np.diag(6 * c * j.sum(1)))
    weight = X + 1
    h = hessian(lambda c: np.sum(weight * pullback(c)[0] ** 2))(c)
    np.testing.assert_allclose(h, 2 * (j * weight) @ j.T, rtol=1e-13)
    # Containers and several arguments.
    _, pullback = vjp(lambda p, s: {"u": p["x"] * s, "v": s}, {"x": X, "unused": 1.0}, 2.0)
    g = grad(lambda a: np.sum(pullback({"u": a * a, "v": a[0]})[0]["x"]) + pullback({"u": a, "v": a[0] ** 2})[1])(X)
    np.testing.assert_allclose(g, 4 * X + X + np.array([2 * X[0], 0, 0]), rtol=1e-14)


def test_pullbacks_cross_threads() -> None:
    _, pullback = vjp(np.sin, X)
    _, pushforward = linearize(np.sin, X)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda k: (pullback(k * np.ones(3))[0], pushforward(k * np.ones(3))), range(40)):
            np.testing.assert_allclose(found[0], found[1])
        gradients = list(pool.map(lambda k: grad(lambda c: np.sum(pullback(c * k)[0]))(X), range(20)))
    for k, g in enumerate(gradients):
        np.testing.assert_allclose(g, k * np.cos(X))


def test_a_pullback_frees_its_memory() -> None:
    def work(k: int) -> Any:
        _, pullback = vjp(lambda x: np.exp(np.sin(x)), LARGE)
        return pullback(LARGE)

    assert growth(work, 300, 50)[1] < 20e6


# ---------------------------------------------------------------- errors inside
class Trouble(Exception):
    pass


def fails(x: Any) -> Any:
    if np.sin(x) * x > -2:
        raise Trouble


@pytest.mark.parametrize("inner", [*WAYS, hessian, lambda f: lambda x: hvp(f, x, 1.0)])
def test_an_exception_inside_leaves_everything_usable(inner: Any) -> None:
    with pytest.raises(Trouble):
        inner(fails)(1.0)
    for outer in (*WAYS, hessian):
        with pytest.raises(Trouble):
            outer(lambda x: inner(fails)(x) * x)(1.0)

        def survives(x: Any) -> Any:
            try:
                inner(fails)(x)
            except Trouble:
                return x * x * d_grad(lambda y: y * x)(x)
            raise AssertionError

        assert outer(survives)(2.0) == 12.0
    assert grad(lambda x: x * x)(3.0) == 6.0


def test_an_exception_in_the_backward_pass() -> None:
    """Wrong cotangents, inside and outside."""

    def f(x: Any) -> Any:
        _, pullback = vjp(np.sin, x)
        with pytest.raises(ValueError, match="shape"):
            pullback(np.ones(7))
        with pytest.raises(ValueError, match="shape"):
            jvp(np.sin, (x,), (np.ones(7),))
        return np.sum(pullback(x)[0])

    np.testing.assert_allclose(grad(f)(X), np.cos(X) - X * np.sin(X), rtol=1e-13)


# ---------------------------------------------------------------- memory and threads
def test_two_thousand_calls_do_not_grow() -> None:
    def f(x: Any) -> Any:
        y = np.sin(x) * x
        y[0] = x[1] * 2.0
        return np.sum(y**2)

    def work(k: int) -> None:
        x = X + k
        _, pullback = vjp(np.sin, x)
        pullback(x)
        linearize(np.sin, x)[1](x)
        jvp(f, (x,), (x,))
        hessian(f)(x)
        jacobian(lambda x: np.sin(x) * x)(x)
        hvp(f, x, x)
        grad(lambda x: np.sum(grad(f)(x)))(x)

    python, resident = growth(work, 2000, 100)
    # Pools fill up to their bounds: less than 100 bytes a call over the last tenth, and less than 300 over all.
    assert python < 7 * 200 * 100
    assert resident < 7 * 2000 * 300


def test_eight_threads() -> None:
    start = threading.Barrier(8)

    def work(k: int) -> bool:
        x = X + 0.1 * k
        start.wait(30)
        for _ in range(10):
            h = hessian(lambda x: np.sum(x**3) * k)(x)
            np.testing.assert_allclose(h, np.diag(6 * k * x), rtol=1e-12, atol=1e-14)
            j = jacobian(lambda x: jvp(np.sin, (x,), (x * k,))[1])(x)
            np.testing.assert_allclose(j, np.diag(k * (np.cos(x) - x * np.sin(x))), rtol=1e-12, atol=1e-13)
            assert functools.reduce(lambda f, way: way(f), WAYS[:4], smooth)(0.4) == pytest.approx(exact(4), rel=1e-11)
            g = grad(lambda a, x=x: np.sum(hvp(lambda x: np.sum(a * x**3), x, x)))(2.0)
            assert g == pytest.approx(6 * x @ x)
            _, pullback = vjp(lambda x: np.outer(x, x), x)
            np.testing.assert_allclose(pullback(np.eye(3))[0], 2 * x)
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
