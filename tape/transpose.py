"""Forward mode of an op that declares pullbacks only: the pullback is linear in the cotangent, and is transposed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.catalog import Structural
from tape import record
from tape.adjoint import fitted, pull_back
from tape.adjoints import Adjoints, pull
from tape.current import recording_to
from tape.layout import layout_of
from tape.tensor import Tensor
from tape.wengert import Tape


def transposed_push(op: Structural, tangents: list[Any], out: Any, values: list[Any], parameters: Any) -> Any:
    """Give the tangent of the result: on a tape of its own, or recorded where a value is."""
    outer = next((x._tape for x in (*tangents, *values) if isinstance(x, Tensor)), None)
    tape = Tape() if outer is None else outer
    try:
        g = record.leaf_array(tape, np.ones(np.shape(out), out.dtype))
        tape.inputs.add(g._slot)
        outputs, weights = [], []
        for k, tangent in enumerate(tangents):
            if tangent is None:
                continue
            with recording_to(tape):
                contribution = pull(op, k, g, out, tuple(values), parameters)
            if isinstance(contribution, Tensor):
                layout = layout_of(np.shape(values[k]), values[k].dtype)
                outputs.append(fitted(contribution, layout))
                weights.append(tangent)
        if not outputs:
            return np.zeros(np.shape(out), out.dtype)
        if outer is not None:
            (found,) = pull_back(tape, [g], outputs, weights)
            return np.zeros(np.shape(out), out.dtype) if found is None else found
        adjoints = Adjoints(tape, [g], outputs)
        try:
            adjoints.run(weights)
            return adjoints.gradient(g)
        finally:
            adjoints.close()
    finally:
        if outer is None:
            tape.close()
