"""Linear algebra: values are NumPy's, gradients agree with finite differences, errors are NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numeric import directional
from recorded import Function, check, draw, values

from tape import grad

SHAPES = {
    "dot": (np.dot, ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((2, 4, 3), (3,)), ((2, 3),
    (4, 3, 2)),
            ((), (2, 3)), ((2,), ()), ((), ()), ((0,), (0,)), ((2, 0), (0, 3)), ((1, 1), (1, 1))),
    "vdot": (np.vdot, ((3,), (3,)), ((2, 3), (3, 2)), ((), ()), ((0,), (0,))),
    "inner": (np.inner, ((3,), (3,)), ((2, 3), (4, 3)), ((2, 3), (3,)), ((2, 2, 3), (4, 3)), ((2, 3), (2, 4, 3)),
    ((), (3,))),
    "outer": (np.outer, ((3,), (2,)), ((2, 2), (3,)), ((), (2,)), ((0,), (2,))),
    "linalg.outer": (np.linalg.outer, ((3,), (2,))),
    "matmul": (np.matmul, ((3,), (3,)), ((2, 3), (3, 4)), ((4, 2, 3), (3, 2)), ((2, 1, 2, 3), (4, 3, 2)), ((0, 2),
    (2, 3))),
    "kron": (np.kron, ((2, 2), (3, 2)), ((2,), (3,)), ((2,), (3, 2)), ((2, 2, 1), (3, 2)), ((), (2,)), ((), ())),
    "vecdot": (np.vecdot, ((3,), (3,)), ((2, 3), (3,)), ((4, 1, 3), (2, 3)), ((0,), (0,))),
    "matvec": (np.matvec, ((2, 3), (3,)), ((4, 2, 3), (3,)), ((2, 3), (4, 3)), ((4, 1, 2, 3), (5, 3)), ((2, 0), (0,))),
    "vecmat": (np.vecmat, ((3,), (3, 2)), ((4, 3), (3, 2)), ((3,), (4, 3, 2)), ((0,), (0, 2))),
    "linalg.vecdot": (np.linalg.vecdot, ((3,), (3,)), ((2, 3), (3,))),
    "linalg.vecdot axis": (lambda a, b: np.linalg.vecdot(a, b, axis=0), ((3, 2), (3, 2)), ((3, 1), (3, 2))),
    "tensordot": (np.tensordot, ((2, 3), (2, 3)), ((4, 2, 3), (2, 3, 2))),
    "tensordot 0": (lambda a, b: np.tensordot(a, b, 0), ((2, 3), (2,)), ((), ())),
    "tensordot axes": (lambda a, b: np.tensordot(a, b, ([2, 0], [1, -1])), ((2, 4, 3), (5, 3, 2))),
    "tensordot axis": (lambda a, b: np.linalg.tensordot(a, b, axes=(-1, 0)), ((2, 3), (3, 2)), ((3,), (3,)),
    ((0,), (0, 2))),
    "cross": (np.cross, ((3,), (3,)), ((2, 3), (3,)), ((4, 1, 3), (2, 3))),
    "cross axes": (lambda a, b: np.cross(a, b, axisa=0, axisb=1, axisc=0), ((3, 2), (2, 3))),
    "linalg.cross": (lambda a, b: np.linalg.cross(a, b, axis=0), ((3, 2), (3, 2))),
    "multi_dot": (lambda *m: np.linalg.multi_dot(m), ((2, 3), (3, 4)), ((2, 3), (3, 4), (4, 5)), ((3,), (3, 4),
    (4, 2)),
                  ((3,), (3, 4), (4,)), ((2, 5), (5, 3), (3, 4), (4, 2)), ((2, 3), (3, 2), (2,)), ((4, 4),) * 5),
    "solve": (np.linalg.solve, ((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (3,)), ((2, 3, 3), (3, 1)), ((3, 3),
    (2, 3, 1)),
              ((1, 1), (1,)), ((0, 0), (0,)), ((2, 2, 2), (2, 2))),
    "lstsq": (lambda a, b: np.linalg.lstsq(a, b)[0], ((4, 2), (4,)), ((3, 3), (3, 2)), ((2, 4), (2, 3))),
    "lstsq residuals": (lambda a, b: np.linalg.lstsq(a, b)[1], ((4, 2), (4,)), ((5, 2), (5, 3)), ((2, 2), (2,))),
    "tensorsolve": (np.linalg.tensorsolve, ((4, 2, 2), (4,)), ((2, 3, 6), (2, 3))),
    "tensorsolve axes": (lambda a, b: np.linalg.tensorsolve(a, b, axes=(0,)), ((4, 2, 2), (2, 2))),
}  # fmt: skip
SQUARE = ((3, 3), (1, 1), (0, 0), (2, 3, 3), (2, 1, 2, 2), (0, 2, 2))
TALL = ((3, 3), (4, 2), (1, 1), (2, 4, 3), (3, 1))
ANY = (*TALL, (2, 4), (2, 2, 3))
ONE = {
    "det": (np.linalg.det, SQUARE),
    "logdet": (lambda a: np.linalg.slogdet(a)[1], SQUARE),
    "slogdet": (lambda a: np.linalg.slogdet(a).sign * np.exp(np.linalg.slogdet(a).logabsdet), SQUARE),
    "inv": (np.linalg.inv, SQUARE),
    "power 3": (lambda a: np.linalg.matrix_power(a, 3), SQUARE),
    "power 6": (lambda a: np.linalg.matrix_power(a, 6) / 1000, SQUARE),
    "power -2": (lambda a: np.linalg.matrix_power(a, -2), SQUARE),
    "power 1": (lambda a: np.linalg.matrix_power(a, 1), SQUARE),
    "tensorinv": (lambda a: np.linalg.tensorinv(a, 1), ((3, 3), (4, 2, 2))),
    "tensorinv 2": (np.linalg.tensorinv, ((2, 2, 4), (2, 3, 3, 2))),
    "svdvals": (np.linalg.svdvals, ANY),
    "svd values": (lambda a: np.linalg.svd(a, compute_uv=False), ANY),
    "svd u": (lambda a: np.linalg.svd(a, full_matrices=False)[0], ANY),
    "svd s": (lambda a: np.linalg.svd(a, full_matrices=False).S, ANY),
    "svd vh": (lambda a: np.linalg.svd(a, full_matrices=False).Vh, ANY),
    "svd full": (lambda a: np.linalg.svd(a)[2], ((3, 3), (2, 2, 2))),
    "qr q": (lambda a: np.linalg.qr(a).Q, ANY),
    "qr r": (lambda a: np.linalg.qr(a)[1], ANY),
    "qr only r": (lambda a: np.linalg.qr(a, mode="r"), ANY),
    "pinv": (np.linalg.pinv, ANY),
    "cond": (np.linalg.cond, ANY),
    "cond -2": (lambda a: np.linalg.cond(a, -2), ANY),
    "cond fro": (lambda a: np.linalg.cond(a, "fro"), SQUARE[:2]),
    "cond 1": (lambda a: np.linalg.cond(a, 1), ((3, 3), (2, 3, 3))),
}  # fmt: skip
VECTOR_ORDERS = (None, 1, 2, 3, 2.5, 0.5, -1, -2, 0, np.inf, -np.inf)
MATRIX_ORDERS = (None, "fro", "f", "nuc", 1, -1, 2, -2, np.inf, -np.inf)
SYMMETRIC = {
    "cholesky": lambda a: np.linalg.cholesky(a),
    "cholesky upper": lambda a: np.linalg.cholesky(a, upper=True),
    "eigh values": lambda a: np.linalg.eigh(a)[0],
    "eigh vectors": lambda a: np.linalg.eigh(a).eigenvectors,
    "eigh upper": lambda a: np.linalg.eigh(a, UPLO="U")[1],
    "eigvalsh": lambda a: np.linalg.eigvalsh(a),
    "svd hermitian": lambda a: np.linalg.svd(a, hermitian=True)[1],
    "svd hermitian u": lambda a: np.linalg.svd(a, hermitian=True)[0],
    "svdvals hermitian": lambda a: np.linalg.svd(a, compute_uv=False, hermitian=True),
}


@pytest.mark.parametrize("name", SHAPES)
def test_functions_of_several_arrays(name: str, rng: np.random.Generator) -> None:
    """Every function in every combination of shapes; and with one operand recorded only."""
    f, *cases = SHAPES[name]
    for shapes in cases:
        operands = draw(rng, shapes)
        np.testing.assert_allclose(values(f, operands), f(*operands), rtol=1e-13, atol=1e-13)
        assert np.shape(values(f, operands)) == np.shape(f(*operands))
        check(f, operands, rng)
        for k in range(len(operands)):
            check(lambda x, k=k, o=operands, f=f: f(*o[:k], x, *o[k + 1 :]), [operands[k]], rng)


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_matrix(name: str, rng: np.random.Generator) -> None:
    """Single matrices and stacks of every size; non-contiguous ones."""
    f, shapes = ONE[name]
    for shape in shapes:
        (a,) = draw(rng, [shape])
        np.testing.assert_allclose(values(f, [a]), f(a), rtol=1e-12, atol=1e-12)
        check(f, [a], rng, 1e-6)
    wide = rng.normal(size=(3, 6)) + 2 * np.repeat(np.diag([1.0, 2.0, 3.5]), 2, axis=1)
    if name not in ("tensorinv 2",):
        check(f, [wide[:, ::2]], rng, 1e-6)
        check(f, [wide[:, ::2].T], rng, 1e-6)


@pytest.mark.parametrize("name", SYMMETRIC)
def test_functions_of_symmetric_matrices(name: str, rng: np.random.Generator) -> None:
    """Along symmetric directions the gradient is that of finite differences; it is symmetric itself."""
    f = SYMMETRIC[name]
    for shape in SQUARE:
        (x,) = draw(rng, [shape])
        a = x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])
        assert np.array_equal(values(f, [a]), f(a)) or np.allclose(values(f, [a]), f(a), rtol=1e-13)
        weight = rng.uniform(0.5, 1.5, size=np.shape(f(a)))
        got = grad(lambda a, f=f, w=weight: np.sum(f(a) * w))(a)
        np.testing.assert_allclose(got, np.swapaxes(got, -1, -2), rtol=1e-12, atol=1e-12)
        direction = rng.uniform(-1, 1, size=shape)
        direction = direction + np.swapaxes(direction, -1, -2)
        expected = np.sum(directional(f, [a], 0, direction) * weight)
        np.testing.assert_allclose(np.sum(got * direction), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("order", VECTOR_ORDERS, ids=str)
def test_vector_norms(order: Any, rng: np.random.Generator) -> None:
    """Every order, axis and keepdims; 0 has slope 0."""
    for shape, axis in (((4,), None), ((4,), 0), ((3, 4), 0), ((3, 4), -1), ((2, 3, 4), 1), ((1,), None), ((2, 1), 1)):
        for keepdims in (False, True):
            x = rng.normal(size=shape)

            def f(x: Any, axis: Any = axis, keepdims: bool = keepdims) -> Any:
                return np.linalg.norm(x, order, axis, keepdims)

            np.testing.assert_allclose(values(f, [x]), f(x), rtol=1e-15)
            assert np.shape(values(f, [x])) == np.shape(f(x))
            check(f, [x], rng, 1e-6)

            def g(x: Any, axis: Any = axis, keepdims: bool = keepdims) -> Any:
                return np.linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=2 if order is None else order)

            np.testing.assert_allclose(values(g, [x]), g(x), rtol=1e-15)
            check(g, [x], rng, 1e-6)
    np.testing.assert_array_equal(grad(lambda x: np.linalg.norm(x, order))(np.zeros(3)), np.zeros(3))
    x = np.array([0.0, 3.0, 0.0, -4.0])
    got = grad(lambda x: np.linalg.norm(x, order))(x)
    assert np.isfinite(got).all()
    assert got[0] == got[2] == 0


@pytest.mark.parametrize("order", MATRIX_ORDERS, ids=str)
def test_matrix_norms(order: Any, rng: np.random.Generator) -> None:
    """Every order, for single matrices, stacks, and any two axes."""
    for shape, axis in (
        ((3, 4), None),
        ((4, 3), (0, 1)),
        ((3, 3), (1, 0)),
        ((2, 3, 4), (-2, -1)),
        ((3, 2, 4), (2, 0)),
        ((1, 1), None),
    ):
        for keepdims in (False, True):
            (x,) = draw(rng, [shape])

            def f(x: Any, axis: Any = axis, keepdims: bool = keepdims) -> Any:
                return np.linalg.norm(x, order, axis, keepdims)

            np.testing.assert_allclose(values(f, [x]), f(x), rtol=1e-14)
            assert np.shape(values(f, [x])) == np.shape(f(x))
            check(f, [x], rng, 1e-6)
    if order is not None:
        (x,) = draw(rng, [(2, 3, 3)])
        check(lambda x: np.linalg.matrix_norm(x, ord=order), [x], rng, 1e-6)
    np.testing.assert_array_equal(grad(lambda x: np.linalg.norm(x, order))(np.zeros((3, 2))), np.zeros((3, 2)))


def test_norms_of_everything(rng: np.random.Generator) -> None:
    """Without order and axis the norm is that of all elements, of any number of axes."""
    for shape in ((), (2, 3, 2), (0,), (2, 0)):
        x = rng.normal(size=shape)
        check(lambda x: np.linalg.norm(x), [x], rng)
        check(lambda x: np.linalg.norm(x, keepdims=True), [x], rng)
        check(lambda x: np.linalg.vector_norm(x), [x], rng)
    check(lambda x: np.linalg.vector_norm(x, axis=(0, 2), keepdims=True), [rng.normal(size=(2, 3, 4))], rng)
    for order in (np.inf, 2, 1):
        assert values(lambda x, order=order: np.linalg.norm(x, order), [np.zeros(0)]) == 0
    np.testing.assert_array_equal(grad(lambda x: np.linalg.norm(x) ** 2)(np.zeros(3)), np.zeros(3))
    rows = np.array([[0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(grad(lambda x: np.sum(np.linalg.norm(x, axis=1)))(rows), [[0, 0], [0.6, 0.8]])


# ---------------------------------------------------------------- rules of behaviour
def test_a_zero_adjoint_stays_zero() -> None:
    """An infinite or NaN factor, or a singular matrix of a stack, does no harm where nothing flows back."""
    bad = np.array([[np.inf, 1.0], [2.0, np.nan]])
    products: list[Function] = [
        lambda x: np.einsum("ij,jk->ik", x, bad)[:, 1], lambda x: np.einsum("jk,ij->ik", bad, x)[0, :],
        lambda x: np.matvec(bad[None], x[0])[0], lambda x: np.vecdot(bad, x), lambda x: np.dot(bad[None], x)[0],
        lambda x: np.matmul(bad[None], x)[0], lambda x: np.matmul(x, bad[None])[0],
        lambda x: np.vecmat(x, bad[None])[0],
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        for f in products:
            np.testing.assert_array_equal(grad(lambda x, f=f: np.sum(np.where(False, f(x), 0.0)))(np.ones((2, 2))), 0)
        got = grad(lambda x: np.einsum("ij,jk->ik", x, bad)[1, 0])(np.ones((2, 2)))
    np.testing.assert_array_equal(got, [[0, 0], [np.inf, 2]])
    stack = np.array([[[1.0, 2.0], [2.0, 4.0]], [[2.0, 0.0], [0.0, 4.0]]])
    with np.errstate(all="ignore"):
        got = grad(lambda a: np.linalg.slogdet(a)[1][1])(stack)
        np.testing.assert_array_equal(got, [np.zeros((2, 2)), [[0.5, 0], [0, 0.25]]])
        got = grad(lambda a: np.linalg.qr(a)[1][1, 0, 0])(np.array([np.zeros((2, 2)), [[3.0, 1.0], [4.0, 1.0]]]))
        np.testing.assert_allclose(got, [np.zeros((2, 2)), [[-0.6, 0], [-0.8, 0]]], atol=1e-15)


def test_float32_stays_float32(rng: np.random.Generator) -> None:
    """Values and gradients of float32 operands are float32 and near those of float64."""
    for table in (SHAPES, {name: (f, *((s,) for s in shapes)) for name, (f, shapes) in ONE.items()}):
        for name, (f, *cases) in table.items():
            operands = draw(rng, cases[0], np.float32)
            assert values(f, operands).dtype == np.float32, name
            got = grad(lambda x, f=f, o=operands: np.sum(f(x, *o[1:])))(operands[0])
            expected = grad(lambda x, f=f, o=operands: np.sum(f(x, *(y.astype(float) for y in o[1:]))))(
                operands[0].astype(float)
            )
            assert got.dtype == np.float32, name
            np.testing.assert_allclose(
                got, expected, rtol=5e-3, atol=5e-3 * max(1, np.abs(expected).max()), err_msg=name
            )
    (x,) = draw(rng, [(3, 3)], np.float32)
    a = x @ x.T + np.eye(3, dtype=np.float32)
    for name, f in SYMMETRIC.items():
        assert grad(lambda a, f=f: np.sum(f(a)))(a).dtype == np.float32, name
    for order in VECTOR_ORDERS:
        assert grad(lambda x, order=order: np.linalg.norm(x, order))(x[0]).dtype == np.float32
        assert values(lambda x, order=order: np.linalg.norm(x, order), [x[0]]).dtype == np.float32
    for order in MATRIX_ORDERS:
        assert grad(lambda x, order=order: np.linalg.norm(x, order))(x).dtype == np.float32


@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (lambda x: np.linalg.solve(x * 0.0, np.ones(3)), (3, 3)), (lambda x: np.linalg.inv(x * 0.0), (3, 3)),
        (np.linalg.inv, (2, 3)), (np.linalg.det, (2, 3)), (np.linalg.slogdet, (3,)), (np.linalg.cholesky, (2, 3)),
        (lambda x: np.linalg.cholesky(-x @ x.T), (3, 3)), (np.linalg.eigh, (2, 3)), (np.linalg.eigvalsh, (3,)),
        (np.linalg.svd, (3,)), (np.linalg.svdvals, ()), (np.linalg.qr, (3,)), (np.linalg.pinv, (3,)),
        (np.linalg.cond, (3,)),
        (lambda x: np.linalg.matrix_power(x, 2), (2, 3)), (lambda x: np.linalg.matrix_power(x, 0.5), (2, 2)),
        (lambda x: np.linalg.solve(x, np.ones(2)), (3, 3)), (lambda x: np.dot(x, x), (2, 3)),
        (lambda x: np.inner(x, np.ones(2)), (3,)),
        (lambda x: np.matmul(x, 2.0), (3,)), (lambda x: np.tensordot(x, x, 1), (2, 3)),
        (lambda x: np.tensordot(x, x, ([0, 0], [0, 1])), (2, 2)),
        (lambda x: np.cross(x, x), (4,)), (lambda x: np.linalg.cross(x, x), (2,)),
        (lambda x: np.linalg.outer(x, x), (2, 2)),
        (lambda x: np.linalg.multi_dot([x]), (2, 2)), (lambda x: np.linalg.multi_dot([x, x, x]), (2, 2, 2)),
        (lambda x: np.linalg.norm(x, "nuc"), (3,)), (lambda x: np.linalg.norm(x, 3), (3, 3)),
        (lambda x: np.linalg.norm(x, axis=(0, 0)), (3, 3)),
        (lambda x: np.linalg.norm(x, 2), (2, 2, 2)), (lambda x: np.linalg.norm(x, axis=1.5j), (3,)),
        (lambda x: np.linalg.eigh(x, "X"), (2, 2)),
        (lambda x: np.linalg.tensorinv(x, 0), (2, 2)), (lambda x: np.linalg.tensorsolve(x, np.ones(3)), (3, 2)),
        (np.linalg.tensorinv, (2, 3, 4)),
    ],
)  # fmt: skip
def test_bad_input_raises_numpys_error(f: Function, shape: Any) -> None:
    """The error is of the type that NumPy raises."""
    x = np.ones(shape) + (np.eye(*shape) if len(shape) == 2 else 0)
    with pytest.raises(Exception, match=r".") as numpys:
        f(x)
    with pytest.raises(type(numpys.value)):
        grad(lambda x: np.sum(np.asarray(f(x)) if False else f(x)))(x)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.linalg.svd(x)[1], lambda x: np.linalg.qr(x, mode="complete")[1],
        lambda x: np.linalg.qr(x, mode="raw")[1],
        lambda x: np.dot(x, x.T, np.zeros((3, 3))), lambda x: np.einsum("ij->ji", x, out=np.zeros((2, 3))),
        lambda x: np.outer(x, x, np.zeros((6, 6))), lambda x: np.einsum("ij->ji", x, dtype=np.float32),
    ],
)  # fmt: skip
def test_what_has_no_derivative_says_so(f: Function) -> None:
    """A TypeError that names what to write instead."""
    with pytest.raises(TypeError, match=r"write|use|needs"):
        grad(lambda x: np.sum(f(x)))(np.ones((3, 2)))
