"""A call of a user's function as one entry: its arguments and results are containers, and its rules are Python's.

The entry's operands are the recorded values and arrays among the arguments. It has one result, a vector of all
floating-point results; a second entry without slope has the whole numbers and masks.
"""

# ruff: noqa: ARG002  (rules have one form, whatever they need of it)

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tape import containers, record
from tape.arguments import described
from tape.call import Call, Packing, append_call
from tape.errors import RuleError, UnsupportedError
from tape.layout import PYTHON_FLOAT
from tape.tensor import Tensor
from tape.trace import Outputs, Trace, paused, recording

_HELD = {np.dtype(t) for t in (np.float64, np.float32, np.int64, np.bool_)}
"""Plain arrays of these types are operands, so that the tape guards them against writes."""

Shape = tuple[int, ...]


def name_of(function: Any) -> str:
    """Name a function in messages."""
    return str(getattr(function, "__name__", None) or repr(function))


def any_recorded(*trees: Any) -> bool:
    """Tell whether there is a recorded value in containers."""
    for x in trees:
        kind = type(x)
        if kind is Tensor:
            return True
        if kind in (np.ndarray, float, int):
            continue
        if any(type(leaf) is Tensor for leaf in containers.flatten(x)[0]):
            return True
    return False


def entry(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function of containers see their Tensors as they take part in what is being recorded."""

    @functools.wraps(function)
    def settled(*args: Any, **kwargs: Any) -> Any:
        if Tensor.held_by_users:
            args, kwargs = containers.settled((args, kwargs))
        return function(*args, **kwargs)

    return settled


def closed_over(who: str) -> RuleError:
    """Make the error for a rule that gave a value which is being recorded by somebody else."""
    return RuleError(
        f"{who} gave a recorded value although its arguments are plain, so it closes over one (or reads it from an "
        "object): its gradient would be lost. Pass that value as an argument"
    )


def copied(x: Any) -> Any:
    """Give a rule an array of its own."""
    return np.array(x)


def guarded(x: Any) -> Any:
    """Give a function a view of an array that it cannot write to."""
    view = x.view()
    view.flags.writeable = False
    return view


class Operands:
    """The arguments of a call, and which of their leaves are operands of its entry.

    Parameters
    ----------
    arguments : Any
        A container of all of them.
    lend : callable
        Makes the array that a rule gets from one that belongs to the tape.

    Attributes
    ----------
    values : list
        The operands.
    varied : list of bool
        Which of them are recorded and of floating-point type.
    """

    def __init__(self, arguments: Any, lend: Callable[[Any], Any]) -> None:
        leaves, self.structure = containers.flatten(arguments)
        self.lend = lend
        self.constants: list[Any] = []
        self.places: list[int] = []
        self.values: list[Any] = []
        for place, x in enumerate(leaves):
            if isinstance(x, Tensor) or (isinstance(x, np.ndarray) and x.dtype in _HELD):
                self.places.append(place)
                self.values.append(x)
                x = None
            self.constants.append(x.copy() if isinstance(x, np.ndarray) else x)
        self.recorded = [isinstance(x, Tensor) for x in self.values]
        self.varied = [isinstance(x, Tensor) and x.dtype.kind == "f" for x in self.values]
        self.layouts: list[tuple[Shape, Any, bool]] = [
            (x.shape, x.dtype, isinstance(x, Tensor) and x._layout.weak) for x in self.values
        ]

    def append(self, call: Call) -> Tensor:
        """Append the entry of a call."""
        return append_call(call, self.values)

    def release(self) -> None:
        """Forget the values: the tape has them."""
        self.values = []

    def given(self, k: int, x: Any) -> Any:
        """Give operand k, or a tangent of it, as a rule gets it: a number, an array of its own, or a handle."""
        shape, dtype, weak = self.layouts[k]
        if isinstance(x, Tensor):
            if not self.recorded[k]:
                return x.numpy() if shape else x.numpy()[()]
            return record.handle(x._tape, x._slot, x._value, PYTHON_FLOAT if weak else x._layout)
        if not shape:
            return float(x) if weak else dtype.type(x)
        return self.lend(np.asarray(x))

    def arguments(self, values: Iterable[Any]) -> Any:
        """Put operands, as a rule gets them, into the container."""
        return self._filled(self.constants, values)

    def directions(self, tangents: Iterable[Any]) -> Any:
        """Put a tangent for each operand into the container; that of a plain number is 0, that of all else None."""
        others = [0.0 if isinstance(x, float | int | np.generic) else None for x in self.constants]
        return self._filled(others, tangents)

    def _filled(self, others: list[Any], values: Iterable[Any]) -> Any:
        leaves = list(others)
        for place, x in zip(self.places, values, strict=True):
            leaves[place] = x
        return containers.unflatten(self.structure, leaves)

    def all_given(self, values: Sequence[Any]) -> list[Any]:
        """Give all operands as a rule gets them."""
        return [self.given(k, x) for k, x in enumerate(values)]

    def ones(self) -> list[Any]:
        """Give a tangent of ones for each varied operand."""
        return [
            one(shape, dtype, weak)
            for (shape, dtype, weak), varied in zip(self.layouts, self.varied, strict=True)
            if varied
        ]


def one(shape: Shape, dtype: Any, weak: bool) -> Any:
    """Give ones of a layout."""
    return np.ones(shape, dtype) if shape else 1.0 if weak else dtype.type(1)


def _narrowed(y: Any) -> Any:
    return y.astype(np.float32 if y.dtype.itemsize < 4 else np.float64)


class Results:
    """How the results of a call lie in the vector of its entry, and what else there is in their container."""

    def __init__(self, name: str, what: str, tree: Any) -> None:
        leaves, self.structure = containers.flatten(tree)
        self.leaves = leaves
        self.floating: list[int] = []
        self.whole: list[int] = []
        self.weak: list[bool] = []
        for place, y in enumerate(leaves):
            if isinstance(y, Tensor):
                raise closed_over(f"{name}: {what}")
            if isinstance(y, np.ndarray | np.generic) and y.dtype.kind == "c":
                raise UnsupportedError(f"{name} returned complex values, which are not supported yet")
            if type(y) is float or (isinstance(y, np.ndarray | np.generic) and y.dtype.kind == "f"):
                leaves[place] = y if isinstance(y, float) or y.dtype in _HELD else _narrowed(y)
                self.floating.append(place)
                self.weak.append(type(y) is float)
            elif isinstance(y, np.ndarray | np.generic) and y.dtype.kind in "biu":
                self.whole.append(place)
        floats = [leaves[k] for k in self.floating]
        whole = [leaves[k] for k in self.whole]
        self.floats, self.wholes = Packing.of(floats), Packing.of(whole)
        self.packed, self.packed_whole = self.floats.pack(floats), self.wholes.pack(whole)
        for place in (*self.floating, *self.whole):
            leaves[place] = None

    def layout(self, k: int) -> tuple[Shape, Any, bool]:
        """Give shape, dtype, and whether it is a Python number, of a floating-point result."""
        return (*self.floats.layouts[k], self.weak[k])

    def take(self, owner: bool) -> Any:
        """Give the packed vector, and forget it: a copy unless nobody else can write to it."""
        packed, self.packed = self.packed, None
        single = len(self.floats.layouts) == 1
        return packed.copy() if owner and single and isinstance(packed, np.ndarray) else packed

    def parts(self, packed: Any, lend: Callable[[Any], Any]) -> list[Any]:
        """Split an adjoint or tangent of the vector into those of the results, as a rule gets them."""
        found: list[Any] = []
        for k, x in enumerate(self.floats.unpack(packed)):
            shape, dtype, weak = self.layout(k)
            if isinstance(x, Tensor):
                found.append(_number(x) if weak else x)
            elif not shape:
                found.append(float(x) if weak else dtype.type(x))
            else:
                found.append(lend(np.asarray(x)))
        return found

    def gather(self, floats: Sequence[Any], whole: Sequence[Any] | None = None) -> Any:
        """Put floating-point values into the container; without `whole` there is None for all else."""
        leaves = list(self.leaves) if whole is not None else [None] * len(self.leaves)
        for place, x in zip(self.floating, floats, strict=True):
            leaves[place] = x
        for place, x in zip(self.whole, whole or (), strict=False):
            leaves[place] = x
        return containers.unflatten(self.structure, leaves)

    def ones(self) -> list[Any]:
        """Give a cotangent of ones for each floating-point result."""
        return [one(*self.layout(k)) for k in range(len(self.floating))]


def _number(x: Tensor) -> Tensor:
    """Let a recorded number behave as a Python number."""
    return record.handle(x._tape, x._slot, x._value, PYTHON_FLOAT) if x._layout.cell else x


class Application(Call):
    """A call of a user's function; kinds of rules are its subclasses.

    Parameters
    ----------
    name : str
        The function's, for messages.
    arguments : Any
        A container of all its arguments.
    lend : callable
        See `Operands`.
    """

    def __init__(self, name: str, arguments: Any, lend: Callable[[Any], Any] = copied) -> None:
        self.name = name
        self.operands = Operands(arguments, lend)
        self.results: Any = None
        self._pulled: tuple[Any, dict[int, Any]] | None = None

    # ------------------------------------------------------------ what subclasses say
    what = "the function"
    """What computes the result, for messages."""

    def evaluate(self, arguments: Any) -> Any:
        """Give the result for plain arguments."""
        raise NotImplementedError

    def gradients(self, cotangents: list[Any], operands: list[Any], recorded: bool, out: Any) -> list[Any]:
        """Give the adjoint of each varied operand, None for zero, from those of the floating-point results.

        `recorded`: there are recorded values among them, on the current tape.
        """
        raise NotImplementedError

    def tangents(self, tangents: list[Any], operands: list[Any], recorded: bool) -> list[Any]:
        """Give the tangent of each floating-point result from those of all operands (None for none)."""
        raise NotImplementedError

    # ------------------------------------------------------------ the entry
    def apply(self) -> Any:
        """Append the entry and give the results in their container."""
        packed = self.operands.append(self)
        results = self.results
        whole: list[Any] = []
        if results.whole:
            whole = results.wholes.unpack(self.operands.append(_Whole(self)))
        self.operands.release()
        floats = results.floats.unpack(packed)
        return results.gather([_number(y) if weak else y for y, weak in zip(floats, results.weak, strict=True)], whole)

    def forward(self, *operands: Any) -> Any:
        """Give the vector of all floating-point results."""
        given = self.operands.all_given(operands)
        with paused():
            tree = self.evaluate(self.operands.arguments(given))
        self.results = Results(self.name, self.what, tree)
        return self.results.take(self.operands.lend is copied)

    def pull(self, position: int, g: Any, out: Any, *operands: Any) -> Any:
        """Give the adjoint of an operand from that of the vector."""
        # The adjoints of all operands are computed at once, and handed out one by one.
        known = self._pulled
        if known is None or known[0] is not g or position not in known[1]:
            known = self._pulled = g, self._all_pulled(g, out, operands)
        found = known[1].pop(position)
        if not known[1]:
            self._pulled = None
        return found

    def _all_pulled(self, g: Any, out: Any, operands: tuple[Any, ...]) -> dict[int, Any]:
        places = [k for k, varied in enumerate(self.operands.varied) if varied]
        recorded = any(isinstance(x, Tensor) for x in (g, *operands))
        if not recorded and not np.any(g):  # a zero adjoint stays zero, whatever the rule makes of it
            return dict.fromkeys(places)
        cotangents = self.results.parts(g, self.operands.lend)
        with contextlib.nullcontext() if recorded else paused():
            found = self.gradients(cotangents, self.operands.all_given(operands), recorded, out)
        return dict(zip(places, found, strict=True))

    def push(self, tangents: Sequence[Any], out: Any, *operands: Any) -> Any:
        """Give the tangent of the vector."""
        recorded = any(isinstance(x, Tensor) for x in (*tangents, *operands))
        given = [
            None if t is None or not varied else self.operands.given(k, t)
            for k, (t, varied) in enumerate(zip(tangents, self.operands.varied, strict=True))
        ]
        with contextlib.nullcontext() if recorded else paused():
            found = self.tangents(given, self.operands.all_given(operands), recorded)
        layouts = self.results.floats.layouts
        return self.results.floats.pack(
            [np.zeros(*layout) if t is None else t for t, layout in zip(found, layouts, strict=True)]
        )


class _Whole(Call):
    """The results of a call that have no slope."""

    def __init__(self, application: Application) -> None:
        self.application = application

    def forward(self, *operands: Any) -> Any:
        return self.application.results.packed_whole


# ---------------------------------------------------------------- checking what rules give
def fit(x: Any, shape: Shape, dtype: Any, message: Callable[[], str]) -> Any:
    """Check an adjoint or tangent that a rule gave for a value of this shape and dtype; None stands for zero."""
    if x is None:
        return None
    if isinstance(x, Tensor):
        if x._tape is not recording():
            raise closed_over(message())
        found, kind = x.shape, x.dtype.kind
    else:
        if not isinstance(x, np.ndarray | np.generic | float | int | list | tuple):
            raise RuleError(f"{message()} gave {described(x)}, which is no array")
        x = np.asarray(x)
        found, kind = x.shape, x.dtype.kind
    if kind not in "fiub":
        raise RuleError(f"{message()} gave an array of {x.dtype}, where {dtype} is needed")
    if found != shape:
        raise RuleError(f"{message()} gave an array of shape {found}, where {shape} is needed")
    return x if isinstance(x, Tensor) or not shape else x.astype(dtype, copy=False)


def leaves_of(tree: Any, structure: Any, message: Callable[[], str]) -> list[Any]:
    """Give the leaves of a container, which must have this structure."""
    leaves, found = containers.flatten(tree)
    if found != structure:
        given = described(tree) if len(leaves) == 1 and leaves[0] is tree else containers.outline(found)
        needed = containers.outline(structure)
        raise RuleError(f"{message()} gave {given}, where {needed} is needed (* stands for an array or number)")
    return leaves


# ---------------------------------------------------------------- transposing
def transposed(function: Callable[..., list[Any]], inputs: list[Any], weights: list[Any]) -> list[Any]:
    """Pull weights back through a linear function: give one adjoint for each input, recorded if anything here is.

    Parameters
    ----------
    function : callable
        Gives a list of values, or None for zero.
    inputs : list
        Where it is recorded; it is linear, so it does not matter where that is.
    weights : list
        One for each result.
    """
    kept: list[Any] = []

    def values(*given: Any) -> list[Any]:
        found = function(*given)
        kept[:] = [w for y, w in zip(found, weights, strict=True) if y is not None]
        return [y for y in found if y is not None]

    with Trace(values, tuple(range(len(inputs))), tuple(inputs), {}) as trace:
        outputs = Outputs(trace, trace.result, "a rule")
        return trace.pull(outputs.recorded, [kept[k] for k in outputs.positions])
