"""Large plain arrays, inputs and constants, that a tape refers to instead of copying.

A write to one of them between its use and the sweep would silently change the gradient. So they are read-only in the
meantime, and the write raises NumPy's own error. Another view of the same memory, made before, stays writeable: NumPy
does not tell which views there are. What is written through one is noticed at the sweep by a sample of the elements.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from tape.errors import ConstantChangedError

_guard = threading.Lock()
_locks: dict[int, list[Any]] = {}
_unlocking: list[list[int]] = []
"""What is to be unlocked."""
_waiting: list[np.ndarray[Any, Any]] = []
"""Views to make writeable again once their owner is."""


def lock(locked: dict[int, Any], array: np.ndarray[Any, Any]) -> None:
    """Make a plain array, and the arrays that it is a view of, read-only until `unlock`."""
    owner: Any = array
    chain = []
    while isinstance(owner, np.ndarray):
        chain.append(owner)
        owner = owner.base
    with _guard:
        for link in chain:
            key = id(link)
            if key in locked:
                continue
            held = _locks.get(key)
            if held is None:
                if not link.flags.writeable:
                    continue
                held = _locks[key] = [link, 0]
                link.flags.writeable = False
            held[1] += 1
            locked[key] = link
    _work_off()


def unlock(locked: dict[int, Any]) -> None:
    """Undo `lock` for all arrays in `locked`.

    Python may collect a tape at any time, also while this thread is in here; so nobody waits for the guard, and who has
    it does the work of the others too.
    """
    if not locked:
        return
    _unlocking.append(list(locked))
    locked.clear()
    _work_off()


def _work_off() -> None:
    while _unlocking and _guard.acquire(blocking=False):
        try:
            while _unlocking:
                _unlock(_unlocking.pop())
        finally:
            _guard.release()


def _unlock(keys: list[int]) -> None:
    for key in keys:
        held = _locks[key]
        held[1] -= 1
        if held[1] == 0:
            del _locks[key]
            _waiting.append(held[0])
    # Owners first: a view may be written to only if its owner may.
    for link in sorted(_waiting, key=lambda link: link.base is not None):
        if link.base is None or not isinstance(link.base, np.ndarray) or link.base.flags.writeable:
            link.flags.writeable = True
    _waiting[:] = [link for link in _waiting if not link.flags.writeable]


COPIED = 1 << 18
"""Arrays up to this many bytes are copied: that is safe against every write, and as quick as guarding them."""

SAMPLE = 64
"""Elements that are compared, spread evenly, to notice a change of a large constant."""


def sample(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Copy some elements of an array."""
    if array.flags.c_contiguous:
        flat = array.reshape(-1)
    elif array.flags.f_contiguous:
        flat = array.T.reshape(-1)
    else:
        flat = array[(slice(None),) + (0,) * (array.ndim - 1)]
    return flat[:: max(1, len(flat) // SAMPLE)].copy()


def verify(samples: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]) -> None:
    """Raise if an array is seen to have changed since its sample was taken."""
    for array, before in samples:
        if sample(array).tobytes() != before.tobytes():
            raise ConstantChangedError(
                f"a plain array of shape {array.shape} was written to, through another view of its memory, between its "
                "use in the recorded function and the gradient: copy it before you use it (`a.copy()`), or write to a "
                "new array"
            )
