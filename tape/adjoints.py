"""One reverse sweep over a tape: running it, and the entries that Python does itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.catalog import Elementwise, Structural
from ops.elementwise import scale
from ops.shape import fit_to, sum_to
from tape import table
from tape.compiled import CHECKED
from tape.constants import verify
from tape.current import current
from tape.instruction import HOST
from tape.layout import Layout
from tape.machine import ACTIVE, KINDS, adjoint_of, release
from tape.memory import Sweep
from tape.reading import operands
from tape.sweep import sweep
from tape.tensor import Tensor
from tape.wengert import Tape
from tape.workspace import SCALARS, SMALL


class Adjoints(Sweep):
    """The adjoints of one reverse sweep.

    Parameters
    ----------
    tape : Tape
    wanted : sequence of Tensor
        The inputs whose adjoints are asked for.
    outputs : sequence of Tensor
        Where the sweep begins.
    """

    def __init__(self, tape: Tape, wanted: list[Tensor], outputs: list[Tensor]) -> None:
        super().__init__(tape, wanted, max(y._slot for y in outputs))
        self.outputs = outputs
        self.results: dict[int, np.ndarray[Any, Any]] = {}

    def prepare(self) -> None:
        """Mark what has to be computed, have it compiled, and find the room for it."""
        self.activate()
        table.backward.prepare(int(self.state[KINDS]))
        verify(self.tape.samples)
        self.reserve()

    @property
    def native(self) -> bool:
        """Whether the whole sweep is compiled."""
        return not self.state[KINDS] >> HOST & 1

    def run(self, seeds: list[Any]) -> None:
        """Sweep from the outputs, whose adjoints are the seeds, down to the first wanted slot.

        A seed is a float (for an output that is one number), or an array of the output's shape.
        """
        self.prepare()
        for w in self.wanted:
            if w._layout.nbytes > SMALL and not CHECKED:
                # A large gradient is computed where it will stay. The sign says that nothing has been written there.
                result = np.empty(w._layout.shape, w._layout.dtype)
                self.results[w._slot] = result
                self.addresses[w._slot] = -result.ctypes.data
        start = -1
        for y, seed in zip(self.outputs, seeds, strict=True):
            if self.active[y._slot]:
                self._deliver(y._slot, seed)
                start = max(start, y._slot)
        self.advance(start, self.first)

    def advance(self, start: int, stop: int) -> None:
        """Process the entries from `start` down to `stop`."""
        m, watch = self.machine, current.anomaly
        if watch is not None:
            self._advance_watched(start, stop, watch)
            return
        e = sweep(m, start, stop) if start >= stop else -1
        while e >= 0:
            self._host(e)
            e = sweep(m, e - 1, stop)

    def _advance_watched(self, start: int, stop: int, watch: Any) -> None:
        """Process entries one by one, and look at what they pass on."""
        for e in range(start, stop - 1, -1):
            if self.active[e] == ACTIVE:
                if sweep(self.machine, e, e) >= 0:
                    self._host(e)
                watch.check_adjoints(self.tape, e, self._passed)

    def _passed(self, slot: int, layout: Layout) -> Any:
        return self.view(slot, layout) if self.active[slot] else None

    # ------------------------------------------------------------ Python's part
    def view(self, slot: int, layout: Layout) -> np.ndarray[Any, Any] | None:
        """Give the adjoint of a slot as an array that refers to the sweep's memory; None while there is none."""
        found = super().view(slot, layout) if slot not in self.results else self.results[slot]
        return found if layout.cell or self.addresses[slot] > 0 else None

    def _deliver(self, slot: int, contribution: Any) -> None:
        """Add to the adjoint of a slot."""
        layout = self.tape.layout(slot)
        if layout.cell:
            self.cells[slot] += contribution if isinstance(contribution, float) else np.sum(contribution)
            return
        contribution = fit_to(contribution, layout.shape)
        _, new = adjoint_of(self.machine, slot)
        target = self.view(slot, layout)
        assert target is not None
        if new:
            target[...] = contribution
        else:
            target += contribution

    def _host(self, e: int) -> None:
        """Carry out the pullbacks of an entry that has no native kernel."""
        (op, _, layout, parameters), out, values = self.tape.saved[e]
        g = self.view(e, layout)
        assert g is not None
        g.flags.writeable = False
        with np.errstate(all="ignore"):
            for position, slot in enumerate(operands(self.tape, e)):
                if self.active[slot] == 0:
                    continue
                contribution = pull(op, position, g, out, values, parameters)
                if contribution is not None:
                    self._deliver(slot, contribution)
        if not layout.cell:
            release(self.machine, e, int(self.tape.workspace.entries[e, 0]) - SCALARS)

    def gradient(self, t: Tensor) -> Any:
        """Give the adjoint of a wanted slot in memory of its own: zeros where the outputs do not depend on it."""
        layout = t._layout
        view = self.view(t._slot, layout)
        if view is None:
            return np.zeros(layout.shape, layout.dtype)
        return view if t._slot in self.results else view.copy()


def pull(op: Any, position: int, g: Any, out: Any, values: tuple[Any, ...], parameters: Any) -> Any:
    """Give what an entry passes on to one of its operands, by the op's declaration; None if nothing."""
    if isinstance(op, Elementwise):
        partial = op.partials[position]
        if partial is None:
            return None
        return sum_to(scale(g, partial(*values, out)), np.shape(values[position]))
    assert isinstance(op, Structural)
    pullback = op.pullback(position)
    return None if pullback is None else pullback(g, out, *values, **parameters)
