"""What ops that users write as classes share: checks of their gradients, and gradients that have no derivative."""

# ruff: noqa: ARG002  (rules have one form, whatever they need of it)

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ops.shape import fit_to
from tape import containers
from tape.application import Application, closed_over, transposed
from tape.arguments import described
from tape.call import Call, Packing, append_call
from tape.current import recording
from tape.errors import DetachedError, InputError, InvalidBackprop, InvalidGradient, OutputError, UnsupportedError
from tape.tensor import Tensor

VALUES = np.ndarray | np.generic | float | int
"""Arrays and numbers."""


def floating(x: Any) -> bool:
    """Tell whether a plain value is of floating-point type."""
    return isinstance(x, float) or (isinstance(x, np.ndarray | np.generic) and x.dtype.kind == "f")


def zero_tangent(x: Any) -> Any:
    """Give the tangent zero of an argument; None if it can have no tangent."""
    if not floating(x) and not (isinstance(x, Tensor) and x.dtype.kind == "f"):
        return None
    return 0.0 if type(x) is float else np.zeros(x.shape, x.dtype)[()]


def own(x: Any) -> Any:
    """Give a copy of an array that cannot be written to: what was saved of it stays what it was."""
    copy = np.array(x)
    copy.flags.writeable = False
    return copy


def reject_nested(name: str, args: Sequence[Any]) -> None:
    """Raise if there is a recorded value inside of an argument."""
    for k, x in enumerate(args):
        if isinstance(x, VALUES | Tensor | str | None):
            continue
        if any(isinstance(leaf, Tensor) for leaf in containers.flatten(x)[0]):
            raise InputError(
                f"{name}: argument {k} is {described(x)} with a recorded value in it, whose gradient would be lost: "
                "give each such value as an argument of its own"
            )


def outputs_of(name: str, result: Any) -> tuple[Any, ...]:
    """Give the results as a tuple."""
    outputs = result if isinstance(result, tuple) else (result,)
    for j, y in enumerate(outputs):
        leaves, _ = containers.flatten(y)
        if not (len(leaves) == 1 and leaves[0] is y) and any(isinstance(x, VALUES | Tensor) for x in leaves):
            raise OutputError(
                f"{name}: forward must return an array or number, or a tuple of several, but result {j} is "
                f"{described(y)}, and what is in it would have no gradient"
            )
    return outputs


# ---------------------------------------------------------------- gradients that users compute
def fit_gradient(who: str, index: int, g: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Check a gradient for an argument of this shape and dtype; sum it if the argument was broadcast."""
    if isinstance(g, Tensor):
        if g._tape is not recording():
            raise closed_over(who)
    elif isinstance(g, VALUES):
        g = np.asarray(g)
    if not isinstance(g, np.ndarray | Tensor) or g.dtype.kind not in "fiub":
        got = f"of type {type(g).__name__}" if not isinstance(g, np.ndarray | Tensor) else f"of dtype {g.dtype}"
        raise InvalidGradient(
            f"{who} returned an invalid gradient at index {index} - got a gradient {got} but expected an array of real "
            f"numbers with shape compatible with {list(shape)}"
        )
    own = g.shape
    if len(own) < len(shape) or any(n not in (1, m) for m, n in zip(own[::-1], shape[::-1], strict=False)):
        raise InvalidGradient(
            f"{who} returned an invalid gradient at index {index} - got {list(own)} but expected shape compatible with "
            f"{list(shape)}"
        )
    g = fit_to(g, shape)
    return g if isinstance(g, Tensor) else np.asarray(g).astype(dtype, copy=False)


# ---------------------------------------------------------------- the entry
class OnceApplication(Application):
    """A call whose gradient may be one that cannot be differentiated again.

    Attributes
    ----------
    twice : str or None
        What is said to who differentiates it again; None: it can be.
    """

    twice: str | None = None

    def _all_pulled(self, g: Any, out: Any, operands: tuple[Any, ...]) -> dict[int, Any]:
        if self.twice is None or not any(isinstance(x, Tensor) for x in (g, *operands)):
            return super()._all_pulled(g, out, operands)
        call = _Once(self)
        packed = append_call(call, (g, out, *operands))
        return dict(zip(call.places, call.packing.unpack(packed), strict=True))

    def tangents(self, tangents: list[Any], operands: list[Any], recorded: bool) -> list[Any]:
        """Give the tangent of each result, by transposing the pullback."""
        if recorded and self.twice is not None:
            raise InvalidBackprop(self.twice)
        pull = self.pullback(operands, recorded)
        given = [t for t, varied in zip(tangents, self.operands.varied, strict=True) if varied]

        def pull_given(*cotangents: Any) -> list[Any]:
            return [None if t is None else g for t, g in zip(given, pull(list(cotangents)), strict=True)]

        try:
            return transposed(pull_given, self.results.ones(), given)
        except (DetachedError, UnsupportedError) as error:
            raise UnsupportedError(
                f"{self.name}: forward mode transposes the backward rule, which has to be written in NumPy for that, "
                f"but it fails on recorded values ({type(error).__name__}: {error}). A Function can define jvp instead"
            ) from error

    def pullback(self, operands: list[Any], recorded: bool) -> Callable[[list[Any]], list[Any]]:
        """Give what computes the adjoint of each varied operand, None for zero, from those of the results."""
        raise NotImplementedError


class _Once(Call):
    """The gradient of a call, computed from plain values, as an entry that has no derivative."""

    def __init__(self, application: OnceApplication) -> None:
        self.application = application
        self.places = [k for k, varied in enumerate(application.operands.varied) if varied]
        self.packing = Packing([])

    def forward(self, *operands: Any) -> Any:
        g, out, *rest = operands
        found = self.application._all_pulled(g, out, tuple(rest))
        layouts = [self.application.operands.layouts[k][:2] for k in self.places]
        self.packing = Packing(layouts)
        zeros = [np.zeros(*layout) for layout in layouts]
        return self.packing.pack(
            [zero if found[k] is None else found[k] for k, zero in zip(self.places, zeros, strict=True)]
        )

    def pull(self, position: int, g: Any, out: Any, *operands: Any) -> Any:
        raise InvalidBackprop(self.application.twice)

    def push(self, tangents: Sequence[Any], out: Any, *operands: Any) -> Any:
        raise InvalidBackprop(self.application.twice)
