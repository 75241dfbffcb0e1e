"""backward and gradients: the numbers that users of other systems know, accumulation, seeds, retained graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tape import InvalidBackprop, InvalidGradient, Parameter, Tensor, backward, gradients, tensor


def equal(got: Any, expected: Any) -> None:
    """Hold a gradient against numbers; it is a plain array."""
    assert type(got) is np.ndarray
    np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-300)
    assert got.shape == np.shape(expected)


# ---------------------------------------------------------------- the documented numbers
def test_the_product_of_two_numbers() -> None:
    """MyGrad: every tensor in the graph has a gradient, and the root's own is the seed."""
    x, y = tensor(2.0), tensor(3.0)
    w = x * y
    f = 2.0 * w
    assert f.backward() is None
    for t, expected in ((f, 1.0), (w, 2.0), (y, 4.0), (x, 6.0)):
        equal(t.grad, expected)


def test_relu_and_sigmoid_of_a_line() -> None:
    """SINGA: relu and sigmoid of linspace(-100, 100, 10), with a seed of ones."""
    data = np.linspace(-100.0, 100.0, 10)
    x = tensor(data)
    np.maximum(x, 0.0).backward(np.ones(10))
    equal(x.grad, (data > 0).astype(float))
    x.zero_grad()
    s = 1.0 / (1.0 + np.exp(-x))
    s.backward(np.ones(10))
    e = np.exp(-np.abs(data))
    np.testing.assert_allclose(x.grad, e / (1.0 + e) ** 2, rtol=1e-12)


@pytest.mark.parametrize("function", [lambda x: np.maximum(x, 0.0), lambda x: 1.0 / (1.0 + np.exp(-x))])
def test_a_seed_is_needed_for_many_elements(function: Any) -> None:
    """PyTorch: "grad can be implicitly created only for scalar outputs"; the table: InvalidBackprop."""
    y = function(tensor(np.linspace(-100.0, 100.0, 10)))
    with pytest.raises(InvalidBackprop, match=r"implicitly created only for scalar.*np\.ones_like"):
        y.backward()
    with pytest.raises(RuntimeError):
        y.backward()
    y.backward(np.ones(10))


def test_zero_slopes() -> None:
    """The table: floor, sign and the like of a differentiable have a zero gradient."""
    x = tensor([0.5, 1.5])
    np.sum(np.floor(x) * x + np.sign(x)).backward()
    equal(x.grad, [0.0, 1.0])


def test_the_root_itself_has_a_zero_slope() -> None:
    """The table: floor of a differentiable has a zero gradient, also if nothing else is summed with it."""
    x = tensor(1.5)
    np.floor(x).backward()
    equal(x.grad, 0.0)


# ---------------------------------------------------------------- accumulation
def test_leaves_accumulate() -> None:
    """PyTorch: gradients accumulate into leaf .grad, None at first."""
    x = tensor([1.0, 2.0])
    assert x.grad is None
    for k in range(1, 4):
        np.sum(x**2).backward()
        equal(x.grad, 2.0 * k * np.array([1.0, 2.0]))


def test_zeroing() -> None:
    """PyTorch: zero or None the gradients between steps; MyGrad: null_grad gives the tensor."""
    x = tensor([1.0, 2.0])
    np.sum(x**2).backward()
    x.zero_grad(set_to_none=False)
    equal(x.grad, [0.0, 0.0])
    x.zero_grad()
    assert x.grad is None
    np.sum(x).backward()
    assert x.null_grad() is x
    assert x.grad is None
    np.sum(x).backward()
    x.grad = None
    assert x.grad is None
    x.grad = [1.0, 1.0]
    np.sum(x).backward()
    equal(x.grad, [2.0, 2.0])


def test_an_earlier_gradient_stays_as_it_was() -> None:
    """A gradient that was kept does not change when later passes accumulate, or use the memory again."""
    for size in (1, 5, 20_000, 60_000):
        x = tensor(np.linspace(0.0, 1.0, size))
        kept = []
        for k in range(4):
            y = x * (k + 1.0)
            np.sum(y * y).backward()
            kept.append((x.grad, x.grad.copy(), y.grad, y.grad.copy(), y, y.numpy()))
        for total, total_before, g, g_before, y, value in kept:
            np.testing.assert_array_equal(total, total_before)
            np.testing.assert_array_equal(g, g_before)
            np.testing.assert_array_equal(y.numpy(), value)


def test_intermediates_hold_the_gradient_of_the_latest_pass() -> None:
    """The table: any tensor whose handle is alive may be asked; MyGrad: overwritten, not accumulated."""
    x = tensor(3.0)
    y = x * x
    z = 5.0 * y
    z.backward(retain_graph=True)
    equal(y.grad, 5.0)
    z.backward(2.0, retain_graph=True)
    equal(y.grad, 10.0)
    equal(z.grad, 2.0)
    equal(x.grad, 90.0)
    y.null_grad()
    assert y.grad is None


def test_many_roots_are_summed() -> None:
    """PyTorch: backward computes the sum of gradients of the given tensors."""
    x = tensor([1.0, 2.0])
    y, z = x * x, np.sum(x)
    backward([y, z], [np.array([1.0, 10.0]), None])
    equal(x.grad, [3.0, 41.0])
    equal(y.grad, [1.0, 10.0])


def test_a_root_that_another_root_depends_on() -> None:
    x = tensor(2.0)
    y = x * x
    z = y * 3.0
    backward((y, z))
    equal(x.grad, 16.0)
    equal(y.grad, 4.0)


def test_a_root_twice_and_a_leaf_as_root() -> None:
    x = tensor(2.0)
    y = x * 3.0
    backward([y, y], retain_graph=True)
    equal(x.grad, 6.0)
    backward([x, y])
    equal(x.grad, 10.0)
    u = tensor([1.0, 2.0])
    u.backward([3.0, 4.0])
    equal(u.grad, [3.0, 4.0])


def test_a_number_that_is_held_and_read_after_a_leaf_that_was_read_before_it() -> None:
    """The sweep stops for the number and for the leaf at neighbouring places, and goes over each entry once."""
    x, u = tensor(2.0), tensor(1.0)
    unused = u * 1.0
    s = x * x
    z = s * u
    z.backward(retain_graph=True)
    equal(x.grad, 4.0)
    equal(u.grad, 4.0)
    equal(s.grad, 1.0)
    assert unused.grad is None


def test_a_gradient_has_shape_and_dtype_of_its_tensor() -> None:
    """MyGrad: gradient dtype and shape equal the tensor's, always an ndarray (0-d for numbers)."""
    for data in (np.float32(2.0), np.ones((2, 1, 3), np.float32), 1.5, np.ones((1,)), np.zeros((0, 2))):
        x = tensor(data)
        np.sum(x * x).backward()
        assert type(x.grad) is np.ndarray
        assert x.grad.shape == np.shape(data)
        assert x.grad.dtype == x.dtype
    x = tensor(np.ones(3, np.float32))
    np.sum(x * np.ones(3)).backward()
    assert x.grad.dtype == np.float32


def test_fan_out_and_broadcasting() -> None:
    a, b = tensor([[1.0], [2.0]]), tensor([3.0, 4.0, 5.0])
    y = a * b
    np.sum(y * y + y).backward()
    outer = np.array([[1.0], [2.0]]) * np.array([3.0, 4.0, 5.0])
    equal(y.grad, 2 * outer + 1)
    equal(a.grad, np.sum((2 * outer + 1) * np.array([3.0, 4.0, 5.0]), 1, keepdims=True))
    equal(b.grad, np.sum((2 * outer + 1) * np.array([[1.0], [2.0]]), 0))


# ---------------------------------------------------------------- seeds
@pytest.mark.parametrize("seed", [2, 2.0, np.float32(2), np.array(2), [2.0, 2.0, 2.0], np.full(3, 2), tensor([2.0])])
def test_seeds(seed: Any) -> None:
    """The table: number, array-like or Tensor that broadcasts to the root's shape; integers are never truncated."""
    x = tensor([1.0, 2.0, 3.0])
    (x * x * 0.5).backward(seed)
    equal(x.grad, [2.0, 4.0, 6.0])


def test_a_fractional_seed_of_a_number() -> None:
    """SINGA: dy rescales the loss."""
    x = tensor(3.0)
    (x * x).backward(0.25)
    equal(x.grad, 1.5)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 1, 1)])
def test_one_element_of_any_shape_is_scalar(shape: tuple[int, ...]) -> None:
    """PyTorch: a one-element tensor of any shape counts as scalar."""
    x = tensor(np.full(shape, 3.0))
    (x * x).backward()
    equal(x.grad, np.full(shape, 6.0))


@pytest.mark.parametrize("seed", [np.ones((2, 3)), np.ones(2), np.ones((3, 1)), "a", None, 1j, [1.0, "b"], object()])
def test_seeds_that_do_not_fit(seed: Any) -> None:
    """PyTorch: "Mismatch in shape"; MyGrad: ValueError for a gradient that enlarges the root."""
    x = tensor(np.ones(3))
    y = x * 2.0
    kind = InvalidBackprop if seed is None else InvalidGradient
    for _ in range(2):
        with pytest.raises(kind, match=r"gradient"):
            y.backward(seed)
    if seed is not None:
        with pytest.raises(ValueError, match="gradient"):
            y.backward(seed)
    y.backward(1.0)
    equal(x.grad, [2.0, 2.0, 2.0])


# ---------------------------------------------------------------- retain_graph, inputs
def test_a_second_pass_needs_retain_graph() -> None:
    """PyTorch: "Trying to backward through the graph a second time"; MyGrad: 'cleared' prior to backprop."""
    x = tensor([1.0, 2.0])
    y = np.sum(x * x)
    y.backward(retain_graph=True)
    y.backward()
    equal(x.grad, [4.0, 8.0])
    with pytest.raises(InvalidBackprop, match=r"cleared.*retain_graph=True"):
        y.backward()
    with pytest.raises(RuntimeError):
        y.backward()
    equal(x.grad, [4.0, 8.0])


def test_two_roots_that_share_a_part() -> None:
    """MyGrad: two roots share a subgraph, and the first backward cleared it."""
    x = tensor(2.0)
    shared = x * x
    a, b = shared * 3.0, shared * 5.0
    a.backward()
    equal(x.grad, 12.0)
    with pytest.raises(InvalidBackprop, match="cleared"):
        b.backward()
    equal(x.grad, 12.0)
    with pytest.raises(InvalidBackprop, match="cleared"):
        (shared + 1.0).backward()
    assert b.item() == 20.0


def test_two_roots_that_share_only_a_leaf() -> None:
    x = tensor(2.0)
    a, b = x * x, x * x * x
    a.backward()
    b.backward()
    equal(x.grad, 16.0)
    equal(a.grad, 1.0)
    equal(b.grad, 1.0)


def test_inputs_restrict_what_accumulates() -> None:
    """PyTorch: inputs= restricts accumulation to those."""
    x, y = tensor(2.0), tensor(3.0)
    f = x * y
    f.backward(inputs=[x], retain_graph=True)
    equal(x.grad, 3.0)
    assert y.grad is None
    f.backward(inputs=y)
    equal(x.grad, 3.0)
    equal(y.grad, 2.0)


def test_an_intermediate_as_input() -> None:
    """PyTorch: inputs= may name a tensor on the way."""
    x = tensor(2.0)
    y = x * x
    (y * y).backward(inputs=[y])
    assert x.grad is None
    equal(y.grad, 8.0)


# ---------------------------------------------------------------- gradients
def test_gradients_leave_grad_alone() -> None:
    """PyTorch: autograd.grad gives a tuple matching the inputs and does not touch .grad."""
    x, y = tensor(2.0), tensor([1.0, 2.0])
    z = x * x * y
    got = gradients(z, [y, x, y], np.array([1.0, 10.0]))
    assert isinstance(got, tuple)
    for g, expected in zip(got, ([4.0, 40.0], 84.0, [4.0, 40.0]), strict=True):
        equal(g, expected)
    assert x.grad is None and y.grad is None


def test_gradients_of_many_outputs() -> None:
    x = tensor([1.0, 2.0])
    (g,) = gradients([x * 3.0, np.sum(x * x)], x, [np.ones(2), 2.0])
    equal(g, [7.0, 11.0])


def test_gradients_of_tensors_on_the_way() -> None:
    x = tensor([1.0, 2.0])
    y = np.sum(x * x)
    z = y * y
    equal(gradients(z, [x, y], retain_graph=True)[1], 10.0)
    (g,) = gradients(z, y)
    equal(g, 10.0)
    assert x.grad is None


def test_unused_inputs() -> None:
    """PyTorch: "appears to not have been used in the graph", allow_unused, materialize_grads."""
    x, unused = tensor(2.0), tensor([1.0, 2.0])
    y = x * x
    with pytest.raises(InvalidBackprop, match=r"index 1 appears to not have been used.*allow_unused=True"):
        gradients(y, [x, unused], retain_graph=True)
    got = gradients(y, [x, unused], allow_unused=True, retain_graph=True)
    equal(got[0], 4.0)
    assert got[1] is None
    got = gradients(y, [unused, x], materialize_grads=True, retain_graph=True)
    equal(got[0], [0.0, 0.0])
    equal(got[1], 4.0)
    with pytest.raises(ValueError, match="allow_unused=False contradicts"):
        gradients(y, x, allow_unused=False, materialize_grads=True)


# ---------------------------------------------------------------- create_graph
def test_gradients_that_can_be_differentiated() -> None:
    """PyTorch: create_graph=True makes the gradients differentiable; retain_graph follows it."""
    x = tensor(2.0)
    (first,) = gradients(x**4, x, create_graph=True)
    (second,) = gradients(first, x, create_graph=True)
    (third,) = gradients(second, x)
    assert isinstance(first, Tensor) and isinstance(second, Tensor)
    assert (first.item(), second.item()) == (32.0, 48.0)
    equal(third, 48.0)


def test_a_gradient_penalty() -> None:
    x, w = tensor([1.0, 2.0]), Parameter([3.0, 5.0])
    (g,) = gradients(np.sum(w * x**2), x, create_graph=True)
    np.sum(g**2).backward()
    # g = 2 w x, and the penalty is 4 w² x².
    equal(w.grad, [8 * 3.0, 8 * 5.0 * 4.0])
    equal(x.grad, [8 * 9.0, 8 * 25.0 * 2.0])


def test_the_pass_that_made_a_gradient_adds_to_it() -> None:
    """PyTorch: backward(create_graph=True), then a loss of .grad, without zeroing in between."""
    x = tensor([1.0, 2.0, 3.0])
    np.sum(x**3).backward(create_graph=True)
    assert isinstance(x.grad, Tensor)
    np.sum(x.grad**2).backward()
    data = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(x.grad.numpy() if isinstance(x.grad, Tensor) else x.grad, 3 * data**2 + 36 * data**3)


def test_a_plain_pass_adds_to_a_gradient_that_can_be_differentiated() -> None:
    x = tensor([1.0, 2.0, 3.0])
    np.sum(x**3).backward(create_graph=True)
    np.sum(x**2).backward()
    data = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(x.grad.numpy() if isinstance(x.grad, Tensor) else x.grad, 3 * data**2 + 2 * data)


def test_create_graph_in_a_chain_with_views_and_writes() -> None:
    x = tensor([1.0, 2.0, 3.0])
    y = x * 1.0
    y[0] = x[1] * x[2]
    (g,) = gradients(np.sum(y**3), x, create_graph=True)
    # y = (x1 x2, x1, x2)
    np.testing.assert_allclose(g.numpy(), [0.0, 3 * 36 * 3 + 12, 3 * 36 * 2 + 27])
    (h,) = gradients(g[1], x)
    # d/dx (3 (x1 x2)² x2 + 3 x1²) = (0, 6 x1 x2³ + 6 x1, 9 x1² x2²)
    equal(h, [0.0, 6 * 2 * 27 + 12.0, 9 * 4 * 9.0])
