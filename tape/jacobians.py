"""Jacobians: of functions whose result is an array, a number or a container of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ops.shape import astype
from tape import record
from tape.arguments import Argnums
from tape.batch import progress_bar, sweep_many
from tape.tensor import Tensor
from tape.trace import Outputs, Trace
from tape.transforms import Transform, split_aux


class _Jacobian(Transform):
    """The function that computes a Jacobian."""

    _name = "jacobian"

    def __init__(
        self, function: Callable[..., Any], argnums: Argnums, has_aux: bool, mode: str = "", progress: bool = False
    ) -> None:
        super().__init__(function, argnums, has_aux)
        self.mode, self.progress = mode, progress

    def __reduce__(self) -> Any:
        return type(self), (self.function, self.argnums, self.has_aux, self.mode, self.progress)

    def _compute(self, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
        """Give value, Jacobian and extra results."""
        with Trace(self.function, self.argnums, args, kwargs) as trace:
            result, aux = split_aux(trace.result, self.has_aux)
            outputs = Outputs(trace, result, self._name)
            blocks = jacobian_blocks(trace, outputs.recorded, self.mode, self.progress)
            return trace.plain(result), assembled(trace, outputs, blocks), trace.plain(aux)


class _ValueAndJacobian(_Jacobian):
    _name = "value_and_jacobian"
    with_value = True


def jacobian_blocks(trace: Trace, outputs: list[Tensor], mode: str = "", progress: bool = False) -> list[list[Any]]:
    """Give for each output and each input the derivatives, an array of both shapes one after the other."""
    inputs = trace.inputs
    rows, columns = (sum(t._layout.size for t in side) for side in (outputs, inputs))
    forward = mode == "forward" or (not mode and columns < rows)
    if trace.nested:
        return _recorded(trace, outputs, forward, progress)
    if not outputs:
        return []
    # A value that is returned twice is one slot: it is swept once.
    different = {y._slot: y for y in outputs}
    single = list(different.values())
    found = sweep_many(trace.tape, inputs, single, forward=forward, progress=progress)
    blocks: dict[int, list[Any]] = {y._slot: [] for y in single}
    start = 0
    for side in inputs if forward else single:
        stop = start + side._layout.size
        for k, other in enumerate(single if forward else inputs):
            part = found[k][start:stop].reshape((*side._layout.shape, *other._layout.shape))
            if forward and side._layout.shape:
                part = np.ascontiguousarray(np.moveaxis(part, range(side.ndim), range(-side.ndim, 0)))
            if forward:  # in either mode it is of the dtype of the argument, as gradients are
                part = part.astype(side._layout.dtype, copy=False)
            blocks[other._slot if forward else side._slot].append(part)
        start = stop
    return [blocks[y._slot] for y in outputs]


def _recorded(trace: Trace, outputs: list[Tensor], forward: bool, progress: bool) -> list[list[Any]]:
    """Append one walk for each seed, inside an outer derivative."""
    sources, targets = (trace.inputs, outputs) if forward else (outputs, trace.inputs)
    move = progress_bar(sum(t._layout.size for t in sources), progress)
    blocks: list[list[Any]] = [[None] * len(trace.inputs) for _ in outputs]
    for i, source in enumerate(sources):
        found: list[list[Any]] = [[] for _ in targets]
        layout = source._layout
        for k in range(layout.size):
            unit: Any = np.zeros(layout.size, layout.dtype)
            unit[k] = 1.0
            unit = 1.0 if layout.cell else unit.reshape(layout.shape)
            seeds: list[Any] = [None] * len(sources)
            seeds[i] = unit
            one = trace.push(seeds, outputs) if forward else trace.pull([source], [unit])
            for j, t in enumerate(one):
                found[j].append(t)
            move(1)
        for j, target in enumerate(targets):
            block = _stacked(trace, found[j], layout.shape, target._layout, last=forward)
            if forward and block.dtype != layout.dtype:
                block = astype(block, layout.dtype)
            blocks[j if forward else i][i if forward else j] = block
    return blocks


def _stacked(trace: Trace, parts: list[Any], shape: tuple[int, ...], target: Any, *, last: bool) -> Any:
    if not parts:
        return np.zeros((*target.shape, *shape) if last else (*shape, *target.shape), target.dtype)
    made = [t if isinstance(t, Tensor) else record.constant(trace.tape, np.asarray(t, target.dtype)) for t in parts]
    stack = np.stack(made)
    whole = np.reshape(stack, (*shape, *target.shape))
    lead = len(shape)
    return np.moveaxis(whole, range(lead), range(-lead, 0)) if last and lead else whole


def assembled(trace: Trace, outputs: Outputs, blocks: list[list[Any]]) -> Any:
    """Put blocks into the container of the result, each as the container of the arguments."""
    rows: list[Any] = []
    by_position = dict(zip(outputs.positions, blocks, strict=True))
    for number, (shape, _) in enumerate(outputs.layouts):
        given = by_position.get(number)
        if given is None:  # a result that depends on nothing
            given = [np.zeros((*shape, *x._layout.shape), x._layout.dtype) for x in trace.inputs]
        rows.append(trace.arguments.gather(given))
    return outputs.gather(rows)


def jacobian(function: Any = None, argnums: Argnums = 0, *, has_aux: bool = False, progress: bool = False) -> Any:
    """Make the function that computes the Jacobian, by whichever mode takes fewer sweeps.

    Parameters
    ----------
    function : callable
        Written in plain NumPy; it returns an array, a number, or a container of them. Left out where `jacobian` is used
        as a decorator with arguments.
    argnums : int, str, or tuple of them
        Which arguments to differentiate, as in `grad`.
    has_aux : bool
        The function returns ``(result, extra)``; the Jacobian function then returns ``(jacobian, extra)``.
    progress : bool
        Show a progress bar over the sweeps (needs the package tqdm).

    Returns
    -------
    callable
        It takes the arguments of `function` and returns, for an array of shape ``m`` as result and one of shape ``n``
        as argument, an array of shape ``(*m, *n)`` and of the dtype of the argument. Containers nest: for each value of
        the result the container of the argument.

    Raises
    ------
    OutputError
        If a result is not of floating-point type.
    InputError
        If an argument to differentiate is not of floating-point type.

    Notes
    -----
    The function is called once. There is one sweep over its tape for each element of the arguments (forward mode) or
    of the result (reverse mode), in parallel threads where the work is worth them.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import jacobian
    >>> jacobian(lambda x: x[1:] * x[:-1])(np.array([1.0, 2.0, 3.0]))
    array([[2., 1., 0.],
           [0., 3., 2.]])
    >>> jacobian(lambda p: {"sum": p["a"] + p["b"]})({"a": 1.0, "b": 2.0})
    {'sum': {'a': 1.0, 'b': 1.0}}
    """
    return _Jacobian.made(function, argnums, has_aux, "", progress)


def jacobian_forward(
    function: Any = None, argnums: Argnums = 0, *, has_aux: bool = False, progress: bool = False
) -> Any:
    """Make the function that computes the Jacobian by forward mode: one sweep for each element of the arguments.

    See `jacobian`, which chooses the mode.
    """
    return _Jacobian.made(function, argnums, has_aux, "forward", progress)


def jacobian_reverse(
    function: Any = None, argnums: Argnums = 0, *, has_aux: bool = False, progress: bool = False
) -> Any:
    """Make the function that computes the Jacobian by reverse mode: one sweep for each element of the result.

    See `jacobian`, which chooses the mode.
    """
    return _Jacobian.made(function, argnums, has_aux, "reverse", progress)


def value_and_jacobian(
    function: Any = None, argnums: Argnums = 0, *, has_aux: bool = False, progress: bool = False
) -> Any:
    """Make the function that computes value and Jacobian at once: ``(value, jacobian)``.

    With `has_aux`, ``((value, extra), jacobian)``. See `jacobian`.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import value_and_jacobian
    >>> value_and_jacobian(np.sin)(np.array([0.0]))
    (array([0.]), array([[1.]]))
    """
    return _ValueAndJacobian.made(function, argnums, has_aux, "", progress)
