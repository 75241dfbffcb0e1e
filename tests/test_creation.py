"""Arrays made inside a differentiated function, and that nothing is recorded outside one."""

from __future__ import annotations

import numpy as np
from test_numpy_protocol import X, check, recorded

import ops
from tape import Tensor


def test_creation_on_the_tape() -> None:
    check(lambda x: np.zeros_like(x) + np.ones_like(x) * x + np.full_like(x, 2.0) + np.full_like(x, x[1]), X)
    check(lambda x: ops.array([x[0], [x[1]][0], 2.0, x[2] * x[3]]), X)
    check(lambda x: ops.array([[x[0], 1.0], [x[1], x[2]]]) @ ops.ones(2), X)
    check(lambda x: ops.full((2, 2), x[0]) * ops.zeros((2, 2)) + ops.full(2, x[1]), X)
    check(lambda x: ops.asarray([x, x * 2]), X)
    assert recorded(lambda x: np.zeros_like(x, dtype=np.float32).dtype, X) == np.float32
    assert recorded(lambda x: np.zeros_like(x, shape=(2, 2)).shape, X) == (2, 2)
    assert recorded(lambda x: ops.array([x[0], x[1]], dtype=np.float32).dtype, X) == np.float32


def test_outside_a_recording_everything_is_plain() -> None:
    for made in (ops.zeros(3), ops.ones(3), ops.array([1.0, 2.0]), ops.full(3, 2.0), ops.zeros((2, 2), np.float32)):
        assert type(made) is np.ndarray
    assert type(np.zeros_like(X)) is np.ndarray
    seen = recorded(lambda x: (np.sin(X), X + X, X.sum()), X)
    assert [type(s) for s in seen] == [np.ndarray, np.ndarray, np.float64]


def test_isinstance_and_construction() -> None:
    assert recorded(lambda x: isinstance(x, Tensor) and isinstance(x[0] + 1, Tensor), X)
    x = Tensor([1, 2], dtype=np.float32)
    assert type(x).__mro__[1] is Tensor
    assert (x.shape, x.dtype, x.requires_grad) == ((2,), np.float32, True)
