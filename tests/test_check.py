"""check_grads: it passes what is right and tells what is wrong where."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tape import GradientCheckError, InputError, check_grads, stop_gradient

X = np.array([1.0, 2.0, 3.0])


def test_check_grads_passes_what_is_right() -> None:
    assert check_grads(lambda x: np.sin(x) * x, X) is None
    check_grads(lambda x, p: {"a": x @ p["m"], "b": (p["s"] ** 2, 3, "text", None)}, X, {"m": np.eye(3), "s": 2.0})
    check_grads(lambda x, n: x**n, np.array([-1.0, 2.0]), 3)
    check_grads(lambda x: np.log(x), np.array([1e-4, 1e5]))
    check_grads(lambda x: np.exp(x), X.astype(np.float32))
    check_grads(lambda x: x[0] * x[1], [2.0, 3])
    check_grads(lambda x, y: x * np.cos(y), 2.0, X, argnums="y")
    check_grads(lambda x, y: y * np.cos(x), 2, X, argnums=0)
    check_grads(lambda x: np.sum(x), np.zeros((0, 3)))
    check_grads(lambda x: x**9, 0.0)


def test_check_grads_leaves_arguments_alone() -> None:
    x = X.copy()

    def f(x: Any) -> Any:
        x *= 2.0
        return x

    check_grads(f, x)
    np.testing.assert_array_equal(x, X)


def message(f: Any, *args: Any, **keywords: Any) -> str:
    with pytest.raises(GradientCheckError) as caught:
        check_grads(f, *args, **keywords)
    assert isinstance(caught.value, AssertionError)
    return str(caught.value)


def test_check_grads_names_argument_element_and_both_numbers() -> None:
    def f(x: Any, weights: Any) -> Any:
        wrong = weights["a"][1] * 1.0
        wrong[1, 2] = stop_gradient(wrong[1, 2]) * 4 - 3 * wrong[1, 2]
        return np.sum(x) * wrong[1, 2]

    text = message(f, np.ones(2), {"a": (1.0, np.ones((2, 3)))})
    found = re.search(r"reverse mode gives (\S+), finite differences (\S+); they differ by (\S+),", text)
    assert found
    got, expected, apart = map(float, found.groups())
    # The weight of the result, by 2 * (-3) here and by 2 * (4 - 3) in truth.
    assert got == pytest.approx(-3 * expected, rel=1e-6)
    assert apart == pytest.approx(abs(got - expected), rel=1e-2)
    assert "argument 1 (weights), at ['a'][1], element [1, 2]" in text


def test_check_grads_finds_the_largest_deviation() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        y[3] = stop_gradient(x[3])
        y[1777] = 5 * stop_gradient(x[1777])
        return np.sum(y)

    text = message(f, np.ones(2000))
    assert "element [1777]" in text
    assert "gives 0," in text
    text = message(lambda x: np.sum(np.where(X == 2, stop_gradient(x), x)), X)
    assert "element [1]" in text
    assert "element" not in message(lambda x: stop_gradient(x), 2.0)


def test_check_grads_sees_a_small_error_and_nan() -> None:
    assert "element [0]" in message(lambda x: np.sum(x + 1e-5 * stop_gradient(x)), np.ones(1))
    check_grads(lambda x: np.sum(x + 1e-5 * stop_gradient(x)), np.ones(1), rtol=1e-4)
    with np.errstate(all="ignore"):
        assert "nan" in message(lambda x: np.sqrt(x) - np.sqrt(x) + x, 0.0)


def test_check_grads_sees_a_function_that_is_not_one() -> None:
    rng = np.random.default_rng(1)
    assert "random" in message(lambda x: x * rng.normal(), 1.0)


def test_check_grads_without_anything_to_check() -> None:
    with pytest.raises(InputError, match="argnums"):
        check_grads(lambda x: x, 3)
    with pytest.raises(InputError, match="nothing of floating-point"):
        check_grads(lambda x: np.argmax(x), X)
    with pytest.raises(InputError, match="astype"):
        check_grads(lambda x: x * 1.0, np.arange(3), argnums=0)
