"""Elements in memory: copying, adding and summing them between layouts, for the sweep."""

from __future__ import annotations

from tape.compiled import bytes_of, float32s, float64s, inlined, int32s, int64s
from tape.instruction import MOVE_SHAPE
from tape.layout import FLOAT32, FLOAT64, INT64

BLOCK = 1024
"""Elements that a kernel processes at a time: its operands, copied, stay in the first-level cache."""


@inlined
def zero_bytes(address, count):
    """Clear memory; `count` is a multiple of 4."""
    memory = float32s(address, count // 4)
    for i in range(count // 4):
        memory[i] = 0.0


@inlined
def copy_bytes(target, source, count):
    """Copy memory; `count` is a multiple of 4."""
    into, origin = int32s(target, count // 4), int32s(source, count // 4)
    for i in range(count // 4):
        into[i] = origin[i]


@inlined
def add_plain(target, source, code, n):
    """Add n contiguous elements to n others."""
    if code == FLOAT32:
        t32, s32 = float32s(target, n), float32s(source, n)
        for i in range(n):
            t32[i] += s32[i]
    else:
        t64, s64 = float64s(target, n), float64s(source, n)
        for i in range(n):
            t64[i] += s64[i]


@inlined
def _load(address, code):
    if code == FLOAT64:
        return float64s(address, 1)[0]
    if code == FLOAT32:
        return float(float32s(address, 1)[0])
    if code == INT64:
        return float(int64s(address, 1)[0])
    return float(bytes_of(address, 1)[0])


@inlined
def _offset(pool, shape, strides, ndim, start):
    """Give the sum of index times stride for the element at the flat position `start`."""
    offset = 0
    rest = start
    for axis in range(ndim - 1, -1, -1):
        length = pool[shape + axis]
        offset += rest % length * pool[strides + axis]
        rest //= length
    return offset


@inlined
def _row_step(pool, shape, strides, axes):
    """Give the stride of the first axes taken as one axis; -1 if they have none in common."""
    if axes <= 0:
        return 0
    step = pool[strides + axes - 1]
    for axis in range(axes - 1, 0, -1):
        if pool[strides + axis - 1] != pool[strides + axis] * pool[shape + axis]:
            return -1
    return step


@inlined
def gather_block(target, code, source, source_code, pool, shape, strides, unit, ndim, start, n):
    """Copy n elements from position `start` on, of a value of any strides and dtype, to contiguous memory.

    The strides are counted in `unit` bytes.
    """
    done = 0
    length = pool[shape + ndim - 1] if ndim else 1
    stride = pool[strides + ndim - 1] * unit if ndim else 0
    wide = float64s(target, n if code == FLOAT64 else 0)
    narrow = float32s(target, n if code == FLOAT32 else 0)
    row, within = start // length, start % length
    step = _row_step(pool, shape, strides, ndim - 1)
    while done < n:
        offset = row * step if step >= 0 else _offset(pool, shape, strides, ndim - 1, row)
        at = source + within * stride + unit * offset
        run = min(n - done, length - within)
        if code == FLOAT64 and source_code == FLOAT64:
            if stride == 8:
                origin = float64s(at, run)
                for i in range(run):
                    wide[done + i] = origin[i]
            else:
                for i in range(run):
                    wide[done + i] = float64s(at + i * stride, 1)[0]
        elif code == FLOAT64:
            for i in range(run):
                wide[done + i] = _load(at + i * stride, source_code)
        else:
            for i in range(run):
                narrow[done + i] = _load(at + i * stride, source_code)
        done += run
        row += 1
        within = 0


@inlined
def _total(source, code, n):
    """Sum n contiguous elements, in four interleaved parts."""
    a = b = c = d = 0.0
    whole = n - n % 4
    if code == FLOAT32:
        s32 = float32s(source, n)
        for i in range(0, whole, 4):
            a += s32[i]
            b += s32[i + 1]
            c += s32[i + 2]
            d += s32[i + 3]
        for i in range(whole, n):
            a += s32[i]
    else:
        s64 = float64s(source, n)
        for i in range(0, whole, 4):
            a += s64[i]
            b += s64[i + 1]
            c += s64[i + 2]
            d += s64[i + 3]
        for i in range(whole, n):
            a += s64[i]
    return (a + b) + (c + d)


@inlined
def add_block(target, target_code, source, code, pool, shape, strides, ndim, start, n):
    """Add n contiguous elements, positions `start` on of an array of `shape`, to where they were broadcast from."""
    done = 0
    width = 4 if code == FLOAT32 else 8
    length = pool[shape + ndim - 1] if ndim else 1
    stride = pool[strides + ndim - 1] if ndim else 0
    # Along trailing axes that are all repeated the elements have one destination.
    axis = ndim - 1
    while stride == 0 and axis > 0 and pool[strides + axis - 1] == 0:
        axis -= 1
        length *= pool[shape + axis]
    row, within = start // length, start % length
    step = _row_step(pool, shape, strides, axis)
    while done < n:
        at = within * stride + (row * step if step >= 0 else _offset(pool, shape, strides, axis, row))
        run = min(n - done, length - within)
        if stride == 0:
            total = _total(source + done * width, code, run)
            if target_code == FLOAT32:
                float32s(target + 4 * at, 1)[0] += total
            else:
                float64s(target + 8 * at, 1)[0] += total
        elif target_code == FLOAT64 and code == FLOAT64 and stride == 1:
            t64, s64 = float64s(target + 8 * at, run), float64s(source + 8 * done, run)
            for i in range(run):
                t64[i] += s64[i]
        elif target_code == FLOAT32 and code == FLOAT32 and stride == 1:
            t32, s32 = float32s(target + 4 * at, run), float32s(source + 4 * done, run)
            for i in range(run):
                t32[i] += s32[i]
        elif target_code == FLOAT64 and code == FLOAT64:
            t64, s64 = float64s(target + 8 * at, (run - 1) * stride + 1), float64s(source + 8 * done, run)
            for i in range(run):
                t64[i * stride] += s64[i]
        else:
            for i in range(run):
                amount = _load(source + (done + i) * width, code)
                if target_code == FLOAT32:
                    float32s(target + 4 * (at + i * stride), 1)[0] += amount
                else:
                    float64s(target + 8 * (at + i * stride), 1)[0] += amount
        done += run
        row += 1
        within = 0


@inlined
def _move_row(target, target_code, t, source, source_code, s, n, weight, new):
    """Add (or write) n weighted elements at stride s to n elements at stride t, strides in elements."""
    if target_code == FLOAT64 and source_code == FLOAT64 and t == 0 and s == 1 and not new:
        float64s(target, 1)[0] += weight * _total(source, FLOAT64, n)
        return
    if target_code == FLOAT64 and source_code == FLOAT64 and s >= 0 and t > 0:
        into, origin = float64s(target, (n - 1) * t + 1), float64s(source, (n - 1) * s + 1)
        if t == 1 and s == 1:
            if new:
                for i in range(n):
                    into[i] = weight * origin[i]
            else:
                for i in range(n):
                    into[i] += weight * origin[i]
        elif t == 1 and s == 0:
            amount = weight * origin[0]
            if new:
                for i in range(n):
                    into[i] = amount
            else:
                for i in range(n):
                    into[i] += amount
        elif new:
            for i in range(n):
                into[i * t] = weight * origin[i * s]
        else:
            for i in range(n):
                into[i * t] += weight * origin[i * s]
        return
    t_width = 4 if target_code == FLOAT32 else 8
    s_width = 4 if source_code == FLOAT32 else 8
    for i in range(n):
        amount = weight * _load(source + i * s * s_width, source_code)
        if target_code == FLOAT32:
            place = float32s(target + i * t * t_width, 1)
            place[0] = amount if new else place[0] + amount
        else:
            wide = float64s(target + i * t * t_width, 1)
            wide[0] = amount if new else wide[0] + amount


@inlined
def move_elements(target, target_code, t_strides, source, source_code, s_strides, pool, p, weight, new):
    """Carry out a move (see `tape.instruction.move`) from one value to another, whose strides stand in the pool."""
    ndim = pool[p]
    t_width = 4 if target_code == FLOAT32 else 8
    s_width = 4 if source_code == FLOAT32 else 8
    shape = p + MOVE_SHAPE
    if ndim == 0:
        _move_row(target, target_code, 1, source, source_code, 1, 1, weight, new)
        return
    n = pool[shape + ndim - 1]
    rows = 1
    for axis in range(ndim - 1):
        rows *= pool[shape + axis]
    if n == 0:
        return
    t_step, s_step = _row_step(pool, shape, t_strides, ndim - 1), _row_step(pool, shape, s_strides, ndim - 1)
    for row in range(rows):
        t = row * t_step if t_step >= 0 else _offset(pool, shape, t_strides, ndim - 1, row)
        s = row * s_step if s_step >= 0 else _offset(pool, shape, s_strides, ndim - 1, row)
        _move_row(
            target + t * t_width, target_code, pool[t_strides + ndim - 1],
            source + s * s_width, source_code, pool[s_strides + ndim - 1], n, weight, new,
        )  # fmt: skip
