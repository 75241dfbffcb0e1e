"""Sparse derivatives held against dense ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

import ops.special
from tape import (
    jacobian_sparsity,
    sparse_jacobian,
    vjp,
)

X = np.array([0.3, -1.2, 0.8, 1.7, -0.4, 0.9])


def rosenbrock(x: Any) -> Any:
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def flat(values: Any) -> Any:
    return np.concatenate([np.ravel(v) for v in values]) if isinstance(values, tuple | list) else np.ravel(values)


def dense(f: Any, *args: Any) -> Any:
    """Give the Jacobian by all arguments, a row for each element of the result, by pullbacks."""
    value, pullback = vjp(f, *args)
    rows = []
    for k in range(np.size(value)):
        unit = np.zeros(np.size(value), np.asarray(value).dtype)
        unit[k] = 1.0
        rows.append(flat(list(pullback(unit.reshape(np.shape(value)) if np.ndim(value) else unit[0]))))
    width = sum(np.size(a) for a in args)
    return np.array(rows).reshape(np.size(value), width)


def differences(f: Any, x: Any, step: float = 1e-5) -> Any:
    """Give the Jacobian by central differences."""
    columns = []
    for k in range(x.size):
        change = np.zeros(x.size)
        change[k] = step
        up, down = f(x + change.reshape(x.shape)), f(x - change.reshape(x.shape))
        columns.append((np.ravel(up) - np.ravel(down)) / (2 * step))
    return np.array(columns).T.reshape(np.size(f(x)), x.size)


def check(f: Any, *args: Any, exact: bool = True, tolerance: float = 1e-12) -> Any:
    """Hold the sparse Jacobian against the dense one, and (exact) the pattern against its elements."""
    argnums = tuple(range(len(args)))
    expected = dense(f, *args)
    got = sparse_jacobian(f, argnums)(*args)
    assert isinstance(got, sp.csr_array)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.toarray(), expected, rtol=tolerance, atol=tolerance)
    pattern = jacobian_sparsity(f, argnums)(*args).toarray()
    assert pattern.dtype == bool
    if exact:
        np.testing.assert_array_equal(pattern, expected != 0)
    else:
        assert not np.any((expected != 0) & ~pattern)
    return got


# ---------------------------------------------------------------- every kind of entry
def loop(x: Any) -> Any:
    total = 0.0
    found = []
    for i in range(len(x) - 1):
        total = x[i] * 2.0 if i % 2 else x[i + 1] * x[i]
        found.append(total)
    return np.stack(found)


def filling(x: Any) -> Any:
    y = np.zeros_like(x)
    for i in range(1, len(x)):
        y[i] = x[i] * x[i - 1]
    return y


def rows_written(x: Any) -> Any:
    y = np.reshape(x, (3, 2)) * 2
    y[1] = y[0] * y[2]
    y[0, 1] = y[2, 0]
    return y


def masked(x: Any) -> Any:
    y = x * 1.0
    y[x > 0] = np.sum(x[:2])
    return y


MATRIX = np.array([[1.0, 0.0, 2.0, 0, 0, 0], [0, 3.0, 0, 0, 0, 1], [1, 1, 1, 1, 1, 1]])

EXACT = {
    "elementwise": lambda x: np.sin(x) * x,
    "difference": lambda x: x[1:] * x[:-1],
    "same operand twice": lambda x: x * x,
    "broadcast rows": lambda x: np.reshape(x, (2, 3)) * x[:3],
    "broadcast columns": lambda x: np.reshape(x, (2, 3)) + np.reshape(x[:2], (2, 1)),
    "outer": lambda x: x[:, None] * x[None, :],
    "negative strides": lambda x: x[::-1] * np.arange(1.0, 7.0) + x,
    "steps": lambda x: x[::2] * x[1::2],
    "transpose": lambda x: np.reshape(x, (2, 3)).T,
    "column": lambda x: np.reshape(x, (2, 3))[:, 1],
    "reversed rows": lambda x: np.reshape(x, (2, 3))[::-1, ::-1] * 2,
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 6)),
    "sum": lambda x: np.sum(x**2),
    "sum of rows": lambda x: np.sum(np.reshape(x, (2, 3)), axis=1),
    "sum of columns": lambda x: np.sum(np.reshape(x, (2, 3)), axis=0, keepdims=True),
    "mean of middle": lambda x: np.mean(np.reshape(x, (1, 2, 3)), axis=(0, 1)),
    "product": lambda x: np.prod(np.reshape(x, (2, 3)), axis=0),
    "matrix times vector": lambda x: np.reshape(x[:4], (2, 2)) @ x[4:],
    "matrix product": lambda x: np.reshape(x[:4], (2, 2)) @ np.reshape(x[2:], (2, 2)),
    "vector product": lambda x: x[:3] @ x[3:],
    "data with zeros": lambda x: MATRIX @ x,
    "vector times data": lambda x: x[:3] @ MATRIX,
    "data on both sides": lambda x: MATRIX @ np.reshape(x, (6, 1)) @ np.ones((1, 2)),
    "data transposed": lambda x: MATRIX.T @ x[::2],
    "gather": lambda x: x[np.array([0, 2, 2, -1])],
    "gather rows": lambda x: np.reshape(x, (3, 2))[np.array([[0, 2], [2, 1]])],
    "boolean index": lambda x: x[x > 0] ** 2,
    "two index arrays": lambda x: np.reshape(x, (2, 3))[np.array([0, 1]), np.array([2, 0])],
    "joined": lambda x: np.concatenate([x[3:], np.ones(2), x[:2] ** 2]),
    "joined columns": lambda x: np.concatenate([np.reshape(x, (3, 2)), np.ones((3, 1))], axis=1),
    "stack": lambda x: np.stack([x[0], x[1] * x[2], 3.0 * x[5]]),
    "padded": lambda x: np.pad(x, 2),
    "rolled": lambda x: np.roll(x, 2) * x,
    "repeated": lambda x: np.repeat(x, 2),
    "tiled": lambda x: np.tile(x, 2),
    "diff": lambda x: np.diff(x, 2),
    "loop": loop,
    "filling": filling,
    "rows written": rows_written,
    "masked write": masked,
    "cumsum": lambda x: np.cumsum(x),
    "cumsum of rows": lambda x: np.cumsum(np.reshape(x, (2, 3)), axis=1),
    "cumprod": lambda x: np.cumprod(x),
    "sort": lambda x: np.sort(x),
    "maximum": lambda x: np.maximum(x, 0.0)[x > 0],
    "batched product": lambda x: np.matmul(np.reshape(x, (3, 1, 2)), np.reshape(x, (3, 2, 1))),
    "einsum": lambda x: np.einsum("ij,kj->ik", np.reshape(x, (2, 3)), np.reshape(x, (2, 3))),
    "einsum diagonal": lambda x: np.einsum("ii->i", np.reshape(x[:4], (2, 2))),
    "convolve": lambda x: np.convolve(x, [1.0, 2.0, 3.0], "same"),
    "correlate": lambda x: np.correlate(x, [1.0, 2.0, 3.0], "valid"),
    "add.at": lambda x: np.bincount(np.array([0, 2, 2, 1, 0, 4]), x),
    "inverse of a stack": lambda x: np.linalg.inv(np.reshape(x, (6, 1, 1))),
    "softmax of rows": lambda x: ops.special.softmax(np.reshape(x, (2, 3)), axis=1),
    "constant": lambda x: np.ones(3),
    "nothing differentiable": lambda x: np.sign(x) + np.floor(x),
    "identity": lambda x: x,
    "one element": lambda x: x[2],
    "no elements": lambda x: x[:0],
    "dense": lambda x: np.exp(x) * np.sum(x**2) + np.cos(x),
    "where": lambda x: np.where(x > 0, x[::-1], 0.0)[x > 0],
}  # fmt: skip
