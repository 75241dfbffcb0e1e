"""The memory of a sweep: an adjoint or tangent for each slot, marks, scratch, and the machine that tells where."""

from __future__ import annotations

import ctypes
import struct
import threading
from typing import Any

import numpy as np

from ops.catalog import OPS, Elementwise
from tape import extents, kernels, second_kernels, table
from tape.compiled import CHECKED
from tape.errors import KernelError
from tape.layout import Layout
from tape.machine import (
    ACTIVE,
    ENTRIES,
    LIMIT,
    NEEDED,
    OPERANDS,
    OPERANDS_SIZE,
    POOL,
    POOL_SIZE,
    ROWS,
    STATE,
    TABLE,
    TOP,
    WANTED,
)
from tape.sweep import activate, mark, reset
from tape.tensor import Tensor
from tape.wengert import Tape
from tape.workspace import KERNEL, OPCODE, READY, RETAINED, SCALARS, aligned, nothing


class _UfuncObject(ctypes.Structure):
    """The head of NumPy's PyUFuncObject, which has kept its layout since NumPy 1.0 (numpy/ufuncobject.h)."""

    _fields_ = [
        ("refcount", ctypes.c_ssize_t),
        ("type", ctypes.c_void_p),
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p),
    ]


def ufunc_loop(ufunc: np.ufunc, types: str) -> tuple[int, int]:
    """Give the address of a ufunc's inner loop for some types, and that of its data."""
    head = _UfuncObject.from_address(id(ufunc))
    if head.nargs != ufunc.nargs or head.ntypes != ufunc.ntypes or head.name.decode() != ufunc.__name__:
        raise KernelError("this NumPy keeps its ufuncs in a form that is not known here; please report it")
    position = ufunc.types.index(types)
    return int(head.functions[position] or 0), int(head.data[position] or 0)


_numbers = kernels.numbers.ctypes.data
_pullbacks = table.backward.addresses.ctypes.data
_seconds = second_kernels.numbers.ctypes.data
_pushforwards = table.forward.addresses.ctypes.data
_matmul_loops = (*ufunc_loop(np.matmul, "dd->d"), *ufunc_loop(np.matmul, "ff->f"))


_pack_state = struct.Struct(f"={STATE}q").pack_into


class Memory:
    """Buffers that outlive a sweep: a thread hands them from one to the next.

    Attributes
    ----------
    cells : ndarray of float64
        For each slot the adjoint (or tangent) of a number, or the address of that of an array.
    active : ndarray of int8
        For each slot whether it is on the way.
    arena : (ndarray, address)
        Where the adjoints of arrays are.
    """

    def __init__(self) -> None:
        self.arena: tuple[np.ndarray[Any, Any], int] = (nothing, 0)
        self.cells = np.empty(0)
        self.active = np.empty(0, np.int8)
        self.last_use = np.empty(0, np.int32)
        self.scratch = aligned(1 << 20)
        self.heads = np.zeros(64, np.int64)
        self.missing = np.zeros(64, np.int32)
        self.state = np.zeros(STATE, np.int64)
        self.machine = self.state.ctypes.data
        self.words = memoryview(self.state)  # type: ignore[arg-type]
        self.fit(1, 1)

    def fit(self, entries: int, classes: int) -> None:
        """Have room for so many slots and sizes of arrays; tell where they are."""
        if len(self.cells) < entries:
            self.cells = np.empty(entries)
            self.active = np.empty(entries, np.int8)
            self.last_use = np.empty(entries, np.int32)
        if len(self.heads) < classes:
            self.heads = np.zeros(2 * classes, np.int64)
        self.addresses = self.cells.view(np.int64)
        # NumPy takes a microsecond to tell an address.
        self.cells_at, self.active_at, self.last_use_at = (
            self.cells.ctypes.data, self.active.ctypes.data, self.last_use.ctypes.data,
        )  # fmt: skip
        self.heads_at, self.missing_at = self.heads.ctypes.data, self.missing.ctypes.data

    def reserve(self, nbytes: int) -> None:
        """Have room for every adjoint of an array; pages that are never touched cost nothing."""
        if len(self.arena[0]) < nbytes + 64:
            self.arena = aligned(max(nbytes + 64, 1 << 16))
        self.state[TOP] = self.arena[1]
        self.state[LIMIT] = self.arena[1] + len(self.arena[0])

    def trim(self) -> None:
        """Give back what an unusually large sweep needed."""
        if self.cells.nbytes > RETAINED // 4:
            self.cells, self.active, self.last_use = np.empty(0), np.empty(0, np.int8), np.empty(0, np.int32)
            self.fit(1, 1)
        if self.arena[0].nbytes > 2 * RETAINED:
            self.arena = (nothing, 0)


class _Idle(threading.local):
    def __init__(self) -> None:
        self.memories: list[Memory] = []


_idle = _Idle()


class Sweep:
    """What reverse and forward sweeps share: the machine over a tape, and which slots depend on the wanted ones.

    Parameters
    ----------
    tape : Tape
    wanted : sequence of Tensor
        The inputs.
    last : int
        The last slot that takes part.
    """

    def __init__(self, tape: Tape, wanted: list[Tensor], last: int) -> None:
        self.tape = tape
        self.wanted = wanted
        self.first = min((w._slot for w in wanted), default=0)
        self.last = last
        space = tape.workspace
        memory = self.memory = _idle.memories.pop() if _idle.memories else Memory()
        if len(memory.cells) < len(space.entries) or len(memory.heads) < len(space.classes):
            memory.fit(len(space.entries), len(space.classes))
        memory.heads.fill(0)
        self.active, self.cells, self.state = memory.active, memory.cells, memory.state
        self.addresses = memory.addresses
        self.known = space.addresses()
        entries, table, pool, operands = self.known
        _pack_state(
            memory.words, 0,
            tape.count, entries, memory.cells_at, memory.active_at, len(space.table), table, len(space.pool), pool,
            len(space.operands), operands, _numbers, len(memory.heads), memory.heads_at, memory.missing_at,
            memory.scratch[1], 0, 0, 0, *_matmul_loops, _pullbacks, _pushforwards, memory.last_use_at,
            _seconds, 0, 0,
        )  # fmt: skip
        self.machine = memory.machine
        if CHECKED:
            extents.watch(self)

    def close(self) -> None:
        """Hand the memory to the next sweep."""
        self.memory.trim()
        _idle.memories.append(self.memory)

    def refit(self) -> None:
        """Look again where entries and instructions are, for something may have been recorded."""
        space = self.tape.workspace
        if space.addresses() is self.known:
            return
        self.known = space.addresses()
        self.state[[ENTRIES, TABLE, POOL, OPERANDS]] = self.known
        self.state[[ROWS, POOL_SIZE, OPERANDS_SIZE]] = len(space.table), len(space.pool), len(space.operands)
        if CHECKED:
            extents.watch(self, again=True)

    def activate(self) -> None:
        """Mark the slots that depend on a wanted one, and have the kernels that they need compiled."""
        m, last = self.machine, self.last
        reset(m, 0, last)
        for w in self.wanted:
            self.active[w._slot] = WANTED
        while missing := activate(m, self.first, last):
            self._compile(self.memory.missing[:missing].tolist())
            for e in np.flatnonzero(self.active[self.first : last + 1] == ACTIVE):
                self.active[self.first + e] = 0

    def mark(self) -> np.ndarray[Any, Any]:
        """Mark the slots from the first wanted one on that depend on it or others, and give the marks."""
        marks = self.active[self.first : self.last + 1]
        marks.fill(0)
        for w in self.wanted:
            if w._slot <= self.last:
                marks[w._slot - self.first] = WANTED
        mark(self.machine, self.first, self.last)
        return marks

    def _compile(self, rows: list[int]) -> None:
        space = self.tape.workspace
        for row in rows:
            if row < SCALARS:
                kernels.prepare_numbers(row)
                continue
            row -= SCALARS
            space.table[row, READY] = 1
            op = OPS[space.table[row, OPCODE]]
            assert isinstance(op, Elementwise)
            code = space.details[row][2].code
            for position in range(op.nin):
                if op.partials[position] is not None:
                    space.table[row, KERNEL + position] = kernels.array_kernel(op, position, code)

    def reserve(self) -> None:
        """Have room for the adjoints of all active slots."""
        self.memory.reserve(int(self.state[NEEDED]))

    def view(self, slot: int, layout: Layout) -> np.ndarray[Any, Any] | None:
        """Give the adjoint of a slot as an array that refers to the sweep's memory; None while there is none."""
        if layout.cell:
            return self.cells[slot : slot + 1].reshape(())
        address = int(self.addresses[slot])
        if address <= 0:
            return None
        memory, base = self.memory.arena
        return np.ndarray(layout.shape, layout.dtype, memory, address - base)
