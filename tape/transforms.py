"""Transforms of functions: grad, value_and_grad, elementwise_grad."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from ops import create
from tape import containers, record
from tape.adjoints import Adjoints
from tape.errors import InputError, ScalarOutputError, UnsupportedError
from tape.layout import PYTHON_FLOAT
from tape.tensor import Tensor
from tape.wengert import Tape

Argnums = int | str | Sequence[int | str]
F = TypeVar("F", bound=Callable[..., Any])


class _Current(threading.local):
    tape: Any = None


_current = _Current()


def _record_new(array: np.ndarray[Any, Any]) -> Any:
    tape = _current.tape
    return array if tape is None else record.leaf_array(tape, array)


create.recorded.append(_record_new)


# ---------------------------------------------------------------- arguments
def _positions(function: Callable[..., Any], argnums: Argnums, args: tuple[Any, ...], kwargs: Any) -> list[int | str]:
    """Resolve which arguments are differentiated: positions of positional ones, names of keyword ones."""
    chosen = argnums if isinstance(argnums, tuple | list) else (argnums,)
    result: list[int | str] = []
    for one in chosen:
        if isinstance(one, str):
            if one in kwargs:
                result.append(one)
                continue
            try:
                names = [p.name for p in inspect.signature(function).parameters.values() if p.kind < 2]
            except (TypeError, ValueError):
                names = []
            if one not in names or names.index(one) >= len(args):
                raise InputError(f"argnums={one!r} names no argument that was given; the parameters are {names}")
            result.append(names.index(one))
        else:
            if not isinstance(one, int | np.integer) or isinstance(one, bool):
                raise InputError(f"argnums must be positions or parameter names, got {one!r}")
            if not -len(args) <= one < len(args):
                raise InputError(
                    f"argnums={one} asks for an argument that was not given: the function got {len(args)} positional "
                    "arguments. To differentiate a keyword argument, give its name: argnums='name'"
                )
            result.append(int(one) % len(args))
    if len(set(result)) != len(result):
        raise InputError(f"argnums={argnums!r} names the same argument twice")
    return result


def _bring(tape: Tape, x: Any, where: str) -> Tensor:
    """Put an input on the tape."""
    kind = type(x)
    if kind is float or kind is int or kind is np.float64:
        return record.leaf_number(tape, float(x), record.FLOAT if kind is np.float64 else PYTHON_FLOAT)
    if isinstance(x, Tensor):
        x._alive()
        raise UnsupportedError(f"{where} is a Tensor of an outer derivative: nested derivatives are not supported yet")
    if isinstance(x, bool | np.bool_) or not isinstance(x, np.ndarray | np.generic | int | float | complex):
        raise InputError(
            f"{where} is {_a(x)}, which cannot be differentiated: give an array or a number of floating-point type, "
            "or name another argument in argnums (others are passed on as they are)"
        )
    array = np.asarray(x)
    if array.dtype.kind in "iub":
        raise InputError(
            f"{where} is an array of {array.dtype}, whose gradient would be cut to whole numbers: "
            "convert it to floating point first, `x.astype(float)`"
        )
    if array.dtype.kind == "c":
        raise UnsupportedError(
            f"{where} is complex, which is not supported yet: pass the real and imaginary parts as two real arrays"
        )
    if array.dtype not in (np.float64, np.float32):
        raise InputError(f"{where} is an array of {array.dtype}: convert it to float64 or float32")
    return record.input_array(tape, array)


def _a(x: Any) -> str:
    name = type(x).__name__
    return "None" if x is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _plain_container(x: Any) -> bool:
    return isinstance(x, np.ndarray | float | int | np.generic | Tensor)


class _Arguments:
    """The arguments of one call: those to differentiate brought onto the tape, in their containers."""

    def __init__(self, tape: Tape, function: Callable[..., Any], argnums: Argnums, args: Any, kwargs: Any) -> None:
        self.single = not isinstance(argnums, tuple | list)
        self.args, self.kwargs = list(args), dict(kwargs)
        self.inputs: list[Tensor] = []
        self.originals: list[Any] = []
        self.structures: list[Any] = []
        for position in _positions(function, argnums, args, kwargs):
            place: Any = self.kwargs if isinstance(position, str) else self.args
            x = place[position]
            name = f"argument {position!r}" if isinstance(position, str) else f"argument {position}"
            if _plain_container(x):
                t = _bring(tape, x, name)
                self.inputs.append(t)
                self.originals.append(x)
                self.structures.append(None)
                # The function may move its handle by writing in place; the input's slot stays.
                place[position] = record.handle(tape, t._slot, t._value, t._layout)
                continue
            leaves, structure = containers.flatten(x)
            if isinstance(x, list) and leaves and all(type(v) in (float, int) for v in x):
                t = _bring(tape, np.array(x, dtype=float), name)
                self.inputs.append(t)
                self.originals.append(np.array(x, dtype=float))
                self.structures.append(None)
                place[position] = record.handle(tape, t._slot, t._value, t._layout)
                continue
            names = containers.paths(x)
            brought = [
                _bring(tape, leaf, f"{name}, at {path or 'the top'}," if path else name)
                for leaf, path in zip(leaves, names, strict=True)
            ]
            self.inputs += brought
            self.originals += leaves
            self.structures.append((structure, len(leaves)))
            handles = [record.handle(tape, t._slot, t._value, t._layout) for t in brought]
            place[position] = containers.unflatten(structure, handles)

    def gather(self, gradients: list[Any]) -> Any:
        """Put gradients, one for each input, into the structure of the arguments."""
        typed = [
            float(g) if type(x) in (float, int) else np.float64(g) if type(x) is np.float64 else g
            for g, x in zip(gradients, self.originals, strict=True)
        ]
        results: list[Any] = []
        at = 0
        for structure in self.structures:
            if structure is None:
                results.append(typed[at])
                at += 1
            else:
                results.append(containers.unflatten(structure[0], typed[at : at + structure[1]]))
                at += structure[1]
        return results[0] if self.single else tuple(results)


def _plain(tree: Any) -> Any:
    """Replace the Tensors of a result by plain arrays and numbers."""
    if isinstance(tree, Tensor):
        tree._alive()
        if tree._layout is PYTHON_FLOAT:
            return float(tree._value)
        return tree.numpy()[()] if not tree._layout.shape else tree.numpy()
    if _plain_container(tree) or tree is None or isinstance(tree, str):
        return tree
    leaves, structure = containers.flatten(tree)
    return containers.unflatten(structure, [_plain(x) if isinstance(x, Tensor) else x for x in leaves])


def _describe(y: Any) -> str:
    shape = getattr(y, "shape", None)
    return f"an array of shape {shape}" if shape else _a(y)


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
    raise ScalarOutputError(f"{how} needs a function whose result is one number, but it returned {_a(y)}.{extra}")


# ---------------------------------------------------------------- transforms
class _Transform:
    """A differentiated function; it pickles if the function does, and works as a method."""

    def __init__(self, function: Callable[..., Any], argnums: Argnums, has_aux: bool) -> None:
        if not callable(function):
            raise InputError(f"{self._name} needs a function, got {_a(function)}")
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
            arguments = _Arguments(tape, self.function, self.argnums, args, kwargs)
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
        arguments = _Arguments(tape, function, argnums, args, kwargs)
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
    if _plain_container(x):
        return x
    leaves, structure = containers.flatten(x)
    return containers.unflatten(structure, [_stop(v) if isinstance(v, Tensor) else v for v in leaves])


def _stop(x: Tensor) -> Tensor:
    from ops.shape import stopped_op

    return stopped_op(x)
