"""Backward kernels: compiled from the partial derivatives that `ops` declares, when first needed.

A kernel writes adjoint times partial for a run of elements, or exactly 0 where either is 0: in reverse mode the adjoint
of a branch that was not taken is 0, in forward mode its slope. Its name carries a
hash of the rule, so that a kernel on disk is never taken for another one.
"""

from __future__ import annotations

import hashlib
import inspect
import threading
import types as python_types
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.core.errors import NumbaError

import ops.vectormath as vectormath
from ops.catalog import OPS, Elementwise
from tape import checked
from tape.compiled import CHECKED, OPTIONS, float32s, float64s, kernel
from tape.errors import UnsupportedError
from tape.layout import FLOAT32, FLOAT64
from tape.workspace import SCALARS

_guard = threading.RLock()

numbers = np.zeros((SCALARS, 4), np.int64)
"""For each opcode the addresses of its two partials on numbers, which of them exist (bits), whether compiled."""

_integer = types.int64
_ARRAY = types.void(*[_integer] * 11)
_NUMBER = types.float64(types.float64, types.float64, types.float64)


# Templates: `partial`, `floats` and `zero` are bound for each kernel.
def _unary(n, t, g, a, b, c, o, i, j, k, unused):
    result, adjoint, x, out = floats(t, n), floats(g, n), floats(a, n), floats(o, n)
    for e in range(n):
        slope = partial(x[e], out[e])
        result[e] = adjoint[e] * slope if adjoint[e] != 0 and slope != 0 else zero


def _binary(n, t, g, a, b, c, o, i, j, k, unused):
    result, adjoint, out = floats(t, n), floats(g, n), floats(o, n)
    if i == 1 and j == 1:
        x, y = floats(a, n), floats(b, n)
        for e in range(n):
            slope = partial(x[e], y[e], out[e])
            result[e] = adjoint[e] * slope if adjoint[e] != 0 and slope != 0 else zero
    elif j == 0:
        x, second = floats(a, n), floats(b, 1)[0]
        for e in range(n):
            slope = partial(x[e], second, out[e])
            result[e] = adjoint[e] * slope if adjoint[e] != 0 and slope != 0 else zero
    else:
        first, y = floats(a, 1)[0], floats(b, n)
        for e in range(n):
            slope = partial(first, y[e], out[e])
            result[e] = adjoint[e] * slope if adjoint[e] != 0 and slope != 0 else zero


def _ternary(n, t, g, a, b, c, o, i, j, k, unused):
    result, adjoint, out = floats(t, n), floats(g, n), floats(o, n)
    x, y, z = floats(a, (n - 1) * i + 1), floats(b, (n - 1) * j + 1), floats(c, (n - 1) * k + 1)
    for e in range(n):
        slope = partial(x[e * i], y[e * j], z[e * k], out[e])
        result[e] = adjoint[e] * slope if adjoint[e] != 0 and slope != 0 else zero


def _unary_number(x, y, out):
    return partial(x, out)


def _binary_number(x, y, out):
    return partial(x, y, out)


_TEMPLATES = {1: _unary, 2: _binary, 3: _ternary}
_NUMBER_TEMPLATES = {1: _unary_number, 2: _binary_number}


def compilable(op: Elementwise, position: int) -> bool:
    """Tell whether a partial uses only what compiled code can call."""
    partial = op.partials[position]
    return partial is not None and callable_natively(partial)


def callable_natively(rule: Callable[..., Any]) -> bool:
    """Tell whether a rule uses only what compiled code can call."""
    if not _is_expression(rule):
        return False
    for namespace, name in _spaces(rule):
        known = vectormath.numpy_supports if namespace == "np" else vectormath.special_supports
        if namespace not in ("np", "special") or not known(name):
            return False
    return True


def _is_expression(rule: Any) -> bool:
    """Tell whether a rule is a function of its parameters alone, and means NumPy and SciPy by `np` and `special`."""
    code = getattr(rule, "__code__", None)
    if code is None or rule.__closure__ or rule.__defaults__ or rule.__kwdefaults__ or code.co_flags & _VARIADIC:
        return False
    namespaces = rule.__globals__
    return namespaces.get("np", np) is np and getattr(namespaces.get("special"), "__name__", "") in _SPECIAL


_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_SPECIAL = ("", "scipy.special", "ops.special")


def native(op: Elementwise) -> bool:
    """Tell whether every slope of an op can be compiled."""
    slopes = [p for p in range(op.nin) if op.partials[p] is not None]
    return op.nin in _TEMPLATES and all(compilable(op, p) for p in slopes)


def _spaces(partial: Callable[..., Any]) -> list[tuple[str, str]]:
    """List the (namespace, function) pairs that a partial mentions; a bare global counts as its own namespace."""
    import dis

    found = []
    namespace = ""
    for instruction in dis.get_instructions(partial):
        if instruction.opname == "LOAD_GLOBAL":
            namespace = instruction.argval
            if namespace not in ("np", "special"):
                found.append((namespace, ""))
        elif instruction.opname in ("LOAD_METHOD", "LOAD_ATTR"):
            found.append((namespace, instruction.argval))
        elif instruction.opname == "LOAD_DEREF":
            found.append((str(instruction.argval), ""))
    return found


def _fingerprint(*codes: Any) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for code in codes:
        for part in (code.co_code, code.co_consts, code.co_names, code.co_varnames):
            digest.update(repr(part).encode())
    digest.update(vectormath.MECHANISM_TAG.encode())
    return digest.hexdigest()


def bound_rule(function: Any, name: str, kind: str) -> Any:
    """Give a rule as compiled code calls it: on numbers of one dtype, its namespaces bound."""
    special = [name for namespace, name in _spaces(function) if namespace == "special"]
    if special:
        vectormath.prepare_special(special)
    # The name of the module tells what is being compiled (see `tape.compiled`).
    scope = {
        "__name__": __name__,
        "__builtins__": __builtins__,
        "np": np if CHECKED else vectormath.scalar_numpy,
        "special": checked.special() if CHECKED and special else vectormath.scalar_special,
    }
    rule: Any = python_types.FunctionType(function.__code__, scope, name)
    if CHECKED:
        rule = checked.rule(rule, np.float32 if kind == "float32" else np.float64)
    return njit(**OPTIONS)(rule)


def bind(template: Callable[..., Any], name: str, bound: dict[str, Any], *codes: Any) -> Any:
    """Copy a template with names bound; its own name carries a hash of it and of the rules' code."""
    made = python_types.FunctionType(template.__code__, {**template.__globals__, **bound}, template.__name__)
    made.__qualname__ = made.__name__ = f"{name}_{_fingerprint(template.__code__, *codes)}"
    made.__module__ = __name__
    return made


def _build(template: Callable[..., Any], op: Elementwise, position: int, bound: dict[str, Any], kind: str) -> Any:
    """Copy a template with the partial and its namespaces bound; its name tells what it is."""
    partial = op.partials[position]
    assert partial is not None
    rule = bound_rule(partial, f"{op.name}_{position}", kind)
    return bind(template, f"{op.name}_{position}_{kind}", {"partial": rule, **bound}, partial.__code__)


_addresses: dict[tuple[int, int, int], int] = {}


def array_kernel(op: Elementwise, position: int, code: int) -> int:
    """Give the address of the array kernel of a partial for a dtype code, compiled or loaded if need be."""
    key = (op.code, position, code)
    with _guard:
        address = _addresses.get(key)
        if address is None:
            single = code == FLOAT32
            bound = {"floats": float32s if single else float64s, "zero": np.float32(0) if single else 0.0}
            function = _build(_TEMPLATES[op.nin], op, position, bound, "float32" if single else "float64")
            try:
                address = _addresses[key] = kernel(_ARRAY, function)
            except NumbaError as error:
                raise UnsupportedError(
                    f"the partial derivative of {op.name} by operand {position} cannot be compiled: write it for "
                    "numbers, with arithmetic, `np.` and `special.` functions, or declare the op with compiled=False"
                ) from error
        return address


def prepare_numbers(code: int) -> None:
    """Compile or load the partials of an op on numbers."""
    op = OPS[code]
    assert isinstance(op, Elementwise)
    with _guard:
        if numbers[code, 3]:
            return
        for position in range(op.nin):
            if op.partials[position] is not None:
                numbers[code, position] = kernel(_NUMBER, _build(_NUMBER_TEMPLATES[op.nin], op, position, {}, "number"))
        numbers[code, 3] = 1


def enable_numbers(op: Elementwise) -> bool:
    """Tell the sweep which operands of an op on numbers have a slope; say whether it can run natively on them."""
    if op.nin > 2 or op.code >= SCALARS or "d" * op.nin + "->d" not in getattr(op.forward, "types", ()):
        return False
    bits = 0
    for position, partial in enumerate(op.partials):
        if partial is not None:
            if not compilable(op, position):
                return False
            bits |= 1 << position
    numbers[op.code, 2] = bits
    return True


def warm(progress: Callable[[str], None] | None = None) -> int:
    """Compile every kernel of the catalogue; give their number."""
    done = 0
    for op in OPS:
        if not isinstance(op, Elementwise):
            continue
        positions = [p for p in range(op.nin) if compilable(op, p)]
        if not positions:
            continue
        if progress is not None:
            progress(op.name)
        for position in positions:
            for code in (FLOAT64, FLOAT32):
                array_kernel(op, position, code)
                done += 1
        if op.nin <= 2 and enable_numbers(op):
            prepare_numbers(op.code)
    return done
