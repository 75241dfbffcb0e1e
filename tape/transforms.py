"""Transforms of functions: grad, value_and_grad, elementwise_grad."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, overload

import numpy as np

from ops import create
from tape import containers, record
from tape.adjoints import Adjoints
from tape.arguments import Argnums, Arguments, described, is_leaf
from tape.errors import InputError, ScalarOutputError, UnsupportedError
from tape.layout import PYTHON_FLOAT
from tape.tensor import Tensor
from tape.wengert import Tape

F = TypeVar("F", bound=Callable[..., Any])


class _Current(threading.local):
    tape: Any = None


_current = _Current()


def _record_new(array: np.ndarray[Any, Any]) -> Any:
    tape = _current.tape
    return array if tape is None else record.leaf_array(tape, array)


create.recorded.append(_record_new)


# ---------------------------------------------------------------- results
def _plain(tree: Any) -> Any:
    """Replace the Tensors of a result by plain arrays and numbers."""
    if isinstance(tree, Tensor):
        tree._alive()
        if tree._layout is PYTHON_FLOAT:
            return float(tree._value)
        return tree.numpy()[()] if not tree._layout.shape else tree.numpy()
    if is_leaf(tree) or tree is None or isinstance(tree, str):
        return tree
    leaves, structure = containers.flatten(tree)
    return containers.unflatten(structure, [_plain(x) if isinstance(x, Tensor) else x for x in leaves])


def _describe(y: Any) -> str:
    shape = getattr(y, "shape", None)
    return f"an array of shape {shape}" if shape else described(y)


def _scalar(y: Any, tape: Tape, how: str) -> Tensor | None:
    """Give the output if it is one recorded number, None if it is a plain number that depends on nothing."""
    if isinstance(y, Tensor):
        if y._tape is not tape:
            y._tape.refuse()
            raise UnsupportedError("the function returned a value recorded on another tape")
        if y._layout.size != 1 or y._layout.shape:
            raise ScalarOutputError(
                f"{how} needs a function whose result is one number, but it returned {_describe(y)}. "
                "Reduce it (`np.sum(result)`), use `elementwise_grad(f)` if each result depends on one input only, "
                "or differentiate one element at a time (`grad(lambda x: f(x)[i])`)"
            )
        if y._layout.dtype.kind != "f":
            raise ScalarOutputError(f"{how} needs a floating-point result, but the function returned {y.dtype}")
        return y
    if isinstance(y, int | float | np.integer | np.floating) or (isinstance(y, np.ndarray) and y.ndim == 0):
        return None
    if isinstance(y, np.ndarray):
        raise ScalarOutputError(
            f"{how} needs a function whose result is one number, but it returned {_describe(y)}. "
            "Reduce it (`np.sum(result)`)"
        )
    extra = " If it returns further values, say has_aux=True" if isinstance(y, tuple) else ""
    raise ScalarOutputError(
        f"{how} needs a function whose result is one number, but it returned {described(y)}.{extra}"
    )


# ---------------------------------------------------------------- transforms
class _Transform:
    """A differentiated function; it pickles if the function does, and works as a method."""

    def __init__(self, function: Callable[..., Any], argnums: Argnums, has_aux: bool) -> None:
        if not callable(function):
            raise InputError(f"{self._name} needs a function, got {described(function)}")
        self.function, self.argnums, self.has_aux = function, argnums, has_aux
        wrapped: Any = self
        functools.update_wrapper(wrapped, function, updated=())

    _name = "grad"

    def __reduce__(self) -> Any:
        return type(self), (self.function, self.argnums, self.has_aux)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        bound: Any = self
        return bound if instance is None else functools.partial(bound, instance)

    def __repr__(self) -> str:
        return f"<{self._name} of {getattr(self.function, '__name__', self.function)!s}>"

    def _run(self, args: Any, kwargs: Any, *, summed: bool = False) -> tuple[Any, Any, Any]:
        """Give value, gradients and extra results."""
        if _current.tape is not None:
            return self._nested()
        tape = Tape()
        _current.tape = tape
        try:
            arguments = Arguments(tape, self.function, self.argnums, args, kwargs)
            y = self.function(*arguments.args, **arguments.kwargs)
            aux = None
            if self.has_aux:
                if not isinstance(y, tuple) or len(y) != 2:
                    raise ScalarOutputError("with has_aux=True the function must return a pair: (result, extra values)")
                y, aux = y
            value = y
            if summed and isinstance(y, Tensor | np.ndarray):
                y = np.sum(y)
            output = _scalar(y, tape, self._name)
            if output is None:
                gradients = [np.zeros(t._layout.shape, t._layout.dtype) for t in arguments.inputs]
            else:
                adjoints = Adjoints(tape, arguments.inputs, output)
                adjoints.run(1.0)
                gradients = [adjoints.gradient(t) for t in arguments.inputs]
            return _plain(value), arguments.gather(gradients), _plain(aux)
        finally:
            _current.tape = None
            tape.close()

    def _nested(self) -> Any:
        raise UnsupportedError(
            f"{self._name} inside a function that is being differentiated is not supported yet: "
            "nested derivatives wait for a later version"
        )


class _Grad(_Transform):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _, gradients, aux = self._run(args, kwargs)
        return (gradients, aux) if self.has_aux else gradients


class _ValueAndGrad(_Transform):
    _name = "value_and_grad"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        value, gradients, aux = self._run(args, kwargs)
        return ((value, aux), gradients) if self.has_aux else (value, gradients)


class _ElementwiseGrad(_Transform):
    _name = "elementwise_grad"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        value, gradients, aux = self._run(args, kwargs, summed=True)
        inputs = [gradients] if not isinstance(self.argnums, tuple | list) else list(gradients)
        for g in inputs:
            if isinstance(g, np.ndarray) and np.ndim(value) and np.shape(value) != g.shape:
                raise ScalarOutputError(
                    f"elementwise_grad needs a result of the input's shape {g.shape}, but the function returned "
                    f"{np.shape(value)}: differentiate one element at a time, `grad(lambda x: f(x)[i])`"
                )
        return (gradients, aux) if self.has_aux else gradients


def record_call(
    read: Callable[[Tape, list[Tensor], Any], Any],
    function: Callable[..., Any],
    argnums: Argnums,
    args: Any,
    kwargs: Any,
) -> Any:
    """Record a call as `grad` does, and give what ``read(tape, inputs, result)`` makes of it while the tape lives."""
    made: Any = function
    if isinstance(made, _Transform):
        function, argnums = made.function, made.argnums
    if _current.tape is not None:
        raise UnsupportedError("a function that is being differentiated cannot record another call on a new tape")
    tape = Tape()
    _current.tape = tape
    try:
        arguments = Arguments(tape, function, argnums, args, kwargs)
        return read(tape, arguments.inputs, function(*arguments.args, **arguments.kwargs))
    finally:
        _current.tape = None
        tape.close()


def _decorator(kind: type[_Transform], function: Any, argnums: Argnums, has_aux: bool) -> Any:
    if function is None:
        return lambda f: kind(f, argnums, has_aux)
    return kind(function, argnums, has_aux)


@overload
def grad(
    function: None = None, argnums: Argnums = 0, *, has_aux: bool = False
) -> Callable[[Callable[..., Any]], Any]: ...
@overload
def grad(function: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False) -> Callable[..., Any]: ...
def grad(function: Any = None, argnums: Argnums = 0, *, has_aux: bool = False) -> Any:
    """Make the function that computes the gradient of a function of one number as result.

    Parameters
    ----------
    function : callable
        Written in plain NumPy; it returns one number (with `has_aux`, a pair of it and anything else). Left out where
        `grad` is used as a decorator with arguments: ``@grad(argnums=1)``.
    argnums : int, str, or tuple of them
        Which arguments to differentiate: positions (negative ones count from the end) or parameter names. A tuple
        gives a tuple of gradients.
    has_aux : bool
        The function returns ``(result, extra)``; the gradient function then returns ``(gradient, extra)``.

    Returns
    -------
    callable
        It takes the arguments of `function` and returns the gradient: an array of the shape and dtype of the argument,
        a float for a Python number, or the same container (dict, list, tuple, namedtuple, dataclass) of them.

    Raises
    ------
    ScalarOutputError
        If the result is not one number (a TypeError and ValueError too).
    InputError
        If an argument to differentiate is not of floating-point type (a TypeError too).

    Examples
    --------
    >>> import numpy as np
    >>> from tape import grad
    >>> @grad
    ... def slope(x):
    ...     return np.sum(np.tanh(x) ** 2)
    >>> slope(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.6397])
    >>> grad(lambda a, b: a * b**2, argnums=(0, 1))(3.0, 2.0)
    (4.0, 12.0)
    """
    return _decorator(_Grad, function, argnums, has_aux)


@overload
def value_and_grad(
    function: None = None, argnums: Argnums = 0, *, has_aux: bool = False
) -> Callable[[Callable[..., Any]], Any]: ...
@overload
def value_and_grad(
    function: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False
) -> Callable[..., Any]: ...
def value_and_grad(function: Any = None, argnums: Argnums = 0, *, has_aux: bool = False) -> Any:
    """Make the function that computes value and gradient at once, as scipy.optimize takes them with ``jac=True``.

    Parameters and errors are those of `grad`. The result is called with the same arguments and returns
    ``(value, gradient)``; with `has_aux`, ``((value, extra), gradient)``.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import value_and_grad
    >>> value_and_grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
    (np.float64(5.0), array([2., 4.]))
    """
    return _decorator(_ValueAndGrad, function, argnums, has_aux)


def elementwise_grad(function: Any = None, argnums: Argnums = 0, *, has_aux: bool = False) -> Any:
    """Make the function that computes the derivative of each element of the result by its own element of the input.

    It is the gradient of the sum of the result, so each result must depend on its own input only; that is not checked.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import elementwise_grad
    >>> elementwise_grad(np.sin)(np.array([0.0, np.pi]))
    array([ 1., -1.])
    """
    return _decorator(_ElementwiseGrad, function, argnums, has_aux)


def stop_gradient(x: Any) -> Any:
    """Give the value of x as a constant: no gradient flows through it.

    Parameters
    ----------
    x : Tensor, array, number or container of them

    Returns
    -------
    the same, with every Tensor replaced by one that carries no gradient

    Examples
    --------
    >>> from tape import grad, stop_gradient
    >>> grad(lambda x: x * stop_gradient(x))(3.0)
    3.0
    """
    if isinstance(x, Tensor):
        return _stop(x)
    if is_leaf(x):
        return x
    leaves, structure = containers.flatten(x)
    return containers.unflatten(structure, [_stop(v) if isinstance(v, Tensor) else v for v in leaves])


def _stop(x: Tensor) -> Tensor:
    from ops.shape import stopped_op

    return stopped_op(x)
