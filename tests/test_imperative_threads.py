"""Held tensors in several threads: each records on a tape of its own, and parameters may be shared."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from test_threads import together

from tape import Parameter, StaleTensorError, backward_pairs, gradients, no_grad, tensor

X = np.linspace(0.1, 1.0, 10)


def elsewhere(work: Any) -> Any:
    """Call a function in another thread; give its result, or what it raised."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    return found[0]


def test_each_thread_has_its_tape() -> None:
    w = Parameter(X)

    def work(k: int) -> bool:
        for i in range(40):
            x = tensor(X * (k + 1))
            y = np.sum(np.sin(x) * w * i)
            (g,) = gradients(y, w, retain_graph=True)
            np.testing.assert_allclose(g, np.sin(X * (k + 1)) * i, rtol=1e-13)
            y.backward(inputs=[x])
            np.testing.assert_allclose(x.grad, np.cos(X * (k + 1)) * X * i, rtol=1e-13)
        return True

    assert all(together(work))
    assert w.grad is None


@pytest.mark.parametrize("size", [10, 50_000])
def test_a_leaf_that_several_threads_use_at_once(size: int) -> None:
    d = np.linspace(0.1, 1.0, size)
    w = Parameter(d)
    meet = threading.Barrier(4)

    def work(k: int) -> Any:
        meet.wait(30)
        y = w * (k + 1.0)
        meet.wait(30)
        z = np.sum(y * y * w)
        meet.wait(30)
        return gradients(z, w)[0]

    for k, g in enumerate(together(work, 4)):
        np.testing.assert_allclose(g, 3 * (k + 1) ** 2 * d**2, rtol=1e-13)


def test_threads_one_after_the_other_accumulate() -> None:
    w = Parameter(2.0)
    for k in range(5):
        elsewhere(lambda: (w * w).backward())
        assert w.grad == 4.0 * (k + 1)


def test_training_in_threads() -> None:
    def work(k: int) -> Any:
        w = Parameter(np.zeros(3))
        for _ in range(100):
            for p, g in backward_pairs(np.sum((w - float(k)) ** 2)):
                with no_grad():
                    p -= 0.1 * g
        return w.numpy()

    for k, w in enumerate(together(work)):
        np.testing.assert_allclose(w, np.full(3, float(k)), atol=1e-8)


def test_a_tensor_that_another_thread_recorded_is_refused() -> None:
    x = tensor(X)
    y = x * x
    s = np.sum(y)
    uses = {
        "operator": lambda: y * 2.0, "with a leaf": lambda: x * y, "ufunc": lambda: np.sin(y), "sum": lambda: np.sum(y),
        "index": lambda: y[0], "view": lambda: y.T, "write": lambda: y.__setitem__(0, 1.0), "numpy": y.numpy,
        "item": s.item, "backward": s.backward, "gradients": lambda: gradients(s, x),
        "pairs": lambda: backward_pairs(s), "detach": y.detach, "stack": lambda: np.stack([x, y]),
        "no_grad": no_grad()(lambda: y * 2.0), "requires_grad": lambda: y.requires_grad,
    }  # fmt: skip
    for name, use in uses.items():
        error = elsewhere(use)
        assert isinstance(error, StaleTensorError), (name, error)
        assert "another thread" in str(error)
    s.backward()
    np.testing.assert_array_equal(x.grad, 2 * X)


def test_what_was_passed_over_belongs_to_no_thread() -> None:
    def work() -> Any:
        x = tensor(X)
        y = x * 3.0
        np.sum(y * y).backward()
        return x, y

    x, y = elsewhere(work)
    np.testing.assert_array_equal(y.numpy(), 3 * X)
    np.testing.assert_array_equal(y.grad, 6 * X)
    np.sum(y.detach() * x).backward()
    np.testing.assert_allclose(x.grad, 18 * X + 3 * X)


def test_a_tensor_whose_thread_has_ended() -> None:
    y = elsewhere(lambda: tensor(X) * 2.0)
    with pytest.raises(StaleTensorError, match="another thread"):
        np.sum(y)
    del y
    x = tensor(X)
    np.sum(x * x).backward()
    np.testing.assert_array_equal(x.grad, 2 * X)


def test_handles_that_another_thread_drops() -> None:
    """A tape is freed where its last handle goes, and its memory serves there."""

    def work(k: int) -> bool:
        for _ in range(50):
            box: list[Any] = [tensor(X) * 2.0]
            assert elsewhere(lambda box=box: box.clear()) is None
            x = tensor(X)
            np.sum(x * x).backward()
            np.testing.assert_array_equal(x.grad, 2 * X)
        return True

    assert all(together(work, 4))


def test_an_exception_in_one_thread_leaves_the_others_alone() -> None:
    w = Parameter(X)

    def work(k: int) -> bool:
        for _ in range(30):
            y = np.sum(w * w * k)
            if k % 2:
                with pytest.raises(ZeroDivisionError), no_grad():
                    y * (1 / 0)
                for _pair in backward_pairs(y, retain_graph=True):
                    break
            np.testing.assert_array_equal(gradients(y, w)[0], 2 * k * X)
        return True

    assert all(together(work))
