"""Pruning a tape: what handles need stays and keeps its gradient, the rest goes and its memory serves again."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tape import backward_pairs, custom_vjp, grad, tensor
from tape import prune as pruning
from tape.adjoint import pull_back
from tape.adjoints import Adjoints
from tape.compiled import CHECKED
from tape.current import recording_to
from tape.inplace import Filling, Stale
from tape.prune import prune
from tape.record import handle, input_array
from tape.show import read_entry
from tape.tensor import Tensor
from tape.wengert import Tape
from tape.workspace import CHUNK

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


def _rows_written(a: Any, b: Any) -> Any:
    a[1:, 0] = b[:2]
    a[1] = b
    view = a.T[1:]
    a[2, 3] = b[0] * b[1]
    return view * b[1:, None]


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
    "integers": lambda a, b: a * np.floor(b * 3.0).astype(np.int64)[::-1] * (b > 1.0)[::2].sum(),
    "repeated": lambda a, b: np.broadcast_to(b[:2, None], (2, 3)) @ a + np.broadcast_to(b[0], (4,)),
    "rows written": lambda a, b: _rows_written(a * 1.0, b),
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
    before = sum(map(len, tape.workspace.large.values()))
    for _ in range(20):
        for _ in range(2000):
            np.sin(a)
        np.exp(big) * 2.0
        prune(tape, [a, big])
        assert tape.count == 4
        assert (tape.taken - len(tape.unused)) * CHUNK <= 2000 * 8000 + 3 * CHUNK
        buffers = sum(map(len, tape.workspace.large.values()))
        assert len(tape.released) + len(tape.keep) + buffers <= before + 5
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


def test_gathered_writes_and_outdated_views(tape: Tape) -> None:
    """Handles that are brought up to date when read stay as they are: nothing is recorded while pruning."""
    a = _input(tape, np.arange(5.0))
    y, z = a * 2.0, a * 3.0
    _noise(_input(tape, A))
    view = z[1:]
    z += a
    y[0] = a[1] * 3.0
    assert type(y) is Filling
    assert type(view) is Stale
    count = tape.count
    new = prune(tape, [a, y, z, view])
    assert tape.count == np.sum(new >= 0) < count
    assert type(y) is Filling
    assert type(view) is Stale
    np.testing.assert_array_equal(y.numpy(), [3.0, 2.0, 4.0, 6.0, 8.0])
    np.testing.assert_array_equal(view.numpy(), [4.0, 8.0, 12.0, 16.0])
    np.testing.assert_array_equal(_gradients(tape, [a], np.sum(y))[0], [0.0, 5.0, 2.0, 2.0, 2.0])
    np.testing.assert_array_equal(_gradients(tape, [a], np.sum(view))[0], [0.0, 4.0, 4.0, 4.0, 4.0])


@pytest.mark.parametrize("way", ["hook", "pairs"])
def test_a_known_number_is_written_during_a_pass(way: str) -> None:
    """The write records nothing, so handles are not looked for again: the one that it makes is found all the same."""
    x = tensor(np.arange(1.0, 5.0))
    y, z = x * 2.0, x * 3.0
    if way == "hook":
        z.register_hook(lambda _: y.__setitem__(0, 2.0))
        np.sum(z).backward()
    else:
        for _ in backward_pairs(np.sum(z)):
            y[0] = 2.0
    np.sum(y).backward()
    np.testing.assert_array_equal(y.numpy(), [2.0, 4.0, 6.0, 8.0])
    np.testing.assert_array_equal(x.grad, np.array([0.0, 2.0, 2.0, 2.0]) + (3.0 if way == "hook" else 0.0))


def test_handles_share_slots(tape: Tape) -> None:
    _noise(_input(tape, A))
    a = _input(tape, B)
    y = np.sin(a)
    same = _own(y)
    new = prune(tape, [a, y, y, same])
    assert (a._slot, y._slot, same._slot) == (0, 1, 1)
    assert sorted(new) == [-1] * (len(new) - 2) + [0, 1]


def test_nothing_is_kept(tape: Tape) -> None:
    assert len(prune(tape, [])) == 0
    _noise(_input(tape, A))
    assert set(prune(tape, [])) == {-1}
    assert tape.count == tape.top == 0
    assert (tape.constants, tape.weak, tape.inputs, tape.saved) == ({}, {}, set(), {})
    a = _input(tape, B)
    np.testing.assert_allclose(_gradients(tape, [a], np.sum(np.sin(a) * 2.0))[0], 2.0 * np.cos(B))


def test_a_cut_entry_lets_go_of_its_call(tape: Tape) -> None:
    a = _input(tape, A)
    y = _scaled(a)
    call = weakref.ref(tape.keep[-1])
    z = y * 2.0
    cut = np.zeros(tape.count, np.bool_)
    cut[y._slot] = True
    prune(tape, [y, z], cut)
    assert tape.saved == {}
    assert call() is None
    np.testing.assert_array_equal(_gradients(tape, [y], np.sum(z))[0], np.full((3, 4), 2.0))


@pytest.mark.parametrize("shape", [(3, 4), (300, 400)])
def test_a_cut_view_keeps_its_memory(shape: tuple[int, int], tape: Tape) -> None:
    a = _input(tape, np.arange(float(np.prod(shape))).reshape(shape))
    view = (a * 2.0).T[1:, ::-1]
    cut = np.zeros(tape.count, np.bool_)
    cut[view._slot] = True
    expected = view.numpy().copy()
    prune(tape, [view], cut)
    assert tape.count == 1
    for _ in range(3):
        np.full(shape, 9.0) * (_input(tape, np.ones(shape)) * 7.0)
        prune(tape, [view])
    np.testing.assert_array_equal(view.numpy(), expected)
    np.testing.assert_array_equal(_gradients(tape, [view], np.sum(view * view))[0], 2.0 * expected)


def test_constants_and_plain_arrays_are_found_again(tape: Tape) -> None:
    large = np.ones(100_000)
    _noise(_input(tape, A))
    a = _input(tape, 2.0)
    kept = np.sum(a * large) + 5.0
    np.sum(a * 7.0)
    prune(tape, [a, kept])
    assert set(tape.constants) == {5.0}
    count = tape.count
    again = np.sum(a * large) + 5.0
    assert tape.count == count + 3
    assert not large.flags.writeable
    other = a * 7.0
    assert _gradients(tape, [a], again + kept + other) == [200_007.0]
    prune(tape, [a])
    assert large.flags.writeable


def test_what_is_kept_is_listed_as_before(tape: Tape) -> None:
    def listed() -> list[Any]:
        entries = [read_entry(tape, slot, set()) for slot in range(tape.count)]
        return [(e.op, e.shape, str(e.dtype), e.note, np.asarray(e.value).tolist()) for e in entries]

    a, b = _input(tape, A), _input(tape, B)
    y = np.sum(_filled(a, b)) + np.sum(np.concatenate([a.T[1:], a.T]) @ b[:3])
    before = listed()
    _noise(a)
    new = prune(tape, [a, b, y])
    assert listed() == [line for line, to in zip(before, new, strict=False) if to >= 0]


def test_buffers_of_ever_other_sizes_are_not_all_kept(tape: Tape, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "RETAINED", 1 << 20)
    a = _input(tape, 2.0)
    for k in range(40):
        for _ in range(3):
            np.full(20_000 + 8 * k, 3.0) * a
        prune(tape, [a])
        assert tape.released == tape.keep == []
        assert tape.workspace.large_bytes == sum(len(b) for bs in tape.workspace.large.values() for b, _ in bs)
        assert tape.workspace.large_bytes <= 1 << 20


def test_growth_is_bounded(tape: Tape) -> None:
    a = y = _input(tape, B)
    s = np.sum(a)
    room = max(len(tape.workspace.entries), 1 << 14)
    for _ in range(20):
        for _ in range(100 if CHECKED else 5000):
            y = np.sin(y) * 0.5
            s = s * 0.5
        y = y * 1.0
        prune(tape, [a])
        assert tape.count == 1
        assert tape.taken <= 3
        y, s = a, np.sum(a)
    assert len(tape.workspace.entries) <= room


def test_the_workspace_serves_the_next_tape() -> None:
    tape = Tape()
    with recording_to(tape):
        a = _input(tape, np.ones(50_000))
        for _ in range(3):
            kept = np.sin(a * 2.0)
            np.sum(kept[::2] * kept[1::2])
            prune(tape, [a, kept])
    tape.close()
    for x in (A, np.linspace(0.0, 1.0, 50_000)):
        np.testing.assert_allclose(grad(lambda t: np.sum(np.sin(t * 2.0)))(x), 2.0 * np.cos(x * 2.0))


def _written(p: Any, q: Any) -> Any:
    p = p * 1.0
    p[1] = q[2]
    p[2:] = q[:2]
    return p


KINDS: list[Callable[[Any, Any], Any]] = [
    lambda p, q: np.tanh(p + q),
    lambda p, q: p[::-1] * q,
    lambda p, _: np.tanh(np.sum(p)) * p,
    lambda p, _: p[[0, 0, 1, 3]],
    lambda p, q: np.concatenate([p[1:3], q[2:]]),
    lambda p, q: np.reshape(np.reshape(p, (2, 2)).T @ np.reshape(np.tanh(q), (2, 2)), 4),
    lambda p, q: np.where(p > q, p, 0.5 * q),
    lambda p, _: np.sort(p),
    lambda p, q: p.astype(np.float32).astype(float) - np.max(q),
    lambda p, q: np.stack([p[0] * q[1], p[2], q[3] / 2.0, p[1] - 1.0]),
    _written,
]


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed: int, tape: Tape) -> None:
    rng = np.random.default_rng(seed)
    x = _input(tape, rng.normal(size=4))
    live: list[tuple[Tensor, Any]] = [(x, x.numpy())]
    for step in range(40 if CHECKED else 200):
        t, value = live[rng.integers(len(live))]
        u, other = live[rng.integers(len(live))]
        made = KINDS[rng.integers(len(KINDS))]
        live.append((made(t, u), made(value, other)))
        while len(live) > 6:
            live.pop(rng.integers(1, len(live)))
        if step % 7 == 0:
            expected = [_gradients(tape, [x], t)[0] for t, _ in live[1:]]
            prune(tape, [t for t, _ in live])
            for (t, value), want in zip(live[1:], expected, strict=True):
                np.testing.assert_allclose(t.numpy(), value)
                np.testing.assert_array_equal(_gradients(tape, [x], t)[0], want)
