"""Maxima and minima: what the sweep does itself equals the rule, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ops.reduce import _extreme_pullback, axes_of
from tape import grad
from tape.blocks import BLOCK
from tape.instruction import EXTREME
from tape.workspace import KIND, SCALARS

Extreme = Callable[..., Any]


def kind(t: Any) -> int:
    """Give the kind of instruction that a value was recorded with."""
    space = t._tape.workspace
    return int(space.table[int(space.entries[t._slot, 0]) - SCALARS, KIND])


def by_rule(f: Extreme, x: Any, g: Any, axis: Any, keepdims: bool = False) -> Any:
    """Pull an adjoint back by the rule, in Python."""
    axes = axes_of(x, axis)
    with np.errstate(all="ignore"):
        return np.asarray(_extreme_pullback(g, f(x, axis=axes, keepdims=keepdims), x, axis=axes, keepdims=keepdims))


def check(f: Extreme, x: Any, axis: Any, g: Any, keepdims: bool = False, native: bool = True) -> None:
    """Hold the gradient against the rule: alone, and added to what was there before."""
    kinds = []

    def weighted(x: Any) -> Any:
        y = f(x, axis=axis, keepdims=keepdims)
        kinds.append(kind(y) == EXTREME)
        return np.sum(y * g)

    rest = np.linspace(1, 2, x.size).reshape(x.shape).astype(x.dtype)
    expected = by_rule(f, x, g, axis, keepdims)
    got = grad(weighted)(x)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, expected.astype(x.dtype))
    # The sweep goes from the last entry to the first, so the products come before.
    got = grad(lambda x: weighted(x) + np.sum(x * rest))(x)
    np.testing.assert_array_equal(got, (expected + rest).astype(x.dtype))
    assert kinds == [native] * 2


SHAPES: list[tuple[tuple[int, ...], Any, bool]] = [
    ((6,), 0, True), ((1,), 0, True), ((3, 5), 1, True), ((3, 5), 0, True), ((3, 5), -1, True), ((3, 5), None, True),
    ((2, 3, 4), 1, True), ((2, 3, 4), (0, 1), True), ((2, 3, 4), (1, 2), True), ((2, 3, 4), (2, 1), True),
    ((2, 3, 4), (0, 2), False), ((2, 1, 3), (0, 2), True), ((4, 1), 1, True), ((2, 1, 3), 1, True), ((2, 3), (), True),
    ((0, 3), 1, True), ((3, 0, 2), 0, True), ((3, 0), 0, True),
    ((BLOCK + 7,), 0, True), ((2, 3, BLOCK + 7), 1, True), ((3, 2 * BLOCK), 0, True), ((BLOCK + 1, 3), 1, True),
]  # fmt: skip


@pytest.mark.parametrize("f", [np.max, np.min], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=lambda d: d.__name__)
@pytest.mark.parametrize(("shape", "axis", "native"), SHAPES, ids=str)
def test_ties_share_the_adjoint_evenly(f: Extreme, dtype: Any, shape: Any, axis: Any, native: bool) -> None:
    """Small whole numbers tie often; among the other results some are NaN."""
    rng = np.random.default_rng(5)
    for keepdims in (False, True):
        x = rng.integers(0, 3, size=shape).astype(dtype)
        g = rng.normal(size=np.shape(f(x, axis=axis, keepdims=keepdims))).astype(dtype)
        check(f, x, axis, g, keepdims, native)
        if x.size:
            x.flat[rng.integers(x.size)] = np.nan
            check(f, x, axis, g, keepdims, native)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_result_that_is_nan_passes_nothing_on(axis: int) -> None:
    x = np.array([[1.0, np.nan], [3.0, 3.0]])
    expected = [[0, 0], [1, 0]] if axis == 0 else [[0, 0], [0.5, 0.5]]
    np.testing.assert_array_equal(grad(lambda x: np.sum(np.max(x, axis=axis)))(x), expected)
    np.testing.assert_array_equal(grad(np.max)(x), np.zeros((2, 2)))


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("g", [0.0, np.inf, -np.inf, np.nan])
def test_adjoints_and_values_that_are_not_finite(axis: int | None, g: float) -> None:
    """A zero adjoint passes zero on whatever the value, an infinite one reaches nothing that is not extreme."""
    for x in (
        np.array([[np.inf, 1.0, np.inf], [-np.inf, -np.inf, 2.0], [5.0, -5.0, 5.0]]),
        np.array([[np.inf, np.nan, np.inf], [-np.inf, -np.inf, -np.inf], [5.0, -5.0, 5.0]]),
    ):
        adjoint = np.full_like(np.max(x, axis=axis), g)
        with np.errstate(invalid="ignore"):
            check(np.max, x, axis, adjoint)
            check(np.min, x, axis, adjoint)
            if g == 0.0:
                got = grad(lambda x, g=adjoint: np.sum(np.max(x, axis=axis) * g))(x)
                np.testing.assert_array_equal(got, np.zeros_like(x))


@pytest.mark.parametrize("axis", [0, 1])
def test_other_layouts(axis: int) -> None:
    """What does not lie in C order, or has gaps, goes to the host."""
    rng = np.random.default_rng(6)
    whole = rng.integers(0, 3, size=(6, 8)).astype(float)
    g = rng.normal(size=(8, 6)[axis])
    check(np.min, np.asfortranarray(whole), axis, g, native=False)
    g = rng.normal(size=(3, 4)[axis])
    got = grad(lambda x: np.sum(np.max(x[::2, ::-2].T, axis=axis) * g))(whole)
    expected = np.zeros_like(whole)
    expected[::2, ::-2] = by_rule(np.max, whole[::2, ::-2].T, g, axis).T
    np.testing.assert_array_equal(got, expected)


def test_every_way_to_call() -> None:
    """The forms that are recorded by a shorter way, the first time and the next."""
    x = np.array([[1.0, 4.0, 4.0], [2.0, 0.0, -1.0]])
    row, all_ = np.array([[0, 0.5, 0.5], [1, 0, 0]]), np.array([[0, 0.5, 0.5], [0, 0, 0]])
    calls: list[tuple[Extreme, Any]] = [
        (lambda x: np.max(x, axis=1), row), (lambda x: np.amax(x, axis=-1), row), (lambda x: x.max(axis=1), row),
        (lambda x: np.max(x, 1), row), (lambda x: np.maximum.reduce(x, axis=1), row),
        (lambda x: -np.min(-x, axis=1), row), (lambda x: np.max(x, axis=1, keepdims=True), row),
        (np.max, all_), (lambda x: x.max(), all_), (lambda x: np.max(x, axis=None), all_),
        (lambda x: -np.min(-x), all_),
    ]  # fmt: skip
    for call, expected in calls:
        np.testing.assert_array_equal(grad(lambda x, f=call: np.sum(f(x)) + 2 * np.sum(f(x)))(x), 3 * expected)

    def wrong(x: Any) -> Any:
        return np.sum(np.max(x, axis=2))

    for _ in range(2):
        with pytest.raises(np.exceptions.AxisError):
            grad(wrong)(x)


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=lambda d: d.__name__)
@pytest.mark.parametrize("f", [np.sum, np.mean, np.max, np.min], ids=lambda f: f.__name__)
def test_reductions_along_an_axis_are_numpys(f: Extreme, dtype: Any) -> None:
    """Value and dtype, the first time and the next, of every layout."""
    x = np.random.default_rng(7).normal(size=(7, 5, 3)).astype(dtype)
    seen = []

    def record(x: Any) -> Any:
        for axis in (0, 1, -1, 1):
            for part in (x, x[:, ::2], x.T, x[0]):
                if axis < part.ndim:
                    seen.append((f(part, axis=axis).numpy(), f(part.numpy(), axis=axis)))
        return np.sum(x)

    grad(record)(x)
    for got, expected in seen:
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


def test_numbers() -> None:
    assert grad(np.max)(3.0) == 1.0
    assert grad(lambda x: np.max(x * 2) + np.min(np.array([1.0, 2.0]) * x))(3.0) == 3.0
    assert grad(lambda x: np.sum(np.max(x)))(np.float32(2.0)) == 1.0
