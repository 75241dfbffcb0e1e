"""What a thread is doing: the tape that it is recording on, and whether it records at all."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from tape.wengert import PAUSED, Tape


class _Current(threading.local):
    """The state of a thread.

    Attributes
    ----------
    tape : Tape or None
        That of the transform under way.
    imperative : weakref.ref or None
        The tape of the tensors that the user holds; it lives as long as they do.
    enabled : bool
        False under `no_grad`.
    anomaly : Any
        What watches for values that are not finite, if anything does.
    """

    tape: Any = None
    imperative: Any = None
    enabled: bool = True
    anomaly: Any = None


current = _Current()


def recording() -> Tape | None:
    """Give the tape that this thread is recording on."""
    found: Tape | None = current.tape
    return found


def imperative() -> Tape | None:
    """Give the tape of the tensors that the user holds, if there is one."""
    reference = current.imperative
    found: Tape | None = None if reference is None else reference()
    return None if found is None or found.workspace is None else found


@contextlib.contextmanager
def recording_to(tape: Tape | None) -> Iterator[None]:
    """Record on a tape meanwhile, or on none."""
    outer, current.tape = current.tape, tape
    try:
        yield
    finally:
        current.tape = outer


@contextlib.contextmanager
def resumed(tape: Tape) -> Iterator[None]:
    """Record on a tape meanwhile, also under `no_grad`."""
    enabled, held = current.enabled, tape.held & PAUSED
    current.enabled = True
    tape.free(PAUSED)
    try:
        yield
    finally:
        current.enabled = enabled
        tape.hold(held)


def paused() -> contextlib.AbstractContextManager[None]:
    """Record nothing meanwhile: what is differentiated in here has a tape of its own."""
    return recording_to(None)
