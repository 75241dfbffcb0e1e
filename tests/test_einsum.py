"""Einstein sums of every form: values are NumPy's, gradients agree with finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from recorded import check, values

from tape import grad

EINSUMS = (
    ("ij,jk", ((2, 3), (3, 4))), ("ba", ((2, 3),)), ("ii", ((3, 3),)), ("...ii->...", ((2, 3, 3),)),
    ("...ii", ((2, 3, 3),)),
    ("...ij,...jk->...ik", ((2, 1, 2, 3), (4, 3, 2))), ("i...,i...", ((3, 2), (3, 2))), ("...,...", ((2, 3), (3,))),
    ("i...->...", ((3, 2, 2),)), ("nd,nn->d", ((3, 2), (3, 3))), ("abcd->bd", ((2, 3, 2, 2),)), ("ij->", ((2, 3),)),
    ("i,j", ((2,), (3,))), ("ij,jk,kl->il", ((2, 3), (3, 2), (2, 4))), ("i,i,i,i", ((3,),) * 4),
    ("bn,bmn->bm", ((2, 3), (1, 4, 3))),
    ("ij,ij->ij", ((1, 3), (2, 1))), (" i j , j k -> k i ", ((2, 3), (3, 4))), ("...i->i...", ((2, 3, 4),)),
    ("i...j,j->...", ((2, 3, 4), (4,))), ("aab,bcc->ac", ((2, 2, 3), (3, 2, 2))), (",", ((), ())), ("->", ((),)),
    ("Ab,bA", ((2, 3), (3, 2))),
)  # fmt: skip


@pytest.mark.parametrize(("subscripts", "shapes"), EINSUMS, ids=str)
@pytest.mark.parametrize("optimize", [False, True, "greedy", "optimal"])
def test_einsum(subscripts: str, shapes: Any, optimize: Any, rng: np.random.Generator) -> None:
    """Implicit output, ellipsis, repeated letters, summed-out axes, broadcast axes, any number of operands."""
    operands = [rng.normal(size=s) for s in shapes]

    def f(*xs: Any) -> Any:
        return np.einsum(subscripts, *xs, optimize=optimize)

    np.testing.assert_array_equal(values(f, operands), f(*operands))
    check(f, operands, rng)
    single = [x.astype(np.float32) for x in operands]
    assert grad(lambda x: np.sum(f(x, *single[1:])))(single[0]).dtype == np.float32
    assert values(f, single).dtype == np.float32
    turned = [rng.normal(size=(*s, 2))[..., 0] for s in shapes]
    check(f, [x.T.copy().T for x in turned], rng)


def test_einsum_of_sublists_and_paths(rng: np.random.Generator) -> None:
    """The form with lists of labels, with and without output; an explicit path; the same operand twice."""
    a, b, c = rng.normal(size=(2, 3)), rng.normal(size=(3, 4)), rng.normal(size=(4, 2))
    check(lambda a, b: np.einsum(a, [0, 1], b, [1, 2]), [a, b], rng)
    check(lambda a, b: np.einsum(a, [0, 1], b, [1, 30], [30, 0]), [a, b], rng)
    check(lambda a: np.einsum(a, [Ellipsis, 3], [3, Ellipsis]), [a], rng)
    for f in (lambda a: np.einsum(a, [30, 1]), lambda a: np.einsum(a, [1, 0])):
        np.testing.assert_array_equal(values(f, [a]), f(a))
    path = ["einsum_path", (1, 2), (0, 1)]
    f = lambda a, b, c: np.einsum("ij,jk,kl->il", a, b, c, optimize=path)
    np.testing.assert_array_equal(values(f, [a, b, c]), f(a, b, c))
    check(f, [a, b, c], rng)
    square = rng.normal(size=(3, 3))
    np.testing.assert_allclose(grad(lambda a: np.einsum("ij,ij", a, a))(square), 2 * square)
    found = []
    grad(lambda a: found.append(np.einsum_path("ij,jk,kl->il", a, b, c)[0]) or 0.0)(a)
    assert found[0] == np.einsum_path("ij,jk,kl->il", a, b, c)[0]


@pytest.mark.parametrize(
    ("subscripts", "shapes"), [("ij,jk", ((2, 3),)), ("ij,jk->ik", ((2, 3), (4, 2))), ("i", ((2, 3),)),
    ("i->j", ((2,),)), ("...i->i", ((2, 2),)), ("i..", ((2,),))]
)  # fmt: skip
def test_einsum_of_what_does_not_fit_raises_numpys_error(subscripts: str, shapes: Any) -> None:
    """The type of the error is NumPy's."""
    operands = [np.ones(s) for s in shapes]
    with pytest.raises(ValueError, match=r".") as ours:
        grad(lambda *xs: np.sum(np.einsum(subscripts, *xs)))(*operands)
    with pytest.raises(type(ours.value)):
        np.einsum(subscripts, *operands)
