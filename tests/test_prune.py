"""Pruning a tape: what handles need stays and keeps its gradient, the rest goes and its memory serves again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tape import custom_vjp
from tape.adjoint import pull_back
from tape.adjoints import Adjoints
from tape.current import recording_to
from tape.prune import prune
from tape.record import handle, input_array
from tape.tensor import Tensor
from tape.wengert import CHUNK, Tape

RNG = np.random.default_rng(7)
A, B = RNG.uniform(0.5, 1.5, (3, 4)), RNG.uniform(0.5, 1.5, (4,))


@pytest.fixture(name="tape")
def _tape() -> Iterator[Tape]:
    made = Tape()
    with recording_to(made):
        yield made
    made.close()


def _input(tape: Tape, array: Any) -> Tensor:
    t = input_array(tape, np.asarray(array))
    tape.inputs.add(t._slot)
    return t


def _gradients(tape: Tape, inputs: list[Tensor], y: Tensor) -> list[Any]:
    sweep = Adjoints(tape, inputs, [y])
    sweep.run([np.ones(y.shape) if y.shape else 1.0])
    found = [sweep.gradient(t) for t in inputs]
    sweep.close()
    return found


def _noise(x: Tensor) -> None:
    """Record what nobody needs."""
    for _ in range(3):
        np.sum(np.sin(x) @ np.ones(4)) * 2.0


def _own(t: Tensor) -> Tensor:
    return handle(t._tape, t._slot, t._value, t._layout)


_scaled = custom_vjp(lambda x: 2.0 * x)
_scaled.defvjp(lambda x: (2.0 * x, None), lambda _, g: (3.0 * g,))


def _filled(a: Any, b: Any) -> Any:
    y = np.zeros_like(a)
    for i in range(3):
        y[i] = a[i] * b
    y[0, 1] = b[2]
    return y


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "elementwise": lambda a, b: np.sin(a * b) / (1.0 + a),
    "numbers": lambda a, b: np.sum(a) * b[0] + np.exp(b[1]) * 0.0 + np.floor(b[2]),
    "products": lambda a, b: a @ b + (a.T @ a)[:3, 0],
    "views": lambda a, b: a.T[1:, ::-1][::2] * b[:2, None],
    "rows": lambda a, b: a[[0, 2, 0]] * b,
    "filled": _filled,
    "joined": lambda a, b: np.concatenate([a, b[None], a]) * 1.5,
    "several": lambda a, b: np.stack([b[0], b[1], np.sum(a)]),
    "reduced": lambda a, b: np.max(a, axis=1) + np.mean(a * b) + np.std(b),
    "host": lambda a, b: np.linalg.solve(a[:, :3] + 3.0 * np.eye(3), np.sort(b)[:3]),
    "user's": lambda a, b: _scaled(a) * b,
    "chosen": lambda a, b: np.where(a > 1.0, a, b) * (b > 0.7),
    "float32": lambda a, b: a.astype(np.float32) * b.astype(np.float32),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_kept_has_its_gradient(name: str, tape: Tape) -> None:
    program = PROGRAMS[name]
    a = _input(tape, A)
    _noise(a)
    b = _input(tape, B)
    y = np.tanh(program(a, b))
    _noise(y if y.shape == (3, 4) else a)
    before, value, expected = tape.count, y.numpy(), _gradients(tape, [a, b], y)
    for _ in range(2):
        new = prune(tape, [a, b, y])
        assert tape.count < before
        assert new.max() == tape.count - 1
        np.testing.assert_array_equal(y.numpy(), value)
        for got, want in zip(_gradients(tape, [a, b], y), expected, strict=True):
            np.testing.assert_array_equal(got, want)
        appended = pull_back(tape, [_own(a), _own(b)], [_own(y)], [np.ones(y.shape) if y.shape else 1.0])
        for got, want in zip(appended, expected, strict=True):
            np.testing.assert_allclose(0.0 if got is None else got._value, want, rtol=1e-6)
        del appended
        # Recording goes on.
        z = np.sum(y * y) + np.sum(np.cos(a))
        slope = _gradients(tape, [y], z)[0]
        np.testing.assert_allclose(slope, 2 * y.numpy(), rtol=1e-6)
        del z
        before = tape.count


def test_cut_entries_become_leaves(tape: Tape) -> None:
    a = _input(tape, A)
    h = np.sin(a)
    s = np.sum(h)
    y = np.sum(h * h) * s
    cut = np.zeros(tape.count, np.bool_)
    cut[[h._slot, s._slot]] = True
    value = y.numpy()
    new = prune(tape, [h, s, y], cut)
    assert new[a._slot] == -1
    assert tape.inputs == set()
    gh, gs = _gradients(tape, [h, s], y)
    np.testing.assert_allclose(gh, 2 * np.sin(A) * s.numpy())
    np.testing.assert_allclose(gs, np.sum(np.sin(A) ** 2))
    assert y.numpy() == value


def test_memory_is_used_again(tape: Tape) -> None:
    a = _input(tape, np.ones(1000))
    big = np.ones(40_000) * _input(tape, np.ones(40_000))
    for _ in range(20):
        for _ in range(2000):
            np.sin(a)
        np.exp(big) * 2.0
        prune(tape, [a, big])
        assert tape.count == 4
        assert len(tape.workspace.chunks) * CHUNK <= 2000 * 8000 + 3 * CHUNK
        buffers = sum(map(len, tape.workspace.large.values()))
        assert len(tape.released) + len(tape.keep) + buffers <= 5
    np.testing.assert_array_equal(np.sin(a).numpy(), np.sin(np.ones(1000)))


def test_kept_values_are_not_overwritten(tape: Tape) -> None:
    a = _input(tape, np.arange(5.0))
    kept: list[Tensor] = []
    for k in range(50):
        for _ in range(40):
            np.sin(a * float(k))
        kept.append(a * float(k))
        prune(tape, [a, *kept])
    for k, t in enumerate(kept):
        np.testing.assert_array_equal(t.numpy(), np.arange(5.0) * k)
        np.testing.assert_array_equal(_gradients(tape, [a], t)[0], np.full(5, float(k)))


def test_plain_arrays_are_unlocked_and_dropped(tape: Tape) -> None:
    a = _input(tape, 1.0)
    large, other = np.ones(100_000), np.ones(100_000)
    np.sum(a * large)
    y = np.sum(a * other)
    assert not large.flags.writeable
    prune(tape, [a, y])
    assert large.flags.writeable
    assert not other.flags.writeable
    np.testing.assert_array_equal(_gradients(tape, [a], y)[0], 1e5)


def test_random_programs(tape: Tape) -> None:
    rng = np.random.default_rng(3)
    x = _input(tape, rng.normal(size=4))
    live: list[tuple[Tensor, Any]] = [(x, x.numpy())]
    for step in range(300):
        t, value = live[rng.integers(len(live))]
        u, other = live[rng.integers(len(live))]
        kind = rng.integers(4)
        made = [
            lambda p, q: np.tanh(p + q),
            lambda p, q: p[::-1] * q,
            lambda p, _: np.sum(p) * p,
            lambda p, _: p[[0, 0, 1, 3]],
        ][kind]
        live.append((made(t, u), made(value, other)))
        while len(live) > 6:
            live.pop(rng.integers(1, len(live)))
        if step % 7 == 0:
            expected = [_gradients(tape, [x], t)[0] for t, _ in live[1:]]
            prune(tape, [t for t, _ in live])
            for (t, value), want in zip(live[1:], expected, strict=True):
                np.testing.assert_allclose(t.numpy(), value)
                np.testing.assert_array_equal(_gradients(tape, [x], t)[0], want)
