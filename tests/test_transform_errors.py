"""What the transforms say to what they cannot take: what is wrong, where, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tape import (
    InputError,
    OutputError,
    ScalarOutputError,
    StaleTensorError,
    TangentError,
    TapeError,
    gauss_newton_product,
    grad,
    hessian,
    hessian_diagonal,
    hvp,
    jacobian,
    jacobian_forward,
    jacobian_reverse,
    jvp,
    linearize,
    value_and_jacobian,
    vhp,
    vjp,
)

X = np.array([0.3, -1.2, 0.8])
SINGLE = X.astype(np.float32)
P = {"a": X, "b": (2.0, np.eye(2))}


def squares(x: Any) -> Any:
    return np.sum(x**2)


def tree(p: Any) -> Any:
    return {"y": p["a"] * p["b"][0], "n": p["b"][0]}


def both(x: Any, y: Any) -> Any:
    return x * y


def message(kind: type[Exception], call: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, TapeError)
    text = str(caught.value)
    assert "PyTreeSpec" not in text
    assert "Tensor" not in text or kind is StaleTensorError
    return text


def raises(kind: type[Exception], call: Callable[[], Any], *parts: str) -> None:
    text = message(kind, call)
    for part in parts:
        assert part in text, text


# ---------------------------------------------------------------- cotangents
@pytest.mark.parametrize(
    ("function", "x", "cotangent", "parts"),
    [
        (np.sin, X, np.ones(2), ["the cotangent must have the shape of the result, (3,), but its shape is (2,)"]),
        (np.sin, X, np.ones((3, 1)), ["its shape is (3, 1)"]),
        (np.sin, X, 1.0, ["the shape of the result, (3,)", "its shape is ()"]),
        (np.sin, X, (np.ones(3),), ["its shape is (1, 3)"]),
        (squares, X, np.ones(3), ["must have the shape of the result, (), but its shape is (3,)"]),
        (np.sin, X, np.ones(3) * 1j, ["must be of dtype float64, but it is of dtype complex128"]),
        (np.sin, SINGLE, np.ones(3) * 1j, ["must be of dtype float32"]),
        (np.sin, X, ["a", "b", "c"], ["must be of dtype float64"]),
        (np.sin, X, None, ["must be an array of shape (3,), but it is None"]),
        (np.sin, X, "abc", ["must be an array of shape (3,), but it is a str"]),
        (np.sin, X, {"y": X}, ["must be an array of shape (3,), but it is a dict"]),
        (np.sin, X, [[1.0, 2.0], [3.0]], ["must be an array of shape (3,), but it is a list of parts that differ"]),
        (squares, X, None, ["must be a number, but it is None"]),
        (tree, P, X, ["the structure of the result, {'n': *, 'y': *}, but it is an array of shape (3,)"]),
        (
            tree,
            P,
            {"y": X},
            ["the structure of the result, {'n': *, 'y': *}, but it is {'y': *}", "* stands for an array"],
        ),
        (tree, P, {"y": X, "n": X}, ["the cotangent at ['n'] must have the shape of the result at ['n'], ()"]),
        (tree, P, {"y": 1.0, "n": 1.0}, ["the cotangent at ['y'] must have the shape of the result at ['y'], (3,)"]),
        (tree, P, {"y": X, "n": None}, ["the cotangent at ['n'] must be a number, but it is None"]),
    ],
)
def test_cotangents(function: Any, x: Any, cotangent: Any, parts: list[str]) -> None:
    _, pullback = vjp(function, x)
    raises(TangentError, lambda: pullback(cotangent), *parts)
    with pytest.raises(TypeError):
        pullback(cotangent)
    with pytest.raises(ValueError, match="cotangent"):
        pullback(cotangent)


def test_several_cotangents() -> None:
    _, pullback = vjp(lambda x: (x, x), X)
    raises(TangentError, lambda: pullback(X, X), "one cotangent", "got 2", "`pullback((c1, c2))`")
    np.testing.assert_array_equal(pullback((X, X))[0], 2 * X)


def test_what_fits_after_conversion_is_taken() -> None:
    """Lists, whole numbers and other precisions."""
    _, pullback = vjp(np.sin, SINGLE)
    for cotangent in ([1, 1, 1], np.ones(3), np.ones(3, int), np.ones(3, np.float16)):
        (g,) = pullback(cotangent)
        assert g.dtype == np.float32
        np.testing.assert_allclose(g, np.cos(SINGLE), rtol=1e-6)
    assert vjp(squares, X)[1](1)[0].tolist() == (2 * X).tolist()
    assert jvp(squares, [X], [[1, 0, 0]])[1] == 2 * X[0]


# ---------------------------------------------------------------- tangents
@pytest.mark.parametrize(
    ("function", "primals", "tangents", "parts"),
    [
        (np.sin, (X,), X, ["tangents must be a tuple", "`(t,)` here, but got an array of shape (3,)"]),
        (np.sin, (X,), 1.0, ["tangents must be a tuple", "but got a float"]),
        (np.sin, (X,), (), ["one tangent for each differentiated argument", "got 0"]),
        (np.sin, (X,), (X, X), ["`(t,)` here, but got 2"]),
        (both, (X, X), (X,), ["2 here, None for one that is held fixed, but got 1"]),
        (np.sin, (X,), (np.ones(2),), ["the tangent must have the shape of argument 0, (3,), but its shape is (2,)"]),
        (both, (X, X), (X, 1.0), ["tangent 1 must have the shape of argument 1, (3,), but its shape is ()"]),
        (np.sin, (X,), (X * 1j,), ["the tangent must be of dtype float64, but it is of dtype complex128"]),
        (np.sin, (X,), ("abc",), ["the tangent must be an array of shape (3,), but it is a str"]),
        (tree, (P,), (X,), ["the structure of argument 0, {'a': *, 'b': (*, *)}, but it is an array of shape (3,)"]),
        (tree, (P,), ({"a": X},), ["but it is {'a': *}"]),
        (
            tree,
            (P,),
            ({**P, "b": (1.0, X)},),
            ["the tangent at ['b'][1] must have the shape of argument 0 at ['b'][1], (2, 2)"],
        ),
        (tree, (P,), ({**P, "b": (None, X)},), ["the tangent at ['b'][0] must be a number, but it is None"]),
    ],
)
def test_tangents(function: Any, primals: Any, tangents: Any, parts: list[str]) -> None:
    raises(TangentError, lambda: jvp(function, primals, tangents), *parts)


def test_tangents_of_a_pushforward() -> None:
    _, pushforward = linearize(both, X, X)
    raises(TangentError, lambda: pushforward(X), "one tangent for each argument", "2 in all, got 1", "None")
    raises(TangentError, lambda: pushforward((X, X)), "2 in all, got 1")
    raises(TangentError, lambda: pushforward(X, np.ones(2)), "tangent 1 must have the shape of argument 1, (3,)")
    np.testing.assert_array_equal(pushforward(None, X), X * X)
    assert pushforward(None, None).tolist() == [0.0] * 3


def test_primals() -> None:
    raises(InputError, lambda: jvp(np.sin, X, (X,)), "primals must be a tuple", "an array of shape (3,)", "`(x,)`")
    raises(InputError, lambda: jvp(np.sin, 1.0, (1.0,)), "primals must be a tuple", "a float", "`(x,)`")
    raises(InputError, lambda: jvp(np.sin, (), ()), "at least one argument", "`jvp(f, (x,), (t,))`")
    raises(InputError, lambda: vjp(np.sin), "at least one argument", "`vjp(f, x)`")
    raises(InputError, lambda: linearize(np.sin), "at least one argument", "`linearize(f, x)`")


@pytest.mark.parametrize("product", [hvp, vhp])
def test_vectors(product: Any) -> None:
    def f(x: Any, y: Any = 1.0) -> Any:
        return np.sum(x**2 * y)

    raises(
        TangentError,
        lambda: product(f, X, np.ones(2)),
        "the vector must have the shape of argument 0, (3,)",
        "its shape is (2,)",
    )
    raises(TangentError, lambda: product(f, X, (X,)), "its shape is (1, 3)")
    raises(TangentError, lambda: product(f, X, X * 1j), "the vector must be of dtype float64")
    raises(TangentError, lambda: product(f, X, X, X, argnums=(0, 1)), "vectors must be a tuple", "2 here")
    raises(TangentError, lambda: product(f, X, (X,), X, argnums=(0, 1)), "but got 1")
    raises(
        TangentError,
        lambda: product(f, X, (X, 1.0), X, argnums=(0, 1)),
        "vector 1 must have the shape of argument 1, (3,)",
    )
    raises(TangentError, lambda: product(f, X, np.ones(2), X, argnums="y"), "the shape of argument 'y', (3,)")
    raises(TangentError, lambda: product(lambda p: f(p["a"]), {"a": X}, X), "the structure of argument 0, {'a': *}")
    raises(InputError, lambda: product(f, X, X, argnums=1), "argnums=1 asks for an argument that was not given")
    raises(InputError, lambda: product(f, X, X, argnums="z"), "argnums='z' names no argument", "['x', 'y']")
    raises(TangentError, lambda: gauss_newton_product(np.sin, X, np.ones(2)), "the shape of argument 0, (3,)", "(2,)")


# ---------------------------------------------------------------- results
TRANSFORMS = {
    "vjp": lambda f: vjp(f, X),
    "jvp": lambda f: jvp(f, (X,), (X,)),
    "linearize": lambda f: linearize(f, X),
    "jacobian": lambda f: jacobian(f)(X),
    "value_and_jacobian": lambda f: value_and_jacobian(f)(X),
}


@pytest.mark.parametrize("name", list(TRANSFORMS))
def test_results_without_a_derivative(name: str) -> None:
    transform = TRANSFORMS[name]
    hint = "`return result, extra`, with has_aux=True"
    for function, what in (
        (np.argmax, "int64"),
        (np.argsort, "int64"),
        (lambda x: x > 0, "bool"),
        (lambda x: np.array([1j]), "complex128"),
        (lambda x: {"a": x, "b": (x, x > 0)}, "bool at ['b'][1]"),
    ):
        raises(OutputError, lambda f=function: transform(f), f"{name} needs floating-point results", what, hint)
    for function, what in (
        (lambda x: None, "None"),
        (lambda x: "text", "a str"),
        (lambda x: (x, "text"), "a str at [1]"),
        (lambda x: {"a": x, "b": None}, "None at ['b']"),
    ):
        raises(OutputError, lambda f=function: transform(f), f"{name} needs a function that returns arrays", what, hint)
    # Inside of another derivative too.
    raises(OutputError, lambda: grad(lambda x: transform(lambda y: np.argmax(x * y)))(X), "floating-point results")


def test_a_result_that_is_no_pair() -> None:
    for call in (
        lambda: vjp(np.sin, X, has_aux=True),
        lambda: jvp(np.sin, (X,), (X,), has_aux=True),
        lambda: linearize(np.sin, X, has_aux=True),
        lambda: jacobian(np.sin, has_aux=True)(X),
        lambda: hessian(squares, has_aux=True)(X),
        lambda: hvp(squares, X, X, has_aux=True),
        lambda: vhp(squares, X, X, has_aux=True),
    ):
        raises(OutputError, call, "must return a pair: (result, extra values)")


SECOND = {
    "hessian": lambda f: hessian(f)(X),
    "hessian_diagonal": lambda f: hessian_diagonal(f)(X),
    "hvp": lambda f: hvp(f, X, X),
    "vhp": lambda f: vhp(f, X, X),
    "loss": lambda f: gauss_newton_product(np.sin, X, X, loss=f),
}


@pytest.mark.parametrize("name", list(SECOND))
def test_second_derivatives_of_what_is_not_one_number(name: str) -> None:
    transform = SECOND[name]
    for function, what in (
        (np.sin, "an array of shape (3,)"),
        (lambda x: np.sum(x, keepdims=True), "an array of shape (1,)"),
        (lambda x: np.ones(3), "an array of shape (3,)"),
    ):
        raises(ScalarOutputError, lambda f=function: transform(f), "one number", what, "np.sum(result)", "jacobian(f)")
    raises(ScalarOutputError, lambda: transform(lambda x: (squares(x), 1)), "a tuple", "has_aux=True")
    raises(ScalarOutputError, lambda: transform(lambda x: None), "it returned None")
    raises(ScalarOutputError, lambda: transform(np.argmax), "floating-point result", "int64")


# ---------------------------------------------------------------- arguments
EVERY = {
    "jacobian": lambda x: jacobian(squares)(x),
    "jacobian_forward": lambda x: jacobian_forward(squares)(x),
    "jacobian_reverse": lambda x: jacobian_reverse(squares)(x),
    "hessian": lambda x: hessian(squares)(x),
    "hessian_diagonal": lambda x: hessian_diagonal(squares)(x),
    "hvp": lambda x: hvp(squares, x, X),
    "vhp": lambda x: vhp(squares, x, X),
    "vjp": lambda x: vjp(squares, x),
    "jvp": lambda x: jvp(squares, (x,), (X,)),
    "linearize": lambda x: linearize(squares, x),
}


@pytest.mark.parametrize("name", list(EVERY))
def test_arguments_that_cannot_be_differentiated(name: str) -> None:
    transform = EVERY[name]
    raises(InputError, lambda: transform(np.arange(3)), "argument 0 is an array of int64", "`x.astype(float)`")
    raises(InputError, lambda: transform(X > 0), "argument 0 is an array of bool")
    raises(InputError, lambda: transform("text"), "argument 0 is a str, which cannot be differentiated")
    raises(InputError, lambda: transform(None), "argument 0 is None")
    raises(InputError, lambda: transform({"a": (X, np.arange(3))}), "argument 0, at ['a'][1], is an array of int64")
    with pytest.raises(NotImplementedError, match="complex"):
        transform(X * 1j)
    # Inside of another derivative too.
    raises(InputError, lambda: grad(lambda x: squares(x) * transform((x > 0).astype(int)))(X), "int64")


def test_what_stays_constant_is_told_in_vjp() -> None:
    raises(InputError, lambda: vjp(both, X, np.arange(3)), "argument 1 is an array of int64")
    _, pullback = vjp(both, X, y=np.arange(3))
    np.testing.assert_array_equal(pullback(np.ones(3))[0], np.arange(3.0))


def test_what_is_no_function() -> None:
    for call in (
        lambda: vjp(X, squares),
        lambda: jvp(X, (X,), (X,)),
        lambda: linearize(X, X),
        lambda: hvp(X, X, X),
        lambda: grad(lambda x: jvp(X, (x,), (x,))[1])(X),
    ):
        raises(InputError, call, "the first argument must be the function, but it is an array of shape (3,)")
    for transform in (jacobian, hessian, hessian_diagonal, value_and_jacobian):
        raises(InputError, lambda t=transform: t(3.0), f"{transform.__name__} needs a function, got a float")
    raises(InputError, lambda: vhp(3.0, X, X), "needs a function, got a float")


# ---------------------------------------------------------------- lifetimes
def test_linear_maps_whose_tape_is_gone() -> None:
    for make, name in ((vjp, "pullback"), (linearize, "pushforward")):
        leaked: list[Any] = []
        grad(lambda x, make=make, leaked=leaked: (leaked.append(make(np.sin, x)[1]), squares(x))[1])(X)
        raises(StaleTensorError, lambda leaked=leaked: leaked[0](X), f"this {name} was made inside", "call it inside")
        # Also while another function is being differentiated.
        raises(StaleTensorError, lambda leaked=leaked: grad(lambda x: np.sum(leaked[0](x)[0]))(X), f"this {name}")


def test_values_whose_tape_is_gone() -> None:
    leaked: list[Any] = []
    grad(lambda x: (leaked.append(x), squares(x))[1])(X)
    (x,) = leaked
    for call in (
        lambda: vjp(np.sin, X)[1](x),
        lambda: linearize(np.sin, X)[1](x),
        lambda: jvp(np.sin, (X,), (x,)),
        lambda: jvp(np.sin, (x,), (X,)),
        lambda: vjp(np.sin, x),
        lambda: jacobian(lambda y: x)(X),
        lambda: jacobian(np.sin)(x),
        lambda: hessian(lambda y: np.sum(y * x))(X),
        lambda: hvp(squares, X, x),
        lambda: vhp(squares, X, x),
    ):
        raises(StaleTensorError, call, "outlived its tape", "`t.numpy()`")
    # All of this does no harm to what comes next.
    np.testing.assert_array_equal(hessian(squares)(X), 2 * np.eye(3))
