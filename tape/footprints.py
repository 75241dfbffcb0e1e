"""Which elements of its operands each element of a result reads, for the ops whose rules run in Python.

A rule is called as ``rule(unions, step, nodes)`` and gives the nodes of the result's elements (see `tape.unions`).
`nodes` has for each operand an array of its shape, or None where the result has no slope by it. An op without a rule
here is taken to read everything.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ops import determinant, functional, norm, singular, solve
from ops.catalog import Elementwise, Op, Structural
from ops.cumulative import cumprod_op, cumsum_op, nanmax_op, nanmin_op, recurrence_op
from ops.differences import convolve_op, correlate_op
from ops.einsum import einsum_op
from ops.index import assign_op, embed_op, index_of, index_op, scatter_op, window_op
from ops.join import concatenate_op, numbers_op
from ops.linalg import dot_op, matmul_op, matvec_op, vecdot_op, vecmat_op
from ops.reduce import max_op, mean_op, min_op, prod_op, sum_op
from ops.shape import broadcast_op, cast_op, reshape_op, transpose_op
from ops.sort import bincount_op
from ops.twins import log_softmax_op, logsumexp_op, softmax_op
from tape.reading import Step
from tape.unions import Unions

Nodes = Any
"""An array of int32."""

MANY = 10_000_000
"""Products in a convolution above which each element counts as reading everything."""


class Reads(NamedTuple):
    """An entry, and what its operands depend on.

    Attributes
    ----------
    step : Step
    nodes : list of ndarray or None
        For each operand the node of each element, in its shape; None where the result has no slope by it.
    values : list
        The operands' values.
    """

    step: Step
    nodes: list[Any]
    values: list[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return self.step.out.shape

    @property
    def parameters(self) -> Any:
        """The op's keyword arguments."""
        return self.step.parameters or {}


def _known(reads: Reads) -> list[Nodes]:
    return [n for n in reads.nodes if n is not None]


def everything(unions: Unions, reads: Reads) -> Nodes:
    """Each element reads all."""
    return np.full(reads.shape, unions.of_all(_known(reads)), np.int32)


def by_element(unions: Unions, reads: Reads) -> Nodes:
    """Each element reads the operands' elements at its place."""
    return unions.broadcast(_known(reads), reads.shape)


def picks(unions: Unions, reads: Reads) -> Nodes:
    """Each element is one of an operand's, or none: the op itself, done on nodes, tells which."""
    op = reads.step.op
    assert isinstance(op, Structural)
    moved = 1 if op is index_op else 2 if op is assign_op else len(reads.nodes)
    given = [
        np.zeros(np.shape(v), np.int32) if n is None else n for n, v in zip(reads.nodes, reads.values, strict=True)
    ]
    return np.asarray(op.forward(*given[:moved], *reads.values[moved:], **reads.parameters), np.int32)


def same(unions: Unions, reads: Reads) -> Nodes:
    """Each element reads that of the same number."""
    return np.reshape(reads.nodes[0], reads.shape)


def scattered(unions: Unions, reads: Reads) -> Nodes:
    """Elements are added up where an index says."""
    shape = reads.parameters["shape"]
    places = np.arange(prod(shape)).reshape(shape)[index_of(reads.parameters["spec"], tuple(reads.values[1:]))]
    return unions.added(shape, places, np.broadcast_to(reads.nodes[0], places.shape))


def counted(unions: Unions, reads: Reads) -> Nodes:
    """Weights are added up where the first operand says."""
    return unions.added(reads.shape, np.asarray(reads.values[0], np.int64), reads.nodes[1])


# ---------------------------------------------------------------- along axes
def reduced(unions: Unions, reads: Reads) -> Nodes:
    """Each element reads the operands along the reduced axes."""
    shape = np.shape(reads.values[0])
    whole = unions.broadcast(_known(reads), shape)
    return unions.along(whole, reads.parameters["axis"]).reshape(reads.shape)


def mixed(unions: Unions, reads: Reads) -> Nodes:
    """Each element reads all along some axes, which the result has too."""
    axis = reads.parameters["axis"]
    axes = axis if isinstance(axis, tuple) else (axis,)
    return np.broadcast_to(unions.along(reads.nodes[0], axes, keepdims=True), reads.shape)


def running(unions: Unions, reads: Reads) -> Nodes:
    """Each element reads those up to its place along an axis."""
    axis = reads.parameters["axis"]
    moved = np.moveaxis(reads.nodes[0], axis, -1)
    return np.moveaxis(unions.accumulated(moved), -1, axis)


def recurring(unions: Unions, reads: Reads) -> Nodes:
    """Each element reads both operands up to its place along the last axis, or from there on."""
    step = -1 if reads.parameters["reverse"] else 1
    return unions.accumulated(unions.broadcast(_known(reads), reads.shape)[..., ::step])[..., ::step]


# ---------------------------------------------------------------- products
def contracted(unions: Unions, terms: list[str], result: str, nodes: list[Any], shape: tuple[int, ...]) -> Nodes:
    """Each element of an Einstein sum reads, of each operand, all that have its letters."""
    found = []
    for term, n in zip(terms, nodes, strict=True):
        if n is None:
            continue
        letters = "".join(dict.fromkeys(term))
        diagonal = np.einsum(f"{term}->{letters}", n)
        gone = tuple(k for k, c in enumerate(letters) if c not in result)
        kept = [c for c in letters if c in result]
        part = unions.along(diagonal, gone)
        order = sorted(range(len(kept)), key=lambda k: result.index(kept[k]))
        lengths = dict(zip([kept[k] for k in order], np.transpose(part, order).shape, strict=True))
        found.append(np.transpose(part, order).reshape([lengths.get(c, 1) for c in result]))
    return unions.broadcast(found, shape)


def einstein(unions: Unions, reads: Reads) -> Nodes:
    """See `contracted`."""
    terms, result = reads.parameters["subscripts"].split("->")
    return contracted(unions, terms.split(","), result, reads.nodes, reads.shape)


def product(first: str, second: str, result: str) -> Callable[[Unions, Reads], Nodes]:
    """Make the rule of a product of stacks; `first` and `second` name the axes behind those of the stacks."""

    def rule(unions: Unions, reads: Reads) -> Nodes:
        stack = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(reads.shape) - len(result)]
        terms = []
        for own, value in zip((first, second), reads.values, strict=True):
            lead = np.ndim(value) - len(own)
            terms.append((stack[len(stack) - lead :] if lead else "") + own)
        return contracted(unions, terms, stack + result, reads.nodes, reads.shape)

    return rule


def matrices(unions: Unions, reads: Reads) -> Nodes:
    """Do a product of stacks of matrices, either of which may be a vector."""
    first = "i" if np.ndim(reads.values[0]) == 1 else "hi"
    second = "i" if np.ndim(reads.values[1]) == 1 else "ij"
    return product(first, second, first[:-1] + second[1:])(unions, reads)


def dots(unions: Unions, reads: Reads) -> Nodes:
    """Do a sum over the last axis of one and the last but one of the other."""
    a, b = (np.ndim(v) for v in reads.values)
    if not a or not b:
        return by_element(unions, reads)
    lead, rest = "abcdefghijklm"[: a - 1], "nopqrstuvwxy"[: b - 1]
    return contracted(unions, [lead + "z", rest[:-1] + "z" + rest[-1:]], lead + rest, reads.nodes, reads.shape)


def convolved(unions: Unions, reads: Reads) -> Nodes:
    """Each element reads those whose numbers add up to its own; a correlation turns the second operand round."""
    mode, correlates = reads.parameters["mode"], reads.step.op is correlate_op
    first, second = (np.size(v) for v in reads.values)
    if first * second > MANY:
        return everything(unions, reads)
    numbers = np.arange(first)[:, None] + np.arange(second)[:: -1 if correlates else 1]
    found = np.zeros(first + second - 1, np.int32)
    for n, places in ((reads.nodes[0], numbers), (reads.nodes[1], numbers.T)):
        if n is not None:
            found = unions.added(found.shape, places, np.broadcast_to(n[:, None], places.shape), found)
    small = min(first, second)
    start = 0 if mode == "full" else small - 1 if mode == "valid" else (small - 1) // 2
    if mode == "same" and correlates and second > first:
        start = small // 2
    return found[start : start + reads.shape[0]]


def interpolated(unions: Unions, reads: Reads) -> Nodes:
    """Each element reads where it is taken, and all of the knots."""
    knots = np.int32(unions.of_all([n for n in reads.nodes[1:] if n is not None]))
    return unions.broadcast([*_known(reads)[: reads.nodes[0] is not None], knots], reads.shape)


def stacked(unions: Unions, reads: Reads) -> Nodes:
    """Each matrix of a stack is a thing of its own; the second operand may be a vector."""
    found = []
    lead = np.ndim(reads.values[0]) - 2
    stack = reads.shape[:lead] if len(reads.values) == 1 else None
    for n, value in zip(reads.nodes, reads.values, strict=True):
        vector = np.ndim(value) == 1
        stack = np.broadcast_shapes(stack or (), np.shape(value)[: -1 if vector else -2])
        if n is not None:
            axes = (0,) if vector else (-2, -1)
            found.append(unions.along(n, axes))
    assert stack is not None
    whole = unions.broadcast(found, stack)
    return np.broadcast_to(np.reshape(whole, (*stack, *(1,) * (len(reads.shape) - len(stack)))), reads.shape)


RULES: dict[Op, Callable[[Unions, Reads], Nodes]] = {
    **dict.fromkeys(
        (index_op, assign_op, window_op, embed_op, functional.window_op, concatenate_op, numbers_op, reshape_op,
         transpose_op, broadcast_op), picks,
    ),
    **dict.fromkeys((sum_op, mean_op, prod_op, max_op, min_op, nanmax_op, nanmin_op, logsumexp_op), reduced),
    **dict.fromkeys((softmax_op, log_softmax_op), mixed),
    **dict.fromkeys((cumsum_op, cumprod_op), running),
    **dict.fromkeys(
        (solve.solve_op, solve.inv_op, solve.cholesky_op, solve.eigh_op, solve.eigvalsh_op, singular.svd_op,
         singular.svdvals_op, norm.pinv_op, norm.qr_op, determinant.det_op, determinant.slogdet_op,
         determinant.cofactors_op), stacked,
    ),
    cast_op: same,
    scatter_op: scattered,
    bincount_op: counted,
    recurrence_op: recurring,
    einsum_op: einstein,
    matmul_op: matrices,
    dot_op: dots,
    vecdot_op: product("i", "i", ""),
    matvec_op: product("hi", "i", "h"),
    vecmat_op: product("i", "ij", "j"),
    convolve_op: convolved,
    correlate_op: convolved,
    functional.interp_op: interpolated,
}  # fmt: skip


def footprint(unions: Unions, reads: Reads) -> Nodes:
    """Give the nodes of the elements of a result."""
    if not reads.nodes or all(n is None for n in reads.nodes):
        return np.zeros(reads.shape, np.int32)
    rule = by_element if isinstance(reads.step.op, Elementwise) else RULES.get(reads.step.op, everything)
    return rule(unions, reads)
