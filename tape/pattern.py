"""Which elements of the outputs depend on which elements of the inputs, read off a tape."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.catalog import Elementwise, Structural
from tape.dependence import NATIVE, demand, propagate
from tape.footprints import Reads, footprint
from tape.machine import ACTIVE
from tape.memory import Sweep
from tape.reading import array_at, number_at, read
from tape.sweep import reach
from tape.tangents import ALWAYS
from tape.tensor import Tensor
from tape.unions import Unions
from tape.wengert import Tape
from tape.workspace import KIND, SCALARS


def pattern_of(tape: Tape, inputs: list[Tensor], outputs: list[Tensor]) -> Any:
    """Give which elements of the outputs depend on which of the inputs: a CSR array of booleans.

    Rows are the elements of all outputs, one after the other, columns those of all inputs. An element is False only if
    the derivative is 0 whatever the values on the tape are, as long as the function takes the same path.
    """
    sweep = Sweep(tape, inputs, max((y._slot for y in outputs), default=0))
    try:
        unions = Unions(sum(x._layout.size for x in inputs), sweep.last + 1)
        _place_inputs(unions, inputs, sweep.last)
        sweep.mark()
        uses = sweep.memory.last_use
        uses[: sweep.last + 1].fill(-1)
        for y in outputs:
            uses[y._slot] = ALWAYS
        reach(sweep.machine, sweep.first, sweep.last, False)
        _pass(sweep, unions)
        parts = []
        for y in outputs:
            found = unions.of_slot(y._slot, y._layout.shape)
            parts.append(np.zeros(y._layout.size, np.int32) if found is None else found.reshape(-1))
        return unions.spelled(np.concatenate(parts) if parts else np.zeros(0, np.int32))
    finally:
        sweep.close()


def _place_inputs(unions: Unions, inputs: list[Tensor], last: int) -> None:
    start = 0
    for x in inputs:
        if x._slot <= last:
            unions.graph.base[x._slot] = start
        start += x._layout.size


def _pass(sweep: Sweep, unions: Unions) -> None:
    """Go through the entries that lie between inputs and outputs."""
    tape, m, last = sweep.tape, sweep.machine, sweep.last
    table, entries = tape.workspace.table, tape.workspace.entries
    reads = _slopes(sweep)
    e = propagate(unions.graph, m, reads, sweep.first, last)
    while e >= 0:
        row = int(entries[e, 0]) - SCALARS
        if row >= 0 and table[row, KIND] not in NATIVE:
            unions.place(e, footprint(unions, _reads(tape, unions, e)))
            e = propagate(unions.graph, m, reads, e + 1, last)
        else:
            unions.reserve(max(int(demand(m, e)), 1024), max(tape.layout(e).size, 1024))
            e = propagate(unions.graph, m, reads, e, last)


def _slopes(sweep: Sweep) -> np.ndarray[Any, Any]:
    """Give for each instruction that is met by which operands its result has a slope, a bit for each."""
    space = sweep.tape.workspace
    bits = np.full(len(space.table), -1, np.int64)
    rows = space.entries[: sweep.last + 1, 0][sweep.active[: sweep.last + 1] == ACTIVE]
    for row in (np.unique(rows[rows >= SCALARS]) - SCALARS).tolist():
        op = space.details[row][0]
        if isinstance(op, Elementwise):
            bits[row] = sum(1 << k for k, partial in enumerate(op.partials) if partial is not None)
    return bits


def _reads(tape: Tape, unions: Unions, e: int) -> Reads:
    """Give an entry with what its operands depend on."""
    step = read(tape, e)
    nodes: list[Any] = []
    values: list[Any] = []
    for k, slot in enumerate(step.operands):
        layout = tape.layout(slot)
        op = step.op
        rule = op.pullback(k) if isinstance(op, Structural) else op.partials[k] if isinstance(op, Elementwise) else None
        nodes.append(None if rule is None else unions.of_slot(slot, layout.shape))
        values.append(np.float64(number_at(tape, slot)) if layout.cell else array_at(tape.address(slot), layout))
    return Reads(step, nodes, values)
