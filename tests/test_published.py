"""Gradients that others have published, or that closed forms give, as fixed expectations."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.special

from tape import grad, value_and_grad


# ---------------------------------------------------------------- scipy's own gradient of the Rosenbrock function
def rosenbrock(x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2.0) ** 2.0 + (1 - x[:-1]) ** 2.0)


@pytest.mark.parametrize("n", [2, 3, 100, 100_000])
def test_rosen_der_of_scipy(n: int) -> None:
    for x in (np.random.default_rng(n).uniform(-2, 2, n), np.ones(n), np.zeros(n), np.full(n, -1.2)):
        value, g = value_and_grad(rosenbrock)(x)
        assert value == scipy.optimize.rosen(x)
        np.testing.assert_allclose(g, scipy.optimize.rosen_der(x), rtol=1e-12, atol=1e-12)


def test_the_chained_rosenbrock_gradient_element_by_element() -> None:
    def f(x: Any) -> Any:
        total = 0.0
        for a, b in itertools.pairwise(x):
            total = total + 100.0 * (b - a * a) ** 2 + (1 - a) ** 2
        return total

    x = np.linspace(-1.5, 1.5, 40)
    np.testing.assert_allclose(grad(f)(x), scipy.optimize.rosen_der(x), rtol=1e-11, atol=1e-11)


# ---------------------------------------------------------------- NIST Statistical Reference Datasets
# https://www.itl.nist.gov/div898/strd/nls/nls_main.shtml (nonlinear regression; works of the United States government):
# observations, certified parameters and residual sums of squares. At the certified parameters the gradient vanishes.
MISRA1A_Y = [10.07, 14.73, 17.94, 23.93, 29.61, 35.18, 40.02, 44.82, 50.76, 55.05, 61.01, 66.40, 75.47, 81.78]
MISRA1A_X = [77.6, 114.9, 141.1, 190.8, 239.9, 289.0, 332.8, 378.4, 434.8, 477.3, 536.8, 593.1, 689.1, 760.0]
CERTIFIED = {
    # name: (model, starting values, certified parameters, certified residual sum of squares)
    "Misra1a": (lambda b, x: b[0] * (1 - np.exp(-b[1] * x)), (500.0, 1e-4), (2.3894212918e2, 5.5015643181e-4),
                1.2455138894e-1),
    "Misra1b": (
        lambda b, x: b[0] * (1 - (1 + b[1] * x / 2) ** (-2)), (500.0, 1e-4), (3.3799746163e2, 3.9039091287e-4),
        7.5464681533e-2,
    ),
    "Misra1c": (
        lambda b, x: b[0] * (1 - (1 + 2 * b[1] * x) ** (-0.5)), (500.0, 1e-4), (6.3642725809e2, 2.0813627256e-4),
        4.0966836971e-2,
    ),
    "Misra1d": (
        lambda b, x: b[0] * b[1] * x * ((1 + b[1] * x) ** (-1)), (500.0, 1e-4), (4.3736970754e2, 3.0227324449e-4),
        5.6419295283e-2,
    ),
}  # fmt: skip


def misra(model: Any) -> Any:
    x, y = np.array(MISRA1A_X), np.array(MISRA1A_Y)
    return lambda b: np.sum((y - model(b, x)) ** 2)


@pytest.mark.parametrize("name", CERTIFIED)
def test_certified_regressions_of_nist(name: str) -> None:
    model, start, certified, rss = CERTIFIED[name]
    f = value_and_grad(misra(model))
    b = np.array(certified)
    value, g = f(b)
    assert value == pytest.approx(rss, rel=1e-9)
    # The parameters are given to 11 digits; at the start the gradient times the parameters is of the order of 1e4.
    assert np.all(np.abs(g * b) < 1e-5)
    assert np.max(np.abs(f(np.array(start))[1] * start)) > 1e3
    # And a fit with a Jacobian made of gradients ends there, from NIST's first start.
    x, y = np.array(MISRA1A_X), np.array(MISRA1A_Y)
    fit = scipy.optimize.least_squares(
        lambda b: y - model(b, x), start, jac=lambda b: np.array([grad(lambda b, v=v: -model(b, v))(b) for v in x]),
        x_scale="jac", method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15,
    )  # fmt: skip
    np.testing.assert_allclose(fit.x, certified, rtol=1e-8)


# ---------------------------------------------------------------- option prices
def black_scholes(spot: Any, strike: Any, rate: Any, volatility: Any, maturity: Any) -> Any:
    """Price a European call without dividends."""
    root = volatility * np.sqrt(maturity)
    d1 = (np.log(spot / strike) + (rate + volatility**2 / 2) * maturity) / root
    return spot * scipy.special.ndtr(d1) - strike * np.exp(-rate * maturity) * scipy.special.ndtr(d1 - root)


def test_greeks_of_a_textbook() -> None:
    """Hull, Options, Futures, and Other Derivatives, on the Greek letters: S 49, K 50, r 5 %, sigma 20 %, 20 weeks.

    Delta 0.522, theta -4.31 a year, vega 12.1, rho 8.91; gamma 0.066 waits for second derivatives.
    """
    price, (delta, _, rho, vega, by_maturity) = value_and_grad(black_scholes, (0, 1, 2, 3, 4))(
        49.0, 50.0, 0.05, 0.2, 0.3846
    )
    assert price == pytest.approx(2.40, abs=5e-3)
    assert delta == pytest.approx(0.522, abs=5e-4)
    assert -by_maturity == pytest.approx(-4.31, abs=5e-3)
    assert vega == pytest.approx(12.1, abs=5e-2)
    assert rho == pytest.approx(8.91, abs=5e-3)


def test_greeks_in_closed_form() -> None:
    s, k = np.array([80.0, 100.0, 120.0]), 100.0
    r, v, t = 0.03, 0.25, 1.5
    d1 = (np.log(s / k) + (r + v * v / 2) * t) / (v * np.sqrt(t))
    g = grad(lambda *a: np.sum(black_scholes(*a)), (0, 3))(s, k, r, v, t)
    np.testing.assert_allclose(g[0], scipy.special.ndtr(d1), rtol=1e-12)
    assert g[1] == pytest.approx(np.sum(s * np.exp(-d1 * d1 / 2) / np.sqrt(2 * np.pi) * np.sqrt(t)), rel=1e-12)


# ---------------------------------------------------------------- Griewank and Walther
def test_the_first_example_of_griewank_and_walther() -> None:
    """Evaluating Derivatives, 2nd edition, section 1.3: the trace at x1 = 1.5, x2 = 0.5.

    There y = 2.0167 and dy/dx1 = 3.0118.
    """

    def f(x1: Any, x2: Any) -> Any:
        return (np.sin(x1 / x2) + x1 / x2 - np.exp(x2)) * (x1 / x2 - np.exp(x2))

    y, (by_x1, by_x2) = value_and_grad(f, (0, 1))(1.5, 0.5)
    assert y == pytest.approx(2.0167, abs=5e-4)
    assert by_x1 == pytest.approx(3.0118, abs=5e-4)
    assert by_x2 == pytest.approx(-13.7239, abs=5e-3)


def test_speelpennings_product() -> None:
    """The same book: the gradient of x1 x2 ... xn, each element the product of the others."""
    x = np.array([k / (k + 1) for k in range(1, 11)])
    for f in (np.prod, lambda x: np.cumprod(x)[-1], lambda x: x[0] if len(x) == 1 else x[0] * np.prod(x[1:])):
        value, g = value_and_grad(f)(x)
        assert value == pytest.approx(1 / 11, rel=1e-14)
        np.testing.assert_allclose(g, (1 / 11) / x, rtol=1e-14)


# ---------------------------------------------------------------- ADBench
# https://github.com/microsoft/ADBench (MIT licence): data/gmm/test.txt and the expected gradient of the Gaussian
# mixture objective, with the sign of its code (log likelihood minus the log density of the prior).
ALPHAS = np.array([-0.649014, 1.181166, -0.758453])
MEANS = np.array([[0.092339, 0.186260], [0.345561, 0.396767], [0.538817, 0.419195]])
FACTORS = np.array(
    [[0.586443, -0.851887, 0.800321], [-1.509405, 0.875874, -0.242790], [0.166813, -1.965419, -1.270071]]
)
POINT = np.array([[1.175171, 2.029160]])
OBJECTIVE = 8.073804080049758
GRADIENT = [
    0.10866285550865246, -0.7412700395238985, 0.6326071840152461, 1.1169257653278701, 0.16333301355145527,
    -0.021998982407119314, 0.2277782922542361, 1.2096302561283219, -0.060637592073395634, 2.5852999405116224,
    0.11263269452421379, 0.3857443098496118, 0.07351805731823055, 5.418363627155952, -0.32149440967744647,
    1.7189230977500494, 0.8600910907908669, -0.9946409304663228,
]  # fmt: skip


def mixture(alphas: Any, means: Any, factors: Any, x: Any, gamma: float, m: int) -> Any:
    """Give the objective: `factors` holds log diagonals and the strict lower triangles, column by column."""
    n, d = x.shape
    k = len(alphas)
    logs, lower = factors[:, :d], factors[:, d:]
    diagonal = np.exp(logs)
    terms = []
    for j in range(k):
        matrix = np.zeros_like(factors, shape=(d, d))
        at = 0
        for column in range(d):
            matrix[column, column] = diagonal[j, column]
            for row in range(column + 1, d):
                matrix[row, column] = lower[j, at]
                at += 1
        z = (x - means[j]) @ matrix.T
        terms.append(alphas[j] + np.sum(logs[j]) - 0.5 * np.sum(z**2, axis=1))
    total = np.sum(np.logaddexp(np.logaddexp(terms[0], terms[1]), terms[2]))
    peak = np.max(alphas)
    likelihood = -n * d / 2 * np.log(2 * np.pi) + total - n * (peak + np.log(np.sum(np.exp(alphas - peak))))
    p = d + m + 1
    constant = p * d * (np.log(gamma) - 0.5 * np.log(2)) - scipy.special.multigammaln(p / 2, d)
    return likelihood - (k * constant - 0.5 * gamma**2 * (np.sum(diagonal**2) + np.sum(lower**2)) + m * np.sum(logs))


def test_the_gaussian_mixture_of_adbench() -> None:
    value, gradients = value_and_grad(mixture, (0, 1, 2))(ALPHAS, MEANS, FACTORS, POINT, 1.0, 0)
    assert value == pytest.approx(OBJECTIVE, rel=1e-12)
    np.testing.assert_allclose(np.concatenate([g.ravel() for g in gradients]), GRADIENT, rtol=1e-11)
