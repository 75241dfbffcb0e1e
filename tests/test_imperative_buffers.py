"""Tensors without a gradient that are written to, writes by `out=`, under `no_grad`, of large arrays, after a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from writes import buffer, equal

from tape import InplaceError, InvalidBackprop, Parameter, TapeError, backward, gradients, no_grad, tensor


# ---------------------------------------------------------------- tensors without a gradient
def test_a_buffer_written_to_plainly() -> None:
    """Nothing is recorded."""
    b = buffer(np.zeros(3))
    b[0] = 5.0
    b += np.ones(3)
    b[1:] = buffer([7.0, 8.0])
    equal(b, [6.0, 7.0, 8.0])
    assert not b.requires_grad and b.is_leaf and b.grad_fn is None


def test_a_result_under_no_grad_written_to() -> None:
    """It has memory of its own."""
    x = tensor([1.0, 2.0, 3.0])
    with no_grad():
        y = x * 2.0
        y[0] = 9.0
    y[1:] = x[:2] * 3.0
    equal(y, [9.0, 3.0, 6.0])
    np.sum(y).backward()
    equal(x.grad, [3.0, 3.0, 0.0])


def test_a_buffer_filled_in_a_loop() -> None:
    """Each element carries its gradient."""
    w, b = tensor(2.0), buffer(np.zeros(4))
    for k in range(4):
        b[k] = w * float(k) if k == 0 else b[k - 1] * w + 1.0
    equal(b, [0.0, 1.0, 3.0, 7.0])
    np.sum(b).backward()
    equal(w.grad, 6.0)  # 0, 0, 1 and 2 w + 1


def test_a_buffer_is_used_before_it_is_written_to() -> None:
    """What was computed from it keeps its old content."""
    w, b = tensor(2.0), buffer([1.0, 2.0])
    y = w * b
    b[0] = 10.0
    b[1] = w * 100.0
    equal(y, [2.0, 4.0])
    np.sum(y).backward(retain_graph=True)
    equal(w.grad, 3.0)
    np.sum(b).backward()
    equal(w.grad, 103.0)


def test_a_detached_tensor_shares_its_memory() -> None:
    """PyTorch: in-place changes are visible to both."""
    x = tensor([1.0, 2.0])
    y = np.sum(x * x)
    d = x.detach()
    d[0] = 5.0
    equal(x, [5.0, 2.0])
    x.data[1] = 7.0
    equal(x, [5.0, 7.0])
    y.backward()
    equal(x.grad, [2.0, 4.0])


def test_a_buffer_written_to_after_it_was_detached() -> None:
    """Both show what was written, also if it was recorded."""
    w, b = tensor(3.0), buffer(np.zeros(2))
    d = b.detach()
    b[0] = 4.0
    equal(d, [4.0, 0.0])
    b[1] = w * 2.0
    equal(b, [4.0, 6.0])
    equal(d, [4.0, 6.0])
    assert not d.requires_grad


# ---------------------------------------------------------------- out= whatever comes first
def test_out_of_an_array_that_is_being_filled() -> None:
    """The rule for leaves does not depend on what the operand is."""
    x = tensor([1.0, 2.0])
    y = np.sin(x)
    y[0] = 0.25
    with pytest.raises(InplaceError):
        np.sin(y, out=x)
    equal(x, [1.0, 2.0])
    b = buffer([0.0, 0.0])
    y[1] = x[0] * 2.0
    np.multiply(y, 3.0, out=b)
    equal(b, [0.75, 6.0])
    np.sum(b).backward()
    equal(x.grad, [6.0, 0.0])


def test_out_of_a_view_to_be_taken_again() -> None:
    """The same for a view whose base was written to."""
    x, b = tensor([1.0, 2.0, 3.0]), buffer([0.0, 0.0])
    y = np.sin(x)
    v = y[1:]
    y += 1.0
    np.multiply(v, 3.0, out=b)
    equal(b, 3.0 * np.sin([2.0, 3.0]) + 3.0)
    np.sum(b).backward()
    equal(x.grad, [0.0, *(3.0 * np.cos([2.0, 3.0]))])


# ---------------------------------------------------------------- under no_grad
def test_reading_under_no_grad_keeps_pending_writes_recorded() -> None:
    """An array whose writes have not been carried out keeps its gradient."""
    x = tensor([1.0, 2.0, 3.0])
    y = x * 2.0
    y[0] = x[2] * 5.0
    with no_grad():
        assert np.sum(y).item() == 25.0
    np.sum(y * y).backward()
    equal(x.grad, [0.0, 16.0, 150.0 + 24.0])


def test_a_recorded_value_written_to_under_no_grad() -> None:
    """What was computed from it before keeps its value and its gradient, or the write is refused."""
    x = tensor([1.0, 2.0, 3.0])
    y = x * 2.0
    z = np.sum(y * y)
    try:
        with no_grad():
            y[0] = 5.0
    except (TapeError, ValueError):
        equal(y, [2.0, 4.0, 6.0])
    else:
        equal(y, [5.0, 4.0, 6.0])
    z.backward()
    equal(x.grad, [8.0, 16.0, 24.0])


# ---------------------------------------------------------------- large arrays, which tapes refer to
BIG = 100_000


def _subtract(p: Any) -> None:
    with no_grad():
        p -= 3.0


def _assign(p: Any) -> None:
    with no_grad():
        p[...] = -2.0


def _data(p: Any) -> None:
    p.data[...] = -2.0


def _new_data(p: Any) -> None:
    p.data = np.full(BIG, -2.0)


def _out(p: Any) -> None:
    with no_grad():
        np.subtract(p, 3.0, out=p)


def _half(p: Any) -> None:
    with no_grad():
        p[::2] -= 3.0
        p[1::2] = -2.0


@pytest.mark.parametrize("change", [_subtract, _assign, _data, _new_data, _out, _half])
@pytest.mark.parametrize("retain", [True, False])
def test_large_parameters(change: Callable[[Any], None], retain: bool) -> None:
    """A write changes the parameter, and nothing that was recorded before."""
    p = Parameter(np.ones(BIG))
    a = np.sum(p * p * p)
    view = p[1:] * p[:-1]
    change(p)
    assert np.all(p.numpy() == -2.0)
    assert np.all(view.numpy() == 1.0)
    b = np.sum(p * p)
    a.backward(retain_graph=retain)
    assert np.all(p.grad == 3.0)
    if retain:
        change(p)
        a.backward()
        assert np.all(p.grad == 6.0)
        p.grad = np.full(BIG, 3.0)
    b.backward()
    assert np.all(p.grad == -1.0)
    assert np.all(view.numpy() == 1.0)


def test_large_buffers() -> None:
    """A plain write to a buffer that a tape refers to."""
    b, w = buffer(np.ones(BIG)), tensor(2.0)
    y = np.sum(b * w)
    b *= 5.0
    y.backward()
    equal(w.grad, float(BIG))
    assert np.all(b.numpy() == 5.0)
    b[0] = w
    np.sum(b * b).backward()
    equal(w.grad, BIG + 4.0)


def test_a_large_buffer_given_a_leaf() -> None:
    """It does not follow the leaf afterwards."""
    x, c = tensor(np.ones(BIG)), buffer(np.zeros(BIG))
    c[...] = x
    with no_grad():
        x += 1.0
    assert np.all(c.numpy() == 1.0)
    np.sum(c * c).backward()
    assert np.all(x.grad == 2.0)
    with no_grad():
        x += 1.0
    assert np.all(c.numpy() == 1.0)


def test_large_values_survive_their_tape() -> None:
    """A handle that is kept shows the same numbers when the memory of its tape is used again."""
    p = Parameter(np.full(BIG, 2.0))
    y = p * 3.0
    v = y[: BIG // 2]
    loss = np.sum(y * y)
    loss.backward()
    others = [np.sum((p * float(k)) ** 2) for k in range(5)]
    backward(others)
    assert np.all(y.numpy() == 6.0)
    assert np.all(v.numpy() == 6.0)
    assert np.all(y.grad == 12.0)


# ---------------------------------------------------------------- after a pass
def test_writes_to_what_was_passed_over() -> None:
    """Nothing can be propagated through it; its memory can be written to under no_grad."""
    x = tensor([1.0, 2.0, 3.0])
    y = x * 2.0
    np.sum(y * y).backward()
    with pytest.raises(InvalidBackprop, match="cleared"):
        y[0] = 1.0
    equal(y, [2.0, 4.0, 6.0])
    with no_grad():
        y[0] = 1.0
    equal(y, [1.0, 4.0, 6.0])
    equal(y.grad, [4.0, 8.0, 12.0])
    with pytest.raises(InvalidBackprop, match="cleared"):
        np.sum(y).backward()


def test_a_buffer_given_what_was_passed_over() -> None:
    """It can't be propagated through either."""
    x, b = tensor([1.0, 2.0]), buffer([0.0, 0.0])
    y = x * 2.0
    np.sum(y).backward()
    b[0] = y[1]
    equal(b, [4.0, 0.0])
    with pytest.raises(InvalidBackprop, match="cleared"):
        np.sum(b).backward()


def test_gradients_of_a_version() -> None:
    """gradients() asks for the handle as it is now."""
    x = tensor([1.0, 2.0, 3.0])
    y = x * 2.0
    early = np.sum(y**2)
    y[1:] *= 3.0
    late = np.sum(y**2)
    (g,) = gradients(late, y, retain_graph=True)
    equal(g, [4.0, 24.0, 36.0])
    (g,) = gradients(early, y, retain_graph=True, allow_unused=True)
    assert g is None or not np.any(g)
    (g,) = gradients(early + late, x)
    equal(g, [16.0, 16.0 * (1 + 9), 24.0 * (1 + 9)])
