"""Differential equations: values as scipy's, derivatives held against closed forms and published ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
from numeric import directional, gradient

from tape import (
    ConvergenceError,
    InputError,
    OutputError,
    UnsupportedError,
    grad,
    hessian,
    jacobian_forward,
    jacobian_reverse,
    jvp,
    odeint,
    root,
    solve_ivp,
    vjp,
)

TIMES = np.array([0.0, 0.4, 1.0, 1.7])
both = pytest.mark.parametrize("adjoint", [False, True], ids=["sensitivities", "adjoint"])
LOGISTIC = {"t": np.array([0.3, 1.0, 2.5]), "y0": np.array([0.5]), "r": 1.3, "K": 2.2}


def logistic(y: Any, t: Any, r: Any, k: Any) -> Any:
    return r * y * (1 - y / k)


def grown(p: Any, **options: Any) -> Any:
    return odeint(logistic, p["y0"], p["t"], p["r"], p["K"], **options)[:, 0]


def grown_exactly(p: Any) -> Any:
    e = np.exp(p["r"] * (p["t"] - p["t"][0]))
    return p["K"] * p["y0"] * e / (p["K"] + p["y0"] * (e - 1))


def decay(t: Any, y: Any, rate: Any) -> Any:
    return -rate * y


def oscillator(t: Any, y: Any, k: Any) -> Any:
    return [y[1], -k * y[0]]


def kinetics(y: Any, t: Any, k1: Any, k2: Any, k3: Any) -> Any:
    """Robertson's reactions."""
    slow, back, fast = k1 * y[0], k2 * y[1] * y[2], k3 * y[1] ** 2
    return np.stack([-slow + back, slow - back - fast, fast])


# ---------------------------------------------------------------- values
def test_plain_values_are_those_of_scipy() -> None:
    f = lambda y, t, k: [y[1], -k * y[0]]
    expected = scipy.integrate.odeint(f, [1.0, 0.0], TIMES, args=(2.0,))
    np.testing.assert_array_equal(odeint(f, [1.0, 0.0], TIMES, 2.0), expected)
    y, info = odeint(f, [1.0, 0.0], TIMES, 2.0, full_output=True, rtol=1e-6)
    assert info["message"] == "Integration successful." and y.shape == (4, 2)
    sol = solve_ivp(oscillator, (0, 1), [1.0, 0.0], args=(2.0,), dense_output=True)
    reference = scipy.integrate.solve_ivp(oscillator, (0, 1), [1.0, 0.0], args=(2.0,))
    np.testing.assert_array_equal(sol.y, reference.y)
    np.testing.assert_array_equal(sol.t, reference.t)
    assert sol.success and sol.nfev == reference.nfev and sol.sol(0.5).shape == (2,)


@pytest.mark.parametrize("method", ["RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA", scipy.integrate.RK45])
@pytest.mark.parametrize("t_eval", [None, TIMES])
def test_recorded_values_are_those_of_scipy(method: Any, t_eval: Any) -> None:
    seen: list[Any] = []

    def f(k: Any) -> Any:
        sol = solve_ivp(oscillator, (0, 2), [1.0, 0.0], method, t_eval, args=(k,))
        seen.append((sol.t, sol.y.numpy(), sol.success, sol.message, sol.nfev))
        return np.sum(sol.y)

    grad(f)(2.0)
    expected = scipy.integrate.solve_ivp(oscillator, (0, 2), [1.0, 0.0], method, t_eval, args=(2.0,))
    np.testing.assert_array_equal(seen[0][0], expected.t)
    np.testing.assert_array_equal(seen[0][1], expected.y)
    assert seen[0][2:] == (True, expected.message, expected.nfev)
    np.testing.assert_array_equal(
        vjp(lambda p: grown(p), LOGISTIC)[0],
        scipy.integrate.odeint(logistic, [0.5], LOGISTIC["t"], args=(1.3, 2.2))[:, 0],
    )


# ---------------------------------------------------------------- closed forms
@both
def test_exponential_decay(adjoint: bool) -> None:
    f = lambda k: odeint(decay, 2.0, [0.0, 2.0], k, tfirst=True, adjoint=adjoint)[-1, 0]
    e = 2 * np.exp(-2 * 0.7)
    assert grad(f)(0.7) == pytest.approx(-2 * e, rel=3e-7)
    assert jvp(f, (0.7,), (3.0,))[1] == pytest.approx(-6 * e, rel=3e-7)
    assert grad(grad(f))(0.7) == pytest.approx(4 * e, rel=3e-7)
    assert grad(grad(grad(f)))(0.7) == pytest.approx(-8 * e, rel=3e-7)


@both
def test_logistic_growth_by_everything(adjoint: bool) -> None:
    w = np.array([0.3, -1.0, 2.0])
    expected = grad(lambda p: w @ grown_exactly(p))(LOGISTIC)
    for options, rtol in (({}, 1e-6), ({"rtol": 1e-11, "atol": 1e-12}, 1e-9)):
        g = grad(lambda p, o=options: w @ grown(p, adjoint=adjoint, **o))(LOGISTIC)
        for name in LOGISTIC:
            np.testing.assert_allclose(g[name], expected[name], rtol=rtol, atol=rtol)
        assert type(g["r"]) is float and g["t"].shape == (3,)


@both
def test_second_derivatives_of_logistic_growth(adjoint: bool) -> None:
    w = np.array([0.3, -1.0, 2.0])
    small = {"rtol": 1e-10, "atol": 1e-11, "adjoint": adjoint}
    for name in ("t", "y0"):
        h = hessian(lambda x, n=name: w @ grown({**LOGISTIC, n: x}, **small))(LOGISTIC[name])
        expected = hessian(lambda x, n=name: w @ grown_exactly({**LOGISTIC, n: x}))(LOGISTIC[name])
        np.testing.assert_allclose(h, expected, rtol=1e-7, atol=1e-7)
    f = lambda r, k: w @ grown({**LOGISTIC, "r": r, "K": k}, **small)
    exact = lambda r, k: w @ grown_exactly({**LOGISTIC, "r": r, "K": k})
    forward = lambda f: lambda r, k: jvp(lambda r: f(r, k), (r,), (1.0,))[1]
    for outer in (lambda f: grad(f, 1), lambda f: lambda r, k: jvp(lambda k: f(r, k), (k,), (1.0,))[1]):
        expected = grad(grad(exact), 1)(1.3, 2.2)
        assert outer(grad(f))(1.3, 2.2) == pytest.approx(expected, rel=1e-7)
        assert outer(forward(f))(1.3, 2.2) == pytest.approx(expected, rel=1e-7)


@both
@pytest.mark.parametrize(
    ("method", "tolerance", "expected"),
    [("RK45", 1e-3, 3e-3), ("RK45", 1e-8, 1e-6), ("DOP853", 1e-10, 1e-9), ("Radau", 1e-8, 1e-7), ("BDF", 1e-8, 1e-5),
     ("LSODA", 1e-8, 1e-6), (scipy.integrate.Radau, 1e-8, 1e-7), ("odeint", 1e-8, 1e-6)],
)  # fmt: skip
def test_linear_systems(
    method: Any, tolerance: float, expected: float, adjoint: bool, rng: np.random.Generator
) -> None:
    a, y0, c, v = rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=3), rng.normal(size=(3, 3))

    def f(a: Any, y0: Any) -> Any:
        options = {"rtol": tolerance, "atol": tolerance, "adjoint": adjoint}
        if method == "odeint":
            return odeint(lambda y, t: a @ y, y0, np.array([0.0, 1.0]), **options)[-1]
        return solve_ivp(lambda t, y: a @ y, (0.0, 1.0), y0, method, **options).y[:, -1]

    exponential, change = scipy.linalg.expm_frechet(a, v)
    by_a, by_y0 = grad(lambda a, y0: c @ f(a, y0), (0, 1))(a, y0)
    np.testing.assert_allclose(by_y0, exponential.T @ c, atol=expected)
    assert np.sum(by_a * v) == pytest.approx(c @ change @ y0, abs=3 * expected)
    np.testing.assert_allclose(jvp(f, (a, y0), (v, None))[1], change @ y0, atol=3 * expected)


def test_the_oscillator_and_its_lists() -> None:
    def f(k: Any) -> Any:
        return solve_ivp(oscillator, (0, 2.0), [1.0, 0.0], "DOP853", args=(k,), rtol=1e-11, atol=1e-12).y[0, -1]

    exact = lambda k: np.cos(2 * np.sqrt(k))
    for _ in range(3):
        assert f(4.0) == pytest.approx(exact(4.0), abs=1e-9)
        f, exact = grad(f), grad(exact)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda s: solve_ivp(decay, (0.0, s), [2.0], args=(0.5,), rtol=1e-9, atol=1e-9).y[0, -1], [-0.5, 0.25]),
        (lambda s: solve_ivp(decay, (s - 1.3, 1.3), [2.0], args=(0.5,), rtol=1e-9, atol=1e-9).y[0, -1], [0.5, 0.25]),
        (lambda s: solve_ivp(decay, (0.0, 3.0), [2.0], "DOP853", np.stack([0.1 * s, s]), args=(0.5,), rtol=1e-9,
                             atol=1e-9).y[0, -1], [-0.5, 0.25]),
        (lambda s: solve_ivp(decay, (0.0, s), [2.0], t_eval=[0.0, 1.3], args=(0.5,), rtol=1e-9, atol=1e-9).y[0, -1],
         [0.0, 0.0]),
    ],
)  # fmt: skip
def test_times_of_solve_ivp(function: Callable[[Any], Any], expected: list[float]) -> None:
    y = 2 * np.exp(-0.5 * 1.3)
    assert grad(function)(1.3) == pytest.approx(expected[0] * y, abs=1e-7)
    assert jvp(function, (1.3,), (1.0,))[1] == pytest.approx(expected[0] * y, abs=1e-7)
    assert grad(grad(function))(1.3) == pytest.approx(expected[1] * y, abs=1e-7)


@both
def test_backwards_in_time_and_repeated_times(adjoint: bool) -> None:
    t = np.array([1.0, 0.5, 0.5, 0.0])
    f = lambda k, y0: odeint(decay, y0, t, k, tfirst=True, adjoint=adjoint)[:, 0]
    exact = lambda k, y0: y0 * np.exp(-k * (t - 1.0))
    y0 = np.array([2.0])
    np.testing.assert_allclose(jacobian_reverse(f)(0.7, y0), jacobian_reverse(exact)(0.7, y0), atol=1e-6)
    np.testing.assert_allclose(jacobian_forward(f, 1)(0.7, y0), jacobian_forward(exact, 1)(0.7, y0), atol=1e-6)


@both
def test_a_parameter_that_is_zero_where_the_state_does_not_see_it(adjoint: bool) -> None:
    # The solution is smooth, its derivative by a oscillates: the integrator must control the error of that too.
    f = lambda a: solve_ivp(
        lambda t, y, a: -y + a * np.sin(50 * t), (0.0, 1.0), [1.0], args=(a,), rtol=1e-8, atol=1e-10, adjoint=adjoint
    ).y[0, -1]
    expected = (np.sin(50.0) - 50 * np.cos(50.0) + 50 * np.exp(-1.0)) / 2501
    assert grad(f)(0.0) == pytest.approx(expected, rel=1e-6)
    assert jvp(f, (0.0,), (1.0,))[1] == pytest.approx(expected, rel=1e-6)


# ---------------------------------------------------------------- published
# Sensitivities of Robertson's problem at t = 0.4 and 4 by k1, k2, k3, as printed by the example cvsRoberts_FSA_dns of
# SUNDIALS (Hindmarsh and Serban, Example Programs for CVODES), whose relative tolerance is 1e-4.
PUBLISHED = np.array([
    [[-3.5595e-01, 9.5431e-08, -1.5833e-11], [3.9025e-04, -2.1309e-10, -5.2900e-13],
     [3.5556e-01, -9.5218e-08, 1.6362e-11]],
    [[-1.8761e00, 2.9614e-06, -4.9334e-10], [1.7922e-04, -5.8305e-10, -2.7626e-13],
     [1.8759e00, -2.9608e-06, 4.9362e-10]],
])  # fmt: skip
RATES = np.array([0.04, 1e4, 3e7])


def reacted(k: Any, **options: Any) -> Any:
    tolerances = {"rtol": 1e-8, "atol": np.array([1e-10, 1e-14, 1e-10])}
    return odeint(kinetics, np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.4, 4.0]), *k, **tolerances, **options)[1:]


def test_a_published_stiff_problem() -> None:
    np.testing.assert_allclose(jacobian_forward(reacted)(RATES), PUBLISHED, rtol=3e-4)
    np.testing.assert_allclose(jacobian_reverse(reacted)(RATES), PUBLISHED, rtol=3e-4)
    w = np.array([[1.0, 1e4, 0.5], [-1.0, 1e3, 0.0]])
    g = grad(lambda k: np.sum(w * reacted(k, adjoint=True)))(RATES)
    np.testing.assert_allclose(g, np.einsum("ki,kij->j", w, PUBLISHED), rtol=1e-3)


@pytest.mark.parametrize("method", ["Radau", "BDF", "LSODA"])
def test_stiff_integrators(method: str) -> None:
    # y' = -1000 (y - cos(a t)) - a sin(a t) stays on cos(a t), and integrated backwards blows up.
    def f(a: Any, adjoint: Any = None) -> Any:
        slope = lambda t, y, a: -1000 * (y - np.cos(a * t)) - a * np.sin(a * t)
        return solve_ivp(slope, (0, 1), [1.0], method, args=(a,), rtol=1e-7, atol=1e-9, adjoint=adjoint).y[0, -1]

    for found in (grad(f)(2.0), grad(lambda a: f(a, True))(2.0), jvp(f, (2.0,), (1.0,))[1]):
        assert found == pytest.approx(-np.sin(2.0), rel=1e-5)


# ---------------------------------------------------------------- parameters in containers, many, of other types
def network(t: Any, y: Any, p: Any) -> Any:
    return p["out"] @ np.tanh(p["in"] @ y + p["bias"])


def test_a_container_of_many_parameters(rng: np.random.Generator) -> None:
    p = {"in": rng.normal(size=(20, 2)), "bias": np.zeros(20), "out": rng.normal(size=(2, 20)) / 5}
    v = {k: rng.normal(size=x.shape) for k, x in p.items()}
    t = np.linspace(0, 2, 7)

    def loss(p: Any) -> Any:
        return np.sum(solve_ivp(network, (0, 2), [1.0, 0.0], "DOP853", t, args=(p,), rtol=1e-9, atol=1e-10).y ** 2)

    g = grad(loss)(p)
    along = sum(np.sum(g[k] * v[k]) for k in p)
    assert jvp(loss, (p,), (v,))[1] == pytest.approx(along, rel=1e-7)
    line = lambda s: loss({k: p[k] + s * v[k] for k in p})
    assert along == pytest.approx(float(directional(line, [0.0], 0, 1.0, 1e-2)), rel=1e-6)
    second = grad(grad(lambda s: loss({k: p[k] + s * v[k] for k in p})))(0.0)
    assert second == pytest.approx(float(directional(lambda s: grad(line)(s), [0.0], 0, 1.0, 1e-2)), rel=1e-5)


def test_float32_is_integrated_in_double_precision() -> None:
    k, y0 = np.array([0.5], np.float32), np.array([2.0], np.float32)
    assert solve_ivp(decay, (0, 1), y0, args=(k,)).y.dtype == np.float64
    by_k, by_y0 = grad(lambda k, y: np.sum(odeint(decay, y, [0.0, 1.0], k, tfirst=True)[-1]), (0, 1))(k, y0)
    assert by_k.dtype == by_y0.dtype == np.float32
    np.testing.assert_allclose([by_k[0], by_y0[0]], [-2 * np.exp(-0.5), np.exp(-0.5)], rtol=1e-6)


def test_recorded_values_that_f_closes_over() -> None:
    f = lambda k: odeint(lambda y, t: -k * y, [2.0], [0.0, 1.0])[-1, 0]
    assert grad(f)(0.5) == pytest.approx(-2 * np.exp(-0.5), rel=1e-6)
    assert grad(grad(f))(0.5) == pytest.approx(2 * np.exp(-0.5), rel=1e-6)

    class Opaque:
        def __init__(self, k: Any) -> None:
            self.k = k

        def slope(self, t: Any, y: Any) -> Any:
            return -self.k * y

    with pytest.raises(UnsupportedError, match="the function given to solve_ivp uses a recorded value"):
        grad(lambda k: solve_ivp(Opaque(k).slope, (0, 1), [1.0]).y[0, -1])(0.5)
    with pytest.raises(UnsupportedError, match="the function given to odeint uses a recorded value"):
        grad(lambda k: odeint(Opaque(k).slope, [1.0], [0, 1], tfirst=True)[-1, 0])(0.5)


def test_arrays_overwritten_before_the_gradient() -> None:
    def f(k: Any) -> Any:
        rate, total = np.ones(1), 0.0
        for scale in (1.0, 2.0):
            rate[...] = scale
            total = total + odeint(lambda y, t: -k * rate * y, [1.0], [0.0, 1.0])[-1, 0]
        return total

    assert grad(f)(0.5) == pytest.approx(-np.exp(-0.5) - 2 * np.exp(-1.0), rel=1e-6)


def test_an_initial_state_of_recorded_numbers() -> None:
    f = lambda a: odeint(lambda y, t: [y[1], -y[0]], [a, 2 * a], [0.0, 1.0])[-1, 0]
    assert grad(f)(1.0) == pytest.approx(np.cos(1.0) + 2 * np.sin(1.0), rel=1e-7)


def test_options_are_handed_on() -> None:
    calls = []

    def jac(t: Any, y: Any, k: Any) -> Any:
        calls.append(type(k))
        return np.array([[-k]])

    f = lambda k: solve_ivp(decay, (0, 1), [1.0], "Radau", args=(k,), jac=jac, max_step=0.05, rtol=1e-6).y[0, -1]
    assert grad(f)(0.5) == pytest.approx(-np.exp(-0.5), rel=1e-5)
    assert set(calls) == {float}
    g = lambda k: odeint(decay, [1.0], [0.0, 1.0], k, tfirst=True, Dfun=jac, hmax=0.05, mxstep=2000)[-1, 0]
    assert grad(g)(0.5) == pytest.approx(-np.exp(-0.5), rel=1e-6)


def test_the_time_of_an_event_by_root() -> None:
    # A ball falls for sqrt(2 h / g): the root of its height in time.
    def landing(h: Any) -> Any:
        height = lambda t, h: solve_ivp(lambda s, y: [y[1], -9.81 + 0 * s], (0.0, t), [h, 0.0]).y[0, -1]
        return root(height, 1.0, h)

    assert landing(20.0) == pytest.approx(np.sqrt(40 / 9.81), rel=1e-7)
    assert grad(landing)(20.0) == pytest.approx(np.sqrt(2 / 9.81 / 20) / 2, rel=1e-6)


def test_gradients_against_finite_differences() -> None:
    def f(p: Any) -> Any:
        slope = lambda t, y, p: np.stack([p[0] * y[0] - p[1] * y[0] * y[1], -p[2] * y[1] + p[3] * y[0] * y[1]])
        times = np.linspace(0, 4, 9)
        sol = solve_ivp(slope, (0, 4), [10.0, 5.0], "DOP853", times, args=(p,), rtol=1e-11, atol=1e-11)
        return np.sum(np.log(sol.y))

    p = np.array([1.0, 0.1, 1.5, 0.075])
    np.testing.assert_allclose(grad(f)(p), gradient(f, p, 1e-3), rtol=1e-6)


def test_functions_that_depend_on_nothing() -> None:
    f = lambda k: odeint(lambda y, t, k: np.ones(1), [1.0], [0.0, 2.0], k)[-1, 0]
    assert grad(f)(1.0) == 0.0
    assert jvp(f, (1.0,), (1.0,)) == (pytest.approx(3.0), 0.0)
    assert grad(lambda k: np.sum(odeint(decay, [1.0], [0.0], k, tfirst=True)))(1.0) == 0.0


# ---------------------------------------------------------------- errors
def blow_up(t: Any, y: Any, k: Any) -> Any:
    return k * y**2


@pytest.mark.filterwarnings("ignore")
def test_an_integrator_that_fails() -> None:
    with pytest.raises(ConvergenceError, match="solve_ivp failed: Required step size is less than spacing"):
        grad(lambda k: solve_ivp(blow_up, (0, 2), [1.0], args=(k,)).y[0, -1])(1.0)
    with pytest.raises(RuntimeError, match="odeint failed: "):
        odeint(blow_up, [1.0], [0.0, 2.0], 1.0, tfirst=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceError, match="odeint failed: "):
            odeint(decay, [1.0], [0.0, 2.0], 1.0, tfirst=True, mxstep=2)


def test_what_has_no_derivative() -> None:
    event = lambda t, y, k: y[0] - 0.5
    for options in ({"events": event}, {"dense_output": True}):
        with pytest.raises(UnsupportedError, match=f"{next(iter(options))} of solve_ivp cannot be differentiated"):
            grad(lambda k, o=options: solve_ivp(decay, (0, 1), [1.0], args=(k,), **o).y[0, -1])(1.0)
    with pytest.raises(UnsupportedError, match="the initial values must be real"):
        grad(lambda k: np.sum(solve_ivp(decay, (0, 1), [1.0 + 0j], args=(k,)).y))(1.0)


def test_wrong_arguments() -> None:
    with pytest.raises(InputError, match="args must be a tuple"):
        solve_ivp(decay, (0, 1), [1.0], args=0.5)
    with pytest.raises(ValueError, match="must be 1-dimensional"):
        grad(lambda k: solve_ivp(decay, (0, 1), [[1.0]], args=(k,)).y[0, -1])(1.0)
    with pytest.raises(OutputError, match=r"the right-hand side must give 2 values, but its shape is \(\)"):
        # scipy lets one number stand for all
        grad(lambda k: solve_ivp(lambda t, y: 2 * k, (0, 1), [1.0, 2.0]).y[0, -1])(1.0)
