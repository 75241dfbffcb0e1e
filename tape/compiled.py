"""Compiling with numba: the cache, what is said while it works, and raw memory seen as arrays."""

from __future__ import annotations

import functools
import hashlib
import logging
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import carray, types
from numba.core import event as numba_event
from numba.extending import intrinsic

from tape import checked

log = logging.getLogger("tape.compile")

OPTIONS: dict[str, Any] = {"error_model": "numpy"}

CHECKED = bool(getattr(numba.config, "DISABLE_JIT", False))
"""Whether all of this runs as Python, every access to memory checked (the environment variable NUMBA_DISABLE_JIT)."""


class _Announcer(numba_event.Listener):
    """Logs once what is being compiled. numba tells it only of real compiling: what the cache has loads silently."""

    def __init__(self) -> None:
        self.said: set[str] = set()

    def on_start(self, event: Any) -> None:
        """Log the function whose compilation begins."""
        function = event.data["dispatcher"].py_func
        if function.__module__ == "tape.kernels":
            message = f"compiling the backward kernel of {function.__name__.rpartition('_')[0]}"
        elif function.__module__ in ("tape.pullbacks", "tape.runs", "tape.sweep", "tape.rows", "tape.second"):
            message = "compiling the reverse sweep"
        elif function.__module__ == "tape.pushforwards":
            message = "compiling the forward sweep"
        else:
            return
        if message not in self.said:
            self.said.add(message)
            log.info("%s", message)

    def on_end(self, event: Any) -> None:
        """Do nothing."""


numba_event.register("numba:compile", _Announcer())

_cacheable: bool | None = None


def _can_cache() -> bool:
    """Tell whether numba finds a directory to cache compiled code in; warn once if not."""
    global _cacheable
    if _cacheable is None:
        try:
            numba.njit(cache=True)(_probe)
            _cacheable = True
        except RuntimeError:
            _cacheable = False
            warnings.warn(
                "no directory for compiled code is writable, so every new process compiles again (several seconds). "
                "Set the environment variable NUMBA_CACHE_DIR to a directory that is",
                RuntimeWarning,
                stacklevel=3,
            )
    return _cacheable


def _probe() -> int:
    return 0


@functools.cache
def source_tag() -> str:
    """Name the source of the compiled modules: numba looks only at the file of a function, not at what it calls."""
    digest = hashlib.blake2b(digest_size=6)
    for name in (
        "blocks", "compiled", "instruction", "layout", "machine", "pullbacks", "pushforwards", "rows", "runs", "second",
        "sweep", "unions", "wengert", "workspace",
    ):  # fmt: skip
        digest.update((pathlib.Path(__file__).with_name(f"{name}.py")).read_bytes())
    return digest.hexdigest()


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function to be compiled, released from the interpreter lock, and cached on disk if that can be."""

    def decorate(function: Callable[..., Any]) -> Any:
        function.__qualname__ = f"{function.__name__}_{source_tag()}"
        return numba.njit(nogil=True, cache=_can_cache(), **OPTIONS, **options)(function)

    return decorate


def inlined(function: Callable[..., Any]) -> Any:
    """Decorate a function that only compiled functions call: it needs no entrance from Python, nor a place on disk."""
    options: dict[str, Any] = {**OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(nogil=True, **options)(function)


def kernel(signature: Any, function: Callable[..., Any]) -> int:
    """Compile a function for native callers and give its address; it stays alive with the process."""
    if CHECKED:
        return checked.kernel(function)
    made = numba.cfunc(signature, cache=_can_cache(), **OPTIONS)(function)
    _alive.append(made)
    return int(made.address or 0)


_alive: list[Any] = []


_intrinsic: Any = intrinsic
"""numba types an intrinsic by its own parameters, the typing context too; its callers leave that out."""


def _pointer(kind: Any) -> Any:
    @intrinsic
    def cast(typing_context: Any, address: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            element = context.get_data_type(kind)
            return builder.inttoptr(arguments[0], element.as_pointer())

        return types.CPointer(kind)(types.int64), generate

    return cast


float64_pointer = _pointer(types.float64)
float32_pointer = _pointer(types.float32)
int64_pointer = _pointer(types.int64)
int32_pointer = _pointer(types.int32)
int8_pointer = _pointer(types.int8)


@numba.njit(inline="always")
def float64s(address: int, count: int) -> Any:
    """See memory as an array of float64."""
    return carray(float64_pointer(address), (count,))


@numba.njit(inline="always")
def float32s(address: int, count: int) -> Any:
    """See memory as an array of float32."""
    return carray(float32_pointer(address), (count,))


@numba.njit(inline="always")
def int64s(address: int, count: int) -> Any:
    """See memory as an array of int64."""
    return carray(int64_pointer(address), (count,))


@numba.njit(inline="always")
def int32s(address: int, count: int) -> Any:
    """See memory as an array of int32."""
    return carray(int32_pointer(address), (count,))


@numba.njit(inline="always")
def bytes_of(address: int, count: int) -> Any:
    """See memory as an array of bytes."""
    return carray(int8_pointer(address), (count,))


@numba.njit(inline="always")
def note(m: int, address: int, nbytes: int) -> None:
    """Say that the machine's memory from `address` on is now one block of `nbytes`; nothing, unless it is checked."""


@_intrinsic
def call_number_kernel(typing_context: Any, address: Any, x: Any, y: Any, out: Any) -> Any:  # noqa: ARG001
    """Call the partial derivative at `address` on numbers."""
    signature = types.float64(types.int64, types.float64, types.float64, types.float64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        double = ir.DoubleType()
        function = ir.FunctionType(double, [double] * 3)
        return builder.call(builder.inttoptr(arguments[0], function.as_pointer()), arguments[1:])

    return signature, generate


@_intrinsic
def call_second_number(typing_context: Any, address: Any, x: Any, y: Any, out: Any, tx: Any, ty: Any) -> Any:  # noqa: ARG001
    """Call the second-order rule at `address` on numbers."""
    signature = types.float64(types.int64, *[types.float64] * 5)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        double = ir.DoubleType()
        function = ir.FunctionType(double, [double] * 5)
        return builder.call(builder.inttoptr(arguments[0], function.as_pointer()), arguments[1:])

    return signature, generate


@_intrinsic
def call_pullback(typing_context, address, m, e, row, g, stop):  # noqa: ARG001
    """Call the compiled pullback at `address`."""
    signature = types.int64(*[types.int64] * 6)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        word = ir.IntType(64)
        function = ir.FunctionType(word, [word] * 5)
        return builder.call(builder.inttoptr(arguments[0], function.as_pointer()), arguments[1:])

    return signature, generate


def _caller(count: int) -> Any:
    """Make an intrinsic that calls a native function of `count` integers, without result."""

    @intrinsic
    def call(typing_context: Any, address: Any, *integers: Any) -> Any:  # noqa: ARG001
        signature = types.void(types.int64, types.StarArgTuple([types.int64] * count))

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            word = ir.IntType(64)
            function = ir.FunctionType(ir.VoidType(), [word] * count)
            values = [builder.extract_value(arguments[1], i) for i in range(count)]
            builder.call(builder.inttoptr(arguments[0], function.as_pointer()), values)
            return context.get_dummy_value()

        return signature, generate

    return call


call_array_kernel = _caller(11)
"""Call an array kernel: count; addresses of result, adjoint, operands and value; strides of the operands."""

call_second_kernel = _caller(14)
"""Call a second-order kernel: as an array kernel, with the adjoint's tangent and the operands' besides."""

call_ufunc_loop = _caller(4)

if CHECKED:
    globals().update({name: getattr(checked, name) for name in checked.REPLACEMENTS})
