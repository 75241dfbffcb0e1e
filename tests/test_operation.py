"""Operation: an op of the user's own with __call__ and backward_var, differentiated once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tape import (
    InputError,
    InvalidBackprop,
    InvalidGradient,
    OutputError,
    RuleError,
    Tensor,
    UnsupportedError,
    check_grads,
    grad,
    hessian,
    hvp,
    jacobian,
    jvp,
    linearize,
    value_and_grad,
    vjp,
)
from tape.imperative.operation import Operation, SkipGradient, execute_op

X = np.linspace(-1.0, 2.0, 5)
V = np.array([0.3, -1.0, 0.5, 2.0, 0.1])


class Data(Operation):
    """sin(x) y, of the plain arrays."""

    def __call__(self, x: Any, y: Any) -> Any:
        self.variables = x, y
        assert type(x.data) is type(y.data) is np.ndarray
        return np.sin(x.data) * y.data

    def backward_var(self, grad: Any, index: int, **kwargs: Any) -> Any:
        x, y = self.variables
        return grad * np.cos(x.data) * y.data if index == 0 else grad * np.sin(x.data)


class Direct(Operation):
    """The same, of the variables themselves; their order is another, and values are kept."""

    def __call__(self, x: Any, y: Any) -> Any:
        self.variables = y, x
        self.sine = np.sin(x)
        assert type(self.sine) in (np.ndarray, np.float64, np.float32)
        assert type(x * y) is not type(x)
        return self.sine * y

    def backward_var(self, grad: Any, index: int) -> Any:
        y, x = self.variables
        return grad * self.sine if index == 0 else grad * (np.cos(x) * y)


class Silent(Operation):
    """The same; it does not say which its variables are."""

    def __call__(self, x: Any, y: Any) -> Any:
        return np.sin(x) * y

    def backward_var(self, grad: Any, index: int) -> Any:
        x, y = self.variables
        return (grad * np.cos(x) * y, grad * np.sin(x))[index]


def plain(x: Any, y: Any) -> Any:
    return np.sin(x) * y


OPERATIONS = pytest.mark.parametrize("Op", [Data, Direct, Silent])


@OPERATIONS
def test_first_derivatives(Op: Any) -> None:
    def loss(f: Any) -> Any:
        return lambda x, y: np.sum(f(x, y) ** 2 * np.exp(x)) + y * f(x[0], y)

    h, expected = loss(Op.apply), loss(plain)
    for got, right in zip(grad(h, (0, 1))(X, 1.5), grad(expected, (0, 1))(X, 1.5), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-12)
    assert value_and_grad(h)(X, 1.5)[0] == pytest.approx(expected(X, 1.5), rel=1e-13)
    np.testing.assert_allclose(vjp(h, X, 1.5)[1](2.0)[0], 2.0 * grad(expected)(X, 1.5), rtol=1e-12)
    assert jvp(h, (X, 1.5), (V, 0.3))[1] == pytest.approx(jvp(expected, (X, 1.5), (V, 0.3))[1], rel=1e-12)
    assert linearize(h, X, 1.5)[1](V, 0.3) == pytest.approx(jvp(expected, (X, 1.5), (V, 0.3))[1], rel=1e-12)
    np.testing.assert_allclose(jacobian(lambda x: Op.apply(x, 1.5))(X), np.diag(1.5 * np.cos(X)), rtol=1e-12)
    check_grads(lambda x, y: np.sum(Op.apply(x, y) * V), X, 1.5, order=1)


@OPERATIONS
def test_kinds_of_arguments(Op: Any) -> None:
    np.testing.assert_array_equal(Op.apply(X, 1.5), plain(X, 1.5))
    assert type(Op.apply(X, 1.5)) is np.ndarray
    assert type(Op.apply(1.0, 1.5)) is np.float64
    found = grad(lambda x: np.sum(Op.apply(x, np.float32(1.5))))(X.astype(np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, 1.5 * np.cos(X), rtol=1e-6)
    assert grad(Op.apply, (0, 1))(0.0, 3.0) == (3.0, 0.0)
    assert grad(Op.apply)(np.array(0.0), np.array(3.0)) == 3.0
    assert grad(lambda x: Op.apply(x, 2))(0.0) == 2.0
    assert grad(lambda x: Op.apply(x, x))(1.0) == pytest.approx(math.cos(1.0) + math.sin(1.0))
    np.testing.assert_allclose(grad(lambda x: np.sum(Op.apply(x, [1.0, 2.0])))(np.zeros(2)), [1.0, 2.0])


@OPERATIONS
def test_broadcasting_is_undone(Op: Any) -> None:
    a, b = np.arange(6.0).reshape(3, 1, 2), np.array([[1.0], [2.0], [4.0]])
    for args in ((a, b), (a, 2.0), (0.5, b), (b, a[0, 0])):
        got = grad(lambda x, y: np.sum(np.exp(Op.apply(x, y))), (0, 1))(*args)
        expected = grad(lambda x, y: np.sum(np.exp(plain(x, y))), (0, 1))(*args)
        for g, e in zip(got, expected, strict=True):
            assert np.shape(g) == np.shape(e)
            np.testing.assert_allclose(g, e, rtol=1e-12)


@OPERATIONS
def test_it_is_differentiated_once(Op: Any) -> None:
    f: Any = lambda x: np.sum(Op.apply(x, 2.0) * V)
    message = f"{Op.__name__}: trying to differentiate twice an Operation, .* write a Function instead"
    for second in (
        lambda: hvp(f, X, V),
        lambda: hessian(f)(X),
        lambda: grad(lambda x: np.sum(grad(f)(x)))(X),
        lambda: jvp(grad(f), (X,), (V,)),
        lambda: grad(lambda x: jvp(f, (x,), (V,))[1])(X),
    ):
        with pytest.raises(InvalidBackprop, match=message):
            second()
    np.testing.assert_allclose(grad(lambda y: np.sum(grad(f)(X)) * y)(3.0), np.sum(2 * V * np.cos(X)))
    np.testing.assert_allclose(grad(f)(X), 2 * V * np.cos(X))


def test_options() -> None:
    class Power(Operation):
        def __call__(self, x: Any, n: Any, *, factor: float = 1.0) -> Any:
            self.variables = (x,)
            self.n, self.factor = n, factor
            return factor * x**n

        def backward_var(self, grad: Any, index: int) -> Any:
            assert index == 0
            (x,) = self.variables
            return grad * self.factor * self.n * x ** (self.n - 1)

    def by_kwargs(x: Any) -> Any:
        return execute_op(Power, x, op_kwargs={"n": 3, "factor": 2.0})

    assert grad(by_kwargs)(2.0) == 24.0
    assert grad(lambda x: execute_op(Power, x, op_args=(3,)))(2.0) == 12.0
    assert grad(lambda x: Power.apply(x, n=3, factor=0.5))(2.0) == 6.0
    # It is an input, but no variable.
    assert grad(lambda n: Power.apply(2.0, n))(3.0) == 0.0
    assert execute_op(Power, 2.0, op_args=(3,)) == 8.0
    assert grad(lambda x: x * execute_op(Power, x, op_args=(3,), constant=True))(2.0) == 8.0
    assert grad(lambda x: execute_op(Power, x, op_args=(3,), constant=False))(2.0) == 12.0
    for call in (lambda x: Power.apply(x, n=x), lambda x: execute_op(Power, x, op_args=(x,))):
        with pytest.raises(InputError, match="Power: a recorded value was given as an option"):
            grad(call)(2.0)


def test_only_what_needs_a_gradient_is_asked_for() -> None:
    seen: list[Any] = []

    class Sum(Operation):
        def __call__(self, *inputs: Any) -> Any:
            self.variables = inputs
            return sum(inputs)

        def backward_var(self, grad: Any, index: int) -> Any:
            seen.append((index, type(grad), grad.shape))
            if index == 1:
                raise SkipGradient
            return grad

    np.testing.assert_array_equal(grad(lambda x: np.sum(Sum.apply(V, V, x, np.arange(5), 1.0)))(X), np.ones(5))
    assert seen == [(2, np.ndarray, (5,))]
    np.testing.assert_array_equal(grad(lambda x: np.sum(Sum.apply(V, x)))(X), np.zeros(5))
    np.testing.assert_array_equal(grad(lambda x: np.sum(Sum.apply(x, x, x)))(X), np.full(5, 2.0))
    np.testing.assert_array_equal(jvp(lambda x: Sum.apply(x, x, x), (X,), (V,))[1], 2 * V)


def test_a_variable_that_is_listed_twice() -> None:
    class Square(Operation):
        def __call__(self, x: Any) -> Any:
            self.variables = x, x
            return x * x

        def backward_var(self, grad: Any, index: int) -> Any:
            return grad * self.variables[1 - index]

    assert grad(Square.apply)(3.0) == 6.0


def test_whole_numbers_and_code_that_is_not_numpy() -> None:
    class Rank(Operation):
        def __call__(self, x: Any) -> Any:
            return np.argsort(x)

    class Sine(Operation):
        def __call__(self, x: Any) -> Any:
            return np.array([math.sin(v) for v in x.data])

        def backward_var(self, grad: Any, index: int) -> Any:
            return np.array([g * math.cos(v) for g, v in zip(grad.tolist(), self.variables[0].data, strict=True)])

    np.testing.assert_array_equal(grad(lambda x: np.sum(x[Rank.apply(x)] * V))(X), V)
    np.testing.assert_allclose(grad(lambda x: np.sum(Sine.apply(x) ** 2))(X), np.sin(2 * X), rtol=1e-12)

    class Native(Sine):
        def backward_var(self, grad: Any, index: int) -> Any:
            return np.array([float(g) for g in grad])

    with pytest.raises(UnsupportedError, match="Native: forward mode transposes the backward rule"):
        jvp(Native.apply, (X,), (V,))


def test_arrays_outlive_the_call_and_cannot_be_written_to() -> None:
    kept: list[Any] = []

    class Keep(Operation):
        def __call__(self, x: Any) -> Any:
            kept.append(x)
            for array in (x, x.data):
                with pytest.raises(ValueError, match="read-only"):
                    array[0] = 1.0
            return x

        def backward_var(self, grad: Any, index: int) -> Any:
            with pytest.raises(ValueError, match="read-only"):
                grad *= 2.0
            return grad

    _value, found = value_and_grad(lambda x: np.sum(Keep.apply(x * 2.0) * V))(X)
    np.testing.assert_array_equal(found, 2 * V)
    for _ in range(3):
        grad(lambda x: np.sum(np.exp(x)))(X + 5.0)
    np.testing.assert_array_equal(kept[0], 2 * X)
    y = Keep.apply(X)
    y[0] = 7.0
    assert X[0] == -1.0


def test_a_zero_adjoint_stays_zero() -> None:
    class Sqrt(Operation):
        def __call__(self, x: Any) -> Any:
            return np.sqrt(x)

        def backward_var(self, grad: Any, index: int) -> Any:
            with np.errstate(all="ignore"):
                return grad / (2 * np.sqrt(self.variables[0]))

    assert grad(lambda x: np.where(x > 0, Sqrt.apply(x), 2 * x))(0.0) == 2.0


# ---------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "got a gradient of type NoneType but expected an array or number: raise SkipGradient"),
        ("text", "got a gradient of type str but expected an array"),
        ([1.0] * 5, "got a gradient of type list but expected an array"),
        (1j, "got a gradient of type complex but expected an array of real numbers"),
        (np.ones(5, complex), "got a gradient of dtype complex128"),
        (np.ones(3), r"got \[3\] but expected shape compatible with \[5\]"),
        (1.0, r"got \[\] but expected shape compatible with \[5\]"),
    ],
)
def test_what_backward_var_gave_does_not_fit(answer: Any, message: str) -> None:
    class Bad(Operation):
        def __call__(self, x: Any, y: Any) -> Any:
            return x * y

        def backward_var(self, grad: Any, index: int) -> Any:
            return answer

    with pytest.raises(
        InvalidGradient, match=rf"Bad\.backward_var returned an invalid gradient at index 1 - {message}"
    ):
        grad(lambda y: np.sum(Bad.apply(2.0, y)))(X)
    np.testing.assert_allclose(grad(lambda x: np.sum(np.sin(x)))(X), np.cos(X))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: "text", OutputError, "Bad: __call__ must return an array or number, but it returned a str"),
        (lambda x: (x, x), OutputError, "Bad: __call__ must return an array or number, but it returned a tuple"),
        (lambda x: None, OutputError, "but it returned None"),
        (lambda x: 1 / 0, ZeroDivisionError, "division"),
    ],
)
def test_errors_in_call(call: Any, error: Any, message: str) -> None:
    class Bad(Operation):
        def __call__(self, x: Any) -> Any:
            return call(x)

    for use in (lambda: Bad.apply(X), lambda: grad(lambda x: np.sum(Bad.apply(x)))(X)):
        with pytest.raises(error, match=message):
            use()
    np.testing.assert_allclose(grad(lambda x: np.sum(np.sin(x)))(X), np.cos(X))


def test_variables_that_are_no_inputs() -> None:
    class Bad(Operation):
        def __call__(self, x: Any) -> Any:
            self.variables = (x * 2.0,)
            return x

    with pytest.raises(RuleError, match=r"Bad: self\.variables must hold inputs of __call__ .* is none of them"):
        grad(lambda x: np.sum(Bad.apply(x)))(X)


def test_missing_methods() -> None:
    class Nothing(Operation):
        pass

    class Forward(Operation):
        def __call__(self, x: Any) -> Any:
            return x * 2

    with pytest.raises(NotImplementedError, match="Nothing has no forward: define __call__"):
        Nothing.apply(X)
    np.testing.assert_array_equal(Forward.apply(X), 2 * X)
    with pytest.raises(NotImplementedError, match="Forward has no backward_var"):
        grad(lambda x: np.sum(Forward.apply(x)))(X)


def test_inputs_that_are_no_arrays() -> None:
    for bad, name in (("text", "a str"), (None, "None"), ({"a": 1.0}, "a dict"), (np.array(["a"]), "an ndarray")):
        with pytest.raises(InputError, match=f"Data: input 1 is {name}, but inputs are arrays and numbers"):
            Data.apply(X, bad)
    with pytest.raises(InputError, match="Data: argument 1 is a list with a recorded value in it"):
        grad(lambda x: np.sum(Data.apply(X, [x])))(1.0)


def test_recorded_values_from_elsewhere() -> None:
    def make(y: Any, where: str) -> Any:
        class Far(Operation):
            def __call__(self, x: Any) -> Any:
                if where == "attribute":
                    self.y = y
                return x * y if where == "result" else x * 2.0

            def backward_var(self, grad: Any, index: int) -> Any:
                return grad * y

        return Far

    for where in ("result", "attribute", "gradient"):
        with pytest.raises(RuleError, match=r"Far.* gave a recorded value although its arguments are plain"):
            grad(lambda x, where=where: np.sum(make(x, where).apply(x)))(X)
    with pytest.raises(RuleError, match="Far: __call__ gave a recorded value"):
        grad(lambda x: np.sum(make(x, "result").apply(X)))(X)


def test_the_result_is_recorded() -> None:
    kinds: list[Any] = []
    grad(lambda x: kinds.append(Data.apply(x, 1.0)) or np.sum(x))(X)
    assert isinstance(kinds[0], Tensor)
