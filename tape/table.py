"""The table of compiled pullbacks, by kind of instruction: each is compiled, or loaded from disk, when first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from tape import instruction, pullbacks, runs
from tape.compiled import kernel, source_tag

PULLBACKS: dict[int, Callable[..., Any]] = {
    instruction.ELEMENTWISE: pullbacks.pull_elementwise,
    instruction.MOVE: pullbacks.pull_move,
    instruction.MATMUL: pullbacks.pull_matmul,
    instruction.ELEMENT: pullbacks.pull_element,
    instruction.FILL: pullbacks.pull_fill,
    instruction.GATHER: pullbacks.pull_gather,
    instruction.JOIN: pullbacks.pull_join,
    instruction.RUN: runs.pull_run,
}

addresses = np.zeros(16, np.int64)
"""Where each kind's pullback is, 0 while it is not compiled."""

_SIGNATURE = types.int64(*[types.int64] * 5)
_guard = threading.Lock()


def prepare(kind: int) -> None:
    """Compile or load the pullback of a kind of instruction."""
    with _guard:
        if addresses[kind]:
            return
        function = PULLBACKS[kind]
        function.__qualname__ = f"{function.__name__}_{source_tag()}"
        addresses[kind] = kernel(_SIGNATURE, function)


def prepare_all() -> None:
    """Compile or load every pullback."""
    for kind in PULLBACKS:
        prepare(kind)
