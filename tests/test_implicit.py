"""Solutions of equations: root and fixed_point, their values, and their derivatives of any order."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from numeric import gradient

from tape import (
    ConvergenceError,
    InputError,
    OutputError,
    SingularJacobianError,
    TapeError,
    UnsupportedError,
    fixed_point,
    grad,
    hessian,
    hvp,
    jacobian_forward,
    jacobian_reverse,
    jvp,
    root,
    vjp,
)

Z = np.zeros(3)
A = np.array([[4.0, 1.0, 0.0], [-1.0, 5.0, 2.0], [0.5, 0.0, 3.0]])
B = np.array([1.0, -2.0, 0.5])
W = np.array([0.3, -1.0, 2.0])


def cubic(x: Any, p: Any) -> Any:
    """Define a nonlinear system with parameters in a container."""
    return p["A"] @ x + x**3 - p["b"]


def solved(b: Any) -> Any:
    """Solve the system as a function of its right-hand side."""
    return root(cubic, Z, {"A": A, "b": b})


def cube_root(a: Any) -> Any:
    return root(lambda x, a: x**3 - a, 1.0, a)


def power_derivative(order: int, a: float) -> float:
    """Differentiate the cube root in closed form."""
    return float(np.prod([1 / 3 - k for k in range(order)]) * a ** (1 / 3 - order))


# ---------------------------------------------------------------- values
def test_values_are_those_of_scipy() -> None:
    expected = scipy.optimize.root(lambda x: A @ x + x**3 - B, Z, jac=lambda x: A + 3 * np.diag(x**2)).x
    np.testing.assert_array_equal(solved(B), expected)
    assert cube_root(8.0) == pytest.approx(2.0, abs=1e-12)
    assert type(cube_root(8.0)) is float
    assert type(root(lambda x: x - 1, np.float64(0.0))) is np.float64
    assert root(lambda x: x - 1, 0) == 1.0
    assert root(lambda x: x - np.eye(2), np.zeros((2, 2))).shape == (2, 2)
    assert fixed_point(np.cos, 1.0) == pytest.approx(0.7390851332151607, abs=1e-14)
    np.testing.assert_allclose(fixed_point(np.cos, [1.0, 0.5]), 0.7390851332151607)


def test_empty_unknown() -> None:
    assert root(lambda x: x, np.zeros(0)).shape == (0,)


@pytest.mark.filterwarnings("ignore:An ill-conditioned matrix")
@pytest.mark.parametrize("method", ["hybr", "lm", "broyden1", "anderson", "krylov", "df-sane"])
def test_methods_for_arrays(method: str) -> None:
    g = grad(lambda b: W @ root(cubic, Z, {"A": A, "b": b}, method=method, tol=1e-10))(B)
    np.testing.assert_allclose(g, grad(lambda b: W @ solved(b))(B), rtol=1e-7)


@pytest.mark.parametrize(
    ("method", "bracket"),
    [(None, (0, 3)), ("bisect", (0, 3)), ("brenth", (0.0, 3.0)), ("ridder", (0, 3)), ("toms748", (0, 3)),
     ("newton", None), ("halley", None), ("hybr", None)],
)  # fmt: skip
def test_methods_for_numbers(method: Any, bracket: Any) -> None:
    f = lambda a: root(lambda x: x**3 - a, None if bracket else 1.0, method=method, bracket=bracket)
    assert f(8.0) == pytest.approx(2.0, abs=1e-10)
    assert grad(f)(8.0) == pytest.approx(1 / 12, rel=1e-10)


@pytest.mark.filterwarnings("ignore:An ill-conditioned matrix")
@pytest.mark.parametrize("method", ["del2", "iteration", "anderson", "hybr"])
def test_methods_of_fixed_point(method: str) -> None:
    f = lambda a: fixed_point(lambda x, a: np.cos(a * x), np.ones(2), a, method=method, tol=1e-12)
    a = np.array([0.5, 0.9])
    x = f(a)
    np.testing.assert_allclose(x, np.cos(a * x), rtol=1e-10)
    slope = -x * np.sin(a * x) / (1 + a * np.sin(a * x))
    np.testing.assert_allclose(jacobian_reverse(f)(a), np.diag(slope), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(jacobian_forward(f)(a), np.diag(slope), rtol=1e-8, atol=1e-12)


# ---------------------------------------------------------------- first derivatives
def test_gradient_by_a_container() -> None:
    p = {"A": A, "b": B}
    g = grad(lambda p: W @ root(cubic, Z, p))(p)
    x = solved(B)
    w = np.linalg.solve((A + 3 * np.diag(x**2)).T, W)
    np.testing.assert_allclose(g["b"], w, rtol=1e-12)
    np.testing.assert_allclose(g["A"], -np.outer(w, x), rtol=1e-12)
    np.testing.assert_allclose(g["b"], gradient(lambda b: W @ solved(b), B), rtol=1e-8)


def test_forward_agrees_with_reverse(rng: np.random.Generator) -> None:
    p = {"A": A, "b": B}
    v = {"A": rng.normal(size=(3, 3)), "b": rng.normal(size=3)}
    x, tangent = jvp(lambda p: root(cubic, Z, p), (p,), (v,))
    value, pullback = vjp(lambda p: root(cubic, Z, p), p)
    np.testing.assert_array_equal(x, value)
    (g,) = pullback(W)
    assert W @ tangent == pytest.approx(np.sum(g["A"] * v["A"]) + g["b"] @ v["b"], rel=1e-12)


def test_arguments_of_several_kinds() -> None:
    def f(a: Any, b: Any, c: Any) -> Any:
        return root(lambda x, a, parts, name: a * x - parts[0] - parts[1]["c"], np.zeros(2), a, [b, {"c": c}], "text")

    a, b, c = 2.0, np.array([1.0, 2.0]), np.array([3.0, 4.0], np.float32)
    ga, gb, gc = grad(lambda *p: np.sum(f(*p)), (0, 1, 2))(a, b, c)
    assert ga == pytest.approx(-2.5)
    np.testing.assert_allclose(gb, 0.5)
    np.testing.assert_allclose(gc, 0.5)
    assert gc.dtype == np.float32 and type(ga) is float


def test_float32_is_solved_in_double_precision() -> None:
    a = np.array([2.0, 3.0], np.float32)
    x = root(lambda x: x**2 - a, np.ones(2, np.float32))
    assert x.dtype == np.float64
    np.testing.assert_allclose(x, np.sqrt(a.astype(float)), rtol=1e-12)
    g = grad(lambda a: np.sum(root(lambda x, a: x**2 - a, np.ones(2, np.float32), a)))(a)
    assert g.dtype == np.float32
    np.testing.assert_allclose(g, 0.5 / np.sqrt(a), rtol=1e-6)


def test_the_start_and_the_bracket_have_no_gradient() -> None:
    g = grad(lambda x0: np.sum(root(lambda x: x**2 - 2.0, x0)))(np.array([1.0, 1.5]))
    np.testing.assert_array_equal(g, 0.0)
    assert grad(lambda s: root(lambda x: x**2 - 2.0, s))(1.0) == 0.0
    assert grad(lambda s: root(lambda x: x**2 - 2.0, None, bracket=(0.0, s)))(3.0) == 0.0
    assert grad(lambda a: root(lambda x, a: x**2 - 2.0, 1.0, a))(1.0) == 0.0


def test_mixed_units_are_not_singular() -> None:
    scale = np.array([1.0, 1e-12, 1e14])
    np.testing.assert_allclose(grad(lambda b: root(lambda x: scale * x - b, np.ones(3))[1])(scale), [0, 1e12, 0])


def test_arrays_overwritten_before_the_gradient() -> None:
    def f(b: Any) -> Any:
        matrix = A.copy()
        total = 0.0
        for scale in (1.0, 2.0):
            matrix[...] = scale * A
            total = total + W @ root(lambda x: matrix @ x - b, Z)
        return total

    np.testing.assert_allclose(grad(f)(B), 1.5 * np.linalg.solve(A.T, W), rtol=1e-10)


def test_a_pullback_used_twice_and_after_its_inputs_changed() -> None:
    b = B.copy()
    _, pullback = vjp(solved, b)
    first = pullback(W)[0]
    b[...] = 7.0
    np.testing.assert_array_equal(pullback(W)[0], first)
    np.testing.assert_allclose(pullback(2 * W)[0], 2 * first)


# ---------------------------------------------------------------- derivatives of derivatives
@pytest.mark.parametrize("a", [8.0, 0.7])
def test_five_derivatives(a: float) -> None:
    f: Callable[[Any], Any] = cube_root
    g: Callable[[Any], Any] = lambda a: root(lambda x: x**3 - a, 1.0)
    for order in range(6):
        assert f(a) == pytest.approx(power_derivative(order, a), rel=1e-9)
        assert g(a) == pytest.approx(power_derivative(order, a), rel=1e-9)
        f, g = grad(f), grad(g)


def test_mixtures_of_modes() -> None:
    forward = lambda f: lambda a: jvp(f, (a,), (1.0,))[1]
    for outer in (grad, forward):
        for middle in (grad, forward):
            assert outer(middle(cube_root))(8.0) == pytest.approx(power_derivative(2, 8.0), rel=1e-12)
            for inner in (grad, forward):
                third = outer(middle(inner(cube_root)))(8.0)
                assert third == pytest.approx(power_derivative(3, 8.0), rel=1e-12)


def test_hessian_of_a_function_of_a_root() -> None:
    loss = lambda b: np.sum(W * solved(b) ** 2)
    h = hessian(loss)(B)
    columns = [gradient(lambda b, k=k: grad(loss)(b)[k], B) for k in range(3)]
    np.testing.assert_allclose(h, np.array(columns), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(h, h.T, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(hvp(loss, B, W), h @ W, rtol=1e-9)


def test_a_root_within_a_root() -> None:
    def outer(a: Any) -> Any:
        # y = a**(1/3) inside, x = y / 2 outside
        return root(lambda x, a: 2 * x - root(lambda y, a: y**3 - a, 1.0, a), 0.5, a)

    assert grad(outer)(8.0) == pytest.approx(power_derivative(1, 8.0) / 2, rel=1e-10)
    assert grad(grad(outer))(8.0) == pytest.approx(power_derivative(2, 8.0) / 2, rel=1e-10)


def test_the_minimum_of_a_function_by_the_root_of_its_gradient() -> None:
    def minimum(a: Any) -> Any:
        return root(grad(lambda x: np.sum((x - a) ** 2 + x**4)), np.zeros(2))

    a = np.array([1.0, 2.0])
    x = minimum(a)
    np.testing.assert_allclose(jacobian_reverse(minimum)(a), np.diag(2 / (2 + 12 * x**2)), rtol=1e-10)


# ---------------------------------------------------------------- recorded values that f closes over
@dataclasses.dataclass
class Model:
    """Hold a parameter, for a bound method."""

    a: Any

    def residual(self, x: Any) -> Any:
        return x**3 - self.a


class Opaque:
    """Hold a parameter where it is not looked for."""

    def __init__(self, a: Any) -> None:
        self.a = a

    def residual(self, x: Any) -> Any:
        return x**3 - self.a


def cubed(x: Any, a: Any) -> Any:
    return x**3 - a


def closure_forms(a: Any) -> dict[str, Callable[[Any], Any]]:
    """Give one residual in all of the forms in which it may hold a recorded value."""
    inner = lambda x: x**3 - a
    table = {"deep": [a]}
    return {
        "lambda": lambda x: x**3 - a,
        "container": lambda x: x**3 - table["deep"][0],
        "function in a function": lambda x: inner(x) * 1.0,
        "default": lambda x, a=a: x**3 - a,
        "keyword default": lambda x, *, a=a: x**3 - a,
        "partial": functools.partial(cubed, a=a),
        "method": Model(a).residual,
        "transform": grad(lambda x: x**4 / 4 - a * x),
    }


@pytest.mark.parametrize("form", list(closure_forms(1.0)))
def test_closures(form: str) -> None:
    f = lambda a: root(closure_forms(a)[form], 1.0)
    for order in range(4):
        assert f(8.0) == pytest.approx(power_derivative(order, 8.0), rel=1e-9)
        f = grad(f)


def test_an_inner_derivative_whose_root_closes_over_an_outer_variable() -> None:
    # d/da d/db (ab)**(1/3) = (ab)**(-2/3) / 9
    f = lambda a: grad(lambda b: root(lambda x: x**3 - a * b, 1.0))(2.0)
    assert grad(f)(4.0) == pytest.approx(8.0 ** (-2 / 3) / 9, rel=1e-12)


def test_a_closure_that_counts_calls_still_does() -> None:
    calls = 0

    def f(a: Any) -> Any:
        def residual(x: Any) -> Any:
            nonlocal calls
            calls += 1
            return x**3 - a

        return root(residual, 1.0)

    grad(f)(8.0)
    assert calls > 3


def test_a_recorded_value_where_it_is_not_looked_for() -> None:
    with pytest.raises(UnsupportedError, match=r"the function given to root uses a recorded value.*pass it in args"):
        grad(lambda a: root(Opaque(a).residual, 1.0))(8.0)
    with pytest.raises(UnsupportedError, match="the function given to fixed_point uses a recorded value"):
        grad(lambda a: fixed_point(lambda x, o: np.cos(o.a * x), 1.0, Opaque(a)))(0.5)


# ---------------------------------------------------------------- errors
def test_a_solver_that_does_not_converge() -> None:
    with pytest.raises(ConvergenceError, match=r"root did not converge: .*not making good progress.*residual: 1\)"):
        root(lambda x: x**2 + 1, 2.0)
    with pytest.raises(ConvergenceError, match="has a minimum there that is not a root"):
        root(lambda x: x**2 + 1, np.array([2.0]), method="lm")
    with pytest.raises(ConvergenceError, match="root did not converge"):
        root(lambda x: x**3 - 2, None, bracket=(0, 2), options={"maxiter": 2})
    with pytest.raises(RuntimeError, match="fixed_point did not converge: Failed to converge after 5 iterations"):
        fixed_point(lambda x: np.cos(x), 1.0, method="iteration", maxiter=5)
    with pytest.raises(TapeError):
        grad(lambda a: root(lambda x: x**2 + a, 2.0))(1.0)


def test_a_singular_jacobian() -> None:
    with pytest.raises(SingularJacobianError, match="the Jacobian at the solution is singular"):
        grad(lambda a: root(lambda x: x**2 - a, np.array([0.0]))[0])(0.0)
    with pytest.raises(np.linalg.LinAlgError):
        grad(lambda a: root(lambda x: np.stack([x[0] + x[1] - a, 2 * (x[0] + x[1] - a)]), np.zeros(2))[0])(0.0)
    with pytest.raises(SingularJacobianError, match="not finite"):
        grad(lambda a: np.sum(root(lambda x: np.cbrt(x) - a, np.array([0.0]))))(0.0)


def test_wrong_arguments() -> None:
    with pytest.raises(OutputError, match=r"must return an array of the shape of x0, \(3,\), but .* \(2,\)"):
        root(lambda x: x[:2], Z)
    with pytest.raises(OutputError, match="must return real values"):
        root(lambda x: x * 1j, Z)
    with pytest.raises(InputError, match="root needs x0"):
        root(np.sin, None)
    with pytest.raises(InputError, match="x0 must be a number with a bracket"):
        root(np.sin, Z, bracket=(0, 1))
    with pytest.raises(InputError, match="x0 of root must be an array or a number, not a dict"):
        root(np.sin, {"a": 1.0})
    with pytest.raises(InputError, match="x0 of fixed_point must be real"):
        fixed_point(np.sin, np.array([1j]))
    with pytest.raises(ValueError, match="different signs"):
        root(lambda x: x**2 + 1, None, bracket=(0, 1))
