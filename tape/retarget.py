"""Running NumPy's own Python code on Tensors.

Many NumPy functions are written in Python over other NumPy functions. Such a function runs on Tensors as it is, except
that it begins by calling `asarray` and the like on its arguments. So a copy of it is made in whose namespace those
leave Tensors alone.
"""

from __future__ import annotations

import threading
import types
from typing import Any

import numpy as np

from ops.catalog import FUNCTIONS
from tape.errors import DetachedError, UnsupportedError
from tape.tensor import Tensor

_copies: dict[Any, Any] = {}


class _Running(threading.local):
    def __init__(self) -> None:
        self.functions: set[Any] = set()


_running = _Running()


def _keep(convert: Any) -> Any:
    def converted(x: Any, dtype: Any = None, *rest: Any, **keywords: Any) -> Any:
        if isinstance(x, list | tuple) and any(isinstance(item, Tensor) for item in x):
            x = FUNCTIONS["array"](x)
        elif not isinstance(x, Tensor):
            return convert(x, dtype, *rest, **keywords)
        elif convert is np.array and keywords.get("copy", True):
            x = np.positive(x)  # NumPy's code may write into it
        if dtype is not None and np.dtype(dtype) != x.dtype:
            x = x.astype(dtype)
        missing = keywords.get("ndmin", 0) - x.ndim
        return np.reshape(x, (1,) * missing + x.shape) if missing > 0 else x

    return converted


class _Numpy:
    """A module of NumPy, with conversions that leave Tensors alone."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        return _CONVERSIONS.get(value, value) if callable(value) and value.__hash__ else value


_CONVERSIONS = {f: _keep(f) for f in (np.asarray, np.asanyarray, np.array, np.ascontiguousarray)}


def _copy(function: Any) -> Any:
    """Copy a function of NumPy with the conversions in its namespace replaced."""
    implementation: Any = getattr(function, "_implementation", None)
    code = getattr(implementation, "__code__", None)
    if code is None:
        return None
    scope = dict(implementation.__globals__)
    for name, value in scope.items():
        if value is np or (
            isinstance(value, types.ModuleType) and value.__name__ in ("numpy._core.numeric", "numpy._core")
        ):
            scope[name] = _Numpy(value)
        elif isinstance(value, types.BuiltinFunctionType | types.FunctionType) and value in _CONVERSIONS:
            scope[name] = _CONVERSIONS[value]
    copied = types.FunctionType(
        code, scope, implementation.__name__, implementation.__defaults__, implementation.__closure__
    )
    copied.__kwdefaults__ = implementation.__kwdefaults__
    return copied


def run(function: Any, arguments: Any, keywords: Any, unsupported: str) -> Any:
    """Run a NumPy function that has no rule of its own; raise the given message if it can't be done without loss."""
    if function not in _copies:
        _copies[function] = _copy(function)
    copied = _copies[function]
    # NumPy's code may only hand on to the method of the same name, which would end up here again.
    if copied is None or function in _running.functions:
        raise UnsupportedError(unsupported)
    _running.functions.add(function)
    try:
        return copied(*arguments, **keywords)
    except (DetachedError, UnsupportedError, AttributeError) as error:
        raise UnsupportedError(unsupported) from error
    finally:
        _running.functions.discard(function)
