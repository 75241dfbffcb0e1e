"""The gradients of views, and views under `no_grad`, after a pass, and of large arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from viewed import VIEWS, WEIGHTS, A, equal, every, marks

from tape import InvalidBackprop, Parameter, TapeError, gradients, no_grad, tensor


# ---------------------------------------------------------------- gradients
def shares(view: Any, base: Any) -> bool:
    return np.shares_memory(view, base)


@every
@pytest.mark.parametrize("kind", ["leaf", "recorded"])
def test_the_gradient_of_a_view(name: str, kind: str) -> None:
    """The table: view.grad is a view of base.grad."""
    view = VIEWS[name]
    x = tensor(A)
    a = x if kind == "leaf" else x * 1.0
    v = view(a)
    assert v.grad is None
    (np.sum(v * v) + np.sum(a * WEIGHTS)).backward()
    expected = 2.0 * A * marks(view) + WEIGHTS
    equal(a.grad, expected)
    equal(v.grad, view(expected))
    assert shares(v.grad, a.grad)
    equal(x.grad, expected)


@every
@pytest.mark.parametrize("retain", [True, False])
def test_the_gradient_of_a_view_written_through(name: str, retain: bool) -> None:
    """It is that of the new content, of which what is computed from the view alone is a part."""
    view = VIEWS[name]
    x = tensor(A)
    a = x * 1.0
    v = view(a)
    v *= 3.0
    np.sum(v * v).backward(retain_graph=retain)
    content = np.where(marks(view) > 0, 3.0 * A, A)
    equal(a.grad, 2.0 * content * marks(view))
    equal(v.grad, view(2.0 * content))
    equal(x.grad, 18.0 * A * marks(view))


def test_gradients_of_a_written_base() -> None:
    """gradients() with respect to a base that was written through a view."""
    x = tensor([1.0, 2.0, 3.0])
    y = x * 2.0
    v = y[1:]
    v[0] = 5.0
    (g,) = gradients(np.sum(v * v), y, retain_graph=True, allow_unused=True)
    equal(g, [0.0, 10.0, 12.0])


# ---------------------------------------------------------------- under no_grad
@pytest.mark.parametrize(
    "look",
    [lambda v: np.sum(v), lambda v: v.numpy(), repr, lambda v: v[0], lambda v: v.detach(), lambda v: v.requires_grad],
    ids=["sum", "numpy", "repr", "element", "detach", "requires_grad"],
)
def test_looking_at_a_view_under_no_grad(look: Callable[[Any], Any]) -> None:
    """A view whose base was written to keeps its gradient, whenever it is read first."""
    x = tensor([1.0, 2.0, 3.0])
    y = x * 2.0
    v = y[1:]
    w = v[::-1]
    y[0] = 1.0
    y[1] *= 3.0
    with no_grad():
        look(v)
        look(w)
    assert v.requires_grad and w.requires_grad
    np.sum(v * v + w).backward()
    equal(v, [12.0, 6.0])
    equal(x.grad, [0.0, 6.0 * 25.0, 2.0 * 13.0])


# ---------------------------------------------------------------- buffers with strided views
@pytest.mark.parametrize("name", ["steps", "reversed", "transpose", "columns", "reversed columns", "steps of steps"])
@pytest.mark.parametrize("through", ["base", "view", "second"])
def test_views_of_views_of_a_buffer(name: str, through: str) -> None:
    """A recorded value written to any of them is seen by all."""
    b, w = tensor(A, requires_grad=False), tensor(2.0)
    v = VIEWS[name](b)
    u = v[1:]
    expected = A.copy()
    ev = VIEWS[name](expected)
    eu = ev[1:]
    for t, value in (({"base": b, "view": v, "second": u}[through], w * 3.0), (expected, 6.0)):
        target = {"base": expected, "view": ev, "second": eu}[through] if t is expected else t
        target[(0,) * target.ndim] = value
    equal(b, expected)
    equal(v, ev)
    equal(u, eu)
    np.sum(b * b).backward()
    equal(w.grad, 36.0)


def test_views_of_a_result_under_no_grad() -> None:
    """They are views, before and after it is given recorded values."""
    x = tensor(A)
    with no_grad():
        b = x * 1.0
        row, column = b[0], b.T[1]
    row[1] = 4.0
    equal(column, [4.0, -1.0])
    column[1] = x[0, 0] * 2.0
    equal(b, [[3.0, 4.0, 2.0], [0.5, 6.0, 0.25]])
    equal(row, [3.0, 4.0, 2.0])
    np.sum(b * WEIGHTS).backward()
    equal(x.grad, [[10.0, 0.0, 0.0], [0.0] * 3])


# ---------------------------------------------------------------- after a pass
@pytest.mark.parametrize("root", ["base", "view"])
def test_views_of_what_was_passed_over(root: str) -> None:
    """They keep value and gradient, still share memory, and nothing can be propagated through them."""
    x = tensor([1.0, 2.0, 3.0])
    y = x * 2.0
    v = y[1:]
    t = y if root == "base" else v
    np.sum(t * t).backward()
    equal(v.grad, [8.0, 12.0])
    equal(v, [4.0, 6.0])
    for used in (y, v):
        with pytest.raises(InvalidBackprop, match="cleared"):
            np.sum(used * used).backward()
    with no_grad():
        y[1] = 9.0
    equal(v, [9.0, 6.0])
    with no_grad():
        v[1] = 7.0
    equal(y, [2.0, 9.0, 7.0])


def test_a_view_taken_of_what_was_passed_over() -> None:
    """A write through it does what a write to its base does."""
    x = tensor([1.0, 2.0, 3.0])
    y = x * 2.0
    np.sum(y * y).backward()
    v = y[1:]
    with pytest.raises(InvalidBackprop, match="cleared"):
        v += 1.0
    equal(y, [2.0, 4.0, 6.0])
    equal(v, [4.0, 6.0])
    with no_grad():
        v += 1.0
    equal(y, [2.0, 5.0, 7.0])
    equal(v, [5.0, 7.0])


def test_a_pass_over_a_view_of_a_view() -> None:
    """What was not passed over can be written to, with what was passed over, and is not propagated through."""
    x = tensor([1.0, 2.0, 3.0])
    y = np.sin(x)
    v = y[1:]
    w = v[1:]
    w += w
    u = np.sin(w)
    gradients(u, x, np.ones(1))
    value = np.sin([2.0, 3.0]) * np.array([1.0, 2.0])
    try:
        v += u
    except TapeError:
        expected = value
    else:
        expected = value + np.sin(value[1])
    equal(v, expected)
    equal(w, expected[1:])
    equal(y, [np.sin(1.0), *expected])
    with pytest.raises(InvalidBackprop, match="cleared"):
        np.sum(v).backward()


# ---------------------------------------------------------------- large arrays
BIG = 100_000


@pytest.mark.parametrize("retain", [True, False])
def test_views_of_large_parameters(retain: bool) -> None:
    """They follow a write under no_grad; what was computed from them does not."""
    p = Parameter(np.ones(BIG))
    v = p[1:]
    loss = np.sum(v * v)
    with no_grad():
        p -= 3.0
    assert np.all(v.numpy() == -2.0)
    with no_grad():
        v *= 2.0
    assert p[0].item() == -2.0
    assert np.all(p.numpy()[1:] == -4.0)
    loss.backward(retain_graph=retain)
    assert p.grad[0] == 0.0
    assert np.all(p.grad[1:] == 2.0)


def test_views_of_large_buffers() -> None:
    """They stay views when the memory is moved because a tape refers to it."""
    b, w = tensor(np.ones(BIG), requires_grad=False), tensor(2.0)
    v = b[::-1]
    y = np.sum(v * w)
    b[0] = 5.0
    v[0] = 7.0
    assert (b[0].item(), b[-1].item(), v[0].item(), v[-1].item()) == (5.0, 7.0, 7.0, 5.0)
    y.backward()
    equal(w.grad, float(BIG))
    v[1] = w
    assert b[-2].item() == 2.0
