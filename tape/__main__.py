"""The main job, ``python -m tape``: fit a model to real data with gradients of plain NumPy code."""

from __future__ import annotations

import argparse
import logging
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from tape import hessian, jacobian, show, value_and_grad
from tape.data import breast_cancer

_PENALTY = 1.0
_HOLD_OUT = 4
"""One row in this many is kept for judging the fit."""


# ---------------------------------------------------------------- what is being compiled
class _Compiling(logging.Handler):
    """Says on standard error what is being compiled: one line that changes on a terminal, a line for each elsewhere."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.live = sys.stderr.isatty()
        self.width = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if self.live:
            sys.stderr.write("\r" + text.ljust(self.width))
            self.width = len(text)
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def done(self) -> None:
        if self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            self.width = 0


@contextmanager
def _saying_what_is_compiled() -> Iterator[None]:
    log = logging.getLogger("tape.compile")
    handler = _Compiling()
    level, propagate = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        handler.done()
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate


# ---------------------------------------------------------------- the main job
def logistic_loss(features: Any, labels: Any, penalty: float = _PENALTY) -> Callable[[Any], Any]:
    """Make the mean negative log-likelihood of a logistic regression, with a penalty on its weights.

    Its argument holds the weights of the features and, last, the intercept, which is not penalised.
    """

    def loss(parameters: Any) -> Any:
        weights, intercept = parameters[:-1], parameters[-1]
        z = features @ weights + intercept
        return np.mean(np.logaddexp(0, z) - labels * z) + penalty / (2 * len(labels)) * np.sum(weights**2)

    return loss


def central_differences(f: Callable[[Any], Any], x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Approximate a gradient by two evaluations for each element."""
    step = np.cbrt(np.finfo(float).eps)
    result = np.empty_like(x)
    for i in range(len(x)):
        h = step * max(1.0, abs(x[i]))
        above, below = x.copy(), x.copy()
        above[i] += h
        below[i] -= h
        result[i] = (f(above) - f(below)) / (above[i] - below[i])
    return result


def _medians(functions: list[Callable[[], Any]], repeats: int = 300) -> list[float]:
    """Time functions in turn; give the median of each, in seconds."""
    times = np.empty((repeats, len(functions)))
    for repeat in range(repeats):
        for k, f in enumerate(functions):
            start = time.perf_counter()
            f()
            times[repeat, k] = time.perf_counter() - start
    return np.median(times, axis=0).tolist()


def demo() -> None:
    """Fit a regularised logistic regression and print what came of it."""
    from scipy.optimize import minimize

    features, labels, _ = breast_cancer()
    held_out = np.arange(len(labels)) % _HOLD_OUT == _HOLD_OUT - 1
    centre, spread = features[~held_out].mean(axis=0), features[~held_out].std(axis=0)
    standard = (features - centre) / spread
    loss = logistic_loss(standard[~held_out], labels[~held_out])
    start = np.zeros(standard.shape[1] + 1)

    print("data            Breast Cancer Wisconsin (Diagnostic), UCI Machine Learning Repository, CC BY 4.0")
    print(f"                {len(labels)} tumours, {features.shape[1]} features; one in {_HOLD_OUT} held out")
    with _saying_what_is_compiled():
        loss_and_gradient = value_and_grad(loss)
        loss_and_gradient(start)
        fit = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B")
    right = (standard @ fit.x[:-1] + fit.x[-1] > 0) == (labels > 0.5)
    print(f"model           logistic regression, ridge penalty {_PENALTY:g}, fitted by L-BFGS-B")
    print(f"loss            {loss(start):.6f} before, {fit.fun:.6f} after {fit.nfev} gradients")
    print(f"accuracy        {right[~held_out].mean():.1%} fitted, {right[held_out].mean():.1%} held out")

    # At the optimum the gradient vanishes; compare where it does not.
    somewhere = np.random.default_rng(0).normal(size=len(start))
    gradient = loss_and_gradient(somewhere)[1]
    error = np.abs(gradient - central_differences(loss, somewhere)) / np.abs(gradient).max()
    print(f"gradient        differs from central differences by {error.max():.1e} of its largest element")

    forward, both = _medians([lambda: loss(fit.x), lambda: loss_and_gradient(fit.x)])
    print(
        f"time            {both * 1e6:.0f} µs for loss and gradient, {forward * 1e6:.0f} µs for the loss in plain NumPy"
    )
    print(f"                ({both / forward:.1f} times; central differences take {2 * len(start)} times)")
    print("\nThe head of the tape (python -m tape --help tells what else there is):\n")
    print(show(loss, start, head=12, tail=2))


# ---------------------------------------------------------------- info
def _cache_directory() -> str:
    from tape.sweep import sweep

    path = sweep.stats.cache_path
    if path is None:
        return "none is writable: every process compiles again"
    stored = [p for p in Path(path).glob("*.nb?") if p.suffix in (".nbc", ".nbi")]
    return f"{path} ({len(stored)} files, {sum(p.stat().st_size for p in stored) / 1e6:.1f} MB)"


def _blas() -> str:
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()


def info() -> None:
    """Print versions, the place of the cache and the vector math in use."""
    import llvmlite.binding as llvm

    from ops.vectormath import mechanism

    rows = {"python": f"{platform.python_version()} ({platform.system()} {platform.machine()})"}
    for name in ("wengert", "numpy", "numba", "llvmlite", "scipy", "optree"):
        try:
            rows[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            rows[name] = "not installed (used from its source)"
    rows["cpu"] = llvm.get_host_cpu_name()
    rows["vector math"] = mechanism()
    rows["BLAS of NumPy"] = _blas()
    rows["cache"] = _cache_directory()
    for name, value in rows.items():
        print(f"{name:14}  {value}")


# ---------------------------------------------------------------- warm
class _Bar:
    """A progress bar on standard error: tqdm's where it is installed."""

    def __init__(self, total: int) -> None:
        self.total, self.count = total, 0
        self.bar: Any = None
        try:
            from tqdm import tqdm
        except ImportError:
            return
        self.bar = tqdm(total=total, unit="op")

    def __call__(self, name: str) -> None:
        if self.bar is not None:
            self.bar.set_description(name)
            self.bar.update()
            return
        self.count += 1
        if sys.stderr.isatty():
            filled = 30 * self.count // self.total
            sys.stderr.write(f"\r[{'#' * filled}{'.' * (30 - filled)}] {self.count}/{self.total} {name:24}")
        elif self.count % 10 == 0 or self.count == self.total:
            sys.stderr.write(f"{self.count}/{self.total} {name}\n")
        sys.stderr.flush()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
        elif sys.stderr.isatty():
            sys.stderr.write("\n")


def warm(second_order: bool = False) -> None:
    """Compile everything ahead, so that no later process has to; what Hessians need only if asked for."""
    import importlib

    from ops.catalog import OPS, Elementwise
    from tape import kernels, second_kernels, table

    importlib.import_module("ops.special")
    begin = time.perf_counter()
    chosen = [op for op in OPS if isinstance(op, Elementwise) and any(kernels.compilable(op, p) for p in range(op.nin))]
    bar = _Bar((1 + second_order) * len(chosen) + 1)
    bar("reverse sweep")
    value_and_grad(lambda x: np.sum(x * x) * 1.0)(np.ones(2))
    hessian(lambda x: np.sum(x * x) * 1.0)(np.ones(2))
    jacobian(lambda x: x * 1.0)(np.ones(2))
    table.prepare_all()
    count = kernels.warm(bar) + (second_kernels.warm(bar) if second_order else 0)
    bar.close()
    print(f"{count} kernels ready after {time.perf_counter() - begin:.0f} s, in {_cache_directory()}")


def main(arguments: list[str] | None = None) -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(
        prog="python -m tape",
        description="Fit a logistic regression to real data with gradients of plain NumPy code, and show how.",
    )
    commands: dict[str, Callable[[], None]] = {"demo": demo, "info": info}
    parser.add_argument(
        "command",
        nargs="?",
        choices=[*commands, "warm"],
        default="demo",
        help="demo (the default): the fit; info: versions, cache, vector math; warm: compile every kernel ahead",
    )
    parser.add_argument("--second-order", action="store_true", help="warm: compile what Hessians need too")
    given = parser.parse_args(arguments)
    if given.command == "warm":
        warm(given.second_order)
    else:
        commands[given.command]()


if __name__ == "__main__":
    main()
