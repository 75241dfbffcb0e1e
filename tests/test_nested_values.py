"""What is differentiated inside of derivatives: branches not taken, writes in place, dtypes, containers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nested import (
    WAYS,
    X,
    d_grad,
    d_jvp,
)
from numeric import directional, gradient

import ops
from tape import (
    InputError,
    Tensor,
    grad,
    hessian,
    hessian_diagonal,
    hvp,
    jacobian,
    jacobian_forward,
    jacobian_reverse,
    jvp,
    linearize,
    vhp,
    vjp,
)


# ---------------------------------------------------------------- branches not taken
def guarded(x: Any) -> Any:
    """Defined everywhere; each branch has infinite derivatives where it is not taken."""
    y = np.where(x > 0, np.sqrt(x) * x, 0.0) + np.where(x < 0, x / (1.0 - x), np.log1p(x))
    return y + np.where(x == 0, 0.0, np.sin(x) / x)


def test_branches_not_taken_stay_out_of_second_derivatives() -> None:
    x = np.array([-1.0, 2.0, 0.7, -0.5])

    def f(x: Any) -> Any:
        return np.sum(guarded(x) * np.arange(1.0, 5))

    with np.errstate(all="ignore"):
        products = {
            "hessian": np.diag(hessian(f)(x)),
            "diagonal": hessian_diagonal(f)(x),
            "hvp": hvp(f, x, np.ones(4)),
            "vhp": vhp(f, x, np.ones(4)),
            "forward over reverse": jvp(grad(f), (x,), (np.ones(4),))[1],
            "reverse over forward": grad(lambda x: jvp(f, (x,), (np.ones(4),))[1])(x),
            "reverse over reverse": grad(lambda x: np.sum(grad(f)(x)))(x),
        }
        expected = directional(grad(f), [x], 0, np.ones(4))
        for name, product in products.items():
            np.testing.assert_allclose(product, expected, rtol=1e-8, err_msg=name)
        np.testing.assert_allclose(jvp(f, (x,), (np.ones(4),))[1], np.sum(grad(f)(x)), rtol=1e-13)
        np.testing.assert_allclose(jacobian_forward(guarded)(x), jacobian_reverse(guarded)(x), rtol=1e-13)


@pytest.mark.parametrize("x", [0.0, -1.0])
def test_the_double_where_is_not_needed(x: float) -> None:
    for branch in (np.sqrt, np.log, lambda t: 1 / t, lambda t: t**-1.5, lambda t: np.sqrt(t) * np.log(t)):

        def f(x: Any, branch: Any = branch) -> Any:
            return np.where(x > 0, branch(x), x * x)

        array = np.full(2, x)
        with np.errstate(all="ignore"):
            for way in WAYS[:5]:
                assert way(f)(x) == 2 * x
                for outer in WAYS[:5]:
                    assert outer(way(f))(x) == 2.0
                    assert d_jvp(outer(way(f)))(x) == 0.0
                    assert d_grad(outer(way(f)))(x) == 0.0
            np.testing.assert_array_equal(hessian(lambda x, f=f: np.sum(f(x)))(array), 2 * np.eye(2))
            np.testing.assert_array_equal(hvp(lambda x, f=f: np.sum(f(x)), array, np.ones(2)), [2.0, 2.0])
            np.testing.assert_array_equal(jvp(f, (array,), (np.ones(2),))[1], 2 * array)
            np.testing.assert_array_equal(jacobian_forward(f)(array), np.diag(2 * array))


def test_a_zero_tangent_stays_zero() -> None:
    """Forward mode keeps the convention of reverse mode: an infinite slope does not meet a tangent of 0."""
    x = np.array([0.0, 4.0])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(jvp(np.sqrt, (x,), (np.array([0.0, 1.0]),))[1], [0.0, 0.25])
        np.testing.assert_array_equal(
            grad(lambda x: jvp(np.sqrt, (x,), (np.array([0.0, 1.0]),))[1][1])(x), [0, -1 / 32]
        )
        np.testing.assert_array_equal(hvp(lambda x: np.sqrt(x)[1], x, np.ones(2)), [0.0, -1 / 32])
        np.testing.assert_array_equal(hessian(lambda x: np.sqrt(x)[1])(x), [[0, 0], [0, -1 / 32]])
        np.testing.assert_array_equal(hvp(lambda x: np.sum(np.sqrt(x)), x, np.array([0.0, 1.0])), [0.0, -1 / 32])


# ---------------------------------------------------------------- writing in place
def test_in_place_writes_and_views_inside_nested_functions() -> None:
    def f(x: Any) -> Any:
        y = x * x
        view = y[1:]
        view *= x[:-1]
        y[0] += np.sum(view)
        x[1] = y[2] * x[0]
        x += y
        return np.sum(np.sin(x))

    def plain(x: Any) -> Any:
        return f(np.array(x))

    x = X.copy()
    first = gradient(plain, x)
    np.testing.assert_allclose(grad(f)(x), first, rtol=1e-8)
    second = np.array([directional(lambda x: grad(f)(x), [x], 0, unit) for unit in np.eye(3)])
    for found in (
        hessian(f)(x),
        jacobian_forward(grad(f))(x),
        jacobian_reverse(grad(f))(x),
        np.array([hvp(f, x, unit) for unit in np.eye(3)]),
        np.array([grad(lambda x, u=unit: jvp(f, (x,), (u,))[1])(x) for unit in np.eye(3)]),
    ):
        np.testing.assert_allclose(found, second, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(x, X)
    third = np.array([directional(hessian(f), [x], 0, unit) for unit in np.eye(3)])
    np.testing.assert_allclose(jacobian(hessian(f))(x), third, rtol=1e-7, atol=1e-7)


def test_writes_of_an_inner_function_stay_inside() -> None:
    def inner(y: Any) -> Any:
        y[0] = 5.0 * y[1]
        return np.sum(y * y)

    def f(x: Any) -> Any:
        before = x * 1.0
        g = grad(inner)(x)
        assert np.all(x == before)
        h = jvp(inner, (x,), (np.ones(3),))[1]
        return np.sum(g * x) + h

    # inner: 26 y1**2 + y2**2; its gradient (0, 52 y1, 2 y2)
    expected = np.array([0.0, 104 * X[1] + 52, 4 * X[2] + 2])
    np.testing.assert_allclose(grad(f)(X), expected, rtol=1e-13)
    np.testing.assert_allclose([jvp(f, (X,), (u,))[1] for u in np.eye(3)], expected, rtol=1e-13)


def test_filling_inside_nested_functions() -> None:
    def f(x: Any) -> Any:
        y = ops.zeros(len(x))
        for i in range(len(x)):
            y[i] = x[i] ** 2 * x[i - 1]
        table = ops.zeros((2, len(x)))
        table[0] = y
        table[1, 1:] = np.sin(y[:-1])
        return np.sum(table * table[::-1]) + np.sum(table)

    np.testing.assert_allclose(grad(f)(X), gradient(f, X), rtol=1e-8)
    second = np.array([directional(grad(f), [X], 0, unit) for unit in np.eye(3)])
    for found in (hessian(f)(X), jacobian_forward(grad(f))(X), jacobian_reverse(grad(f))(X)):
        np.testing.assert_allclose(found, second, rtol=1e-8, atol=1e-8)

    def with_slopes(x: Any) -> Any:
        slopes = ops.zeros(3)
        for i in range(3):
            slopes[i] = grad(lambda t, i=i: t**3 * x[i - 1])(x[i])
        return np.sum(slopes)

    expected = 6 * X * np.roll(X, 1) + 3 * np.roll(X, -1) ** 2
    np.testing.assert_allclose(grad(with_slopes)(X), expected, rtol=1e-13)
    np.testing.assert_allclose([jvp(with_slopes, (X,), (u,))[1] for u in np.eye(3)], expected, rtol=1e-13)


# ---------------------------------------------------------------- dtypes, containers, arguments
def test_float32_stays_float32_at_every_depth() -> None:
    x = X.astype(np.float32)

    def f(x: Any) -> Any:
        return np.sum(np.sin(x) * x**2)

    wide = X.astype(np.float32).astype(float)
    for found, expected in (
        (hessian(f)(x), hessian(f)(wide)),
        (hvp(f, x, x), hvp(f, wide, wide)),
        (vhp(f, x, x), vhp(f, wide, wide)),
        (jacobian(grad(f))(x), hessian(f)(wide)),
        (grad(lambda x: jvp(f, (x,), (np.ones(3, np.float32),))[1])(x), hvp(f, wide, np.ones(3))),
        (jacobian(hessian(f))(x), jacobian(hessian(f))(wide)),
        (hessian_diagonal(f)(x), hessian_diagonal(f)(wide)),
        (jvp(jacobian(np.sin), (x,), (x,))[1], jvp(jacobian(np.sin), (wide,), (wide,))[1]),
    ):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_jacobians_are_of_the_dtype_of_the_argument_in_either_mode() -> None:
    """As gradients are; so the dtype does not depend on which mode is the cheaper one."""
    x, wide = X.astype(np.float32), np.arange(1.0, 4.0)
    kinds = (jacobian, jacobian_forward, jacobian_reverse)
    for kind in kinds:
        for f in (lambda x: x * wide, lambda x: np.sum(x * wide), lambda x: np.outer(x, wide), lambda x: wide):
            found = kind(f)(x)
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, kind(f)(x.astype(float)), rtol=1e-6)
            inside: list[Any] = []
            grad(lambda x, f=f, k=kind, inside=inside: (inside.append(k(f)(x)), np.sum(x))[1])(x)
            assert inside[0].dtype == np.float32
            assert inside[0].shape == found.shape
        assert kind(lambda x: x.astype(np.float32))(X).dtype == np.float64
        assert kind(lambda s: x * s)(2.0).dtype == np.float64
        blocks = kind(lambda x, y: x * y, (0, 1))(x, wide)
        assert [b.dtype for b in blocks] == [np.float32, np.float64]


def test_containers_in_and_out() -> None:
    p = {"a": np.array([1.0, 2.0]), "b": (np.array([[3.0]]), 0.5)}

    def f(p: Any) -> Any:
        return np.sum(p["a"] ** 3) * p["b"][1] + np.sum(p["a"]) * p["b"][0][0, 0] ** 2

    h = hessian(f)(p)
    assert list(h) == ["a", "b"]
    assert isinstance(h["b"], tuple)
    np.testing.assert_allclose(h["a"]["a"], np.diag(3 * p["a"]))
    np.testing.assert_allclose(h["a"]["b"][0], np.full((2, 1, 1), 6.0))
    np.testing.assert_allclose(h["b"][0]["a"], np.full((1, 1, 2), 6.0))
    np.testing.assert_allclose(h["a"]["b"][1], 3 * p["a"] ** 2)
    np.testing.assert_allclose(h["b"][0]["b"][0], np.full((1, 1, 1, 1), 6.0))
    assert h["b"][1]["b"][1] == 0.0
    nested = jacobian(grad(f))(p)
    np.testing.assert_allclose(nested["a"]["b"][0], h["a"]["b"][0])
    product = hvp(f, p, p)
    np.testing.assert_allclose(product["a"], 3 * p["a"] ** 2 + 18.0 + 0.5 * 3 * p["a"] ** 2)
    inside = grad(lambda s: np.sum(hvp(f, {"a": p["a"] * s, "b": p["b"]}, p)["a"]))(1.0)
    assert inside == pytest.approx(30.0)
    j = jacobian(lambda p: {"y": [p["a"] * p["b"][1], p["b"][1]]})(p)
    np.testing.assert_allclose(j["y"][0]["b"][1], p["a"])
    assert j["y"][1]["b"][1] == 1.0
    _, tangent = jvp(lambda p: {"y": [p["a"] * p["b"][1]], "n": p["b"][1]}, (p,), (p,))
    np.testing.assert_allclose(tangent["y"][0], p["a"])
    assert isinstance(tangent["n"], float)
    _, pullback = vjp(lambda p: {"y": [p["a"] * p["b"][1]], "n": p["b"][1]}, p)
    back = pullback({"y": [np.ones(2)], "n": 2.0})[0]
    assert back["b"][1] == pytest.approx(5.0)
    assert isinstance(back["b"][1], float)


def test_auxiliary_results() -> None:
    def f(x: Any) -> Any:
        return np.sum(x**3), {"square": x**2, "text": "kept"}

    for found, aux in (
        grad(f, has_aux=True)(X),
        jacobian(f, has_aux=True)(X),
        hessian(f, has_aux=True)(X),
        hessian_diagonal(f, has_aux=True)(X),
        hvp(f, X, X, has_aux=True),
        vhp(f, X, X, has_aux=True),
    ):
        assert not isinstance(found, Tensor)
        assert aux["text"] == "kept"
        assert type(aux["square"]) is np.ndarray
        np.testing.assert_array_equal(aux["square"], X**2)
    value, tangent, aux = jvp(f, (X,), (X,), has_aux=True)
    assert (tangent, aux["text"]) == (pytest.approx(3 * value), "kept")
    value, pullback, aux = vjp(f, X, has_aux=True)
    np.testing.assert_allclose(pullback(1.0)[0], 3 * X**2)
    value, pushforward, aux = linearize(f, X, has_aux=True)
    assert pushforward(X) == pytest.approx(3 * value)

    # Inside, the extra values are part of what is differentiated.
    def outer(x: Any) -> Any:
        _, aux = grad(f, has_aux=True)(x)
        _, _, more = jvp(f, (x,), (X,), has_aux=True)
        return np.sum(aux["square"]) + np.sum(more["square"])

    np.testing.assert_allclose(grad(outer)(X), 4 * X)
    np.testing.assert_allclose(jvp(outer, (X,), (X,))[1], 4 * X @ X)


def test_argnums_and_names() -> None:
    def f(x: Any, y: Any, *, scale: Any = 1.0) -> Any:
        return np.sum(x**2 * y) * scale

    y = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(hessian(f, "x")(X, y), np.diag(2 * y))
    np.testing.assert_allclose(hessian(f, 1)(X, y), np.zeros((3, 3)))
    blocks = hessian(f, ("y", 0))(X, y)
    np.testing.assert_allclose(blocks[0][1], np.diag(2 * X))
    np.testing.assert_allclose(blocks[1][1], np.diag(2 * y))
    blocks = hessian(f, (0, "scale"))(X, y, scale=2.0)
    np.testing.assert_allclose(blocks[0][1], 2 * X * y)
    assert blocks[1][1] == 0.0
    np.testing.assert_allclose(jacobian(grad(f, "x"), "y")(X, y), np.diag(2 * X))
    np.testing.assert_allclose(jacobian(grad(f, (0, 1)), -1)(X, y)[0], np.diag(2 * X))
    product = hvp(f, X, (X, y), y, argnums=("x", "y"))
    np.testing.assert_allclose(product[0], 4 * X * y)
    np.testing.assert_allclose(product[1], 2 * X * X)
    np.testing.assert_allclose(hvp(f, X, X, y, argnums="y"), np.zeros(3))
    with pytest.raises(InputError, match="names no argument"):
        hessian(f, "z")(X, y)
