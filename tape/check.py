"""Gradients held against finite differences."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tape import containers
from tape.arguments import is_leaf, positions
from tape.errors import GradientCheckError, InputError
from tape.tensor import Tensor
from tape.transforms import value_and_grad

RELATIVE = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 2e-3}
ABSOLUTE = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}
STEPS = (1e-3, 1e-4, 1e-5)
"""The first is the most exact; the others are for arguments close to the edge of the function's domain."""
SEARCHED = 64
"""Where a gradient is wrong, this many elements are looked at one by one; in larger arrays by halving first."""


def check_grads(
    f: Callable[..., Any],
    *args: Any,
    argnums: int | str | Sequence[int | str] | None = None,
    directions: int = 2,
    rtol: float | None = None,
    atol: float | None = None,
    step: float | None = None,
    seed: int = 0,
) -> None:
    """Hold the gradients of a function against finite differences.

    Each array among the arguments is moved along random directions, up and down by three steps; the central differences
    are extrapolated. Results that are arrays or containers are multiplied by random weights and summed. Finite
    differences are taken in float64, also where the arguments are float32.

    Parameters
    ----------
    f : callable
        Written in plain NumPy; it returns a number, an array or a container of them.
    *args
        Its arguments: numbers, arrays, or containers of them.
    argnums : int, str, or sequence of them, optional
        Which arguments to differentiate; by default all that consist of floating-point numbers.
    directions : int
        How many directions to try for each array.
    rtol, atol : float, optional
        Tolerances, relative to the terms of the directional derivative and absolute. By default 1e-6 and 1e-12 for
        float64, 2e-3 and 1e-5 for float32; rounding in the differences is allowed for besides.
    step : float, optional
        How far to move, relative to each element or to 1 if that is more. By default 1e-3, and where that does not
        agree 1e-4 and 1e-5.
    seed : int
        Seed of the directions and weights.

    Raises
    ------
    GradientCheckError
        If a gradient disagrees (an AssertionError too): it tells which argument, which element, and both numbers.
    InputError
        If there is nothing to check.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import check_grads
    >>> check_grads(lambda x, y: np.sin(x) * y["scale"], np.array([0.1, 0.2]), {"scale": 3.0})
    """
    rng = np.random.default_rng(seed)
    call = _Call(f, args, argnums)
    call.weigh(rng)
    value, gradients = call.differentiate()
    plain, size = call.evaluate()
    # One float32 argument makes the rounding of the whole that of float32.
    dtype = min((_dtype(leaf) for leaf in call.leaves), key=lambda d: d.itemsize)
    rtol = RELATIVE[dtype] if rtol is None else rtol
    atol = ABSOLUTE[dtype] if atol is None else atol
    if not abs(value - plain) <= atol + rtol * size and not (np.isnan(value) and np.isnan(plain)):
        raise GradientCheckError(
            f"the function gives {value:.9g} when it is recorded and {plain:.9g} on plain arrays (weighted sums of its "
            "results): it must give the same result at every call, so it may neither draw random numbers nor keep state"
        )
    for number, gradient in enumerate(gradients):
        probe = _Probe(call, number, np.asarray(gradient, float), (step,) if step else STEPS, rtol, atol)
        for _ in range(directions):
            # No element is near 0: each of them matters.
            direction = rng.uniform(0.5, 1.5, probe.gradient.shape) * rng.choice([-1.0, 1.0], probe.gradient.shape)
            if probe.gradient.size and probe.deviation(direction)[0] > 1:
                probe.fail(direction)


class _Call:
    """One call of the function: its arguments as leaves, its results summed with weights."""

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
        for y in self._results(self._call(self.leaves)):
            self.weights.append(rng.uniform(0.5, 1.5, np.shape(y)))
        if not self.weights:
            raise InputError("the function returns nothing of floating-point type, so there is no gradient to check")

    def _call(self, leaves: list[Any]) -> Any:
        args = [_copy(x) for x in self.args]
        at = 0
        for k, (structure, count) in zip(self.positions, self.structures, strict=True):
            mine = [_copy(x) for x in leaves[at : at + count]]
            args[k] = mine[0] if structure is None else containers.unflatten(structure, mine)
            at += count
        return self.f(*args)

    @staticmethod
    def _results(y: Any) -> list[Any]:
        return [leaf for leaf in _flatten(y)[0] if _dtype(leaf).kind == "f"]

    def differentiate(self) -> tuple[float, list[Any]]:
        """Give the weighted sum of the results, and its gradient by each leaf."""

        def total(*args: Any) -> Any:
            results = self._results(self.f(*args))
            terms = [
                np.sum(y * (w.astype(y.dtype) if hasattr(y, "dtype") else float(w)))
                for y, w in zip(results, self.weights, strict=True)
            ]
            return sum(terms[1:], terms[0])

        args = [_copy(x) for x in self.args]
        value, gradients = value_and_grad(total, tuple(self.positions))(*args)
        return float(value), [leaf for g in gradients for leaf in _flatten(g)[0]]

    def evaluate(self, number: int = -1, leaf: Any = None) -> tuple[float, float]:
        """Give the weighted sum of the results with one leaf replaced, and the sum of its terms' magnitudes."""
        leaves = [np.asarray(x, float)[()] if _dtype(x) == np.float32 else x for x in self.leaves]
        if leaf is not None:
            leaves[number] = leaf
        terms = [np.asarray(y, float) * w for y, w in zip(self._results(self._call(leaves)), self.weights, strict=True)]
        return float(sum(np.sum(t) for t in terms)), float(sum(np.sum(np.abs(t)) for t in terms))


class _Probe:
    """Finite differences by one leaf."""

    def __init__(self, call: _Call, number: int, gradient: Any, steps: Any, rtol: float, atol: float) -> None:
        self.call, self.number, self.gradient, self.steps = call, number, gradient, steps
        self.rtol, self.atol = rtol, atol
        self.x = np.asarray(call.leaves[number], float)
        self.scale = np.maximum(1.0, np.abs(self.x))

    def deviation(self, direction: Any) -> tuple[float, float, float, float]:
        """Give the deviation in units of the tolerance, both derivatives along the direction, and the tolerance."""
        direction = direction * self.scale
        got = float(np.sum(self.gradient * direction))
        best = (np.inf, got, np.nan, 0.0)
        for step in self.steps:
            expected, size = self._difference(direction, step)
            rounding = 64 * np.finfo(float).eps * size / step
            tolerance = self.atol + self.rtol * max(abs(expected), float(np.sum(np.abs(self.gradient * direction))))
            ratio = abs(got - expected) / (tolerance + rounding)
            if ratio < best[0] or np.isnan(best[2]):
                best = (ratio if np.isfinite(ratio) else np.inf, got, expected, tolerance + rounding)
            if ratio <= 1:
                break
        return best

    def _difference(self, direction: Any, step: float) -> tuple[float, float]:
        sizes = []

        def central(h: float) -> float:
            sums = [self.call.evaluate(self.number, (self.x + s * h * direction)[()]) for s in (1, -1)]
            sizes.append(max(size for _, size in sums))
            return (sums[0][0] - sums[1][0]) / (2 * h)

        with np.errstate(all="ignore"):
            d1, d2, d4 = central(step), central(step / 2), central(step / 4)
        r1, r2 = (4 * d2 - d1) / 3, (4 * d4 - d2) / 3
        return (16 * r2 - r1) / 15, max(sizes)

    def fail(self, direction: Any) -> None:
        """Find the element that is most wrong and raise the error that tells of it."""
        flat = np.arange(self.gradient.size)
        while len(flat) > SEARCHED:
            halves = np.array_split(flat, 2)
            flat = max(halves, key=lambda half: self._part(direction, half)[0])
        found = [(self._part(np.ones(self.x.shape), flat[i : i + 1]), flat[i]) for i in range(len(flat))]
        # The largest deviation among those that are deviations at all.
        (ratio, got, expected, _), at = max(found, key=lambda one: (one[0][0] > 1, _distance(one[0])))
        where, name = "", self.call.names[self.number]
        if ratio <= 1:
            _, got, expected, tolerance = self.deviation(direction)
            where, wrong = ", along a random direction", "derivative"
        else:
            index = np.unravel_index(at, self.x.shape)
            scale = float(self.scale[index])
            _, got, expected, tolerance = (v / scale for v in self._part(np.ones(self.x.shape), flat[flat == at]))
            where = f", element [{', '.join(map(str, index))}]" if self.x.ndim else ""
            wrong = "gradient"
        raise GradientCheckError(
            f"{wrong} by {name}{where}: reverse mode gives {got:.9g}, finite differences {expected:.9g}; "
            f"they differ by {abs(got - expected):.3g}, and {tolerance:.1g} is allowed"
        )

    def _part(self, direction: Any, chosen: Any) -> tuple[float, float, float, float]:
        part = np.zeros(self.x.size)
        part[chosen] = np.ravel(direction)[chosen]
        return self.deviation(part.reshape(self.x.shape))


def _distance(found: tuple[float, float, float, float]) -> float:
    distance = abs(found[1] - found[2])
    return distance if np.isfinite(distance) else np.inf


def _flatten(x: Any) -> tuple[list[Any], Any]:
    return ([x], None) if is_leaf(x) else containers.flatten(x)


def _dtype(x: Any) -> np.dtype[Any]:
    if isinstance(x, Tensor | np.ndarray | np.generic):
        return x.dtype
    return np.dtype(float if isinstance(x, float | int) and not isinstance(x, bool) else object)


def _floating(x: Any) -> bool:
    """Tell whether an argument consists of floating-point numbers."""
    leaves = _flatten(x)[0]
    return bool(leaves) and all(not isinstance(v, int) and _dtype(v) in RELATIVE for v in leaves)


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
