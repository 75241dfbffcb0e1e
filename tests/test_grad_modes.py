"""no_grad, enable_grad, set_grad_enabled: contexts and decorators, nested, thread by thread, undone on exceptions."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tape import Parameter, enable_grad, grad, is_grad_enabled, no_grad, set_grad_enabled, tensor


def test_results_under_no_grad() -> None:
    """PyTorch: results under no_grad require no gradient, have no grad_fn, and are usable later."""
    x = tensor([1.0, 2.0])
    y = x * 3.0
    with no_grad():
        plain = x * x
        mixed = y + x
        view = x[1:]
    for t in (plain, mixed, view):
        assert not t.requires_grad and t.is_leaf and t.grad_fn is None
    np.sum(plain * x + mixed * y).backward()
    np.testing.assert_array_equal(x.grad, [1.0 + 3 * 4.0, 4.0 + 3 * 8.0])


def test_passes_under_no_grad() -> None:
    """PyTorch: backward still works in no_grad on graphs built before (MyGrad: it does nothing)."""
    x = tensor(3.0)
    y = x * x
    with no_grad():
        y.backward()
    assert x.grad == 6.0


def test_factories_are_not_affected() -> None:
    """PyTorch: no_grad does not affect factory functions with requires_grad=True."""
    with no_grad():
        x, w = tensor(2.0), Parameter(3.0)
    assert x.requires_grad and w.requires_grad
    (x * w).backward()
    assert (x.grad, w.grad) == (3.0, 2.0)


def test_contexts_nest() -> None:
    """PyTorch: nestable."""
    x = tensor(2.0)
    modes = []
    results = []

    def note() -> None:
        modes.append(is_grad_enabled())
        results.append((x * x).requires_grad)

    note()
    with no_grad():
        note()
        with enable_grad():
            note()
            with set_grad_enabled(False):
                note()
            note()
        note()
        with set_grad_enabled(True), no_grad():
            note()
    note()
    assert modes == results == [True, False, True, False, True, False, False, True]


@pytest.mark.parametrize("before", [False, True])
def test_what_was_recorded_inside_no_grad_is_paused_again(before: bool) -> None:
    """A tensor that was recorded under enable_grad stands still under no_grad, whether or not there was a tape."""
    x = tensor(2.0)
    earlier = x * 1.0 if before else None
    with no_grad():
        with enable_grad():
            y = x * x
        z = y * 2.0
        w = np.sin(y) + y
    assert y.requires_grad
    assert not z.requires_grad and not w.requires_grad
    (y * z).backward()
    assert x.grad == 4.0 * 8.0
    assert earlier is None or earlier.item() == 2.0


def test_set_grad_enabled_as_a_function() -> None:
    """PyTorch: set_grad_enabled also acts as a plain function at call time."""
    x = tensor(2.0)
    y = x * x
    try:
        set_grad_enabled(False)
        assert not is_grad_enabled()
        assert not (y * x).requires_grad
    finally:
        set_grad_enabled(True)
    assert is_grad_enabled()
    assert (y * x).requires_grad


def test_decorators() -> None:
    """PyTorch: context managers and decorators; a decorator changes nothing until the call."""
    x = tensor(2.0)

    @no_grad()
    def first(t: Any) -> Any:
        """Mine."""
        return t * t

    @no_grad
    def second(t: Any) -> Any:
        return t * t

    @set_grad_enabled(False)
    def third(t: Any) -> Any:
        return t * t

    @enable_grad()
    def fourth(t: Any) -> Any:
        return t * t

    assert is_grad_enabled()
    assert first.__doc__ == "Mine." and first.__name__ == "first"
    for function in (first, second, third, first):
        assert not function(x).requires_grad
        assert is_grad_enabled()
    with no_grad():
        assert fourth(x).requires_grad
        assert not is_grad_enabled()


def test_one_context_used_again_and_inside_itself() -> None:
    x = tensor(2.0)
    mode = no_grad()
    for _ in range(2):
        with mode:
            with mode:
                assert not (x * x).requires_grad
            assert not (x * x).requires_grad
        assert (x * x).requires_grad


def test_a_recursive_decorated_function() -> None:
    x = tensor(2.0)

    @no_grad()
    def power(t: Any, n: int) -> Any:
        return t if n == 1 else t * power(t, n - 1)

    assert power(x, 4).item() == 16.0
    assert (x * x).requires_grad


def test_modes_are_restored_on_exceptions() -> None:
    """PyTorch: restored on exceptions."""
    x = tensor(2.0)
    y = x * x
    for mode in (no_grad, lambda: set_grad_enabled(False)):
        with pytest.raises(KeyError), mode():
            raise KeyError("mine")
        assert is_grad_enabled()
    z = y * x
    assert z.requires_grad
    z.backward()
    assert x.grad == 12.0


def test_modes_belong_to_a_thread() -> None:
    """PyTorch: thread-local."""
    x = tensor(2.0)
    seen: list[Any] = []

    def work() -> None:
        seen.append(is_grad_enabled())
        y = x * x
        seen.append(y.requires_grad)
        with no_grad():
            seen.append((y * x).requires_grad)

    with no_grad():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert not is_grad_enabled()
    assert seen == [True, True, False]


def test_a_mode_around_half_of_a_loop_over_pairs() -> None:
    from tape import backward_pairs

    a, b = Parameter(2.0), Parameter(3.0)
    loss = a * a * b
    pairs = backward_pairs(loss, retain_graph=True)
    with no_grad():
        next(pairs)
    next(pairs)
    with no_grad():
        assert next(pairs, None) is None
        assert not (loss * 2.0).requires_grad
        assert not (a * 2.0).requires_grad
    assert (loss * 2.0).requires_grad


def test_transforms_under_no_grad() -> None:
    """A transform of a plain function goes on to work."""
    x = tensor([1.0, 2.0])
    with no_grad():
        plain = grad(lambda t: np.sum(t**3))(np.array([1.0, 2.0]))
        held = grad(lambda t: np.sum(t**3))(x)
    np.testing.assert_array_equal(plain, [3.0, 12.0])
    np.testing.assert_array_equal(np.asarray(held), [3.0, 12.0])


def test_no_grad_inside_a_function_that_is_differentiated() -> None:
    def f(t: Any) -> Any:
        with no_grad():
            factor = t * 2.0
        assert is_grad_enabled()
        return np.sum(t * factor)

    np.testing.assert_array_equal(grad(f)(np.array([1.0, 2.0])), [2.0, 4.0])
    x = tensor([1.0, 2.0])
    f(x).backward()
    np.testing.assert_array_equal(x.grad, [2.0, 4.0])


def test_plain_values_under_no_grad() -> None:
    """Nothing is lost where nothing is recorded."""
    x = tensor([1.0, 2.0])
    with no_grad():
        assert np.asarray(x * 2.0).tolist() == [2.0, 4.0]
        assert float(x[0] * 2.0) == 2.0
        assert x.numpy().tolist() == [1.0, 2.0]


def test_writes_under_no_grad_to_what_was_computed() -> None:
    """The values change, as in an optimiser or an initialiser; what was used before keeps its content."""
    x = tensor([1.0, 2.0])
    y = x * 3.0
    z = y * y
    with no_grad():
        y += 1.0
    np.testing.assert_array_equal(y.numpy(), [4.0, 7.0])
    np.sum(z).backward()
    np.testing.assert_array_equal(x.grad, [18.0, 36.0])
