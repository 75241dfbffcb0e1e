"""Every pushforward is the exact transpose of the pullbacks, keeps the dtype, and can be differentiated again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numeric import directional
from test_catalogue import STRUCTURAL, generator

from ops.catalog import OPS, Structural
from ops.shape import sum_to
from tape import grad

TRANSPOSED: list[str] = []
"""The ops whose tangents forward mode finds by transposing the pullbacks."""

BY_NAME = {op.name: op for op in OPS if isinstance(op, Structural)}


def symmetric(rng: np.random.Generator, *shape: int) -> Any:
    """Draw positive definite matrices."""
    x = rng.normal(size=shape)
    return x @ np.swapaxes(x, -1, -2) + (1 + np.arange(shape[-1])) * np.eye(shape[-1])


def symmetric_examples(op: Structural, rng: np.random.Generator) -> Iterator[Any]:
    """Give examples to the ops of symmetric matrices, which have none of their own."""
    name, choices = ("upper", (False, True)) if op.name == "cholesky" else ("uplo", ("L", "U"))
    for shape in ((3, 3), (1, 1), (2, 3, 3), (0, 0), (0, 2, 2)):
        for choice in choices:
            yield (symmetric(rng, *shape),), {name: choice}


def examples_of(op: Structural) -> list[Any]:
    """List the operands and parameters that an op is tested with, the same ones each time."""
    assert op.examples is not None
    return list(op.examples(generator(op))) or list(symmetric_examples(op, generator(op)))


EXAMPLES = [(op, number) for op in STRUCTURAL if op.pushforward for number, _ in enumerate(examples_of(op))]
parametrized = pytest.mark.parametrize(("op", "number"), EXAMPLES, ids=lambda x: getattr(x, "name", str(x)))


def floating(op: Structural, operands: Sequence[Any]) -> list[int]:
    """List the operands that may have a tangent."""
    return [k for k, x in enumerate(operands) if np.asarray(x).dtype.kind == "f" and op.pullback(k) is not None]


def choices(op: Structural, operands: Sequence[Any], rng: np.random.Generator) -> Iterator[list[Any]]:
    """Draw tangents: for each floating operand alone, and for all of them."""
    positions = floating(op, operands)
    assert positions
    for chosen in [[k] for k in positions] + [positions] * (len(positions) > 1):
        yield [
            rng.uniform(-1, 1, size=np.shape(x)).astype(np.asarray(x).dtype) if k in chosen else None
            for k, x in enumerate(operands)
        ]


def pulled(op: Structural, g: Any, out: Any, operands: Sequence[Any], position: int, parameters: Any) -> Any:
    """Give the gradient by an operand, in its shape."""
    pullback = op.pullback(position)
    assert pullback is not None
    shape = np.shape(operands[position])
    result = pullback(g, out, *operands, **parameters)
    if result is None:
        return np.zeros(shape)
    if np.ndim(result) > len(shape) or np.size(result) > np.size(operands[position]):
        result = sum_to(result, shape)
    return np.broadcast_to(result, shape)


def result_of(op: Structural, operands: Sequence[Any], parameters: Any) -> Any:
    """Compute the result as an array, as it stands on a tape."""
    return np.asarray(op.forward(*operands, **parameters))


def test_which_ops_have_a_pushforward() -> None:
    """Of all others forward mode transposes the pullbacks."""
    assert [op.name for op in STRUCTURAL if op.pushforward is None] == TRANSPOSED


@parametrized
def test_it_is_the_transpose_of_the_pullbacks(op: Structural, number: int) -> None:
    """<cotangent, push(tangents)> is the sum of <pullback(cotangent), tangent>, for one tangent and for all."""
    rng = generator(op)
    operands, parameters = examples_of(op)[number]
    out = result_of(op, operands, parameters)
    for tangents in choices(op, operands, rng):
        cotangent = rng.uniform(-1, 1, size=out.shape)
        pushed = op.push(tangents, out, *operands, **parameters)
        assert np.shape(pushed) == out.shape
        assert pushed.dtype == out.dtype
        terms = [cotangent * pushed]
        for k, t in enumerate(tangents):
            if t is not None:
                terms.append(-pulled(op, cotangent, out, operands, k, parameters) * t)
        size = sum(float(np.sum(np.abs(x))) for x in terms)
        assert abs(sum(float(np.sum(x)) for x in terms)) <= 1e-10 * size


@parametrized
def test_float32_stays_float32(op: Structural, number: int) -> None:
    """Tangents of float32 give one of the dtype of the result, float32 unless NumPy widens it, close to float64's."""
    rng = generator(op)
    operands, parameters = examples_of(op)[number]
    single = [x.astype(np.float32) if np.asarray(x).dtype.kind == "f" else x for x in operands]
    double = [x.astype(np.float64) if np.asarray(x).dtype.kind == "f" else x for x in single]
    if parameters.get("dtype"):
        parameters = {"dtype": "float32"}
    outs = result_of(op, single, parameters), result_of(op, double, parameters)
    for tangents in choices(op, single, rng):
        pushed = op.push(tangents, outs[0], *single, **parameters)
        assert np.shape(pushed) == outs[0].shape
        assert pushed.dtype == outs[0].dtype
        wide = [t if t is None else t.astype(np.float64) for t in tangents]
        expected = op.push(wide, outs[1], *double, **parameters)
        largest = np.max(np.abs(expected), initial=1.0)
        np.testing.assert_allclose(pushed, expected, rtol=2e-3, atol=2e-4 * largest)


@parametrized
def test_recorded_tangents(op: Structural, number: int) -> None:
    """The tangent of the result is linear in those of the operands: the slope by a factor of theirs is itself."""
    rng = generator(op)
    operands, parameters = examples_of(op)[number]
    out = result_of(op, operands, parameters)
    for tangents in choices(op, operands, rng):
        cotangent = rng.uniform(0.5, 1.5, size=out.shape)

        def f(x: Any, tangents: Any = tangents, cotangent: Any = cotangent) -> Any:
            scaled = [t if t is None else x * t for t in tangents]
            return np.sum(cotangent * op.push(scaled, out, *operands, **parameters))

        products = cotangent * op.push(tangents, out, *operands, **parameters)
        assert abs(grad(f)(1.0) - np.sum(products)) <= 1e-10 * np.sum(np.abs(products))


@parametrized
def test_recorded_operands(op: Structural, number: int) -> None:
    """Differentiating the tangent of the result by an operand gives second derivatives."""
    rng = generator(op)
    operands, parameters = examples_of(op)[number]
    out = result_of(op, operands, parameters)
    for tangents in choices(op, operands, rng):
        cotangent = rng.uniform(0.5, 1.5, size=out.shape)

        def f(*xs: Any, tangents: Any = tangents, cotangent: Any = cotangent) -> Any:
            return np.sum(cotangent * op.push(tangents, op(*xs, **parameters), *xs, **parameters))

        for k in floating(op, operands):
            got = grad(lambda x, k=k, f=f: f(*operands[:k], x, *operands[k + 1 :]))(operands[k])
            direction = rng.uniform(-1, 1, size=np.shape(operands[k]))
            if op.name in ("cholesky", "eigh", "eigvalsh"):
                direction = direction + np.swapaxes(direction, -1, -2)
            expected = directional(f, list(operands), k, direction)
            size = max(1.0, abs(float(expected)), float(np.sum(np.abs(got * direction))))
            assert abs(np.sum(got * direction) - expected) <= 1e-5 * size


# ---------------------------------------------------------------- corners
NAN, INF = np.nan, np.inf
WHOLE = {"axis": (0,), "keepdims": False}
POINTS = np.array([-1.0, 0.0, 0.5, 0.5, 2.0])
CORNERS = [
    ("prod", ([2.0, 0.0, 3.0],), WHOLE), ("prod", ([0.0, 0.0, 3.0],), WHOLE), ("prod", ([INF, 0.0, 3.0],), WHOLE),
    ("cumprod", ([2.0, 0.0, 3.0, 0.0, 1.0],), {"axis": 0}), ("cumprod", ([INF, 2.0, 3.0],), {"axis": 0}),
    ("max", ([2.0, 3.0, 3.0, 1.0],), WHOLE), ("min", ([[2.0, 3.0], [2.0, 1.0]],), WHOLE), ("max", ([2.0, NAN],), WHOLE),
    ("nanmax", ([2.0, 3.0, NAN, 3.0],), WHOLE), ("nanmin", ([NAN, NAN],), WHOLE),
    ("mean", (np.zeros((0, 2)),), WHOLE),
    ("linear_recurrence", ([INF, NAN, 2.0], [0.0, 0.0, 3.0]), {"reverse": False}),
    ("linear_recurrence", ([INF, NAN, 2.0], [0.0, 3.0, 0.0]), {"reverse": True}),
    ("assign", ([1.0, 2.0, 3.0], np.array([4, 5]), np.array([0, 0])), {"spec": ("array",)}),
    ("concatenate", ([1.0, 2.0], np.array([4, 5])), {"axis": 0}), ("numbers", (1.0, np.array(2)), {}),
    ("matmul", ([[1.0, INF], [NAN, 2.0]], [[0.0, 1.0], [2.0, INF]]), {}),
    ("dot", (np.array([[[1.0, INF], [0.0, 2.0]]]), [0.0, 1.0]), {}),
    ("vecdot", ([1.0, INF, 2.0], [0.0, 1.0, 2.0]), {}), ("matvec", ([[1.0, INF], [NAN, 2.0]], [0.0, 1.0]), {}),
    ("vecmat", ([INF, 1.0], [[1.0, INF], [NAN, 2.0]]), {}),
    ("einsum", ([INF, 1.0], [0.0, 2.0], [2.0, NAN]), {"subscripts": "i,i,i->i", "optimize": False}),
    ("interp", ([-3.0, -1.0, 0.0, 0.25, 2.0, 5.0], POINTS, [1.0, 3.0, 2.0, 4.0, 1.0]), {}),
    ("interp", ([-3.0, 1.0, 2.0], [1.0], [3.0]), {}),
    ("det", ([[1.0, 2.0], [2.0, 4.0]],), {}), ("det", (np.zeros((3, 3)),), {}),
    ("cofactors", (np.ones((3, 3)),), {}), ("cofactors", (np.zeros((2, 2, 2)),), {}),
    ("slogdet", ([[[1.0, 2.0], [2.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]]],), {}),
    ("solve", ([[[NAN] * 2] * 2, [[1.0, 2.0], [0.0, 1.0]]], [[[1.0], [2.0]]] * 2), {}),
    ("inv", ([[[NAN] * 2] * 2, [[1.0, 2.0], [0.0, 1.0]]],), {}),
    ("eigh", (np.diag([1.0, 1.0, 2.0]),), {"uplo": "L"}), ("eigh", (np.zeros((2, 2, 2)),), {"uplo": "L"}),
    ("eigvalsh", (np.diag([1.0, 1.0, 2.0]),), {"uplo": "L"}),
    ("svd", (np.eye(3),), {}), ("svd", (np.zeros((3, 2)),), {}), ("svd", ([[3.0, 0.0, 0.0], [0.0, 0.0, 0.0]],), {}),
    ("svdvals", (np.diag([1.0, 1.0, 0.0]),), {}), ("svdvals", (np.zeros((2, 3)),), {}),
    ("pinv", (np.ones((2, 3)),), {"cutoff": (), "hermitian": False}),
    ("pinv", (np.diag([1.0, 0.0]),), {"cutoff": (), "hermitian": False}),
    ("lstsq", (np.ones((3, 2)), [1.0, 2.0, 4.0]), {"rcond": None}), ("lstsq", (np.zeros((2, 2)), [1.0, 2.0]),
    {"rcond": None}),
    ("histogram_bin_edges", ([1.0, 3.0, 3.0, 1.0],), {"bins": 3}),
    ("histogram", ([1.0, 3.0, 3.0, NAN, 0.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0, 5.0]),
     {"bins": None, "limits": None}),
    ("logsumexp", ([-INF, -INF],), WHOLE), ("logsumexp", ([1.0, INF, INF],), WHOLE),
    ("logsumexp", ([1.0, -INF, INF], [1.0, 2.0, 0.0]), WHOLE),
    ("softmax", ([1.0, -INF, 1000.0],), {"axis": (0,)}), ("log_softmax", ([1.0, -INF, 1000.0],), {"axis": (0,)}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "operands", "parameters"), CORNERS, ids=lambda x: x if isinstance(x, str) else "")
def test_corners(name: str, operands: Any, parameters: Any) -> None:
    """Pushing each unit vector gives the columns, pulling each the rows, of one and the same matrix."""
    op = BY_NAME[name]
    operands = [np.asarray(x) for x in operands]
    with np.errstate(all="ignore"), pytest.warns() if 0 in operands[0].shape else np.errstate():
        out = result_of(op, operands, parameters)
    for k in floating(op, operands):
        shape = operands[k].shape
        by_column = np.zeros((out.size, operands[k].size))
        by_row = np.zeros_like(by_column)
        with np.errstate(all="ignore"):
            for j in range(operands[k].size):
                tangents: list[Any] = [None] * len(operands)
                tangents[k] = np.eye(operands[k].size)[j].reshape(shape)
                by_column[:, j] = np.ravel(op.push(tangents, out, *operands, **parameters))
            for i in range(out.size):
                unit = np.eye(out.size)[i].reshape(out.shape)
                by_row[i] = np.ravel(pulled(op, unit, out, operands, k, parameters))
        np.testing.assert_allclose(by_column, by_row, rtol=1e-10, atol=1e-13)


def test_a_matrix_without_a_tangent_does_no_harm() -> None:
    """In a stack, a singular matrix whose tangent is 0 has the tangent 0."""
    a = np.array([np.ones((2, 2)), [[2.0, 1.0], [0.0, 3.0]]])
    t = np.array([np.zeros((2, 2)), [[1.0, 0.5], [2.0, 1.0]]])
    op = BY_NAME["qr"]
    both = op.push([t], op.forward(a), a)
    np.testing.assert_array_equal(both[0], np.zeros_like(both[0]))
    np.testing.assert_allclose(both[1], op.push([t[1]], op.forward(a[1]), a[1]), rtol=1e-14)
