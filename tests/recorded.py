"""Functions of arrays as they are recorded: their values, and their gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numeric import directional

from tape import grad

Function = Callable[..., Any]


def draw(rng: np.random.Generator, shapes: Any, dtype: Any = float) -> list[Any]:
    """Draw operands; square matrices are regular, with distinct eigenvalues and singular values."""
    result = []
    for shape in shapes:
        x = rng.normal(size=shape)
        if len(shape) >= 2:
            x = x + 2 * np.eye(*shape[-2:]) * (1.5 + np.arange(shape[-1]))
        result.append(x.astype(dtype))
    return result


def values(f: Function, operands: list[Any]) -> Any:
    """Give the value that f records."""
    seen: list[Any] = []

    def record(*xs: Any) -> float:
        result = f(*xs)
        seen.append(result.numpy() if hasattr(result, "numpy") else result)
        return 0.0

    grad(record, argnums=tuple(range(len(operands))))(*operands)
    return seen[0]


def check(f: Function, operands: list[Any], rng: np.random.Generator, tolerance: float = 1e-7) -> None:
    """Hold the gradient by every operand against finite differences, along a random direction."""
    weight = rng.uniform(0.5, 1.5, size=np.shape(f(*operands)))
    positions = tuple(range(len(operands)))
    got = grad(lambda *xs: np.sum(f(*xs) * weight), argnums=positions)(*operands)
    for k in positions:
        assert got[k].shape == operands[k].shape
        assert got[k].dtype == operands[k].dtype
        direction = rng.uniform(-1, 1, size=operands[k].shape)
        expected = np.sum(directional(f, operands, k, direction) * weight)
        scale = max(1.0, float(np.sum(np.abs(got[k] * direction))))
        assert abs(np.sum(got[k] * direction) - expected) <= tolerance * scale
