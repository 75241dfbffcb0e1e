"""Entries whose value and rules are those of a Python object: custom rules, checkpoints, solvers, maps of other tapes.

Such an entry has one result. Several are packed into a vector, and taken out of it again by ordinary entries.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ops.catalog import structural
from tape import record
from tape.layout import FLOAT
from tape.tensor import Tensor


class Call:
    """One call: how its value is computed and differentiated. The tape keeps it alive."""

    def forward(self, *operands: Any) -> Any:
        """Give the value for plain operands."""
        raise NotImplementedError

    def pull(self, position: int, g: Any, out: Any, *operands: Any) -> Any:
        """Give what the adjoint g passes on to an operand; arrays, or recorded values if one of these is."""
        raise NotImplementedError

    def push(self, tangents: Sequence[Any], out: Any, *operands: Any) -> Any:
        """Give the tangent of the value; None among the tangents stands for none."""
        raise NotImplementedError


class Reference:
    """What an entry holds of its call. Instructions outlive tapes, and this lets the call go with its tape."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, call: Call) -> None:
        self._call = weakref.ref(call)

    def __call__(self) -> Call:
        """Give the call."""
        call = self._call()
        assert call is not None
        return call

    def __repr__(self) -> str:
        return type(self._call()).__name__


class _Product(Call):
    """The product with a matrix, for the tests of the catalogue."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix

    def forward(self, x: Any) -> Any:
        return self.matrix.astype(x.dtype) @ x

    def pull(self, position: int, g: Any, out: Any, *operands: Any) -> Any:
        return self.matrix.T.astype(g.dtype) @ g

    def push(self, tangents: Sequence[Any], out: Any, *operands: Any) -> Any:
        return self.matrix.astype(out.dtype) @ tangents[0]


_example = _Product(np.array([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]]))

call_op = structural(
    lambda *operands, call: call().forward(*operands),
    every=lambda position, g, out, *operands, call: call().pull(position, g, out, *operands),
    pushforward=lambda tangents, out, *operands, call: call().push(tangents, out, *operands),
    name="call",
    examples=lambda rng: [((rng.normal(size=3),), {"call": Reference(_example)})],
)


def append_call(call: Call, operands: Sequence[Any]) -> Tensor:
    """Append a call's entry; at least one operand is recorded."""
    record.tape_of(tuple(operands)).keep.append(call)
    made: Tensor = record.structural(call_op, tuple(operands), {"call": Reference(call)})
    return made


# ---------------------------------------------------------------- several values as one
class Packing:
    """How several values lie in one vector."""

    def __init__(self, layouts: Sequence[tuple[tuple[int, ...], Any]]) -> None:
        self.layouts = list(layouts)
        self.dtype = np.result_type(*(dtype for _, dtype in self.layouts)) if self.layouts else np.dtype(float)

    @classmethod
    def of(cls, values: Sequence[Any]) -> Packing:
        """Describe values as they are."""
        return cls([(np.shape(v), v.dtype if hasattr(v, "dtype") else np.dtype(float)) for v in values])

    def pack(self, values: Sequence[Any]) -> Any:
        """Put values into one vector; a single value stays as it is."""
        if len(values) == 1:
            return values[0]
        flat = [np.reshape(v if isinstance(v, Tensor) else np.asarray(v), -1) for v in values]
        joined = np.concatenate(flat) if flat else np.empty(0)
        return joined if joined.dtype == self.dtype else joined.astype(self.dtype)

    def unpack(self, packed: Any) -> list[Any]:
        """Take the values out again."""
        if len(self.layouts) == 1:
            return [packed]
        found = []
        start = 0
        for shape, dtype in self.layouts:
            stop = start + prod(shape)
            part = packed[start] if not shape else np.reshape(packed[start:stop], shape)
            found.append(part if part.dtype == dtype else part.astype(dtype))
            start = stop
        return found


# ---------------------------------------------------------------- linear maps
class _Linear(Call):
    """A linear map of several values to several values, and its transpose."""

    def __init__(self, forward: Callable[[list[Any]], list[Any]], transposed: Callable[[list[Any]], list[Any]]) -> None:
        self._forward, self._transposed = forward, transposed
        self.results: Packing | None = None

    def forward(self, *operands: Any) -> Any:
        found = self._forward([_plain_number(x) for x in operands])
        self.results = Packing.of(found)
        return self.results.pack(found)

    def pull(self, position: int, g: Any, out: Any, *operands: Any) -> Any:
        assert self.results is not None
        parts = self.results.unpack(g)
        if isinstance(g, Tensor):
            return linear_entries(parts, self._transposed, self._forward)[position]
        return self._transposed([_plain_number(x) for x in parts])[position]

    def push(self, tangents: Sequence[Any], out: Any, *operands: Any) -> Any:
        given = [np.zeros(np.shape(x), x.dtype) if t is None else t for t, x in zip(tangents, operands, strict=True)]
        if any(isinstance(t, Tensor) for t in given):
            found = linear_entries(given, self._forward, self._transposed)
            return Packing.of(found).pack(found)
        return self.forward(*given)


def _plain_number(x: Any) -> Any:
    return float(x) if np.ndim(x) == 0 and getattr(x, "dtype", FLOAT.dtype) == FLOAT.dtype else x


def linear_entries(
    operands: list[Any],
    forward: Callable[[list[Any]], list[Any]],
    transposed: Callable[[list[Any]], list[Any]],
) -> list[Any]:
    """Apply a linear map of plain values to recorded ones: give its results as entries of their tape."""
    call = _Linear(forward, transposed)
    packed = append_call(call, operands)
    assert call.results is not None
    return call.results.unpack(packed)
