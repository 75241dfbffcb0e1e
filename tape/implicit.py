"""Solutions of equations, differentiated by the implicit function theorem: root, fixed_point.

Where f(x, a) = 0 and J = df/dx is regular, dx/da = -J⁻¹ df/da (Krantz and Parks, The Implicit Function Theorem, 2002).
So a tangent is a solution of a linear equation with J, and an adjoint one with its transpose. Inside an outer
derivative that linear equation is an entry of the tape of the same kind, differentiated by the same theorem: its matrix
is known, and only products with it are recorded. So derivatives of any order are right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ops.create import asarray
from tape.arguments import described
from tape.call import Call, append_call
from tape.closures import Lifted, Operands
from tape.errors import InputError, OutputError, SingularJacobianError
from tape.jacobians import jacobian
from tape.solvers import SCALAR, iterate, root_of_number, root_of_vector
from tape.tensor import Tensor
from tape.trace import Trace, paused, plain, recording_on

Function = Callable[..., Any]


class Factor:
    """A factored square matrix; raises if it is singular to working precision."""

    def __init__(self, matrix: Any) -> None:
        if not matrix.size:
            return
        if not np.all(np.isfinite(matrix)):
            raise SingularJacobianError("the Jacobian at the solution is not finite, so the solution has no derivative")
        from scipy.linalg import lapack  # when needed: it takes 0.1 s

        # Rows and columns are scaled first: a matrix of mixed units is no singular one.
        size = np.abs(matrix)
        self.rows = size.max(axis=1)
        rcond = 0.0
        if self.rows.all() and size.any(axis=0).all():
            self.columns = (size / self.rows[:, None]).max(axis=0)
            scaled = matrix / self.rows[:, None] / self.columns
            self.lu, self.pivots, info = lapack.dgetrf(scaled)
            rcond = lapack.dgecon(self.lu, np.abs(scaled).sum(axis=0).max())[0] if info == 0 else 0.0
        if rcond < np.finfo(float).eps:
            raise SingularJacobianError(
                f"the Jacobian at the solution is singular (reciprocal condition number {rcond:.1e}), "
                "so the solution has no derivative there"
            )

    def solve(self, b: Any, *, transposed: bool) -> Any:
        """Solve with the matrix or its transpose."""
        if not np.size(b):
            return np.zeros(0)
        from scipy.linalg import lapack

        before, after = (self.columns, self.rows) if transposed else (self.rows, self.columns)
        return lapack.dgetrs(self.lu, self.pivots, np.asarray(b, float) / before, trans=int(transposed))[0] / after


class Implicit(Call):
    """A vector y that solves residual(y, z) = 0, where z holds what it depends on."""

    _factor: Factor | None = None
    _at: tuple[Any, Any] = (None, None)

    def solve(self, z: Any) -> Any:
        """Give y for a plain z."""
        raise NotImplementedError

    def residual(self, y: Any, z: Any) -> Any:
        """Give the residual, a vector as long as y."""
        raise NotImplementedError

    def factor(self, y: Any, z: Any) -> tuple[Factor, bool]:
        """Give the factored Jacobian of the residual by y at plain values; True if it is its transpose."""
        if self._factor is None or not all(np.array_equal(a, b) for a, b in zip(self._at, (y, z), strict=True)):
            with paused():
                self._factor = Factor(jacobian(lambda y: self.residual(y, z))(np.array(y, float)))
            self._at = np.array(y), np.array(z)
        return self._factor, False

    def solve_linear(self, y: Any, z: Any, b: Any, *, transposed: bool) -> Any:
        """Solve a linear equation with the Jacobian or its transpose; recorded if something in it is."""
        values = [b, y, z]
        if any(isinstance(x, Tensor) for x in values):
            operands = Operands(values)
            return append_call(_Linear(self, operands, transposed), [operands.pack(values)])
        factor, other = self.factor(y, z)
        return factor.solve(b, transposed=transposed != other)

    def forward(self, *operands: Any) -> Any:
        """Solve the equation."""
        with paused():
            return self.solve(operands[0])

    def pull(self, position: int, g: Any, out: Any, *operands: Any) -> Any:
        """Give -(df/dz)ᵀ J⁻ᵀ g."""
        (z,) = operands
        with recording_on((g, out, z)):
            w = self.solve_linear(out, z, g, transposed=True)
            with Trace(lambda z: self.residual(out, z), (0,), (z,), {}) as trace:
                outputs = [trace.result] if isinstance(trace.result, Tensor) else []
                return trace.pull(outputs, [-w][: len(outputs)])[0]

    def push(self, tangents: Sequence[Any], out: Any, *operands: Any) -> Any:
        """Give -J⁻¹ (df/dz) dz."""
        (z,) = operands
        with recording_on((tangents[0], out, z)):
            with Trace(lambda z: self.residual(out, z), (0,), (z,), {}) as trace:
                if not isinstance(trace.result, Tensor):
                    return np.zeros(np.shape(out))
                (b,) = trace.push([tangents[0]], [trace.result])
            return self.solve_linear(out, z, -b, transposed=False)


class _Linear(Implicit):
    """The solution w of J w = b or Jᵀ w = b, where J is the Jacobian of another equation at its solution."""

    def __init__(self, base: Implicit, operands: Operands, transposed: bool) -> None:
        self.base, self.operands, self.transposed = base, operands, transposed

    def solve(self, z: Any) -> Any:
        b, y, inner = self.operands.fill(z)
        return self.base.solve_linear(y, inner, b, transposed=self.transposed)

    def factor(self, y: Any, z: Any) -> tuple[Factor, bool]:
        _, point, inner = self.operands.fill(z)
        found, other = self.base.factor(point, inner)
        return found, other != self.transposed

    def residual(self, y: Any, z: Any) -> Any:
        b, point, inner = self.operands.fill(z)
        with Trace(lambda p: self.base.residual(p, inner), (0,), (point,), {}) as trace:
            if not isinstance(trace.result, Tensor):
                return -b
            if self.transposed:
                return trace.pull([trace.result], [y])[0] - b
            return trace.push([y], [trace.result])[0] - b


class _Equation(Implicit):
    """The solution of an equation of the user's."""

    def __init__(self, operands: Operands, bind: Callable[[Any], Function], solver: Callable[[Any], Any]) -> None:
        self.operands, self.bind, self.solver = operands, bind, solver

    def solve(self, z: Any) -> Any:
        return self.solver(self.operands.fill(z))

    def residual(self, y: Any, z: Any) -> Any:
        return self.bind(self.operands.fill(z))(y)


class _Unknown:
    """The form of the unknown: a number, or an array that equations see as a vector."""

    def __init__(self, x0: Any, name: str) -> None:
        x0 = plain(x0)
        if not isinstance(x0, np.ndarray | np.generic | int | float | list | tuple) or isinstance(x0, bool):
            raise InputError(f"x0 of {name} must be an array or a number, not {described(x0)}")
        start = np.asarray(x0)
        if start.dtype.kind not in "iuf":
            raise InputError(f"x0 of {name} must be real, but it is of dtype {start.dtype}")
        self.name, self.shape, self.python = name, start.shape, type(x0) in (float, int)
        self.start = start.astype(float).reshape(-1)

    def shaped(self, y: Any) -> Any:
        """Give a vector the form of the unknown."""
        return np.reshape(y, self.shape) if self.shape else y[0]

    def vector(self, result: Any) -> Any:
        """Check what the user's function returned, and give it as a vector."""
        result = asarray(result)
        if result.shape != self.shape:
            raise OutputError(
                f"the function given to {self.name} must return an array of the shape of x0, {self.shape}, but "
                f"the shape of its result is {result.shape}"
            )
        if result.dtype.kind not in "iuf":
            raise OutputError(f"the function given to {self.name} must return real values, not {result.dtype}")
        flat = np.reshape(result, (-1,))
        return flat if flat.dtype == np.float64 else flat.astype(float)


def _solved(unknown: _Unknown, f: Any, args: Any, equation: Callable[..., Any], solver: Callable[..., Any]) -> Any:
    """Solve an equation, as an entry of the tape if it depends on something recorded.

    `equation(f, args)` gives the residual as a function of a vector; `solver(residual)` its root.
    """
    lifted = Lifted((f, args))

    def solve(f: Any, args: Any) -> Any:
        with paused():
            return solver(equation(f, args))

    if lifted.found:
        lifted.freeze()
        operands = Operands(lifted.found)
        call = _Equation(operands, lambda z: equation(*lifted.rebuild(z)), lambda z: solve(*lifted.rebuild(z)))
        return unknown.shaped(append_call(call, [operands.pack(lifted.found)]))
    x = unknown.shaped(solve(f, args))
    return float(x) if unknown.python else x


# ---------------------------------------------------------------- root
def root(
    f: Function,
    x0: Any,
    *args: Any,
    method: str | None = None,
    bracket: Any = None,
    tol: float | None = None,
    options: dict[str, Any] | None = None,
) -> Any:
    """Solve f(x, *args) = 0; the solution can be differentiated by `args`, to any order and in both modes.

    Parameters
    ----------
    f : callable
        Written in plain NumPy. It returns an array of the shape of x. Recorded values that it closes over are
        differentiated too.
    x0 : array or number
        Where the search begins. A number gives a number. The solution does not depend on it: its gradient is zero. With
        `bracket` it may be None.
    *args
        What f depends on: arrays, numbers, containers of them.
    method : str, optional
        One of `scipy.optimize.root` (default "hybr"), or for a number also of `scipy.optimize.root_scalar` (default
        "brentq" if there is a bracket). The methods that use derivatives get exact ones.
    bracket : pair of numbers, optional
        For a number: an interval at whose ends f has different signs.
    tol : float, optional
        The tolerance of the solver.
    options : dict, optional
        Further options of the solver.

    Returns
    -------
    array or number
        The solution, in double precision.

    Raises
    ------
    ConvergenceError
        If the solver fails (a RuntimeError too).
    SingularJacobianError
        If the solution is differentiated where df/dx is singular (a LinAlgError too).

    Notes
    -----
    The derivative is that of the implicit function theorem at the solution found, so its error is of the order of the
    solution's, whatever the solver did. Each order needs the dense Jacobian df/dx once, for all others only products.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import grad, root
    >>> def cube_root(a):
    ...     return root(lambda x, a: x**3 - a, 1.0, a)
    >>> round(cube_root(8.0), 9)
    2.0
    >>> round(grad(cube_root)(8.0), 9)  # 1 / (3 x**2)
    0.083333333
    >>> round(grad(grad(cube_root))(8.0), 9)  # -2 / (9 x**5)
    -0.006944444
    """
    if x0 is None and bracket is None:
        raise InputError("root needs x0, or for a number a bracket")
    unknown = _Unknown(0.0 if x0 is None else x0, "root")
    number = bracket is not None or method in SCALAR
    if number and unknown.shape:
        raise InputError(
            f"x0 must be a number with a bracket or a method of `root_scalar`, its shape is {unknown.shape}"
        )
    chosen = method or ("brentq" if bracket is not None else "hybr")

    def equation(f: Any, args: Any) -> Function:
        return lambda y: unknown.vector(f(unknown.shaped(y), *args))

    def solver(residual: Function) -> Any:
        if number:
            return root_of_number(residual, unknown.start, chosen, bracket, tol, options)
        return root_of_vector(residual, unknown.start, chosen, tol, options, "root")

    return _solved(unknown, f, args, equation, solver)


# ---------------------------------------------------------------- fixed_point
def fixed_point(
    f: Function,
    x0: Any,
    *args: Any,
    method: str = "del2",
    tol: float = 1e-10,
    maxiter: int = 500,
    options: dict[str, Any] | None = None,
) -> Any:
    """Solve x = f(x, *args); the solution can be differentiated by `args`, to any order and in both modes.

    Parameters
    ----------
    f, x0, *args
        As in `root`.
    method : str
        "del2" (Steffensen's method, that is iteration with Aitken's acceleration of each element) or "iteration", both
        of `scipy.optimize.fixed_point`; or a method of `scipy.optimize.root`, which is given x - f(x): "anderson" for
        coupled equations, "hybr" where the iteration does not contract.
    tol : float
        The tolerance: of the relative change in a step for the first two methods.
    maxiter : int
        How many steps the first two methods make at most.
    options : dict, optional
        Further options for a method of `root`.

    Returns
    -------
    array or number
        The solution, in double precision.

    Raises
    ------
    ConvergenceError
        If the solver fails (a RuntimeError too).
    SingularJacobianError
        If the solution is differentiated where df/dx has the eigenvalue 1 (a LinAlgError too).

    Examples
    --------
    >>> import numpy as np
    >>> from tape import fixed_point, grad
    >>> def square_root(a):
    ...     return fixed_point(lambda x, a: (x + a / x) / 2, 1.0, a)
    >>> round(grad(square_root)(4.0), 9)
    0.25
    """
    unknown = _Unknown(x0, "fixed_point")

    def equation(f: Any, args: Any) -> Function:
        return lambda y: y - unknown.vector(f(unknown.shaped(y), *args))

    def solver(residual: Function) -> Any:
        if method in ("del2", "iteration"):
            return iterate(residual, unknown.start, method, tol, maxiter)
        return root_of_vector(residual, unknown.start, method, tol, options, "fixed_point")

    return _solved(unknown, f, args, equation, solver)
