"""The functions of the C library that compiled code may call: libm's, and their vector versions in glibc's libmvec.

They are made known to LLVM under names of our own, so that machine code in a cache holds a name and no address.
"""

import ctypes
import ctypes.util
import math
import os
import platform
import sys
import zlib
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np

PREFIX = "wengert_"


# libm's name: the NumPy function that numba implements, for the case that there is no libm.
LIBM: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "cbrt": np.cbrt, "erf": math.erf, "erfc": math.erfc, "pow": np.power, "atan2": np.arctan2,
    "hypot": np.hypot, "fmod": np.fmod, "nextafter": np.nextafter,
}  # fmt: skip

# Letter of an instruction set in vector function names: its bits, and what the target must support.
ISAS = {"b": (128, ()), "d": (256, ("+avx2",)), "e": (512, ("+avx512f", "+avx512dq"))}


def vector_name(isa: str, bits: int, scalar: str) -> str:
    """Name in libmvec of the version of `scalar` ("expf") for lanes of `bits` bits."""
    arguments = "vv" if scalar.removesuffix("f") in ("pow", "atan2", "hypot") else "v"
    return f"_ZGV{isa}N{ISAS[isa][0] // bits}{arguments}_{scalar}"


def _address(library: ctypes.CDLL, symbol: str) -> int | None:
    try:
        return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    except AttributeError:
        return None


def _open(name: str | None) -> ctypes.CDLL | None:
    """Open a library, or the process itself, where some systems keep libm."""
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return None
    return library if name or hasattr(library, "expf") else None


def _register() -> tuple[frozenset[str], frozenset[str]]:
    """Tell LLVM the addresses of libm and libmvec; return the scalar and the vector names found."""
    setting = os.environ.get("WENGERT_VECTOR_MATH", "").strip().lower()
    libm = libmvec = None
    if setting != "numba" and sys.platform != "win32":
        libm = _open("libm.so.6") or _open(None) or _open(ctypes.util.find_library("m"))
    if libm and sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64"):
        libmvec = _open("libmvec.so.1")
    scalars, vectors = set(), set()
    for scalar, bits in [(name, 64) for name in LIBM] + [(name + "f", 32) for name in LIBM]:
        if not (libm and (address := _address(libm, scalar))):
            continue
        llvm.add_symbol(PREFIX + scalar, address)
        scalars.add(scalar)
        for isa in ISAS:
            vector = vector_name(isa, bits, scalar)
            if libmvec and (address := _address(libmvec, vector)):
                llvm.add_symbol(PREFIX + vector, address)
                vectors.add(vector)
    return frozenset(scalars), frozenset(() if setting == "off" else vectors)


SCALARS, VECTORS = _register()

MECHANISM_TAG: str = (
    f"{'libmvec' if VECTORS else 'libm' if SCALARS else 'numba'}-"
    f"{zlib.crc32(' '.join(sorted(SCALARS | VECTORS)).encode()):08x}"
)
"""Identifies the set of symbols that compiled code may refer to; belongs in every cache key."""


def mechanism() -> str:
    """Say what computes the functions, as in ``"libmvec (glibc 2.36): 25 functions"``."""
    if VECTORS:
        count = sum(any(vector_name(isa, 64, f) in VECTORS for isa in ISAS) for f in LIBM)
        return f"libmvec ({' '.join(platform.libc_ver())}): {count} functions"
    if SCALARS:
        return f"scalar libm: {len(SCALARS.intersection(LIBM))} functions"
    return "numba's own functions"
