"""Jacobians: shapes, containers, modes, threads, progress."""

from __future__ import annotations

import dataclasses
import pickle
import sys
from typing import Any

import numpy as np
import pytest

from tape import (
    InputError,
    MissingPackageError,
    OutputError,
    batch,
    grad,
    jacobian,
    jacobian_forward,
    jacobian_reverse,
    value_and_jacobian,
)
from tape.jacobians import _Jacobian

BOTH = [jacobian_forward, jacobian_reverse]
X = np.array([1.0, 2.0, 3.0])


def plane(x: Any) -> Any:
    """Give an array with two axes."""
    return np.outer(x, np.sin(x))


def expected_plane(x: Any) -> Any:
    """Give its Jacobian by hand."""
    eye = np.eye(len(x))
    return eye[:, None, :] * np.sin(x)[None, :, None] + x[:, None, None] * (np.cos(x)[:, None] * eye)[None]


@pytest.mark.parametrize("make", [jacobian, *BOTH])
def test_shapes(make: Any) -> None:
    """The result has the axes of the function's result, then those of the argument."""
    np.testing.assert_allclose(make(plane)(X), expected_plane(X), rtol=1e-14)
    a = np.arange(6.0).reshape(2, 3)
    found = make(lambda a: a.T * 2)(a)
    assert found.shape == (3, 2, 2, 3)
    np.testing.assert_array_equal(found, 2 * np.einsum("jk,il->ijkl", np.eye(2), np.eye(3)))
    assert make(lambda x: x * 3)(2.0) == 3.0
    assert type(make(lambda x: x * 3)(2.0)) is float
    np.testing.assert_array_equal(make(lambda x: x * X)(2.0), X)
    np.testing.assert_array_equal(make(lambda x: np.sum(x * x))(X), 2 * X)
    assert make(lambda x: x[:0])(X).shape == (0, 3)
    assert make(lambda x: np.sum(x) * X)(np.zeros(0)).shape == (3, 0)


@pytest.mark.parametrize("make", BOTH)
def test_containers(make: Any) -> None:
    """Each value of the result has the container of the argument."""

    @dataclasses.dataclass
    class Parameters:
        w: Any
        b: Any

    def f(p: Any, k: float) -> Any:
        return {"y": p.w * k + p.b, "n": [np.sum(p.w), p.b * 2, X]}

    found = make(f)(Parameters(X, 1.5), 2.0)
    np.testing.assert_array_equal(found["y"].w, 2 * np.eye(3))
    np.testing.assert_array_equal(found["y"].b, np.ones(3))
    np.testing.assert_array_equal(found["n"][0].w, np.ones(3))
    assert found["n"][0].b == 0.0
    assert found["n"][1].b == 2.0
    np.testing.assert_array_equal(found["n"][2].w, np.zeros((3, 3)))
    by_both = make(f, argnums=(0, 1))(Parameters(X, 1.5), 2.0)
    np.testing.assert_array_equal(by_both["y"][1], X)
    np.testing.assert_array_equal(make(f, argnums="k")(Parameters(X, 1.5), 2.0)["y"], X)


@pytest.mark.parametrize("make", BOTH)
def test_one_value_twice_and_an_argument_itself(make: Any) -> None:
    y = make(lambda x: (x, x * 2, x))(X)
    np.testing.assert_array_equal(y[0], np.eye(3))
    np.testing.assert_array_equal(y[1], 2 * np.eye(3))
    np.testing.assert_array_equal(y[2], np.eye(3))


def test_aux_and_value() -> None:
    found, extra = jacobian(lambda x: (x * 2, {"mean": np.mean(x)}), has_aux=True)(X)
    np.testing.assert_array_equal(found, 2 * np.eye(3))
    assert extra == {"mean": 2.0}
    value, found = value_and_jacobian(np.square)(X)
    np.testing.assert_array_equal(value, X**2)
    np.testing.assert_array_equal(found, np.diag(2 * X))
    (value, extra), _ = value_and_jacobian(lambda x: (x, 1), has_aux=True)(X)
    assert extra == 1

    @jacobian(argnums=1)
    def scaled(a: Any, b: Any) -> Any:
        return a * b

    np.testing.assert_array_equal(scaled(2.0, X), 2 * np.eye(3))


def test_float32_stays_float32() -> None:
    for make in BOTH:
        found = make(plane)(X.astype(np.float32))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected_plane(X), rtol=1e-5)


@pytest.mark.parametrize("make", BOTH)
def test_ops_that_python_does(make: Any) -> None:
    """A sweep that comes back to Python gives the same as a native one."""
    found = make(lambda x: np.cumsum(np.sort(x)) * np.linalg.det(np.outer(x, x) + np.eye(3)))(X)
    step = 1e-6
    for k in range(3):
        up, down = X + step * np.eye(3)[k], X - step * np.eye(3)[k]
        f = [np.cumsum(np.sort(x)) * np.linalg.det(np.outer(x, x) + np.eye(3)) for x in (up, down)]
        np.testing.assert_allclose(found[:, k], (f[0] - f[1]) / (2 * step), rtol=1e-7)


@pytest.mark.parametrize("make", BOTH)
def test_several_threads_give_the_same(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(0.1, 1.0, 40)

    def f(x: Any) -> Any:
        return np.tanh(np.outer(x, x) @ x) * np.sum(x)

    alone = make(f)(x)
    monkeypatch.setattr(batch, "SERIAL", 0.0)
    np.testing.assert_array_equal(make(f)(x), alone)


def test_progress(capsys: pytest.CaptureFixture[str]) -> None:
    """The bar counts sweeps, on the standard error stream."""
    pytest.importorskip("tqdm")
    for make in BOTH:
        make(plane, progress=True)(X)
        written = capsys.readouterr().err
        total = 3 if make is jacobian_forward else 9
        assert f"{total}/{total}" in written
    jacobian(lambda x: np.sort(x) * np.sum(x), progress=True)(X)
    assert "3/3" in capsys.readouterr().err


def test_progress_without_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(MissingPackageError, match="tqdm: install it"):
        jacobian(plane, progress=True)(X)


def test_inside_an_outer_derivative() -> None:
    for make in BOTH:
        found = grad(lambda x, make=make: np.sum(make(plane)(x) ** 2))(X)
        again = grad(lambda x: np.sum(expected_plane(x) ** 2))(X)
        np.testing.assert_allclose(found, again, rtol=1e-13)
        second = make(make(plane))(X)
        assert second.shape == (3, 3, 3, 3)
        np.testing.assert_allclose(second, np.swapaxes(second, -1, -2), atol=1e-14)


def test_errors() -> None:
    with pytest.raises(OutputError, match="bool"):
        jacobian(lambda x: x > 0)(X)
    with pytest.raises(OutputError, match="str"):
        jacobian(lambda x: {"name": "x", "y": x})(X)
    with pytest.raises(InputError, match="whole numbers"):
        jacobian(lambda x: x)(np.arange(3))
    with pytest.raises(InputError, match="function"):
        jacobian(3)(X)


def test_pickles_and_repr() -> None:
    made = pickle.loads(pickle.dumps(jacobian_forward(np.sin)))
    assert isinstance(made, _Jacobian)
    np.testing.assert_allclose(made(X), np.diag(np.cos(X)))
    assert "jacobian" in repr(made)
