"""Pruning: dropping from a tape, in place, what its live handles do not need.

The entries that are needed move down to consecutive slots; values stay where they are, since handles hold views of
them. Chunks, buffers and arrays in which no needed value lies go back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.catalog import LEAF, OPS, Elementwise
from tape import instruction
from tape.call import Call, Reference
from tape.compiled import compiled
from tape.constants import unlock
from tape.inplace import Filling
from tape.instruction import ELEMENT, FILL, JOIN
from tape.layout import Layout
from tape.tensor import Tensor
from tape.wengert import Tape
from tape.workspace import ARITY, CHUNK, ENTRY, KIND, RETAINED, SCALARS

# Past the properties of handles that are written to or outdated: nothing may be recorded meanwhile.
_slot_of, _move_handle = Tensor.__dict__["_slot"].__get__, Tensor.__dict__["_slot"].__set__
_BY_SLOT = ("leaves", "saved", "hooks", "gradients", "lines")
"""Dictionaries of a tape whose keys are slots."""


def prune(tape: Tape, handles: list[Tensor], cut: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
    """Keep only what handles need.

    Parameters
    ----------
    tape : Tape
    handles : list of Tensor
        All handles of the tape; their slots are renumbered. Those of gathered writes need not be listed.
    cut : ndarray of bool, optional
        For each slot whether it becomes a leaf if it is needed: what it was computed from is then not needed for it.

    Returns
    -------
    ndarray of int
        For each old slot the new one, -1 if it was dropped.
    """
    space, count = tape.workspace, tape.count
    entries = space.entries[:count]
    cut = np.zeros(count, np.bool_) if cut is None else cut
    needed = np.zeros(count, np.bool_)
    handles = _with_pending(handles)
    needed[[_slot_of(t) for t in handles]] = True
    arities, kinds = (np.ascontiguousarray(space.table[:, column]) for column in (ARITY, KIND))
    find_needed(entries, arities, kinds, space.operands, arities_of_numbers(), cut, needed)
    new = np.where(needed, np.cumsum(needed) - 1, -1)
    # Where the values stand must be known before the entries move.
    memory = _Memory(tape, np.flatnonzero(needed))
    for slot in np.flatnonzero(needed & cut).tolist():
        _make_leaf(tape, slot)
    arities, kinds = (np.ascontiguousarray(space.table[:, column]) for column in (ARITY, KIND))
    space.operands_used = int(move_entries(entries, arities, kinds, space.operands, new))
    tape.count = int(needed.sum())
    _renumber(tape, handles, new)
    memory.give_back(tape)
    return new


def _with_pending(handles: list[Tensor]) -> list[Tensor]:
    """List each handle once, and those of the writes that it gathers: one may be so new that nobody listed it."""
    found = {id(t): t for t in handles}
    for t in handles:
        if type(t) is Filling:
            found.update((id(written), written) for written in t._pending[1].values())
    return list(found.values())


def arities_of_numbers() -> np.ndarray[Any, Any]:
    """Give for each opcode how many numbers it takes."""
    return np.array([op.nin if isinstance(op, Elementwise) else 0 for op in OPS[:SCALARS]], np.int64)


@compiled()
def find_needed(entries: Any, arities: Any, kinds: Any, operands: Any, of_numbers: Any, cut: Any, needed: Any) -> None:
    """Mark the operands of what is needed, and theirs; cut entries need none."""
    for e in range(len(entries) - 1, -1, -1):
        if not needed[e] or cut[e]:
            continue
        row = entries[e, 0]
        arity = of_numbers[row] if row < SCALARS else arities[row - SCALARS]
        for k in range(arity):
            needed[entries[e, 1 + k]] = True
        if arity < 0:
            kind = kinds[row - SCALARS]
            step = 2 if kind == FILL else 3 if kind == JOIN else 1
            start = entries[e, 1]
            for k in range(operands[start]):
                needed[operands[start + 1 + k * step]] = True


@compiled()
def move_entries(entries: Any, arities: Any, kinds: Any, operands: Any, new: Any) -> int:
    """Move entries down to their new slots, and their operands in the pool; give where the pool ends."""
    end = 0
    for e in range(len(entries)):
        slot = new[e]
        if slot < 0:
            continue
        for k in range(6):
            entries[slot, k] = entries[e, k]
        row = entries[slot, 0]
        if row < SCALARS:  # both operands name a slot, even if the op takes fewer
            for k in range(1, 3):
                to = new[entries[slot, k]]
                entries[slot, k] = slot if to < 0 else to
            continue
        arity, kind = arities[row - SCALARS], kinds[row - SCALARS]
        for k in range(arity):
            entries[slot, 1 + k] = new[entries[slot, 1 + k]]
        if kind == ELEMENT:
            entries[slot, 2] = entries[slot, 1]
        if arity < 0:
            step = 2 if kind == FILL else 3 if kind == JOIN else 1
            start, entries[slot, 1] = entries[slot, 1], end
            count = operands[start]
            for k in range(1 + count * step):
                operands[end + k] = operands[start + k]
            for k in range(count):
                operands[end + 1 + k * step] = new[operands[end + 1 + k * step]]
            end += 1 + count * step
    return end


def _make_leaf(tape: Tape, slot: int) -> None:
    # What its pullbacks would have needed, a call or arrays, is not to be kept alive.
    tape.saved.pop(slot, None)
    layout = tape.layout(slot)
    entry = tape.workspace.entries[slot]
    if layout.cell:
        entry[:4] = LEAF.code, slot, slot, 0
    else:
        entry[:4] = instruction.leaf(tape.workspace, layout), -1, -1, -1


def _renumber(tape: Tape, handles: list[Tensor], new: np.ndarray[Any, Any]) -> None:
    for t in handles:
        _move_handle(t, int(new[_slot_of(t)]))
    for name in _BY_SLOT:
        old = getattr(tape, name)
        setattr(tape, name, {int(new[slot]): x for slot, x in old.items() if new[slot] >= 0})
    for name in ("inputs", "cleared"):
        setattr(tape, name, {int(new[slot]) for slot in getattr(tape, name) if new[slot] >= 0})
    tape.constants = {value: int(new[slot]) for value, slot in tape.constants.items() if new[slot] >= 0}
    tape.weak = {value: (a, int(new[slot])) for value, (a, slot) in tape.weak.items() if new[slot] >= 0}
    tape.plain = {key: (int(new[slot]), *rest) for key, (slot, *rest) in tape.plain.items() if new[slot] >= 0}


# ---------------------------------------------------------------- memory
def _span(layout: Layout) -> int:
    """Give how far before its first element a value begins."""
    return -sum(min(0, s * (n - 1)) for s, n in zip(layout.strides, layout.shape, strict=True))


class _Memory:
    """Where the values lie that are needed."""

    def __init__(self, tape: Tape, slots: np.ndarray[Any, Any]) -> None:
        entries, details = tape.workspace.entries, tape.workspace.details
        rows = entries[slots, 0]
        spans = np.full(len(details) + 1, -1, np.int64)
        for row in np.unique(rows[rows >= SCALARS]) - SCALARS:
            layout = details[row][2]
            if not layout.cell and layout.size:
                spans[row] = _span(layout)
        before = spans[np.where(rows >= SCALARS, rows - SCALARS, len(details))]
        arrays = before >= 0
        addresses = np.ascontiguousarray(entries[slots[arrays], 4:6]).view(np.int64).reshape(-1)
        self.starts = np.sort(addresses - before[arrays])

    def has(self, low: int, nbytes: int) -> bool:
        """Tell whether a needed value lies in a piece of memory."""
        at = int(np.searchsorted(self.starts, low))
        return at < len(self.starts) and int(self.starts[at]) < low + max(nbytes, 1)

    def give_back(self, tape: Tape) -> None:
        """Hand on the memory of a tape that nothing needs."""
        space = tape.workspace
        tape.unused = [
            k
            for k, (_, base) in enumerate(space.chunks[: tape.taken])
            if k != tape.chunk_index and not self.has(base, CHUNK)
        ]
        if tape.chunk_index >= 0 and not self.has(tape.base, CHUNK):
            tape.top = 0
        kept = []
        for block in reversed(tape.released):
            if self.has(block[1], len(block[0])):
                kept.append(block)
            else:
                space.large.setdefault(len(block[0]), []).append(block)
                space.large_bytes += len(block[0])
        tape.released = kept[::-1]
        if space.large_bytes > RETAINED:  # arrays of ever other sizes find no buffer of theirs
            space.large.clear()
            space.large_bytes = 0
        calls = {id(call) for detail, *_ in tape.saved.values() for call in _calls(detail[3])}
        tape.keep = [x for x in tape.keep if (id(x) in calls if isinstance(x, Call) else self._uses(x))]
        self._unlock(tape)
        chunks = (tape.taken - len(tape.unused)) * CHUNK
        arrays = sum(x.nbytes for x in tape.keep if isinstance(x, np.ndarray))
        tape.bytes = tape.count * ENTRY + chunks + arrays + sum(len(block) for block, _ in tape.released)

    def _uses(self, x: Any) -> bool:
        if not isinstance(x, np.ndarray):
            return True
        low, high = np.lib.array_utils.byte_bounds(x)
        return self.has(low, high - low)

    def _unlock(self, tape: Tape) -> None:
        """Let plain arrays be written to that no value refers to any more."""
        gone = {key: link for key, link in tape.locked.items() if not self._uses(link)}
        for key in gone:
            del tape.locked[key]
        unlock(gone)
        tape.samples = [pair for pair in tape.samples if self._uses(pair[0])]


def _calls(parameters: Any) -> list[Call]:
    return [x() for x in (parameters or {}).values() if isinstance(x, Reference)]
