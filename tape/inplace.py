"""Reading and writing elements: `x[i]`, `x[i] = v`, `x += v`, and views that stay in step with what they view.

A slot is written once. A write appends an entry whose value is the changed array and moves the handle to it, so what
used the old value keeps it. Views of the handle, and the handle that it is a view of, follow.

Writes to single elements or rows are gathered: the handle becomes a `Filling`, and the writes become one entry when
somebody reads it as a whole. So filling an array element by element takes linear time.
"""

from __future__ import annotations

import operator
from _thread import get_ident
from collections.abc import Callable
from typing import Any

import numpy as np

from ops.catalog import FUNCTIONS
from ops.index import assign_op, index_op, spec_of
from tape import instruction, natives, record
from tape.current import resumed
from tape.layout import FLOAT, FLOAT64, layout_of
from tape.tensor import Tensor
from tape.views import watch


# ---------------------------------------------------------------- reading
def get(x: Tensor, index: Any) -> Any:
    """Read elements (``x[index]``)."""
    if x._tape.owner != get_ident():
        return record.apart(operator.getitem, (x, index), {})
    kind = type(index)
    if type(x) is Tensor:
        if kind is int and x._layout.ndim == 1 and x._layout.code == FLOAT64:
            return _element(x, index)
        found = natives.basic_view(x, index)
        if found is not None:
            if found._layout.shape:
                watch(x, found, (operator.itemgetter(index), lambda base, new: base.__setitem__(index, new)))
            return found
    elif type(x) is Filling:
        found = x._read_pending(index)
        if found is not None:
            return found
    spec, arrays = spec_of(index)
    result = index_op(x, *arrays, spec=spec)
    if not arrays and result._layout.shape:
        watch(x, result, (lambda base: base[index], lambda base, new: base.__setitem__(index, new)))
    return result


def _element(x: Tensor, i: int) -> Tensor:
    """Read one element of a vector."""
    tape = x._tape
    layout = x._layout
    value = x._value.item(i)
    found = tape.instructions.get((index_op, layout))
    row = natives.element_row(tape, layout) if found is None else found[0]
    slot = tape.append_element(row, x._slot, i + layout.shape[0] if i < 0 else i, value)
    return record.handle(tape, slot, value, FLOAT)


# ---------------------------------------------------------------- writing
def assign(x: Tensor, index: Any, value: Any) -> None:
    """Write elements (``x[index] = value``)."""
    if x._tape.owner != get_ident():
        record.apart(operator.setitem, (x, index, value), {})
        return
    if isinstance(value, Tensor):
        value = value._on(x._tape)
    if not x._layout.shape and type(x) is Tensor and index not in ((), Ellipsis):
        raise TypeError("a number does not support item assignment")
    if isinstance(value, list | tuple):
        value = FUNCTIONS["array"](value)
    if _gather_write(x, index, value):
        return
    if index is Ellipsis:
        # What is written keeps a slot, and a gradient, of its own.
        write(x, natives.copied(value) if isinstance(value, Tensor) else value, casting="unsafe")
        return
    spec, arrays = spec_of(index)
    if not isinstance(value, Tensor):
        value = np.asarray(value)
    move_to(x, assign_op(x, _cast(value, x), *arrays, spec=spec))


def _cast(value: Any, x: Tensor) -> Any:
    """Convert what is written to the dtype of the array, as NumPy does on assignment."""
    return value if value.dtype == x._layout.dtype else value.astype(x._layout.dtype)


def write(x: Tensor, value: Any, *, casting: Any = "same_kind") -> Tensor:
    """Replace all elements (``out=``, ``x += v``); give the handle back."""
    if x._tape.owner != get_ident():
        record.apart(operator.setitem, (x, ..., value), {})
        return x
    shape = np.shape(value)
    if shape != x._layout.shape:
        ndim = len(x._layout.shape)
        if len(shape) > ndim and set(shape[: len(shape) - ndim]) == {1}:
            value = np.reshape(value, shape[len(shape) - ndim :])
        value = np.broadcast_to(value, x._layout.shape)
    value = value._on(x._tape) if isinstance(value, Tensor) else record.constant(x._tape, np.asarray(value))
    if not np.can_cast(value.dtype, x._layout.dtype, casting):
        raise TypeError(f"Cannot cast output from {value.dtype} to {x._layout.dtype} with casting rule {casting!r}")
    move_to(x, _cast(value, x))
    return x


def move_to(x: Tensor, new: Tensor) -> None:
    """Let a handle stand for a new slot, and with it its base and its views."""
    x._check_write()
    layout = x._layout
    if layout.dense and layout.shape and new._layout.strides != layout.strides:
        # The array keeps its order in memory, which decides whether a later reshape is a view of it, as in NumPy.
        new = record.in_order(new, layout)
    _set(x, new)
    base = getattr(x, "_base", None)
    if base is not None:
        owner, (_, write_back) = base
        write_back(owner, new)
        if x._tape.persistent:
            # Taken again it depends on its base, whose gradient somebody may ask for.
            x.__class__ = Stale
            x._layout = layout
        # A view in another order is taken again, since its order decides whether a reshape of it is a view.
        elif layout.contiguous and type(owner) is not Stale:
            _set(x, new)
        else:
            x._layout = layout
    outdate_views(x)


def outdate_views(x: Tensor) -> None:
    """Mark the views of a handle, and theirs, as in need of being taken again."""
    views: Any = getattr(x, "_views", None)
    for reference in views or ():
        view = reference()
        # The views of one that is marked are marked; one that has memory of its own is on no tape.
        if type(view) in (Tensor, Filling) and view._base is not None and view._base[0] is x:
            view.__class__ = Stale
            outdate_views(view)


def _set(x: Tensor, new: Tensor) -> None:
    slot, value, layout = new._slot, new._value, new._layout
    x.__class__ = Tensor
    x._slot, x._value, x._layout = slot, value, layout


def augmented(name: str) -> Callable[[Tensor, Any], Any]:
    """Make the method of an augmented assignment: in place for arrays, a new value for numbers."""

    def method(x: Tensor, y: Any) -> Any:
        result = getattr(Tensor, f"__{name}__")(x, y)
        if result is NotImplemented or not x._layout.shape:
            return result
        if np.shape(result) != x._layout.shape:
            raise ValueError(
                f"non-broadcastable output operand with shape {x.shape} doesn't match the broadcast shape "
                f"{np.shape(result)}"
            )
        return write(x, result)

    method.__name__ = f"__i{name}__"
    return method


class Stale(Tensor):
    """A view whose base has been written to: it is taken again when it is next read."""

    __slots__ = ()

    def _refresh(self) -> None:
        owner, (take, _) = self._base
        with resumed(self._tape):
            _set(self, take(owner))

    @property
    def _slot(self) -> int:  # type: ignore[override]
        self._refresh()
        return self._slot

    @property
    def _value(self) -> Any:
        self._refresh()
        return self._value


# ---------------------------------------------------------------- gathered writes
class Filling(Tensor):
    """An array with writes to single elements or rows that have not become an entry yet.

    ``_pending`` is ``(depth, {leading indices: Tensor})``: every write so far was to ``x[i1, ..., i_depth]``.
    """

    __slots__ = ()

    def _read_pending(self, index: Any) -> Any:
        key = _key(self, index)
        depth, writes = self._pending
        if key is None or len(key) != depth:
            return None
        if depth < len(self._layout.shape):
            return self._pending_row(index, key)
        if key in writes:
            return writes[key]
        old = object.__new__(Tensor)
        old._tape, old._layout = self._tape, self._layout
        old._slot, old._value = _slot_of(self), _value_of(self)
        return old[index]

    def _pending_row(self, index: Any, key: tuple[int, ...]) -> Any:
        """Give a row that was written, as the view that it is."""
        written = self._pending[1].get(key)
        # One that was not is a view of the whole; so is one of a tensor whose gradient somebody may ask for.
        if written is None or self._tape.persistent:
            return None
        row = record.handle(self._tape, written._slot, written._value, written._layout)
        return watch(self, row, (operator.itemgetter(index), lambda base, new: base.__setitem__(index, new)))

    def _flush(self) -> None:
        depth, writes = self._pending
        slot, value = _slot_of(self), _value_of(self)
        self.__class__ = Tensor  # type: ignore[assignment]
        self._slot, self._value = slot, value  # type: ignore[misc]
        self._pending = None
        move_to(self, filled(self, depth, writes))

    @property
    def _slot(self) -> int:  # type: ignore[override]
        self._flush()
        return self._slot

    @property
    def _value(self) -> Any:
        self._flush()
        return self._value


_slot_of = Tensor.__dict__["_slot"].__get__
_value_of = Tensor.__dict__["_value"].__get__


def _key(x: Tensor, index: Any) -> tuple[int, ...] | None:
    """Give the leading indices, all from 0 on, of an index that consists of integers only."""
    items = index if type(index) is tuple else (index,)
    shape = x._layout.shape
    if len(items) > len(shape) or not items:
        return None
    key = []
    for item, length in zip(items, shape, strict=False):
        if type(item) is not int and not isinstance(item, np.integer):
            return None
        i = int(item)
        if not -length <= i < length:
            return None
        key.append(i + length if i < 0 else i)
    return tuple(key)


def _gather_write(x: Tensor, index: Any, value: Any) -> bool:
    """Put a write off if it is to one element or row; tell whether that was so."""
    key = _key(x, index)
    if key is None:
        return False
    if type(x) is Stale:
        x._refresh()
    if getattr(x, "_base", None) is not None or _live_views(x):
        return False
    block = x._layout.shape[len(key) :]
    if not isinstance(value, Tensor):
        if np.ndim(value) > len(block):
            return False
        value = record.constant(x._tape, value)
    elif value._layout.ndim > len(block):
        return False
    elif value._tape is not x._tape:
        record.tape_of((x, value))
    if x._layout.dtype.kind != "f":
        return False
    if value._layout.dtype != x._layout.dtype:
        value = value.astype(x._layout.dtype)
    if value._layout.shape != block:
        value = np.broadcast_to(value, block)
    if type(x) is Filling:
        if x._pending[0] != len(key):
            x._flush()
    if type(x) is not Filling:
        x._pending = (len(key), {})
        x.__class__ = Filling
    # A handle of its own: the caller's may move on.
    x._pending[1][key] = record.handle(x._tape, value._slot, value._value, value._layout)
    return True


def _live_views(x: Tensor) -> bool:
    views: Any = getattr(x, "_views", None)
    return bool(views) and any(v() is not None for v in views)


def filled(x: Tensor, depth: int, writes: dict[tuple[int, ...], Tensor]) -> Tensor:
    """Append the entry that carries out gathered writes."""
    tape, layout = x._tape, x._layout
    out = layout if layout.dense else layout_of(layout.shape, layout.dtype)
    value, address = tape.allocate(out)
    value[...] = x._value
    block_shape = layout.shape[depth:]
    block = int(np.prod(block_shape))
    units = np.cumprod((1, *layout.shape[:0:-1]))[::-1][:depth]
    operands = [len(writes) + 1, x._slot, 0]
    for key, written in writes.items():
        value[key] = written._value
        operands += [written._slot, int(np.dot(key, units))]
    key_ = ("fill", layout, depth)
    found = tape.instructions.get(key_)
    if found is None:
        row = instruction.fill(tape.workspace, (assign_op, (layout,), out, {"depth": depth}), out, block)
        found = tape.instructions[key_] = row, out
    start = tape.workspace.add_operands(operands)
    return record.handle(tape, tape.append_array(found[0], start, -1, -1, address), value, out)
