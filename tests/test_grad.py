"""The transforms themselves: which arguments, what comes back, and how they combine with the rest of Python."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.optimize

from tape import elementwise_grad, grad, stop_gradient, value_and_grad

X = np.array([1.0, 2.0, 3.0])


def product(x: Any, y: Any, z: Any = 1.0, *, scale: Any = 1.0) -> Any:
    """Multiply powers of the arguments, so that each derivative is another."""
    return x * y**2 * z**3 * scale**4


# ---------------------------------------------------------------- argnums
# By x, y, z and scale at (2, 3, 1, 1): 9, 12, 54, 72.
@pytest.mark.parametrize(
    ("argnums", "expected"),
    [
        (0, 9.0), (1, 12.0), (2, 54.0), (-1, 54.0), (-3, 9.0), ("x", 9.0), ("z", 54.0), (np.int64(1), 12.0),
        ((0,), (9.0,)), ((0, 2), (9.0, 54.0)), ((2, 0), (54.0, 9.0)), ((-1, 0), (54.0, 9.0)), ([1, 0], (12.0, 9.0)),
        (("y", 0), (12.0, 9.0)), ((), ()),
    ],
)  # fmt: skip
def test_argnums(argnums: Any, expected: Any) -> None:
    assert grad(product, argnums)(2.0, 3.0, 1.0) == expected
    assert grad(product, argnums=argnums)(2.0, 3.0, 1.0) == expected
    assert value_and_grad(product, argnums)(2.0, 3.0, 1.0) == (18.0, expected)


def test_keyword_arguments_pass_through_and_may_be_differentiated() -> None:
    assert grad(product)(2.0, 3.0, scale=2.0) == 9.0 * 16
    assert grad(product)(2.0, y=3.0, z=2.0) == 9.0 * 8
    assert grad(product, "scale")(2.0, 3.0, scale=1.0) == 72.0
    assert grad(product, ("scale", 0, "z"))(2.0, 3.0, z=1.0, scale=1.0) == (72.0, 9.0, 54.0)
    assert grad(product, "y")(2.0, y=3.0) == 12.0
    assert grad(lambda **kw: kw["a"] ** 2, "a")(a=3.0) == 6.0
    assert grad(lambda *xs: xs[0] * xs[2], 2)(2.0, 3.0, 4.0) == 2.0


def test_other_arguments_are_handed_on_as_they_are() -> None:
    seen: list[Any] = []
    extra = [object(), "text", None, np.arange(3), {"k": 1}]

    def f(x: Any, *rest: Any) -> Any:
        seen.extend(rest)
        return x * 2.0

    grad(f)(1.0, *extra)
    assert all(a is b for a, b in zip(seen, extra, strict=True))


def test_one_array_as_two_arguments() -> None:
    ga, gb = grad(lambda a, b: np.sum(a * b**2), (0, 1))(X, X)
    np.testing.assert_array_equal(ga, X**2)
    np.testing.assert_array_equal(gb, 2 * X**2)


def test_the_argument_itself_returned() -> None:
    assert grad(lambda x: x)(2.0) == 1.0
    np.testing.assert_array_equal(grad(lambda x: x[1])(X), [0.0, 1.0, 0.0])


# ---------------------------------------------------------------- what comes back
def test_a_result_that_depends_on_nothing() -> None:
    np.testing.assert_array_equal(grad(lambda x: 3.0)(X), np.zeros(3))
    np.testing.assert_array_equal(grad(lambda x: np.float64(3.0))(X), np.zeros(3))
    np.testing.assert_array_equal(grad(lambda x: np.array(3.0))(X), np.zeros(3))
    np.testing.assert_array_equal(grad(lambda x: 3)(X.astype(np.float32)), np.zeros(3))
    assert grad(lambda x: 3)(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_array_equal(grad(lambda x: np.sum(x * 0.0))(X), np.zeros(3))
    np.testing.assert_array_equal(grad(lambda x: np.sum(np.sign(x)))(X), np.zeros(3))
    assert grad(lambda x: 3.0)(1.0) == 0.0
    g = grad(lambda x, y: np.sum(x["a"]), (0, 1))({"a": X, "b": [1.0]}, X)
    np.testing.assert_array_equal(g[0]["a"], 1.0)
    assert g[0]["b"] == [0.0]
    np.testing.assert_array_equal(g[1], 0.0)
    assert value_and_grad(lambda x: 3.0)(1.0) == (3.0, 0.0)


@pytest.mark.parametrize(
    ("x", "kind", "dtype"),
    [
        (2.0, float, None), (2, float, None), (np.float64(2.0), np.float64, np.float64),
        (np.float32(2.0), np.float32, np.float32),
        (np.array(2.0), np.ndarray, np.float64), (np.array(2.0, np.float32), np.ndarray, np.float32),
        (np.array([2.0]), np.ndarray, np.float64), (np.ones((2, 0)), np.ndarray, np.float64),
        (np.ones((1, 2, 3), np.float32), np.ndarray, np.float32),
    ],
)  # fmt: skip
def test_the_gradient_is_of_the_kind_of_the_argument(x: Any, kind: type, dtype: Any) -> None:
    value, g = value_and_grad(lambda x: np.sum(x * x))(x)
    assert type(g) is kind or (kind is np.float32 and np.shape(g) == () and g.dtype == np.float32)
    assert np.shape(g) == np.shape(x)
    if dtype is not None:
        assert g.dtype == dtype
        assert np.asarray(value).dtype == dtype
    np.testing.assert_array_equal(g, 2 * np.asarray(x))
    np.testing.assert_array_equal(value, np.sum(np.square(x)))


def test_the_value_is_plain() -> None:
    value, _ = value_and_grad(lambda x: x * x)(3.0)
    assert type(value) is float
    value, _ = value_and_grad(lambda x: np.sum(x))(X)
    assert type(value) is np.float64


def test_float32_through_and_through() -> None:
    seen: list[Any] = []

    def f(x: Any, y: Any) -> Any:
        a = np.tanh(x) * 2.5 + 1 - x**2 / 3
        b = np.float32(2) * a
        seen.extend(v.dtype for v in (a, b, a * y, x @ x, np.mean(x)))
        return np.sum(b * y)

    value, (gx, gy) = value_and_grad(f, (0, 1))(X.astype(np.float32), 2.0)
    assert set(seen) == {np.dtype(np.float32)}
    assert value.dtype == gx.dtype == np.float32
    assert type(gy) is float
    gx64, gy64 = grad(f, (0, 1))(X, 2.0)
    np.testing.assert_allclose(gx, gx64, rtol=1e-5)
    np.testing.assert_allclose(gy, gy64, rtol=1e-5)


def test_float64_and_float32_mix_as_in_numpy() -> None:
    seen: list[Any] = []
    gx, gy = grad(lambda x, y: (seen.append((x * y).dtype), np.sum(x * y))[1], (0, 1))(X.astype(np.float32), X)
    assert seen == [np.float64]
    assert gx.dtype == np.float32
    assert gy.dtype == np.float64
    np.testing.assert_array_equal(gx, X)


@pytest.mark.parametrize(
    "x",
    [X[::-1], np.arange(12.0).reshape(3, 4).T, np.arange(12.0).reshape(3, 4)[::2, 1:],
     np.asfortranarray(np.ones((3, 2))),
          np.broadcast_to(2.0, (2, 3)), np.ma.filled(X), np.arange(8.0)[1::3]]
)  # fmt: skip
def test_arrays_of_any_layout(x: Any) -> None:
    w = np.arange(1.0, x.size + 1).reshape(x.shape)
    value, g = value_and_grad(lambda x: np.sum(w * x**2))(x)
    np.testing.assert_array_equal(g, 2 * w * x)
    assert value == np.sum(w * x**2)
    assert g.dtype == np.float64
    assert g.flags.writeable


def test_a_list_of_numbers_is_an_array() -> None:
    g = grad(lambda x: x[0] ** 2 * x[1])([1.0, 2])
    assert type(g) is np.ndarray
    np.testing.assert_array_equal(g, [4.0, 1.0])


def test_results_are_plain_and_alias_nothing() -> None:
    def f(x: Any) -> Any:
        return np.sum(x[:2] * 3.0), (x, x[1:])

    g, (whole, part) = grad(f, has_aux=True)(X)
    for one in (g, whole, part):
        assert type(one) is np.ndarray
        assert one.flags.writeable
        assert one.flags.owndata or one.base is None or isinstance(one.base, np.ndarray)
    kept = g.copy()
    whole[...] = 77.0
    g2, (whole2, _) = grad(f, has_aux=True)(X)
    np.testing.assert_array_equal(whole2, X)
    np.testing.assert_array_equal(g, kept)
    g2[...] = -1.0
    np.testing.assert_array_equal(g, kept)
    np.testing.assert_array_equal(grad(f, has_aux=True)(X)[0], kept)


# ---------------------------------------------------------------- has_aux
def test_has_aux() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        return np.sum(y**2), {"y": y, "n": 3, "s": [np.sum(y), x > 1.5, None, "text"], "t": (y[0], y[0] * 1.0)}

    g, aux = grad(f, has_aux=True)(X)
    np.testing.assert_array_equal(g, 8 * X)
    assert type(aux["y"]) is np.ndarray
    np.testing.assert_array_equal(aux["y"], 2 * X)
    assert aux["n"] == 3
    assert aux["s"][0] == 12.0
    np.testing.assert_array_equal(aux["s"][1], [False, True, True])
    assert aux["s"][1].dtype == np.bool_
    assert aux["s"][2:] == [None, "text"]
    assert aux["t"] == (2.0, 2.0)
    assert type(aux["t"]) is tuple
    (value, aux), g2 = value_and_grad(f, has_aux=True)(X)
    assert value == 56.0
    np.testing.assert_array_equal(g2, g)
    assert grad(lambda x: (x, x), has_aux=True)(2.0) == (1.0, 2.0)
    assert grad(lambda x, y: (x * y, None), (0, 1), has_aux=True)(2.0, 3.0) == ((3.0, 2.0), None)
    assert elementwise_grad(lambda x: (x * x, 1), has_aux=True)(2.0) == (4.0, 1)


# ---------------------------------------------------------------- forms of use
def test_decorators() -> None:
    @grad
    def slope(x: Any) -> Any:
        """Say something."""
        return x**3

    assert slope(2.0) == 12.0
    assert slope.__name__ == "slope"
    assert slope.__doc__ == "Say something."
    assert list(inspect.signature(slope).parameters) == ["x"]

    @grad()
    def same(x: Any) -> Any:
        return x**3

    @grad(argnums=1)
    def by_y(x: Any, y: Any) -> Any:
        return x * y**2

    @value_and_grad(argnums=("y", "x"), has_aux=True)
    def both(x: Any, y: Any) -> Any:
        return x * y**2, "aux"

    @elementwise_grad
    def each(x: Any) -> Any:
        return np.sin(x)

    assert same(2.0) == 12.0
    assert by_y(2.0, 3.0) == 12.0
    assert both(2.0, 3.0) == ((18.0, "aux"), (12.0, 9.0))
    np.testing.assert_allclose(each(X), np.cos(X), rtol=1e-15)


class Model:
    """Methods differentiated in the class body and from outside."""

    def __init__(self, w: float) -> None:
        self.w = w

    def loss(self, x: Any) -> Any:
        """Multiply by the state."""
        return self.w * x**2

    @functools.partial(grad, argnums=1)
    def slope(self, x: Any) -> Any:
        return self.w * x**2

    @grad(argnums="x")
    def named(self, x: Any) -> Any:
        return self.w * x**2

    @staticmethod
    @grad
    def static(x: Any) -> Any:
        return x**2

    def __call__(self, x: Any) -> Any:
        return self.w * x**4


def test_methods() -> None:
    model = Model(3.0)
    assert grad(model.loss)(2.0) == 12.0
    assert model.slope(2.0) == 12.0
    assert model.named(2.0) == 12.0
    assert model.static(3.0) == 6.0
    assert Model.static(3.0) == 6.0
    assert grad(model)(1.0) == 12.0
    assert Model.slope(model, 2.0) == 12.0


def test_other_callables() -> None:
    assert grad(functools.partial(product, y=3.0))(2.0) == 9.0
    assert grad(functools.partial(product, 2.0))(3.0) == 12.0
    assert grad(np.sum)(X).tolist() == [1.0, 1.0, 1.0]
    assert grad(np.sin)(0.0) == 1.0
    np.testing.assert_array_equal(grad(np.max)(X), [0.0, 0.0, 1.0])
    assert "sin" in repr(grad(np.sin))


def cube(x: Any) -> Any:
    return x**3


def test_pickling_and_copying() -> None:
    for f in (grad(cube), pickle.loads(pickle.dumps(grad(cube))), copy.deepcopy(grad(cube)), copy.copy(grad(cube))):
        assert f(2.0) == 12.0
    assert pickle.loads(pickle.dumps(value_and_grad(product, ("y", 0))))(2.0, 3.0) == (18.0, (12.0, 9.0))
    assert pickle.loads(pickle.dumps(elementwise_grad(cube)))(X).tolist() == [3.0, 12.0, 27.0]
    # By methods and partials.
    assert pickle.loads(pickle.dumps(grad(Model(3.0).loss)))(2.0) == 12.0
    assert pickle.loads(pickle.dumps(grad(functools.partial(product, y=3.0))))(2.0) == 9.0


# ---------------------------------------------------------------- elementwise_grad, stop_gradient
def test_elementwise_grad() -> None:
    x = np.linspace(-2, 2, 12).reshape(3, 4)
    np.testing.assert_allclose(elementwise_grad(np.sin)(x), np.cos(x), rtol=1e-15)
    np.testing.assert_allclose(elementwise_grad(np.tanh)(x), 1 - np.tanh(x) ** 2, rtol=1e-14)
    gx, gy = elementwise_grad(lambda x, y: x * y**2, (0, 1))(x, x + 1)
    np.testing.assert_array_equal(gx, (x + 1) ** 2)
    np.testing.assert_allclose(gy, 2 * x * (x + 1), rtol=1e-15)
    assert elementwise_grad(lambda x: x**2)(3.0) == 6.0
    np.testing.assert_array_equal(elementwise_grad(lambda x: np.where(x > 0, x, 0.0))(x), (x > 0).astype(float))
    assert elementwise_grad(np.exp)(x.astype(np.float32)).dtype == np.float32
    np.testing.assert_array_equal(elementwise_grad(lambda x: np.ones(3))(X), np.zeros(3))


def test_stop_gradient() -> None:
    np.testing.assert_array_equal(grad(lambda x: np.sum(x * stop_gradient(x)))(X), X)
    assert grad(lambda x: stop_gradient(x) ** 2)(3.0) == 0.0
    assert grad(lambda x: stop_gradient(x * x) * x)(3.0) == 9.0

    def f(x: Any) -> Any:
        held = stop_gradient({"a": [x, 2.0], "b": (x * x, "text", None)})
        assert held["a"][1] == 2.0
        assert held["b"][1:] == ("text", None)
        return np.sum(held["a"][0] * held["b"][0] * x)

    np.testing.assert_array_equal(grad(f)(X), X**3)
    # The value is there, also outside.
    assert stop_gradient(3.0) == 3.0
    assert stop_gradient(X) is X
    # The straight-through estimator: the value is rounded, the slope 1.
    value, g = value_and_grad(lambda x: np.sum((x + stop_gradient(np.round(x) - x)) * X))(X + 0.3)
    assert value == np.sum(X * X)
    np.testing.assert_array_equal(g, X)
    # A write to the stopped copy does not reach the original.
    np.testing.assert_array_equal(grad(lambda x: (s := stop_gradient(x), s.fill(0.0), np.sum(x**2))[-1])(X), 2 * X)


# ---------------------------------------------------------------- scipy.optimize
def rosenbrock(x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


@pytest.mark.parametrize("method", ["BFGS", "L-BFGS-B", "CG", "SLSQP", "trust-constr"])
def test_minimize(method: str) -> None:
    result = scipy.optimize.minimize(
        value_and_grad(rosenbrock), np.array([-1.2, 1.0, 0.5]), jac=True, method=method,
        tol=1e-10,
    )  # fmt: skip
    np.testing.assert_allclose(result.x, 1.0, atol=1e-4)


def test_minimize_with_separate_gradient_and_extra_arguments() -> None:
    result = scipy.optimize.minimize(
        lambda x, a: np.sum((x - a) ** 2),
        np.zeros(3),
        args=(X,),
        jac=grad(lambda x, a: np.sum((x - a) ** 2)),
        method="BFGS",
    )
    np.testing.assert_allclose(result.x, X, atol=1e-6)
    assert result.nit <= 3


def test_constraints_and_roots() -> None:
    # The point of the line x + y = 1 that is nearest to the origin.
    result = scipy.optimize.minimize(
        value_and_grad(lambda x: np.sum(x**2)), np.array([2.0, 0.0]), jac=True, method="SLSQP",
        constraints={"type": "eq", "fun": lambda x: x[0] + x[1] - 1, "jac": grad(lambda x: x[0] + x[1] - 1)},
    )  # fmt: skip
    np.testing.assert_allclose(result.x, 0.5, atol=1e-8)
    f = lambda x: np.cos(x) - x
    assert scipy.optimize.newton(f, 0.5, fprime=grad(f)) == pytest.approx(0.7390851332151607, abs=1e-14)
    assert scipy.optimize.check_grad(rosenbrock, grad(rosenbrock), np.array([-1.2, 1.0, 0.3])) < 1e-4
