"""Gradients beside NumPy's own forward time and the peers that are installed: `pytest -o addopts= tests/benchmarks`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from peers import ALL, available
from workloads import all_workloads

from tape import adjoints, sweep

WORKLOADS = all_workloads()


def bound(f: Any, data: tuple[Any, ...], library: str) -> Any:
    """Give the data to a function, in the arrays of the library."""
    if library == "torch":
        import torch

        data = tuple(torch.tensor(d) for d in data)
    return lambda xp, *arguments: f(xp, *arguments, *data)


@pytest.mark.parametrize("library", available())
@pytest.mark.parametrize("workload", WORKLOADS)
def test_gradient(benchmark: Any, workload: str, library: str) -> None:
    """Time one gradient; the values must agree with this library's."""
    f, arguments, data = WORKLOADS[workload]
    benchmark.group = workload
    try:
        run = ALL[library](bound(f, data, library), arguments)
        got = run()
    except NotImplementedError as reason:
        pytest.skip(str(reason))
    if library not in ("numpy (function only)", "wengert"):
        expected = ALL["wengert"](bound(f, data, "wengert"), arguments)()
        for g, e in zip(got, expected, strict=True):
            np.testing.assert_allclose(np.asarray(g), e, rtol=1e-9, atol=1e-11)
    benchmark(run)


@pytest.mark.parametrize("workload", ["chain of 150 ops, 10 elements", "logistic map, 2500 ops on numbers"])
def test_sweep(benchmark: Any, workload: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time the reverse sweep alone; the extra information gives nanoseconds an entry and bytes of tape an entry."""
    f, arguments, data = WORKLOADS[workload]
    benchmark.group = "the reverse sweep alone"
    run = adjoints.Adjoints.run

    def timed(self: Any, seeds: Any) -> None:
        run(self, seeds)
        m, last = self.machine, self.last

        def prepare() -> None:
            sweep.reset(m, 0, last)
            self.memory.heads[:] = 0
            for w in self.wanted:
                self.active[w._slot] = 2
            sweep.activate(m, self.first, last)
            self.reserve()
            self._deliver(last, seeds[0])

        benchmark.pedantic(lambda: sweep.sweep(m, last, self.first), setup=prepare, rounds=500)
        if benchmark.enabled:
            benchmark.extra_info["ns an entry"] = benchmark.stats.stats.median / (last + 1) * 1e9
        prepare()
        sweep.sweep(m, last, self.first)

    monkeypatch.setattr(adjoints.Adjoints, "run", timed)
    ALL["wengert"](bound(f, data, "wengert"), arguments)()
