"""Function: an op of the user's own as a class with `forward` and `backward`, in PyTorch's shape.

A call on recorded values is one entry of the tape, an `Application` like every call of a user's function.
"""

# ruff: noqa: ARG002, ARG004  (rules have one form, whatever they need of it)

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from tape import record
from tape.application import any_recorded, closed_over, fit
from tape.arguments import described
from tape.current import paused
from tape.errors import InputError, InvalidGradient, RuleError, UnsupportedError
from tape.imperative.authored import (
    VALUES,
    OnceApplication,
    fit_gradient,
    floating,
    outputs_of,
    own,
    reject_nested,
    zero_tangent,
)
from tape.imperative.context import Context, Memory, Origin, Reading
from tape.tensor import Tensor

TWICE = "trying to differentiate twice a function that was marked with @once_differentiable"


class Function:
    """An op of the user's own: subclass it, and call ``apply``.

    ``forward(ctx, *args)`` gets plain arrays, which it cannot write to, and numbers; anything else as it is. It returns
    an array or number, or a tuple of several. ``backward(ctx, *gradients)`` gets the gradient of each result and gives
    one for each argument of forward, None for an argument that has none. A gradient is summed to the shape of its
    argument if that was broadcast. Both are static methods.

    Methods
    -------
    apply(*args)
        Call the op. Only arguments that are themselves recorded are differentiated, not those inside of lists.

    Notes
    -----
    Instead of ``forward(ctx, *args)`` there can be ``forward(*args)`` and ``setup_context(ctx, inputs, output)``;
    ``vjp`` is another name of ``backward``. ``jvp(ctx, *tangents)`` gives the tangent of each result from those of the
    arguments (None for what has no tangent); without it forward mode transposes backward.

    Backward finds what it needs in ``ctx``: ``ctx.save_for_backward(...)`` in forward gives ``ctx.saved_tensors``, and
    any attribute can be set. ``ctx.needs_input_grad`` tells for each argument whether a gradient is asked for. See also
    ``ctx.mark_non_differentiable`` and ``ctx.set_materialize_grads``.

    Higher derivatives run backward on recorded values, so it must be written in NumPy then. What forward saved is
    differentiated too: arguments and results are known as such. If anything else was saved that may depend on the
    arguments, forward is called again on recorded values. What cannot be differentiated twice raises an error.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import grad
    >>> from tape import Function
    >>> class Exp(Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         y = np.exp(x)
    ...         ctx.save_for_backward(y)
    ...         return y
    ...
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         (y,) = ctx.saved_tensors
    ...         return g * y
    >>> grad(Exp.apply)(0.0), grad(grad(Exp.apply))(0.0)
    (1.0, 1.0)

    Several arguments and results:

    >>> class Polar(Function):
    ...     @staticmethod
    ...     def forward(ctx, r, angle):
    ...         x, y = r * np.cos(angle), r * np.sin(angle)
    ...         ctx.save_for_backward(r, x, y)
    ...         return x, y
    ...
    ...     @staticmethod
    ...     def backward(ctx, gx, gy):
    ...         r, x, y = ctx.saved_tensors
    ...         return (gx * x + gy * y) / r, gy * x - gx * y
    >>> grad(lambda r, angle: Polar.apply(r, angle)[1], argnums=(0, 1))(2.0, 0.0)
    (0.0, 2.0)
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise: there are no instances."""
        raise UnsupportedError(
            f"{cls.__name__} is a Function, of which there are no instances to call: write {cls.__name__}.apply(...), "
            "with static methods forward and backward"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the result: ``forward(ctx, *args)``, or ``forward(*args)`` beside `setup_context`."""
        raise UnsupportedError("a Function must define the static method forward")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save what backward needs, where forward does not take ``ctx``."""
        raise UnsupportedError("this Function does not define setup_context")

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Give the gradient of each argument from those of the results."""
        raise UnsupportedError("a Function must define the static method backward")

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Give the tangent of each result from those of the arguments."""
        raise UnsupportedError("this Function does not define jvp")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call the op; arguments are given by position."""
        if kwargs:
            raise InputError(
                f"{cls.__name__}.apply takes its arguments by position, as backward answers for them: got "
                f"{', '.join(f'{name}=' for name in kwargs)}"
            )
        inner = functools.partial(_called, cls)
        return record.apart(inner, args, {}) if record.elsewhere(args) else inner(*args)


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Say of the backward of a `Function` that it is not to be differentiated again.

    It then gets plain values in reverse mode also where its result is recorded, so it need not be written in NumPy.
    Differentiating the result raises an error.

    Parameters
    ----------
    backward : callable
        ``backward(ctx, *gradients)``.

    Returns
    -------
    callable
        The same, marked; to be made a static method.

    Examples
    --------
    >>> import math
    >>> from tape import grad
    >>> from tape import Function, once_differentiable
    >>> class Sin(Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return math.sin(x)
    ...
    ...     @staticmethod
    ...     @once_differentiable
    ...     def backward(ctx, g):
    ...         return g * math.cos(*ctx.saved_tensors)
    >>> grad(Sin.apply)(0.0)
    1.0
    >>> grad(grad(Sin.apply))(0.0)
    Traceback (most recent call last):
    tape.errors.InvalidBackprop: Sin: trying to differentiate twice a function that was marked with @once_differentiable
    """

    @functools.wraps(backward)
    def marked(*args: Any, **kwargs: Any) -> Any:
        return backward(*args, **kwargs)

    marked.once_differentiable = True  # type: ignore[attr-defined]
    return marked


# ---------------------------------------------------------------- what a class declares
def _rule(cls: type[Function]) -> Callable[..., Any]:
    """Give the backward of a class; raise if it has none."""
    rule = cls.vjp if _declares(cls, "vjp") else cls.backward
    if not _declares(cls, "vjp") and not _declares(cls, "backward"):
        raise UnsupportedError(
            f"{cls.__name__} has no backward: to differentiate it, define the static method backward(ctx, *gradients)"
        )
    return rule


def _declares(cls: type[Function], method: str) -> bool:
    return getattr(cls, method) is not getattr(Function, method)


def _run(cls: type[Function], ctx: Context, args: tuple[Any, ...]) -> Any:
    """Call forward."""
    if not _declares(cls, "setup_context"):
        return cls.forward(ctx, *args)
    result = cls.forward(*args)
    cls.setup_context(ctx, args, result)
    return result


def _called(cls: type[Function], *args: Any) -> Any:
    """Call an op on arguments some of which may be recorded."""
    name = cls.__name__
    if not _declares(cls, "forward"):
        raise UnsupportedError(f"{name} has no forward: define the static method forward(ctx, *args)")
    if _declares(cls, "backward") and _declares(cls, "vjp"):
        raise UnsupportedError(
            f"{name}: implementing both 'backward' and 'vjp' for a custom Function is not allowed, since they are two "
            "names of one rule: implement one of them"
        )
    reject_nested(name, args)
    if any(isinstance(x, Tensor) for x in args):
        return _Applied(cls, args).apply()
    with paused():
        result = _run(cls, Context(name, (False,) * len(args)), args)
    if any_recorded(outputs_of(name, result)):
        raise closed_over(f"{name}: forward")
    return result


# ---------------------------------------------------------------- the entry
class _Held:
    """Keeps what is no operand or result of the entry from being looked into."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Applied(OnceApplication):
    """A call of a `Function`."""

    what = "forward"

    def __init__(self, cls: type[Function], args: tuple[Any, ...]) -> None:
        self.cls, self.args = cls, list(args)
        self.direct = [k for k, x in enumerate(args) if isinstance(x, Tensor) or type(x) is np.ndarray]
        self.needs = tuple(isinstance(x, Tensor) and x.dtype.kind == "f" for x in args)
        super().__init__(cls.__name__, tuple(args[k] for k in self.direct), own)
        for k in self.direct:
            self.args[k] = None
        for x in self.operands.constants:
            if isinstance(x, np.ndarray):
                x.flags.writeable = False
        rule = cls.vjp if _declares(cls, "vjp") else cls.backward
        self.twice = f"{self.name}: {TWICE}" if getattr(rule, "once_differentiable", False) else None
        self.memory: Any = None
        self.out: Any = None

    # ------------------------------------------------------------ forward
    def all_arguments(self, direct: tuple[Any, ...]) -> tuple[Any, ...]:
        """Put arrays and recorded values among the other arguments."""
        args = list(self.args)
        for k, x in zip(self.direct, direct, strict=True):
            args[k] = x
        return tuple(args)

    def evaluate(self, arguments: Any) -> Any:
        # What is saved is found by identity, so a number is an object of its own.
        direct = tuple(x * 1.0 if isinstance(x, float | np.floating) else x for x in arguments)
        args = self.all_arguments(direct)
        ctx = Context(self.name, self.needs)
        result = _run(self.cls, ctx, args)
        outputs = outputs_of(self.name, result)
        if any_recorded(ctx.__dict__, ctx._saved):
            raise closed_over(f"{self.name}: forward saved in ctx what it")
        marked = Memory.marked(ctx, outputs)
        self.several = isinstance(result, tuple)
        self.sloped = [j for j, y in enumerate(outputs) if floating(y) and j not in marked]
        self.layouts = [(np.shape(y), np.asarray(y).dtype) if isinstance(y, VALUES) else None for y in outputs]
        self.memory = Memory(ctx, args, outputs, set(self.sloped))
        held = [not isinstance(y, VALUES | Tensor) or (floating(y) and j in marked) for j, y in enumerate(outputs)]
        values = [np.array(y) if isinstance(y, np.ndarray) else y for y in outputs]
        return tuple(_Held(y) if h else y for y, h in zip(values, held, strict=True))

    def apply(self) -> Any:
        tape = record.tape_of(tuple(self.operands.values))
        found = []
        for y in super().apply():
            if isinstance(y, _Held):
                y = record.constant(tape, y.value) if isinstance(y.value, VALUES) else y.value
            found.append(y)
        return tuple(found) if self.several else found[0]

    # ------------------------------------------------------------ backward
    def context(self, operands: list[Any], out: Any, *, forward: bool = False) -> Context:
        """Make the context that backward, or jvp, gets: of recorded values if the operands are recorded."""
        arguments = self.all_arguments(self.operands.arguments(operands))
        parts: list[Any] = []

        def source(origin: Origin) -> Any:
            if not origin.result:
                return arguments[origin.number]
            parts[:] = parts or self.results.parts(out, own)
            return parts[self.sloped.index(origin.number)]

        def again() -> Context:
            fresh = [
                record.handle(x._tape, x._slot, x._value, x._layout) if isinstance(x, Tensor) else x for x in operands
            ]
            ctx = Context(self.name, self.needs)
            _run(self.cls, ctx, self.all_arguments(self.operands.arguments(fresh)))
            return ctx

        recorded = any(isinstance(x, Tensor) for x in operands)
        reading = Reading(self.name, self.memory, source, again if recorded else None, forward=forward)
        return Context(self.name, self.needs, reading)

    def gradients(self, cotangents: list[Any], operands: list[Any], recorded: bool, out: Any) -> list[Any]:
        rule = _rule(self.cls)
        return self._checked(rule(self.context(operands, out), *self._of_results(cotangents)))

    def pullback(self, operands: list[Any], recorded: bool) -> Callable[[list[Any]], list[Any]]:
        rule, ctx = _rule(self.cls), self.context(operands, self.out)
        return lambda cotangents: self._checked(rule(ctx, *self._of_results(cotangents)))

    def _of_results(self, cotangents: list[Any]) -> list[Any]:
        """Give a cotangent for each result, also for those without derivative."""
        given = dict(zip(self.sloped, cotangents, strict=True))
        materialize = self.memory.materialize
        found: list[Any] = []
        for j, layout in enumerate(self.layouts):
            g = given.get(j)
            if g is None:
                g = np.zeros(*layout)[()] if materialize and layout is not None else None
            elif not materialize and not isinstance(g, Tensor) and not np.any(g):
                g = None
            found.append(g)
        return found

    def _checked(self, found: Any) -> list[Any]:
        """Give the adjoint of each varied operand from what backward returned."""
        gradients = list(found) if isinstance(found, tuple | list) else [found]
        who, count = f"function {self.name}Backward", len(self.args)
        while len(gradients) > count and gradients[-1] is None:
            gradients.pop()
        if len(gradients) != count:
            raise InvalidGradient(
                f"{who} returned an incorrect number of gradients (expected {count}, got {len(gradients)}): one for "
                "each argument of forward, None for an argument that has none"
            )
        for k, (x, g) in enumerate(zip(self.args, gradients, strict=True)):
            if k not in self.direct and g is not None and not isinstance(x, float | np.floating | np.ndarray):
                raise InvalidGradient(
                    f"{who} returned a gradient at index {k}, but the corresponding forward input is {described(x)}, "
                    "which has none: return None there"
                )
        varied = [k for k, varied in enumerate(self.operands.varied) if varied]
        places = [self.direct[self.operands.places[k]] for k in varied]
        return [
            None if gradients[p] is None else fit_gradient(who, p, gradients[p], *self.operands.layouts[k][:2])
            for k, p in zip(varied, places, strict=True)
        ]

    # ------------------------------------------------------------ forward mode
    def push(self, tangents: Sequence[Any], out: Any, *operands: Any) -> Any:
        call = copy.copy(self)  # the map may be used in several threads at once
        call.out = out
        return super(_Applied, call).push(tangents, out, *operands)

    def tangents(self, tangents: list[Any], operands: list[Any], recorded: bool) -> list[Any]:
        if not _declares(self.cls, "jvp"):
            return super().tangents(tangents, operands, recorded)
        ctx = self.context(operands, self.out, forward=True)
        zero = zero_tangent if self.memory.materialize else lambda x: None
        given = [zero(x) for x in self.args]
        for k, (x, t) in enumerate(zip(operands, tangents, strict=True)):
            given[self.direct[self.operands.places[k]]] = zero(x) if t is None else t
        found = self.cls.jvp(ctx, *given)
        pushed = found if isinstance(found, tuple | list) else (found,)
        if len(pushed) != len(self.layouts):
            raise RuleError(
                f"{self.name}: jvp returned an incorrect number of tangents (expected {len(self.layouts)}, got "
                f"{len(pushed)}): one for each result, None for a result that has none"
            )
        return [
            fit(pushed[j], shape, dtype, functools.partial("{}: for the tangent of result {} jvp".format, self.name, j))
            for j, (shape, dtype) in zip(self.sloped, self.results.floats.layouts, strict=True)
        ]
