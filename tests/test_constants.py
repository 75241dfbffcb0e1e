"""Large constants: they are not copied but read-only while they are recorded, and only then."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import ops
from tape import ConstantChangedError, grad

LARGE = 50_000


def large() -> Any:
    return np.linspace(0.0, 1.0, LARGE)


def test_a_large_constant_is_read_only_while_it_is_recorded() -> None:
    c = large()

    def f(x: Any) -> Any:
        y = np.sum(x * c)
        assert not c.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            c[0] = 7.0
        return y

    np.testing.assert_array_equal(grad(f)(np.ones(LARGE)), c)
    assert c.flags.writeable
    c[0] = 7.0


def test_it_is_writeable_again_after_an_exception() -> None:
    c = large()
    for error in (KeyError, TypeError, KeyboardInterrupt):

        def f(x: Any, error: Any = error) -> Any:
            np.sum(x * c)
            raise error

        with pytest.raises(error):
            grad(f)(np.ones(LARGE))
        assert c.flags.writeable
    with pytest.raises(TypeError):
        grad(lambda x: x * c)(np.ones(LARGE))
    assert c.flags.writeable


def test_views_of_a_large_constant() -> None:
    base = np.linspace(0.0, 1.0, 2 * LARGE).reshape(2, LARGE).copy()
    row, back = base[1], base[0][::-1]

    def f(x: Any) -> Any:
        y = np.sum(x * row) + np.sum(x * back)
        for array in (base, row):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 7.0
        return y

    np.testing.assert_array_equal(grad(f)(np.ones(LARGE)), row + back)
    for array in (base, row, back):
        assert array.flags.writeable
        array[...] = 1.0
    assert np.all(base == 1.0)


def test_a_write_through_another_view_is_noticed() -> None:
    base = large()
    other = base[:]

    def f(x: Any) -> Any:
        y = np.sum(x * base)
        other[:] = 7.0
        return y

    with pytest.raises(ConstantChangedError, match="copy it before you use it"):
        grad(f)(np.ones(LARGE))
    assert base.flags.writeable
    np.testing.assert_array_equal(grad(lambda x: np.sum(x * base))(np.ones(LARGE)), np.full(LARGE, 7.0))


def test_a_view_that_is_recorded_alone() -> None:
    base = large()
    f = grad(lambda x: np.sum(x * base[1:]))
    np.testing.assert_array_equal(f(np.ones(LARGE - 1)), base[1:])
    assert base.flags.writeable
    np.testing.assert_array_equal(f(np.ones(LARGE - 1)), base[1:])
    assert base.flags.writeable


def test_a_constant_that_was_read_only_stays_so() -> None:
    c = large()
    c.flags.writeable = False
    grad(lambda x: np.sum(x * c))(np.ones(LARGE))
    assert not c.flags.writeable
    base = large()
    view = base[:]
    view.flags.writeable = False
    grad(lambda x: np.sum(x * view))(np.ones(LARGE))
    assert base.flags.writeable
    assert not view.flags.writeable


def test_a_constant_used_many_times() -> None:
    c = large()

    def f(x: Any) -> Any:
        for _ in range(5):
            x = x * c + c
        return np.sum(x)

    grad(f)(np.ones(LARGE))
    assert c.flags.writeable


def test_a_constant_shared_between_threads() -> None:
    """It is read-only until the last of them is done with it."""
    c = large()
    expected = c.copy()
    entered, leave = threading.Barrier(3), [threading.Event() for _ in range(2)]
    got: list[Any] = [None, None]

    def work(k: int) -> None:
        def f(x: Any) -> Any:
            y = np.sum(x * c) * (k + 1.0)
            entered.wait(30)
            assert leave[k].wait(30)
            return y

        got[k] = grad(f)(np.ones(LARGE))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    entered.wait(30)
    assert not c.flags.writeable
    leave[0].set()
    threads[0].join()
    assert not c.flags.writeable
    leave[1].set()
    threads[1].join()
    assert c.flags.writeable
    for k in range(2):
        np.testing.assert_array_equal(got[k], expected * (k + 1))


def test_a_constant_freed_while_it_is_recorded() -> None:
    def f(x: Any) -> Any:
        c = large()
        y = np.sum(x * c)
        del c
        other = [np.full(LARGE, 9.0) for _ in range(4)]
        assert other
        return y

    np.testing.assert_array_equal(grad(f)(np.ones(LARGE)), large())


def test_a_temporary_constant_is_not_kept_after_the_call() -> None:
    c = large()
    count = sys.getrefcount(c)
    seen = weakref.ref(c)
    grad(lambda x, c: np.sum(x * c + c[::-1]))(np.ones(LARGE), c)
    gc.collect()
    assert sys.getrefcount(c) == count
    del c
    gc.collect()
    assert seen() is None


def test_large_arguments_that_are_not_differentiated() -> None:
    c = large()
    np.testing.assert_array_equal(grad(lambda x, c: np.sum(x * c))(np.ones(LARGE), c), c)
    assert c.flags.writeable


def test_large_integer_and_boolean_constants() -> None:
    k, m = np.arange(LARGE)[::-1].copy(), np.arange(LARGE) % 3 == 0
    w = large()
    g = grad(lambda x: np.sum(x[k] * w) + np.sum(x[m]) + np.sum(np.where(m, x, 0.0)))(np.ones(LARGE))
    np.testing.assert_array_equal(g, w[::-1] + 2.0 * m)
    assert k.flags.writeable
    assert m.flags.writeable


def test_writing_a_large_constant_into_a_recorded_array() -> None:
    c = large()

    def f(x: Any) -> Any:
        y = np.zeros_like(x)
        y[:] = c
        y *= x
        z = ops.zeros(LARGE)
        z[...] = y
        return np.sum(z)

    np.testing.assert_array_equal(grad(f)(np.ones(LARGE)), c)
    assert c.flags.writeable
