"""Views of tensors that a user holds: writes through either side are seen on the other, and gradients are views too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tape import InplaceError, InvalidBackprop, Parameter, TapeError, gradients, no_grad, tensor

A = np.array([[3.0, 1.0, 2.0], [0.5, -1.0, 0.25]])
WEIGHTS = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])

VIEWS: dict[str, Callable[[Any], Any]] = {
    "row": lambda a: a[0],
    "last row": lambda a: a[-1],
    "rows": lambda a: a[1:],
    "everything": lambda a: a[:],
    "ellipsis": lambda a: a[...],
    "column": lambda a: a[:, 1],
    "columns": lambda a: a[:, 1:],
    "steps": lambda a: a[:, ::2],
    "reversed": lambda a: a[::-1],
    "reversed columns": lambda a: a[:, ::-2],
    "newaxis": lambda a: a[:, None],
    "leading newaxis": lambda a: a[None],
    "transpose": lambda a: a.T,
    "transpose method": lambda a: a.transpose(),
    "swapaxes": lambda a: np.swapaxes(a, 0, 1),
    "moveaxis": lambda a: np.moveaxis(a, 0, 1),
    "reshape": lambda a: a.reshape(3, 2),
    "reshape same": lambda a: a.reshape(2, 3),
    "flat": lambda a: a.reshape(-1),
    "ravel": lambda a: a.ravel(),
    "np.ravel": np.ravel,
    "squeeze": lambda a: np.squeeze(a[:1]),
    "squeeze of nothing": np.squeeze,
    "atleast_2d": np.atleast_2d,
    "expand_dims": lambda a: np.expand_dims(a, 1),
    "rows of columns": lambda a: a[:, 1:][1:],
    "row of the transpose": lambda a: a.T[1],
    "slice of a flat one": lambda a: a.reshape(-1)[1:5],
    "steps of steps": lambda a: a.reshape(-1)[::2][1:],
    "reversed steps": lambda a: a.reshape(-1)[::-2][1:],
    "reshaped rows": lambda a: a[1:].reshape(3, 1),
    "transposed back": lambda a: a.T[::-1].T,
    "four deep": lambda a: a[:][::-1].T[1:][:, :1],
}


def equal(got: Any, expected: Any) -> None:
    """Hold a tensor or gradient against numbers."""
    got = got if isinstance(got, np.ndarray) else got.numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)
    assert got.shape == np.shape(expected)


def made(kind: str) -> tuple[Any, Any]:
    """Make a leaf, and a tensor of the same values: recorded, or a buffer without a gradient."""
    x = tensor(A)
    return x, x * 1.0 if kind == "recorded" else tensor(A, requires_grad=False)


def marks(view: Callable[[Any], Any]) -> np.ndarray[Any, Any]:
    """Mark what a view sees of a matrix."""
    seen = np.zeros_like(A)
    view(seen)[...] = 1.0
    return seen


both = pytest.mark.parametrize("kind", ["recorded", "buffer"])
every = pytest.mark.parametrize("name", VIEWS)


# ---------------------------------------------------------------- writes through either side
@every
@both
def test_a_write_through_a_view(name: str, kind: str) -> None:
    """The base and other views show it; recorded values carry their gradient."""
    view = VIEWS[name]
    x, a = made(kind)
    w = tensor(2.0)
    other, flat = a[:, 1], a.reshape(-1)
    v = view(a)
    before = v * v
    v[...] = w * 5.0
    v *= 2.0
    expected = A.copy()
    view(expected)[...] = 20.0
    equal(a, expected)
    equal(v, view(expected))
    equal(other, expected[:, 1])
    equal(flat, expected.reshape(-1))
    equal(before, view(A) ** 2)
    np.sum(flat * WEIGHTS.reshape(-1)).backward(retain_graph=True)
    equal(w.grad, 10.0 * np.sum(WEIGHTS * marks(view)))
    if kind == "recorded":
        # Where all is written over, nothing may be left of what was there.
        equal(np.zeros_like(A) if x.grad is None else x.grad, WEIGHTS * (1.0 - marks(view)))
        x.zero_grad()
        np.sum(before).backward()
        equal(x.grad, 2.0 * A * marks(view))


@every
@both
def test_a_write_to_the_base(name: str, kind: str) -> None:
    """A view shows it, and carries the gradient of what was written."""
    view = VIEWS[name]
    _, a = made(kind)
    w = tensor(np.array([1.0, 2.0]))
    v = view(a)
    a[:, 0] = w * 3.0
    a[1, 2] = w[0]
    expected = A.copy()
    expected[:, 0] = [3.0, 6.0]
    expected[1, 2] = 1.0
    equal(v, view(expected))
    weights = np.linspace(1.0, 2.0, v.size).reshape(v.shape)
    np.sum(v * weights).backward() if v.requires_grad else None
    spread = np.zeros_like(A)
    view(spread)[...] = weights
    expected_slope = 3.0 * spread[:, 0] + np.array([spread[1, 2], 0.0])
    equal(np.zeros(2) if w.grad is None else w.grad, expected_slope)


@every
@both
def test_a_plain_write_through_a_view(name: str, kind: str) -> None:
    """The same with numbers."""
    view = VIEWS[name]
    _, a = made(kind)
    v = view(a)
    v += 1.0
    expected = A.copy()
    view(expected)[...] += 1.0
    equal(a, expected)
    equal(v, view(expected))
    v[0] = 7.0
    view(expected)[0] = 7.0
    equal(a, expected)
    a[0] = 8.0
    expected[0] = 8.0
    equal(v, view(expected))
    assert a.requires_grad == (kind == "recorded")


@every
def test_views_of_a_leaf(name: str) -> None:
    """A write through one raises and changes nothing; under no_grad it changes the leaf, and not what came before."""
    view = VIEWS[name]
    x = tensor(A)
    v = view(x)
    before = np.sum(v * v)
    with pytest.raises(InplaceError, match="leaf"):
        v[0] = 5.0
    with pytest.raises(InplaceError, match="leaf"):
        v += 1.0
    with pytest.raises(InplaceError, match="leaf"):
        np.add(v, 1.0, out=v)
    equal(x, A)
    equal(v, view(A))
    with no_grad():
        v += 1.0
        v[0] = 7.0
    expected = A.copy()
    view(expected)[...] += 1.0
    view(expected)[0] = 7.0
    equal(x, expected)
    equal(v, view(expected))
    assert x.requires_grad and x.is_leaf and v.requires_grad
    assert v is x or not v.is_leaf
    np.sum(x * x).backward()
    equal(x.grad, 2.0 * expected)
    x.zero_grad()
    before.backward()
    equal(x.grad, 2.0 * A * marks(view))


@every
def test_a_leaf_written_to_under_no_grad(name: str) -> None:
    """Views that were made before and after agree with it; what was computed from them stays."""
    view = VIEWS[name]
    x = tensor(A)
    v = view(x)
    before = np.sum(v * v)
    with no_grad():
        plain = view(x)
        x *= 2.0
        x[:, 1] = 0.5
    expected = A * 2.0
    expected[:, 1] = 0.5
    equal(plain, view(expected))
    equal(v, view(expected))
    np.sum(v * v * v).backward()
    equal(x.grad, 3.0 * expected**2 * marks(view))
    x.zero_grad()
    before.backward()
    equal(x.grad, 2.0 * A * marks(view))


def test_a_view_made_under_no_grad_of_a_leaf() -> None:
    """It shares the leaf's memory; recorded values can't be written through it."""
    x, w = tensor(A), tensor(2.0)
    with no_grad():
        v = x[0]
        v[1] = 9.0
    assert not v.requires_grad
    equal(x[0], [3.0, 9.0, 2.0])
    with pytest.raises(InplaceError):
        v[0] = w * 2.0
    equal(x[0], [3.0, 9.0, 2.0])
    equal(v, [3.0, 9.0, 2.0])


def test_the_row_of_the_issue() -> None:
    """row = x[0]; row[1] = 5."""
    x = tensor(A)
    y = x * 1.0
    row = y[0]
    row[1] = 5
    equal(y, [[3.0, 5.0, 2.0], A[1]])
    np.sum(y * WEIGHTS).backward()
    equal(x.grad, [[1.0, 0.0, 3.0], WEIGHTS[1]])


@both
def test_overlapping_views(kind: str) -> None:
    """They agree, whichever is written to."""
    _, a = made(kind)
    w = tensor(1.5)
    flat = a.reshape(-1)
    u, v = flat[:4], flat[2:]
    u[3] = w * w
    v[0] = w * 4.0
    u[...] = u * 2.0
    v -= 1.0
    expected = A.copy().reshape(-1)
    expected[3], expected[2] = 2.25, 6.0
    expected[:4] *= 2.0
    expected[2:] -= 1.0
    for t, value in ((a, expected.reshape(2, 3)), (flat, expected), (u, expected[:4]), (v, expected[2:])):
        equal(t, value)
    np.sum(u * np.array([1.0, 10.0, 100.0, 1000.0])).backward()
    equal(w.grad, 1000.0 * 2.0 * 3.0 + 100.0 * 8.0)


def test_a_write_of_a_view_to_one_that_overlaps() -> None:
    """u[...] = v where both see the same elements."""
    x = tensor(np.arange(4.0))
    y = x * 1.0
    u, v = y[:-1], y[1:]
    u[...] = v
    equal(y, [1.0, 2.0, 3.0, 3.0])
    equal(v, [2.0, 3.0, 3.0])
    np.sum(y * np.array([1.0, 10.0, 100.0, 1000.0])).backward()
    equal(x.grad, [0.0, 1.0, 10.0, 1100.0])


def test_copies_are_no_views() -> None:
    """Integer arrays and masks, flatten, clone and operations give memory of their own."""
    x = tensor(A)
    y = x * 1.0
    copies = [y[[0, 1]], y[A > 0], y.flatten(), y.clone(), y.copy(), +y, y.T.ravel(), np.reshape(y.T, -1)]
    values = [c.numpy() for c in copies]
    y[...] = 0.0
    for c, value in zip(copies, values, strict=True):
        equal(c, value)
        c[...] = 1.0
    equal(y, np.zeros((2, 3)))


def test_memory_order_without_recording() -> None:
    """Whether ravel is a view depends on the order in memory, as in NumPy."""
    b = tensor(A, requires_grad=False)
    gathered = b[:, [1, 1, 0]]
    expected = A[:, [1, 1, 0]]
    flat, plain = gathered.ravel(), expected.ravel()
    flat[:] += 1.0
    plain[:] += 1.0
    equal(gathered, expected)


# ---------------------------------------------------------------- rows of an array that is being filled
@pytest.mark.parametrize("filled", [0, 1])
def test_a_row_of_an_array_that_is_being_filled(filled: int) -> None:
    """It is a view of it, also of a row that was just written."""
    x = tensor(A)
    y = x * 1.0
    y[filled] = x[1] * 2.0
    row = y[0]
    row[1] = 5.0
    expected = A.copy()
    expected[filled] = A[1] * 2.0
    expected[0, 1] = 5.0
    equal(y, expected)
    y[0, 2] = 9.0
    expected[0, 2] = 9.0
    equal(row, expected[0])
    equal(y, expected)


def test_a_row_of_an_array_that_is_filled_is_not_what_was_written() -> None:
    """Writing to what a row was filled from does not change the row, and the other way round."""
    x = tensor(A)
    y, w = x * 1.0, x[1] * 2.0
    y[0] = w
    w[0] = 100.0
    row = y[0]
    row[2] = 50.0
    equal(w, [100.0, -2.0, 0.5])
    equal(y, [[1.0, -2.0, 50.0], A[1]])


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
