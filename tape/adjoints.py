"""One reverse sweep over a tape: preparing the machine, running it, and the entries that Python does itself."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ops.catalog import OPS, Elementwise, Structural
from ops.elementwise import scale
from ops.shape import sum_to
from tape import extents, kernels, table
from tape.compiled import CHECKED
from tape.constants import verify
from tape.errors import KernelError
from tape.instruction import ELEMENTWISE, RUN
from tape.layout import Layout
from tape.machine import ACTIVE, LIMIT, NEEDED, TOP, WANTED, adjoint_of, release
from tape.runs import LONG
from tape.sweep import activate, reset, sweep
from tape.tensor import Tensor
from tape.wengert import CELL, KERNEL, KIND, OPCODE, READY, SCALARS, SMALL, Tape, aligned


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
_pullbacks = table.addresses.ctypes.data
_matmul_loops = (*ufunc_loop(np.matmul, "dd->d"), *ufunc_loop(np.matmul, "ff->f"))


class Adjoints:
    """The adjoints of one reverse sweep.

    Parameters
    ----------
    tape : Tape
    wanted : sequence of Tensor
        The inputs whose adjoints are asked for.
    output : Tensor
        Where the sweep begins.
    """

    def __init__(self, tape: Tape, wanted: list[Tensor], output: Tensor) -> None:
        self.tape = tape
        self.wanted = wanted
        self.results: dict[int, np.ndarray[Any, Any]] = {}
        self.first = min((w._slot for w in wanted), default=0)
        self.last = output._slot
        space = tape.workspace
        entries = space.entries
        if len(space.cells) < len(entries):
            space.cells = np.empty(len(entries))
            space.active = np.empty(len(entries), np.int8)
        if len(space.heads) < len(space.classes):
            space.heads = np.zeros(2 * len(space.classes), np.int64)
        space.heads[:] = 0
        self.active, self.cells, self.adjoints = space.active, space.cells, space.cells.view(np.int64)
        self.missing, self.heads, self.state = space.missing, space.heads, space.state
        pointer = space.pointer
        space.state[:] = (
            tape.count, pointer("entries"), pointer("cells"), pointer("active"), len(space.table), pointer("table"),
            len(space.pool), pointer("pool"), len(space.operands), pointer("operands"), _numbers, len(space.heads),
            pointer("heads"), pointer("missing"), space.scratch[1], 0, 0, 0, *_matmul_loops, _pullbacks, 0,
        )  # fmt: skip
        self.machine = pointer("state")
        if CHECKED:
            extents.watch(self)

    def run(self, seed: Any) -> None:
        """Sweep from the output, whose adjoint is `seed`, down to the first wanted slot."""
        m, last = self.machine, self.last
        reset(m, 0, last)
        for w in self.wanted:
            self.active[w._slot] = WANTED
            if w._layout.nbytes > SMALL and not CHECKED:
                # A large gradient is computed where it will stay. The sign says that nothing has been written there.
                result = np.empty(w._layout.shape, w._layout.dtype)
                self.results[w._slot] = result
                self.adjoints[w._slot] = -result.ctypes.data
        while missing := activate(m, self.first, last):
            self._compile(self.missing[:missing].tolist())
            for e in np.flatnonzero(self.active[self.first : last + 1] == ACTIVE):
                self.active[self.first + e] = 0
        if self.active[last] == 0:
            return
        verify(self.tape.samples)
        self._reserve(int(self.state[NEEDED]))
        self._deliver(last, seed)
        e = sweep(m, last, self.first)
        while e >= 0:
            self._host(e)
            e = sweep(m, e - 1, self.first)

    def _compile(self, rows: list[int]) -> None:
        space = self.tape.workspace
        for row in rows:
            if row < SCALARS:
                kernels.prepare_numbers(row)
                continue
            row -= SCALARS
            kind = int(space.table[row, KIND])
            table.prepare(kind)
            space.table[row, READY] = 1
            if kind != ELEMENTWISE:
                continue
            op = OPS[space.table[row, OPCODE]]
            assert isinstance(op, Elementwise)
            out = space.details[row][2]
            for position in range(op.nin):
                if op.partials[position] is not None:
                    space.table[row, KERNEL + position] = kernels.array_kernel(op, position, out.code)
            if out.size >= LONG:
                table.prepare(RUN)

    def _reserve(self, nbytes: int) -> None:
        """Have room for every adjoint; pages that are never touched cost nothing."""
        space, state = self.tape.workspace, self.state
        if len(space.adjoints[0]) < nbytes + 64:
            space.adjoints = aligned(max(nbytes + 64, 1 << 16))
        state[TOP] = space.adjoints[1]
        state[LIMIT] = space.adjoints[1] + len(space.adjoints[0])

    # ------------------------------------------------------------ Python's part
    def view(self, slot: int, layout: Layout) -> np.ndarray[Any, Any] | None:
        """Give the adjoint of a slot as an array that refers to the sweep's memory; None while there is none."""
        if layout.cell:
            return self.cells[slot : slot + 1].reshape(())
        address = int(self.adjoints[slot])
        if address <= 0:
            return None
        if slot in self.results:
            return self.results[slot]
        memory, base = self.tape.workspace.adjoints
        return np.ndarray(layout.shape, layout.dtype, memory, address - base)

    def _deliver(self, slot: int, contribution: Any) -> None:
        """Add to the adjoint of a slot."""
        m = self.machine
        row = int(self.tape.workspace.entries[slot, 0])
        if row < SCALARS or self.tape.workspace.table[row - SCALARS, CELL]:
            self.cells[slot] += contribution if isinstance(contribution, float) else np.sum(contribution)
            return
        layout = self.tape.workspace.details[row - SCALARS][2]
        contribution = np.asarray(contribution)
        if contribution.ndim > layout.ndim or contribution.size > layout.size:
            contribution = sum_to(contribution, layout.shape)
        _, new = adjoint_of(m, slot)
        target = self.view(slot, layout)
        assert target is not None
        if new:
            target[...] = contribution
        else:
            target += contribution

    def _host(self, e: int) -> None:
        """Carry out the pullbacks of an entry that has no native kernel."""
        m = self.machine
        (op, _, layout, parameters), out, values = self.tape.saved[e]
        g = self.view(e, layout)
        assert g is not None
        g.flags.writeable = False
        start = int(self.tape.workspace.entries[e, 1])
        slots = self.tape.workspace.operands[start + 1 : start + 1 + self.tape.workspace.operands[start]].tolist()
        with np.errstate(all="ignore"):
            for position, slot in enumerate(slots):
                if self.active[slot] == 0:
                    continue
                contribution = _pull(op, position, g, out, values, parameters)
                if contribution is not None:
                    self._deliver(slot, contribution)
        if not layout.cell:
            release(m, e, int(self.tape.workspace.entries[e, 0]) - SCALARS)

    def gradient(self, t: Tensor) -> Any:
        """Give the adjoint of a wanted slot in memory of its own: zeros where the output does not depend on it."""
        layout = t._layout
        view = self.view(t._slot, layout) if self.active[self.last] else None
        if view is None:
            return np.zeros(layout.shape, layout.dtype)
        return view if t._slot in self.results else view.copy()


def _pull(op: Any, position: int, g: Any, out: Any, values: tuple[Any, ...], parameters: Any) -> Any:
    if isinstance(op, Elementwise):
        partial = op.partials[position]
        if partial is None:
            return None
        product = scale(g, partial(*values, out))
        return sum_to(product, np.shape(values[position]))
    assert isinstance(op, Structural)
    pullback = op.pullback(position)
    return None if pullback is None else pullback(g, out, *values, **parameters)
