"""How long things live: which handles of a tape there are, pruning a tape, and clearing the part that was used up.

A tape does not know its handles; each of them refers to it. So how many there are is told by the tape's reference
count, and which ones by Python's garbage collector, that knows all objects, young ones apart from old ones: those of
the step under way are nearly always among the few young ones.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tape.adjoint import Marks
from tape.constants import unlock
from tape.imperative.storage import Storage
from tape.imperative.variable import State, Variable
from tape.inplace import Filling, Stale
from tape.prune import prune
from tape.record import handle
from tape.tensor import Tensor
from tape.wengert import BUDGET, CROWDED, Tape
from tape.workspace import SMALL

_KINDS = {Tensor, Stale, Filling}


def _count(tape: Any) -> int:
    return sys.getrefcount(tape)


class _NoTape:
    """Has no handles."""


def _others() -> int:
    def inner(tape: Any) -> int:
        return _count(tape)

    tape = _NoTape()
    return inner(tape)


_OTHERS = _others()
"""What `live` counts of a tape without handles: the local variables of its caller, its own, and of the count."""


def live(tape: Tape, known: Sequence[Tensor] = ()) -> list[Tensor]:
    """Find all handles of a tape, of which some are known; it is noted on the tape if there may be others."""
    expected = _count(tape) - _OTHERS
    # By identity: an object may grow older meanwhile, and be met again.
    # Those that had to be searched for among old objects are remembered.
    found = {id(t): t for t in known}
    if tape.old:
        found |= {id(t): t for reference in tape.old if _is_of(t := reference(), tape)}
    if len(found) == expected:
        return list(found.values())
    for generation in (0, 1, 2):
        # The youngest objects come last.
        for t in reversed(gc.get_objects(generation)):
            if type(t) in _KINDS and getattr(t, "_tape", None) is tape:
                found[id(t)] = t
                if len(found) == expected:
                    tape.old = [weakref.ref(t) for t in found.values()] if generation == 2 else tape.old
                    return list(found.values())
    tape.old = [weakref.ref(t) for t in found.values()]
    tape.unknown = _unexplained(tape) > len(found)
    return list(found.values())


def _is_of(t: Any, tape: Tape) -> bool:
    return type(t) in _KINDS and getattr(t, "_tape", None) is tape


def _unexplained(tape: Tape) -> int:
    """Count the references to a tape that are neither local variables nor held by objects which are no handles."""
    count = sys.getrefcount(tape) - 1
    for holder in gc.get_referrers(tape):
        if type(holder) not in _KINDS:
            count -= _times(gc.get_referents(holder), tape)
    frame: Any = sys._getframe()
    while frame is not None:
        code = frame.f_code
        # What a nested function uses is held by a cell, which is among the holders.
        names = set(code.co_varnames) - set(code.co_cellvars)
        count -= _times([x for name, x in frame.f_locals.items() if name in names], tape)
        frame = frame.f_back
    return count


def _times(values: list[Any], tape: Tape) -> int:
    count = 0
    for x in values:
        count += x is tape
    return count


def relieve(tape: Tape) -> None:
    """Prune a tape that has grown, and let it grow again to twice of what is left."""
    tape.free(CROWDED)
    handles = live(tape)
    if tape.unknown:
        tape.budget = 2 * tape.bytes
        return
    settle(handles)
    _prune(tape, handles, None)
    tape.free(CROWDED)


def _prune(tape: Tape, handles: list[Tensor], cut: Any) -> np.ndarray[Any, Any]:
    # A leaf that was written to stands on the tape more than once.
    leaves = {id(v): v for v in tape.leaves.values()}
    new = prune(tape, handles, cut)
    for v in leaves.values():
        known = v._state.attached.pop(tape.serial, None)
        if known is not None and new[known[1]] >= 0:
            v._state.attached[tape.serial] = known[0], int(new[known[1]]), *known[2:]
    tape.budget = max(BUDGET, 2 * tape.bytes)
    return new


def settle(handles: list[Tensor]) -> None:
    """Carry out gathered writes, and take views again whose base was written to."""
    for t in handles:
        if type(t) is not Tensor:
            t._slot  # noqa: B018  (reading it does)


# ---------------------------------------------------------------- clearing
class Clearing:
    """What a pass leaves of a tape: told before the sweep, carried out after it.

    Parameters
    ----------
    tape : Tape
    handles : list of Tensor
        All handles of the tape.
    depends : callable
        Tells whether the pass goes over a slot.
    reached : callable
        Gives for every slot whether the pass goes over it.
    """

    def __init__(
        self,
        tape: Tape,
        handles: list[Tensor],
        depends: Callable[[int], bool],
        reached: Callable[[], np.ndarray[Any, Any]],
    ) -> None:
        self.tape = tape
        self.over: list[Tensor] = []
        rest: list[Tensor] = []
        for t in handles:
            if isinstance(t, Variable):  # another pass, inside of this one, has cleared it
                continue
            (self.over if depends(t._slot) or t._slot in tape.leaves else rest).append(t)
        self.left = _survivors(tape, rest) if rest else []
        self.constant = [t for t in rest if not any(t is other for other in self.left)] if self.left else rest
        self.cut = reached() if self.left else None

    def carry_out(self, gradients: dict[int, Any]) -> None:
        """Let the handles that were gone over keep their values and gradients, and end the tape if it can."""
        tape = self.tape
        blocks = [(address, address + len(block), k) for k, (block, address) in enumerate(tape.released)]
        taken: set[int] = set()
        # A base comes before its views.
        over = self.over if len(self.over) < 2 else sorted(self.over, key=_depth)
        for t in over:
            _release(t, True, gradients.get(t._slot), blocks, taken)
        for t in self.constant:
            _release(t, False, None, blocks, taken)
        if taken:
            tape.released = [block for k, block in enumerate(tape.released) if k not in taken]
        if tape.pinned:  # by a pass around this one, which will do the rest
            return
        if not self.left or tape.unknown:
            tape.close()
            return
        assert self.cut is not None
        cut = np.zeros(tape.count, np.bool_)
        cut[: len(self.cut)] = self.cut
        cut[list(tape.leaves)] = False
        new = _prune(tape, self.left, cut)
        tape.cleared.update(int(s) for s in new[np.flatnonzero(cut)] if s >= 0)


def _survivors(tape: Tape, rest: list[Tensor]) -> list[Tensor]:
    """List the handles through which something could still be propagated."""
    wanted = [handle(tape, slot, None, tape.layout(slot)) for slot in (*tape.inputs, *tape.cleared)]
    if not wanted:
        return []
    marks = Marks(tape, wanted, max(t._slot for t in rest))
    return [t for t in rest if marks[t._slot]]


def _depth(t: Any) -> int:
    """Tell how many bases a view has."""
    count = 0
    while (base := getattr(t, "_base", None)) is not None:
        t = base[0]
        count += 1
    return count


def _release(t: Any, over: bool, gradient: Any, blocks: list[tuple[int, int, int]], taken: set[int]) -> None:
    """Make a handle a tensor with memory of its own.

    `over`: a pass has gone over it, so that nothing can be propagated through it any more.
    """
    base = getattr(t, "_base", None)
    array, storage = _memory(t, base, blocks, taken)
    state = State(array, over, storage, cleared=over)
    state.grad = gradient
    become(t, state)


def become(t: Any, state: State) -> None:
    """Make a handle a tensor with memory of its own."""
    for name in ("_tape", "_slot", "_value", "_pending"):
        if hasattr(t, name):
            Tensor.__dict__[name].__delete__(t)
    t.__class__ = Variable
    t._state = state
    state.tensor = weakref.ref(t)


def _memory(t: Any, base: Any, blocks: list[tuple[int, int, int]], taken: set[int]) -> tuple[Any, Storage | None]:
    if base is not None and isinstance(base[0], Variable):
        seen = base[1][0](base[0]._state.array)
        if isinstance(seen, np.ndarray) and np.may_share_memory(seen, base[0]._state.array):
            return seen, base[0]._state.storage
    value = t._value
    layout = t._layout
    if layout.cell or layout.nbytes <= SMALL or not layout.dense:
        return np.array(value, layout.dtype), None
    address = value.ctypes.data
    for low, high, k in blocks:
        if low <= address < high:
            taken.add(k)
    return value, None


def let_go(tape: Tape, v: Any) -> None:
    """Let a variable be written to: what is left of the pass needs its value no more."""
    state = v._state
    state.attached.pop(tape.serial, None)
    if not tape.locked:
        return
    array = state.array
    chain: dict[int, Any] = {}
    while isinstance(array, np.ndarray):
        if tape.locked.pop(id(array), None) is not None:
            chain[id(array)] = array
        array = array.base
    unlock(chain)
    tape.samples = [(a, s) for a, s in tape.samples if a is not state.array]
