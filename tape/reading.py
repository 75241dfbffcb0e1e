"""Reading a tape: its entries as ops, operands and parameters, and handles of its slots."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from ops.catalog import LEAF, OPS, Elementwise, Op
from tape.instruction import FILL, JOIN
from tape.layout import FLOAT, Layout
from tape.record import handle
from tape.tensor import Tensor
from tape.wengert import ARITY, KIND, SCALARS, Tape


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


_NUMBERS = ((), (FLOAT,), (FLOAT, FLOAT))


def read(tape: Tape, slot: int) -> Step:
    """Read one entry."""
    space = tape.workspace
    row, a, b, c = space.entries[slot, :4].tolist()
    if row < SCALARS:
        op = OPS[row]
        arity = op.nin if isinstance(op, Elementwise) else 0
        return Step(op, [a, b][:arity], _NUMBERS[arity], FLOAT, None, -1)
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


def operands(tape: Tape, slot: int) -> list[int]:
    """Give the slots that an entry reads."""
    return read(tape, slot).operands


def number_at(tape: Tape, slot: int) -> float:
    """Give the value of a slot that is a float64 number."""
    return float(tape.workspace.entries[slot, 4:6].view(np.float64)[0])


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


class Handles:
    """Handles of the slots of a tape, made when asked for."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.made: dict[int, Tensor] = {}

    def __getitem__(self, slot: int) -> Tensor:
        found = self.made.get(slot)
        if found is None:
            layout = self.tape.layout(slot)
            value: Any = number_at(self.tape, slot) if layout.cell else array_at(self.tape.address(slot), layout)
            found = self.made[slot] = handle(self.tape, slot, value, layout)
        return found

    def operand(self, slot: int, layout: Layout | None) -> Any:
        """Give what a rule takes for an operand: a plain number where it is constant, else the handle.

        So a rule that asks an exponent whether it is 0 gets a plain answer, and records nothing for it.
        """
        t = self[slot]
        if t._layout.cell and self.is_constant(slot):
            return t._value if layout is not None and layout.weak else np.float64(t._value)
        return t

    def is_constant(self, slot: int) -> bool:
        """Tell whether a slot is a plain value that somebody used, not an input."""
        row = int(self.tape.workspace.entries[slot, 0])
        op = OPS[row] if row < SCALARS else self.tape.workspace.details[row - SCALARS][0]
        return op is LEAF and slot not in self.tape.inputs
