"""Running the same work in several threads at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def in_threads(work: Callable[[int], Any], count: int = 4) -> None:
    """Call ``work(0)``, ``work(1)``, ... each in a thread of its own; what one of them raises is raised here."""
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))
