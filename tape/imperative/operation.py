"""Operation: an op of the user's own as a class with `__call__` and `backward_var`, in MyGrad's shape."""

# ruff: noqa: ARG002  (rules have one form, whatever they need of it)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tape import record
from tape.application import any_recorded, closed_over
from tape.arguments import described
from tape.current import paused
from tape.errors import InputError, InvalidGradient, OutputError, RuleError, UnsupportedError
from tape.imperative.authored import VALUES, OnceApplication, fit_gradient, own, reject_nested
from tape.tensor import Tensor
from tape.transforms import stop_gradient


class SkipGradient(Exception):
    """Raised in `Operation.backward_var`: this operand gets no contribution from this op."""


class Operation:
    """An op of the user's own: subclass it, and call ``apply``, or `execute_op`.

    ``__call__(self, *inputs, **kwargs)`` computes an array, or a number, and sets ``self.variables`` to the inputs that
    ``backward_var`` answers for. It gets arrays that it cannot write to; their attribute ``data`` is the plain array.
    ``backward_var(self, grad, index)`` gives the gradient of variable `index` from that of the result. It is called
    only for those that need one, and may raise `SkipGradient` to contribute nothing. A gradient is summed to the shape
    of its variable if that was broadcast.

    Attributes
    ----------
    variables : tuple
        All inputs, if ``__call__`` does not say otherwise.

    Notes
    -----
    Each call has an instance of its own, so what else ``backward_var`` needs may be kept as an attribute. Both methods
    get plain values and need not be written in NumPy. In turn the gradient cannot be differentiated again: write a
    `Function` for that. Forward mode transposes ``backward_var``, which must be written in NumPy for it.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import grad
    >>> from tape.imperative.operation import Operation
    >>> class Multiply(Operation):
    ...     def __call__(self, x, y):
    ...         self.variables = x, y
    ...         return x.data * y.data
    ...
    ...     def backward_var(self, grad, index, **kwargs):
    ...         x, y = self.variables
    ...         return grad * (y.data if index == 0 else x.data)
    >>> grad(lambda x, y: np.sum(Multiply.apply(x, y)), argnums=(0, 1))(np.array([1.0, 2.0]), 3.0)
    (array([3., 3.]), 3.0)
    """

    variables: tuple[Any, ...]

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        """Compute the result, and set ``self.variables``."""
        raise UnsupportedError(f"{type(self).__name__} has no forward: define __call__(self, *inputs, **kwargs)")

    def backward_var(self, grad: Any, index: int, **kwargs: Any) -> Any:
        """Give the gradient of variable `index` from that of the result."""
        raise UnsupportedError(
            f"{type(self).__name__} has no backward_var: to differentiate it, define backward_var(self, grad, index)"
        )

    @classmethod
    def apply(cls, *inputs: Any, **kwargs: Any) -> Any:
        """Call the op: the inputs are arrays and numbers, and what else ``__call__`` takes is given by keyword."""
        return _applied(cls, inputs, (), kwargs)


def execute_op(
    Op: type[Operation],
    *inputs: Any,
    op_args: tuple[Any, ...] = (),
    op_kwargs: dict[str, Any] | None = None,
    constant: bool | None = None,
) -> Any:
    """Call an `Operation`.

    Parameters
    ----------
    Op : type
        A subclass of `Operation`.
    *inputs : array_like or Tensor
    op_args : tuple
        Further arguments of ``__call__`` after the inputs, that are not differentiated.
    op_kwargs : dict, optional
        Keyword arguments of ``__call__``.
    constant : bool, optional
        Whether no gradient flows through the result.

    Returns
    -------
    array, number or Tensor
        The result; a Tensor if an input is one.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import grad
    >>> from tape import Operation, execute_op
    >>> class Power(Operation):
    ...     def __call__(self, x, n):
    ...         self.variables, self.n = (x,), n
    ...         return x**n
    ...
    ...     def backward_var(self, grad, index):
    ...         (x,) = self.variables
    ...         return grad * self.n * x ** (self.n - 1)
    >>> grad(lambda x: execute_op(Power, x, op_args=(3,)))(2.0)
    12.0
    """
    result = _applied(Op, inputs, tuple(op_args), dict(op_kwargs or {}))
    return stop_gradient(result) if constant else result


def _applied(cls: type[Operation], inputs: tuple[Any, ...], op_args: tuple[Any, ...], op_kwargs: dict[str, Any]) -> Any:
    """Call an op on inputs some of which may be recorded, or tensors that a user holds."""
    if record.elsewhere(inputs):
        return record.apart(lambda *given: _called(cls, given, op_args, op_kwargs), inputs, {})
    return _called(cls, inputs, op_args, op_kwargs)


def _called(cls: type[Operation], inputs: tuple[Any, ...], op_args: tuple[Any, ...], op_kwargs: dict[str, Any]) -> Any:
    name = cls.__name__
    reject_nested(name, inputs)
    for what in (*op_args, *op_kwargs.values()):
        if any_recorded(what):
            raise InputError(
                f"{name}: a recorded value was given as an option, whose gradient would be lost: give it as an input"
            )
    given = tuple(_input(name, k, x) for k, x in enumerate(inputs))
    if any(isinstance(x, Tensor) for x in given):
        return _Applied(cls, given, op_args, op_kwargs).apply()
    with paused():
        result = _result(name, cls()(*map(_variable, given), *op_args, **op_kwargs))
    if isinstance(result, Tensor):
        raise closed_over(f"{name}: __call__")
    return result


def _input(name: str, k: int, x: Any) -> Any:
    """Give an input as an array, number or Tensor."""
    if isinstance(x, list | tuple):
        x = np.array(x)
    if not isinstance(x, VALUES | Tensor) or (isinstance(x, np.ndarray) and x.dtype.kind not in "fiub"):
        raise InputError(
            f"{name}: input {k} is {described(x)}, but inputs are arrays and numbers: give other arguments by keyword"
        )
    return x


def _result(name: str, y: Any) -> Any:
    """Give the result as a plain array or number."""
    if isinstance(y, Tensor):
        return y
    if not isinstance(y, VALUES):
        raise OutputError(f"{name}: __call__ must return an array or number, but it returned {described(y)}")
    return np.array(y)[()] if isinstance(y, np.ndarray | np.generic) else y


# ---------------------------------------------------------------- variables
class _Variable(np.ndarray[Any, Any]):
    """An array whose attribute `data` is the plain array; what is computed of it is plain."""

    @property
    def data(self) -> Any:
        return self.view(np.ndarray)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        plain = array.view(np.ndarray)
        return plain[()] if return_scalar else plain


def _variable(x: Any) -> Any:
    return own(x).view(_Variable)


# ---------------------------------------------------------------- the entry
class _Applied(OnceApplication):
    """A call of an `Operation`."""

    what = "__call__"

    def __init__(self, cls: type[Operation], inputs: tuple[Any, ...], op_args: Any, op_kwargs: Any) -> None:
        super().__init__(cls.__name__, inputs, own)
        self.cls, self.op_args, self.op_kwargs = cls, op_args, op_kwargs
        self.operation: Any = None
        self.indices: list[int] = []
        self.twice = (
            f"{self.name}: trying to differentiate twice an Operation, whose backward_var is differentiated once only: "
            "write a Function instead"
        )

    def evaluate(self, arguments: Any) -> Any:
        inputs = [_variable(x) for x in arguments]
        operation = self.cls()
        result = _result(self.name, operation(*inputs, *self.op_args, **self.op_kwargs))
        variables = getattr(operation, "variables", None)
        if variables is None:
            variables = operation.variables = tuple(inputs)
        numbers = {id(x): k for k, x in enumerate(inputs)}
        for x in variables:
            if id(x) not in numbers:
                raise RuleError(
                    f"{self.name}: self.variables must hold inputs of __call__ as they were given, but there is "
                    f"{described(x)} that is none of them"
                )
        if any_recorded(getattr(operation, "__dict__", None)):
            raise closed_over(f"{self.name}: __call__")
        self.operation, self.indices = operation, [numbers[id(x)] for x in variables]
        return result

    def gradients(self, cotangents: list[Any], operands: list[Any], recorded: bool, out: Any) -> list[Any]:
        return self.pullback(operands, recorded)(cotangents)

    def pullback(self, operands: list[Any], recorded: bool) -> Callable[[list[Any]], list[Any]]:
        layouts = {
            self.operands.places[k]: self.operands.layouts[k][:2] for k, v in enumerate(self.operands.varied) if v
        }

        def pull(cotangents: list[Any]) -> list[Any]:
            g = cotangents[0] if isinstance(cotangents[0], Tensor) else own(cotangents[0])
            found: dict[int, Any] = dict.fromkeys(layouts)
            for index, place in enumerate(self.indices):
                if place in layouts:
                    part = self._gradient(g, index, *layouts[place])
                    known = found[place]
                    found[place] = known if part is None else part if known is None else known + part
            return list(found.values())

        return pull

    def _gradient(self, g: Any, index: int, shape: tuple[int, ...], dtype: Any) -> Any:
        who = f"{self.name}.backward_var"
        try:
            found = self.operation.backward_var(g, index)
        except SkipGradient:
            return None
        if found is None:
            raise InvalidGradient(
                f"{who} returned an invalid gradient at index {index} - got a gradient of type NoneType but expected "
                "an array or number: raise SkipGradient where there is nothing to contribute"
            )
        return fit_gradient(who, index, found, shape, dtype)
