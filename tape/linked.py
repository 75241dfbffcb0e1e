"""What a value was computed from through floating-point values, whatever the slopes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.shape import stopped_op
from tape.prune import arities_of_numbers, find_needed
from tape.wengert import Tape
from tape.workspace import ARITY, KIND, SCALARS


def depends_on_inputs(tape: Tape, slot: int) -> bool:
    """Tell whether a slot depends on one that requires a gradient."""
    inputs = [s for s in (*tape.inputs, *tape.cleared) if s <= slot]
    return bool(inputs) and bool(linked(tape, [slot])[inputs].any())


def linked(tape: Tape, roots: list[int]) -> np.ndarray[Any, Any]:
    """Mark the slots, up to the last root, that roots depend on.

    Not through integers and booleans, nor through `stop_gradient`.
    """
    space = tape.workspace
    entries = space.entries[: max(roots) + 1]
    rows = entries[:, 0]
    barred = np.array([d[2].dtype.kind != "f" or d[0] is stopped_op for d in space.details], np.bool_)
    cut = np.zeros(len(rows), np.bool_)
    arrays = rows >= SCALARS
    cut[arrays] = barred[rows[arrays] - SCALARS]
    found = np.zeros(len(rows), np.bool_)
    found[roots] = True
    arities, kinds = (np.ascontiguousarray(space.table[:, column]) for column in (ARITY, KIND))
    find_needed(entries, arities, kinds, space.operands, arities_of_numbers(), cut, found)
    return found & ~cut
