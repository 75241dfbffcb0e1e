"""Running sums, differences, choosing, interpolation, editing, statistics: values as NumPy's, gradients as differences.

Some of these have no rule of their own: NumPy's Python code runs on recorded values as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ops
import ops.special
from ops.catalog import OPS, Structural
from tape import grad

rng = np.random.default_rng(0)
V = rng.normal(size=5)
M = rng.normal(size=(3, 4))
N = M.copy()
N[1, 2] = np.nan
KNOTS = np.array([0.0, 1.0, 2.5, 4.0, 5.0])
POSITIVE = np.abs(V) + 0.3
window = np.lib.stride_tricks.sliding_window_view


def _numeric(function: Callable[..., Any], x: Any, h: float = 1e-6) -> Any:
    slope = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        slope[i] = (function(up) - function(down)) / (2 * h)
    return slope


def check(function: Callable[..., Any], x: Any) -> None:
    """Compare value and gradient on a recorded argument with plain ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = np.asarray(function(x))
        there = ~np.isnan(plain)
        weights = np.where(there, np.random.default_rng(1).normal(size=plain.shape), 0.0)
        seen = []

        def total(x: Any) -> Any:
            y = function(x)
            seen.append(y.numpy() if hasattr(y, "numpy") else y)
            return np.sum(y * weights) if there.all() else np.sum(np.where(there, y, 0.0) * weights)

        before = x.copy()
        gradient = grad(total)(x)
        numeric = _numeric(lambda x: np.sum(np.where(there, function(x), 0.0) * weights), x)
    np.testing.assert_array_equal(x, before)
    assert np.shape(seen[0]) == plain.shape and np.asarray(seen[0]).dtype == plain.dtype
    np.testing.assert_array_equal(seen[0], plain)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-6)


def _double(parts: Any) -> Any:
    first, second = parts
    return first * second


CASES: dict[str, tuple[Callable[..., Any], Any]] = {
    # choosing
    "select": (lambda x: np.select([x > 0.5, x < -0.5], [x**2, np.sin(x)], x**3), M),
    "select default": (lambda x: np.select([x > 0.5], [x**2]), M),
    "choose": (lambda x: np.choose(np.array([0, 1, 0, 1, 1]), [x, x**2]), V),
    "choose by a recorded value": (lambda x: np.choose((x > 0).astype(int), [x, x**2]), M),
    "choose wrap": (lambda x: np.choose(np.array([0, 3, -2, 1, 5]), [x, x**2, 1.0], mode="wrap"), V),
    "piecewise": (lambda x: np.piecewise(x, [x < 0, x >= 0], [lambda t: t**2, np.exp]), M),
    "piecewise default": (lambda x: np.piecewise(x, [x < 0], [-1, lambda t, a: a * t], 3.0), M),
    "piecewise one condition": (lambda x: np.piecewise(x, x < 0, [np.square, np.exp]), V),
    # interpolation
    "interp x": (lambda x: np.interp(x, KNOTS, np.sin(KNOTS)), POSITIVE),
    "interp fp": (lambda x: np.interp(np.array([-1.0, 0.5, 3.0, 7.0]), KNOTS, x), V),
    "interp xp": (lambda x: np.interp(np.array([-1.0, 0.5, 3.0, 7.0]), x, np.sin(KNOTS)), KNOTS),
    "interp outside": (lambda x: np.interp(x * 5, KNOTS, np.cos(KNOTS), left=-1.0, right=9.0), V),
    "interp period": (lambda x: np.interp(x * 9, KNOTS, np.cos(KNOTS), period=5.5), V),
    # zero slope
    "round": (lambda x: np.round(x, 1) * x, V),
    "around": (lambda x: np.around(x) * x, V),
    "isclose": (lambda x: np.isclose(x, x + 1e-12) * x, V),
    "allclose": (lambda x: x * np.allclose(x, x), V),
    "array_equal": (lambda x: x * np.array_equal(x, x), V),
    "array_equiv": (lambda x: x * np.array_equiv(x, x), V),
    "isneginf": (lambda x: x * np.isneginf(x), V),
    "isposinf": (lambda x: x * ~np.isposinf(x), V),
    "isreal": (lambda x: x * np.isreal(x), V),
    "iscomplex": (lambda x: x * np.iscomplex(x), V),
    "real_if_close": (lambda x: np.real_if_close(x) ** 2, V),
    # building and editing
    "i0": (lambda x: np.i0(x), M),
    "unwrap": (lambda x: np.unwrap(x * 5), M),
    "unwrap axis": (lambda x: np.unwrap(x * 5, axis=0, period=3.0, discont=2.0), M),
    "meshgrid": (lambda x: _double(np.meshgrid(x, x[:3] ** 2)), V),
    "meshgrid ij": (lambda x: _double(np.meshgrid(x, x[:3] ** 2, indexing="ij", sparse=True)), V),
    "ix_": (lambda x: _double(np.ix_(x, x)), V),
    "vander": (lambda x: np.vander(x, 4), V),
    "vander increasing": (lambda x: np.vander(x, increasing=True), V),
    "insert": (lambda x: np.insert(x, [1, 3], x[0]), V),
    "insert block": (lambda x: np.insert(x, 2, x[:3] ** 2), V),
    "insert column": (lambda x: np.insert(x, 1, x[:, 0] ** 2, axis=1), M),
    "insert columns": (lambda x: np.insert(x, [1, 2], x[:, :2] ** 2, axis=1), M),
    "delete": (lambda x: np.delete(x, [1, 3]), V),
    "delete slice": (lambda x: np.delete(x, slice(0, 4, 2), axis=1), M),
    "sliding_window_view": (lambda x: window(x, 3), V),
    "sliding_window_view 2-d": (lambda x: window(x, (2, 3)), M),
    "apply_along_axis number": (lambda x: np.apply_along_axis(lambda v: np.sum(v**2), 1, x), M),
    "apply_along_axis vector": (lambda x: np.apply_along_axis(lambda v: v[:2] * v[1], 0, x), M),
    "apply_along_axis matrix": (lambda x: np.apply_along_axis(lambda v: np.outer(v, v), 0, x), M),
    "apply_over_axes": (lambda x: np.apply_over_axes(np.sum, x**2, [0, 1]), M),
    # statistics and polynomials
    "polyval x": (lambda x: np.polyval([1.0, 2.0, 3.0], x), V),
    "polyval p": (lambda x: np.polyval(x, np.array([1.0, 2.0])), V),
    "polyadd": (lambda x: np.polyadd(x, x[:2] ** 2), V),
    "polysub": (lambda x: np.polysub(x, x[:2] ** 2), V),
    "polymul": (lambda x: np.polymul(x, x[:2]), V),
    "polydiv": (lambda x: np.polydiv(x, np.array([1.0, 2.0]))[0], V),
    "polydiv by x": (lambda x: np.polydiv(np.array([1.0, 2.0, 5.0]), x[:2])[1], V),
    "polyder": (lambda x: np.polyder(x, 2), V),
    "polyint": (lambda x: np.polyint(x, 2, k=[1.0, 2.0]), V),
    "poly": (lambda x: np.poly(x), V),
    "polynomial.polyval": (lambda x: np.polynomial.polynomial.polyval(x, [1.0, 2.0, 3.0]), V),
    "chebval": (lambda x: np.polynomial.chebyshev.chebval(x, [1.0, 2.0, 3.0, 4.0]), V),
    # running functions and differences
    "cumsum": (lambda x: np.cumsum(x), M),
    "cumsum axis": (lambda x: np.cumsum(x, axis=1), M),
    "cumsum of counts": (lambda x: x * np.cumsum(x > 0, axis=1), M),
    "cumprod": (lambda x: np.cumprod(x, axis=0), M),
    "cumprod zeros": (lambda x: np.cumprod(x), np.array([1.0, 0.0, 2.0, 0.0, 3.0])),
    "add.accumulate": (lambda x: np.add.accumulate(x), M),
    "multiply.accumulate": (lambda x: np.multiply.accumulate(x), M),
    "cumulative_sum": (lambda x: np.cumulative_sum(x, axis=1, include_initial=True), M),
    "cumulative_prod": (lambda x: np.cumulative_prod(x, include_initial=True), V),
    "diff": (lambda x: np.diff(x, n=2), M),
    "diff with ends": (lambda x: np.diff(x, prepend=x[0] ** 2, append=1.0), V),
    "ediff1d": (lambda x: np.ediff1d(x, to_begin=3.0, to_end=[1.0, 2.0]), V),
    "gradient": (lambda x: np.gradient(x), V),
    "gradient edges": (lambda x: np.gradient(x, 0.5, edge_order=2), V),
    "gradient spacing": (lambda x: np.gradient(x, KNOTS), V),
    "gradient of spacing": (lambda x: np.gradient(np.sin(KNOTS), x), KNOTS),
    "gradient axes": (lambda x: _double(np.gradient(x)), M),
    "gradient axis": (lambda x: np.gradient(x, axis=1), M),
    "trapezoid": (lambda x: np.trapezoid(x, KNOTS), V),
    "trapezoid x": (lambda x: np.trapezoid(np.sin(KNOTS), x), KNOTS),
    "trapezoid dx": (lambda x: np.trapezoid(x, dx=0.3, axis=0), M),
    "convolve": (lambda x: np.convolve(x, [1.0, 2.0, 3.0]), V),
    "convolve same": (lambda x: np.convolve([1.0, 2.0, 3.0, 5.0, 6.0, 7.0], x, "same"), V),
    "convolve itself": (lambda x: np.convolve(x, x[:2], "valid"), V),
    "correlate": (lambda x: np.correlate(x, x), V),
    "correlate longer": (lambda x: np.correlate(x[:2], x, "same"), V),
    # without NaN
    "nansum": (lambda x: np.nansum(x, axis=0), N),
    "nanprod": (lambda x: np.nanprod(x, axis=0), N),
    "nanmean": (lambda x: np.nanmean(x, axis=0), N),
    "nanmean of all": (lambda x: np.nanmean(x), N),
    "nanvar": (lambda x: np.nanvar(x, axis=0, ddof=1), N),
    "nanstd": (lambda x: np.nanstd(x, axis=1, keepdims=True), N),
    "nanmax": (lambda x: np.nanmax(x, axis=0), N),
    "nanmin": (lambda x: np.nanmin(x), N),
    "nancumsum": (lambda x: np.nancumsum(x, axis=0), N),
    "nancumprod": (lambda x: np.nancumprod(x, axis=1), N),
}


@pytest.mark.parametrize("name", CASES)
def test_as_numpy(name: str) -> None:
    check(*CASES[name])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.cov(x),
        lambda x: np.cov(x, rowvar=False, bias=True),
        lambda x: np.cov(x[0], x[1] ** 2),
        lambda x: np.cov(x, aweights=np.array([1.0, 2.0, 3.0, 4.0]), fweights=np.array([1, 2, 1, 3])),
        lambda x: np.corrcoef(x),
        lambda x: np.corrcoef(x[0], x[1]),
    ],
)
def test_covariances(function: Any) -> None:
    seen = []

    def total(x: Any) -> Any:
        y = function(x)
        seen.append(y.numpy())
        return np.sum(np.sin(y))

    gradient = grad(total)(M)
    np.testing.assert_allclose(seen[0], function(M), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(gradient, _numeric(lambda x: np.sum(np.sin(function(x))), M), atol=1e-7)


# ---------------------------------------------------------------- the rules of the ops themselves
MODULES = {"ops.cumulative", "ops.differences", "ops.functional", "ops.sort", "ops.twins"}


def _modules(op: Any) -> set[str]:
    rules = (op.pullbacks,) if callable(op.pullbacks) else op.pullbacks
    return {getattr(r, "__module__", "") for r in (*rules, op.forward)}


EXAMPLES = [
    pytest.param(op, operands, parameters, id=f"{op.name}-{k}")
    for op in OPS
    if isinstance(op, Structural) and op.examples is not None and _modules(op) & MODULES
    for k, (operands, parameters) in enumerate(op.examples(np.random.default_rng(2)))
]


@pytest.mark.parametrize(("op", "operands", "parameters"), EXAMPLES)
def test_pullbacks(op: Structural, operands: Any, parameters: Any) -> None:
    plain = np.asarray(op.forward(*operands, **parameters))
    g = np.random.default_rng(3).normal(size=plain.shape)
    for position, x in enumerate(operands):
        rule = op.pullback(position)
        if rule is None or x.dtype.kind != "f" or rule(g, plain, *operands, **parameters) is None:
            continue

        def at(y: Any, position: int = position) -> tuple[Any, ...]:
            return (*operands[:position], y, *operands[position + 1 :])

        gradient = grad(lambda y, at=at: np.sum(g * op(*at(y), **parameters)))(x)
        np.testing.assert_allclose(
            gradient, _numeric(lambda y, at=at: np.sum(g * op.forward(*at(y), **parameters)), x), atol=1e-7
        )
        # The pullback is made of functions that have rules: its own gradient, in the adjoint and in each operand.
        w = np.random.default_rng(4).normal(size=x.shape)
        for again, z in enumerate((g, *operands)):
            if z.dtype.kind != "f" or (again and op.pullback(again - 1) is None):
                continue

            def pulled(t: Any, again: int = again, rule: Any = rule, w: Any = w) -> Any:
                values = tuple(t if k == again - 1 else v for k, v in enumerate(operands))
                adjoint = t if again == 0 else g
                return np.sum(w * rule(adjoint, op(*values, **parameters), *values, **parameters))

            np.testing.assert_allclose(grad(pulled)(z), _numeric(pulled, np.array(z)), atol=1e-6)


# ---------------------------------------------------------------- corners
def test_cumprod_with_zeros_to_second_order() -> None:
    rule = ops.cumulative.cumprod_op.pullback(0)

    def slope(x: Any) -> Any:
        return np.sum(rule(np.ones(4), np.cumprod(x), x, axis=0) * np.array([1.0, 2.0, 3.0, 4.0]))

    for x in ([0.0, 2.0, 3.0, 1.0], [2.0, 0.0, 0.0, 5.0], [0.0, 0.0, 0.0, 0.0]):
        check(lambda x: np.cumprod(x), np.array(x))
        np.testing.assert_allclose(grad(slope)(np.array(x)), _numeric(slope, np.array(x)), atol=1e-6)


def test_cumprod_is_quick_and_does_not_divide() -> None:
    x = np.ones(100_000)
    x[50_000:] = 0.0
    g = grad(lambda x: np.sum(np.cumprod(x)))(x)
    assert g[0] == 50_000 and g[50_000] == 1 and not g[50_001:].any()


def test_nan_reductions_of_nothing() -> None:
    x = np.array([[np.nan, np.nan], [1.0, 2.0]])
    with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
        g = grad(lambda x: np.nanmean(x, axis=1)[1])(x)
    np.testing.assert_array_equal(g, [[0, 0], [0.5, 0.5]])
    np.testing.assert_array_equal(grad(lambda x: np.nanmax(x))(np.array([2.0, np.nan, 2.0])), [0.5, 0, 0.5])
    np.testing.assert_array_equal(grad(lambda x: np.nanstd(x))(np.array([2.0, np.nan, 2.0])), [0, 0, 0])


def test_select_leaves_other_branches_alone() -> None:
    g = grad(lambda x: np.sum(np.select([x > 0, x <= 0], [np.sqrt(x), x])))(np.array([0.0, 4.0]))
    np.testing.assert_array_equal(g, [1.0, 0.25])


def test_piecewise_of_a_number() -> None:
    f = grad(lambda x: np.piecewise(x, [x < 0, x >= 0], [np.square, np.exp]))
    assert f(-3.0) == -6.0
    assert f(0.0) == 1.0


def test_interp_at_knots() -> None:
    xp, fp = np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 5.0])
    g = grad(lambda x: np.sum(np.interp(x, xp, fp)))(np.array([-1.0, 0.0, 1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(g, [0, 1, 4, 4, 0])
    assert grad(lambda x: np.interp(x, xp, fp))(0.5) == 1.0


def test_in_place_functions() -> None:
    values = np.array([3.0, 5.0])
    mask = np.array([True, False, True, False, True])

    def run(write: Any) -> None:
        def changed(x: Any) -> Any:
            y = x**2 if isinstance(x, np.ndarray) else +(x**2)
            write(y, x)
            return y

        check(changed, V if write not in matrices else M)

    vectors = [
        lambda y, x: np.copyto(y, x, where=mask),
        lambda y, x: np.copyto(y, 3.0),
        lambda y, x: np.put(y, [0, -1, 2], x[:2]),
        lambda y, x: np.put(y, [7, 1], values, mode="wrap"),
        lambda y, x: np.place(y, mask, x[:2]),
        lambda y, x: np.putmask(y, mask, x[3:]),
    ]
    matrices = [
        lambda y, x: np.fill_diagonal(y, x[0, :2]),
        lambda y, x: np.fill_diagonal(y, 0.0),
        lambda y, x: np.put_along_axis(y, np.array([[1], [0], [3]]), x[:, :1], axis=1),
    ]
    for write in (*vectors, *matrices):
        run(write)


def test_writing_into_a_plain_array_is_refused() -> None:
    for write in (
        lambda x: np.copyto(np.zeros(5), x),
        lambda x: np.put(np.zeros(5), [0], x[:1]),
        lambda x: np.place(np.zeros(5), np.ones(5, bool), x),
        lambda x: np.fill_diagonal(np.zeros((5, 5)), x),
    ):
        with pytest.raises(TypeError):
            grad(lambda x, write=write: (write(x), np.sum(x))[1])(V)


def test_trim_zeros() -> None:
    np.testing.assert_array_equal(
        grad(lambda x: np.sum(np.trim_zeros(x) ** 2))(np.array([0.0, 1.0, 0.0, 2.0, 0.0])), [0, 2, 0, 4, 0]
    )


def test_refused_forms_say_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"out="):
        grad(lambda x: np.sum(np.cumsum(x, out=np.zeros(5))))(V)
    with pytest.raises(TypeError, match="where"):
        grad(lambda x: np.nanmax(x, where=x > 0, initial=0.0))(V)


@pytest.mark.parametrize(
    "function",
    [
        np.cumsum, np.cumprod, np.diff, np.gradient, np.trapezoid, np.nanmean, np.nanstd, np.nanmax, np.unwrap, np.i0,
        np.round, lambda x: np.convolve(x, x), lambda x: np.interp(x, x, x).astype(np.float32),
        lambda x: np.select([x > 0], [x], 0.0), lambda x: window(x, 2), lambda x: np.insert(x, 1, 2.0),
    ],
)  # fmt: skip
def test_float32_stays(function: Any) -> None:
    x = np.sort(V).astype(np.float32)
    seen = []

    def total(x: Any) -> Any:
        y = function(x)
        seen.append(y.dtype)
        return np.sum(y)

    assert grad(total)(x).dtype == np.float32
    assert seen[0] == np.asarray(function(x)).dtype == np.float32
