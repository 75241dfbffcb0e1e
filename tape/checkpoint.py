"""Recompute instead of keep: a function whose intermediate values are not on the tape."""

# ruff: noqa: ARG002  (rules have one form, whatever they need of it)

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tape import containers
from tape.application import Application, any_recorded, entry, guarded, name_of
from tape.arguments import described
from tape.errors import InputError, RuleError
from tape.tensor import Tensor
from tape.trace import Trace


def checkpoint(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function be recomputed where its derivative is needed, instead of keeping its intermediate values.

    A chain of n operations cut into k checkpointed segments needs memory for k results and for the values of one
    segment, in place of n values, and computes everything twice. Checkpoints may contain checkpoints.

    Parameters
    ----------
    function : callable
        Written in plain NumPy, of arrays, numbers, containers of them, and anything else; likewise what it returns. It
        is called twice with the same arguments and has to give the same result: random numbers are drawn outside and
        passed in. It must not write to its arguments, and what it uses of recorded values has to be passed to it.

    Returns
    -------
    callable
        The same function. Its derivatives of any order and in either mode are those of the function itself: the same
        to the last bit, except that the contributions to an argument that is also used elsewhere are added up in
        another order.

    Raises
    ------
    RuleError
        If the function closes over a recorded value, or gives another result when it is called again.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import checkpoint, grad
    >>> @checkpoint
    ... def segment(x):
    ...     for _ in range(100):
    ...         x = x + 0.01 * np.sin(x)
    ...     return x
    >>> def loss(x):
    ...     for _ in range(10):
    ...         x = segment(x)
    ...     return np.sum(x)
    >>> grad(loss)(np.array([0.0, 3.0])).round(3)
    array([20959.156,     0.   ])
    """
    if not callable(function):
        raise InputError(f"checkpoint needs a function, got {described(function)}")

    @entry
    @functools.wraps(function)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if not any_recorded(*args, *kwargs.values()):
            return function(*args, **kwargs)
        return _Checkpoint(function, args, kwargs).apply()

    return checkpointed


class _Checkpoint(Application):
    """A call of a checkpointed function."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        super().__init__(name_of(function), (args, kwargs), lend=guarded)
        self.function = function

    def evaluate(self, arguments: Any) -> Any:
        args, kwargs = arguments
        return self.function(*args, **kwargs)

    @contextmanager
    def _recomputed(self, operands: list[Any]) -> Iterator[tuple[Trace, list[int], list[Tensor]]]:
        """Record the function; give the trace, and which results are recorded."""
        varied = self.operands.varied

        def again(*inputs: Any) -> list[Any]:
            given = iter(inputs)
            values = [next(given) if v else x for v, x in zip(varied, operands, strict=True)]
            leaves, structure = containers.flatten(self.evaluate(self.operands.arguments(values)))
            if structure != self.results.structure:
                raise self._changed()
            return [leaves[k] for k in self.results.floating]

        inputs = tuple(x for x, v in zip(operands, varied, strict=True) if v)
        with Trace(again, tuple(range(len(inputs))), inputs, {}) as trace:
            numbers = [k for k, y in enumerate(trace.result) if isinstance(y, Tensor)]
            yield trace, numbers, [trace.own(trace.result[k]) for k in numbers]

    def gradients(self, cotangents: list[Any], operands: list[Any], recorded: bool, out: Any) -> list[Any]:
        with self._recomputed(operands) as (trace, numbers, outputs):
            if not recorded:
                self._compare(trace.result, out)
            return trace.pull(outputs, [_exact(cotangents[k], outputs[i]) for i, k in enumerate(numbers)])

    def tangents(self, tangents: list[Any], operands: list[Any], recorded: bool) -> list[Any]:
        given = [t for t, varied in zip(tangents, self.operands.varied, strict=True) if varied]
        found: list[Any] = [None] * len(self.results.floating)
        with self._recomputed(operands) as (trace, numbers, outputs):
            for k, t in zip(numbers, trace.push(given, outputs), strict=True):
                found[k] = t
        return found

    def _compare(self, result: list[Any], out: Any) -> None:
        """Raise if the function did not give what it gave before; rounding may differ."""
        for y, before in zip(result, self.results.floats.unpack(out), strict=True):
            now = np.asarray(y._value if isinstance(y, Tensor) else y)
            if now.shape != np.shape(before):
                raise self._changed()
            if not np.array_equal(now, before, equal_nan=True):
                finite = np.abs(before)[np.isfinite(before)] if np.ndim(before) else np.abs(before)
                scale = np.max(finite, initial=0.0)
                if not np.allclose(now, before, rtol=1e-3, atol=1e-3 * scale, equal_nan=True):
                    raise self._changed()

    def _changed(self) -> RuleError:
        return RuleError(
            f"{self.name}: the checkpointed function gave another result when it was called again. It must depend on "
            "its arguments alone: draw random numbers outside and pass them in"
        )


def _exact(cotangent: Any, y: Tensor) -> Any:
    """Give a plain seed as a sweep takes it."""
    return float(cotangent) if y._layout.cell and not isinstance(cotangent, Tensor) else cotangent
