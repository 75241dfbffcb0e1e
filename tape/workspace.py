"""The memory behind tapes: entries, chunks for values, buffers, and the interned instructions.

A thread hands it from one tape to the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tape.layout import Layout

SCALARS = 1024
"""Instructions below this are opcodes on float64 numbers."""

ENTRY = 24
KIND, ARITY, BYTES, CLASS, PLAN, OPCODE, CELL, READY, KERNEL, DTYPE, EXTENT = 0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12
SECOND, SECOND_STATE = 13, 16
COLUMNS = 17
"""Columns of the table of instructions; KERNEL is the first of three addresses, one for each operand; so is SECOND.

EXTENT is what the elements of the value take, BYTES the memory given to them.
"""

CHUNK = 1 << 20
SMALL = 1 << 16
"""Values up to this many bytes are carved from chunks; larger ones have a buffer each."""
REMEMBERED = 2
"""The first chunks, whose views are kept from tape to tape: a function that is called again finds them made."""
RETAINED = 1 << 29
"""Bytes of large buffers that a thread keeps for the next tape."""

nothing = np.empty(0, np.uint8)


def aligned(nbytes: int) -> tuple[np.ndarray[Any, Any], int]:
    """Allocate `nbytes` of memory at a 64-byte boundary; give the array of bytes and its address."""
    block = np.empty(nbytes + 64, np.uint8)
    address = block.ctypes.data
    offset = -address % 64
    return block[offset : offset + nbytes], address + offset


def _written(array: np.ndarray[Any, Any], start: int, numbers: Any) -> np.ndarray[Any, Any]:
    """Write numbers into an array from `start` on; give it, or a larger copy if there was no room."""
    end = start + len(numbers)
    if end > len(array):
        grown = np.zeros(max(end, 2 * len(array)), np.int64)
        grown[:start] = array[:start]
        array = grown
    array[start:end] = numbers
    return array


class Workspace:
    """Memory and interned instructions that outlive a tape: a thread hands them from one tape to the next."""

    def __init__(self) -> None:
        self.entries = np.empty((4096, 6), np.int32)
        self.chunks: list[tuple[np.ndarray[Any, Any], int]] = []
        self.views: list[dict[int, tuple[Layout, np.ndarray[Any, Any]]]] = []
        self.known: tuple[Any, ...] = (None,) * 5
        self.large: dict[int, list[tuple[np.ndarray[Any, Any], int]]] = {}
        self.large_bytes = 0
        self.operands = np.zeros(256, np.int64)
        self.operands_used = 0
        self.reset_instructions()

    def reset_instructions(self) -> None:
        """Forget every interned instruction."""
        self.instructions: dict[Any, Any] = {}
        self.details: list[Any] = []
        self.table = np.zeros((64, COLUMNS), np.int64)
        self.pool = np.zeros(1024, np.int64)
        self.pool_used = 0
        self.classes: dict[int, int] = {}

    def add_instruction(self, detail: Any, columns: dict[int, int], plan: Iterable[int]) -> int:
        """Add a row to the table of instructions and give the instruction's number."""
        row = len(self.details)
        if row == len(self.table):
            self.table = np.concatenate([self.table, np.zeros_like(self.table)])
        for column, value in columns.items():
            self.table[row, column] = value
        nbytes = columns.get(BYTES, 0)
        self.table[row, CLASS] = self.classes.setdefault(nbytes, len(self.classes))
        self.table[row, PLAN] = self.add_to_pool(plan)
        self.details.append(detail)
        return row + SCALARS

    def add_to_pool(self, numbers: Iterable[int]) -> int:
        """Append numbers to the pool of parameters and give the position of the first."""
        values = np.fromiter(numbers, np.int64)
        start = self.pool_used
        self.pool_used = start + len(values)
        self.pool = _written(self.pool, start, values)
        return start

    def addresses(self) -> tuple[int, int, int, int]:
        """Give the addresses of entries, table, pool and operands; NumPy takes a microsecond to tell each."""
        known = self.known
        if (
            known[0] is not self.entries
            or known[1] is not self.table
            or known[2] is not self.pool
            or known[3] is not self.operands
        ):
            arrays = self.entries, self.table, self.pool, self.operands
            self.known = known = (*arrays, tuple(a.ctypes.data for a in arrays))
        found: tuple[int, int, int, int] = known[4]
        return found

    def add_operands(self, numbers: list[int]) -> int:
        """Append the operands of an entry that has more than three; give the position of the first."""
        start = self.operands_used
        self.operands_used = start + len(numbers)
        self.operands = _written(self.operands, start, numbers)
        return start

    def trim(self) -> None:
        """Give back what an unusually large tape needed."""
        self.operands_used = 0
        if self.operands.nbytes > RETAINED // 4:
            self.operands = np.zeros(256, np.int64)
        if self.large_bytes > RETAINED:
            self.large.clear()
            self.large_bytes = 0
        del self.chunks[64:]
        del self.views[64:]
        if self.entries.nbytes > RETAINED // 4:
            self.entries = np.empty((4096, 6), np.int32)
        if len(self.details) > 20_000 or self.pool_used > 1_000_000 or len(self.instructions) > 50_000:
            self.reset_instructions()
