"""Integrating differential equations of plain values with scipy: solutions, sensitivities, adjoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ops.create import asarray
from tape.closures import refuse_recorded
from tape.errors import ConvergenceError, OutputError
from tape.jacobians import jacobian_blocks
from tape.tensor import Tensor
from tape.trace import Trace, plain

Slope = Callable[[Any, Any], Any]
"""The right-hand side of an equation, a function of t and y."""

IMPLICIT = ("odeint", "Radau", "BDF", "LSODA")
"""The integrators that use the Jacobian of the right-hand side."""

LARGE = 1000
"""Unknowns from which an adjoint is not integrated by LSODA, which keeps a dense matrix of that size."""


class Problem:
    """An initial value problem dy/dt = f(t, y, leaves), and how it is integrated.

    Parameters
    ----------
    bind : callable
        Gives for the leaves (parameters) the right-hand side.
    n : int
        The number of equations.
    method : str or class
        "odeint", or a method of `scipy.integrate.solve_ivp`.
    rtol : float
    atol : array of n numbers
    limits : dict
        Bounds of the step, as scipy's function takes them.
    """

    def __init__(
        self,
        bind: Callable[[Sequence[Any]], Slope],
        n: int,
        method: Any,
        rtol: float,
        atol: Any,
        limits: dict[str, Any],
    ) -> None:
        self.bind, self.n, self.method, self.rtol = bind, n, method, rtol
        self.atol = np.broadcast_to(np.asarray(atol, float), (n,))
        self.limits = limits

    # ------------------------------------------------------------ the right-hand side and its derivatives
    def slope(self, leaves: Sequence[Any]) -> Slope:
        """Give the right-hand side as a vector, recorded where something in it is."""
        f = self.bind(leaves)

        def slope(t: Any, y: Any) -> Any:
            result = asarray(f(t, y))
            if result.size != self.n:
                raise OutputError(f"the right-hand side must give {self.n} values, but its shape is {result.shape}")
            flat = np.reshape(result, (-1,))
            return flat if flat.dtype == np.float64 else flat.astype(float)

        return slope

    def trace(self, t: Any, y: Any, leaves: Sequence[Any], chosen: Sequence[int]) -> Trace:
        """Record the right-hand side by y and the chosen leaves."""

        def function(y: Any, *moving: Any) -> Any:
            given = list(leaves)
            for k, x in zip(chosen, moving, strict=True):
                given[k] = x
            return self.slope(given)(t, y)

        count = 1 + len(chosen)
        return Trace(function, tuple(range(count)), (y, *(leaves[k] for k in chosen)), {})

    def jacobians(self, t: Any, y: Any, leaves: Sequence[Any], chosen: Sequence[int]) -> tuple[Any, Any, Any]:
        """Give the slope at plain values and its Jacobians by y and by the chosen leaves."""
        with self.trace(t, y, leaves, chosen) as trace:
            value, blocks = plain(trace.result), None
            if isinstance(trace.result, Tensor):
                blocks = jacobian_blocks(trace, [trace.result])[0]
            sizes = [x.size for x in trace.inputs]
        if blocks is None:
            return value, np.zeros((self.n, self.n)), np.zeros((self.n, sum(sizes[1:])))
        whole = np.concatenate([np.reshape(b, (self.n, size)) for b, size in zip(blocks, sizes, strict=True)], axis=1)
        return value, whole[:, : self.n], whole[:, self.n :]

    def jacobian(self, leaves: Sequence[Any]) -> Callable[[Any, Any], Any]:
        """Give what computes the Jacobian by y for the integrator."""
        return lambda t, y: self.jacobians(t, y, leaves, [])[1]

    # ------------------------------------------------------------ solutions
    def values(self, y0: Any, t0: float, ts: Any, leaves: Sequence[Any]) -> Any:
        """Give the solution at the times ts, a row for each."""
        return solution(
            self.method, self.slope(leaves), y0, t0, ts, self.rtol, self.atol, self.limits, self.jacobian(leaves)
        )

    @property
    def derived(self) -> dict[str, Any]:
        """The limits for equations made of this one, which take more steps."""
        if self.method != "odeint":
            return self.limits
        return {**self.limits, "mxstep": 40 * (self.limits.get("mxstep") or 500)}

    def interpolant(self, y0: Any, t0: float, end: float, leaves: Sequence[Any]) -> Callable[[float], Any]:
        """Give the solution as a function of time."""
        if end == t0:
            return lambda t: y0
        import scipy.integrate  # when needed: it takes 0.1 s

        method = "LSODA" if self.method == "odeint" else self.method
        found = scipy.integrate.solve_ivp(
            self.slope(leaves), (t0, end), y0, method, rtol=self.rtol, atol=self.atol, dense_output=True,
            **_ivp_options(method, self.limits, self.jacobian(leaves)),
        )  # fmt: skip
        return successful(found).sol


def solution(
    method: Any, slope: Slope, y0: Any, t0: float, ts: Any, rtol: float, atol: Any, limits: Any, jacobian: Any
) -> Any:
    """Integrate an equation of plain values from t0 to the last of the times ts; a row for each of them."""
    ts = np.asarray(ts, float)
    if not ts.size:
        return np.zeros((0, np.size(y0)))
    if method == "odeint":
        start = int(ts[0] != t0)
        times = np.concatenate([[t0], ts]) if start else ts
        return odepack(
            slope, y0, times, rtol=rtol, atol=atol, Dfun=jacobian, **_translated(limits, _TO_ODEINT)
        )[0][start:]  # fmt: skip
    if ts[-1] == t0:
        return np.repeat(np.reshape(y0, (1, -1)), len(ts), axis=0)
    import scipy.integrate

    found = scipy.integrate.solve_ivp(
        slope,
        (t0, float(ts[-1])),
        y0,
        method,
        t_eval=ts,
        rtol=rtol,
        atol=atol,
        **_ivp_options(method, limits, jacobian),
    )
    return successful(found).y.T


def odepack(slope: Slope, y0: Any, t: Any, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Call `scipy.integrate.odeint`; raise if it fails."""
    import scipy.integrate

    try:
        y, info = scipy.integrate.odeint(slope, y0, t, tfirst=True, full_output=True, **options)
    except scipy.integrate.ODEintWarning as warning:  # where warnings are errors
        raise ConvergenceError(f"odeint failed: {warning}") from None
    if not info["message"].startswith(("Integration successful", "Nothing was done")):
        raise ConvergenceError(f"odeint failed: {info['message']}")
    return y, info


def successful(found: Any) -> Any:
    """Give what solve_ivp returned; raise if it failed."""
    if not found.success:
        raise ConvergenceError(f"solve_ivp failed: {found.message}")
    return found


_TO_ODEINT = {"first_step": "h0", "max_step": "hmax", "min_step": "hmin"}


def _translated(options: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(k, k): v for k, v in options.items()}


def _ivp_options(method: Any, limits: dict[str, Any], jacobian: Any) -> dict[str, Any]:
    """Give the options for solve_ivp that correspond to limits, which may be those of odeint."""
    back = {v: k for k, v in _TO_ODEINT.items()}
    options = {back.get(k, k): v for k, v in limits.items() if k in back or k in _TO_ODEINT}
    options = {k: v for k, v in options.items() if not (k in ("first_step", "max_step") and v == 0)}
    if method != "LSODA":
        options.pop("min_step", None)
    return {**options, "jac": jacobian} if method in IMPLICIT else options


def checked(f: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Make a right-hand side raise if it gives recorded values for plain ones."""

    def slope(*arguments: Any) -> Any:
        result = f(*arguments)
        refuse_recorded(result, name)
        return result

    return slope


# ---------------------------------------------------------------- gradients
class Sensitivities:
    """The derivatives of the solution at each time by initial values and parameters, integrated along with it.

    S = dy/dp obeys dS/dt = J S + df/dp (Hairer, Nørsett, Wanner, Solving Ordinary Differential Equations I, I.14).
    """

    def __init__(
        self, problem: Problem, y0: Any, t0: float, ts: Any, leaves: Sequence[Any], chosen: Sequence[int], initial: bool
    ) -> None:
        n = problem.n
        sizes = [np.size(leaves[k]) for k in chosen]
        m = (n if initial else 0) + sum(sizes)
        scales = [1.0] * (n if initial else 0) + [
            s for k in chosen for s in np.ravel(np.maximum(1.0, np.abs(leaves[k])))
        ]

        def slope(t: Any, u: Any) -> Any:
            table = u.reshape(1 + m, n)
            value, by_y, by_leaves = problem.jacobians(t, table[0], leaves, chosen)
            change = np.empty((1 + m, n))
            change[0] = value
            np.matmul(table[1:], by_y.T, out=change[1:])
            change[1 + m - by_leaves.shape[1] :] += by_leaves.T
            return change.reshape(-1)

        def jacobian(t: Any, u: Any) -> Any:
            """Differences give the derivatives of J: it steers the integrator's steps, not their result."""
            y = u[:n]
            by_y = problem.jacobians(t, y, leaves, [])[1]
            whole = np.kron(np.eye(1 + m), by_y)
            changes = slope(t, u)
            steps = 1.5e-8 * (np.maximum(np.abs(y), 1e-3 * np.abs(y).max(initial=0.0)) + 1e-30)
            for i, step in enumerate(steps):
                moved = u.copy()
                moved[i] += step
                whole[n:, i] = (slope(t, moved) - changes)[n:] / step
            return whole

        atol = np.concatenate([problem.atol / scale for scale in (1.0, *scales)])
        start = np.zeros((1 + m, n))
        start[0] = y0
        if initial:
            start[1 : 1 + n] = np.eye(n)
        u = solution(
            problem.method, slope, start.reshape(-1), t0, ts, problem.rtol, atol, problem.derived, jacobian
        )  # fmt: skip
        found = u.reshape(len(u), 1 + m, n)
        self.initial = found[:, 1 : 1 + n] if initial else None
        self.leaves: list[Any] = []
        at = 1 + m - sum(sizes)
        for size in sizes:
            self.leaves.append(found[:, at : at + size])
            at += size

    def gradients(self, g: Any) -> tuple[Any, list[Any]]:
        """Give the gradients by the initial values and by each leaf, as vectors, for a cotangent of the solution."""
        one = lambda part: np.einsum("kmn,kn->m", part, g)  # noqa: E731
        return None if self.initial is None else one(self.initial), [one(part) for part in self.leaves]


def adjoint(
    problem: Problem, y0: Any, t0: float, ts: Any, leaves: Sequence[Any], chosen: Sequence[int], g: Any
) -> tuple[Any, list[Any]]:
    """Give the gradients by the initial values and by each chosen leaf, as vectors, by integrating backwards.

    The adjoint λ obeys dλ/dt = -Jᵀ λ and jumps by the cotangent of each output; dL/dp is the integral of (df/dp)ᵀ λ
    (Cao, Li, Petzold, Serban, SIAM J. Sci. Comput. 24 (2003) 1076). The solution is read from the interpolant of a
    forward integration: integrated backwards, a stable equation would not be.
    """
    n, sizes = problem.n, [np.size(leaves[k]) for k in chosen]
    scale = float(np.abs(g).max(initial=0.0)) or 1.0
    total = n + sum(sizes)
    state = np.zeros(total)
    y = problem.interpolant(y0, t0, float(ts[-1]) if len(ts) else t0, leaves)

    def slope(t: Any, w: Any) -> Any:
        with problem.trace(t, y(t), leaves, chosen) as trace:
            if not isinstance(trace.result, Tensor):
                return np.zeros(total)
            return np.concatenate([np.ravel(x) for x in trace.pull([trace.result], [-w[:n]])])

    def jacobian(t: Any, _: Any) -> Any:
        by_y, by_leaves = problem.jacobians(t, y(t), leaves, chosen)[1:]
        return np.concatenate([-np.concatenate([by_y, by_leaves], axis=1).T, np.zeros((total, sum(sizes)))], axis=1)

    method = "LSODA" if problem.method == "odeint" else problem.method
    if problem.method == "odeint" and total > LARGE:
        method = "DOP853"
    atol = np.full(total, min(float(problem.atol.min(initial=np.inf)), problem.rtol))
    if sizes:
        atol[n:] /= np.concatenate([np.ravel(np.maximum(1.0, np.abs(leaves[k]))) for k in chosen])
    limits = {k: v for k, v in problem.derived.items() if k not in ("first_step", "h0")}
    at = float(ts[-1]) if len(ts) else t0
    for k in range(len(ts) - 1, -1, -1):
        if np.any(g[k]):
            state = _backwards(method, slope, state, at, float(ts[k]), problem.rtol, atol, limits, jacobian)
            state[:n] += g[k] / scale
            at = float(ts[k])
    state = scale * _backwards(method, slope, state, at, t0, problem.rtol, atol, limits, jacobian)
    return state[:n], np.split(state[n:], np.cumsum(sizes)[:-1]) if sizes else []


def _backwards(
    method: Any, slope: Slope, state: Any, start: float, end: float, rtol: float, atol: Any, limits: Any, jacobian: Any
) -> Any:
    if start == end or not np.any(state):
        return state.copy()
    return solution(method, slope, state, start, [end], rtol, atol, limits, jacobian)[0]
