"""Rules of the user's own: custom_vjp gives a function its pullback, custom_jvp its pushforward.

A call on recorded values is one entry. The rule that is missing is the other one transposed: a pullback is linear in
the cotangent, a pushforward in the tangents.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tape import containers
from tape.application import Application, any_recorded, entry, fit, leaves_of, name_of, transposed
from tape.arguments import described
from tape.errors import InputError, RuleError


class _Custom:
    """A function with a rule; it works as a method, whose first argument then goes to the rules undifferentiated."""

    _kind = ""
    _declare = ""

    def __init__(self, function: Callable[..., Any], nondiff_argnums: int | Sequence[int]) -> None:
        if not callable(function):
            raise InputError(f"{self._kind} needs a function, got {described(function)}")
        chosen = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        if not all(isinstance(k, int) and k >= 0 for k in chosen):
            raise InputError(f"nondiff_argnums must be positions of arguments, got {nondiff_argnums!r}")
        self.function, self.nondiff_argnums = function, chosen
        self.name = name_of(function)
        wrapped: Any = self
        functools.update_wrapper(wrapped, function, updated=())

    def __repr__(self) -> str:
        return f"<{self._kind} of {self.name}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self._call, True, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(False, *args, **kwargs)

    @functools.cached_property
    def _signature(self) -> inspect.Signature | None:
        try:
            return inspect.signature(self.function)
        except (TypeError, ValueError):
            return None

    @entry
    def _call(self, method: bool, /, *args: Any, **kwargs: Any) -> Any:
        if not any_recorded(*args, *kwargs.values()):
            return self.function(*args, **kwargs)
        args = self._positional(args, kwargs)
        fixed = {0, *self.nondiff_argnums} if method else set(self.nondiff_argnums)
        for k in fixed:
            if k < len(args) and any_recorded(args[k]):
                raise InputError(
                    f"{self.name}: argument {k} is one of nondiff_argnums, but it is a recorded value: leave it out of "
                    "them, and let the rule give None for it if it has no slope"
                )
        return self._applied(args, sorted(k for k in fixed if k < len(args)))

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Give all arguments by position, keyword arguments and defaults too."""
        if self._signature is None:
            if kwargs:
                raise InputError(f"{self.name} has no signature, so its arguments must be given by position")
            return args
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        only = [k for k in bound.kwargs if k in kwargs]
        if only:
            raise InputError(
                f"{self.name}: the keyword-only arguments {', '.join(map(repr, only))} cannot be given to its rule, "
                "which takes arguments by position"
            )
        return bound.args

    def _applied(self, args: tuple[Any, ...], fixed: list[int]) -> Any:
        raise NotImplementedError

    def _argument(self, k: int) -> str:
        """Name an argument in messages."""
        names = [] if self._signature is None else list(self._signature.parameters)
        return f"argument {k} ({names[k]!r})" if k < len(names) else f"argument {k}"

    def _missing(self) -> RuleError:
        return RuleError(f"{self.name} has no rule yet: call {self.name}.{self._declare}")


class _Rule(Application):
    """A call of a function with a rule: what both kinds share.

    Parameters
    ----------
    custom : _Custom
    args : tuple
        All arguments.
    fixed : list of int
        Those that are not differentiated.
    """

    def __init__(self, custom: Any, args: tuple[Any, ...], fixed: list[int]) -> None:
        self.custom, self.fixed = custom, {k: args[k] for k in fixed}
        self.numbers = [k for k in range(len(args)) if k not in self.fixed]
        super().__init__(custom.name, tuple(args[k] for k in self.numbers))

    def all_arguments(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Put the fixed arguments among the others."""
        given = iter(arguments)
        count = len(self.fixed) + len(self.numbers)
        return tuple(self.fixed[k] if k in self.fixed else next(given) for k in range(count))

    def rule(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a rule; it gets the fixed arguments first."""
        return function(*self.fixed.values(), *arguments)


# ---------------------------------------------------------------- custom_vjp
class custom_vjp(_Custom):
    """Give a function its own rule for reverse mode.

    Parameters
    ----------
    function : callable
        Any function of arrays, numbers and containers of them, and of what else it needs. It gets plain values, so it
        may call what cannot be recorded (compiled code, files, other libraries); it must not write to its arguments,
        nor to what it returned.
    nondiff_argnums : int or sequence of int
        Positions of arguments that are not differentiated and no arrays: functions, options. The backward rule gets
        them first. In a method the instance is one of them.

    Notes
    -----
    ``f.defvjp(forward, backward)`` declares the rule. ``forward(*args)`` takes the arguments of the function and gives
    its result and residuals, whatever the backward rule needs. ``backward(residuals, cotangent)`` takes these and the
    cotangent of the result, in the container of the result (None in place of what is not of floating-point type), and
    gives a tuple with a cotangent for each argument, in its container and of its shape; None stands for zero.

    Called with plain values, the function is just called. Keyword arguments are resolved by the signature. Where the
    derivative is itself differentiated, both rules are run on recorded values and so must be written in NumPy; the same
    is true of the backward rule in forward mode, which transposes it.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import custom_vjp, grad
    >>> @custom_vjp
    ... def log1pexp(x):
    ...     return np.log(1.0 + np.exp(x))
    >>> def forward(x):
    ...     return log1pexp(x), x
    >>> def backward(x, cotangent):
    ...     return (cotangent / (1.0 + np.exp(-x)),)
    >>> log1pexp.defvjp(forward, backward)
    >>> grad(log1pexp)(0.0), grad(grad(log1pexp))(0.0)
    (0.5, 0.25)

    A gradient that is clipped on its way back; the limit is no array:

    >>> from functools import partial
    >>> @partial(custom_vjp, nondiff_argnums=1)
    ... def clipped(x, limit):
    ...     return x
    >>> clipped.defvjp(lambda x, limit: (x, None), lambda limit, _, g: (np.clip(g, -limit, limit),))
    >>> grad(lambda x: 100.0 * clipped(x, 1.0))(2.0)
    1.0
    """

    _kind = "custom_vjp"
    _declare = "defvjp(forward, backward)"

    def __init__(self, function: Callable[..., Any], nondiff_argnums: int | Sequence[int] = ()) -> None:
        super().__init__(function, nondiff_argnums)
        self.forward: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Declare the rule: see the notes of the class."""
        self.forward, self.backward = forward, backward

    def _applied(self, args: tuple[Any, ...], fixed: list[int]) -> Any:
        if self.forward is None:
            raise self._missing()
        return _Vjp(self, args, fixed).apply()


class _Vjp(_Rule):
    """A call of a function that has a pullback."""

    what = "forward"

    def evaluate(self, arguments: Any) -> Any:
        result, self.residuals = self._forward(arguments)
        if any_recorded(self.residuals):
            raise RuleError(
                f"{self.name}: forward gave recorded residuals although its arguments are plain, so it closes over a "
                "recorded value (or reads it from an object): pass that value as an argument"
            )
        return result

    def _forward(self, arguments: Any) -> tuple[Any, Any]:
        found = self.custom.forward(*self.all_arguments(arguments))
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise RuleError(
                f"{self.name}: forward must give a pair, the result and the residuals, but it gave {_counted(found)}"
            )
        return found[0], found[1]

    def _residuals(self, operands: list[Any], recorded: bool) -> Any:
        return self._forward(self.operands.arguments(operands))[1] if recorded else self.residuals

    def _backward(self, residuals: Any, cotangents: Sequence[Any]) -> list[Any]:
        """Give the adjoint of each varied operand."""
        found = self.rule(self.custom.backward, residuals, self.results.gather(cotangents))
        if not isinstance(found, tuple | list) or len(found) != len(self.numbers):
            raise RuleError(
                f"{self.name}: backward must give a tuple of {len(self.numbers)}, a cotangent for each argument (None "
                f"for zero), but it gave {_counted(found)}"
            )
        leaves: list[Any] = []
        for k, (g, structure) in enumerate(zip(found, self.operands.structure.children(), strict=True)):
            message = functools.partial(self._of, k)
            leaves += [None] * structure.num_leaves if g is None else leaves_of(g, structure, message)
        where = [k for k, varied in enumerate(self.operands.varied) if varied]
        return [
            fit(leaves[self.operands.places[k]], *self.operands.layouts[k][:2], functools.partial(self._at, k))
            for k in where
        ]

    def _of(self, k: int) -> str:
        return f"{self.name}: for {self.custom._argument(self.numbers[k])} backward"

    def _at(self, k: int) -> str:
        """Name an operand in messages."""
        place = self.operands.places[k]
        number = 0
        for structure in self.operands.structure.children():
            if place < structure.num_leaves:
                break
            place -= structure.num_leaves
            number += 1
        path = structure.accessors()[place].codify("")
        return f"{self.name}: for {self.custom._argument(self.numbers[number])}{path and f', at {path},'} backward"

    def gradients(self, cotangents: list[Any], operands: list[Any], recorded: bool, out: Any) -> list[Any]:
        return self._backward(self._residuals(operands, recorded), cotangents)

    def tangents(self, tangents: list[Any], operands: list[Any], recorded: bool) -> list[Any]:
        residuals = self._residuals(operands, recorded)
        given = [t for t, varied in zip(tangents, self.operands.varied, strict=True) if varied]

        def pull(*cotangents: Any) -> list[Any]:
            found = self._backward(residuals, cotangents)
            return [None if t is None else g for t, g in zip(given, found, strict=True)]

        return transposed(pull, self.results.ones(), given)


def _counted(x: Any) -> str:
    return f"{described(x)} of {len(x)}" if isinstance(x, tuple | list) else described(x)


# ---------------------------------------------------------------- custom_jvp
class custom_jvp(_Custom):
    """Give a function its own rule for forward mode; reverse mode transposes it.

    Parameters
    ----------
    function, nondiff_argnums
        As in `custom_vjp`.

    Notes
    -----
    ``f.defjvp(rule)`` declares the rule; it can be a decorator. ``rule(primals, tangents)`` takes the arguments and a
    tangent for each, in its container (zeros for an argument that has none), and gives the result and its tangent. The
    tangent must be linear in the tangents of the arguments, and computed from them by NumPy.

    ``f.defjvps(*rules)`` declares a rule for each argument: ``rule(tangent, out, *primals)`` gives what the argument
    contributes to the tangent of the result `out`. None stands for zero.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import custom_jvp, grad, jvp
    >>> @custom_jvp
    ... def sinc(x):
    ...     return np.sin(x) / x if x else np.ones(())
    >>> @sinc.defjvp
    ... def rule(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     slope = (np.cos(x) - sinc(x)) / x if x else 0.0 * x
    ...     return sinc(x), slope * t
    >>> jvp(sinc, (0.0,), (1.0,))
    (np.float64(1.0), np.float64(0.0))

    >>> product = custom_jvp(lambda x, y: x * y)
    >>> product.defjvps(lambda t, out, x, y: t * y, lambda t, out, x, y: x * t)
    >>> grad(product, argnums=(0, 1))(2.0, 3.0)
    (3.0, 2.0)
    """

    _kind = "custom_jvp"
    _declare = "defjvp(rule)"

    def __init__(self, function: Callable[..., Any], nondiff_argnums: int | Sequence[int] = ()) -> None:
        super().__init__(function, nondiff_argnums)
        self.jvp: Callable[..., Any] | None = None

    def defjvp(self, jvp: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the rule: see the notes of the class."""
        self.jvp = jvp
        return jvp

    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """Declare a rule for each argument: see the notes of the class."""
        if self.nondiff_argnums:
            raise InputError(f"{self.name}: defjvps cannot be used with nondiff_argnums; use defjvp")

        def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            if len(rules) != len(primals):
                raise RuleError(f"{self.name}: defjvps got {len(rules)} rules for {len(primals)} arguments")
            out = self(*primals)
            parts = [r(t, out, *primals) for r, t in zip(rules, tangents, strict=True) if r is not None]
            return out, functools.reduce(_added, parts) if parts else None

        self.jvp = jvp

    def _applied(self, args: tuple[Any, ...], fixed: list[int]) -> Any:
        if self.jvp is None:
            raise self._missing()
        return _Jvp(self, args, fixed).apply()


def _added(a: Any, b: Any) -> Any:
    """Add containers, leaf by leaf; None is zero."""
    x, structure = containers.flatten(a)
    y, _ = containers.flatten(b)
    return containers.unflatten(
        structure, [v if u is None else u if v is None else u + v for u, v in zip(x, y, strict=True)]
    )


class _Jvp(_Rule):
    """A call of a function that has a pushforward."""

    def evaluate(self, arguments: Any) -> Any:
        return self.custom.function(*self.all_arguments(arguments))

    def _push(self, operands: list[Any], tangents: list[Any]) -> list[Any]:
        """Give the tangent of each floating-point result."""
        zeros = [_zero(x) if t is None else t for t, x in zip(tangents, operands, strict=True)]
        directions = self.operands.directions(zeros)
        given = self.rule(self.custom.jvp, self.operands.arguments(operands), directions)
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise RuleError(
                f"{self.name}: the rule must give a pair, the result and its tangent, but it gave {_counted(given)}"
            )
        results = self.results
        message = f"{self.name}: for the tangent of the result the rule"
        if given[1] is None:
            return [None] * len(results.floating)
        leaves = leaves_of(given[1], results.structure, lambda: message)
        found = zip(results.floating, results.floats.layouts, strict=True)
        return [fit(leaves[place], shape, dtype, lambda: message) for place, (shape, dtype) in found]

    def tangents(self, tangents: list[Any], operands: list[Any], recorded: bool) -> list[Any]:
        return self._push(operands, tangents)

    def gradients(self, cotangents: list[Any], operands: list[Any], recorded: bool, out: Any) -> list[Any]:
        varied = self.operands.varied

        def push(*tangents: Any) -> list[Any]:
            given = iter(tangents)
            return self._push(operands, [next(given) if v else None for v in varied])

        return transposed(push, self.operands.ones(), cotangents)


def _zero(x: Any) -> Any:
    """Give the zero tangent of an operand."""
    if isinstance(x, float):
        return 0.0
    dtype = x.dtype if x.dtype.kind == "f" else np.float64
    return np.zeros(x.shape, dtype)[()]
