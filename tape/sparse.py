"""Sparse Jacobians and Hessians: the pattern read off the tape, and as few sweeps as its colouring allows."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from tape.arguments import Argnums, described
from tape.batch import sweep_many
from tape.compression import Group, Plan, plan, plan_symmetric
from tape.errors import PatternError, UnsupportedError
from tape.hessians import gradient
from tape.pattern import pattern_of
from tape.tensor import Tensor
from tape.trace import Outputs, Trace
from tape.transforms import Transform, split_aux

AT_ONCE = 1 << 25
"""Numbers of seeds and results that are held at a time."""


class _Recorded:
    """A recorded call as a map from all elements of its arguments to all elements of its result.

    Attributes
    ----------
    outputs : list of Tensor
        The recorded values of the result, each slot once.
    rows : ndarray of int
        For each element of the result where it is among the elements of `outputs`; -1 if it is constant.
    """

    def __init__(self, trace: Trace, result: Any, name: str) -> None:
        if trace.nested:
            raise UnsupportedError(
                f"{name} gives a scipy.sparse array, which cannot be recorded: inside a function that is being "
                f"differentiated use {'hessian' if 'hessian' in name else 'jacobian'}"
            )
        self.tape, self.inputs = trace.tape, trace.inputs
        outputs = Outputs(trace, result, name)
        dtypes = [dtype for _, dtype in outputs.layouts]
        self.dtype: np.dtype[Any] = np.result_type(*dtypes) if dtypes else np.dtype(float)
        self.outputs: list[Tensor] = []
        starts: dict[int, int] = {}
        count = 0
        for y in outputs.recorded:
            if y._slot not in starts:
                self.outputs.append(y)
                starts[y._slot] = count
                count += y._layout.size
        found: dict[int, Any] = dict(zip(outputs.positions, outputs.recorded, strict=True))
        rows = [np.zeros(0, np.int64)]
        for number, (shape, _) in enumerate(outputs.layouts):
            size = prod(shape)
            given = found.get(number)
            rows.append(np.full(size, -1) if given is None else starts[given._slot] + np.arange(size))
        self.rows: np.ndarray[Any, Any] = np.concatenate(rows)
        self.plain = np.array_equal(self.rows, np.arange(count))
        self.shape = len(self.rows), sum(x._layout.size for x in self.inputs)

    def pattern(self) -> Any:
        """Give the pattern of the derivative, a CSR array of booleans."""
        found = pattern_of(self.tape, self.inputs, self.outputs)
        return found if self.plain else self._spread(found)

    def _spread(self, found: Any) -> Any:
        """Give the rows of a pattern of the recorded values to the elements of the result."""
        from scipy.sparse import csr_array

        count, width = found.shape
        starts = np.append(found.indptr, found.nnz)  # one row more, without elements
        more = csr_array((found.data, found.indices, starts), shape=(count + 1, width))
        picked = csr_array(more[np.where(self.rows < 0, count, self.rows)])
        picked.sort_indices()
        return picked

    def sweep(self, forward: bool, seeds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Sweep once for each row of seeds; give the results as rows."""
        count = len(seeds)
        if not self.inputs or not self.outputs:
            return np.zeros((count, self.shape[0 if forward else 1]), self.dtype)
        if not self.plain and not forward:
            seeds = self._seeds_of_outputs(seeds)
        results = sweep_many(self.tape, self.inputs, self.outputs, forward=forward, seeds=seeds)
        parts = [r.reshape(count, prod(r.shape[1:])) for r in results]
        flat = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        if self.plain or not forward:
            return flat
        return np.where(self.rows < 0, np.zeros((), flat.dtype), flat[:, np.maximum(self.rows, 0)])

    def _seeds_of_outputs(self, seeds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Turn seeds of the result's elements into seeds of the recorded ones."""
        recorded = self.rows >= 0
        turned = np.zeros((sum(y._layout.size for y in self.outputs), len(seeds)))
        np.add.at(turned, self.rows[recorded], seeds.T[recorded])
        return np.ascontiguousarray(turned.T)

    def matrix(self, made: Plan) -> Any:
        """Compute the derivative by a plan."""
        from scipy.sparse import csr_array

        data = np.zeros(made.pattern.nnz, self.dtype)
        for group in made.groups:
            self._fill(data, group)
        return csr_array((data, made.pattern.indices.copy(), made.pattern.indptr.copy()), shape=self.shape)

    def _fill(self, data: np.ndarray[Any, Any], group: Group) -> None:
        seeded = np.flatnonzero(group.colours >= 0)
        step = max(1, AT_ONCE // max(1, sum(self.shape)))
        for first in range(0, group.number, step):
            stop = min(first + step, group.number)
            chosen = seeded[(group.colours[seeded] >= first) & (group.colours[seeded] < stop)]
            seeds = np.zeros((stop - first, len(group.colours)))
            seeds[group.colours[chosen] - first, chosen] = 1.0
            results = self.sweep(group.forward, seeds)
            begin, end = np.searchsorted(group.sweeps, [first, stop])
            data[group.elements[begin:end]] = results[group.sweeps[begin:end] - first, group.places[begin:end]]

    def check(self, matrix: Any, name: str) -> None:
        """Raise if a matrix is not the derivative: compare products with one vector."""
        vector = np.random.default_rng(0).uniform(0.5, 1.5, self.shape[1])
        expected = self.sweep(True, vector[None, :])[0].astype(float)
        found, size = matrix.astype(float) @ vector, abs(matrix).astype(float) @ vector
        precise = float(np.sqrt(np.finfo(str(self.dtype)).eps))
        limit = precise * size + precise**2 * np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
        wrong = np.flatnonzero(np.isfinite(expected) & np.isfinite(found) & ~(np.abs(expected - found) <= limit))
        if len(wrong):
            raise PatternError(
                f"the pattern given to {name} lacks elements that are not 0 here, in {len(wrong)} rows of the result, "
                f"the first of them row {wrong[0]}: leave `pattern` out, or give the union of the patterns at several "
                "points"
            )


def _as_pattern(given: Any, shape: tuple[int, int], name: str) -> Any:
    """Give a user's pattern as a CSR array of booleans."""
    from scipy.sparse import csr_array, issparse

    if not issparse(given) and not isinstance(given, np.ndarray | list):
        raise PatternError(
            f"the pattern given to {name} must be a matrix, sparse or dense, but it is {described(given)}"
        )
    made = csr_array(given) if issparse(given) else csr_array(np.atleast_2d(np.asarray(given)))
    if made.shape != shape:
        raise PatternError(f"the pattern given to {name} must have the shape {shape}, but its shape is {made.shape}")
    made = csr_array((made.data != 0, made.indices, made.indptr), shape=shape, copy=True)
    made.sum_duplicates()
    made.eliminate_zeros()
    return made


class _SparseJacobian(Transform):
    """The function that computes a sparse Jacobian."""

    _name = "sparse_jacobian"

    def __init__(self, function: Callable[..., Any], argnums: Argnums, has_aux: bool, pattern: Any = None) -> None:
        super().__init__(function, argnums, has_aux)
        self.pattern = pattern
        self.plan: Plan | None = None

    def __reduce__(self) -> Any:
        return type(self), (self.function, self.argnums, self.has_aux, self.pattern)

    def _recorded_function(self) -> Callable[..., Any]:
        return self.function

    def _planned(self, pattern: Any) -> Plan:
        """Give the plan for a pattern: the last one, if it serves."""
        last = self.plan
        if last is None or not last.serves(pattern):
            last = self.plan = self._make_plan(pattern)
        return last

    def _make_plan(self, pattern: Any) -> Plan:
        return plan(pattern)

    def _prepared(self, pattern: Any) -> Any:
        return pattern

    def _compute(self, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
        with Trace(self._recorded_function(), self.argnums, args, kwargs) as trace:
            result, aux = split_aux(trace.result, self.has_aux)
            return None, self._matrix(_Recorded(trace, result, self._name)), trace.plain(aux)

    def _matrix(self, recorded: _Recorded) -> Any:
        given = self.pattern
        pattern = recorded.pattern() if given is None else _as_pattern(given, recorded.shape, self._name)
        matrix = recorded.matrix(self._planned(self._prepared(pattern)))
        if given is not None:
            recorded.check(matrix, self._name)
        return matrix


class _SparseHessian(_SparseJacobian):
    """The function that computes a sparse Hessian: the Jacobian of the gradient, whose entries are on the tape too."""

    _name = "sparse_hessian"

    def _recorded_function(self) -> Callable[..., Any]:
        return gradient(self)

    def _make_plan(self, pattern: Any) -> Plan:
        return plan_symmetric(pattern)

    def _prepared(self, pattern: Any) -> Any:
        """Give the pattern with what it has on one side of the diagonal on the other too."""
        both = pattern + pattern.T.tocsr()
        both.sort_indices()
        return both


class _JacobianSparsity(_SparseJacobian):
    _name = "jacobian_sparsity"

    def _matrix(self, recorded: _Recorded) -> Any:
        return self._prepared(recorded.pattern())


class _HessianSparsity(_SparseHessian):
    _name = "hessian_sparsity"

    def _matrix(self, recorded: _Recorded) -> Any:
        return self._prepared(recorded.pattern())


def sparse_jacobian(function: Any = None, argnums: Argnums = 0, *, has_aux: bool = False, pattern: Any = None) -> Any:
    """Make the function that computes the Jacobian as a sparse matrix, in as few sweeps as its pattern allows.

    Parameters
    ----------
    function : callable
        Written in plain NumPy; it returns an array, a number, or a container of them. Left out where this is used as a
        decorator with arguments.
    argnums : int, str, or tuple of them
        Which arguments to differentiate, as in `grad`.
    has_aux : bool
        The function returns ``(result, extra)``; the Jacobian function then returns ``(jacobian, extra)``.
    pattern : sparse or dense matrix, optional
        Where the Jacobian may have elements that are not 0, for instance from `jacobian_sparsity`. If none is given it
        is read off the tape at every call, so it follows the path that the function takes.

    Returns
    -------
    callable
        It takes the arguments of `function` and returns a `scipy.sparse.csr_array` of two dimensions. Its rows are the
        elements of the result, its columns those of the argument, as ``ravel`` lists them; containers, and several
        arguments, count as the concatenation of their raveled leaves.

    Raises
    ------
    PatternError
        If the given pattern has another shape, or lacks an element that is not 0. The latter is found by comparing one
        product with a vector.
    OutputError
        If a result is not of floating-point type.
    InputError
        If an argument to differentiate is not of floating-point type.
    UnsupportedError
        Inside a function that is being differentiated: sparse matrices cannot be recorded.

    Notes
    -----
    The function is called once. Columns that meet in no row are computed in one forward sweep, or rows that meet in no
    column in one reverse sweep, whichever are fewer; a few full rows (columns) are computed by themselves. Which go
    together is remembered for the next call, in case its pattern is the same. An op that is not known to act on
    elements, rows or matrices separately counts as one whose every result depends on every operand.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import sparse_jacobian
    >>> jacobian = sparse_jacobian(lambda x: x[1:] * x[:-1])(np.array([1.0, 2.0, 3.0]))
    >>> jacobian.nnz
    4
    >>> jacobian.toarray()
    array([[2., 1., 0.],
           [0., 3., 2.]])
    """
    return _SparseJacobian.made(function, argnums, has_aux, pattern)


def sparse_hessian(function: Any = None, argnums: Argnums = 0, *, has_aux: bool = False, pattern: Any = None) -> Any:
    """Make the function that computes the Hessian as a sparse matrix, in as few sweeps as its pattern allows.

    Parameters
    ----------
    function, argnums, has_aux, pattern
        As in `sparse_jacobian`; the function returns one number. What a pattern has on one side of the diagonal counts
        for both.

    Returns
    -------
    callable
        It takes the arguments of `function` and returns a symmetric `scipy.sparse.csr_array`; rows and columns are the
        elements of the argument, as ``ravel`` lists them. Containers, and several arguments, count as the concatenation
        of their raveled leaves, so the result holds the mixed derivatives too.

    Notes
    -----
    The pattern is that of the gradient's entries, which are appended to the tape of the function. Sweeps are shared by
    a star colouring, and each element is read from its row or its column. Errors are those of `sparse_jacobian` and
    `grad`.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import sparse_hessian
    >>> def rosenbrock(x):
    ...     return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
    >>> sparse_hessian(rosenbrock)(np.ones(4)).toarray()
    array([[ 802., -400.,    0.,    0.],
           [-400., 1002., -400.,    0.],
           [   0., -400., 1002., -400.],
           [   0.,    0., -400.,  200.]])
    """
    return _SparseHessian.made(function, argnums, has_aux, pattern)


def jacobian_sparsity(function: Any = None, argnums: Argnums = 0, *, has_aux: bool = False) -> Any:
    """Make the function that tells where the Jacobian may have elements that are not 0.

    It takes the arguments of `function` and returns a `scipy.sparse.csr_array` of booleans, with the rows and columns
    of `sparse_jacobian`. The pattern holds wherever the function takes the same path as at these arguments.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import jacobian_sparsity
    >>> jacobian_sparsity(lambda x: np.cumsum(x) * 0)(np.ones(3)).toarray()
    array([[ True, False, False],
           [ True,  True, False],
           [ True,  True,  True]])
    """
    return _JacobianSparsity.made(function, argnums, has_aux)


def hessian_sparsity(function: Any = None, argnums: Argnums = 0, *, has_aux: bool = False) -> Any:
    """Make the function that tells where the Hessian may have elements that are not 0.

    It takes the arguments of `function` and returns a symmetric `scipy.sparse.csr_array` of booleans, with the rows and
    columns of `sparse_hessian`.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import hessian_sparsity
    >>> hessian_sparsity(lambda x: x[0] * x[1] + x[2])(np.ones(3)).toarray()
    array([[False,  True, False],
           [ True, False, False],
           [False, False, False]])
    """
    return _HessianSparsity.made(function, argnums, has_aux)
