"""Views: handles that must follow when what they view is written to, and the other way round."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from tape.tensor import Tensor

ViewRule = tuple[Callable[[Tensor], Any], Callable[[Tensor, Tensor], Any]]
"""How to take a view again from its base, and how to write the view's new value into the base."""


def watch(base: Tensor, view: Tensor, rule: ViewRule) -> Tensor:
    """Note that a handle is a view, so that writes through either reach the other."""
    if view is base:
        return view
    view._base = (base, rule)
    views = getattr(base, "_views", None)
    if views is None:
        views = base._views = []
    elif len(views) >= 32 and len(views) & (len(views) - 1) == 0:
        views[:] = [v for v in views if v() is not None]
    views.append(weakref.ref(view))
    return view
