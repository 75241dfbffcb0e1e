"""Memory: tapes are freed and used again, and large constants are read-only only while they are recorded."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from growing import growth

from tape import StaleTensorError, grad, memory, value_and_grad

X = np.linspace(0.1, 1.0, 20)
LARGE = 50_000


def small(x: Any) -> Any:
    y = np.sin(x) * x + 1.0
    y[0] = x[1] * 2.0
    return np.sum(y) + y @ x


def varied(x: Any) -> Any:
    y = np.sin(x) * x + 1.0
    view = y[2:5]
    view *= 3.0
    return np.mean(x[np.array([0, 0, 3])]) + np.sum(np.where(x > 0.5, x, y)) + np.sum(np.stack([x, y]) ** 2)


def test_ten_thousand_calls_do_not_grow() -> None:
    traced, resident = growth(lambda k: grad(small)(X), 10_000)
    assert traced < 50_000
    assert resident < 8e6


def test_calls_with_views_and_functions_of_the_host_do_not_grow() -> None:
    traced, resident = growth(lambda k: grad(varied)(X), 1_000)
    assert traced < 50_000
    assert resident < 8e6


def test_calls_with_changing_constants_do_not_grow() -> None:
    """Constants are values of one tape, not something that is remembered."""
    traced, resident = growth(lambda k: grad(lambda t: t * (k + 0.5) + k / 7.0)(1.5), 10_000)
    assert traced < 50_000
    assert resident < 4e6


def test_new_functions_and_containers_do_not_grow() -> None:
    traced, _ = growth(lambda k: value_and_grad(lambda p: np.sum(p["a"] * p["b"][0]))({"a": X, "b": [2.0]}), 3_000)
    assert traced < 50_000


def test_changing_shapes_grow_only_so_far() -> None:
    """Instructions for layouts are kept, but not without bound."""

    def work(k: int) -> None:
        x = np.ones(1 + k % 3000)
        grad(lambda x: np.sum(np.sin(x) * x))(x)

    traced, resident = growth(work, 3_000, warm=6_000)
    assert traced < 1e6
    assert resident < 10e6


def test_large_arrays_are_used_again() -> None:
    x = np.ones(200_000)
    traced, resident = growth(lambda k: grad(lambda x: np.sum(np.sin(x) * np.cos(x)))(x), 100, warm=5)
    assert traced < 100_000
    assert resident < 20e6


def test_exceptions_do_not_grow() -> None:
    def work(k: int) -> None:
        with pytest.raises(KeyError):
            grad(lambda x: np.sum(np.sin(x) * x) + {}["a"])(X)

    traced, resident = growth(work, 2_000)
    assert traced < 50_000
    assert resident < 4e6


def test_errors_of_the_library_do_not_grow() -> None:
    def work(k: int) -> None:
        with pytest.raises(TypeError):
            grad(lambda x: np.sin(x) * x)(X)
        with pytest.raises(TypeError):
            grad(lambda x: np.sum(np.asarray(x)))(X)

    traced, _ = growth(work, 1_000)
    assert traced < 50_000


def test_threads_do_not_grow() -> None:
    def work(k: int) -> None:
        thread = threading.Thread(target=lambda: grad(small)(X))
        thread.start()
        thread.join()

    traced, resident = growth(work, 100, warm=20)
    assert traced < 200_000
    assert resident < 30e6


def test_a_tape_is_freed_after_the_call_and_after_an_exception() -> None:
    tapes: list[Any] = []

    def f(x: Any, fail: bool) -> Any:
        tapes.append(weakref.ref(x._tape))
        y = np.sum(np.sin(x))
        if fail:
            raise KeyError("mine")
        return y

    grad(f)(X, False)
    try:
        grad(f)(X, True)
    except KeyError as error:
        del error
    gc.collect()
    assert [t() for t in tapes] == [None, None]


def test_the_exception_keeps_its_type_and_traceback() -> None:
    def f(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        grad(f)(X)
    assert caught.traceback[-1].name == "f"


def test_tensors_dropped_inside_the_function_are_freed() -> None:
    def f(x: Any) -> Any:
        y = np.sin(x)
        seen = weakref.ref(y)
        z = y * 2.0
        del y
        assert seen() is None
        return np.sum(z)

    gc.disable()
    try:
        grad(f)(X)
    finally:
        gc.enable()


def test_a_kept_tensor_does_not_keep_the_arrays() -> None:
    """It is refused (test_errors), and costs only itself."""
    kept: list[Any] = []
    x = np.ones(100_000)

    def work(k: int) -> None:
        grad(lambda x: (kept.append(np.sum(x) * 1.0), np.sum(x * x))[1])(x)

    traced, _ = growth(work, 50, warm=10)
    assert traced < 1e6
    with pytest.raises(StaleTensorError):
        kept[0] + 1.0


def test_memory_is_not_shared_between_calls() -> None:
    """A result keeps its values while its tape's memory serves others."""
    kept = [value_and_grad(lambda x, k=k: np.sum(x * x * k))(X) for k in range(50)]
    for k, (value, g) in enumerate(kept):
        assert value == np.sum(X * X * k)
        np.testing.assert_allclose(g, 2 * X * k, rtol=1e-15)
    aux = [grad(lambda x, k=k: (np.sum(x), x * float(k)), has_aux=True)(np.ones(LARGE))[1] for k in range(10)]
    for k, a in enumerate(aux):
        np.testing.assert_array_equal(a, float(k))


def test_bytes_per_operation_of_a_long_chain() -> None:
    n = 200_000

    def f(x: Any) -> Any:
        for _ in range(n // 2):
            x = x * 1.0000001 + 1e-7
        return x

    found: list[Any] = []

    def measured() -> None:
        grad(lambda x: (found.append(x._tape.workspace), f(x))[1])(1.0)
        found.extend(memory._idle.memories)

    # A new thread has no memory of longer tapes.
    thread = threading.Thread(target=measured)
    thread.start()
    thread.join()
    space, swept = found
    assert len(swept.cells) >= n
    values, adjoints = space.entries.nbytes, swept.cells.nbytes + swept.active.nbytes + swept.last_use.nbytes
    adjoints += len(swept.arena[0])
    assert (values + adjoints) / n < 120
