"""Twins, as `ops.special.f`, of functions of scipy.special that are not ufuncs and so never see a recorded value."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from ops.catalog import Elementwise, elementwise, structural, unknown
from ops.elementwise import MULTIPLE_OUTPUTS, scale
from ops.reduce import axes_of
from ops.shape import shape_of, sum_to


# ---------------------------------------------------------------- sums of exponentials
def _logsumexp(a: Any, *b: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    with np.errstate(divide="ignore"):
        return np.asarray(special.logsumexp(a, axis=axis, keepdims=keepdims, b=b[0] if b else None))


def _shares(a: Any, axis: Any, *b: Any) -> Any:
    """Give ``exp(a) / sum(b * exp(a))``: 0 where all are -inf; where some are +inf these share evenly."""
    present = np.where(b[0] == 0, -np.inf, a) if b else a
    top = np.max(present, axis=axis, keepdims=True)
    infinite = present == np.inf
    count = np.maximum(np.sum(infinite, axis=axis, keepdims=True), 1)
    terms = np.exp(a - np.where(np.isfinite(top), top, 0.0))
    weighted = np.where(b[0] == 0, 0.0, b[0] * terms) if b else terms
    total = np.sum(weighted, axis=axis, keepdims=True)
    shares = np.where(total == 0, 0.0, terms / np.where(total == 0, 1.0, total))
    return np.where(top == np.inf, (infinite / count).astype(a.dtype), shares)


def _logsumexp_pullback(position: int, g: Any, out: Any, a: Any, *b: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    shape = shape_of(a)
    g = np.reshape(g, tuple(1 if d in axis else n for d, n in enumerate(shape)))
    shares = _shares(a, axis, *b)
    if not b:
        return scale(g, shares)
    if position == 0:
        return scale(g, np.where(b[0] == 0, 0.0, b[0] * shares))
    return sum_to(scale(g, shares), shape_of(b[0]))


def _logsumexp_pushforward(tangents: Any, out: Any, a: Any, *b: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    shares = _shares(a, axis, *b)
    parts = []
    if tangents[0] is not None:
        parts.append(scale(tangents[0], np.where(b[0] == 0, 0.0, b[0] * shares) if b else shares))
    if b and tangents[1] is not None:
        parts.append(scale(tangents[1], shares))
    return np.sum(parts[0] if len(parts) == 1 else parts[0] + parts[1], axis=axis, keepdims=keepdims)


def _examples(rng: np.random.Generator) -> Any:
    for shape, axis in (((2, 3, 4), (1,)), ((2, 3), (0, 1)), ((5,), (0,))):
        for keepdims in (False, True):
            yield (rng.normal(size=shape),), {"axis": axis, "keepdims": keepdims}
    yield (rng.normal(size=(2, 3)), rng.uniform(0.5, 2, size=(2, 3))), {"axis": (1,), "keepdims": False}
    yield (rng.normal(size=(4, 6))[::2, ::-1].T,), {"axis": (0,), "keepdims": False}


logsumexp_op = structural(
    _logsumexp,
    every=_logsumexp_pullback,
    pushforward=_logsumexp_pushforward,
    name="logsumexp",
    examples=_examples,
)


def _as_array(x: Any) -> Any:
    x = x if hasattr(x, "shape") else np.asarray(x)
    return x if x.dtype.kind == "f" else x.astype(np.float64)


def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False) -> Any:
    """Give ``log(sum(b * exp(a)))`` without overflow; the weight of an element at -inf is 0.

    See `scipy.special.logsumexp`; differentiable in `a` and `b`.

    Examples
    --------
    >>> import numpy as np, ops.special
    >>> from tape import grad
    >>> grad(ops.special.logsumexp)(np.array([1000.0, 1000.0, -np.inf]))
    array([0.5, 0.5, 0. ])
    """
    if return_sign:
        raise TypeError("logsumexp with return_sign= is not supported here: give weights b whose sum is positive")
    a = _as_array(a)
    weights: tuple[Any, ...] = () if b is None else (_as_array(b),)
    if b is not None:
        a = np.broadcast_to(a, np.broadcast_shapes(shape_of(a), shape_of(weights[0])))
    if not shape_of(a):
        return a if b is None else a + np.log(weights[0])
    return logsumexp_op(a, *weights, axis=axes_of(a, axis), keepdims=bool(keepdims))


def _softmax_pullback(g: Any, out: Any, x: Any, *, axis: tuple[int, ...]) -> Any:
    product = scale(g, out)
    return product - scale(np.sum(product, axis=axis, keepdims=True), out)


def _softmax_examples(rng: np.random.Generator) -> Any:
    for shape, axis in (((2, 3, 4), (1,)), ((2, 3), (0, 1)), ((5,), (0,))):
        yield (rng.normal(size=shape),), {"axis": axis}
    yield (rng.normal(size=(4, 6))[::2, ::-1].T,), {"axis": (0,)}


# The slope of softmax is symmetric: it pushes as it pulls.
softmax_op = structural(
    lambda x, *, axis: special.softmax(x, axis=axis),
    _softmax_pullback,
    pushforward=lambda tangents, out, x, *, axis: _softmax_pullback(tangents[0], out, x, axis=axis),
    name="softmax",
    examples=_softmax_examples,
)
log_softmax_op = structural(
    lambda x, *, axis: special.log_softmax(x, axis=axis),
    lambda g, out, x, *, axis: g - scale(np.sum(g, axis=axis, keepdims=True), np.exp(out)),
    pushforward=lambda tangents, out, x, *, axis: (
        tangents[0] - np.sum(scale(tangents[0], np.exp(out)), axis=axis, keepdims=True)
    ),
    name="log_softmax",
    examples=_softmax_examples,
)


def softmax(x: Any, axis: Any = None) -> Any:
    """Give ``exp(x) / sum(exp(x))`` along axes, without overflow."""
    x = _as_array(x)
    return softmax_op(x, axis=axes_of(x, axis))


def log_softmax(x: Any, axis: Any = None) -> Any:
    """Give the logarithm of `softmax`, exact where that underflows."""
    x = _as_array(x)
    return log_softmax_op(x, axis=axes_of(x, axis))


def softplus(x: Any) -> Any:
    """Give ``log(1 + exp(x))`` without overflow."""
    return np.logaddexp(0.0, x)


# ---------------------------------------------------------------- gamma functions
polygamma: Elementwise = elementwise(
    special.polygamma,
    unknown("the order n of polygamma"),
    lambda n, x, out: polygamma(n + 1.0, x),
    name="polygamma",
    domain=((1.0, 1.0), (0.3, 4.0)),
)
"""The n-th derivative of digamma. See `scipy.special.polygamma`; differentiable in x."""


def _factorial(n: Any) -> Any:
    return special.factorial(n)


factorial = elementwise(
    _factorial,
    lambda n, out: np.where(n < 0, 0.0, out * special.psi(np.where(n < 0, 1.0, n + 1.0))),
    name="factorial",
    domain=((0.3, 4.0),),
)
"""``gamma(n + 1)``, and 0 for negative n. See `scipy.special.factorial`."""


def comb(N: Any, k: Any, *, exact: bool = False, repetition: bool = False) -> Any:
    """Give the binomial coefficient as a function of real N and k. See `scipy.special.comb`."""
    if exact:
        raise TypeError("comb with exact=True works on plain integers only: use scipy.special.comb")
    if repetition:
        return np.where(np.equal(k, 0), np.where(np.greater_equal(N, 0), 1.0, 0.0), comb(N + k - 1, k))
    result = np.where(np.greater_equal(k, 0), special.binom(N, k), 0.0)
    return np.where(np.greater_equal(N, 0), np.where(np.less_equal(k, N), result, 0.0), 0.0)


def multigammaln(a: Any, d: int) -> Any:
    """Give the logarithm of the multivariate gamma function. See `scipy.special.multigammaln`."""
    if np.ndim(d) or int(d) != d or d < 1:
        raise ValueError("d should be a positive integer (dimension)")
    if np.any(a <= 0.5 * (d - 1)):
        raise ValueError(f"condition a > 0.5 * (d-1) = {0.5 * (d - 1)} not met")
    total = special.gammaln(a)
    for j in range(2, int(d) + 1):
        total = total + special.gammaln(a - (j - 1.0) / 2)
    return (d * (d - 1) * 0.25) * np.log(np.pi) + total


def _lambertw(z: Any, k: Any) -> Any:
    kind = np.float32 if getattr(z, "dtype", None) == np.float32 else np.float64
    w = special.lambertw(z, np.asarray(k, np.int64))
    return np.where(w.imag == 0, w.real, np.nan).astype(kind)[()]


_real_lambertw = elementwise(
    _lambertw, lambda z, k, out: 1.0 / (z + np.exp(out)), None, name="lambertw", domain=((0.1, 3.0), (0.0, 0.0))
)


def lambertw(z: Any, k: Any = 0, tol: float = 1e-8) -> Any:
    """Give the real branches (k = 0 and -1) of the inverse of ``w exp(w)``; NaN where the value is complex.

    Where SciPy's function gives complex numbers with imaginary part 0, this gives real ones.
    """
    return _real_lambertw(z, k)


MULTIPLE_OUTPUTS[special._ufuncs._lambertw] = lambertw
