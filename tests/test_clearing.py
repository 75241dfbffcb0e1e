"""Clearing: what a pass leaves of the tensors that it went over, and of the rest."""

from __future__ import annotations

import numpy as np
import pytest

from tape import InvalidBackprop, Parameter, gradients, no_grad, tensor


def test_what_was_passed_over_keeps_value_and_gradient() -> None:
    """MyGrad: after the sweep the graph is cleared. Values and gradients stay, and nothing is propagated through."""
    x = tensor([1.0, 2.0])
    y = x * x
    z = np.sum(y * 3.0)
    z.backward()
    np.testing.assert_array_equal(y.numpy(), [1.0, 4.0])
    np.testing.assert_array_equal(y.grad, [3.0, 3.0])
    assert y.requires_grad and not y.is_leaf and not y.stores_grad
    for use in (lambda: y.backward(np.ones(2)), lambda: np.sum(y * x).backward(), lambda: gradients(np.sum(y), x)):
        with pytest.raises(InvalidBackprop, match="cleared"):
            use()
    np.sum(y.detach() * x).backward()
    np.testing.assert_array_equal(x.grad, [6.0 + 1.0, 12.0 + 4.0])


def test_clear_graph() -> None:
    """MyGrad: w.clear_graph(), then g.backward() on what shares it raises InvalidBackprop."""
    x = tensor(2.0)
    w = x * x
    g = w * 3.0
    other = x * 5.0
    w.clear_graph()
    assert w.item() == 4.0 and x.grad is None and w.grad is None
    with pytest.raises(InvalidBackprop, match="cleared"):
        g.backward()
    other.backward()
    assert x.grad == 5.0
    x.clear_graph()
    tensor(1.0, requires_grad=False).clear_graph()


def test_a_view_downstream_of_what_was_cleared() -> None:
    """MyGrad: backprop from a view downstream of a disconnected view."""
    x = tensor([1.0, 2.0, 3.0])
    y = x * 2.0
    view = y[1:]
    y.clear_graph()
    with pytest.raises(InvalidBackprop, match="cleared"):
        np.sum(view[1:] * 2.0).backward()


def test_the_rest_of_the_tape_goes_on() -> None:
    """A pass clears what its root depends on; hooks, views and gathered writes of the rest stay."""
    x, w = tensor([1.0, 2.0, 3.0]), Parameter([4.0, 5.0, 6.0])
    used = x * x
    rest = w * 2.0
    row = rest[1:]
    row[0] = w[2] * w[2]
    np.sum(used).backward()
    np.testing.assert_array_equal(rest.numpy(), [8.0, 36.0, 12.0])
    rest[0] = x[0] * 7.0
    np.testing.assert_array_equal(row.numpy(), [36.0, 12.0])
    np.sum(rest * rest).backward()
    np.testing.assert_array_equal(w.grad, [0.0, 0.0, 2 * 36.0 * 12.0 + 2 * 12.0 * 2.0])
    np.testing.assert_array_equal(x.grad, [2.0 + 2 * 49.0, 4.0, 6.0])


def test_a_leaf_that_was_written_to_between_two_uses_is_found_after_a_partial_clear() -> None:
    """It stands on the tape twice; what is computed from it later has its gradient, and not another leaf's."""
    x, w = tensor([1.0, 2.0]), tensor([3.0, 4.0])
    used = np.exp(w)
    with no_grad():
        w -= 0.5
    rest = (np.sin(x), w * 2.0)
    np.sum(used).backward()
    w.zero_grad()
    np.sum(w * 5.0).backward()
    np.testing.assert_array_equal(w.grad, [5.0, 5.0])
    assert x.grad is None
    np.sum(rest[0] * rest[1]).backward()
    np.testing.assert_allclose(w.grad, 5.0 + 2.0 * np.sin([1.0, 2.0]))
    np.testing.assert_allclose(x.grad, 2.0 * np.array([2.5, 3.5]) * np.cos([1.0, 2.0]))
