"""The parameters that an optimiser is given, and its options: checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tape.arguments import described
from tape.errors import InputError, OptionError, ParameterError
from tape.imperative.variable import Variable
from tape.tensor import Tensor


# ---------------------------------------------------------------- checks
def groups_of(parameters: Any) -> Iterator[dict[str, Any]]:
    """Give the groups of parameters, checked."""
    if isinstance(parameters, Tensor | dict | str) or not isinstance(parameters, Iterable):
        raise InputError(
            "params argument given to the optimizer should be an iterable of Parameters or dicts, got "
            f"{described(parameters)}"
        )
    if isinstance(parameters, set | frozenset):
        raise InputError("the optimizer needs its parameters in an order, and a set has none: give a list")
    found = list(parameters)
    if not found:
        raise ParameterError("optimizer got an empty parameter list")
    if not any(isinstance(group, Mapping) for group in found):
        found = [{"params": found}]
    for group in found:
        if not isinstance(group, Mapping) or "params" not in group:
            raise InputError(f"a group of parameters must be a dict with the key 'params', got {described(group)}")
        members = group["params"]
        if isinstance(members, set | frozenset):
            raise InputError("the optimizer needs its parameters in an order, and a set has none: give a list")
        members = [members] if isinstance(members, Tensor) else list(members)
        yield {**group, "params": [_checked(p) for p in members]}


def _checked(p: Any) -> Any:
    if not isinstance(p, Tensor):
        raise InputError(f"optimizer can only optimize Parameters and Tensors, got {described(p)}")
    if not isinstance(p, Variable) or not p.is_leaf:
        raise ParameterError(f"can't optimize a non-leaf Tensor: this one of shape {p.shape} was computed from others")
    if p.dtype.kind != "f":
        raise InputError(f"optimizer can only optimize floating-point Tensors, and this one is of {p.dtype}")
    return p


def checked_number(what: str, value: Any) -> float:
    """Give an option as a number; raise if it is none."""
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise OptionError(f"Invalid {what}: {value!r}") from None


def not_negative(group: dict[str, Any], names: dict[str, str]) -> None:
    """Raise if one of these options is negative or not finite."""
    for name, what in names.items():
        if not 0 <= checked_number(what, group[name]) < math.inf:
            raise OptionError(f"Invalid {what}: {group[name]}")
