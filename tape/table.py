"""The tables of compiled pullbacks and pushforwards, by kind of instruction: compiled or loaded when first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from tape import instruction, pullbacks, pushforwards, runs
from tape.compiled import kernel, source_tag

_SIGNATURE = types.int64(*[types.int64] * 5)
_guard = threading.Lock()


class Table:
    """The compiled code for each kind of instruction, in one direction.

    Attributes
    ----------
    addresses : ndarray of int64
        Where each kind's code is, 0 while it is not compiled.
    ready : int
        The kinds that are compiled, a bit for each.
    native : int
        The kinds that can be; Python does the others.
    """

    def __init__(self, functions: dict[int, Callable[..., Any]]) -> None:
        self.functions = functions
        self.addresses = np.zeros(16, np.int64)
        self.ready = 0
        self.native = sum(1 << kind for kind in functions)

    def prepare(self, kinds: int) -> None:
        """Compile or load the code for kinds of instruction, a bit for each."""
        if not kinds & self.native & ~self.ready:
            return
        with _guard:
            for kind, function in self.functions.items():
                if kinds & ~self.ready & 1 << kind:
                    function.__qualname__ = f"{function.__name__}_{source_tag()}"
                    self.addresses[kind] = kernel(_SIGNATURE, function)
                    self.ready |= 1 << kind


backward = Table(
    {
        instruction.ELEMENTWISE: pullbacks.pull_elementwise,
        instruction.MOVE: pullbacks.pull_move,
        instruction.MATMUL: pullbacks.pull_matmul,
        instruction.ELEMENT: pullbacks.pull_element,
        instruction.FILL: pullbacks.pull_fill,
        instruction.GATHER: pullbacks.pull_gather,
        instruction.JOIN: pullbacks.pull_join,
        instruction.RUN: runs.pull_run,
        instruction.EXTREME: pullbacks.pull_extreme,
    }
)
forward = Table(
    {
        instruction.ELEMENTWISE: pushforwards.push_elementwise,
        instruction.MOVE: pushforwards.push_move,
        instruction.MATMUL: pushforwards.push_matmul,
        instruction.ELEMENT: pushforwards.push_element,
        instruction.FILL: pushforwards.push_fill,
        instruction.GATHER: pushforwards.push_gather,
        instruction.JOIN: pushforwards.push_join,
        instruction.EXTREME: pushforwards.push_extreme,
    }
)


def prepare_all() -> None:
    """Compile or load every pullback and pushforward."""
    for table in (backward, forward):
        table.prepare(table.native)
