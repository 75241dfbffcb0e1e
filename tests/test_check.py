"""check_grads: it passes what is right and tells what is wrong where."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from tape import GradientCheckError, InputError, check_grads, custom_jvp, custom_vjp, from_callable, stop_gradient

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


# ---------------------------------------------------------------- modes and orders
@custom_jvp
def forward_is_wrong(x: Any) -> Any:
    """The rule of reverse mode is this one transposed, so both are wrong."""
    return np.sin(x)


forward_is_wrong.defjvp(lambda primals, tangents: (np.sin(primals[0]), 1.001 * np.cos(primals[0]) * tangents[0]))


def half(x: Any) -> Any:
    """Its first derivatives are right and its second ones wrong, in either mode."""
    return sine(x["a"]) * x["b"]


@custom_vjp
def sine(x: Any) -> Any:
    return np.sin(x)


sine.defvjp(lambda x: (np.sin(x), stop_gradient(np.cos(x))), lambda slope, g: (g * slope,))
POINT = {"a": np.array([0.1, 0.2, 1.5]), "b": np.ones((2, 1))}


def test_check_grads_of_one_mode() -> None:
    for modes in ("reverse", "forward", ("forward", "reverse"), ["reverse"]):
        for order in (1, 2):
            check_grads(
                lambda x, p: np.exp(x @ p["m"]) * p["s"], X, {"m": np.eye(3), "s": 2.0}, modes=modes, order=order
            )
            check_grads(lambda x: np.sum(np.tanh(x)) * x, X.astype(np.float32), modes=modes, order=order)
    assert "forward mode gives" in message(forward_is_wrong, X, modes="forward")
    assert "reverse mode gives" in message(forward_is_wrong, X, modes="reverse")
    assert "reverse mode gives" in message(forward_is_wrong, X)
    assert "forward mode gives" in message(forward_is_wrong, X, modes=("forward", "reverse"))


@pytest.mark.parametrize(
    ("modes", "name"),
    [
        (("reverse", "forward"), "forward over reverse"),
        ("reverse", "reverse over reverse"),
        ("forward", "forward over forward"),
    ],
)
def test_check_grads_sees_wrong_second_derivatives(modes: Any, name: str) -> None:
    check_grads(half, POINT, modes=modes, order=1)
    text = message(half, POINT, modes=modes)
    assert f"{name} mode gives 0, finite differences" in text
    # The largest is that of the last element, by itself.
    assert text.startswith(
        "second derivative by argument 0 (x), at ['a'], element [2], and by argument 0 (x), at ['a']"
    )
    assert ("['a'], element [2]: " in text) == (modes != "forward")


def test_check_grads_tells_which_pair_of_elements_is_wrong() -> None:
    def f(x: Any, y: Any) -> Any:
        z = x * 1.0
        z[700] = sine(y[1, 0]) * y[0, 1]
        return np.sum(z)

    text = message(f, np.ones(1000), np.full((2, 2), 0.7), directions=1)
    assert "second derivative by argument 1 (y), element [1, 0], and by argument 1 (y), element [1, 0]: " in text

    @custom_vjp
    def product(x: Any, y: Any) -> Any:
        return x * y

    product.defvjp(lambda x, y: (x * y, (stop_gradient(x), y)), lambda kept, g: (g * kept[1], g * kept[0]))
    text = message(lambda x, y: product(x[3], y["b"][1]), np.ones(5), {"b": (1.0, 2.0)})
    assert re.search(
        r"by argument 0 \(x\), element \[3\], and by argument 1 \(y\), at \['b'\]\[1\]: forward over", text
    )


def test_what_has_no_second_derivative_is_checked_to_first_order() -> None:
    """It is a warning, not an error; a wrong first derivative is an error still."""
    gamma = from_callable(math.gamma)
    with pytest.warns(UserWarning, match=r"forward over reverse mode and reverse over forward mode.*order=1"):
        check_grads(lambda x: np.log(gamma(x)), 1.5, rtol=1e-5)
    check_grads(lambda x: np.log(gamma(x)), 1.5, rtol=1e-5, order=1)
    assert "reverse mode" in message(lambda x: np.log(gamma(x)) + stop_gradient(x), 1.5, rtol=1e-5)

    @custom_vjp
    def detached(x: Any) -> Any:
        return np.sin(x)

    detached.defvjp(lambda x: (np.sin(x), x), lambda x, g: (g * math.cos(x),))
    with pytest.warns(UserWarning, match="DetachedError.*math"):
        check_grads(detached, 0.5)


def test_check_grads_of_functions_in_pieces() -> None:
    """They have second derivatives too, as long as no kink lies between the points of the differences."""
    check_grads(lambda x: np.maximum(x, 0.0) ** 2 + np.abs(x), np.array([-1.0, 0.5]))
    check_grads(lambda x: np.sort(x)[-1] * np.where(x > 0, x, 0.0), X)
    check_grads(lambda x: np.sum(x) * 2.0 + 1.0, X)
    check_grads(lambda x: np.linalg.inv(x), np.eye(3) + 0.1)


def test_check_grads_of_what_it_does_not_know() -> None:
    with pytest.raises(InputError, match=r"order must be 1, .* got 3"):
        check_grads(np.sin, X, order=3)
    for modes in ("backward", (), ("reverse", "reverse"), ("forward", "tangent")):
        with pytest.raises(InputError, match="modes must be 'reverse', 'forward' or both"):
            check_grads(np.sin, X, modes=modes)
