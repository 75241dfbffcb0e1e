"""Whether operations are recorded: no_grad, enable_grad, set_grad_enabled."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, Literal

from tape.current import current, imperative
from tape.errors import InputError
from tape.wengert import PAUSED, Tape

Before = tuple[bool, list[tuple[Tape, int]]]
"""Whether recording was on, and which tapes were held because it was not."""


def is_grad_enabled() -> bool:
    """Tell whether this thread records operations on tensors that require a gradient."""
    return current.enabled


def _switch(mode: bool) -> Before:
    """Switch recording on or off, and give what `_restore` needs."""
    tapes = [t for t in (current.tape, imperative()) if t is not None]
    before = current.enabled, [(t, t.held & PAUSED) for t in tapes]
    _restore((mode, [(t, 0 if mode else PAUSED) for t in tapes]))
    return before


def _restore(before: Before) -> None:
    current.enabled, held = before
    known = [tape for tape, _ in held]
    new = [(t, 0 if current.enabled else PAUSED) for t in (imperative(),) if t is not None and t not in known]
    for tape, paused in (*held, *new):
        if paused:
            tape.hold(PAUSED)
        else:
            tape.free(PAUSED)


@contextlib.contextmanager
def _scope(mode: bool) -> Iterator[None]:
    before = _switch(mode)
    try:
        yield
    finally:
        _restore(before)


class _Mode:
    """A context, or a decorator, in which recording is on or off; thread by thread, and undone on exceptions."""

    _mode = True

    def __init__(self) -> None:
        self._before: list[Before] = []

    def __enter__(self) -> None:
        self._before.append(_switch(self._mode))

    def __exit__(self, *exception: object) -> Literal[False]:
        _restore(self._before.pop())
        return False

    def __call__(self, function: Any) -> Any:
        """Make a function that runs in this mode."""
        if not callable(function):
            name = type(self).__name__
            raise InputError(f"{name} is a context manager (`with {name}(...):`) and decorates functions")

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with _scope(self._mode):
                return function(*args, **kwargs)

        return inside


class _Fixed(_Mode):
    """A mode that can decorate without being called: ``@no_grad``."""

    def __new__(cls, function: Any = None) -> Any:
        """Make the context, or decorate a function at once."""
        made: Any = super().__new__(cls)
        return made if function is None else _Mode.__call__(made, function)


class no_grad(_Fixed):
    """Record nothing meanwhile: results require no gradient. A context manager and a decorator.

    It holds for this thread. Backward passes over what was recorded before still work. Parameters may be written to.

    Examples
    --------
    >>> from tape import Parameter, no_grad
    >>> w = Parameter([1.0, 2.0])
    >>> with no_grad():
    ...     w -= 0.5
    ...     y = 2.0 * w
    >>> w.requires_grad, y.requires_grad
    (True, False)
    """

    _mode = False


class enable_grad(_Fixed):
    """Record again inside of `no_grad`. A context manager and a decorator.

    Examples
    --------
    >>> from tape import enable_grad, no_grad, tensor
    >>> x = tensor(2.0)
    >>> with no_grad(), enable_grad():
    ...     y = x * x
    >>> y.requires_grad
    True
    """


class set_grad_enabled(_Mode):
    """Switch recording on or off: at once, and back again if it is used as a context manager or decorator.

    Parameters
    ----------
    mode : bool

    Examples
    --------
    >>> from tape import is_grad_enabled, set_grad_enabled
    >>> with set_grad_enabled(False):
    ...     is_grad_enabled()
    False
    >>> is_grad_enabled()
    True
    """

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self._mode = bool(mode)
        self._at_once: Before | None = _switch(self._mode)

    def __enter__(self) -> None:
        if self._at_once is None:
            super().__enter__()
        else:
            self._before.append(self._at_once)
            self._at_once = None

    def __call__(self, function: Any) -> Any:
        """Make a function that runs in this mode."""
        if self._at_once is not None:
            _restore(self._at_once)
            self._at_once = None
        return super().__call__(function)
