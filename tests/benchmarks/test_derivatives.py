"""Derivatives of every kind beside HIPS autograd, where installed: `pytest -o addopts= tests/benchmarks`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tape import grad, hessian, hvp, jacobian_forward, jvp
from tape.trace import Trace


def rosenbrock(np: Any, x: Any) -> Any:
    """Give the Rosenbrock function of any number of variables."""
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def mixture(np: Any, x: Any) -> Any:
    """Give a function whose Hessian is dense."""
    return np.log(np.sum(np.exp(np.sin(x) * x))) + np.sum(np.tanh(x) ** 2) * np.sum(x * x)


def chain(np: Any, x: Any) -> Any:
    """Give a function of 150 operations."""
    y = x
    for _ in range(50):
        y = np.sin(y) * x + 0.1
    return np.sum(y)


FUNCTIONS = [rosenbrock, mixture, chain]
X = np.random.default_rng(0).normal(size=50)
V = np.cos(X)
LARGE = np.random.default_rng(1).normal(size=1_000_000)


def libraries(f: Any) -> dict[str, tuple[Any, Any, Any]]:
    """Give gradient, Hessian and Hessian-vector product by each library."""

    def ours(x: Any) -> Any:
        return f(np, x)

    found: dict[str, tuple[Any, Any, Any]] = {"wengert": (grad(ours), hessian(ours), lambda x, v: hvp(ours, x, v))}
    try:
        import autograd
        import autograd.numpy as anp
    except ImportError:
        return found

    def theirs(x: Any) -> Any:
        return f(anp, x)

    found["autograd"] = (
        autograd.grad(theirs),
        autograd.hessian(theirs),
        lambda x, v: autograd.hessian_vector_product(theirs)(x, v),
    )
    return found


@pytest.mark.parametrize("library", libraries(rosenbrock))
@pytest.mark.parametrize("what", ["gradient", "Hessian", "Hessian-vector product"])
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_second_order(benchmark: Any, f: Any, what: str, library: str) -> None:
    """Time derivatives of a function of 50 variables."""
    known = libraries(f)
    benchmark.group = f"{what} of {f.__name__}, 50 variables"
    position = ["gradient", "Hessian", "Hessian-vector product"].index(what)
    arguments = (X, V) if position == 2 else (X,)
    got = known[library][position](*arguments)
    np.testing.assert_allclose(got, known["wengert"][position](*arguments), rtol=1e-9, atol=1e-9)
    benchmark(known[library][position], *arguments)


@pytest.mark.parametrize("what", ["function", "recording", "jvp"])
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_forward_mode_on_small_arrays(benchmark: Any, f: Any, what: str) -> None:
    """Time a jvp beside recording the function alone."""

    def bound(x: Any) -> Any:
        return f(np, x)

    def record() -> None:
        with Trace(bound, 0, (X,), {}):
            pass

    benchmark.group = f"forward mode, {f.__name__}, 50 variables"
    runs: dict[str, Callable[[], Any]] = {
        "function": lambda: bound(X), "recording": record, "jvp": lambda: jvp(bound, (X,), (V,)),
    }  # fmt: skip
    benchmark(runs[what])


def elementwise(x: Any) -> Any:
    """Give a function of twenty operations on each element."""
    y = x
    for _ in range(4):
        y = np.tanh(y) * x + np.exp(-y * y)
    return y


@pytest.mark.parametrize("what", ["function", "gradient", "jvp", "hvp"])
def test_large_arrays(benchmark: Any, what: str) -> None:
    """Time derivatives of elementwise operations on a million elements."""
    direction = np.cos(LARGE)

    def total(x: Any) -> Any:
        return np.sum(elementwise(x))

    benchmark.group = "20 elementwise operations, 1,000,000 elements"
    runs: dict[str, Callable[[], Any]] = {
        "function": lambda: elementwise(LARGE), "gradient": lambda: grad(total)(LARGE),
        "jvp": lambda: jvp(elementwise, (LARGE,), (direction,)), "hvp": lambda: hvp(total, LARGE, direction),
    }  # fmt: skip
    benchmark.pedantic(runs[what], rounds=7, warmup_rounds=1)


@pytest.mark.parametrize("what", ["ten jvps", "jacobian"])
def test_tall_jacobian(benchmark: Any, what: str) -> None:
    """Time the Jacobian of 10,000 results by 10 variables beside ten jvps."""
    a = np.random.default_rng(2).normal(size=(10_000, 10))
    x = np.full(10, 0.3)

    def f(x: Any) -> Any:
        return np.tanh(a @ x) ** 2

    benchmark.group = "Jacobian, 10 variables, 10,000 results"
    runs: dict[str, Callable[[], Any]] = {
        "ten jvps": lambda: [jvp(f, (x,), (row,)) for row in np.eye(10)], "jacobian": lambda: jacobian_forward(f)(x),
    }  # fmt: skip
    benchmark(runs[what])
