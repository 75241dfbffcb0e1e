"""What modules check: names, what is registered under them, containers that hide parameters, and states to load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from tape.arguments import described
from tape.errors import InputError, StateDictError
from tape.imperative.variable import Parameter, Variable
from tape.tensor import Tensor

Kind = Literal["parameter", "buffer", "transient buffer", "module"]
"""What a name is registered as. A transient buffer is no part of the state."""

_EXPECTED = {
    "parameter": "Parameter or None",
    "buffer": "array, Tensor without a gradient or None",
    "module": "Module or None",
}


class Registering:
    """What has attributes that are registered: every module."""

    _registered: dict[str, Kind]

    def _members(self, kind: str) -> Iterator[tuple[str, Any]]:
        """Give what is registered here as one kind; for "buffer" those that are not persistent, too."""
        for name, own in list(self._registered.items()):
            if own.endswith(kind) and self.__dict__[name] is not None:
                yield name, self.__dict__[name]


class IncompatibleKeys(NamedTuple):
    """What `Module.load_state_dict` found missing, and what it did not expect."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def complaints(self) -> list[str]:
        """Say what there is in words."""
        said = zip(("Missing key(s) in state_dict", "Unexpected key(s) in state_dict"), self, strict=True)
        return [f"{what}: {', '.join(map(repr, found))}" for what, found in said if found]


# ---------------------------------------------------------------- helpers
def unfit(kind: str, name: str, value: Any) -> InputError:
    """Make the error for a value that cannot be registered as this kind."""
    what = kind.removeprefix("transient ")
    return InputError(f"cannot assign {described(value)} as {what} {name!r} ({_EXPECTED[what]} expected)")


def inside(container: Any) -> Iterator[Any]:
    """Give what is in a plain container, and in those inside of it."""
    if isinstance(container, dict):
        container = container.values()
    for x in container:
        if isinstance(x, list | tuple | set | frozenset | dict):
            yield from inside(x)
        elif isinstance(x, Parameter | Registering):
            yield x


def refuse_hidden(modules: Iterable[tuple[str, Registering]]) -> None:
    """Raise if a plain container holds a parameter or module that none of these has registered."""
    listed = [module for _, module in modules]
    hidden = []
    for module in listed:
        for name, value in module.__dict__.items():
            if name not in ("_registered", "_hooks", "_pre_hooks") and isinstance(value, list | tuple | set | dict):
                hidden += [(module, name, value, x) for x in inside(value)]
    if not hidden:
        return
    known = {id(module) for module in listed}
    known |= {id(p) for module in listed for _, p in module._members("parameter")}
    for module, name, value, x in hidden:
        if id(x) not in known:
            what = "Parameter" if isinstance(x, Parameter) else "Module"
            keyed = "Dict" if isinstance(value, dict) else "List"
            raise InputError(
                f"{type(module).__name__}.{name} is a plain {type(value).__name__} with a {what} in it, which is not "
                f"registered, so it would not be learnt: make it a {what}{keyed}"
            )


def called(hook: Any) -> Any:
    """Give a hook; raise if it cannot be called."""
    if not callable(hook):
        raise InputError(f"a hook must be a function, got {described(hook)}")
    return hook


def values(x: Any) -> np.ndarray[Any, Any]:
    """Give a parameter or buffer as an array, not copied."""
    return x._state.array if isinstance(x, Variable) else x.numpy() if isinstance(x, Tensor) else np.asarray(x)


def fitting(key: str, given: Any, own: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Give an array as it can be copied to another."""
    try:
        array = given.numpy() if isinstance(given, Tensor) else np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise StateDictError(f"{key!r} is no array: {error}") from None
    if array.shape != own.shape:
        raise StateDictError(f"size mismatch for {key!r}: it has shape {own.shape}, and the state {array.shape}")
    if not np.can_cast(array.dtype, own.dtype, "same_kind"):
        raise StateDictError(f"{key!r} has dtype {own.dtype}, to which {array.dtype} of the state can't be converted")
    return array.astype(own.dtype)


def load(module: Registering, name: str, array: np.ndarray[Any, Any], moved: dict[int, Any]) -> None:
    """Write to a parameter or buffer in place; a buffer that cannot be written to is replaced, wherever it is."""
    target = module.__dict__[name]
    if isinstance(target, Variable):
        target._state.storage.unshare()
        target._state.array[...] = array
    elif isinstance(target, np.ndarray) and target.flags.writeable:
        target[...] = array
    else:
        module.__dict__[name] = moved.setdefault(id(target), array)
