"""The errors of the imperative face: one family, each also the builtin that users expect, with a way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape import (
    DetachedError,
    InplaceError,
    InputError,
    InvalidBackprop,
    InvalidGradient,
    TapeError,
    UnsupportedError,
    backward,
    backward_pairs,
    detect_anomaly,
    gradients,
    no_grad,
    tensor,
)


def leaf() -> Any:
    return tensor([1.0, 2.0])


def cleared() -> Any:
    y = leaf() * 2.0
    y.backward(np.ones(2))
    return y


CASES: dict[str, tuple[Callable[[], Any], type[Exception], type[Exception], str]] = {
    # PyTorch: "grad can be implicitly created only for scalar outputs"
    "no seed": (lambda: (leaf() * 2.0).backward(), InvalidBackprop, RuntimeError, r"np\.sum\(y\)\.backward\(\)"),
    # PyTorch: "element 0 of tensors does not require grad and does not have a grad_fn"
    "no gradient": (
        lambda: tensor(1.0, requires_grad=False).backward(), InvalidBackprop, RuntimeError,
        r"element 0 of tensors does not require grad and does not have a grad_fn.*requires_grad=True",
    ),
    "second root without a gradient": (
        lambda: backward([np.sum(leaf()), tensor(1.0, requires_grad=False)]), InvalidBackprop, RuntimeError,
        r"element 1 of tensors does not require grad",
    ),
    "computed under no_grad": (
        lambda: no_grad()(lambda: np.sum(leaf()))().backward(), InvalidBackprop, RuntimeError, r"outside of no_grad",
    ),
    "integers": (lambda: tensor([1]).backward(), InvalidBackprop, RuntimeError, r"does not require grad"),
    # SINGA: "wrong input type"
    "an array as root": (lambda: backward(np.ones(3)), InvalidBackprop, RuntimeError, r"Tensor.*got"),
    "nothing as root": (lambda: backward([]), InvalidBackprop, RuntimeError, r"empty"),
    # PyTorch: "Mismatch in shape"; MyGrad: ValueError
    "shape of a seed": (
        lambda: (leaf() * 2.0).backward(np.ones(3)), InvalidGradient, ValueError, r"Mismatch in shape.*\(3,\).*\(2,\)",
    ),
    # PyTorch: "gradients can be either Tensors or None, but got ..." is a TypeError
    "type of a seed": (lambda: (leaf() * 2.0).backward("x"), InvalidGradient, TypeError, r"gradient"),
    "number of seeds": (
        lambda: backward([np.sum(leaf()), np.sum(leaf())], [1.0]), InvalidGradient, RuntimeError, r"2 tensors and 1",
    ),
    # PyTorch: "`inputs` argument to `backward()` cannot be empty."
    "no inputs": (
        lambda: np.sum(leaf()).backward(inputs=[]), InvalidBackprop, RuntimeError, r"inputs.*cannot be empty",
    ),
    "an array as input": (
        lambda: gradients(np.sum(leaf()), np.ones(2)), InvalidBackprop, RuntimeError, r"Tensors, got",
    ),
    # PyTorch: "One of the differentiated Tensors does not require grad"
    "an input without a gradient": (
        lambda: gradients(np.sum(leaf()), tensor(1.0, requires_grad=False)), InvalidBackprop, RuntimeError,
        r"one of the differentiated tensors does not require grad",
    ),
    # PyTorch: "appears to not have been used in the graph"
    "an unused input": (
        lambda: gradients(np.sum(leaf()), leaf()), InvalidBackprop, RuntimeError,
        r"not have been used.*allow_unused=True",
    ),
    # MyGrad: 'cleared' prior to backprop; PyTorch: "a second time ... Specify retain_graph=True"
    "cleared": (lambda: cleared().backward(np.ones(2)), InvalidBackprop, RuntimeError, r"cleared.*retain_graph=True"),
    "computed from what was cleared": (
        lambda: np.sum(cleared() * 2.0).backward(), InvalidBackprop, RuntimeError, r"cleared.*compute the tensor again",
    ),
    "a write to what was cleared": (
        lambda: cleared().__iadd__(1.0), InvalidBackprop, RuntimeError, r"cleared",
    ),
    # PyTorch: "a leaf Variable that requires grad is being used in an in-place operation."
    "a write to a leaf": (lambda: leaf().__setitem__(0, 1.0), InplaceError, RuntimeError, r"leaf.*with no_grad\(\)"),
    # PyTorch: only floating dtypes may require grad
    "integers that require": (lambda: tensor([1], requires_grad=True), InputError, TypeError, r"astype\(float\)"),
    # PyTorch: "you can only change requires_grad flags of leaf variables"
    "flag of no leaf": (
        lambda: (leaf() * 2.0).requires_grad_(False), InvalidBackprop, RuntimeError, r"leaf.*detach",
    ),
    # PyTorch: "cannot register a hook on a tensor that doesn't require gradient"
    "hook": (lambda: tensor(1).register_hook(print), InvalidBackprop, RuntimeError, r"register a hook"),
    # PyTorch: "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
    "asarray": (lambda: np.asarray(leaf()), DetachedError, TypeError, r"t\.numpy\(\)"),
    "float": (lambda: float(tensor(1.0) * 2.0), DetachedError, TypeError, r"t\.numpy\(\)"),
    "a gradient that does not fit": (
        lambda: setattr(leaf(), "grad", np.ones(3)), InvalidGradient, ValueError, r"shape \(2,\).*shape \(3,\)",
    ),
    "the gradient of what was computed": (
        lambda: setattr(leaf() * 2.0, "grad", np.ones(2)), InvalidGradient, ValueError, r"only that of a leaf",
    ),
    "data of what was computed": (
        lambda: setattr(leaf() * 2.0, "data", np.ones(2)), InplaceError, RuntimeError, r"make a new one",
    ),
    "complex": (lambda: tensor(1j), UnsupportedError, TypeError, r"real and imaginary parts"),
    "sequences of different lengths": (lambda: tensor([[1.0], [1.0, 2.0]]), InputError, TypeError, r"no array"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_errors(case: str) -> None:
    """The table: one base TapeError; each subclass also inherits the builtin that users of the three expect."""
    cause, kind, builtin, message = CASES[case]
    with pytest.raises(kind, match=f"(?s){message}") as caught:
        cause()
    assert isinstance(caught.value, TapeError)
    assert isinstance(caught.value, builtin)
    # And all goes on.
    x = leaf()
    np.sum(x * x).backward()
    np.testing.assert_array_equal(x.grad, [2.0, 4.0])


def test_arguments_that_contradict() -> None:
    """PyTorch: allow_unused=False together with materialize_grads=True is a ValueError."""
    x = leaf()
    with pytest.raises(ValueError, match="allow_unused"):
        gradients(np.sum(x), x, allow_unused=False, materialize_grads=True)


def test_roots_recorded_before_and_during_a_pass() -> None:
    x, w = leaf(), leaf()
    outer = np.sum(w * w)
    for _ in backward_pairs(np.sum(x * x)):
        inner = np.sum(w * 3.0)
    backward([outer, inner])
    np.testing.assert_array_equal(w.grad, [5.0, 7.0])


def test_operations_during_a_pass() -> None:
    """They are recorded; what depends on the part passed over can't be propagated through when it has ended."""
    x = leaf()
    y = x * x
    loss = np.sum(y)
    for _, g in backward_pairs(loss):
        made = (y * 2.0, np.sin(y), y[0])
        during = y.numpy(), loss.item()
        np.testing.assert_array_equal(g, [2.0, 4.0])
    assert during[0].tolist() == [1.0, 4.0]
    assert during[1] == 5.0
    np.testing.assert_array_equal(made[0].numpy(), [2.0, 8.0])
    for t in made:
        with pytest.raises(InvalidBackprop, match="cleared"):
            np.sum(t).backward()


def test_an_error_in_an_operation_leaves_everything_usable() -> None:
    x = leaf()
    y = x * 2.0
    for use in (
        lambda: y + np.ones(3), lambda: y @ np.ones(3), lambda: y[5], lambda: y.reshape(3), lambda: np.sum(y, axis=3),
        lambda: y.__setitem__(9, 1.0), lambda: y.__setitem__(slice(None), np.ones(3)),
        lambda: np.stack([y, np.ones(3)]),
    ):  # fmt: skip
        with pytest.raises((ValueError, IndexError)):
            use()
    np.testing.assert_array_equal(y.numpy(), [2.0, 4.0])
    np.sum(y * y).backward()
    np.testing.assert_array_equal(x.grad, [8.0, 16.0])


def test_an_interrupt_leaves_everything_usable() -> None:
    x = leaf()
    y = x * x
    y.register_hook(lambda g: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        np.sum(y).backward()
    np.sum(x * x).backward()
    np.testing.assert_array_equal(x.grad, [2.0, 4.0])
    assert tape.is_grad_enabled()


def test_an_anomaly_leaves_everything_usable() -> None:
    x = tensor([0.0, 4.0])
    with detect_anomaly():
        y = np.sqrt(x)
        with pytest.raises(RuntimeError, match="sqrt"):
            np.sum(y).backward()
        assert x.grad is None
        w = leaf()
        np.sum(w * w).backward()
    np.testing.assert_array_equal(w.grad, [2.0, 4.0])


def test_a_view_that_is_not_read_again() -> None:
    """What fails while a view is taken again concerns that view alone."""
    w = tensor(np.arange(8.0))
    buffer = tensor(np.zeros(8), requires_grad=False)
    last = buffer[::2][1:]
    buffer[...] = w * 1.0
    np.sum(buffer * buffer).backward()
    np.testing.assert_array_equal(w.grad, 2 * np.arange(8.0))
    assert last.shape == (3,)
