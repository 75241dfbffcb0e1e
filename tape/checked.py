"""Raw memory with every access checked: what stands in for compiled code when numba is told not to compile.

With the environment variable NUMBA_DISABLE_JIT=1 the sweep and the kernels run as plain Python. They still work on
addresses, but each range of memory that they open must lie inside one block that was registered for a sweep, and an
index into it must not be negative. So a wrong address or offset raises an IndexError instead of touching other memory.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

REPLACEMENTS = (
    "float64s", "float32s", "int64s", "int32s", "bytes_of", "note", "call_number_kernel", "call_array_kernel",
    "call_ufunc_loop", "call_pullback", "call_second_kernel", "call_second_number",
)  # fmt: skip
"""The functions here that take the place of those of the same name in `tape.compiled`."""

Block = tuple[int, int, str]
"""Where a block begins and ends, and what it is."""


class Memory:
    """Elements at an address, as Python numbers."""

    __slots__ = ("_elements",)

    def __init__(self, address: int, count: int, format: Any) -> None:
        size = max(count, 0) * _sizes[format]
        raw = (ctypes.c_char * size).from_address(address) if size else b""
        self._elements = memoryview(raw).cast("B").cast(format)

    def __getitem__(self, index: int) -> Any:
        if index < 0:
            raise IndexError(f"index {index} lies before the memory")
        return self._elements[index]

    def __setitem__(self, index: int, value: Any) -> None:
        if index < 0:
            raise IndexError(f"index {index} lies before the memory")
        self._elements[index] = value


_sizes = {"d": 8, "f": 4, "q": 8, "i": 4, "b": 1}


class Blocks:
    """The memory that one sweep may touch.

    Parameters
    ----------
    fixed : iterable of Block
        Blocks that stay as they are during the sweep; they may overlap.
    numbers : iterable of (block, stride, offset)
        Blocks in which a number of 8 bytes stands at each stride: opened as a whole from the start, or one number.
    room : callable
        Gives where the memory begins and ends in which the sweep itself makes blocks: adjoints of arrays.
    """

    def __init__(
        self,
        fixed: Iterable[Block],
        numbers: Iterable[tuple[Block, int, int]] = (),
        room: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ) -> None:
        self.room = room
        self.numbers = list(numbers)
        self.fixed = sorted(fixed)
        self.starts = [start for start, _, _ in self.fixed]
        # The furthest end of the blocks that begin at or before each one.
        self.reach = np.maximum.accumulate([end for _, end, _ in self.fixed]).tolist() if self.fixed else []
        self.moving: list[Block] = []
        self.opened: dict[tuple[int, int, str], Memory] = {}

    def note(self, address: int, nbytes: int) -> None:
        """Register a block that takes the place of those that it overlaps."""
        low, high = self.room()
        if not low <= address <= address + nbytes <= high:
            raise IndexError(
                f"{nbytes} bytes at address {address:#x} were handed out as an adjoint, but adjoints have the memory "
                f"from {low:#x} to {high:#x}"
            )
        first = bisect_left(self.moving, (address,))
        if first and self.moving[first - 1][1] > address:
            first -= 1
        last = bisect_left(self.moving, (address + max(nbytes, 1),))
        self.moving[first:last] = [(address, address + nbytes, "an adjoint")]

    def open(self, address: int, count: int, format: str) -> Memory | None:
        """Give a range as elements, or None if it lies outside every block."""
        key = address, count, format
        found = self.opened.get(key)
        if found is not None:
            return found
        end = address + count * _sizes[format]
        for (start, stop, _), stride, offset in self.numbers:
            if start <= address < stop:
                one = (address - start) % stride == offset and end - address <= 8
                return Memory(*key) if one or (address == start and end <= stop) else None
        at = bisect_right(self.starts, address) - 1
        if at >= 0 and end <= self.reach[at]:
            found = self.opened[key] = Memory(*key)
            return found
        at = bisect_right(self.moving, address, key=lambda block: block[0]) - 1
        return Memory(*key) if at >= 0 and end <= self.moving[at][1] else None


_sweeps: dict[int, tuple[Any, Blocks]] = {}
"""For each machine whose sweep may run: its tape and its memory."""


def watch(machine: int, tape: Any, blocks: Blocks, *, again: bool = False) -> None:
    """Let the sweeps of a machine touch these blocks, until its tape is finished; `again` if one is under way."""
    if again:
        blocks.moving = _sweeps[machine][1].moving
    _sweeps[machine] = tape, blocks


def forget(tape: Any) -> None:
    """Let go of the memory of a tape."""
    for machine in [m for m, (owner, _) in list(_sweeps.items()) if owner is tape]:
        del _sweeps[machine]


def note(m: int, address: int, nbytes: int) -> None:
    """Say that the machine's memory from `address` on is one block of `nbytes`."""
    _sweeps[m][1].note(int(address), int(nbytes))


def _open(address: int, count: int, format: str) -> Memory:
    # Numbers may come out of an array.
    address, count = int(address), int(count)
    if count <= 0:
        return Memory(address, 0, format)
    sweeps = list(_sweeps.values())
    for _, blocks in reversed(sweeps):
        found = blocks.open(address, count, format)
        if found is not None:
            return found
    nbytes = count * _sizes[format]
    message = f"{nbytes} bytes at address {address:#x} are no part of one block of memory of the tape"
    known = [b for _, blocks in sweeps for b in (*(n[0] for n in blocks.numbers), *blocks.fixed, *blocks.moving)]
    if known:
        start, end, name = min(known, key=lambda b: max(b[0] - address, address - b[1], 0) or -b[0] / address)
        message += (
            f"; the nearest block is {name}, {end - start} bytes at {start:#x}, "
            f"of which they would be the bytes {address - start} to {address - start + nbytes - 1}"
        )
    raise IndexError(message)


def float64s(address: int, count: int) -> Any:
    """See memory as an array of float64."""
    return _open(address, count, "d")


def float32s(address: int, count: int) -> Any:
    """See memory as an array of float32."""
    return _open(address, count, "f")


def int64s(address: int, count: int) -> Any:
    """See memory as an array of int64."""
    return _open(address, count, "q")


def int32s(address: int, count: int) -> Any:
    """See memory as an array of int32."""
    return _open(address, count, "i")


def bytes_of(address: int, count: int) -> Any:
    """See memory as an array of bytes."""
    return _open(address, count, "b")


# ---------------------------------------------------------------- kernels
_kernels: list[Callable[..., Any]] = []


def kernel(function: Callable[..., Any]) -> int:
    """Give the number by which a kernel is called, which stands for its address."""
    _kernels.append(function)
    return len(_kernels)


def rule(partial: Callable[..., Any], dtype: Any) -> Callable[..., Any]:
    """Make of a partial derivative what kernels call: NumPy on numbers of one dtype."""
    return lambda *numbers: partial(*map(dtype, numbers))


def special() -> Any:
    """Give SciPy's special functions, which only some partial derivatives need and which take long to import."""
    import scipy.special

    return scipy.special


def call_number_kernel(token: int, x: float, y: float, out: float) -> float:
    """Call a partial derivative on numbers."""
    with np.errstate(all="ignore"):
        return float(_kernels[token - 1](x, y, out))


def call_array_kernel(token: int, *integers: int) -> None:
    """Call an array kernel."""
    with np.errstate(all="ignore"):
        _kernels[token - 1](*integers)


def call_second_number(token: int, *numbers: float) -> float:
    """Call a second-order rule on numbers."""
    with np.errstate(all="ignore"):
        return float(_kernels[token - 1](*numbers))


call_second_kernel = call_array_kernel


def call_pullback(token: int, *integers: int) -> int:
    """Call a pullback."""
    return int(_kernels[token - 1](*integers))


def call_ufunc_loop(loop: int, arguments: int, lengths: int, steps: int, data: int) -> None:
    """Call NumPy's loop for one matrix product, if its three matrices lie in the memory of the tape."""
    a, b, out = (int64s(arguments, 3)[k] for k in range(3))
    count, m, k, n = (int64s(lengths, 4)[i] for i in range(4))
    strides = [int64s(steps, 9)[i] for i in range(3, 9)]
    width = strides[5]
    if count != 1:
        raise IndexError(f"{count} products where the frame is for one")
    for address, rows, columns, by_row, by_column in (
        (a, m, k, *strides[:2]), (b, k, n, *strides[2:4]), (out, m, n, *strides[4:]),
    ):  # fmt: skip
        low, high = extent(address, (rows, columns), (by_row, by_column), width)
        bytes_of(low, high - low)
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(loop)(arguments, lengths, steps, data)


def extent(address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """Give the addresses between which the elements of an array lie; equal ones if it has none."""
    if 0 in shape:
        return address, address
    steps = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return address + sum(min(s, 0) for s in steps), address + sum(max(s, 0) for s in steps) + itemsize
