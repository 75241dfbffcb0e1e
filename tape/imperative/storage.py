"""The memory of tensors that users hold, shared by a tensor, its views and what was detached from it.

A tape refers to large arrays instead of copying them, and makes them read-only meanwhile (see `tape.constants`). A
write to such memory moves the tensors to a copy of it, so that what was recorded before keeps its values.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np


class Storage:
    """Memory, and the arrays that see parts of it.

    Parameters
    ----------
    owner : ndarray
        An array without gaps that owns the memory; nobody else writes to it.

    Attributes
    ----------
    version : int
        How often it was written to.
    """

    __slots__ = ("_views", "owner", "version")

    def __init__(self, owner: np.ndarray[Any, Any]) -> None:
        self.owner = owner
        self.version = 0
        self._views: list[weakref.ref[View]] = []

    def add(self, view: View) -> None:
        """Note an array that sees part of the memory."""
        views = self._views
        if len(views) >= 32 and len(views) & (len(views) - 1) == 0:
            views[:] = [v for v in views if v() is not None]
        views.append(weakref.ref(view))

    def tensors(self) -> list[Any]:
        """List the tensors whose memory this is."""
        found = [reference() for reference in self._views]
        return [t for view in found if view is not None and (t := view.tensor()) is not None]

    def unshare(self) -> None:
        """Note that a write follows, and see to it that no tape refers to the memory any more."""
        self.version += 1
        if self.owner.flags.writeable:
            return
        start = self.owner.ctypes.data
        memory = self.owner.ravel(order="K").view(np.uint8).copy()
        self.owner = memory
        for reference in self._views:
            view = reference()
            if view is not None:
                a = view.array
                view.array = np.ndarray(a.shape, a.dtype, memory, a.ctypes.data - start if a.size else 0, a.strides)


def _nobody() -> None:
    return None


class View:
    """An array in the memory of a storage.

    Attributes
    ----------
    tensor : callable
        Gives the tensor that it is the value of, while there is one.
    """

    __slots__ = ("__weakref__", "array", "storage", "tensor")

    def __init__(self, array: np.ndarray[Any, Any], storage: Storage | None = None) -> None:
        self.array = array
        self.tensor: Callable[[], Any] = _nobody
        self.storage = Storage(array) if storage is None else storage
        self.storage.add(self)
