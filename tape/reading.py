"""Reading a tape: its entries as ops, operands and parameters, and handles of its slots."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

import numpy as np

from ops.catalog import LEAF, OPS, Elementwise, Op
from tape.instruction import FILL, JOIN
from tape.layout import FLOAT, Layout
from tape.record import handle
from tape.tensor import Tensor
from tape.wengert import Tape, unpack_number
from tape.workspace import ARITY, ENTRY, KIND, REMEMBERED, SCALARS


class Step(NamedTuple):
    """One entry of a tape.

    Attributes
    ----------
    op : Op
    operands : list of int
        The slots that it reads.
    layouts : tuple of Layout
        What it reads them as; a Python number is weak. Empty where operands are read as they are.
    out : Layout
    parameters : Any
        The op's keyword arguments, or None.
    kind : int
        The kind of its instruction, -1 for an opcode on numbers.
    offset : int
        Where in its operand a view begins, counted in elements of the operand's adjoint.
    places : list of (offset, width)
        For each operand of a FILL or JOIN entry where it goes, and how wide a piece of it is (1 for FILL).
    """

    op: Op
    operands: list[int]
    layouts: tuple[Layout, ...]
    out: Layout
    parameters: Any
    kind: int
    offset: int = 0
    places: list[tuple[int, int]] = []  # noqa: RUF012


NUMBERS = (FLOAT, FLOAT)
"""The layouts of an opcode's operands."""


def read(tape: Tape, slot: int) -> Step:
    """Read one entry."""
    space = tape.workspace
    row, a, b, c = space.entries[slot, :4].tolist()
    if row < SCALARS:
        op = OPS[row]
        arity = op.nin if isinstance(op, Elementwise) else 0
        return Step(op, [a, b][:arity], NUMBERS[:arity], FLOAT, None, -1)
    op, layouts, out, parameters = space.details[row - SCALARS]
    columns = space.table[row - SCALARS]
    arity, kind = int(columns[ARITY]), int(columns[KIND])
    if arity >= 0:
        return Step(op, [a, b, c][:arity], layouts, out, parameters, kind, max(c, 0))
    count = int(space.operands[a])
    if kind == FILL:
        pairs = space.operands[a + 1 : a + 1 + 2 * count].reshape(count, 2)
        return Step(op, pairs[:, 0].tolist(), (), out, parameters, kind, 0, [(p, 1) for p in pairs[:, 1].tolist()])
    if kind == JOIN:
        triples = space.operands[a + 1 : a + 1 + 3 * count].reshape(count, 3)
        places = [(p, w) for p, w in triples[:, 1:].tolist()]
        return Step(op, triples[:, 0].tolist(), (), out, parameters, kind, 0, places)
    return Step(op, space.operands[a + 1 : a + 1 + count].tolist(), layouts, out, parameters, kind)


def title(op: Op, parameters: Any) -> str:
    """Name the op of an entry as people know it: a call of a user's function by that function's name."""
    call = (parameters or {}).get("call") if op.name == "call" else None
    return getattr(call and call(), "name", op.name)


def operands(tape: Tape, slot: int) -> list[int]:
    """Give the slots that an entry reads."""
    return read(tape, slot).operands


def number_at(tape: Tape, slot: int) -> float:
    """Give the value of a slot that is a float64 number."""
    found: float = unpack_number(tape.buffer, slot * ENTRY + 16)[0]
    return found


def array_at(address: int, layout: Layout) -> np.ndarray[Any, Any]:
    """See memory of a tape as an array. It is valid as long as the tape is."""
    if not layout.size:
        return np.empty(layout.shape, layout.dtype)
    size = layout.dtype.itemsize
    below = 0
    if layout.contiguous:
        extent = layout.size * size
    else:
        spans = [stride * (length - 1) for stride, length in zip(layout.strides, layout.shape, strict=True)]
        below = -sum(s for s in spans if s < 0)
        extent = sum(s for s in spans if s > 0) + below + size
    raw = (ctypes.c_char * extent).from_address(address - below)
    return np.ndarray(layout.shape, layout.dtype, raw, below, layout.strides)  # type: ignore[arg-type]


@functools.cache
def slopes(op: Elementwise) -> tuple[tuple[int, Any, tuple[int, ...], Any], ...]:
    """List the slopes of an op: position, partial, the operands that it reads (the result is the last), and its value.

    The value is that of a partial which reads nothing, else None.
    """
    found = []
    for k, partial in enumerate(op.partials):
        if partial is None:
            continue
        bits = op.reads[k]
        reads = tuple(i for i in range(op.nin) if bits >> i & 1) + ((op.nin,) if bits & 8 else ())
        constant = None if bits or hasattr(partial, "unknown") else partial(*[None] * (op.nin + 1))
        found.append((k, partial, reads, constant))
    return tuple(found)


class Layouts:
    """The layouts of the slots of a tape; those of the slots that a walk is about are at hand."""

    def __init__(self, tape: Tape, first: int, last: int) -> None:
        self.tape, self.first = tape, first
        self.rows: list[int] = tape.workspace.entries[first : last + 1, 0].tolist()
        self.details = tape.workspace.details

    def __getitem__(self, slot: int) -> Layout:
        row = self.row(slot)
        found: Layout = FLOAT if row < SCALARS else self.details[row - SCALARS][2]
        return found

    def row(self, slot: int) -> int:
        """Give the instruction of a slot."""
        at = slot - self.first
        return self.rows[at] if at >= 0 else int(self.tape.workspace.entries[slot, 0])


class Handles:
    """Handles of the slots of a tape, made when asked for."""

    def __init__(self, tape: Tape, layouts: Layouts) -> None:
        self.tape, self.layouts = tape, layouts
        self.made: dict[int, Tensor] = {}
        space = tape.workspace
        self.chunks = [
            (address, views) for (_, address), views in zip(space.chunks[:REMEMBERED], space.views, strict=False)
        ]

    def __getitem__(self, slot: int) -> Tensor:
        found = self.made.get(slot)
        if found is None:
            layout = self.layouts[slot]
            value: Any = number_at(self.tape, slot) if layout.cell else self._array(slot, layout)
            found = self.made[slot] = handle(self.tape, slot, value, layout)
        return found

    def _array(self, slot: int, layout: Layout) -> Any:
        address = self.tape.address(slot)
        for start, views in self.chunks:
            known = views.get(address - start)
            if known is not None and known[0] is layout:
                return known[1]
        return array_at(address, layout)

    def evaluate(self, partial: Any, reads: tuple[int, ...], e: int, operands: list[int], layouts: Any) -> Any:
        """Give a partial of entry e: a plain number, or a recorded value."""
        nin = len(layouts)
        values: list[Any] = [None] * (nin + 1)
        for k in reads:
            if k == nin:
                values[k] = self[e]
                continue
            slot = operands[k]
            t = self.made.get(slot)
            if t is None:
                t = self[slot]
            values[k] = self._number(t, layouts[k]) if t._layout.cell else t
        return partial(*values)

    def _number(self, t: Tensor, layout: Layout) -> Any:
        """Give a number as it is where it is constant, else the handle.

        So a rule that asks an exponent whether it is 0 gets a plain answer, and records nothing for it.
        """
        if not self.is_constant(t._slot):
            return t
        return t._value if layout.weak else np.float64(t._value)

    def is_constant(self, slot: int) -> bool:
        """Tell whether a slot is a plain value that somebody used, not an input."""
        row = self.layouts.row(slot)
        op = OPS[row] if row < SCALARS else self.layouts.details[row - SCALARS][0]
        return op is LEAF and slot not in self.tape.inputs
