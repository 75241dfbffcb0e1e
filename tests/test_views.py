"""Views: a write through one reaches its base and every other view, and only those, as in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plain import A, X, agree, weighted


# ---------------------------------------------------------------- views
def views() -> dict[str, Callable[[Any], Any]]:
    """Name the ways to make a view of a matrix of shape (3, 4)."""
    return {
        "row": lambda a: a[0],
        "last row": lambda a: a[-1],
        "column": lambda a: a[:, 2],
        "interior": lambda a: a[1:-1, 1:-1],
        "strided": lambda a: a[::2, ::-3],
        "all": lambda a: a[:],
        "ellipsis": lambda a: a[...],
        "new axis": lambda a: a[:, None, 1],
        "T": lambda a: a.T,
        "transpose": np.transpose,
        "transpose()": lambda a: a.transpose(),
        "transpose(1, 0)": lambda a: a.transpose(1, 0),
        "mT": lambda a: a.mT,
        "swapaxes": lambda a: np.swapaxes(a, 0, 1),
        "moveaxis": lambda a: np.moveaxis(a, 0, -1),
        "reshape": lambda a: np.reshape(a, (4, 3)),
        ".reshape": lambda a: a.reshape(2, -1),
        "reshape to the same": lambda a: a.reshape(3, 4),
        "ravel": np.ravel,
        ".ravel": lambda a: a.ravel(),
        "expand_dims": lambda a: np.expand_dims(a, 1),
        "squeeze": lambda a: np.squeeze(a[:1]),
        "flip": np.flip,
        "flipud": np.flipud,
        "rot90": np.rot90,
        "split": lambda a: np.split(a, 2, axis=1)[1],
        "array_split": lambda a: np.array_split(a, 2)[0],
        "atleast_3d": np.atleast_3d,
        "diagonal of rows": lambda a: a.reshape(-1)[::5],
        "view of a view": lambda a: a[1:][0][1:3],
        "view of a transpose": lambda a: a.T[1],
        "transpose of a view": lambda a: a[1:].T,
        "reshape of a row": lambda a: a[1].reshape(2, 2),
        "iteration": lambda a: list(a)[1],
        "unpacking": lambda a: next(iter(a[:, 1:])),
    }


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": lambda a: a.copy(),
    "np.copy": np.copy,
    "plus": lambda a: +a,
    "flatten": lambda a: a.flatten(),
    "rows": lambda a: a[np.array([0, 1])],
    "mask": lambda a: a[np.ones((3, 4), bool)],
    "reshape of a transpose": lambda a: a.T.reshape(3, 4),
    "ravel of a transpose": lambda a: a.T.ravel(),
    "reshape of columns": lambda a: a[:, :2].reshape(-1),
    "astype": lambda a: a.astype(float),
    "concatenate": lambda a: np.concatenate([a]),
    "stack": lambda a: np.stack([a]),
    "repeat": lambda a: np.repeat(a, 1, axis=0),
    "roll": lambda a: np.roll(a, 0),
    "where": lambda a: np.where(np.ones((3, 4), bool), a, 0.0),
    "take": lambda a: np.take(a, [0, 1], axis=0),
}


def test_the_lists_of_views_and_copies_are_right() -> None:
    for name, take in views().items():
        assert np.shares_memory(A, take(A)), name
    for name, take in COPIES.items():
        assert not np.shares_memory(A, take(A)), name


@pytest.mark.parametrize("name", [*views(), *COPIES])
def test_a_write_through_a_view_reaches_its_base_and_not_through_a_copy(name: str) -> None:
    take = (views() | COPIES)[name]

    def f(a: Any, v: Any) -> Any:
        b = a * 1.0
        w = take(b)
        w *= v[0]
        first = (0,) * w.ndim
        w[first] = v[1] * v[2]
        return weighted(b**2) + weighted(w)

    agree(f, A, X)


@pytest.mark.parametrize("name", [*views(), *COPIES])
def test_a_write_to_the_base_shows_in_a_view_and_not_in_a_copy(name: str) -> None:
    take = (views() | COPIES)[name]

    def f(a: Any, v: Any) -> Any:
        b = a * 1.0
        w = take(b)
        before = w * w
        b *= v
        b[0, 0] = v[1]
        b[2, 3] = v[2]
        return weighted(w**2) + weighted(before) + np.sum(b)

    agree(f, A, X)


@pytest.mark.parametrize("name", views())
def test_two_views_of_one_array_agree(name: str) -> None:
    def f(a: Any, v: Any) -> Any:
        b = a * 1.0
        w, row = views()[name](b), b[1]
        row[1] = v[0]
        w += v[1]
        row *= 2.0
        again = views()[name](b)
        return weighted(w * again) + weighted(row) + weighted(b)

    agree(f, A, X)


def test_overlapping_views() -> None:
    def f(v: Any) -> Any:
        y = v * 1.0
        left, right = y[:3], y[1:]
        left *= 2.0
        right[0] = v[3] * v[0]
        left += right
        right -= left[0]
        return weighted(left * right) + weighted(y)

    agree(f, X)


def test_a_view_of_a_view_and_its_base_after_the_middle_is_gone() -> None:
    def f(a: Any) -> Any:
        b = a * 1.0
        inner = b[1:][1]
        inner[2] = b[0, 0] * 3.0
        b[2, 1] = 9.0
        return weighted(inner * inner) + weighted(b)

    agree(f, A)


def test_a_view_outlives_its_base() -> None:
    def f(a: Any) -> Any:
        row = (a * 2.0)[1]
        row[0] = row[1] * row[2]
        return weighted(row)

    agree(f, A)


def test_views_of_the_argument() -> None:
    def f(a: Any) -> Any:
        row = a[0]
        row[1] = 5.0
        a.T[2] *= a[1, 0]
        return weighted(a * a)

    agree(f, A)


def test_writes_to_elements_while_a_view_lives() -> None:
    def f(v: Any) -> Any:
        y = np.zeros_like(v)
        half = y[1:3]
        for i in range(4):
            y[i] = v[i] * v[i - 1] + half[0]
        half[1] = 2.0 * y[3]
        return weighted(y) + weighted(half)

    agree(f, X)


def test_swapping_rows_by_tuple_assignment() -> None:
    """NumPy swaps views, so the second row is lost; the recorded function does the same."""

    def f(a: Any) -> Any:
        b = a * 1.0
        b[0], b[1] = b[1], b[0]
        return weighted(b * b)

    agree(f, A)


def test_views_of_a_result_in_another_memory_order() -> None:
    """NumPy keeps the order of `a.T * 2`, so a reshape of it is a copy."""

    def f(a: Any) -> Any:
        b = a.T * 2.0
        w = b.reshape(-1)
        w[1] = 7.0
        return weighted(b) + weighted(w)

    agree(f, A)


# ---------------------------------------------------------------- random programs
def program(seed: int) -> Callable[[Any], Any]:
    """Make a function of a matrix that takes views, copies and writes at random."""

    def f(a: Any) -> Any:
        rng = np.random.default_rng(seed)
        pool = [a * 1.0]
        total: Any = 0.0

        def index(shape: tuple[int, ...]) -> Any:
            made = []
            for n in shape:
                kind = rng.integers(5)
                low, high = sorted(int(i) for i in rng.integers(0, n + 1, 2))
                made.append(
                    [
                        slice(None),
                        slice(low, high),
                        slice(None, None, -1),
                        int(rng.integers(-n, n)),
                        slice(low, None, 2),
                    ][kind]
                    if n
                    else slice(None)
                )
            return tuple(made[: rng.integers(0, len(made) + 1)])

        for _ in range(14):
            b = pool[rng.integers(len(pool))]
            kind = rng.integers(9)
            if kind < 3 and b.ndim and b.size:
                views = [
                    lambda b=b: b[index(b.shape)], lambda b=b: b.T, lambda b=b: np.reshape(b, -1), lambda b=b: b[None],
                    lambda b=b: np.swapaxes(b, 0, -1), lambda b=b: np.expand_dims(b, -1), lambda b=b: np.flip(b),
                ]  # fmt: skip
                made = views[rng.integers(len(views))]()
                if made.ndim:
                    pool.append(made)
            elif kind == 3:
                made = [lambda b=b: b.copy(order="C"), lambda b=b: b * 0.9, lambda b=b: np.sin(b.T) + b.T]
                pool.append(made[rng.integers(len(made))]())
            elif kind == 4 and b.ndim:
                at = index(b.shape)
                c = pool[rng.integers(len(pool))]
                value = rng.uniform(0.5, 1.5) * (c[(0,) * c.ndim] if c.size else 1.0)
                b[at] = value
            elif kind == 5 and b.ndim:
                at = index(b.shape)
                b[at] *= rng.uniform(0.5, 1.5)
                b[at] += a[0, 0]
            elif kind == 6 and b.ndim and b.shape[0]:
                rows = rng.integers(0, b.shape[0], 3)
                b[rows] = b[rows[::-1]] * 0.5
            elif kind == 7:
                b *= rng.uniform(0.5, 1.5)
            elif kind == 8 and b.ndim:
                b[rng.random(b.shape) < 0.4] *= 0.5
            total = total + weighted(b) * rng.uniform(0.5, 1.5)
        for b in pool:
            total = total + weighted(b * b)
        return total

    return f


@pytest.mark.parametrize("seed", range(200))
def test_random_programs(seed: int) -> None:
    # The order in memory decides which reshapes are views.
    argument = [A, np.asfortranarray(A), np.repeat(A, 2, 1)[:, ::2]][seed % 3]
    agree(program(seed), argument, tolerance=1e-6)
