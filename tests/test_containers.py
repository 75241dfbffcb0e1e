"""Arguments in nested containers: gradients come back in the same structure."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any, NamedTuple

import numpy as np
import pytest

from tape import InputError, grad, value_and_grad

W, B = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0.5, -0.5])
Pair = namedtuple("Pair", "w b")


class Typed(NamedTuple):
    """A namedtuple of the other form."""

    w: Any
    b: Any


@dataclasses.dataclass
class Layer:
    """A dataclass with a method, a default and a field that is computed."""

    w: Any
    b: Any
    norm: Any = dataclasses.field(init=False, default=2.0)

    def __post_init__(self) -> None:
        if np.ndim(self.w) != 2:
            raise ValueError("w must be a matrix")

    def apply(self, x: Any) -> Any:
        """Map x."""
        return x @ self.w + self.b


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A dataclass that cannot be assigned to."""

    w: Any
    b: Any


@dataclasses.dataclass
class Slotted:
    """A dataclass with slots."""

    __slots__ = ("b", "w")
    w: Any
    b: Any


def loss(w: Any, b: Any) -> Any:
    """Give a loss with gradients 2 w and 3 b ** 2."""
    return np.sum(w**2) + np.sum(b**3)


def by_item(p: Any) -> Any:
    return loss(p["w"], p["b"])


def by_name(p: Any) -> Any:
    return loss(p.w, p.b)


def by_place(p: Any) -> Any:
    return loss(p[0], p[1])


@pytest.mark.parametrize(
    ("p", "f"),
    [
        ({"w": W, "b": B}, by_item), ({"b": B, "w": W}, by_item), (OrderedDict(w=W, b=B), by_item),
        (defaultdict(list, w=W, b=B), by_item), ([W, B], by_place), ((W, B), by_place), (Pair(W, B), by_name),
        (Typed(W, B), by_name), (Layer(W, B), by_name), (Frozen(W, B), by_name), (Slotted(W, B), by_name),
    ],
    ids=lambda x: type(x).__name__,
)  # fmt: skip
def test_one_level(p: Any, f: Any) -> None:
    value, g = value_and_grad(f)(p)
    assert value == loss(W, B)
    assert type(g) is type(p)
    gw, gb = (g["w"], g["b"]) if f is by_item else (g.w, g.b) if f is by_name else g
    assert type(gw) is type(gb) is np.ndarray
    np.testing.assert_array_equal(gw, 2 * W)
    np.testing.assert_array_equal(gb, 3 * B**2)
    if isinstance(p, dict):
        assert list(g) == list(p)
    if isinstance(p, Layer):
        assert g.norm == 0.0
        # The gradient is a Layer that works.
        np.testing.assert_array_equal(g.apply(B), B @ (2 * W) + 3 * B**2)


def test_nested() -> None:
    p = {
        "layers": [Layer(W.copy(), B.copy()), Layer(W.T.copy(), 2 * B)],
        "scale": (2.0, np.float64(3.0)),
        "head": {"w": W[0].astype(np.float32)},
    }

    def f(p: Any) -> Any:
        h = B
        for layer in p["layers"]:
            h = np.tanh(layer.apply(h))
        return np.sum(h) * p["scale"][0] * p["scale"][1] + np.sum(p["head"]["w"] ** 2)

    value, g = value_and_grad(f)(p)
    assert value == pytest.approx(f(p), rel=1e-14)
    assert list(g) == list(p)
    assert type(g["layers"][1]) is Layer
    assert type(g["scale"]) is tuple
    assert type(g["scale"][0]) is float
    assert type(g["scale"][1]) is np.float64
    assert g["head"]["w"].dtype == np.float32
    np.testing.assert_array_equal(g["head"]["w"], 2 * W[0])
    assert g["scale"][0] * 2.0 == pytest.approx(g["scale"][1] * 3.0)
    # One element against finite differences.
    for k, name, index in ((0, "w", (1, 0)), (0, "b", (1,)), (1, "w", (0, 1)), (1, "b", (0,))):
        array = getattr(p["layers"][k], name)
        old, h, values = array[index], 1e-5, []
        for s in (1, -1):
            array[index] = old + s * h
            values.append(f(p))
        array[index] = old
        assert getattr(g["layers"][k], name)[index] == pytest.approx((values[0] - values[1]) / (2 * h), abs=1e-8)


def test_several_containers_at_once() -> None:
    a, (b, c) = grad(lambda p, q, s: np.sum(p["x"] * q[0] * s) + q[1], (0, 1))({"x": B}, [B, 2.0], 3.0)
    np.testing.assert_array_equal(a["x"], 3 * B)
    np.testing.assert_array_equal(b, 3 * B)
    assert c == 1.0


def test_a_leaf_met_twice_is_two_inputs() -> None:
    g = grad(lambda p: np.sum(p[0] * p[1] ** 2))([B, B])
    np.testing.assert_array_equal(g[0], B**2)
    np.testing.assert_array_equal(g[1], 2 * B**2)


def test_empty_containers() -> None:
    assert grad(lambda p: np.sum(p["a"]) * 1.0, 0)({"a": np.zeros(0), "b": {}, "c": ()})["c"] == ()
    assert grad(lambda p: 1.0)({}) == {}
    assert grad(lambda p: 1.0)([]) == []


def test_lists_of_numbers_inside_a_container_stay_lists() -> None:
    g = grad(lambda p: p["a"][0] * p["a"][1] ** 2 + p["n"] ** 2)({"a": [2.0, 3.0], "n": 4})
    assert g == {"a": [9.0, 12.0], "n": 8.0}
    assert type(g["n"]) is float


@pytest.mark.parametrize("leaf", [None, "text", np.arange(3), True, object()])
def test_a_leaf_that_cannot_be_differentiated_is_named(leaf: Any) -> None:
    with pytest.raises(InputError, match=r"argument 0, at \['a'\]\[1\]"):
        grad(lambda p: p["b"])({"a": (1.0, leaf), "b": 2.0})


def test_the_function_gets_containers_of_its_own() -> None:
    p = {"w": W.copy(), "list": [1.0]}

    def f(p: Any) -> Any:
        p["extra"] = 1.0
        p["list"].append(2.0)
        p["w"] = p["w"] * 2
        return np.sum(p["w"]) * p["list"][0]

    g = grad(f)(p)
    assert set(p) == set(g) == {"w", "list"}
    assert len(p["list"]) == 1
    np.testing.assert_array_equal(g["w"], 2.0)
    assert g["list"] == [20.0]


def test_keys_of_mixed_types_and_attributes_kept() -> None:
    g = grad(lambda p: p[1] * p["a"] * p[(2, 3)])({1: 2.0, "a": 3.0, (2, 3): 5.0})
    assert g == {1: 15.0, "a": 10.0, (2, 3): 6.0}


def test_auxiliary_results_in_containers() -> None:
    _, aux = grad(lambda p: (np.sum(p.w), Layer(p.w * 2, {"b": p.b})), has_aux=True)(Pair(W, B))
    assert type(aux) is Layer
    np.testing.assert_array_equal(aux.w, 2 * W)
    np.testing.assert_array_equal(aux.b["b"], B)
    assert type(aux.b["b"]) is np.ndarray
