"""The blocks of memory that a sweep may touch, byte for byte, for `tape.checked`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tape import checked, kernels, second_kernels, table
from tape.blocks import BLOCK
from tape.workspace import ENTRY, SCALARS

if TYPE_CHECKING:
    from tape.memory import Sweep


def watch(sweep: Sweep, *, again: bool = False) -> None:
    """Register the memory of a sweep, except the adjoints of arrays: the sweep notes those as it hands them out."""
    tape, space, memory = sweep.tape, sweep.tape.workspace, sweep.memory
    fixed = [
        _whole(sweep.state, "the machine"),
        _whole(memory.active[: tape.count], "activity"),
        _whole(space.table, "the table of instructions"),
        _whole(space.pool, "the pool of plans"),
        _whole(space.operands, "operands"),
        _whole(kernels.numbers, "the kernels on numbers"),
        _whole(table.backward.addresses, "the table of pullbacks"),
        _whole(second_kernels.numbers, "the second-order kernels on numbers"),
        _whole(table.forward.addresses, "the table of pushforwards"),
        _whole(memory.last_use[: tape.count], "last uses"),
        _whole(memory.heads, "heads of free adjoints"),
        _whole(memory.missing, "missing kernels"),
        *_scratch(memory.scratch),
        *_values(tape),
    ]
    numbers = [
        (_whole(space.entries[: tape.count], "entries"), ENTRY, 16),
        (_whole(memory.cells[: tape.count], "cells"), 8, 0),
    ]

    def room() -> tuple[int, int]:
        arena, address = memory.arena
        return address, address + len(arena)

    checked.watch(sweep.machine, tape, checked.Blocks(fixed, numbers, room), again=again)


def _whole(array: np.ndarray[Any, Any], name: str) -> checked.Block:
    start = array.ctypes.data
    return start, start + array.nbytes, name


def _scratch(scratch: tuple[np.ndarray[Any, Any], int]) -> Iterator[checked.Block]:
    """Give the scratch memory in the parts that the sweep uses: a block of float64 each."""
    memory, address = scratch
    for k, start in enumerate(range(address, address + len(memory), 8 * BLOCK)):
        yield start, start + 8 * BLOCK, f"scratch {k}"


def _values(tape: Any) -> Iterator[checked.Block]:
    """Give the values of the slots that are arrays."""
    details = tape.workspace.details
    rows = tape.workspace.entries[: tape.count, 0].tolist()
    for slot, row in enumerate(rows):
        layout = None if row < SCALARS else details[row - SCALARS][2]
        if layout is not None and not layout.cell and layout.size:
            low, high = checked.extent(tape.address(slot), layout.shape, layout.strides, layout.dtype.itemsize)
            yield low, high, f"the value of slot {slot}"
