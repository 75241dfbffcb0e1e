"""Hooks on tensors: what is called with a gradient, and may replace it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tape import InvalidBackprop, InvalidGradient, Parameter, backward_pairs, gradients, tensor


def test_a_hook_is_called_with_the_gradient() -> None:
    """PyTorch: register_hook returns a handle with remove()."""
    x = tensor([1.0, 2.0])
    seen: list[Any] = []
    handle = x.register_hook(lambda g: seen.append(g.copy()))
    np.sum(x * x).backward()
    np.sum(x).backward()
    handle.remove()
    handle.remove()
    np.sum(x).backward()
    assert [g.tolist() for g in seen] == [[2.0, 4.0], [1.0, 1.0]]
    np.testing.assert_array_equal(x.grad, [4.0, 6.0])


@pytest.mark.parametrize("size", [3, 20_000, 50_000])
def test_a_hook_replaces_the_gradient_of_a_value(size: int) -> None:
    """PyTorch: fn may return a replacement gradient; what comes before sees it."""
    x = tensor(np.ones(size))
    y = x * 2.0
    z = y * y
    y.register_hook(lambda g: g * 10.0)
    z.register_hook(lambda g: g + 1.0)
    np.sum(z).backward()
    np.testing.assert_array_equal(z.grad, np.full(size, 2.0))
    np.testing.assert_array_equal(y.grad, np.full(size, 80.0))
    np.testing.assert_array_equal(x.grad, np.full(size, 160.0))


def test_hooks_of_numbers_and_roots() -> None:
    x = tensor(3.0)
    y = x * x
    z = 2.0 * y
    shapes = []
    for t in (x, y, z):
        t.register_hook(lambda g: shapes.append((type(g), g.shape, g.dtype)))
    y.register_hook(lambda g: 5.0)
    z.register_hook(lambda g: np.float32(7.0))
    z.backward()
    assert shapes == [(np.ndarray, (), np.dtype(float))] * 3
    assert (z.grad, y.grad, x.grad) == (7.0, 5.0, 30.0)
    assert y.grad.dtype == float


def test_hooks_run_in_the_order_of_registration_each_on_what_the_last_gave() -> None:
    """PyTorch: registration order within a kind."""
    x = tensor(1.0)
    seen: list[float] = []

    def note(g: Any) -> Any:
        seen.append(float(g))
        return g + 1.0

    for _ in range(3):
        x.register_hook(note)
    (x * 1.0).backward()
    assert seen == [1.0, 2.0, 3.0]
    assert x.grad == 4.0


def test_a_leaf_used_twice_has_its_hook_called_once_with_the_sum() -> None:
    x = tensor([1.0, 2.0])
    seen: list[Any] = []
    x.register_hook(lambda g: seen.append(g.tolist()))
    y = x * 3.0
    np.sum(y * x).backward()
    assert seen == [[6.0, 12.0]]


def test_hooks_work_with_retained_graphs_and_with_gradients() -> None:
    x = tensor(2.0)
    y = x * x
    calls: list[Any] = []
    handle = y.register_hook(lambda g: calls.append(float(g)))
    z = y * 3.0
    z.backward(retain_graph=True)
    gradients(z, x, retain_graph=True)
    list(backward_pairs(z, retain_graph=True))
    handle.remove()
    z.backward()
    assert calls == [3.0, 3.0, 3.0]


def test_a_hook_whose_tensor_is_dropped_is_still_called() -> None:
    x = tensor(2.0)
    y = x * x
    y.register_hook(lambda g: g * 10.0)
    z = y * 3.0
    del y
    z.backward()
    assert x.grad == 120.0


def test_a_hook_survives_a_partial_clear() -> None:
    """A pass over one part keeps the hooks of the other."""
    x, w = tensor(2.0), tensor(3.0)
    first = w * w
    y = x * x
    y.register_hook(lambda g: g * 10.0)
    z = y * 3.0
    first.backward()
    z.backward()
    assert x.grad == 120.0
    assert w.grad == 6.0


def test_hooks_in_a_pass_that_is_recorded() -> None:
    x = tensor(2.0)
    y = x * x
    handle = y.register_hook(lambda g: g * 10.0)
    (first,) = gradients(y * y, x, create_graph=True)
    # 10 · 2y · 2x = 40 x³
    assert first.item() == 320.0
    # In the second pass the hook is called with the gradient by y again: 10 · 40 x · 2x + 40 y
    (second,) = gradients(first, x, retain_graph=True)
    assert second == 840.0 * 4.0
    handle.remove()
    (second,) = gradients(first, x)
    assert second == 120.0 * 4.0


def test_the_gradient_cannot_be_written_to() -> None:
    """PyTorch: a hook must not modify its argument in place."""
    x = tensor([1.0, 2.0])

    def spoil(g: Any) -> None:
        g *= 2.0

    x.register_hook(spoil)
    with pytest.raises(ValueError, match="read-only"):
        np.sum(x).backward()


def test_a_gradient_that_a_hook_keeps_stays_as_it_was() -> None:
    for size in (3, 50_000):
        x = tensor(np.ones(size))
        kept: list[Any] = []
        y = x * 2.0
        y.register_hook(kept.append)
        x.register_hook(kept.append)
        np.sum(y * y).backward()
        before = [g.copy() for g in kept]
        for _ in range(3):
            np.sum(x * x * 7.0).backward()
        for g, b in zip(kept, before, strict=False):
            np.testing.assert_array_equal(g, b)


@pytest.mark.parametrize("wrong", [lambda g: np.ones(3), lambda g: "text", lambda g: 1j * g, lambda g: g[:1]])
def test_what_a_hook_gives_is_checked(wrong: Any) -> None:
    x = tensor([1.0, 2.0])
    y = x * 2.0
    for t in (x, y):
        handle = t.register_hook(wrong)
        with pytest.raises(InvalidGradient, match="hook"):
            np.sum(y * y).backward(retain_graph=True)
        handle.remove()
    x.grad = None
    np.sum(y * y).backward()
    np.testing.assert_array_equal(x.grad, [8.0, 16.0])


def test_what_has_no_gradient_takes_no_hook() -> None:
    """PyTorch: RuntimeError "cannot register a hook on a tensor that doesn't require gradient"."""
    for t in (tensor(1.0, requires_grad=False), tensor([1, 2]), tensor(1.0).detach()):
        with pytest.raises(InvalidBackprop, match="register a hook"):
            t.register_hook(print)
    with pytest.raises(InvalidGradient, match="function of the gradient"):
        tensor(1.0).register_hook(3)


def test_an_exception_in_a_hook_leaves_everything_usable() -> None:
    x = tensor([1.0, 2.0])
    y = x * 2.0

    def fail(g: Any) -> None:
        raise KeyError("mine")

    for t in (y, x):
        handle = t.register_hook(fail)
        with pytest.raises(KeyError):
            np.sum(y * y).backward(retain_graph=True)
        handle.remove()
        assert x.grad is None
    np.sum(y * y).backward()
    np.testing.assert_array_equal(x.grad, [8.0, 16.0])


def test_a_hook_may_compute_with_leaves_and_with_the_pass() -> None:
    """Recording goes on during a pass; what depends on the part passed over can't be propagated through afterwards."""
    x, w = tensor([1.0, 2.0]), Parameter([3.0, 4.0])
    y = x * 2.0
    made: list[Any] = []

    def hook(g: Any) -> Any:
        made.extend([y * 3.0, w * 5.0])
        np.sum(w * w * g).backward()
        return None

    y.register_hook(hook)
    np.sum(y).backward()
    np.testing.assert_array_equal(w.grad, [6.0, 8.0])
    np.testing.assert_array_equal(x.grad, [2.0, 2.0])
    np.testing.assert_array_equal(made[0].numpy(), [6.0, 12.0])
    with pytest.raises(InvalidBackprop, match="cleared"):
        np.sum(made[0]).backward()
    np.sum(made[1]).backward()
    np.testing.assert_array_equal(w.grad, [11.0, 13.0])
