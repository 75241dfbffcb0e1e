"""What the benchmarks compute: plain functions of an array module and arrays, from one number to a million elements."""

from __future__ import annotations

from typing import Any

import numpy as np


def chain(xp: Any, x: Any) -> Any:
    """150 operations in a row."""
    for _ in range(50):
        x = xp.sin(x) * x + x
    return xp.sum(x)


def logistic_map(xp: Any, r: Any, x: Any) -> Any:
    """500 steps of five operations on numbers."""
    total = 0.0
    for _ in range(500):
        x = r * x * (1.0 - x)
        total = total + x * x
    return total / 500


def elementwise20(xp: Any, x: Any) -> Any:
    """Twenty elementwise operations, then a sum."""
    a = xp.sin(x * 0.7 + 0.1)
    b = a * a + 1.0
    c = xp.sqrt(b)
    d = xp.exp(-c)
    f = xp.tanh(d * a - 0.25)
    h = xp.log(f * x + 2.0)
    i = h / b
    k = i * i + c
    return xp.sum(xp.cos(h * (1.0 / k)))


def logistic_regression(xp: Any, w: Any, b: Any, X: Any, y: Any) -> Any:
    """Ten thousand observations of a hundred features."""
    z = y * (X @ w + b)
    return xp.sum(xp.logaddexp(X[:, 0] * 0.0, -z)) / 10_000 + 0.0005 * xp.sum(w * w)


def perceptron(xp: Any, W1: Any, b1: Any, W2: Any, b2: Any, X: Any, Y: Any) -> Any:
    """A network of 784, 256 and 10 units on a batch of 128, with softmax and cross-entropy."""
    hidden = X @ W1 + b1
    hidden = xp.where(hidden > 0, hidden, 0.0 * hidden)
    o = hidden @ W2 + b2
    return (xp.sum(xp.log(xp.sum(xp.exp(o), 1))) - xp.sum(Y * o)) / 128


def rosenbrock(xp: Any, x: Any) -> Any:
    """The Rosenbrock function."""
    return xp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def _perceptron_data(rng: np.random.Generator) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape) / np.sqrt(shape[0])

    X, Y = rng.uniform(size=(128, 784)), np.eye(10)[rng.integers(0, 10, 128)]
    return (normal(784, 256), 0.1 * normal(256), normal(256, 10), 0.1 * normal(10)), (X, Y)


def _regression_data(rng: np.random.Generator) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    X = rng.standard_normal((10_000, 100))
    y = np.where(X @ rng.standard_normal(100) > 0, 1.0, -1.0)
    return (0.1 * rng.standard_normal(100), np.array(0.05)), (X, y)


def all_workloads() -> dict[str, tuple[Any, tuple[Any, ...], tuple[Any, ...]]]:
    """Give each workload: the function, the arguments to differentiate, the data."""
    rng = np.random.default_rng(5)
    return {
        "chain of 150 ops, 10 elements": (chain, (0.1 * rng.random(10),), ()),
        "logistic map, 2500 ops on numbers": (logistic_map, (np.array(3.2), np.array(0.3)), ()),
        "20 elementwise ops, 1e6 elements": (elementwise20, (rng.uniform(-1, 1, 1_000_000),), ()),
        "logistic regression, 10000 x 100": (logistic_regression, *_regression_data(rng)),
        "perceptron, 784-256-10": (perceptron, *_perceptron_data(rng)),
        "rosenbrock, n = 100": (rosenbrock, (rng.random(100),), ()),
        "rosenbrock, n = 100000": (rosenbrock, (rng.random(100_000),), ()),
    }
