"""Function: what does not fit, and what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_function import Saved, V, X

from tape import (
    InputError,
    InvalidGradient,
    OutputError,
    RuleError,
    TapeError,
    UnsupportedError,
    grad,
    jvp,
)
from tape.imperative.function import Function


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda g: g, r"function BadBackward returned an incorrect number of gradients \(expected 3, got 1\)"),
        (lambda g: (g, g), r"incorrect number of gradients \(expected 3, got 2\)"),
        (lambda g: (g, g, None, None, g), r"incorrect number of gradients \(expected 3, got 5\)"),
        (lambda g: None, r"incorrect number of gradients \(expected 3, got 1\)"),
        (
            lambda g: (g[:3], None, None),
            r"BadBackward returned an invalid gradient at index 0 - got \[3\] but expected shape compatible with \[5\]",
        ),
        (lambda g: (1.0, None, None), r"at index 0 - got \[\] but expected shape compatible with \[5\]"),
        (lambda g: (g[:, None], None, None), r"at index 0 - got \[5, 1\] but expected shape compatible with \[5\]"),
        (lambda g: (None, "text", None), r"at index 1 - got a gradient of type str but expected an array"),
        (lambda g: (list(g), None, None), r"at index 0 - got a gradient of type list but expected an array"),
        (
            lambda g: (np.full(5, 1j), None, None),
            r"at index 0 - got a gradient of dtype complex128 but expected an array of real",
        ),
        (lambda g: (1j, None, None), r"at index 0 - got a gradient of type complex but expected an array"),
        (lambda g: (np.array(["a"] * 5), None, None), r"at index 0 - got a gradient of dtype <U1"),
        (lambda g: (g, None, g), r"returned a gradient at index 2, but the corresponding forward input is a str"),
    ],
)
def test_what_backward_gave_does_not_fit(answer: Any, message: str) -> None:
    class Bad(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, option: str) -> Any:
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return answer(g)

    for f in (
        lambda x, y: np.sum(Bad.apply(x, y, "a")),
        lambda x, y: np.sum(grad(lambda x: np.sum(Bad.apply(x, y, "a")) ** 2)(x)),
    ):
        with pytest.raises(InvalidGradient, match=message) as caught:
            grad(f, (0, 1))(X, 2.0)
        assert isinstance(caught.value, RuntimeError)
    np.testing.assert_allclose(grad(lambda x: np.sum(np.sin(x)))(X), np.cos(X))


def test_gradients_of_plain_arrays_and_numbers_are_ignored() -> None:
    class Three(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, z: Any) -> Any:
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g, g, g

    np.testing.assert_array_equal(grad(lambda x: np.sum(Three.apply(x, V, 2.0)))(X), np.ones(5))
    np.testing.assert_array_equal(grad(lambda x: np.sum(Three.apply(x, np.arange(3), np.float32(2))))(X), np.ones(5))
    for z in (3, True, None, [1.0], sum):
        with pytest.raises(InvalidGradient, match="at index 2, but the corresponding forward input is"):
            grad(lambda x, z=z: np.sum(Three.apply(x, V, z)))(X)


def test_gradients_of_whole_numbers_and_other_precision_are_converted() -> None:
    class Count(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return np.full(5, 2)

    found = grad(lambda x: np.sum(Count.apply(x)))(X.astype(np.float32))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.full(5, 2.0))


def test_missing_methods() -> None:
    class Nothing(Function):
        pass

    class NoBackward(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

    class Both(NoBackward):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g

    with pytest.raises(NotImplementedError, match="Nothing has no forward"):
        Nothing.apply(1.0)
    np.testing.assert_array_equal(NoBackward.apply(X), 2 * X)
    value: list[Any] = []
    for derivative in (
        grad(lambda x: value.append(float(x.numpy())) or NoBackward.apply(x)),
        lambda x: jvp(NoBackward.apply, (x,), (x,)),
    ):
        with pytest.raises(NotImplementedError, match=r"NoBackward has no backward: .* define the static method"):
            derivative(1.0)
    assert value == [1.0]
    with pytest.raises(RuntimeError, match="Both: implementing both 'backward' and 'vjp'"):
        Both.apply(1.0)


def test_there_are_no_instances() -> None:
    for call in (lambda: Saved(), lambda: Saved()(X, 1.0), lambda: Saved(X, 1.0), lambda: Function()):
        with pytest.raises(RuntimeError, match=r"is a Function, of which there are no instances to call: write"):
            call()
    with pytest.raises(TypeError, match=r"Saved.apply takes its arguments by position.* got y="):
        Saved.apply(X, y=1.0)


def test_recorded_values_in_containers() -> None:
    class Total(Function):
        @staticmethod
        def forward(ctx: Any, values: Any) -> Any:
            return np.sum(values[0])

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    assert Total.apply([X]) == np.sum(X)
    for wrap in (lambda x: [x], lambda x: (X, x), lambda x: {"a": [x]}):
        with pytest.raises(InputError, match=r"Total: argument 0 is a .* with a recorded value in it, whose gradient"):
            grad(lambda x, wrap=wrap: Total.apply(wrap(x)))(X)


def test_recorded_values_from_elsewhere() -> None:
    def make(y: Any, where: str) -> Any:
        class Far(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                if where == "ctx":
                    ctx.y = [y]
                return x * y if where == "forward" else x * 2.0

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * y

        return Far

    for where in ("forward", "backward", "ctx"):
        with pytest.raises(RuleError, match=r"Far.*gave a recorded value although its arguments are plain"):
            grad(lambda x, where=where: np.sum(make(x, where).apply(x)))(X)
    with pytest.raises(RuleError, match=r"Far: forward gave a recorded value although"):
        grad(lambda x: np.sum(make(x, "forward").apply(X)))(X)


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda ctx, x: ctx.mark_dirty(x), RuntimeError, r"Used: mark_dirty .*`return 2 \* x`, not `x \*= 2`"),
        (lambda ctx, x: [ctx.save_for_backward(x), ctx.save_for_backward(x)], RuleError, "may be called once only"),
        (
            lambda ctx, x: ctx.save_for_backward([x]),
            TypeError,
            "takes arrays, numbers and None, but argument 0 is a list",
        ),
        (lambda ctx, x: ctx.mark_non_differentiable(x * 1.0), InputError, "must be given what forward returns"),
        (lambda ctx, x: ctx.nothing, AttributeError, "forward has set no attribute 'nothing' of ctx"),
        (lambda ctx, x: 1 / 0, ZeroDivisionError, "division"),
    ],
)
def test_errors_in_forward(use: Any, error: Any, message: str) -> None:
    class Used(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            use(ctx, x)
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    with pytest.raises(error, match=message):
        grad(lambda x: np.sum(Used.apply(x)))(X)
    np.testing.assert_allclose(grad(lambda x: np.sum(np.sin(x)))(X), np.cos(X))


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda ctx, g: ctx.save_for_backward(g), RuleError, "save_for_backward is to be called in forward"),
        (
            lambda ctx, g: ctx.mark_non_differentiable(g),
            RuleError,
            "mark_non_differentiable is to be called in forward",
        ),
        (lambda ctx, g: ctx.set_materialize_grads(False), RuleError, "set_materialize_grads is to be called in"),
        (lambda ctx, g: ctx.nothing, AttributeError, "forward has set no attribute 'nothing' of ctx"),
        (lambda ctx, g: 1 / 0, ZeroDivisionError, "division"),
    ],
)
def test_errors_in_backward(use: Any, error: Any, message: str) -> None:
    class Used(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            assert ctx.saved_tensors == ()
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            assert ctx.saved_tensors == ()
            assert not hasattr(ctx, "something")
            use(ctx, g)
            return g

    with pytest.raises(error, match=message):
        grad(lambda x: np.sum(Used.apply(x)))(X)
    np.testing.assert_allclose(grad(lambda x: np.sum(np.sin(x)))(X), np.cos(X))


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (lambda x: [x, x], OutputError, "List: forward must return .* but result 0 is a list"),
        (lambda x: (x, {"a": x}), OutputError, "List: forward must return .* but result 1 is a dict"),
        (lambda x: x * 1j, UnsupportedError, "complex"),
    ],
)
def test_results_that_are_no_arrays(result: Any, error: Any, message: str) -> None:
    class List(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return result(x)

    with pytest.raises(error, match=message) as caught:
        grad(lambda x: List.apply(x))(X)
    assert isinstance(caught.value, TapeError)
