"""Functions that cannot be recorded, differentiated by finite differences or a complex step when asked to."""

# ruff: noqa: ARG002  (rules have one form, whatever they need of it)

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from tape.application import Application, any_recorded, entry, name_of
from tape.arguments import described
from tape.call import Call, append_call
from tape.errors import InputError, OutputError, UnsupportedError
from tape.tensor import Tensor
from tape.trace import paused

Method = Literal["central", "forward", "complex"]
_ROOTS: dict[str, float] = {"central": 3.0, "forward": 2.0}
_COMPLEX_STEP = 1e-100


def from_callable(function: Callable[..., Any], *, method: Method = "central", step: Any = None) -> Callable[..., Any]:
    """Let an opaque function take part in what is differentiated, its slopes found by calling it at other points.

    Parameters
    ----------
    function : callable
        Of floating-point arrays and numbers, by position, and anything else, by position or keyword; it gives one array
        or number. It gets plain values, so it may do what it likes with them.
    method : {"central", "forward", "complex"}
        ``"central"`` differences, two calls for a slope: about 10 correct digits (of 16; 4 of 7 in float32), where the
        function is as exact as its type. ``"forward"`` differences, one call: about 8 digits (3 in float32).
        ``"complex"``: one call with a tiny imaginary part, exact to the last digits, but the function must be analytic
        and written for complex arguments (no `abs`, `max`, comparison).
    step : float, array, or tuple with one for each argument, optional
        How far to move each element. By default ``eps**(1/3)`` (``eps**(1/2)`` for ``"forward"``) of its magnitude, and
        of 1 for smaller ones: give a step where an argument of another scale is meant, or a noisy function.

    Returns
    -------
    callable
        The same function. Its gradient costs two calls (or one) for each element of its recorded arguments; they are
        made when a gradient is asked for, and kept for the next one. A tangent costs two calls (or one) in all.

    Raises
    ------
    UnsupportedError
        When a second derivative is asked for, in which differences of differences would leave few digits. Nest
        `custom_vjp` with a rule of your own instead.

    Examples
    --------
    >>> import math
    >>> import numpy as np
    >>> from tape import from_callable, grad
    >>> gamma = from_callable(math.gamma)
    >>> round(grad(lambda x: np.log(gamma(x)))(1.0), 8)
    -0.57721566
    """
    if not callable(function):
        raise InputError(f"from_callable needs a function, got {described(function)}")
    if method not in ("central", "forward", "complex"):
        raise InputError(f"method must be 'central', 'forward' or 'complex', got {method!r}")

    @entry
    @functools.wraps(function)
    def differentiable(*args: Any, **kwargs: Any) -> Any:
        if any_recorded(*kwargs.values()):
            raise InputError(f"{name_of(function)}: give what is to be differentiated by position")
        if not any_recorded(*args):
            return function(*args, **kwargs)
        return _Opaque(functools.partial(function, **kwargs), name_of(function), args, method, step).apply()

    return differentiable


class _Opaque(Application):
    """A call of an opaque function."""

    def __init__(self, function: Callable[..., Any], name: str, args: Any, method: Method, step: Any) -> None:
        super().__init__(name, args)
        self.function, self.method = function, method
        count = len(self.operands.constants)
        self.steps = step if isinstance(step, tuple) else (step,) * count
        if len(self.steps) != count:
            raise InputError(f"{name}: step is a tuple of {len(self.steps)}, but there are {count} arguments")
        self.rows: dict[int, np.ndarray[Any, Any]] = {}

    def evaluate(self, arguments: Any) -> Any:
        self.rows = {}
        found = self.function(*arguments)
        if not isinstance(found, np.ndarray | np.generic | float | int) or np.asarray(found).dtype.kind not in "fiu":
            raise OutputError(f"{self.name} must give a floating-point array or number, but it gave {described(found)}")
        result = found if isinstance(found, float) or np.asarray(found).dtype.kind == "f" else np.asarray(found, float)
        self.value = np.asarray(result)
        return result

    def gradients(self, cotangents: list[Any], operands: list[Any], recorded: bool, out: Any) -> list[Any]:
        places = [k for k, varied in enumerate(self.operands.varied) if varied]
        return [self.pulled(cotangents[0], operands, k) for k in places]

    def tangents(self, tangents: list[Any], operands: list[Any], recorded: bool) -> list[Any]:
        return [self.pushed({k: t for k, t in enumerate(tangents) if t is not None}, operands)]

    # ------------------------------------------------------------ differences
    def product(self, g: Any, operands: list[Any], k: int) -> Any:
        """Multiply a cotangent by the Jacobian by operand k, which is found at the first time."""
        if k not in self.rows:
            self.rows[k] = np.array([np.ravel(self._slope(operands, {k: unit})) for unit in _units(operands[k])])
        x = operands[k]
        return np.reshape(self.rows[k].reshape(np.size(x), -1) @ np.ravel(g), np.shape(x))

    def along(self, tangents: dict[int, Any], operands: list[Any]) -> Any:
        """Give the slope along tangents of some operands."""
        return self._slope(operands, {k: np.asarray(t) for k, t in tangents.items()})

    def pulled(self, g: Any, operands: list[Any], k: int) -> Any:
        """Give the adjoint of operand k, recorded if something is."""
        recorded = any(isinstance(x, Tensor) for x in (g, *operands))
        return _Gradient(self, operands, k).apply([g]) if recorded else self.product(g, operands, k)

    def pushed(self, tangents: dict[int, Any], operands: list[Any]) -> Any:
        """Give the tangent of the result, recorded if something is."""
        if any(isinstance(x, Tensor) for x in (*tangents.values(), *operands)):
            return _Tangent(self, operands, list(tangents)).apply(list(tangents.values()))
        return self.along(tangents, operands)

    def _slope(self, operands: list[Any], directions: dict[int, Any]) -> Any:
        """Give the slope along a direction: an array for each operand that moves."""
        shape, dtype = self.results.floats.layouts[0]
        if self.method == "complex":
            size = max(float(np.max(np.abs(d), initial=0.0)) for d in directions.values())
            if size == 0.0:
                return np.zeros(shape, dtype)
            h = _COMPLEX_STEP / size
            moved = self._called(operands, {k: 1j * (h * np.float64(d)) for k, d in directions.items()})
            return np.asarray(np.imag(moved) / h, dtype)
        h = self._length(operands, directions)
        if h == 0.0:
            return np.zeros(shape, dtype)
        up = self._called(operands, {k: h * d for k, d in directions.items()})
        if self.method == "forward":
            down, h = self.value, 0.5 * h
        else:
            down = self._called(operands, {k: -h * d for k, d in directions.items()})
        return np.asarray((up - down) / (2.0 * h), dtype)

    def _length(self, operands: list[Any], directions: dict[int, Any]) -> float:
        """Give how far to go along a direction: so that no element moves by more than its step."""
        ratio = 0.0
        for k, d in directions.items():
            x, step = np.asarray(operands[k]), self.steps[self.operands.places[k]]
            if step is None:
                # A power of 2: then adding it to an element rounds nothing.
                step = np.finfo(x.dtype).eps ** (1.0 / _ROOTS[self.method]) * np.maximum(np.abs(x), 1.0)
                step = 2.0 ** np.round(np.log2(step))
            ratio = max(ratio, float(np.max(np.abs(d) / step, initial=0.0)))
        return 1.0 / ratio if ratio else 0.0

    def _called(self, operands: list[Any], shifts: dict[int, Any]) -> Any:
        """Call the function at a point that is moved."""
        values = []
        for k, x in enumerate(operands):
            if k in shifts and self.method == "complex":
                x = np.asarray(x, np.complex128)[()]
            elif np.ndim(x):
                x = x.copy()
            values.append(x + shifts[k] if k in shifts else x)
        with paused():
            return np.asarray(self.function(*self.operands.arguments(values)))


def _units(x: Any) -> Iterator[np.ndarray[Any, Any]]:
    """Give the directions of the elements."""
    for i in range(np.size(x)):
        unit = np.zeros(np.size(x), np.result_type(x))
        unit[i] = 1.0
        yield unit.reshape(np.shape(x))


# ---------------------------------------------------------------- recorded products with the Jacobian
class _Product(Call):
    """The product of the Jacobian with a value that is being recorded: linear in that, its other slopes unknown.

    Its operands are the factors, then the point: every recorded argument of the function.
    """

    def __init__(self, opaque: _Opaque, operands: list[Any]) -> None:
        self.opaque, self.operands = opaque, operands
        self.moving = [k for k, x in enumerate(operands) if isinstance(x, Tensor)]

    def apply(self, factors: list[Any]) -> Tensor:
        """Append the entry."""
        return append_call(self, [*factors, *(self.operands[k] for k in self.moving)])

    def point(self, values: Any) -> list[Any]:
        """Give plain arguments of the function."""
        found = list(self.operands)
        for k, x in zip(self.moving, values, strict=True):
            found[k] = self.opaque.operands.given(k, x)
        return found

    def second(self) -> UnsupportedError:
        """Make the error for a slope of the Jacobian."""
        return UnsupportedError(
            f"{self.opaque.name}: a second derivative of a function given by from_callable was asked for, and "
            "differences of differences would leave few digits of it. Give the function a rule by custom_vjp or "
            "custom_jvp"
        )


class _Gradient(_Product):
    """The adjoint of argument k from that of the result."""

    def __init__(self, opaque: _Opaque, operands: list[Any], k: int) -> None:
        super().__init__(opaque, operands)
        self.k = k

    def forward(self, *operands: Any) -> Any:
        return self.opaque.product(operands[0], self.point(operands[1:]), self.k)

    def pull(self, position: int, g: Any, out: Any, *operands: Any) -> Any:
        if position:
            raise self.second()
        return self.opaque.pushed({self.k: g}, self.point(operands[1:]))

    def push(self, tangents: Sequence[Any], out: Any, *operands: Any) -> Any:
        if any(t is not None for t in tangents[1:]):
            raise self.second()
        return self.opaque.pulled(tangents[0], self.point(operands[1:]), self.k)


class _Tangent(_Product):
    """The tangent of the result from those of some arguments."""

    def __init__(self, opaque: _Opaque, operands: list[Any], places: list[int]) -> None:
        super().__init__(opaque, operands)
        self.places = places

    def forward(self, *operands: Any) -> Any:
        count = len(self.places)
        return self.opaque.along(dict(zip(self.places, operands, strict=False)), self.point(operands[count:]))

    def pull(self, position: int, g: Any, out: Any, *operands: Any) -> Any:
        count = len(self.places)
        if position >= count:
            raise self.second()
        return self.opaque.pulled(g, self.point(operands[count:]), self.places[position])

    def push(self, tangents: Sequence[Any], out: Any, *operands: Any) -> Any:
        count = len(self.places)
        if any(t is not None for t in tangents[count:]):
            raise self.second()
        given = {k: t for k, t in zip(self.places, tangents, strict=False) if t is not None}
        return self.opaque.pushed(given, self.point(operands[count:]))
