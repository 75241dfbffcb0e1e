"""Derivatives dropped into scipy.optimize as they are, and Hessians in closed form."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from scipy.optimize import LinearConstraint, NonlinearConstraint, curve_fit, least_squares, minimize, root
from scipy.special import expit, softmax

from ops.special import logsumexp
from tape import (
    InputError,
    gauss_newton_product,
    grad,
    hessian,
    hvp,
    jacobian,
    jvp,
    sparse_hessian,
    sparse_jacobian,
    value_and_grad,
    vhp,
    vjp,
)

START = [1.3, 0.7, 0.8, 1.9]
GRADIENT = ["CG", "BFGS", "L-BFGS-B", "TNC", "SLSQP", "trust-constr"]
SECOND = ["Newton-CG", "dogleg", "trust-ncg", "trust-krylov", "trust-exact", "trust-constr"]
PRODUCT = ["Newton-CG", "trust-ncg", "trust-krylov", "trust-constr"]


def rosen(x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2.0) ** 2.0 + (1 - x[:-1]) ** 2.0)


def shifted(x: Any, shift: Any, *, scale: float = 1.0) -> Any:
    """A function with further arguments, at its least where x is the shift."""
    return scale * (np.sum(np.cosh(0.5 * (x - shift))) + np.sum((x[1:] - x[:-1] - shift[1:] + shift[:-1]) ** 4))


def solved(found: Any, expected: Any = 1.0, tolerance: float = 1e-4) -> None:
    assert found.success, found.message
    np.testing.assert_allclose(found.x, np.broadcast_to(expected, found.x.shape), atol=tolerance)
    assert type(found.x) is np.ndarray


# ---------------------------------------------------------------- minimize
@pytest.mark.parametrize(
    "start", [START, np.array(START), (1, 1, 2, 2), [0.5, 2, 1, 1]], ids=["list", "array", "ints", "mixed"]
)
@pytest.mark.parametrize("method", GRADIENT)
def test_value_and_gradient(method: str, start: Any) -> None:
    """Starts of whole numbers too: scipy makes them floating-point ones."""
    options = {"TNC": {"maxfun": 2000}, "SLSQP": {"ftol": 1e-12, "maxiter": 500}}.get(method, {"maxiter": 2000})
    solved(minimize(value_and_grad(rosen), start, jac=True, method=method, options=options), tolerance=5e-3)
    solved(minimize(rosen, start, jac=grad(rosen), method=method, options=options), tolerance=5e-3)


@pytest.mark.parametrize("method", SECOND)
def test_hessian(method: str) -> None:
    if method == "dogleg":  # for convex functions only
        f = lambda x: np.sum(np.cosh(x - 1.0)) + np.sum((x[1:] - x[:-1]) ** 2)
        solved(minimize(value_and_grad(f), START, jac=True, hess=hessian(f), method=method))
        return
    solved(minimize(value_and_grad(rosen), START, jac=True, hess=hessian(rosen), method=method))
    if method in ("Newton-CG", "trust-constr"):  # these take sparse ones
        solved(minimize(rosen, START, jac=grad(rosen), hess=sparse_hessian(rosen), method=method))


@pytest.mark.parametrize("product", [hvp, vhp])
@pytest.mark.parametrize("method", PRODUCT)
def test_products_with_the_hessian(method: str, product: Any) -> None:
    solved(minimize(rosen, START, jac=grad(rosen), hessp=functools.partial(product, rosen), method=method))


@pytest.mark.parametrize("method", ["BFGS", *SECOND[:1], *SECOND[2:]])
def test_further_arguments(method: str) -> None:
    shift = np.array([3.0, 1.0, -1.0, 2.0])
    second = {} if method == "BFGS" else {"hess": hessian(shifted)}
    solved(minimize(value_and_grad(shifted), START, args=(shift,), jac=True, method=method, **second), shift, 1e-3)
    if method in PRODUCT:
        hessp = functools.partial(hvp, shifted)
        solved(minimize(shifted, START, args=(shift,), jac=grad(shifted), hessp=hessp, method=method), shift, 1e-3)
    bound = functools.partial(shifted, shift=shift, scale=0.5)
    solved(minimize(value_and_grad(bound), START, jac=True, method="BFGS"), shift, 1e-3)


def test_a_number_as_start() -> None:
    """scipy makes an array of one element of it."""
    f = lambda x: np.sum((x - 3.0) ** 4 + x**2)
    for start in (1.0, 1, np.float64(1.0), [1], np.array(1.0)):
        found = minimize(value_and_grad(f), start, jac=True, hess=hessian(f), method="trust-exact")
        assert found.x.shape == (1,)
        assert grad(f)(float(found.x[0])) == pytest.approx(0.0, abs=1e-4)
    slope = grad(lambda x: np.exp(x) - 2.0 * x)
    assert scipy.optimize.brentq(slope, 0.0, 1.0) == pytest.approx(np.log(2.0))
    found = scipy.optimize.root_scalar(slope, x0=0.0, fprime=grad(slope), fprime2=grad(grad(slope)), method="halley")
    assert found.root == pytest.approx(np.log(2.0))
    assert scipy.optimize.newton(slope, 0.0, fprime=grad(slope)) == pytest.approx(np.log(2.0))


def test_bounds_and_other_minimisers() -> None:
    pair = value_and_grad(rosen)
    found = minimize(pair, [0.5] * 4, jac=True, method="L-BFGS-B", bounds=[(0.0, 0.8)] * 4)
    assert found.success
    assert found.x.max() <= 0.8
    solved(
        scipy.optimize.basinhopping(
            pair, START, niter=2, minimizer_kwargs={"jac": True}, rng=1
        ).lowest_optimization_result
    )
    x, _, _ = scipy.optimize.fmin_l_bfgs_b(pair, np.array(START))
    np.testing.assert_allclose(x, 1.0, atol=1e-3)
    x = scipy.optimize.fmin_ncg(rosen, START, grad(rosen), fhess=hessian(rosen), disp=0)
    np.testing.assert_allclose(x, 1.0, atol=1e-4)
    assert scipy.optimize.check_grad(rosen, grad(rosen), START) < 1e-4
    slope = scipy.optimize.approx_fprime(START, rosen)
    np.testing.assert_allclose(grad(rosen)(START), slope, rtol=1e-5)


# ---------------------------------------------------------------- constraints
def circle(x: Any) -> Any:
    """On a circle, and below a parabola."""
    return np.stack([x[0] ** 2 + x[1] ** 2, x[1] - x[0] ** 2])


def weighted(function: Any) -> Any:
    """Give the Hessian of the results times multipliers, as NonlinearConstraint takes it."""
    return hessian(lambda x, v: np.sum(v * function(x)))


def test_nonlinear_constraints() -> None:
    f = lambda x: (x[0] - 2.0) ** 2 + 3.0 * (x[1] + 1.0) ** 2
    plain = [{"type": "eq", "fun": lambda x: circle(x)[0] - 1}, {"type": "ineq", "fun": lambda x: -circle(x)[1]}]
    expected = minimize(f, [0.5, 0.5], method="SLSQP", options={"ftol": 1e-14}, constraints=plain)
    for hess in (weighted(circle), scipy.optimize.BFGS()):
        for jac in (jacobian(circle), sparse_jacobian(circle)):
            constraint = NonlinearConstraint(circle, [1.0, -np.inf], [1.0, 0.0], jac=jac, hess=hess)
            found = minimize(
                value_and_grad(f), [0.5, 0.5], jac=True, hess=hessian(f), constraints=constraint, method="trust-constr"
            )
            np.testing.assert_allclose(found.x, expected.x, atol=1e-3)
            assert found.constr_violation < 1e-8
    dictionaries = [
        {"type": "eq", "fun": lambda x: circle(x)[0] - 1.0, "jac": grad(lambda x: circle(x)[0] - 1.0)},
        {"type": "ineq", "fun": lambda x: -circle(x)[1:], "jac": jacobian(lambda x: -circle(x)[1:])},
    ]
    found = minimize(value_and_grad(f), [0.5, 0.5], jac=True, constraints=dictionaries, method="SLSQP")
    solved(found, expected.x)
    linear = LinearConstraint([[1.0, 1.0]], -np.inf, 0.5)
    found = minimize(value_and_grad(f), [0, 0], jac=True, hess=hessian(f), constraints=linear, method="trust-constr")
    solved(found, [1.625, -1.125], 1e-3)


def test_hessian_of_constraints_is_their_weighted_sum() -> None:
    x, v = np.array([0.3, 0.4]), np.array([2.0, -1.0])
    np.testing.assert_allclose(weighted(circle)(x, v), 2 * np.eye(2) * v[0] + np.diag([-2.0, 0.0]) * v[1])
    # By the pullback too: the Jacobian of the gradient of v . c.
    np.testing.assert_allclose(jacobian(lambda x: vjp(circle, x)[1](v)[0])(x), weighted(circle)(x, v))
    np.testing.assert_allclose(jvp(lambda x: vjp(circle, x)[1](v)[0], (x,), (x,))[1], weighted(circle)(x, v) @ x)


# ---------------------------------------------------------------- equations and fits
T = np.linspace(0.0, 2.0, 30)


def decay(t: Any, amplitude: Any, rate: Any, offset: Any) -> Any:
    return amplitude * np.exp(-rate * t) + offset


DATA = decay(T, 2.0, 1.5, 0.3) + 0.01 * np.cos(20 * T)


@pytest.mark.parametrize("method", ["trf", "dogbox", "lm"])
@pytest.mark.parametrize("start", [[1.0, 1.0, 0.0], [1, 1, 0]], ids=["floats", "ints"])
def test_least_squares(method: str, start: Any) -> None:
    def residuals(p: Any) -> Any:
        return decay(T, *p) - DATA

    found = least_squares(residuals, start, jac=jacobian(residuals), method=method, xtol=1e-12, gtol=1e-12)
    solved(found, least_squares(residuals, start, jac="3-point", xtol=1e-12, gtol=1e-12).x)
    np.testing.assert_allclose(found.jac, jacobian(residuals)(found.x))
    with_arguments = least_squares(
        lambda p, t: decay(t, *p) - DATA,
        start,
        jac=jacobian(lambda p, t: decay(t, *p) - DATA),
        args=(T,),
        method=method,
    )
    solved(with_arguments, found.x)
    if method != "lm":
        sparse = least_squares(residuals, start, jac=sparse_jacobian(residuals), method=method)
        solved(sparse, found.x)
        bounded = least_squares(
            residuals, start, jac=jacobian(residuals), method=method, bounds=([0, 0, -1], [9, 1.2, 9]), loss="soft_l1"
        )
        assert bounded.x[1] == pytest.approx(1.2, rel=1e-3)
    j = jacobian(residuals)(found.x)
    np.testing.assert_allclose(gauss_newton_product(residuals, found.x, np.ones(3)), j.T @ j @ np.ones(3), rtol=1e-12)


def test_curve_fit() -> None:
    jac = jacobian(lambda p, t: decay(t, *p))
    found, covariance = curve_fit(decay, T, DATA, p0=[1, 1, 0], jac=lambda t, *p: jac(np.array(p, float), t))
    expected, expected_covariance = curve_fit(decay, T, DATA, p0=[1, 1, 0])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(covariance, expected_covariance, rtol=1e-4)
    # Of Python floats: one Jacobian for each parameter, stacked.
    columns = jacobian(decay, (1, 2, 3))
    found, _ = curve_fit(decay, T, DATA, p0=[1, 1, 0], jac=lambda t, *p: np.stack(columns(t, *map(float, p)), axis=-1))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    # The covariance is the inverse of the Hessian of the squares, up to second derivatives times residuals.
    residuals = lambda p: decay(T, *p) - DATA
    h = hessian(lambda p: 0.5 * np.sum(residuals(p) ** 2))(found)
    np.testing.assert_allclose(np.linalg.inv(h) * np.sum(residuals(found) ** 2) / 27, covariance, rtol=0.05)


@pytest.mark.parametrize("method", ["hybr", "lm"])
def test_roots(method: str) -> None:
    def equations(x: Any, a: float = 1.0) -> Any:
        return np.stack([x[0] + 0.5 * (x[0] - x[1]) ** 3 - a, 0.5 * (x[1] - x[0]) ** 3 + x[1]])

    for start in ([0.0, 0.0], [0, 0.5], (1.0, 2.0)):
        found = root(equations, start, jac=jacobian(equations), method=method)
        solved(found, [0.8411639, 0.1588361])
        found = root(equations, start, args=(0.0,), jac=jacobian(equations), method=method)
        solved(found, 0.0)
    # Unlike the minimisers, scipy hands whole numbers on as they are.
    with pytest.raises(InputError, match=r"argument 0 is an array of int64.* `x.astype\(float\)`"):
        root(equations, [0, 0], jac=jacobian(equations), method=method)
    both = lambda x: (equations(x), jacobian(equations)(x))
    solved(root(both, [0.0, 0.0], jac=True, method=method), [0.8411639, 0.1588361])


# ---------------------------------------------------------------- known derivatives
@pytest.mark.parametrize("n", [2, 5, 40])
def test_rosenbrock_as_scipy_has_it(n: int) -> None:
    rng = np.random.default_rng(n)
    f = scipy.optimize.rosen
    for _ in range(5):
        x, v = rng.normal(size=n) * 2, rng.normal(size=n)
        value, g = value_and_grad(rosen)(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-12)
        np.testing.assert_allclose(g, scipy.optimize.rosen_der(x), rtol=1e-12)
        expected = scipy.optimize.rosen_hess(x)
        for found in (hessian(rosen)(x), jacobian(grad(rosen))(x), sparse_hessian(rosen)(x).toarray()):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
            assert np.all(found[expected == 0] == 0)
        product = scipy.optimize.rosen_hess_prod(x, v)
        size = np.abs(expected) @ np.abs(v)
        for found in (hvp(rosen, x, v), vhp(rosen, x, v), jvp(grad(rosen), (x,), (v,))[1]):
            assert np.all(np.abs(found - product) <= 1e-12 * size)


def test_hessian_of_log_sum_exp() -> None:
    x = np.array([0.5, -1.0, 2.0, 700.0, 699.0])
    p = softmax(x)
    expected = np.diag(p) - np.outer(p, p)
    by_hand = lambda x: np.max(x) + np.log(np.sum(np.exp(x - np.max(x))))
    for f in (logsumexp, by_hand, lambda x: functools.reduce(np.logaddexp, x)):
        np.testing.assert_allclose(grad(f)(x), p, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(hessian(f)(x), expected, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(hvp(f, x, x), expected @ x, rtol=1e-10, atol=1e-10)


def test_hessian_of_logistic_regression() -> None:
    rng = np.random.default_rng(0)
    a, y = rng.normal(size=(50, 4)), rng.integers(0, 2, 50)

    def loss(w: Any) -> Any:
        z = a @ w
        return np.sum(np.logaddexp(0.0, z) - y * z) + 0.5 * np.sum(w**2)

    w = rng.normal(size=4)
    p = expit(a @ w)
    np.testing.assert_allclose(grad(loss)(w), a.T @ (p - y) + w, rtol=1e-12)
    expected = (a.T * (p * (1 - p))) @ a + np.eye(4)
    np.testing.assert_allclose(hessian(loss)(w), expected, rtol=1e-12)
    solved(
        minimize(value_and_grad(loss), np.zeros(4), jac=True, hess=hessian(loss), method="trust-exact"),
        minimize(loss, np.zeros(4)).x,
    )


@pytest.mark.parametrize("by_solve", [True, False], ids=["solve", "inverse"])
def test_hessian_of_a_gaussian_log_density(by_solve: bool) -> None:
    """By the mean -S^-1; by the covariance in closed form, one direction on either side."""
    rng = np.random.default_rng(0)
    d = 3
    x, mean = rng.normal(size=d), rng.normal(size=d)
    s = rng.normal(size=(d, d))
    s = s @ s.T + np.eye(d)

    def density(mean: Any, s: Any) -> Any:
        r = x - mean
        form = r @ np.linalg.solve(s, r) if by_solve else r @ np.linalg.inv(s) @ r
        return -0.5 * (form + np.linalg.slogdet(s)[1] + d * np.log(2 * np.pi))

    inverse = np.linalg.inv(s)
    u = inverse @ (x - mean)
    g = grad(density, (0, 1))(mean, s)
    np.testing.assert_allclose(g[0], u, rtol=1e-12)
    np.testing.assert_allclose(g[1], 0.5 * (np.outer(u, u) - inverse), rtol=1e-12)
    h = hessian(density, (0, 1))(mean, s)
    np.testing.assert_allclose(h[0][0], -inverse, rtol=1e-12)
    a, b = (t + t.T for t in rng.normal(size=(2, d, d)))
    # d2/dS2 along A and B: tr(S^-1 A S^-1 B)/2 - u' A S^-1 B u, symmetric in A and B.
    expected = 0.5 * np.trace(inverse @ a @ inverse @ b) - 0.5 * u @ (a @ inverse @ b + b @ inverse @ a) @ u
    assert np.einsum("ijkl,ij,kl", h[1][1], a, b) == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(np.einsum("ijk,jk", h[0][1], a), -inverse @ a @ u, rtol=1e-12)
    np.testing.assert_allclose(np.einsum("jki,jk", h[1][0], a), -inverse @ a @ u, rtol=1e-12)
    product = hvp(density, mean, (np.zeros(d), a), s, argnums=(0, 1))
    assert np.sum(product[1] * b) == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(product[0], -inverse @ a @ u, rtol=1e-12)
