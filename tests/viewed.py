"""Views of every kind, of arrays and tensors alike, and what tests of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tape import tensor

A = np.array([[3.0, 1.0, 2.0], [0.5, -1.0, 0.25]])
WEIGHTS = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])

VIEWS: dict[str, Callable[[Any], Any]] = {
    "row": lambda a: a[0],
    "last row": lambda a: a[-1],
    "rows": lambda a: a[1:],
    "everything": lambda a: a[:],
    "ellipsis": lambda a: a[...],
    "column": lambda a: a[:, 1],
    "columns": lambda a: a[:, 1:],
    "steps": lambda a: a[:, ::2],
    "reversed": lambda a: a[::-1],
    "reversed columns": lambda a: a[:, ::-2],
    "newaxis": lambda a: a[:, None],
    "leading newaxis": lambda a: a[None],
    "transpose": lambda a: a.T,
    "transpose method": lambda a: a.transpose(),
    "swapaxes": lambda a: np.swapaxes(a, 0, 1),
    "moveaxis": lambda a: np.moveaxis(a, 0, 1),
    "reshape": lambda a: a.reshape(3, 2),
    "reshape same": lambda a: a.reshape(2, 3),
    "flat": lambda a: a.reshape(-1),
    "ravel": lambda a: a.ravel(),
    "np.ravel": np.ravel,
    "squeeze": lambda a: np.squeeze(a[:1]),
    "squeeze of nothing": np.squeeze,
    "atleast_2d": np.atleast_2d,
    "expand_dims": lambda a: np.expand_dims(a, 1),
    "rows of columns": lambda a: a[:, 1:][1:],
    "row of the transpose": lambda a: a.T[1],
    "slice of a flat one": lambda a: a.reshape(-1)[1:5],
    "steps of steps": lambda a: a.reshape(-1)[::2][1:],
    "reversed steps": lambda a: a.reshape(-1)[::-2][1:],
    "reshaped rows": lambda a: a[1:].reshape(3, 1),
    "transposed back": lambda a: a.T[::-1].T,
    "four deep": lambda a: a[:][::-1].T[1:][:, :1],
}


def equal(got: Any, expected: Any) -> None:
    """Hold a tensor or gradient against numbers."""
    got = got if isinstance(got, np.ndarray) else got.numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)
    assert got.shape == np.shape(expected)


def made(kind: str) -> tuple[Any, Any]:
    """Make a leaf, and a tensor of the same values: recorded, or a buffer without a gradient."""
    x = tensor(A)
    return x, x * 1.0 if kind == "recorded" else tensor(A, requires_grad=False)


def marks(view: Callable[[Any], Any]) -> np.ndarray[Any, Any]:
    """Mark what a view sees of a matrix."""
    seen = np.zeros_like(A)
    view(seen)[...] = 1.0
    return seen


both = pytest.mark.parametrize("kind", ["recorded", "buffer"])
every = pytest.mark.parametrize("name", VIEWS)
