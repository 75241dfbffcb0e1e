"""Graph colouring: which columns or rows of a sparse matrix one sweep can compute together.

Columns of which no two have an element in one row are one colour: a product with the sum of their unit vectors holds
all of their elements. Of a symmetric matrix an element can be read from its row or its column, so fewer colours do (a
star colouring: Gebremedhin, Tarafdar, Manne and Pothen, SIAM J. Sci. Comput. 29 (2007), algorithm 4.1).
"""

# The compiled functions take integers and arrays, and are typed by numba.
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from typing import Any

import numpy as np

from tape.compiled import compiled, inlined

Indices = np.ndarray[Any, Any]


@inlined
def _first_free(forbidden, mark):
    """Give the least colour that is not forbidden."""
    colour = 0
    while forbidden[colour] == mark:
        colour += 1
    return colour


@compiled()
def greedy(order, starts, rows, row_starts, columns):
    """Colour columns one by one, each with the least colour that no column meeting it in a row has.

    `starts` and `rows` list the rows of each column, `row_starts` and `columns` the columns of each row.
    """
    colours = np.full(len(order), -1, np.int64)
    forbidden = np.full(len(order) + 1, -1, np.int64)
    for j in order:
        for p in range(starts[j], starts[j + 1]):
            for q in range(row_starts[rows[p]], row_starts[rows[p] + 1]):
                colour = colours[columns[q]]
                if colour >= 0:
                    forbidden[colour] = j
        colours[j] = _first_free(forbidden, j)
    return colours


# ---------------------------------------------------------------- symmetric matrices
@compiled()
def mates(starts, neighbours):
    """Give for each element of a symmetric pattern the number of the one across the diagonal."""
    found = np.empty(len(neighbours), np.int64)
    next_in = starts[:-1].copy()
    for v in range(len(starts) - 1):
        for p in range(starts[v], starts[v + 1]):
            w = neighbours[p]
            found[p] = next_in[w]
            next_in[w] += 1
    return found


@inlined
def _treat(v, w, starts, neighbours, colours, forbidden, treated):
    """Forbid v the colours of the neighbours of w."""
    for p in range(starts[w], starts[w + 1]):
        colour = colours[neighbours[p]]
        if colour >= 0:
            forbidden[colour] = v
    treated[w] = v


@inlined
def _forbid(v, starts, neighbours, colours, forbidden, treated, seen_by, seen, star, hub):
    """Forbid v what would make a path of four vertices in two colours."""
    for p in range(starts[v], starts[v + 1]):
        w = neighbours[p]
        colour = colours[w]
        if w == v or colour < 0:
            continue
        forbidden[colour] = v
        if seen_by[colour] == v:  # two neighbours of one colour
            q = neighbours[seen[colour]]
            if treated[q] != v:
                _treat(v, q, starts, neighbours, colours, forbidden, treated)
            _treat(v, w, starts, neighbours, colours, forbidden, treated)
            continue
        seen_by[colour] = v
        seen[colour] = p
        for r in range(starts[w], starts[w + 1]):
            x = neighbours[r]
            if x != v and x != w and colours[x] >= 0 and hub[star[r]] == x:
                forbidden[colours[x]] = v


@inlined
def _join_stars(v, starts, neighbours, mate, colours, seen_by, seen, star, hub, count):
    """Put the edges from v to coloured neighbours into stars of two colours; give the number of stars."""
    for p in range(starts[v], starts[v + 1]):
        w = neighbours[p]
        if w == v or colours[w] < 0:
            continue
        found = -1
        for r in range(starts[w], starts[w + 1]):
            x = neighbours[r]
            if x != v and x != w and colours[x] == colours[v]:
                found = star[r]
                hub[found] = w
                break
        if found < 0 and seen_by[colours[w]] == v and seen[colours[w]] != p:
            found = star[seen[colours[w]]]
            hub[found] = v
        if found < 0:
            found = count
            hub[found] = -1
            count += 1
        star[p] = found
        star[mate[p]] = found
    return count


@compiled()
def star_colouring(order, starts, neighbours, mate):
    """Colour the vertices of a graph such that two colours never make a path of four vertices."""
    n = len(order)
    colours = np.full(n, -1, np.int64)
    forbidden, treated = np.full(n + 1, -1, np.int64), np.full(n, -1, np.int64)
    seen_by, seen = np.full(n, -1, np.int64), np.zeros(n, np.int64)
    star, hub = np.zeros(len(neighbours), np.int64), np.full(len(neighbours) + 1, -1, np.int64)
    count = 0
    for v in order:
        _forbid(v, starts, neighbours, colours, forbidden, treated, seen_by, seen, star, hub)
        colours[v] = _first_free(forbidden, v)
        count = _join_stars(v, starts, neighbours, mate, colours, seen_by, seen, star, hub, count)
    return colours


@compiled()
def alone(starts, columns, colours, count):
    """Tell for each element whether it is the only one of its row whose column has its colour."""
    tally = np.zeros(count + 1, np.int64)
    found = np.empty(len(columns), np.bool_)
    for row in range(len(starts) - 1):
        for p in range(starts[row], starts[row + 1]):
            tally[colours[columns[p]]] += 1
        for p in range(starts[row], starts[row + 1]):
            found[p] = tally[colours[columns[p]]] == 1
        for p in range(starts[row], starts[row + 1]):
            tally[colours[columns[p]]] = 0
    return found


# ---------------------------------------------------------------- choosing
def _lists(pattern: Any) -> tuple[Indices, Indices]:
    """Give pointers and indices of a CSR or CSC pattern, in the one type that is compiled for."""
    return pattern.indptr.astype(np.int64), pattern.indices.astype(np.int64)


def _orders(degrees: Indices) -> list[Indices]:
    """Give the orders that are tried: as they come, the fullest first, and the fullest last."""
    return [np.arange(len(degrees)), np.argsort(-degrees, kind="stable"), np.argsort(degrees, kind="stable")]


def split(counts: Indices) -> tuple[int, int]:
    """Give how many of the fullest lines to do by themselves so that least is left, and the sweeps needed at least."""
    fullest = np.append(np.sort(counts)[::-1], 0)
    needed = np.arange(len(fullest)) + fullest
    best = int(np.argmin(needed))
    return best, int(needed[best])


def colour_columns(pattern: Any) -> Indices:
    """Colour the columns of a CSR pattern; empty ones have the colour -1."""
    counts = np.diff(pattern.indptr)
    filled = np.bincount(pattern.indices, minlength=pattern.shape[1])
    used = np.flatnonzero(filled)
    least = int(counts.max(initial=0))
    colours = np.full(pattern.shape[1], -1)
    if 2 * least >= len(used):  # colouring saves less than half of the sweeps, and may take longer
        colours[used] = np.arange(len(used))
        return colours
    work = float(np.sum(counts.astype(float) ** 2))
    by_column, by_row = _lists(pattern.tocsc()), _lists(pattern)
    best: Indices | None = None
    for order in _orders(filled)[: 3 if work < LONG else 1]:
        found = greedy(order, *by_column, *by_row)
        if best is None or found.max() < best.max():
            best = found
        if best.max() + 1 == least:
            break
    assert best is not None
    colours[used] = best[used]
    return colours


LONG = 1e8
"""Steps of a colouring above which one order is tried only."""

WORK = 16
"""A vertex of a symmetric pattern whose squared degree is above this many times all elements has its own sweep."""


def colour_symmetric(pattern: Any) -> Indices:
    """Colour the vertices of a symmetric CSR pattern; those without elements have the colour -1."""
    from scipy.sparse import csr_array

    degrees = np.diff(pattern.indptr)
    size = len(degrees)
    crowded = degrees.astype(float) ** 2 > max(WORK * pattern.nnz, 10_000)
    kept = np.flatnonzero((degrees > 0) & ~crowded)
    colours = np.full(size, -1)
    hubs = np.flatnonzero(crowded)
    rest = csr_array(pattern[kept][:, kept]) if len(kept) < size else pattern
    rest.sort_indices()
    full = 2 * rest.nnz >= len(kept) ** 2
    if full:  # nearly every pair meets
        colours[kept] = np.arange(len(kept))
    else:
        starts, neighbours = _lists(rest)
        mate = mates(starts, neighbours)
        tried = [star_colouring(order, starts, neighbours, mate) for order in _orders(np.diff(starts))]
        colours[kept] = min(tried, key=lambda found: found.max())
    colours[hubs] = colours.max(initial=-1) + 1 + np.arange(len(hubs))
    return colours
