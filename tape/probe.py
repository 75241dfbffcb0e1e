"""A function call as `check_grads` sees it: a weighted sum of its results, by the leaves of its arguments.

Its derivatives by each mode stand here beside what finite differences need: the same sum on plain arrays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from tape import containers
from tape.arguments import is_leaf, positions
from tape.errors import InputError
from tape.linear import jvp
from tape.tensor import Tensor
from tape.transforms import grad

CHECKED = (np.dtype(np.float64), np.dtype(np.float32))
Vector = Any
"""A flat array, or a number."""


class Call:
    """One call of a function: its arguments as leaves, its results summed with weights.

    Parameters
    ----------
    f, args, argnums
        As in `check_grads`.

    Attributes
    ----------
    leaves, names : list
        The arrays and numbers to differentiate by, and what messages call them.
    """

    def __init__(self, f: Callable[..., Any], args: tuple[Any, ...], argnums: Any) -> None:
        self.f, self.args = f, [np.array(x, float) if _numbers(x) else x for x in args]
        self.positions: list[Any] = []
        if argnums is None:
            self.positions += [k for k, x in enumerate(self.args) if _floating(x)]
            if not self.positions:
                raise InputError(
                    "check_grads found no argument of floating-point type to differentiate: "
                    "give arrays or numbers of such a type, or name the arguments in argnums"
                )
        else:
            self.positions += positions(f, argnums, args, {})
        self.leaves: list[Any] = []
        self.names: list[str] = []
        self.structures: list[Any] = []
        parameters = _parameters(f)
        for k in self.positions:
            leaves, structure = _flatten(self.args[k])
            name = f"argument {k}" + (f" ({parameters[k]})" if k < len(parameters) else "")
            places = containers.paths(self.args[k]) if structure is not None else [""]
            self.names += [f"{name}, at {place}" if place else name for place in places]
            self.structures.append((structure, len(leaves)))
            self.leaves += leaves
        self.weights: list[Any] = []

    def weigh(self, rng: np.random.Generator) -> None:
        """Draw a weight for each number among the results."""
        for y in _results(self.f(*self._arguments(self.leaves))):
            self.weights.append(rng.uniform(0.5, 1.5, np.shape(y)))
        if not self.weights:
            raise InputError("the function returns nothing of floating-point type, so there is no gradient to check")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The coarsest dtype: one float32 argument makes the rounding of the whole that of float32."""
        return min((_dtype(leaf) for leaf in self.leaves), key=lambda d: d.itemsize)

    def wide(self, number: int = -1, leaf: Any = None) -> list[Any]:
        """Give the leaves in float64, one of them replaced."""
        leaves = [np.asarray(x, float)[()] if _dtype(x) == np.float32 else x for x in self.leaves]
        if leaf is not None:
            leaves[number] = leaf
        return leaves

    # ------------------------------------------------------------ the arguments
    def _chosen(self, leaves: list[Any]) -> list[Any]:
        """Put leaves into the containers of the arguments that are differentiated."""
        found: list[Any] = []
        at = 0
        for structure, count in self.structures:
            mine = [_copy(x) for x in leaves[at : at + count]]
            found.append(mine[0] if structure is None else containers.unflatten(structure, mine))
            at += count
        return found

    def _arguments(self, leaves: list[Any]) -> list[Any]:
        args = [_copy(x) for x in self.args]
        for k, x in zip(self.positions, self._chosen(leaves), strict=True):
            args[k] = x
        return args

    def _total(self, *chosen: Any) -> Any:
        """Call the function with the differentiated arguments, and sum its results with weights."""
        args = [_copy(x) for x in self.args]
        for k, x in zip(self.positions, chosen, strict=True):
            args[k] = x
        terms = [
            np.sum(y * (w.astype(y.dtype) if hasattr(y, "dtype") else float(w)))
            for y, w in zip(_results(self.f(*args)), self.weights, strict=True)
        ]
        return sum(terms[1:], terms[0])

    @property
    def _argnums(self) -> tuple[int, ...]:
        return tuple(range(len(self.positions)))

    def _tangents(self, number: int, direction: Any) -> tuple[Any, ...]:
        """Give tangents of the differentiated arguments: a direction of one leaf."""
        tangents = [np.zeros(np.shape(x), _dtype(x)) for x in self.leaves]
        tangents[number] = np.asarray(direction, tangents[number].dtype)
        return tuple(self._chosen([t if t.ndim else float(t) for t in tangents]))

    # ------------------------------------------------------------ derivatives
    def terms(self, leaves: list[Any]) -> Vector:
        """Give the terms of the weighted sum on plain arrays."""
        results = _results(self.f(*self._arguments(leaves)))
        terms = [np.ravel(np.asarray(y, float) * w) for y, w in zip(results, self.weights, strict=True)]
        return np.concatenate(terms)

    @cached_property
    def value(self) -> float:
        """The weighted sum, as it is recorded."""
        primals = tuple(self._chosen(self.leaves))
        return float(jvp(self._total, primals, (None,) * len(primals))[0])

    @cached_property
    def gradient(self) -> list[Vector]:
        """The gradient of the weighted sum by each leaf, by reverse mode."""
        return self.first(self.leaves, "reverse")

    def slope(self, number: int, direction: Any) -> float:
        """Give the derivative of the weighted sum along a direction of one leaf, by forward mode."""
        return float(jvp(self._total, tuple(self._chosen(self.leaves)), self._tangents(number, direction))[1])

    def second(self, outer: str, inner: str, number: int, direction: Any) -> list[Vector]:
        """Give how the gradient by each leaf changes along a direction of one leaf: the outer mode over the inner."""
        primals, tangents = tuple(self._chosen(self.leaves)), self._tangents(number, direction)
        gradient = grad(self._total, self._argnums)

        def slope(*chosen: Any) -> Any:
            return jvp(self._total, chosen, tangents)[1]

        if (outer, inner) == ("forward", "reverse"):
            return _leaves(jvp(gradient, primals, tangents)[1])
        if (outer, inner) == ("reverse", "forward"):
            return _leaves(grad(slope, self._argnums)(*primals))
        if (outer, inner) == ("forward", "forward"):
            return [np.atleast_1d(float(jvp(slope, primals, u)[1])) for u in self.steady]

        def along(*chosen: Any) -> Any:
            parts = zip(_flatten(gradient(*chosen))[0], _flatten(tangents)[0], strict=True)
            return sum(np.sum(g * t) for g, t in parts)

        return _leaves(grad(along, self._argnums)(*primals))

    @property
    def steady(self) -> list[tuple[Any, ...]]:
        """Fixed directions of each leaf: what forward mode gives of a gradient."""
        return [
            self._tangents(k, 1 + np.arange(np.size(x)).reshape(np.shape(x)) % 3) for k, x in enumerate(self.leaves)
        ]

    def first(self, leaves: list[Any], inner: str) -> list[Vector]:
        """Give the gradients whose change `second` tells."""
        primals = tuple(self._chosen(leaves))
        if inner == "reverse":
            return _leaves(grad(self._total, self._argnums)(*primals))
        return [np.atleast_1d(float(jvp(self._total, primals, u)[1])) for u in self.steady]


class Differences:
    """Central differences of some vectors along a direction of one leaf, extrapolated twice: the error is O(step**6).

    Parameters
    ----------
    function : callable
        Takes the leaf and gives a list of vectors.
    x, direction : ndarray
    """

    def __init__(self, function: Callable[[Any], list[Vector]], x: Any, direction: Any) -> None:
        self.function, self.x, self.direction = function, x, direction
        self.known: dict[float, list[tuple[Vector, Vector]]] = {}

    def at(self, step: float) -> list[tuple[Vector, Vector]]:
        """Give for each vector the derivative along the direction, and the magnitude of what was subtracted."""
        if step not in self.known:
            with np.errstate(all="ignore"):
                self.known[step] = [
                    _extrapolated(*parts)
                    for parts in zip(*(self._central(h) for h in (step, step / 2, step / 4)), strict=True)
                ]
        return self.known[step]

    def _central(self, h: float) -> list[tuple[Vector, Vector]]:
        up, down = (self.function((self.x + s * h * self.direction)[()]) for s in (1, -1))
        return [((a - b) / (2 * h), np.maximum(np.abs(a), np.abs(b))) for a, b in zip(up, down, strict=True)]


def _extrapolated(*parts: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    (d1, s1), (d2, s2), (d4, s4) = parts
    r1, r2 = (4 * d2 - d1) / 3, (4 * d4 - d2) / 3
    return (16 * r2 - r1) / 15, np.maximum(np.maximum(s1, s2), s4)


# ---------------------------------------------------------------- leaves
def _results(y: Any) -> list[Any]:
    return [leaf for leaf in _flatten(y)[0] if _dtype(leaf).kind == "f"]


def _leaves(gradients: Any) -> list[Vector]:
    return [np.ravel(np.asarray(leaf, float)) for leaf in _flatten(gradients)[0]]


def _flatten(x: Any) -> tuple[list[Any], Any]:
    return ([x], None) if is_leaf(x) else containers.flatten(x)


def _dtype(x: Any) -> np.dtype[Any]:
    if isinstance(x, Tensor | np.ndarray | np.generic):
        return x.dtype
    return np.dtype(float if isinstance(x, float | int) and not isinstance(x, bool) else object)


def _floating(x: Any) -> bool:
    """Tell whether an argument consists of floating-point numbers."""
    leaves = _flatten(x)[0]
    return bool(leaves) and all(not isinstance(v, int) and _dtype(v) in CHECKED for v in leaves)


def _numbers(x: Any) -> bool:
    """Tell whether an argument is a list of numbers, which counts as an array."""
    return isinstance(x, list) and bool(x) and all(type(v) in (int, float) for v in x)


def _copy(x: Any) -> Any:
    return x.copy() if isinstance(x, np.ndarray) else x


def _parameters(f: Any) -> list[str]:
    try:
        return [p.name for p in inspect.signature(f).parameters.values() if p.kind <= p.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):
        return []
