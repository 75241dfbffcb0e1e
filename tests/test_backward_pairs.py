"""backward_pairs: parameters with their gradients while the sweep is under way, last used first."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from tape import InvalidBackprop, InvalidGradient, Parameter, backward_pairs, no_grad, tensor

X = np.linspace(-1.0, 1.0, 8)
LARGE = 40_000
"""Elements of a parameter that the tape refers to, instead of copying it."""


def chain(parameters: list[Any], x: Any = X) -> Any:
    """Use one parameter after the other; every gradient depends on all others."""
    h = x
    for p in parameters:
        h = np.tanh(h * p + 0.1)
    return np.sum(h * h)


def draw(count: int, size: int = 8) -> list[Any]:
    rng = np.random.default_rng(3)
    return [Parameter(rng.uniform(0.5, 1.5, size)) for _ in range(count)]


def test_last_used_first_and_each_once() -> None:
    """SINGA: a pair as soon as all operators that depend on the tensor are processed, last layer first, each once."""
    parameters = draw(5)
    loss = chain(parameters)
    got = list(backward_pairs(loss))
    assert len(got) == 5
    for (p, g), expected in zip(got, reversed(parameters), strict=True):
        assert p is expected
        assert p.grad is None
        assert type(g) is np.ndarray and g.shape == p.shape and g.dtype == p.dtype
    chain(parameters).backward()
    for p, g in got:
        np.testing.assert_allclose(g, p.grad, rtol=1e-13)


def test_a_parameter_used_twice_comes_once_with_the_sum() -> None:
    """SINGA: contributions are summed; the pair comes after the first use, that the sweep reaches last."""
    first, second = Parameter([1.0, 2.0]), Parameter([3.0, 4.0])
    h = first * 2.0
    h = h * second
    loss = np.sum(h * first)
    pairs = list(backward_pairs(loss))
    assert [p is first for p, _ in pairs] == [False, True]
    np.testing.assert_array_equal(pairs[0][1], [2.0, 8.0])
    np.testing.assert_array_equal(pairs[1][1], [2 * 2 * 3.0, 2 * 2 * 2.0 * 4.0])


def test_a_pair_comes_before_the_rest_is_swept() -> None:
    """SINGA: early. A hook of an earlier value has not been called when the last parameter comes."""
    parameters = draw(3)
    called: list[str] = []
    h = np.tanh(X * parameters[0])
    h.register_hook(lambda g: called.append("first"))
    h = np.tanh(h * parameters[1])
    h.register_hook(lambda g: called.append("second"))
    order: list[Any] = []
    for p, _ in backward_pairs(np.sum(h * parameters[2])):
        order.append((next(k for k, q in enumerate(parameters) if q is p), list(called)))
    assert order == [(2, []), (1, ["second"]), (0, ["second", "first"])]


@pytest.mark.parametrize("size", [8, LARGE])
def test_gradients_are_released_when_they_are_dropped(size: int) -> None:
    parameters = draw(4, size)
    alive: list[Any] = []
    count = 0
    for p, g in backward_pairs(chain(parameters, np.linspace(-1.0, 1.0, size))):
        assert all(reference() is None for reference in alive)
        alive.append(weakref.ref(g))
        count += 1
        del p, g
    assert count == 4
    assert all(reference() is None for reference in alive)


def test_the_numbers_of_an_update_during_the_sweep() -> None:
    """SINGA: `for p, g in backward(loss): apply(p.name, p, g)`."""
    w = Parameter([2.0, 3.0])
    v = Parameter(5.0)
    loss = v * np.sum(w * w)
    for p, g in backward_pairs(loss):
        with no_grad():
            p -= 0.1 * g
    np.testing.assert_allclose(v.numpy(), 5.0 - 0.1 * 13.0)
    np.testing.assert_allclose(w.numpy(), [2.0 - 0.1 * 20.0, 3.0 - 0.1 * 30.0])


@pytest.mark.parametrize("size", [8, 9_000, LARGE])
def test_updating_during_the_sweep_gives_what_updating_afterwards_gives(size: int) -> None:
    x = np.linspace(-1.0, 1.0, size)
    during, after = draw(3, size), draw(3, size)
    for _ in range(4):
        for p, g in backward_pairs(chain([*during, during[0]], x)):
            with no_grad():
                p -= 0.5 * g
        pairs = list(backward_pairs(chain([*after, after[0]], x)))
        with no_grad():
            for p, g in pairs:
                p -= 0.5 * g
    for p, q in zip(during, after, strict=True):
        np.testing.assert_array_equal(p.numpy(), q.numpy())


def test_a_large_parameter_is_updated_in_its_own_memory() -> None:
    """No hidden copy: what is left of the sweep needs the value no more."""
    parameters = draw(3, LARGE)
    arrays = [p._state.array for p in parameters]
    addresses = [a.ctypes.data for a in arrays]
    for _ in range(3):
        for p, g in backward_pairs(chain(parameters, np.linspace(-1.0, 1.0, LARGE))):
            with no_grad():
                p -= 0.01 * g
    for p, array, address in zip(parameters, arrays, addresses, strict=True):
        assert p._state.array is array
        assert p._state.array.ctypes.data == address


def test_a_large_parameter_that_something_else_still_needs_keeps_its_value_there() -> None:
    """A write during the sweep does not reach what was recorded before and goes on to be used."""
    p = Parameter(np.full(LARGE, 2.0))
    other = p * p * p
    loss = np.sum(p * p)
    for q, g in backward_pairs(loss):
        with no_grad():
            q -= g
    np.testing.assert_array_equal(p.numpy()[:3], [-2.0] * 3)
    np.sum(other).backward()
    np.testing.assert_array_equal(p.grad[:3], [12.0] * 3)


def test_the_seed() -> None:
    """SINGA: dy is a number or a Tensor, None means 1; the gradients are linear in it."""
    w = Parameter([2.0, 3.0])
    for dy, factor in ((None, 1.0), (0.5, 0.5), (np.array(4), 4.0), (tensor(3.0), 3.0)):
        ((p, g),) = backward_pairs(np.sum(w * w), dy)
        assert p is w
        np.testing.assert_array_equal(g, factor * np.array([4.0, 6.0]))


def test_a_root_that_is_a_parameter_comes_with_the_seed() -> None:
    """SINGA: if y stores a gradient, (y, dy) is yielded."""
    w = Parameter(2.0)
    ((p, g),) = backward_pairs(w, 3.0)
    assert p is w
    assert type(g) is np.ndarray and g == 3.0


def test_errors_come_at_the_call() -> None:
    """The table: checks happen at the call, not at the first `next` (as SINGA's do)."""
    w = Parameter([1.0, 2.0])
    with pytest.raises(InvalidBackprop, match="got"):
        backward_pairs(np.ones(3))
    with pytest.raises(InvalidBackprop, match="implicitly created only for scalar"):
        backward_pairs(w * 2.0)
    with pytest.raises(InvalidGradient, match="shape"):
        backward_pairs(np.sum(w * 2.0), np.ones(3))
    with pytest.raises(InvalidBackprop, match="does not require grad"):
        backward_pairs(tensor(1.0, requires_grad=False))
    loss = np.sum(w * w)
    loss.backward()
    with pytest.raises(InvalidBackprop, match="cleared"):
        backward_pairs(loss)


def test_nothing_happens_before_the_first_pair_is_asked_for() -> None:
    """SINGA: backward is a generator, and nothing runs until it is iterated."""
    w = Parameter([1.0, 2.0])
    loss = np.sum(w * w)
    backward_pairs(loss)
    backward_pairs(loss)
    more = np.sum(w) + loss
    ((_, g),) = backward_pairs(more)
    np.testing.assert_array_equal(g, [3.0, 5.0])


def test_recording_between_the_call_and_the_first_pair() -> None:
    w, b = Parameter([1.0, 2.0]), Parameter(3.0)
    loss = np.sum(w * w) * b
    pairs = backward_pairs(loss)
    extra = np.sum(w * loss)
    got = {id(p): g for p, g in pairs}
    np.testing.assert_array_equal(got[id(w)], [6.0, 12.0])
    np.testing.assert_array_equal(got[id(b)], 5.0)
    assert extra.item() == 45.0


def test_the_part_is_cleared_meanwhile() -> None:
    w = Parameter([1.0, 2.0])
    loss = np.sum(w * w)
    pairs = backward_pairs(loss)
    loss.backward()
    with pytest.raises(InvalidBackprop, match="cleared"):
        next(pairs)


def test_the_graph_can_be_retained() -> None:
    w = Parameter([1.0, 2.0])
    loss = np.sum(w * w)
    for _ in range(3):
        ((_, g),) = backward_pairs(loss, retain_graph=True)
        np.testing.assert_array_equal(g, [2.0, 4.0])
    list(backward_pairs(loss))
    with pytest.raises(InvalidBackprop, match="cleared"):
        backward_pairs(loss)


@pytest.mark.parametrize("retain", [False, True])
def test_breaking_out_leaves_everything_usable(retain: bool) -> None:
    parameters = draw(4)
    for _ in range(5):
        for _p, _g in backward_pairs(chain(parameters), retain_graph=retain):
            break
    loss = chain(parameters)
    loss.backward()
    expected = [p.grad for p in parameters]
    for p in parameters:
        p.zero_grad()
    chain(parameters).backward()
    for p, g in zip(parameters, expected, strict=True):
        np.testing.assert_array_equal(p.grad, g)


def test_an_exception_in_the_loop_leaves_everything_usable() -> None:
    parameters = draw(3)
    loss = chain(parameters)

    def step() -> None:
        for p, g in backward_pairs(loss):
            with no_grad():
                p -= g
            raise KeyError("mine")

    before = [p.numpy() for p in parameters]
    with pytest.raises(KeyError):
        step()
    np.testing.assert_array_equal(parameters[0].numpy(), before[0])
    with pytest.raises(InvalidBackprop, match="cleared"):
        loss.backward()
    chain(parameters).backward()
    assert all(p.grad is not None for p in parameters)


def test_recording_inside_the_loop() -> None:
    """Recording goes on inside the loop, and passes over what is recorded there work."""
    parameters = draw(3)
    for p, g in backward_pairs(chain(parameters)):
        penalty = np.sum(p * p * g)
        penalty.backward()
        np.testing.assert_allclose(p.grad, 2 * p.numpy() * g)
        for q, h in backward_pairs(np.sum(p * 3.0)):
            assert q is p
            np.testing.assert_array_equal(h, np.full(8, 3.0))
    chain(parameters).backward()


@pytest.mark.parametrize("retain", [False, True])
def test_what_was_recorded_inside_the_loop_can_be_used_after_it(retain: bool) -> None:
    w = Parameter([1.0, 2.0])
    kept: Any = None
    for p, _ in backward_pairs(np.sum(w * w), retain_graph=retain):
        kept = p * 3.0
    np.sum(kept * (w * 2.0)).backward()
    np.testing.assert_array_equal(w.grad, [12.0, 24.0])


def test_loops_that_interleave() -> None:
    a, b = Parameter(2.0), Parameter(3.0)
    first = backward_pairs(a * a * b)
    p, g = next(first)
    assert p is b and g == 4.0
    second = backward_pairs(b * b * a)
    assert [q is a for q, _ in second] == [True, False]
    ((p, g),) = first
    assert p is a and g == 12.0
    (a * b).backward()
    assert (a.grad, b.grad) == (3.0, 2.0)


def test_a_loop_that_is_given_up_halfway() -> None:
    a, b = Parameter(2.0), Parameter(3.0)
    pairs = backward_pairs(a * a * b)
    next(pairs)
    during = a * 5.0
    del pairs
    (during * (b * 7.0)).backward()
    assert (a.grad, b.grad) == (105.0, 70.0)


def test_integers_and_constants_never_come() -> None:
    """SINGA: only tensors that store gradients are yielded."""
    w, c, k = Parameter([1.0, 2.0]), tensor([1.0, 2.0], requires_grad=False), tensor([1, 2])
    pairs = list(backward_pairs(np.sum(w * c * k)))
    assert len(pairs) == 1
    assert pairs[0][0] is w


def test_a_frozen_parameter_does_not_come() -> None:
    w, b = Parameter([1.0, 2.0]), Parameter([1.0, 1.0])
    w.requires_grad_(False)
    assert [p is b for p, _ in backward_pairs(np.sum(w * b))] == [True]


def test_so_much_is_recorded_inside_the_loop_that_the_tape_should_be_pruned() -> None:
    """The sweep under way goes on over the entries that it began with."""
    parameters, others = draw(4, LARGE), draw(4, LARGE)
    x = np.linspace(-1.0, 1.0, LARGE)
    got, kept = [], []
    for p, g in backward_pairs(chain(parameters, x)):
        for k in range(60):
            t = np.sum(np.sin(p * float(k)) * p)
        kept.append((p * 2.0, t))
        got.append(g)
    chain(others, x).backward()
    for g, p, (double, _) in zip(got, reversed(others), kept, strict=True):
        np.testing.assert_array_equal(g, p.grad)
        np.testing.assert_array_equal(double.numpy(), 2.0 * p.numpy())
    kept[0][1].backward()
    d = parameters[-1].numpy()
    np.testing.assert_allclose(parameters[-1].grad, 59 * d * np.cos(59 * d) + np.sin(59 * d), rtol=1e-11, atol=1e-11)
