"""The second-order sweep: adjoints and their tangents together, forward over reverse.

Three machines stand for one tape: one holds the adjoints of a finished reverse sweep, one the tangents of a forward
sweep, and the third receives the tangents of the adjoints. For an entry with adjoint g, whose tangent is h, an operand
gets h times the partial, and g times what the partial changes by along the tangents of the operands.
"""

# The compiled functions take integers, most of them addresses, and are typed by numba.
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from tape.blocks import BLOCK, add_block, add_plain, zero_bytes
from tape.compiled import (
    call_array_kernel,
    call_pullback,
    call_second_kernel,
    call_second_number,
    compiled,
    float64s,
    inlined,
    int32s,
    int64s,
)
from tape.instruction import ELEMENTWISE, HOST, MATMUL
from tape.layout import FLOAT32
from tape.machine import (
    ACTIVE,
    CELLS,
    COUNT,
    ENTRIES,
    NUMBERS,
    PULLBACKS,
    SCRATCH,
    SECONDS,
    activity_of,
    adjoint_of,
    adjoints_of,
    cells_of,
    column,
    dtype_of,
    entry,
    number_product,
    operand_blocks,
    pool_of,
    release,
    tangent_of,
    word,
)
from tape.pullbacks import multiply_into, repeats
from tape.pushforwards import tangent_block
from tape.second_kernels import PYTHON
from tape.workspace import ARITY, CELL, EXTENT, KERNEL, KIND, PLAN, SCALARS, SECOND, SECOND_STATE

ZEROS = 100
"""The block of scratch memory that holds zeros."""


@compiled()
def clear_zeros(b):
    """Make the block of zeros that the second-order sweep reads."""
    zero_bytes(word(b, SCRATCH) + 8 * BLOCK * ZEROS, 8 * BLOCK)


@compiled()
def sweep_second(a, t, b, start, stop):
    """Process the entries from `start` down to `stop`; give the first one that Python must do itself, or -1.

    a, t and b are the machines of the adjoints, the tangents, and the tangents of the adjoints.
    """
    active = activity_of(b)
    entries = int32s(word(b, ENTRIES), 6 * word(b, COUNT))
    for e in range(start, stop - 1, -1):
        if active[e] != ACTIVE:
            continue
        if entries[6 * e] >= SCALARS:
            if not _array_entry(a, t, b, e, entries[6 * e] - SCALARS, stop):
                return e
        elif not _number_entry(a, t, b, e):
            return e
    return -1


@inlined
def _number_entry(a, t, b, e):
    """Process an entry on numbers; tell whether there is compiled code for it."""
    adjoint, change = cells_of(a)[e], cells_of(b)[e]
    if adjoint == 0.0 and change == 0.0:
        return True
    code = entry(b, e, 0)
    seconds = int64s(word(b, SECONDS), 3 * SCALARS)
    if seconds[3 * code + 2] == PYTHON:
        return False
    active = activity_of(b)
    values = float64s(word(b, ENTRIES), 3 * word(b, COUNT))
    numbers = int64s(word(b, NUMBERS), 4 * SCALARS)
    first, second = entry(b, e, 1), entry(b, e, 2)
    x, y, out = values[3 * first + 2], values[3 * second + 2], values[3 * e + 2]
    tx = cells_of(t)[first] if active[first] != 0 else 0.0
    ty = cells_of(t)[second] if active[second] != 0 else 0.0
    for k in range(2):
        slot = first if k == 0 else second
        kernel = numbers[4 * code + k]
        if kernel == 0 or active[slot] == 0:
            continue
        cells_of(b)[slot] += number_product(change, kernel, x, y, out)
        if adjoint != 0.0 and seconds[3 * code + k] != 0:
            curve = call_second_number(seconds[3 * code + k], x, y, out, tx, ty)
            if curve != 0.0:
                cells_of(b)[slot] += adjoint * curve
    return True


@inlined
def _address(m, e, cell):
    """Give the address of an adjoint, 0 if there is none."""
    if cell:
        return word(m, CELLS) + 8 * e if cells_of(m)[e] != 0.0 else 0
    return adjoints_of(m)[e]


@inlined
def _array_entry(a, t, b, e, row, stop):
    """Process an entry on arrays; tell whether there is compiled code for it."""
    cell = column(b, row, CELL) != 0
    adjoint, change = _address(a, e, cell), _address(b, e, cell)
    if adjoint == 0 and change == 0:
        return True
    kind = column(b, row, KIND)
    if kind == HOST or (kind == ELEMENTWISE and column(b, row, SECOND_STATE) == PYTHON):
        return False
    if kind == ELEMENTWISE:
        _pull_elementwise(t, b, e, row, adjoint, change)
    else:
        if change != 0:
            call_pullback(int64s(word(b, PULLBACKS), 16)[kind], b, e, row, change, stop)
        if kind == MATMUL and adjoint != 0:
            _pull_matmul(t, b, e, row, adjoint)
    if not cell and change != 0:
        release(b, e, row)
    return True


@inlined
def _pull_elementwise(t, b, e, row, adjoint, change):
    """Pass on the tangent of adjoint times partial, block by block."""
    pool = pool_of(b)
    p, arity = column(b, row, PLAN), column(b, row, ARITY)
    size, code = pool[p + 1], pool[p + 2]
    width = 4 if code == FLOAT32 else 8
    scratch = word(b, SCRATCH)
    zeros = scratch + 8 * BLOCK * ZEROS
    for k in range(arity):
        slot = entry(b, e, 1 + k)
        first, second = column(b, row, KERNEL + k), column(b, row, SECOND + k)
        if adjoint == 0:
            second = 0
        if first == 0 or activity_of(b)[slot] == 0 or (second == 0 and change == 0):
            continue
        target, new = adjoint_of(b, slot)
        repeated = repeats(b, row, k)
        if new and repeated:
            zero_bytes(target, column(b, entry(b, slot, 0) - SCALARS, EXTENT))
        fresh = new and not repeated
        for start in range(0, size, BLOCK):
            n = min(BLOCK, size - start)
            at = start * width
            g = adjoint + at if adjoint != 0 else zeros
            h = change + at if change != 0 else zeros
            into = target + (0 if repeated else at)
            result = into if fresh else scratch
            x, y, z, out, i, j, step = operand_blocks(b, e, row, start, n)
            if second != 0:
                u = _tangent(t, b, e, 0, p, pool, start, n)
                v = _tangent(t, b, e, 1, p, pool, start, n) if arity > 1 else u
                w = _tangent(t, b, e, 2, p, pool, start, n) if arity > 2 else u
                call_second_kernel(second, n, result, g, h, x, y, z, out, u, v, w, i, j, step)
            else:
                call_array_kernel(first, n, result, h, x, y, z, out, i, j, step, 0)
            if not fresh:
                _add(b, e, row, k, start, n, into, scratch, repeated)


@inlined
def _tangent(t, b, e, k, p, pool, start, n):
    """Give the address of a block of an operand's tangent: zeros if it has none."""
    slot = entry(b, e, 1 + k)
    if activity_of(b)[slot] == 0:
        return word(b, SCRATCH) + 8 * BLOCK * ZEROS
    ndim = pool[p]
    q = p + 3 + ndim + k * (3 + 2 * ndim)
    if pool[q + 2] == 0:
        return tangent_of(t, slot) + start * (4 if pool[p + 2] == FLOAT32 else 8)
    return tangent_block(t, slot, p, k, start, n, word(t, SCRATCH) + 8 * BLOCK * (k + 1))


@inlined
def _add(b, e, row, k, start, n, into, block, repeated):
    """Add a block to an operand's adjoint."""
    p = column(b, row, PLAN)
    ndim, code = pool_of(b)[p], pool_of(b)[p + 2]
    if repeated:
        strides = p + 3 + ndim + k * (3 + 2 * ndim) + 3 + ndim
        dtype = dtype_of(b, entry(b, e, 1 + k))
        add_block(into, dtype, block, code, pool_of(b), p + 3, strides, ndim, start, n)
    else:
        add_plain(into, block, code, n)


@inlined
def _pull_matmul(t, b, e, row, adjoint):
    """Pass on the adjoint of a product times the tangents of its factors."""
    p = column(b, row, PLAN)
    rows, inner, columns, code = pool_of(b)[p], pool_of(b)[p + 1], pool_of(b)[p + 2], pool_of(b)[p + 3]
    width = 4 if code == FLOAT32 else 8
    first, second = entry(b, e, 1), entry(b, e, 2)
    if activity_of(b)[first] == 0 or activity_of(b)[second] == 0:
        return
    target, new = adjoint_of(b, first)
    multiply_into(
        b, target, new, code, adjoint, tangent_of(t, second), rows, columns, inner,
        columns * width, width, width, columns * width,
    )  # fmt: skip
    target, new = adjoint_of(b, second)
    multiply_into(
        b, target, new, code, tangent_of(t, first), adjoint, inner, rows, columns,
        width, inner * width, columns * width, width,
    )  # fmt: skip
