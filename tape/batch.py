"""Many seeds at once: where native sweeps can do all of them, over several threads if that pays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from tape.adjoints import Adjoints
from tape.compiled import CHECKED
from tape.errors import MissingPackageError
from tape.layout import Layout
from tape.machine import NEEDED
from tape.memory import Sweep
from tape.rows import PORT, pull_rows, push_rows
from tape.tangents import Tangents
from tape.tensor import Tensor
from tape.trace import paused
from tape.wengert import Tape

Worker = TypeVar("Worker")

SERIAL = 2e7
"""Nanoseconds of work below which one thread does it all."""

PIECE = 1e8
"""Nanoseconds of work that are one compiled call at most."""

PIECES = 64
"""In how many pieces a worker does its part if there is a progress bar: it moves between two of them."""


def ports_of(slots: list[Tensor], results: list[np.ndarray[Any, Any]] | None) -> np.ndarray[Any, Any]:
    """Tell the ports of slots (see `tape.rows`); `results` is where the results of all rows go."""
    ports = np.zeros((max(len(slots), 1), PORT), np.int64)
    for k, t in enumerate(slots):
        layout = t._layout
        address = 0 if results is None else results[k].ctypes.data
        ports[k] = t._slot, int(layout.cell), layout.size, layout.dtype.itemsize, address
    return ports


def progress_bar(total: int, wanted: bool) -> Callable[[int], None]:
    """Give what moves a progress bar; one that does nothing if none is wanted."""
    if not wanted:
        return lambda count: None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise MissingPackageError("progress=True needs the package tqdm: install it, or leave progress out") from None

    bar: Any = tqdm(total=total, unit="sweep")

    def move(count: int) -> None:
        bar.update(count)
        if bar.n >= total:
            bar.close()

    return move


def sweep_many(
    tape: Tape,
    inputs: list[Tensor],
    outputs: list[Tensor],
    *,
    forward: bool,
    seeds: np.ndarray[Any, Any] | None = None,
    progress: bool = False,
) -> list[np.ndarray[Any, Any]]:
    """Sweep once for each seed.

    Parameters
    ----------
    inputs, outputs : list of Tensor
        Each slot once.
    forward : bool
        Forward sweeps, seeded at the inputs, or reverse ones, seeded at the outputs.
    seeds : ndarray of float64, optional
        A row for each sweep: the elements of all seeded slots, one after the other. If none are given there is one
        sweep for each element, whose seed is 1 there and 0 elsewhere.

    Returns
    -------
    list of ndarray
        For each slot at the other end the results of all sweeps, shape ``(sweeps, *shape)``.
    """
    sources, targets = (inputs, outputs) if forward else (outputs, inputs)
    total = sum(t._layout.size for t in sources)
    count = total if seeds is None else len(seeds)
    results = [np.empty((count, *t._layout.shape), t._layout.dtype) for t in targets]
    move = progress_bar(count, progress)
    kind: Any = Tangents if forward else Adjoints

    def make() -> Any:
        sweep = kind(tape, inputs, outputs)
        sweep.prepare()
        return sweep

    sweeps = [make()]
    if CHECKED or not sweeps[0].native:
        sweeps[0].close()
        with paused():
            _one_by_one(tape, inputs, outputs, forward, seeds, results, move)
        return results
    run = push_rows if forward else pull_rows
    begins, ends = ports_of(sources, None), ports_of(targets, results)
    given, where = seed_rows(seeds)

    def work(sweep: Any, begin: int, end: int) -> None:
        sweep.reserve()
        run(
            sweep.machine, sweep.first, sweep.last, begin, end, begins.ctypes.data, len(begins), ends.ctypes.data,
            len(ends), where, total,
        )  # fmt: skip
        move(end - begin)

    try:
        share_out(sweeps, make, work, count, work_of(sweeps[0]), progress)
    finally:
        for sweep in sweeps:
            sweep.close()
    del given
    return results


def seed_rows(seeds: Any) -> tuple[Any, int]:
    """Give seeds as compiled code reads them: an array to keep, and its address, 0 if there are none."""
    given = None if seeds is None else np.ascontiguousarray(seeds, np.float64)
    return given, 0 if given is None else given.ctypes.data


def work_of(sweep: Sweep) -> float:
    """Estimate the nanoseconds that a sweep takes."""
    return 60.0 * (sweep.last - sweep.first + 1) + 0.5 * float(sweep.state[NEEDED])


def share_out(
    workers: list[Worker],
    make: Callable[[], Worker],
    work: Callable[[Worker, int, int], None],
    count: int,
    cost: float,
    progress: bool,
) -> None:
    """Do rows in pieces, over several threads if that pays.

    Parameters
    ----------
    workers : list
        One worker; others that `make` gives are appended, one for each thread.
    work : callable
        ``work(worker, begin, end)`` does some rows.
    count : int
        The number of rows.
    cost : float
        Nanoseconds that a row takes, as estimated.
    progress : bool
        Whether pieces are to be small. Between two of them an interrupt is heard, too.
    """
    if count * cost >= SERIAL:
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        while len(workers) < min(processors, count):
            workers.append(make())
    step = -(-count // (PIECES * len(workers) if progress else len(workers)))
    step = max(1, min(step, int(PIECE / cost)))
    pieces = [(begin, min(begin + step, count)) for begin in range(0, count, step)]

    def do(number: int) -> None:
        for begin, end in pieces[number :: len(workers)]:
            work(workers[number], begin, end)

    if len(workers) == 1:
        do(0)
        return
    with ThreadPoolExecutor(len(workers)) as pool:
        list(pool.map(do, range(len(workers))))


def _one_by_one(
    tape: Tape, inputs: list[Tensor], outputs: list[Tensor], forward: bool, seeds: Any, results: Any, move: Any
) -> None:
    """Sweep through Python: entries without native code come back to it anyway."""
    sources, targets = (inputs, outputs) if forward else (outputs, inputs)
    for row, given in enumerate(seeds_of([t._layout for t in sources], seeds)):
        sweep: Any = (Tangents if forward else Adjoints)(tape, inputs, outputs)
        try:
            sweep.run(given)
            for t, result in zip(targets, results, strict=True):
                result[row] = sweep.tangent(t) if forward else sweep.gradient(t)
        finally:
            sweep.close()
        move(1)


def seeds_of(layouts: list[Layout], seeds: Any) -> Iterator[list[Any]]:
    """Give for each sweep the seed of each slot."""
    total = sum(layout.size for layout in layouts)
    for row in range(total if seeds is None else len(seeds)):
        flat = np.zeros(total) if seeds is None else seeds[row]
        if seeds is None:
            flat[row] = 1.0
        given: list[Any] = []
        start = 0
        for layout in layouts:
            part = flat[start : start + layout.size]
            given.append(float(part[0]) if layout.cell else part.reshape(layout.shape).astype(layout.dtype))
            start += layout.size
        yield given
