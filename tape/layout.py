"""Layouts: the dtype, shape and strides of a value, each kept once so that equal layouts are one object."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

BOOL, INT64, FLOAT32, FLOAT64, COMPLEX64, COMPLEX128 = range(6)
"""Codes of the dtypes that a slot can have."""

CODES = {
    np.dtype(t): c for c, t in enumerate((np.bool_, np.int64, np.float32, np.float64, np.complex64, np.complex128))
}
ALIGNMENT = 64
_LIMIT = 50_000


class Layout:
    """How the elements of a value lie in memory.

    Parameters
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    strides : tuple of int
        In bytes, as NumPy counts them.
    """

    __slots__ = ("cell", "code", "contiguous", "dense", "dtype", "nbytes", "ndim", "shape", "size", "strides", "weak")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...]) -> None:
        self.shape = shape
        self.dtype = dtype
        self.strides = strides
        self.ndim = len(shape)
        self.size = prod(shape)
        self.code = CODES[dtype]
        self.contiguous = strides == contiguous_strides(shape, dtype.itemsize)
        self.dense = self.contiguous or is_dense(shape, strides, dtype.itemsize)
        # Whole cache lines: every value starts on one, and a freed gradient buffer can hold a link.
        self.nbytes = max(1, -(-self.size * dtype.itemsize // ALIGNMENT)) * ALIGNMENT
        self.cell = False
        self.weak = False

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Give the strides of a C-contiguous array."""
    strides = []
    step = itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def is_dense(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Tell whether elements fill their memory without gaps, in whatever order of the axes."""
    step = itemsize
    for stride, length in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if stride != step:
            return False
        step *= length
    return True


def result_layout(array: np.ndarray[Any, Any]) -> Layout:
    """Give the layout of a result in the order in memory that NumPy gave it; C order where it has gaps."""
    layout = layout_of(array.shape, array.dtype, array.strides)
    return layout if layout.dense else layout_of(array.shape, array.dtype)


def _scalar(weak: bool) -> Layout:
    layout = Layout((), np.dtype(np.float64), ())
    layout.cell = True
    layout.weak = weak
    return layout


FLOAT = _scalar(weak=False)
"""A float64 number: its value stands in the entry itself."""

PYTHON_FLOAT = _scalar(weak=True)
"""A Python number: like `FLOAT`, but in NumPy's promotion it gives way to the dtype of an array."""

_layouts: dict[tuple[Any, ...], Layout] = {}


def layout_of(shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...] | None = None) -> Layout:
    """Give the one layout with these properties; C-contiguous if no strides are given."""
    if not shape and dtype == np.float64:
        return FLOAT
    key = (shape, dtype, strides)
    layout = _layouts.get(key)
    if layout is None:
        usual = contiguous_strides(shape, dtype.itemsize)
        if strides is None:
            layout = Layout(shape, dtype, usual)
        else:
            # The stride of an axis of length 1 says nothing.
            told = tuple(u if n == 1 else s for n, s, u in zip(shape, strides, usual, strict=True))
            same = told == usual or 0 in shape
            layout = layout_of(shape, dtype) if same else Layout(shape, dtype, told)
        if len(_layouts) >= _LIMIT:
            _layouts.clear()
        _layouts[key] = layout
    return layout
