"""The tape that a thread is recording on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from tape.wengert import Tape


class _Current(threading.local):
    tape: Any = None


current = _Current()


def recording() -> Tape | None:
    """Give the tape that this thread is recording on."""
    found: Tape | None = current.tape
    return found


@contextlib.contextmanager
def recording_to(tape: Tape | None) -> Iterator[None]:
    """Record on a tape meanwhile, or on none."""
    outer, current.tape = current.tape, tape
    try:
        yield
    finally:
        current.tape = outer


def paused() -> contextlib.AbstractContextManager[None]:
    """Record nothing meanwhile: what is differentiated in here has a tape of its own."""
    return recording_to(None)
