"""Second-order kernels: what changes of an adjoint times a partial, along tangents of the operands.

Compiled from what `ops.symbolic` derives of the partials. Where that has no expression there is no kernel, and the
sweep leaves the entry to Python.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.core.errors import NumbaError

from ops.catalog import OPS, Elementwise
from ops.symbolic import NoExpressionError, directional
from tape import kernels
from tape.compiled import float32s, float64s, kernel
from tape.layout import FLOAT32, FLOAT64
from tape.workspace import SCALARS

_guard = threading.RLock()

UNKNOWN, NATIVE, PYTHON = range(3)
"""Whether the second-order rules of an op have been asked for, and who carries them out."""

numbers = np.zeros((SCALARS, 3), np.int64)
"""For each opcode the addresses of its two second-order rules on numbers (0: linear), and who carries them out."""

_ARRAY = types.void(*[types.int64] * 14)
_NUMBER = types.float64(*[types.float64] * 5)


# Templates: `partial`, `second`, `floats` and `zero` are bound for each kernel. g is the adjoint, h its tangent.
def _unary(n, t, g, h, a, b, c, o, u, v, w, i, j, k):
    result, adjoint, change = floats(t, n), floats(g, n), floats(h, n)
    x, out, tx = floats(a, n), floats(o, n), floats(u, n)
    for e in range(n):
        slope = partial(x[e], out[e])
        curve = second(x[e], out[e], tx[e])
        first = change[e] * slope if change[e] != 0 and slope != 0 else zero
        result[e] = first + (adjoint[e] * curve if adjoint[e] != 0 and curve != 0 else zero)


def _binary(n, t, g, h, a, b, c, o, u, v, w, i, j, k):
    result, adjoint, change = floats(t, n), floats(g, n), floats(h, n)
    x, y, out = floats(a, (n - 1) * i + 1), floats(b, (n - 1) * j + 1), floats(o, n)
    tx, ty = floats(u, n), floats(v, n)
    for e in range(n):
        slope = partial(x[e * i], y[e * j], out[e])
        curve = second(x[e * i], y[e * j], out[e], tx[e], ty[e])
        first = change[e] * slope if change[e] != 0 and slope != 0 else zero
        result[e] = first + (adjoint[e] * curve if adjoint[e] != 0 and curve != 0 else zero)


def _ternary(n, t, g, h, a, b, c, o, u, v, w, i, j, k):
    result, adjoint, change = floats(t, n), floats(g, n), floats(h, n)
    x, y, z = floats(a, (n - 1) * i + 1), floats(b, (n - 1) * j + 1), floats(c, (n - 1) * k + 1)
    out, tx, ty, tz = floats(o, n), floats(u, n), floats(v, n), floats(w, n)
    for e in range(n):
        slope = partial(x[e * i], y[e * j], z[e * k], out[e])
        curve = second(x[e * i], y[e * j], z[e * k], out[e], tx[e], ty[e], tz[e])
        first = change[e] * slope if change[e] != 0 and slope != 0 else zero
        result[e] = first + (adjoint[e] * curve if adjoint[e] != 0 and curve != 0 else zero)


def _unary_number(x, y, out, tx, ty):
    return second(x, out, tx)


def _binary_number(x, y, out, tx, ty):
    return second(x, y, out, tx, ty)


_TEMPLATES = {1: _unary, 2: _binary, 3: _ternary}
_NUMBER_TEMPLATES = {1: _unary_number, 2: _binary_number}

_rules: dict[tuple[int, int], Callable[..., Any] | None] = {}


def _rule(op: Elementwise, position: int) -> Callable[..., Any] | None:
    """Give the second-order rule of an operand as a Python function, None where it is 0; raise if there is none."""
    key = op.code, position
    if key not in _rules:
        source = directional(op, position)
        if source is None:
            _rules[key] = None
        else:
            scope: dict[str, Any] = {}
            exec(compile(source, f"<second derivative of {op.name}>", "exec"), scope)
            if not kernels.callable_natively(scope["rule"]):
                raise NoExpressionError
            _rules[key] = scope["rule"]
    return _rules[key]


def array_kernels(op: Elementwise, code: int) -> list[int] | None:
    """Give for each operand the address of its kernel, 0 where the op is linear; None if Python must do it."""
    single = code == FLOAT32
    kind = "float32" if single else "float64"
    found = []
    with _guard:
        try:
            for position, partial in enumerate(op.partials):
                rule = None if partial is None else _rule(op, position)
                found.append(0 if rule is None else _array_kernel(op, position, rule, kind))
        except (NoExpressionError, NumbaError):
            return None
    return found


_addresses: dict[tuple[int, int, str], int] = {}


def _array_kernel(op: Elementwise, position: int, rule: Any, kind: str) -> int:
    key = op.code, position, kind
    if key not in _addresses:
        single = kind == "float32"
        partial: Any = op.partials[position]
        name = f"{op.name}_{position}"
        bound = {
            "partial": kernels.bound_rule(partial, name, kind),
            "second": kernels.bound_rule(rule, f"{name}_second", kind),
            "floats": float32s if single else float64s,
            "zero": np.float32(0) if single else 0.0,
        }
        codes = partial.__code__, rule.__code__
        made = kernels.bind(_TEMPLATES[op.nin], f"{name}_second_{kind}", bound, *codes)
        _addresses[key] = kernel(_ARRAY, made)
    return _addresses[key]


def prepare_numbers(code: int) -> bool:
    """Compile or load the second-order rules of an op on numbers; tell whether they are native."""
    op = OPS[code]
    assert isinstance(op, Elementwise)
    with _guard:
        if numbers[code, 2] == UNKNOWN:
            try:
                for position, partial in enumerate(op.partials):
                    rule = None if partial is None else _rule(op, position)
                    if rule is not None:
                        second = kernels.bound_rule(rule, f"{op.name}_{position}_second", "number")
                        name = f"{op.name}_{position}_second_number"
                        made = kernels.bind(_NUMBER_TEMPLATES[op.nin], name, {"second": second}, rule.__code__)
                        numbers[code, position] = kernel(_NUMBER, made)
                numbers[code, 2] = NATIVE
            except NoExpressionError:
                numbers[code, 2] = PYTHON
    return bool(numbers[code, 2] == NATIVE)


def warm(progress: Callable[[str], None] | None = None) -> int:
    """Compile every second-order kernel of the catalogue; give their number."""
    done = 0
    for op in OPS:
        if not isinstance(op, Elementwise) or not any(kernels.compilable(op, p) for p in range(op.nin)):
            continue
        if progress is not None:
            progress(op.name)
        for code in (FLOAT64, FLOAT32):
            done += sum(address != 0 for address in array_kernels(op, code) or ())
        if op.nin <= 2 and kernels.enable_numbers(op):
            prepare_numbers(op.code)
    return done
