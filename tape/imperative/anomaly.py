"""detect_anomaly: where a value or gradient first stopped being finite, by operation and line of source."""

from __future__ import annotations

import functools
import linecache
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

import ops
import tape as package
from tape.current import current, imperative
from tape.errors import AnomalyError
from tape.layout import Layout
from tape.reading import Layouts, array_at, number_at, read
from tape.show import read_entry
from tape.wengert import WATCHED, Tape

F = TypeVar("F", bound=Callable[..., Any])

_OWN = tuple(str(Path(str(module.__file__)).parent) + os.sep for module in (package, ops, np))
"""Where code stands that is not the user's."""


class detect_anomaly:
    """Raise as soon as a recorded operation gives a value that is not finite, or a reverse sweep such a gradient.

    A context manager and a decorator, for this thread. The message names the operation, the line of source that
    recorded it, and the first value that is not finite. Every operation takes several times as long meanwhile.

    Parameters
    ----------
    check_nan : bool
        Check values. With False only the lines of source are noted, which errors of user-written functions do not need.

    Raises
    ------
    AnomalyError
        From the operation, or from the gradient.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import AnomalyError, detect_anomaly, tensor
    >>> x = tensor([4.0, 0.0])
    >>> try:
    ...     with detect_anomaly():
    ...         np.sum(np.sqrt(x)).backward()
    ... except AnomalyError as error:
    ...     print(str(error).partition(", recorded in")[0])
    the gradient of sqrt is inf at index (1,), for its operand 0 of shape (2,)
    """

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        self._before: list[Any] = []

    def __enter__(self) -> None:
        self._before.append(current.anomaly)
        current.anomaly = self
        for tape in (current.tape, imperative()):
            if tape is not None:
                tape.hold(WATCHED)

    def __exit__(self, *exception: object) -> Literal[False]:
        current.anomaly = self._before.pop()
        for tape in (current.tape, imperative()):
            if tape is not None and current.anomaly is None:
                tape.free(WATCHED)
        return False

    def __call__(self, function: F) -> F:
        """Make a function that is watched."""

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.check_nan):
                return function(*args, **kwargs)

        return inside  # type: ignore[return-value]

    # ------------------------------------------------------------ forwards
    def watch(self, tape: Tape, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Carry out an operation, and look at the entries that it appends."""
        first = tape.count
        result = function(*args, **kwargs)
        line = _line_of_user()
        layouts = Layouts(tape, first, tape.count - 1)
        for slot in range(first, tape.count):
            tape.lines[slot] = line
            if self.check_nan and read(tape, slot).operands:
                self._check_value(tape, slot, layouts[slot], line)
        return result

    def _check_value(self, tape: Tape, slot: int, layout: Layout, line: str) -> None:
        if layout.dtype.kind != "f":
            return
        value = number_at(tape, slot) if layout.cell else array_at(tape.address(slot), layout)
        where = _not_finite(value)
        if where:
            raise AnomalyError(f"the result of {read_entry(tape, slot).op} is {where}, {line}")

    # ------------------------------------------------------------ backwards
    def check_adjoints(self, tape: Tape, e: int, adjoint: Callable[[int, Layout], Any]) -> None:
        """Raise if what entry e passed on to its operands is not finite."""
        if not self.check_nan:
            return
        for number, slot in enumerate(read(tape, e).operands):
            g = adjoint(slot, tape.layout(slot))
            where = "" if g is None else _not_finite(g)
            if where:
                entry = read_entry(tape, e)
                raise AnomalyError(
                    f"the gradient of {entry.op} is {where}, for its operand {number} of shape {g.shape}, "
                    f"{tape.lines.get(e, 'recorded outside of detect_anomaly()')}"
                )


def _not_finite(value: Any) -> str:
    """Tell the first value that is not finite, and where it is; nothing if all are."""
    array = np.asarray(value)
    bad = ~np.isfinite(array)
    if not bad.any():
        return ""
    if not array.shape:
        return f"{array}"
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{array[index]} at index {index}"


def _line_of_user() -> str:
    """Tell the line of source that the user's code is at."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((*_OWN, "<recorder of", "<__array_function__")):
        frame = frame.f_back
    if frame is None:
        return "recorded at an unknown line"
    name, number = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(name, number).strip()
    return f'recorded in File "{name}", line {number}, in {frame.f_code.co_name}' + (f": {text}" if text else "")
