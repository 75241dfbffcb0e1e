"""The functions of SciPy that compiled code may call, made known to LLVM when they are first needed."""

import ctypes
import functools

import llvmlite.binding as llvm
from numba.extending import get_cython_function_address

from ops.libm import PREFIX

UFUNC_LOOPS = {"_zeta": "dd->d", "_riemann_zeta": "d->d"}
"""The ufuncs that are reached through their inner loops, and for which types."""


class _UFunc(ctypes.Structure):
    """The head of NumPy's ``PyUFuncObject`` (part of its stable C interface)."""

    _fields_ = [
        ("object", ctypes.c_char * object.__basicsize__),
        ("counts", ctypes.c_int * 4),
        ("loops", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
    ]


@functools.cache
def register_cython(name: str, arity: int) -> None:
    """Make a function of `scipy.special.cython_special` known; NotImplementedError if this SciPy lacks it."""
    from scipy.special import cython_special

    wanted = f'"double ({"double, " * arity}int __pyx_skip_dispatch)"'
    for key in (name, *(f"__pyx_fuse_{i}{name}" for i in range(4))):
        if wanted in repr(cython_special.__pyx_capi__.get(key)):
            address = get_cython_function_address("scipy.special.cython_special", key)
            llvm.add_symbol(f"{PREFIX}special_{name}", address)
            return
    raise NotImplementedError(f"this SciPy has no {name} in scipy.special.cython_special")


@functools.cache
def register_ufunc(name: str) -> None:
    """Make the loop of a ufunc known; NotImplementedError if this SciPy lacks it."""
    from scipy.special import _ufuncs

    ufunc = getattr(_ufuncs, name, None)
    if ufunc is None or UFUNC_LOOPS[name] not in ufunc.types:
        raise NotImplementedError(f"this SciPy has no {name} in scipy.special._ufuncs")
    table, index = _UFunc.from_address(id(ufunc)), ufunc.types.index(UFUNC_LOOPS[name])
    loop = table.loops[index]
    llvm.add_symbol(f"{PREFIX}loop_{name}", loop)
    llvm.add_symbol(f"{PREFIX}data_{name}", table.data[index] or loop)
