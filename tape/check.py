"""Derivatives of both modes held against finite differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tape.errors import DetachedError, GradientCheckError, InputError
from tape.probe import Call, Differences, Vector

RELATIVE = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 2e-3}
ABSOLUTE = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}
STEPS = (1e-3, 1e-4, 1e-5)
"""The first is the most exact; the others are for arguments close to the edge of the function's domain."""
SEARCHED = 64
"""Where a derivative is wrong, this many elements are looked at one by one; in larger arrays by halving first."""
MODES = ("reverse", "forward")
ALONG = ", along a random direction"


def check_grads(
    f: Callable[..., Any],
    *args: Any,
    argnums: int | str | Sequence[int | str] | None = None,
    order: int = 2,
    modes: str | Sequence[str] = MODES,
    directions: int = 2,
    rtol: float | None = None,
    atol: float | None = None,
    step: float | None = None,
    seed: int = 0,
) -> None:
    """Hold the first and second derivatives of a function against finite differences.

    Each array among the arguments is moved along random directions, up and down by three steps; the central differences
    are extrapolated. Results that are arrays or containers are multiplied by random weights and summed. Finite
    differences are taken in float64, also where the arguments are float32. Second derivatives, multiplied by random
    vectors from both sides, are held against differences of the first ones.

    Parameters
    ----------
    f : callable
        Written in plain NumPy; it returns a number, an array or a container of them.
    *args
        Its arguments: numbers, arrays, or containers of them.
    argnums : int, str, or sequence of them, optional
        Which arguments to differentiate; by default all that consist of floating-point numbers.
    order : {2, 1}
        Check second derivatives too, or the first only.
    modes : "reverse", "forward", or both
        Which modes to check. Second derivatives are taken by forward mode over reverse mode and by reverse over
        forward; with one mode here, by that mode over itself.
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
        If a derivative disagrees (an AssertionError too): it tells which mode, which argument, which element, and both
        numbers.
    InputError
        If there is nothing to check.

    Warns
    -----
    UserWarning
        If a derivative of the function does not exist here, though the first one of the first mode does: an
        UnsupportedError (a second derivative without a rule) or a DetachedError (a rule that cannot be differentiated
        itself). All others have been checked.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import check_grads
    >>> check_grads(lambda x, y: np.sin(x) * y["scale"], np.array([0.1, 0.2]), {"scale": 3.0})
    """
    if order not in (1, 2):
        raise InputError(f"order must be 1, for first derivatives, or 2, for second ones too, got {order!r}")
    chosen = (modes,) if isinstance(modes, str) else tuple(modes)
    if not chosen or len(set(chosen)) != len(chosen) or not set(chosen) <= set(MODES):
        raise InputError(f"modes must be 'reverse', 'forward' or both, ('reverse', 'forward'), got {modes!r}")
    call = Call(f, args, argnums)
    call.weigh(np.random.default_rng(seed))
    rtol = RELATIVE.get(call.dtype, 1e-6) if rtol is None else rtol
    atol = ABSOLUTE.get(call.dtype, 1e-12) if atol is None else atol
    check = _Check(call, (step,) if step else STEPS, rtol, atol)
    check.repeatable()
    first, second = _derivatives(call, chosen)
    check.run(first, directions, np.random.default_rng(seed), needed=first[0])
    if order == 2:
        check.run(second, directions, np.random.default_rng(seed))
    if check.missing:
        names = " and ".join(derivative.name for derivative in check.missing)
        error = next(iter(check.missing.values()))
        remedy = f"modes={chosen[0]!r}" if any(derivative in first for derivative in check.missing) else "order=1"
        warnings.warn(
            f"check_grads could not check {names}, which raised {type(error).__name__}: {error}. Everything else "
            f"agrees with finite differences. To check without, give {remedy}",
            stacklevel=2,
        )


class _Derivative(NamedTuple):
    """A way to differentiate."""

    name: str
    along: Callable[[int, Any], list[Vector]]
    """What it gives along a direction of a leaf."""
    function: Callable[[list[Any]], list[Vector]]
    """The function of which this is the derivative, on plain leaves."""
    second: bool = False
    parallel: bool = False
    """Whether what it gives stands beside the differences element by element."""


def _derivatives(call: Call, modes: tuple[str, ...]) -> tuple[list[_Derivative], list[_Derivative]]:
    """List the ways to take first and second derivatives; those of one order are of the same function."""

    def terms(leaves: list[Any]) -> list[Vector]:
        return [call.terms(leaves)]

    def reverse(number: int, direction: Any) -> list[Vector]:
        return [call.gradient[number] * np.ravel(direction)]

    def forward(number: int, direction: Any) -> list[Vector]:
        return [np.atleast_1d(call.slope(number, direction))]

    # In a mixture the gradient is that of reverse mode.
    inner = "reverse" if len(modes) == 2 else modes[0]

    def gradients(leaves: list[Any]) -> list[Vector]:
        return call.first(leaves, inner)

    first = [_Derivative(f"{mode} mode", reverse if mode == "reverse" else forward, terms) for mode in modes]
    pairs = [MODES[::-1], MODES] if len(modes) == 2 else [modes * 2]
    second = [
        _Derivative(
            f"{pair[0]} over {pair[1]} mode",
            partial(call.second, pair[0], pair[1]),
            gradients,
            True,
            inner == "reverse",
        )
        for pair in pairs
    ]
    return first, second


class _Deviation(NamedTuple):
    """Both derivatives, what is allowed, and the deviation in units of that."""

    ratio: float
    got: float
    expected: float
    allowed: float

    @property
    def distance(self) -> float:
        """The size of the deviation."""
        apart = abs(self.got - self.expected)
        return apart if np.isfinite(apart) else np.inf


class _Probe(NamedTuple):
    """A direction of one leaf, in units of its scales, and weights of what is found along it."""

    number: int
    direction: Any
    weights: list[Vector]


class _Check:
    """The comparison of derivatives with finite differences."""

    def __init__(self, call: Call, steps: Sequence[float], rtol: float, atol: float) -> None:
        self.call, self.steps, self.rtol, self.atol = call, steps, rtol, atol
        self.scales = [np.maximum(1.0, np.abs(np.asarray(x, float))) for x in call.leaves]
        self.missing: dict[_Derivative, Exception] = {}

    def repeatable(self) -> None:
        """Raise if the function does not give the same when it is recorded as on plain arrays."""
        value = self.call.value
        terms = self.call.terms(self.call.wide())
        plain, size = float(np.sum(terms)), float(np.sum(np.abs(terms)))
        if not abs(value - plain) <= self.atol + self.rtol * size and not (np.isnan(value) and np.isnan(plain)):
            raise GradientCheckError(
                f"the function gives {value:.9g} when it is recorded and {plain:.9g} on plain arrays (weighted sums of "
                "its results): it must give the same result at every call, so it may neither draw random numbers nor "
                "keep state"
            )

    def run(
        self,
        derivatives: list[_Derivative],
        directions: int,
        rng: np.random.Generator,
        needed: _Derivative | None = None,
    ) -> None:
        """Check derivatives of one function by each leaf; what cannot be taken, and is not needed, is left out."""
        for number, scale in enumerate(self.scales):
            for _ in range(directions if scale.size else 0):
                probe = _Probe(number, self._draw(rng, scale.shape), [])
                if derivatives[0].parallel:
                    probe.weights.extend(self._draw(rng, x.shape).ravel() * x.ravel() for x in self.scales)
                differences = self.differences(derivatives[0], probe)
                for derivative in derivatives:
                    if derivative in self.missing:
                        continue
                    try:
                        found = self.deviations(derivative, probe, differences)
                    except (NotImplementedError, DetachedError) as error:
                        if derivative is needed:
                            raise
                        self.missing[derivative] = error
                        continue
                    for block, deviation in enumerate(found):
                        if deviation.ratio > 1:
                            self.fail(derivative, probe, block)

    @staticmethod
    def _draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Draw a direction of which no element is near 0: each of them matters."""
        return rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape)

    def differences(self, derivative: _Derivative, probe: _Probe) -> Differences:
        """Take differences along a direction, when they are needed."""
        x = np.asarray(self.call.leaves[probe.number], float)
        direction = probe.direction * self.scales[probe.number]
        return Differences(lambda leaf: derivative.function(self.call.wide(probe.number, leaf)), x, direction)

    def deviations(
        self, derivative: _Derivative, probe: _Probe, differences: Differences | None = None
    ) -> list[_Deviation]:
        """Compare along a direction: for each vector its sum with weights."""
        differences = differences or self.differences(derivative, probe)
        got = derivative.along(probe.number, differences.direction)
        return [
            self._compare(vector, differences, block, probe.weights[block] if probe.weights else 1.0)
            for block, vector in enumerate(got)
        ]

    def _compare(self, vector: Vector, differences: Differences, block: int, weight: Any) -> _Deviation:
        got, terms = _sum(vector, weight), _sum(np.abs(vector), np.abs(weight))
        best = _Deviation(np.inf, got, np.nan, 0.0)
        for step in self.steps:
            slopes, sizes = differences.at(step)[block]
            expected = _sum(slopes, weight)
            rounding = 64 * np.finfo(float).eps * _sum(sizes, np.abs(weight)) / step
            allowed = self.atol + self.rtol * max(abs(expected), terms) + rounding
            ratio = abs(got - expected) / allowed
            if ratio < best.ratio or np.isnan(best.expected):
                best = _Deviation(ratio if np.isfinite(ratio) else np.inf, got, expected, allowed)
            if ratio <= 1:
                break
        return best

    # ------------------------------------------------------------ where it is wrong
    def fail(self, derivative: _Derivative, probe: _Probe, block: int) -> None:
        """Find the element that is most wrong and raise the error that tells of it."""
        scale = self.scales[probe.number]
        ones = np.ones(scale.shape)

        def part(chosen: Any, direction: Any) -> _Deviation:
            some = np.zeros(scale.size)
            some[chosen] = np.ravel(direction)[chosen]
            one = probe._replace(direction=some.reshape(scale.shape))
            return self.deviations(derivative, one)[block]

        flat = np.arange(scale.size)
        while len(flat) > SEARCHED:
            flat = max(np.array_split(flat, 2), key=lambda half: part(half, probe.direction).ratio)
        found = [(part([at], ones), int(at)) for at in flat]
        # The largest deviation among those that are deviations at all.
        deviation, at = max(found, key=lambda one: (one[0].ratio > 1, one[0].distance))
        single = deviation.ratio > 1
        unit = float(scale.flat[at]) if single else 1.0
        where = self.call.names[probe.number] + (_element(scale, at) if single else ALONG)
        what = "gradient" if single else "derivative"
        if not single:
            deviation = self.deviations(derivative, probe)[block]
        if derivative.second:
            what = "second derivative"
            worst = self._worst(derivative, probe.number, at, block) if single else None
            other, deviation = worst or (ALONG, deviation)
            where += f", and by {self.call.names[block]}{other}"
        got, expected, allowed = (v / unit for v in deviation[1:])
        raise GradientCheckError(
            f"{what} by {where}: {derivative.name} gives {got:.9g}, finite differences {expected:.9g}; "
            f"they differ by {abs(got - expected):.3g}, and {allowed:.1g} is allowed"
        )

    def _worst(self, derivative: _Derivative, number: int, at: int, block: int) -> tuple[str, _Deviation] | None:
        """Find the element of a gradient whose change by one element is most wrong; None if single ones are not."""
        if not derivative.parallel:
            return None
        direction = np.zeros(self.scales[number].size)
        direction[at] = 1.0
        differences = self.differences(derivative, _Probe(number, direction.reshape(self.scales[number].shape), []))
        vector = derivative.along(number, differences.direction)[block]
        apart = np.abs(vector - differences.at(self.steps[0])[block][0])
        worst = int(np.argmax(np.where(np.isfinite(apart), apart, np.inf)))
        weight = np.zeros(len(vector))
        weight[worst] = 1.0
        found = self._compare(vector, differences, block, weight)
        return (_element(self.scales[block], worst), found) if found.ratio > 1 else None


def _sum(vector: Vector, weight: Any) -> float:
    """Add up with weights; what has the weight 0 may be infinite."""
    with np.errstate(all="ignore"):
        return float(np.sum(np.where(weight == 0, 0.0, vector * weight)))


def _element(array: Any, at: int) -> str:
    return f", element [{', '.join(map(str, np.unravel_index(at, array.shape)))}]" if array.ndim else ""
