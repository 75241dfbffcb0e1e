"""Forward mode as new entries: what `jvp` inside a function that is being differentiated appends."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.catalog import Elementwise
from ops.index import index_op, window_op
from tape import record
from tape.adjoint import Marks, all_finite, fitted, position, product
from tape.inplace import filled
from tape.instruction import ELEMENT, FILL, HOST, MOVE
from tape.reading import Handles, Layouts, Step, read, slopes
from tape.tangents import pushed
from tape.tensor import Tensor
from tape.wengert import Tape


def push_forward(tape: Tape, inputs: list[Tensor], tangents: list[Any], outputs: list[Tensor]) -> list[Any]:
    """Append the tangents of the outputs; give a value for each, or None where it depends on no input."""
    if not inputs or not outputs:
        return [None] * len(outputs)
    with np.errstate(all="ignore"):
        found = _Walk(tape, inputs, tangents, outputs, careful=False).run()
        if all_finite(found):
            return found
        return _Walk(tape, inputs, tangents, outputs, careful=True).run()


class _Walk:
    """One walk from the inputs to the outputs."""

    def __init__(
        self, tape: Tape, inputs: list[Tensor], tangents: list[Any], outputs: list[Tensor], *, careful: bool
    ) -> None:
        self.tape, self.outputs, self.careful = tape, outputs, careful
        last = max(y._slot for y in outputs)
        active = Marks(tape, inputs, last)
        self.handles = Handles(tape, Layouts(tape, active.first, last))
        self.tangents: dict[int, Any] = {}
        for x, tangent in zip(inputs, tangents, strict=True):
            self.tangents[x._slot] = fitted(tangent, x._layout)
        needed = {y._slot for y in outputs}
        self.steps: list[tuple[int, Step]] = []
        for e in reversed(active.slots):
            if e in needed:
                step = read(tape, e)
                needed.update(s for s in step.operands if active[s])
                self.steps.append((e, step))

    def run(self) -> list[Any]:
        """Give the tangents of the outputs."""
        for e, step in reversed(self.steps):
            tangent = self._entry(e, step)
            if tangent is not None:
                self.tangents[e] = fitted(tangent, step.out)
        return [self.tangents.get(y._slot) for y in self.outputs]

    def _tensor(self, x: Any) -> Tensor:
        return x if isinstance(x, Tensor) else record.constant(self.tape, x)

    def _entry(self, e: int, step: Step) -> Any:
        tangents = [self.tangents.get(slot) for slot in step.operands]
        if all(t is None for t in tangents):
            return None
        if type(step.op) is Elementwise and step.kind != HOST:
            return self._elementwise(e, step, tangents)
        if step.kind == ELEMENT:
            return np.reshape(self._tensor(tangents[0]), -1)[step.offset]
        if step.kind == MOVE and step.op is index_op:
            parameters = {"offset": step.offset, "strides": step.parameters["strides"], "shape": step.out.shape}
            return window_op(tangents[0], **parameters)
        if step.kind == FILL:
            return self._fill(step, tangents)
        values = [self.handles[slot] for slot in step.operands]
        given = [
            t if t is None or isinstance(t, Tensor) else np.asarray(t, self.tape.layout(s).dtype)
            for t, s in zip(tangents, step.operands, strict=True)
        ]
        return pushed(step, given, self.handles[e], values)

    def _elementwise(self, e: int, step: Step, tangents: list[Any]) -> Any:
        total: Any = None
        for k, partial, reads, constant in slopes(step.op):
            tangent = tangents[k]
            if tangent is None:
                continue
            slope = constant
            if slope is None:
                slope = self.handles.evaluate(partial, reads, e, step.operands, step.layouts)
            part = product(tangent, slope, self.careful)
            if part is not None:
                total = part if total is None else total + part
        return total

    def _fill(self, step: Step, tangents: list[Any]) -> Any:
        depth = step.parameters["depth"]
        layout = step.out
        base = tangents[0] if tangents[0] is not None else np.zeros(layout.shape, layout.dtype)
        zero = np.zeros(layout.shape[depth:], layout.dtype)
        writes = {
            position(place, layout, depth): self._tensor(zero if t is None else t)
            for t, (place, _) in zip(tangents[1:], step.places[1:], strict=True)
        }
        return filled(self._tensor(base), depth, writes)
