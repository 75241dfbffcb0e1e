"""Many seeds at once: where native sweeps can do all of them, over several threads if that pays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

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
    make: Any = Tangents if forward else Adjoints
    sweep = make(tape, inputs, outputs)
    sweep.prepare()
    if CHECKED or not sweep.native:
        sweep.close()
        with paused():
            _one_by_one(tape, inputs, outputs, forward, seeds, results, move)
        return results
    sweeps = [sweep]
    while len(sweeps) < workers_for(count, sweep):
        other = make(tape, inputs, outputs)
        other.prepare()
        sweeps.append(other)
    try:
        _natively(
            sweeps, ports_of(sources, None), ports_of(targets, results), (count, total), seeds, forward, move, progress
        )
    finally:
        for s in sweeps:
            s.close()
    return results


def work_of(sweep: Sweep) -> float:
    """Estimate the nanoseconds that a sweep takes."""
    return 60.0 * (sweep.last - sweep.first + 1) + 0.5 * float(sweep.state[NEEDED])


def workers_for(count: int, sweep: Sweep) -> int:
    """Give the number of threads that pay for so many sweeps like this one."""
    if count * work_of(sweep) < SERIAL:
        return 1
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(processors, count)


def _natively(
    sweeps: list[Sweep],
    sources: Any,
    targets: Any,
    size: tuple[int, int],
    seeds: Any,
    forward: bool,
    move: Any,
    progress: bool,
) -> None:
    count, total = size
    if seeds is not None:
        seeds = np.ascontiguousarray(seeds, np.float64)
    run = push_rows if forward else pull_rows
    where = 0 if seeds is None else seeds.ctypes.data
    pieces = pieces_of(count, len(sweeps), progress, sweeps[0])

    def do(worker: int) -> None:
        sweep = sweeps[worker]
        for begin, end in pieces[worker :: len(sweeps)]:
            sweep.reserve()
            run(
                sweep.machine, sweep.first, sweep.last, begin, end, sources.ctypes.data, len(sources),
                targets.ctypes.data, len(targets), where, total,
            )  # fmt: skip
            move(end - begin)

    if len(sweeps) == 1:
        do(0)
        return
    with ThreadPoolExecutor(len(sweeps)) as pool:
        for _ in pool.map(do, range(len(sweeps))):
            pass


def pieces_of(count: int, workers: int, progress: bool, sweep: Sweep) -> list[tuple[int, int]]:
    """Split so many rows into pieces, which the workers take in turn. Between two of them an interrupt is heard."""
    step = -(-count // (PIECES * workers if progress else workers))
    step = max(1, min(step, int(PIECE / work_of(sweep))))
    return [(begin, min(begin + step, count)) for begin in range(0, count, step)]


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
