"""Many sweeps over one tape: the rows of a Jacobian by reverse sweeps, its columns by forward ones.

The loop over the seeds is compiled too, and each sweep writes its result where it will stay. A *port* tells where a
sweep begins or ends: slot, whether its value is a number, elements, bytes of an element, address of the results.
"""

# The compiled functions take integers, most of them addresses, and are typed by numba.
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from tape.blocks import copy_bytes, zero_bytes
from tape.compiled import compiled, float32s, float64s, inlined, int64s
from tape.machine import (
    ACTIVE,
    HEADS_SIZE,
    STATE,
    TOP,
    activity_of,
    adjoint_of,
    adjoints_of,
    cells_of,
    heads_of,
    word,
)
from tape.second import sweep_second
from tape.sweep import push, sweep

PORT = 5
"""Numbers that tell a port."""


@inlined
def _clear(m, first, last, top):
    """Forget the adjoints of a sweep."""
    active, cells = activity_of(m), cells_of(m)
    for e in range(first, last + 1):
        if active[e] == ACTIVE:
            cells[e] = 0.0
    heads = heads_of(m)
    for k in range(word(m, HEADS_SIZE)):
        heads[k] = 0
    int64s(m, STATE)[TOP] = top


@inlined
def _write(address, size, i, value):
    if size == 4:
        float32s(address + 4 * i, 1)[0] = value
    else:
        float64s(address + 8 * i, 1)[0] = value


@inlined
def _seed(m, ports, count, row, seeds, total):
    """Put a seed into the ports: of a row of seeds, or 1 in the element whose number is the row's if there are none.

    Gives whether something was put anywhere.
    """
    start = 0
    found = False
    for k in range(count):
        slot, cell, size, width = ports[PORT * k], ports[PORT * k + 1], ports[PORT * k + 2], ports[PORT * k + 3]
        unit = seeds == 0
        if activity_of(m)[slot] != 0 and (not unit or start <= row < start + size):
            found = True
            if cell != 0:
                cells_of(m)[slot] += 1.0 if unit else float64s(seeds + 8 * (row * total + start), 1)[0]
            else:
                address, new = adjoint_of(m, slot)
                if new:
                    zero_bytes(address, size * width)
                if unit:
                    _write(address, width, row - start, 1.0)
                else:
                    given = float64s(seeds + 8 * (row * total + start), size)
                    for i in range(size):
                        _write(address, width, i, given[i])
        start += size
    return found


@compiled()
def pull_rows(m, first, last, begin, end, sources, source_count, targets, target_count, seeds, total):
    """Sweep backwards once for each row from `begin` to `end`: from the sources (outputs) to the targets (inputs)."""
    outputs, inputs = int64s(sources, PORT * source_count), int64s(targets, PORT * target_count)
    top = word(m, TOP)
    for row in range(begin, end):
        _clear(m, first, last, top)
        _aim(m, inputs, target_count, row)
        if _seed(m, outputs, source_count, row, seeds, total):
            sweep(m, last, first)
        _collect(m, inputs, target_count, row)


@inlined
def _aim(m, ports, count, row):
    """Let the adjoints of inputs be written where the results of a row stand."""
    for k in range(count):
        slot, cell, size, width, address = _port(ports, k)
        if cell != 0:
            cells_of(m)[slot] = 0.0
        else:
            adjoints_of(m)[slot] = -(address + row * size * width)


@inlined
def _collect(m, ports, count, row):
    """Complete the results of a row: numbers, and zeros where nothing was written."""
    for k in range(count):
        slot, cell, size, width, address = _port(ports, k)
        if cell != 0:
            float64s(address, row + 1)[row] = cells_of(m)[slot]
        elif adjoints_of(m)[slot] < 0:
            zero_bytes(address + row * size * width, size * width)


@compiled()
def second_rows(a, t, b, first, last, begin, end, ports, count, seeds, total):
    """Multiply the Hessian with a vector for each row from `begin` to `end` (see `tape.second`).

    The ports are those of the inputs: seeds go into their tangents, and results come from what `b` gives them.
    """
    inputs = int64s(ports, PORT * count)
    top = _begin(t, first, last, inputs, count)
    room = word(b, TOP)
    for row in range(begin, end):
        _restart(t, first, last, inputs, count, top)
        _seed(t, inputs, count, row, seeds, total)
        push(t, first, last)
        _clear(b, first, last, room)
        _aim(b, inputs, count, row)
        sweep_second(a, t, b, last, first)
        _collect(b, inputs, count, row)


@inlined
def _port(ports, k):
    return ports[PORT * k], ports[PORT * k + 1], ports[PORT * k + 2], ports[PORT * k + 3], ports[PORT * k + 4]


@inlined
def _begin(m, first, last, inputs, count):
    """Have room for the tangents of the inputs; give where the room for others begins."""
    _clear(m, first, last, word(m, TOP))
    for k in range(count):
        slot, cell, _, _, _ = _port(inputs, k)
        if cell == 0:
            adjoints_of(m)[slot] = 0
            adjoint_of(m, slot)
    return word(m, TOP)


@inlined
def _restart(m, first, last, inputs, count, top):
    """Forget the tangents of the sweep before; those of the inputs are 0."""
    _clear(m, first, last, top)
    for k in range(count):
        slot, cell, size, width, _ = _port(inputs, k)
        if cell != 0:
            cells_of(m)[slot] = 0.0
        else:
            zero_bytes(adjoints_of(m)[slot], size * width)


@compiled()
def push_rows(m, first, last, begin, end, sources, source_count, targets, target_count, seeds, total):
    """Sweep forwards once for each row from `begin` to `end`: from the sources (inputs) to the targets (outputs)."""
    inputs, outputs = int64s(sources, PORT * source_count), int64s(targets, PORT * target_count)
    top = _begin(m, first, last, inputs, source_count)
    for row in range(begin, end):
        _restart(m, first, last, inputs, source_count, top)
        for k in range(target_count):
            slot, cell, size, width, address = _port(outputs, k)
            if cell == 0 and activity_of(m)[slot] == ACTIVE:
                adjoints_of(m)[slot] = -(address + row * size * width)
        _seed(m, inputs, source_count, row, seeds, total)
        push(m, first, last)
        for k in range(target_count):
            slot, cell, size, width, address = _port(outputs, k)
            at = address + row * size * width
            if activity_of(m)[slot] == 0:
                zero_bytes(at, size * width)
            elif cell != 0:
                float64s(at, 1)[0] = cells_of(m)[slot]
            elif activity_of(m)[slot] != ACTIVE:
                copy_bytes(at, adjoints_of(m)[slot], size * width)
