"""Hooks: what a user wants to be called with a gradient, and may replace it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from tape.errors import InvalidGradient
from tape.tensor import Tensor

_numbers = itertools.count()


class HookHandle:
    """A registered hook; ``remove()`` takes it back."""

    def __init__(self, hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self._hooks, self._number = hooks, next(_numbers)
        hooks[self._number] = hook

    def remove(self) -> None:
        """Call the hook no more."""
        self._hooks.pop(self._number, None)


def hooked(hooks: dict[int, Callable[..., Any]], g: Any) -> Any:
    """Give the gradient that the hooks make of one."""
    for hook in list(hooks.values()):
        if type(g) is np.ndarray:
            g.flags.writeable = False
        new = hook(g)
        if type(g) is np.ndarray:
            g.flags.writeable = True
        if new is None:
            continue
        if not isinstance(new, Tensor):
            new = np.asarray(new)
            if new.dtype.kind not in "fiub":
                raise InvalidGradient(f"a hook gave an array of {new.dtype}, where {g.dtype} is needed")
            new = np.array(new, g.dtype)
        if new.shape != g.shape:
            raise InvalidGradient(f"a hook gave a gradient of shape {new.shape}, where {g.shape} is needed")
        g = new
    return g
