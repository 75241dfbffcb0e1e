"""Ops of the user's own, declared as `ops` declares its own: one declaration gives every derivative."""

from __future__ import annotations

import functools
import inspect
import itertools
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ops.catalog import UFUNCS, Elementwise, Structural
from ops.multilinear import in_turn
from tape import dispatch, kernels, record
from tape.application import guarded, name_of
from tape.arguments import described
from tape.errors import InputError, OutputError, RuleError
from tape.tensor import Tensor

Partial = Callable[..., Any]

_codes: dict[Any, int] = {}
"""The opcode of a user's op by name and rules: declaring it again, as notebooks do, takes its place."""

_ufuncs: dict[tuple[str, Any], Any] = {}
"""The ufunc that was last declared under a name, in a module."""

_guard = threading.Lock()
_unlisted = itertools.count(-1, -1)


def elementwise_op(
    function: Callable[..., Any], *partials: Partial | None, name: str | None = None, compiled: bool = True
) -> Elementwise:
    """Declare an elementwise op: a function of arrays and its partial derivatives.

    Parameters
    ----------
    function : callable
        A ufunc (NumPy's, SciPy's, one made by `numba.vectorize` or `numpy.frompyfunc`), or a Python function of arrays
        and numbers whose result has the shape that they broadcast to. It must not write to them.
    *partials : callable or None
        For each operand the partial derivative, an expression of the operands and the result:
        ``lambda x, y, out: -out / y``. None: the slope is zero everywhere. An expression of arithmetic, ``np.``
        functions and functions of ``scipy.special`` by the name ``special.`` becomes a compiled kernel, kept on disk
        for the next process; anything else (a closure, another function) is evaluated on arrays by Python. It may use
        this op or others, and is differentiated in turn for higher derivatives.
    name : str, optional
        What the op is called in messages and by `show`.
    compiled : bool
        False leaves all partials to Python.

    Returns
    -------
    op
        Call it in place of the function: on plain values it is the function, on recorded ones it is recorded. A ufunc
        that the library has no rule for may be called itself, too. Declaring an op again replaces it.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import elementwise_op, grad
    >>> def _softplus(x):
    ...     return np.logaddexp(x, 0.0)
    >>> softplus = elementwise_op(_softplus, lambda x, out: 1 / (1 + np.exp(-x)))
    >>> grad(lambda x: np.sum(softplus(x)))(np.array([0.0, 1.0])).round(3)
    array([0.5  , 0.731])
    >>> grad(grad(softplus))(0.0)
    0.25
    """
    if not callable(function):
        raise InputError(f"elementwise_op needs a function, got {described(function)}")
    name = _checked_name(name or name_of(function))
    _check_partials(name, function, partials)
    if not compiled:
        partials = tuple(None if p is None else functools.partial(p) for p in partials)
    key = _rules(name, partials)
    with _guard:
        code = next(_unlisted) if key is None else _codes.get(key)
        op = Elementwise(_forward(name, function), partials, name=name, code=code)
        if key is not None:
            _codes[key] = op.code
    if isinstance(getattr(function, "ufunc", function), np.ufunc):
        _answer(op, function, next((getattr(p, "__module__", None) for p in partials if p is not None), None))
    return op


def structural_op(
    forward: Callable[..., Any],
    *pullbacks: Partial | None,
    every: Partial | None = None,
    pushforward: Callable[..., Any] | str | None = None,
    name: str | None = None,
) -> Structural:
    """Declare an op on whole arrays: a function and a pullback for each operand.

    Parameters
    ----------
    forward : callable
        ``forward(*operands, **parameters)`` computes an array or number from plain ones. It must not write to them.
    *pullbacks : callable or None
        One for each operand: ``pullback(g, out, *operands, **parameters)`` gives the adjoint of the operand from that
        of the result `out`, in the operand's shape. None: the slope is zero. For higher derivatives they are run on
        recorded values, so they are written in NumPy.
    every : callable, optional
        In place of all pullbacks, for any number of operands; it gets the position of the operand first.
    pushforward : callable or "linear" or "multilinear", optional
        ``pushforward(tangents, out, *operands, **parameters)`` gives the tangent of the result; an operand without
        tangent has None. ``"linear"``: the op is linear in all operands together; ``"multilinear"``: in each of them.
        By default forward mode transposes the pullbacks.
    name : str, optional
        What the op is called in messages and by `show`.

    Returns
    -------
    op
        Call it in place of the function, operands by position and parameters by keyword.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import grad, structural_op
    >>> rotate = structural_op(
    ...     lambda x, k: np.concatenate([x[k:], x[:k]]),
    ...     lambda g, out, x, k: np.concatenate([g[-k:], g[:-k]]),
    ...     pushforward="linear",
    ...     name="rotate",
    ... )
    >>> grad(lambda x: rotate(x, k=1)[0] ** 2)(np.array([1.0, 2.0, 3.0]))
    array([0., 4., 0.])
    """
    if not callable(forward):
        raise InputError(f"structural_op needs a function, got {described(forward)}")
    if pushforward not in (None, "linear", "multilinear") and not callable(pushforward):
        raise InputError(f"pushforward must be a function, 'linear' or 'multilinear', got {pushforward!r}")
    name = _checked_name(name or name_of(forward))
    rules: Any = tuple(p and _checked_pullback(name, k, p) for k, p in enumerate(pullbacks))
    if every is not None:
        rules = _checked_every(name, every)
    if callable(pushforward):
        pushforward = _protected(pushforward)
    made = Structural(name, _protected(forward), rules, pushforward=pushforward, code=next(_unlisted))
    if pushforward == "multilinear":
        made.pushforward = in_turn(made)
    return made


# ---------------------------------------------------------------- declarations
def _checked_name(name: str) -> str:
    """Give a name that a file of compiled code can have."""
    return re.sub(r"\W+", "_", name).strip("_") or "op"


def _check_partials(name: str, function: Any, partials: Sequence[Any]) -> None:
    """Raise if the partials are not those of the function's operands."""
    if not partials:
        raise InputError(f"{name} needs a partial derivative for each operand, or None")
    ufunc = getattr(function, "ufunc", function)
    if isinstance(ufunc, np.ufunc):
        if ufunc.nout != 1 or ufunc.signature is not None:
            raise InputError(f"{name} is not elementwise, or has several results: use structural_op")
        if ufunc.nin != len(partials):
            raise InputError(f"{name} has {ufunc.nin} operands, but {len(partials)} partial derivatives were given")
    for k, partial in enumerate(partials):
        if partial is None:
            continue
        if not callable(partial):
            raise InputError(f"the partial derivative of {name} by operand {k} must be a function or None")
        try:
            inspect.signature(partial).bind(*range(len(partials) + 1))
        except TypeError as error:
            raise InputError(
                f"the partial derivative of {name} by operand {k} must take {len(partials) + 1} arguments: the "
                "operands and the result"
            ) from error


def _rules(name: str, partials: Sequence[Any]) -> Any:
    """Give the key of compiled rules, None if they are not: kernels are found by opcode, which equal rules share."""
    given = [p for p in partials if p is not None]
    if not given or len(partials) > 3 or not all(map(kernels.callable_natively, given)):
        return None
    codes = [p.__code__ for p in given]
    rules = tuple((c.co_code, repr(c.co_consts), c.co_names, c.co_varnames) for c in codes)
    return name, tuple(p is None for p in partials), rules


def _forward(name: str, function: Any) -> Callable[..., Any]:
    """Give a function that is sure to give an array of numbers of the right shape."""
    if isinstance(function, np.ufunc) and not all(t.endswith("O") for t in function.types):
        return function
    whole = isinstance(getattr(function, "ufunc", function), np.ufunc)

    @functools.wraps(function)
    def forward(*operands: Any) -> Any:
        result = function(*map(_lent, operands))
        found = np.asarray(result)
        if found.dtype == object and whole:  # numpy.frompyfunc
            result = found = found.astype(float)
        shape = np.broadcast_shapes(*map(np.shape, operands))
        if found.shape != shape or found.dtype.kind not in "fiub":
            raise OutputError(
                f"{name} must give an array of shape {shape}, that of its operands, but it gave "
                f"{described(result)} of shape {found.shape} and dtype {found.dtype}"
            )
        return result

    return forward


def _answer(op: Elementwise, ufunc: Any, module: Any) -> None:
    """Let a ufunc without rule, called on recorded values, find the op."""
    import ops.special  # noqa: F401  # its rules come first

    last = _ufuncs.pop((op.name, module), None)
    if last is not None:
        dispatch.forget(last)
    if ufunc not in UFUNCS:
        _ufuncs[op.name, module] = ufunc
        dispatch.answer(ufunc, lambda *operands: record.elementwise(op, operands))


# ---------------------------------------------------------------- rules that are checked
def _lent(x: Any) -> Any:
    return guarded(x) if isinstance(x, np.ndarray) and x.shape else x


def _protected(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function that cannot write to its arrays."""

    @functools.wraps(function)
    def protected(*arguments: Any, **parameters: Any) -> Any:
        return function(*map(_lent, arguments), **parameters)

    return protected


def _checked_pullback(name: str, position: int, rule: Partial) -> Partial:
    protected = _protected(rule)

    @functools.wraps(rule)
    def checked(g: Any, out: Any, *operands: Any, **parameters: Any) -> Any:
        found = protected(g, out, *operands, **parameters)
        return _fitting(name, position, found, operands[position])

    return checked


def _checked_every(name: str, rule: Partial) -> Partial:
    protected = _protected(rule)

    @functools.wraps(rule)
    def checked(position: int, g: Any, out: Any, *operands: Any, **parameters: Any) -> Any:
        found = protected(position, g, out, *operands, **parameters)
        return _fitting(name, position, found, operands[position])

    return checked


def _fitting(name: str, position: int, found: Any, operand: Any) -> Any:
    """Check what a pullback gave."""
    if found is None:
        return None
    shape = found.shape if isinstance(found, Tensor) else np.shape(found)
    if shape != np.shape(operand):
        raise RuleError(
            f"{name}: the pullback of operand {position} gave an array of shape {shape}, where {np.shape(operand)} is "
            "needed"
        )
    return found
