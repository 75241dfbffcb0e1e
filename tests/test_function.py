"""Function: an op of the user's own with forward and backward, and its derivatives of any order."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from parallel import in_threads

from tape import (
    check_grads,
    checkpoint,
    grad,
    hessian,
    hvp,
    jacobian,
    jvp,
    linearize,
    value_and_grad,
    vjp,
)
from tape.imperative.function import Function

X = np.linspace(-1.0, 2.0, 5)
V = np.array([0.3, -1.0, 0.5, 2.0, 0.1])


class Saved(Function):
    """x**3 y: the arguments are saved."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x**3 * y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        return g * 3 * x**2 * y, g * x**3


class Computed(Function):
    """The same: what was computed is saved."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        square = x * x
        cube = square * x
        ctx.save_for_backward(square, None, cube)
        ctx.y = y
        return cube * y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        square, nothing, cube = ctx.saved_values
        assert nothing is None
        return g * 3 * square * ctx.y, g * cube


class Attributes(Function):
    """The same: attributes of the context, in containers, among constants."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        out = x**3 * y
        ctx.parts = {"x": x, "more": [x**2, 3, "text"], "out": out}
        ctx.y = 1.0 * y
        ctx.shape = np.shape(out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        square, three, _ = ctx.parts["more"]
        assert np.shape(g) == ctx.shape
        return g * three * square * ctx.y, g * ctx.parts["x"] * square


class Apart(Function):
    """The same, with setup_context, vjp and jvp; the result is saved."""

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return x**3 * y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs, output)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        x, y, out = ctx.saved_tensors
        return g * 3 * x**2 * y, g * out / y

    @staticmethod
    def jvp(ctx: Any, t: Any, s: Any) -> Any:
        x, y = ctx.saved_tensors
        return 3 * x**2 * y * t + x**3 * s


def plain(x: Any, y: Any) -> Any:
    return x**3 * y


FUNCTIONS = pytest.mark.parametrize("cls", [Saved, Computed, Attributes, Apart])

DERIVATIVES: dict[str, Callable[[Any], Any]] = {
    "grad": lambda h: grad(h, (0, 1))(X, 1.5),
    "value": lambda h: value_and_grad(h)(X, 1.5),
    "vjp": lambda h: vjp(h, X, 1.5)[1](2.0),
    "jvp": lambda h: jvp(h, (X, 1.5), (V, 0.3)),
    "jvp by one": lambda h: jvp(h, (X, 1.5), (None, 0.3)),
    "linearize": lambda h: linearize(h, X, 1.5)[1](V, 0.3),
    "hvp": lambda h: hvp(lambda x: h(x, 1.5), X, V),
    "hessian": lambda h: hessian(h, (0, 1))(X, 1.5),
    "reverse over reverse": lambda h: grad(lambda x, y: np.sum(grad(h)(x, y) * V) + grad(h, 1)(x, y), (0, 1))(X, 1.5),
    "forward over reverse": lambda h: jvp(grad(h, (0, 1)), (X, 1.5), (V, 0.3)),
    "reverse over forward": lambda h: grad(lambda x, y: jvp(h, (x, y), (V, 0.3))[1], (0, 1))(X, 1.5),
    "forward over forward": lambda h: jvp(lambda x, y: jvp(h, (x, y), (V, 0.3))[1], (X, 1.5), (V, 0.3)),
    "third": lambda h: grad(lambda x: np.sum(grad(lambda x: np.sum(grad(h)(x, 1.5) * V))(x) * V))(X),
    "outer variable": lambda h: grad(lambda y: np.sum(grad(lambda x: h(x, y))(X) ** 2))(1.5),
    "checkpoint": lambda h: hvp(lambda x: checkpoint(h)(x, 1.5), X, V),
}


def loss(f: Any) -> Callable[..., Any]:
    return lambda x, y: np.sum(f(x, y) ** 2 * np.exp(x)) + y * f(x[0], y)


def same(a: Any, b: Any) -> None:
    if isinstance(a, tuple | list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
        return
    assert type(a) is type(b)
    np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


@FUNCTIONS
@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_are_those_of_the_function(cls: Any, name: str) -> None:
    same(DERIVATIVES[name](loss(cls.apply)), DERIVATIVES[name](loss(plain)))


@FUNCTIONS
def test_finite_differences_and_plain_calls(cls: Any) -> None:
    check_grads(lambda x, y: np.sum(cls.apply(x, y) * V), X, 1.5)
    np.testing.assert_array_equal(cls.apply(X, 1.5), plain(X, 1.5))
    assert type(cls.apply(X, 1.5)) is np.ndarray
    assert cls.apply(2.0, 3.0) == 24.0


@FUNCTIONS
def test_kinds_of_arguments(cls: Any) -> None:
    x = X.astype(np.float32)
    assert grad(lambda x: np.sum(cls.apply(x, np.float32(1.5))))(x).dtype == np.float32
    np.testing.assert_allclose(grad(lambda x: np.sum(cls.apply(x, 1.5)))(x), 4.5 * X**2, rtol=1e-5)
    np.testing.assert_allclose(hvp(lambda x: np.sum(cls.apply(x, 1.5)), x, x), 9 * X**2, rtol=1e-5)
    assert grad(cls.apply, (0, 1))(2.0, 3.0) == (36.0, 8.0)
    assert grad(grad(cls.apply))(2.0, 3.0) == 36.0
    # Both arguments are the same number, or the same value.
    two = 2.0
    assert grad(cls.apply, (0, 1))(two, two) == (24.0, 8.0)
    assert grad(lambda x: grad(cls.apply, 1)(x, two))(two) == 12.0
    assert grad(grad(lambda x: cls.apply(x, x)))(two) == 48.0
    assert grad(lambda x: cls.apply(x, np.array(3.0)))(np.array(2.0)) == 36.0
    assert hessian(lambda x: cls.apply(x, np.float64(3.0)))(np.array(2.0)) == 36.0
    empty = np.zeros((0, 3))
    assert grad(lambda x: np.sum(cls.apply(x, 1.0)))(empty).shape == (0, 3)
    np.testing.assert_allclose(jacobian(lambda x: cls.apply(x, 1.5))(X), np.diag(4.5 * X**2))


# ---------------------------------------------------------------- calls
def test_calls_leave_nothing_behind() -> None:
    gone: list[Any] = []

    class Weighed(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.y = x * 2.0
            gone.append(weakref.ref(ctx.y))
            return ctx.y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2.0

    gc.disable()
    try:
        hvp(lambda x: np.sum(Weighed.apply(x) ** 2), X, V)
        assert gone[0]() is None
    finally:
        gc.enable()


def test_in_functions_that_write_in_place_and_loops() -> None:
    def f(apply: Any) -> Any:
        def g(x: Any) -> Any:
            y = np.zeros_like(x)
            for k in range(5):
                y[k] = apply(x[k], y[k - 1] + 1.0)
            return np.sum(y * V)

        return g

    x = X / 2
    np.testing.assert_allclose(grad(f(Saved.apply))(x), grad(f(plain))(x), rtol=1e-12)
    np.testing.assert_allclose(hessian(f(Computed.apply))(x), hessian(f(plain))(x), rtol=1e-12)


def test_inheritance_and_class_methods() -> None:
    class Base(Function):
        power = 2

        @classmethod
        def forward(cls, ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**cls.power

        @classmethod
        def backward(cls, ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * cls.power * x ** (cls.power - 1)

    class Cubed(Base):
        power = 3

    assert grad(Base.apply)(2.0) == 4.0
    assert grad(Cubed.apply)(2.0) == 12.0
    assert grad(grad(Cubed.apply))(2.0) == 12.0


def test_a_map_in_several_threads() -> None:
    x = np.linspace(0.0, 1.0, 50)
    _, push = linearize(lambda x: np.sum(Apart.apply(Attributes.apply(x, 2.0), 1.5)), x)
    expected = push(np.ones(50))

    def work(_: int) -> None:
        for _ in range(20):
            assert push(np.ones(50)) == expected
            np.testing.assert_allclose(hvp(lambda x: np.sum(Computed.apply(x, 1.5)), x, x), 9.0 * x**2)

    in_threads(work)
