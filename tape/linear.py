"""The linear maps of a derivative: vjp, jvp, linearize."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tape.arguments import Argnums
from tape.call import linear_entries
from tape.errors import InputError, StaleTensorError, TangentError
from tape.tensor import Tensor
from tape.trace import Outputs, Trace, match, named
from tape.transforms import split_aux


class _Map:
    """A linear map that belongs to a recorded call; it keeps the call's tape until it is dropped."""

    _name = "pullback"

    def __init__(self, trace: Trace, outputs: Outputs) -> None:
        self.trace, self.outputs = trace, outputs
        if trace.keep:
            weakref.finalize(self, trace.tape.close)

    def __repr__(self) -> str:
        return f"<{self._name} of a recorded call>"

    def _check(self) -> None:
        if self.trace.tape.workspace is None:
            raise StaleTensorError(
                f"this {self._name} was made inside a function that was being differentiated and has returned, and its "
                "tape is gone: call it inside that function, or make it outside of any"
            )


class Pullback(_Map):
    """Give for a cotangent of the result the gradients of the arguments: the product with the transposed Jacobian."""

    def __call__(self, cotangent: Any, *more: Any) -> tuple[Any, ...]:
        """Pull a cotangent, in the container of the result, back to a tuple with one gradient for each argument."""
        self._check()
        if more:
            raise TangentError(
                f"the pullback takes one cotangent, in the container of the result, got {1 + len(more)}: where the "
                "function returns a tuple, write `pullback((c1, c2))`"
            )
        found: tuple[Any, ...] = pull(self.trace, self.outputs, cotangent)
        return found


class Pushforward(_Map):
    """Give for tangents of the arguments the tangent of the result: the product with the Jacobian."""

    _name = "pushforward"

    def __call__(self, *tangents: Any) -> Any:
        """Push tangents, one for each argument, forward to a tangent in the container of the result."""
        self._check()
        count = len(self.trace.arguments.structures)
        if len(tangents) != count:
            raise TangentError(
                f"the pushforward takes one tangent for each argument of the function, {count} in all, got "
                f"{len(tangents)}: None stands for an argument that is held fixed"
            )
        return push(self.trace, self.outputs, tangents)


def pull(trace: Trace, outputs: Outputs, cotangent: Any) -> Any:
    """Give the gradients of a recorded result, in the container of the arguments."""
    seeds = outputs.cotangents(cotangent)
    if any(isinstance(s, Tensor) and s._tape is not trace.tape for s in seeds):
        # The cotangent is being recorded on another tape: the map is one entry there.
        found = linear_entries(
            seeds,
            forward=lambda given: trace.pull(outputs.recorded, given),
            transposed=lambda given: trace.push(given, outputs.recorded),
        )
    else:
        found = trace.pull(outputs.recorded, seeds)
    return trace.arguments.gather(found)


def push(trace: Trace, outputs: Outputs, tangents: Any) -> Any:
    """Give the tangent of a recorded result."""
    seeds = argument_tangents(trace, tangents)
    if any(isinstance(s, Tensor) and s._tape is not trace.tape for s in seeds):
        zeros = [
            np.zeros(x._layout.shape, x._layout.dtype) if s is None else s
            for x, s in zip(trace.inputs, seeds, strict=True)
        ]
        found = linear_entries(
            zeros,
            forward=lambda given: trace.push(given, outputs.recorded),
            transposed=lambda given: trace.pull(outputs.recorded, given),
        )
    else:
        found = trace.push(seeds, outputs.recorded)
    leaves: list[Any] = [np.zeros(shape, dtype) for shape, dtype in outputs.layouts]
    for k, t in zip(outputs.positions, found, strict=True):
        leaves[k] = t
    return outputs.gather([_number(t, y) for t, y in zip(leaves, outputs.values, strict=True)])


def _number(t: Any, y: Any) -> Any:
    """Give the tangent of a number as a number."""
    if isinstance(t, Tensor):
        return t
    if type(y) in (float, int) or (isinstance(y, Tensor) and y._layout.weak):
        return float(t)
    return t[()] if np.ndim(t) == 0 and not isinstance(t, float) else t


def argument_tangents(trace: Trace, tangents: Any, what: str = "tangent") -> list[Any]:
    """Check tangents for the differentiated arguments, and give their leaves; None stands for no tangent."""
    arguments = trace.arguments
    if not isinstance(tangents, tuple | list) or len(tangents) != len(arguments.structures):
        count = len(arguments.structures)
        raise TangentError(
            f"{what}s must be a tuple with one {what} for each differentiated argument: "
            + ("`(t,)` here" if count == 1 else f"{count} here, None for one that is held fixed")
            + f", but got {len(tangents) if isinstance(tangents, tuple | list) else named(tangents)}"
        )
    found: list[Any] = []
    for number, (tangent, structure) in enumerate(zip(tangents, arguments.structures, strict=True)):
        count = 1 if structure is None else structure[1]
        layouts = [(x._layout.shape, x._layout.dtype) for x in trace.inputs[len(found) : len(found) + count]]
        if tangent is None:
            found += [None] * count
            continue
        name = f"{what} {number}" if len(tangents) > 1 else f"the {what}"
        position = trace.argnums[number] if isinstance(trace.argnums, tuple | list) else trace.argnums
        found += match(tangent, structure and structure[0], layouts, name, f"argument {position!r}")
    return found


def vjp(
    function: Callable[..., Any],
    *primals: Any,
    argnums: Argnums | None = None,
    has_aux: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a function and give its result and its pullback: the products of cotangents with the Jacobian.

    Parameters
    ----------
    function : callable
        Written in plain NumPy; it returns an array, a number, or a container of them (with `has_aux`, a pair of that
        and anything else).
    *primals
        Its arguments: floating-point arrays, numbers, or containers of them. Keyword arguments are passed on.
    argnums : int, str, or tuple of them, optional
        Which arguments to differentiate, by default all. The others are passed on as they are.
    has_aux : bool
        The function returns ``(result, extra)``.

    Returns
    -------
    result
        What the function returned.
    pullback : callable
        ``pullback(cotangent)``, the cotangent in the container, shapes and dtypes of the result, gives a tuple of
        gradients, one for each argument (for one argument number, the gradient alone). It may be called any number of
        times and stays right when the arguments have been overwritten. It holds the memory of the recorded call.
    extra
        With `has_aux` only.

    Raises
    ------
    OutputError
        If a result is not of floating-point type.
    TangentError
        From the pullback, if the cotangent does not fit the result.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import vjp
    >>> y, pullback = vjp(lambda x: x[1:] * x[:-1], np.array([1.0, 2.0, 3.0]))
    >>> y
    array([2., 6.])
    >>> pullback(np.array([1.0, 0.0]))
    (array([2., 1., 0.]),)
    """
    _need_primals("vjp", primals)
    with Trace(function, _chosen(argnums, primals), primals, kwargs, keep=True) as trace:
        result, aux = split_aux(trace.result, has_aux)
        outputs = Outputs(trace, result, "vjp")
        pullback = Pullback(trace, outputs)
        value = trace.plain(result), pullback
        return (*value, trace.plain(aux)) if has_aux else value


def jvp(function: Callable[..., Any], primals: Any, tangents: Any, *, has_aux: bool = False, **kwargs: Any) -> Any:
    """Call a function and give its result and its directional derivative, by forward mode.

    Parameters
    ----------
    function : callable
        As in `vjp`.
    primals : tuple
        Its arguments.
    tangents : tuple
        The direction: for each argument a tangent in its container and of its shape, or None if it is held fixed,
        whatever its type.
    has_aux : bool
        The function returns ``(result, extra)``.

    Returns
    -------
    result, tangent
        What the function returned, and its derivative along the direction, in the same container (with `has_aux`,
        ``result, tangent, extra``).

    Raises
    ------
    OutputError
        If a result is not of floating-point type.
    TangentError
        If a tangent does not fit its argument.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import jvp
    >>> jvp(lambda x, y: x * y, (np.array([1.0, 2.0]), 3.0), (np.array([1.0, 0.0]), 1.0))
    (array([3., 6.]), array([4., 2.]))
    """
    if not isinstance(primals, tuple | list):
        raise InputError(f"primals must be a tuple of the arguments, got {named(primals)}: write `(x,)`")
    _need_primals("jvp", primals)
    held = isinstance(tangents, tuple | list) and len(tangents) == len(primals)
    moved = tuple(k for k, t in enumerate(tangents) if t is not None) if held else ()
    if moved:
        tangents = [tangents[k] for k in moved]
    with Trace(function, moved or _chosen(None, primals), tuple(primals), kwargs, beside=tangents) as trace:
        result, aux = split_aux(trace.result, has_aux)
        outputs = Outputs(trace, result, "jvp")
        tangent = push(trace, outputs, tangents)
        value = trace.plain(result), tangent
        return (*value, trace.plain(aux)) if has_aux else value


def linearize(
    function: Callable[..., Any],
    *primals: Any,
    argnums: Argnums | None = None,
    has_aux: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a function and give its result and its pushforward: the products of the Jacobian with tangents.

    It is what `vjp` is for the transposed map: ``pushforward(*tangents)`` gives what `jvp` gives, for any number of
    directions, without calling the function again. Parameters and errors are those of `vjp`.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import linearize
    >>> y, pushforward = linearize(np.sin, np.array([0.0, np.pi]))
    >>> pushforward(np.array([1.0, 1.0]))
    array([ 1., -1.])
    """
    _need_primals("linearize", primals)
    with Trace(function, _chosen(argnums, primals), primals, kwargs, keep=True) as trace:
        result, aux = split_aux(trace.result, has_aux)
        outputs = Outputs(trace, result, "linearize")
        value = trace.plain(result), Pushforward(trace, outputs)
        return (*value, trace.plain(aux)) if has_aux else value


def _chosen(argnums: Argnums | None, primals: Any) -> Argnums:
    return tuple(range(len(primals))) if argnums is None else argnums


def _need_primals(name: str, primals: Any) -> None:
    if not primals:
        example = {"jvp": "jvp(f, (x,), (t,))"}.get(name, f"{name}(f, x)")
        raise InputError(f"{name} needs at least one argument to differentiate by: `{example}`")
