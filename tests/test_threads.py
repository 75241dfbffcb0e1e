"""Threads: each has its own tape, and nothing crosses over."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import ops
from tape import StaleTensorError, grad, value_and_grad

THREADS = 8
X = np.linspace(0.1, 1.0, 10)


def together(work: Any, count: int = THREADS) -> list[Any]:
    """Run work(k) in threads that start at once; give the results, or raise what was raised."""
    start = threading.Barrier(count)

    def run(k: int) -> Any:
        start.wait(30)
        return work(k)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_eight_threads_at_once() -> None:
    """Different functions and shapes, numbers and arrays, many times over."""

    def work(k: int) -> bool:
        x = np.linspace(0.1, 1.0, 3 + k)
        for i in range(60):
            g = grad(lambda x: np.sum(np.sin(x * k) * x + k))(x)
            np.testing.assert_allclose(g, np.sin(x * k) + k * x * np.cos(x * k), rtol=1e-13, atol=1e-15)
            t = grad(lambda t, i=i: (t * k + i) ** 2 / t)(2.0)
            assert t == pytest.approx(k * k - i * i / 4.0)

            def filled(x: Any) -> Any:
                y = ops.zeros(len(x))
                for j in range(len(x)):
                    y[j] = x[j] * x[j - 1]
                return np.sum(y)

            np.testing.assert_allclose(grad(filled)(x), np.roll(x, 1) + np.roll(x, -1), rtol=1e-14)
        return True

    assert all(together(work))


def test_traces_that_interleave_op_by_op() -> None:
    """Every thread waits for the others after each operation."""
    turn = threading.Barrier(THREADS)

    def work(k: int) -> Any:
        def f(x: Any) -> Any:
            y = x
            for i in range(20):
                turn.wait(30)
                y = np.sin(y) if i % 2 else y * (k + 1.0)
                turn.wait(30)
            return np.sum(y)

        return grad(f)(X)

    got = together(work)
    for k, g in enumerate(got):
        y, slope = X, np.ones(10)
        for i in range(20):
            y, slope = (np.sin(y), slope * np.cos(y)) if i % 2 else (y * (k + 1.0), slope * (k + 1.0))
        np.testing.assert_allclose(g, slope, rtol=1e-12)


def test_compiling_the_same_kernels_at_once() -> None:
    """Each thread meets ops that may not be compiled yet, in another order."""
    functions = [np.arcsinh, np.expm1, np.log1p, np.arctan, np.cosh, np.exp2, np.cbrt, np.reciprocal]

    def work(k: int) -> Any:
        return {f: grad(lambda x, f=f: np.sum(f(x)))(X) for f in functions[k:] + functions[:k]}

    first, *others = together(work)
    for other in others:
        for f in functions:
            np.testing.assert_array_equal(first[f], other[f])
    np.testing.assert_allclose(first[np.log1p], 1 / (1 + X), rtol=1e-14)


def test_sweeps_of_large_arrays_at_once() -> None:
    x = np.linspace(0, 1, 200_000)

    def work(k: int) -> Any:
        return grad(lambda x: np.sum(np.exp(x) * np.sin(x * k) + np.tanh(x)))(x)

    for k, g in enumerate(together(work)):
        np.testing.assert_allclose(
            g, np.exp(x) * (np.sin(k * x) + k * np.cos(k * x)) + 1 - np.tanh(x) ** 2, rtol=1e-12, atol=1e-12
        )


def test_one_differentiated_function_shared_by_threads() -> None:
    shared = value_and_grad(lambda x, k: np.sum(x**2) * k)
    for k, (value, g) in enumerate(together(lambda k: shared(X, float(k)))):
        assert value == np.sum(X**2) * k
        np.testing.assert_array_equal(g, k * 2 * X)


def test_a_tensor_is_refused_by_another_thread() -> None:
    raised: list[Any] = []

    def f(x: Any) -> Any:
        uses = [
            lambda: x + 1.0, lambda: x * x, lambda: np.sin(x), lambda: np.sum(x), lambda: x[0], lambda: x[1:],
            lambda: x.T,
            lambda: x.numpy(), lambda: x.__setitem__(0, 1.0), lambda: x.reshape(2, -1),
            lambda: bool(x[0]), lambda: x @ x,
            lambda: np.stack([x, x]), lambda: x > 0, lambda: f"{x:.1f}",
        ]  # fmt: skip

        def elsewhere() -> None:
            for use in uses:
                try:
                    raised.append(use())
                except StaleTensorError as error:
                    raised.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        return np.sum(x**2)

    np.testing.assert_array_equal(grad(f)(X), 2 * X)
    assert len(raised) == 15
    for error in raised:
        assert isinstance(error, StaleTensorError), error
        assert "another thread" in str(error)


def test_a_thread_may_differentiate_while_another_records() -> None:
    """What is started from inside a recorded function is a trace of its own."""

    def f(x: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            inner = pool.submit(lambda: grad(lambda y: np.sum(y**3))(X)).result()
            plain = pool.submit(lambda: ops.zeros(3)).result()
        assert type(inner) is np.ndarray
        assert type(plain) is np.ndarray
        return np.sum(x * inner)

    np.testing.assert_allclose(grad(f)(X), 3 * X**2, rtol=1e-15)


def test_an_exception_in_one_thread_leaves_the_others_alone() -> None:
    def work(k: int) -> Any:
        for _ in range(30):
            if k % 2:
                with pytest.raises(ZeroDivisionError):
                    grad(lambda x: np.sum(np.sin(x)) + 1 / 0)(X)
            np.testing.assert_array_equal(grad(lambda x: np.sum(x * x))(X), 2 * X)
        return True

    assert all(together(work))


def test_threads_that_come_and_go() -> None:
    """A short-lived thread leaves nothing behind."""
    results: list[Any] = []
    for _ in range(50):
        thread = threading.Thread(target=lambda: results.append(grad(lambda x: np.sum(x**2))(X)))
        thread.start()
        thread.join()
    assert len(results) == 50
    for g in results:
        np.testing.assert_array_equal(g, 2 * X)
