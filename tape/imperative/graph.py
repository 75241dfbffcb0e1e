"""The tape seen as a graph: its entries as nodes, made when somebody asks for one.

A tape keeps no object for an entry. A `Node` is a handle of a slot, like any Tensor, with other things to tell: so it
stays right when the tape is pruned, and what it leads to is kept as long as it lives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from ops.catalog import LEAF, Elementwise, Structural
from tape.adjoint import Marks
from tape.errors import InvalidBackprop
from tape.imperative.variable import Variable
from tape.instruction import FILL, JOIN
from tape.reading import Step, array_at, number_at, read, title
from tape.record import handle
from tape.tensor import Tensor
from tape.wengert import Tape


class Node:
    """An entry of a tape as a node of a graph that leads from a result back to the leaves.

    Two nodes of the same entry are equal. Nodes are for looking at: they are made when asked for, and reading one costs
    time in proportion to the number of its operands.

    Parameters
    ----------
    tape : Tape
    slot : int
        In range of the tape.

    Attributes
    ----------
    slot : int
        Where the entry stands on its tape.
    op : str
        The op's name, as `show` lists it.
    operands : tuple of int
        The slots that it read.
    shape, dtype
        Of its value.
    saved_value : float or ndarray
        A copy of its value.
    next_functions : tuple of (Node or None, int)
        A pair for each operand; ``(None, 0)`` for one that gets no gradient: a constant, a mask, an index.
    variable : Tensor or None
        For a leaf that requires a gradient (`name` gives "AccumulateGrad") the user's tensor; None if it is an argument
        of a function that is being differentiated. Other nodes do not have this attribute.

    Raises
    ------
    InvalidBackprop
        By all that reads the tape, once that part of it is cleared.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import grad
    >>> from tape.imperative.graph import node_of, walk
    >>> def f(x):
    ...     y = 2.0 * np.sin(x)
    ...     node = node_of(y)
    ...     print(node.name(), [g and g.name() for g, _ in node.next_functions])
    ...     print(*walk(node))
    ...     return y
    >>> slope = grad(f)(0.0)
    MultiplyBackward [None, 'SinBackward']
    <MultiplyBackward at slot 3> <SinBackward at slot 1> <AccumulateGrad at slot 0>
    """

    __slots__ = ("__weakref__", "_handle", "_known", "_marks", "_serial")

    def __init__(self, tape: Tape, slot: int) -> None:
        if tape.workspace is None:
            raise cleared()
        if not 0 <= slot < tape.count:
            raise IndexError(f"slot {slot} is not on the tape, which has {tape.count} entries")
        layout = tape.layout(slot)
        value: Any = number_at(tape, slot) if layout.cell else array_at(tape.address(slot), layout)
        self._handle = handle(tape, slot, value, layout)
        self._known = slot
        self._serial = tape.serial
        self._marks: Marks | None = None

    # ------------------------------------------------------------ identity
    @property
    def slot(self) -> int:
        """Where the entry stands on its tape."""
        # A handle that a backward pass has cleared is a tensor of its own, and on no tape.
        return self._known if isinstance(self._handle, Variable) else self._handle._slot

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and (self._serial, self.slot) == (other._serial, other.slot)

    def __hash__(self) -> int:
        return hash((self._serial, self.slot))

    def __repr__(self) -> str:
        try:
            return f"<{self.name()} at slot {self.slot}>"
        except InvalidBackprop:
            return f"<node of a cleared tape, at slot {self.slot}>"

    # ------------------------------------------------------------ the entry
    @property
    def tape(self) -> Tape:
        """The tape; raise if there is nothing left on it to read."""
        if isinstance(self._handle, Variable) or self._handle._tape.workspace is None:
            raise cleared()
        return self._handle._tape

    def name(self) -> str:
        """Name the node by its op: "MultiplyBackward"; "AccumulateGrad" for a leaf that requires a gradient."""
        tape, slot = self.tape, self.slot
        step = read(tape, slot)
        if step.op is not LEAF:
            words = re.split(r"[\W_]+", title(step.op, step.parameters))
            return "".join(part[:1].upper() + part[1:] for part in words) + "Backward"
        return "AccumulateGrad" if slot in tape.inputs else "Cleared" if slot in tape.cleared else "Constant"

    @property
    def op(self) -> str:
        """The op's name."""
        step = read(self.tape, self.slot)
        return title(step.op, step.parameters)

    @property
    def operands(self) -> tuple[int, ...]:
        """The slots that the entry read."""
        return tuple(read(self.tape, self.slot).operands)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self._handle.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the value's elements."""
        return self._handle.dtype

    @property
    def saved_value(self) -> Any:
        """A copy of the value."""
        tape, slot = self.tape, self.slot
        layout = tape.layout(slot)
        return number_at(tape, slot) if layout.cell else array_at(tape.address(slot), layout).copy()

    @property
    def variable(self) -> Any:
        """The user's tensor that this leaf is."""
        if self.name() != "AccumulateGrad":
            # As of an attribute that is not there: people ask with `hasattr` whether a node is a leaf.
            raise AttributeError(f"{self!r} is not a leaf that requires a gradient, so it has no variable")
        return variable_of(self.tape, self.slot)

    # ------------------------------------------------------------ the graph
    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """The nodes that the gradient goes on to, one for each operand."""
        tape, marks = self.tape, self._marked()
        return tuple((_made(tape, s, marks) if carries else None, 0) for s, carries in links(tape, self.slot, marks))

    def _marked(self) -> Marks:
        """Give what tells which slots, up to this one, need a gradient."""
        # Pruning keeps the order of entries. So if this one has not moved, none before it has.
        if self._marks is None or self._known != self.slot:
            self._known = self.slot
            self._marks = marks_of(self.tape, self.slot)
        return self._marks


def cleared() -> InvalidBackprop:
    """Make the error for a node whose entry is gone."""
    return InvalidBackprop(
        "this node's part of the tape was cleared: the function that was being differentiated has returned, or a "
        "backward pass has used it up (say retain_graph=True to keep it)"
    )


def _made(tape: Tape, slot: int, marks: Marks) -> Node:
    """Make a node that shares the marks of one further on."""
    node = Node(tape, slot)
    node._marks = marks
    return node


def variable_of(tape: Tape, slot: int) -> Any:
    """Give the tensor of the user's that a leaf stands for; None if it is an argument of a function."""
    return tape.leaves.get(slot)


def node_of(t: Tensor) -> Node | None:
    """Give the node of the entry that computed a value; None if it does not depend on anything that has a gradient.

    Raises
    ------
    InvalidBackprop
        If the tape is finished.
    """
    if isinstance(t, Variable) and not t._state.requires_grad:
        return None  # and it need not become a leaf of the tape to tell that
    tape = t._tape
    if tape.workspace is None:
        raise cleared()
    slot = t._slot  # may append the entry of gathered writes
    marks = marks_of(tape, slot)
    return _made(tape, slot, marks) if marks[slot] else None


def walk(node: Node) -> Iterator[Node]:
    """Give a node and all that it leads to, each once, those nearest to the result first.

    A node comes after all that use it. No recursion: a chain may be as long as the tape.
    """
    tape, marks = node.tape, node._marked()
    start = slot = node.slot
    reached = bytearray(start + 1)
    reached[start] = 1
    while slot >= 0:
        if node.tape is not tape or node.slot != start:
            raise InvalidBackprop("the tape was pruned during a walk over it: make a list of the nodes first")
        for operand, carries in links(tape, slot, marks):
            if carries:
                reached[operand] = 1
        yield _made(tape, slot, marks)
        slot = reached.rfind(1, 0, slot)


# ---------------------------------------------------------------- where gradients go
def marks_of(tape: Tape, last: int) -> Marks:
    """Tell which slots up to `last` depend on a leaf that requires a gradient, or did before it was cleared."""
    wanted = [handle(tape, s, None, tape.layout(s)) for s in tape.inputs | tape.cleared if s <= last]
    marks = Marks(tape, wanted, last)
    marks.slots.clear()  # much larger than the marks themselves, and not asked for
    return marks


def links(tape: Tape, slot: int, marks: Marks) -> list[tuple[int, bool]]:
    """Give the operands of an entry, and for each whether a gradient goes from the entry to it."""
    step = read(tape, slot)
    active = marks[slot]
    return [(s, active and marks[s] and _slopes(step, k)) for k, s in enumerate(step.operands)]


def _slopes(step: Step, position: int) -> bool:
    """Tell whether a result can depend smoothly on the operand at a position."""
    op = step.op
    if isinstance(op, Elementwise):
        return op.partials[position] is not None
    # Entries that write or join many pieces have more operands than their op, all alike.
    return step.kind in (FILL, JOIN) or (isinstance(op, Structural) and op.pullback(position) is not None)
