"""The same programs in PyTorch, where it is installed: the same arrays come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape

torch = pytest.importorskip("torch")

A = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
B = np.array([1.0, 2.0, -1.0])


def both(program: Callable[..., Any]) -> None:
    """Run a program with (backward, grad, tanh, sum, a, b) of each, and compare the arrays that it gives."""
    ours = program(tape.backward, tape.gradients, np.tanh, np.sum, tape.tensor(A), tape.tensor(B))
    leaves = [torch.tensor(d, dtype=torch.float64, requires_grad=True) for d in (A, B)]
    theirs = program(torch.autograd.backward, torch.autograd.grad, torch.tanh, torch.sum, *leaves)
    assert len(ours) == len(theirs)
    for x, y in zip(ours, theirs, strict=True):
        if x is None or y is None:
            assert x is None and y is None
            continue
        x = x.numpy() if isinstance(x, tape.Tensor) else x
        y = y.detach().numpy() if isinstance(y, torch.Tensor) else y
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-14)


def test_accumulation() -> None:
    def program(backward: Any, grad: Any, tanh: Any, total: Any, a: Any, b: Any) -> Any:
        found = [a.grad]
        for k in range(3):
            backward(total(tanh(a * b) * (k + 1.0)))
            found += [a.grad + 0.0, b.grad + 0.0]
        return found

    both(program)


def test_retained_graphs() -> None:
    def program(backward: Any, grad: Any, tanh: Any, total: Any, a: Any, b: Any) -> Any:
        y = tanh(a * b)
        z = total(y * y)
        z.backward(retain_graph=True)
        total(y).backward(retain_graph=True)
        z.backward()
        return [a.grad, b.grad]

    both(program)


def test_inputs() -> None:
    def program(backward: Any, grad: Any, tanh: Any, total: Any, a: Any, b: Any) -> Any:
        z = total(tanh(a * b))
        z.backward(inputs=[b], retain_graph=True)
        found = [a.grad, b.grad + 0.0]
        z.backward()
        return [*found, a.grad, b.grad]

    both(program)


def test_gradients_of_gradients() -> None:
    def program(backward: Any, grad: Any, tanh: Any, total: Any, a: Any, b: Any) -> Any:
        y = tanh(a * b)
        z = total(y * y * y)
        first = grad(z, [a, b, y], create_graph=True)
        second = grad(total(first[0] * first[0]) + total(first[1]), [a, b], retain_graph=True)
        (third,) = grad(total(first[2] * first[2]), y, retain_graph=True)
        total(first[0] * first[0]).backward()
        return [*first, *second, third, a.grad, b.grad]

    both(program)


def test_unused_inputs() -> None:
    def program(backward: Any, grad: Any, tanh: Any, total: Any, a: Any, b: Any) -> Any:
        z = total(tanh(a))
        return [
            *grad(z, [a, b], allow_unused=True, retain_graph=True),
            *grad(z, [a, b], materialize_grads=True, retain_graph=True),
        ]

    both(program)


def test_roots_with_seeds() -> None:
    def program(backward: Any, grad: Any, tanh: Any, total: Any, a: Any, b: Any) -> Any:
        y = tanh(a * b)
        z = total(y)
        seed = (a * 2.0).detach()
        backward([y, z], [seed, None], retain_graph=True)
        found = [a.grad + 0.0, b.grad + 0.0]
        return [*found, *grad([z, y], [b], [None, seed])]

    both(program)


def test_writes_and_views() -> None:
    def program(backward: Any, grad: Any, tanh: Any, total: Any, a: Any, b: Any) -> Any:
        y = a * 1.0
        row = y[0]
        row[1] = total(b * b)
        y[1] = tanh(b)
        y += a
        z = total(y * b)
        z.backward()
        return [z.detach(), y.detach(), row.detach(), a.grad, b.grad]

    both(program)


def test_hooks() -> None:
    def program(backward: Any, grad: Any, tanh: Any, total: Any, a: Any, b: Any) -> Any:
        y = tanh(a * b)
        y.register_hook(lambda g: g * 3.0)
        b.register_hook(lambda g: g + 1.0)
        total(y * y).backward()
        return [a.grad, b.grad]

    both(program)


def test_detached_parts() -> None:
    def program(backward: Any, grad: Any, tanh: Any, total: Any, a: Any, b: Any) -> Any:
        y = tanh(a * b)
        total(y * y.detach() + b.detach() * a).backward()
        return [a.grad, b.grad]

    both(program)
