"""Ops that users declare: ufuncs of SciPy and numba, Python functions, functions of whole arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from numeric import directional
from parallel import in_threads
from scipy import special

from tape import (
    InputError,
    OutputError,
    RuleError,
    UnsupportedError,
    check_grads,
    elementwise_op,
    grad,
    hessian,
    hvp,
    jacobian,
    jvp,
    kernels,
    show,
    structural_op,
)

X = np.linspace(0.1, 2.0, 6)
V = np.array([0.3, -1.0, 0.5, 2.0, 0.1, -0.4])


@numba.vectorize
def mixed(x: Any, y: Any) -> Any:
    return x * x * y + y


def by_numba() -> Any:
    return elementwise_op(mixed, lambda x, y, out: 2 * x * y, lambda x, y, out: x * x + 1)


def by_expressions() -> Any:
    return elementwise_op(
        lambda x, y: x * x * y + y, lambda x, y, out: 2 * x * y, lambda x, y, out: x * x + 1, name="mixed"
    )


def by_result() -> Any:
    """The partials read the result."""
    return elementwise_op(
        lambda x, y: x * x * y + y,
        lambda x, y, out: 2 * (out - y) / x,
        lambda x, y, out: out / y,
        name="mixed_by_result",
    )


def by_closures() -> Any:
    two, square = 2.0, lambda x: x * x
    return elementwise_op(
        lambda x, y: x * x * y + y, lambda x, y, out: two * x * y, lambda x, y, out: square(x) + 1, name="mixed"
    )


def by_python() -> Any:
    return elementwise_op(
        mixed, lambda x, y, out: 2 * x * y, lambda x, y, out: x * x + 1, name="mixed_in_python", compiled=False
    )


def the_ufunc() -> Any:
    by_numba()
    return mixed


DECLARED = pytest.mark.parametrize("declare", [by_numba, by_expressions, by_result, by_closures, by_python, the_ufunc])


def plain(x: Any, y: Any) -> Any:
    return x * x * y + y


def loss(f: Any) -> Callable[..., Any]:
    return lambda x, y: np.sum(f(x, y) ** 2 * np.exp(f(x, 0.5 * x) / 10)) + f(x[0], y)


DERIVATIVES: dict[str, Callable[[Any], Any]] = {
    "grad": lambda h: grad(h, (0, 1))(X, 1.5),
    "jvp": lambda h: jvp(h, (X, 1.5), (V, 0.3)),
    "hessian": lambda h: hessian(lambda x: h(x, 1.5))(X),
    "hvp": lambda h: hvp(lambda x: h(x, 1.5), X, V),
    "reverse over reverse": lambda h: grad(lambda x, y: np.sum(grad(h)(x, y) * V), (0, 1))(X, 1.5),
    "reverse over forward": lambda h: grad(lambda x, y: jvp(h, (x, y), (V, 0.3))[1], (0, 1))(X, 1.5),
    "third": lambda h: grad(lambda y: grad(grad(lambda z: h(X, z)))(y))(1.5),
    "broadcast": lambda h: jacobian(lambda y: h(X, y[:, None]) * y)(np.array([1.0, 2.0])),
}


@DECLARED
@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_are_those_of_the_function(declare: Any, name: str) -> None:
    got, expected = DERIVATIVES[name](loss(declare())), DERIVATIVES[name](loss(plain))
    got, expected = (x if isinstance(x, tuple) else (x,) for x in (got, expected))
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


@DECLARED
def test_dtypes_and_plain_values(declare: Any) -> None:
    op = declare()
    np.testing.assert_allclose(op(X, 2.0), plain(X, 2.0))
    x = X.astype(np.float32)
    g = grad(lambda x: np.sum(op(x, x)))(x)
    assert g.dtype == np.float32
    np.testing.assert_allclose(g, 3 * x**2 + 1, rtol=1e-6)
    assert grad(lambda x: op(x, 3.0))(2.0) == pytest.approx(12.0)
    np.testing.assert_array_equal(grad(lambda x: np.sum(op(x, x)))(np.empty((0, 3))), np.empty((0, 3)))
    columns = np.asfortranarray(np.outer(X, X))
    np.testing.assert_allclose(grad(lambda x: np.sum(op(x, X)))(columns), 2 * columns * X)


@DECLARED
def test_gradients_agree_with_finite_differences(declare: Any) -> None:
    op = declare()
    got = grad(lambda x: np.sum(op(x, 1.5) * V))(X)
    expected = directional(lambda x: np.sum(plain(x, 1.5) * V), [X], 0, V)
    assert got @ V == pytest.approx(expected, rel=1e-9)
    check_grads(lambda x, y: np.sum(op(x, y) * V), X, 1.5)


def test_which_have_kernels() -> None:
    for declare, native in ((by_numba, True), (by_result, True), (by_closures, False), (by_python, False)):
        assert kernels.native(declare()) is native
    assert kernels.native(elementwise_op(mixed, lambda x, y, out: special.erf(x), None, name="with_special"))
    for partial in (lambda x, out, c=1.0: c * x, lambda *v: v[0], np.cos.__call__):
        assert not kernels.native(elementwise_op(lambda x: np.sin(x), partial, name="other"))


# ---------------------------------------------------------------- functions of other makes
def test_a_ufunc_of_scipy() -> None:
    chebyshev = special.eval_chebyt
    op = elementwise_op(chebyshev, None, lambda n, x, out: n * special.eval_chebyu(n - 1, x))
    for f in (op, chebyshev):
        np.testing.assert_allclose(grad(lambda x, f=f: np.sum(f(3, x)))(X), 12 * X**2 - 3)
        np.testing.assert_allclose(grad(lambda x, f=f: np.sum(f(3, x) * X))(X), X * (12 * X**2 - 3))
    with pytest.raises(UnsupportedError, match="eval_chebyu"):
        grad(grad(lambda x: op(3, x)))(0.5)


def test_a_partial_by_another_op() -> None:
    """Nothing else is needed for higher derivatives."""
    first = elementwise_op(special.k0, lambda x, out: -second(x), name="first")
    second = elementwise_op(special.k1, lambda x, out: -first(x) - out / x, name="second")
    np.testing.assert_allclose(grad(lambda x: np.sum(first(x)))(X), -special.k1(X))
    np.testing.assert_allclose(hvp(lambda x: np.sum(first(x)), X, V), (special.k0(X) + special.k1(X) / X) * V)


def test_frompyfunc() -> None:
    cube = np.frompyfunc(lambda x: x**3, 1, 1)
    op = elementwise_op(cube, lambda x, out: 3 * x**2)
    for f in (op, cube):
        np.testing.assert_allclose(grad(lambda x, f=f: np.sum(f(x) * x))(X), 4 * X**3)
    assert op(X).dtype == np.float64


def test_numba_with_signatures() -> None:
    @numba.vectorize(["float64(float64)", "float32(float32)"])
    def quartic(x: Any) -> Any:
        return x**4

    elementwise_op(quartic, lambda x, out: 4 * x**3)
    np.testing.assert_allclose(grad(lambda x: np.sum(quartic(x)))(X), 4 * X**3)
    np.testing.assert_allclose(hvp(lambda x: np.sum(quartic(x)), X, V), 12 * X**2 * V)
    assert grad(lambda x: np.sum(quartic(x)))(X.astype(np.float32)).dtype == np.float32


def test_three_and_four_operands() -> None:
    three = elementwise_op(
        lambda a, b, c: a * b + c,
        lambda a, b, c, out: b + 0 * a,
        lambda a, b, c, out: a,
        lambda a, b, c, out: 1.0,
        name="three",
    )
    four = elementwise_op(
        lambda a, b, c, d: a * b + c * d,
        lambda a, b, c, d, out: b,
        lambda a, b, c, d, out: a,
        lambda a, b, c, d, out: d,
        lambda a, b, c, d, out: c,
        name="four",
    )
    values = (X, 2.0, X**2, np.array(3.0))
    for got, expected in zip(
        grad(lambda *v: np.sum(four(*v) * three(*v[:3])), (0, 1, 2, 3))(*values),
        grad(lambda a, b, c, d: np.sum((a * b + c * d) * (a * b + c)), (0, 1, 2, 3))(*values),
        strict=True,
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-13)
    assert hessian(lambda x: np.sum(four(x, x, x, x)))(X)[1, 1] == pytest.approx(4.0)


def test_a_known_ufunc_keeps_its_rule() -> None:
    op = elementwise_op(np.sin, lambda x, out: 5.0 * x)
    np.testing.assert_allclose(grad(lambda x: np.sum(np.sin(x)))(X), np.cos(X))
    np.testing.assert_allclose(grad(lambda x: np.sum(op(x)))(X), 5.0 * X)
    other = elementwise_op(special.erf, lambda x, out: 7.0)
    np.testing.assert_allclose(grad(lambda x: np.sum(special.erf(x)))(X), 2 / np.sqrt(np.pi) * np.exp(-(X**2)))
    np.testing.assert_allclose(grad(lambda x: np.sum(other(x)))(X), 7.0)


def test_a_partial_that_is_infinite_where_nothing_goes() -> None:
    op = elementwise_op(lambda x: np.sqrt(x), lambda x, out: 0.5 / out, name="root")
    x = np.array([0.0, 4.0])
    np.testing.assert_array_equal(grad(lambda x: np.sum(np.where(x > 0, op(x), 0.0)))(x), [0.0, 0.25])


# ---------------------------------------------------------------- whole arrays
def by_pullbacks(**options: Any) -> Any:
    return structural_op(
        lambda x, y, axis: np.sum(x * y, axis=axis),
        lambda g, out, x, y, axis: np.expand_dims(g, axis) * y,
        lambda g, out, x, y, axis: np.expand_dims(g, axis) * x,
        name="weighted",
        **options,
    )


def by_every() -> Any:
    return structural_op(
        lambda x, y, axis: np.sum(x * y, axis=axis),
        every=lambda position, g, out, *v, axis: np.expand_dims(g, axis) * v[1 - position],
        pushforward=lambda tangents, out, *v, axis: sum(
            np.sum(t * v[1 - k], axis=axis) for k, t in enumerate(tangents) if t is not None
        ),
        name="weighted",
    )


@pytest.mark.parametrize("declare", [by_pullbacks, lambda: by_pullbacks(pushforward="multilinear"), by_every])
def test_structural_ops(declare: Any, rng: np.random.Generator) -> None:
    op = declare()
    x, y, v = rng.normal(size=(3, 2, 4))

    def losses(f: Any) -> Any:
        def h(x: Any, y: Any) -> Any:
            return np.sum(f(x, np.sin(y), axis=1) ** 3)

        return (
            *grad(h, (0, 1))(x, y),
            *jvp(h, (x, y), (v, None)),
            *jvp(h, (x, y), (v, x)),
            hvp(lambda x: h(x, y), x, v),
            hessian(lambda y: h(x, y))(y),
            grad(lambda y: np.sum(grad(h)(x, y) * v))(y),
            grad(lambda y: jvp(h, (x, y), (v, v))[1])(y),
        )

    for got, expected in zip(losses(op), losses(lambda x, y, axis: np.sum(x * y, axis=axis)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    np.testing.assert_array_equal(op(x, y, axis=0), np.sum(x * y, axis=0))


def test_structural_op_without_slope() -> None:
    op = structural_op(lambda x, k: np.roll(x, k), None, None, name="roll")
    np.testing.assert_array_equal(grad(lambda x: np.sum(op(x, 1) * x))(X), np.roll(X, 1))


# ---------------------------------------------------------------- names and errors
def test_they_are_shown_by_name() -> None:
    op = elementwise_op(lambda x: x * 2.0, lambda x, out: 2.0, name="my twice")
    whole = structural_op(lambda x: x[::-1], lambda g, out, x: g[::-1], name="turned")
    text = str(show(lambda x: np.sum(whole(op(x))), X))
    assert "my_twice" in text
    assert "turned" in text


def test_errors_of_declarations() -> None:
    with pytest.raises(InputError, match="elementwise_op needs a function"):
        elementwise_op(3.0, None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="mixed needs a partial derivative for each operand"):
        elementwise_op(mixed)
    with pytest.raises(InputError, match="hypot has 2 operands, but 1 partial derivatives were given"):
        elementwise_op(np.hypot, lambda x, out: x)
    with pytest.raises(InputError, match="partial derivative of mixed by operand 1 must take 3 arguments"):
        elementwise_op(mixed, None, lambda x: x)
    with pytest.raises(InputError, match="divmod is not elementwise, or has several results: use structural_op"):
        elementwise_op(np.divmod, None, None)
    with pytest.raises(InputError, match="pushforward must be"):
        structural_op(np.sum, None, pushforward="bilinear")


def test_a_result_of_another_shape() -> None:
    op = elementwise_op(lambda x: np.sum(x), lambda x, out: 1.0, name="total")
    with pytest.raises(OutputError, match=r"total must give an array of shape \(6,\), that of its operands"):
        grad(lambda x: op(x))(X)


def test_a_pullback_of_another_shape() -> None:
    op = structural_op(lambda x: x[1:], lambda g, out, x: g, name="tail")
    for derivative in (lambda: grad(lambda x: np.sum(op(x)))(X), lambda: jvp(op, (X,), (V,))):
        with pytest.raises(
            RuleError, match=r"tail: the pullback of operand 0 gave an array of shape \(5,\), where \(6"
        ):
            derivative()


def test_operands_cannot_be_written_to() -> None:
    def doubled(x: Any) -> Any:
        x *= 2.0
        return x

    for op in (
        elementwise_op(doubled, lambda x, out: 2.0 + 0 * x),
        structural_op(doubled, lambda g, out, x: 2.0 * g),
        structural_op(lambda x: 2.0 * x, lambda g, out, x: doubled(g), name="doubling"),
    ):
        with pytest.raises(ValueError, match="read-only"):
            grad(lambda x, op=op: np.sum(op(x) * x))(X)


def test_a_partial_that_cannot_be_compiled() -> None:
    op = elementwise_op(lambda x: x, lambda x, out: np.where(x > 0), name="nonsense")
    with pytest.raises(
        UnsupportedError, match=r"partial derivative of nonsense by operand 0 cannot be compiled.*False"
    ):
        grad(lambda x: np.sum(op(x)))(X)
    np.testing.assert_allclose(grad(lambda x: np.sum(np.sin(x)))(X), np.cos(X))


def test_threads() -> None:
    found: dict[int, Any] = {}

    def work(k: int) -> None:
        for _ in range(10):
            op = elementwise_op(lambda x: x**6, lambda x, out: 6 * x**5, name="sixth")
            closed = elementwise_op(lambda x: k * x, lambda x, out: k + 0 * x, name="closed")
            found[k] = grad(lambda x, op=op, closed=closed: np.sum(op(x) + closed(x)))(X)

    in_threads(work)
    for k in range(4):
        np.testing.assert_allclose(found[k], 6 * X**5 + k)
