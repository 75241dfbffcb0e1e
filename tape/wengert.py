"""The tape: a flat list of entries over integer slots, and the memory behind it.

An entry is 24 bytes: instruction, three operands, value. Its index is its slot, so a slot is written once. An
*instruction* is an op applied to layouts with parameters, made once and shared by all entries that do the same; those
below `SCALARS` are the opcodes themselves, applied to float64 numbers. The value of a number is its 8 bytes, that of
an array the address of its first element.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
import threading
from _thread import get_ident
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tape import checked
from tape.constants import unlock
from tape.errors import StaleTensorError
from tape.layout import FLOAT, Layout

SCALARS = 1024
"""Instructions below this are opcodes on float64 numbers."""

ENTRY = 24
KIND, ARITY, BYTES, CLASS, PLAN, OPCODE, CELL, READY, KERNEL, DTYPE, EXTENT = 0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12
SECOND, SECOND_STATE = 13, 16
COLUMNS = 17
"""Columns of the table of instructions; KERNEL is the first of three addresses, one for each operand; so is SECOND.

EXTENT is what the elements of the value take, BYTES the memory given to them.
"""

pack_number = struct.Struct("=iiiid").pack_into
pack_array = struct.Struct("=iiiiq").pack_into
unpack_address = struct.Struct("=q").unpack_from
unpack_number = struct.Struct("=d").unpack_from
PackError = struct.error

CHUNK = 1 << 20
SMALL = 1 << 16
"""Values up to this many bytes are carved from chunks; larger ones have a buffer each."""
REMEMBERED = 2
"""The first chunks, whose views are kept from tape to tape: a function that is called again finds them made."""
RETAINED = 1 << 29
"""Bytes of large buffers that a thread keeps for the next tape."""

PAUSED, CROWDED, WATCHED = 1, 2, 4
"""Why a tape is held: under `no_grad`, because it should be pruned first, by `detect_anomaly`."""
HELD = -1
"""The owner of a tape that is held: every operation then goes the long way round, which asks why."""
BUDGET = 1 << 26
"""Bytes that a tape may take before it is looked for what no handle needs any more."""

nothing = np.empty(0, np.uint8)


def aligned(nbytes: int) -> tuple[np.ndarray[Any, Any], int]:
    """Allocate `nbytes` of memory at a 64-byte boundary; give the array of bytes and its address."""
    block = np.empty(nbytes + 64, np.uint8)
    address = block.ctypes.data
    offset = -address % 64
    return block[offset : offset + nbytes], address + offset


def _written(array: np.ndarray[Any, Any], start: int, numbers: Any) -> np.ndarray[Any, Any]:
    """Write numbers into an array from `start` on; give it, or a larger copy if there was no room."""
    end = start + len(numbers)
    if end > len(array):
        grown = np.zeros(max(end, 2 * len(array)), np.int64)
        grown[:start] = array[:start]
        array = grown
    array[start:end] = numbers
    return array


class Workspace:
    """Memory and interned instructions that outlive a tape: a thread hands them from one tape to the next."""

    def __init__(self) -> None:
        self.entries = np.empty((4096, 6), np.int32)
        self.chunks: list[tuple[np.ndarray[Any, Any], int]] = []
        self.views: list[dict[int, tuple[Layout, np.ndarray[Any, Any]]]] = []
        self.known: tuple[Any, ...] = (None,) * 5
        self.large: dict[int, list[tuple[np.ndarray[Any, Any], int]]] = {}
        self.large_bytes = 0
        self.operands = np.zeros(256, np.int64)
        self.operands_used = 0
        self.reset_instructions()

    def reset_instructions(self) -> None:
        """Forget every interned instruction."""
        self.instructions: dict[Any, Any] = {}
        self.details: list[Any] = []
        self.table = np.zeros((64, COLUMNS), np.int64)
        self.pool = np.zeros(1024, np.int64)
        self.pool_used = 0
        self.classes: dict[int, int] = {}

    def add_instruction(self, detail: Any, columns: dict[int, int], plan: Iterable[int]) -> int:
        """Add a row to the table of instructions and give the instruction's number."""
        row = len(self.details)
        if row == len(self.table):
            self.table = np.concatenate([self.table, np.zeros_like(self.table)])
        for column, value in columns.items():
            self.table[row, column] = value
        nbytes = columns.get(BYTES, 0)
        self.table[row, CLASS] = self.classes.setdefault(nbytes, len(self.classes))
        self.table[row, PLAN] = self.add_to_pool(plan)
        self.details.append(detail)
        return row + SCALARS

    def add_to_pool(self, numbers: Iterable[int]) -> int:
        """Append numbers to the pool of parameters and give the position of the first."""
        values = np.fromiter(numbers, np.int64)
        start = self.pool_used
        self.pool_used = start + len(values)
        self.pool = _written(self.pool, start, values)
        return start

    def addresses(self) -> tuple[int, int, int, int]:
        """Give the addresses of entries, table, pool and operands; NumPy takes a microsecond to tell each."""
        known = self.known
        if (
            known[0] is not self.entries
            or known[1] is not self.table
            or known[2] is not self.pool
            or known[3] is not self.operands
        ):
            arrays = self.entries, self.table, self.pool, self.operands
            self.known = known = (*arrays, tuple(a.ctypes.data for a in arrays))
        found: tuple[int, int, int, int] = known[4]
        return found

    def add_operands(self, numbers: list[int]) -> int:
        """Append the operands of an entry that has more than three; give the position of the first."""
        start = self.operands_used
        self.operands_used = start + len(numbers)
        self.operands = _written(self.operands, start, numbers)
        return start

    def trim(self) -> None:
        """Give back what an unusually large tape needed."""
        self.operands_used = 0
        if self.operands.nbytes > RETAINED // 4:
            self.operands = np.zeros(256, np.int64)
        if self.large_bytes > RETAINED:
            self.large.clear()
            self.large_bytes = 0
        del self.chunks[64:]
        del self.views[64:]
        if self.entries.nbytes > RETAINED // 4:
            self.entries = np.empty((4096, 6), np.int32)
        if len(self.details) > 20_000 or self.pool_used > 1_000_000 or len(self.instructions) > 50_000:
            self.reset_instructions()


class _Idle(threading.local):
    def __init__(self) -> None:
        self.workspaces: list[Workspace] = []


_idle = _Idle()


_serials = itertools.count(1)


class Tape:
    """A Wengert list under construction.

    Attributes
    ----------
    owner : int
        The thread that may append; 0 once the tape is finished, `HELD` while it is held.
    thread : int
        The thread that the tape belongs to.
    held : int
        Why the tape is held, a bit for each reason.
    serial : int
        A number that no other tape has.
    persistent : bool
        Whether the tape lives as long as the handles of its slots, instead of one call.
    unknown : bool
        Whether there may be handles that nobody knows of, so that no memory may be used again.
    old : list
        Weak references to handles that were found among old objects.
    pinned : int
        How many are under way that refer to slots, which must keep their numbers.
    count : int
        The number of entries.
    constants : dict
        The slot of each Python float that was met as a constant.
    inputs : set
        The slots of the arguments that are differentiated, of this or an inner derivative.
    copies : bool
        Whether large plain arrays are copied too, because the tape outlives the call that it records.
    plain : dict
        For each large plain array that is used as it is (by its `id`) the slot, value and layout of its leaf.
    taken, unused
        How many chunks of the workspace the tape has had, and which of them hold nothing any more.
    saved : dict
        For each host entry (one that the sweep leaves to Python) the values its pullbacks need.
    leaves : dict
        For each leaf that a user holds its tensor.
    cleared : set
        The leaves that stand for what an earlier backward pass has cleared.
    hooks : dict
        For each slot what is called with its gradient.
    gradients : dict
        The gradients that the last backward pass found for slots with a handle, if the tape was retained.
    lines : dict
        For each slot the line of source that made it, if anomalies are being watched for.
    """

    __slots__ = (
        "__weakref__",
        "base",
        "budget",
        "buffer",
        "bytes",
        "chunk",
        "chunk_index",
        "cleared",
        "constants",
        "copies",
        "count",
        "gradients",
        "held",
        "hooks",
        "inputs",
        "instructions",
        "keep",
        "leaves",
        "limit",
        "lines",
        "locked",
        "old",
        "owner",
        "persistent",
        "pinned",
        "plain",
        "released",
        "samples",
        "saved",
        "serial",
        "taken",
        "thread",
        "top",
        "unknown",
        "unused",
        "views",
        "weak",
        "workspace",
    )

    def __init__(self) -> None:
        self.workspace = _idle.workspaces.pop() if _idle.workspaces else Workspace()
        self.owner = self.thread = get_ident()
        self.held = 0
        self.serial = next(_serials)
        self.persistent = self.unknown = False
        self.old: list[Any] = []
        self.bytes, self.budget, self.pinned = 0, BUDGET, 0
        entries: Any = self.workspace.entries
        self.buffer = memoryview(entries).cast("B")
        self.count = 0
        self.copies = False
        self.inputs: set[int] = set()
        self.constants: dict[float, int] = {}
        self.weak: dict[float, tuple[np.ndarray[Any, Any], int]] = {}
        self.instructions = self.workspace.instructions
        self.saved: dict[int, tuple[Any, ...]] = {}
        self.leaves: dict[int, Any] = {}
        self.cleared: set[int] = set()
        self.hooks: dict[int, dict[int, Any]] = {}
        self.gradients: dict[int, Any] = {}
        self.lines: dict[int, str] = {}
        self.keep: list[Any] = []
        self.released: list[tuple[np.ndarray[Any, Any], int]] = []
        self.locked: dict[int, Any] = {}
        self.plain: dict[int, Any] = {}
        self.samples: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        self.chunk = nothing
        self.views: dict[int, tuple[Layout, np.ndarray[Any, Any]]] = {}
        self.chunk_index = -1
        self.taken = 0
        self.unused: list[int] = []
        self.base = self.top = self.limit = 0

    # ------------------------------------------------------------ entries
    def grow(self) -> None:
        """Double the room for entries."""
        entries = self.workspace.entries
        if self.count < len(entries):
            raise AssertionError("an entry did not fit its format")
        self.spend(entries.nbytes)
        grown: Any = np.empty((2 * len(entries), 6), np.int32)
        grown[: self.count] = entries[: self.count]
        self.workspace.entries = grown
        self.buffer = memoryview(grown).cast("B")

    def append_number(self, instruction: int, a: int, b: int, value: float, c: int = 0) -> int:
        """Append an entry whose value is a float64 number; give its slot."""
        slot = self.count
        try:
            pack_number(self.buffer, slot * ENTRY, instruction, a, b, c, value)
        except PackError:
            self.grow()
            pack_number(self.buffer, slot * ENTRY, instruction, a, b, c, value)
        self.count = slot + 1
        return slot

    def append_element(self, instruction: int, a: int, offset: int, value: float) -> int:
        """Append an entry that reads a number at an offset of an array; give its slot."""
        slot = self.count
        try:
            pack_number(self.buffer, slot * ENTRY, instruction, a, a, offset, value)
        except PackError:
            self.grow()
            pack_number(self.buffer, slot * ENTRY, instruction, a, a, offset, value)
        self.count = slot + 1
        return slot

    def append_array(self, instruction: int, a: int, b: int, c: int, address: int) -> int:
        """Append an entry whose value is an array at `address`; give its slot."""
        slot = self.count
        try:
            pack_array(self.buffer, slot * ENTRY, instruction, a, b, c, address)
        except PackError:
            self.grow()
            pack_array(self.buffer, slot * ENTRY, instruction, a, b, c, address)
        self.count = slot + 1
        return slot

    def layout(self, slot: int) -> Layout:
        """Give the layout of a slot."""
        row = int(self.workspace.entries[slot, 0])
        found: Layout = FLOAT if row < SCALARS else self.workspace.details[row - SCALARS][2]
        return found

    # ------------------------------------------------------------ values
    def address(self, slot: int) -> int:
        """Give the address of the value of an array slot."""
        return unpack_address(self.buffer, slot * ENTRY + 16)[0]

    def allocate(self, layout: Layout) -> tuple[np.ndarray[Any, Any], int]:
        """Give memory for a value, which has no gaps in it: an array and its address."""
        nbytes = layout.nbytes
        if nbytes <= SMALL:
            top = self.top
            if top + nbytes > self.limit:
                self._next_chunk()
                top = 0
            self.top = top + nbytes
            view = np.ndarray(layout.shape, layout.dtype, self.chunk, top, layout.strides)
            if self.chunk_index < REMEMBERED:
                self.views[top] = layout, view
            return view, self.base + top
        pool = self.workspace.large.get(nbytes)
        if pool:
            block = pool.pop()
            self.workspace.large_bytes -= nbytes
        else:
            block = aligned(nbytes)
        self.released.append(block)
        self.spend(nbytes)
        return np.ndarray(layout.shape, layout.dtype, block[0], 0, layout.strides), block[1]

    def _next_chunk(self) -> None:
        space = self.workspace
        if self.unused:
            self.chunk_index = self.unused.pop(0)
        else:
            self.chunk_index = self.taken
            self.taken += 1
        if self.chunk_index == len(space.chunks):
            space.chunks.append(aligned(CHUNK))
            space.views.append({})
        self.chunk, self.base = space.chunks[self.chunk_index]
        self.views = space.views[self.chunk_index]
        self.top, self.limit = 0, CHUNK
        self.spend(CHUNK)

    def spend(self, nbytes: int) -> None:
        """Note that entries or values take so much more memory."""
        self.bytes += nbytes
        if self.bytes > self.budget and self.persistent and not self.pinned:
            self.hold(CROWDED)

    # ------------------------------------------------------------ life
    def hold(self, reason: int) -> None:
        """Send every operation on the tape the long way round, until `free` with the same reason."""
        self.held |= reason
        if self.owner and self.held:
            self.owner = HELD

    def free(self, reason: int) -> None:
        """Undo `hold`."""
        self.held &= ~reason
        if self.owner and not self.held:
            self.owner = self.thread

    @contextlib.contextmanager
    def unpruned(self) -> Iterator[None]:
        """Let slots keep their numbers meanwhile."""
        self.pinned += 1
        try:
            yield
        finally:
            self.pinned -= 1
            self.spend(0)

    def readable(self) -> None:
        """Raise unless values of the tape may be read in this thread."""
        if (self.owner != HELD and not self.unknown) or self.thread != get_ident():
            self.refuse()

    def refuse(self) -> None:
        """Raise the error for a value whose tape is finished or belongs to another thread."""
        if self.owner == 0:
            raise StaleTensorError(
                "this Tensor outlived its tape: the function that was being differentiated has returned. "
                "Return values from it (has_aux=True hands extra ones out), or take `t.numpy()` inside it"
            )
        raise StaleTensorError(
            "this Tensor is being recorded by another thread. A tape belongs to one thread: call `grad(f)` in each "
            "thread, or pass plain arrays (`t.numpy()`) between threads"
        )

    def seal(self) -> None:
        """End recording: later use of the tape's Tensors raises, while sweeps over it still run."""
        unlock(self.locked)
        self.owner = 0

    def __del__(self) -> None:
        if self.workspace is not _closed:
            self.close()

    def close(self) -> None:
        """Finish the tape: its memory goes back to the thread."""
        if self.workspace is _closed:
            return
        self.seal()
        checked.forget(self)
        space = self.workspace
        # The last are taken first: so the next tape begins where the sweep of this one ended, in warm memory.
        for block in reversed(self.released):
            space.large.setdefault(len(block[0]), []).append(block)
            space.large_bytes += len(block[0])
        self.released, self.keep, self.samples, self.plain = [], [], [], {}
        self.saved, self.hooks, self.gradients, self.lines = {}, {}, {}, {}
        for leaf in self.leaves.values():
            leaf._state.attached.pop(self.serial, None)
        self.leaves, self.cleared = {}, set()
        self.buffer = memoryview(b"")
        self.chunk = nothing
        self.workspace = _closed
        if not self.unknown:
            space.trim()
            _idle.workspaces.append(space)


_closed: Any = None
"""What stands for the workspace of a closed tape."""
