"""How long tapes, values and gradients of held tensors live: loops do not grow, and what is dropped is freed."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest
from growing import growth, rss

from tape import Parameter, backward_pairs, gradients, no_grad, tensor

LARGE = 100_000
MEGABYTE = 1 << 20


def model(w: Any, b: Any, x: Any) -> Any:
    h = np.tanh(w * x + b)
    h[0] = h[1] * h[2]
    view = h[1:]
    return np.sum(view * view) + np.mean(h)


def parameters(size: int = 10) -> tuple[Any, Any]:
    return Parameter(np.linspace(0.1, 1.0, size)), Parameter(np.zeros(size))


# ---------------------------------------------------------------- loops
def test_an_evaluation_loop_does_not_grow() -> None:
    """No backward, no handle of an earlier step."""
    w, b = parameters()
    traced, resident = growth(lambda k: model(w, b, np.full(10, k / 1000)).item(), 3_000)
    assert traced < 50_000
    assert resident < 8e6


def test_a_loop_that_overwrites_its_loss_does_not_grow() -> None:
    """The handle of the last step is always alive while the next one is computed."""
    w, b = parameters()
    held: list[Any] = [None]

    def work(k: int) -> None:
        held[0] = model(w, b, np.full(10, k / 1000))

    traced, resident = growth(work, 3_000, warm=3_000)
    assert traced < 3e6
    assert resident < 80e6


def test_a_loop_that_keeps_numbers_does_not_grow() -> None:
    """loss.item() refers to nothing."""
    w, b = parameters()
    losses: list[float] = []
    traced, _ = growth(lambda k: losses.append(model(w, b, np.ones(10)).item()), 2_000)
    assert traced < 100_000
    assert len(set(losses)) == 1


def test_ten_thousand_training_steps_do_not_grow() -> None:
    w, b = parameters()

    def step(k: int) -> None:
        loss = model(w, b, np.full(10, k % 7 / 10))
        loss.backward()
        with no_grad():
            for p in (w, b):
                p -= 0.01 * p.grad
                p.zero_grad()

    traced, resident = growth(step, 10_000)
    assert traced < 50_000
    assert resident < 8e6


def test_steps_with_pairs_and_gradients_do_not_grow() -> None:
    w, b = parameters()

    def step(k: int) -> None:
        for p, g in backward_pairs(model(w, b, np.ones(10))):
            with no_grad():
                p -= 0.01 * g
        gradients(model(w, b, np.ones(10)), [w, b])
        for _ in backward_pairs(model(w, b, np.ones(10))):
            break
        backward_pairs(model(w, b, np.ones(10)))

    traced, resident = growth(step, 1_000)
    assert traced < 50_000
    assert resident < 8e6


def test_steps_that_are_differentiated_twice_do_not_grow() -> None:
    w, b = parameters()

    def step(k: int) -> None:
        (g,) = gradients(model(w, b, np.ones(10)), w, create_graph=True)
        np.sum(g * g).backward()
        w.zero_grad()
        b.zero_grad()

    traced, resident = growth(step, 500)
    assert traced < 100_000
    assert resident < 20e6


def test_retained_graphs_that_are_dropped_do_not_grow() -> None:
    w, b = parameters()

    def step(k: int) -> None:
        loss = model(w, b, np.ones(10))
        loss.backward(retain_graph=True)
        loss.backward(retain_graph=True)

    traced, _ = growth(step, 1_000)
    assert traced < 50_000


def test_large_steps_do_not_grow() -> None:
    w, b = parameters(LARGE)
    x = np.linspace(0.0, 1.0, LARGE)

    def step(k: int) -> None:
        for p, g in backward_pairs(model(w, b, x)):
            with no_grad():
                p -= 1e-6 * g

    traced, resident = growth(step, 60, warm=10)
    assert traced < 200_000
    assert resident < 30e6


@pytest.mark.parametrize("backward", [False, True])
def test_a_handle_of_an_early_step_does_not_keep_the_later_ones(backward: bool) -> None:
    """What no handle needs is pruned, however long the loop goes on; the early handle keeps its value and gradient."""
    w = Parameter(np.linspace(0.1, 1.0, 2_000))
    early = np.sum(np.tanh(w) * w)
    value = early.item()

    def step(k: int) -> None:
        loss = np.sum(np.exp(-w) * w + np.sin(w))
        if backward:
            loss.backward()
            w.zero_grad()

    # A pass prunes at once; else the tape is pruned now and then.
    count = 500 if backward else 4_000
    for k in range(count):
        step(k)
    resident = rss()
    for k in range(2 * count):
        step(k)
    # Each step takes more than 60 kB.
    assert rss() - resident < count * 15e3
    assert early.item() == value
    early.backward()
    d = w.numpy()
    np.testing.assert_allclose(w.grad, np.tanh(d) + d * (1 - np.tanh(d) ** 2), rtol=1e-12)


def test_handles_that_are_kept_from_many_steps() -> None:
    """Values, gradients, views and hooks stay right while the tape is pruned again and again."""
    w = Parameter(np.linspace(0.1, 1.0, 3_000))
    kept = []
    for k in range(3_000):
        y = w * float(k)
        z = np.sum(np.sin(y) * y)
        if k % 300 == 5:
            kept.append((k, y, y[10:], z))
    d = w.numpy()
    for k, y, view, z in kept:
        np.testing.assert_array_equal(y.numpy(), d * k)
        np.testing.assert_array_equal(view.numpy(), d[10:] * k)
        z.backward()
        slope = np.cos(d * k) * d * k + np.sin(d * k)
        np.testing.assert_allclose(y.grad, slope, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(view.grad, slope[10:], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(w.grad, k * slope, rtol=1e-12, atol=1e-9)
        w.zero_grad()


# ---------------------------------------------------------------- freeing
def test_dropping_all_handles_frees_the_tape() -> None:
    gc.collect()
    gc.disable()
    try:
        w, b = parameters()
        loss = model(w, b, np.ones(10))
        tape = weakref.ref(loss._tape)
        part = loss * 2.0
        del loss
        assert tape() is not None
        del part
        assert tape() is None
        loss = model(w, b, np.ones(10))
        tape = weakref.ref(loss._tape)
        loss.backward(retain_graph=True)
        list(backward_pairs(loss, retain_graph=True))
        gradients(loss, w, retain_graph=True)
        del loss
        assert tape() is None
    finally:
        gc.enable()


def test_a_pass_ends_the_tape_while_handles_live() -> None:
    gc.collect()
    gc.disable()
    try:
        w, b = parameters()
        loss = model(w, b, np.ones(10))
        tape = weakref.ref(loss._tape)
        loss.backward()
        assert tape() is None
        assert loss.grad == 1.0
    finally:
        gc.enable()


def test_a_recorded_gradient_that_is_dropped_frees_the_tape() -> None:
    """PyTorch: create_graph makes a cycle when combined with .grad; None breaks it."""
    w, b = parameters()
    loss = model(w, b, np.ones(10))
    tape = weakref.ref(loss._tape)
    loss.backward(create_graph=True)
    del loss
    w.grad = b.grad = None
    gc.collect()
    assert tape() is None


def traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_memory_after_a_pass_returns_to_the_level_before() -> None:
    """The values of held tensors stay; the buffers of the tape go back, and are used again."""
    w = Parameter(np.linspace(0.0, 1.0, LARGE + 8))  # a size that no other test leaves buffers of

    def forward() -> tuple[Any, Any]:
        h = np.tanh(w)
        y = h
        for _ in range(20):
            y = np.sin(y) * 1.1
        return h, np.sum(y)

    tracemalloc.start()
    try:
        levels = []
        for _ in range(3):
            kept = []
            for _ in range(5):
                h, loss = forward()
                loss.backward()
                w.zero_grad()
                kept.append((h, loss))
                h.null_grad()
            full = traced()
            del kept, h, loss
            levels.append(traced())
            # Each h takes 0.8 MB; the forty values of a step would take 32 MB.
            assert 2 * MEGABYTE < full - levels[-1] < 5 * MEGABYTE
        assert levels[2] - levels[0] < 0.2 * MEGABYTE
    finally:
        tracemalloc.stop()


def test_values_and_gradients_of_held_tensors_stay_when_buffers_are_used_again() -> None:
    w = Parameter(np.linspace(0.0, 1.0, LARGE))
    d = w.numpy()
    kept = []
    for k in range(1, 5):
        h = w * float(k)
        view = h[1:]
        y = np.sin(h)
        np.sum(y * h).backward()
        kept.append((k, h, view, y, w.grad))
        w.grad = None
    for k, h, view, y, g in kept:
        np.testing.assert_array_equal(h.numpy(), d * k)
        np.testing.assert_array_equal(view.numpy(), (d * k)[1:])
        np.testing.assert_array_equal(y.numpy(), np.sin(d * k))
        np.testing.assert_array_equal(y.grad, d * k)
        np.testing.assert_allclose(g, k * (np.cos(d * k) * d * k + np.sin(d * k)), rtol=1e-12, atol=1e-12)


def test_handles_that_the_garbage_collector_was_told_to_ignore() -> None:
    """gc.freeze(), as servers call before they fork."""
    x = tensor([1.0, 2.0])
    y = x * 2.0
    z = np.sum(y * y)
    gc.collect()
    gc.freeze()
    try:
        z.backward()
        np.testing.assert_array_equal(x.grad, [8.0, 16.0])
        np.testing.assert_array_equal(y.numpy(), [2.0, 4.0])
        assert z.item() == 20.0
    finally:
        gc.unfreeze()
