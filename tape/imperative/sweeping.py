"""Backward passes over the tape of the tensors that a user holds.

A pass is one reverse sweep, stopped wherever somebody wants to know a gradient: the compiled sweep runs to where the
gradient is complete, hands it out, and goes on. So gradients of parameters come as soon as nothing is added to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tape.adjoints import Adjoints
from tape.compiled import CHECKED
from tape.errors import InvalidBackprop, was_cleared
from tape.imperative.hooks import hooked
from tape.layout import Layout
from tape.linked import depends_on_inputs, linked
from tape.machine import KEEP, adjoint_of
from tape.sweep import reach
from tape.tensor import Tensor
from tape.wengert import Tape
from tape.workspace import SMALL


class Pass(Adjoints):
    """One backward pass.

    Parameters
    ----------
    tape : Tape
    roots : list of Tensor
        Handles of the tape.
    variables : list of Variable
        The leaves whose gradients are wanted.
    kept : list of Tensor
        Handles whose gradients are wanted too.
    asked : bool
        Whether the handles were asked for by name.
    """

    def __init__(
        self, tape: Tape, roots: list[Any], variables: list[Any] | None, kept: list[Tensor], *, asked: bool = False
    ) -> None:
        last = max(t._slot for t in roots)
        self.slots: dict[int, tuple[Any, list[int]]] = {}
        chosen = None if variables is None else {id(v) for v in variables}
        for slot, v in tape.leaves.items():
            if slot <= last and slot in tape.inputs and v._state.requires_grad and (chosen is None or id(v) in chosen):
                self.slots.setdefault(id(v), (v, []))[1].append(slot)
        wanted = [at(tape, slot) for _, slots in self.slots.values() for slot in slots]
        if asked:
            # Whatever they depend on, their gradients are to be passed on to.
            wanted += [at(tape, slot) for slot in tape.inputs if slot <= last]
        cleared = [at(tape, slot) for slot in tape.cleared if slot <= last]
        super().__init__(tape, wanted + cleared, roots)
        self.kept = {t._slot: t for t in kept if t._slot <= last}
        self.gradients: dict[int, Any] = {}
        self.used = self.memory.last_use
        try:
            self.prepare()
            self._check(cleared)
        except BaseException:
            self.close()
            raise

    def _check(self, cleared: list[Tensor]) -> None:
        """Find what the roots depend on; raise if there is nothing, or something that was cleared."""
        first, last = self.first, self.last
        self.used[first : last + 1].fill(-1)
        for y in self.outputs:
            if y._slot >= first and self.active[y._slot]:
                self.used[y._slot] = y._slot
        reach(self.machine, first, last, True)
        for t in cleared:
            if self.used[t._slot] >= 0:
                raise was_cleared(f"of shape {t._layout.shape}")
        # What is depended on with a slope of zero everywhere has a gradient of zeros.
        self.flat: np.ndarray[Any, Any] | None = None
        slots = [s for _, slots in self.slots.values() for s in slots]
        if any(not self.depends(s) for s in (*slots, *(y._slot for y in self.outputs), *self.kept)):
            self.flat = linked(self.tape, [y._slot for y in self.outputs])
            for number, y in enumerate(self.outputs):
                if not self.depends(y._slot) and not depends_on_inputs(self.tape, y._slot):
                    raise no_gradient(number)

    def depends(self, slot: int) -> bool:
        """Tell whether the roots depend on a slot that has a gradient."""
        return self.first <= slot <= self.last and bool(self.used[slot] >= 0) and bool(self.active[slot])

    def _flat(self, slot: int) -> bool:
        """Tell whether the roots depend on a slot, but with a slope of zero everywhere."""
        return self.flat is not None and slot <= self.last and bool(self.flat[slot]) and not self.depends(slot)

    def reached(self) -> np.ndarray[Any, Any]:
        """Give for every slot of the tape whether it has a gradient and the roots depend on it."""
        found = np.zeros(self.tape.count, np.bool_)
        span = slice(self.first, self.last + 1)
        found[span] = (self.used[span] >= 0) & (self.active[span] != 0)
        return found

    def groups(self) -> list[tuple[Any, list[int]]]:
        """List the wanted variables that the roots depend on, with their slots."""
        found = [(v, [s for s in slots if self.used[s] >= 0]) for v, slots in self.slots.values()]
        return [(v, slots) for v, slots in found if slots]

    def _host(self, e: int) -> None:
        super()._host(e)
        self.refit()

    # ------------------------------------------------------------ running
    def stream(self, seeds: list[Any]) -> Iterator[tuple[Any, Any]]:
        """Sweep, and give each variable with its gradient as soon as that is complete."""
        if len(self.outputs) == 1 and self.last in self.kept and self.last not in self.tape.hooks:
            # Nothing can be added to the gradient of the only root.
            layout = self.kept.pop(self.last)._layout
            self.gradients[self.last] = np.array(seeds[0], layout.dtype)
        events = self._events()
        self._make_room()
        for y, seed in zip(self.outputs, seeds, strict=True):
            if self.depends(y._slot):
                self._deliver(y._slot, seed)
        e = self.last
        for place, slot, v in events:
            self.advance(e, place + 1)
            e = min(e, place)
            if v is None:
                self._pass_through(slot)
                e -= 1
            else:
                yield v, self._complete(v)
                self.refit()
        self.advance(e, self.first)
        for v, slots in self.slots.values():
            if any(map(self._flat, slots)) and not any(map(self.depends, slots)):
                yield v, np.zeros(v.shape, v.dtype)
        for slot, t in self.kept.items():
            if self._flat(slot) and depends_on_inputs(self.tape, slot):
                self.gradients[slot] = np.zeros(t.shape, t.dtype)

    def _events(self) -> list[tuple[int, int, Any]]:
        """List where to stop: before which entry, for which slot or variable; last first."""
        events: list[tuple[int, int, Any]] = []
        for v, slots in self.groups():
            first = min(int(self.used[s]) for s in slots)
            # A leaf that is itself a root is read by nobody.
            events.append((first if first in slots else first - 1, -1, v))
        stops = {s for s in (*self.kept, *self.tape.hooks) if self.depends(s) and s not in self.tape.leaves}
        events += [(s, s, None) for s in stops]
        events.sort(key=lambda event: event[:2], reverse=True)
        return events

    def _make_room(self) -> None:
        """Let large gradients be computed where they will stay. The sign says that nothing has been written there."""
        if CHECKED:
            return
        for t in (*self.wanted, *self.kept.values()):
            if t._layout.nbytes > SMALL and self.depends(t._slot):
                result = np.empty(t._layout.shape, t._layout.dtype)
                self.results[t._slot] = result
                self.addresses[t._slot] = -result.ctypes.data

    def _pass_through(self, slot: int) -> None:
        """Note the complete gradient of a slot, let hooks replace it, and process the entry."""
        layout = self.tape.layout(slot)
        hooks = self.tape.hooks.get(slot)
        if hooks:
            g = self.view(slot, layout)
            old = np.zeros(layout.shape, layout.dtype) if g is None else g.copy()
            new = hooked(hooks, old)
            self.refit()
            if new is not old:
                self._replace(slot, new)
        if slot in self.kept:
            self.gradients[slot] = self.gradient(at(self.tape, slot))
        if slot not in self.results:
            self.advance(slot, slot)
            return
        # Its memory is given away, so the sweep must not use it again.
        self.state[KEEP] = 1
        self.advance(slot, slot)
        self.state[KEEP] = 0
        self.addresses[slot] = 0
        del self.results[slot]

    def _replace(self, slot: int, new: Any) -> None:
        layout = self.tape.layout(slot)
        if layout.cell:
            self.cells[slot] = new
            return
        adjoint_of(self.machine, slot)
        target = self.view(slot, layout)
        assert target is not None
        target[...] = new

    def _complete(self, v: Any) -> Any:
        """Give the gradient of a variable: the sum over its leaves on the tape."""
        total: Any = None
        for slot in self.slots[id(v)][1]:
            if self.used[slot] >= 0:
                g = self.gradient(at(self.tape, slot))
                self.results.pop(slot, None)
                total = g if total is None else np.asarray(total + g)
        return hooked(v._state.hooks, total) if v._state.hooks else total


class Place:
    """A slot as sweeps are told it: no handle, so it neither keeps the slot alive nor refers to the tape."""

    __slots__ = ("_layout", "_slot", "_value")

    def __init__(self, slot: int, layout: Layout, value: Any = None) -> None:
        self._slot, self._layout, self._value = slot, layout, value


def at(tape: Tape, slot: int, value: Any = None) -> Any:
    """Give the place of a slot."""
    return Place(slot, tape.layout(slot), value)


def no_gradient(number: int) -> InvalidBackprop:
    """Make the error for a root that depends on nothing that requires a gradient."""
    return InvalidBackprop(
        f"element {number} of tensors does not require grad and does not have a grad_fn: it depends on no tensor that "
        "requires a gradient. Make the inputs with `tensor(data, requires_grad=True)`, and compute outside of no_grad()"
    )
