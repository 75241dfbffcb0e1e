"""Reverse mode as new entries: what a derivative inside a function that is being differentiated appends.

The entries from the outputs back to the inputs are walked, and for each the rule that its op declares is run on handles
of its operands. So the adjoints are recorded like anything else, and can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, prod
from typing import Any

import numpy as np

from ops.catalog import OPS, Elementwise
from ops.elementwise import scale
from ops.index import embed_op, index_op
from ops.shape import astype, fit_to
from tape import record
from tape.adjoints import pull
from tape.inplace import filled
from tape.instruction import ELEMENT, FILL, JOIN, MOVE
from tape.layout import Layout, contiguous_strides
from tape.machine import ACTIVE
from tape.memory import Sweep
from tape.reading import NUMBERS, Handles, Layouts, Step, read, slopes
from tape.tensor import Tensor
from tape.wengert import Tape
from tape.workspace import ARITY, SCALARS


class Marks:
    """Which slots depend on the wanted ones, up to the last one of a walk.

    Attributes
    ----------
    first : int
        The slot before which nothing does.
    marks : bytes
        For each slot from `first` on whether it does.
    slots : list of int
        The entries that do, without the wanted ones.
    """

    def __init__(self, tape: Tape, wanted: list[Tensor], last: int) -> None:
        sweep = Sweep(tape, wanted, last)
        marks = sweep.mark()
        self.first, self.marks = sweep.first, marks.tobytes()
        self.slots: list[int] = (np.flatnonzero(marks == ACTIVE) + sweep.first).tolist()
        sweep.close()

    def __getitem__(self, slot: int) -> bool:
        at = slot - self.first
        return 0 <= at < len(self.marks) and self.marks[at] != 0


Hooks = dict[int, Callable[[Any], Any]]
"""For some slots what is made of their whole adjoint before it is passed on."""


def pull_back(
    tape: Tape, wanted: list[Tensor], outputs: list[Tensor], cotangents: list[Any], hooks: Hooks | None = None
) -> list[Any]:
    """Append the adjoints of the wanted slots; give a value for each, or None where no output depends on it.

    A product of an infinite slope and an adjoint that is exactly 0 is 0. Such products are rare, and telling them from
    others costs time, so the walk is done again with care only if something came out that is not finite.
    """
    if not wanted or not outputs:
        return [None] * len(wanted)
    with np.errstate(all="ignore"):
        # Hooks are called once.
        if not hooks:
            found = _Walk(tape, wanted, outputs, cotangents, hooks, careful=False).run()
            if all_finite(found):
                return found
        return _Walk(tape, wanted, outputs, cotangents, hooks, careful=True).run()


def all_finite(found: list[Any]) -> bool:
    """Tell whether there is no infinite value or NaN."""
    return all(x is None or _finite(x._value if isinstance(x, Tensor) else x) for x in found)


def _finite(value: Any) -> bool:
    return isfinite(value) if type(value) is float else bool(np.isfinite(value).all())


def product(g: Any, slope: Any, careful: bool) -> Any:
    """Give an adjoint or tangent times a slope; None if the slope is 0 everywhere."""
    if type(slope) is Tensor:
        if type(g) is float and g == 1.0:
            return slope
        return scale(g, slope) if careful else g * slope
    if np.ndim(slope) == 0:
        if slope == 1:
            return g
        if slope == 0:
            return None
        slope = float(slope)
    return g * slope if np.all(np.isfinite(slope)) else scale(g, slope)


def fitted(x: Any, layout: Layout) -> Any:
    """Give a contribution the shape and dtype of the slot that it goes to."""
    x = fit_to(x, layout.shape)
    if isinstance(x, Tensor):
        return x if x._layout.dtype == layout.dtype else astype(x, layout.dtype)
    return float(x) if layout.cell else np.asarray(x, layout.dtype)


class _Walk:
    """One walk from the outputs back."""

    def __init__(
        self,
        tape: Tape,
        wanted: list[Tensor],
        outputs: list[Tensor],
        cotangents: list[Any],
        hooks: Hooks | None,
        *,
        careful: bool,
    ) -> None:
        self.tape, self.wanted, self.careful, self.hooks = tape, wanted, careful, hooks or {}
        last = max(y._slot for y in outputs)
        self.active = Marks(tape, wanted, last)
        # One wanted slot may depend on another.
        self.kept: dict[int, Any] = {w._slot: None for w in wanted}
        self.slots = sorted({*self.active.slots, *self.kept})
        self.layouts = Layouts(tape, self.active.first, last)
        self.handles = Handles(tape, self.layouts)
        for t in (*wanted, *outputs):
            if t._value is not None:
                self.handles.made[t._slot] = record.handle(tape, t._slot, t._value, t._layout)
        self.adjoints: dict[int, Any] = {}
        self.blocks: dict[tuple[int, int], dict[tuple[int, ...], Any]] = {}
        for y, cotangent in zip(outputs, cotangents, strict=True):
            if self.active[y._slot]:
                self._add(y._slot, cotangent)

    def run(self) -> list[Any]:
        """Give the adjoints of the wanted slots."""
        space, adjoints = self.tape.workspace, self.adjoints
        for e, (row, *operands) in zip(
            reversed(self.slots), reversed(space.entries[self.slots, :4].tolist()), strict=True
        ):
            g = self._take(e) if self.blocks else adjoints.pop(e, None)
            if g is None:
                continue
            if e in self.hooks:
                g = self.hooks[e](self._tensor(g))
            if e in self.kept:
                self.kept[e] = g
            op, layouts = (OPS[row], None) if row < SCALARS else space.details[row - SCALARS][:2]
            if type(op) is Elementwise and (layouts is None or space.table[row - SCALARS, ARITY] >= 0):
                self._elementwise(e, op, operands, layouts, g)
            else:
                self._entry(e, read(self.tape, e), g)
        return [self.kept[w._slot] for w in self.wanted]

    def _add(self, slot: int, contribution: Any) -> None:
        layout = self.layouts[slot]
        if type(contribution) is not Tensor or contribution._layout is not layout:
            contribution = fitted(contribution, layout)
        known = self.adjoints.get(slot)
        self.adjoints[slot] = contribution if known is None else known + contribution

    def _add_block(self, slot: int, key: tuple[int, ...], g: Any) -> None:
        """Add to one element or row of an adjoint. They are gathered, so that many of them cost linear time."""
        blocks = self.blocks.setdefault((slot, len(key)), {})
        known = blocks.get(key)
        blocks[key] = g if known is None else known + g

    def _take(self, slot: int) -> Any:
        """Give the whole adjoint of a slot; None if it has none."""
        layout = self.layouts[slot]
        for depth in range(1, layout.ndim + 1):
            blocks = self.blocks.pop((slot, depth), None)
            if blocks is not None:
                zeros = record.leaf_array(self.tape, np.zeros(layout.shape, layout.dtype))
                self._add(slot, filled(zeros, depth, {key: self._tensor(g) for key, g in blocks.items()}))
        return self.adjoints.pop(slot, None)

    def _tensor(self, x: Any) -> Tensor:
        return x if isinstance(x, Tensor) else record.constant(self.tape, x)

    # ------------------------------------------------------------ entries
    def _entry(self, e: int, step: Step, g: Any) -> None:
        if step.kind == ELEMENT or (step.kind == MOVE and step.op is index_op):
            self._view(step, g)
        elif step.kind == FILL:
            self._fill(step, g)
        elif step.kind == JOIN:
            self._join(step, g)
        else:
            self._structural(e, step, g)

    def _elementwise(self, e: int, op: Elementwise, operands: list[int], layouts: Any, g: Any) -> None:
        first, marks, adjoints = self.active.first, self.active.marks, self.adjoints
        layouts = layouts or NUMBERS[: op.nin]
        for k, partial, reads, constant in slopes(op):
            slot = operands[k]
            if slot < first or not marks[slot - first]:
                continue
            slope = self.handles.evaluate(partial, reads, e, operands, layouts) if constant is None else constant
            if type(slope) is Tensor and type(g) is Tensor and not self.careful:
                contribution = g * slope  # type: ignore[operator]
            elif constant == 1.0:
                contribution = g
            else:
                contribution = product(g, slope, self.careful)
                if contribution is None:
                    continue
            layout = self.layouts[slot]
            if type(contribution) is not Tensor or contribution._layout is not layout:
                contribution = fitted(contribution, layout)
            known = adjoints.get(slot)
            adjoints[slot] = contribution if known is None else known + contribution

    def _structural(self, e: int, step: Step, g: Any) -> None:
        g = g if isinstance(g, Tensor) else np.asarray(g, step.out.dtype)
        out = self.handles[e]
        values = [self.handles[slot] for slot in step.operands]
        for k, slot in enumerate(step.operands):
            if self.active[slot]:
                contribution = pull(step.op, k, g, out, tuple(values), step.parameters or {})
                if contribution is not None:
                    self._add(slot, contribution)

    def _view(self, step: Step, g: Any) -> None:
        """Undo a basic index: put the adjoint where its elements were taken from."""
        (slot,) = step.operands
        layout = self.layouts[slot]
        depth = leading(layout, step) if step.kind == MOVE else layout.ndim
        if depth:
            self._add_block(slot, position(step.offset, layout, depth), g)
            return
        g = g if isinstance(g, Tensor) else np.asarray(g, step.out.dtype)
        self._add(slot, embed_op(g, offset=step.offset, strides=step.parameters["strides"], shape=layout.shape))

    def _fill(self, step: Step, g: Any) -> None:
        g = self._tensor(g)
        layout = step.out
        depth = step.parameters["depth"]
        keys = [position(place, layout, depth) for place, _ in step.places[1:]]
        for slot, key in zip(step.operands[1:], keys, strict=True):
            if self.active[slot]:
                self._add(slot, g[key])
        if self.active[step.operands[0]]:
            zero = self._tensor(np.zeros(layout.shape[depth:], layout.dtype))
            self._add(step.operands[0], filled(g, depth, dict.fromkeys(keys, zero)))

    def _join(self, step: Step, g: Any) -> None:
        g = self._tensor(g)
        axis = step.parameters.get("axis")
        for slot, (place, _) in zip(step.operands, step.places, strict=True):
            if not self.active[slot]:
                continue
            if axis is None:
                self._add(slot, g[place])
                continue
            start = place // max(1, prod(step.out.shape[axis + 1 :]))
            length = self.layouts[slot].shape[axis]
            self._add(slot, g[(slice(None),) * axis + (slice(start, start + length),)])


def position(offset: int, layout: Layout, depth: int) -> tuple[int, ...]:
    """Give the leading indices of the element that stands `offset` elements after the first."""
    return tuple(int(i) for i in np.unravel_index(offset, layout.shape))[:depth]


def leading(layout: Layout, step: Step) -> int:
    """Give at how many leading axes a view stands at one index, if it holds all of the others; else 0."""
    shape = step.out.shape
    depth = layout.ndim - len(shape)
    whole = 0 < depth < layout.ndim and layout.shape[depth:] == shape and step.out.size > 0
    if whole and step.parameters["strides"] == contiguous_strides(shape, 1) and step.offset % step.out.size == 0:
        return depth
    return 0
