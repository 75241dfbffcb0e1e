"""The sweeps: compiled loops over the entries, last to first for adjoints and first to last for tangents.

Each entry whose adjoint is not zero passes it on to its operands. Adjoints of numbers stand in `cells`, one for each
slot; for an array the cell holds the address of its adjoint, 0 until a first contribution arrives. Memory of an adjoint
is given to later ones as soon as its entry has been processed. In a forward sweep tangents stand in the same places;
their memory is given on after their last use.
"""

from __future__ import annotations

from tape.compiled import call_pullback, compiled, float64s, inlined, int32s, int64s
from tape.instruction import ELEMENTWISE, HOST, MATMUL, RUN
from tape.machine import (
    ACTIVE,
    CELLS,
    COUNT,
    ENTRIES,
    KEEP,
    KINDS,
    MISSING,
    MISSING_SIZE,
    NEEDED,
    NUMBERS,
    PULLBACKS,
    PUSHFORWARDS,
    STATE,
    activity_of,
    adjoint_of,
    adjoints_of,
    cells_of,
    column,
    entry,
    last_uses,
    number_product,
    operand,
    operand_count,
    pool_of,
    release,
    word,
)
from tape.runs import LONG
from tape.workspace import BYTES, CELL, KIND, PLAN, READY, SCALARS


@compiled()
def activate(m, first, last):
    """Mark the slots that depend on a wanted one; give how many instructions lack a kernel (listed in the machine).

    The machine is told the bytes that their adjoints need, and the kinds of instruction met, a bit for each.
    """
    active = activity_of(m)
    entries = int32s(word(m, ENTRIES), 6 * word(m, COUNT))
    numbers = int64s(word(m, NUMBERS), 4 * SCALARS)
    count = 0
    needed = 0
    kinds = 0
    for e in range(first, last + 1):
        instruction = entries[6 * e]
        row = instruction - SCALARS
        if active[e] != 0:
            if row >= 0:
                needed += column(m, row, BYTES)
            continue
        if row < 0:
            bits = numbers[4 * instruction + 2]
            on = (bits & 1 != 0 and active[entries[6 * e + 1]] != 0) or (
                bits & 2 != 0 and active[entries[6 * e + 2]] != 0
            )
            if not on:
                continue
            active[e] = ACTIVE
            ready = numbers[4 * instruction + 3]
        else:
            kind = column(m, row, KIND)
            if kind == 0 or not _operand_active(m, e):
                continue
            active[e] = ACTIVE
            kinds |= 1 << kind
            needed += column(m, row, BYTES)
            if kind == MATMUL:
                needed += pool_of(m)[column(m, row, PLAN) + 8]
            elif kind == ELEMENTWISE and pool_of(m)[column(m, row, PLAN) + 1] >= LONG:
                kinds |= 1 << RUN
            ready = column(m, row, READY)
        if ready == 0:
            count = _note_missing(m, count, instruction)
    int64s(m, STATE)[NEEDED] = needed
    int64s(m, STATE)[KINDS] = kinds
    return count


@compiled()
def mark(m, first, last):
    """Mark the slots from `first` on that depend on a wanted one; what comes before is constant, whatever it is."""
    active = activity_of(m)
    numbers = int64s(word(m, NUMBERS), 4 * SCALARS)
    for e in range(first, last + 1):
        if active[e] != 0:
            continue
        instruction = entry(m, e, 0)
        bits = -1 if instruction >= SCALARS else numbers[4 * instruction + 2]
        if instruction >= SCALARS and column(m, instruction - SCALARS, KIND) == 0:
            continue
        for k in range(operand_count(m, e)):
            slot = operand(m, e, k)
            if bits >> k & 1 != 0 and slot >= first and active[slot] != 0:
                active[e] = ACTIVE


@inlined
def _operand_active(m, e):
    active = activity_of(m)
    for k in range(operand_count(m, e)):
        if active[operand(m, e, k)] != 0:
            return True
    return False


@inlined
def _note_missing(m, count, instruction):
    missing = int32s(word(m, MISSING), MISSING_SIZE)
    for k in range(count):
        if missing[k] == instruction:
            return count
    if count < MISSING_SIZE:
        missing[count] = instruction
        count += 1
    return count


@compiled()
def reset(m, first, last):
    """Clear adjoints and activity of the slots from `first` to `last`."""
    cells, active = cells_of(m), activity_of(m)
    for e in range(first, last + 1):
        cells[e] = 0.0
        active[e] = 0


@compiled()
def sweep(m, start, stop):
    """Process the entries from `start` down to `stop`; give the first one that Python must do itself, or -1."""
    cells, active = cells_of(m), activity_of(m)
    entries = int32s(word(m, ENTRIES), 6 * word(m, COUNT))
    values = float64s(word(m, ENTRIES), 3 * word(m, COUNT))
    numbers = int64s(word(m, NUMBERS), 4 * SCALARS)
    e = start
    while e >= stop:
        if active[e] != ACTIVE:
            e -= 1
            continue
        instruction = entries[6 * e]
        if instruction >= SCALARS:
            following = _array_entry(m, e, instruction - SCALARS, stop)
            if following == e:
                return e
            e = following
            continue
        g = cells[e]
        if g != 0.0:
            a, b = entries[6 * e + 1], entries[6 * e + 2]
            x, y, out = values[3 * a + 2], values[3 * b + 2], values[3 * e + 2]
            first, second = numbers[4 * instruction], numbers[4 * instruction + 1]
            if active[a] != 0:
                cells[a] += number_product(g, first, x, y, out)
            if active[b] != 0:
                cells[b] += number_product(g, second, x, y, out)
        e -= 1
    return -1


@inlined
def _array_entry(m, e, row, stop):
    """Process an entry on arrays, or the run that ends with it; give the entry to go on with, e itself for Python's."""
    cell = column(m, row, CELL) != 0
    if cell:
        if cells_of(m)[e] == 0.0:
            return e - 1
        adjoint = word(m, CELLS) + 8 * e
    else:
        adjoint = adjoints_of(m)[e]
        if adjoint == 0:
            return e - 1
    kind = column(m, row, KIND)
    if kind == HOST:
        return e
    if kind == ELEMENTWISE and pool_of(m)[column(m, row, PLAN) + 1] >= LONG and word(m, KEEP) == 0:
        kind = RUN
    pullback = int64s(word(m, PULLBACKS), 16)[kind]
    following = call_pullback(pullback, m, e, row, adjoint, stop)
    if not cell:
        release(m, e, row)
    return following


# ---------------------------------------------------------------- forwards
@compiled()
def reach(m, first, last, earliest):
    """Leave active only what an output depends on (its last use is set), and note the last use of each slot.

    With `earliest` the first use is noted in its place.

    Gives the kinds of instruction that are left, a bit for each.
    """
    active, last_use = activity_of(m), last_uses(m)
    kinds = 0
    for e in range(last, first - 1, -1):
        if active[e] == 0:
            continue
        if last_use[e] < 0:
            if active[e] == ACTIVE:
                active[e] = 0
            continue
        if active[e] == ACTIVE:
            for k in range(operand_count(m, e)):
                slot = operand(m, e, k)
                if active[slot] != 0 and (earliest or last_use[slot] < 0):
                    last_use[slot] = e
            row = entry(m, e, 0) - SCALARS
            if row >= 0:
                kinds |= 1 << column(m, row, KIND)
    return kinds


@compiled()
def push(m, start, stop):
    """Compute the tangents of the entries from `start` to `stop`; give the first one that Python must do, or -1."""
    cells, active = cells_of(m), activity_of(m)
    entries = int32s(word(m, ENTRIES), 6 * word(m, COUNT))
    values = float64s(word(m, ENTRIES), 3 * word(m, COUNT))
    numbers = int64s(word(m, NUMBERS), 4 * SCALARS)
    for e in range(start, stop + 1):
        if active[e] != ACTIVE:
            continue
        instruction = entries[6 * e]
        if instruction >= SCALARS:
            if not _push_array(m, e, instruction - SCALARS, stop):
                return e
            continue
        a, b = entries[6 * e + 1], entries[6 * e + 2]
        x, y, out = values[3 * a + 2], values[3 * b + 2], values[3 * e + 2]
        first, second = numbers[4 * instruction], numbers[4 * instruction + 1]
        tangent = 0.0
        if active[a] != 0:
            tangent += number_product(cells[a], first, x, y, out)
        if active[b] != 0:
            tangent += number_product(cells[b], second, x, y, out)
        cells[e] = tangent
    return -1


@inlined
def _push_array(m, e, row, stop):
    """Compute the tangent of an entry on arrays; tell whether there is compiled code for it."""
    pushforward = int64s(word(m, PUSHFORWARDS), 16)[column(m, row, KIND)]
    if pushforward == 0:
        return False
    if column(m, row, CELL) != 0:
        tangent = word(m, CELLS) + 8 * e
    else:
        tangent, _ = adjoint_of(m, e)
    call_pullback(pushforward, m, e, row, tangent, stop)
    release_operands(m, e)
    return True


@compiled()
def release_operands(m, e):
    """Hand on the memory of the tangents that entry e was the last to use."""
    for k in range(operand_count(m, e)):
        slot = operand(m, e, k)
        if activity_of(m)[slot] == ACTIVE and last_uses(m)[slot] == e:
            row = entry(m, slot, 0) - SCALARS
            if row >= 0 and column(m, row, CELL) == 0 and adjoints_of(m)[slot] > 0:
                release(m, slot, row)
