"""Functional transforms called on tensors that a user holds: the result is recorded like that of any operation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tape import (
    InputError,
    Parameter,
    Tensor,
    grad,
    hessian,
    hvp,
    jacobian,
    jvp,
    no_grad,
    tensor,
    value_and_grad,
    vjp,
)

DATA = np.array([1.0, 2.0])


def cube(t: Any) -> Any:
    return np.sum(t**3)


def test_the_gradient_of_a_held_tensor_is_recorded() -> None:
    x = tensor(DATA)
    g = grad(cube)(x)
    assert isinstance(g, Tensor) and g.requires_grad
    np.testing.assert_array_equal(g.numpy(), 3 * DATA**2)
    np.sum(g * g).backward()
    np.testing.assert_allclose(x.grad, 36 * DATA**3)


def test_the_gradient_of_what_was_computed() -> None:
    x = tensor(DATA)
    y = np.sin(x)
    np.sum(grad(cube)(y)).backward()
    np.testing.assert_allclose(x.grad, 6 * np.sin(DATA) * np.cos(DATA))


def test_value_and_gradient() -> None:
    x = tensor(DATA)
    value, g = value_and_grad(cube)(x)
    (value + np.sum(g)).backward()
    np.testing.assert_allclose(x.grad, 3 * DATA**2 + 6 * DATA)


def test_pushing_forward() -> None:
    x, v = tensor(DATA), tensor([3.0, 5.0])
    y, t = jvp(lambda s: s**3, (x,), (v,))
    np.testing.assert_array_equal(y.numpy(), DATA**3)
    np.sum(t * t).backward()
    # t = 3 x² v
    np.testing.assert_allclose(x.grad, 36 * DATA**3 * np.array([9.0, 25.0]))
    np.testing.assert_allclose(v.grad, 2 * 9 * DATA**4 * np.array([3.0, 5.0]))


def test_pulling_back() -> None:
    x = tensor(DATA)
    _, pull = vjp(lambda s: s**3, x)
    (g,) = pull(np.array([1.0, 10.0]))
    np.sum(g).backward()
    np.testing.assert_allclose(x.grad, 6 * DATA * np.array([1.0, 10.0]))


def test_jacobian() -> None:
    x = tensor(DATA)
    j = jacobian(lambda s: s**3)(x)
    np.testing.assert_allclose(j.numpy(), np.diag(3 * DATA**2))
    np.sum(j).backward()
    np.testing.assert_allclose(x.grad, 6 * DATA)


def test_hessian() -> None:
    x = tensor(DATA)
    h = hessian(lambda s: np.sum(s**4))(x)
    assert isinstance(h, Tensor)
    np.testing.assert_allclose(h.numpy(), np.diag(12 * DATA**2))
    np.sum(h).backward()
    np.testing.assert_allclose(x.grad, 24 * DATA)


def test_hessian_vector_product() -> None:
    x, v = tensor(DATA), tensor([3.0, 5.0])
    t = hvp(lambda s: np.sum(s**4), x, v)
    assert isinstance(t, Tensor)
    np.testing.assert_allclose(t.numpy(), 12 * DATA**2 * np.array([3.0, 5.0]))
    np.sum(t).backward()
    np.testing.assert_allclose(x.grad, 24 * DATA * np.array([3.0, 5.0]))
    np.testing.assert_allclose(v.grad, 12 * DATA**2)


def test_a_transform_of_a_transform() -> None:
    x = tensor(2.0)
    third = grad(grad(grad(lambda t: t**5)))(x)
    assert third.item() == 60 * 4.0
    third.backward()
    assert x.grad == 120 * 2.0


def test_a_tensor_that_requires_a_gradient_and_is_no_argument_is_refused() -> None:
    w = tensor(2.0)
    recorded = w * 3.0
    for one in (w, recorded, Parameter(2.0)):
        for transform in (grad, value_and_grad, jacobian):
            with pytest.raises(InputError, match=r"none of its arguments.*detach.*no_grad"):
                transform(lambda t, one=one: np.sum(t * one))(DATA)
    np.testing.assert_array_equal(grad(lambda t: np.sum(t * recorded.detach()))(DATA), [6.0, 6.0])
    (w * recorded).backward()
    assert w.grad == 12.0


def test_it_is_a_constant_under_no_grad() -> None:
    w = tensor(2.0)
    recorded = w * 3.0
    with no_grad():
        np.testing.assert_array_equal(grad(lambda t: np.sum(t * w * recorded))(DATA), [12.0, 12.0])

    def f(t: Any) -> Any:
        with no_grad():
            factor = w * recorded
        return np.sum(t * factor)

    np.testing.assert_array_equal(grad(f)(DATA), [12.0, 12.0])


def test_tensors_without_a_gradient_are_constants() -> None:
    c, k = tensor([3.0, 4.0], requires_grad=False), tensor([1, 2])
    g = grad(lambda t: np.sum(t * c * k))(DATA)
    np.testing.assert_array_equal(g, [3.0, 8.0])


def test_a_pass_over_what_was_recorded_outside() -> None:
    """backward from inside a function that is being differentiated leaves that recording alone."""
    x = tensor(DATA)
    y = np.sum(x * x)

    def f(t: Any) -> Any:
        s = t * t
        y.backward()
        return np.sum(s * t)

    np.testing.assert_array_equal(grad(f)(DATA), 3 * DATA**2)
    np.testing.assert_array_equal(x.grad, 2 * DATA)


def test_the_argument_of_a_transform_has_no_backward() -> None:
    def f(t: Any) -> Any:
        y = np.sum(t * t)
        with pytest.raises(RuntimeError, match="outside of such a function"):
            y.backward()
        return y

    np.testing.assert_array_equal(grad(f)(DATA), 2 * DATA)


def test_an_exception_inside_a_transform_leaves_everything_usable() -> None:
    x = tensor(DATA)
    y = x * 2.0

    def f(t: Any) -> Any:
        raise KeyError("mine")

    for argument in (x, y, DATA):
        with pytest.raises(KeyError):
            grad(f)(argument)
    np.sum(y * grad(cube)(y)).backward()
    # y = 2x; y · 3y² = 24 x³
    np.testing.assert_allclose(x.grad, 72 * DATA**2)


def test_held_tensors_as_tangents_and_cotangents() -> None:
    x, v = tensor(DATA), tensor([3.0, 5.0])
    _, t = jvp(lambda s: s**3, (DATA,), (v,))
    np.sum(t).backward()
    np.testing.assert_allclose(v.grad, 3 * DATA**2)
    v.zero_grad()
    _, pull = vjp(lambda s: s**3, x)
    (g,) = pull(v)
    np.sum(g).backward()
    np.testing.assert_allclose(v.grad, 3 * DATA**2)
    np.testing.assert_allclose(x.grad, 6 * DATA * np.array([3.0, 5.0]))
