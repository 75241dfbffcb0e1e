"""Linear algebra: products. Solvers and factorisations are in `ops.solve`, `ops.singular` and `ops.norm`."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ops.catalog import handles, structural
from ops.create import asarray
from ops.elementwise import scale
from ops.multilinear import in_turn, shielded
from ops.shape import shape_of, sum_to


# ---------------------------------------------------------------- helpers
def operand(x: Any) -> Any:
    """Make an array of lists and numbers; leave arrays and recorded values."""
    return x if hasattr(x, "shape") else asarray(x)


def stand_in(x: Any) -> Any:
    """Give a plain array of the same shape: NumPy raises its own error about it."""
    return np.broadcast_to(np.ones(()), shape_of(x))


def refuse(name: str, **keywords: Any) -> None:
    """Raise for keywords that recorded values do not take."""
    given = [key for key, value in keywords.items() if value is not None]
    if given:
        instead = f"write `out[...] = {name}(...)`" if given == ["out"] else f"use {name} without it"
        raise TypeError(f"{name} with {', '.join(given)}= is not supported on recorded values: {instead}")


def transposed(x: Any) -> Any:
    """Swap the last two axes."""
    return np.swapaxes(x, -1, -2)


def lift(x: Any, count: int = 1) -> Any:
    """Append axes of length 1."""
    return np.reshape(x, (*shape_of(x), *(1,) * count))


# ---------------------------------------------------------------- matrices
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
        product = shielded(np.matmul, g, transposed(right))
        return np.reshape(sum_to(product, shape_of(left)), first)
    product = shielded(lambda g, a: np.matmul(a, g), g, transposed(left))
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
    lambda a, b: np.matmul(a, b),
    every=_matmul_pullback,
    pushforward=in_turn(np.matmul),
    name="matmul",
    native="matmul",
    examples=_examples,
)


@handles(np.matmul, np.linalg.matmul)
def matmul(x1: Any, x2: Any, /, **keywords: Any) -> Any:
    """Multiply matrices, or stacks of them."""
    refuse("np.matmul", **keywords)
    return matmul_op(operand(x1), operand(x2))


def _dot_pullback(position: int, g: Any, out: Any, a: Any, b: Any) -> Any:
    """Contract g with the other operand over the axes that come from that operand."""
    first, second = len(shape_of(a)), len(shape_of(b))
    summed = second - 1 if second == 1 else second - 2
    if position == 0:
        others = [d for d in range(second) if d != summed]
        over = list(range(first - 1, first + second - 2))
        return shielded(lambda g, b: np.tensordot(g, b, (over, others)), g, b)
    lead = list(range(first - 1))
    product = shielded(lambda g, a: np.tensordot(a, g, (lead, lead)), g, a)
    return np.moveaxis(product, 0, summed)


def _dot_examples(rng: np.random.Generator) -> Any:
    for first, second in (((2, 3), (4, 3, 2)), ((2, 2, 3), (3,)), ((3,), (2, 3, 2)), ((2, 1, 3), (2, 3, 2))):
        yield (rng.normal(size=first), rng.normal(size=second)), {}
    yield (rng.normal(size=(2, 3, 0)), rng.normal(size=(0, 2))), {}


dot_op = structural(
    lambda a, b: np.dot(a, b),
    every=_dot_pullback,
    pushforward=in_turn(np.dot),
    name="dot",
    examples=_dot_examples,
)


@handles(np.dot)
def dot(a: Any, b: Any, out: Any = None) -> Any:
    """Sum products over the last axis of a and the last but one of b."""
    refuse("np.dot", out=out)
    a, b = operand(a), operand(b)
    first, second = shape_of(a), shape_of(b)
    if not first or not second:
        return np.multiply(a, b)
    if first[-1] != second[-2 if len(second) > 1 else -1]:
        return np.dot(stand_in(a), stand_in(b))
    return matmul_op(a, b) if len(first) <= 2 and len(second) <= 2 else dot_op(a, b)


@handles(np.vdot)
def vdot(a: Any, b: Any, /) -> Any:
    """Sum the products of all elements."""
    return dot(np.reshape(operand(a), -1), np.reshape(operand(b), -1))


@handles(np.inner)
def inner(a: Any, b: Any, /) -> Any:
    """Sum products over the last axes."""
    a, b = operand(a), operand(b)
    if shape_of(a)[-1:] != shape_of(b)[-1:] and shape_of(a) and shape_of(b):
        return np.inner(stand_in(a), stand_in(b))
    return dot(a, b if len(shape_of(b)) < 2 else transposed(b))


@handles(np.outer)
def outer(a: Any, b: Any, out: Any = None) -> Any:
    """Multiply each element of a with each of b."""
    refuse("np.outer", out=out)
    return np.multiply(np.reshape(operand(a), (-1, 1)), np.reshape(operand(b), (1, -1)))


@handles(np.linalg.outer)
def linalg_outer(x1: Any, x2: Any, /) -> Any:
    """Multiply each element of one vector with each of another."""
    x1, x2 = operand(x1), operand(x2)
    if len(shape_of(x1)) != 1 or len(shape_of(x2)) != 1:
        return np.linalg.outer(stand_in(x1), stand_in(x2))
    return outer(x1, x2)


@handles(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Sum products over pairs of axes."""
    a, b = operand(a), operand(b)
    first, second = shape_of(a), shape_of(b)
    if np.ndim(axes) == 0:
        count = operator.index(axes)
        pair: Any = (range(len(first) - count, len(first)), range(count))
    else:
        pair = tuple([one] if np.ndim(one) == 0 else one for one in axes)
    try:
        left = [normalize_axis_index(int(d), len(first)) for d in pair[0]]
        right = [normalize_axis_index(int(d), len(second)) for d in pair[1]]
        fits = len(pair) == 2 and [first[d] for d in left] == [second[d] for d in right]
    except (ValueError, IndexError):
        fits = False
    if not fits or len(set(left)) < len(left) or len(set(right)) < len(right):
        return np.tensordot(stand_in(a), stand_in(b), axes)
    kept = [d for d in range(len(first)) if d not in left]
    rest = [d for d in range(len(second)) if d not in right]
    summed = math.prod(first[d] for d in left)
    rows, columns = [first[d] for d in kept], [second[d] for d in rest]
    a = np.reshape(np.transpose(a, kept + left), (math.prod(rows), summed))
    b = np.reshape(np.transpose(b, right + rest), (summed, math.prod(columns)))
    return np.reshape(matmul_op(a, b), (*rows, *columns))


@handles(np.linalg.tensordot)
def linalg_tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    """Sum products over pairs of axes."""
    return tensordot(x1, x2, axes)


@handles(np.kron)
def kron(a: Any, b: Any) -> Any:
    """Put a copy of b, multiplied by it, in place of each element of a."""
    a, b = operand(a), operand(b)
    ndim = max(len(shape_of(a)), len(shape_of(b)))
    first = (1,) * (ndim - len(shape_of(a))) + tuple(shape_of(a))
    second = (1,) * (ndim - len(shape_of(b))) + tuple(shape_of(b))
    left = np.reshape(a, tuple(n for length in first for n in (length, 1)))
    right = np.reshape(b, tuple(n for length in second for n in (1, length)))
    return np.reshape(np.multiply(left, right), tuple(n * m for n, m in zip(first, second, strict=True)))


# ---------------------------------------------------------------- stacks of vectors
def _stacks(first: int, second: int) -> Callable[[np.random.Generator], Any]:
    """Make examples: operands of 1 (vector) or 2 (square matrix) axes, with stacks that broadcast, and empty ones."""

    def examples(rng: np.random.Generator) -> Any:
        for lead, other in (((), ()), ((2,), ()), ((), (2, 3)), ((2, 1), (1, 3)), ((0,), (0,))):
            yield (rng.normal(size=(*lead, *(4,) * first)), rng.normal(size=(*other, *(4,) * second))), {}
        yield (rng.normal(size=(*(0,) * first,)), rng.normal(size=(*(0,) * second,))), {}

    return examples


vecdot_op = structural(
    lambda a, b: np.vecdot(a, b),
    lambda g, out, a, b: scale(lift(g), b),
    lambda g, out, a, b: scale(lift(g), a),
    pushforward=in_turn(np.vecdot),
    name="vecdot",
    examples=_stacks(1, 1),
)
matvec_op = structural(
    lambda a, b: np.matvec(a, b),
    lambda g, out, a, b: scale(lift(g), np.expand_dims(b, -2)),
    lambda g, out, a, b: shielded(lambda g, a: np.matvec(transposed(a), g), g, a),
    pushforward=in_turn(np.matvec),
    name="matvec",
    examples=_stacks(2, 1),
)
vecmat_op = structural(
    lambda a, b: np.vecmat(a, b),
    lambda g, out, a, b: shielded(lambda g, b: np.matvec(b, g), g, b),
    lambda g, out, a, b: scale(np.expand_dims(g, -2), lift(a)),
    pushforward=in_turn(np.vecmat),
    name="vecmat",
    examples=_stacks(1, 2),
)


def _of_vectors(name: str, op: Any, axes: tuple[int, int]) -> Callable[..., Any]:
    def product(x1: Any, x2: Any, /, **keywords: Any) -> Any:
        refuse(f"np.{name}", **keywords)
        x1, x2 = operand(x1), operand(x2)
        # A single product goes to matmul, which the sweep does by itself.
        single = (len(shape_of(x1)), len(shape_of(x2))) == axes and 0 not in (*shape_of(x1), *shape_of(x2))
        return matmul_op(x1, x2) if single else op(x1, x2)

    product.__name__ = name
    return product


matvec = handles(np.matvec)(_of_vectors("matvec", matvec_op, (2, 1)))
vecmat = handles(np.vecmat)(_of_vectors("vecmat", vecmat_op, (1, 2)))
_vecdot = _of_vectors("vecdot", vecdot_op, (1, 1))


@handles(np.vecdot, np.linalg.vecdot)
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, **keywords: Any) -> Any:
    """Sum products over an axis."""
    if axis != -1:
        x1, x2 = np.moveaxis(operand(x1), axis, -1), np.moveaxis(operand(x2), axis, -1)
    return _vecdot(x1, x2, **keywords)


@handles(np.cross)
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """Give the cross product of vectors of three elements; a third one that is missing is 0."""
    if axis is not None:
        axisa, axisb, axisc = (axis,) * 3
    a, b = operand(a), operand(b)
    a = np.moveaxis(a, normalize_axis_index(axisa, len(shape_of(a)), "axisa"), -1)
    b = np.moveaxis(b, normalize_axis_index(axisb, len(shape_of(b)), "axisb"), -1)
    lengths = shape_of(a)[-1], shape_of(b)[-1]
    if not {2, 3}.issuperset(lengths):
        return np.cross(stand_in(a), stand_in(b))
    if 2 in lengths:
        message = "Arrays of 2-dimensional vectors are deprecated. Use arrays of 3-dimensional vectors instead."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
    x, y = ([v[..., k] for k in range(n)] for v, n in zip((a, b), lengths, strict=True))
    last = x[0] * y[1] - x[1] * y[0]
    if lengths == (2, 2):
        return last
    if lengths == (3, 3):
        parts = [x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], last]
    elif lengths == (2, 3):
        parts = [x[1] * y[2], -(x[0] * y[2]), last]
    else:
        parts = [-(x[2] * y[1]), x[2] * y[0], last]
    return np.stack(parts, axis=axisc)


@handles(np.linalg.cross)
def linalg_cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Give the cross product of vectors of three elements."""
    x1, x2 = operand(x1), operand(x2)
    if shape_of(x1)[axis] != 3 or shape_of(x2)[axis] != 3:
        return np.linalg.cross(stand_in(x1), stand_in(x2), axis=axis)
    return cross(x1, x2, axis=axis)


# ---------------------------------------------------------------- products of several matrices
def _chain(lengths: Sequence[int]) -> Callable[[int, int], int]:
    """Give where to split the product of matrices i to j so that multiplying takes the fewest operations."""
    n = len(lengths) - 1
    cost: dict[tuple[int, int], float] = {(i, i): 0.0 for i in range(n)}
    split: dict[tuple[int, int], int] = {}
    for width in range(1, n):
        for i in range(n - width):
            j = i + width
            costs = [
                cost[i, k] + cost[k + 1, j] + float(lengths[i]) * lengths[k + 1] * lengths[j + 1] for k in range(i, j)
            ]
            cost[i, j] = min(costs)
            split[i, j] = i + costs.index(cost[i, j])
    return lambda i, j: split[i, j]


@handles(np.linalg.multi_dot)
def multi_dot(arrays: Any, *, out: Any = None) -> Any:
    """Multiply several matrices in the cheapest order; the first and the last may be vectors."""
    refuse("np.linalg.multi_dot", out=out)
    items = [operand(x) for x in arrays]
    shapes = [tuple(shape_of(x)) for x in items]
    if len(items) == 2:
        return dot(*items)
    ends = {len(shapes[0]), len(shapes[-1])} if items else set()
    if len(items) < 2 or not ends <= {1, 2} or any(len(s) != 2 for s in shapes[1:-1]):
        return np.linalg.multi_dot([stand_in(x) for x in items])
    row, column = len(shapes[0]) == 1, len(shapes[-1]) == 1
    if row:
        items[0] = np.reshape(items[0], (1, -1))
    if column:
        items[-1] = np.reshape(items[-1], (-1, 1))
    split = _chain([shape_of(x)[0] for x in items] + [shape_of(items[-1])[1]])

    def product(i: int, j: int) -> Any:
        return items[i] if i == j else dot(product(i, split(i, j)), product(split(i, j) + 1, j))

    result = product(0, len(items) - 1)
    if row and column:
        return result[0, 0]
    return np.reshape(result, -1) if row or column else result


@handles(np.linalg.matrix_power)
def matrix_power(a: Any, n: Any) -> Any:
    """Raise square matrices to a whole power, by squaring."""
    shape = shape_of(a)
    if len(shape) < 2 or shape[-1] != shape[-2] or not hasattr(n, "__index__"):
        return np.linalg.matrix_power(stand_in(a), n)
    n = operator.index(n)
    if n == 0:
        return np.array(np.broadcast_to(np.eye(shape[-1], dtype=a.dtype), shape))
    if n < 0:
        a, n = np.linalg.inv(a), -n
    if n == 3:
        return np.matmul(np.matmul(a, a), a)
    result = None
    while True:
        n, odd = divmod(n, 2)
        if odd:
            result = a if result is None else np.matmul(result, a)
        if not n:
            return result
        a = np.matmul(a, a)
