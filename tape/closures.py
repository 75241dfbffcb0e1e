"""Recorded values that a function uses without taking them as arguments, found and replaced.

A solver calls a function thousands of times on plain values. Recorded values that it closes over are therefore taken
out of it (closure conversion, or lambda lifting), and become arguments like the others.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tape import containers
from tape.call import Packing
from tape.errors import UnsupportedError
from tape.tensor import Tensor
from tape.trace import plain
from tape.transforms import Transform

Rebuild = Callable[[Sequence[Any]], Any]
"""Gives a copy of something with other values in place of the recorded ones."""


class _Search:
    """Finds recorded values in containers and in what functions close over."""

    def __init__(self) -> None:
        self.found: list[Tensor] = []
        self.arrays: list[list[Any]] = []
        self.path: set[int] = set()

    def lift(self, x: Any) -> Rebuild | None:
        """Give what rebuilds x; None if it can stay as it is, for it holds no arrays."""
        if isinstance(x, Tensor):
            return self._tensor(x)
        if isinstance(x, np.ndarray):
            held = [x]
            self.arrays.append(held)
            return lambda new: held[0]
        search = self._search(x)
        if search is None or id(x) in self.path:  # a function may close over itself
            return None
        self.path.add(id(x))
        made = search(x)
        self.path.discard(id(x))
        return made

    def _search(self, x: Any) -> Callable[[Any], Rebuild | None] | None:
        if isinstance(x, types.FunctionType):
            return self._function
        if isinstance(x, types.MethodType):
            return self._method
        if isinstance(x, functools.partial):
            return self._partial
        if isinstance(x, Transform):
            return self._transform
        if isinstance(x, list | tuple | dict) or (dataclasses.is_dataclass(x) and not isinstance(x, type)):
            return self._container
        return None

    def _tensor(self, x: Any) -> Rebuild | None:
        if x._stale():  # it raises when it is used
            return None
        x = x._settled()
        if not isinstance(x, Tensor):
            return lambda new: x
        if x._layout.dtype.kind != "f":
            value = x.numpy()
            return lambda new: value
        same = [t._slot == x._slot and t._tape is x._tape and t._layout is x._layout for t in self.found]
        k = same.index(True) if True in same else len(same)
        if k == len(same):
            self.found.append(x)
        return lambda new: new[k]

    def _several(self, items: Sequence[Any]) -> Callable[[Sequence[Any]], list[Any]] | None:
        """Lift each of several things; those without arrays stay as they are."""
        lifted = [self.lift(x) for x in items]
        if all(r is None for r in lifted):
            return None
        return lambda new: [x if r is None else r(new) for x, r in zip(items, lifted, strict=True)]

    def _container(self, x: Any) -> Rebuild | None:
        leaves, structure = containers.flatten(x)
        several = self._several(leaves)
        return several and (lambda new: containers.unflatten(structure, several(new)))

    def _function(self, f: types.FunctionType) -> Rebuild | None:
        cells = [_contents(cell) for cell in f.__closure__ or ()]
        names = list(f.__kwdefaults__ or ())
        lifted = [
            self._several(part) for part in (cells, f.__defaults__ or (), list((f.__kwdefaults__ or {}).values()))
        ]
        if lifted == [None, None, None]:
            return None

        def rebuild(new: Sequence[Any]) -> Any:
            # A cell that holds no array stays shared: the function may write to it (`nonlocal`).
            inside = lifted[0](new) if lifted[0] else cells
            closure = tuple(
                cell if before is after else types.CellType(after)
                for cell, before, after in zip(f.__closure__ or (), cells, inside, strict=True)
            )
            defaults = tuple(lifted[1](new)) if lifted[1] else f.__defaults__
            made = types.FunctionType(f.__code__, f.__globals__, f.__name__, defaults, closure or None)
            made.__kwdefaults__ = dict(zip(names, lifted[2](new), strict=True)) if lifted[2] else f.__kwdefaults__
            return made

        return rebuild

    def _method(self, f: types.MethodType) -> Rebuild | None:
        several = self._several([f.__func__, f.__self__])
        if several is None:
            return None

        def rebuild(new: Sequence[Any]) -> Any:
            function, owner = several(new)
            return types.MethodType(function, owner)

        return rebuild

    def _partial(self, f: functools.partial[Any]) -> Rebuild | None:
        several = self._several([f.func, f.args, f.keywords])
        if several is None:
            return None

        def rebuild(new: Sequence[Any]) -> Any:
            func, args, keywords = several(new)
            return functools.partial(func, *args, **keywords)

        return rebuild

    def _transform(self, f: Transform) -> Rebuild | None:
        inner = self.lift(f.function)
        if inner is None:
            return None

        def rebuild(new: Sequence[Any]) -> Any:
            made = copy.copy(f)
            made.function = inner(new)
            return made

        return rebuild


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return None


class Lifted:
    """What a solver is given: functions and their arguments, with the recorded values in them replaceable.

    Functions are searched too: their closures, their defaults, the arguments of `functools.partial`, the object of a
    method if that is a container.

    Parameters
    ----------
    x : Any
        A container of values and functions.

    Attributes
    ----------
    found : list of Tensor
        The recorded values.
    """

    def __init__(self, x: Any) -> None:
        search = _Search()
        self._original, self._rebuild = x, search.lift(x)
        self.found, self._arrays = search.found, search.arrays

    def freeze(self) -> None:
        """Copy the plain arrays: derivatives use them later, when they may have been overwritten."""
        for held in self._arrays:
            held[0] = held[0].copy()

    def rebuild(self, new: Sequence[Any]) -> Any:
        """Give a copy of x with other values in place of the recorded ones."""
        return self._original if self._rebuild is None else self._rebuild(new)

    def plain(self) -> Any:
        """Give x with plain values in place of the recorded ones."""
        return self.rebuild([plain(t) for t in self.found]) if self.found else self._original


def refuse_recorded(result: Any, name: str) -> None:
    """Raise if a function that was called on plain values gave a recorded one."""
    if isinstance(result, Tensor) or (isinstance(result, list | tuple) and any(isinstance(x, Tensor) for x in result)):
        raise UnsupportedError(
            f"the function given to {name} uses a recorded value that is none of its arguments (a global, or an "
            "attribute of an object): pass it in args, so that the derivative by it is known"
        )


class Operands:
    """Values of which some are recorded; these as one vector, the operand of an entry."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.recorded = [k for k, x in enumerate(values) if isinstance(x, Tensor)]
        self.values = [None if isinstance(x, Tensor) else x for x in values]
        self.packing = Packing.of([values[k] for k in self.recorded])

    def pack(self, values: Sequence[Any]) -> Any:
        """Put what stands in the places of the recorded values into one vector."""
        chosen = []
        for k, (shape, dtype) in zip(self.recorded, self.packing.layouts, strict=True):
            x = np.reshape(values[k] if isinstance(values[k], Tensor) else np.asarray(values[k]), shape)
            chosen.append(x if x.dtype == dtype else x.astype(dtype))
        return self.packing.pack(chosen)

    def fill(self, packed: Any) -> list[Any]:
        """Give all of the values, the recorded ones taken out of a vector."""
        filled = list(self.values)
        for k, x in zip(self.recorded, self.packing.unpack(packed), strict=True):
            filled[k] = x
        return filled

    def parts(self, packed: Any) -> list[Any]:
        """Give what a vector holds for each of the values; None for those that are not recorded."""
        parts: list[Any] = [None] * len(self.values)
        for k, x in zip(self.recorded, self.packing.unpack(packed), strict=True):
            parts[k] = x
        return parts
