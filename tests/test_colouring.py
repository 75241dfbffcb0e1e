"""Colourings, plans of sweeps and unions of dependence sets, by properties."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tape.colouring import colour_columns, colour_symmetric
from tape.compression import plan, plan_symmetric
from tape.unions import Unions

# ---------------------------------------------------------------- colourings
patterns = st.integers(0, 12).flatmap(
    lambda m: st.integers(1, 12).flatmap(
        lambda n: st.lists(st.tuples(st.integers(0, max(m - 1, 0)), st.integers(0, n - 1)), max_size=40).map(
            lambda places: _pattern(m, n, places)
        )
    )
)


def _pattern(m: int, n: int, places: Any) -> Any:
    made = np.zeros((m, n), bool)
    for i, j in places:
        if m:
            made[i, j] = True
    return sp.csr_array(made)


def rebuilt(matrix: Any, made: Any) -> Any:
    """Carry out a plan on a dense matrix."""
    data = np.full(made.pattern.nnz, np.nan)
    for group in made.groups:
        seeds = np.zeros((group.number, len(group.colours)))
        for k, colour in enumerate(group.colours):
            if colour >= 0:
                seeds[colour, k] = 1.0
        results = seeds @ (matrix.T if group.forward else matrix)
        data[group.elements] = results[group.sweeps, group.places]
    return sp.csr_array((data, made.pattern.indices, made.pattern.indptr), shape=matrix.shape).toarray()


@given(patterns)
@settings(deadline=None, max_examples=300)
def test_columns_of_one_colour_meet_in_no_row(pattern: Any) -> None:
    colours = colour_columns(pattern)
    for row in pattern.toarray():
        met = colours[row]
        assert len(set(met.tolist())) == len(met)
        assert np.all(met >= 0)


@given(patterns, st.integers(0, 1000))
@settings(deadline=None, max_examples=300)
def test_a_plan_gives_every_element(pattern: Any, seed: int) -> None:
    matrix = np.where(pattern.toarray(), np.random.default_rng(seed).integers(1, 9, pattern.shape), 0).astype(float)
    made = plan(pattern)
    np.testing.assert_array_equal(rebuilt(matrix, made), matrix)
    assert made.sweeps <= min(np.count_nonzero(matrix.any(axis=0)), np.count_nonzero(matrix.any(axis=1)))


@given(st.integers(1, 14), st.floats(0, 1), st.integers(0, 1000), st.booleans())
@settings(deadline=None, max_examples=400)
def test_star_colouring(n: int, density: float, seed: int, diagonal: bool) -> None:
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.uniform(size=(n, n)) < density, 0 if diagonal else 1)
    full = upper | upper.T
    pattern = sp.csr_array(full)
    colours = colour_symmetric(pattern)
    edges = full & ~np.eye(n, dtype=bool)
    for a, b in zip(*np.nonzero(edges), strict=True):
        assert colours[a] != colours[b]
        for c in np.flatnonzero(edges[b]):  # no path a-b-c-d in two colours
            if c != a and colours[c] == colours[a]:
                for d in np.flatnonzero(edges[c]):
                    assert d == b or colours[d] != colours[b]
    matrix = np.where(full, rng.integers(1, 9, (n, n)), 0).astype(float)
    matrix = matrix + matrix.T
    np.testing.assert_array_equal(rebuilt(matrix, plan_symmetric(pattern)), matrix)


# ---------------------------------------------------------------- unions
@given(st.integers(1, 150), st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=60))
@settings(deadline=None, max_examples=100)
def test_unions_are_spelled_out(inputs: int, pairs: Any) -> None:
    from tape.unions import spell, spell_in_words

    unions = Unions(inputs, 1)
    sets = [set(), *({k} for k in range(inputs))]
    nodes = list(range(inputs + 1))
    for a, b in pairs:
        first, second = a % len(nodes), b % len(nodes)
        nodes.append(unions.of_all([np.array([nodes[first], nodes[second]], np.int32)]))
        sets.append(sets[first] | sets[second])
    got = unions.spelled(np.array(nodes, np.int32))
    for row, expected in enumerate(sets):
        assert set(got.indices[got.indptr[row] : got.indptr[row + 1]].tolist()) == expected
    made = unions.graph.pairs[: unions.graph.used[0]]
    roots = np.array(nodes, np.int32)
    rows, columns = spell_in_words(made, inputs, roots)
    again = sp.coo_array((np.ones(len(rows), bool), (rows, columns)), shape=got.shape).toarray()
    np.testing.assert_array_equal(again, got.toarray())
    starts, _ = spell(made, inputs, roots, 0)
    assert not len(starts) or not any(sets)
