"""Gradients of functions of one number: grad, value_and_grad, elementwise_grad."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, overload

import numpy as np

from tape import containers
from tape.arguments import Argnums, described, is_leaf
from tape.errors import InputError, ScalarOutputError
from tape.tensor import Tensor
from tape.trace import Trace


def _describe(y: Any) -> str:
    shape = getattr(y, "shape", None)
    return f"an array of shape {shape}" if shape else described(y)


_FIRST_ORDER = (
    ", use `elementwise_grad(f)` if each result depends on one input only, or use `jacobian(f)`, or `vjp(f, x)` with a "
    "cotangent"
)
_OTHERWISE = {
    **dict.fromkeys(("grad", "value_and_grad", "elementwise_grad"), _FIRST_ORDER),
    **dict.fromkeys(
        ("hessian", "hessian_diagonal", "hvp", "vhp"),
        ", or take one element of it (`lambda x: f(x)[i]`); all at once it is `jacobian(jacobian(f))`",
    ),
}
"""What to write where a result is no number, by transform."""


def scalar(y: Any, trace: Trace, how: str) -> list[Tensor]:
    """Give the output if it is one recorded number, nothing if it is a plain number that depends on nothing."""
    if isinstance(y, Tensor):
        trace.own(y)
        if y._layout.size != 1 or y._layout.shape:
            raise ScalarOutputError(
                f"{how} needs a function whose result is one number, but it returned {_describe(y)}. "
                "Reduce it (`np.sum(result)`)" + _OTHERWISE[how]
            )
        if y._layout.dtype.kind != "f":
            raise ScalarOutputError(f"{how} needs a floating-point result, but the function returned {y.dtype}")
        return [y]
    if isinstance(y, int | float | np.integer | np.floating) or (isinstance(y, np.ndarray) and y.ndim == 0):
        return []
    if isinstance(y, np.ndarray):
        raise ScalarOutputError(
            f"{how} needs a function whose result is one number, but it returned {_describe(y)}. "
            "Reduce it (`np.sum(result)`), or use `jacobian(f)`"
        )
    extra = " If it returns further values, say has_aux=True" if isinstance(y, tuple) else ""
    raise ScalarOutputError(
        f"{how} needs a function whose result is one number, but it returned {described(y)}.{extra}"
    )


def split_aux(result: Any, has_aux: bool) -> tuple[Any, Any]:
    """Split what a function returned into its result and extra values."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise ScalarOutputError("with has_aux=True the function must return a pair: (result, extra values)")
    return result


# ---------------------------------------------------------------- transforms
class Transform:
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

    @classmethod
    def made(cls, function: Any, *settings: Any) -> Any:
        """Make the transform of a function, or the decorator that does if there is none yet."""
        return (lambda f: cls(f, *settings)) if function is None else cls(function, *settings)

    with_value = False
    """Whether the value is given beside the derivative."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Differentiate at these arguments of the function."""
        value, derivative, aux = self._compute(args, kwargs)
        if self.with_value:
            return ((value, aux), derivative) if self.has_aux else (value, derivative)
        return (derivative, aux) if self.has_aux else derivative

    def _compute(self, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
        """Give value, derivative and extra results."""
        raise NotImplementedError


class _Grad(Transform):
    def _compute(self, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
        with Trace(self.function, self.argnums, args, kwargs) as trace:
            value, aux = split_aux(trace.result, self.has_aux)
            outputs = scalar(self._total(value), trace, self._name)
            gradients = trace.pull(outputs, [1.0] * len(outputs))
            return trace.plain(value), trace.arguments.gather(gradients), trace.plain(aux)

    def _total(self, value: Any) -> Any:
        """Give the number that is differentiated."""
        return value


class _ValueAndGrad(_Grad):
    _name = "value_and_grad"
    with_value = True


class _ElementwiseGrad(_Grad):
    _name = "elementwise_grad"

    def _total(self, value: Any) -> Any:
        return np.sum(value) if isinstance(value, Tensor | np.ndarray) else value

    def _compute(self, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
        value, gradients, aux = super()._compute(args, kwargs)
        inputs = [gradients] if not isinstance(self.argnums, tuple | list) else list(gradients)
        for g in inputs:
            if isinstance(g, Tensor | np.ndarray) and np.ndim(value) and np.shape(value) != g.shape:
                raise ScalarOutputError(
                    f"elementwise_grad needs a result of the input's shape {g.shape}, but the function returned "
                    f"{np.shape(value)}: use `jacobian(f)`"
                )
        return value, gradients, aux


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
    return _Grad.made(function, argnums, has_aux)


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
    return _ValueAndGrad.made(function, argnums, has_aux)


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
    return _ElementwiseGrad.made(function, argnums, has_aux)


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
