"""Second derivatives of elementwise ops, worked out from the partials that they declare.

A partial is called on symbols and gives an expression; the expression is differentiated by the partials of the
ufuncs in it, and written as a function of numbers that compiled kernels call.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ops.catalog import UFUNCS, Elementwise

NAMES = ("x", "y", "z")
"""What operands are called in a function that is written."""


class NoExpressionError(NotImplementedError):
    """A partial does something that has no expression: its second derivative is left to recorded values."""


class Symbol(NDArrayOperatorsMixin):
    """A number that is not known yet: a variable, or a function of others. Equal ones are one object."""

    __hash__ = object.__hash__

    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        self.function, self.arguments = function, arguments

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        if method != "__call__" or keywords:
            raise NoExpressionError
        return apply(ufunc, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is not np.where or kwargs or len(args) != 3:
            raise NoExpressionError
        return apply(np.where, *args)

    def __bool__(self) -> bool:
        raise NoExpressionError


_made: dict[Any, Symbol] = {}


def _symbol(function: Any, *arguments: Any) -> Symbol:
    # Not by equality: 0.0 equals -0.0, and 1 equals True.
    key = (function, *(a if isinstance(a, Symbol) else (type(a), repr(a)) for a in arguments))
    found = _made.get(key)
    if found is None:
        found = _made[key] = Symbol(function, arguments)
    return found


def variable(name: str) -> Symbol:
    """Give the variable of a name."""
    return _symbol("variable", name)


def apply(function: Any, *arguments: Any) -> Any:
    """Give a function of numbers and symbols, simplified."""
    given = [a if isinstance(a, Symbol) else a.item() if hasattr(a, "item") else a for a in arguments]
    if not any(isinstance(a, Symbol) for a in given):
        return function(*given)
    return _simplified(function, given) if function in _SIMPLER else _symbol(function, *given)


def _is(x: Any, value: float) -> bool:
    return not isinstance(x, Symbol) and x == value


def _simplified(function: Any, given: list[Any]) -> Any:
    """Drop zeros and ones. A product with 0 is 0, as everywhere here."""
    a, b = given[0], given[-1]
    if function is np.where:
        condition, a, b = given
        if not isinstance(condition, Symbol):
            return a if condition else b
        return a if a is b or (not isinstance(a, Symbol) and _is(b, a)) else _symbol(function, *given)
    if function in (np.bitwise_and, np.bitwise_or):
        known, other = (b, a) if isinstance(a, Symbol) else (a, b)
        if isinstance(known, Symbol):
            return _symbol(function, *given)
        return other if bool(known) is (function is np.bitwise_and) else known
    if function is np.multiply and (_is(a, 0) or _is(b, 0)):
        return 0.0
    if function in (np.multiply, np.divide) and _is(b, 1):
        return a
    if (function is np.multiply and _is(a, 1)) or (function is np.add and _is(a, 0)):
        return b
    if function in (np.add, np.subtract) and _is(b, 0):
        return a
    if function is np.subtract and _is(a, 0):
        return apply(np.negative, b)
    if function is np.divide and _is(a, 0):
        return 0.0
    return _symbol(function, *given)


_SIMPLER = {np.where, np.multiply, np.divide, np.add, np.subtract, np.bitwise_and, np.bitwise_or}


# ---------------------------------------------------------------- differentiating
def slope(expression: Any, wrt: Symbol) -> Any:
    """Differentiate an expression by one variable, the others held fixed."""
    known: dict[int, Any] = {}

    def by(node: Any) -> Any:
        if not isinstance(node, Symbol) or node.function == "variable":
            return 1.0 if node is wrt else 0.0
        if id(node) not in known:
            known[id(node)] = _by_rule(node, by)
        return known[id(node)]

    return by(expression)


def _by_rule(node: Symbol, by: Callable[[Any], Any]) -> Any:
    if node.function is np.where:
        condition, a, b = node.arguments
        return apply(np.where, condition, by(a), by(b))
    op = UFUNCS.get(node.function)
    if op is None:
        raise NoExpressionError
    total: Any = 0.0
    for argument, partial in zip(node.arguments, op.partials, strict=True):
        inner = by(argument)
        if partial is not None and not _is(inner, 0):
            total = apply(np.add, total, apply(np.multiply, expression_of(partial, (*node.arguments, node)), inner))
    return total


def expression_of(partial: Any, arguments: tuple[Any, ...]) -> Any:
    """Call a partial on symbols."""
    if hasattr(partial, "unknown"):
        raise NoExpressionError
    try:
        found = partial(*arguments)
    except (TypeError, AttributeError) as error:
        raise NoExpressionError from error
    if not isinstance(found, Symbol | int | float | np.generic):
        raise NoExpressionError
    return found


@functools.cache
def second_partials(op: Elementwise, position: int) -> tuple[Any, ...]:
    """Give the derivatives of a partial by each operand, as expressions; the result varies with the operands.

    Raises NoExpressionError for what has no expression.
    """
    operands = tuple(variable(name) for name in NAMES[: op.nin])
    out = variable("out")
    partial = op.partials[position]
    if partial is None:
        return (0.0,) * op.nin
    first = expression_of(partial, (*operands, out))
    through = slope(first, out)
    found = []
    for operand, own in zip(operands, op.partials, strict=True):
        total = slope(first, operand)
        if own is not None and not _is(through, 0):
            inner = apply(np.multiply, through, expression_of(own, (*operands, out)))
            total = apply(np.add, total, inner)
        found.append(total)
    return tuple(found)


# ---------------------------------------------------------------- writing
_INFIX = {
    np.add: "+", np.subtract: "-", np.multiply: "*", np.divide: "/", np.equal: "==", np.not_equal: "!=",
    np.less: "<", np.less_equal: "<=", np.greater: ">", np.greater_equal: ">=", np.bitwise_and: "&",
    np.bitwise_or: "|",
}  # fmt: skip


def directional(op: Elementwise, position: int) -> str | None:
    """Write the derivative of a partial along tangents of the operands as a Python function; None if it is 0.

    Its parameters are the operands, `out`, and the tangents ``tx``, ``ty``, ``tz``. A term of which a factor is exactly
    0 is 0.
    """
    writer = _Writer()
    terms = []
    for name, second in zip(NAMES, second_partials(op, position), strict=False):
        if not _is(second, 0):
            factor = writer.write(second)
            terms.append(f"({factor} * t{name} if {factor} != 0.0 and t{name} != 0.0 else 0.0)")
    if not terms:
        return None
    operands = NAMES[: op.nin]
    parameters = ", ".join((*operands, "out", *(f"t{name}" for name in operands)))
    return "\n".join([f"def rule({parameters}):", *writer.lines, f"    return {' + '.join(terms)}", ""])


class _Writer:
    """Writes expressions as assignments, each node once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[int, str] = {}

    def write(self, node: Any) -> str:
        """Write what a node needs, and give its name."""
        if not isinstance(node, Symbol):
            return self._assign(_number(float(node)))
        if node.function == "variable":
            return str(node.arguments[0])
        if id(node) not in self.names:
            given = [self.write(a) if isinstance(a, Symbol) else _number(a) for a in node.arguments]
            self.names[id(node)] = self._assign(_call(node.function, given))
        return self.names[id(node)]

    def _assign(self, text: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"    {name} = {text}")
        return name


def _number(value: Any) -> str:
    value = float(value)
    if math.isnan(value):
        return "np.nan"
    return repr(value) if math.isfinite(value) else "np.inf" if value > 0 else "(-np.inf)"


def _call(function: Any, given: list[str]) -> str:
    sign = _INFIX.get(function)
    if sign is not None:
        return f"{given[0]} {sign} {given[1]}"
    if function is np.negative:
        return f"-{given[0]}"
    if function is np.square:
        return f"{given[0]} * {given[0]}"
    if function is np.positive:
        return given[0]
    space = "np" if getattr(np, function.__name__, None) is function else "special"
    return f"{space}.{function.__name__}({', '.join(given)})"
