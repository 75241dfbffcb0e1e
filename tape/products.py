"""Matrix products: how the sweep's own kernel for them comes onto the tape."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.catalog import FUNCTIONS, Structural
from ops.linalg import matmul_op
from tape import instruction, record
from tape.layout import FLOAT32, FLOAT64, Layout, layout_of
from tape.record import constant, elsewhere, handle, place, tape_of
from tape.tensor import Tensor
from tape.wengert import Tape


def matmul(op: Structural, operands: tuple[Any, ...], _: Any) -> Tensor | None:
    """Append the product of two matrices, or of a matrix and a vector; stacks of matrices go to the host."""
    tape = tape_of(operands)
    a, b = (x if isinstance(x, Tensor) else constant(tape, x) for x in operands)
    la, lb = a._layout, b._layout
    if not (1 <= la.ndim <= 2 and 1 <= lb.ndim <= 2 and la.code == lb.code and la.code in (FLOAT32, FLOAT64)):
        return None
    found = tape.instructions.get((op, la, lb))
    if found is None:
        if 0 in la.shape or 0 in lb.shape:
            return None
        result = np.matmul(a._value, b._value)
        out = layout_of(np.shape(result), la.dtype)
        row = instruction.matmul(tape.workspace, (op, (la, lb), out, None), la, lb, out)
        found = tape.instructions[op, la, lb] = row, out
    row, out = found
    if out.cell:
        return place(tape, row, (a, b), np.matmul(a._value, b._value), out)
    return _product(tape, found, a, b)


def _product(tape: Tape, found: tuple[int, Layout], a: Tensor, b: Tensor) -> Tensor:
    row, out = found
    result, address = tape.allocate(out)
    np.matmul(a._value, b._value, out=result)
    return handle(tape, tape.append_array(row, a._slot, b._slot, -1, address), result, out)


_MATRICES = (Tensor, np.ndarray, list, tuple)
_ARRAYS = (Tensor, np.ndarray)


def product(x: Any, y: Any) -> Any:
    """Append a matrix product: `x @ y`."""
    if elsewhere((x, y)):
        return record.apart(np.matmul, (x, y), {})
    if type(x) is Tensor and type(y) is Tensor and x._tape is y._tape:
        tape = x._tape
        found = tape.instructions.get((matmul_op, x._layout, y._layout))
        if found is not None and not found[1].cell:
            return _product(tape, found, x, y)
    if not isinstance(x, _MATRICES) or not isinstance(y, _MATRICES):
        return NotImplemented
    made = matmul(matmul_op, (x, y), {})
    return matmul_op(x, y) if made is None else made


def multiply(x: Any, y: Any) -> Any:
    """Append a matrix product: ``np.matmul(x, y)``, which is also what an array makes of ``array @ y``."""
    if type(x) in _ARRAYS and type(y) in _ARRAYS:
        return product(x, y)
    return FUNCTIONS[np.matmul](x, y)
