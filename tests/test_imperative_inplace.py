"""In-place writes to tensors that a user holds: what may be written to, what keeps its old content, what has gradients.

The oracle of a write is the same write on plain arrays; that of a gradient, differences on them or numbers by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from writes import buffer, equal

from tape import InplaceError, no_grad, tensor

A = np.array([[3.0, 1.0, 2.0], [0.5, -1.0, 0.25]])
V = np.array([1.5, -2.0, 0.75])
WEIGHTS = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


# ---------------------------------------------------------------- every kind of write
def _set(place: Any, change: Callable[[Any], Any] = lambda v: v) -> Callable[[Any, Any], None]:
    def write(a: Any, v: Any) -> None:
        a[place] = change(v)

    return write


def _add(a: Any, v: Any) -> None:
    a += v


def _divide(a: Any, v: Any) -> None:
    a /= v


def _power(a: Any, v: Any) -> None:
    a **= 2


def _row_augmented(a: Any, v: Any) -> None:
    a[0] += v


def _element_augmented(a: Any, v: Any) -> None:
    a[0, 1] *= v[0]


def _gather_augmented(a: Any, v: Any) -> None:
    a[:, [0, 0, 2]] += v


def _through_a_row(a: Any, v: Any) -> None:
    row = a[0]
    row[1] = v[0]


def _through_the_transpose(a: Any, v: Any) -> None:
    a.T[0] = v[:2]


def _masked_out(a: Any, v: Any) -> None:
    np.multiply(v, v, out=a, where=np.array([True, False, True]))


def _sort(a: Any, v: Any) -> None:
    a *= v
    a.sort(axis=1)


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "element": _set((0, 1), lambda v: v[0] * v[1]),
    "row": _set(0),
    "column": _set((slice(None), 1), lambda v: v[:2]),
    "everything": _set(Ellipsis),
    "broadcast": _set((slice(None), slice(1, None)), lambda v: v[0]),
    "row with a leading axis": _set(0, lambda v: v[None]),
    "everything with leading axes": _set(Ellipsis, lambda v: v[None, None]),
    "reversed": _set((1, slice(None, None, -1))),
    "mask": _set(np.array([True, False])),
    "mask of elements": _set(A > 0.4, lambda v: v[1]),
    "repeated rows": _set([0, 0], lambda v: np.stack([v, v * 3.0])),
    "repeated elements": _set(([1, 1, 0], [2, 2, 0])),
    "list": _set(1, lambda v: [v[0], 2.0, v[2]]),
    "add": _add,
    "divide": _divide,
    "power": _power,
    "augmented row": _row_augmented,
    "augmented element": _element_augmented,
    "augmented gather": _gather_augmented,
    "through a row": _through_a_row,
    "through the transpose": _through_the_transpose,
    "out=": lambda a, v: np.add(v, v, out=a[1]),
    "out= of all": lambda a, v: np.sin(a, out=a),
    "out= with where=": _masked_out,
    "copyto": lambda a, v: np.copyto(a, v),
    "copyto with where=": lambda a, v: np.copyto(a, v, where=np.array([False, True, True])),
    "put": lambda a, v: np.put(a, [0, 4, 4], v),
    "putmask": lambda a, v: np.putmask(a, A > 0, a * 2.0),
    "fill_diagonal": lambda a, v: np.fill_diagonal(a, v[2]),
    "add.at": lambda a, v: np.add.at(a, ([0, 0, 1], [1, 1, 2]), v),
    "fill": lambda a, v: a.fill(v[1]),
    "sort": _sort,
}


def slopes(write: Callable[[Any, Any], Any], a: Any, v: Any) -> tuple[Any, Any]:
    """Differentiate a weighted sum of what was written to, by central differences on plain arrays."""

    def value(a: Any, v: Any) -> float:
        a = a.copy()
        write(a, v)
        return float(np.sum(a * WEIGHTS))

    found = []
    for k, x in enumerate((a, v)):
        g = np.zeros_like(x)
        for i in np.ndindex(x.shape):
            step = np.zeros_like(x)
            step[i] = 1e-6
            ends = [value(*((a + s, v) if k == 0 else (a, v + s))) for s in (step, -step)]
            g[i] = (ends[0] - ends[1]) / 2e-6
        found.append(g)
    return found[0], found[1]


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("kind", ["recorded", "buffer"])
def test_writes_agree_with_numpy(name: str, kind: str) -> None:
    """Values and gradients, seen through views made before, and what was computed before stays."""
    write = WRITES[name]
    x, v = tensor(A), tensor(V)
    a = x * 1.0 if kind == "recorded" else buffer(A)
    flat, flipped = a.reshape(-1), a[::-1]
    before = a * a
    write(a, v)
    expected = A.copy()
    write(expected, V)
    equal(a, expected)
    equal(flat, expected.reshape(-1))
    equal(flipped, expected[::-1])
    equal(before, A * A)
    g_a, g_v = slopes(write, A, V)
    loss = np.sum(flipped * WEIGHTS[::-1])
    if not loss.requires_grad:
        assert not np.any(g_v)
        return
    total = loss + np.sum(before) if kind == "recorded" else loss
    total.backward()
    np.testing.assert_allclose(0.0 if v.grad is None else v.grad, g_v, rtol=1e-7, atol=1e-7)
    if kind == "recorded":
        np.testing.assert_allclose(x.grad, g_a + 2.0 * A, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", WRITES)
def test_writes_to_a_leaf(name: str) -> None:
    """The table: they raise and change nothing, and do what NumPy does under no_grad."""
    write = WRITES[name]
    x = tensor(A)
    with pytest.raises(InplaceError, match="leaf"):
        write(x, V)
    equal(x, A)
    before = np.sum(x * x)
    with no_grad():
        write(x, V)
    expected = A.copy()
    write(expected, V)
    equal(x, expected)
    assert x.requires_grad and x.is_leaf
    (before + np.sum(x * x)).backward()
    equal(x.grad, 2.0 * A + 2.0 * expected)


# ---------------------------------------------------------------- old content stays
def test_a_value_used_before_a_write_keeps_its_content() -> None:
    """The table: values that were used before keep their old content."""
    x = tensor([1.0, 2.0, 3.0])
    y = x * 2.0
    used = y * y
    y[0] = 7.0
    equal(used, [4.0, 16.0, 36.0])
    np.sum(used).backward(retain_graph=True)
    equal(x.grad, [8.0, 16.0, 24.0])
    x.zero_grad()
    np.sum(y * y).backward()
    equal(x.grad, [0.0, 16.0, 24.0])


def test_the_last_of_repeated_writes_gets_the_gradient() -> None:
    """MyGrad: with repeated integer indices only the last write receives gradient."""
    w = tensor([1.0, 2.0, 3.0])
    y = tensor(np.zeros(2)) * 1.0
    y[[1, 1, 1]] = w
    equal(y, [0.0, 3.0])
    np.sum(y).backward()
    equal(w.grad, [0.0, 0.0, 1.0])


@pytest.mark.parametrize("kind", ["recorded", "buffer"])
def test_overlapping_copies(kind: str) -> None:
    """Elements are read before any is written."""
    x = tensor(np.arange(4.0))
    y = x * 1.0 if kind == "recorded" else buffer(np.arange(4.0))
    y[1:] = y[:-1]
    equal(y, [0.0, 0.0, 1.0, 2.0])
    y[[0, 3]] = y[[3, 0]]
    equal(y, [2.0, 0.0, 1.0, 0.0])
    y[::-1] = y
    equal(y, [0.0, 1.0, 0.0, 2.0])
    if kind == "recorded":
        np.sum(y * np.array([1.0, 10.0, 100.0, 1000.0])).backward()
        equal(x.grad, [101.0, 10.0, 1000.0, 0.0])


def test_swapped_rows() -> None:
    """x[[0, 1]] = x[[1, 0]]."""
    x = tensor(A)
    y = x * 1.0
    y[[0, 1]] = y[[1, 0]]
    equal(y, A[::-1])
    np.sum(y * WEIGHTS).backward()
    equal(x.grad, WEIGHTS[::-1])


def test_copying_a_whole_value_makes_another_one() -> None:
    """y[...] = u: each has its own gradient."""
    x = tensor([1.0, 2.0])
    y, u = x * 1.0, x * 2.0
    y[...] = u
    (np.sum(y * 3.0) + np.sum(u * 5.0)).backward()
    equal(y.grad, [3.0, 3.0])
    equal(u.grad, [8.0, 8.0])
    equal(x.grad, [16.0, 16.0])


def test_copying_a_leaf_makes_no_leaf() -> None:
    """buf[...] = x: it was computed from a leaf, and keeps its content and has its own gradient."""
    x, c = tensor([1.0, 2.0]), buffer([0.0, 0.0])
    c[...] = x
    assert c.requires_grad and not c.is_leaf
    with no_grad():
        x += 1.0
    equal(c, [1.0, 2.0])
    (np.sum(c * c) + np.sum(x)).backward()
    equal(c.grad, [2.0, 4.0])
    equal(x.grad, [3.0, 5.0])


def test_float32() -> None:
    """What is written is converted, and gradients are of the leaf's dtype."""
    x, w = tensor(np.ones(3, np.float32)), tensor(np.array([2.0, 3.0]))
    y = x * np.float32(2.0)
    y[1:] = w
    assert y.dtype == np.float32
    np.sum(y * y).backward()
    assert x.grad.dtype == np.float32
    assert w.grad.dtype == np.float64
    equal(x.grad, np.array([8.0, 0.0, 0.0]))
    equal(w.grad, [4.0, 6.0])


def test_numbers() -> None:
    """Tensors of no axis: leaves under no_grad, buffers with recorded values."""
    x = tensor(2.0)
    y = x * x
    with no_grad():
        x += 1.0
        x[...] = x * 2.0
    assert x.item() == 6.0
    y.backward()
    equal(x.grad, 4.0)
    b = buffer(0.0)
    b[...] = x * 2.0
    b.backward()
    equal(x.grad, 6.0)


def test_a_running_sum_of_recorded_values() -> None:
    """``total += loss`` on a tensor without axes and without a gradient."""
    w, total = tensor(3.0), buffer(0.0)
    for k in range(3):
        total += w * float(k)
    assert total.item() == 9.0
    total.backward()
    equal(w.grad, 3.0)


def test_an_element_of_a_buffer_augmented() -> None:
    """buf[0] += w."""
    w, b = tensor(3.0), buffer([1.0, 2.0])
    b[0] += w * w
    equal(b, [10.0, 2.0])
    np.sum(b).backward()
    equal(w.grad, 6.0)


def test_a_row_with_a_leading_axis() -> None:
    """NumPy drops leading axes of length 1 of what is written to a row."""
    x = tensor(A)
    y = x * 1.0
    y[0] = x[1:]
    equal(y, A[[1, 1]])
    np.sum(y).backward()
    equal(x.grad, [[0.0] * 3, [2.0] * 3])
