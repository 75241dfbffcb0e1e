"""from_callable: functions that cannot be recorded, by differences or a complex step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from parallel import in_threads
from scipy import interpolate

from tape import InputError, OutputError, UnsupportedError, from_callable, grad, hvp, jacobian, jvp, value_and_grad, vjp

X = np.array([-1.0, 0.5, 2.0])
Y = np.array([0.3, 0.4])
V = np.array([0.5, -1.0, 2.0])
W = np.arange(1.0, 7.0).reshape(3, 2)

METHODS = pytest.mark.parametrize(("method", "tolerance"), [("central", 1e-9), ("forward", 2e-7), ("complex", 1e-14)])


def raw(x: Any, y: Any, n: Any = 2) -> Any:
    return np.exp(x)[:, None] * np.sin(y) ** n


def loss(f: Any) -> Callable[..., Any]:
    return lambda x, y: np.sum(f(x, y, n=3) ** 2 * W)


@METHODS
def test_gradients(method: Any, tolerance: float) -> None:
    f = from_callable(raw, method=method)
    value, got = value_and_grad(loss(f), (0, 1))(X, Y)
    expected_value, expected = value_and_grad(loss(raw), (0, 1))(X, Y)
    assert value == pytest.approx(expected_value, rel=1e-15)
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=tolerance)


@METHODS
def test_tangents(method: Any, tolerance: float) -> None:
    f = from_callable(raw, method=method)
    for tangents in ((V, Y), (None, Y), (V, None), (1e-9 * V, 1e-9 * Y), (1e9 * V, None)):
        got, expected = (jvp(loss(h), (X, Y), tangents)[1] for h in (f, raw))
        assert got == pytest.approx(expected, rel=tolerance)
    assert jvp(loss(f), (X, Y), (0 * V, 0 * Y))[1] == 0.0


@METHODS
def test_jacobians(method: Any, tolerance: float) -> None:
    f = from_callable(lambda x: np.sin(x) * x[0], method=method)
    expected = jacobian(lambda x: np.sin(x) * x[0])(X)
    np.testing.assert_allclose(jacobian(f)(X), expected, rtol=tolerance, atol=1e-14)
    t, c = V, np.array([1.0, 2.0, -1.0])
    assert jvp(f, (X,), (t,))[1] @ c == pytest.approx(vjp(f, X)[1](c)[0] @ t, rel=tolerance)


@pytest.mark.parametrize(("method", "tolerance"), [("central", 5e-4), ("forward", 5e-3), ("complex", 1e-6)])
def test_float32(method: Any, tolerance: float) -> None:
    """The function is evaluated in float32, with steps that fit it."""
    x, y = X.astype(np.float32), Y.astype(np.float32)
    got = grad(loss(from_callable(raw, method=method)), (0, 1))(x, y)
    for g, e in zip(got, grad(loss(raw), (0, 1))(X, Y), strict=True):
        assert g.dtype == np.float32
        np.testing.assert_allclose(g, e, rtol=tolerance)


def test_numbers() -> None:
    gamma = from_callable(math.gamma)
    digamma = -0.5772156649015329
    assert grad(gamma)(1.0) == pytest.approx(digamma, rel=1e-9)
    assert type(grad(gamma)(1.0)) is float
    assert jvp(gamma, (1.0,), (2.0,))[1] == pytest.approx(2 * digamma, rel=1e-9)
    assert gamma(4.0) == 6.0
    assert gamma.__name__ == "gamma"


def test_other_libraries() -> None:
    """A spline of SciPy, whose derivative is known."""
    spline = interpolate.CubicSpline(np.linspace(0, 3, 10), np.sin(np.linspace(0, 3, 10)))
    f = from_callable(spline)
    x = np.array([0.5, 1.7, 2.2])
    np.testing.assert_allclose(grad(lambda x: np.sum(f(x) ** 2))(x), 2 * spline(x) * spline(x, 1), rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e8])
def test_steps_follow_the_magnitude(scale: float) -> None:
    f = from_callable(lambda x: np.sum(np.sin(x / scale)))
    np.testing.assert_allclose(grad(f)(X * scale), np.cos(X) / scale, rtol=1e-4 if scale < 1 else 1e-8)


def test_steps_of_elements_differ() -> None:
    x = np.array([1e9, 1.0])
    f = from_callable(lambda x: np.sin(x[0] / 1e9) * np.sin(x[1]))
    expected = np.array([np.cos(1.0) * np.sin(1.0) / 1e9, np.sin(1.0) * np.cos(1.0)])
    np.testing.assert_allclose(grad(f)(x), expected, rtol=1e-8)


def test_a_step_of_ones_own() -> None:
    seen: list[Any] = []

    def f(x: Any, k: int, y: Any) -> Any:
        seen.append((x, y))
        return x[0] * y * k

    grad(lambda x, y: from_callable(f, step=(np.array([0.25, 0.5]), None, 0.125))(x, 2, y), (0, 1))(np.ones(2), 3.0)
    assert sorted({float(x[0]) for x, _ in seen}) == [0.75, 1.0, 1.25]
    assert sorted({float(x[1]) for x, _ in seen}) == [0.5, 1.0, 1.5]
    assert sorted({y for _, y in seen}) == [2.875, 3.0, 3.125]
    # A function of coarse steps needs a wide one.
    coarse = from_callable(lambda x: np.round(x, 3) ** 2, step=0.1)
    assert grad(coarse)(1.5) == pytest.approx(3.0, rel=1e-2)
    with pytest.raises(InputError, match="step is a tuple of 1, but there are 2 arguments"):
        grad(lambda x: from_callable(lambda x, k: x * k, step=(0.1,))(x, 2))(1.0)


def test_what_calls_it_costs() -> None:
    calls = [0]

    def f(x: Any) -> Any:
        calls[0] += 1
        return np.sin(x)

    for method, each in (("central", 2), ("forward", 1), ("complex", 1)):
        counted = from_callable(f, method=method)  # type: ignore[arg-type]
        calls[0] = 0
        _, pullback = vjp(counted, X)
        assert calls[0] == 1
        pullback(V)
        pullback(X)
        assert calls[0] == 1 + each * 3
        calls[0] = 0
        jvp(counted, (X,), (V,))
        assert calls[0] == 1 + each


def test_only_what_is_asked_for_is_moved() -> None:
    seen = []

    def f(x: Any, y: Any) -> Any:
        seen.append(y.copy())
        return np.sum(x) * np.sum(y)

    grad(lambda x: from_callable(f)(x, Y))(X)
    assert all(np.array_equal(y, Y) for y in seen)


def test_arguments_are_safe() -> None:
    def f(x: Any) -> Any:
        x *= 2.0
        return x

    x = X.copy()
    np.testing.assert_allclose(grad(lambda x: np.sum(from_callable(f)(x) * x))(x), 4 * X, rtol=1e-9)
    np.testing.assert_array_equal(x, X)


def test_second_derivatives_are_refused() -> None:
    f = from_callable(lambda x: np.sum(x**3))
    for derivative in (
        lambda: grad(lambda x: np.sum(grad(f)(x)))(X),
        lambda: hvp(f, X, V),
        lambda: jvp(lambda x: jvp(f, (x,), (V,))[1], (X,), (V,)),
        lambda: grad(lambda x: jvp(f, (x,), (V,))[1])(X),
    ):
        with pytest.raises(
            UnsupportedError, match=r"second derivative of a function given by from_callable.*custom_vjp"
        ):
            derivative()
    np.testing.assert_allclose(grad(f)(X), 3 * X**2, rtol=1e-9)


@METHODS
def test_nested_derivatives_that_are_linear_in_it(method: Any, tolerance: float) -> None:
    """They need no second derivative of the function, only its Jacobian again."""
    f = from_callable(lambda x: np.sin(x) * x, method=method)
    slope = np.cos(X) * X + np.sin(X)

    def by_reverse(c: Any) -> Any:
        return np.sum(grad(lambda z: np.sum(f(z) * c))(X) ** 2)

    def by_forward(c: Any) -> Any:
        return np.sum(jvp(f, (X,), (V * c,))[1] ** 2)

    for h, expected in ((by_reverse, 4.0 * np.sum(slope**2)), (by_forward, 4.0 * np.sum((slope * V) ** 2))):
        assert grad(h)(2.0) == pytest.approx(expected, rel=tolerance)
        assert jvp(h, (2.0,), (1.0,))[1] == pytest.approx(expected, rel=tolerance)
        assert grad(grad(h))(2.0) == pytest.approx(expected / 2.0, rel=tolerance)


def test_errors() -> None:
    with pytest.raises(InputError, match="from_callable needs a function"):
        from_callable(3.0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="method must be 'central', 'forward' or 'complex', got 'backward'"):
        from_callable(raw, method="backward")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="raw: give what is to be differentiated by position"):
        grad(lambda y: np.sum(from_callable(raw)(X, y=y)))(Y)
    for given in ((X, X), "text", X + 1j):
        f = from_callable(lambda x, given=given: given)
        with pytest.raises(OutputError, match="must give a floating-point array or number"):
            grad(lambda x, f=f: np.sum(f(x)))(X)
    np.testing.assert_allclose(grad(lambda x: from_callable(lambda x: int(x > 0))(x) * x)(2.0), 1.0)


def test_exceptions_leave_all_usable() -> None:
    fail = [2]

    def f(x: Any) -> Any:
        fail[0] -= 1
        if not fail[0]:
            raise KeyError("mine")
        return np.sum(x**2)

    with pytest.raises(KeyError, match="mine"):
        grad(from_callable(f))(X)
    np.testing.assert_allclose(grad(from_callable(f))(X), 2 * X, rtol=1e-8)


def test_threads() -> None:
    f = from_callable(lambda x: np.sin(x))
    found: dict[int, Any] = {}

    def work(k: int) -> None:
        for _ in range(10):
            found[k] = grad(lambda x: np.sum(f(x)))(X + k)

    in_threads(work)
    for k in range(4):
        np.testing.assert_allclose(found[k], np.cos(X + k), rtol=1e-8)
