"""A function call that is being recorded, and its derivatives: swept natively, or appended to the tape.

At top level a call has a tape of its own. A call inside a function that is being differentiated is recorded on the same
tape, on fresh slots of its arguments; what it depends on besides is none of its business, so derivatives nest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from ops import create
from ops.shape import astype
from tape import containers, record
from tape.adjoint import Marks, pull_back
from tape.adjoints import Adjoints
from tape.arguments import Argnums, Arguments, described, is_leaf
from tape.current import current, paused, recording, recording_to
from tape.errors import InputError, OutputError, TangentError, UnsupportedError
from tape.layout import PYTHON_FLOAT
from tape.tangent import push_forward
from tape.tangents import Tangents
from tape.tensor import Tensor
from tape.wengert import PAUSED, WATCHED, Tape


def _record_new(array: np.ndarray[Any, Any]) -> Any:
    tape = current.tape
    return array if tape is None else record.leaf_array(tape, array)


create.recorded.append(_record_new)


def recording_on(values: Sequence[Any]) -> contextlib.AbstractContextManager[None]:
    """Record meanwhile on the tape of the recorded values, or on none if there are none."""
    return recording_to(next((x._tape for x in values if isinstance(x, Tensor)), None))


def plain(tree: Any) -> Any:
    """Replace the Tensors of a result by plain arrays and numbers."""
    if isinstance(tree, Tensor):
        tree._alive()
        if tree._layout is PYTHON_FLOAT:
            return float(tree._value)
        return tree.numpy()[()] if not tree._layout.shape else tree.numpy()
    if is_leaf(tree) or tree is None or isinstance(tree, str):
        return tree
    leaves, structure = containers.flatten(tree)
    return containers.unflatten(structure, [plain(x) if isinstance(x, Tensor) else x for x in leaves])


__all__ = ["Outputs", "Trace", "match", "paused", "plain", "recording", "recording_on"]


def around(args: Any, kwargs: Any, beside: Any = ()) -> tuple[Any, Any, Tape | None]:
    """Give the arguments of a call as they take part in what is being recorded, and the tape that it is part of.

    `beside`: what else belongs to it, tangents or cotangents.
    """
    outer = current.tape
    args, kwargs, beside = containers.settled((args, kwargs, beside))
    if outer is not None and outer.held & PAUSED:
        return args, kwargs, None
    if outer is None:
        leaves = containers.flatten((args, kwargs, beside))[0]
        outer = next((x._tape for x in leaves if isinstance(x, Tensor) and x._tape.persistent), None)
    return args, kwargs, outer


def is_nested(args: Any, kwargs: Any) -> bool:
    """Tell whether a call with these arguments is part of what is being recorded."""
    return (around(args, kwargs)[2] if Tensor.held_by_users else current.tape) is not None


class Trace:
    """One recorded call.

    Parameters
    ----------
    function, argnums, args, kwargs
        What is called, and which arguments are differentiated.
    keep : bool
        The tape outlives the call: whoever made the trace closes it.
    beside : Any
        Tangents or cotangents: where they are recorded, the call is too.

    Attributes
    ----------
    tape : Tape
    nested : bool
        Whether derivatives are appended to the tape of an outer derivative.
    first : int
        The first slot of the call.
    inputs : list of Tensor
        The arguments, as leaves of their containers.
    result : Any
        What the function returned.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        argnums: Argnums,
        args: Any,
        kwargs: Any,
        *,
        keep: bool = False,
        beside: Any = (),
    ) -> None:
        if not callable(function):
            raise InputError(f"the first argument must be the function, but it is {named(function)}")
        self.before = outer = current.tape
        self.unpruned: Any = None
        if Tensor.held_by_users:
            args, kwargs, outer = around(args, kwargs, beside)
            if outer is not None and outer.persistent:
                self.unpruned = outer.unpruned()
                self.unpruned.__enter__()
        self.keep = keep and outer is None
        self.tape: Tape = Tape() if outer is None else outer
        if outer is None and current.anomaly is not None:
            self.tape.hold(WATCHED)
        self.tape.copies |= self.keep
        self.outer = outer
        self.argnums = argnums
        current.tape = self.tape
        self.first = first = self.tape.count
        try:
            self.arguments = Arguments(self.tape, function, argnums, args, kwargs)
            self.inputs = self.arguments.inputs
            self.result = function(*self.arguments.args, **self.arguments.kwargs)
            # What is constant for the outer derivative is swept natively, and stays a plain value.
            self.nested = outer is not None and (self.arguments.recorded or _reaches(self.result, outer, first))
        except BaseException:
            self._leave(failed=True)
            raise

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *exception: Any) -> Literal[False]:
        self._leave(failed=exception[0] is not None)
        return False

    def _leave(self, *, failed: bool) -> None:
        current.tape = self.before
        if self.unpruned is not None:
            self.unpruned.__exit__(None, None, None)
        if self.keep and not failed:
            self.tape.seal()
        elif self.outer is None:
            self.tape.close()

    # ------------------------------------------------------------ derivatives
    def pull(self, outputs: list[Tensor], cotangents: list[Any]) -> list[Any]:
        """Give the adjoints of the inputs: plain arrays, or recorded values if the trace is nested."""
        if self.nested or any(isinstance(c, Tensor) for c in cotangents):
            found = pull_back(self.tape, self.inputs, outputs, cotangents)
            return [_typed(g, t) for g, t in zip(found, self.inputs, strict=True)]
        if not outputs:
            return [np.zeros(t._layout.shape, t._layout.dtype) for t in self.inputs]
        adjoints = Adjoints(self.tape, self.inputs, outputs)
        outer, current.tape = current.tape, None  # what host entries differentiate has a tape of its own
        try:
            adjoints.run(cotangents)
            return [adjoints.gradient(t) for t in self.inputs]
        finally:
            current.tape = outer
            adjoints.close()

    def push(self, tangents: list[Any], outputs: list[Tensor]) -> list[Any]:
        """Give the tangents of outputs: plain arrays, or recorded values if the trace is nested.

        `tangents` holds one for each input, None for those that have none.
        """
        given = [(x, t) for x, t in zip(self.inputs, tangents, strict=True) if t is not None]
        inputs, seeds = [x for x, _ in given], [t for _, t in given]
        if self.nested or any(isinstance(t, Tensor) for t in seeds):
            found = push_forward(self.tape, inputs, seeds, outputs)
            return [_typed(t, y) for t, y in zip(found, outputs, strict=True)]
        if not inputs or not outputs:
            return [np.zeros(y._layout.shape, y._layout.dtype) for y in outputs]
        sweep = Tangents(self.tape, inputs, outputs)
        outer, current.tape = current.tape, None
        try:
            sweep.run(seeds)
            return [sweep.tangent(y) for y in outputs]
        finally:
            current.tape = outer
            sweep.close()

    def plain(self, tree: Any) -> Any:
        """Give a result as the caller gets it: plain values, unless the trace is nested."""
        return tree if tree is None or self.nested else plain(tree)

    def own(self, y: Tensor) -> Tensor:
        """Give a Tensor of the result back; raise if it is of another tape."""
        if y._tape is not self.tape:
            y._tape.refuse()
            raise UnsupportedError("the function returned a value recorded on another tape")
        return y


def _typed(g: Any, t: Tensor) -> Any:
    """Give the adjoint or tangent of a number the type that the number has; zeros if there is none."""
    layout = t._layout
    if g is None:
        return 0.0 if layout.cell else np.zeros(layout.shape, layout.dtype)
    if isinstance(g, Tensor) and layout is PYTHON_FLOAT and g._layout is not layout:
        return record.handle(g._tape, g._slot, g._value, layout)
    return g


def _reaches(result: Any, tape: Tape, first: int) -> bool:
    """Tell whether a result depends on an input of an outer derivative: one before slot `first`."""
    leaves = [result] if is_leaf(result) else containers.flatten(result)[0]
    slots = [y._slot for y in leaves if isinstance(y, Tensor) and y._tape is tape]
    last = max(slots, default=0)
    inputs = (*tape.inputs, *tape.cleared)
    wanted = [record.handle(tape, s, None, tape.layout(s)) for s in inputs if s < first and s <= last]
    if not wanted or not slots:
        return False
    marks = Marks(tape, wanted, last)
    return any(marks[s] for s in slots)


class Outputs:
    """The floating-point values of a result, in their container.

    Parameters
    ----------
    trace : Trace
    result : Any
        An array, a number, or a container of them.
    how : str
        The name of the transform, for messages.
    """

    def __init__(self, trace: Trace, result: Any, how: str) -> None:
        self.how = how
        leaf = is_leaf(result)
        self.structure: Any = None
        leaves = [result]
        if not leaf:
            leaves, self.structure = containers.flatten(result)
        names = [""] if leaf else containers.paths(result)
        self.values = leaves
        self.layouts: list[tuple[tuple[int, ...], Any]] = []
        self.recorded: list[Tensor] = []
        self.positions: list[int] = []
        for number, (y, name) in enumerate(zip(leaves, names, strict=True)):
            self.layouts.append(_checked(y, how, f" at {name}" if name else ""))
            if isinstance(y, Tensor):
                trace.own(y)
                self.recorded.append(record.handle(y._tape, y._slot, y._value, y._layout))
                self.positions.append(number)

    def gather(self, leaves: list[Any]) -> Any:
        """Put values, one for each result, into the container."""
        return leaves[0] if self.structure is None else containers.unflatten(self.structure, leaves)

    def cotangents(self, tree: Any) -> list[Any]:
        """Check a cotangent and give its leaves for the recorded results."""
        leaves = match(tree, self.structure, self.layouts, "the cotangent", "the result")
        return [leaves[k] for k in self.positions]


def _checked(y: Any, how: str, where: str) -> tuple[tuple[int, ...], Any]:
    """Give shape and dtype of one result; raise if it has no derivative."""
    if not is_leaf(y):
        raise OutputError(
            f"{how} needs a function that returns arrays or numbers, but it returned {described(y)}{where}. "
            "Hand other values out beside the result: `return result, extra`, with has_aux=True"
        )
    shape, dtype = (y.shape, y.dtype) if isinstance(y, Tensor) else (np.shape(y), np.asarray(y).dtype)
    dtype = np.dtype(float) if type(y) is int else dtype
    if dtype.kind != "f":
        raise OutputError(
            f"{how} needs floating-point results, but the function returned {dtype}{where}, which has no derivative. "
            "Hand it out beside the result: `return result, extra`, with has_aux=True"
        )
    return shape, dtype


def match(tree: Any, structure: Any, layouts: list[Any], what: str, whose: str) -> list[Any]:
    """Check that a container of values fits; give its leaves: arrays of the dtypes, floats for numbers, or Tensors."""
    if structure is None:
        leaves, names = [tree], [""]
    else:
        leaves, found = ([tree], None) if is_leaf(tree) else containers.flatten(tree)
        if found != structure:
            raise TangentError(
                f"{what} must have the structure of {whose}, {containers.outline(structure)}, but it is "
                f"{named(tree) if found is None else containers.outline(found)} (* stands for an array or number)"
            )
        names = [f" at {name}" for name in containers.paths(tree)]
    return [
        _fit(x, shape, dtype, f"{what}{name}", f"{whose}{name}")
        for x, (shape, dtype), name in zip(leaves, layouts, names, strict=True)
    ]


def named(x: Any) -> str:
    """Name what was given in place of something else."""
    return f"an array of shape {x.shape}" if isinstance(x, np.ndarray | Tensor) else described(x)


def _fit(x: Any, shape: tuple[int, ...], dtype: np.dtype[Any], what: str, whose: str) -> Any:
    x = x._settled() if isinstance(x, Tensor) else x
    if isinstance(x, Tensor):
        found: tuple[Any, Any] = x.shape, x.dtype
    else:
        expected = f"an array of shape {shape}" if shape else "a number"
        if not isinstance(x, np.ndarray | np.generic | int | float | complex | list | tuple):
            raise TangentError(f"{what} must be {expected}, but it is {described(x)}")
        try:
            x = np.asarray(x)
        except ValueError:
            raise TangentError(f"{what} must be {expected}, but it is {described(x)} of parts that differ") from None
        found = x.shape, x.dtype
    if not np.can_cast(found[1], dtype, "same_kind"):
        raise TangentError(f"{what} must be of dtype {dtype}, but it is of dtype {found[1]}")
    if found[0] != shape:
        raise TangentError(f"{what} must have the shape of {whose}, {shape}, but its shape is {found[0]}")
    if isinstance(x, Tensor):
        return x if x.dtype == dtype else astype(x, dtype)
    return float(x) if not shape and dtype == np.float64 else x.astype(dtype)
