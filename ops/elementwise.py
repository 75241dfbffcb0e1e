"""Elementwise ops: NumPy's ufuncs and their partial derivatives, with the conventions at the corners.

The partials are expressions of the operands and of the result `out`. Where an operand has no slope the entry is None.
Kernels multiply a partial only by a nonzero adjoint, so an infinite or NaN partial of a branch that was not taken does
no harm.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ops.catalog import Elementwise, elementwise, handles, structural

ANY = (-2.0, 2.0)
POSITIVE = (0.2, 3.0)
UNIT = (-0.9, 0.9)

# ---------------------------------------------------------------- arithmetic
add = elementwise(np.add, lambda x, y, out: 1.0, lambda x, y, out: 1.0)
subtract = elementwise(np.subtract, lambda x, y, out: 1.0, lambda x, y, out: -1.0)
multiply = elementwise(np.multiply, lambda x, y, out: y, lambda x, y, out: x)
divide = elementwise(
    np.divide,
    lambda x, y, out: 1.0 / y,
    lambda x, y, out: -out / y,
    domain=(ANY, POSITIVE),
)
negative = elementwise(np.negative, lambda x, out: -1.0)
positive = elementwise(np.positive, lambda x, out: 1.0)
# x**0 has slope 0 everywhere; 0**y has slope 0 in y (the limit for y > 0).
power = elementwise(
    np.power,
    # Where y is 0 the slope is 0, but how it changes with y is x**-1: only x = 0 and NaN are set apart.
    lambda x, y, out: np.where((y == 0) & ((x == 0) | (x != x)), 0.0, y * np.power(x, y - 1.0)),
    lambda x, y, out: out * np.log(np.where(x == 0, 1.0, x)),
    domain=(POSITIVE, ANY),
)
float_power = elementwise(np.float_power, *power.partials, domain=power.domain)
square = elementwise(np.square, lambda x, out: 2.0 * x)
reciprocal = elementwise(np.reciprocal, lambda x, out: -out * out, domain=(POSITIVE,))
absolute = elementwise(np.absolute, lambda x, out: np.sign(x))
fabs = elementwise(np.fabs, lambda x, out: np.sign(x))
conjugate = elementwise(np.conjugate, lambda x, out: 1.0)
# The multiple of y that was taken off x, exact at multiples: rint((out - x) / y).
remainder = elementwise(
    np.remainder,
    lambda x, y, out: 1.0,
    lambda x, y, out: np.rint((out - x) / y),
    domain=((0.1, 0.9), (1.0, 1.5)),
)
fmod = elementwise(np.fmod, *remainder.partials, domain=remainder.domain)
copysign = elementwise(
    np.copysign,
    lambda x, y, out: np.sign(x) * np.copysign(1.0, y),
    None,
    domain=(POSITIVE, POSITIVE),
)
ldexp = elementwise(np.ldexp, lambda x, y, out: np.exp2(y), None)


# ---------------------------------------------------------------- slopes
def _scale(g: Any, slope: Any) -> Any:
    if type(g) is float and type(slope) is float:
        return g * slope if g and slope else 0.0
    product = np.multiply(g, slope)
    # Only beside an infinite or NaN factor does a product with 0 differ from 0.
    if math.isfinite(np.add.reduce(product, None)):
        return product
    return np.where((g == 0) | (slope == 0), np.zeros((), product.dtype), product)


scale = elementwise(_scale, lambda g, slope, out: slope, lambda g, slope, out: g, name="scale")
"""The product of an adjoint or tangent and a slope: where either is exactly 0 it is 0, whatever the other is."""

# ---------------------------------------------------------------- exponentials and logarithms
exp = elementwise(np.exp, lambda x, out: out)
exp2 = elementwise(np.exp2, lambda x, out: 0.6931471805599453 * out)
expm1 = elementwise(np.expm1, lambda x, out: out + 1.0)
log = elementwise(np.log, lambda x, out: 1.0 / x, domain=(POSITIVE,))
log2 = elementwise(np.log2, lambda x, out: 1.4426950408889634 / x, domain=(POSITIVE,))
log10 = elementwise(np.log10, lambda x, out: 0.4342944819032518 / x, domain=(POSITIVE,))
log1p = elementwise(np.log1p, lambda x, out: 1.0 / (1.0 + x), domain=(UNIT,))
sqrt = elementwise(np.sqrt, lambda x, out: 0.5 / out, domain=(POSITIVE,))
cbrt = elementwise(np.cbrt, lambda x, out: 1.0 / (3.0 * out * out), domain=(POSITIVE,))
# The weight of an operand that is the whole result is 1, of one at -inf beside another at -inf 0.
logaddexp = elementwise(
    np.logaddexp,
    lambda x, y, out: np.where(out == -np.inf, 0.0, np.where(x == out, 1.0, np.exp(x - out))),
    lambda x, y, out: np.where(out == -np.inf, 0.0, np.where(y == out, 1.0, np.exp(y - out))),
)
logaddexp2 = elementwise(
    np.logaddexp2,
    lambda x, y, out: np.where(out == -np.inf, 0.0, np.where(x == out, 1.0, np.exp2(x - out))),
    lambda x, y, out: np.where(out == -np.inf, 0.0, np.where(y == out, 1.0, np.exp2(y - out))),
)

# ---------------------------------------------------------------- trigonometric and hyperbolic
sin = elementwise(np.sin, lambda x, out: np.cos(x))
cos = elementwise(np.cos, lambda x, out: -np.sin(x))
tan = elementwise(np.tan, lambda x, out: 1.0 + out * out, domain=((-1.2, 1.2),))
arcsin = elementwise(np.arcsin, lambda x, out: 1.0 / np.sqrt((1.0 - x) * (1.0 + x)), domain=(UNIT,))
arccos = elementwise(np.arccos, lambda x, out: -1.0 / np.sqrt((1.0 - x) * (1.0 + x)), domain=(UNIT,))
arctan = elementwise(np.arctan, lambda x, out: 1.0 / (1.0 + x * x))
# Dividing twice by the hypotenuse neither overflows nor underflows where the slope itself does not.
arctan2 = elementwise(
    np.arctan2,
    lambda y, x, out: x / np.hypot(x, y) / np.hypot(x, y),
    lambda y, x, out: -y / np.hypot(x, y) / np.hypot(x, y),
    domain=(POSITIVE, ANY),
)
hypot = elementwise(
    np.hypot,
    lambda x, y, out: np.where(out == 0, 0.0, x / out),
    lambda x, y, out: np.where(out == 0, 0.0, y / out),
    domain=(POSITIVE, ANY),
)
sinh = elementwise(np.sinh, lambda x, out: np.cosh(x))
cosh = elementwise(np.cosh, lambda x, out: np.sinh(x))
tanh = elementwise(np.tanh, lambda x, out: (1.0 - out) * (1.0 + out))
arcsinh = elementwise(np.arcsinh, lambda x, out: 1.0 / np.hypot(x, 1.0))
arccosh = elementwise(np.arccosh, lambda x, out: 1.0 / np.sqrt((x - 1.0) * (x + 1.0)), domain=((1.2, 3.0),))
arctanh = elementwise(np.arctanh, lambda x, out: 1.0 / ((1.0 - x) * (1.0 + x)), domain=(UNIT,))
deg2rad = elementwise(np.deg2rad, lambda x, out: 0.017453292519943295)
radians = elementwise(np.radians, lambda x, out: 0.017453292519943295)
rad2deg = elementwise(np.rad2deg, lambda x, out: 57.29577951308232)
degrees = elementwise(np.degrees, lambda x, out: 57.29577951308232)

# ---------------------------------------------------------------- choosing: a tie gives half to each
maximum = elementwise(
    np.maximum,
    lambda x, y, out: np.where(x == y, 0.5, np.where(x > y, 1.0, 0.0)),
    lambda x, y, out: np.where(x == y, 0.5, np.where(y > x, 1.0, 0.0)),
)
minimum = elementwise(
    np.minimum,
    lambda x, y, out: np.where(x == y, 0.5, np.where(x < y, 1.0, 0.0)),
    lambda x, y, out: np.where(x == y, 0.5, np.where(y < x, 1.0, 0.0)),
)
# A NaN loses against a number: x != x tells a NaN.
fmax = elementwise(
    np.fmax,
    lambda x, y, out: np.where(x == y, 0.5, np.where((x > y) | (y != y), 1.0, 0.0)),
    lambda x, y, out: np.where(x == y, 0.5, np.where((y > x) | (x != x), 1.0, 0.0)),
)
fmin = elementwise(
    np.fmin,
    lambda x, y, out: np.where(x == y, 0.5, np.where((x < y) | (y != y), 1.0, 0.0)),
    lambda x, y, out: np.where(x == y, 0.5, np.where((y < x) | (x != x), 1.0, 0.0)),
)
heaviside = elementwise(np.heaviside, None, lambda x, y, out: np.where(x == 0, 1.0, 0.0), domain=(POSITIVE, ANY))


def _select(condition: Any, x: Any, y: Any) -> Any:
    return np.where(condition, x, y)


where = elementwise(
    _select,
    None,
    lambda condition, x, y, out: np.where(condition != 0, 1.0, 0.0),
    lambda condition, x, y, out: np.where(condition != 0, 0.0, 1.0),
    name="where",
)


@handles(np.where)
def _where(condition: Any, *branches: Any) -> Any:
    if not branches:
        return np.nonzero(condition)
    if isinstance(condition, bool | np.bool_):  # as in a partial whose exponent is a plain number
        chosen, other = branches if condition else branches[::-1]
        if type(other) is float and hasattr(chosen, "shape"):
            return positive(chosen)
    return where(condition, *branches)


@handles(np.clip)
def clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **keywords: Any) -> Any:
    """Clip as minimum(maximum(a, a_min), a_max): the bounds are differentiable, ties are shared."""
    low = keywords.pop("min", a_min)
    high = keywords.pop("max", a_max)
    result = a if low is None else np.maximum(a, low, **keywords)
    result = result if high is None else np.minimum(result, high, **keywords)
    if low is None and high is None:
        result = +a
    if out is not None:
        out[...] = result
        return out
    return result


# ---------------------------------------------------------------- zero slope: recorded, never differentiated
for _ufunc in (
    *(
        np.sign,
        np.floor,
        np.ceil,
        np.trunc,
        np.rint,
        np.floor_divide,
        np.signbit,
        np.isnan,
        np.isinf,
        np.isfinite,
    ),
    *(np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal),
    *(np.logical_and, np.logical_or, np.logical_xor, np.logical_not),
    *(np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.left_shift, np.right_shift),
    *(np.bitwise_count, np.gcd, np.lcm),
):
    elementwise(_ufunc, *[None] * _ufunc.nin)


@handles(np.modf)
def modf(x: Any) -> Any:
    """Give the fractional part, of slope 1, and the whole part, of slope 0."""
    whole = np.trunc(x)
    return np.copysign(x - whole, x), whole


# ---------------------------------------------------------------- functions that are not ufuncs
def sinc_derivative(x: Any, order: Any) -> Any:
    """Give the derivative of the given order of sin(pi x) / (pi x), to full accuracy at and near 0."""
    x, order = np.broadcast_arrays(x, order)
    result = np.zeros(x.shape, np.result_type(x.dtype, np.float32))
    for n in np.unique(order):
        chosen = order == n
        result[chosen] = _sinc_derivative(np.pi * x[chosen].astype(np.float64), int(n))
    return result[()]


def _sinc_derivative(u: Any, n: int) -> Any:
    """Differentiate n times, with u = pi x and s_n the n-th derivative of sin(u)/u.

    u s_n + n s_(n-1) = sin(u + n pi/2), by Leibniz' rule on u s_0 = sin(u). The recurrence is stable for |u| > n;
    below, the Taylor series converges in a few terms.
    """
    small = np.abs(u) <= n + 1
    far = np.where(small, n + 2.0, u)
    value = np.sin(far) / far
    for k in range(1, n + 1):
        value = (np.sin(far + 0.5 * k * np.pi) - k * value) / far
    # The coefficient of u**(2k - n) is (-1)**k / ((2k + 1) (2k - n)!).
    near = np.where(small, u, 0.0)
    series = np.zeros_like(near)
    term = near.copy() if n % 2 else np.ones_like(near)
    first = (n + 1) // 2
    for k in range(first, first + n + 16):
        series += (-1.0) ** k / (2 * k + 1) * term
        term = term * near * near / ((2 * k - n + 1) * (2 * k - n + 2))
    return np.where(small, series, value) * np.pi**n


def _next_slope(x: Any, order: Any) -> Any:
    return sinc_slope(x, order + 1)


sinc_slope: Elementwise = elementwise(
    sinc_derivative, lambda x, order, out: _next_slope(x, order), None, name="sinc_derivative"
)
sinc = elementwise(np.sinc, lambda x, out: sinc_slope(x, 1), name="sinc")
handles(np.sinc)(sinc)


nan_to_num = elementwise(np.nan_to_num, lambda x, out: np.where(np.isfinite(x), 1.0, 0.0), name="nan_to_num")


@handles(np.nan_to_num)
def _nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    if nan == 0.0 and posinf is None and neginf is None:
        return nan_to_num(x)
    info = np.finfo(x.dtype)
    high = info.max if posinf is None else posinf
    low = info.min if neginf is None else neginf
    finite = np.where(np.isnan(x), nan, x)
    return np.where(finite == np.inf, high, np.where(finite == -np.inf, low, finite))


@handles(np.real)
def real(val: Any) -> Any:
    """Give the real part; recorded values are real."""
    return val


@handles(np.imag)
def imag(val: Any) -> Any:
    """Give the imaginary part of a real value: zeros."""
    return np.zeros_like(val)


@handles(np.angle)
def angle(z: Any, deg: bool = False) -> Any:
    """Give the angle of a real value: 0 or pi."""
    return np.where(z < 0, 180.0 if deg else np.pi, 0.0)


@handles(np.fix)
def fix(x: Any, out: Any = None) -> Any:
    """Round towards zero."""
    return np.trunc(x) if out is None else np.trunc(x, out=out)


frexp_exponent = structural(lambda x: np.frexp(x)[1], name="frexp_exponent")


def frexp(x: Any) -> Any:
    """Give the mantissa, of slope 2**-exponent, and the exponent, of slope 0."""
    exponent = frexp_exponent(x)
    return np.ldexp(x, -exponent), exponent


MULTIPLE_OUTPUTS = {
    np.modf: modf,
    np.divmod: lambda x, y: (np.floor_divide(x, y), np.remainder(x, y)),
    np.frexp: frexp,
}
"""Ufuncs with several outputs, told in terms of functions with one."""


# ---------------------------------------------------------------- a root whose slope at 0 is 0
def _root(x: Any) -> Any:
    return np.sqrt(x)


root = elementwise(_root, lambda x, out: np.where(out == 0, 0.0, 0.5 / out), name="root", domain=(POSITIVE,))
"""The square root in std and norm: at 0 it has the least of its subgradients, 0, where sqrt has an infinite slope."""
