"""Second derivatives: Hessians, and products with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ops.create import array
from tape import containers
from tape.arguments import Argnums, is_leaf
from tape.curvature import Curvature
from tape.jacobians import _Jacobian
from tape.linear import argument_tangents, linearize, pull
from tape.tensor import Tensor
from tape.trace import Outputs, Trace, is_nested, paused
from tape.transforms import Transform, grad, scalar, split_aux


class _Hessian(_Jacobian):
    """The function that computes a Hessian."""

    _name = "hessian"

    def _compute(self, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
        if is_nested(args, kwargs):
            inner = _Jacobian(gradient(self), self.argnums, self.has_aux, "reverse", self.progress)
            return inner._compute(args, kwargs)
        with Trace(self.function, self.argnums, args, kwargs) as trace:
            value, aux = split_aux(trace.result, self.has_aux)
            rows = products(trace, scalar(value, trace, self._name), None, self.progress)
            return None, _blocks(trace, rows), trace.plain(aux)


def products(trace: Trace, output: list[Tensor], seeds: Any, progress: bool = False) -> list[Any]:
    """Give for each input the products of the Hessian with vectors: by default the unit vectors, so its rows."""
    inputs = trace.inputs
    if not output:
        count = sum(x._layout.size for x in inputs) if seeds is None else len(seeds)
        return [np.zeros((count, *x._layout.shape), x._layout.dtype) for x in inputs]
    with paused():
        curvature = Curvature(trace.tape, inputs, output[0])
        try:
            return curvature.rows(seeds, progress=progress)
        finally:
            curvature.close()


def _blocks(trace: Trace, rows: list[Any]) -> Any:
    """Put the rows of a Hessian into the container of the arguments, each as the container of the arguments."""
    found = []
    start = 0
    for x in trace.inputs:
        stop = start + x._layout.size
        own = [part[start:stop].reshape((*x._layout.shape, *part.shape[1:])) for part in rows]
        found.append(trace.arguments.gather(own))
        start = stop
    return trace.arguments.gather(found)


def gradient(made: Transform) -> Callable[..., Any]:
    """Give the gradient of a transform's function, by the arguments that it differentiates."""
    found: Callable[..., Any] = grad(made.function, made.argnums, has_aux=made.has_aux)
    return found


def hessian(function: Any = None, argnums: Argnums = 0, *, has_aux: bool = False, progress: bool = False) -> Any:
    """Make the function that computes the Hessian of a function of one number as result.

    Parameters
    ----------
    function, argnums, has_aux, progress
        As in `jacobian`; the function returns one number.

    Returns
    -------
    callable
        It takes the arguments of `function` and returns the second derivatives: for an argument of shape ``n`` an array
        of shape ``(*n, *n)``, for a container the container of its containers, for a tuple of argnums a tuple of
        tuples.

    Notes
    -----
    The function is called once. Its adjoints are swept once and kept; then there is a forward sweep and a second-order
    reverse one for each element, in parallel threads where the work is worth them. For many variables of which each
    result reads few see `sparse_hessian`; for a product with a vector `hvp`.

    Where a convention chooses the slope at a kink, as 0 for ``np.linalg.norm(x)`` at 0, second derivatives are those of
    the chosen branches: of ``np.linalg.norm(x) ** 2`` they are 0 there, where those of ``np.sum(x**2)`` are 2.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import hessian
    >>> hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 3.0]))
    array([[6., 2.],
           [2., 0.]])
    """
    return _Hessian.made(function, argnums, has_aux, "reverse", progress)


# ---------------------------------------------------------------- products
def hvp(
    function: Callable[..., Any],
    x: Any,
    v: Any,
    *args: Any,
    argnums: Argnums = 0,
    has_aux: bool = False,
    **kwargs: Any,
) -> Any:
    """Give the product of the Hessian with a vector, without forming the Hessian: forward over reverse.

    Parameters
    ----------
    function : callable
        It returns one number (with `has_aux`, a pair of it and anything else).
    x : array, number or container
        The first argument.
    v : array, number or container
        The vector, in the container and shapes of the differentiated argument; for a tuple of argnums a tuple.
    *args, **kwargs
        Further arguments of the function: ``function(x, *args, **kwargs)``.
    argnums : int, str, or tuple of them
        Which arguments to differentiate.
    has_aux : bool
        The function returns ``(result, extra)``.

    Returns
    -------
    array, number or container
        In the container of the differentiated argument (with `has_aux`, a pair of it and the extra values).
        ``functools.partial(hvp, f)`` is what scipy.optimize takes as `hessp`.

    Raises
    ------
    TangentError
        If the vector does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import hvp
    >>> hvp(lambda x: np.sum(x**3), np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    array([6., 0.])
    """
    return _product(True, function, (x, *args), v, argnums, has_aux, kwargs)


def vhp(
    function: Callable[..., Any],
    x: Any,
    v: Any,
    *args: Any,
    argnums: Argnums = 0,
    has_aux: bool = False,
    **kwargs: Any,
) -> Any:
    """Give the product of a vector with the Hessian, by reverse over reverse.

    It equals `hvp`, since Hessians are symmetric, up to rounding. Parameters are those of `hvp`.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import vhp
    >>> vhp(lambda x: np.sum(x**3), np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    array([6., 0.])
    """
    return _product(False, function, (x, *args), v, argnums, has_aux, kwargs)


def _product(forward: bool, function: Any, args: Any, v: Any, argnums: Argnums, has_aux: bool, kwargs: Any) -> Any:
    if forward and not is_nested(args, kwargs) and not _has_recorded(v):
        return _native_product(function, args, v, argnums, has_aux, kwargs)
    inner: Any = grad(function, argnums, has_aux=has_aux)
    inner._name = "hvp" if forward else "vhp"  # for its messages
    with Trace(inner, argnums, args, kwargs, beside=v) as trace:
        gradients, aux = split_aux(trace.result, has_aux)
        vector = argument_tangents(trace, v if isinstance(argnums, tuple | list) else (v,), "vector")
        outputs = Outputs(trace, gradients, "hvp")
        if forward:
            found = [np.zeros(shape, dtype) for shape, dtype in outputs.layouts]
            for k, t in zip(outputs.positions, trace.push(vector, outputs.recorded), strict=True):
                found[k] = t
        else:
            given = [0.0 if t is None else t for t in vector]
            found = trace.pull(outputs.recorded, [given[k] for k in outputs.positions])
        product = trace.arguments.gather(found)
        return (product, trace.plain(aux)) if has_aux else product


def _native_product(function: Any, args: Any, v: Any, argnums: Argnums, has_aux: bool, kwargs: Any) -> Any:
    with Trace(function, argnums, args, kwargs) as trace:
        value, aux = split_aux(trace.result, has_aux)
        vector = argument_tangents(trace, v if isinstance(argnums, tuple | list) else (v,), "vector")
        parts = [
            np.zeros(x._layout.size) if t is None else np.reshape(t, -1)
            for x, t in zip(trace.inputs, vector, strict=True)
        ]
        seeds = (np.concatenate(parts) if len(parts) > 1 else parts[0])[None]
        rows = products(trace, scalar(value, trace, "hvp"), seeds)
        product = trace.arguments.gather([row[0] for row in rows])
        return (product, trace.plain(aux)) if has_aux else product


def _has_recorded(tree: Any) -> bool:
    leaves = [tree] if is_leaf(tree) else containers.flatten(tree)[0]
    return any(isinstance(leaf, Tensor) for leaf in leaves)


def gauss_newton_product(
    function: Callable[..., Any],
    x: Any,
    v: Any,
    *args: Any,
    loss: Callable[..., Any] | None = None,
    argnums: Argnums = 0,
    **kwargs: Any,
) -> Any:
    """Give the product of the Gauss-Newton matrix with a vector: J^T H J v.

    J is the Jacobian of the residuals (or model outputs) by `x`, H the Hessian of the loss by them. Where the residuals
    vanish or the model is linear it is the Hessian of the whole; it never has a negative eigenvalue if H has none.

    Parameters
    ----------
    function : callable
        ``function(x, *args, **kwargs)`` returns the residuals: an array, a number, or a container of them.
    x, v : array, number or container
        The first argument, and the vector, in the container and shapes of the differentiated argument; for a tuple of
        argnums a tuple.
    argnums : int, str, or tuple of them
        Which arguments to differentiate.
    loss : callable, optional
        Takes what `function` returns and gives one number. By default half the sum of squares, whose H is the identity.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import gauss_newton_product
    >>> gauss_newton_product(lambda x: x**2, np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    array([ 4., 16.])
    """
    values, pushforward = linearize(function, x, *args, argnums=argnums, **kwargs)
    direction = pushforward(*v) if isinstance(argnums, tuple | list) else pushforward(v)
    if loss is not None:
        direction = hvp(loss, values, direction)
    return pull(pushforward.trace, pushforward.outputs, direction)


def hessian_diagonal(
    function: Any = None, argnums: Argnums = 0, *, has_aux: bool = False, progress: bool = False
) -> Any:
    """Make the function that computes the diagonal of the Hessian, exactly.

    Parameters are those of `hessian`. The result has the container and shapes of the argument. Time is that of the
    Hessian, one sweep for each element; memory that of a few rows.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import hessian_diagonal
    >>> hessian_diagonal(lambda x: np.sum(x**3) + x[0] * x[1])(np.array([1.0, 2.0]))
    array([ 6., 12.])
    """
    return _Diagonal.made(function, argnums, has_aux, "reverse", progress)


ROWS = 256
"""Rows of the Hessian that are held at a time."""


class _Diagonal(_Jacobian):
    _name = "hessian_diagonal"

    def _compute(self, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
        if is_nested(args, kwargs):
            return self._recorded(args, kwargs)
        with Trace(self.function, self.argnums, args, kwargs) as trace:
            value, aux = split_aux(trace.result, self.has_aux)
            output = scalar(value, trace, self._name)
            diagonals = _diagonals(trace, output, self.progress)
            return None, trace.arguments.gather(diagonals), trace.plain(aux)

    def _recorded(self, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
        """Append one walk for each element, inside an outer derivative."""
        with Trace(gradient(self), self.argnums, args, kwargs) as trace:
            result, aux = split_aux(trace.result, self.has_aux)
            outputs = Outputs(trace, result, self._name)
            found = [np.zeros(shape, dtype) for shape, dtype in outputs.layouts]
            for k, y in zip(outputs.positions, outputs.recorded, strict=True):
                found[k] = _recorded_diagonal(trace, k, y)
            return None, trace.arguments.gather(found), trace.plain(aux)


def _diagonals(trace: Trace, output: list[Tensor], progress: bool) -> list[Any]:
    """Multiply the Hessian with the unit vectors, some at a time, and keep their own elements."""
    sizes = [x._layout.size for x in trace.inputs]
    total = sum(sizes)
    diagonal = np.empty(total)
    for start in range(0, total, ROWS):
        count = min(ROWS, total - start)
        seeds = np.zeros((count, total))
        seeds[np.arange(count), start + np.arange(count)] = 1.0
        rows = products(trace, output, seeds, progress)
        joined = np.concatenate([r.reshape(count, -1) for r in rows], axis=1)
        diagonal[start : start + count] = joined[np.arange(count), start + np.arange(count)]
    parts = np.split(diagonal, np.cumsum(sizes)[:-1])
    return [part.reshape(x._layout.shape).astype(x._layout.dtype) for part, x in zip(parts, trace.inputs, strict=True)]


def _recorded_diagonal(trace: Trace, k: int, y: Tensor) -> Any:
    """Append the derivatives of each element of y by the same element of input k."""
    layout = trace.inputs[k]._layout
    if layout.cell:
        return trace.pull([y], [1.0])[k]
    parts = []
    for i in range(layout.size):
        unit = np.zeros(layout.size, layout.dtype)
        unit[i] = 1.0
        row = trace.pull([y], [unit.reshape(layout.shape)])[k]
        parts.append(np.reshape(row, -1)[i])
    return np.reshape(array(parts, layout.dtype), layout.shape)
