"""Linear algebra: products here; factorisations and solvers in `ops.solve`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.catalog import handles, structural
from ops.reduce import scale
from ops.shape import shape_of, sum_to


def _matmul_pullback(position: int, g: Any, out: Any, a: Any, b: Any) -> Any:
    """Give g b^T or a^T g, vectors as matrices of one row or column, summed over broadcast stacks."""
    first, second = shape_of(a), shape_of(b)
    if len(first) == 1 and len(second) == 1:
        return scale(g, b if position == 0 else a)
    left = np.reshape(a, (1, *first)) if len(first) == 1 else a
    right = np.reshape(b, (*second, 1)) if len(second) == 1 else b
    if len(first) == 1:
        g = np.expand_dims(g, -2)
    if len(second) == 1:
        g = np.expand_dims(g, -1)
    if position == 0:
        product = np.matmul(g, np.swapaxes(right, -1, -2))
        return np.reshape(sum_to(product, shape_of(left)), first)
    product = np.matmul(np.swapaxes(left, -1, -2), g)
    return np.reshape(sum_to(product, shape_of(right)), second)


def _examples(rng: np.random.Generator) -> Any:
    def n(*shape: int) -> Any:
        return rng.normal(size=shape)

    for a, b in ((n(2, 3), n(3, 4)), (n(3), n(3)), (n(2, 3), n(3)), (n(3), n(3, 2)), (n(3, 2).T, n(4, 3).T)):
        yield (a, b), {}
    yield (n(4, 2, 3), n(3, 5)), {}
    yield (n(4, 1, 2, 3), n(5, 3, 2)), {}
    yield (n(2, 0), n(0, 3)), {}
    yield (n(3), n(4, 3, 2)), {}


matmul_op = structural(
    lambda a, b: np.matmul(a, b), every=_matmul_pullback, name="matmul", native="matmul", examples=_examples
)


@handles(np.matmul, np.linalg.matmul)
def matmul(x1: Any, x2: Any, /, **keywords: Any) -> Any:
    """Multiply matrices, or stacks of them."""
    if keywords:
        raise TypeError(f"np.matmul with {', '.join(keywords)}= is not supported on recorded values")
    return matmul_op(x1, x2)
