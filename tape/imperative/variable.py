"""Tensors that the user holds: leaves of what is differentiated, parameters, and plain values without a gradient.

A `Variable` has memory of its own and is on no tape. Where it meets an operation that is recorded, it is brought onto
the tape as a leaf (see `tape.imperative.dispatch`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tape import record
from tape.current import current, imperative
from tape.errors import InplaceError, InputError, UnsupportedError, was_cleared
from tape.imperative.storage import Storage, View
from tape.layout import CODES, Layout, layout_of
from tape.tensor import Tensor
from tape.wengert import HELD, WATCHED, Tape

_value_at = Tensor.__dict__["_value"].__get__


class State(View):
    """What a tensor that the user holds consists of.

    Attributes
    ----------
    requires_grad : bool
    cleared : bool
        It was computed from others, by entries that are cleared: nothing can be propagated through it.
    grad : ndarray, Tensor or None
    hooks : dict
        What is called with its gradient, by number.
    attached : dict
        For each tape (its serial number) the version of the memory and the handle's slot, value and layout.
    name : str or None
    """

    __slots__ = ("attached", "cleared", "grad", "hooks", "name", "requires_grad")

    def __init__(
        self, array: np.ndarray[Any, Any], requires_grad: bool, storage: Storage | None = None, *, cleared: bool = False
    ) -> None:
        super().__init__(array, storage)
        self.requires_grad = requires_grad
        self.cleared = cleared
        self.grad: Any = None
        self.hooks: dict[int, Callable[..., Any]] = {}
        self.attached: dict[int, tuple[int, int, Any, Layout]] = {}
        self.name: str | None = None


class _Nowhere:
    """Stands for the tape of a tensor that is on none: no operation on it is simply recorded."""

    owner = HELD
    held = 0
    persistent = False

    @staticmethod
    def refuse() -> None:
        """Raise: nothing can be recorded there."""
        raise UnsupportedError("a tensor that a user holds cannot take part in this as it is: pass `t.numpy()`")


class Variable(Tensor):
    """A tensor that the user holds; see `tensor`."""

    __slots__ = ()

    _tape: Any = _Nowhere

    @property
    def _slot(self) -> int:  # type: ignore[override]
        return attach(self, tape_for())._slot

    @property
    def _value(self) -> Any:
        array = self._state.array
        return float(array) if self._layout.cell else array

    def _on(self, tape: Tape) -> Tensor:
        return attach(self, tape)

    def __reduce__(self) -> Any:
        return _restored, (type(self), self._state.array, self._state.requires_grad)

    def _copied(self) -> Any:
        return _restored(type(self), self._state.array, self._state.requires_grad)

    def _inspected(self) -> Tensor:
        if self._state.cleared:
            raise was_cleared(f"of shape {self.shape}")
        if not self._state.requires_grad:
            raise InputError("nothing was recorded to compute this tensor: it requires no gradient")
        return attach(self, tape_for())

    def _check_write(self) -> None:
        state = self._state
        if not current.enabled:
            return
        if not state.requires_grad:
            super()._check_write()  # it may be a view of one that does
            return
        if state.cleared:
            raise was_cleared(f"of shape {self.shape}")
        raise InplaceError(
            "a leaf tensor that requires grad, or a view of one, is being used in an in-place operation, which would "
            "lose its gradient: write under `with no_grad():` (as optimisers do), or compute a new tensor (`x = x + 1` "
            "for `x += 1`)"
        )

    def _stale(self) -> bool:
        return False

    def _settled(self) -> Any:
        if self._state.requires_grad and current.enabled:
            return attach(self, tape_for())
        return self.numpy()

    def _alive(self) -> None:
        """Values can always be read."""

    def __repr__(self) -> str:
        text = np.array2string(self._state.array, separator=", ", prefix="Tensor(")
        kind = "Parameter" if isinstance(self, Parameter) else "Tensor"
        return f"{kind}({text}, dtype={self.dtype}, requires_grad={self.requires_grad})"


class Parameter(Variable):
    """A tensor that a model learns: a leaf that requires a gradient, and that a `Module` registers by itself.

    Parameters
    ----------
    data : array_like
        Floating-point values, which are copied.
    requires_grad : bool
    dtype : dtype, optional

    Examples
    --------
    >>> import numpy as np
    >>> from tape import Parameter
    >>> w = Parameter(np.zeros(3))
    >>> loss = np.sum((w - 1.0) ** 2)
    >>> loss.backward()
    >>> w.grad
    array([-2., -2., -2.])
    """

    __slots__ = ()

    def __new__(cls, data: Any, requires_grad: bool = True, dtype: Any = None) -> Any:
        """Make a parameter."""
        return _made(cls, data, dtype, requires_grad)


def tensor(data: Any, dtype: Any = None, requires_grad: bool | None = None) -> Any:
    """Make a tensor whose gradient `backward` computes.

    Parameters
    ----------
    data : array_like or Tensor
        Numbers, which are copied.
    dtype : dtype, optional
        float64, float32, an integer type or bool; NumPy's choice for the data if it is not given.
    requires_grad : bool, optional
        Whether operations on it are recorded. By default floating-point tensors require a gradient, and integers and
        booleans do not: they are constants.

    Returns
    -------
    Tensor
        It takes NumPy's functions, operators, methods and indexing.

    Raises
    ------
    InputError
        If a gradient is asked for of integers or booleans (it is a TypeError).

    Examples
    --------
    >>> import numpy as np
    >>> from tape import tensor
    >>> x, y = tensor(2.0), tensor(3.0)
    >>> f = 2.0 * (x * y)
    >>> f.backward()
    >>> x.grad, y.grad
    (array(6.), array(4.))
    """
    return _made(Variable, data, dtype, requires_grad)


def _made(cls: Any, data: Any, dtype: Any, requires_grad: bool | None) -> Any:
    if isinstance(data, Tensor):
        data = data.numpy()
    try:
        array = np.array(data, dtype=dtype)
    except ValueError as error:
        raise InputError(f"these data make no array of numbers: {error}") from None
    if array.dtype.kind == "c":
        raise UnsupportedError("complex tensors are not supported yet: pass real and imaginary parts as two tensors")
    if array.dtype not in CODES:
        array = record.supported(array)
    floating = array.dtype.kind == "f"
    if requires_grad is None:
        requires_grad = floating
    elif not isinstance(requires_grad, bool | np.bool_):
        raise InputError(f"requires_grad must be True or False, got {requires_grad!r}")
    if requires_grad and not floating:
        raise integral(array.dtype)
    return made(cls, State(np.ascontiguousarray(array) if array.ndim else array, bool(requires_grad)))


def _restored(cls: Any, array: Any, requires_grad: bool) -> Any:
    return made(cls, State(np.array(array), requires_grad))


def integral(dtype: Any) -> InputError:
    """Make the error for integers that should have a gradient."""
    return InputError(
        f"only floating-point tensors can require a gradient, and this one is of {dtype}: convert it first "
        "(`x.astype(float)`), or say requires_grad=False"
    )


def made(cls: Any, state: State) -> Any:
    """Make a tensor that the user holds."""
    Tensor.held_by_users = True
    t = object.__new__(cls)
    t._state = state
    state.tensor = weakref.ref(t)
    array = state.array
    t._layout = layout_of(array.shape, array.dtype, array.strides)
    return t


def constant(array: Any, storage: Storage | None = None) -> Any:
    """Make a tensor without a gradient of an array that nobody else writes to."""
    return made(Variable, State(array, False, storage))


# ---------------------------------------------------------------- onto the tape
def persistent_tape() -> Tape:
    """Give the tape of the tensors that the user holds; a new one if there is none."""
    found = imperative()
    if found is None:
        found = Tape()
        found.persistent = True
        if current.anomaly is not None:
            found.hold(WATCHED)
        current.imperative = weakref.ref(found)
    return found


def tape_for() -> Tape:
    """Give the tape on which operations on what the user holds are recorded."""
    under_way = current.tape
    return under_way if under_way is not None and under_way.persistent else persistent_tape()


def attach(v: Any, tape: Tape) -> Tensor:
    """Give a variable as a handle of a tape, of which it becomes a leaf."""
    state = v._state
    version = state.storage.version
    known = state.attached.get(tape.serial)
    if known is not None and known[0] == version:
        _, slot, value, layout = known
        return record.handle(tape, slot, value, layout)
    t = record.input_array(tape, state.array)
    if not state.requires_grad:
        return t
    slot = t._slot
    tape.leaves[slot] = v
    (tape.cleared if state.cleared else tape.inputs).add(slot)
    if state.attached and len(state.attached) > 4:
        state.attached.clear()
    state.attached[tape.serial] = version, slot, t._value, t._layout
    return t
