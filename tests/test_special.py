"""scipy.special: every declared function against SciPy and finite differences, and the corners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import ops.special
from ops.catalog import OPS, Elementwise, UnknownSlopeError
from tape import grad

MODULES = {"ops.special", "ops.bessel", "ops.twins"}


def _mine(op: Any) -> bool:
    if not isinstance(op, Elementwise):
        return False
    modules = {getattr(p, "__module__", "") for p in op.partials}
    return bool(modules & MODULES) or "unknown.<locals>" in str([getattr(p, "__qualname__", "") for p in op.partials])


DECLARED = [op for op in OPS if _mine(op)]
SLOPES = [(op, p) for op in DECLARED for p in range(op.nin) if op.partials[p] is not None]


def _name(x: Any) -> str:
    return str(getattr(x, "name", x))


def _is_unknown(op: Elementwise, position: int) -> bool:
    return not op.has_rule(position)


def _operands(op: Elementwise, size: int = 7, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(low, high, size=size) for low, high in op.domain]


def _call(op: Elementwise) -> Any:
    return op.forward if op.is_ufunc else op


def _slope(function: Any, operands: list[Any], position: int, h: float = 1e-5) -> Any:
    up, down = list(operands), list(operands)
    up[position], down[position] = operands[position] + h, operands[position] - h
    return (function(*up) - function(*down)) / (2 * h)


def _gradient(function: Any, operands: list[Any], position: int) -> tuple[Any, Any]:
    seen = []

    def total(x: Any) -> Any:
        values = function(*operands[:position], x, *operands[position + 1 :])
        seen.append(values.numpy() if hasattr(values, "numpy") else values)
        return np.sum(values)

    return grad(total)(operands[position]), seen[0]


def test_enough_is_declared() -> None:
    assert len(DECLARED) > 90


@pytest.mark.parametrize(("op", "position"), SLOPES, ids=_name)
def test_value_and_gradient(op: Elementwise, position: int) -> None:
    operands = _operands(op)
    if _is_unknown(op, position):
        with pytest.raises(TypeError, match="is not known here"):
            _gradient(_call(op), operands, position)
        return
    gradient, value = _gradient(_call(op), operands, position)
    np.testing.assert_array_equal(value, op.forward(*operands))
    np.testing.assert_allclose(gradient, _slope(op.forward, operands, position), rtol=2e-7, atol=2e-8)


@pytest.mark.parametrize(("op", "position"), SLOPES, ids=_name)
def test_on_a_number(op: Elementwise, position: int) -> None:
    if _is_unknown(op, position):
        return
    operands = [float(x[0]) for x in _operands(op, 1, 3)]
    for _ in range(2):
        got = grad(_call(op), argnums=position)(*operands)
        assert type(got) is float
        np.testing.assert_allclose(got, _slope(op.forward, operands, position), rtol=2e-7, atol=2e-8)


@pytest.mark.parametrize(("op", "position"), SLOPES, ids=_name)
def test_slopes_have_slopes(op: Elementwise, position: int) -> None:
    """The partials are made of functions that have rules, so they can be differentiated again."""
    if _is_unknown(op, position):
        return
    call = _call(op)

    def slope(*operands: Any) -> Any:
        return op.partials[position](*operands, call(*operands))

    operands = _operands(op, 5, 1)
    for again in range(op.nin):
        if op.partials[again] is None or _is_unknown(op, again):
            continue
        if not hasattr(op.partials[position](*operands, op.forward(*operands)), "shape"):
            continue
        try:
            gradient, _ = _gradient(slope, operands, again)
        except UnknownSlopeError:
            assert op.name.startswith("gamma")
            continue
        np.testing.assert_allclose(gradient, _slope(slope, operands, again), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("op", DECLARED, ids=_name)
def test_float32_stays(op: Elementwise) -> None:
    operands = [x.astype(np.float32) for x in _operands(op, 3, 2)]
    if np.asarray(op.forward(*operands)).dtype != np.float32:
        pytest.skip("SciPy has no float32 version")
    for position in range(op.nin):
        if op.partials[position] is None or _is_unknown(op, position):
            continue
        gradient, value = _gradient(_call(op), operands, position)
        assert value.dtype == gradient.dtype == np.float32
        wide = [x.astype(np.float64) for x in operands]
        np.testing.assert_allclose(gradient, _slope(op.forward, wide, position), rtol=2e-3, atol=2e-4)


# ---------------------------------------------------------------- corners
def test_xlogy_at_zero() -> None:
    gradient = grad(lambda p: np.sum(special.xlogy(np.array([0.0, 0.0, 2.0]), p)))(np.array([0.0, 1.0, 4.0]))
    np.testing.assert_array_equal(gradient, [0.0, 0.0, 0.5])
    assert grad(lambda y: special.xlog1py(0.0, y))(-1.0) == 0.0


def test_entropy_at_zero() -> None:
    seen = []

    def masked(x: Any) -> Any:
        e = special.entr(x)
        seen.append(e.numpy())
        return np.sum(np.where(x > 0, e, 0.0))

    gradient = grad(masked)(np.array([0.0, 0.5]))
    np.testing.assert_allclose(gradient, [0.0, -np.log(0.5) - 1])
    assert seen[0][0] == 0.0
    assert grad(special.entr)(0.0) == np.inf


def test_logistic_saturates() -> None:
    x = np.array([-800.0, -40.0, 0.0, 40.0, 800.0])
    tail = np.exp(-40.0)
    gradient = grad(lambda x: np.sum(special.expit(x)))(x)
    np.testing.assert_allclose(gradient, [0.0, tail, 0.25, tail, 0.0], rtol=1e-15)
    gradient = grad(lambda x: np.sum(special.log_expit(x)))(x)
    np.testing.assert_allclose(gradient, [1.0, 1.0, 0.5, tail, 0.0], rtol=1e-14)


def test_log_ndtr_far_tails() -> None:
    x = np.array([-1e9, -1e5, -40.0, 0.0, 8.0, 50.0])
    gradient = grad(lambda x: np.sum(special.log_ndtr(x)))(x)
    np.testing.assert_allclose(gradient[:2], [1e9, 1e5 + 1e-5], rtol=1e-14)
    np.testing.assert_allclose(gradient[3], np.sqrt(2 / np.pi), rtol=1e-15)
    np.testing.assert_allclose(gradient[4], np.exp(-32.0) / np.sqrt(2 * np.pi), rtol=1e-12)
    assert gradient[5] == 0.0


def test_erfcx_and_dawson_far_out() -> None:
    # Far out erfcx is 1/(sqrt(pi) x) and Dawson's function 1/(2 x), up to terms in 1/x^3.
    x = np.array([49.9, 50.1, 1e4, 1e8])
    np.testing.assert_allclose(
        grad(lambda x: np.sum(special.erfcx(x)))(x),
        -1 / np.sqrt(np.pi) / x**2 * (1 - 1.5 / x**2 + 3.75 / x**4),
        rtol=1e-9,
    )
    np.testing.assert_allclose(
        grad(lambda x: np.sum(special.dawsn(x)))(x), -0.5 / x**2 * (1 + 1.5 / x**2 + 3.75 / x**4), rtol=1e-9
    )


def test_exact_where_a_quotient_would_fail() -> None:
    assert grad(special.j1)(0.0) == 0.5
    assert grad(special.i1)(0.0) == 0.5
    assert grad(special.exprel)(0.0) == 0.5
    assert grad(special.spence)(1.0) == -1.0
    assert grad(lambda x: special.sici(x)[0])(0.0) == 1.0
    assert grad(lambda x: special.gammainc(1.0, x))(0.0) == 1.0
    np.testing.assert_allclose(grad(lambda k: special.boxcox(2.0, k))(0.0), np.log(2) ** 2 / 2, rtol=1e-15)
    np.testing.assert_allclose(grad(lambda k: special.inv_boxcox(2.0, k))(0.0), -2 * np.exp(2.0), rtol=1e-14)
    np.testing.assert_allclose(grad(special.rgamma)(-3.0), -6.0, rtol=1e-14)
    np.testing.assert_allclose(grad(special.ellipk)(0.0), np.pi / 8, rtol=1e-15)


@pytest.mark.parametrize("t", [0.05, 0.02, 1e-3, -1e-3, -0.05])
def test_series_meet_the_formulas(t: float) -> None:
    a, b = np.nextafter(t, -1) * (1 - 1e-9), np.nextafter(t, 1) * (1 + 1e-9)
    for op in (ops.special.power_slope, ops.special.root_slope):
        np.testing.assert_allclose(op.forward(a), op.forward(b), rtol=3e-9)


def test_gammainc_in_its_parameter() -> None:
    h = 1e-4
    for a, x in (
        (0.1, 0.05),
        (0.1, 1.2),
        (0.5, 30.0),
        (3.0, 3.9),
        (3.0, 4.1),
        (50.0, 50.0),
        (50.0, 52.0),
        (400.0, 430.0),
        (1e5, 99_900.0),
        (1e5, 1e5 + 300.0),
    ):
        s = h * max(a, 1) * 0.1
        f = [special.gammainc(a + k * s, x) for k in (-2, -1, 1, 2)]
        reference = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * s)
        np.testing.assert_allclose(grad(lambda a, x=x: special.gammainc(a, x))(a), reference, rtol=1e-7, atol=1e-11)
    assert grad(lambda a: special.gammainc(a, 0.0))(2.0) == 0.0
    assert np.isnan(grad(lambda a: special.gammainc(a, 1.0))(1e300))


def test_kinks_of_huber() -> None:
    np.testing.assert_array_equal(
        grad(lambda r: np.sum(special.huber(1.0, r)))(np.array([-3.0, -1.0, 0.0, 1.0, 3.0])), [-1, -1, 0, 1, 1]
    )


def test_zeta_has_no_slope_in_its_exponent() -> None:
    np.testing.assert_allclose(grad(lambda q: special.zeta(2.0, q))(1.5), -2 * special.zeta(3, 1.5))
    for f in (special.zeta, lambda x: special.zeta(x, 1.5)):
        with pytest.raises(TypeError, match="is not known here"):
            grad(f)(2.0)


def test_integer_orders() -> None:
    x = np.array([0.7, 1.9])
    for f in (special.jn, special.yn, special.kn, special.expn):
        g = grad(lambda x, f=f: np.sum(f(2, x)))(x)
        np.testing.assert_allclose(g, (f(2, x + 1e-6) - f(2, x - 1e-6)) / 2e-6, rtol=1e-7)


# ---------------------------------------------------------------- twins
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_logsumexp(axis: Any, keepdims: bool) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4)) * 30
    seen = []

    def total(x: Any) -> Any:
        y = ops.special.logsumexp(x, axis=axis, keepdims=keepdims)
        seen.append(y.numpy())
        return np.sum(y)

    np.testing.assert_allclose(grad(total)(x), special.softmax(x, axis=axis), atol=1e-15)
    np.testing.assert_array_equal(seen[0], special.logsumexp(x, axis=axis, keepdims=keepdims))


def test_logsumexp_corners() -> None:
    f = grad(ops.special.logsumexp)
    np.testing.assert_array_equal(f(np.array([-np.inf, -np.inf])), [0, 0])
    np.testing.assert_array_equal(f(np.array([-np.inf, 3.0])), [0, 1])
    np.testing.assert_array_equal(f(np.array([1e4, 1e4])), [0.5, 0.5])
    np.testing.assert_array_equal(f(np.array([np.inf, 1.0, np.inf])), [0.5, 0, 0.5])
    a, b = np.array([1.0, 2.0, 900.0]), np.array([0.5, 2.0, 0.0])
    got = grad(lambda a, b: ops.special.logsumexp(a, b=b), argnums=(0, 1))(a, b)
    total = np.sum(b[:2] * np.exp(a[:2]))
    np.testing.assert_allclose(got[0], [*(b[:2] * np.exp(a[:2]) / total), 0.0])
    np.testing.assert_allclose(got[1][:2], np.exp(a[:2]) / total)


def test_softmax() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    for name in ("softmax", "log_softmax"):
        twin, original = getattr(ops.special, name), getattr(special, name)
        np.testing.assert_array_equal(twin(x, axis=1), original(x, axis=1))
        got = grad(lambda x, twin=twin: np.sum(w * twin(x, axis=1)))(x)
        for i in np.ndindex(x.shape):
            d = np.zeros_like(x)
            d[i] = 1e-6
            reference = np.sum(w * (original(x + d, axis=1) - original(x - d, axis=1))) / 2e-6
            np.testing.assert_allclose(got[i], reference, atol=1e-8)
    np.testing.assert_array_equal(grad(lambda x: ops.special.log_softmax(x)[1])(np.array([1e4, 0.0])), [-1, 1])
    far = grad(lambda x: ops.special.softmax(x)[0])(np.array([-np.inf, 0.0]))
    assert not np.isnan(far).any()
    assert grad(lambda x: np.sum(ops.special.softmax(x)))(np.ones(2, np.float32)).dtype == np.float32


def test_other_twins() -> None:
    def check(twin: Any, original: Any, x: float) -> None:
        np.testing.assert_allclose(twin(x), original(x), rtol=1e-14)
        np.testing.assert_allclose(grad(twin)(x), (original(x + 1e-6) - original(x - 1e-6)) / 2e-6, rtol=1e-7)

    check(lambda x: ops.special.polygamma(1, x), lambda x: special.polygamma(1, x), 1.3)
    check(lambda x: ops.special.multigammaln(x, 3), lambda x: special.multigammaln(x, 3), 4.2)
    check(ops.special.factorial, special.factorial, 2.5)
    check(lambda x: ops.special.comb(x, 2.0), lambda x: special.comb(x, 2.0), 5.3)
    check(ops.special.lambertw, lambda x: special.lambertw(x).real, 0.7)
    check(lambda x: ops.special.lambertw(x, -1), lambda x: special.lambertw(x, -1).real, -0.2)
    check(lambda x: np.real(special.lambertw(x)), lambda x: special.lambertw(x).real, 0.7)
    assert grad(ops.special.lambertw)(0.0) == 1.0
    with pytest.raises(TypeError, match="is not known here"):
        grad(lambda n: ops.special.polygamma(n, 2.0))(1.0)


@pytest.mark.parametrize("name", ["logsumexp", "softmax", "log_softmax"])
def test_scipy_functions_that_are_not_ufuncs_say_so(name: str) -> None:
    with pytest.raises(TypeError, match=r"ops\.special"):
        grad(lambda x: np.sum(getattr(special, name)(x)))(np.ones(3))


def test_several_results() -> None:
    x = np.array([0.4, 1.7])
    for f, count in ((special.sici, 2), (special.shichi, 2), (special.fresnel, 2), (special.airy, 4)):
        for k in range(count):
            g = grad(lambda x, f=f, k=k: np.sum(f(x)[k]))(x)
            np.testing.assert_allclose(g, (f(x + 1e-6)[k] - f(x - 1e-6)[k]) / 2e-6, rtol=1e-7)


def test_no_rule_for_complex_results() -> None:
    with pytest.raises(TypeError, match="wofz has no derivative rule"):
        grad(special.wofz)(1.0)
