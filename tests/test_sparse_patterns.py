"""Patterns read off the tape: exact for every kind of native entry, never too small for others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sparsely import EXACT, X, check, dense, differences
from test_catalogue import SMOOTH, draw, fix, generator
from test_pushforward import examples_of, floating

from ops.catalog import OPS, Structural
from tape import (
    jacobian_sparsity,
    sparse_jacobian,
)


@pytest.mark.parametrize("name", EXACT)
def test_exact_pattern(name: str) -> None:
    check(EXACT[name], X)


CONSERVATIVE = {
    "where": lambda x: np.where(x > 0, x**2, x[::-1]),
    "max": lambda x: np.max(np.reshape(x, (2, 3)), axis=1),
    "max of all": lambda x: np.max(x) * x,
    "relu": lambda x: np.maximum(x, 0.0),
    "times zero": lambda x: x * np.array([0.0, 1, 0, 1, 1, 0]),
    "solve": lambda x: np.linalg.solve(np.reshape(x[:4], (2, 2)), x[4:]),
    "determinants": lambda x: np.linalg.det(np.reshape(x[:4], (1, 2, 2))),
    "eigenvalues": lambda x: np.linalg.eigvalsh(np.reshape(x[:4], (2, 2)) + np.reshape(x[:4], (2, 2)).T),
    "interp": lambda x: np.interp(x, np.array([-2.0, 0.0, 2.0]), x[:3]),
    "interp at": lambda x: np.interp(x, np.array([-2.0, 0.0, 2.0]), np.array([1.0, 3.0, 2.0])),
    "median": lambda x: np.median(x) * x[:2],
}


@pytest.mark.parametrize("name", CONSERVATIVE)
def test_pattern_lacks_nothing(name: str, rng: np.random.Generator) -> None:
    for x in (X, rng.normal(size=6), rng.normal(size=6)):
        check(CONSERVATIVE[name], x, exact=False, tolerance=1e-9)


@pytest.mark.parametrize("name", ["difference", "outer", "matrix product", "loop", "filling", "masked write", "rolled"])
def test_agrees_with_differences(name: str) -> None:
    f = EXACT[name]
    np.testing.assert_allclose(sparse_jacobian(f)(X).toarray(), differences(f, X), atol=1e-6)


@pytest.mark.parametrize("name", ["elementwise", "broadcast rows", "sum of rows", "matrix product", "gather", "joined"])
def test_single_precision(name: str) -> None:
    f = EXACT[name]

    def single(x: Any) -> Any:
        return f(x).astype(np.float32)

    got = sparse_jacobian(single)(X.astype(np.float32))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got.toarray(), sparse_jacobian(f)(X).toarray(), rtol=1e-4, atol=1e-5)


OPERATIONS = [op for op in OPS if isinstance(op, Structural) and op.differentiable]


@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: op.name)
def test_every_structural_op(op: Structural) -> None:
    for operands, parameters in examples_of(op):
        positions = floating(op, operands)
        if not positions or np.asarray(op.forward(*operands, **parameters)).dtype.kind != "f":
            continue

        def f(*given: Any, operands: Any = operands, positions: Any = positions, parameters: Any = parameters) -> Any:
            whole = list(operands)
            for k, x in zip(positions, given, strict=True):
                whole[k] = x
            return op(*whole, **parameters)

        for chosen in {(k,) for k in range(len(positions))} | {tuple(range(len(positions)))}:
            arguments = [np.asarray(operands[k]) for k in positions]
            if sum(a.size for a in arguments) > 200:
                continue
            every = tuple(range(len(arguments)))
            expected = dense(f, *arguments)
            pattern = jacobian_sparsity(f, every)(*arguments).toarray()
            assert not np.any((expected != 0) & ~pattern)
            if len(chosen) < len(every):  # the other operands are constants
                one = chosen[0]
                start = sum(a.size for a in arguments[:one])
                part = expected[:, start : start + arguments[one].size]
                alone = jacobian_sparsity(f, one)(*arguments).toarray()
                assert not np.any((part != 0) & ~alone)


@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
def test_every_elementwise_op(op: Any) -> None:
    for shapes in ([(4,)] * op.nin, [(2, 3)] * (op.nin - 1) + [(3,)], [()] * op.nin):
        operands = fix(op, draw(op, generator(op), shapes))
        for k in range(op.nin):
            if not op.has_rule(k) or np.asarray(operands[k]).dtype.kind != "f":
                continue

            def f(x: Any, k: int = k, operands: Any = operands) -> Any:
                return op(*operands[:k], x, *operands[k + 1 :])

            size = np.size(operands[k])
            pattern = jacobian_sparsity(f)(operands[k]).toarray()
            expected = np.zeros(pattern.shape, bool)
            count = len(pattern)
            expected[np.arange(count), np.arange(count) % size if count > size else np.arange(count)] = True
            np.testing.assert_array_equal(pattern, expected)
            assert not np.any((dense(f, operands[k]) != 0) & ~pattern)
