"""Solving equations of plain values with scipy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tape.closures import refuse_recorded
from tape.errors import ConvergenceError
from tape.jacobians import jacobian
from tape.trace import plain

Function = Callable[..., Any]
"""The residual, a vector as a function of a vector."""

SCALAR = ("bisect", "brentq", "brenth", "ridder", "toms748", "newton", "secant", "halley")
"""The methods for one number."""

_WITH_JACOBIAN = ("hybr", "lm")


def _require(success: bool, message: str, residual: Function, y: Any, name: str) -> None:
    if not success:
        norm = float(np.linalg.norm(residual(y)))
        text = " ".join(message.split())
        raise ConvergenceError(f"{name} did not converge: {text} (norm of the residual: {norm:.3g})")


def _checked(residual: Function, name: str) -> Function:
    """Give the function that the solver calls; it must not give recorded values."""

    def function(y: Any) -> Any:
        result = residual(np.array(y, float))
        refuse_recorded(result, name)
        return result

    return function


def root_of_vector(residual: Function, start: Any, method: str, tol: Any, options: Any, name: str) -> Any:
    """Solve with `scipy.optimize.root`, with exact Jacobians if the method takes them."""
    import scipy.optimize  # when needed: it takes 0.1 s

    function = _checked(residual, name)
    if not function(start).size:
        return start
    slope = jacobian(residual) if method in _WITH_JACOBIAN else None
    found = scipy.optimize.root(function, start, jac=slope, method=method, tol=tol, options=options)
    success, message = found.success, str(found.message)
    if success and method == "lm":
        success = _is_root(function, slope, start, found.x)
        message = "the norm of the residual has a minimum there that is not a root"
    _require(success, message, function, found.x, name)
    return np.asarray(found.x, float).reshape(-1)


def _is_root(function: Function, slope: Any, start: Any, y: Any) -> bool:
    """Tell a root from a least-squares solution with a residual: there a Newton step is long, or gains nothing."""
    value = function(y)
    if np.linalg.norm(value) <= 1e-6 * np.linalg.norm(function(start)):
        return True
    matrix = slope(y)
    step = np.linalg.lstsq(matrix, value, rcond=None)[0]
    gains = np.linalg.norm(value - matrix @ step) <= 0.5 * np.linalg.norm(value)
    return bool(gains and np.linalg.norm(step) <= 1e-6 * max(np.linalg.norm(y), np.linalg.norm(start)))


def root_of_number(residual: Function, start: Any, method: str, bracket: Any, tol: Any, options: Any) -> Any:
    """Solve with `scipy.optimize.root_scalar`, with exact derivatives if the method takes them."""
    import scipy.optimize

    checked = _checked(residual, "root")
    found = scipy.optimize.root_scalar(
        lambda x: float(checked([x])[0]),
        x0=None if bracket is not None else float(start[0]),
        bracket=None if bracket is None else [float(plain(x)) for x in bracket],
        method=method,
        fprime=lambda x: float(jacobian(residual)(np.array([x]))[0, 0]),
        fprime2=lambda x: float(jacobian(jacobian(residual))(np.array([x]))[0, 0, 0]),
        xtol=tol,
        options=options,
    )
    _require(found.converged, str(found.flag), checked, [found.root], "root")
    return np.array([found.root])


def iterate(residual: Function, start: Any, method: str, tol: float, maxiter: int) -> Any:
    """Solve x = f(x), given x - f(x), with `scipy.optimize.fixed_point`."""
    import scipy.optimize

    function = _checked(residual, "fixed_point")
    try:
        found = scipy.optimize.fixed_point(lambda y: y - function(y), start, xtol=tol, maxiter=maxiter, method=method)
    except RuntimeError as error:
        _require(False, f"{str(error).split(', value is')[0]}; from x0", function, start, "fixed_point")
    size = max(np.abs(found).max(initial=0.0), np.abs(start).max(initial=0.0))
    near = np.abs(function(found)).max(initial=0.0) <= np.sqrt(tol) * size
    _require(bool(near), "the iteration stands still where x is not f(x)", function, found, "fixed_point")
    return np.asarray(found, float)
