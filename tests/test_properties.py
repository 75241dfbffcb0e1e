"""Property tests of every elementwise op: shapes that broadcast, orders in memory and dtypes drawn at random."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_catalogue import SMOOTH, check, differentiable, draw, fix, generator, pulled

from ops.catalog import Elementwise

ORDERS = ("as it is", "transposed", "reversed", "with gaps", "repeated")


def laid_out(x: np.ndarray[Any, Any], order: str) -> np.ndarray[Any, Any]:
    """Give equal elements in another order in memory."""
    if order == "transposed":
        return np.asfortranarray(x)
    if order == "reversed" and x.ndim:
        return x[::-1].copy()[::-1]
    if order == "with gaps" and x.ndim:
        return np.repeat(x, 2, axis=-1)[..., ::2]
    if order == "repeated" and x.ndim and x.shape[0]:
        return np.broadcast_to(x[:1], x.shape)
    return x


@st.composite
def operands(draw_from: Any, op: Elementwise) -> list[Any]:
    """Draw operands of shapes that broadcast, each in an order of its own."""
    shapes = hnp.mutually_broadcastable_shapes(num_shapes=op.nin, max_dims=3, max_side=4, min_side=0)
    drawn = draw_from(shapes).input_shapes
    seed = draw_from(st.integers(0, 2**31))
    values = fix(op, draw(op, np.random.default_rng(seed), list(drawn)))
    return [laid_out(np.asarray(x), draw_from(st.sampled_from(ORDERS))) for x in values]


@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
def test_gradients(op: Elementwise) -> None:
    @settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def run(data: Any) -> None:
        chosen = data.draw(operands(op))
        rng = generator(op)
        for position in differentiable(op):
            check(op, chosen, position, rng)

    run()


@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
def test_the_order_in_memory_changes_nothing(op: Elementwise) -> None:
    @settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def run(data: Any) -> None:
        chosen = data.draw(operands(op))
        plain = [np.ascontiguousarray(x) if x.ndim else x for x in chosen]
        for position in differentiable(op):
            got, expected = pulled(op, chosen, position, 1.0), pulled(op, plain, position, 1.0)
            np.testing.assert_allclose(got, expected, rtol=1e-14, atol=1e-300)

    run()
