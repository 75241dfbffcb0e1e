"""Function: what forward saves, in second derivatives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from test_function import V, X

from tape import (
    InvalidBackprop,
    UnsupportedError,
    grad,
    hessian,
    hvp,
    jvp,
    value_and_grad,
)
from tape.imperative.function import Function, once_differentiable


# ---------------------------------------------------------------- second derivatives of what was saved
def test_a_saved_result() -> None:
    class Exp(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = np.array([math.exp(v) for v in x])  # not NumPy: forward cannot be recorded
            ctx.save_for_backward(y)
            ctx.y = [y, {"x": x}]
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (y,) = ctx.saved_tensors
            assert type(ctx.y[0]) is type(y)
            return g * y

    f: Any = lambda x: np.sum(Exp.apply(x) * V)
    for derivative in (grad, lambda f: lambda x: hvp(f, x, np.ones(5))):
        np.testing.assert_allclose(derivative(f)(X), V * np.exp(X))
    third = grad(lambda x: np.sum(grad(lambda x: np.sum(grad(f)(x)))(x)))(X)
    np.testing.assert_allclose(third, V * np.exp(X))
    np.testing.assert_allclose(jvp(lambda x: jvp(f, (x,), (V,))[1], (X,), (V,))[1], np.sum(V**3 * np.exp(X)))


def test_one_of_several_saved_results() -> None:
    class Both(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            s, c = math.sin(x), math.cos(x)
            ctx.save_for_backward(s, c)
            return s, 7, c, "text"

        @staticmethod
        def backward(ctx: Any, gs: Any, seven: Any, gc: Any, text: Any) -> Any:
            s, c = ctx.saved_tensors
            assert seven == 0 and text is None
            return gs * c - gc * s

    def f(x: Any) -> Any:
        s, seven, c, text = Both.apply(x)
        assert seven == 7 and text == "text"
        return s * c * c

    def closed(x: Any) -> Any:
        return np.sin(x) * np.cos(x) ** 2

    for a, b in ((f, closed), (grad(f), grad(closed)), (grad(grad(f)), grad(grad(closed)))):
        assert a(0.7) == pytest.approx(b(0.7), rel=1e-13)
    assert grad(grad(grad(f)))(0.7) == pytest.approx(grad(grad(grad(closed)))(0.7), rel=1e-12)


def unrecordable(save: str) -> Any:
    """Give x**2 by a forward that cannot be recorded, and that saves 2 x in some way."""

    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = np.empty(len(x))
            slope = np.empty(len(x))
            for i, v in enumerate(x):
                y[i], slope[i] = math.pow(v, 2), 2 * math.fabs(v) * math.copysign(1.0, v)
            if save == "saved":
                ctx.save_for_backward(x, slope)
            else:
                ctx.slope = slope if save == "attribute" else {"a": [slope]} if save == "nested" else lambda: slope
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            if save == "saved":
                return g * ctx.saved_tensors[1]
            return g * (ctx.slope if save == "attribute" else ctx.slope["a"][0] if save == "nested" else ctx.slope())

    return Square


@pytest.mark.parametrize("save", ["saved", "attribute", "nested", "closure"])
def test_what_cannot_be_computed_again_raises(save: str) -> None:
    f: Any = lambda x: np.sum(unrecordable(save).apply(x))
    np.testing.assert_allclose(grad(f)(X), 2 * X)
    np.testing.assert_allclose(jvp(f, (X,), (V,))[1], np.sum(2 * X * V))
    what = "what it saved" if save == "saved" else r"ctx\.slope"
    message = rf"Square: a second derivative needs {what} as a function of the arguments, .* that fails \(DetachedError"
    for second in (
        lambda: hvp(f, X, V),
        lambda: grad(lambda x: np.sum(grad(f)(x)))(X),
        lambda: grad(lambda x: jvp(f, (x,), (V,))[1])(X),
    ):
        with pytest.raises(InvalidBackprop, match=message):
            second()


def test_forward_that_gives_another_value_again() -> None:
    rng = np.random.default_rng(0)

    class Dropout(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.weight = (rng.random(5) > 0.5) / 0.5
            return np.sin(x) * ctx.weight

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.weight

    f: Any = lambda x: np.sum(Dropout.apply(x))
    assert set(grad(f)(X)) <= {0.0, 2.0}
    with pytest.raises(InvalidBackprop, match=r"Dropout: forward computed ctx\.weight and gave another value"):
        hvp(f, X, V)


def test_masks_and_options_are_constants() -> None:
    calls = []

    class Relu(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, slope: float, axis: Any) -> Any:
            calls.append(type(x))
            mask = np.array([v > 0 for v in x.tolist()])
            ctx.save_for_backward(mask, slope)
            ctx.axis, ctx.n, ctx.slope = axis, len(x), slope
            return np.where(mask, x * x, slope * x)

        @staticmethod
        def backward(ctx: Any, g: Any, /) -> Any:
            mask, slope = ctx.saved_tensors
            assert ctx.axis is None and ctx.n == 5 and type(slope) is type(ctx.slope) is float
            return g * slope * ~mask, None, None  # only where the slope is constant

    np.testing.assert_allclose(grad(lambda x: np.sum(Relu.apply(x, 0.1, None)))(X), 0.1 * (X <= 0))
    np.testing.assert_allclose(hvp(lambda x: np.sum(Relu.apply(x, 0.1, None)) ** 2, X, V).shape, (5,))
    assert set(calls) == {np.ndarray}  # forward was never called again
    assert len(calls) == 2


def test_values_that_backward_does_not_use_need_not_be_recomputed() -> None:
    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.x, ctx.size = x, math.fabs(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 3 * g * ctx.x**2

    assert grad(grad(Cube.apply))(2.0) == 12.0


def test_forward_may_return_its_argument() -> None:
    class Clip(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, limit: float) -> Any:
            ctx.limit = limit
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return np.clip(g, -ctx.limit, ctx.limit) * np.sign(ctx.saved_tensors[0]) ** 2, None

    x = np.array([1.0, 2.0])
    value, found = value_and_grad(lambda x: np.sum(Clip.apply(x, 1.0) * np.array([100.0, 0.5])))(x)
    assert value == 101.0
    np.testing.assert_array_equal(found, [1.0, 0.5])
    found[0] = 3.0
    np.testing.assert_array_equal(x, [1.0, 2.0])


def test_arrays_outlive_the_call_and_cannot_be_written_to() -> None:
    seen: list[Any] = []

    class Keep(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, other: Any) -> Any:
            seen.append(x)
            with pytest.raises(ValueError, match="read-only"):
                x += 1.0
            with pytest.raises(ValueError, match="read-only"):
                other[0] = 1.0
            y = x * 2.0
            ctx.y, ctx.own = y, np.zeros(5)
            seen.append(y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            ctx.own[:] = 1.0
            np.testing.assert_array_equal(ctx.y, X * 2.0)
            seen.append(g)
            return 2.0 * g, None

    value, found = value_and_grad(lambda x: np.sum(Keep.apply(x * 1.0, np.ones(2)) * V))(X)
    np.testing.assert_array_equal(found, 2 * V)
    assert value == np.sum(2.0 * X * V)
    for _ in range(3):
        grad(lambda x: np.sum(np.exp(x)))(X + 5.0)
    np.testing.assert_array_equal(seen[0], X)
    np.testing.assert_array_equal(seen[2], V)


def test_arguments_in_other_objects_and_views_of_them() -> None:
    class Holder:
        def __init__(self, x: Any) -> None:
            self.x = x

    @dataclass
    class Pair:
        a: Any
        b: Any

    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.holder, ctx._view, ctx.pair = Holder(x), x[::-1], Pair(x, (3, "text"))
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return ctx.pair.b[0] * g * ctx.holder.x * ctx._view[::-1] * ctx.pair.a / ctx.pair.a

    np.testing.assert_allclose(hvp(lambda x: np.sum(Cube.apply(x) * V), X, V), 6 * X * V * V, rtol=1e-12)
    third = grad(lambda x: np.sum(grad(lambda x: np.sum(grad(lambda x: np.sum(Cube.apply(x)))(x)))(x)))(X)
    np.testing.assert_allclose(third, np.full(5, 6.0), rtol=1e-12)


# ---------------------------------------------------------------- once
class Once(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return np.array([math.sin(v) for v in x]) * y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        assert type(x) is np.ndarray
        return g * np.array([math.cos(v) for v in x]) * y, None if not ctx.needs_input_grad[1] else np.sum(
            g * np.sin(x)
        )


TWICE = "Once: trying to differentiate twice a function that was marked with @once_differentiable"


def test_once_differentiable() -> None:
    f: Any = lambda x: np.sum(Once.apply(x, 2.0) * V)
    np.testing.assert_allclose(grad(f)(X), 2 * V * np.cos(X))
    for second in (
        lambda: hvp(f, X, V),
        lambda: hessian(f)(X),
        lambda: grad(lambda x: np.sum(grad(f)(x)))(X),
        lambda: jvp(grad(f), (X,), (V,)),
        lambda: grad(lambda x: jvp(f, (x,), (V,))[1])(X),
    ):
        with pytest.raises(InvalidBackprop, match=TWICE) as caught:
            second()
        assert isinstance(caught.value, RuntimeError)
    # The gradient is computed inside a derivative, but does not depend on its variable.
    np.testing.assert_allclose(grad(lambda y: np.sum(grad(f)(X)) * y)(3.0), np.sum(2 * V * np.cos(X)))
    # It does, but only its value is used.
    found = grad(lambda y: np.sum(np.round(grad(lambda x: np.sum(Once.apply(x, y)))(X))) + y)(3.0)
    assert found == 1.0
    np.testing.assert_allclose(jvp(f, (X,), (V,))[1], np.sum(2 * V * np.cos(X) * V))


def test_once_differentiable_in_forward_mode() -> None:
    class Twice(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return 2 * x

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            return 2 * g

    np.testing.assert_array_equal(jvp(Twice.apply, (X,), (V,))[1], 2 * V)

    class Native(Twice):
        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            return np.array([2 * math.fsum([v]) for v in g])

    np.testing.assert_array_equal(grad(lambda x: np.sum(Native.apply(x) * V))(X), 2 * V)
    with pytest.raises(UnsupportedError, match=r"Native: forward mode transposes the backward .* fails on"):
        jvp(Native.apply, (X,), (V,))


def test_the_gradient_of_one_of_two_arguments_is_none() -> None:
    class First(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x * y

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            return g, None

    assert grad(First.apply, (0, 1))(2.0, 3.0) == (1.0, 0.0)
    # Recorded, with one gradient that is zero, of another shape.
    seen = []

    def outer(z: Any) -> Any:
        found = grad(lambda x, y: np.sum(First.apply(x, y)) * z, (0, 1))(X, 1.0)
        seen.extend(g.numpy() for g in found)
        return z

    assert grad(outer)(2.0) == 1.0
    np.testing.assert_array_equal(seen[0], np.full(5, 2.0))
    assert seen[1] == 0.0
