"""Sparse derivatives and their patterns: `pytest -o addopts= tests/benchmarks/test_sparse_speed.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tape import grad, hessian_sparsity, jacobian_sparsity, sparse_hessian, sparse_jacobian


def rosenbrock(x: Any) -> Any:
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def arrow_head(x: Any) -> Any:
    return np.sum(x[0] * x[1:] ** 2)


def laplacian(u: Any) -> Any:
    u = np.reshape(u, (100, 100))
    p = np.pad(u, 1)
    return np.ravel(4 * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2] + np.exp(u))


def steps(u: Any) -> Any:
    for _ in range(50):
        p = np.pad(u, 1)
        u = u + 0.1 * (p[2:] - 2 * u + p[:-2]) + 0.01 * u * (1 - u)
    return u


def loop(x: Any) -> Any:
    total = 0.0
    for i in range(len(x) - 1):
        total += 100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2
    return total


CASES = {
    "gradient of rosenbrock, 100,000 (for comparison)": (grad(rosenbrock), 100_000),
    "hessian of rosenbrock, 100,000": (sparse_hessian(rosenbrock), 100_000),
    "its pattern": (hessian_sparsity(rosenbrock), 100_000),
    "hessian of an arrow-head, 100,000": (sparse_hessian(arrow_head), 100_000),
    "jacobian of a laplacian, 100 x 100": (sparse_jacobian(laplacian), 10_000),
    "jacobian of 50 time steps, 10,000": (sparse_jacobian(steps), 10_000),
    "pattern of a loop over 100,000 numbers": (jacobian_sparsity(loop), 100_000),
    "dense jacobian, 1,000": (sparse_jacobian(lambda x: np.sum(x**2) * np.sin(x)), 1000),
}


@pytest.mark.parametrize("case", CASES)
def test_sparse(benchmark: Any, case: str) -> None:
    """Time one call, the function's included."""
    f, size = CASES[case]
    x = np.linspace(-1.0, 1.0, size)
    f(x)
    benchmark.group = "sparse derivatives"
    benchmark(f, x)
    plan = getattr(f, "plan", None)
    if plan is not None:
        benchmark.extra_info["sweeps"] = plan.sweeps
