"""Every op of the catalogue: its value is NumPy's, its gradient agrees with finite differences.

A new declaration is tested here the moment it exists.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from numeric import directional

import ops.special
from ops.catalog import OPS, Elementwise, Structural
from tape import grad, kernels
from tape.adjoints import pull

assert ops.special
ELEMENTWISE = [op for op in OPS if isinstance(op, Elementwise)]
SMOOTH = [op for op in ELEMENTWISE if op.differentiable]
STRUCTURAL = [op for op in OPS if isinstance(op, Structural) and op.differentiable]


def generator(op: Any) -> np.random.Generator:
    """Give numbers that differ from op to op but not from run to run."""
    return np.random.default_rng(zlib.crc32(op.name.encode()))


def draw(op: Elementwise, rng: np.random.Generator, shapes: list[tuple[int, ...]], dtype: Any = float) -> list[Any]:
    """Draw operands from the op's domain, away from the ties of its corners."""
    return [
        rng.uniform(low, high, size=shape).astype(dtype) for (low, high), shape in zip(op.domain, shapes, strict=True)
    ]


def integer(op: Elementwise, position: int) -> bool:
    """Tell whether the op takes whole numbers only for an operand."""
    return isinstance(op.forward, np.ufunc) and position == 1 and op.forward in (np.ldexp,)


def fix(op: Elementwise, operands: list[Any]) -> list[Any]:
    """Round the operands that must be whole numbers."""
    whole = getattr(op, "whole", ()) or ((1,) if op.name in ("ldexp", "sinc_derivative") else ())
    return [np.rint(np.abs(x)).astype(np.int64) if k in whole else x for k, x in enumerate(operands)]


def shapes_of(nin: int) -> list[list[tuple[int, ...]]]:
    """List shapes that an elementwise op must take: 0-d, vector, matrix, empty, and broadcast every way."""
    if nin == 1:
        return [[()], [(5,)], [(2, 3)], [(0,)], [(2, 0, 3)], [(1,)]]
    base: list[list[tuple[int, ...]]] = [
        [(), ()], [(4,), (4,)], [(2, 3), (3,)], [(3,), (2, 3)], [(2, 1), (1, 3)], [(), (4,)], [(4,), ()], [(1,), (3,)],
        [(0,), (0,)], [(2, 3, 2), (3, 1)], [(0, 3), (3,)], [(1, 1), ()],
    ]  # fmt: skip
    return [[s[0]] * (nin - 2) + s for s in base]


def pulled(f: Any, operands: list[Any], position: int, cotangent: Any) -> Any:
    """Differentiate the sum of f(operands) times a cotangent by one operand."""

    def weighted(x: Any) -> Any:
        chosen = list(operands)
        chosen[position] = x
        return np.sum(f(*chosen) * cotangent)

    return grad(weighted)(operands[position])


def check(f: Any, operands: list[Any], position: int, rng: np.random.Generator, tolerance: float = 2e-6) -> None:
    """Hold the gradient by one operand against finite differences, along a random direction."""
    value = np.asarray(f(*operands))
    cotangent = rng.uniform(0.5, 1.5, size=value.shape)
    x = np.asarray(operands[position])
    got = pulled(f, operands, position, cotangent)
    assert np.shape(got) == x.shape
    assert np.asarray(got).dtype == x.dtype
    direction = rng.uniform(-1, 1, size=x.shape)
    expected = np.sum(directional(f, operands, position, direction, 1e-3) * cotangent)
    scale = max(1.0, float(np.sum(np.abs(got) * np.abs(direction))))
    assert abs(np.sum(got * direction) - expected) <= tolerance * scale, (np.sum(got * direction), expected)


def differentiable(op: Elementwise) -> list[int]:
    """List the operands by which the op has a slope that is known."""
    return [k for k, p in enumerate(op.partials) if p is not None and not getattr(p, "unknown", False)]


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_values_are_numpys(op: Elementwise) -> None:
    """A recorded op computes what the function computes on plain arrays, to the last bit."""
    rng = generator(op)
    for shapes in shapes_of(op.nin):
        operands = fix(op, draw(op, rng, shapes))
        if op.name.startswith(("bitwise", "left", "right", "gcd", "lcm", "invert")):
            operands = [np.abs(np.rint(4 * x)).astype(np.int64) for x in operands]
        seen = []

        def record(x: Any, operands: list[Any] = operands, seen: list[Any] = seen) -> Any:
            traced = [x * 0 + o if o.dtype.kind == "f" else o + (x * 0 > 1).astype(int) for o in operands]
            seen.append(op(*traced).numpy())
            return x

        grad(record)(1.0)
        expected = np.asarray(op.forward(*operands))
        assert seen[0].shape == expected.shape
        if expected.dtype in (np.float64, np.int64, np.bool_):
            assert seen[0].dtype == expected.dtype
        np.testing.assert_array_equal(seen[0], expected)


@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
def test_gradients_agree_with_finite_differences(op: Elementwise) -> None:
    """Every operand, every shape, non-contiguous operands too."""
    rng = generator(op)
    for shapes in shapes_of(op.nin):
        operands = fix(op, draw(op, rng, shapes))
        for position in differentiable(op):
            check(op, operands, position, rng)
    shapes = [(6, 4)] * op.nin
    operands = [x[::2, ::-1].T for x in fix(op, draw(op, rng, shapes))]
    for position in differentiable(op):
        check(op, operands, position, rng)


@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
def test_long_arrays_are_processed_in_blocks(op: Elementwise) -> None:
    """Beyond one block, with an operand repeated along either axis, the gradient is the one of each row."""
    rng = generator(op)
    operands = fix(op, draw(op, rng, [(1100, 3)] * op.nin))
    for position in differentiable(op):
        whole = pulled(op, operands, position, 1.0)
        rows = [pulled(op, [o[i] for o in operands], position, 1.0) for i in (0, 340, 341, 342, 1023, 1099)]
        np.testing.assert_allclose(whole[[0, 340, 341, 342, 1023, 1099]], rows, rtol=1e-12, atol=1e-300)
        if op.nin > 1:
            column = [o[:, :1] if k == position else o for k, o in enumerate(operands)]
            total = pulled(op, column, position, 1.0)
            row = pulled(
                op, [c if k == position else np.ascontiguousarray(c) for k, c in enumerate(column)], position, 1.0
            )
            np.testing.assert_array_equal(total, row)
            single = [pulled(op, [c[i] for c in column], position, 1.0) for i in (0, 511, 1099)]
            np.testing.assert_allclose(total[[0, 511, 1099]], single, rtol=1e-12)


@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
def test_float32_stays_float32(op: Elementwise) -> None:
    """The value and the gradient of float32 operands are float32 and close to the float64 ones."""
    rng = generator(op)
    operands = fix(op, draw(op, rng, [(7,)] * op.nin))
    single = [o.astype(np.float32) if o.dtype.kind == "f" else o for o in operands]
    if np.asarray(op.forward(*single)).dtype != np.float32:
        return
    for position in differentiable(op):
        got = pulled(op, single, position, np.float32(1))
        assert np.asarray(got).dtype == np.float32
        expected = pulled(op, [o.astype(float) if o.dtype.kind == "f" else o for o in single], position, 1.0)
        np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
def test_a_zero_adjoint_stays_zero(op: Elementwise) -> None:
    """Where the adjoint is 0 the gradient is 0, at every value, however bad."""
    bad = np.array([0.0, -0.0, 1.0, -1.0, np.nan, -5.0, 1e-320, np.inf, -np.inf, 1e308])
    if not kernels.native(op):
        bad = bad[:-3]  # some of SciPy's functions never come back from these
    for position in differentiable(op):
        operands = fix(op, draw(op, generator(op), [bad.shape] * op.nin))
        operands[position] = bad
        with np.errstate(all="ignore"):
            got = grad(lambda x, o=operands, k=position: np.sum(np.where(False, op(*o[:k], x, *o[k + 1 :]), 0.0)))(bad)
        np.testing.assert_array_equal(got, np.zeros(bad.shape))


FACTORISING = {
    "cholesky", "cofactors", "det", "eigh", "eigvalsh", "histogram", "histogram_bin_edges", "inv", "lstsq", "pinv",
    "qr", "slogdet", "solve", "svd", "svdvals",
}  # fmt: skip
"""What refuses infinite values and NaN, or never comes back from them."""


@pytest.mark.parametrize("op", [op for op in STRUCTURAL if op.name not in FACTORISING], ids=lambda op: op.name)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's own, about the values
def test_a_zero_adjoint_stays_zero_in_structural_ops(op: Structural) -> None:
    """Whatever stands in an operand."""
    for operands, parameters in op.examples(generator(op)):  # type: ignore[misc]
        values = [np.asarray(x) for x in operands]
        floating = [k for k, x in enumerate(values) if x.dtype.kind == "f" and op.pullback(k) is not None and x.size]
        for bad, target in ((bad, target) for bad in (np.inf, np.nan) for target in floating):
            given = [x.copy() for x in values]
            given[target].flat[0] = bad
            out = np.asarray(op.forward(*given, **parameters))
            for k in floating:
                passed_on = pull(op, k, np.zeros(out.shape), out, tuple(given), parameters)
                assert passed_on is None or np.all(np.asarray(passed_on) == 0)


EXAMPLES = [(op, i) for op in STRUCTURAL if op.examples for i, _ in enumerate(op.examples(generator(op)))]


def test_every_structural_op_has_examples() -> None:
    """An op without examples would not be tested."""
    assert [op.name for op in STRUCTURAL if op.examples is None] == []


@pytest.mark.parametrize(("op", "number"), EXAMPLES, ids=lambda x: getattr(x, "name", str(x)))
def test_structural_examples(op: Structural, number: int) -> None:
    """Value, shape and gradient of each example, with the native kernel if the op has one, and by its rule."""
    rng = generator(op)
    operands, parameters = list(op.examples(rng))[number]  # type: ignore[misc]
    expected = np.asarray(op.forward(*operands, **parameters))

    def f(*xs: Any) -> Any:
        return op(*xs, **parameters)

    seen = []

    def record(x: Any) -> Any:
        seen.append(f(*(x * 0 + o if np.asarray(o).dtype.kind == "f" else o for o in operands)).numpy())
        return x

    grad(record)(1.0)
    np.testing.assert_array_equal(seen[0], expected)
    for position, x in enumerate(operands):
        if np.asarray(x).dtype.kind == "f" and op.pullback(position) is not None:
            check(f, list(operands), position, rng, 1e-5)
            check_rule(op, operands, parameters, position, expected, rng)
            if expected.dtype == np.float64:
                single = [np.asarray(o, np.float32) if np.asarray(o).dtype.kind == "f" else o for o in operands]
                got = pulled(f, single, position, np.float32(1))
                assert got.dtype == np.float32


def check_rule(op: Structural, operands: Any, parameters: Any, position: int, out: Any, rng: Any) -> None:
    """Hold the native kernel of an op against its rule."""
    if not op.native:
        return
    cotangent = rng.uniform(0.5, 1.5, size=out.shape)
    native = pulled(lambda *xs: op(*xs, **parameters), list(operands), position, cotangent)
    pullback = op.pullback(position)
    assert pullback is not None
    rule = pullback(cotangent, out, *operands, **parameters)
    np.testing.assert_allclose(native, np.broadcast_to(rule, native.shape), rtol=1e-12, atol=1e-13)
