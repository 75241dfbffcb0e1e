"""The pushforwards that are compiled: each computes the tangent of one entry from the tangents of its operands.

All have one signature, are called through a table (see `tape.table`), and give the entry to go on with. Tangents stand
where a reverse sweep has adjoints: numbers in the cells, arrays C-contiguous in memory of their own.
"""

# The compiled functions take integers, most of them addresses, and are typed by numba.
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from tape.blocks import BLOCK, add_plain, copy_bytes, gather_block, move_elements, zero_bytes
from tape.compiled import float32s, float64s, inlined, int64s
from tape.instruction import MOVE_SHAPE
from tape.layout import FLOAT32
from tape.machine import (
    POOL,
    SCRATCH,
    activity_of,
    column,
    entry,
    operands_of,
    pool_of,
    tangent_of,
    value_of,
    word,
)
from tape.pullbacks import multiply_into, weigh
from tape.workspace import ARITY, CELL, EXTENT, KERNEL, PLAN


@inlined
def tangent_block(m, slot, p, k, start, n, scratch):
    """Give the address of a block of an operand's tangent, as the result has its elements."""
    ndim, code = pool_of(m)[p], pool_of(m)[p + 2]
    tangent = tangent_of(m, slot)
    q = p + 3 + ndim + k * (3 + 2 * ndim)
    if pool_of(m)[q + 2] == 0:
        return tangent + start * (4 if code == FLOAT32 else 8)
    width = 4 if pool_of(m)[q + 1] == FLOAT32 else 8
    gather_block(scratch, code, tangent, pool_of(m)[q + 1], pool_of(m), p + 3, q + 3 + ndim, width, ndim, start, n)
    return scratch


def push_elementwise(m, e, row, t, stop):
    """Sum the partials, each times the operand's tangent, block by block."""
    p = column(m, row, PLAN)
    size, code = pool_of(m)[p + 1], pool_of(m)[p + 2]
    width = 4 if code == FLOAT32 else 8
    scratch = word(m, SCRATCH)
    for start in range(0, size, BLOCK):
        n = min(BLOCK, size - start)
        first = True
        for k in range(column(m, row, ARITY)):
            slot = entry(m, e, 1 + k)
            if column(m, row, KERNEL + k) == 0 or activity_of(m)[slot] == 0:
                continue
            g = tangent_block(m, slot, p, k, start, n, scratch + 40 * BLOCK)
            weigh(m, e, row, k, start, n, g, t + start * width if first else scratch)
            if not first:
                add_plain(t + start * width, scratch, code, n)
            first = False
        if first:
            zero_bytes(t + start * width, n * width)
    return e + 1


def push_move(m, e, row, t, stop):
    """Move, repeat or sum the elements of a tangent."""
    p = column(m, row, PLAN)
    ndim, code, out_code = pool_of(m)[p], pool_of(m)[p + 2], pool_of(m)[p + 3]
    strides = p + MOVE_SHAPE + ndim
    source = tangent_of(m, entry(m, e, 1)) + entry(m, e, 3) * (4 if code == FLOAT32 else 8)
    weight = float64s(word(m, POOL) + 8 * (p + 4), 1)[0]
    covers = pool_of(m)[p + 7] != 0
    if not covers:
        zero_bytes(t, column(m, row, EXTENT) if column(m, row, CELL) == 0 else 8)
    into = t + pool_of(m)[p + 6] * (4 if out_code == FLOAT32 else 8)
    move_elements(into, out_code, strides + ndim, source, code, strides, pool_of(m), p, weight, covers)
    return e + 1


def push_matmul(m, e, row, t, stop):
    """Give da b + a db."""
    p = column(m, row, PLAN)
    rows, inner, columns, code = pool_of(m)[p], pool_of(m)[p + 1], pool_of(m)[p + 2], pool_of(m)[p + 3]
    width = 4 if code == FLOAT32 else 8
    first, second = entry(m, e, 1), entry(m, e, 2)
    new = True
    if activity_of(m)[first] != 0:
        multiply_into(
            m, t, new, code, tangent_of(m, first), value_of(m, second), rows, inner, columns,
            inner * width, width, pool_of(m)[p + 6], pool_of(m)[p + 7],
        )  # fmt: skip
        new = False
    if activity_of(m)[second] != 0:
        multiply_into(
            m, t, new, code, value_of(m, first), tangent_of(m, second), rows, inner, columns,
            pool_of(m)[p + 4], pool_of(m)[p + 5], columns * width, width,
        )  # fmt: skip
    return e + 1


def push_element(m, e, row, t, stop):
    """Read one element of a tangent."""
    offset = entry(m, e, 3)
    float64s(t, 1)[0] = float64s(tangent_of(m, entry(m, e, 1)), offset + 1)[offset]
    return e + 1


def push_fill(m, e, row, t, stop):
    """Replace the blocks that were written by the tangents of what was written."""
    p = column(m, row, PLAN)
    code, block, size = pool_of(m)[p], pool_of(m)[p + 1], pool_of(m)[p + 2]
    width = 4 if code == FLOAT32 else 8
    start = entry(m, e, 1)
    for k in range(operands_of(m)[start]):
        slot, offset = operands_of(m)[start + 1 + 2 * k], operands_of(m)[start + 2 + 2 * k]
        count = (size if k == 0 else block) * width
        if activity_of(m)[slot] != 0:
            copy_bytes(t + offset * width, tangent_of(m, slot), count)
        else:
            zero_bytes(t + offset * width, count)
    return e + 1


def push_gather(m, e, row, t, stop):
    """Take rows of a tangent."""
    p = column(m, row, PLAN)
    rows, width, count = pool_of(m)[p], pool_of(m)[p + 1], pool_of(m)[p + 2]
    size = width * (4 if pool_of(m)[p + 3] == FLOAT32 else 8)
    x = tangent_of(m, entry(m, e, 1))
    index = int64s(value_of(m, entry(m, e, 2)), count)
    for k in range(count):
        at = index[k]
        if at < 0:
            at += rows
        copy_bytes(t + k * size, x + at * size, size)
    return e + 1


def push_join(m, e, row, t, stop):
    """Join the tangents of the pieces."""
    p = column(m, row, PLAN)
    rows, whole, code = pool_of(m)[p], pool_of(m)[p + 1], pool_of(m)[p + 2]
    size = 4 if code == FLOAT32 else 8
    operands = operands_of(m)
    start = entry(m, e, 1)
    for k in range(operands[start]):
        slot, offset, width = operands[start + 1 + 3 * k], operands[start + 2 + 3 * k], operands[start + 3 + 3 * k]
        if width == 0:
            continue
        for r in range(rows):
            into = t + (r * whole + offset) * size
            if activity_of(m)[slot] != 0:
                copy_bytes(into, tangent_of(m, slot) + r * width * size, width * size)
            else:
                zero_bytes(into, width * size)
    return e + 1


@inlined
def _shared(x, t, extreme, count, step):
    """Give the mean of the tangents of the elements that equal the extreme one; none equals NaN."""
    total, winners = 0.0, 0
    for i in range(count):
        if x[i * step] == extreme:
            total += t[i * step]
            winners += 1
    return total / winners if winners > 0 else 0.0


def push_extreme(m, e, row, t, stop):
    """Give each maximum or minimum the tangent of the element that it is; ties share evenly."""
    p = column(m, row, PLAN)
    outer, count, inner = pool_of(m)[p], pool_of(m)[p + 1], pool_of(m)[p + 2]
    slot = entry(m, e, 1)
    x, out, tangent = value_of(m, slot), value_of(m, e), tangent_of(m, slot)
    span = (count - 1) * inner + 1
    for o in range(outer):
        for i in range(inner):
            at, to = o * count * inner + i, o * inner + i
            if pool_of(m)[p + 3] == FLOAT32:
                single = float32s(x + 4 * at, span), float32s(tangent + 4 * at, span)
                float32s(t, to + 1)[to] = _shared(single[0], single[1], float32s(out, to + 1)[to], count, inner)
            else:
                double = float64s(x + 8 * at, span), float64s(tangent + 8 * at, span)
                float64s(t, to + 1)[to] = _shared(double[0], double[1], float64s(out, to + 1)[to], count, inner)
    return e + 1
