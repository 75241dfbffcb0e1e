"""Python's own control flow inside a differentiated function, long programs, and programs that stop half way."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ops
from tape import grad, value_and_grad

X = np.array([1.0, -2.0, 0.5, 3.0])


# ---------------------------------------------------------------- long programs
def test_a_chain_of_a_million_operations() -> None:
    def f(x: Any) -> Any:
        for _ in range(500_000):
            x = x * 1.000001 + 1e-7
        return x

    limit = sys.getrecursionlimit()
    assert grad(f)(1.0) == pytest.approx(1.000001**500_000, rel=1e-9)
    assert sys.getrecursionlimit() == limit


def test_a_long_chain_of_arrays() -> None:
    def f(x: Any) -> Any:
        for _ in range(20_000):
            x = x + 1e-4 * x
        return np.sum(x)

    np.testing.assert_allclose(grad(f)(X), (1 + 1e-4) ** 20_000, rtol=1e-10)


def test_a_value_used_many_times() -> None:
    def f(x: Any) -> Any:
        total = x * 0.0
        for k in range(10_000):
            total = total + x * float(k)
        return total

    assert grad(f)(1.0) == 9_999 * 10_000 / 2


def test_a_value_doubled_many_times() -> None:
    """2 ** 60 paths through 60 additions."""

    def f(x: Any) -> Any:
        for _ in range(60):
            x = x + x
        return x

    assert grad(f)(1.0) == 2.0**60


def test_deep_recursion_of_the_user() -> None:
    def power(x: Any, n: int) -> Any:
        return x if n == 1 else x * power(x, n - 1)

    assert grad(lambda x: power(x, 300))(1.0) == 300.0


# ---------------------------------------------------------------- branches and loops
def test_branches() -> None:
    f = grad(lambda x: x**2 if x > 1 else 3 * x)
    assert [f(0.5), f(2.0), f(1.0), f(-1.0)] == [3.0, 4.0, 3.0, 3.0]


def test_a_branch_on_an_array() -> None:
    def f(x: Any) -> Any:
        if np.all(x > 0):
            return np.sum(np.log(x))
        if (x < -1).any() and not x[0] < 0:
            return np.sum(x**2)
        return np.max(x)

    np.testing.assert_allclose(grad(f)(np.abs(X)), 1 / np.abs(X), rtol=1e-15)
    np.testing.assert_array_equal(grad(f)(X), 2 * X)
    np.testing.assert_array_equal(grad(f)(np.array([0.0, 5.0, -0.5])), [0.0, 1.0, 0.0])


def test_logic_of_python() -> None:
    """Match, conditional expressions, `and`, `or`, chained comparisons, min, max, sorted, sum, any, all, in."""

    def f(x: Any) -> Any:
        match x.shape:
            case (n,):
                y = x * n
            case _:
                y = x
        a = y[0] if 0 < y[0] < 10 and y[1] < 0 else y[1]
        b = min(y[1], y[2]) + max(y, key=abs)
        c = sorted(y)[1] + sum(y) + (y[0] or 1.0)
        assert any(v > 11 for v in y)
        assert not all(v > 0 for v in y)
        assert 12.0 in y
        assert 11.0 not in y
        return a + b + c

    # 4 * (x0 + (x1 + x3) + (x2 + sum(x) + x0))
    np.testing.assert_array_equal(grad(f)(X), [12.0, 8.0, 8.0, 8.0])


def test_a_while_loop_on_a_value() -> None:
    def root(a: Any) -> Any:
        x = a
        while abs(x * x - a) > 1e-12:
            x = 0.5 * (x + a / x)
        return x

    for a in (2.0, 9.0, 0.01):
        assert grad(root)(a) == pytest.approx(0.5 / np.sqrt(a), rel=1e-6)


def test_a_loop_whose_length_depends_on_the_data() -> None:
    def f(x: Any) -> Any:
        n = 0
        while x < 100.0:
            x, n = x * x, n + 1
            if n == 3:
                break
        else:
            x = x + 1.0
        return x * n

    # From 2: 4, 16, 256 by three squarings; from 20: 400 by one.
    assert value_and_grad(f)(2.0) == (256.0 * 3, 3 * 8 * 2.0**7)
    assert value_and_grad(f)(20.0) == (401.0, 40.0)


def test_int_and_round_of_a_value() -> None:
    def f(x: Any) -> Any:
        n = int(x)
        return x**n + round(x) * 2.0 + range(5)[n]

    assert grad(f)(2.5) == 5.0


def test_generators_closures_and_exceptions_inside() -> None:
    def walk(x: Any) -> Iterator[Any]:
        while True:
            x = x * 0.5
            if x < 0.1:
                return
            yield x

    def f(x: Any) -> Any:
        terms = list(walk(x))
        try:
            terms.append(terms[100])
        except IndexError:
            terms.append(x**2)
        return sum(terms)

    # 0.5, 0.25, 0.125 and 2 x
    assert grad(f)(1.0) == 2.875


def test_changing_shapes() -> None:
    g = grad(lambda x: np.sum(np.sin(x) * x))
    for shape in [(3,), (5,), (3,), (2, 3), (), (0,), (3,), (1, 1, 1), (700,), (3,), (40, 50)]:
        x = np.random.default_rng(0).normal(size=shape)
        got = g(x)
        assert np.shape(got) == shape
        np.testing.assert_allclose(got, np.sin(x) + x * np.cos(x), rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(g(x.astype(np.float32)), got, rtol=2e-5, atol=1e-6)


def test_shapes_that_depend_on_values() -> None:
    def f(x: Any) -> Any:
        positive = x[x > 0]
        return np.sum(positive**2) * len(positive) + np.sum(x[: int(x[3])])

    np.testing.assert_array_equal(grad(f)(X), [2 * 3 * 1.0 + 1, 1.0, 2 * 3 * 0.5 + 1, 2 * 3 * 3.0])
    np.testing.assert_array_equal(grad(f)(np.array([-1.0, -2.0, -3.0, 2.0])), [1.0, 1.0, 0.0, 4.0])


def test_results_of_a_loop_collected_in_a_list() -> None:
    def f(x: Any) -> Any:
        states, v = [], x[0]
        for _ in range(50):
            v = v + 0.1 * (x[1] - v)
            states.append(v)
        return np.sum(np.stack(states) ** 2) + np.sum(ops.array(states)[10:])

    g = grad(f)(np.array([1.0, 3.0]))
    r = 0.9 ** np.arange(1, 51)
    v = 3.0 - 2.0 * r
    w = 2 * v + (np.arange(50) >= 10)
    np.testing.assert_allclose(g, [np.sum(w * r), np.sum(w * (1 - r))], rtol=1e-12)


# ---------------------------------------------------------------- programs that stop half way
class Boom(Exception):
    """An error of the user."""


@pytest.mark.parametrize("error", [Boom, KeyboardInterrupt, SystemExit, GeneratorExit, RecursionError])
def test_an_exception_leaves_everything_usable(error: type[BaseException]) -> None:
    expected = grad(lambda x: np.sum(np.exp(x)))(X)
    x = X.copy()

    def f(x: Any) -> Any:
        y = np.exp(x)
        y[1] = 5.0
        view = y[1:]
        view += x[0]
        raise error

    for _ in range(3):
        with pytest.raises(error):
            grad(f)(x)
        np.testing.assert_array_equal(x, X)
        np.testing.assert_array_equal(grad(lambda x: np.sum(np.exp(x)))(X), expected)
        # Nothing is being recorded.
        assert type(ops.zeros(3)) is np.ndarray
        assert type(np.zeros_like(X)) is np.ndarray


def test_an_exception_in_the_middle_of_a_write() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        y[0] = x[1]
        for write in (
            lambda: y.__setitem__(9, 1.0),
            lambda: y.__setitem__(slice(2), np.ones(3)),
            lambda: y.__iadd__(np.ones(2)),
        ):
            with pytest.raises((IndexError, ValueError)):
                write()
        y[2] = 4.0
        return np.sum(y * y)

    np.testing.assert_array_equal(grad(f)(X), [0.0, 2 * X[1] * 2, 0.0, 2 * X[3]])


def test_an_exception_in_the_middle_of_an_operation() -> None:
    """What failed leaves no entry that the sweep would trip over."""

    def f(x: Any) -> Any:
        y = np.sin(x)
        for attempt in (
            lambda: y + np.ones(3),
            lambda: y @ np.ones(9),
            lambda: y.reshape(5),
            lambda: np.concatenate([y, np.ones((2, 2))]),
        ):
            with pytest.raises(ValueError, match=r"."):
                attempt()
        return np.sum(y)

    np.testing.assert_allclose(grad(f)(X), np.cos(X), rtol=1e-15)


def test_floating_point_errors_of_numpy_are_numpys() -> None:
    with np.errstate(all="raise"):
        with pytest.raises(FloatingPointError):
            grad(lambda x: np.sum(np.log(x - 1.0)))(X[:1])
        np.testing.assert_allclose(grad(lambda x: np.sum(np.sqrt(x)))(np.array([4.0])), [0.25])
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        grad(lambda x: np.sum(np.log(x - 1.0)))(X[:1])
    with pytest.warns(RuntimeWarning, match="invalid value"):
        grad(lambda x: np.sum(np.sqrt(x)))(X)


def test_division_of_numbers_by_zero() -> None:
    """A Python number divided by zero raises in Python; recorded numbers follow NumPy, with its warning."""
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert grad(lambda x: 1.0 / x)(0.0) == -np.inf
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert value_and_grad(lambda x: x / 0.0)(1.0) == (np.inf, np.inf)


# ---------------------------------------------------------------- inside one another
def test_calls_in_turn() -> None:
    a, b = grad(lambda x: np.sum(x**2)), value_and_grad(lambda x, y: np.sum(x * y), (0, 1))
    for k in range(20):
        np.testing.assert_array_equal(a(X * k), 2 * k * X)
        value, (gx, gy) = b(X, X + k)
        assert value == np.sum(X * (X + k))
        np.testing.assert_array_equal(gx, X + k)
        np.testing.assert_array_equal(gy, X)


def test_a_generator_that_records_is_resumed_outside() -> None:
    """What it made on the finished tape is refused, and the next call is unharmed."""
    made: list[Any] = []

    def steps(x: Any) -> Iterator[Any]:
        yield x * 2.0
        yield x * 3.0

    def f(x: Any) -> Any:
        made.append(steps(x))
        return np.sum(next(made[0]))

    np.testing.assert_array_equal(grad(f)(X), 2.0)
    with pytest.raises(RuntimeError, match="outlived"):
        next(made[0])
    np.testing.assert_array_equal(grad(lambda x: np.sum(x))(X), 1.0)
