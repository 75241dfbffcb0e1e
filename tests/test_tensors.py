"""Tensors that a user holds: how they are made, what they tell, and how NumPy takes them."""

from __future__ import annotations

import copy
import io
import operator
import pickle
from typing import Any

import numpy as np
import pytest

import tape
from tape import InputError, InvalidBackprop, Parameter, Tensor, UnsupportedError, no_grad, tensor


# ---------------------------------------------------------------- making
def test_defaults() -> None:
    """MyGrad: float data differentiate, integers and booleans are constants; PyTorch: a Parameter requires grad."""
    for data in (1.0, [1.0, 2.0], np.ones((2, 3), np.float32)):
        x = tensor(data)
        assert x.requires_grad and not x.constant and x.stores_grad and x.is_leaf
        assert x.grad is None and x.grad_fn is None
    for data in (1, [1, 2], True, np.array([True, False]), np.arange(3, dtype=np.int32)):
        k = tensor(data)
        assert not k.requires_grad and k.constant and not k.stores_grad and k.is_leaf
        assert k.dtype.kind == np.asarray(data).dtype.kind
    c = tensor([1.0], requires_grad=False)
    assert not c.requires_grad and c.constant
    w = Parameter([1.0, 2.0])
    assert w.requires_grad and isinstance(w, Tensor) and w.is_leaf
    assert not Parameter([1.0], requires_grad=False).requires_grad
    assert isinstance(Tensor([1.0, 2.0]), type(tensor(1.0)))


def test_integers_have_no_gradient() -> None:
    """The table: asking for a gradient of integers raises TypeError (MyGrad ValueError, PyTorch RuntimeError)."""
    for make in (
        lambda: tensor([1, 2], requires_grad=True), lambda: tensor(True, requires_grad=True),
        lambda: tensor([1, 2]).requires_grad_(), lambda: Parameter([1, 2]),
        lambda: tensor([1.5], dtype=int, requires_grad=True),
    ):  # fmt: skip
        with pytest.raises(InputError, match=r"only floating-point.*astype\(float\)"):
            make()
        with pytest.raises(TypeError):
            make()


def test_what_is_no_tensor() -> None:
    """MyGrad: non-numeric or complex dtype and a non-bool `constant` raise TypeError."""
    for data in ("text", [1.0, "a"], object(), [[1.0], [1.0, 2.0]], np.array(["2020-01-01"], "M8[D]")):
        with pytest.raises(TypeError):
            tensor(data)
    with pytest.raises(UnsupportedError, match="complex"):
        tensor([1j])
    with pytest.raises(InputError, match="requires_grad must be True or False"):
        tensor(1.0, requires_grad=1)  # type: ignore[arg-type]


def test_data_are_copied() -> None:
    """MyGrad: tensor(...) copies by default."""
    data = np.array([1.0, 2.0])
    x = tensor(data)
    data[0] = 9.0
    np.testing.assert_array_equal(x.numpy(), [1.0, 2.0])
    y = tensor(x)
    with no_grad():
        y += 1.0
    np.testing.assert_array_equal(x.numpy(), [1.0, 2.0])
    out = x.numpy()
    out[0] = 5.0
    np.testing.assert_array_equal(x.numpy(), [1.0, 2.0])


def test_dtype_and_layout() -> None:
    assert tensor([1, 2], dtype=float).requires_grad
    assert tensor([1.0], dtype=np.float32).dtype == np.float32
    x = tensor(np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    assert (x.shape, x.ndim, x.size, len(x)) == ((2, 3), 2, 6, 2)
    np.testing.assert_array_equal(x.numpy(), np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(tensor(np.arange(6.0)[::-2]).numpy(), [5.0, 3.0, 1.0])


def test_results_require_a_gradient_if_an_operand_does() -> None:
    """MyGrad: an output is constant iff all inputs are; PyTorch: it requires grad iff any input does."""
    x, c, k = tensor([1.0, 2.0]), tensor([3.0, 4.0], requires_grad=False), tensor([1, 2])
    for y in (x * c, c + x, np.ones(2) - x, k * x, np.sum(x)):
        assert y.requires_grad and not y.is_leaf and not y.constant and not y.stores_grad and y.grad_fn is not None
    for y in (c * 2.0, c + k, np.sin(c), c[0], np.stack([c, c]), k / 2):
        assert isinstance(y, Tensor)
        assert not y.requires_grad and y.is_leaf and y.grad_fn is None
    np.testing.assert_array_equal((k * 2).numpy(), [2, 4])
    assert (k * 2).dtype == np.int64


def test_constants_never_get_a_gradient() -> None:
    """MyGrad: constants never get a gradient."""
    x, c = tensor([1.0, 2.0]), tensor([3.0, 4.0], requires_grad=False)
    np.sum(x * c).backward()
    assert c.grad is None
    np.testing.assert_array_equal(x.grad, [3.0, 4.0])


# ---------------------------------------------------------------- flags
def test_requires_grad_can_be_switched_on_leaves() -> None:
    """PyTorch: requires_grad_; setting it False on a non-leaf is an error (use detach)."""
    x = tensor([1.0, 2.0], requires_grad=False)
    assert x.requires_grad_() is x
    np.sum(x * x).backward()
    np.testing.assert_array_equal(x.grad, [2.0, 4.0])
    x.requires_grad = False
    assert not (x * 2.0).requires_grad
    y = tensor([1.0, 2.0]) * 2.0
    with pytest.raises(InvalidBackprop, match=r"leaf.*detach"):
        y.requires_grad_(False)
    assert y.requires_grad_() is y


def test_a_leaf_that_was_switched_off_after_its_use_gets_no_gradient() -> None:
    """PyTorch: accumulation asks whether the leaf requires a gradient."""
    x, w = tensor(2.0), tensor(3.0)
    y = x * w
    x.requires_grad_(False)
    y.backward()
    assert x.grad is None
    assert w.grad == 2.0


def test_is_leaf() -> None:
    """PyTorch: is_leaf: no grad_fn, or does not require grad."""
    x = tensor(2.0)
    y = x * x
    assert x.is_leaf and not y.is_leaf
    assert y.detach().is_leaf
    y.backward()
    assert not y.is_leaf


def test_retain_grad_is_accepted() -> None:
    """PyTorch: retain_grad opts in; the table: no opt-in needed."""
    x = tensor(2.0)
    y = x * x
    y.retain_grad()
    (y * y).backward()
    assert y.grad == 8.0
    with pytest.raises(InvalidBackprop, match="requires_grad=False"):
        tensor(1.0, requires_grad=False).retain_grad()


def test_grad_is_checked_when_it_is_set() -> None:
    x = tensor([1.0, 2.0])
    x.grad = [3, 4]
    assert x.grad.dtype == float
    for wrong in (np.ones(3), 1.0, ["a", "b"], [1j, 2j]):
        with pytest.raises((ValueError, TypeError), match="gradient"):
            x.grad = wrong
    np.testing.assert_array_equal(x.grad, [3.0, 4.0])


# ---------------------------------------------------------------- detach, data, clone
def test_detach_shares_memory() -> None:
    """PyTorch: detach shares storage, requires_grad False, in-place changes visible to both."""
    x = tensor([1.0, 2.0])
    d = x.detach()
    assert not d.requires_grad and d.is_leaf
    d[0] = 5.0
    np.testing.assert_array_equal(x.numpy(), [5.0, 2.0])
    with no_grad():
        x += 1.0
    np.testing.assert_array_equal(d.numpy(), [6.0, 3.0])
    x.data -= 1.0
    np.testing.assert_array_equal(x.numpy(), [5.0, 2.0])
    assert x.requires_grad


def test_detach_stops_the_gradient() -> None:
    x = tensor([1.0, 2.0])
    y = x * 3.0
    np.sum(y * y.detach()).backward()
    np.testing.assert_array_equal(x.grad, [9.0, 18.0])


def test_detach_in_place() -> None:
    """PyTorch: detach_ in place, an error on views."""
    x = tensor([1.0, 2.0])
    y = x * 3.0
    assert y.detach_() is y
    assert y.is_leaf and not y.requires_grad
    z = x * 2.0
    with pytest.raises(RuntimeError, match="views"):
        z[0:1].detach_()


def test_a_view_of_what_was_detached_in_place_keeps_its_gradient() -> None:
    x = tensor([1.0, 2.0])
    y = x * 2.0
    v = y[1:]
    y.detach_()
    np.sum(v * 3.0).backward()
    np.testing.assert_array_equal(x.grad, [0.0, 6.0])
    np.testing.assert_array_equal(v.grad, [3.0])
    assert y.grad is None


@pytest.mark.parametrize("size", [3, 50_000])
def test_data_can_be_replaced(size: int) -> None:
    x = tensor(np.ones(size))
    y = x * 2.0
    x.data = np.full(size, 5.0)
    z = x * 2.0
    np.testing.assert_array_equal(y.numpy()[:2], [2.0, 2.0])
    np.testing.assert_array_equal(z.numpy()[:2], [10.0, 10.0])
    np.sum(y * z).backward()
    np.testing.assert_array_equal(x.grad[:2], [24.0, 24.0])


def test_data_can_be_replaced_by_another_shape() -> None:
    x = tensor([1.0, 2.0])
    y = x * 2.0
    x.data = [1.0, 1.0, 1.0]
    assert x.shape == (3,)
    np.testing.assert_array_equal((x * 2.0).numpy(), [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(y.numpy(), [2.0, 4.0])


def test_copies_have_memory_of_their_own() -> None:
    """MyGrad: copy leaves the memory; the gradient flows through clone as PyTorch's does."""
    makers = {
        "clone": lambda x: x.clone(), "copy": lambda x: x.copy(), "np.copy": np.copy, "+": operator.pos,
        "astype": lambda x: x.astype(float), "copy.copy": copy.copy,
    }  # fmt: skip
    for name, make in makers.items():
        for size in (2, 50_000):
            x = tensor(np.ones(size))
            y = make(x)
            np.sum(y * 3.0).backward()
            np.testing.assert_array_equal(x.grad, np.full(size, 3.0), err_msg=name)
            with no_grad():
                y += 1.0
            np.testing.assert_array_equal(x.numpy(), np.ones(size), err_msg=name)


def test_deep_copies_and_pickles() -> None:
    for x in (tensor([1.0, 2.0]), tensor([1, 2]), Parameter([1.0, 2.0]), Parameter(1.0, requires_grad=False)):
        for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
            assert type(y) is type(x) and y is not x
            assert y.requires_grad == x.requires_grad and y.dtype == x.dtype
            np.testing.assert_array_equal(y.numpy(), x.numpy())
            with no_grad():
                y += 1
            assert not np.array_equal(x.numpy(), y.numpy())


# ---------------------------------------------------------------- numbers and arrays
def test_item_and_float() -> None:
    """MyGrad: item, float and int raise on size other than 1."""
    x = tensor([[3.0]])
    assert x.item() == 3.0 and type(x.item()) is float
    assert (x * 2.0).item() == 6.0
    assert float(tensor(2.5, requires_grad=False)) == 2.5
    assert int(tensor(3)) == 3
    assert bool(tensor(0.0)) is False
    for many in (tensor([1.0, 2.0]), tensor([1.0, 2.0]) * 2.0):
        with pytest.raises(ValueError, match="size"):
            many.item()
        with pytest.raises((TypeError, ValueError)):
            float(many)
    assert tensor([1.0, 2.0]).item(1) == 2.0


def test_a_gradient_is_not_lost_silently() -> None:
    """PyTorch: "Can't call numpy() on Tensor that requires grad"; here float(t) and np.asarray(t) raise."""
    x = tensor([1.0, 2.0])
    plain = np.zeros(2)
    for use in (
        lambda: np.asarray(x), lambda: np.array([x[0], x[1]]), lambda: float(x[0]), lambda: np.asarray(x * 2.0),
        lambda: float(tensor(1.0)), lambda: operator.iadd(np.zeros(2), x), lambda: np.copyto(plain, x),
        lambda: np.add(x, 1.0, out=plain),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="gradient"):
            use()
    with pytest.raises((TypeError, ValueError)):
        plain[0] = x[0]
    np.testing.assert_array_equal(plain, 0.0)


def test_arrays_of_what_has_no_gradient() -> None:
    x = tensor([1.0, 2.0])
    c = tensor([1.0, 2.0], requires_grad=False)
    for array in (np.asarray(c), np.array(x.detach()), np.asarray(tensor([1, 2])), np.asarray(c * 2.0)):
        assert type(array) is np.ndarray
    y = x * 2.0
    np.sum(y).backward()
    np.testing.assert_array_equal(np.asarray(y), [2.0, 4.0])
    assert float(y[0].detach()) == 2.0
    buffer = io.BytesIO()
    np.save(buffer, c)
    buffer.seek(0)
    np.testing.assert_array_equal(np.load(buffer), [1.0, 2.0])


def test_being_a_sequence() -> None:
    """MyGrad: iterating a 0-d tensor raises TypeError; a Tensor is unhashable."""
    x = tensor([[1.0, 2.0], [3.0, 4.0]])
    rows = list(x)
    assert len(rows) == 2
    np.sum(rows[1] * 2.0).backward()
    np.testing.assert_array_equal(x.grad, [[0.0, 0.0], [2.0, 2.0]])
    for use in (lambda: iter(tensor(1.0)), lambda: len(tensor(1.0)), lambda: hash(x), lambda: {x}):
        with pytest.raises(TypeError):
            use()


def test_comparisons_have_no_gradient() -> None:
    """MyGrad: boolean functions run on the data."""
    x = tensor([1.0, 3.0])
    for mask in (x > 2.0, x == np.array([5.0, 3.0]), np.isfinite(x) & (x > 2.0), x >= tensor([2.0, 2.0])):
        assert mask.dtype == np.bool_
        np.testing.assert_array_equal(np.asarray(mask), [False, True])
    np.sum(np.where(x > 2.0, x * x, 0.0)).backward()
    np.testing.assert_array_equal(x.grad, [0.0, 6.0])


def test_numpy_functions_of_mixed_operands() -> None:
    """MyGrad: __array_ufunc__ and __array_function__; raw arrays and numbers enter as constants."""
    x, c = tensor([1.0, 2.0]), tensor([3.0, 4.0], requires_grad=False)
    a = np.array([5.0, 6.0])
    uses: dict[str, Any] = {
        "stack": (np.sum(np.stack([x, c, a]) * np.array([[1.0], [2.0], [3.0]])), [1.0, 1.0]),
        "array first": (np.sum(a * x), [5.0, 6.0]),
        "reflected": (np.sum(2.0**x), 2.0 ** np.array([1.0, 2.0]) * np.log(2.0)),
        "matmul": (a @ x, [5.0, 6.0]),
        "einsum": (np.einsum("i,i,i->", x, c, a), [15.0, 24.0]),
        "reduce": (np.multiply.reduce(x), [2.0, 1.0]),
        "outer": (np.sum(np.add.outer(x, a)), [2.0, 2.0]),
        "method": ((x * x).mean(), [1.0, 2.0]),
    }
    for name, (y, expected) in uses.items():
        x.grad = None
        y.backward()
        np.testing.assert_allclose(x.grad, expected, rtol=1e-14, err_msg=name)


def test_repr() -> None:
    assert repr(tensor([1.0, 2.0])) == "Tensor([1., 2.], dtype=float64, requires_grad=True)"
    assert repr(Parameter(0.5)).startswith("Parameter(0.5")
    assert "requires_grad=False" in repr(tensor([1]))
    assert "Tensor(" in repr(tensor(1.0) * 2.0)


def test_matmul_in_place() -> None:
    """MyGrad: `__imatmul__` raises TypeError; here it writes as NumPy does, and is refused on leaves."""
    x = tensor(np.eye(2))
    with pytest.raises(RuntimeError, match="in-place"):
        x @= np.ones((2, 2))
    y = x * 1.0
    y @= np.array([[1.0, 2.0], [3.0, 4.0]])
    np.sum(y).backward()
    np.testing.assert_array_equal(x.grad, [[3.0, 7.0], [3.0, 7.0]])


def test_everything_is_exported() -> None:
    for name in ("Tensor", "tensor", "Parameter", "backward", "gradients", "backward_pairs", "no_grad"):
        assert name in tape.__all__
