"""The conventions at corners: kinks, ties, zeros and infinities, one section for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ops
import ops.special
from tape import grad

INF, NAN = np.inf, np.nan


def gradient(f: Any, x: Any, *others: Any) -> Any:
    """Differentiate the sum of f, with NumPy's warnings off."""
    with np.errstate(all="ignore"):
        return grad(lambda x: np.sum(f(x, *others)))(np.array(x, float) if np.ndim(x) else x)


def equal(got: Any, expected: Any) -> None:
    """Hold zeros, infinities and NaN exactly, other numbers to the last bit or two."""
    np.testing.assert_allclose(got, expected, rtol=5e-16, atol=0)


# ---------------------------------------------------------------- a zero adjoint stays zero
def test_the_branch_that_was_not_taken() -> None:
    equal(gradient(lambda x: np.where(x >= 0, x, np.sqrt(-x)), [1.0, 4.0, 0.0]), [1.0, 1.0, 1.0])
    equal(gradient(lambda x: np.where(x > 0, np.log(x), 0.0), [0.0, 2.0, -1.0]), [0.0, 0.5, 0.0])
    equal(gradient(lambda x: np.where(x == 0, 1.0, np.sin(x) / x), [0.0]), [0.0])
    equal(gradient(lambda x: np.where(x > 0, x**-1.5, x), [0.0, 4.0]), [1.0, -1.5 * 4**-2.5])
    equal(gradient(lambda x: np.where(False, x / x, 1.0), [0.0]), [0.0])
    assert gradient(lambda x: np.where(x > 0, 1 / x, x), 0.0) == 1.0
    # Numbers, chosen by a product instead.
    assert gradient(lambda x: np.sqrt(x) * 0.0 + x, 0.0) == 1.0


def test_masks() -> None:
    x, y = np.array([0.0, 1.0]), np.array([0.0, 1.0])
    equal(gradient(lambda x: np.arctan2(y, x)[np.array([False, True])], x), [0.0, -0.5])
    equal(gradient(lambda x: np.sqrt(x)[x > 0], x), [0.0, 0.5])
    equal(gradient(lambda x: np.sqrt(x) * (x > 0), x), [0.0, 0.5])
    equal(gradient(lambda x: np.hypot(x, y)[1:], x), [0.0, 1 / np.sqrt(2)])

    def overwritten(x: Any) -> Any:
        z = np.log(x)
        z[0] = 0.0
        return z

    equal(gradient(overwritten, x), [0.0, 1.0])


def test_a_saturated_sigmoid() -> None:
    equal(gradient(lambda x: 1 / (1 + np.exp(-x)), [-800.0, 800.0, 0.0]), [0.0, 0.0, 0.25])
    assert gradient(lambda x: 1 / (1 + np.exp(-x)), -800.0) == 0.0
    equal(gradient(lambda x: np.log(1 + np.exp(x)), [-800.0]), [0.0])
    equal(gradient(lambda x: np.tanh(x), [-800.0, INF]), [0.0, 0.0])


@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_a_zero_adjoint_meets_everything(bad: float) -> None:
    c = np.array([bad, 1.0])
    keep = np.array([0.0, 1.0])
    equal(gradient(lambda x: np.where(keep > 0, x * c, 0.0), [2.0, 3.0]), [0.0, 1.0])
    equal(gradient(lambda x: (x * c) @ np.array([[0.0], [0.0]]), [2.0, 3.0]), [0.0, 0.0])
    equal(gradient(lambda x: np.prod(x * c) * 0.0, [2.0, 3.0]), [0.0, 0.0])
    equal(gradient(lambda x: np.where(keep > 0, np.sum(x * c), 0.0) * 0.0, [2.0, 3.0]), [0.0, 0.0])


# ---------------------------------------------------------------- ties and kinks
def test_maximum_and_minimum_at_a_tie() -> None:
    for f in (np.maximum, np.minimum, np.fmax, np.fmin):
        equal(gradient(lambda x, f=f: f(x, np.array([1.0, 1.0])), [1.0, 1.0]), [0.5, 0.5])
        equal(gradient(lambda x, f=f: f(np.array([1.0]), x), [1.0]), [0.5])
        assert gradient(lambda x, f=f: f(x, x), 2.0) == 1.0
        assert gradient(lambda x, f=f: f(x, 1.0), 1.0) == 0.5
    equal(gradient(lambda x: np.maximum(x, 1.0), [0.0, 1.0, 2.0]), [0.0, 0.5, 1.0])
    # Smooth because of it.
    assert gradient(lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0.0), 0.0) == 0.5


def test_max_and_min_of_ties() -> None:
    for f, x in ((np.max, [3.0, 1.0, 3.0, 3.0]), (np.min, [-3.0, 1.0, -3.0, -3.0])):
        np.testing.assert_allclose(gradient(f, x), np.array([1, 0, 1, 1]) / 3, rtol=1e-15)
    equal(gradient(lambda x: np.max(x, axis=1), [[1.0, 1.0], [0.0, 2.0]]), [[0.5, 0.5], [0.0, 1.0]])
    equal(gradient(lambda x: np.max(x, axis=0, keepdims=True), [[1.0, 2.0], [1.0, 3.0]]), [[0.5, 0.0], [0.5, 1.0]])
    equal(gradient(lambda x: np.max(x), np.full((2, 2), 7.0)), np.full((2, 2), 0.25))


def test_clip_at_its_bounds() -> None:
    x = [-1.0, 0.0, 0.5, 1.0, 2.0]
    equal(gradient(lambda x: np.clip(x, 0.0, 1.0), x), [0.0, 0.5, 1.0, 0.5, 0.0])
    equal(gradient(lambda x: x.clip(0.0, 1.0), x), [0.0, 0.5, 1.0, 0.5, 0.0])
    assert gradient(lambda low: np.clip(np.array(x), low, 1.0), 0.0) == 1.5
    assert gradient(lambda high: np.clip(np.array(x), 0.0, high), 1.0) == 1.5
    # As minimum(maximum(x, low), high) where the bounds cross.
    assert gradient(lambda x: np.clip(x, 2.0, 1.0), 5.0) == 0.0
    assert gradient(lambda high: np.clip(5.0, 2.0, high), 1.0) == 1.0
    equal(gradient(lambda x: np.clip(x, None, 1.0), [0.0, 1.0, 2.0]), [1.0, 0.5, 0.0])


def test_abs_at_zero() -> None:
    for f in (np.abs, np.fabs, abs):
        equal(gradient(f, [-2.0, 0.0, -0.0, 2.0]), [-1.0, 0.0, 0.0, 1.0])
        assert gradient(f, 0.0) == 0.0


def test_relu_at_zero() -> None:
    equal(gradient(ops.relu, [-1.0, 0.0, 2.0]), [0.0, 0.0, 1.0])


# ---------------------------------------------------------------- norms at zero
def test_norm_at_zero() -> None:
    equal(gradient(np.linalg.norm, [0.0, 0.0]), [0.0, 0.0])
    equal(gradient(lambda x: np.linalg.norm(x) ** 2, [0.0, 0.0]), [0.0, 0.0])
    equal(gradient(lambda x: np.linalg.norm(x, axis=1), [[0.0, 0.0], [3.0, 4.0]]), [[0.0, 0.0], [0.6, 0.8]])
    equal(gradient(lambda x: np.linalg.norm(x, ord=1), [0.0, -2.0]), [0.0, -1.0])


def test_std_at_zero() -> None:
    equal(gradient(np.std, [1.0, 1.0, 1.0]), [0.0, 0.0, 0.0])
    equal(gradient(lambda x: np.std(x) ** 2, [1.0, 1.0, 1.0]), [0.0, 0.0, 0.0])
    equal(
        gradient(lambda x: np.std(x, axis=0, ddof=1), [[1.0, 0.0], [1.0, 2.0]]),
        [[0.0, -np.sqrt(0.5)], [0.0, np.sqrt(0.5)]],
    )


def test_sqrt_at_zero_is_infinite() -> None:
    assert gradient(np.sqrt, 0.0) == INF
    equal(gradient(np.sqrt, [0.0, 4.0]), [INF, 0.25])


# ---------------------------------------------------------------- powers and products
def test_power_at_zero() -> None:
    equal(gradient(lambda x: x**0, [0.0, 2.0, -1.0]), [0.0, 0.0, 0.0])
    equal(gradient(lambda x: x**0.0, [0.0, INF, NAN]), [0.0, 0.0, 0.0])
    equal(gradient(lambda x: x**1, [0.0, 5.0]), [1.0, 1.0])
    equal(gradient(lambda x: x**2, [0.0, 5.0]), [0.0, 10.0])
    equal(gradient(lambda x: x**3, [0.0, -2.0]), [0.0, 12.0])
    equal(gradient(lambda x: x**1.5, [0.0]), [0.0])
    equal(gradient(lambda x: x ** np.array([0.0, 1.0, 2.0, 3.0]), 0.0), 1.0)
    for k in range(5):
        assert gradient(lambda x, k=k: x**k, 0.0) == (1.0 if k == 1 else 0.0)
        assert gradient(lambda x, k=k: x ** float(k), 0.0) == (1.0 if k == 1 else 0.0)
        equal(gradient(lambda x, k=k: np.power(x, k), [0.0]), [1.0 if k == 1 else 0.0])
    # By the exponent.
    equal(gradient(lambda y: 0.0**y, [2.0, 1.5]), [0.0, 0.0])
    equal(gradient(lambda y: np.array([0.0, 2.0]) ** y, [1.0, 1.0]), [0.0, 2 * np.log(2.0)])


def test_a_negative_base() -> None:
    equal(gradient(lambda x: x ** np.array([2.0, 3.0]), [-2.0, -2.0]), [-4.0, 12.0])
    with np.errstate(all="ignore"):
        gx, gy = grad(lambda x, y: np.sum(x**y), (0, 1))(np.array([-2.0, 2.0]), np.array([2.0, 2.0]))
    equal(gx, [-4.0, 4.0])
    assert gy[1] == 4 * np.log(2.0)


def test_products_with_zeros() -> None:
    equal(gradient(np.prod, [2.0, 0.0, 3.0, 4.0]), [0.0, 24.0, 0.0, 0.0])
    equal(gradient(np.prod, [2.0, 0.0, 0.0]), [0.0, 0.0, 0.0])
    equal(gradient(np.prod, [0.0]), [1.0])
    equal(gradient(lambda x: np.prod(x, axis=1), [[0.0, 5.0], [2.0, 3.0]]), [[5.0, 0.0], [3.0, 2.0]])
    equal(gradient(np.cumprod, [2.0, 3.0, 0.0]), [4.0, 2.0, 6.0])
    equal(gradient(np.cumprod, [0.0, 3.0, 5.0]), [1 + 3 + 15, 0.0, 0.0])
    equal(gradient(np.cumprod, [2.0, 0.0, 5.0]), [1.0, 2 + 10, 0.0])


# ---------------------------------------------------------------- special points of smooth functions
def test_sinc_at_and_near_zero() -> None:
    equal(gradient(np.sinc, [0.0]), [0.0])
    assert gradient(np.sinc, 0.0) == 0.0
    for x in (1e-300, 1e-10, 1e-5, -1e-4, 1e-3):
        # -pi**2 x / 3 + pi**4 x**3 / 30 - ...
        series = -(np.pi**2) * x / 3 + np.pi**4 * x**3 / 30
        np.testing.assert_allclose(gradient(np.sinc, x), series, rtol=1e-9)


def test_log_of_sums_with_minus_infinity() -> None:
    for f in (np.logaddexp, np.logaddexp2):
        equal(gradient(lambda x, f=f: f(x, -INF), [0.0, 3.0]), [1.0, 1.0])
        equal(gradient(lambda x, f=f: f(x, np.array([1.0])), [-INF]), [0.0])
        equal(gradient(lambda x, f=f: f(x, -INF), [-INF]), [0.0])
    equal(gradient(np.logaddexp, [0.0], 0.0), [0.5])
    equal(gradient(lambda t: np.logaddexp(np.logaddexp(t - INF, -INF), 2 * t), 1.0), 2.0)


def test_logsumexp_with_minus_infinity() -> None:
    equal(gradient(ops.special.logsumexp, [0.0, -INF, 0.0]), [0.5, 0.0, 0.5])
    equal(gradient(ops.special.logsumexp, [-INF, -INF]), [0.0, 0.0])


def test_logsumexp_by_hand_with_tied_maxima() -> None:
    x = np.array([1.0, 1.0, 0.0])
    got = gradient(lambda x: np.max(x) + np.log(np.sum(np.exp(x - np.max(x)))), x)
    np.testing.assert_allclose(got, np.exp(x) / np.sum(np.exp(x)), rtol=1e-15)


# ---------------------------------------------------------------- piecewise constant
@pytest.mark.parametrize(
    "f", [np.floor, np.ceil, np.rint, np.trunc, np.sign, np.round, np.fix, lambda x: np.heaviside(x, 0.5)]
)
def test_piecewise_constant_functions(f: Any) -> None:
    equal(gradient(f, [-1.5, 0.0, 1.0, 2.7]), np.zeros(4))
    assert gradient(f, 0.5) == 0.0


def test_comparisons_and_positions() -> None:
    x = [3.0, 1.0, 2.0]
    equal(gradient(lambda x: (x > 1.5) * 2.0, x), np.zeros(3))
    equal(gradient(lambda x: (x > 1.5) * x, x), [1.0, 0.0, 1.0])
    equal(gradient(lambda x: np.argmax(x) * 1.0 + np.argmin(x) * x[0], x), [1.0, 0.0, 0.0])
    equal(gradient(lambda x: x[np.argsort(x)] * np.array([1.0, 10.0, 100.0]), x), [100.0, 1.0, 10.0])
    equal(gradient(lambda x: np.sort(x) * np.array([1.0, 10.0, 100.0]), x), [100.0, 1.0, 10.0])
    # On the tape: of recorded kind, though without a slope.
    seen: list[Any] = []
    grad(lambda x: (seen.extend((np.floor(x), x > 1, np.argmax(x), np.argsort(x))), np.sum(x))[1])(np.array(x))
    assert [type(s).__name__ for s in seen] == ["Tensor"] * 4


# ---------------------------------------------------------------- eigenvalues that repeat
def test_eigh_with_repeated_values() -> None:
    a = 2 * np.eye(3)
    try:
        got = gradient(lambda a: np.linalg.eigh(a)[0] ** 2, a)
    except TypeError:
        pytest.skip("eigh is not there yet")
    np.testing.assert_allclose(got, 4 * np.eye(3), atol=1e-14)
    assert np.all(np.isfinite(gradient(lambda a: np.linalg.eigh(a)[1] * np.arange(9.0).reshape(3, 3), a)))


def test_svd_with_repeated_values() -> None:
    a = np.eye(3)
    try:
        got = gradient(lambda a: np.linalg.svd(a, compute_uv=False) ** 2, a)
    except TypeError:
        pytest.skip("svd is not there yet")
    np.testing.assert_allclose(got, 2 * np.eye(3), atol=1e-14)
