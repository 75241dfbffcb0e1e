"""Instructions: an op applied to layouts with parameters, as the row of numbers that the sweep reads.

Each function here makes one instruction on first use; `Workspace.instructions` finds it again.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ops.catalog import LEAF, Elementwise, Structural
from tape.layout import FLOAT32, FLOAT64, Layout
from tape.workspace import ARITY, BYTES, CELL, DTYPE, EXTENT, KIND, OPCODE, READY, Workspace

NOTHING, ELEMENTWISE, MOVE, MATMUL, ELEMENT, FILL, GATHER, JOIN, HOST, RUN, EXTREME = range(11)
"""Kinds of instruction, by what the sweep does for them. NOTHING: a leaf, or an op without slope. RUN is the kind
of no instruction: it is what the sweep does for elementwise ones on large arrays."""

DIRECT, SINGLE, GATHERED = range(3)
"""How an elementwise kernel reads an operand: in place, as one number, or through a copy of each block."""

UNREAD = 4
"""Added to how: the partials do not read this operand's value."""

MOVE_SHAPE = 8
"""Where in the plan of a MOVE its shape begins."""


def _columns(kind: int, arity: int, opcode: int, out: Layout) -> dict[int, int]:
    return {
        KIND: kind,
        ARITY: arity,
        OPCODE: opcode,
        BYTES: 0 if out.cell else out.nbytes,
        CELL: int(out.cell),
        DTYPE: out.code,
        EXTENT: 0 if out.cell else out.size * out.dtype.itemsize,
        READY: int(kind != ELEMENTWISE),
    }


def leaf(space: Workspace, layout: Layout) -> int:
    """Make the instruction of an input or a constant."""
    key = (LEAF, layout)
    found = space.instructions.get(key)
    if found is None:
        columns = _columns(NOTHING, 0, LEAF.code, layout)
        found = space.add_instruction((LEAF, (), layout, None), columns, ()), layout
        space.instructions[key] = found
    return found[0]


def floating(layout: Layout) -> bool:
    """Tell whether values of this layout can carry a gradient."""
    return layout.code in (FLOAT32, FLOAT64)


def broadcast_strides(layout: Layout, shape: tuple[int, ...], unit: int | None = None) -> list[int]:
    """Give the strides with which a value is read as if it had `shape`: 0 along axes that are repeated.

    In bytes as the value lies; with `unit`, of a C-contiguous value counted in elements.
    """
    lead = len(shape) - layout.ndim
    strides = [0] * lead
    step = 1
    own: list[int] = []
    for length in reversed(layout.shape):
        own.append(step)
        step *= max(length, 1)
    own.reverse()
    for axis, length in enumerate(layout.shape):
        repeated = length == 1 and shape[lead + axis] != 1
        strides.append(0 if repeated else own[axis] if unit else layout.strides[axis])
    return strides


def elementwise(space: Workspace, op: Elementwise, operands: tuple[Layout, ...], out: Layout) -> int:
    """Make the instruction of an elementwise op with broadcasting.

    The plan: ndim, size, dtype code, shape; then for each operand and for the result how it is read, dtype code,
    whether it is repeated, strides of the value in bytes, strides of the adjoint in elements.
    """
    slopes = op.differentiable and floating(out)
    columns = _columns(ELEMENTWISE if slopes else NOTHING, len(operands), op.code, out)
    plan = [out.ndim, out.size, out.code, *out.shape]
    read = 0
    for partial in op.reads:
        read |= partial
    for position, layout in enumerate(operands):
        # Broadcasting adds axes of length 1 or repeats: equal sizes mean equal order in memory.
        repeated = layout.size != out.size
        if layout.contiguous and not repeated and layout.code == out.code:
            how = DIRECT
        elif layout.size == 1 and layout.code == out.code:
            how = SINGLE
        else:
            how = GATHERED
        if not read >> position & 1:
            how += UNREAD
        plan += [how, layout.code, int(repeated or layout.code != out.code)]
        plan += broadcast_strides(layout, out.shape)
        plan += broadcast_strides(layout, out.shape, unit=1)
    how = (DIRECT if out.contiguous else GATHERED) + (0 if read & 8 else UNREAD)
    plan += [how, out.code, 0, *out.strides, *broadcast_strides(out, out.shape, unit=1)]
    return space.add_instruction((op, operands, out, None), columns, plan)


def host(space: Workspace, op: Structural, operands: tuple[Layout, ...], out: Layout, parameters: Any) -> int:
    """Make the instruction of an op whose pullbacks run in Python. Its operands stand in the pool."""
    slopes = op.differentiable and floating(out)
    columns = _columns(HOST if slopes else NOTHING, -1, op.code, out)
    return space.add_instruction((op, operands, out, parameters), columns, ())


def move(
    space: Workspace,
    detail: Any,
    source: Layout,
    out: Layout,
    shape: tuple[int, ...],
    target: list[int],
    adjoint: list[int],
    *,
    bijective: bool,
    scale: float = 1.0,
    begin: int = 0,
) -> int:
    """Make the instruction of an op that moves, repeats or sums elements, each weighted by `scale`.

    For every index of `shape` its pullback adds one element of the adjoint (at strides `adjoint`, from `begin`) to one
    element of the operand's adjoint (at strides `target`, from the offset in the entry), all counted in elements.
    """
    axes = [a for a in range(len(shape)) if shape[a] != 1]
    # Neighbouring axes that run on into each other are one.
    merged: list[list[int]] = []
    for a in axes:
        if merged:
            last = merged[-1]
            if last[1] == target[a] * shape[a] and last[2] == adjoint[a] * shape[a]:
                last[0] *= shape[a]
                last[1], last[2] = target[a], adjoint[a]
                continue
        merged.append([shape[a], target[a], adjoint[a]])
    columns = _columns(MOVE, 1, detail[0].code, out)
    weight = int(np.float64(scale).view(np.int64))
    cleared = 0 if source.cell else source.size * source.dtype.itemsize
    # Whether each element of the result comes from one of the operand, in forward mode.
    covers = prod(shape) == out.size and all(shape[a] == 1 or adjoint[a] != 0 for a in range(len(shape)))
    plan = [len(merged), int(bijective), source.code, out.code, weight, cleared, begin, int(covers)]
    empty = 0 in shape
    plan += [0 if empty else m[0] for m in merged] + [m[1] for m in merged] + [m[2] for m in merged]
    return space.add_instruction(detail, columns, plan)


def matmul(space: Workspace, detail: Any, a: Layout, b: Layout, out: Layout) -> int:
    """Make the instruction of a product of two matrices or a matrix and a vector.

    The plan: m, k, n, dtype code; strides of a (m, k), of b (k, n), in bytes. A vector is a matrix of one row
    or column.
    """
    size = out.dtype.itemsize
    m, a_strides = (a.shape[0], a.strides) if a.ndim == 2 else (1, (size * a.shape[0], a.strides[0]))
    n, b_strides = (b.shape[1], b.strides) if b.ndim == 2 else (1, (b.strides[0], size))
    columns = _columns(MATMUL, 2, detail[0].code, out)
    return space.add_instruction(
        detail, columns, [m, a.shape[-1], n, out.code, *a_strides, *b_strides, a.nbytes + b.nbytes + out.nbytes]
    )


def element(space: Workspace, detail: Any, source: Layout, out: Layout) -> int:
    """Make the instruction that reads one element, at the offset in the entry."""
    columns = _columns(ELEMENT, 1, detail[0].code, out)
    return space.add_instruction(detail, columns, [source.code])


def fill(space: Workspace, detail: Any, source: Layout, block: int) -> int:
    """Make the instruction that replaces blocks of elements by other values.

    Its operands stand in the pool: count, base, then a slot and an offset for each block.
    """
    columns = _columns(FILL, -1, detail[0].code, source)
    return space.add_instruction(detail, columns, [source.code, block, source.size])


def join(space: Workspace, detail: Any, out: Layout, rows: int) -> int:
    """Make the instruction that joins arrays along an axis: `rows` times a piece of each.

    Its operands stand in the pool: count, then a slot, an offset and the width of a piece for each.
    """
    columns = _columns(JOIN, -1, detail[0].code, out)
    return space.add_instruction(detail, columns, [rows, out.size // max(rows, 1), out.code])


def gather(space: Workspace, detail: Any, out: Layout, rows: int, width: int, count: int) -> int:
    """Make the instruction that takes rows by an integer array (its second operand), repeats allowed."""
    columns = _columns(GATHER, 2, detail[0].code, out)
    return space.add_instruction(detail, columns, [rows, width, count, out.code])


def extreme(space: Workspace, detail: Any, out: Layout, outer: int, count: int, inner: int) -> int:
    """Make the instruction of a maximum or minimum: of an array seen as (outer, count, inner), over the middle axis."""
    columns = _columns(EXTREME, 1, detail[0].code, out)
    return space.add_instruction(detail, columns, [outer, count, inner, out.code])
