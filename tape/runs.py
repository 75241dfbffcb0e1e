"""Runs: neighbouring elementwise entries over large arrays of one size, swept block by block.

Entry by entry, every adjoint would travel to memory and back. In a run all entries are processed for one block of
elements before the next block begins. The adjoint of a slot that only the run itself uses then never needs more than a
block of memory, which stays in the cache.
"""

from __future__ import annotations

import numpy as np

from tape.blocks import BLOCK, zero_bytes
from tape.compiled import inlined
from tape.instruction import ELEMENTWISE
from tape.layout import FLOAT32
from tape.machine import (
    ACTIVE,
    SCRATCH,
    activity_of,
    adjoint_of,
    adjoints_of,
    column,
    entry,
    pool_of,
    release,
    word,
)
from tape.pullbacks import contribute, pull_elementwise, repeats
from tape.workspace import ARITY, EXTENT, KERNEL, KIND, PLAN, SCALARS

LONG = 4 * BLOCK
"""Arrays from this size on are swept in runs."""

SPAN = 256
"""The most entries that a run looks back over."""

BUFFERS = 64
"""The most entries in a run: each may need a block of memory."""

OUTSIDE, INSIDE, WHOLE = range(3)
"""Where a run finds an adjoint: not of the run, in a block of its own, or in full (something outside used it too)."""


_pull_elementwise = inlined(pull_elementwise)


def pull_run(m, e, row, g, stop):
    """Process the run that ends with entry e, or e alone: a pullback like those of `tape.pullbacks`."""
    low = _run_of(m, e, stop)
    if low == e:
        return _pull_elementwise(m, e, row, g, stop)
    _sweep_run(m, e, low)
    # The sweep releases the adjoint of the entry that it called this for; the others are released there.
    return low - 1


@inlined
def _run_of(m, e, stop):
    """Give the first slot of the run that ends with entry e."""
    plan = column(m, entry(m, e, 0) - SCALARS, PLAN)
    size, code = pool_of(m)[plan + 1], pool_of(m)[plan + 2]
    low = e
    members = 1
    for slot in range(e - 1, max(stop, e - SPAN) - 1, -1):
        if activity_of(m)[slot] != ACTIVE:
            continue
        row = entry(m, slot, 0) - SCALARS
        if row < 0 or column(m, row, KIND) != ELEMENTWISE:
            break
        plan = column(m, row, PLAN)
        if pool_of(m)[plan + 1] != size or pool_of(m)[plan + 2] != code:
            break
        low = slot
        members += 1
        if members == BUFFERS:
            break
    return low


@inlined
def _sweep_run(m, high, low):
    """Process the entries of a run, `high` down to `low`."""
    span = high - low + 1
    # For each slot: where its adjoint is; the address; for each operand of it, the same.
    kind = np.zeros(span, np.int64)
    place = np.zeros(span, np.int64)
    live = np.zeros(span, np.int64)
    target = np.zeros((span, 3), np.int64)
    fresh = np.zeros((span, 3), np.int64)
    _survey(m, high, low, kind, place)
    _connect(m, high, low, kind, place, live, target, fresh)
    size = pool_of(m)[column(m, entry(m, high, 0) - SCALARS, PLAN) + 1]
    for start in range(0, size, BLOCK):
        n = min(BLOCK, size - start)
        for e in range(high, low - 1, -1):
            if live[e - low] != 0:
                _step(m, e, low, start, n, kind, place, target, fresh)
    for e in range(high - 1, low - 1, -1):
        if kind[e - low] == WHOLE:
            release(m, e, entry(m, e, 0) - SCALARS)


@inlined
def _survey(m, high, low, kind, place):
    """Note for each entry of the run where its adjoint is."""
    buffer = word(m, SCRATCH) + 5 * 8 * BLOCK
    for e in range(high, low - 1, -1):
        row = entry(m, e, 0) - SCALARS
        if activity_of(m)[e] != ACTIVE or row < 0 or column(m, row, KIND) != ELEMENTWISE:
            continue
        if adjoints_of(m)[e] != 0:
            kind[e - low], place[e - low] = WHOLE, adjoints_of(m)[e]
        else:
            kind[e - low], place[e - low] = INSIDE, buffer
            buffer += 8 * BLOCK


@inlined
def _connect(m, high, low, kind, place, live, target, fresh):
    """Find which entries the output reaches, and for each operand its adjoint and whether this write is the first."""
    filled = np.zeros(high - low + 1, np.int64)
    for e in range(high, low - 1, -1):
        at = e - low
        if kind[at] == OUTSIDE or (kind[at] == INSIDE and filled[at] == 0):
            continue
        live[at] = 1
        row = entry(m, e, 0) - SCALARS
        for k in range(column(m, row, ARITY)):
            slot = entry(m, e, 1 + k)
            if column(m, row, KERNEL + k) == 0 or activity_of(m)[slot] == 0:
                continue
            if slot >= low and kind[slot - low] != OUTSIDE:
                target[at, k] = place[slot - low]
                fresh[at, k] = 1 if kind[slot - low] == INSIDE and filled[slot - low] == 0 else 0
                filled[slot - low] = 1
                continue
            address, new = adjoint_of(m, slot)
            repeated = repeats(m, row, k)
            if new and repeated:
                zero_bytes(address, column(m, entry(m, slot, 0) - SCALARS, EXTENT))
            target[at, k] = address
            fresh[at, k] = 1 if new and not repeated else 0


@inlined
def _step(m, e, low, start, n, kind, place, target, fresh):
    """Process one block of one entry."""
    row = entry(m, e, 0) - SCALARS
    at = start * (4 if pool_of(m)[column(m, row, PLAN) + 2] == FLOAT32 else 8)
    g = place[e - low] + (at if kind[e - low] == WHOLE else 0)
    for k in range(column(m, row, ARITY)):
        into = target[e - low, k]
        if into == 0:
            continue
        slot = entry(m, e, 1 + k)
        inside = slot >= low and kind[slot - low] == INSIDE
        if not inside and not repeats(m, row, k):
            into += at
        contribute(m, e, row, k, start, n, g, into, fresh[e - low, k] != 0)
