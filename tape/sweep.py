"""The reverse sweep: a compiled loop over the entries, last to first.

Each entry whose adjoint is not zero passes it on to its operands. Adjoints of numbers stand in `cells`, one for each
slot; for an array the cell holds the address of its adjoint, 0 until a first contribution arrives. Memory of an adjoint
is given to later ones as soon as its entry has been processed.
"""

from __future__ import annotations

from tape.blocks import BLOCK, add_block, add_plain, gather_block, move_elements, zero_bytes
from tape.compiled import (
    bytes_of,
    call_array_kernel,
    call_number_kernel,
    call_ufunc_loop,
    compiled,
    float32s,
    float64s,
    int32s,
    int64s,
    note,
)
from tape.instruction import DIRECT, ELEMENT, ELEMENTWISE, FILL, GATHER, HOST, MATMUL, MOVE, SINGLE, UNREAD
from tape.layout import FLOAT32
from tape.wengert import ARITY, BYTES, CELL, CLASS, COLUMNS, DTYPE, ENTRY, EXTENT, KERNEL, KIND, PLAN, READY, SCALARS

(
    COUNT, ENTRIES, CELLS, ACTIVITY, ROWS, TABLE, POOL_SIZE, POOL, OPERANDS_SIZE, OPERANDS, NUMBERS, HEADS_SIZE, HEADS,
    MISSING, SCRATCH, TOP, LIMIT, NEEDED, MATMUL64, MATMUL64_DATA, MATMUL32, MATMUL32_DATA,
) = range(22)  # fmt: skip
"""The machine: a block of integers, most of them addresses, that stands for all that a sweep works on."""
STATE = 24
MISSING_SIZE = 64

INACTIVE, ACTIVE, WANTED = range(3)
"""What the activity of a slot says: no slope, on the way, or asked for (its adjoint is kept)."""


# ---------------------------------------------------------------- the machine's parts, as arrays
@compiled()
def word(m, k):  # type: ignore[no-untyped-def]
    """Give one integer of the machine."""
    return int64s(m, STATE)[k]


@compiled()
def entry(m, slot, field):  # type: ignore[no-untyped-def]
    """Give instruction (field 0) or operand (1 to 3) of an entry."""
    return int32s(word(m, ENTRIES), 6 * word(m, COUNT))[6 * slot + field]


@compiled()
def cells_of(m):  # type: ignore[no-untyped-def]
    """Give the adjoints of numbers."""
    return float64s(word(m, CELLS), word(m, COUNT))


@compiled()
def adjoints_of(m):  # type: ignore[no-untyped-def]
    """Give the addresses of the adjoints of arrays: the same memory as `cells_of`."""
    return int64s(word(m, CELLS), word(m, COUNT))


@compiled()
def activity_of(m):  # type: ignore[no-untyped-def]
    """Give the activity of each slot."""
    return bytes_of(word(m, ACTIVITY), word(m, COUNT))


@compiled()
def addresses_of(m):  # type: ignore[no-untyped-def]
    """Give the entries as 8-byte words: the third of each is its value, an address for arrays."""
    return int64s(word(m, ENTRIES), 3 * word(m, COUNT))


@compiled()
def heads_of(m):  # type: ignore[no-untyped-def]
    """Give for each size of adjoint the first free block of it."""
    return int64s(word(m, HEADS), word(m, HEADS_SIZE))


@compiled()
def column(m, row, k):  # type: ignore[no-untyped-def]
    """Give one column of an instruction's row."""
    return int64s(word(m, TABLE), COLUMNS * word(m, ROWS))[COLUMNS * row + k]


@compiled()
def pool_of(m):  # type: ignore[no-untyped-def]
    """Give the plans of the instructions."""
    return int64s(word(m, POOL), word(m, POOL_SIZE))


@compiled()
def operands_of(m):  # type: ignore[no-untyped-def]
    """Give the operands of the entries that have more than three."""
    return int64s(word(m, OPERANDS), word(m, OPERANDS_SIZE))


@compiled()
def activate(m, first, last):  # type: ignore[no-untyped-def]
    """Mark the slots that depend on a wanted one; give how many instructions lack a kernel (listed in the machine)."""
    active = activity_of(m)
    entries = int32s(word(m, ENTRIES), 6 * word(m, COUNT))
    numbers = int64s(word(m, NUMBERS), 4 * SCALARS)
    count = 0
    needed = 0
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
            if column(m, row, KIND) == 0 or not _operand_active(m, e, row):
                continue
            active[e] = ACTIVE
            needed += column(m, row, BYTES)
            if column(m, row, KIND) == MATMUL:
                needed += pool_of(m)[column(m, row, PLAN) + 8]
            ready = column(m, row, READY)
        if ready == 0:
            count = _note_missing(m, count, instruction)
    int64s(m, STATE)[NEEDED] = needed
    return count


@compiled()
def _operand_active(m, e, row):  # type: ignore[no-untyped-def]
    active = activity_of(m)
    arity = column(m, row, ARITY)
    if arity >= 0:
        for k in range(arity):
            if active[entry(m, e, 1 + k)] != 0:
                return True
        return False
    operands = operands_of(m)
    start = entry(m, e, 1)
    step = 2 if column(m, row, KIND) == FILL else 1
    for k in range(operands[start]):
        if active[operands[start + 1 + k * step]] != 0:
            return True
    return False


@compiled()
def _note_missing(m, count, instruction):  # type: ignore[no-untyped-def]
    missing = int32s(word(m, MISSING), MISSING_SIZE)
    for k in range(count):
        if missing[k] == instruction:
            return count
    if count < MISSING_SIZE:
        missing[count] = instruction
        count += 1
    return count


@compiled()
def value_of(m, slot):  # type: ignore[no-untyped-def]
    """Give the address of a slot's value."""
    row = entry(m, slot, 0) - SCALARS
    if row < 0 or column(m, row, CELL) != 0:
        return word(m, ENTRIES) + slot * ENTRY + 16
    return addresses_of(m)[3 * slot + 2]


@compiled()
def adjoint_of(m, slot):  # type: ignore[no-untyped-def]
    """Give the address of a slot's adjoint, and whether its memory is new (and its content undefined)."""
    row = entry(m, slot, 0) - SCALARS
    if row < 0 or column(m, row, CELL) != 0:
        return word(m, CELLS) + 8 * slot, False
    address = adjoints_of(m)[slot]
    if address != 0:
        return address, False
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


@compiled()
def dtype_of(m, slot):  # type: ignore[no-untyped-def]
    """Give the dtype code of a slot."""
    row = entry(m, slot, 0) - SCALARS
    return 3 if row < 0 else column(m, row, DTYPE)


@compiled()
def release(m, slot, row):  # type: ignore[no-untyped-def]
    """Hand the memory of a processed adjoint to later ones of its size."""
    address = adjoints_of(m)[slot]
    kind = column(m, row, CLASS)
    note(m, address, 8)
    int64s(address, 1)[0] = heads_of(m)[kind]
    heads_of(m)[kind] = address
    adjoints_of(m)[slot] = 0


@compiled()
def _operand(m, e, k, p, ndim, start, n, code, scratch):  # type: ignore[no-untyped-def]
    """Give address and stride of the block of operand k that begins at element `start`."""
    q = p + 3 + ndim + k * (3 + 2 * ndim)
    how = pool_of(m)[q]
    width = 4 if code == FLOAT32 else 8
    if how >= UNREAD:
        return scratch, 1
    address = value_of(m, entry(m, e, 1 + k))
    if how == DIRECT:
        return address + start * width, 1
    if how == SINGLE:
        return address, 1 if n == 1 else 0
    gather_block(scratch, code, address, pool_of(m)[q + 1], pool_of(m), p + 3, q + 3, ndim, start, n)
    return scratch, 1


@compiled()
def _elementwise(m, e, row, g):  # type: ignore[no-untyped-def]
    p = column(m, row, PLAN)
    ndim, size, code = pool_of(m)[p], pool_of(m)[p + 1], pool_of(m)[p + 2]
    width = 4 if code == FLOAT32 else 8
    scratch = word(m, SCRATCH)
    arity = column(m, row, ARITY)
    out = value_of(m, e)
    for k in range(arity):
        slot = entry(m, e, 1 + k)
        kernel = column(m, row, KERNEL + k)
        if kernel == 0 or activity_of(m)[slot] == 0:
            continue
        target, new = adjoint_of(m, slot)
        q = p + 3 + ndim + k * (3 + 2 * ndim)
        repeated = pool_of(m)[q + 2] != 0
        if new and repeated:
            zero_bytes(target, column(m, entry(m, slot, 0) - SCALARS, EXTENT))
        direct = new and not repeated
        for start in range(0, size, BLOCK):
            n = min(BLOCK, size - start)
            a, i = _operand(m, e, 0, p, ndim, start, n, code, scratch + 8 * BLOCK)
            b, j = a, 1
            c, l = a, 1
            if arity > 1:
                b, j = _operand(m, e, 1, p, ndim, start, n, code, scratch + 16 * BLOCK)
            if arity > 2:
                c, l = _operand(m, e, 2, p, ndim, start, n, code, scratch + 24 * BLOCK)
            at = start * width
            result = target + at if direct else scratch
            call_array_kernel(kernel, n, result, g + at, a, b, c, out + at, i, j, l, 0)
            if not direct:
                if repeated:
                    add_block(target, dtype_of(m, slot), scratch, code, pool_of(m), p + 3, q + 3 + ndim, ndim, start, n)
                else:
                    add_plain(target + at, scratch, code, n)


@compiled()
def _move(m, e, row, g):  # type: ignore[no-untyped-def]
    p = column(m, row, PLAN)
    slot = entry(m, e, 1)
    target, new = adjoint_of(m, slot)
    bijective = pool_of(m)[p + 1] != 0
    if new and not bijective:
        zero_bytes(target, pool_of(m)[p + 5])
        new = False
    weight = float64s(word(m, POOL) + 8 * (p + 4), 1)[0]
    move_elements(target, pool_of(m)[p + 2], entry(m, e, 3), g, pool_of(m)[p + 3], pool_of(m), p, weight, new)


@compiled()
def _multiply(m, single, a, b, target, rows, inner, columns, a0, a1, b0, b1):  # type: ignore[no-untyped-def]
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


@compiled()
def _matmul(m, e, row, g):  # type: ignore[no-untyped-def]
    p = column(m, row, PLAN)
    rows, inner, columns = pool_of(m)[p], pool_of(m)[p + 1], pool_of(m)[p + 2]
    single = pool_of(m)[p + 3] == FLOAT32
    width = 4 if single else 8
    for k in range(2):
        slot = entry(m, e, 1 + k)
        if activity_of(m)[slot] == 0:
            continue
        target, new = adjoint_of(m, slot)
        size = rows * inner if k == 0 else inner * columns
        result = target if new else word(m, TOP)
        if not new:
            note(m, result, size * width)
        other = value_of(m, entry(m, e, 2 - k))
        if k == 0:
            _multiply(
                m, single, g, other, result, rows, columns, inner,
                columns * width, width, pool_of(m)[p + 7], pool_of(m)[p + 6],
            )  # fmt: skip
        else:
            _multiply(
                m, single, other, g, result, inner, rows, columns,
                pool_of(m)[p + 5], pool_of(m)[p + 4], columns * width, width,
            )  # fmt: skip
        if not new:
            add_plain(target, result, pool_of(m)[p + 3], size)
            note(m, result, 0)


@compiled()
def _element(m, e, row, g):  # type: ignore[no-untyped-def]
    slot = entry(m, e, 1)
    target, new = adjoint_of(m, slot)
    if new:
        zero_bytes(target, column(m, entry(m, slot, 0) - SCALARS, EXTENT))
    float64s(target, entry(m, e, 3) + 1)[entry(m, e, 3)] += float64s(g, 1)[0]


@compiled()
def _fill(m, e, row, g):  # type: ignore[no-untyped-def]
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


@compiled()
def _gather(m, e, row, g):  # type: ignore[no-untyped-def]
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


@compiled()
def reset(m, first, last):  # type: ignore[no-untyped-def]
    """Clear adjoints and activity of the slots from `first` to `last`."""
    cells, active = cells_of(m), activity_of(m)
    for e in range(first, last + 1):
        cells[e] = 0.0
        active[e] = 0


@compiled()
def sweep(m, start, stop):  # type: ignore[no-untyped-def]
    """Process the entries from `start` down to `stop`; give the first one that Python must do itself, or -1."""
    cells, active = cells_of(m), activity_of(m)
    entries = int32s(word(m, ENTRIES), 6 * word(m, COUNT))
    values = float64s(word(m, ENTRIES), 3 * word(m, COUNT))
    numbers = int64s(word(m, NUMBERS), 4 * SCALARS)
    for e in range(start, stop - 1, -1):
        if active[e] != ACTIVE:
            continue
        instruction = entries[6 * e]
        if instruction >= SCALARS:
            if _array_entry(m, e, instruction - SCALARS):
                return e
            continue
        g = cells[e]
        if g == 0.0:
            continue
        a, b = entries[6 * e + 1], entries[6 * e + 2]
        x, y, out = values[3 * a + 2], values[3 * b + 2], values[3 * e + 2]
        first, second = numbers[4 * instruction], numbers[4 * instruction + 1]
        if first != 0 and active[a] != 0:
            cells[a] += g * call_number_kernel(first, x, y, out)
        if second != 0 and active[b] != 0:
            cells[b] += g * call_number_kernel(second, x, y, out)
    return -1


@compiled()
def _array_entry(m, e, row):  # type: ignore[no-untyped-def]
    """Process an entry on arrays; tell whether Python must do it."""
    cell = column(m, row, CELL) != 0
    if cell:
        if cells_of(m)[e] == 0.0:
            return False
        adjoint = word(m, CELLS) + 8 * e
    else:
        adjoint = adjoints_of(m)[e]
        if adjoint == 0:
            return False
    kind = column(m, row, KIND)
    if kind == ELEMENTWISE:
        _elementwise(m, e, row, adjoint)
    elif kind == MOVE:
        _move(m, e, row, adjoint)
    elif kind == MATMUL:
        _matmul(m, e, row, adjoint)
    elif kind == ELEMENT:
        _element(m, e, row, adjoint)
    elif kind == GATHER:
        _gather(m, e, row, adjoint)
    elif kind == FILL:
        _fill(m, e, row, adjoint)
    elif kind == HOST:
        return True
    if not cell:
        release(m, e, row)
    return False
