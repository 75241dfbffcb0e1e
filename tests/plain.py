"""The oracle for programs that write in place: the same function on plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numeric import directional

from tape import value_and_grad

X = np.array([1.0, -2.0, 0.5, 3.0])
A = np.arange(12.0).reshape(3, 4) / 5 - 0.983


def agree(f: Callable[..., Any], *args: Any, tolerance: float = 1e-8) -> Any:
    """Hold value and gradients of f against plain NumPy; give the gradients."""
    before = [np.copy(a) for a in args]
    value, gradients = value_and_grad(f, tuple(range(len(args))))(*args)
    for a, b in zip(args, before, strict=True):
        np.testing.assert_array_equal(a, b)
    expected = f(*(np.copy(a) for a in args))
    assert value == expected
    rng = np.random.default_rng(0)
    for position, g in enumerate(gradients):
        assert g.shape == np.shape(args[position])
        for _ in range(3):
            direction = np.empty_like(args[position], float)  # in the argument's order in memory
            direction[...] = rng.uniform(-1, 1, g.shape)
            slope = directional(lambda *a: f(*(np.copy(x) for x in a)), list(args), position, direction)
            scale = max(1.0, float(np.sum(np.abs(g * direction))))
            assert abs(np.sum(g * direction) - slope) < tolerance * scale
    return gradients[0] if len(args) == 1 else gradients


def weighted(y: Any) -> Any:
    """Sum with a weight of its own for each element."""
    return np.sum(y * np.linspace(1.0, 2.0, np.size(y)).reshape(np.shape(y)))
