"""Differential equations solved by scipy, with derivatives: odeint, solve_ivp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ops.create import asarray
from tape.closures import Lifted
from tape.containers import settled
from tape.errors import InputError, UnsupportedError
from tape.flow import solve
from tape.integrate import Problem, Slope, checked, odepack, successful
from tape.tensor import Tensor
from tape.trace import paused

Function = Callable[..., Any]


def _vector(x: Any, what: str) -> Any:
    """Give initial values or times as a vector of float64, recorded if they are."""
    x = asarray(x)
    if x.dtype.kind not in "iuf":
        raise UnsupportedError(f"{what} must be real to be differentiated, but their dtype is {x.dtype}")
    if x.ndim > 1:
        raise InputError(f"{what} must be one-dimensional, but their shape is {x.shape}")
    x = np.reshape(x, (-1,))
    return x if isinstance(x, Tensor) and x.dtype == np.float64 else x.astype(float)


def _bound(f: Any, args: Sequence[Any], tfirst: bool) -> Slope:
    """Give a function of t and y as one of those alone."""
    return (lambda t, y: f(t, y, *args)) if tfirst else (lambda t, y: f(y, t, *args))


# ---------------------------------------------------------------- odeint
def odeint(
    f: Function,
    y0: Any,
    t: Any,
    *args: Any,
    rtol: float | None = None,
    atol: Any = None,
    tfirst: bool = False,
    adjoint: bool | None = None,
    full_output: bool = False,
    **options: Any,
) -> Any:
    """Integrate dy/dt = f(y, t, *args) by `scipy.integrate.odeint`, with derivatives of any order in both modes.

    Parameters
    ----------
    f : callable
        Written in plain NumPy: ``f(y, t, *args)``, or ``f(t, y, *args)`` with `tfirst`. Recorded values that it closes
        over are differentiated too.
    y0 : array
        The state at the first time.
    t : array
        The times of the outputs, rising or falling.
    *args
        The parameters: arrays, numbers, containers of them.
    rtol, atol : float
        The tolerances, scipy's by default (1.49e-8).
    tfirst : bool
        f takes the time first.
    adjoint : bool, optional
        Compute gradients (reverse mode) by the adjoint equation, whose cost does not grow with the number of
        parameters, or with False by sensitivities, integrated along with the solution. By default sensitivities as
        long as there are no more than 100, the adjoint from there on.
    full_output : bool
        Return scipy's dictionary of statistics as well.
    **options
        Further options of scipy (``hmax``, ``mxstep``, ``Dfun``, ...).

    Returns
    -------
    array
        The states, a row for each time, in double precision. `y0`, `t` and `args` may all be differentiated.

    Raises
    ------
    ConvergenceError
        If the integrator fails (a RuntimeError too).

    Notes
    -----
    Derivatives are those of the exact solution, computed by further integrations under the same tolerances, not those
    of the integrator's steps: they are as accurate as the solution is, about `rtol` relative to the largest. The
    adjoint reads the solution from an interpolant, which loses about one digit. Lower the tolerances for more.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import grad, odeint
    >>> def last(rate):
    ...     return odeint(lambda y, t, rate: -rate * y, np.array([2.0]), np.array([0.0, 1.0]), rate)[-1, 0]
    >>> round(last(0.5), 6)  # 2 exp(-rate)
    np.float64(1.213061)
    >>> round(grad(last)(0.5), 6)
    -1.213061
    >>> round(grad(grad(last))(0.5), 6)
    1.213061
    """
    y0, t = settled((y0, t))
    lifted, states = Lifted((f, args, options.get("Dfun"))), Lifted((y0, t))
    recorded = bool(lifted.found or states.found)
    if recorded:
        lifted.freeze()
    tolerances = {k: v for k, v in {"rtol": rtol, "atol": atol}.items() if v is not None}
    extra = dict(options)
    plain_f, plain_args, dfun = lifted.plain()
    if dfun is not None:
        extra["Dfun"] = _bound(dfun, plain_args, tfirst)
    with paused():
        slope = checked(_bound(plain_f, plain_args, tfirst), "odeint")
        initial, points = states.plain()
        y, info = odepack(slope, initial, points, **tolerances, **extra)
    if recorded:

        def bind(leaves: Sequence[Any]) -> Slope:
            given, values, _ = lifted.rebuild(leaves)
            return _bound(given, values, tfirst)

        start, times = _vector(y0, "the initial values"), _vector(t, "the times")
        limits = {k: v for k, v in options.items() if k in _LIMITS}
        used = [tolerances.get(k, 1.49012e-8) for k in ("rtol", "atol")]
        problem = Problem(bind, start.size, "odeint", used[0], used[1], limits)
        y = solve(problem, start, times[0], times, lifted.found, adjoint, known=y)
    return (y, info) if full_output else y


_LIMITS = ("h0", "hmax", "hmin", "mxstep", "mxhnil", "mxordn", "mxords", "tcrit")


# ---------------------------------------------------------------- solve_ivp
def solve_ivp(
    f: Function,
    t_span: Any,
    y0: Any,
    method: Any = "RK45",
    t_eval: Any = None,
    *,
    args: Sequence[Any] | None = None,
    rtol: float = 1e-3,
    atol: Any = 1e-6,
    adjoint: bool | None = None,
    **options: Any,
) -> Any:
    """Integrate dy/dt = f(t, y, *args) by `scipy.integrate.solve_ivp`, with derivatives of any order in both modes.

    Parameters
    ----------
    f : callable
        Written in plain NumPy: ``f(t, y, *args)``. Recorded values that it closes over are differentiated too.
    t_span : pair of numbers
        The first and the last time.
    y0 : array
        The state at the first time.
    method : str or class
        The integrator: "RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA", or a class as scipy takes it.
    t_eval : array, optional
        The times of the outputs. By default the integrator's steps, of which the first and last can be differentiated
        by `t_span`, and the others are constants.
    args : tuple, optional
        The parameters: arrays, numbers, containers of them.
    rtol, atol : float
        The tolerances, scipy's by default, which are coarse: 1e-3 and 1e-6.
    adjoint : bool, optional
        How gradients are computed, see `odeint`.
    **options
        Further options of scipy. `events` and `dense_output` have no derivative: with a recorded value they raise.

    Returns
    -------
    object
        scipy's: ``t``, ``y`` (a column for each time), ``success``, ``message``, ``nfev`` and so on, where ``y`` can be
        differentiated by `y0`, `args` and the times.

    Raises
    ------
    ConvergenceError
        If the integrator fails (a RuntimeError too).

    Notes
    -----
    See `odeint` about the accuracy.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import grad, solve_ivp
    >>> def amplitude(stiffness):
    ...     def oscillator(t, y, k):
    ...         return np.stack([y[1], -k * y[0]])
    ...     return solve_ivp(oscillator, (0.0, 1.0), [1.0, 0.0], args=(stiffness,), rtol=1e-9, atol=1e-9).y[0, -1]
    >>> round(grad(amplitude)(4.0), 6)  # -sin(√k) / (2√k)
    -0.227324
    """
    import scipy.integrate  # when needed: it takes 0.1 s

    if args is not None and not isinstance(args, tuple | list):
        raise InputError("args must be a tuple of the further arguments of the function: write `args=(p,)`")
    t_span, y0, t_eval = settled((tuple(t_span), y0, t_eval))
    lifted, states = Lifted((f, tuple(args or ()), options.get("jac"))), Lifted((t_span, y0, t_eval))
    recorded = bool(lifted.found or states.found)
    if recorded:
        _refuse(options)
        lifted.freeze()
    extra = dict(options)
    plain_f, plain_args, jac = lifted.plain()
    if callable(jac):
        extra["jac"] = _bound(jac, plain_args, tfirst=True)
    with paused():
        slope = checked(_bound(plain_f, plain_args, tfirst=True), "solve_ivp")
        span, initial, times = states.plain()
        sol = scipy.integrate.solve_ivp(slope, span, initial, method, t_eval=times, rtol=rtol, atol=atol, **extra)
    successful(sol)
    if not recorded:
        return sol

    def bind(leaves: Sequence[Any]) -> Slope:
        given, values, _ = lifted.rebuild(leaves)
        return _bound(given, values, tfirst=True)

    start, (first, last) = _vector(y0, "the initial values"), t_span
    ts = _times(sol.t, first, last) if t_eval is None else _vector(t_eval, "the times")
    limits = {k: v for k, v in options.items() if k in ("max_step", "first_step", "min_step")}
    problem = Problem(bind, start.size, method, rtol, atol, limits)
    sol.y = np.transpose(solve(problem, start, first, ts, lifted.found, adjoint, known=sol.y.T))
    sol.t = ts
    return sol


def _times(steps: Any, first: Any, last: Any) -> Any:
    """Give the integrator's steps, the first and the last as functions of the ends of the interval."""
    if not isinstance(first, Tensor) and not isinstance(last, Tensor):
        return steps
    if len(steps) == 1:
        return np.stack([asarray(first)])
    ends = [asarray([x], float) for x in (first, last)]
    return np.concatenate([ends[0], steps[1:-1], ends[1]])


def _refuse(options: dict[str, Any]) -> None:
    for name in ("events", "dense_output"):
        if options.get(name):
            raise UnsupportedError(
                f"{name} of solve_ivp cannot be differentiated: leave it out, give the times in t_eval, "
                "and solve for the time of an event by `root`"
            )
