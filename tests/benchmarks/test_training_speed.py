"""A training step beside PyTorch's: `pytest -o addopts= tests/benchmarks/test_training_speed.py`.

A classifier of 784 inputs, 256 hidden units and 10 classes, in batches of 128, on one thread. A step is forward,
backward and update. The ratio is that of medians of the two libraries, whose steps take turns.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tape import Parameter
from tape.imperative.module import Module
from tape.imperative.optimisers import SGD, Adam

BATCH, SIZES = 128, (784, 256, 10)

OPTIMISERS = {"SGD": {"lr": 0.1}, "SGD with momentum": {"lr": 0.05, "momentum": 0.9}, "Adam": {"lr": 1e-3}}

Step = Callable[[], Any]


class Classifier(Module):
    def __init__(self, weights: list[Any]) -> None:
        self.w1, self.w2 = (Parameter(w) for w in weights)
        self.b1, self.b2 = (Parameter(np.zeros(w.shape[1], w.dtype)) for w in weights)

    def forward(self, x: Any) -> Any:
        return np.maximum(x @ self.w1 + self.b1, 0) @ self.w2 + self.b2


def cross_entropy(scores: Any, rows: Any, labels: Any) -> Any:
    scores = scores - np.max(scores, axis=1, keepdims=True)
    return np.mean(np.log(np.sum(np.exp(scores), axis=1)) - scores[rows, labels])


def problem(dtype: Any) -> tuple[list[Any], Any, Any]:
    rng = np.random.default_rng(0)
    weights = [(rng.normal(size=(n, m)) * n**-0.5).astype(dtype) for n, m in itertools.pairwise(SIZES)]
    return weights, rng.random((BATCH, SIZES[0])).astype(dtype), rng.integers(0, SIZES[-1], BATCH)


def ours(name: str, dtype: Any, way: str) -> Step:
    weights, x, labels = problem(dtype)
    net, rows = Classifier(weights), np.arange(BATCH)
    optimiser = (Adam if name == "Adam" else SGD)(net.parameters(), **OPTIMISERS[name])

    def step() -> Any:
        loss = cross_entropy(net(x), rows, labels)
        if way == "minimise":
            optimiser.minimise(loss)
        else:
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return loss.item()

    return step


def theirs(name: str, dtype: Any, _: str) -> Step:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    weights, x, labels = problem(dtype)
    net = torch.nn.Sequential(torch.nn.Linear(*SIZES[:2]), torch.nn.ReLU(), torch.nn.Linear(*SIZES[1:]))
    net = net.to(torch.from_numpy(x).dtype)
    with torch.no_grad():
        for layer, w in zip((net[0], net[2]), weights, strict=True):
            layer.weight.copy_(torch.from_numpy(w.T.copy()))
            layer.bias.zero_()
    kind = torch.optim.Adam if name == "Adam" else torch.optim.SGD
    optimiser = kind(net.parameters(), **OPTIMISERS[name])
    x, labels = torch.from_numpy(x), torch.from_numpy(labels)
    criterion = torch.nn.CrossEntropyLoss()

    def step() -> Any:
        optimiser.zero_grad()
        loss = criterion(net(x), labels)
        loss.backward()
        optimiser.step()
        return loss.item()

    return step


CASES = pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name in OPTIMISERS for dtype in (np.float32, np.float64)]
)


@pytest.mark.parametrize("way", ["minimise", "backward and step"])
@CASES
def test_step_beside_pytorch(benchmark: Any, name: str, dtype: Any, way: str) -> None:
    """Time one step; the extra information gives the ratio to PyTorch's, which must compute the same losses."""
    other, own = theirs(name, dtype, way), ours(name, dtype, way)
    tolerance = 1e-3 if dtype is np.float32 else 1e-9
    np.testing.assert_allclose([own() for _ in range(5)], [other() for _ in range(5)], rtol=tolerance)
    benchmark.group = f"training step, {name}, {np.dtype(dtype).name}"
    if benchmark.enabled:
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(300):
            for step, found in zip((own, other), times, strict=True):
                begin = time.perf_counter()
                step()
                found.append(time.perf_counter() - begin)
        mine, its = (statistics.median(found) for found in times)
        benchmark.extra_info["us a step"] = mine * 1e6
        benchmark.extra_info["us a step of PyTorch"] = its * 1e6
        benchmark.extra_info["ratio to PyTorch"] = mine / its
        print(f"{name}, {np.dtype(dtype).name}, {way}: {mine * 1e6:.0f} us, PyTorch {its * 1e6:.0f}: {mine / its:.2f}")
    benchmark(own)
