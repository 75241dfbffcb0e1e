"""Finite differences: the reference that the derivative rules are held against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def directional(f: Callable[..., Any], operands: list[Any], position: int, direction: Any, step: float = 1e-3) -> Any:
    """Differentiate f by one operand along a direction: central differences, extrapolated twice, error O(step**6)."""

    def central(h: float) -> Any:
        up, down = list(operands), list(operands)
        up[position] = operands[position] + h * direction
        down[position] = operands[position] - h * direction
        return (np.asarray(f(*up), float) - np.asarray(f(*down), float)) / (2 * h)

    d1, d2, d4 = central(step), central(step / 2), central(step / 4)
    r1, r2 = (4 * d2 - d1) / 3, (4 * d4 - d2) / 3
    return (16 * r2 - r1) / 15


def gradient(f: Callable[[Any], Any], x: Any, step: float = 1e-3) -> Any:
    """Differentiate a function of one array, with one number as result, by each element."""
    x = np.asarray(x, float)
    result = np.zeros(x.shape)
    for i in np.ndindex(*x.shape):
        unit = np.zeros(x.shape)
        unit[i] = 1.0
        result[i] = directional(f, [x], 0, unit, step)
    return result
