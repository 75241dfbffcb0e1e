"""Writing in place to tensors that a user holds, through views too, and the gradients of views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tape import InplaceError, Tensor, no_grad, tensor

WRITES: dict[str, Callable[[Any], Any]] = {
    "fill": lambda v: v.__setitem__(..., 7.0),
    "element": lambda v: v.__setitem__((0,) * v.ndim, 7.0),
    "+=": lambda v: v.__iadd__(1.0),
    "out=": lambda v: np.add(v, 1.0, out=v),
    "copyto": lambda v: np.copyto(v, 5.0),
    "sort": lambda v: v.sort(),
}
VIEWS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda x: x[1:],
    "ellipsis": lambda x: x[...],
    "slice of slice": lambda x: x[1:][::2],
    "reversed": lambda x: x[::-1],
    "reshape": lambda x: x.reshape(2, 3),
    "row of reshape": lambda x: x.reshape(2, 3)[0],
    "ravel": np.ravel,
    "transpose": lambda x: x.reshape(2, 3).T,
}


# ---------------------------------------------------------------- leaves
@pytest.mark.parametrize("name", WRITES)
def test_writes_to_a_leaf_are_refused(name: str) -> None:
    """PyTorch: "a leaf Variable that requires grad is being used in an in-place operation"."""
    x = tensor([3.0, 1.0, 2.0])
    with pytest.raises(InplaceError, match=r"leaf tensor that requires grad.*in-place.*no_grad"):
        WRITES[name](x)
    with pytest.raises(RuntimeError):
        WRITES[name](x)
    np.testing.assert_array_equal(x.numpy(), [3.0, 1.0, 2.0])


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", WRITES)
def test_writes_to_a_view_of_a_leaf_are_refused(name: str, view: str) -> None:
    """PyTorch: the same for a view of such a leaf. Nothing has changed after the error."""
    data = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 0.0])
    x = tensor(data)
    v = VIEWS[view](x)
    before = v.numpy()
    with pytest.raises(InplaceError, match="leaf"):
        WRITES[name](v)
    np.testing.assert_array_equal(x.numpy(), data)
    np.testing.assert_array_equal(v.numpy(), before)
    np.sum(v * v).backward()
    assert x.grad is not None


@pytest.mark.parametrize("size", [4, 50_000])
def test_writes_under_no_grad_are_seen_everywhere_but_not_in_the_past(size: int) -> None:
    """PyTorch: allowed inside no_grad (optimisers rely on it). Values used before keep their old content."""
    x = tensor(np.full(size, 2.0))
    v, d = x[1:], x.detach()
    y = x * x
    with no_grad():
        x += 1.0
        x[0] = 10.0
        np.multiply(x, 2.0, out=x)
    for t, expected in ((x, [20.0, 6.0]), (v, [6.0, 6.0]), (d, [20.0, 6.0]), (y, [4.0, 4.0])):
        np.testing.assert_array_equal(t.numpy()[:2], expected)
    np.sum(y + x).backward()
    np.testing.assert_array_equal(x.grad, np.full(size, 5.0))
    assert x.requires_grad and x.is_leaf


def test_a_write_between_two_uses_of_a_leaf() -> None:
    x = tensor(2.0)
    first = x * x
    with no_grad():
        x += 3.0
    (first + x * x).backward()
    assert x.grad == 4.0 + 10.0


# ---------------------------------------------------------------- what was computed
def test_writes_to_what_was_computed() -> None:
    """MyGrad: x[i] = v, x += v, out= mutate in place, keep identity, and gradients flow to old and new values."""
    x, w = tensor([1.0, 2.0, 3.0]), tensor(5.0)
    y = x * 2.0
    same = y
    y[1] = w * w
    y += x
    np.multiply(y, 3.0, out=y)
    assert y is same
    np.testing.assert_array_equal(y.numpy(), [9.0, 81.0, 27.0])
    np.sum(y).backward()
    np.testing.assert_array_equal(x.grad, [9.0, 3.0, 9.0])
    assert w.grad == 30.0
    np.testing.assert_array_equal(y.grad, [1.0, 1.0, 1.0])


def test_values_used_before_keep_their_old_content() -> None:
    """MyGrad: earlier consumers keep the old data."""
    x = tensor([1.0, 2.0])
    y = x * 1.0
    before = y * y
    y[0] = 100.0
    np.testing.assert_array_equal(before.numpy(), [1.0, 4.0])
    np.sum(before + y).backward()
    np.testing.assert_array_equal(x.grad, [2.0, 5.0])


def test_writes_through_views() -> None:
    """MyGrad: a write through a view reaches the base and all other views, overlapping ones too."""
    x, w = tensor(np.arange(6.0).reshape(2, 3)), tensor([10.0, 20.0])
    y = x * 1.0
    row, column, flat = y[0], y[:, 1], y.reshape(-1)
    row[1] = w[0]
    flat[4:] = w * 2.0
    expected = np.array([[0.0, 10.0, 2.0], [3.0, 20.0, 40.0]])
    np.testing.assert_array_equal(y.numpy(), expected)
    np.testing.assert_array_equal(column.numpy(), expected[:, 1])
    np.testing.assert_array_equal(row.numpy(), expected[0])
    np.sum(column * column).backward()
    np.testing.assert_array_equal(w.grad, [2 * 10.0 + 2 * 2 * 20.0, 0.0])
    np.testing.assert_array_equal(x.grad, np.zeros((2, 3)))


def test_repeated_integer_indices_the_last_write_wins() -> None:
    """MyGrad: with repeated integer indices only the last write receives a gradient."""
    x, v = tensor([1.0, 2.0, 3.0]), tensor([10.0, 20.0, 30.0])
    y = x * 1.0
    y[np.array([1, 1, 1])] = v
    np.testing.assert_array_equal(y.numpy(), [1.0, 30.0, 3.0])
    np.sum(y * y).backward()
    np.testing.assert_array_equal(v.grad, [0.0, 0.0, 60.0])
    np.testing.assert_array_equal(x.grad, [2.0, 0.0, 6.0])


def test_a_mask_routes_what_is_not_written() -> None:
    """MyGrad: `where=` in an in-place ufunc routes the unmasked part to the old target."""
    x = tensor([1.0, 2.0, 3.0])
    y = x * x
    np.multiply(y, 10.0, out=y, where=np.array([True, False, True]))
    np.testing.assert_array_equal(y.numpy(), [10.0, 4.0, 90.0])
    np.sum(y).backward()
    np.testing.assert_array_equal(x.grad, [20.0, 4.0, 60.0])


def test_a_tensor_without_a_gradient_takes_recorded_values() -> None:
    """A buffer that is filled becomes part of the computation, and its views with it."""
    x = tensor([1.0, 2.0])
    buffer = tensor(np.zeros(4), requires_grad=False)
    tail = buffer[2:]
    buffer[1:3] = x * x
    tail[1] = x[0]
    assert buffer.requires_grad and tail.requires_grad
    np.testing.assert_array_equal(buffer.numpy(), [0.0, 1.0, 4.0, 1.0])
    np.testing.assert_array_equal(tail.numpy(), [4.0, 1.0])
    np.sum(buffer * np.array([1.0, 2.0, 3.0, 4.0])).backward()
    np.testing.assert_array_equal(x.grad, [2 * 2 * 1.0 + 4.0, 3 * 2 * 2.0])


def test_views_of_strided_views_of_a_buffer() -> None:
    w = tensor(np.arange(8.0))
    buffer = tensor(np.zeros(8), requires_grad=False)
    even = buffer[::2]
    last = even[1:]
    turned = tensor(np.zeros((2, 4)), requires_grad=False)
    corner = turned.T[1:, ::-1][:2]
    buffer[...] = w * 1.0
    turned[...] = w.reshape(2, 4) * 1.0
    np.testing.assert_array_equal(even.numpy(), [0.0, 2.0, 4.0, 6.0])
    np.testing.assert_array_equal(last.numpy(), [2.0, 4.0, 6.0])
    np.testing.assert_array_equal(corner.numpy(), np.arange(8.0).reshape(2, 4).T[1:, ::-1][:2])
    np.sum(last * last).backward()
    np.testing.assert_array_equal(w.grad, [0.0, 0.0, 4.0, 0.0, 8.0, 0.0, 12.0, 0.0])


def test_recorded_values_are_not_written_to_plain_arrays() -> None:
    x = tensor([1.0, 2.0])
    plain = np.zeros(2)
    with pytest.raises(TypeError, match="gradient"):
        np.add(x, x, out=plain)
    with pytest.raises(TypeError, match="gradient"):
        plain += x
    np.testing.assert_array_equal(plain, 0.0)


def test_out_with_where_of_a_reduction() -> None:
    """`where=` of a reduction says what is summed, not where the result is written."""
    data = np.arange(12.0).reshape(3, 4)
    mask = np.array([True, False, True, False])
    target, expected = tensor(np.full(4, 100.0), requires_grad=False), np.full(4, 100.0)
    np.sum(tensor(data, requires_grad=False), axis=0, where=mask, out=target)
    np.sum(data, axis=0, where=mask, out=expected)
    np.testing.assert_array_equal(target.numpy(), expected)
    np.add.reduce(tensor(data, requires_grad=False), axis=0, where=mask, out=target)
    np.testing.assert_array_equal(target.numpy(), expected)


def test_out_with_where_of_a_ufunc() -> None:
    a, b = tensor([1.0, 2.0], requires_grad=False), tensor([0.0, 4.0], requires_grad=False)
    target = tensor([7.0, 7.0], requires_grad=False)
    with np.errstate(all="raise"):
        np.divide(a, b, out=target, where=b.numpy() != 0)
    np.testing.assert_array_equal(target.numpy(), [7.0, 0.5])


# ---------------------------------------------------------------- the gradients of views
@pytest.mark.parametrize("size", [6, 60_000])
@pytest.mark.parametrize("retain", [False, True])
def test_the_gradient_of_a_view_is_a_view_of_its_bases_gradient(size: int, retain: bool) -> None:
    """MyGrad: view.grad.base is base.grad."""
    x = tensor(np.linspace(0.0, 1.0, size))
    y = x * 3.0
    v, w = y[1:4], y.reshape(2, -1)
    deep = w[0][::2]
    leaf_view = x[2:]
    (np.sum(v * v) + np.sum(deep) + np.sum(leaf_view)).backward(retain_graph=retain)
    for view, base, take in (
        (v, y, lambda g: g[1:4]), (w, y, lambda g: g.reshape(2, -1)), (deep, y, lambda g: g.reshape(2, -1)[0][::2]),
        (leaf_view, x, lambda g: g[2:]),
    ):  # fmt: skip
        np.testing.assert_array_equal(view.grad, take(base.grad))
        assert np.shares_memory(view.grad, base.grad)


@pytest.mark.parametrize("size", [6, 60_000])
def test_views_are_views_after_the_pass_too(size: int) -> None:
    """The tensors passed over keep their values, and views go on to share memory with their base."""
    x = tensor(np.ones(size))
    y = x * 2.0
    z, v, w = y.copy(), y[1:], y.reshape(2, -1)
    (np.sum(y) + np.sum(z) + np.sum(v) + np.sum(w)).backward()
    with no_grad():
        y += 1.0
        v[0] = 50.0
    for t, expected in ((y, [3.0, 50.0]), (z, [2.0, 2.0]), (v, [50.0, 3.0]), (w[0], [3.0, 50.0])):
        np.testing.assert_array_equal(t.numpy()[:2], expected)
    np.testing.assert_array_equal(x.numpy()[:2], [1.0, 1.0])


def test_views_share_memory_as_in_numpy() -> None:
    """MyGrad: basic indexing, reshape and transpose share memory."""
    c = tensor(np.zeros((2, 3)), requires_grad=False)
    for view in (c[0], c.T, c.reshape(3, 2), c[:, ::2], c[...], np.squeeze(c[None]), c[0][1:]):
        assert isinstance(view, Tensor)
        view[...] = 1.0
        assert c.numpy().sum() == view.size
        c[...] = 0.0
        assert view.numpy().sum() == 0.0
    picked = c[np.array([0])]
    picked += 1.0
    assert c.numpy().sum() == 0.0


def test_a_buffer_shared_with_a_detached_tensor_takes_recorded_values() -> None:
    """The memory is shared no more: what requires a gradient must not be changed by a recorded write."""
    x, w = tensor([1.0, 2.0]), tensor(3.0)
    y = x * x
    d = x.detach()
    d[0] = w * 2.0
    np.testing.assert_array_equal(d.numpy(), [6.0, 2.0])
    (np.sum(d * d) + np.sum(y)).backward()
    assert w.grad == 2 * 6.0 * 2.0
    np.testing.assert_array_equal(x.grad, [2.0, 4.0])
