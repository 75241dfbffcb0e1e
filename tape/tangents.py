"""One forward sweep over a tape: the tangents of the outputs from those of the inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.catalog import Elementwise, Structural
from ops.elementwise import scale
from tape import table
from tape.constants import verify
from tape.machine import adjoint_of
from tape.memory import Sweep
from tape.reading import Step, array_at, number_at, read
from tape.sweep import push, reach, release_operands
from tape.tensor import Tensor
from tape.transpose import transposed_push
from tape.wengert import Tape

ALWAYS = np.iinfo(np.int32).max
"""The last use of an output."""


class Tangents(Sweep):
    """The tangents of one forward sweep.

    Parameters
    ----------
    tape : Tape
    inputs : sequence of Tensor
        The inputs that have a tangent.
    outputs : sequence of Tensor
    """

    def __init__(self, tape: Tape, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        super().__init__(tape, inputs, max(y._slot for y in outputs))
        self.outputs = outputs

    def prepare(self) -> None:
        """Mark what has to be computed, have it compiled, and find the room for it."""
        self.activate()
        uses = self.memory.last_use
        uses[: self.last + 1].fill(-1)
        for y in self.outputs:
            uses[y._slot] = ALWAYS
        self.kinds = reach(self.machine, self.first, self.last, False)
        table.forward.prepare(self.kinds)
        verify(self.tape.samples)
        self.reserve()

    @property
    def native(self) -> bool:
        """Whether the whole sweep is compiled."""
        return not self.kinds & ~table.forward.native

    def run(self, tangents: list[Any]) -> None:
        """Sweep from the inputs, whose tangents are given, up to the last output."""
        self.prepare()
        for x, tangent in zip(self.wanted, tangents, strict=True):
            self._store(x._slot, tangent)
        m, last = self.machine, self.last
        e = push(m, self.first, last)
        while e >= 0:
            self._host(e)
            e = push(m, e + 1, last)

    def _store(self, slot: int, tangent: Any) -> None:
        layout = self.tape.layout(slot)
        if layout.cell:
            self.cells[slot] = tangent
            return
        adjoint_of(self.machine, slot)
        view = self.view(slot, layout)
        assert view is not None
        view[...] = tangent

    def _host(self, e: int) -> None:
        """Carry out the pushforward of an entry that has no native kernel."""
        step = read(self.tape, e)
        tangents = [self.tangent_of(slot) for slot in step.operands]
        values = [self.value(slot) for slot in step.operands]
        with np.errstate(all="ignore"):
            self._store(e, pushed(step, tangents, self.value(e), values))
        release_operands(self.machine, e)

    def tangent_of(self, slot: int) -> Any:
        """Give the tangent of a slot, in the sweep's memory; None if it has none."""
        return self.view(slot, self.tape.layout(slot)) if self.active[slot] else None

    def value(self, slot: int) -> Any:
        """Give the value of a slot."""
        layout = self.tape.layout(slot)
        return np.float64(number_at(self.tape, slot)) if layout.cell else array_at(self.tape.address(slot), layout)

    def tangent(self, y: Tensor) -> Any:
        """Give the tangent of an output in memory of its own: zeros where it does not depend on the inputs."""
        layout = y._layout
        if not self.active[y._slot]:
            return np.zeros(layout.shape, layout.dtype)
        view = self.view(y._slot, layout)
        assert view is not None
        return view.copy()


def pushed(step: Step, tangents: list[Any], out: Any, values: list[Any]) -> Any:
    """Give the tangent of an entry's value by the op's declaration: arrays, or recorded values if something is one."""
    op = step.op
    if isinstance(op, Elementwise):
        total: Any = None
        for k, tangent in enumerate(tangents):
            partial = op.partials[k]
            if tangent is not None and partial is not None:
                part = scale(tangent, partial(*values, out))
                total = part if total is None else total + part
        return 0.0 if total is None else total
    assert isinstance(op, Structural)
    if op.pushforward is None:
        return transposed_push(op, tangents, out, values, step.parameters or {})
    return op.push(tangents, out, *values, **(step.parameters or {}))
