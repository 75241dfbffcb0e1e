"""The tables of compiled pullbacks and pushforwards, by kind of instruction: compiled or loaded when first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from tape import instruction, pullbacks, pushforwards, runs
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
    instruction.EXTREME: pullbacks.pull_extreme,
}

PUSHFORWARDS: dict[int, Callable[..., Any]] = {
    instruction.ELEMENTWISE: pushforwards.push_elementwise,
    instruction.MOVE: pushforwards.push_move,
    instruction.MATMUL: pushforwards.push_matmul,
    instruction.ELEMENT: pushforwards.push_element,
    instruction.FILL: pushforwards.push_fill,
    instruction.GATHER: pushforwards.push_gather,
    instruction.JOIN: pushforwards.push_join,
    instruction.EXTREME: pushforwards.push_extreme,
}

addresses = np.zeros(16, np.int64)
"""Where each kind's pullback is, 0 while it is not compiled."""

forward_addresses = np.zeros(16, np.int64)
"""Where each kind's pushforward is, 0 while it is not compiled."""

forward_ready = 0
"""The kinds whose pushforwards are compiled, a bit for each."""

_SIGNATURE = types.int64(*[types.int64] * 5)
_guard = threading.Lock()


def prepare(kind: int) -> None:
    """Compile or load the pullback of a kind of instruction."""
    _prepare(addresses, PULLBACKS, kind)


def prepare_forward(kind: int) -> None:
    """Compile or load the pushforward of a kind of instruction; Python does those that have none."""
    global forward_ready
    if kind in PUSHFORWARDS:
        _prepare(forward_addresses, PUSHFORWARDS, kind)
        forward_ready |= 1 << kind


def _prepare(addresses: Any, functions: dict[int, Callable[..., Any]], kind: int) -> None:
    with _guard:
        if addresses[kind]:
            return
        function = functions[kind]
        function.__qualname__ = f"{function.__name__}_{source_tag()}"
        addresses[kind] = kernel(_SIGNATURE, function)


def prepare_all() -> None:
    """Compile or load every pullback and pushforward."""
    for kind in PULLBACKS:
        prepare(kind)
    for kind in PUSHFORWARDS:
        prepare_forward(kind)
