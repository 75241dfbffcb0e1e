"""Views of tensors that a user holds: writes through either side are seen on the other, and gradients are views too."""

from __future__ import annotations

import numpy as np
import pytest
from viewed import VIEWS, WEIGHTS, A, both, equal, every, made, marks

from tape import InplaceError, no_grad, tensor


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
