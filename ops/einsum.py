"""Einstein sums: one op whose pullback is an Einstein sum itself."""

from __future__ import annotations

import math
import string
from functools import lru_cache
from typing import Any

import numpy as np

from ops.catalog import Structural, handles, structural
from ops.index import ARRAY, scatter_op
from ops.linalg import operand, refuse, stand_in
from ops.multilinear import in_turn, shielded
from ops.shape import shape_of

LETTERS = string.ascii_uppercase + string.ascii_lowercase
LARGE = 1 << 14
"""From this number of multiplications on, choosing the order of a contraction pays."""


def _einsum(*operands: Any, subscripts: str, optimize: Any) -> Any:
    return np.einsum(subscripts, *operands, optimize=list(optimize) if isinstance(optimize, tuple) else optimize)


def _pullback(position: int, g: Any, out: Any, *operands: Any, subscripts: str, optimize: Any) -> Any:
    """Contract g with the other operands, down to the letters of this one.

    Letters that stand nowhere else were summed over: g is repeated along them. A letter that this operand has with
    length 1 was broadcast: it is summed over. A letter that it has twice means its diagonal.
    """
    inputs, result = subscripts.split("->")
    terms = inputs.split(",")
    own, shape = terms[position], shape_of(operands[position])
    rest = [k for k in range(len(terms)) if k != position]
    lengths: dict[str, int] = {}
    for term, x in zip([result, *(terms[k] for k in rest)], [g, *(operands[k] for k in rest)], strict=True):
        for letter, n in zip(term, shape_of(x), strict=True):
            lengths[letter] = n if lengths.get(letter, 1) == 1 else lengths[letter]
    sizes = dict(zip(own, shape, strict=True))
    kept = "".join(letter for letter, n in sizes.items() if letter in lengths and n != 1)
    spelled = ",".join([result, *(terms[k] for k in rest)]) + "->" + kept
    work = math.prod(lengths.values())
    value = shielded(
        lambda g, *others: einsum_op(g, *others, subscripts=spelled, optimize=bool(rest) and work > LARGE),
        g,
        *(operands[k] for k in rest),
    )
    value = np.reshape(value, tuple(lengths[c] if c in kept else 1 for c in sizes))
    if len(sizes) == len(own):
        return value
    value = np.broadcast_to(value, tuple(sizes.values()))
    places = list(sizes)
    steps = [np.arange(sizes[c]).reshape([-1 if k == places.index(c) else 1 for k in range(len(places))]) for c in own]
    return scatter_op(value, *steps, spec=(ARRAY,) * len(own), shape=tuple(shape))


def _examples(rng: np.random.Generator) -> Any:
    cases: tuple[tuple[str, list[tuple[int, ...]]], ...] = (
        ("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,jk->k", [(2, 3), (3, 4)]), ("ii->", [(3, 3)]), ("ii->i", [(3, 3)]),
        ("nd,nn->d", [(3, 2), (3, 3)]), ("abcd->bd", [(2, 3, 2, 2)]), ("ij->ji", [(2, 3)]), ("i,j,k->jik", [(2,),
        (3,), (2,)]),
        ("i,i,i->", [(3,), (3,), (3,)]), ("bij,bjk->bik", [(2, 2, 3), (2, 3, 2)]), ("bij,bjk->bik", [(1, 2, 3),
        (4, 3, 2)]),
        ("ij,ij->i", [(2, 1), (2, 3)]), ("iij,j->i", [(2, 2, 3), (3,)]), ("iii->i", [(2, 2, 2)]), (",i->i", [(), (3,)]),
        ("i->", [(3,)]), ("->", [()]), ("ij,jk->ik", [(2, 0), (0, 3)]), ("ij,k->", [(2, 3), (4,)]),
        ("i,ij,j->", [(30,), (30, 40), (40,)]),
    )  # fmt: skip
    for subscripts, shapes in cases:
        yield tuple(rng.normal(size=s) for s in shapes), {"subscripts": subscripts, "optimize": False}
    yield tuple(rng.normal(size=s) for s in ((4, 5), (5, 6), (6, 3))), {"subscripts": "ij,jk,kl->il", "optimize": True}


einsum_op: Structural = structural(
    _einsum,
    every=_pullback,
    pushforward=in_turn(lambda *operands, **parameters: einsum_op(*operands, **parameters)),
    name="einsum",
    examples=_examples,
)


def _letters(labels: Any) -> str:
    return "".join("..." if label is Ellipsis else LETTERS[int(label)] for label in labels)


@lru_cache(maxsize=1024)
def _spelled_out(subscripts: str, ndims: tuple[int, ...]) -> str | None:
    """Write the output and the axes of every ellipsis as letters; None where that cannot be."""
    inputs, arrow, result = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    used = set(inputs)
    if len(terms) != len(ndims) or any(t.count(".") not in (0, 3) for t in [*terms, result]):
        return None
    extra = [n - len(t) + 3 if "..." in t else 0 for t, n in zip(terms, ndims, strict=True)]
    free = [c for c in LETTERS if c not in used]
    widest = max(extra)
    if min(extra) < 0 or widest > len(free):
        return None
    shared = "".join(free[:widest])
    if not arrow:
        counts = {c: inputs.count(c) for c in sorted(used - {",", "."})}
        result = ("..." if widest else "") + "".join(c for c, n in counts.items() if n == 1)
    elif widest and "..." not in result:
        return None
    terms = [t.replace("...", shared[widest - n :]) for t, n in zip(terms, extra, strict=True)]
    if [len(t) for t in terms] != list(ndims):
        return None
    return ",".join(terms) + "->" + result.replace("...", shared)


def _arguments(operands: tuple[Any, ...]) -> tuple[str, list[Any]]:
    """Give subscripts and arrays, of either of the forms that einsum takes."""
    if isinstance(operands[0], str):
        return operands[0], [operand(x) for x in operands[1:]]
    pairs = len(operands) // 2
    subscripts = ",".join(_letters(labels) for labels in operands[1 : 2 * pairs : 2])
    if len(operands) % 2:
        subscripts += "->" + _letters(operands[-1])
    return subscripts, [operand(x) for x in operands[: 2 * pairs : 2]]


@handles(np.einsum)
def einsum(*operands: Any, out: Any = None, optimize: Any = False, dtype: Any = None, order: str = "K",
           casting: str = "safe") -> Any:  # fmt: skip
    """Sum products of elements whose axes are named by letters."""
    refuse("np.einsum", out=out, dtype=dtype)
    subscripts, arrays = _arguments(operands)
    spelled = _spelled_out(subscripts, tuple(len(shape_of(x)) for x in arrays))
    if spelled is None:
        np.einsum(subscripts, *(stand_in(x) for x in arrays))
        raise ValueError(f"einstein sum subscripts {subscripts!r} do not fit the operands")
    path = tuple(optimize) if isinstance(optimize, list) else optimize
    return einsum_op(*arrays, subscripts=spelled, optimize=path)


@handles(np.einsum_path)
def einsum_path(*operands: Any, optimize: Any = "greedy", einsum_call: bool = False) -> Any:
    """Give the order of contraction that is cheapest for operands of these shapes."""
    subscripts, arrays = _arguments(operands)
    return np.einsum_path(subscripts, *(stand_in(x) for x in arrays), optimize=optimize)
