"""The recorders of elementwise ops: what every operation in a differentiated function costs.

They are written out as source, once for one operand and once for two, and bound to each op, so that memory, entry and
handle are made in place: a call saved here is saved on every operation. Whatever is not common goes to `tape.record`.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable
from typing import Any

import numpy as np

from ops.catalog import Elementwise
from tape import kernels, record
from tape.layout import FLOAT, FLOAT64, PYTHON_FLOAT
from tape.tensor import Tensor
from tape.wengert import PackError, pack_array, pack_number
from tape.workspace import ENTRY

_MEMORY = """
    top = tape.top
    known = tape.views.get(top)
    if known is not None and known[0] is out:
        result = known[1]
        tape.top = top + out.nbytes
        address = tape.base + top
    else:
        result, address = tape.allocate(out)
"""

_ENTRY = """
    {indent}slot = tape.count
    {indent}try:
    {indent}    {pack}(tape.buffer, slot * ENTRY, {operands}, {value})
    {indent}except PackError:
    {indent}    tape.grow()
    {indent}    {pack}(tape.buffer, slot * ENTRY, {operands}, {value})
    {indent}tape.count = slot + 1
    {indent}t = new(Tensor)
    {indent}t._tape = tape
    {indent}t._slot = slot
    {indent}t._value = result
    {indent}t._layout = {layout}
    {indent}return t
"""


def _entry(pack: str, operands: str, value: str, layout: str, indent: str = "") -> str:
    return _ENTRY.format(pack=pack, operands=operands, value=value, layout=layout, indent=indent)


_UNARY = (
    """
def recorder(x):
    if type(x) is not Tensor:
        return slow(x)
    tape = x._tape
    if tape.owner != get_ident():
        return record.apart(ufunc, (x,), {})
    v = x._value
    if type(v) is float:
        return slow(x)
    found = tape.instructions.get((op, x._layout))
    if found is None:
        return slow(x)
    row, out = found
"""
    + _MEMORY
    + """
    ufunc(v, result)
"""
    + _entry("pack_array", "row, x._slot, -1, 0", "address", "out")
)

_BINARY = """
def recorder(x, y):
    if type(x) is not Tensor:
        return other(y, x) if type(y) is Tensor else slow({order})
    tape = x._tape
    if tape.owner != get_ident():
        return record.apart(ufunc, ({order}), {{}})
    v = x._value
    kind = type(y)
    if type(v) is float:
        if kind is Tensor:
            w = y._value
            if type(w) is not float or y._tape is not tape:
                return slow({order})
            b = y._slot
            layout = x._layout
            if layout is not y._layout:
                layout = FLOAT
        elif kind is float:
            w = y
            layout = x._layout
            b = tape.constants.get(y)
            if b is None:
                b = number_slot(tape, y)
        elif kind is int:
            w = float(y)
            layout = x._layout
            b = number_slot(tape, w)
        else:
            return slow({order})
        {compute}
        {number}
    p = x._layout
    if kind is Tensor:
        if y._tape is not tape:
            return slow({order})
        w = y._value
        b = y._slot
        q = y._layout
        if q is FLOAT:
            w = float64(w)
    elif (kind is float or kind is int) and p.code == FLOAT64:
        known = tape.weak.get(y)
        if known is None or not y:  # -0.0 is the same key as 0.0
            known = recurring(tape, y)
            if known is None:
                return slow({order})
        w, b = known
        q = PYTHON_FLOAT
    elif kind is ndarray:
        constant = bring(tape, y)
        w = constant._value
        if type(w) is float:
            return slow({order})
        b = constant._slot
        q = constant._layout
    else:
        return slow({order})
    found = tape.instructions.get((op, {layouts}))
    if found is None:
        return slow({order})
    row, out = found
    if out.cell:
        return slow({order})
    {memory}
    ufunc({values}, {out})
    {array}
"""


def _source(op: Elementwise, symbol: str, native: bool, reflected: bool) -> str:
    # NumPy wants `out` by name for these two: np.max takes it elsewhere.
    out = "out=result" if op.forward in (np.maximum, np.minimum) else "result"
    order, layouts, values, operands = (
        ("y, x", "q, p", "w, v", "b, x._slot") if reflected else ("x, y", "p, q", "v, w", "x._slot, b")
    )
    if not native:
        compute = f"return slow({order})"
    elif symbol:
        compute = "result = " + f" {symbol} ".join(values.split(", "))
    else:
        compute = f"result = float(ufunc({values}))\n        layout = FLOAT"
    if symbol == "/":
        compute = f"try:\n            {compute}\n        except ZeroDivisionError:\n            return slow({order})"
    return _BINARY.format(
        order=order,
        layouts=layouts,
        values=values,
        out=out,
        compute=compute,
        memory=_MEMORY.strip(),
        number=_entry("pack_number", f"CODE, {operands}, 0", "result", "layout", "    ").strip(),
        array=_entry("pack_array", f"row, {operands}, 0", "address", "out").strip(),
    )


def _bind(source: str, name: str, op: Elementwise, slow: Callable[..., Any]) -> Callable[..., Any]:
    scope: dict[str, Any] = {
        "Tensor": Tensor, "FLOAT": FLOAT, "FLOAT64": FLOAT64, "PYTHON_FLOAT": PYTHON_FLOAT, "CODE": op.code, "op": op,
        "ENTRY": ENTRY, "PackError": PackError, "pack_number": pack_number, "pack_array": pack_array,
        "get_ident": get_ident, "new": object.__new__, "ndarray": np.ndarray, "number_slot": record.number_slot,
        "ufunc": op.forward, "slow": slow, "bring": record.constant,
        "recurring": record.recurring,
        "float64": np.float64, "record": record,
    }  # fmt: skip
    exec(compile(source, f"<recorder of {name}>", "exec"), scope)
    made: Callable[..., Any] = scope["recorder"]
    made.__name__ = made.__qualname__ = name
    return made


def _common(op: Elementwise) -> bool:
    """Tell whether an op's entries need nothing but memory, entry and handle: host entries keep their values."""
    return op.is_ufunc and (not op.differentiable or kernels.native(op))


def unary(op: Elementwise) -> Callable[[Any], Any]:
    """Make the recorder of an elementwise op of one operand."""
    slow = record.unary(op)
    return _bind(_UNARY, op.name, op, slow) if op.is_ufunc and kernels.enable_numbers(op) else slow


def binary(op: Elementwise, symbol: str = "") -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """Make the recorder of an elementwise op of two operands, and the one with its operands in the other order.

    `symbol` is Python's operator for it, where there is one.
    """
    slow = record.binary(op)
    if not _common(op):
        return slow, lambda x, y: slow(y, x)
    native = kernels.enable_numbers(op)
    plain = _bind(_source(op, symbol, native, False), op.name, op, slow)
    reflected = _bind(_source(op, symbol, native, True), f"reflected {op.name}", op, slow)
    plain.__globals__["other"], reflected.__globals__["other"] = reflected, plain
    return plain, reflected
