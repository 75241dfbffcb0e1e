"""Plans of sweeps: which rows and columns of a sparse matrix are computed together, and where its elements then are."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tape.colouring import Indices, alone, colour_columns, colour_symmetric, mates, split


class Group(NamedTuple):
    """Sweeps in one direction.

    Attributes
    ----------
    forward : bool
    colours : ndarray of int
        For each element of the inputs (forward) or outputs the sweep in which it is seeded, or -1.
    number : int
        How many sweeps there are.
    elements : ndarray of int
        The elements of the matrix that these sweeps give, by number; those of the first sweep first.
    sweeps, places : ndarray of int
        In which sweep, and at which element of its result, each of them is.
    """

    forward: bool
    colours: Indices
    number: int
    elements: Indices
    sweeps: Indices
    places: Indices


class Plan(NamedTuple):
    """The pattern of a matrix, as a CSR array of booleans, and the sweeps that compute it."""

    pattern: Any
    groups: list[Group]

    @property
    def sweeps(self) -> int:
        """How many sweeps there are."""
        return sum(group.number for group in self.groups)

    def serves(self, pattern: Any) -> bool:
        """Tell whether this plan is one for a pattern."""
        own = self.pattern
        return own is pattern or (
            own.shape == pattern.shape
            and np.array_equal(own.indptr, pattern.indptr)
            and np.array_equal(own.indices, pattern.indices)
        )


def _group(forward: bool, colours: Indices, elements: Indices, seeded: Indices, places: Indices) -> Group:
    sweeps = colours[seeded]
    order = np.argsort(sweeps, kind="stable")
    number = int(colours.max(initial=-1)) + 1
    return Group(forward, colours, number, elements[order], sweeps[order], places[order])


def rows_of(pattern: Any) -> Indices:
    """Give the row of each element of a CSR pattern."""
    return np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))


def plan_symmetric(pattern: Any) -> Plan:
    """Plan the sweeps for a symmetric matrix: forward, each pair of elements read from a row or a column."""
    colours = colour_symmetric(pattern)
    rows, columns = rows_of(pattern), pattern.indices.astype(np.int64)
    starts = pattern.indptr.astype(np.int64)
    own = alone(starts, columns, colours, int(colours.max(initial=-1)) + 1)
    own = np.where(rows <= columns, own, ~own[mates(starts, columns)])
    places, seeded = np.where(own, rows, columns), np.where(own, columns, rows)
    return Plan(pattern, [_group(True, colours, np.arange(len(rows)), seeded, places)])


def plan(pattern: Any) -> Plan:
    """Plan the sweeps for any matrix: forward for its columns, reverse for its fullest rows, or the other way round."""
    transposed = pattern.T.tocsr()
    transposed.sort_indices()
    counts = np.diff(pattern.indptr), np.diff(transposed.indptr)
    _, forward = split(counts[0])
    _, reverse = split(counts[1])
    sides = [(True, pattern, counts[0], forward), (False, transposed, counts[1], reverse)]
    sides.sort(key=lambda side: side[3])
    best = _compressed(pattern, *sides[0][:3])
    if best.sweeps > sides[1][3]:
        other = _compressed(pattern, *sides[1][:3])
        if other.sweeps < best.sweeps:
            best = other
    full = [int(np.count_nonzero(side[2])) for side in sides]
    if best.sweeps > min(full):  # a sweep for every row, or for every column, is less
        side = sides[full.index(min(full))]
        best = _compressed(pattern, *side[:3], min(full))
    return best


def _compressed(pattern: Any, forward: bool, along: Any, counts: Indices, alone_count: int | None = None) -> Plan:
    """Compute the columns of `along`, the pattern or its transpose, by colours, its fullest rows one by one.

    `alone_count` is the number of those rows; by default what `split` finds.
    """
    from scipy.sparse import csr_array

    if alone_count is None:
        alone_count, _ = split(counts)
    crowded = np.zeros(len(counts), bool)
    crowded[np.argsort(-counts, kind="stable")[:alone_count]] = True
    rows, columns = rows_of(pattern), pattern.indices.astype(np.int64)
    lines, crossing = (rows, columns) if forward else (columns, rows)
    rest = along
    if alone_count:
        kept = np.repeat(~crowded, counts)
        starts = np.concatenate([[0], np.cumsum(np.where(crowded, 0, counts))])
        rest = csr_array((along.data[kept], along.indices[kept], starts), shape=along.shape)
    single = np.flatnonzero(crowded[lines])
    groups = []
    if len(single) < len(lines):
        several = np.flatnonzero(~crowded[lines])
        groups.append(_group(forward, colour_columns(rest), several, crossing[several], lines[several]))
    if len(single):
        own = np.full(len(counts), -1)
        own[crowded] = np.arange(alone_count)
        groups.append(_group(not forward, own, single, lines[single], crossing[single]))
    return Plan(pattern, groups)
