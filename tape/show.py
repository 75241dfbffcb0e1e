"""A tape as people read it: a Wengert list, one line for each entry."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np

from ops.catalog import LEAF, OPS, Elementwise
from tape.arguments import Argnums
from tape.instruction import FILL, JOIN
from tape.layout import FLOAT
from tape.reading import title
from tape.tensor import Tensor
from tape.trace import Trace
from tape.transforms import Transform
from tape.wengert import Tape
from tape.workspace import ARITY, KIND, SCALARS

_LONG = 40
"""Parameters that take more characters than this are cut."""
_MANY = 4
"""An entry that has more operands than this shows only the first ones."""


class Entry(NamedTuple):
    """One entry of a tape.

    Attributes
    ----------
    slot : int
        Where its value stands: its place in the list.
    op : str
    operands : tuple of int
        The slots that it read.
    shape : tuple of int
    dtype : numpy.dtype
    value : float or None
        The value of a float64 number, None for an array.
    note : str
        What else the op was told: its parameters, or where in an array it read or wrote.
    """

    slot: int
    op: str
    operands: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    value: float | None
    note: str


class Listing:
    """Entries of a tape, printed as a table.

    Attributes
    ----------
    entries : list of Entry
        Those that are shown.
    total : int
        The number of entries on the tape.
    """

    def __init__(self, entries: list[Entry], total: int) -> None:
        self.entries, self.total = entries, total

    def __str__(self) -> str:
        rows = [("slot", "op", "operands", "shape", "dtype", "value", "")]
        rows += [_row(e) for e in self.entries]
        # The gap counts in no column's width.
        widths = [max(len(row[k]) for row in rows) for k in range(6)]
        lines = []
        last = -1
        for number, row in enumerate(rows):
            if number:
                slot = self.entries[number - 1].slot
                if slot != last + 1 and number > 1:
                    lines.append(f"{'⋮':>{widths[0]}}  ({slot - last - 1} more)")
                last = slot
            cells = [row[0].rjust(widths[0]), *(row[k].ljust(widths[k]) for k in range(1, 6)), row[6]]
            lines.append("  ".join(cells).rstrip())
        if self.entries and last + 1 < self.total:
            lines.append(f"{'⋮':>{widths[0]}}  ({self.total - last - 1} more)")
        return "\n".join(lines)

    __repr__ = __str__


def _row(e: Entry) -> tuple[str, str, str, str, str, str, str]:
    operands = " ".join(map(str, e.operands[:_MANY])) + (" …" if len(e.operands) > _MANY else "")
    value = "" if e.value is None else f"{e.value:.6g}"
    return str(e.slot), e.op, operands, str(e.shape), str(e.dtype), value, e.note


def _brief(parameters: Any) -> str:
    if not parameters:
        return ""
    text = ", ".join(
        f"[{', '.join(map(_index, value))}]" if name == "spec" else f"{name}={value!r}"
        for name, value in parameters.items()
        if value is not None and value is not False
    )
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"


def _index(item: Any) -> str:
    """Write one item of an index as Python does."""
    if item is Ellipsis:
        return "..."
    if not isinstance(item, tuple):
        return str(item)
    start, stop, step = ("" if part is None else str(part) for part in item[1:])
    return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"


def read_entry(tape: Tape, slot: int, inputs: Collection[int] = ()) -> Entry:
    """Read one entry of a tape; leaves whose slot is among `inputs` are told from constants."""
    space = tape.workspace
    row, a, b, c = space.entries[slot, :4].tolist()
    number = float(space.entries[slot, 4:6].view(np.float64)[0])
    if row < SCALARS:
        op = OPS[row]
        arity = op.nin if isinstance(op, Elementwise) else 0
        layout, parameters, kind = FLOAT, None, -1
    else:
        op, _, layout, parameters = space.details[row - SCALARS]
        arity, kind = (int(space.table[row - SCALARS, column]) for column in (ARITY, KIND))
    name, note = title(op, parameters), _brief(parameters) if op.name != "call" else ""
    if op is LEAF:
        name = "input" if slot in inputs else "constant" if inputs else "leaf"
    if arity >= 0:
        operands = [a, b, c][:arity]
        if arity == 1 and name == "index":
            # Views that differ in where they begin share one instruction.
            note = f"at {max(c, 0)}"
    else:
        count = int(space.operands[a])
        if kind == FILL:
            # Base, 0, then a slot and where it went, for each element or block that was written.
            pairs = space.operands[a + 1 : a + 1 + 2 * count].reshape(count, 2)
            operands = pairs[:, 0].tolist()
            note = "at " + " ".join(map(str, pairs[1:_MANY, 1].tolist())) + (" …" if count > _MANY else "")
        else:
            step = 3 if kind == JOIN else 1  # beside its slot, where a joined piece goes and how wide it is
            operands = space.operands[a + 1 : a + 1 + step * count : step].tolist()
    return Entry(slot, name, tuple(operands), layout.shape, layout.dtype, number if layout.cell else None, note)


def listing(tape: Tape, first: int = 0, last: int | None = None, *, inputs: Collection[int] = ()) -> Listing:
    """List the entries of a live tape from slot `first` up to, but not including, slot `last`."""
    last = tape.count if last is None else min(last, tape.count)
    return Listing([read_entry(tape, slot, inputs) for slot in range(first, last)], tape.count)


def show(
    function: Callable[..., Any] | Tensor,
    *args: Any,
    argnums: Argnums = 0,
    head: int = 16,
    tail: int = 4,
    **kwargs: Any,
) -> Listing:
    """Record a call as `grad` would and give its tape as a readable Wengert list.

    Parameters
    ----------
    function : callable or Tensor
        What to record; ``grad(f)`` and its kin count as `f`. Inside a function that is being differentiated, any
        Tensor: then the list holds what has been recorded so far.
    *args, **kwargs
        What to call it with.
    argnums : int, str, or tuple of them
        Which arguments are inputs, as in `grad`.
    head, tail : int
        How many entries to show of the beginning and the end of a long tape.

    Returns
    -------
    Listing
        It prints as a table: for each entry its slot, the op, the slots of its operands, shape and dtype of its value,
        the value of a number, and the op's parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import show
    >>> show(lambda x: x * np.sin(x), 2.0)
    slot  op        operands  shape  dtype    value
       0  input               ()     float64  2
       1  sin       0         ()     float64  0.909297
       2  multiply  0 1       ()     float64  1.81859
    """

    def read(tape: Tape, slots: Collection[int], first: int) -> Listing:
        shown = list(range(first, tape.count))
        if len(shown) > head + tail + 1:
            shown[head : len(shown) - tail] = []
        return Listing([read_entry(tape, slot, slots) for slot in shown], tape.count)

    if isinstance(function, Tensor):
        tape = function._inspected()._tape
        return read(tape, tape.inputs, 0)
    made: Any = function
    if isinstance(made, Transform):
        made, argnums = made.function, made.argnums
    with Trace(made, argnums, args, kwargs) as trace:
        return read(trace.tape, {t._slot for t in trace.inputs}, trace.first)
