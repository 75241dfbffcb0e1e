"""Loops of `backward` on small arrays beside PyTorch and MyGrad: `pytest -o addopts= tests/benchmarks`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from workloads import chain

from tape import tensor

DATA = 0.1 * np.random.default_rng(0).random(10)


def product(xp: Any, x: Any) -> Any:
    """Two operations."""
    return xp.sum(x * x)


def ours(f: Callable[..., Any]) -> Callable[[], Any]:
    x = tensor(DATA)

    def step() -> Any:
        x.grad = None
        f(np, x).backward()
        return x.grad

    return step


def torch_step(f: Callable[..., Any]) -> Callable[[], Any]:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    x = torch.tensor(DATA, requires_grad=True)

    def step() -> Any:
        x.grad = None
        f(torch, x).backward()
        return x.grad

    return step


def mygrad_step(f: Callable[..., Any]) -> Callable[[], Any]:
    mygrad = pytest.importorskip("mygrad")
    x = mygrad.tensor(DATA)

    def step() -> Any:
        f(mygrad, x).backward()
        return x.grad

    return step


@pytest.mark.parametrize("peer", [torch_step, mygrad_step])
@pytest.mark.parametrize("f", [chain, product])
def test_backward_loop(benchmark: Any, f: Any, peer: Any) -> None:
    """Time one pass; the extra information gives the peer's time in units of ours, their loops taking turns."""
    own, other = ours(f), peer(f)
    np.testing.assert_allclose(np.asarray(other()), own(), rtol=1e-12)
    benchmark.group = f"a backward pass, {f.__name__}"
    if benchmark.enabled:
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(8):
            for step, found in zip((own, other), times, strict=True):
                for _ in range(50):
                    begin = time.perf_counter()
                    step()
                    found.append(time.perf_counter() - begin)
        mine, its = (statistics.median(found) for found in times)
        benchmark.extra_info["peer in units of ours"] = its / mine
        print(f"{f.__name__}, {peer.__name__}: {mine * 1e6:.0f} us, peer {its * 1e6:.0f}: {its / mine:.2f}")
    benchmark(own)
