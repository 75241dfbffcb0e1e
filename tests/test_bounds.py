"""No access to memory outside what it belongs to: the native code with every access checked.

The sweep works on raw addresses, so a wrong one would not raise but change memory of something else. Run as Python
(NUMBA_DISABLE_JIT=1) it holds each range against the blocks of memory that the tape knows.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tape import checked

ROOT = Path(__file__).parent.parent


def python(*arguments: str, **environment: str) -> str:
    """Run Python in another process, hold that it succeeds and names no index, and give its output."""
    path = os.pathsep.join(filter(None, (str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    # numba prints what is raised inside a kernel, and goes on.
    assert "IndexError" not in done.stderr
    return done.stdout


def same_gradients(cases: list[str], **environment: str) -> None:
    """Hold that the programs of `bounded` have the gradients that compiled code gives them."""
    expected = python("-m", "bounded", *cases).splitlines()
    given = python("-m", "bounded", *cases, **environment).splitlines()
    assert len(given) > 20
    for left, right in zip(given, expected, strict=True):
        values = [np.array(line.split(), float) for line in (left, right)]
        np.testing.assert_allclose(*values, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- the library under the checks
OTHERS = ["einsum", "functional", "inplace", "linalg", "solve", "sort", "special"]


@pytest.mark.parametrize(
    "names", [["catalogue"], pytest.param(OTHERS, marks=pytest.mark.exhaustive)], ids=["catalogue", "others"]
)
def test_ops_with_every_access_checked(names: list[str]) -> None:
    """Every op with every shape and layout that the tests of the catalogue, and those of single ops, have."""
    files = [f"tests/test_{name}.py" for name in names if (ROOT / "tests" / f"test_{name}.py").exists()]
    output = python("-m", "pytest", "-q", "-p", "no:cacheprovider", *files, NUMBA_DISABLE_JIT="1")
    assert " passed" in output


def test_programs_with_every_access_checked() -> None:
    """Compositions that use every kind of native instruction."""
    same_gradients([], NUMBA_DISABLE_JIT="1")


@pytest.mark.parametrize("cases", [["writes"], pytest.param([], marks=pytest.mark.exhaustive)], ids=["few", "all"])
def test_compiled_code_with_indices_checked(cases: list[str], tmp_path: Path) -> None:
    """The same in code that numba compiles with checks of its own: of each index within its range."""
    same_gradients(cases, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))


# ---------------------------------------------------------------- the checks themselves
WRONG = """
import numpy as np
from tape import record
from tape.adjoints import Adjoints
from tape.wengert import Tape, _idle
from tape.workspace import PLAN, SCALARS

def wrong(f, change):
    _idle.workspaces.clear()  # what was made wrong is not used again
    tape = Tape()
    try:
        x = record.leaf_array(tape, np.linspace(0.2, 1.2, 5))
        y = f(x)
        change(tape, tape.workspace)
        sweep = Adjoints(tape, [x], [y])
        sweep.run([1.0])
        return sweep.gradient(x)
    except IndexError as error:
        return "IndexError: " + str(error)
    finally:
        tape.close()

def plan(name, position, amount):
    def change(tape, space):
        (row,) = [r for r, detail in enumerate(space.details) if detail[0].name == name]
        space.pool[space.table[row, PLAN] + position] += amount
    return change

def field(name, position, value):
    def change(tape, space):
        rows = space.entries[: tape.count, 0].tolist()
        (slot,) = [s for s, r in enumerate(rows) if r >= SCALARS and space.details[r - SCALARS][0].name == name]
        space.entries[slot, position] = value
    return change

nothing = lambda tape, space: None
"""
RIGHT = {"element": "lambda x: x[2]", "move": "lambda x: np.sum(x[1:])", "exp": "lambda x: np.sum(np.exp(x))"}
RIGHT["rows"] = "lambda x: np.sum(x[np.array([0, 4])])"
RIGHT["matmul"] = "lambda x: x @ x"
RIGHT["extreme"] = "lambda x: np.max(x)"
MISTAKES = [
    ("element", "field('index', 3, -1)"),
    ("element", "field('index', 3, 5)"),
    ("move", "field('index', 3, 2)"),
    ("move", "field('index', 3, -1)"),
    ("exp", "plan('exp', 1, 1)"),
    ("exp", "plan('sum', 6, 1)"),
    ("exp", "field('exp', 1, 900)"),
    ("rows", "plan('index', 0, -1)"),
    ("rows", "plan('index', 2, 1)"),
    ("matmul", "plan('matmul', 1, 1)"),
    ("matmul", "plan('matmul', 5, 8)"),
    *(("extreme", f"plan('max', {position}, 1)") for position in range(3)),
]


@pytest.mark.parametrize("kind", ["right", "wrong"])
def test_wrong_instructions_are_caught(kind: str) -> None:
    """An offset, length, stride or operand that leads outside raises; the right ones do not."""
    cases = MISTAKES if kind == "wrong" else [(name, "nothing") for name in RIGHT]
    lines = [f"print(wrong({RIGHT[name]}, {change}))" for name, change in cases]
    output = python("-c", "\n".join((WRONG, *lines)), NUMBA_DISABLE_JIT="1").splitlines()
    assert len(output) == len(cases)
    for line, case in zip(output, cases, strict=True):
        assert line.startswith("IndexError" if kind == "wrong" else "["), (case, line)


@pytest.fixture
def block() -> Iterator[tuple[int, checked.Blocks]]:
    """Give an address where 40 bytes are known, followed by 24 that are another block, and the blocks."""
    memory = np.arange(16.0)
    address = memory.ctypes.data + 16
    fixed = [(address, address + 40, "first"), (address + 40, address + 64, "second")]
    blocks = checked.Blocks(fixed, room=lambda: (address + 64, address + 96))
    checked.watch(1, memory, blocks)
    yield address, blocks
    checked.forget(memory)


def test_a_range_lies_within_one_block(block: tuple[int, checked.Blocks]) -> None:
    """Ranges that begin before, end after, or run on into the neighbour are refused."""
    address, _ = block
    assert checked.float64s(address, 5)[4] == 6.0
    assert checked.float64s(address + 40, 3)[0] == 7.0
    for start, count in ((-8, 1), (-8, 2), (0, 6), (32, 2), (40, 4), (64, 1), (1 << 20, 1)):
        with pytest.raises(IndexError, match="nearest block is"):
            checked.float64s(address + start, count)
    with pytest.raises(IndexError, match="the bytes -8 to 7"):
        checked.float64s(address - 8, 2)


def test_an_index_lies_within_its_range(block: tuple[int, checked.Blocks]) -> None:
    """Negative indices do not count from the end; an empty range has no element."""
    view = checked.float64s(block[0], 5)
    for index in (-1, 5):
        with pytest.raises(IndexError):
            view[index]
        with pytest.raises(IndexError):
            view[index] = 1.0
    with pytest.raises(IndexError):
        checked.float64s(block[0], 0)[0]


def test_a_new_block_takes_the_place_of_old_ones(block: tuple[int, checked.Blocks]) -> None:
    """Memory that is handed out again has the size that it was handed out with."""
    at = block[0] + 64
    checked.note(1, at, 8)
    checked.float64s(at, 1)
    checked.note(1, at + 8, 16)
    checked.float64s(at + 8, 2)
    with pytest.raises(IndexError):
        checked.float64s(at, 2)
    checked.note(1, at, 24)
    checked.float64s(at, 3)
    for start, nbytes in ((-8, 8), (24, 16), (40, 8)):
        with pytest.raises(IndexError, match="handed out"):
            checked.note(1, at + start, nbytes)
    checked.note(1, at, 0)
    with pytest.raises(IndexError):
        checked.float32s(at, 1)


def test_blocks_are_forgotten_with_their_tape() -> None:
    """Memory of a finished tape is no longer open."""
    memory = np.zeros(4)
    address = memory.ctypes.data
    checked.watch(2, memory, checked.Blocks([(address, address + 32, "it")]))
    checked.int64s(address, 4)
    checked.forget(memory)
    with pytest.raises(IndexError):
        checked.int64s(address, 4)


def test_extents() -> None:
    """The bytes that an array takes, for any strides."""
    assert checked.extent(100, (), (), 8) == (100, 108)
    assert checked.extent(100, (3, 0), (8, 8), 8) == (100, 100)
    assert checked.extent(100, (3, 2), (-16, 8), 8) == (68, 116)
    assert checked.extent(100, (3,), (0,), 4) == (100, 104)
