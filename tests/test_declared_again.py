"""Ops that are declared again, as notebooks do: nothing grows or is mixed up; and where their kernels are kept."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

import numba
import numpy as np

from ops import catalog
from tape import elementwise_op, grad, hvp, kernels, structural_op, vjp
from tape.workspace import SCALARS

X = np.linspace(0.1, 2.0, 6)
V = np.array([0.3, -1.0, 0.5, 2.0, 0.1, -0.4])


def test_declaring_again_does_not_grow() -> None:
    def declare() -> Any:
        return elementwise_op(lambda x: x**3, lambda x, out: 3 * x**2, name="cube")

    first = declare()
    opcodes, kernel = len(catalog.OPS), kernels.array_kernel(first, 0, 3)
    for _ in range(5):
        op = declare()
        assert op.code == first.code
        assert kernels.array_kernel(op, 0, 3) == kernel
        elementwise_op(lambda x: x, lambda x, out, first=first: first(x), name="closed")
        structural_op(np.sum, lambda g, out, x: g + 0 * x)
        np.testing.assert_allclose(grad(lambda x, op=op: np.sum(op(x)))(X), 3 * X**2)
    assert len(catalog.OPS) == opcodes
    assert catalog.OPS[op.code] is op


def test_declaring_again_with_other_rules() -> None:
    """What was recorded with the old rule keeps it."""
    found = []
    for scale in range(3):
        if scale == 0:
            op = elementwise_op(lambda x: 0.0 * x, lambda x, out: 0.0 + x, name="again")
        elif scale == 1:
            op = elementwise_op(lambda x: 1.0 * x, lambda x, out: 1.0 + x, name="again")
        else:
            op = elementwise_op(lambda x: 2.0 * x, lambda x, out: 2.0 + x, name="again")
        found.append(vjp(lambda x, op=op: op(x), X))
    for scale, (value, pullback) in enumerate(found):
        np.testing.assert_array_equal(value, scale * X)
        np.testing.assert_array_equal(pullback(np.ones(6))[0], scale + X)


def test_a_ufunc_that_is_declared_again() -> None:
    for power in (2, 3):
        ufunc = numba.vectorize(["float64(float64)"])((lambda x: x**2) if power == 2 else (lambda x: x**3))
        elementwise_op(ufunc, (lambda x, out: 2 * x) if power == 2 else (lambda x, out: 3 * x**2), name="power_again")
        np.testing.assert_allclose(grad(lambda x, f=ufunc: np.sum(f(x)))(X), power * X ** (power - 1))


def test_rules_that_look_alike() -> None:
    """Constants tell rules apart, also those that Python takes to be equal."""
    plus = elementwise_op(lambda x: x, lambda x, out: np.copysign(1.0, 0.0) + 0 * x, name="alike")
    minus = elementwise_op(lambda x: x, lambda x, out: np.copysign(1.0, -0.0) + 0 * x, name="alike")
    assert grad(lambda x: np.sum(plus(x)))(X)[0] == 1.0
    assert grad(lambda x: np.sum(minus(x)))(X)[0] == -1.0


def test_more_ops_than_opcodes_on_numbers() -> None:
    """Those whose opcode is too large to be an instruction of its own work like others."""
    before = len(catalog.OPS)
    try:
        while len(catalog.OPS) < SCALARS + 2:
            catalog.OPS.append(catalog.LEAF)
        op = elementwise_op(lambda x: x**5, lambda x, out: 5 * x**4 + 0.0, name="fifth")
        assert op.code >= SCALARS
        np.testing.assert_allclose(grad(lambda x: np.sum(op(x)))(X), 5 * X**4)
        assert grad(op)(2.0) == 80.0
        np.testing.assert_allclose(hvp(lambda x: np.sum(op(x)), X, V), 20 * X**3 * V)
    finally:
        del catalog.OPS[before:]


PROGRAM = """
import logging
import numpy as np
from tape import elementwise_op, kernels
logging.basicConfig(level=logging.INFO, format="%(message)s")
op = elementwise_op(lambda x: x ** 3, lambda x, out: 3 * np.exp(np.log(x) * 2), name="stored")
kernels.array_kernel(op, 0, 3)
"""


def test_kernels_are_kept_on_disk(tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    said = []
    for program in (PROGRAM, PROGRAM, PROGRAM.replace("* 2", "* 2.0")):
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=300
        )
        said.append("compiling the backward kernel of stored" in done.stderr)
    assert said == [True, False, True]
