"""Second derivatives of one number, swept natively: products of the Hessian with vectors, forward over reverse."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.catalog import OPS, Elementwise
from tape import record, second_kernels
from tape.adjoints import Adjoints, pull
from tape.batch import ports_of, progress_bar, seed_rows, seeds_of, share_out, work_of
from tape.compiled import CHECKED
from tape.current import recording_to
from tape.instruction import ELEMENTWISE, HOST
from tape.machine import ACTIVE, KEEP, release
from tape.reading import read
from tape.rows import second_rows
from tape.second import clear_zeros, sweep_second
from tape.second_kernels import NATIVE, PYTHON, UNKNOWN
from tape.tangents import Tangents
from tape.tensor import Tensor
from tape.wengert import Tape
from tape.workspace import KIND, OPCODE, SCALARS, SECOND, SECOND_STATE


class Curvature:
    """The second derivatives of one output by the inputs of a recorded call.

    The adjoints are swept once and kept; then each product takes a forward sweep and a second-order one.
    """

    def __init__(self, tape: Tape, inputs: list[Tensor], output: Tensor) -> None:
        self.tape, self.inputs, self.output = tape, inputs, output
        self.adjoints = Adjoints(tape, inputs, [output])
        self.adjoints.state[KEEP] = 1
        self.adjoints.run([1.0])
        self.pairs = [self._pair()]
        self.native = self._prepare(self.pairs[0][1]) and self.pairs[0][0].native and not CHECKED

    def _pair(self) -> tuple[Tangents, Adjoints]:
        """Make the sweeps of tangents, and of tangents of adjoints."""
        tangents = Tangents(self.tape, self.inputs, [self.output])
        tangents.state[KEEP] = 1
        tangents.prepare()
        changes = Adjoints(self.tape, self.inputs, [self.output])
        changes.prepare()
        clear_zeros(changes.machine)
        return tangents, changes

    def close(self) -> None:
        """Hand the memory on."""
        self.adjoints.close()
        for tangents, changes in self.pairs:
            tangents.close()
            changes.close()

    def _prepare(self, sweep: Adjoints) -> bool:
        """Have second-order kernels compiled; tell whether everything has one."""
        space = self.tape.workspace
        rows = space.entries[sweep.first : sweep.last + 1, 0]
        native = True
        for row in set(rows[sweep.active[sweep.first : sweep.last + 1] == ACTIVE].tolist()):
            if row < SCALARS:
                known = second_kernels.numbers[row, 2]
                native &= known == NATIVE or (known == UNKNOWN and second_kernels.prepare_numbers(row))
                continue
            columns = space.table[row - SCALARS]
            if columns[KIND] == ELEMENTWISE:
                if columns[SECOND_STATE] == UNKNOWN:
                    op = OPS[columns[OPCODE]]
                    assert isinstance(op, Elementwise)
                    addresses = second_kernels.array_kernels(op, space.details[row - SCALARS][2].code)
                    columns[SECOND_STATE] = PYTHON if addresses is None else NATIVE
                    columns[SECOND : SECOND + op.nin] = addresses or 0
                native &= bool(columns[SECOND_STATE] == NATIVE)
            else:
                native &= bool(columns[KIND] != HOST)
        return native

    def rows(self, seeds: np.ndarray[Any, Any] | None = None, *, progress: bool = False) -> list[np.ndarray[Any, Any]]:
        """Multiply the Hessian with vectors.

        Parameters
        ----------
        seeds : ndarray of float64, optional
            A vector in each row: the elements of all inputs, one after the other. By default the unit vectors.

        Returns
        -------
        list of ndarray
            For each input the products, shape ``(vectors, *shape)``.
        """
        total = sum(x._layout.size for x in self.inputs)
        count = total if seeds is None else len(seeds)
        results = [np.empty((count, *x._layout.shape), x._layout.dtype) for x in self.inputs]
        move = progress_bar(count, progress)
        if not self.native:
            for row, vector in enumerate(seeds_of([x._layout for x in self.inputs], seeds)):
                for result, product in zip(results, self._product(vector), strict=True):
                    result[row] = product
                move(1)
            return results
        sweep = self.pairs[0][1]
        ports = ports_of(self.inputs, results)
        given, where = seed_rows(seeds)

        def work(pair: tuple[Tangents, Adjoints], begin: int, end: int) -> None:
            tangents, changes = pair
            tangents.reserve()
            changes.reserve()
            second_rows(
                self.adjoints.machine, tangents.machine, changes.machine, sweep.first, sweep.last, begin, end,
                ports.ctypes.data, len(ports), where, total,
            )  # fmt: skip
            move(end - begin)

        share_out(self.pairs, self._pair, work, count, 3 * work_of(sweep), progress)
        del given
        return results

    # ------------------------------------------------------------ through Python
    def _product(self, vector: list[Any]) -> list[Any]:
        tangents, changes = self.pairs[0]
        tangents.memory.heads.fill(0)
        changes.memory.heads.fill(0)
        tangents.run(vector)
        changes.prepare()
        machines = self.adjoints.machine, tangents.machine, changes.machine
        e = sweep_second(*machines, changes.last, changes.first)
        while e >= 0:
            self._host(e)
            e = sweep_second(*machines, e - 1, changes.first)
        return [changes.gradient(x) for x in self.inputs]

    def _host(self, e: int) -> None:
        """Carry out an entry that has no native second-order rule: its pullback is recorded, and pushed forward."""
        tangents, changes = self.pairs[0]
        step = read(self.tape, e)
        zeros = np.zeros(step.out.shape, step.out.dtype)
        g, h = (s.view(e, step.out) for s in (self.adjoints, changes))
        values = [tangents.value(slot) for slot in step.operands]
        given = [zeros if g is None else g, tangents.value(e), *values]
        along = [zeros if h is None else h, tangents.tangent_of(e), *(tangents.tangent_of(s) for s in step.operands)]
        active = [slot if changes.active[slot] else -1 for slot in step.operands]
        for slot, change in _pushed_pullback(step, given, along, active):
            changes._deliver(slot, change)
        if not step.out.cell and changes.addresses[e] > 0:
            release(changes.machine, e, int(self.tape.workspace.entries[e, 0]) - SCALARS)


def _pushed_pullback(step: Any, given: list[Any], along: list[Any], active: list[int]) -> list[tuple[int, Any]]:
    """Give for the active operands of an entry how what it passes on changes along tangents."""
    tape = Tape()
    try:
        leaves = [
            value if tangent is None else record.leaf_array(tape, np.asarray(value))
            for value, tangent in zip(given, along, strict=True)
        ]
        tape.inputs.update(x._slot for x in leaves if isinstance(x, Tensor))
        g, out, *values = leaves
        found = []
        with np.errstate(all="ignore"), recording_to(tape):
            for k, slot in enumerate(active):
                if slot >= 0:
                    contribution = pull(step.op, k, g, out, tuple(values), step.parameters or {})
                    if isinstance(contribution, Tensor):
                        found.append((slot, contribution))
        if not found:
            return []
        inputs = [x for x in leaves if isinstance(x, Tensor)]
        seeds = [t if np.ndim(t) else float(t) for t in along if t is not None]
        sweep = Tangents(tape, inputs, [t for _, t in found])
        sweep.run(seeds)
        changes = [(slot, sweep.tangent(t)) for slot, t in found]
        sweep.close()
        return changes
    finally:
        tape.close()
