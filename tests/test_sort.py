"""Sorting, order statistics, positions and counts: values as NumPy's, gradients to the elements that were taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_functional import KNOTS, M, N, V, check

from tape import grad

WEIGHTS = np.array([0.5, 1.5, -1.0, 2.0, 0.25])
BINS = np.array([1, 0, 3, 1, 0])

CASES: dict[str, tuple[Callable[..., Any], Any]] = {
    "sort": (lambda x: np.sort(x), M),
    "sort axis": (lambda x: np.sort(x, axis=0), M),
    "sort flat": (lambda x: np.sort(x, axis=None), M),
    "sort vector": (lambda x: np.sort(x, kind="stable"), V),
    "sort method": (lambda x: _sorted_in_place(x), M),
    "argsort": (lambda x: np.take_along_axis(x**2, np.argsort(x, axis=1), 1), M),
    "argsort descending": (lambda x: (x**2)[np.argsort(-x, stable=True)], V),
    "partition": (lambda x: np.partition(x, 2, axis=1), M),
    "partition several": (lambda x: np.partition(x, (1, 3)), V),
    "partition flat": (lambda x: np.partition(x, 4, axis=None), M),
    "argpartition": (lambda x: np.take_along_axis(x**2, np.argpartition(x, 1, axis=0), 0), M),
    "lexsort": (lambda x: (x**2)[np.lexsort((x, x > 0))], V),
    "argmax": (lambda x: (x**2)[np.argmax(x)], V),
    "argmax flat": (lambda x: np.ravel(x**2)[np.argmax(x)], M),
    "argmin keepdims": (lambda x: np.take_along_axis(x**2, np.argmin(x, axis=1, keepdims=True), 1), M),
    "nanargmax": (lambda x: np.take_along_axis(x, np.nanargmax(x, axis=1)[:, None], 1), N),
    "nanargmin": (lambda x: np.ravel(x)[np.nanargmin(x)], N),
    "median": (lambda x: np.median(x), M),
    "median odd": (lambda x: np.median(x, axis=0), M),
    "median axes": (lambda x: np.median(x, axis=(0, 1), keepdims=True), M),
    "median with NaN": (lambda x: np.median(x, axis=0), N),
    "quantile": (lambda x: np.quantile(x, 0.3), M),
    "quantile several": (lambda x: np.quantile(x, [0.1, 0.6], axis=1), M),
    "quantile matrix": (lambda x: np.quantile(x, np.array([[0.0, 1.0], [0.5, 0.77]]), axis=0, keepdims=True), M),
    "quantile one": (lambda x: np.quantile(x, [0.4]), V),
    "quantile axes": (lambda x: np.quantile(x, 0.9, axis=(0, 1), keepdims=True), M),
    "quantile with NaN": (lambda x: np.quantile(x, [0.2, 0.4], axis=0), N),
    "percentile": (lambda x: np.percentile(x, [5, 30, 99], axis=1), M),
    "percentile number": (lambda x: np.percentile(x, 30), M),
    "nanmedian": (lambda x: np.nanmedian(x, axis=0), N),
    "nanmedian flat": (lambda x: np.nanmedian(x), N),
    "nanquantile": (lambda x: np.nanquantile(x, [0.2, 0.45], axis=0), N),
    "nanquantile keepdims": (lambda x: np.nanquantile(x, 0.45, axis=1, keepdims=True), N),
    "nanpercentile": (lambda x: np.nanpercentile(x, 40, axis=1), N),
    "searchsorted": (lambda x: x * np.searchsorted(np.array([-1.0, 0.0, 1.0]), x), V),
    "searchsorted in x": (lambda x: x * np.searchsorted(np.sort(x), np.array([0.1]), side="right"), V),
    "searchsorted sorter": (lambda x: x * np.searchsorted(x, 0.1, sorter=np.argsort(x)), V),
    "digitize": (lambda x: x * np.digitize(x, np.array([-1.0, 0.0, 1.0])), V),
    "isin": (lambda x: x * np.isin(np.sign(x), [1.0, 0.0]), V),
    "unique": (lambda x: np.unique(x), M),
    "unique counts": (lambda x: _weighted(np.unique(x, return_counts=True)), M),
    "unique inverse": (lambda x: _gathered(np.unique(x, return_inverse=True)), M),
    "unique_values": (lambda x: np.sort(np.unique_values(x)), V),
    "union1d": (lambda x: np.union1d(x, x**2), V),
    "intersect1d": (lambda x: np.intersect1d(x, x[:3]), V),
    "setdiff1d": (lambda x: np.setdiff1d(x, x[:3]), V),
    "setxor1d": (lambda x: np.setxor1d(x, x[:3]), V),
    "bincount": (lambda x: np.bincount(BINS, x), V),
    "bincount minlength": (lambda x: np.bincount(BINS, x**2, minlength=7), V),
    "histogram weights": (lambda x: np.histogram(KNOTS, 3, weights=x)[0], V),
    "histogram weights, edges": (lambda x: np.histogram(KNOTS, [0.0, 1.0, 4.0], weights=x)[0], V),
    "histogram range": (lambda x: np.histogram(KNOTS, 3, (0.5, 4.0), weights=x)[0], V),
    "histogram edges": (lambda x: np.histogram(x, 3)[1], M),
    "histogram counts": (lambda x: x * np.histogram(x, 3)[0][1], M),
    "histogram density": (lambda x: np.histogram(KNOTS, 3, weights=x**2, density=True)[0], V),
    "histogram2d": (lambda x: np.histogram2d(KNOTS, KNOTS, 3, weights=x)[0], V),
}


def _sorted_in_place(x: Any) -> Any:
    y = x**2
    y.sort(axis=0)
    return y


def _weighted(parts: Any) -> Any:
    values, counts = parts
    return values * counts


def _gathered(parts: Any) -> Any:
    values, inverse = parts
    return values[inverse] ** 2


@pytest.mark.parametrize("name", CASES)
def test_as_numpy(name: str) -> None:
    check(*CASES[name])


@pytest.mark.parametrize(
    "method",
    ["linear", "lower", "higher", "nearest", "midpoint", "hazen", "weibull", "median_unbiased", "normal_unbiased",
     "interpolated_inverted_cdf"],
)  # fmt: skip
def test_quantile_methods(method: str) -> None:
    q = np.array([0.0, 0.13, 0.5, 0.66, 1.0])
    check(lambda x: np.quantile(x, q, axis=1, method=method), M)
    check(lambda x: np.nanquantile(x, q[1:4], axis=0, method=method), N)


def test_quantile_is_differentiable_in_q() -> None:
    q = np.array([0.1, 0.45, 0.8])
    check(lambda q: np.quantile(V, q), q)
    check(lambda q: np.percentile(M, 100 * q, axis=0), q)


def test_unsupported_quantiles_say_what_to_use() -> None:
    for keywords in ({"method": "inverted_cdf"}, {"method": "inverted_cdf", "weights": WEIGHTS}):
        with pytest.raises(TypeError, match="not supported"):
            grad(lambda x, keywords=keywords: np.quantile(x, 0.5, **keywords))(V)
    with pytest.raises(ValueError, match="range"):
        grad(lambda x: np.quantile(x, 1.5))(V)


def test_ties() -> None:
    x = np.array([2.0, 1.0, 2.0, 1.0])
    np.testing.assert_array_equal(grad(lambda x: np.sort(x) @ np.array([1.0, 2.0, 3.0, 4.0]))(x), [3, 1, 4, 2])
    np.testing.assert_array_equal(grad(lambda x: np.max(x))(x), [0.5, 0, 0.5, 0])
    np.testing.assert_array_equal(grad(lambda x: np.median(x))(x), [0.5, 0, 0, 0.5])
    np.testing.assert_array_equal(grad(lambda x: np.sum(np.unique(x)))(x), [1, 1, 0, 0])
    np.testing.assert_array_equal(grad(lambda x: np.sum(np.partition(x, 1)[:2]))(x), [0, 1, 0, 1])


def test_positions_are_integers_of_zero_slope() -> None:
    def f(x: Any) -> Any:
        for made in (np.argmax(x), np.argsort(x), np.searchsorted(x, 0.0), np.digitize(x, [0.0]), np.bincount(x > 0)):
            assert made.dtype == np.int64
        best = np.argmax(x)
        assert x[best].shape == () and list(range(int(best)))[-1:] != [best]
        return np.sum(np.argsort(x)) * 1.0

    np.testing.assert_array_equal(grad(f)(V), np.zeros(5))


def test_results_whose_length_depends_on_values() -> None:
    """One instruction must not serve results of two lengths."""

    def f(x: Any) -> Any:
        total = 0.0
        for threshold in (-10.0, -0.3, 0.0, 0.5, 10.0):
            total = total + np.sum(x[x > threshold] ** 2) + np.sum(x[np.flatnonzero(x < threshold)])
        return total

    numeric, v = np.zeros(5), np.array(V)
    for threshold in (-10.0, -0.3, 0.0, 0.5, 10.0):
        numeric += np.where(v > threshold, 2 * v, np.where(v < threshold, 1, 0))
    np.testing.assert_allclose(grad(f)(V), numeric)


@pytest.mark.parametrize(
    "function",
    [np.sort, np.median, np.unique, lambda x: np.partition(x, 1), lambda x: np.quantile(x, 0.3),
     lambda x: np.percentile(x, 30), lambda x: np.nanquantile(x, 0.3), np.nanmedian],
)  # fmt: skip
def test_float32_stays(function: Any) -> None:
    x = V.astype(np.float32)
    seen = []

    def total(x: Any) -> Any:
        y = function(x)
        seen.append((y.dtype, y.numpy()))
        return np.sum(y)

    assert grad(total)(x).dtype == np.float32
    assert seen[0][0] == np.float32
    np.testing.assert_array_equal(seen[0][1], function(x))


def test_refused() -> None:
    with pytest.raises(TypeError, match="complex"):
        grad(lambda x: np.sum(np.sort_complex(x)))(V)
    with pytest.raises(TypeError, match="bins"):
        grad(lambda x: np.sum(np.histogram(x, "auto")[1]))(V)
    with pytest.raises(TypeError, match="safe"):
        grad(lambda x: np.sum(np.bincount(x)))(V)
