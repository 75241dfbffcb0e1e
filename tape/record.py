"""The only door by which entries are appended to a tape."""

from __future__ import annotations

import math
from _thread import get_ident
from collections.abc import Callable
from typing import Any

import numpy as np

from ops.catalog import LEAF, OPS, Elementwise, Op, Structural
from ops.elementwise import positive
from tape import instruction, kernels
from tape.constants import COPIED, lock, sample
from tape.errors import InputError, UnsupportedError
from tape.layout import CODES, FLOAT, PYTHON_FLOAT, Layout, layout_of, result_layout
from tape.tensor import Tensor
from tape.wengert import Tape
from tape.workspace import SCALARS, SMALL

float64 = np.dtype(np.float64)
_new = object.__new__
_COMMON = {np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.int64), np.dtype(np.bool_)}
ndarray = np.ndarray


def handle(tape: Tape, slot: int, value: Any, layout: Layout) -> Tensor:
    """Make the handle of a slot."""
    t = _new(Tensor)
    t._tape = tape
    t._slot = slot
    t._value = value
    t._layout = layout
    return t


def _refused(_: Callable[..., Any], operands: tuple[Any, ...], __: dict[str, Any]) -> Any:
    raise AssertionError(f"an operation on {operands} cannot be recorded")


apart: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any] = _refused
"""What carries out an operation on a value whose tape is not simply recording: `tape.imperative` puts it in place."""


def elsewhere(operands: tuple[Any, ...]) -> bool:
    """Tell whether an operand is on a tape that is not simply recording in this thread."""
    return any(isinstance(x, Tensor) and x._tape.owner != get_ident() for x in operands)


NATIVES: dict[str, Callable[..., Tensor | None]] = {}
"""What appends the entry of an op that the sweep does itself; it gives None for a case that the host must do."""


# ---------------------------------------------------------------- leaves
def leaf_number(tape: Tape, value: float, layout: Layout = FLOAT) -> Tensor:
    """Append a float64 number as a leaf."""
    slot = tape.count
    return handle(tape, tape.append_number(LEAF.code, slot, slot, value), value, layout)


def leaf_array(tape: Tape, array: np.ndarray[Any, Any], *, copy: bool = True) -> Tensor:
    """Append an array as a leaf: a copy, or the array itself where it will not change."""
    layout = layout_of(array.shape, array.dtype)
    if layout.cell:
        return leaf_number(tape, float(array))
    if copy:
        if not array.flags.c_contiguous:  # results computed from it must have NumPy's order in memory
            layout = layout_of(array.shape, array.dtype, np.empty_like(array).strides)
        value, address = tape.allocate(layout)
        value[...] = array
    else:
        value, layout = array, layout_of(array.shape, array.dtype, array.strides)
        address = array.ctypes.data
        tape.keep.append(array)
    row = instruction.leaf(tape.workspace, layout)
    return handle(tape, tape.append_array(row, -1, -1, -1, address), value, layout)


def plain_array(tape: Tape, array: np.ndarray[Any, Any]) -> Tensor:
    """Append a user's array as a leaf: a copy if it is small, else the array itself, read-only while the tape lives."""
    if array.nbytes <= COPIED or tape.copies or not array.flags.aligned:
        return leaf_array(tape, array)
    known = tape.plain.get(id(array))
    if known is not None:
        return handle(tape, *known)
    lock(tape.locked, array)
    tape.samples.append((array, sample(array)))
    t = leaf_array(tape, array, copy=False)
    tape.plain[id(array)] = t._slot, t._value, t._layout
    return t


def input_array(tape: Tape, array: np.ndarray[Any, Any]) -> Tensor:
    """Append an argument as a leaf: itself if it has gaps in memory, since they decide whether a reshape is a view."""
    gaps = not layout_of(array.shape, array.dtype, array.strides).dense
    if gaps and array.nbytes <= COPIED and array.flags.aligned and not tape.copies:
        lock(tape.locked, array)
        tape.samples.append((array, sample(array)))
        return leaf_array(tape, array, copy=False)
    return plain_array(tape, array)


def number_slot(tape: Tape, value: float) -> int:
    """Give the slot of a constant number, met before or not."""
    # 0.0 and -0.0 are equal keys but different numbers.
    key: Any = value if value else repr(value)
    slot = tape.constants.get(key)
    if slot is None:
        slot = leaf_number(tape, value)._slot
        tape.constants[key] = slot
    return slot


def constant(tape: Tape, x: Any) -> Tensor:
    """Bring a plain value onto the tape.

    An array is copied, since it may change before the sweep; a large one is made read-only until then instead.
    """
    kind = type(x)
    if kind is ndarray and x.nbytes <= COPIED and x.dtype in _COMMON:
        return leaf_array(tape, x)
    if kind is float or kind is int or kind is bool:
        if kind is bool:
            return leaf_array(tape, np.asarray(x))
        value = float(x)
        return handle(tape, number_slot(tape, value), value, PYTHON_FLOAT)
    if kind is np.float64:
        value = float(x)
        return handle(tape, number_slot(tape, value), value, FLOAT)
    array = np.asarray(x)
    code = CODES.get(array.dtype)
    if code is None:
        array = supported(array)
    elif array.dtype.kind == "c":
        raise UnsupportedError(
            "complex arrays are not supported yet: write the real and imaginary parts as two real arrays"
        )
    return leaf_array(tape, array) if array is not x else plain_array(tape, array)


def supported(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Convert an array to a dtype that tapes hold."""
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    if array.dtype == np.float16 or array.dtype.kind == "f":
        return array.astype(np.float32 if array.dtype.itemsize < 4 else np.float64)
    raise UnsupportedError(
        f"an array of dtype {array.dtype} cannot take part in a recorded computation; "
        "use float64, float32, integers or booleans"
    )


def closed_over() -> InputError:
    """Make the error for a tensor whose gradient a transform would lose."""
    return InputError(
        "a tensor that requires a gradient is used inside a function that `grad` or its kin is differentiating, but it "
        "is none of its arguments, so its own gradient would be lost: pass it as an argument, or use `x.detach()`, or "
        "call under `with no_grad():`"
    )


def different_tapes(first: Tape, second: Tape) -> Exception:
    """Make the error for operands that are recorded on two tapes."""
    if first.persistent or second.persistent:
        return closed_over()
    return UnsupportedError("values recorded on two different tapes cannot be combined")


def tape_of(operands: tuple[Any, ...]) -> Tape:
    """Give the tape of the recorded operands, which must be one that this thread may append to."""
    found: Tape | None = None
    for x in operands:
        if isinstance(x, Tensor):
            tape = x._tape
            if tape.owner != get_ident():
                tape.refuse()
            if found is not None and tape is not found:
                raise different_tapes(found, tape)
            found = tape
    assert found is not None
    return found


# ---------------------------------------------------------------- elementwise ops
def unary(op: Elementwise) -> Callable[[Any], Any]:
    """Make what records an elementwise op of one operand in every case; `tape.recorders` has the common one."""
    ufunc, code = op.forward, op.code
    native = kernels.enable_numbers(op)

    def record(x: Any) -> Any:
        tape = x._tape
        if tape.owner != get_ident():
            return apart(ufunc, (x,), {})
        value = x._value
        if type(value) is float and native:
            result = float(ufunc(value))
            slot = x._slot
            return handle(tape, tape.append_number(code, slot, slot, result), result, FLOAT)
        return elementwise(op, (x,))

    return record


def binary(op: Elementwise) -> Callable[[Any, Any], Any]:
    """Make what records an elementwise op of two operands in every case; `tape.recorders` has the common one."""
    ufunc, code = op.forward, op.code
    native = kernels.enable_numbers(op)

    def record(x: Any, y: Any) -> Any:
        if not isinstance(x, _ANSWERED) or not isinstance(y, _ANSWERED):
            return NotImplemented
        if elsewhere((x, y)):
            return apart(ufunc, (x, y), {})
        tape = tape_of((x, y))
        if (type(x) is int or type(y) is int) and _integral(x) and _integral(y):
            return elementwise(op, (x, y))
        x = x if isinstance(x, Tensor) else constant(tape, x)
        y = y if isinstance(y, Tensor) else constant(tape, y)
        v, w = x._value, y._value
        if type(v) is float and type(w) is float and native:
            result = float(ufunc(v, w))
            layout = PYTHON_FLOAT if x._layout.weak and y._layout.weak else FLOAT
            return handle(tape, tape.append_number(code, x._slot, y._slot, result), result, layout)
        return elementwise(op, (x, y))

    return record


def recurring(tape: Tape, x: float) -> tuple[np.ndarray[Any, Any], int] | None:
    """Give a Python number beside a float64 array as a 0-d array, and its slot; None for an integer that is not exact.

    A 0-d array is what ufuncs take most quickly, and beside float64 it promotes as a Python number does.
    """
    value = float(x)
    if value != x:
        return None
    if not value and math.copysign(1.0, value) < 0.0:  # not to be found under the key of 0.0
        return np.array(value), number_slot(tape, value)
    found = tape.weak.get(value)
    if found is None:
        found = tape.weak[value] = np.array(value), number_slot(tape, value)
    return found


def _integral(x: Any) -> bool:
    """Tell whether an operand leaves a Python int beside it an integer."""
    return type(x) in (int, bool) or getattr(getattr(x, "dtype", None), "kind", "f") in "biu"


_ANSWERED = (Tensor, ndarray, np.generic, int, float, complex, list, tuple)


def _promoting(x: Tensor) -> Any:
    """Give the value as NumPy would promote it: a Python number is weak, a NumPy number is not."""
    return np.float64(x._value) if x._layout is FLOAT else x._value


def elementwise(op: Elementwise, operands: tuple[Any, ...]) -> Tensor:
    """Record an elementwise op of any operands."""
    tape = tape_of(operands)
    if any(type(x) is int for x in operands) and all(map(_integral, operands)):
        operands = tuple(np.asarray(x) if type(x) is int else x for x in operands)
    handles = tuple(x if isinstance(x, Tensor) else constant(tape, x) for x in operands)
    found = tape.instructions.get((op, *(h._layout for h in handles)))
    if found is None:
        return first_elementwise(op, tape, handles)
    row, out = found
    if not op.is_ufunc or out.cell:
        return place(tape, row, handles, op.forward(*map(_promoting, handles)), out)
    result, address = tape.allocate(out)
    op.forward(*map(_promoting, handles), out=result)
    return _append(tape, row, handles, result, address, out)


def first_elementwise(op: Elementwise, tape: Tape, operands: tuple[Tensor, ...]) -> Tensor:
    """Record an elementwise op whose result's layout is not known yet: NumPy tells it."""
    result = op.forward(*map(_promoting, operands))
    if np.asarray(result).dtype not in CODES:
        result = supported(np.asarray(result))
    result = np.asarray(result)
    out = result_layout(result)
    layouts = tuple(h._layout for h in operands)
    key = (op, *layouts)
    found = tape.instructions.get(key)
    if found is None:
        native = not op.differentiable or kernels.native(op)
        make = instruction.elementwise if native else _host_elementwise
        found = make(tape.workspace, op, layouts, out), out
        tape.instructions[key] = found
    return place(tape, found[0], operands, result, out)


def _host_elementwise(space: Any, op: Any, operands: tuple[Layout, ...], out: Layout) -> int:
    return instruction.host(space, op, operands, out, {})


def place(tape: Tape, row: int, operands: tuple[Tensor, ...], result: Any, out: Layout) -> Tensor:
    """Append an entry for a result that NumPy has computed, copying it unless it is large."""
    if out.cell:
        return _append(tape, row, operands, float(result), 0, out)
    result = np.asarray(result)
    if result.nbytes > SMALL and result.strides == out.strides and result.flags.owndata:
        tape.keep.append(result)
        tape.spend(result.nbytes)
        return _append(tape, row, operands, result, result.ctypes.data, out)
    value, address = tape.allocate(out)
    value[...] = result
    return _append(tape, row, operands, value, address, out)


def _append(tape: Tape, row: int, operands: tuple[Tensor, ...], value: Any, address: int, out: Layout) -> Tensor:
    space = tape.workspace
    detail = space.details[row - SCALARS]
    if space.table[row - SCALARS, instruction.ARITY] < 0:
        a = space.add_operands([len(operands), *(x._slot for x in operands)])
        b = c = -1
        if space.table[row - SCALARS, instruction.KIND] == instruction.HOST:
            tape.saved[tape.count] = (detail, value, tuple(map(_number_or_array, operands)))
    else:
        a, b, c = ([x._slot for x in operands] + [-1, 0][len(operands) - 1 :])[:3]
    if out.cell:
        return handle(tape, tape.append_number(row, a, b, value, c), value, out)
    return handle(tape, tape.append_array(row, a, b, c, address), value, out)


def in_order(x: Tensor, layout: Layout) -> Tensor:
    """Record a copy whose elements lie in memory as a layout says."""
    tape = tape_of((x,))
    found = tape.instructions.get((positive, x._layout, layout))
    if found is None:
        found = instruction.elementwise(tape.workspace, positive, (x._layout,), layout), layout
        tape.instructions[positive, x._layout, layout] = found
    value, address = tape.allocate(layout)
    value[...] = x._value
    return _append(tape, found[0], (x,), value, address, layout)


def _number_or_array(x: Tensor) -> Any:
    """Give the value as pullbacks take it: with a shape and a dtype."""
    return np.float64(x._value) if x._layout.cell else x._value


# ---------------------------------------------------------------- structural ops
def structural(op: Structural, operands: tuple[Any, ...], parameters: dict[str, Any]) -> Tensor:
    """Record an op whose pullbacks run in Python."""
    tape = tape_of(operands)
    handles = tuple(x if isinstance(x, Tensor) else constant(tape, x) for x in operands)
    result = np.asarray(op.forward(*map(_promoting, handles), **parameters))
    if result.dtype not in CODES:
        result = supported(result)
    out = result_layout(result)
    layouts = tuple(h._layout for h in handles)
    key: Any = None
    found: Any = None
    try:
        # The shape of a result may depend on values: flatnonzero, unique, a mask as an index.
        key = (op, layouts, out, tuple(sorted(parameters.items())))
        found = tape.instructions.get(key)
    except TypeError:  # a parameter that cannot be a key
        key = None
    if found is None:
        found = instruction.host(tape.workspace, op, layouts, out, parameters), out
        if key is not None:
            tape.instructions[key] = found
    return place(tape, found[0], handles, result, out)


def record(op: Op, operands: tuple[Any, ...], parameters: dict[str, Any]) -> Tensor:
    """Record an op on operands at least one of which is a Tensor."""
    if elsewhere(operands):
        return apart(op, operands, parameters)
    if isinstance(op, Elementwise):
        if parameters:
            raise TypeError(f"{op.name} takes no keyword arguments here: {', '.join(parameters)}")
        return elementwise(op, operands)
    assert isinstance(op, Structural)
    native = NATIVES.get(op.native)
    if native is not None:
        made = native(op, operands, parameters)
        if made is not None:
            return made
    return structural(op, operands, parameters)


Tensor.__record__ = staticmethod(record)  # type: ignore[attr-defined]

assert OPS[0] is LEAF
