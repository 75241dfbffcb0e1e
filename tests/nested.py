"""Every transform as a derivative of functions of one number, for tests that nest them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tape import (
    elementwise_grad,
    grad,
    hessian,
    hessian_diagonal,
    hvp,
    jacobian_forward,
    jacobian_reverse,
    jvp,
    linearize,
    value_and_grad,
    value_and_jacobian,
    vhp,
    vjp,
)

Function = Callable[..., Any]
X = np.array([0.3, -1.2, 0.8])


def d_grad(f: Function) -> Function:
    return grad(f)


def d_jvp(f: Function) -> Function:
    return lambda x: jvp(f, (x,), (1.0,))[1]


def d_vjp(f: Function) -> Function:
    def derivative(x: Any) -> Any:
        _, pullback = vjp(f, x)
        return pullback(1.0)[0]

    return derivative


def d_linearize(f: Function) -> Function:
    return lambda x: linearize(f, x)[1](1.0)


def d_value(f: Function) -> Function:
    return lambda x: value_and_grad(f)(x)[1]


def d_elementwise(f: Function) -> Function:
    return elementwise_grad(f)


def d_forward(f: Function) -> Function:
    return jacobian_forward(f)


def d_reverse(f: Function) -> Function:
    return jacobian_reverse(f)


def d_both(f: Function) -> Function:
    return lambda x: value_and_jacobian(f)(x)[1]


WAYS = [d_grad, d_jvp, d_vjp, d_linearize, d_value, d_elementwise, d_forward, d_reverse, d_both]
SECOND = [hessian, hessian_diagonal, lambda f: lambda x: hvp(f, x, 1.0), lambda f: lambda x: vhp(f, x, 1.0)]


def smooth(x: Any) -> Any:
    return np.exp(np.sin(x)) / (1.0 + x * x)


def exact(order: int, x: float = 0.4) -> float:
    """Differentiate `smooth` by its Taylor series around x, computed on coefficients."""
    n = 8
    s, c = np.zeros(n), np.zeros(n)
    for k in range(n):
        s[k] = (math.sin(x), math.cos(x), -math.sin(x), -math.cos(x))[k % 4] / math.factorial(k)
    e = np.zeros(n)
    e[0] = math.exp(s[0])
    for k in range(1, n):
        e[k] = sum(j * s[j] * e[k - j] for j in range(1, k + 1)) / k
    q = np.zeros(n)
    q[:3] = 1 + x * x, 2 * x, 1
    for k in range(n):
        c[k] = (e[k] - sum(q[j] * c[k - j] for j in range(1, k + 1))) / q[0]
    return float(c[order] * math.factorial(order))
