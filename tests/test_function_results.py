"""Function: several results, results without derivative, arguments of every kind, and jvp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_function import V, X

from tape import (
    RuleError,
    Tensor,
    grad,
    hessian,
    jvp,
)
from tape.imperative.function import Function


# ---------------------------------------------------------------- several results, and none
class Several(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return np.outer(x, y), np.argsort(x), np.float32(np.sum(x)), x > 0, float(np.sum(y))

    @staticmethod
    def backward(ctx: Any, g: Any, order: Any, s: Any, mask: Any, t: Any) -> Any:
        x, y = ctx.saved_tensors
        assert order.dtype == np.int64 and order.shape == x.shape and not np.any(order)
        assert mask.dtype == bool and not np.any(mask)
        return g @ y + s * np.ones(len(x)), g.T @ x + t


def test_results_of_different_kinds() -> None:
    def f(x: Any, y: Any) -> Any:
        outer, order, s, mask, t = Several.apply(x, y)
        assert outer.shape == (5, 2) and order.dtype == np.int64 and mask.dtype == bool and s.dtype == np.float32
        return np.sum(np.sin(outer[order])) * s + np.sum(np.where(mask, outer[:, 0], 2.0)) * t**2

    def closed(x: Any, y: Any) -> Any:
        outer = x[:, None] * y
        kept = np.sum(np.where(x > 0, outer[:, 0], 2.0))
        return np.sum(np.sin(outer)) * np.sum(x).astype(np.float32) + kept * np.sum(y) ** 2

    y = np.array([0.5, -2.0])
    for got, expected in zip(grad(f, (0, 1))(X, y), grad(closed, (0, 1))(X, y), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    np.testing.assert_allclose(hessian(f)(X, y), hessian(closed)(X, y), rtol=1e-5)
    np.testing.assert_allclose(jvp(f, (X, y), (V, y))[1], jvp(closed, (X, y), (V, y))[1], rtol=1e-6)
    outputs = Several.apply(X, y)
    assert [type(o) for o in outputs] == [np.ndarray, np.ndarray, np.float32, np.ndarray, float]


@pytest.mark.parametrize("materialize", [True, False])
def test_results_that_are_not_used(materialize: bool) -> None:
    seen: list[Any] = []

    class Parts(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(materialize)
            return x * 2.0, x[:2] * 3.0, np.arange(3), None

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            seen.append(gradients)
            a, b, _c, _d = gradients
            found = np.zeros(5)
            if a is not None:
                found = found + 2.0 * a
            if b is not None:
                found = found + 3.0 * np.concatenate([b, np.zeros(3)])
            return found

    np.testing.assert_array_equal(grad(lambda x: np.sum(Parts.apply(x)[1]))(X), [3, 3, 0, 0, 0])
    a, b, c, d = seen[0]
    np.testing.assert_array_equal(b, [1.0, 1.0])
    assert d is None
    if materialize:
        np.testing.assert_array_equal(a, np.zeros(5))
        np.testing.assert_array_equal(c, np.zeros(3))
    else:
        assert a is c is None
    np.testing.assert_array_equal(jvp(lambda x: Parts.apply(x)[0], (X,), (V,))[1], 2 * V)


@pytest.mark.parametrize("materialize", [True, False])
def test_results_without_derivative(materialize: bool) -> None:
    class Sort(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            order = np.argsort(-x)
            y, size = x[order], np.abs(x)
            ctx.mark_non_differentiable(size, order)
            ctx.set_materialize_grads(materialize)
            ctx.save_for_backward(order)
            return y, size, order

        @staticmethod
        def backward(ctx: Any, g: Any, size: Any, order: Any) -> Any:
            if materialize:
                np.testing.assert_array_equal(size, np.zeros(5))
                np.testing.assert_array_equal(order, np.zeros(5))
            else:
                assert size is order is None
            found = np.zeros(5) if not isinstance(g, Tensor) else np.zeros_like(g)
            found[ctx.saved_tensors[0]] = g
            return found

    def f(x: Any) -> Any:
        y, size, _order = Sort.apply(x)
        assert isinstance(size, Tensor) and size.dtype == np.float64
        return np.sum(y * V) + np.sum(size * 100.0)

    np.testing.assert_array_equal(grad(f)(X), V[::-1])
    np.testing.assert_array_equal(grad(lambda x: np.sum(Sort.apply(x)[1]))(X), np.zeros(5))
    np.testing.assert_array_equal(jvp(f, (X,), (X,))[1], np.sum(V[::-1] * X))


def test_a_marked_result_that_is_saved_is_still_differentiated() -> None:
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            twice = 2.0 * x
            ctx.mark_non_differentiable(twice)
            ctx.save_for_backward(twice)
            return x * x, twice

        @staticmethod
        def backward(ctx: Any, g: Any, _: Any) -> Any:
            return g * ctx.saved_tensors[0]

    assert grad(grad(lambda x: Square.apply(x)[0]))(3.0) == 2.0


def test_no_result_with_a_derivative() -> None:
    class Order(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return np.argsort(x)

    np.testing.assert_array_equal(grad(lambda x: np.sum(x[Order.apply(x)] * V))(X), V)


def test_the_arguments_that_need_a_gradient() -> None:
    seen: list[Any] = []

    class Sum(Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            seen.append((ctx.needs_input_grad, args))
            return args[0] + args[1]

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(ctx.needs_input_grad)
            return (g, g, None, None, None, None, None, None)  # two too many: None is fine

    w, options, counts = np.ones(5), {"a": [1, "b"]}, np.arange(3, dtype=np.int32)
    grad(lambda x: np.sum(Sum.apply(x, w, options, None, "text", counts)))(X)
    needs, args = seen[0]
    assert needs == seen[1] == (True, False, False, False, False, False)
    assert args[2] is options and args[3] is None and args[4] == "text"
    assert args[5].dtype == np.int32
    assert type(args[0]) is type(args[1]) is np.ndarray
    seen.clear()
    grad(lambda x: np.sum(Sum.apply(w, x, np.argsort(x), 1.0, True, 2)))(X)
    assert seen[0][0] == (False, True, False, False, False, False)
    Sum.apply(X, X)
    assert seen[-1][0] == (False, False)


def test_broadcasting_is_undone() -> None:
    class Add(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, y = ctx.saved_tensors
            return g * y, g * x

    a, b = np.arange(6.0).reshape(3, 1, 2), np.array([[1.0], [2.0], [4.0]])

    def f(x: Any, y: Any) -> Any:
        return np.sum(np.sin(Add.apply(x, y)))

    def closed(x: Any, y: Any) -> Any:
        return np.sum(np.sin(x * y))

    for args in ((a, b), (a, 2.0), (np.float32(2.0), b), (b, a[0, 0])):
        for got, expected in zip(grad(f, (0, 1))(*args), grad(closed, (0, 1))(*args), strict=True):
            assert np.shape(got) == np.shape(expected)
            np.testing.assert_allclose(got, expected, rtol=1e-6)
    np.testing.assert_allclose(hessian(f)(a, b), hessian(closed)(a, b))


def test_a_zero_adjoint_stays_zero() -> None:
    class Sqrt(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = np.sqrt(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            with np.errstate(all="ignore"):
                return g / (2 * ctx.saved_tensors[0])

    assert grad(lambda x: 0.0 * Sqrt.apply(x) + x)(0.0) == 1.0
    assert grad(lambda x: np.where(x > 0, Sqrt.apply(x), 2 * x))(0.0) == 2.0


# ---------------------------------------------------------------- jvp
def test_jvp_gets_a_tangent_for_each_argument() -> None:
    seen: list[Any] = []

    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any, n: int, s: float) -> Any:
            ctx.save_for_backward(x, w)
            ctx.n = n
            return x * w * n, np.arange(2), x

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            seen.append(tangents)
            x, w = ctx.saved_tensors
            t, u = tangents[:2]
            return ctx.n * (t * w + x * u), None, t

    _out, tangent = jvp(lambda x: Scale.apply(x, V, 3, 1.0)[0], (X,), (V,))
    np.testing.assert_allclose(tangent, 3 * V * V)
    _t, u, n, s = seen[0]
    np.testing.assert_array_equal(u, np.zeros(5))
    assert n is None and s == 0.0
    np.testing.assert_allclose(jvp(lambda w: Scale.apply(X, w, 3, 1.0)[0], (V,), (X,))[1], 3 * X * X)
    with pytest.raises(NotImplementedError, match="Scale has no backward"):
        grad(lambda x: np.sum(Scale.apply(x, V, 3, 1.0)[0]))(X)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda t: (t, t), r"Bad: jvp returned an incorrect number of tangents \(expected 1, got 2\)"),
        (
            lambda t: t[:2],
            r"Bad: for the tangent of result 0 jvp gave an array of shape \(2,\), where \(5,\) is needed",
        ),
        (lambda t: "text", "Bad: for the tangent of result 0 jvp gave a str, which is no array"),
    ],
)
def test_what_jvp_gave_does_not_fit(answer: Any, message: str) -> None:
    class Bad(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1.0

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return answer(t)

    with pytest.raises(RuleError, match=message):
        jvp(Bad.apply, (X,), (V,))
