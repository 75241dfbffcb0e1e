"""Polynomials given by their coefficients, highest power first.

`np.polyval`, `np.polyadd` and others need no rule of their own: NumPy's code runs on recorded values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.catalog import handles
from ops.create import array


def _array(x: Any) -> Any:
    return x if hasattr(x, "shape") else array(x)


@handles(np.vander)
def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    """Give the matrix of powers."""
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    n = x.shape[0] if N is None else int(N)
    kind = np.promote_types(x.dtype, int)  # as NumPy does: float32 gives float64
    x = x if x.dtype == kind else x.astype(kind)
    column = np.reshape(x, (-1, 1))
    powers = np.ones((x.shape[0], min(n, 1)), x.dtype)
    if n > 1:
        repeated = np.broadcast_to(column, (x.shape[0], n - 1))
        powers = np.concatenate([powers, np.cumprod(repeated, axis=1)], axis=1)
    return powers if increasing else powers[:, ::-1]


@handles(np.polymul)
def polymul(a1: Any, a2: Any) -> Any:
    """Multiply polynomials given by their coefficients, highest power first."""
    factors: list[Any] = []
    for a in (a1, a2):
        a = np.trim_zeros(np.atleast_1d(_array(a)), "f")
        factors.append(a if a.size else np.zeros(1))
    return np.convolve(factors[0], factors[1])


@handles(np.polydiv)
def polydiv(u: Any, v: Any) -> Any:
    """Divide polynomials given by their coefficients; give quotient and remainder."""
    u, v = np.atleast_1d(_array(u)) + 0.0, np.atleast_1d(_array(v)) + 0.0
    m, n = u.shape[0] - 1, v.shape[0] - 1
    scale = 1.0 / v[0]
    r = u + 0.0 * v[0]
    quotient = []
    for k in range(m - n + 1):
        d = scale * r[k]
        quotient.append(d)
        r = np.concatenate([r[:k], r[k : k + n + 1] - d * v, r[k + n + 1 :]])
    q = np.stack(quotient) if quotient else np.zeros(1)
    while r.shape[0] > 1 and abs(r[0]) <= 1e-8:
        r = r[1:]
    return q, r


@handles(np.polyder)
def polyder(p: Any, m: int = 1) -> Any:
    """Give the coefficients of the m-th derivative of a polynomial."""
    if m < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    p = _array(p)
    for _ in range(int(m)):
        n = p.shape[0] - 1
        p = p[:-1] * np.arange(max(n, 0), 0, -1, dtype=p.dtype)
    return p


@handles(np.polyint)
def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """Give the coefficients of the m-th integral of a polynomial."""
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    p = _array(p)
    constants = np.zeros(m) if k is None else np.reshape(_array(k), (-1,))
    if constants.shape[0] == 1 and m > 1:
        constants = constants[0] * np.ones(m)
    if constants.shape[0] < m:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    for order in range(int(m)):
        divisors = np.arange(p.shape[0], 0, -1, dtype=p.dtype)
        p = np.concatenate([p / divisors, constants[order : order + 1]])
    return p


@handles(np.poly)
def poly(seq_of_zeros: Any) -> Any:
    """Give the coefficients of the polynomial with the given real roots."""
    zeros = np.atleast_1d(seq_of_zeros)
    if zeros.ndim != 1:
        raise TypeError("np.poly of a matrix is not supported on recorded values")
    a = np.ones(1, zeros.dtype)
    for k in range(zeros.shape[0]):
        a = np.convolve(a, np.concatenate([np.ones(1, zeros.dtype), -zeros[k : k + 1]]))
    return a
