"""Reductions that the sweep does itself: how each appends its entry, in every case and in the commonest ones."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ops.catalog import Structural
from ops.reduce import axes_of
from tape import instruction
from tape.layout import FLOAT, Layout, contiguous_strides, layout_of
from tape.record import handle, place
from tape.tensor import Tensor
from tape.workspace import KIND, SCALARS


def additive(scaled: bool) -> Callable[..., Tensor | None]:
    """Make what appends a sum, or (scaled) a mean."""

    def make(op: Structural, layout: Layout, out: Layout, parameters: Any, space: Any) -> int:
        axis = parameters["axis"]
        units = list(contiguous_strides(layout.shape, 1))
        reduced = tuple(1 if d in axis else n for d, n in enumerate(layout.shape))
        adjoint = [0 if d in axis else s for d, s in enumerate(contiguous_strides(reduced, 1))]
        count = layout.size // max(1, prod(reduced))
        return instruction.move(
            space, (op, (layout,), out, parameters), layout, out, layout.shape, units,
            adjoint, bijective=True, scale=1.0 / count if scaled and count else 1.0,
        )  # fmt: skip

    return _appending(make)


def _extreme(op: Structural, layout: Layout, out: Layout, parameters: Any, space: Any) -> int | None:
    axes = [d for d in parameters["axis"] if layout.shape[d] != 1]
    first, last = min(axes, default=0), max(axes, default=-1)
    # Other axes between reduced ones: the elements that one result is of have no constant stride.
    between = any(layout.shape[d] != 1 and d not in axes for d in range(first, last))
    if between or not layout.contiguous or not out.contiguous:
        return None
    outer, count, inner = (prod(layout.shape[s]) for s in (slice(first), slice(first, last + 1), slice(last + 1, None)))
    return instruction.extreme(space, (op, (layout,), out, parameters), out, outer, count, inner)


def _appending(make: Callable[..., int | None]) -> Callable[..., Tensor | None]:
    """Make what appends a reduction, given what makes its instruction or tells (None) that the host must do it."""

    def reduce(op: Structural, operands: tuple[Any, ...], parameters: Any) -> Tensor | None:
        (x,) = operands
        layout = x._layout
        if layout.cell or not instruction.floating(layout):
            return None
        axis, keepdims = parameters["axis"], parameters["keepdims"]
        tape = x._tape
        key = (op, layout, axis, keepdims)
        found = tape.instructions.get(key)
        if found is not None and found[0] is None:
            return None
        result = op.forward(x._value, axis=axis, keepdims=keepdims)
        if found is None:
            out = layout_of(np.shape(result), np.asarray(result).dtype)
            found = tape.instructions[key] = make(op, layout, out, parameters, tape.workspace), out
            if found[0] is None:
                return None
        return place(tape, found[0], (x,), result if found[1].cell else np.asarray(result), found[1])

    return reduce


extreme = _appending(_extreme)
"""Append a maximum or minimum over neighbouring axes of a C-contiguous array."""


def whole(op: Structural, ufunc: np.ufunc, *, divided: bool = False) -> Callable[[Tensor], Tensor]:
    """Make what records a reduction over all axes called without further arguments."""

    def reduce(a: Tensor) -> Tensor:
        tape = a._tape
        found = tape.instructions.get((op, a._layout))
        if found is None:
            made: Tensor = op(a, axis=tuple(range(a._layout.ndim)), keepdims=False)
            row = int(tape.workspace.entries[made._slot, 0])
            if made._layout.cell and a._layout.shape and _native(made):
                tape.instructions[op, a._layout] = row, made._layout
            return made
        result = float(ufunc.reduce(a._value, None))
        if divided:
            result /= a._layout.size
        return handle(tape, tape.append_element(found[0], a._slot, 0, result), result, FLOAT)

    return reduce


def along(op: Structural, ufunc: np.ufunc, *, divided: bool = False) -> Callable[[Tensor, int], Tensor]:
    """Make what records a reduction called with one axis and no further arguments."""

    def reduce(a: Tensor, axis: int) -> Tensor:
        tape, layout = a._tape, a._layout
        key = (op, layout, axis)
        found = tape.instructions.get(key)
        if found is None:
            made: Tensor = op(a, axis=axes_of(a, axis), keepdims=False)
            # Of other layouts NumPy adds in an order that depends on where the result lies.
            if not made._layout.cell and layout.contiguous and _native(made):
                tape.instructions[key] = int(tape.workspace.entries[made._slot, 0]), made._layout
            return made
        row, out = found
        result, address = tape.allocate(out)
        ufunc.reduce(a._value, axis, None, result)
        if divided:
            np.true_divide(result, layout.shape[axis], result, casting="unsafe")
        return handle(tape, tape.append_array(row, a._slot, -1, 0, address), result, out)

    return reduce


def _native(made: Tensor) -> bool:
    """Tell whether the sweep itself does the entry of a reduction."""
    space = made._tape.workspace
    row = int(space.entries[made._slot, 0]) - SCALARS
    return row >= 0 and int(space.table[row, KIND]) in (instruction.MOVE, instruction.EXTREME)
