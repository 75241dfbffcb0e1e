"""The pullbacks that are compiled: each passes the adjoint of one entry, at an address, on to the entry's operands.

They are called through a table (see `tape.table`), so each is compiled when a tape first needs it. All have one form,
``pull(m, e, row, g, stop)``: machine, entry, row of its instruction, address of its adjoint, and the entry at which the
sweep ends. They give the entry that the sweep goes on with.
"""

from __future__ import annotations

import numpy as np

from tape.blocks import BLOCK, add_block, add_plain, move_elements, zero_bytes
from tape.compiled import call_array_kernel, call_ufunc_loop, float32s, float64s, inlined, int32s, int64s, note
from tape.instruction import MOVE_SHAPE
from tape.layout import FLOAT32
from tape.machine import (
    MATMUL32,
    MATMUL32_DATA,
    MATMUL64,
    MATMUL64_DATA,
    POOL,
    SCRATCH,
    TOP,
    activity_of,
    adjoint_of,
    column,
    dtype_of,
    entry,
    operand_blocks,
    operands_of,
    pool_of,
    value_of,
    word,
)
from tape.workspace import ARITY, EXTENT, KERNEL, PLAN, SCALARS


@inlined
def repeats(m, row, k):
    """Tell whether operand k is repeated, or of another dtype, so that its adjoint has other elements."""
    p = column(m, row, PLAN)
    ndim = pool_of(m)[p]
    return pool_of(m)[p + 3 + ndim + k * (3 + 2 * ndim) + 2] != 0


@inlined
def weigh(m, e, row, k, start, n, g, result):
    """Write a block of n elements of an adjoint or tangent, each times the partial by operand k."""
    a, b, c, out, i, j, h = operand_blocks(m, e, row, start, n)
    call_array_kernel(column(m, row, KERNEL + k), n, result, g, a, b, c, out, i, j, h, 0)


@inlined
def contribute(m, e, row, k, start, n, g, into, fresh):
    """Pass a block of n elements on to operand k: write it if `into` is fresh, else add it.

    `g` is where the block is in the adjoint, `into` where it is in the operand's (if that is repeated, its beginning).
    """
    scratch = word(m, SCRATCH)
    weigh(m, e, row, k, start, n, g, into if fresh else scratch)
    if fresh:
        return
    p = column(m, row, PLAN)
    ndim, code = pool_of(m)[p], pool_of(m)[p + 2]
    if repeats(m, row, k):
        strides = p + 3 + ndim + k * (3 + 2 * ndim) + 3 + ndim
        dtype = dtype_of(m, entry(m, e, 1 + k))
        add_block(into, dtype, scratch, code, pool_of(m), p + 3, strides, ndim, start, n)
    else:
        add_plain(into, scratch, code, n)


def pull_elementwise(m, e, row, g, stop):
    """Pass adjoint times partial on, block by block."""
    p = column(m, row, PLAN)
    size = pool_of(m)[p + 1]
    width = 4 if pool_of(m)[p + 2] == FLOAT32 else 8
    for k in range(column(m, row, ARITY)):
        slot = entry(m, e, 1 + k)
        if column(m, row, KERNEL + k) == 0 or activity_of(m)[slot] == 0:
            continue
        target, new = adjoint_of(m, slot)
        repeated = repeats(m, row, k)
        if new and repeated:
            zero_bytes(target, column(m, entry(m, slot, 0) - SCALARS, EXTENT))
        for start in range(0, size, BLOCK):
            n = min(BLOCK, size - start)
            at = start * width
            contribute(m, e, row, k, start, n, g + at, target + (0 if repeated else at), new and not repeated)
    return e - 1


def pull_move(m, e, row, g, stop):
    """Pass on an adjoint whose elements were moved, repeated or summed."""
    p = column(m, row, PLAN)
    slot = entry(m, e, 1)
    target, new = adjoint_of(m, slot)
    bijective = pool_of(m)[p + 1] != 0
    if new and not bijective:
        zero_bytes(target, pool_of(m)[p + 5])
        new = False
    weight = float64s(word(m, POOL) + 8 * (p + 4), 1)[0]
    ndim, code = pool_of(m)[p], pool_of(m)[p + 2]
    into = target + entry(m, e, 3) * (4 if code == FLOAT32 else 8)
    strides = p + MOVE_SHAPE + ndim
    g += pool_of(m)[p + 6] * (4 if pool_of(m)[p + 3] == FLOAT32 else 8)
    move_elements(into, code, strides, g, pool_of(m)[p + 3], strides + ndim, pool_of(m), p, weight, new)
    return e - 1


@inlined
def _multiply(m, single, a, b, target, rows, inner, columns, a0, a1, b0, b1):
    """Write the matrix product a @ b to C-contiguous memory through NumPy's own loop."""
    width = 4 if single else 8
    frame = int64s(word(m, SCRATCH), 32)
    frame[0], frame[1], frame[2] = a, b, target
    frame[4], frame[5], frame[6], frame[7] = 1, rows, inner, columns
    frame[8] = frame[9] = frame[10] = 0
    frame[11], frame[12], frame[13], frame[14] = a0, a1, b0, b1
    frame[15], frame[16] = columns * width, width
    base = word(m, SCRATCH)
    loop = word(m, MATMUL32) if single else word(m, MATMUL64)
    data = word(m, MATMUL32_DATA) if single else word(m, MATMUL64_DATA)
    call_ufunc_loop(loop, base, base + 32, base + 64, data)


@inlined
def _finite(address, single, size):
    """Tell whether all elements are finite: the exponent of inf and NaN has every bit set."""
    # The exponent less all bits is negative unless it has them all, and so is what negative numbers have in common.
    if single:
        common = np.int32(-1)
        narrow = int32s(address, size)
        for i in range(size):
            common &= np.int32(np.int32(narrow[i] & 0x7F800000) - np.int32(0x7F800000))
        return common < 0
    shared = -1
    wide = int64s(address, size)
    for i in range(size):
        shared &= (wide[i] & 0x7FF0000000000000) - 0x7FF0000000000000
    return shared < 0


@inlined
def _number_at(address, single):
    return float(float32s(address, 1)[0]) if single else float64s(address, 1)[0]


@inlined
def _multiply_again(single, a, b, target, rows, inner, columns, a0, a1, b0, b1):
    """Write a @ b without the terms in which a factor is exactly 0, whatever the other is."""
    for r in range(rows):
        for c in range(columns):
            total = 0.0
            for i in range(inner):
                x = _number_at(a + r * a0 + i * a1, single)
                y = _number_at(b + i * b0 + c * b1, single)
                if x != 0.0 and y != 0.0:
                    total += x * y
            at = r * columns + c
            if single:
                float32s(target + 4 * at, 1)[0] = total
            else:
                float64s(target + 8 * at, 1)[0] = total


@inlined
def multiply_matrices(m, single, a, b, target, rows, inner, columns, a0, a1, b0, b1):
    """Write the matrix product a @ b, where a factor of exactly 0 makes 0 of whatever the other is."""
    _multiply(m, single, a, b, target, rows, inner, columns, a0, a1, b0, b1)
    if not _finite(target, single, rows * columns):
        _multiply_again(single, a, b, target, rows, inner, columns, a0, a1, b0, b1)


@inlined
def multiply_into(m, target, new, code, a, b, rows, inner, columns, a0, a1, b0, b1):
    """Write the matrix product a @ b where memory is new, else add it."""
    single = code == FLOAT32
    size = rows * columns
    result = target if new else word(m, TOP)
    if not new:
        note(m, result, size * (4 if single else 8))
    multiply_matrices(m, single, a, b, result, rows, inner, columns, a0, a1, b0, b1)
    if not new:
        add_plain(target, result, code, size)
        note(m, result, 0)


def pull_matmul(m, e, row, g, stop):
    """Pass g b^T and a^T g on."""
    p = column(m, row, PLAN)
    rows, inner, columns, code = pool_of(m)[p], pool_of(m)[p + 1], pool_of(m)[p + 2], pool_of(m)[p + 3]
    width = 4 if code == FLOAT32 else 8
    first, second = entry(m, e, 1), entry(m, e, 2)
    if activity_of(m)[first] != 0:
        target, new = adjoint_of(m, first)
        multiply_into(
            m, target, new, code, g, value_of(m, second), rows, columns, inner,
            columns * width, width, pool_of(m)[p + 7], pool_of(m)[p + 6],
        )  # fmt: skip
    if activity_of(m)[second] != 0:
        target, new = adjoint_of(m, second)
        multiply_into(
            m, target, new, code, value_of(m, first), g, inner, rows, columns,
            pool_of(m)[p + 5], pool_of(m)[p + 4], columns * width, width,
        )  # fmt: skip
    return e - 1


def pull_element(m, e, row, g, stop):
    """Pass the adjoint of one element on."""
    slot = entry(m, e, 1)
    target, new = adjoint_of(m, slot)
    if new:
        zero_bytes(target, column(m, entry(m, slot, 0) - SCALARS, EXTENT))
    float64s(target, entry(m, e, 3) + 1)[entry(m, e, 3)] += float64s(g, 1)[0]
    return e - 1


def pull_fill(m, e, row, g, stop):
    """Pass the blocks that were written to what was written, the rest to the array before."""
    p = column(m, row, PLAN)
    code, block, size = pool_of(m)[p], pool_of(m)[p + 1], pool_of(m)[p + 2]
    width = 4 if code == FLOAT32 else 8
    start = entry(m, e, 1)
    for k in range(1, operands_of(m)[start]):
        slot, offset = operands_of(m)[start + 1 + 2 * k], operands_of(m)[start + 2 + 2 * k]
        part = g + offset * width
        if activity_of(m)[slot] != 0:
            target, new = adjoint_of(m, slot)
            if new:
                zero_bytes(target, block * width)
            add_plain(target, part, code, block)
        zero_bytes(part, block * width)
    slot = operands_of(m)[start + 1]
    if activity_of(m)[slot] != 0:
        target, new = adjoint_of(m, slot)
        if new:
            zero_bytes(target, size * width)
        add_plain(target, g, code, size)
    return e - 1


def pull_gather(m, e, row, g, stop):
    """Add each row to the row that it was taken from."""
    p = column(m, row, PLAN)
    rows, width, count = pool_of(m)[p], pool_of(m)[p + 1], pool_of(m)[p + 2]
    slot = entry(m, e, 1)
    target, new = adjoint_of(m, slot)
    size = 4 if pool_of(m)[p + 3] == FLOAT32 else 8
    if new:
        zero_bytes(target, rows * width * size)
    index = int64s(value_of(m, entry(m, e, 2)), count)
    for k in range(count):
        at = index[k]
        if at < 0:
            at += rows
        if size == 4:
            into, source = float32s(target, rows * width), float32s(g, count * width)
            for j in range(width):
                into[at * width + j] += source[k * width + j]
        else:
            wide, origin = float64s(target, rows * width), float64s(g, count * width)
            for j in range(width):
                wide[at * width + j] += origin[k * width + j]
    return e - 1


def pull_join(m, e, row, g, stop):
    """Give each joined array its pieces."""
    p = column(m, row, PLAN)
    rows, whole, code = pool_of(m)[p], pool_of(m)[p + 1], pool_of(m)[p + 2]
    size = 4 if code == FLOAT32 else 8
    operands = operands_of(m)
    start = entry(m, e, 1)
    for k in range(operands[start]):
        slot, offset, width = operands[start + 1 + 3 * k], operands[start + 2 + 3 * k], operands[start + 3 + 3 * k]
        if activity_of(m)[slot] == 0 or width == 0:
            continue
        target, new = adjoint_of(m, slot)
        if new:
            zero_bytes(target, rows * width * size)
        for r in range(rows):
            add_plain(target + r * width * size, g + (r * whole + offset) * size, code, width)
    return e - 1


@inlined
def _count_extremes(values, extremes, counts, n):
    for j in range(n):
        counts[j] += 1.0 if values[j] == extremes[j] else 0.0


@inlined
def _hand_out(values, extremes, shares, into, n, new):
    if new:
        for j in range(n):
            into[j] = shares[j] if values[j] == extremes[j] else 0.0
    else:
        for j in range(n):
            into[j] += shares[j] if values[j] == extremes[j] else 0.0


@inlined
def _share_columns(single, shares, x, out, g, target, count, stride, n, new):
    """Share each of n adjoints among the elements of a column, `stride` bytes apart, that equal its extreme."""
    into = float64s(shares, n)
    for j in range(n):
        into[j] = 0.0
    for i in range(count):
        row = x + i * stride
        if single:
            _count_extremes(float32s(row, n), float32s(out, n), into, n)
        else:
            _count_extremes(float64s(row, n), float64s(out, n), into, n)
    for j in range(n):
        into[j] = _number_at(g + j * (4 if single else 8), single) / max(into[j], 1.0)
    for i in range(count):
        row, at = x + i * stride, target + i * stride
        if single:
            _hand_out(float32s(row, n), float32s(out, n), into, float32s(at, n), n, new)
        else:
            _hand_out(float64s(row, n), float64s(out, n), into, float64s(at, n), n, new)


@inlined
def _share_row(values, extreme, adjoint, into, n, new):
    """Share an adjoint among the elements of a row that equal its extreme."""
    winners = 0
    for i in range(n):
        winners += values[i] == extreme
    share = adjoint / max(float(winners), 1.0)
    if new:
        for i in range(n):
            into[i] = share if values[i] == extreme else 0.0
    else:
        for i in range(n):
            into[i] += share if values[i] == extreme else 0.0


def pull_extreme(m, e, row, g, stop):
    """Share each adjoint of a maximum or minimum evenly among the elements that equal it; none equals NaN."""
    p = column(m, row, PLAN)
    outer, count, inner = pool_of(m)[p], pool_of(m)[p + 1], pool_of(m)[p + 2]
    single = pool_of(m)[p + 3] == FLOAT32
    width = 4 if single else 8
    slot = entry(m, e, 1)
    target, new = adjoint_of(m, slot)
    x, out = value_of(m, slot), value_of(m, e)
    for o in range(outer):
        at, into = x + o * count * inner * width, target + o * count * inner * width
        if inner == 1:
            extreme, adjoint = _number_at(out + o * width, single), _number_at(g + o * width, single)
            if single:
                _share_row(float32s(at, count), extreme, adjoint, float32s(into, count), count, new)
            else:
                _share_row(float64s(at, count), extreme, adjoint, float64s(into, count), count, new)
            continue
        for start in range(0, inner, BLOCK):
            n = min(BLOCK, inner - start)
            near, far = start * width, (o * inner + start) * width
            _share_columns(
                single, word(m, SCRATCH), at + near, out + far, g + far, into + near, count, inner * width, n, new
            )
    return e - 1
