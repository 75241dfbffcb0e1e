"""Arrays filled element by element or row by row, in time and memory that grow linearly."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plain import A, agree, weighted

import ops
from tape import grad


# ---------------------------------------------------------------- filling
def test_filling_by_a_recurrence() -> None:
    n = 2000

    def f(x: Any) -> Any:
        y = np.zeros_like(x)
        y[0] = x[0]
        for i in range(1, n):
            y[i] = 0.5 * y[i - 1] + x[i]
        return np.sum(y)

    g = grad(f)(np.ones(n))
    np.testing.assert_allclose(g, 2 * (1 - 0.5 ** np.arange(n, 0, -1)), rtol=1e-13)


def test_filling_with_ops_zeros_and_reading_back() -> None:
    def f(x: Any) -> Any:
        y = ops.zeros(5)
        y[0], y[1] = x[0], x[1]
        for i in range(2, 5):
            y[i] = y[i - 1] * y[i - 2]
        y[1] = 0.0
        y[-1] += y[0]
        return y[4] + y[1]

    # x0 ** 2 * x1 ** 3 + x0
    np.testing.assert_allclose(grad(f)(np.array([2.0, 3.0])), [2 * 2 * 27 + 1, 4 * 27])


def test_filling_rows_and_elements_in_turn() -> None:
    def f(a: Any) -> Any:
        b = np.zeros_like(a)
        b[0] = a[0] * 2
        b[1] = b[0] * a[1]
        b[1, 2] = a[2, 2]
        b[2, 0] = b[1, 1]
        b[2, 0] += b[1, 2] * a[0, 0]
        b[0] += b[2]
        return weighted(b**2)

    agree(f, A)


def seconds_per_element(f: Callable[[Any], Any], n: int) -> float:
    """Time the gradient of f at n elements: the best of three."""
    best = np.inf
    for _ in range(3):
        start = time.perf_counter()
        grad(f)(np.full(n, 0.5))
        best = min(best, time.perf_counter() - start)
    return best / n


def fill(x: Any) -> Any:
    y = np.zeros_like(x)
    for i in range(len(x)):
        y[i] = x[i] * x[i]
    return np.sum(y)


def recur(x: Any) -> Any:
    y = np.zeros_like(x)
    y[0] = x[0]
    for i in range(1, len(x)):
        y[i] = np.sin(y[i - 1]) + x[i]
    return np.sum(y)


def accumulate(x: Any) -> Any:
    y = x * 0.0
    for i in range(len(x) - 1):
        y[i] += x[i] * 0.5
        y[i + 1] += y[i]
    return np.sum(y)


def rows(x: Any) -> Any:
    y = np.zeros_like(x, shape=(len(x) // 4, 4))
    for i in range(len(y)):
        y[i] = x[4 * i : 4 * i + 4]
        y[i, 1] = 2.0 * x[i]
    return np.sum(y)


def append(x: Any) -> Any:
    y = []
    for i in range(len(x)):
        y.append(x[i] * 2.0)
    return np.sum(ops.array(y))


@pytest.mark.parametrize("f", [fill, recur, accumulate])
def test_filling_element_by_element_is_linear(f: Callable[[Any], Any]) -> None:
    grad(f)(np.full(8, 0.5))
    small = seconds_per_element(f, 2_000)
    start = time.perf_counter()
    g = grad(f)(np.full(100_000, 0.5))
    large = (time.perf_counter() - start) / 100_000
    # A quadratic cost would make it 50 times.
    assert large < 5 * small
    assert g.shape == (100_000,)
    assert np.all(np.isfinite(g))
    if f is fill:
        np.testing.assert_array_equal(g, 1.0)


def test_filling_rows_of_a_large_matrix() -> None:
    def f(x: Any) -> Any:
        y = ops.zeros((5000, 20))
        for i in range(5000):
            y[i] = x * float(i)
        return np.sum(y)

    np.testing.assert_array_equal(grad(f)(np.ones(20)), np.full(20, 4999 * 5000 / 2))


def test_alternating_rows_and_elements() -> None:
    g = grad(rows)(np.arange(40.0))
    expected = np.ones(40)
    expected[1::4] = 0.0
    expected[:10] += 2.0
    np.testing.assert_array_equal(g, expected)
