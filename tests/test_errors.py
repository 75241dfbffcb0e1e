"""Bad input gets an error that says what went wrong and what to write instead."""

from __future__ import annotations

import contextlib
import math
import re
from typing import Any

import numpy as np
import pytest

import ops
from tape import (
    DetachedError,
    InputError,
    ScalarOutputError,
    StaleTensorError,
    TapeError,
    UnsupportedError,
    elementwise_grad,
    grad,
    stop_gradient,
    value_and_grad,
)

X = np.array([1.0, 2.0, 3.0])


def error(f: Any, *args: Any, kind: type[Exception], of: Any = grad) -> str:
    """Give the message of the error that differentiating f raises, which must be of exactly this kind."""
    with pytest.raises(TapeError) as caught:
        of(f)(*args)
    assert type(caught.value) is kind, caught.value
    return str(caught.value)


# ---------------------------------------------------------------- outputs
@pytest.mark.parametrize("of", [grad, value_and_grad])
def test_array_output(of: Any) -> None:
    text = error(lambda x: x**2, X, kind=ScalarOutputError, of=of)
    assert "(3,)" in text
    assert "np.sum" in text
    assert "jacobian" in text
    assert issubclass(ScalarOutputError, TypeError)
    assert issubclass(ScalarOutputError, ValueError)


def test_output_of_one_element_is_not_a_number() -> None:
    assert "(1,)" in error(lambda x: x[:1], X, kind=ScalarOutputError)


def test_plain_array_output() -> None:
    assert "(3,)" in error(lambda x: np.ones(3), X, kind=ScalarOutputError)


@pytest.mark.parametrize(("output", "name"), [(None, "None"), ("s", "a str"), ([1.0], "a list"), ({}, "a dict")])
def test_output_of_another_kind(output: Any, name: str) -> None:
    assert name in error(lambda x: output, X, kind=ScalarOutputError)


def test_tuple_output_points_to_has_aux() -> None:
    assert "has_aux=True" in error(lambda x: (np.sum(x), 1), X, kind=ScalarOutputError)


def test_has_aux_without_a_pair() -> None:
    with pytest.raises(ScalarOutputError, match="pair"):
        grad(lambda x: np.sum(x), has_aux=True)(X)


def test_integer_and_boolean_output() -> None:
    assert "int64" in error(lambda x: np.argmax(x), X, kind=ScalarOutputError)
    assert "bool" in error(lambda x: np.any(x > 0), X, kind=ScalarOutputError)


def test_elementwise_grad_of_a_result_of_another_shape() -> None:
    with pytest.raises(ScalarOutputError, match="jacobian"):
        elementwise_grad(lambda x: np.outer(x, x))(X)


# ---------------------------------------------------------------- inputs
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.bool_])
def test_integer_array(dtype: Any) -> None:
    text = error(np.sum, X.astype(dtype), kind=InputError)
    assert np.dtype(dtype).name in text
    assert "astype(float)" in text
    assert issubclass(InputError, TypeError)


def test_integer_array_in_a_container_is_named_by_its_place() -> None:
    text = error(lambda p: np.sum(p["w"][0]), {"w": [np.arange(3), X]}, kind=InputError)
    assert "['w'][0]" in text
    assert "int64" in text


def test_complex_input() -> None:
    text = error(lambda x: np.sum(x), X + 1j, kind=UnsupportedError)
    assert "complex" in text
    assert "real and imaginary" in text
    assert "complex" in error(lambda x: x, 1j, kind=UnsupportedError)


def test_complex_inside() -> None:
    assert "complex" in error(lambda x: np.sum(x * (X + 1j)), X, kind=UnsupportedError)


@pytest.mark.parametrize(("x", "name"), [("abc", "a str"), (None, "None"), (True, "a bool"), (object(), "an object")])
def test_input_that_is_no_number(x: Any, name: str) -> None:
    text = error(lambda x: 1.0, x, kind=InputError)
    assert name in text
    assert "argnums" in text


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble, ">f8"])
def test_other_floating_types(dtype: Any) -> None:
    assert "float64 or float32" in error(np.sum, X.astype(dtype), kind=InputError)


def test_object_array() -> None:
    assert "object" in error(np.sum, np.array([1.0, None]), kind=InputError)


@pytest.mark.parametrize(
    ("argnums", "text"),
    [
        (2, "was not given"), (-3, "was not given"), ("z", "'z'"), ("kw", "no argument that was given"),
        ((0, 0), "twice"),
        ((0, -2), "twice"), (("x", 0), "twice"), (1.5, "positions or parameter names"), (True, "positions or"),
        (None, "positions or"),
    ],
)  # fmt: skip
def test_argnums(argnums: Any, text: str) -> None:
    def f(x: Any, y: Any, *, kw: Any = 1.0) -> Any:
        return x * y * kw

    with pytest.raises(InputError, match=re.escape(text)):
        grad(f, argnums)(1.0, 2.0)


def test_keyword_argument_by_position() -> None:
    with pytest.raises(InputError, match="argnums='name'"):
        grad(lambda x: x)(x=1.0)


def test_grad_of_what_is_no_function() -> None:
    with pytest.raises(InputError, match="needs a function, got a float"):
        grad(3.0)


# ---------------------------------------------------------------- values that would leave the tape
def test_math_module() -> None:
    text = error(lambda x: math.sin(x), 1.0, kind=DetachedError)
    assert "np.sin" in text
    assert "math" in text
    assert issubclass(DetachedError, TypeError)


@pytest.mark.parametrize("convert", [float, lambda t: "%f" % t, lambda t: math.floor(t)])  # noqa: UP031
def test_float(convert: Any) -> None:
    text = error(lambda x: x * convert(x), 2.0, kind=DetachedError)
    assert "gradient" in text
    assert "t.numpy()" in text


def test_complex_of_a_tensor() -> None:
    assert "complex" in error(lambda x: complex(x), 2.0, kind=DetachedError)


@pytest.mark.parametrize(
    "convert",
    [
        np.asarray, np.array, np.ascontiguousarray, lambda t: np.array([t, t]), lambda t: np.array([[1.0, t[0]]]),
        lambda t: np.asarray(t, dtype=float), lambda t: np.array(t, dtype=object), np.asarray_chkfinite,
    ],
)  # fmt: skip
def test_array_of_a_tensor(convert: Any) -> None:
    text = error(lambda x: np.sum(convert(x)), X, kind=DetachedError)
    assert "ops.array" in text
    assert "np.stack" in text


@pytest.mark.parametrize("index", [0, slice(None), (slice(None), 1), np.array([0, 1]), np.array([[True, False]] * 2)])
def test_writing_into_a_plain_array(index: Any) -> None:
    buffer = np.zeros((2, 2))

    def f(x: Any) -> Any:
        buffer[index] = x[0]
        return np.sum(buffer)

    text = error(f, X, kind=DetachedError)
    assert "np.zeros_like(t)" in text
    assert "ops.zeros" in text
    np.testing.assert_array_equal(buffer, 0.0)


def test_masks_and_positions_may_become_plain() -> None:
    """They have no gradient to lose, and plain arrays are indexed by them."""

    def f(x: Any) -> Any:
        mask, order = np.asarray(x > 1.5), np.asarray(np.argsort(-x))
        assert type(mask) is type(order) is np.ndarray
        assert mask.tolist() == [False, True, True]
        assert X[x > 1.5].tolist() == [2.0, 3.0]
        return np.sum(x * X[order])

    np.testing.assert_array_equal(grad(f)(X), [3.0, 2.0, 1.0])


def test_writing_an_array_into_a_plain_array() -> None:
    buffer = np.zeros((2, 3))

    def f(x: Any) -> Any:
        buffer[0] = x
        return np.sum(buffer)

    assert "ops.zeros" in error(f, X, kind=DetachedError)
    np.testing.assert_array_equal(buffer, 0.0)


def test_adding_to_a_plain_array_in_place() -> None:
    buffer = np.ones(3)

    def f(x: Any) -> Any:
        nonlocal buffer
        buffer += x
        return np.sum(buffer)

    assert "zeros" in error(f, X, kind=DetachedError)
    np.testing.assert_array_equal(buffer, np.ones(3))


def test_out_of_a_plain_array() -> None:
    buffer = np.zeros(3)
    text = error(lambda x: np.sum(np.sin(x, out=buffer)), X, kind=DetachedError)
    assert "out=" in text
    np.testing.assert_array_equal(buffer, 0.0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, b: np.sum(x, out=b), lambda x, b: np.add.reduce(x, out=b), lambda x, b: np.clip(x, 0, 1, out=b),
        lambda x, b: np.cumsum(x, out=b), lambda x, b: np.dot(x, x, out=b), lambda x, b: np.copyto(b, x),
        lambda x, b: np.put(b, [0], x[0]), lambda x, b: np.add.at(b, [0], x[0]), lambda x, b: np.stack([x, x], out=b),
        lambda x, b: np.concatenate([x, x], out=b), lambda x, b: np.matmul(x, x, out=b), lambda x, b: np.mean(x, out=b),
        lambda x, b: np.take(x, [0], out=b), lambda x, b: np.place(b, b == 0, x), lambda x, b: np.putmask(b, b == 0, x),
        lambda x, b: np.fill_diagonal(b, x), lambda x, b: np.einsum("i,i", x, x, out=b), lambda x, b: b.fill(x[0]),
        lambda x, b: b.dot(x), lambda x, b: np.multiply.outer(x, x, out=b), lambda x, b: np.max(x, out=b),
    ],
)  # fmt: skip
def test_no_function_writes_into_a_plain_array_unseen(function: Any) -> None:
    """Whatever takes a buffer refuses a plain one, or gives a recorded result and leaves the buffer alone."""
    for shape in ((), (3,), (3, 3)):
        buffer = np.zeros(shape)

        def f(x: Any, buffer: Any = buffer) -> Any:
            result = function(x, buffer)
            # Not refused: then nothing was lost.
            assert result is not None
            assert result is not buffer
            return np.sum(result)

        with contextlib.suppress(TypeError, ValueError):
            grad(f)(X)
        np.testing.assert_array_equal(buffer, 0.0)


def test_item() -> None:
    assert "t[0]" in error(lambda x: x.item(0), X, kind=DetachedError)


def test_float_as_an_index() -> None:
    with pytest.raises(TypeError):
        grad(lambda x: X[x])(1.0)
    with pytest.raises(TypeError, match="index"):
        grad(lambda x: sum(x for _ in range(x)))(3.0)


# ---------------------------------------------------------------- functions without a rule
def test_an_unsupported_function_is_named_with_the_nearest_supported_one() -> None:
    text = error(lambda x: np.sum(np.linalg.eigvals(np.outer(x, x))), X, kind=UnsupportedError)
    assert "np.linalg.eigvals has no derivative rule" in text
    assert "eigvalsh" in text.split("nearest supported")[1]
    assert issubclass(UnsupportedError, TypeError)
    assert issubclass(UnsupportedError, NotImplementedError)


def test_an_unsupported_ufunc_is_named_with_the_nearest_supported_one() -> None:
    made = np.frompyfunc(lambda v: v, 1, 1)
    assert "no derivative rule" in error(made, 1.0, kind=UnsupportedError)
    text = error(lambda x: np.sum(np.hypot.reduce(x)), X, kind=UnsupportedError)
    assert "hypot.reduce" in text
    assert "nearest supported" in text


def test_where_without_out() -> None:
    text = error(lambda x: np.sum(np.sqrt(x, where=X > 1)), X, kind=UnsupportedError)
    assert "out=" in text
    assert "np.where" in text


# ---------------------------------------------------------------- values of another tape
def kept() -> Any:
    """Give a Tensor that outlived its tape."""
    store: list[Any] = []

    def f(x: Any) -> Any:
        store.append(x * 1.0)
        return np.sum(x)

    grad(f)(X)
    return store[0]


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t + 1.0, lambda t: 1.0 + t, lambda t: t * t, lambda t: X + t, np.sin, np.sum,
        lambda t: t[0], lambda t: t[:2],
        lambda t: t.T, lambda t: t.reshape(3, 1),
        lambda t: t @ t, lambda t: t.numpy(), lambda t: bool(t[0]), lambda t: t > 1.0,
        lambda t: t.__setitem__(0, 1.0), lambda t: t.__setitem__(slice(None), 1.0), list, stop_gradient,
        lambda t: f"{t:.2f}",
        lambda t: np.stack([t, t]), lambda t: np.zeros_like(t) + t, lambda t: ops.array([t, t]),
        lambda t: t.__iadd__(1.0),
        lambda t: t[np.array([0, 1])], lambda t: t.tolist(), lambda t: t.copy(),
    ],
)  # fmt: skip
def test_a_tensor_that_outlived_its_tape(use: Any) -> None:
    with pytest.raises(StaleTensorError, match="outlived its tape"):
        use(kept())
    # The same in the middle of another recording.
    t = kept()
    with pytest.raises(StaleTensorError, match="outlived its tape"):
        grad(lambda x: np.sum(x) + np.sum(use(t)))(X)


def test_a_stale_tensor_can_still_be_printed() -> None:
    t = kept()
    assert "finished tape" in repr(t)
    assert "(3,)" in str(t)
    assert t.shape == (3,)
    assert len(t) == 3


def test_a_stale_number() -> None:
    store: list[Any] = []
    grad(lambda x: store.append(x) or x * 2.0)(1.0)
    for use in (lambda t: t + 1.0, lambda t: 2.0 * t, lambda t: -t, lambda t: t**2, lambda t: t < 1, bool, int):
        with pytest.raises(StaleTensorError, match="has_aux"):
            use(store[0])


def test_a_stale_tensor_as_result() -> None:
    t = kept()
    with pytest.raises(StaleTensorError):
        grad(lambda x: np.sum(x))(t)
    store: list[Any] = []
    grad(lambda x: store.append(x) or x * 2.0)(1.0)
    with pytest.raises(StaleTensorError):
        grad(lambda x: store[0])(1.0)


def test_a_stale_tensor_in_the_aux() -> None:
    t = kept()
    with pytest.raises(StaleTensorError):
        grad(lambda x: (np.sum(x), t), has_aux=True)(X)
