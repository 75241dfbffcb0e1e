"""The catalogue: every operation is one declaration, registered here under an opcode.

An `Elementwise` op is a ufunc with its partial derivatives, written once as NumPy expressions of the operands and
the result. A `Structural` op is a NumPy function with one pullback per operand, written in terms of other functions.
Nothing here knows about tapes: an operand that wants to be recorded says so by a method `__record__(op, operands,
parameters)` on its type.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

__all__ = [
    "FUNCTIONS",
    "LINEAR",
    "OPS",
    "UFUNCS",
    "Elementwise",
    "Op",
    "Structural",
    "UnknownSlopeError",
    "elementwise",
    "handles",
    "structural",
    "unknown",
]

OPS: list[Op] = []
"""Every op, at the index that is its opcode."""

UFUNCS: dict[Any, Elementwise] = {}
"""The op of a ufunc."""

FUNCTIONS: dict[Any, Callable[..., Any]] = {}
"""What runs when a NumPy function (not a ufunc) is called on recorded values."""

Partial = Callable[..., Any]


class Op:
    """What an operation computes and how it differentiates.

    Parameters
    ----------
    name : str
        The name people know it by, NumPy's where there is one.
    code : int, optional
        The opcode of a user's op: that of an earlier one with the same rules, in whose place it comes, or a negative
        number, if it has no compiled code and need not be found by its opcode.

    Attributes
    ----------
    code : int
        The opcode: its index in `OPS`. Code 0 is a leaf (an input or a constant).
    """

    def __init__(self, name: str, code: int | None = None) -> None:
        self.name = name
        self.code = len(OPS) if code is None else code
        if code is None:
            OPS.append(self)
        elif code > 0:
            OPS[code] = self

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __call__(self, *operands: Any, **parameters: Any) -> Any:
        """Apply the op, recording it if an operand asks for that."""
        recorder = None
        for operand in operands:
            kind = type(operand)
            record = getattr(kind, "__record__", None)
            # Of a type and its subclass the subclass is asked, as NumPy does.
            if record is not None and (recorder is None or issubclass(kind, recorder)):
                recorder, chosen = kind, record
        return self.forward(*operands, **parameters) if recorder is None else chosen(self, operands, parameters)

    forward: Callable[..., Any]


class Elementwise(Op):
    """A ufunc and its partial derivatives.

    Parameters
    ----------
    ufunc : callable
        The function of arrays, with broadcasting; it takes ``out=`` if it is a ufunc.
    partials : sequence of callable or None
        For each operand the partial derivative as an expression of the operands and `out`, the result:
        ``lambda x, y, out: -out / y``. It runs on scalars inside compiled kernels, on arrays, and on recorded values,
        so it may only use ``np.`` and ``special.`` functions and plain arithmetic. None: the slope is zero everywhere.
    domain : sequence of (low, high), optional
        An interval for each operand on which the op is smooth; the tests draw from it.
    """

    def __init__(
        self,
        ufunc: Callable[..., Any],
        partials: Sequence[Partial | None],
        *,
        name: str | None = None,
        domain: Sequence[tuple[float, float]] | None = None,
        code: int | None = None,
    ) -> None:
        super().__init__(name or ufunc.__name__, code)
        self.forward = ufunc
        self.is_ufunc = isinstance(ufunc, np.ufunc)
        self.partials = tuple(partials)
        self.nin = len(self.partials)
        self.domain = tuple(domain) if domain is not None else ((-2.0, 2.0),) * self.nin
        self.differentiable = any(p is not None for p in self.partials)

    def has_rule(self, position: int) -> bool:
        """Tell whether the partial of an operand can be evaluated: it is neither zero everywhere nor unknown."""
        partial = self.partials[position]
        return partial is not None and not hasattr(partial, "unknown")

    @cached_property
    def reads(self) -> tuple[int, ...]:
        """For each partial the values that it reads: bit k for operand k, bit 3 for the result."""
        return tuple(0 if p is None else self._read_by(p) for p in self.partials)

    def _read_by(self, partial: Partial) -> int:
        code = getattr(partial, "__code__", None)
        if code is None or code.co_argcount != self.nin + 1 or self.nin > 3:  # not to be told from its code
            return (1 << self.nin) - 1 | 8
        names = code.co_varnames[: code.co_argcount]
        used: set[Any] = set()
        for instruction in dis.get_instructions(code):
            # Since Python 3.13 one instruction may load two names: then this is a pair.
            value = instruction.argval
            used.update(value if isinstance(value, tuple) else (value,))
        bits = 0
        for position, name in enumerate(names):
            if name in used:
                bits |= 8 if position == self.nin else 1 << position
        return bits


class Structural(Op):
    """An op that moves or combines elements: sum, matmul, reshape, concatenate, cholesky, ...

    Parameters
    ----------
    forward : callable
        Computes the result from plain arrays: ``forward(*operands, **parameters)``.
    pullbacks : sequence of callable or None, or callable
        One ``pullback(g, out, *operands, **parameters)`` per operand, returning the gradient in the operand's shape (or
        in a shape that broadcasts to it, or that it broadcasts to). A single callable serves an op with any number of
        operands and gets the operand's position first. They run on arrays and on recorded values alike.
    pushforward : callable or str, optional
        ``pushforward(tangents, out, *operands, **parameters)`` gives the tangent of the result; `tangents` holds one
        for each operand, None for an operand that has none. `LINEAR`: the op is linear in all operands that have a
        pullback together. None: forward mode transposes the pullbacks.
    examples : callable
        ``examples(rng)`` yields ``(operands, parameters)`` pairs for the tests.
    native : str
        The name of the sweep's own kernel for it, or ``""``: then the sweep calls the pullbacks.
    """

    def __init__(
        self,
        name: str,
        forward: Callable[..., Any],
        pullbacks: Sequence[Partial | None] | Partial,
        *,
        pushforward: Callable[..., Any] | str | None = None,
        examples: Callable[[np.random.Generator], Any] | None = None,
        native: str = "",
        code: int | None = None,
    ) -> None:
        super().__init__(name, code)
        self.forward = forward
        self.pullbacks = pullbacks
        self.pushforward = pushforward
        self.examples = examples
        self.native = native
        self.differentiable = bool(pullbacks)

    def pullback(self, position: int) -> Partial | None:
        """Give the pullback to the operand at `position`, or None where the slope is zero."""
        if callable(self.pullbacks):
            rule = self.pullbacks
            return lambda *args, **parameters: rule(position, *args, **parameters)
        return self.pullbacks[position] if position < len(self.pullbacks) else None

    def push(self, tangents: Sequence[Any], out: Any, *operands: Any, **parameters: Any) -> Any:
        """Give the tangent of the result: an array, or a recorded value if something here is one.

        At least one tangent is not None, and `pushforward` is declared.
        """
        if callable(self.pushforward):
            return self.pushforward(tangents, out, *operands, **parameters)
        assert self.pushforward == LINEAR
        given = [
            x if self.pullback(k) is None else np.zeros(np.shape(x), out.dtype) if t is None else t
            for k, (t, x) in enumerate(zip(tangents, operands, strict=True))
        ]
        return self(*given, **parameters)


LINEAR = "linear"
"""Declared in place of a pushforward: see `Structural`."""


def elementwise(
    ufunc: Callable[..., Any],
    *partials: Partial | None,
    name: str | None = None,
    domain: Sequence[tuple[float, float]] | None = None,
) -> Elementwise:
    """Declare an elementwise op and let it be reached through its ufunc.

    Examples
    --------
    ::

        divide = elementwise(np.divide, lambda x, y, out: 1 / y, lambda x, y, out: -out / y)
    """
    op = Elementwise(ufunc, partials, name=name, domain=domain)
    UFUNCS[ufunc] = op
    return op


def structural(
    forward: Callable[..., Any],
    *pullbacks: Partial | None,
    every: Partial | None = None,
    pushforward: Callable[..., Any] | str | None = None,
    name: str | None = None,
    examples: Callable[[np.random.Generator], Any] | None = None,
    native: str = "",
) -> Structural:
    """Declare a structural op. `every` is the one pullback of an op with any number of operands."""
    return Structural(
        name or forward.__name__,
        forward,
        every or pullbacks,
        pushforward=pushforward,
        examples=examples,
        native=native,
    )


def handles(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a Python function run in place of NumPy functions called on recorded values."""

    def register(handler: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            FUNCTIONS[function] = handler
        return handler

    return register


class UnknownSlopeError(TypeError, NotImplementedError):
    """A derivative was asked for that no rule is known for."""


def unknown(what: str) -> Partial:
    """Make the partial of an operand whose slope is not zero but has no rule: it raises when it is needed.

    It may be evaluated only where that operand is differentiated; compiled code cannot call it.

    Parameters
    ----------
    what : str
        The operand, for the message: "the order v of jv".
    """

    def partial(*values: Any) -> Any:
        raise UnknownSlopeError(
            f"the derivative with respect to {what} is not known here: pass it as a plain number or array"
        )

    partial.unknown = what  # type: ignore[attr-defined]
    return partial


LEAF = Op("leaf")
"""An input or a constant: an entry without operands."""
