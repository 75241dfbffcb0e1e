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
from collections.abc import Iterator
from typing import Any

import numpy as np

from tape import checked
from tape.constants import unlock
from tape.errors import StaleTensorError
from tape.layout import FLOAT, Layout
from tape.workspace import CHUNK, ENTRY, REMEMBERED, SCALARS, SMALL, Workspace, aligned, nothing

pack_number = struct.Struct("=iiiid").pack_into
pack_array = struct.Struct("=iiiiq").pack_into
unpack_address = struct.Struct("=q").unpack_from
unpack_number = struct.Struct("=d").unpack_from
PackError = struct.error

PAUSED, CROWDED, WATCHED = 1, 2, 4
"""Why a tape is held: under `no_grad`, because it should be pruned first, by `detect_anomaly`."""
HELD = -1
"""The owner of a tape that is held: every operation then goes the long way round, which asks why."""
BUDGET = 1 << 26
"""Bytes that a tape may take before it is looked for what no handle needs any more."""


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
