"""Tensor: the handle of a recorded value.

It knows its tape and slot and behaves as the array or number that it stands for. The tape never points at a Tensor;
user code may drop it at any time. The operators are put in place by `tape.operators`.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tape.errors import DetachedError
from tape.wengert import PAUSED

if TYPE_CHECKING:
    from tape.layout import Layout
    from tape.wengert import Tape


class Tensor:
    """A value that is being recorded.

    Tensors are made by `grad` and its kin from the arguments of the function to differentiate, by users who want to
    call `backward` (``Tensor(data)`` is `tensor`), and by every operation on them. They take NumPy's functions,
    operators, methods and indexing.

    Attributes
    ----------
    shape, ndim, size, dtype
        As of an ndarray.
    T : Tensor
        The transpose.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import grad
    >>> grad(lambda x: np.sum(x[1:] * x[:-1]))(np.array([1.0, 2.0, 3.0]))
    array([2., 4., 2.])
    """

    __slots__ = ("__weakref__", "_base", "_layout", "_pending", "_slot", "_state", "_tape", "_value", "_views")

    __hash__ = None  # type: ignore[assignment]

    held_by_users = False
    """Whether there has been a tensor that a user holds, outside of functions that are being differentiated."""

    # What `tape.imperative.face` puts in place.
    if TYPE_CHECKING:
        grad: Any
        data: Any
        grad_fn: Any
        requires_grad: bool
        constant: bool
        stores_grad: bool
        is_leaf: bool
        backward: Callable[..., None]
        zero_grad: Callable[..., None]
        null_grad: Callable[[], Any]
        clear_graph: Callable[[], None]
        retain_grad: Callable[[], None]
        register_hook: Callable[[Callable[[Any], Any]], Any]
        detach: Callable[[], Any]
        detach_: Callable[[], Any]
        requires_grad_: Callable[..., Any]
        clone: Callable[[], Any]

    _tape: Tape
    _slot: int
    _state: Any
    _value: Any
    _layout: Layout
    _base: Any
    _pending: Any
    _views: Any

    def __new__(cls, data: Any, dtype: Any = None, requires_grad: bool | None = None) -> Any:
        """Make a tensor that the user holds: see `tape.tensor`."""
        from tape.imperative.variable import tensor

        return tensor(data, dtype, requires_grad)

    # ------------------------------------------------------------ what it is
    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return self._layout.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._layout.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._layout.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self._layout.dtype

    @property
    def itemsize(self) -> int:
        """The bytes of one element."""
        return self._layout.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """The steps between elements in memory, in bytes, along each axis."""
        return self._layout.strides

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self._layout.size * self._layout.dtype.itemsize

    def numpy(self) -> np.ndarray[Any, Any]:
        """Give a copy of the value as a plain array; it carries no gradient."""
        self._alive()
        return np.array(self._value, dtype=self._layout.dtype)

    def _stale(self) -> bool:
        """Tell whether the tape is finished, or another thread's."""
        return self._tape.owner == 0 or self._tape.thread != get_ident()

    def _settled(self) -> Any:
        """Give this value as it takes part in what is being recorded: as a handle, or as a plain array."""
        self._alive()
        return self.numpy() if self._tape.held & PAUSED else self

    def _on(self, tape: Tape) -> Tensor:  # noqa: ARG002
        """Give this value as a handle of a tape."""
        return self

    def _inspected(self) -> Tensor:
        """Give this value as a handle of the tape that tells how it was computed."""
        self._alive()
        return self

    def _check_write(self) -> None:
        """Raise if a write to this value would reach one that must not be written to."""
        base = getattr(self, "_base", None)
        if base is not None:
            base[0]._check_write()

    def _alive(self) -> None:
        if self._tape.owner != get_ident():
            self._tape.readable()

    def __repr__(self) -> str:
        if self._tape.owner == 0:
            return f"Tensor(of a finished tape, shape={self.shape}, dtype={self.dtype})"
        text = np.array2string(np.asarray(self._value), separator=", ", prefix="Tensor(")
        return f"Tensor({text}, dtype={self.dtype})"

    def __format__(self, spec: str) -> str:
        self._alive()
        return format(self._value if self.ndim == 0 else repr(self), spec) if spec else repr(self)

    # ------------------------------------------------------------ leaving the tape
    def __bool__(self) -> bool:
        self._alive()
        return bool(self._value)

    def __index__(self) -> int:
        self._alive()
        if self._layout.dtype.kind == "f":
            raise TypeError(
                "a floating-point Tensor cannot be used as an index or a count; "
                "round it on purpose: `int(t)` or `np.floor(t)` has no gradient"
            )
        return int(self._value)

    def __int__(self) -> int:
        self._alive()
        return int(self._value)

    def _detached(self, how: str, instead: str) -> DetachedError:
        return DetachedError(
            f"{how} would drop the gradient: a recorded value cannot become a plain number or array. {instead}"
        )

    def __float__(self) -> float:
        raise self._detached(
            "float(t), or a function of the `math` module,",
            "Write the NumPy function instead (`np.sin(t)` for `math.sin(t)`), keep the Tensor, write into "
            "`np.zeros_like(t)` or `ops.zeros(...)` rather than a plain array, "
            "or take `t.numpy()` or `stop_gradient(t)` where no gradient is wanted",
        )

    def __complex__(self) -> complex:
        raise self._detached("complex(t)", "Complex values are not supported yet")

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        if self._layout.dtype.kind != "f":  # a mask or positions: no gradient to lose, and plain arrays are indexed so
            return np.asarray(self.numpy(), dtype)
        raise self._detached(
            "np.asarray(t), np.array([t, ...]), or writing t into a plain array,",
            "Build arrays with `ops.array([...])` or `np.stack([...])`, allocate with `ops.zeros(...)` or "
            "`np.zeros_like(t)` where Tensors are to be written, "
            "call `ops.special.f` for a function f of SciPy that is not a ufunc (`ops.special.logsumexp(t)`), "
            "or take `t.numpy()` or `stop_gradient(t)` where no gradient is wanted",
        )

    def item(self, *index: int) -> Any:
        """Give one element; on a recorded value that would drop the gradient, so only integers and booleans do."""
        if self._layout.dtype.kind == "f":
            raise self._detached("t.item()", "Index the Tensor (`t[0]`), or take `t.numpy().item()`")
        return self.numpy().item(*index)

    def tolist(self) -> Any:
        """Give a nested list of Tensors of one element each."""
        return self if self.ndim == 0 else [row.tolist() for row in self]

    # ------------------------------------------------------------ being a sequence
    def __len__(self) -> int:
        if not self._layout.shape:
            raise TypeError("len() of unsized object")
        return self._layout.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self._layout.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(self._layout.shape[0]))

    def __contains__(self, item: Any) -> bool:
        return bool(np.any(self == item))

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError

    def __setitem__(self, index: Any, value: Any) -> None:
        raise NotImplementedError
