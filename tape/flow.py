"""Solutions of differential equations as entries of a tape.

Everything is told by three functions of what a solution depends on: its value, its tangent, its gradient. The tangent
is the solution of an augmented equation, and so of the same kind again; the gradient is an entry of its own, whose
derivatives are gradients of tangents. So derivatives of any order are solutions of differential equations too.
"""

# ruff: noqa: ARG002  (the rules have one form, whatever they need of it)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tape.call import Call, append_call
from tape.closures import Operands
from tape.integrate import Problem, Sensitivities, Slope, adjoint
from tape.tensor import Tensor
from tape.trace import Trace, paused, plain, recording_on

SMALL = 100
"""The number of sensitivities, equations times what they depend on, up to which a gradient is computed by them."""


class Flow:
    """The solution of a problem at given times, as a function of what is recorded among its inputs.

    Parameters
    ----------
    problem : Problem
    inputs : list
        The initial values, the initial time, the times of the outputs, and the leaves.
    backwards : bool, optional
        Compute gradients by the adjoint equation, or by sensitivities; by default whichever suits the size.
    known : array, optional
        The solution, if it has been computed already.
    """

    def __init__(self, problem: Problem, inputs: Sequence[Any], backwards: bool | None, known: Any = None) -> None:
        self.problem, self.backwards, self.known = problem, backwards, known
        self.operands = Operands(inputs)
        recorded = self.operands.recorded
        self.initial, self.start, self.times = (k in recorded for k in range(3))
        self.chosen = [k - 3 for k in recorded if k >= 3]
        self._sensitivities: tuple[Any, Any] = (None, None)

    def value(self, z: Any) -> Any:
        """Give the solution: a row for each time."""
        if isinstance(z, Tensor):
            return append_call(_Solution(self), [z])
        if self.known is not None:
            found, self.known = self.known, None
            return found
        y0, t0, ts, *leaves = self.operands.fill(z)
        with paused():
            return self.problem.values(y0, float(t0), ts, leaves)

    # ------------------------------------------------------------ tangents
    def tangent(self, z: Any, v: Any) -> Any:
        """Give the derivative of the solution along v; recorded if something is."""
        y0, t0, ts, *leaves = self.operands.fill(z)
        d0, dt0, dts, *moves = self.operands.parts(v)
        slope = self.problem.slope(leaves)
        s0 = np.zeros(self.problem.n) if d0 is None else d0
        if dt0 is not None:
            s0 = s0 - slope(t0, y0) * dt0
        # Its size decides what the absolute tolerance means for a tangent: that of a relative change.
        scale = max(_largest(s0), *(_largest(moves[k], leaves[k]) for k in self.chosen), 0.0) or 1.0
        s0, given = s0 / scale, [moves[k] / scale for k in self.chosen]
        both = np.concatenate([y0, s0])
        u = solve(self._augmented(len(leaves)), both, t0, ts, [*leaves, *given], self.backwards)
        s = scale * u[:, self.problem.n :]
        if dts is not None:
            s = s + self._slopes(ts, u[:, : self.problem.n], leaves) * np.reshape(dts, (-1, 1))
        return s

    def _slopes(self, ts: Any, y: Any, leaves: Sequence[Any]) -> Any:
        slope = self.problem.slope(leaves)
        return np.stack([slope(ts[k], y[k]) for k in range(len(ts))]) if len(ts) else np.zeros((0, self.problem.n))

    def _augmented(self, count: int) -> Problem:
        """Give the equation for the solution and its tangent together."""
        problem, chosen, n = self.problem, self.chosen, self.problem.n

        def bind(given: Sequence[Any]) -> Slope:
            def slope(t: Any, u: Any) -> Any:
                with problem.trace(t, u[:n], given[:count], chosen) as trace:
                    if isinstance(trace.result, Tensor):
                        (change,) = trace.push([u[n:], *given[count:]], [trace.result])
                    else:
                        change = np.zeros(n)
                    return np.concatenate([trace.plain(trace.result), change])

            return slope

        atol = np.concatenate([problem.atol, problem.atol])
        return Problem(bind, 2 * n, problem.method, problem.rtol, atol, problem.derived)

    # ------------------------------------------------------------ gradients
    def gradient(self, z: Any, g: Any) -> Any:
        """Give what a cotangent of the solution passes on; recorded if something is."""
        if isinstance(z, Tensor) or isinstance(g, Tensor):
            operands = Operands([z, g])
            return append_call(_Gradient(self, operands), [operands.pack([z, g])])
        with paused():
            return self._gradient(z, g)

    def _gradient(self, z: Any, g: Any) -> Any:
        y0, t0, ts, *leaves = self.operands.fill(z)
        t0 = float(t0)
        size = self.problem.n * (self.problem.n + sum(np.size(leaves[k]) for k in self.chosen))
        backwards = self.backwards if self.backwards is not None else size > SMALL
        if backwards:
            by_y0, by_leaves = adjoint(self.problem, y0, t0, ts, leaves, self.chosen, g)
        else:
            by_y0, by_leaves = self._sensitive(z).gradients(g)
        found: list[Any] = [by_y0, None, None, *([None] * len(leaves))]
        for k, part in zip(self.chosen, by_leaves, strict=True):
            found[3 + k] = part
        if self.start:
            found[1] = -by_y0 @ self.problem.slope(leaves)(t0, y0)
        if self.times:
            y = self.problem.values(y0, t0, ts, leaves)
            found[2] = (self._slopes(ts, y, leaves) * g).sum(axis=1)
        return self.operands.pack(found)

    def _sensitive(self, z: Any) -> Sensitivities:
        at, found = self._sensitivities
        if found is None or not np.array_equal(at, z):
            y0, t0, ts, *leaves = self.operands.fill(z)
            initial = self.initial or self.start
            found = Sensitivities(self.problem, y0, float(t0), ts, leaves, self.chosen, initial)
            self._sensitivities = np.array(z), found
        return found


def _largest(change: Any, x: Any = 0.0) -> float:
    """Give the largest change, of values beyond 1 as a fraction of them."""
    return float((np.abs(plain(change)) / np.maximum(1.0, np.abs(plain(x)))).max(initial=0.0))


class _Solution(Call):
    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    def forward(self, *operands: Any) -> Any:
        return self.flow.value(operands[0])

    def pull(self, position: int, g: Any, out: Any, *operands: Any) -> Any:
        with recording_on((g, *operands)):
            return self.flow.gradient(operands[0], g)

    def push(self, tangents: Sequence[Any], out: Any, *operands: Any) -> Any:
        with recording_on((*tangents, *operands)):
            return self.flow.tangent(operands[0], tangents[0])


class _Gradient(Call):
    """The gradient of a solution by z, for a cotangent g.

    Its inner product with v is that of g with the tangent along v. So its own derivatives are gradients of tangents.
    """

    def __init__(self, flow: Flow, operands: Operands) -> None:
        self.flow, self.operands = flow, operands

    def forward(self, *operands: Any) -> Any:
        return self.flow.gradient(*self.operands.fill(operands[0]))

    def _second(self, z: Any, v: Any, g: Any) -> tuple[Any, Any]:
        """Give the gradient by z of the inner product of g with the tangent along v, and that tangent."""
        with Trace(self.flow.tangent, (0,), (z, v), {}) as trace:
            outputs = [trace.result] if isinstance(trace.result, Tensor) else []
            found = trace.pull(outputs, [g][: len(outputs)])[0]
            return found, trace.plain(trace.result)

    def pull(self, position: int, g: Any, out: Any, *operands: Any) -> Any:
        z, seed = self.operands.fill(operands[0])
        with recording_on((g, *operands)):
            by_z, by_seed = self._second(z, g, seed)
            return self.operands.pack([by_z, by_seed])

    def push(self, tangents: Sequence[Any], out: Any, *operands: Any) -> Any:
        z, seed = self.operands.fill(operands[0])
        dz, dseed = self.operands.parts(tangents[0])
        with recording_on((*tangents, *operands)):
            parts = [] if dz is None else [self._second(z, dz, seed)[0]]
            if dseed is not None:
                parts.append(self.flow.gradient(z, dseed))
            return sum(parts[1:], parts[0])


def solve(
    problem: Problem, y0: Any, t0: Any, ts: Any, leaves: Sequence[Any], backwards: bool | None, known: Any = None
) -> Any:
    """Give the solution of a problem: a row for each time; an entry of the tape if something in it is recorded."""
    inputs = [y0, t0, ts, *leaves]
    flow = Flow(problem, inputs, backwards, known)
    if flow.operands.recorded:
        return flow.value(flow.operands.pack(inputs))
    with paused():
        return problem.values(y0, float(t0), ts, leaves) if known is None else known
