"""Operations that random programs are made of, and what keeps track of tensors beside their arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

EPSILON = 1e-30
SHAPES = [(), (3,), (2, 3)]
Environment = dict[int, np.ndarray[Any, Any]]
PICK = st.integers(0, 11)

UNARY: list[Callable[[Any], Any]] = [
    np.sin,
    np.tanh,
    lambda a: a * a,
    lambda a: 0.5 - a,
    lambda a: 1.0 / (2.0 + a * a),
    lambda a: a * 1.0,
    np.negative,
    lambda a: a**2,
]
BINARY: list[Callable[[Any, Any], Any]] = [np.add, np.multiply, np.subtract, np.matmul, lambda a, b: a / (3.0 + b * b)]
REDUCTIONS: list[Callable[[Any], Any]] = [
    np.sum,
    np.mean,
    lambda a: np.sum(a, axis=0),
    lambda a: np.mean(a, axis=-1, keepdims=True),
    lambda a: np.cumsum(a, axis=-1),
]
VIEWS: list[Callable[[Any], Any]] = [
    lambda a: a[1:],
    lambda a: a[:-1],
    lambda a: a[::-1],
    lambda a: a[::2],
    lambda a: a[0],
    lambda a: a[..., 1:],
    lambda a: a[:, 0],
    lambda a: a[None],
    lambda a: a[:, None],
    lambda a: a.T,
    lambda a: a.reshape(-1),
    lambda a: a.reshape((-1, 3)),
    lambda a: a.reshape((3, -1)),
    lambda a: a.ravel(),
    lambda a: np.transpose(a),
    lambda a: np.squeeze(a),
    lambda a: np.swapaxes(a, 0, -1),
    lambda a: a[:],
    lambda a: a[-1, ::-1],
]
GATHERS: list[Any] = [[0, 0], [1, 0], np.array([1, -1, 1]), (slice(None), [1, 1, 0]), ([0, 1], [1, 1]), [True, False]]
PLACES: list[Any] = [
    0,
    -1,
    (0, 1),
    (1, -1),
    slice(1, None),
    slice(None),
    slice(None, None, -1),
    slice(None, None, 2),
    (slice(None), 0),
    (Ellipsis, slice(1, None)),
    Ellipsis,
    [0, 0, 1],
    [1, 0],
    ([0, 0, 1], [1, 1, 2]),
    (slice(None), [2, 2, 0]),
    [True, False, True],
    (1, slice(None, None, -1)),
    None,
]


class Node:
    """A recorded value: what it was computed from, and whether a pass has gone over it and cleared it."""

    def __init__(self, parents: list[Node], *, gradient: bool, leaf: bool = False) -> None:
        self.parents = parents
        self.gradient = gradient
        self.leaf = leaf
        self.cleared = False

    def above(self) -> list[Node]:
        """List this and all that it was computed from."""
        found: dict[int, Node] = {}
        todo = [self]
        while todo:
            node = todo.pop()
            if id(node) not in found:
                found[id(node)] = node
                todo += node.parents
        return list(found.values())

    def tainted(self) -> bool:
        """Tell whether something cleared is above."""
        return any(node.cleared for node in self.above())


class Memory:
    """What an array and its views share."""

    def __init__(self, owner: Handle, node: Node, step: int) -> None:
        self.owner = owner
        self.node = node
        self.step = step
        """After how many steps its content was what it is."""
        self.leaf = node.leaf
        self.detached = False
        self.on_tape = node.gradient and not node.leaf
        self.frozen = False
        """Whether something that was detached shares it depends on what passes have cleared: nobody writes to it."""
        self.replaced = False
        """All elements of a view were written over, so that it may require a gradient or not."""


class Handle:
    """A tensor and its counterpart."""

    def __init__(self, number: int, t: Any, *, constant: bool = False) -> None:
        self.number = number
        self.t = t
        self.constant = constant
        """No gradient flows through this one, whatever its memory is."""
        self.memory: Memory
        self.parent: Handle | None = None
        self.held = True
        self.gradient: np.ndarray[Any, Any] | None = None
        """A leaf's accumulated gradient."""
        self._node: tuple[Node, Node] | None = None

    @property
    def node(self) -> Node:
        """The recorded value that this stands for."""
        memory = self.memory
        if self.parent is None:
            return memory.node
        if self._node is None or self._node[0] is not memory.node:
            self._node = memory.node, Node([self.parent.node], gradient=memory.node.gradient)
        return self._node[1]

    @property
    def requires_grad(self) -> bool:
        return not self.constant and self.node.gradient


def positions_in(owner: np.ndarray[Any, Any], view: np.ndarray[Any, Any], of: np.ndarray[Any, Any]) -> Any:
    """View an array of the owner's shape as the view views the owner."""
    like = np.empty_like(owner, np.float64)
    like[...] = of
    flat = like.ravel(order="K")
    offset = (view.__array_interface__["data"][0] - owner.__array_interface__["data"][0]) // owner.itemsize
    strides = [s // owner.itemsize * 8 for s in view.strides]
    return np.lib.stride_tricks.as_strided(flat[offset:], view.shape, strides).copy() if view.size else np.zeros(0)
