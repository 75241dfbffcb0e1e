"""Which inputs each element of a tape depends on: a compiled pass over the entries, first to last.

What an element depends on is a node of a graph: 0 for nothing, 1 to n for one of n inputs, above that the union of two
earlier nodes. Each slot has a node for each of its elements, in C order; slots whose elements depend on the same inputs
in the same order share them, so views and functions of one argument cost nothing.
"""

# The compiled functions take integers and arrays, and are typed by numba.
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import numpy as np

from tape.compiled import compiled, float32s, float64s, inlined, int64s
from tape.instruction import ELEMENT, ELEMENTWISE, EXTREME, FILL, GATHER, JOIN, MATMUL, MOVE, MOVE_SHAPE
from tape.layout import FLOAT32
from tape.machine import (
    ACTIVE,
    NUMBERS,
    activity_of,
    column,
    dtype_of,
    entry,
    operands_of,
    pool_of,
    value_of,
    word,
)
from tape.unions import unite
from tape.workspace import ARITY, CELL, EXTENT, KIND, OPCODE, PLAN, SCALARS

NATIVE = (ELEMENTWISE, MOVE, MATMUL, ELEMENT, FILL, GATHER, JOIN, EXTREME)
"""The kinds of instruction that are done here; Python does others (see `tape.footprints`)."""


# ---------------------------------------------------------------- what kinds of entries do
@inlined
def _size(m, e):
    """Give the number of elements of a slot."""
    row = entry(m, e, 0) - SCALARS
    if row < 0 or column(m, row, CELL) != 0:
        return 1
    return column(m, row, EXTENT) // (4 if dtype_of(m, e) == FLOAT32 else 8)


@inlined
def _take(graph, e, count):
    """Give a slot new places for its nodes, all 0."""
    start = graph.used[1]
    graph.used[1] = start + count
    graph.base[e] = start
    for i in range(count):
        graph.nodes[start + i] = 0
    return start


@inlined
def _position(pool, shape, strides, ndim, i):
    """Give the sum of index times stride for the i-th element, in C order."""
    position = 0
    for axis in range(ndim - 1, -1, -1):
        length = pool[shape + axis]
        position += i % length * pool[strides + axis]
        i //= length
    return position


@inlined
def _do_number(graph, m, e, instruction):
    bits = int64s(word(m, NUMBERS), 4 * SCALARS)[4 * instruction + 2]
    a = graph.base[entry(m, e, 1)] if bits & 1 != 0 else -1
    b = graph.base[entry(m, e, 2)] if bits & 2 != 0 else -1
    if a < 0 or b < 0:
        graph.base[e] = max(a, b)
        return
    first, second = np.int64(graph.nodes[a]), np.int64(graph.nodes[b])
    node = unite(graph, first, second)
    if node in (first, second):
        graph.base[e] = a if node == first else b
    else:
        graph.nodes[_take(graph, e, 1)] = node


@inlined
def _do_elementwise(graph, m, e, row, reads):
    """Unite the operands' elements, broadcast; `reads` has a bit for each operand that the result has a slope by."""
    pool = pool_of(m)
    p = column(m, row, PLAN)
    ndim, size = pool[p], pool[p + 1]
    fresh = False
    only = -1
    for k in range(column(m, row, ARITY)):
        slot = entry(m, e, 1 + k)
        if reads >> k & 1 != 0 and graph.base[slot] >= 0 and slot != only:
            fresh = fresh or only >= 0 or _size(m, slot) != size
            only = slot
    if not fresh:
        graph.base[e] = graph.base[only] if only >= 0 else -1
        return
    start = _take(graph, e, size)
    for k in range(column(m, row, ARITY)):
        slot = entry(m, e, 1 + k)
        base = graph.base[slot]
        if reads >> k & 1 == 0 or base < 0:
            continue
        plain = _size(m, slot) == size
        strides = p + 3 + ndim + k * (3 + 2 * ndim) + 3 + ndim
        for i in range(size):
            at = i if plain else _position(pool, p + 3, strides, ndim, i)
            graph.nodes[start + i] = unite(graph, np.int64(graph.nodes[start + i]), np.int64(graph.nodes[base + at]))


@inlined
def _do_move(graph, m, e, row):
    pool = pool_of(m)
    p = column(m, row, PLAN)
    shape, ndim = p + MOVE_SHAPE, pool[p]
    size = _size(m, e)
    source, begin = graph.base[entry(m, e, 1)] + entry(m, e, 3), pool[p + 6]
    count = 1
    for axis in range(ndim):
        count *= pool[shape + axis]
    if count == size and begin == 0 and (ndim == 0 or (ndim == 1 and pool[shape + 1] == 1 and pool[shape + 2] == 1)):
        graph.base[e] = source
        return
    into = _take(graph, e, size) + begin
    for i in range(count):
        t = into + _position(pool, shape, shape + 2 * ndim, ndim, i)
        s = source + _position(pool, shape, shape + ndim, ndim, i)
        graph.nodes[t] = unite(graph, np.int64(graph.nodes[t]), np.int64(graph.nodes[s]))


@inlined
def _number(address, single):
    return float(float32s(address, 1)[0]) if single else float64s(address, 1)[0]


@inlined
def _filled(m, e, k):
    """Count the elements other than 0 of a factor that is data, not computed; -1 if none is 0, or it is computed."""
    row = entry(m, entry(m, e, 1 + k), 0) - SCALARS
    if row < 0 or column(m, row, OPCODE) != 0:
        return -1
    pool = pool_of(m)
    p = column(m, entry(m, e, 0) - SCALARS, PLAN)
    rows, columns = (pool[p], pool[p + 1]) if k == 0 else (pool[p + 1], pool[p + 2])
    address, strides = value_of(m, entry(m, e, 1 + k)), p + 4 + 2 * k
    count = 0
    for i in range(rows):
        for j in range(columns):
            at = address + i * pool[strides] + j * pool[strides + 1]
            count += _number(at, pool[p + 3] == FLOAT32) != 0.0
    return -1 if count == rows * columns else count


@inlined
def _line(graph, base, start, step, count, other, stride, single):
    """Unite a row or column of a matrix; without the elements that meet a 0 of the other factor, if that is given."""
    node = 0
    if base >= 0:
        for k in range(count):
            if other == 0 or _number(other + k * stride, single) != 0.0:
                node = unite(graph, node, np.int64(graph.nodes[base + start + k * step]))
    return node


@inlined
def _do_matmul(graph, m, e, row):
    pool = pool_of(m)
    p = column(m, row, PLAN)
    rows, inner, columns = pool[p], pool[p + 1], pool[p + 2]
    single = pool[p + 3] == FLOAT32
    a, b = graph.base[entry(m, e, 1)], graph.base[entry(m, e, 2)]
    start = _take(graph, e, rows * columns)
    first, second = value_of(m, entry(m, e, 1)), value_of(m, entry(m, e, 2))
    if a >= 0 and b < 0 and _filled(m, e, 1) >= 0:
        for i in range(rows):
            for j in range(columns):
                other = second + j * pool[p + 7]
                node = _line(graph, a, i * inner, 1, inner, other, pool[p + 6], single)
                graph.nodes[start + i * columns + j] = node
        return
    if b >= 0 and a < 0 and _filled(m, e, 0) >= 0:
        for i in range(rows):
            for j in range(columns):
                other = first + i * pool[p + 4]
                node = _line(graph, b, j, columns, inner, other, pool[p + 5], single)
                graph.nodes[start + i * columns + j] = node
        return
    for j in range(columns):
        graph.nodes[start + j] = _line(graph, b, j, columns, inner, 0, 0, single)
    for i in range(rows - 1, -1, -1):  # the first row holds what the columns depend on, so it comes last
        node = _line(graph, a, i * inner, 1, inner, 0, 0, single)
        for j in range(columns):
            graph.nodes[start + i * columns + j] = unite(graph, node, np.int64(graph.nodes[start + j]))


@inlined
def _copy(graph, target, source, count):
    for i in range(count):
        graph.nodes[target + i] = 0 if source < 0 else graph.nodes[source + i]


@inlined
def _do_fill(graph, m, e, row):
    p = column(m, row, PLAN)
    block, size = pool_of(m)[p + 1], pool_of(m)[p + 2]
    operands, at = operands_of(m), entry(m, e, 1)
    start = _take(graph, e, size)
    for k in range(operands[at]):
        slot, offset = operands[at + 1 + 2 * k], operands[at + 2 + 2 * k]
        _copy(graph, start + offset, graph.base[slot], size if k == 0 else block)


@inlined
def _do_join(graph, m, e, row):
    p = column(m, row, PLAN)
    rows, whole = pool_of(m)[p], pool_of(m)[p + 1]
    operands, at = operands_of(m), entry(m, e, 1)
    start = _take(graph, e, rows * whole)
    for k in range(operands[at]):
        slot, offset, width = operands[at + 1 + 3 * k], operands[at + 2 + 3 * k], operands[at + 3 + 3 * k]
        base = graph.base[slot]
        for r in range(rows):
            _copy(graph, start + r * whole + offset, base + r * width if base >= 0 else -1, width)


@inlined
def _do_gather(graph, m, e, row):
    p = column(m, row, PLAN)
    rows, width, count = pool_of(m)[p], pool_of(m)[p + 1], pool_of(m)[p + 2]
    base = graph.base[entry(m, e, 1)]
    index = int64s(value_of(m, entry(m, e, 2)), count)
    start = _take(graph, e, count * width)
    for k in range(count):
        at = index[k] + rows if index[k] < 0 else index[k]
        _copy(graph, start + k * width, base + at * width, width)


@inlined
def _do_extreme(graph, m, e, row):
    p = column(m, row, PLAN)
    outer, count, inner = pool_of(m)[p], pool_of(m)[p + 1], pool_of(m)[p + 2]
    base = graph.base[entry(m, e, 1)]
    start = _take(graph, e, outer * inner)
    for o in range(outer):
        for j in range(inner):
            node = _line(graph, base, o * count * inner + j, inner, count, 0, 0, False)
            graph.nodes[start + o * inner + j] = node


@inlined
def _do_array(graph, m, e, row, kind, reads):
    if kind == ELEMENTWISE:
        _do_elementwise(graph, m, e, row, reads)
    elif kind in (ELEMENT, MOVE, GATHER, EXTREME) and graph.base[entry(m, e, 1)] < 0:
        graph.base[e] = -1
    elif kind == ELEMENT:
        graph.base[e] = graph.base[entry(m, e, 1)] + entry(m, e, 3)
    elif kind == MOVE:
        _do_move(graph, m, e, row)
    elif kind == MATMUL:
        _do_matmul(graph, m, e, row)
    elif kind == FILL:
        _do_fill(graph, m, e, row)
    elif kind == JOIN:
        _do_join(graph, m, e, row)
    elif kind == GATHER:
        _do_gather(graph, m, e, row)
    else:
        _do_extreme(graph, m, e, row)


# ---------------------------------------------------------------- the pass
@compiled()
def demand(m, e):
    """Give how many nodes an entry makes at most."""
    row = entry(m, e, 0) - SCALARS
    if row < 0:
        return 1
    kind, p, pool = column(m, row, KIND), column(m, row, PLAN), pool_of(m)
    if kind == ELEMENTWISE:
        return (column(m, row, ARITY) - 1) * _size(m, e)
    if kind == MATMUL:
        rows, inner, columns = pool[p], pool[p + 1], pool[p + 2]
        return rows * max(_filled(m, e, 1), inner) + columns * max(_filled(m, e, 0), inner) + rows * columns
    if kind in (MOVE, EXTREME):
        return _size(m, entry(m, e, 1)) + _size(m, e)
    return 0


@compiled()
def propagate(graph, m, reads, start, stop):
    """Do the entries from `start` to `stop`; give the first one that Python must do or make room for, or -1."""
    active = activity_of(m)
    for e in range(start, stop + 1):
        if active[e] != ACTIVE:
            continue
        instruction = entry(m, e, 0)
        nodes, places = len(graph.pairs) - graph.used[0], len(graph.nodes) - graph.used[1]
        if instruction < SCALARS:
            if nodes < 1 or places < 1:
                return e
            _do_number(graph, m, e, instruction)
            continue
        row = instruction - SCALARS
        kind = column(m, row, KIND)
        if kind not in NATIVE or nodes < demand(m, e) or places < _size(m, e):
            return e
        _do_array(graph, m, e, row, kind, reads[row])
    return -1
