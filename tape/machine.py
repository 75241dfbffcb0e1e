"""The machine: what a sweep works on, as one block of integers, most of them addresses, and the way to its parts."""

from __future__ import annotations

import numpy as np

from tape.blocks import BLOCK, gather_block
from tape.compiled import bytes_of, call_number_kernel, compiled, float64s, inlined, int32s, int64s, note
from tape.instruction import DIRECT, FILL, JOIN, SINGLE, UNREAD
from tape.layout import FLOAT32
from tape.workspace import ARITY, BYTES, CELL, CLASS, COLUMNS, DTYPE, ENTRY, EXTENT, KIND, PLAN, SCALARS

(
    COUNT, ENTRIES, CELLS, ACTIVITY, ROWS, TABLE, POOL_SIZE, POOL, OPERANDS_SIZE, OPERANDS, NUMBERS, HEADS_SIZE, HEADS,
    MISSING, SCRATCH, TOP, LIMIT, NEEDED, MATMUL64, MATMUL64_DATA, MATMUL32, MATMUL32_DATA,
    PULLBACKS, PUSHFORWARDS, LAST_USE, SECONDS, KEEP, KINDS,
) = range(28)  # fmt: skip
"""The machine: a block of integers, most of them addresses, that stands for all that a sweep works on."""
STATE = 28
MISSING_SIZE = 64

INACTIVE, ACTIVE, WANTED = range(3)
"""What the activity of a slot says: no slope, on the way, or asked for (its adjoint is kept)."""


# ---------------------------------------------------------------- the machine's parts, as arrays
@inlined
def word(m, k):
    """Give one integer of the machine."""
    return int64s(m, STATE)[k]


@inlined
def entry(m, slot, field):
    """Give instruction (field 0) or operand (1 to 3) of an entry."""
    return np.int64(int32s(word(m, ENTRIES), 6 * word(m, COUNT))[6 * slot + field])


@inlined
def cells_of(m):
    """Give the adjoints of numbers."""
    return float64s(word(m, CELLS), word(m, COUNT))


@inlined
def adjoints_of(m):
    """Give the addresses of the adjoints of arrays: the same memory as `cells_of`."""
    return int64s(word(m, CELLS), word(m, COUNT))


@inlined
def activity_of(m):
    """Give the activity of each slot."""
    return bytes_of(word(m, ACTIVITY), word(m, COUNT))


@inlined
def addresses_of(m):
    """Give the entries as 8-byte words: the third of each is its value, an address for arrays."""
    return int64s(word(m, ENTRIES), 3 * word(m, COUNT))


@inlined
def heads_of(m):
    """Give for each size of adjoint the first free block of it."""
    return int64s(word(m, HEADS), word(m, HEADS_SIZE))


@inlined
def column(m, row, k):
    """Give one column of an instruction's row."""
    return int64s(word(m, TABLE), COLUMNS * word(m, ROWS))[COLUMNS * row + k]


@inlined
def pool_of(m):
    """Give the plans of the instructions."""
    return int64s(word(m, POOL), word(m, POOL_SIZE))


@inlined
def operands_of(m):
    """Give the operands of the entries that have more than three."""
    return int64s(word(m, OPERANDS), word(m, OPERANDS_SIZE))


@inlined
def last_uses(m):
    """Give for each slot the last entry that reads its tangent."""
    return int32s(word(m, LAST_USE), word(m, COUNT))


@inlined
def operand_count(m, e):
    """Give the number of slots that an entry reads."""
    row = entry(m, e, 0) - SCALARS
    if row < 0:
        bits = int64s(word(m, NUMBERS), 4 * SCALARS)[4 * (row + SCALARS) + 2]
        return 0 if bits == 0 else 2
    arity = column(m, row, ARITY)
    return arity if arity >= 0 else operands_of(m)[entry(m, e, 1)]


@inlined
def operand(m, e, k):
    """Give the k-th slot that an entry reads."""
    row = entry(m, e, 0) - SCALARS
    if row < 0 or column(m, row, ARITY) >= 0:
        return entry(m, e, 1 + k)
    kind = column(m, row, KIND)
    step = 2 if kind == FILL else 3 if kind == JOIN else 1
    return operands_of(m)[entry(m, e, 1) + 1 + k * step]


@inlined
def value_of(m, slot):
    """Give the address of a slot's value."""
    row = entry(m, slot, 0) - SCALARS
    if row < 0 or column(m, row, CELL) != 0:
        return word(m, ENTRIES) + slot * ENTRY + 16
    return addresses_of(m)[3 * slot + 2]


@compiled()
def adjoint_of(m, slot):
    """Give the address of a slot's adjoint, and whether its memory is new (and its content undefined)."""
    row = entry(m, slot, 0) - SCALARS
    if row < 0 or column(m, row, CELL) != 0:
        return word(m, CELLS) + 8 * slot, False
    address = adjoints_of(m)[slot]
    if address > 0:
        return address, False
    if address < 0:  # a wanted adjoint whose memory is given, and is new until now
        adjoints_of(m)[slot] = -address
        return -address, True
    kind = column(m, row, CLASS)
    address = heads_of(m)[kind]
    if address != 0:
        heads_of(m)[kind] = int64s(address, 1)[0]
    else:
        address = word(m, TOP)
        int64s(m, STATE)[TOP] = address + column(m, row, BYTES)
        if word(m, TOP) > word(m, LIMIT):
            raise MemoryError("the adjoints did not fit the memory computed for them")
    note(m, address, column(m, row, EXTENT))
    adjoints_of(m)[slot] = address
    return address, True


@inlined
def tangent_of(m, slot):
    """Give the address of the tangent of an active slot."""
    row = entry(m, slot, 0) - SCALARS
    if row < 0 or column(m, row, CELL) != 0:
        return word(m, CELLS) + 8 * slot
    return adjoints_of(m)[slot]


@inlined
def dtype_of(m, slot):
    """Give the dtype code of a slot."""
    row = entry(m, slot, 0) - SCALARS
    return 3 if row < 0 else column(m, row, DTYPE)


@compiled()
def release(m, slot, row):
    """Hand the memory of a processed adjoint to later ones of its size, unless all are to be kept."""
    if word(m, KEEP) != 0:
        return
    address = adjoints_of(m)[slot]
    kind = column(m, row, CLASS)
    note(m, address, 8)
    int64s(address, 1)[0] = heads_of(m)[kind]
    heads_of(m)[kind] = address
    adjoints_of(m)[slot] = 0


@inlined
def operand_block(m, slot, k, p, ndim, start, n, code, scratch):
    """Give address and stride of the block that begins at element `start` of a slot, the k-th of a plan."""
    q = p + 3 + ndim + k * (3 + 2 * ndim)
    how = pool_of(m)[q]
    width = 4 if code == FLOAT32 else 8
    if how >= UNREAD:
        return scratch, 1
    address = value_of(m, slot)
    if how == DIRECT:
        return address + start * width, 1
    if how == SINGLE:
        return address, 1 if n == 1 else 0
    gather_block(scratch, code, address, pool_of(m)[q + 1], pool_of(m), p + 3, q + 3, 1, ndim, start, n)
    return scratch, 1


@inlined
def operand_blocks(m, e, row, start, n):
    """Give the addresses of a block of each operand (a spare one repeats the first) and of the value, and the strides.

    Operands that do not lie as the kernel reads them are copied to scratch memory.
    """
    p, arity = column(m, row, PLAN), column(m, row, ARITY)
    ndim, code = pool_of(m)[p], pool_of(m)[p + 2]
    scratch = word(m, SCRATCH)
    a, i = operand_block(m, entry(m, e, 1), 0, p, ndim, start, n, code, scratch + 8 * BLOCK)
    b, j = a, 1
    c, k = a, 1
    if arity > 1:
        b, j = operand_block(m, entry(m, e, 2), 1, p, ndim, start, n, code, scratch + 16 * BLOCK)
    if arity > 2:
        c, k = operand_block(m, entry(m, e, 3), 2, p, ndim, start, n, code, scratch + 24 * BLOCK)
    out, _ = operand_block(m, e, arity, p, ndim, start, n, code, scratch + 32 * BLOCK)
    return a, b, c, out, i, j, k


@inlined
def number_product(g, kernel, x, y, out):
    """Give an adjoint or tangent times a partial on numbers: 0 where either is 0, and without a kernel."""
    if g == 0.0 or kernel == 0:
        return 0.0
    slope = call_number_kernel(kernel, x, y, out)
    return g * slope if slope != 0.0 else 0.0
