"""Whether memory grows over many calls."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any


def growth(work: Callable[[int], Any], calls: int, warm: int = 300) -> tuple[int, int]:
    """Count by how many bytes Python's memory (over the last tenth) and the process's grow over so many calls."""
    for k in range(warm):
        work(k)
    gc.collect()
    resident = rss()
    for k in range(calls):
        work(k)
    gc.collect()
    resident = rss() - resident
    tracemalloc.start()
    try:
        for k in range(20):
            work(k)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        # Tracing is slow.
        for k in range(calls // 10):
            work(k)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before, resident
    finally:
        tracemalloc.stop()


def rss() -> int:
    """Give the resident memory of this process in bytes; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096
    except OSError:
        return 0
