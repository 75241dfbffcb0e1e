"""Writing in place: what NumPy does to plain arrays happens to recorded ones, and gradients follow.

The oracle is the same function on plain arrays: its value, bit for bit, and its finite differences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plain import A, X, agree, weighted

from tape import grad, value_and_grad


# ---------------------------------------------------------------- single writes
def writes() -> dict[str, Callable[[Any, Any], None]]:
    """Name every kind of write to a matrix a of shape (3, 4), of values made from a vector v of length 4."""

    def element(a: Any, v: Any) -> None:
        a[1, 2] = v[0] * v[1]

    def negative(a: Any, v: Any) -> None:
        a[-1, -4] = v[3]

    def row(a: Any, v: Any) -> None:
        a[1] = v * 2

    def column(a: Any, v: Any) -> None:
        a[:, 1] = v[:3] ** 2

    def broadcast_row(a: Any, v: Any) -> None:
        a[:2] = v

    def broadcast_number(a: Any, v: Any) -> None:
        a[1:, ::2] = v[2] * v[2]

    def broadcast_column(a: Any, v: Any) -> None:
        a[:, 1:3] = v[:3, None]

    def everything(a: Any, v: Any) -> None:
        a[...] = v

    def colon(a: Any, v: Any) -> None:
        a[:] = v[0]

    def constant(a: Any, v: Any) -> None:
        a[0] = 7.0

    def constant_row(a: Any, v: Any) -> None:
        a[2] = [1, 2, 3, 4]

    def integers(a: Any, v: Any) -> None:
        a[1] = np.arange(4)

    def boolean(a: Any, v: Any) -> None:
        a[0, 0] = True

    def list_of_recorded(a: Any, v: Any) -> None:
        a[1] = [v[0], 2.0, v[1] * v[2], 0]

    def mask(a: Any, v: Any) -> None:
        a[a > 0] = 0.25

    def mask_of_rows(a: Any, v: Any) -> None:
        a[np.array([True, False, True])] = v

    def mask_with_values(a: Any, v: Any) -> None:
        m = np.array([[True, False, True, False], [False] * 4, [False, True, True, False]])
        a[m] = v

    def recorded_mask(a: Any, v: Any) -> None:
        a[:, v > 0] *= 3.0

    def rows(a: Any, v: Any) -> None:
        a[np.array([2, 0])] = np.sin(v)

    def list_of_rows(a: Any, v: Any) -> None:
        a[[2, 0]] = v

    def repeated_rows(a: Any, v: Any) -> None:
        a[np.array([1, 1, 2])] = np.stack([v, v * 3, v * 5])

    def points(a: Any, v: Any) -> None:
        a[np.array([0, 1, 2]), np.array([3, 1, 0])] = v[1:]

    def repeated_points(a: Any, v: Any) -> None:
        a[np.array([0, 0, 0, 2]), np.array([1, 1, 1, 0])] = v

    def mixed(a: Any, v: Any) -> None:
        a[1:, np.array([3, 0])] = v[:2]

    def new_axis(a: Any, v: Any) -> None:
        a[None, 1] = v

    def reverse(a: Any, v: Any) -> None:
        a[::-1, ::-2] = v[:2]

    def empty(a: Any, v: Any) -> None:
        a[3:] = v
        a[np.zeros(0, int)] = 1.0

    def nothing_masked(a: Any, v: Any) -> None:
        a[a > 1e9] = v[0]

    def add(a: Any, v: Any) -> None:
        a += v

    def subtract(a: Any, v: Any) -> None:
        a -= v[0]

    def multiply(a: Any, v: Any) -> None:
        a *= v

    def divide(a: Any, v: Any) -> None:
        a /= v

    def power(a: Any, v: Any) -> None:
        a **= 3

    def floor_divide(a: Any, v: Any) -> None:
        a //= 0.3

    def modulo(a: Any, v: Any) -> None:
        a %= 0.7

    def matmul(a: Any, v: Any) -> None:
        a @= np.outer(v, v)

    def add_to_interior(a: Any, v: Any) -> None:
        a[1:-1, 1:-1] += v[:2] * v[2]

    def add_to_element(a: Any, v: Any) -> None:
        a[0, 1] += v[0]
        a[0, 1] *= v[1]

    def add_to_rows(a: Any, v: Any) -> None:
        a[np.array([0, 0, 2])] += v  # once, as NumPy does

    def add_at(a: Any, v: Any) -> None:
        np.add.at(a, np.array([0, 0, 2]), v)

    def subtract_at(a: Any, v: Any) -> None:
        np.subtract.at(a, (np.array([0, 0, 2]), np.array([1, 1, 1])), v[:3])

    def add_at_number(a: Any, v: Any) -> None:
        np.add.at(a, np.array([1, 1]), 2.0)

    def itself(a: Any, v: Any) -> None:
        a[1] = a[0]
        a[0] = a[1] * v

    def own_reverse(a: Any, v: Any) -> None:
        a[:] = a[::-1]

    def shifted(a: Any, v: Any) -> None:
        a[1:] = a[:-1]

    def shifted_sum(a: Any, v: Any) -> None:
        a[1:] += a[:-1]

    def swap(a: Any, v: Any) -> None:
        a[[0, 1]] = a[[1, 0]]

    def fill(a: Any, v: Any) -> None:
        a.fill(2.5)

    def out(a: Any, v: Any) -> None:
        np.multiply(a, v, out=a)

    def out_of_row(a: Any, v: Any) -> None:
        np.exp(v, out=a[1])

    def out_masked(a: Any, v: Any) -> None:
        np.sin(v, out=a, where=np.array([True, False, True, True]))

    def copyto(a: Any, v: Any) -> None:
        np.copyto(a, v)

    def copyto_masked(a: Any, v: Any) -> None:
        np.copyto(a, v, where=a > 0)

    def fill_diagonal(a: Any, v: Any) -> None:
        np.fill_diagonal(a, v[0])

    def put(a: Any, v: Any) -> None:
        np.put(a, [0, 5, 5], v[:3])

    def putmask(a: Any, v: Any) -> None:
        np.putmask(a, a > 0, a * 3)

    def twice(a: Any, v: Any) -> None:
        a[0] = v
        a[0, 1] = v[1] * 3
        a[:, 1] += 1.0
        a[0] = a[0] * a[0]

    return {name: f for name, f in locals().items() if callable(f)}


@pytest.mark.parametrize("name", writes())
def test_write(name: str) -> None:
    write = writes()[name]

    def f(a: Any, v: Any) -> Any:
        b = a * 1.0
        before = b * b
        write(b, v)
        return weighted(b**2) + weighted(before)

    agree(f, A, X)

    def on_the_argument(a: Any, v: Any) -> Any:
        write(a, v)
        return weighted(np.tanh(a))

    agree(on_the_argument, A, X)

    def into_zeros(a: Any, v: Any) -> Any:
        b = np.zeros_like(a)
        write(b, v)
        return weighted(b * a)

    agree(into_zeros, A, X)


@pytest.mark.parametrize("name", writes())
def test_write_float32(name: str) -> None:
    write = writes()[name]

    def f(a: Any, v: Any) -> Any:
        b = a * 1
        write(b, v)
        assert b.dtype == np.float32
        return np.sum(b * b)

    with np.errstate(all="ignore"):
        value, (ga, gv) = value_and_grad(f, (0, 1))(A.astype(np.float32), X.astype(np.float32))
        expected, (ea, ev) = value_and_grad(
            lambda a, v: (b := a * 1, write(b, v), np.sum(b * b))[-1], (0, 1)
        )(A, X)  # fmt: skip
    assert value.dtype == ga.dtype == gv.dtype == np.float32
    if name in ("modulo", "floor_divide"):  # of another value where it jumps
        return
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(ga, ea, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(gv, ev, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- closed forms
def test_the_last_write_wins() -> None:
    def f(v: Any) -> Any:
        y = np.zeros_like(v)
        y[np.array([1, 1, 1])] = v[:3]
        return np.sum(y * 10.0)

    np.testing.assert_array_equal(grad(f)(X), [0.0, 0.0, 10.0, 0.0])


def test_overwritten_values_get_no_gradient() -> None:
    def f(v: Any) -> Any:
        y = v * v
        y[1] = 5.0
        y[2] = v[0]
        return np.sum(y)

    np.testing.assert_array_equal(grad(f)(X), [2 * X[0] + 1, 0.0, 0.0, 2 * X[3]])


def test_what_used_the_old_value_keeps_it() -> None:
    def f(v: Any) -> Any:
        y = np.exp(v)
        z = y * y
        y[1] = 0.0
        y *= 2.0
        return np.sum(z)

    np.testing.assert_allclose(grad(f)(X), 2 * np.exp(2 * X), rtol=1e-15)


def test_an_overwritten_infinite_slope_leaves_no_trace() -> None:
    def f(v: Any) -> Any:
        y = np.sqrt(v)
        y[0] = 1.0
        return np.sum(y)

    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(grad(f)(np.array([0.0, 4.0])), [0.0, 0.25])


def test_a_name_bound_to_the_argument_sees_its_writes() -> None:
    def f(v: Any) -> Any:
        same = v
        v *= 3.0
        assert same is v
        return np.sum(same * same)

    agree(f, X)


def test_augmented_assignment_of_a_number_binds_a_new_value() -> None:
    def f(t: Any) -> Any:
        old = t
        t += 1.0
        t *= t
        return t * old

    assert grad(f)(2.0) == 9.0 + 2.0 * 6.0


def test_augmented_assignment_to_a_plain_array_makes_a_recorded_one() -> None:
    """As in `total = np.float64(0); total += t`: a NumPy number is replaced, an array is refused (test_errors)."""

    def f(v: Any) -> Any:
        total = np.float64(0.0)
        for t in v:
            total += t * t
        return total

    np.testing.assert_array_equal(grad(f)(X), 2 * X)


def test_a_write_casts_to_the_dtype_of_the_array() -> None:
    def f(v: Any) -> Any:
        y = v.astype(np.float32)
        y[0] = v[1] * v[1]
        assert y.dtype == np.float32
        return np.sum(y)

    np.testing.assert_allclose(grad(f)(X), [0.0, 1 + 2 * X[1], 1.0, 1.0])


def test_writing_a_mask_or_an_integer_array() -> None:
    def f(v: Any) -> Any:
        m = v > 0
        m[1] = True
        k = np.zeros_like(v, dtype=int)
        k[0] = 2
        k[v > 2] = 3
        return np.sum(v[m]) + np.sum(v[k])

    agree(f, X)


# ---------------------------------------------------------------- inputs and results
def test_the_caller_sees_nothing_of_the_writes() -> None:
    x, p = X.copy(), {"w": A.copy(), "b": [X.copy()]}
    extra = np.ones(4)

    def f(x: Any, p: Any) -> Any:
        x *= 2.0
        p["w"][0] = x
        p["w"].T[1] = 0.0
        row = p["b"][0]
        row += x
        p["new"] = 1
        return np.sum(p["w"]) + np.sum(row * x * extra)

    grad(f, (0, 1))(x, p)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(p["w"], A)
    np.testing.assert_array_equal(p["b"][0], X)
    assert set(p) == {"w", "b"}


def test_a_constant_that_changes_after_its_use() -> None:
    """What was recorded is the value at the time of use."""
    c = np.array([1.0, 2.0, 3.0, 4.0])

    def f(x: Any) -> Any:
        y = x * c
        c[:] = 100.0
        return np.sum(y)

    np.testing.assert_array_equal(grad(f)(X), [1.0, 2.0, 3.0, 4.0])


def test_a_read_only_argument() -> None:
    x = X.copy()
    x.flags.writeable = False

    def f(x: Any) -> Any:
        x[0] = x[1] * 2
        return np.sum(x)

    np.testing.assert_array_equal(grad(f)(x), [0.0, 3.0, 1.0, 1.0])
    assert not x.flags.writeable
