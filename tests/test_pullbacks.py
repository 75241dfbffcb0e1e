"""The lives of pullbacks and pushforwards; errors, memory and threads with derivatives inside of others."""

from __future__ import annotations

import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from growing import growth
from nested import (
    WAYS,
    X,
    d_grad,
    exact,
    smooth,
)

from tape import (
    StaleTensorError,
    grad,
    hessian,
    hvp,
    jacobian,
    jacobian_forward,
    jacobian_reverse,
    jvp,
    linearize,
    vjp,
)

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
