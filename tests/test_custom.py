"""custom_vjp and custom_jvp: a rule of the user's own gives the derivatives of any order, or says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import optree
import pytest
from numeric import directional

from tape import (
    InputError,
    check_grads,
    custom_jvp,
    custom_vjp,
    grad,
    hessian,
    hvp,
    jacobian,
    jvp,
    linearize,
    value_and_grad,
    vjp,
)

X = np.linspace(-1.0, 2.0, 5)
V = np.array([0.3, -1.0, 0.5, 2.0, 0.1])


def raw(x: Any, y: Any, scale: Any = 1.0) -> Any:
    return np.sin(x) * y * scale


def by_vjp() -> Any:
    f = custom_vjp(raw)

    def forward(x: Any, y: Any, scale: Any) -> Any:
        return f(x, y, scale), {"x": x, "rest": (y, scale)}

    def backward(residuals: Any, g: Any) -> Any:
        x, (y, scale) = residuals["x"], residuals["rest"]
        return np.cos(x) * g * y * scale, np.sum(g * np.sin(x)) * scale, None

    f.defvjp(forward, backward)
    return f


def by_jvp() -> Any:
    f = custom_jvp(raw)

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        x, y, scale = primals
        dx, dy, _ = tangents
        return f(x, y, scale), (np.cos(x) * y * dx + np.sin(x) * dy) * scale

    return f


def by_jvps() -> Any:
    f = custom_jvp(raw)
    f.defjvps(lambda t, out, x, y, scale: np.cos(x) * t * y * scale, lambda t, out, x, y, scale: out / y * t, None)
    return f


RULES = pytest.mark.parametrize("make", [by_vjp, by_jvp, by_jvps])


def loss(f: Any) -> Callable[..., Any]:
    return lambda x, y: np.sum(f(x, y, 2.0) ** 2 * np.exp(x)) + y * f(x[0], y)


DERIVATIVES: dict[str, Callable[[Any], Any]] = {
    "grad": lambda h: grad(h, (0, 1))(X, 1.5),
    "value": lambda h: value_and_grad(h)(X, 1.5),
    "jvp": lambda h: jvp(h, (X, 1.5), (V, 0.3)),
    "jvp by one": lambda h: jvp(h, (X, 1.5), (None, 0.3)),
    "linearize": lambda h: linearize(h, X, 1.5)[1](V, 0.3),
    "hvp": lambda h: hvp(lambda x: h(x, 1.5), X, V),
    "hessian": lambda h: hessian(h, (0, 1))(X, 1.5),
    "reverse over reverse": lambda h: grad(lambda x, y: np.sum(grad(h)(x, y) * V) + grad(h, 1)(x, y), (0, 1))(X, 1.5),
    "forward over reverse": lambda h: jvp(grad(h, (0, 1)), (X, 1.5), (V, 0.3)),
    "reverse over forward": lambda h: grad(lambda x, y: jvp(h, (x, y), (V, 0.3))[1], (0, 1))(X, 1.5),
    "forward over forward": lambda h: jvp(lambda x, y: jvp(h, (x, y), (V, 0.3))[1], (X, 1.5), (V, 0.3)),
    "third": lambda h: grad(lambda y: grad(grad(lambda z: h(X, z)))(y))(1.5),
    "outer variable": lambda h: grad(lambda y: np.sum(grad(lambda x: h(x, y))(X) ** 2))(1.5),
}


def same(a: Any, b: Any, **tolerance: Any) -> None:
    x, structure = optree.tree_flatten(a)
    y, other = optree.tree_flatten(b)
    assert structure == other
    for got, expected in zip(x, y, strict=True):
        assert type(got) is type(expected)
        np.testing.assert_allclose(got, expected, **{"rtol": 1e-11, "atol": 1e-12, **tolerance})


@RULES
@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_are_those_of_the_function(make: Any, name: str) -> None:
    same(DERIVATIVES[name](loss(make())), DERIVATIVES[name](loss(raw)))


@RULES
def test_gradients_agree_with_finite_differences(make: Any) -> None:
    f = make()
    got = grad(lambda x: np.sum(f(x, 1.5) * V))(X)
    expected = directional(lambda x: np.sum(raw(x, 1.5) * V), [X], 0, V)
    np.testing.assert_allclose(np.sum(got * V), expected, rtol=1e-8)
    check_grads(lambda x, y: np.sum(f(x, y) * V), X, 1.5)


@RULES
def test_jvp_is_the_transpose_of_vjp(make: Any, rng: np.random.Generator) -> None:
    f = make()
    t, s, c = rng.normal(size=5), 0.7, rng.normal(size=5)
    _, tangent = jvp(f, (X, 1.5), (t, s))
    gx, gy = vjp(f, X, 1.5)[1](c)
    np.testing.assert_allclose(tangent @ c, gx @ t + gy * s, rtol=1e-13)
    same(jacobian(lambda x: f(x, 1.5))(X), np.diag(1.5 * np.cos(X)))


@RULES
def test_float32_stays(make: Any) -> None:
    f = make()
    x = X.astype(np.float32)
    assert grad(lambda x: np.sum(f(x, 1.5)))(x).dtype == np.float32
    value, tangent = jvp(lambda x: f(x, 1.5), (x,), (x,))
    assert value.dtype == tangent.dtype == np.float32
    np.testing.assert_allclose(grad(lambda x: np.sum(f(x, 1.5)))(x), 1.5 * np.cos(x), rtol=1e-6)
    assert grad(lambda y: np.sum(f(x, y)))(1.5) == pytest.approx(np.sum(np.sin(x)), rel=1e-6)


@RULES
def test_other_ways_to_call(make: Any) -> None:
    f = make()
    expected = grad(lambda x: np.sum(raw(x, 1.5, 2.0)))(X)
    np.testing.assert_allclose(grad(lambda x: np.sum(f(x, scale=2.0, y=1.5)))(X), expected)
    np.testing.assert_allclose(grad(lambda x: np.sum(f(y=1.5, scale=2.0, x=x)))(X), expected)
    np.testing.assert_allclose(grad(lambda y: np.sum(f(X, y)))(1.5), np.sum(np.sin(X)))
    assert f.__name__ == "raw"
    assert f.__wrapped__ is raw
    assert "raw" in repr(f)
    with pytest.raises(TypeError, match="missing"):
        grad(lambda x: np.sum(f(x)))(X)


@RULES
def test_plain_values_only_call_the_function(make: Any) -> None:
    f = make()
    np.testing.assert_array_equal(f(X, 1.5), raw(X, 1.5))
    assert isinstance(f(0.5, 1.5), float)
    f.function = lambda *args, **kwargs: (args, kwargs)
    assert f(X, scale=3.0)[1] == {"scale": 3.0}


# ---------------------------------------------------------------- what only one kind does
def test_the_rule_is_what_is_used() -> None:
    """Not the slope of the function: also where its derivative is differentiated."""
    f = custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, x), lambda x, g: (g * x**2,))
    assert grad(f)(3.0) == 9.0
    assert grad(grad(f))(3.0) == 6.0
    assert jvp(f, (3.0,), (2.0,)) == (3.0, 18.0)
    h = custom_jvp(lambda x: x)
    h.defjvp(lambda primals, tangents: (primals[0], tangents[0] * primals[0] ** 2))
    assert grad(h)(3.0) == 9.0
    assert grad(grad(h))(3.0) == 6.0
    assert grad(grad(grad(h)))(3.0) == 2.0


def test_what_cannot_be_recorded_may_run_in_the_rules() -> None:
    f = custom_vjp(lambda x: np.asarray([float(v) ** 3 for v in x]))

    def forward(x: Any) -> Any:
        assert x.flags.writeable
        return np.asarray([float(v) ** 3 for v in x]), x

    def backward(x: Any, g: Any) -> Any:
        return (np.asarray([3 * float(v) ** 2 * float(w) for v, w in zip(x, g, strict=True)]),)

    f.defvjp(forward, backward)
    np.testing.assert_allclose(grad(lambda x: np.sum(f(x) * V))(X), 3 * X**2 * V)
    with pytest.raises(TypeError):
        jvp(f, (X,), (V,))


def test_the_gradient_may_be_clipped() -> None:
    @partial(custom_vjp, nondiff_argnums=(0, 1))
    def clip(low: float, high: float, x: Any) -> Any:
        return x

    clip.defvjp(lambda low, high, x: (x, None), lambda low, high, _, g: (np.clip(g, low, high),))
    np.testing.assert_array_equal(grad(lambda x: np.sum(clip(-1.0, 1.0, x) * V * 10))(X), np.clip(10 * V, -1, 1))
    with pytest.raises(InputError, match=r"clip: argument 0 is one of nondiff_argnums"):
        grad(lambda x: clip(x, 1.0, x))(0.5)


def test_nondiff_arguments_come_first_in_the_rule_of_custom_jvp() -> None:
    @partial(custom_jvp, nondiff_argnums=0)
    def apply(function: Any, x: Any) -> Any:
        return function(x)

    apply.defjvp(lambda function, primals, tangents: (function(*primals), jvp(function, primals, tangents)[1]))
    np.testing.assert_allclose(grad(lambda x: np.sum(apply(np.sin, x)))(X), np.cos(X))
    np.testing.assert_allclose(hvp(lambda x: np.sum(apply(np.sin, x)), X, V), -np.sin(X) * V)


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Model:
    weights: Any
    bias: Any


def test_containers() -> None:
    def plain(model: Any, points: Any, order: int = 1) -> Any:
        z = model["m"].weights * points[0].x + model["m"].bias * points[0].y
        return {"z": z, "extra": (np.sum(z**2), None, "text", order), "positive": z > 0, "count": np.arange(3)}

    f = custom_vjp(plain)
    f.defvjp(
        lambda model, points, order: (plain(model, points, order), (model, points)),
        lambda residuals, g: backward(*residuals, g),
    )

    def backward(model: Any, points: Any, g: Any) -> Any:
        assert g["extra"][1:] == (None, None, None)
        assert g["positive"] is None
        assert g["count"] is None
        (p,), m = points, model["m"]
        z = m.weights * p.x + m.bias * p.y
        gz = g["z"] + 2 * z * g["extra"][0]
        return {"m": Model(gz * p.x, np.sum(gz * p.y)), "n": None}, [Point(gz * m.weights, None)], None

    def total(function: Any) -> Any:
        def inner(model: Any, x: Any) -> Any:
            out = function({"m": model, "n": np.arange(4)}, [Point(x, 0.5)])
            assert out["extra"][1:] == (None, "text", 1)
            assert out["count"].dtype == np.int64
            np.testing.assert_array_equal(out["count"], [0, 1, 2])
            return np.sum(out["z"] * V) + out["extra"][0] + np.sum(np.where(out["positive"], x, 0.0))

        return inner

    model = Model(V.copy(), 0.5)
    for derivative in (
        lambda h: grad(h, (0, 1))(model, X),
        lambda h: jvp(h, (model, X), (Model(X, 1.0), V)),
        lambda h: jvp(lambda b, x: grad(lambda b, x: h(Model(V, b), x), (0, 1))(b, x), (0.5, X), (1.0, V)),
    ):
        got, expected = derivative(total(f)), derivative(total(plain))
        if isinstance(got[0], Model):
            got, expected = (vars(got[0]), got[1]), (vars(expected[0]), expected[1])
        same(got, expected)


def test_containers_in_a_rule_of_custom_jvp() -> None:
    f = custom_jvp(lambda p: {"sum": p["a"] + p["b"][0], "n": 3})

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (p,), (t,) = primals, tangents
        assert t["b"][1] is None
        assert t["c"] == 0.0
        return f(p), {"sum": 2.0 * t["a"] + 3.0 * t["b"][0], "n": None}

    def total(a: Any, b: Any) -> Any:
        return np.sum(f({"a": a, "b": (b, "name"), "c": 4.0})["sum"] * V)

    same(grad(total, (0, 1))(X, 1.0), (2.0 * V, float(3.0 * np.sum(V))))
    assert jvp(total, (X, 1.0), (X, None))[1] == pytest.approx(2 * X @ V)


def test_methods() -> None:
    class Layer:
        def __init__(self, power: float) -> None:
            self.power = power

        @custom_vjp
        def __call__(self, x: Any) -> Any:
            return x**self.power

        def forward(self, x: Any) -> Any:
            return x**self.power, x

        def backward(self, x: Any, g: Any) -> Any:
            return (g * self.power * x ** (self.power - 1.0),)

        __call__.defvjp(forward, backward)

        @custom_jvp
        def scaled(self, x: Any, by: Any = 2.0) -> Any:
            """Scale."""
            return self.power * x * by

        @scaled.defjvp
        def _scaled(self, primals: Any, tangents: Any) -> Any:
            return self.scaled(*primals), self.power * (tangents[0] * primals[1] + primals[0] * tangents[1])

    layer = Layer(3.0)
    np.testing.assert_allclose(grad(lambda x: np.sum(layer(x)))(X), 3 * X**2)
    np.testing.assert_allclose(hvp(lambda x: np.sum(layer(x)), X, V), 6 * X * V)
    np.testing.assert_allclose(grad(lambda x: np.sum(layer.scaled(x, by=4.0)))(X), np.full(5, 12.0))
    assert Layer.scaled.__doc__ == "Scale."
    np.testing.assert_allclose(layer(X), X**3)


def test_whole_numbers_and_masks_that_depend_on_the_input_may_be_arguments() -> None:
    f = custom_vjp(lambda x, order, mask: np.where(mask, x[order], 0.0))

    def backward(residuals: Any, g: Any) -> Any:
        order, mask = residuals
        back = np.zeros_like(g)
        back[order] = np.where(mask, g, 0.0)
        return back, None, None

    f.defvjp(lambda x, order, mask: (np.where(mask, x[order], 0.0), (order, mask)), backward)
    x = np.array([3.0, -1.0, 2.0])
    got = grad(lambda x: np.sum(f(x, np.argsort(x), x > 0) * np.array([1.0, 2.0, 4.0])))(x)
    expected = grad(lambda x: np.sum(np.where(x > 0, x[np.argsort(x)], 0.0) * np.array([1.0, 2.0, 4.0])))(x)
    np.testing.assert_array_equal(got, expected)


def test_python_numbers_stay_python_numbers() -> None:
    f = custom_vjp(lambda x: 2.0 * x)
    seen = []

    def backward(_: Any, g: Any) -> Any:
        seen.append(g)
        return (2.0 * g,)

    f.defvjp(lambda x: (2.0 * x, seen.append(x)), backward)
    x = np.ones(3, np.float32)
    value, g = value_and_grad(lambda c: np.sum(x * f(c)))(1.5)
    assert value.dtype == np.float32
    assert type(g) is float
    assert [type(v) for v in seen] == [float, float]


def test_a_rule_may_differentiate() -> None:
    """Inside a rule there are plain values, and derivatives of them have a tape of their own."""
    f = custom_vjp(lambda x: np.sum(np.sin(x)))
    f.defvjp(lambda x: (np.sum(np.sin(x)), x), lambda x, g: (g * grad(lambda x: np.sum(np.sin(x)))(x),))
    np.testing.assert_allclose(grad(f)(X), np.cos(X))
    np.testing.assert_allclose(hvp(f, X, V), -np.sin(X) * V)


def test_an_adjoint_of_zero_stays_zero() -> None:
    f = custom_vjp(lambda x: np.sqrt(x))
    f.defvjp(lambda x: (np.sqrt(x), x), lambda x, g: (g / (2 * np.sqrt(x)),))
    np.testing.assert_array_equal(grad(lambda x: 0.0 * f(x[0]) + np.sum(x))(np.zeros(2)), [1.0, 1.0])


def test_two_calls_do_not_mix() -> None:
    f = by_vjp()
    _, pullback = vjp(lambda x: f(f(x, 1.0), 2.0) + f(x, 3.0), X)
    expected = 2 * np.cos(np.sin(X)) * np.cos(X) + 3 * np.cos(X)
    for c in (V, X, V):
        np.testing.assert_allclose(pullback(c)[0], c * expected, rtol=1e-13)


def test_arrays_may_change_between_the_call_and_the_gradient() -> None:
    f = by_vjp()
    x, scale = X.copy(), np.full(5, 2.0)
    _, pullback = vjp(lambda x: f(x, 1.0, scale), x)
    x[:] = 0.0
    scale[:] = 0.0
    np.testing.assert_allclose(pullback(np.ones(5))[0], 2 * np.cos(X))


def test_results_may_be_overwritten_by_the_next_call() -> None:
    work = np.empty(20_000)

    def cube(x: Any) -> Any:
        work[:] = x**3
        return work

    f = custom_vjp(cube)
    f.defvjp(lambda x: (cube(x), x), lambda x, g: (3 * x**2 * g,))
    x = np.linspace(0, 1, len(work))
    got = grad(lambda x: np.sum(f(x) * f(2 * x)))(x)
    np.testing.assert_allclose(got, 48 * x**5)
