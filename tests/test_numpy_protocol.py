"""A recorded value among NumPy's: operators from both sides, methods, ufunc keywords, ufunc methods, conversion."""

from __future__ import annotations

import copy
import itertools
import operator
from typing import Any

import numpy as np
import pytest
import scipy.special
from numeric import gradient

from tape import Tensor, UnsupportedError, grad, value_and_grad

X = np.array([0.5, -1.5, 2.5, 3.0])
M = np.arange(12.0).reshape(3, 4) / 7 - 0.8


def check(f: Any, x: Any, tolerance: float = 1e-8) -> None:
    """Hold value and gradient of sum(f(x) * weights) against NumPy and finite differences."""

    def total(x: Any) -> Any:
        y = f(x)
        return np.sum(y * np.linspace(0.5, 1.5, np.size(y)).reshape(np.shape(y)))

    with np.errstate(all="ignore"):
        value, g = value_and_grad(total)(x)
        assert value == total(np.copy(x))
        expected = gradient(total, x)
    assert np.shape(g) == np.shape(x)
    np.testing.assert_allclose(g, expected, rtol=tolerance, atol=tolerance)


def recorded(f: Any, x: Any) -> Any:
    """Give what f makes of a recorded x, as plain values."""
    seen: list[Any] = []
    grad(lambda x: (seen.append(f(x)), np.sum(x))[1])(x)
    return seen[0]


# ---------------------------------------------------------------- operators
ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
OTHERS = [
    2, 2.0, np.float64(2.0), np.array(2.0), np.int64(2), True, [1.0, 2, 3.0, 4], (4.0, 3.0, 2.0, 1.0),
    np.array([1.0, 2.0, 3.0, 4.0]),
    np.arange(1, 5), np.array([[1.0], [2.0]]), np.array([True, False, True, True]),
]  # fmt: skip


@pytest.mark.parametrize("other", OTHERS, ids=repr)
@pytest.mark.parametrize("op", ARITHMETIC, ids=lambda op: op.__name__)
def test_arithmetic_from_both_sides(op: Any, other: Any) -> None:
    x = np.array([0.7, 1.6, 2.3, 3.1])
    for f in (lambda x: op(x, other), lambda x: op(other, x)):
        with np.errstate(all="ignore"):
            assert isinstance(recorded(f, x), Tensor)
            if np.all(np.isfinite(f(x))):
                check(f, x, 1e-6)


@pytest.mark.parametrize("other", [2, 2.0, np.float64(2.0), np.array(2.0), True, np.int64(2)], ids=repr)
@pytest.mark.parametrize("op", ARITHMETIC, ids=lambda op: op.__name__)
def test_arithmetic_of_numbers_from_both_sides(op: Any, other: Any) -> None:
    for x in (0.7, np.float64(2.3), np.array(1.6)):
        for f in (lambda x: op(x, other), lambda x: op(other, x)):
            assert isinstance(recorded(f, x), Tensor)
            check(f, x, 1e-6)


@pytest.mark.parametrize(
    "other", [0.5, 1, np.float64(0.5), X[::-1], [0.5, 1.0, 2.5, 9.0], np.array([[0.5], [2.5]])], ids=repr
)
@pytest.mark.parametrize("op", COMPARISONS, ids=lambda op: op.__name__)
def test_comparisons_from_both_sides(op: Any, other: Any) -> None:
    for f in (lambda x: op(x, other), lambda x: op(other, x)):
        y = recorded(lambda x, f=f: (t := f(x), isinstance(t, Tensor), t.numpy()), X)
        assert y[1]
        assert y[2].dtype == np.bool_
        np.testing.assert_array_equal(y[2], f(X))
    np.testing.assert_array_equal(grad(lambda x: np.sum(np.where(op(x, other), x, 0.0)))(X).shape, X.shape)


def test_operators_between_tensors_and_unary_ones() -> None:
    for op in ARITHMETIC:
        check(lambda x, op=op: op(np.abs(x) + 0.3, x * x), X, 1e-6)
    for op in (operator.neg, operator.pos, operator.abs):
        check(op, X + 0.013)
    assert value_and_grad(lambda x: round(x) + round(x, 1))(2.26) == (2.0 + 2.3, 0.0)
    check(lambda x: divmod(x, 0.7)[1] + divmod(9.1, x)[1], X + 0.013)
    check(lambda x: np.where(~(x > 0) | (x < 0.7) & (x != 3.0) ^ (x == 9.0), x, 2 * x), X)


def test_matmul_from_both_sides() -> None:
    a = np.arange(8.0).reshape(4, 2)
    check(lambda x: x @ a, M)
    check(lambda x: a.T @ x.T, M)
    check(lambda x: x @ x.T, M)
    check(lambda x: [1.0, 2.0, 3.0] @ x, M)
    check(lambda x: x @ [1.0, 2.0, 3.0, 4.0], M)
    check(lambda x: X @ x, X)


def test_other_types_answer_for_themselves() -> None:
    class Other:
        def __add__(self, x: Any) -> str:
            return "add"

        def __radd__(self, x: Any) -> str:
            return "radd"

        def __rmatmul__(self, x: Any) -> str:
            return "rmatmul"

        def __eq__(self, x: object) -> Any:
            return "eq"

        __hash__ = None  # type: ignore[assignment]

    assert recorded(lambda x: (x + Other(), Other() + x, x[0] + Other(), x == Other()), X) == (
        "radd",
        "add",
        "radd",
        "eq",
    )
    for op in (operator.add, operator.mul, operator.pow, operator.lt):
        for other in ("text", None, {}, object()):
            with pytest.raises(TypeError):
                recorded(lambda x, op=op, other=other: op(x, other), X)
    assert grad(lambda x: x * 10**20)(1.0) == 1e20


def test_python_scalars_do_not_promote() -> None:
    x = X.astype(np.float32)
    for f in (lambda x: x + 1.5, lambda x: 2 * x, lambda x: x**2, lambda x: 2.0**x, lambda x: x / 3, lambda x: -x,
              lambda x: x + True,
              lambda x: np.maximum(x, 0.0), lambda x: np.where(x > 0, x, 0.0), lambda x: np.clip(x, 0, 1),
              lambda x: x // 1.0):  # fmt: skip
        assert recorded(lambda x, f=f: f(x).dtype, x) == np.float32 == f(x).dtype
    assert recorded(lambda x: (x * np.float32(2.0)).dtype, 0.7) == (0.7 * np.float32(2.0)).dtype
    for f in (
        lambda x: x + np.float64(1.5),
        lambda x: x * np.ones(4),
        lambda x: x + np.arange(4),
        lambda x: x * np.array(2.0),
    ):
        assert recorded(lambda x, f=f: f(x).dtype, x) == f(x).dtype


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.argmax(x) + 1, lambda x: 1 + np.argsort(x), lambda x: np.argsort(x) % 2, lambda x: (x > 1) + 1,
        lambda x: (x > 1) * 2,
        lambda x: (x > 1) * True, lambda x: -np.argmax(x), lambda x: np.maximum(np.argsort(x), 1),
        lambda x: np.where(x > 1, 1, 0),
        lambda x: np.sum(x > 1) + 1, lambda x: np.argmax(x) / 2, lambda x: np.argmax(x) * 2.0,
        lambda x: np.argsort(x) ** 2, lambda x: 7 // (np.argsort(x) + 1),
        lambda x: np.where(x > 1, 1, x),
        lambda x: np.stack(x.nonzero()), lambda x: np.stack(np.nonzero(x > 1)), lambda x: np.count_nonzero(x > 1),
        lambda x: x[np.argsort(x)[:2] + 1] + x[np.argmax(x) - 1], lambda x: np.argsort(x)[1] << 2,
    ],
)  # fmt: skip
def test_integers_stay_integers(f: Any) -> None:
    got = recorded(lambda x: (y := f(x), y.dtype, y.numpy() if isinstance(y, Tensor) else y), X)
    assert got[1] == np.asarray(f(X)).dtype
    np.testing.assert_array_equal(got[2], f(X))


# ---------------------------------------------------------------- attributes and methods
def test_attributes() -> None:
    x = M.astype(np.float32)
    names = ("shape", "ndim", "size", "dtype", "itemsize", "nbytes")
    assert recorded(lambda x: [getattr(x, n) for n in names], x) == [getattr(x, n) for n in names]
    check(lambda x: x.T @ x.real + x.mT @ x, M)
    check(lambda x: x + x.imag, M)
    assert recorded(lambda x: (np.shape(x), np.ndim(x), np.size(x)), M) == ((3, 4), 2, 12)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.sum(), lambda x: x.sum(0), lambda x: x.sum(axis=1, keepdims=True), lambda x: x.sum(axis=(0, 1)),
        lambda x: x.mean(-1),
        lambda x: x.prod(axis=0), lambda x: x.max(), lambda x: x.max(axis=1), lambda x: x.min(0), lambda x: x.var(),
        lambda x: x.std(axis=0, ddof=1),
        lambda x: x.reshape(4, 3), lambda x: x.reshape((2, -1)),
        lambda x: x.reshape(-1), lambda x: x.transpose(), lambda x: x.transpose(1, 0),
        lambda x: x.transpose((1, 0)), lambda x: x.swapaxes(0, 1),
        lambda x: x.ravel(), lambda x: x.flatten(), lambda x: x.copy(),
        lambda x: x.squeeze(), lambda x: x[None].squeeze(0), lambda x: x.clip(-0.3, 0.4),
        lambda x: x.clip(min=0.0), lambda x: x.repeat(2),
        lambda x: x.repeat(2, axis=1), lambda x: x.take([0, 2], axis=0),
        lambda x: x.trace(), lambda x: x.diagonal(), lambda x: x.round(1),
        lambda x: x.cumsum(), lambda x: x.cumsum(axis=1), lambda x: x.cumprod(axis=0), lambda x: x.dot(x.T),
        lambda x: x.conj(),
        lambda x: x.astype(float), lambda x: np.stack(x.tolist()[1]), lambda x: x[x.argmax(axis=0), np.arange(4)],
        lambda x: x.ravel()[x.ravel().argsort()],
        lambda x: x[x.argmin(0)], lambda x: x[x.nonzero()], lambda x: np.stack(list(x.flat)),
        lambda x: x * x.any() * (x > -9).all(),
        lambda x: x.compress([True, False, True], axis=0), lambda x: x.dot([1.0, 2.0, 3.0, 4.0]),
        lambda x: (x.copy().sort(), x)[1],
        lambda x: (y := x * 1.0, y.sort(axis=0), y)[-1], lambda x: x.ravel().searchsorted([0.1]) * x,
    ],
)  # fmt: skip
def test_methods(f: Any) -> None:
    check(f, M)


# ---------------------------------------------------------------- ufunc keywords
def test_out() -> None:
    def f(x: Any) -> Any:
        y = np.zeros_like(x)
        same = np.sin(x, out=y)
        assert same is y
        z = np.empty_like(x)
        np.multiply(y, x, z)
        np.add(z, 1.0, out=(z,))
        np.exp(z, out=z)
        return z

    check(f, X)


def test_out_of_a_view() -> None:
    def f(x: Any) -> Any:
        y = np.ones_like(x)
        np.add(x[1:], x[:-1], out=y[1:])
        np.multiply(y[0], x[2], out=y[:1])
        return y * y

    check(f, X)


def test_where_with_out() -> None:
    mask = np.array([True, False, True, False])

    def f(x: Any) -> Any:
        y = x * 3.0
        np.sqrt(x, out=y, where=x > 0)
        np.divide(1.0, y, where=mask, out=y)
        return y

    check(f, X)
    # A slope that is infinite where the mask is off is never met.
    with np.errstate(all="ignore"):
        g = grad(lambda x: np.sum(np.log(x, out=np.zeros_like(x), where=x > 0)))(np.array([0.0, 2.0, -1.0]))
    np.testing.assert_array_equal(g, [0.0, 0.5, 0.0])


def test_dtype_and_casting() -> None:
    x = X.astype(np.float32)
    assert recorded(lambda x: np.add(x, 1.0, dtype=np.float64).dtype, x) == np.float64
    assert recorded(lambda x: np.multiply(x, x, dtype=np.float32).dtype, X) == np.float32
    g = grad(lambda x: np.sum(np.multiply(x, x, dtype=np.float64)))(x)
    assert g.dtype == np.float32
    np.testing.assert_array_equal(g, 2 * x)
    with pytest.raises(TypeError, match="Cannot cast"):
        recorded(lambda x: np.add(x, 1.0, out=np.zeros_like(x, dtype=int)), X)


# ---------------------------------------------------------------- ufunc methods
@pytest.mark.parametrize(
    "f",
    [
        np.add.reduce, lambda x: np.add.reduce(x, axis=1), lambda x: np.add.reduce(x, axis=None),
        lambda x: np.add.reduce(x, axis=(0, 1), keepdims=True),
        np.multiply.reduce, lambda x: np.maximum.reduce(x, axis=1), np.minimum.reduce, np.add.accumulate,
        lambda x: np.add.accumulate(x, axis=1),
        np.multiply.accumulate, lambda x: np.multiply.outer(x, X), lambda x: np.subtract.outer(X, x),
        lambda x: np.add.outer(x, x),
        lambda x: np.power.outer(np.abs(x) + 0.1, [1.0, 2.0]), lambda x: np.maximum.outer(x[0], x[1] + 0.01),
    ],
)  # fmt: skip
def test_reduce_accumulate_outer(f: Any) -> None:
    check(f, M)


def test_at() -> None:
    index = np.array([0, 1, 1, 3])

    def f(x: Any) -> Any:
        y = x * 2.0
        np.add.at(y, index, x)
        np.subtract.at(y, [2, 2], x[0])
        np.add.at(y, 3, 5.0)
        return y * y

    check(f, X)
    check(lambda x: (y := np.zeros_like(x), np.add.at(y, index, X), y * x)[-1], X)


def test_methods_without_a_rule_are_refused() -> None:
    for f in (
        lambda x: np.hypot.reduce(x),
        lambda x: np.logaddexp.accumulate(x),
        lambda x: np.multiply.at(x, 0, 2.0),
        lambda x: np.add.reduceat(x, [0, 2]),
    ):
        with pytest.raises((UnsupportedError, NotImplementedError), match=r"reduce|accumulate|at"):
            recorded(f, X)


def test_logical_reductions() -> None:
    assert recorded(lambda x: bool(np.logical_or.reduce(x > 2.9)), X)
    assert not recorded(lambda x: bool(np.logical_and.reduce(x > 0)), X)


def test_ufuncs_of_scipy() -> None:
    for f in (scipy.special.expit, scipy.special.erf, scipy.special.gammaln):
        check(f, np.abs(X), 1e-7)
    check(lambda x: scipy.special.xlogy(2.0, x) + scipy.special.xlogy(x, 3.0), np.abs(X))


# ---------------------------------------------------------------- being a sequence
def test_iteration_and_unpacking() -> None:
    check(lambda x: sum(x) * x[0], X)
    check(lambda x: np.stack([row * k for k, row in enumerate(x)]), M)

    def f(x: Any) -> Any:
        a, b, *rest = x
        (c, d) = rest
        first, _, last = (v for v in (a, b, c))
        return a * b + c * d + first * last + max(x) + sum(reversed(x)) + sum(p * q for p, q in itertools.pairwise(x))

    check(f, X)


def test_len_bool_index_int() -> None:
    assert recorded(lambda x: (len(x), len(x[0])), M) == (3, 4)
    assert recorded(lambda x: (bool(x[0]), bool(x[0] * 0), bool(x[:1] > 0), not x[2]), X) == (True, False, True, False)
    with pytest.raises(ValueError, match="ambiguous"):
        recorded(lambda x: bool(x), X)
    for f in (len, iter, list):
        with pytest.raises(TypeError):
            recorded(f, 2.0)
    with pytest.raises(TypeError):
        recorded(lambda x: x[0], 2.0)
    assert recorded(lambda x: X[np.argmax(x)], X) == 3.0
    assert recorded(lambda x: list(range(np.argmax(x))), X) == [0, 1, 2]
    assert recorded(lambda x: "abcd"[np.argmin(x)], X) == "b"
    assert recorded(lambda x: int(x[3]), X) == 3
    with pytest.raises(TypeError, match="unhashable"):
        recorded(lambda x: {x[0]: 1}, X)


def test_format_and_repr() -> None:
    texts = recorded(lambda x: (f"{x[0]:.3f}", f"{x[2] * 2:6.1e}", repr(x), str(x[1]), f"{x}", format(x[3], ".1f")), X)
    assert texts[0] == "0.500"
    assert texts[1] == "5.0e+00"
    assert texts[2] == "Tensor([ 0.5, -1.5,  2.5,  3. ], dtype=float64)"
    assert "-1.5" in texts[3]
    assert texts[4] == texts[2]
    assert texts[5] == "3.0"


def test_copies() -> None:
    def f(x: Any) -> Any:
        a, b, c = copy.copy(x), copy.deepcopy(x), x.copy()
        a[0], b[1], c[2] = 9.0, x[0], 8.0
        return x * x + a * b * c

    check(f, X)


def test_indexing_of_every_kind() -> None:
    k = np.array([[0, 2], [2, 1]])
    for index in (
        0, -1, (1, 2), (-1, -1), slice(None), slice(1, None), slice(None, None, -1), (slice(None), 1), (..., 0), None,
        (None, 1, None),
        (slice(0, 0),), np.array([0, 0, 2]), [1, 0], k, (k, 1), (slice(1), k), (k[0], k[1]), (k, k), M > 0,
        np.array([True, False, True]),
        (slice(None), np.array([True, False, True, True])), (np.array([2, 0]), slice(None, None, 2)),
        (np.int64(1), ...), np.zeros(0, int),
        ([0, 1], [2, 3]), (np.ix_([0, 2], [1, 3])), (), ..., True, (np.array([0, 1]), None, slice(1, 3)),
    ):  # fmt: skip
        check(lambda x, i=index: x[i] ** 2, M)


def test_indices_that_look_alike() -> None:
    """What is remembered of one index is not taken for another that compares equal in parts."""
    cube = np.arange(60.0).reshape(3, 4, 5) / 7
    for index in (
        slice(None, 1), (None, 1, None), slice(1, 2), (1, 2, None), (slice(1, 2),),
        ((slice(1, 2)), None), slice(0, None, 2),
        (0, None, 2), 1, True, (True,), (1,), np.int64(1), (np.int64(1), ...), (True, ...), 0, False,
        (0,), -3, slice(0, 1), slice(False, True),
    ):  # fmt: skip
        np.testing.assert_array_equal(recorded(lambda x, i=index: x[i].numpy(), cube), cube[index])
        np.testing.assert_array_equal(grad(lambda x, i=index: np.sum(x[i] ** 2))(cube)[index], 2 * cube[index])
        total = np.sum(grad(lambda x, i=index: np.sum(x[i] ** 2))(cube))
        np.testing.assert_allclose(total, 2 * np.sum(cube[index]), rtol=1e-13)


def test_indexing_plain_arrays_by_recorded_integers_and_masks() -> None:
    check(lambda x: x * X[np.argsort(x)], X)
    check(lambda x: np.sum(X[x > 0]) * x, X)
    check(lambda x: x[np.argmax(x)] * X[int(np.argmin(x))], X)
