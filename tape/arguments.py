"""The arguments of a differentiated call: which are differentiated, and how they come onto the tape."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tape import containers, natives, record
from tape.errors import InputError, UnsupportedError
from tape.layout import PYTHON_FLOAT
from tape.tensor import Tensor
from tape.wengert import Tape

Argnums = int | str | Sequence[int | str]
"""Which arguments to differentiate: positions or names."""


def positions(function: Callable[..., Any], argnums: Argnums, args: tuple[Any, ...], kwargs: Any) -> list[int | str]:
    """Resolve which arguments are differentiated: positions of positional ones, names of keyword ones."""
    chosen = argnums if isinstance(argnums, tuple | list) else (argnums,)
    result: list[int | str] = []
    for one in chosen:
        if isinstance(one, str):
            if one in kwargs:
                result.append(one)
                continue
            try:
                names = [p.name for p in inspect.signature(function).parameters.values() if p.kind < 2]
            except (TypeError, ValueError):
                names = []
            if one not in names or names.index(one) >= len(args):
                raise InputError(f"argnums={one!r} names no argument that was given; the parameters are {names}")
            result.append(names.index(one))
        else:
            if not isinstance(one, int | np.integer) or isinstance(one, bool):
                raise InputError(f"argnums must be positions or parameter names, got {one!r}")
            if not -len(args) <= one < len(args):
                raise InputError(
                    f"argnums={one} asks for an argument that was not given: the function got {len(args)} positional "
                    "arguments. To differentiate a keyword argument, give its name: argnums='name'"
                )
            result.append(int(one) % len(args))
    if len(set(result)) != len(result):
        raise InputError(f"argnums={argnums!r} names the same argument twice")
    return result


def bring(tape: Tape, x: Any, where: str) -> Tensor:
    """Put an input on the tape."""
    t = _brought(tape, x, where)
    tape.inputs.add(t._slot)
    return t


def _brought(tape: Tape, x: Any, where: str) -> Tensor:
    kind = type(x)
    if kind is float or kind is int or kind is np.float64:
        return record.leaf_number(tape, float(x), record.FLOAT if kind is np.float64 else PYTHON_FLOAT)
    if isinstance(x, Tensor):
        return _fresh(tape, x, where)
    if isinstance(x, bool | np.bool_) or not isinstance(x, np.ndarray | np.generic | int | float | complex):
        raise InputError(
            f"{where} is {described(x)}, which cannot be differentiated: give a floating-point array or number, "
            "or name another argument in argnums (others are passed on as they are)"
        )
    array = np.asarray(x)
    if array.dtype.kind in "iub":
        raise InputError(
            f"{where} is an array of {array.dtype}, whose gradient would be cut to whole numbers: "
            "convert it to floating point first, `x.astype(float)` (a start of [1, 2]: write [1.0, 2.0])"
        )
    if array.dtype.kind == "c":
        raise UnsupportedError(
            f"{where} is complex, which is not supported yet: pass the real and imaginary parts as two real arrays"
        )
    if array.dtype not in (np.float64, np.float32):
        raise InputError(f"{where} is an array of {array.dtype}: convert it to float64 or float32")
    return record.input_array(tape, array)


def _fresh(tape: Tape, x: Tensor, where: str) -> Tensor:
    """Append a copy of a value of an outer derivative: by that slot the inner one differentiates."""
    x._alive()
    if x._tape is not tape:
        raise UnsupportedError(f"{where} is recorded on another tape: pass its value, `t.numpy()`")
    if x._layout.dtype.kind != "f":
        raise InputError(
            f"{where} is an array of {x.dtype}, whose gradient would be cut to whole numbers: "
            "convert it to floating point first, `x.astype(float)`"
        )
    return natives.copied(x)


def described(x: Any) -> str:
    """Name the type of a value, with its article."""
    name = type(x).__name__
    return "None" if x is None else f"{'an' if name[0].lower() in 'aeiou' or name == 'ndarray' else 'a'} {name}"


def is_leaf(x: Any) -> bool:
    """Tell whether a value is an array or number rather than a container."""
    return isinstance(x, np.ndarray | float | int | np.generic | Tensor)


def _typed(g: Any, x: Any) -> Any:
    """Give a gradient the type of the argument, if that is a number."""
    if type(x) not in (float, int, np.float64) or not isinstance(g, np.ndarray | np.generic | float) or np.ndim(g):
        return g
    return float(g) if type(x) in (float, int) else np.float64(g) if type(x) is np.float64 else g


class Arguments:
    """The arguments of one call: those to differentiate brought onto the tape, in their containers."""

    def __init__(self, tape: Tape, function: Callable[..., Any], argnums: Argnums, args: Any, kwargs: Any) -> None:
        self.single = not isinstance(argnums, tuple | list)
        self.args, self.kwargs = list(args), dict(kwargs)
        self.inputs: list[Tensor] = []
        self.originals: list[Any] = []
        self.structures: list[Any] = []
        self.recorded = False
        for position in positions(function, argnums, args, kwargs):
            place: Any = self.kwargs if isinstance(position, str) else self.args
            x = place[position]
            self.recorded |= isinstance(x, Tensor)
            name = f"argument {position!r}" if isinstance(position, str) else f"argument {position}"
            if is_leaf(x):
                t = bring(tape, x, name)
                self.inputs.append(t)
                self.originals.append(x)
                self.structures.append(None)
                # The function may move its handle by writing in place; the input's slot stays.
                place[position] = record.handle(tape, t._slot, t._value, t._layout)
                continue
            leaves, structure = containers.flatten(x)
            if isinstance(x, list) and leaves and all(type(v) in (float, int) for v in x):
                t = bring(tape, np.array(x, dtype=float), name)
                self.inputs.append(t)
                self.originals.append(np.array(x, dtype=float))
                self.structures.append(None)
                place[position] = record.handle(tape, t._slot, t._value, t._layout)
                continue
            self.recorded |= any(isinstance(leaf, Tensor) for leaf in leaves)
            names = containers.paths(x)
            brought = [
                bring(tape, leaf, f"{name}, at {path or 'the top'}," if path else name)
                for leaf, path in zip(leaves, names, strict=True)
            ]
            self.inputs += brought
            self.originals += leaves
            self.structures.append((structure, len(leaves)))
            handles = [record.handle(tape, t._slot, t._value, t._layout) for t in brought]
            place[position] = containers.unflatten(structure, handles)

    def gather(self, gradients: list[Any]) -> Any:
        """Put gradients, one for each input, into the structure of the arguments."""
        typed = [_typed(g, x) for g, x in zip(gradients, self.originals, strict=True)]
        results: list[Any] = []
        at = 0
        for structure in self.structures:
            if structure is None:
                results.append(typed[at])
                at += 1
            else:
                results.append(containers.unflatten(structure[0], typed[at : at + structure[1]]))
                at += structure[1]
        return results[0] if self.single else tuple(results)
