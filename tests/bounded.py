"""Programs for `test_bounds`: between them they use every kind of native instruction. Run as ``python -m bounded``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tape import grad, hvp, jvp

SECOND = 1500
"""Second derivatives are taken of programs of at most this many elements: as Python they take long."""

Program = tuple[Callable[[Any], Any], tuple[int, ...]]


def programs() -> Iterator[Program]:
    """Give compositions of ops; the lengths go beyond one block of a kernel, and beyond several."""
    yield lambda x: np.sum(np.sin(x) * x + np.exp(-x * x)), (5,)
    yield lambda x: np.sum(np.sin(x) * x + np.exp(-x * x)), (4500,)
    yield lambda x: np.sum(np.tanh(x) * x[:, :1] + x[0]), (1100, 3)
    yield lambda x: np.sum(np.where(x > 0.5, x, x * x) * np.mean(x, axis=0)), (7, 3)
    yield lambda x: np.sum(np.clip(x, 0.3, 0.8) ** 2), (2, 3, 4)
    yield lambda x: np.sum(np.tanh(x @ x.T) @ x), (3, 5)
    yield lambda x: np.sum(x @ x[0] + x[:, 0] * (x[1] @ x[2])), (4, 4)
    yield lambda x: np.sum(x[::-1, ::2].T @ x[:, ::-1]), (4, 5)
    yield lambda x: np.sum(np.concatenate([x, x[::-1]]) * np.arange(8.0)), (4,)
    yield lambda x: np.sum(np.sort(x, axis=0)[0] * np.cumsum(x, axis=1)), (4, 3)
    yield lambda x: np.where(x[0] > x[1], x[2], x[0] * x[1]) * np.hypot(x[1], x[2]), (3,)
    yield lambda x: np.sum(np.max(x, axis=1) * np.min(x, axis=1)) + np.max(x), (2, 3, 1100)
    yield lambda x: np.sum(np.max(x, axis=-1) * np.min(x, axis=(1, 2))[:, None]) + np.min(x), (4, 3, 5)


def writes() -> Iterator[Program]:
    """Give programs that read and write elements, rows and slices."""

    def elements(x: Any) -> Any:
        y = x * 1
        for i in range(4):
            y[i] = np.sin(x[i - 1]) * x[-1]
        return np.sum(y * y)

    def rows(x: Any) -> Any:
        y = np.zeros_like(x)
        for i in range(4):
            y[i] = x[3 - i] * x[i]
        return np.sum(y * x)

    def slices(x: Any) -> Any:
        y = x * 1
        y[1:] += 2 * x[:-1]
        y[::-2] *= x[::2]
        y[y > 0.7] = 0.1
        return np.sum(y * y)

    shapes = (4,), (4, 1), (4, 3), (4, 2, 3)
    yield elements, (4,)
    yield from ((rows, shape) for shape in shapes)
    yield from ((slices, shape) for shape in shapes)
    for shape in shapes:
        yield lambda x: np.sum(np.sin(x[np.array([0, 3, 3, -1])])), shape
        yield lambda x: np.sum(x[np.array([], int)]) + np.sum(x[-1]), shape


def views() -> Iterator[Program]:
    """Give programs over views of every stride."""
    cuts = slice(None), slice(None, None, -1), slice(1, None, 2), slice(-1, 0, -2), slice(2, 3), slice(3, 1)
    for cut in cuts:
        yield lambda x, cut=cut: np.sum(np.exp(x[cut]) * x[cut]), (5,)
        yield lambda x, cut=cut: np.sum(np.exp(x[:, cut]) * x[cut].T), (5, 5)
        yield lambda x, cut=cut: np.sum(np.mean(x[cut].T * 2, axis=0, keepdims=True) + x[:, 2:3]), (5, 5)
    yield lambda x: np.sum(np.broadcast_to(x, (3, 4, 2)) * np.arange(8.0).reshape(4, 2)), (3, 1, 2)
    yield lambda x: np.sum(x.transpose(2, 0, 1)[::-1].reshape(4, 6) * np.arange(6.0)), (2, 3, 4)
    yield lambda x: np.sum(x[None, :, ..., None] * x[1][:, None]), (2, 3)


def empty() -> Iterator[Program]:
    """Give programs over arrays without elements, and with one."""
    for shape in (), (0,), (1,), (0, 3), (3, 0), (1, 1), (2, 0, 3):
        yield lambda x: np.sum(np.sin(x) * x), shape
        yield lambda x: np.sum(x + np.ones(3)[:, None, None, None]) + np.sum(x.reshape(-1)), shape
        if shape:
            yield lambda x: np.sum(np.sum(x, axis=-1) * 2 + x.T[..., :1].sum()), shape
            yield lambda x: np.sum(np.concatenate([x, x]) * 2) + np.sum(x[:, None] * x[::-1]), shape


CASES = {case.__name__: case for case in (programs, writes, views, empty)}


def main(names: list[str]) -> None:
    """Print gradient and directional derivatives of every program of some cases, first and second, a line each."""
    rng = np.random.default_rng(3)
    for name in names or CASES:
        for f, shape in CASES[name]():
            x = rng.uniform(0.2, 1.2, size=shape)
            for dtype in (np.float64, np.float32):
                print(*np.ravel(grad(f)(x.astype(dtype))).tolist())
                print(*np.ravel(jvp(f, (x.astype(dtype),), (np.cos(x).astype(dtype),))[1]).tolist())
            if x.size <= SECOND:
                print(*np.ravel(hvp(f, x, np.cos(x))).tolist())
                print(*np.ravel(hvp(lambda x, f=f: f(x) * np.sum(x[...]), x, np.cos(x))).tolist())


if __name__ == "__main__":
    main(sys.argv[1:])
