"""Unions of inputs: a graph whose nodes are built one by one and spelled out at the end, all of it compiled.

A node tells which of n inputs something depends on: node 0 on nothing, nodes 1 to n on one input each, those above that
on all that two earlier nodes depend on. So the union of two is one number, however many inputs they name.
"""

# The compiled functions take integers and arrays, and are typed by numba.
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from tape.compiled import compiled, inlined


class Graph(NamedTuple):
    """The nodes, and where those of each slot are.

    Attributes
    ----------
    pairs : ndarray of int32, shape (room, 2)
        The two nodes that each is the union of; 0 and 0 for an input.
    recent : ndarray of int32
        At a hash of a pair its node, if that was made lately: equal unions are mostly one node.
    used : ndarray of int64
        How many nodes there are, and how many places of `nodes` are taken.
    nodes : ndarray of int32
        The node of each element, slot after slot.
    base : ndarray of int64
        For each slot where in `nodes` its elements begin; -1 if it depends on no input.
    """

    pairs: Any
    recent: Any
    used: Any
    nodes: Any
    base: Any


@inlined
def unite(graph, a, b):
    """Give the node of the union of two nodes."""
    if a == b or b == 0:
        return a
    if a == 0:
        return b
    low, high = min(a, b), max(a, b)
    pairs = graph.pairs
    if pairs[high, 0] == low or pairs[high, 1] == low:
        return high
    key = (low * 73856093 ^ high * 19349663) % len(graph.recent)
    known = np.int64(graph.recent[key])
    if known != 0 and pairs[known, 0] == low and pairs[known, 1] == high:
        return known
    node = graph.used[0]
    pairs[node, 0] = low
    pairs[node, 1] = high
    graph.used[0] = node + 1
    graph.recent[key] = node
    return node


@compiled()
def unite_into(graph, found, places, nodes):
    """Add to the elements of `found` at some places, met before or not, a node each."""
    for i in range(len(places)):
        found[places[i]] = unite(graph, np.int64(found[places[i]]), np.int64(nodes[i]))


@compiled()
def accumulate(graph, nodes):
    """Let each element of a row depend on what those before it depend on too."""
    for row in range(nodes.shape[0]):
        node = 0
        for i in range(nodes.shape[1]):
            node = unite(graph, node, np.int64(nodes[row, i]))
            nodes[row, i] = node


@compiled()
def collect(graph, nodes):
    """Give for each row the union of its elements."""
    found = np.zeros(nodes.shape[0], np.int32)
    for row in range(nodes.shape[0]):
        node = 0
        for i in range(nodes.shape[1]):
            node = unite(graph, node, np.int64(nodes[row, i]))
        found[row] = node
    return found


# ---------------------------------------------------------------- spelling them out
@inlined
def _appended(array, used, number):
    """Write a number after those that are used; give the array, or a larger copy."""
    if used == len(array):
        grown = np.empty(2 * used, np.int32)
        grown[:used] = array
        array = grown
    array[used] = number
    return array


@compiled()
def spell(pairs, inputs, roots, limit):
    """List the inputs that each root depends on: row pointers and inputs, as of a CSR matrix, each row unsorted.

    Each root is followed down to the inputs. No row pointers are given if that takes more than `limit` steps.
    """
    starts = np.zeros(len(roots) + 1, np.int64)
    found = np.empty(len(roots) + 16, np.int32)
    used = steps = 0
    seen = np.full(len(pairs), -1, np.int32)
    waiting = np.empty(len(pairs) + 2, np.int32)
    for r in range(len(roots)):
        waiting[0] = roots[r]
        depth = 1
        while depth > 0:
            depth -= 1
            node = waiting[depth]
            if node == 0 or seen[node] == r:
                continue
            seen[node] = r
            steps += 1
            if node <= inputs:
                found = _appended(found, used, node - 1)
                used += 1
                continue
            for k in range(2):
                below = pairs[node, k]
                if seen[below] != r:
                    waiting[depth] = below
                    depth += 1
        if steps > limit:
            return np.zeros(0, np.int64), found[:0]
        starts[r + 1] = used
    return starts, found[:used]


@compiled()
def spell_in_words(pairs, inputs, roots):
    """List the pairs (place of the root, input): 64 inputs at a time, as bits that all nodes are given."""
    words = np.zeros(len(pairs), np.uint64)
    rows, columns = np.empty(len(roots) + 16, np.int32), np.empty(len(roots) + 16, np.int32)
    used = 0
    for first in range(0, inputs, 64):
        words[: inputs + 1] = 0
        for k in range(min(64, inputs - first)):
            words[1 + first + k] = np.uint64(1) << np.uint64(k)
        for node in range(inputs + 1, len(pairs)):
            words[node] = words[pairs[node, 0]] | words[pairs[node, 1]]
        for r in range(len(roots)):
            word = words[roots[r]]
            for k in range(64):
                if word >> np.uint64(k) & np.uint64(1) != 0:
                    rows, columns = _appended(rows, used, r), _appended(columns, used, first + k)
                    used += 1
    return rows[:used], columns[:used]


# ---------------------------------------------------------------- for Python
class Unions:
    """The graph of unions over n inputs; it makes room for itself.

    Parameters
    ----------
    inputs : int
        Their number, n.
    slots : int
        How many slots may have places.
    """

    def __init__(self, inputs: int, slots: int) -> None:
        self.inputs = inputs
        room = 2 * inputs + 1024
        self.graph = Graph(
            np.zeros((room, 2), np.int32), np.zeros(1 << 18, np.int32), np.array([inputs + 1, inputs]),
            np.zeros(room, np.int32), np.full(slots, -1, np.int64),
        )  # fmt: skip
        self.graph.nodes[:inputs] = np.arange(1, inputs + 1)

    def reserve(self, nodes: int, places: int) -> None:
        """Have room for so many more nodes and places."""
        graph = self.graph
        used = graph.used.tolist()
        if used[0] + nodes > len(graph.pairs):
            grown = np.zeros((2 * used[0] + nodes, 2), np.int32)
            grown[: used[0]] = graph.pairs[: used[0]]
            graph = graph._replace(pairs=grown)
        if used[1] + places > len(graph.nodes):
            more = np.zeros(2 * used[1] + places, np.int32)
            more[: used[1]] = graph.nodes[: used[1]]
            graph = graph._replace(nodes=more)
        self.graph = graph

    def of_slot(self, slot: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any] | None:
        """Give the nodes of a slot's elements; None if it depends on no input."""
        start = int(self.graph.base[slot])
        return None if start < 0 else self.graph.nodes[start : start + prod(shape)].reshape(shape)

    def place(self, slot: int, nodes: np.ndarray[Any, Any]) -> None:
        """Give a slot's elements their nodes."""
        self.reserve(0, nodes.size)
        graph = self.graph
        start = int(graph.used[1])
        graph.nodes[start : start + nodes.size] = nodes.reshape(-1)
        graph.base[slot] = start
        graph.used[1] = start + nodes.size

    def collected(self, nodes: Any) -> np.ndarray[Any, Any]:
        """Give the union along the last axis."""
        self.reserve(nodes.size, 0)
        flat = np.ascontiguousarray(nodes, np.int32).reshape(prod(nodes.shape[:-1]), nodes.shape[-1])
        found: np.ndarray[Any, Any] = collect(self.graph, flat)
        return found.reshape(nodes.shape[:-1])

    def of_all(self, parts: list[Any]) -> int:
        """Give the union of all that arrays of nodes hold."""
        whole = np.unique(np.concatenate([np.unique(n) for n in parts])) if parts else np.zeros(1, np.int32)
        return int(self.collected(whole))

    def along(self, nodes: Any, axes: tuple[int, ...], *, keepdims: bool = False) -> np.ndarray[Any, Any]:
        """Give the unions along axes."""
        axes = tuple(a % nodes.ndim for a in axes)
        kept = [a for a in range(nodes.ndim) if a not in axes]
        moved = np.transpose(nodes, [*kept, *axes])
        shape = moved.shape[: len(kept)]
        found = self.collected(moved.reshape(*shape, prod(moved.shape[len(kept) :])))
        return np.expand_dims(found, axes) if keepdims else found

    def broadcast(self, parts: list[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Give the unions of elements at the same place of arrays that are broadcast to a shape."""
        spread = [np.broadcast_to(n, shape) for n in parts]
        if len(spread) < 2:
            return spread[0] if spread else np.zeros(shape, np.int32)
        return self.collected(np.stack(spread, axis=-1))

    def added(self, shape: tuple[int, ...], places: Any, nodes: Any, onto: Any = None) -> np.ndarray[Any, Any]:
        """Give what results from adding elements up at flat places, met once or more, of an array of a shape."""
        self.reserve(nodes.size, 0)
        found = np.zeros(prod(shape), np.int32) if onto is None else np.array(onto, np.int32).reshape(-1)
        flat = np.ascontiguousarray(places, np.int64).reshape(-1), np.ascontiguousarray(nodes, np.int32).reshape(-1)
        unite_into(self.graph, found, *flat)
        return found.reshape(shape)

    def accumulated(self, nodes: Any) -> np.ndarray[Any, Any]:
        """Give the unions of all elements up to each along the last axis."""
        self.reserve(nodes.size, 0)
        found = np.array(nodes, np.int32).reshape(prod(nodes.shape[:-1]), nodes.shape[-1])
        accumulate(self.graph, found)
        return found.reshape(nodes.shape)

    def spelled(self, roots: np.ndarray[Any, Any]) -> Any:
        """Give the inputs that each root depends on, as a row of a CSR array of booleans."""
        from scipy.sparse import coo_array, csr_array

        shape = len(roots), self.inputs
        different, which = np.unique(roots, return_inverse=True)
        count = int(self.graph.used[0])
        pairs = self.graph.pairs[:count]
        # Following every root costs little while few inputs lie behind each; else all nodes are gone through at once.
        starts, columns = spell(pairs, self.inputs, different, max(50_000_000, count * (self.inputs // 64 + 1)))
        if len(starts):
            found = csr_array((np.ones(len(columns), bool), columns, starts), shape=(len(different), self.inputs))
        else:
            rows, columns = spell_in_words(pairs, self.inputs, different)
            made = coo_array((np.ones(len(columns), bool), (rows, columns)), shape=(len(different), self.inputs))
            found = made.tocsr()
        if len(different) != len(roots) or not np.array_equal(which, np.arange(len(roots))):
            found = found[which]
        found.sort_indices()
        return csr_array(found, shape=shape)
