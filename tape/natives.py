"""Structural ops that the sweep does itself: how each appends its entry.

A view of a value is an entry that refers to the same memory; its pullback is a move (see `tape.instruction.move`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ops.catalog import Structural
from ops.elementwise import positive
from ops.index import index_op, spec_of
from ops.reduce import max_op, mean_op, min_op, sum_op
from ops.shape import reshape_op, transpose_op
from tape import instruction, kernels, reductions
from tape.layout import FLOAT, FLOAT32, FLOAT64, Layout, contiguous_strides, layout_of, result_layout
from tape.products import matmul
from tape.record import NATIVES, constant, handle, place, tape_of
from tape.tensor import Tensor
from tape.views import watch
from tape.wengert import Tape
from tape.workspace import SCALARS, SMALL


def _units(shape: tuple[int, ...]) -> list[int]:
    """Give the strides of a C-contiguous array in elements."""
    return list(contiguous_strides(shape, 1))


def _view(
    x: Tensor, op: Structural, key: Any, value: Any, offset: tuple[int, int], target: Callable[[], list[int]],
    parameters: Any, *, bijective: bool, address: int | None = None,
) -> Tensor:  # fmt: skip
    """Append a view of x. `offset`: of its first element in the value (bytes) and in the adjoint (elements).

    `address` is given where the value is a copy.
    """
    tape = x._tape
    layout = layout_of(value.shape, value.dtype, value.strides)
    whole = (op, x._layout, layout, key)
    found = tape.instructions.get(whole)
    if found is None:
        if instruction.floating(layout):
            row = instruction.move(
                tape.workspace, (op, (x._layout,), layout, parameters), x._layout, layout, layout.shape,
                target(), _units(layout.shape), bijective=bijective,
            )  # fmt: skip
        else:
            row = instruction.host(tape.workspace, op, (x._layout,), layout, parameters)
            tape.workspace.table[row - SCALARS, instruction.ARITY] = 1
        found = tape.instructions[whole] = row, layout
    row = found[0]
    if layout.cell:
        number = float(value)
        return handle(tape, tape.append_number(row, x._slot, -1, number), number, FLOAT)
    if address is None:
        address = tape.address(x._slot) + offset[0]
    return handle(tape, tape.append_array(row, x._slot, -1, offset[1], address), value, layout)


kernels.enable_numbers(positive)


def copied(x: Tensor) -> Tensor:
    """Append an entry with the same value: a slot of its own, by which to differentiate."""
    tape, layout = x._tape, x._layout
    if layout.cell:
        return handle(tape, tape.append_number(positive.code, x._slot, x._slot, x._value), x._value, layout)
    axes = tuple(range(layout.ndim))
    units = _units(layout.shape)
    return _view(x, transpose_op, axes, x._value, (0, 0), lambda: units, {"axes": axes}, bijective=True)


def replaced(x: Tensor, value: Any) -> Tensor:
    """Append an entry that has another value than x, while its gradient is that of x."""
    tape, layout = x._tape, x._layout
    if layout.cell:
        number = float(value)
        return handle(tape, tape.append_number(positive.code, x._slot, x._slot, number), number, layout)
    axes = tuple(range(layout.ndim))
    units = _units(layout.shape)
    held, address = tape.allocate(layout_of(layout.shape, layout.dtype))
    held[...] = value
    return _view(x, transpose_op, axes, held, (0, 0), lambda: units, {"axes": axes}, bijective=True, address=address)


def reshape(op: Structural, operands: tuple[Any, ...], parameters: Any) -> Tensor | None:
    """Append a reshaped view, or a reshaped copy where NumPy would make one."""
    (x,) = operands
    shape = parameters["shape"]
    if x._layout.cell:
        return _repeated(x, op, shape, parameters) if shape and prod(shape) == 1 else None
    value = x._value.reshape(shape)
    if not np.may_share_memory(value, x._value):
        value, address = x._tape.allocate(layout_of(value.shape, value.dtype))
        value[...] = x._value.reshape(shape)
        return _view(x, op, (), value, (0, 0), lambda: _units(shape), parameters, bijective=True, address=address)
    made = _view(x, op, (), value, (0, 0), lambda: _units(shape), parameters, bijective=True)

    def write_back(base: Tensor, new: Tensor) -> None:
        base[...] = np.reshape(new, base.shape)

    return watch(x, made, (lambda base: reshape_op(base, shape=shape), write_back))


def transpose(op: Structural, operands: tuple[Any, ...], parameters: Any) -> Tensor | None:
    """Append a transposed view."""
    (x,) = operands
    axes = parameters["axes"]
    if x._layout.cell:
        return None
    units = _units(x._layout.shape)
    value = x._value.transpose(axes)
    made = _view(x, op, axes, value, (0, 0), lambda: [units[a] for a in axes], parameters, bijective=True)

    def write_back(base: Tensor, new: Tensor) -> None:
        base[...] = np.transpose(new, np.argsort(axes))

    return watch(x, made, (lambda base: transpose_op(base, axes=axes), write_back))


def _repeated(x: Tensor, op: Structural, shape: tuple[int, ...], parameters: Any) -> Tensor:
    """Append an array every element of which is a number."""
    tape, out = x._tape, layout_of(shape, x._layout.dtype)
    found = tape.instructions.get((op, FLOAT, out))
    if found is None:
        zeros = [0] * len(shape)
        row = instruction.move(
            tape.workspace, (op, (FLOAT,), out, parameters), FLOAT, out, shape, zeros, _units(shape), bijective=False
        )
        found = tape.instructions[op, FLOAT, out] = row, out
    value, address = tape.allocate(out)
    value.fill(x._value)
    return handle(tape, tape.append_array(found[0], x._slot, -1, 0, address), value, out)


def broadcast(op: Structural, operands: tuple[Any, ...], parameters: Any) -> Tensor | None:
    """Append a view with repeated elements."""
    (x,) = operands
    shape = parameters["shape"]
    if x._layout.cell and shape:
        return _repeated(x, op, shape, parameters)
    if x._layout.cell or not x._layout.shape:
        return None
    value = np.broadcast_to(x._value, shape)
    target = instruction.broadcast_strides(x._layout, shape, unit=1)
    return _view(x, op, (), value, (0, 0), lambda: target, parameters, bijective=False)


def _basic(layout: Layout, spec: tuple[Any, ...]) -> tuple[int, int, list[int]] | None:
    """Give offset in the value (bytes), offset in the adjoint and strides in the adjoint of a basic index.

    None where the index is not valid: NumPy then says so itself.
    """
    real = len(spec) - spec.count(None) - spec.count(Ellipsis)
    if real > layout.ndim:
        return None
    items = list(spec)
    full = ("slice", None, None, None)
    missing = [full] * (layout.ndim - real)
    at = items.index(Ellipsis) if Ellipsis in items else len(items)
    items[at : at + 1] = missing
    units = _units(layout.shape)
    value_offset = adjoint_offset = axis = 0
    strides: list[int] = []
    for item in items:
        if item is None:
            strides.append(0)
            continue
        length = layout.shape[axis]
        if isinstance(item, int):
            first, step = item + length if item < 0 else item, 0
        else:
            first, _, step = slice(*item[1:]).indices(length)
            strides.append(units[axis] * step)
            first = min(first, length - 1) if first >= 0 else 0
        value_offset += first * layout.strides[axis]
        adjoint_offset += first * units[axis]
        axis += 1
    return value_offset, adjoint_offset, strides


def element_row(tape: Tape, layout: Layout) -> int:
    """Give the instruction that reads one element of a value of this layout."""
    key = (index_op, layout)
    found = tape.instructions.get(key)
    if found is None:
        detail = (index_op, (layout,), FLOAT, None)
        found = tape.instructions[key] = instruction.element(tape.workspace, detail, layout, FLOAT), FLOAT
    return found[0]


_REMEMBERED = 20_000


def _key(index: Any) -> Any:
    """Give a hashable form of a basic index; raise KeyError for others."""
    kind = type(index)
    if kind is int or index is None or index is Ellipsis:
        return index
    if kind is slice:
        return (slice, index.start, index.stop, index.step)  # no tuple of indices looks like that
    if kind is tuple:
        return tuple([_key(item) for item in index])
    raise KeyError


def basic_view(x: Tensor, index: Any) -> Tensor | None:
    """Append a basic index by what was worked out for the same index before; None if it must go the long way."""
    layout, tape = x._layout, x._tape
    scale = 1
    try:
        if type(index) is int:  # rows share what was worked out; only the offset differs
            if not 0 <= index < layout.shape[0]:
                return None
            key, scale = (index_op, layout, int), index
        else:
            key = (index_op, layout, _key(index))
        found = tape.instructions.get(key)
    except (KeyError, TypeError, IndexError):
        return None
    if found is not None:
        row, out, value_offset, adjoint_offset = found
        slot = x._slot
        address = tape.address(slot) + value_offset * scale
        value = x._value[index]
        return handle(tape, tape.append_array(row, slot, -1, adjoint_offset * scale, address), value, out)
    spec = spec_of(index)[0]
    made: Tensor = index_op(x, spec=spec)
    if made._layout.shape and len(tape.instructions) < _REMEMBERED:
        where = _basic(layout, spec if scale == 1 else (1, *spec[1:]))
        assert where is not None
        row = int(tape.workspace.entries[made._slot, 0])
        if type(index) is not int:
            tape.instructions[key] = row, made._layout, where[0], where[1]
        elif layout.shape[0] > 1:
            unit = layout.size // layout.shape[0]
            tape.instructions[key] = row, made._layout, layout.strides[0], unit
    return made


def index(op: Structural, operands: tuple[Any, ...], parameters: Any) -> Tensor | None:
    """Append a basic index as a view, one element as a number, rows by an integer array as a gather."""
    x = operands[0]
    if not isinstance(x, Tensor) or x._layout.cell:
        return None
    spec = parameters["spec"]
    if len(operands) > 1:
        return _rows(op, operands, parameters)
    value = x._value[tuple(slice(*i[1:]) if isinstance(i, tuple) else i for i in spec)]
    where = _basic(x._layout, spec)
    assert where is not None
    if x._layout.code == FLOAT64 and np.ndim(value) == 0:
        tape = x._tape
        number = float(value)
        slot = tape.append_element(element_row(tape, x._layout), x._slot, where[1], number)
        return handle(tape, slot, number, FLOAT)
    if not isinstance(value, np.ndarray):  # one element of another dtype: a 0-d view
        value = np.ndarray((), x._layout.dtype, x._value, where[0]) if x._layout.contiguous else None
        if value is None:
            return None
    value_offset, adjoint_offset, strides = where
    bijective = value.size == x._layout.size
    return _view(
        x, op, tuple(strides), value, (value_offset, adjoint_offset), lambda: strides, {"strides": tuple(strides)},
        bijective=bijective,
    )  # fmt: skip


def window(_: Structural, operands: tuple[Any, ...], parameters: Any) -> Tensor | None:
    """Append a basic index that is told by offset and steps."""
    (x,) = operands
    layout = x._layout
    if layout.cell or not layout.contiguous or not instruction.floating(layout):
        return None
    offset, strides, shape = parameters["offset"], parameters["strides"], parameters["shape"]
    size = layout.dtype.itemsize
    value = np.ndarray(shape, layout.dtype, x._value, offset * size, [size * s for s in strides])
    if not shape and layout.code == FLOAT64:
        return None
    where = offset * size, offset
    told = {"strides": strides}
    return _view(x, index_op, strides, value, where, lambda: list(strides), told, bijective=value.size == layout.size)


def embed(op: Structural, operands: tuple[Any, ...], parameters: Any) -> Tensor | None:
    """Append zeros but for the elements that a window takes."""
    (g,) = operands
    layout = g._layout
    if layout.cell or not instruction.floating(layout):
        return None
    offset, strides, shape = parameters["offset"], parameters["strides"], parameters["shape"]
    tape = g._tape
    out = layout_of(shape, layout.dtype)
    key = (op, layout, out, offset, strides)
    found = tape.instructions.get(key)
    if found is None:
        row = instruction.move(
            tape.workspace, (op, (layout,), out, parameters), layout, out, layout.shape, _units(layout.shape),
            list(strides), bijective=True, begin=offset,
        )  # fmt: skip
        found = tape.instructions[key] = row, out
    value, address = tape.allocate(out)
    value.fill(0.0)
    if layout.size:
        size = layout.dtype.itemsize
        np.ndarray(layout.shape, layout.dtype, value, offset * size, [size * s for s in strides])[...] = g._value
    return handle(tape, tape.append_array(found[0], g._slot, -1, 0, address), value, out)


def _rows(op: Structural, operands: tuple[Any, ...], parameters: Any) -> Tensor | None:
    x, chosen = operands[0], operands[-1]
    if parameters["spec"] != ("array",) or not x._layout.shape or not instruction.floating(x._layout):
        return None
    if chosen.dtype.kind not in "iu" or chosen.ndim == 0:
        return None
    tape = tape_of(operands)
    if not isinstance(chosen, Tensor):
        chosen = constant(tape, chosen)
    if not chosen._layout.contiguous:
        return None
    result = np.asarray(x._value[chosen._value])
    out = layout_of(result.shape, result.dtype)
    key = (op, x._layout, chosen._layout)
    found = tape.instructions.get(key)
    if found is None:
        rows = x._layout.shape[0]
        width = x._layout.size // rows if rows else 0
        detail = (op, (x._layout, chosen._layout), out, parameters)
        row = instruction.gather(tape.workspace, detail, out, rows, width, chosen._layout.size)
        found = tape.instructions[key] = row, out
    return place(tape, found[0], (x, chosen), result, out)


def transposed(x: Tensor) -> Tensor:
    """Append the transpose: `x.T`."""
    return transpose_op(x, axes=tuple(range(x._layout.ndim))[::-1])


FAST: dict[Any, Callable[[Any], Tensor]] = {
    np.sum: reductions.whole(sum_op, np.add),
    np.mean: reductions.whole(mean_op, np.add, divided=True),
    np.max: reductions.whole(max_op, np.maximum),
    np.min: reductions.whole(min_op, np.minimum),
    np.transpose: transposed,
}
"""What records the commonest calls of one argument."""

ALONG: dict[Any, Callable[[Any, int], Tensor]] = {
    np.sum: reductions.along(sum_op, np.add),
    np.mean: reductions.along(mean_op, np.add, divided=True),
    np.max: reductions.along(max_op, np.maximum),
    np.min: reductions.along(min_op, np.minimum),
}
"""What records the commonest calls of one argument and an axis."""


def concatenate(op: Structural, operands: tuple[Any, ...], parameters: Any) -> Tensor | None:
    """Append arrays joined along an axis, or (without an axis) numbers that become a vector."""
    tape = tape_of(operands)
    parts = [x if isinstance(x, Tensor) else constant(tape, x) for x in operands]
    code = parts[0]._layout.code
    if code not in (FLOAT32, FLOAT64) or any(x._layout.code != code for x in parts):
        return None
    result = op.forward(*[x._value for x in parts], **parameters)
    out = result_layout(result)
    if out.cell or out.code != code:
        return None
    axis = parameters.get("axis", 0)
    rows = int(np.prod(out.shape[:axis]))
    key = (op, out, axis)
    found = tape.instructions.get(key)
    if found is None:
        row = instruction.join(tape.workspace, (op, (), out, parameters), out, rows)
        found = tape.instructions[key] = row, out
    numbers = [len(parts)]
    offset = 0
    for x in parts:
        width = x._layout.size // max(rows, 1)
        numbers += (x._slot, offset, width)
        offset += width
    start = tape.workspace.add_operands(numbers)
    if result.nbytes > SMALL and result.strides == out.strides:
        tape.keep.append(result)
        tape.spend(result.nbytes)
        return handle(tape, tape.append_array(found[0], start, -1, -1, result.ctypes.data), result, out)
    value, address = tape.allocate(out)
    value[...] = result
    return handle(tape, tape.append_array(found[0], start, -1, -1, address), value, out)


NATIVES.update(
    {
        "reshape": reshape,
        "transpose": transpose,
        "broadcast": broadcast,
        "index": index,
        "window": window,
        "embed": embed,
        "sum": reductions.additive(scaled=False),
        "mean": reductions.additive(scaled=True),
        "extreme": reductions.extreme,
        "matmul": matmul,
        "concatenate": concatenate,
    }
)
