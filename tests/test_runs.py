"""Long elementwise runs, swept block by block, give what the entries give one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numeric import directional

from tape import grad
from tape.runs import BUFFERS, LONG


def branching(x: Any, y: Any, s: Any) -> Any:
    """Use values several times, inside the run and after it, with operands repeated along either axis."""
    a = np.sin(x * 0.7 + 0.1)
    b = a * a + s
    c = np.sqrt(np.abs(b) + 1.0)
    d = np.exp(-c) * y
    e = np.tanh(d * a - 0.25)
    w = np.where(e > 0, e, d * e)
    weights = np.arange(x.size).reshape(x.shape) / x.size
    return np.sum(np.log(w * w + 2.0) * x) + np.sum(a * weights) + np.max(c)


def unused(x: Any, y: Any, s: Any) -> Any:
    """Compute values that the output does not need, in the middle of the run."""
    a = x * y
    dead = np.exp(a) * s
    dead = dead + dead
    return np.sum(np.cos(a) * x)


def squares(x: Any, y: Any, s: Any) -> Any:
    """Take both operands from the same slot, and use the run's result twice."""
    z = x * x * s
    z = z * z + y
    return np.sum(z * z) + np.sum(z)


SHAPES = [(LONG,), (LONG + 1,), (3, LONG // 2 + 5), (LONG - 1,), (2, 5, LONG // 7)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("f", [branching, unused, squares], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=lambda d: d.__name__)
def test_gradients(f: Callable[..., Any], shape: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(3)
    operands = [rng.normal(size=shape), rng.normal(size=shape[-1:]), 0.3]
    typed = [np.asarray(o, dtype) if np.ndim(o) else o for o in operands]
    gradients = grad(f, (0, 1, 2))(*typed)
    for k, g in enumerate(gradients):
        direction = rng.normal(size=np.shape(operands[k]))
        expected = float(directional(f, operands, k, direction))
        got = float(np.sum(np.asarray(g, float) * direction))
        size = max(1.0, float(np.sum(np.abs(np.asarray(g, float) * direction))))
        assert abs(got - expected) <= (1e-7 if dtype == np.float64 else 1e-5) * size
        assert np.asarray(g).dtype == (dtype if np.ndim(operands[k]) else np.float64)


def test_a_run_equals_its_rows() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(40, 300)), rng.normal(size=300)

    def f(x: Any) -> Any:
        return np.sum(np.tanh(np.sin(x) * y + x / (1.0 + x * x)) * np.exp(-x * x))

    assert x.size >= LONG > x[0].size
    np.testing.assert_allclose(grad(f)(x), [grad(f)(row) for row in x], rtol=1e-12)


def test_more_entries_than_a_run_may_have() -> None:
    def f(x: Any) -> Any:
        for _ in range(BUFFERS + 20):
            x = np.sin(x) + 0.5 * x
        return np.sum(x)

    x = np.linspace(0, 1, LONG + 7)
    parts = np.concatenate([grad(f)(p) for p in np.array_split(x, 5)])
    np.testing.assert_allclose(grad(f)(x), parts, rtol=1e-12)


def test_a_zero_adjoint_stays_zero_in_a_run() -> None:
    x = np.linspace(-1, 1, LONG + 3)
    with np.errstate(all="ignore"):
        got = grad(lambda x: np.sum(np.where(x >= 0, x, np.sqrt(-x) * np.log(-x) * 0.0)))(x)
    np.testing.assert_array_equal(got, np.where(x >= 0, 1.0, 0.0))
