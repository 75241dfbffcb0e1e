"""Every op of the catalogue to higher order: the modes agree with each other, and with finite differences.

A new declaration is tested here the moment it exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numeric import directional
from test_catalogue import SMOOTH, STRUCTURAL, differentiable, draw, fix, generator, shapes_of
from test_pushforward import examples_of, floating

from ops.catalog import Elementwise, Structural, UnknownSlopeError
from tape import grad, hessian, hvp, jvp, vhp, vjp

Function = Callable[..., Any]
UNKNOWN = {"gammainc": (0,), "gammaincc": (0,), "gammaincinv": (0,), "gammainccinv": (0,)}
"""The operands by which an op can be differentiated once only."""


def close(got: Any, expected: Any, tolerance: float, size: float = 0.0) -> None:
    """Compare containers of arrays, relative to the largest element."""
    got, expected = np.atleast_1d(*(flat(x) for x in (got, expected)))
    assert got.shape == expected.shape
    assert np.all(np.isfinite(got))
    largest = max(size, float(np.max(np.abs(expected), initial=0.0)))
    assert np.max(np.abs(got - expected), initial=0.0) <= tolerance * (largest + 1e-9), (got, expected)


def flat(x: Any) -> Any:
    """Put arrays, numbers and tuples of them into one vector."""
    return np.concatenate([np.zeros(0), *(np.ravel(part) for part in (x if isinstance(x, tuple | list) else (x,)))])


def dot(xs: Any, ys: Any) -> Any:
    """Sum the products of corresponding elements."""
    return sum(np.sum(x * y) for x, y in zip(xs, ys, strict=True))


def along(function: Function, operands: list[Any], tangents: list[Any]) -> Any:
    """Differentiate a function, tuples of arrays as results, along a direction of all operands numerically."""
    return directional(
        lambda s: flat(function(*(x + s * t for x, t in zip(operands, tangents, strict=True)))), [0.0], 0, 1.0
    )


def second(f: Function, xs: tuple[Any, ...], ts: tuple[Any, ...]) -> dict[str, Any]:
    """Give the product of the Hessian with a vector in every way there is."""
    every = tuple(range(len(xs)))
    gradient = grad(f, every)
    blocks = hessian(f, every)(*xs)
    return {
        "forward over reverse": jvp(gradient, xs, ts)[1],
        "reverse over forward": grad(lambda *xs: jvp(f, xs, ts)[1], every)(*xs),
        "reverse over reverse": grad(lambda *xs: dot(gradient(*xs), ts), every)(*xs),
        "hvp": hvp(f, xs[0], ts, *xs[1:], argnums=every),
        "vhp": vhp(f, xs[0], ts, *xs[1:], argnums=every),
        "hessian": tuple(
            sum(np.tensordot(block, t, np.ndim(t)) for block, t in zip(row, ts, strict=True)) for row in blocks
        ),
    }


def agree(f: Function, xs: tuple[Any, ...], ts: tuple[Any, ...], tolerance: float, exact: float = 1e-10) -> None:
    """Hold first and second derivatives of a function of one number as result against each other and differences."""
    every = tuple(range(len(xs)))
    gradient = grad(f, every)
    g = gradient(*xs)
    terms = float(np.sum(np.abs(flat(tuple(x * t for x, t in zip(g, ts, strict=True))))))
    # Forward against reverse against differences.
    slope = jvp(f, xs, ts)[1]
    close(slope, dot(g, ts), exact, terms)
    close(slope, along(f, list(xs), list(ts)), tolerance, terms)
    expected = along(gradient, list(xs), list(ts))
    products = second(f, xs, ts)
    size = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    for name, product in products.items():
        for part, x in zip(product, xs, strict=True):
            assert np.shape(part) == np.shape(x), name
        close(product, expected, tolerance, size)
        close(product, flat(products["forward over reverse"]), exact, size)
    bend = jvp(lambda *xs: jvp(f, xs, ts)[1], xs, ts)[1]
    close(bend, dot(products["forward over reverse"], ts), exact, size * sum(float(np.sum(np.abs(t))) for t in ts))


# ---------------------------------------------------------------- elementwise
def elementwise_case(op: Elementwise, shapes: list[tuple[int, ...]], twice: bool = True) -> tuple[Any, ...]:
    """Draw operands and directions; give the weighted sum of the op's result by the operands that have a slope."""
    rng = generator(op)
    operands = fix(op, draw(op, rng, shapes))
    chosen = [k for k in differentiable(op) if not twice or k not in UNKNOWN.get(op.name, ())]
    weight = rng.uniform(0.5, 1.5, np.shape(op.forward(*operands)))

    def f(*xs: Any) -> Any:
        given = list(operands)
        for k, x in zip(chosen, xs, strict=True):
            given[k] = x
        return np.sum(weight * op(*given))

    xs = tuple(operands[k][()] if operands[k].ndim else float(operands[k]) for k in chosen)
    return f, xs, tuple(rng.uniform(-1, 1, np.shape(x))[()] for x in xs)


def small_shapes(nin: int) -> list[list[tuple[int, ...]]]:
    """List shapes: numbers, vectors, and broadcast either way."""
    some: list[list[tuple[int, ...]]] = [[(), ()], [(3,), (3,)], [(2, 1), (1, 3)], [(2,), ()]]
    return [[(), (4,)][k : k + 1] for k in (0, 1)] if nin == 1 else [[s[0]] * (nin - 2) + s for s in some]


@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
def test_elementwise_to_second_order(op: Elementwise) -> None:
    for shapes in small_shapes(op.nin):
        f, xs, ts = elementwise_case(op, shapes)
        if xs:
            agree(f, xs, ts, 2e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
def test_elementwise_to_second_order_in_all_shapes(op: Elementwise) -> None:
    for shapes in [*shapes_of(op.nin), [(40, 30)] * op.nin]:
        f, xs, ts = elementwise_case(op, shapes)
        if xs and sum(np.size(x) for x in xs) <= 100:
            agree(f, xs, ts, 2e-6)


@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
def test_elementwise_to_third_order(op: Elementwise) -> None:
    """The gradient of the gradient of the gradient, and the mixtures of the modes three deep."""
    f, xs, ts = elementwise_case(op, [(2,)] * op.nin)
    if not xs:
        return
    every = tuple(range(len(xs)))

    def reverse(f: Function) -> Function:
        return lambda *xs: dot(grad(f, every)(*xs), ts)

    def forward(f: Function) -> Function:
        return lambda *xs: jvp(f, xs, ts)[1]

    twice = grad(reverse(f), every)
    expected = along(twice, list(xs), list(ts))
    size = max(1.0, float(np.max(np.abs(expected))), float(np.max(np.abs(flat(twice(*xs))))))
    third = grad(reverse(reverse(f)), every)(*xs)
    close(third, expected, 5e-6, size)
    for inner in (reverse(forward(f)), forward(reverse(f)), forward(forward(f))):
        close(grad(inner, every)(*xs), flat(third), 1e-9, size)
    close(jvp(twice, xs, ts)[1], flat(third), 1e-9, size)
    close(jvp(grad(forward(f), every), xs, ts)[1], flat(third), 1e-9, size)
    close(hvp(forward(f), xs[0], ts, *xs[1:], argnums=every), flat(third), 1e-9, size)


@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
def test_second_derivatives_in_float32(op: Elementwise) -> None:
    """They are of float32, and close to those of float64."""
    f, xs, ts = elementwise_case(op, [(5,)] * op.nin)
    if not xs:
        return
    single, directions = (tuple(np.asarray(x, np.float32) for x in part) for part in (xs, ts))
    wide, along_wide = (tuple(np.asarray(x, np.float64) for x in part) for part in (single, directions))
    expected = hvp(f, wide[0], along_wide, *wide[1:], argnums=tuple(range(len(xs))))
    for name, product in second(f, single, directions).items():
        for part in product:
            assert part.dtype == np.float32, name
        close(product, flat(expected), 2e-3, max(1.0, float(np.max(np.abs(flat(expected))))))


@pytest.mark.parametrize("name", list(UNKNOWN))
def test_what_has_no_second_derivative_says_so(name: str) -> None:
    op = next(op for op in SMOOTH if op.name == name)
    f, xs, ts = elementwise_case(op, [(2,)] * op.nin, twice=False)
    for product in (
        lambda: hvp(f, xs[0], ts[0], xs[1]),
        lambda: jvp(grad(f), xs, ts),
        lambda: grad(lambda *xs: jvp(f, xs, ts)[1])(*xs),
        lambda: hessian(f)(*xs),
    ):
        with pytest.raises(UnknownSlopeError, match="a second time, is not known"):
            product()
    # By the other operand it has one, and mixed ones.
    agree(lambda y: f(xs[0], y), xs[1:], ts[1:], 2e-6)


# ---------------------------------------------------------------- structural
INACCURATE = {("cofactors", 9)}
"""Third derivatives of the determinant of a large matrix whose rank is two less than its size: right to a digit."""


def structural_cases() -> Iterator[Any]:
    """List the examples of the structural ops."""
    for op in STRUCTURAL:
        for number, (operands, _) in enumerate(examples_of(op)):
            yield pytest.param(op, number, id=f"{op.name}-{number}", marks=heavy(op, number, operands))


def heavy(op: Structural, number: int, operands: Any) -> Any:
    """Leave all but a few examples of an op to the exhaustive tests; empty ones are quick."""
    quick = number < 3 or sum(np.size(x) for x in operands) == 0
    return () if quick else pytest.mark.exhaustive


@pytest.mark.parametrize(("op", "number"), list(structural_cases()))
def test_structural(op: Structural, number: int) -> None:
    """The pushforward is the transposed pullback, and of a smooth function of the op all second derivatives agree."""
    rng = generator(op)
    operands, parameters = examples_of(op)[number]
    chosen = floating(op, operands)
    assert chosen

    def result(*xs: Any) -> Any:
        given = list(operands)
        for k, x in zip(chosen, xs, strict=True):
            given[k] = x
        return op(*given, **parameters)

    xs = tuple(np.asarray(operands[k], float) for k in chosen)
    ts = tuple(direction(op, x, rng) for x in xs)
    if result(*xs).dtype.kind != "f":
        return  # NumPy counts nothing, with weights, to integers
    y, tangent = jvp(result, xs, ts)
    weight = rng.uniform(0.5, 1.5, np.shape(y))
    _, pullback = vjp(result, *xs)
    gradients = pullback(weight.astype(y.dtype) if np.ndim(y) else float(weight))
    size = float(np.sum(np.abs(weight * tangent))) + dot(map(np.abs, gradients), map(np.abs, ts))
    assert np.shape(tangent) == np.shape(y)
    assert tangent.dtype == y.dtype
    close(np.sum(weight * tangent), dot(gradients, ts), 1e-11, size)
    if np.asarray(y).dtype == np.float64 and (op.name, number) not in INACCURATE:
        largest = max(1.0, float(np.max(np.abs(y), initial=0.0)))
        agree(lambda *xs: np.sum(np.sin(result(*xs) / largest) * weight), xs, ts, 1e-5, 1e-9)


def direction(op: Structural, x: Any, rng: np.random.Generator) -> Any:
    """Draw a direction; the ops of symmetric matrices read one half of it only."""
    t = rng.uniform(-1, 1, x.shape)
    return t + np.swapaxes(t, -1, -2) if op.name in ("cholesky", "eigh", "eigvalsh") else t
