"""checkpoint: the same derivatives to the last bit, of any order, in less memory."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest
from parallel import in_threads

from tape import (
    InputError,
    RuleError,
    Tensor,
    checkpoint,
    custom_vjp,
    grad,
    hessian,
    hvp,
    jacobian,
    jvp,
    linearize,
    stop_gradient,
    value_and_grad,
    vjp,
)

X = np.linspace(-1.0, 2.0, 5)
V = np.array([0.3, -1.0, 0.5, 2.0, 0.1])


def segment(x: Any, w: Any, *, power: float = 2.0, extra: Any = None) -> Any:
    y = np.sin(x) * w
    for _ in range(3):
        y = np.tanh(y) ** power + x
    if extra is not None:
        y = y * extra["scale"]
    return {"y": y, "parts": (np.sum(y), 3, None, "text"), "mask": y > 1.0, "order": np.argsort(y)}


def chain(f: Any) -> Callable[..., Any]:
    def loss(x: Any, w: Any) -> Any:
        a = f(x, w)
        b = f(a["y"], 0.5, power=3.0, extra={"scale": V, "name": "none"})
        assert a["parts"][1:] == (3, None, "text")
        return np.sum(np.where(a["mask"], b["y"], 0.5 * b["y"])) + a["parts"][0] * b["y"][a["order"][0]]

    return loss


DERIVATIVES: dict[str, Callable[[Any], Any]] = {
    "grad": lambda h: value_and_grad(h, (0, 1))(X, 1.5),
    "jvp": lambda h: jvp(h, (X, 1.5), (V, 0.3)),
    "jvp by one": lambda h: jvp(h, (X, 1.5), (None, 0.3)),
    "linearize": lambda h: linearize(h, X, 1.5)[1](V, 0.3),
    "hessian": lambda h: hessian(h, (0, 1))(X, 1.5),
    "hvp": lambda h: hvp(lambda x: h(x, 1.5), X, V),
    "reverse over reverse": lambda h: grad(lambda x, w: np.sum(grad(h)(x, w) * V), (0, 1))(X, 1.5),
    "reverse over forward": lambda h: grad(lambda x, w: jvp(h, (x, w), (V, 0.3))[1], (0, 1))(X, 1.5),
    "forward over forward": lambda h: jvp(lambda x, w: jvp(h, (x, w), (V, 0.3))[1], (X, 1.5), (V, 0.3)),
    "third": lambda h: grad(lambda w: grad(grad(lambda u: h(X, u)))(w))(1.5),
    "outer variable": lambda h: grad(lambda w: np.sum(grad(lambda x: h(x, w))(X) ** 2))(1.5),
}


def leaves(a: Any, b: Any) -> Any:
    x, structure = optree.tree_flatten(a)
    y, other = optree.tree_flatten(b)
    assert structure == other
    assert [type(v) for v in x] == [type(v) for v in y]
    return zip(x, y, strict=True)


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_are_those_of_the_function(name: str) -> None:
    for got, expected in leaves(DERIVATIVES[name](chain(checkpoint(segment))), DERIVATIVES[name](chain(segment))):
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gradients_are_equal_to_the_last_bit(dtype: Any, rng: np.random.Generator) -> None:
    def layer(x: Any, w: Any, b: Any) -> Any:
        return np.tanh(x @ w + b) * np.exp(-x[:, :1])

    weights = [(rng.normal(size=(6, 6)).astype(dtype), rng.normal(size=6).astype(dtype)) for _ in range(4)]
    x = rng.normal(size=(7, 6)).astype(dtype)

    def loss(f: Any) -> Any:
        def total(weights: Any, x: Any) -> Any:
            for w, b in weights:
                x = f(x, w, b)
            return np.mean(x**2)

        return value_and_grad(total, (0, 1))(weights, x)

    for got, expected in leaves(loss(checkpoint(layer)), loss(layer)):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


def test_float32_and_python_numbers_stay() -> None:
    x = X.astype(np.float32)
    f = checkpoint(lambda x, c: (x * c, c * 2.0))
    value, g = value_and_grad(lambda x, c: np.sum(f(x, c)[0] * f(x, c)[1]), (0, 1))(x, 1.5)
    assert value.dtype == g[0].dtype == np.float32
    assert type(g[1]) is float


def test_plain_values_only_call_the_function() -> None:
    calls = []
    f = checkpoint(lambda x: (calls.append(x), x * 2.0)[1])
    assert f(3.0) == 6.0
    assert calls == [3.0]
    assert checkpoint(segment).__name__ == "segment"


def test_it_is_called_plainly_and_once_more_for_the_gradient() -> None:
    kinds: list[type] = []
    f = checkpoint(lambda x: (kinds.append(type(x)), np.sin(x))[1])
    grad(lambda x: np.sum(f(x)))(X)
    assert kinds == [np.ndarray, Tensor]


def test_checkpoints_in_checkpoints() -> None:
    calls = [0]

    def inner(x: Any) -> Any:
        calls[0] += 1
        for _ in range(5):
            x = np.sin(x) + 0.1 * x
        return x

    def nested(f: Any, mark: Any) -> Any:
        outer = mark(lambda x: f(f(x)) * x)
        middle = mark(lambda x: outer(outer(x)))
        return lambda x: np.sum(middle(x))

    expected = nested(inner, lambda f: f)
    calls[0] = 0
    got = nested(checkpoint(inner), checkpoint)
    np.testing.assert_allclose(grad(got)(X), grad(expected)(X), rtol=1e-13)
    np.testing.assert_allclose(hvp(got, X, V), hvp(expected, X, V), rtol=1e-11)


def test_several_pullbacks_of_one_call() -> None:
    f = checkpoint(lambda x, y: np.sin(x) * y)
    value, pullback = vjp(lambda x, y: f(f(x, y), 2.0), X, 3.0)
    plain = vjp(lambda x, y: np.sin(np.sin(x) * y) * 2.0, X, 3.0)[1]
    for c in (V, X, V):
        for got, expected in zip(pullback(c), plain(c), strict=True):
            np.testing.assert_array_equal(got, expected)
    np.testing.assert_allclose(jacobian(lambda x: f(x, 2.0))(X), jacobian(lambda x: np.sin(x) * 2.0)(X), rtol=1e-15)
    assert value.shape == (5,)


def test_arguments_without_effect_and_results_without_slope() -> None:
    f = checkpoint(lambda x, y: (np.sin(x), 4.0, np.floor(x)))
    np.testing.assert_array_equal(grad(lambda x, y: np.sum(f(x, y)[0]), 1)(X, X), np.zeros(5))
    np.testing.assert_array_equal(grad(lambda x, y: f(x, y)[1] + 0.0 * x[0])(X, X), np.zeros(5))
    np.testing.assert_array_equal(grad(lambda x: np.sum(f(x, x)[2] * x))(X), np.floor(X))
    assert jvp(lambda x: f(x, x)[1], (X,), (V,)) == (4.0, 0.0)


def test_rules_and_checkpoints_mix() -> None:
    f = custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda _, g: (3.0 * g,))
    h = checkpoint(lambda x: f(np.sin(x)) + stop_gradient(x))
    np.testing.assert_allclose(grad(lambda x: np.sum(h(x)))(X), 3 * np.cos(X))
    np.testing.assert_allclose(jvp(h, (X,), (V,))[1], 3 * np.cos(X) * V)


def test_methods() -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        @checkpoint
        def step(self, x: Any) -> Any:
            return np.sin(x) * self.scale

    model = Model(2.0)
    np.testing.assert_allclose(grad(lambda x: np.sum(model.step(x)))(X), 2 * np.cos(X))


# ---------------------------------------------------------------- memory
SIZE = 200_000
SEGMENTS, STEPS = 8, 6


def peak(f: Any) -> float:
    """Give how many arrays there are at most."""
    x = np.full(SIZE, 0.5)

    def loss(x: Any) -> Any:
        for _ in range(SEGMENTS):
            x = f(x)
        return np.sum(x)

    found: list[float] = []

    def measured() -> None:
        gc.collect()
        tracemalloc.start()
        try:
            grad(loss)(x)
            found.append(tracemalloc.get_traced_memory()[1] / x.nbytes)
        finally:
            tracemalloc.stop()

    # A new thread has no memory of earlier tapes.
    thread = threading.Thread(target=measured)
    thread.start()
    thread.join()
    return found[0]


def test_peak_memory_falls() -> None:
    """A chain of k segments of n steps keeps k results and n values, in place of kn, and adjoints likewise."""

    def steps(x: Any) -> Any:
        for _ in range(STEPS):
            x = np.sin(x)
        return x

    kept, recomputed = peak(steps), peak(checkpoint(steps))
    assert kept > 2 * SEGMENTS * STEPS * 0.9
    assert recomputed < 2.5 * (SEGMENTS + STEPS)


def test_peak_memory_of_checkpoints_in_checkpoints() -> None:
    def steps(x: Any) -> Any:
        for _ in range(STEPS):
            x = np.sin(x)
        return x

    inner = checkpoint(steps)

    def half(x: Any) -> Any:
        for _ in range(SEGMENTS):
            x = inner(x)
        return x

    # 8 outer segments of 8 inner ones of 6 steps: 384 steps.
    assert peak(checkpoint(half)) < 2.5 * (SEGMENTS + SEGMENTS + STEPS)


def test_gradients_are_not_kept() -> None:
    f = checkpoint(lambda x, y: np.sin(x) * y)
    x = np.ones(50_000)

    def work() -> None:
        grad(lambda x: np.sum(f(f(x, x), x)))(x)

    for _ in range(5):
        work()
    gc.collect()
    tracemalloc.start()
    try:
        work()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            work()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < x.nbytes / 4
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------- errors
def test_a_closure_over_a_recorded_value_is_refused() -> None:
    def total(x: Any, w: Any) -> Any:
        return np.sum(checkpoint(lambda x: x * w)(x))

    np.testing.assert_allclose(grad(total)(X, 2.0), np.full(5, 2.0))
    with pytest.raises(RuleError, match=r"<lambda>: the function gave a recorded value .* Pass that value as an arg"):
        grad(total, (0, 1))(X, 2.0)
    with pytest.raises(RuleError, match="Pass that value as an argument"):
        jvp(total, (X, 2.0), (V, 1.0))
    with pytest.raises(RuleError, match="Pass that value as an argument"):
        grad(lambda w: np.sum(grad(lambda x: total(x, w))(X)))(2.0)


def test_random_numbers_inside_are_noticed() -> None:
    rng = np.random.default_rng(0)
    f = checkpoint(lambda x: x * (rng.uniform(size=5) > 0.5))
    with pytest.raises(RuleError, match=r"gave another result when it was called again.* draw random numbers outside"):
        grad(lambda x: np.sum(f(f(f(x))) * x))(X)
    g = checkpoint(lambda x, mask: x * mask)
    mask = rng.uniform(size=5) > 0.5
    np.testing.assert_array_equal(grad(lambda x: np.sum(g(x, mask)))(X), mask)


def test_another_structure_is_noticed() -> None:
    state = [0]

    def f(x: Any) -> Any:
        state[0] += 1
        return (x, x) if state[0] % 2 else x

    with pytest.raises(RuleError, match="f: the checkpointed function gave another result"):
        grad(lambda x: np.sum(checkpoint(f)(x)[0]))(X)


def test_arguments_cannot_be_written_to() -> None:
    def f(x: Any) -> Any:
        x *= 2.0
        return x

    with pytest.raises(ValueError, match="read-only"):
        grad(lambda x: np.sum(checkpoint(f)(x + 0.0)))(X)

    def local(x: Any) -> Any:
        y = np.zeros_like(x)
        y[1:] = x[:-1] * 2.0
        y += x
        return y

    np.testing.assert_array_equal(grad(lambda x: np.sum(checkpoint(local)(x)))(X), [3.0, 3.0, 3.0, 3.0, 1.0])


def test_arrays_may_change_between_the_call_and_the_gradient() -> None:
    x, w = X.copy(), np.full(5, 2.0)
    _, pullback = vjp(lambda x: checkpoint(lambda x, w: np.sin(x) * w)(x, w), x)
    x[:] = w[:] = 0.0
    np.testing.assert_allclose(pullback(np.ones(5))[0], 2 * np.cos(X))


def test_an_exception_leaves_all_usable() -> None:
    fail = [1]

    def f(x: Any) -> Any:
        fail[0] -= 1
        if fail[0] == 0:
            raise KeyError("mine")
        return np.sin(x)

    def h(x: Any) -> Any:
        return np.sum(checkpoint(f)(x * 2.0))

    for when in (1, 2):
        for derivative in (lambda: grad(h)(X), lambda: jvp(h, (X,), (V,)), lambda: hvp(h, X, V)):
            fail[0] = when
            with pytest.raises(KeyError, match="mine"):
                derivative()
            np.testing.assert_allclose(grad(h)(X), 2 * np.cos(2 * X))


def test_not_a_function() -> None:
    with pytest.raises(InputError, match="checkpoint needs a function"):
        checkpoint(3.0)  # type: ignore[arg-type]


def test_threads() -> None:
    f = checkpoint(lambda x, k: np.sin(x) * k)
    found: dict[int, Any] = {}

    def work(k: int) -> None:
        for _ in range(20):
            found[k] = grad(lambda x: np.sum(f(f(x, 2.0), float(k))))(X)

    in_threads(work)
    for k in range(4):
        np.testing.assert_allclose(found[k], k * np.cos(2 * np.sin(X)) * 2 * np.cos(X))
