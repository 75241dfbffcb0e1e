"""Mistakes that are NumPy's to report: the message is its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tape import grad

X = np.array([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x + np.ones(2), lambda x: np.ones(4) * x, lambda x: x @ np.ones(2), lambda x: np.ones((2, 2)) @ x,
        lambda x: np.concatenate([x, np.ones((2, 2))]), lambda x: np.stack([x, np.ones(2)]), lambda x: x.reshape(2, 2),
        lambda x: np.dot(x, np.ones(4)), lambda x: np.broadcast_to(x, (2, 2)), lambda x: np.squeeze(x, 0),
        lambda x: x[5], lambda x: x[0, 0], lambda x: x[np.array([7])], lambda x: x[np.array([True, False])],
        lambda x: np.sum(x, axis=1), lambda x: np.transpose(x, (1, 0)), lambda x: np.where(np.ones(2) > 0, x, 0.0),
        lambda x: np.maximum(x, np.ones(2)), lambda x: np.einsum("ij->i", x), lambda x: np.split(x, 2),
        lambda x: np.linalg.solve(np.eye(2), x), lambda x: np.linalg.inv(x), lambda x: np.tensordot(x, np.ones(2), 1),
        lambda x: np.max(x[:0]), lambda x: np.swapaxes(x, 0, 1), lambda x: np.cumsum(x, axis=1), lambda x: x["a"],
        lambda x: x[1.5], lambda x: x[np.array([1.5])], lambda x: x[[0, 5]],
    ],
)  # fmt: skip
def test_a_wrong_shape_gives_numpys_own_error(f: Any) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011
        f(X)
    with pytest.raises(type(expected.value)) as got:
        grad(lambda x: np.sum(f(x)))(X)
    assert str(got.value) == str(expected.value)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.__setitem__(slice(None, 2), np.ones(3)), lambda x: x.__setitem__(9, 1.0),
        lambda x: x.__setitem__((0, 0), 1.0),
        lambda x: x.__setitem__(0, np.ones(2)), lambda x: x.__setitem__(np.array([0, 1]), np.ones(3)),
        lambda x: x.__setitem__(np.array([True, False]), 1.0), lambda x: x.__iadd__(np.ones((2, 3))),
        lambda x: x.__imul__(np.ones(2)),
    ],
)  # fmt: skip
def test_a_wrong_write_gives_numpys_own_error(write: Any) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011
        write(X * 1.0)

    def f(x: Any) -> Any:
        y = x * 1.0
        write(y)
        return np.sum(y)

    with pytest.raises(type(expected.value)) as got:
        grad(f)(X)
    assert str(got.value).split(" (")[0][:40] == str(expected.value).split(" (")[0][:40]
