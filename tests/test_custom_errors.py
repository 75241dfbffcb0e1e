"""Rules that do not fit, close over recorded values, or raise; and threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from parallel import in_threads
from test_custom import V, X, by_jvp, by_vjp, raw

from tape import (
    InputError,
    RuleError,
    Tensor,
    UnsupportedError,
    custom_jvp,
    custom_vjp,
    grad,
    hvp,
    jvp,
    vjp,
)


# ---------------------------------------------------------------- errors
def test_a_missing_rule() -> None:
    f, h = custom_vjp(raw), custom_jvp(raw)
    np.testing.assert_array_equal(f(X, 1.0), raw(X, 1.0))
    with pytest.raises(RuleError, match=r"raw has no rule yet: call raw.defvjp\(forward, backward\)"):
        grad(lambda x: np.sum(f(x, 1.0)))(X)
    with pytest.raises(RuleError, match=r"raw has no rule yet: call raw.defjvp\(rule\)"):
        grad(lambda x: np.sum(h(x, 1.0)))(X)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "raw: backward must give a tuple of 2, a cotangent for each argument .* but it gave None"),
        (V, "raw: backward must give a tuple of 2, .* but it gave an ndarray"),
        ((V,), "raw: backward must give a tuple of 2, .* but it gave a tuple of 1"),
        ((V[:3], None), r"raw: for argument 0 \('x'\), at \['a'\], backward gave an array of shape \(3,\)"),
        (({"a": V[:3]}, None), r"raw: for argument 0 \('x'\), at \['a'\], backward gave .* where \(5,\) is needed"),
        (({"b": V}, None), r"raw: for argument 0 \('x'\) backward gave \{'b': \*\}, where \{'a': \*\} is needed"),
        (({"a": "text"}, None), r"raw: for argument 0 \('x'\), at \['a'\], backward gave a str, which is no array"),
        (({"a": V + 1j}, None), r"backward gave an array of complex128, where float64 is needed"),
        (({"a": None}, np.ones(2)), r"raw: for argument 1 \('y'\) backward gave an array of shape \(2,\)"),
    ],
)
def test_what_backward_gave_does_not_fit(answer: Any, message: str) -> None:
    def raw(x: Any, y: Any) -> Any:
        return x["a"] * y

    f = custom_vjp(raw)
    f.defvjp(lambda x, y: (raw(x, y), None), lambda _, g: answer)
    if answer is not None and len(answer) == 2 and not isinstance(answer[0], dict):
        message = r"raw: for argument 0 \('x'\) backward gave an ndarray, where \{'a': \*\} is needed"
    with pytest.raises(RuleError, match=message):
        grad(lambda a, y: np.sum(f({"a": a}, y)), (0, 1))(X, 2.0)
    np.testing.assert_allclose(grad(lambda x: np.sum(np.sin(x)))(X), np.cos(X))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda p, t: t[0], "raw: the rule must give a pair, the result and its tangent, but it gave an ndarray"),
        (lambda p, t: (p[0], t[0][:2]), r"raw: for the tangent of the result the rule gave an array of shape \(2,\)"),
        (
            lambda p, t: (p[0], (t[0], t[0])),
            r"raw: for the tangent of the result the rule gave \(\*, \*\), where \* is needed",
        ),
    ],
)
def test_what_the_rule_of_custom_jvp_gave_does_not_fit(answer: Any, message: str) -> None:
    def raw(x: Any) -> Any:
        return x * 1.0

    f = custom_jvp(raw)
    f.defjvp(answer)
    with pytest.raises(RuleError, match=message):
        jvp(f, (X,), (V,))
    with pytest.raises(RuleError):
        grad(lambda x: np.sum(f(x)))(X)


def test_a_forward_without_residuals() -> None:
    f = custom_vjp(raw)
    f.defvjp(lambda x, y, scale: raw(x, y), lambda _, g: (g, None, None))
    with pytest.raises(
        RuleError, match="raw: forward must give a pair, the result and the residuals, but it gave an ndarray"
    ):
        grad(lambda x: np.sum(f(x, 1.0)))(X)


def test_complex_results() -> None:
    f = custom_vjp(lambda x: x * 1j)
    f.defvjp(lambda x: (x * 1j, None), lambda _, g: (g,))
    with pytest.raises(UnsupportedError, match="complex"):
        grad(lambda x: np.sum(f(x)))(X)


def test_keyword_only_arguments() -> None:
    f = custom_vjp(lambda x, *, k=2: x * k)
    f.defvjp(lambda x: (x, None), lambda _, g: (g,))
    assert f(2.0, k=3) == 6.0
    with pytest.raises(InputError, match="keyword-only arguments 'k'"):
        grad(lambda x: f(x, k=3))(2.0)


def test_defjvps_with_another_number_of_rules() -> None:
    f = custom_jvp(raw)
    f.defjvps(None)
    with pytest.raises(RuleError, match="raw: defjvps got 1 rules for 3 arguments"):
        jvp(lambda x: f(x, 1.0), (X,), (V,))
    with pytest.raises(InputError, match="nondiff_argnums"):
        custom_jvp(raw, nondiff_argnums=1).defjvps(None)


def test_not_a_function() -> None:
    with pytest.raises(InputError, match="custom_vjp needs a function"):
        custom_vjp(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="nondiff_argnums"):
        custom_vjp(raw, nondiff_argnums=-1)


# ---------------------------------------------------------------- values that rules close over
def test_a_closure_over_a_recorded_value_is_refused() -> None:
    def outer(x: Any, w: Any, where: str) -> Any:
        f = custom_vjp(lambda x: x * 2.0)
        f.defvjp(
            lambda x: (x * w if where == "result" else x * 2.0, w if where == "residuals" else None),
            lambda _, g: (g * w if where == "backward" else g,),
        )
        return np.sum(f(x)) + np.sum(w)

    for where in ("result", "residuals", "backward"):
        with pytest.raises(RuleError, match=r"closes over .*(P|p)ass that value as an argument"):
            grad(outer, (0, 1))(X, V, where)
    with pytest.raises((RuleError, UnsupportedError)):
        jvp(lambda x, w: outer(x, w, "backward"), (X, V), (V, V))

    def forward_mode(x: Any, w: Any, where: str) -> Any:
        f = custom_jvp(lambda x: x * w if where == "result" else x * 2.0)
        f.defjvp(lambda p, t: (p[0] * 2.0, t[0] * w))
        return np.sum(f(x)) + np.sum(w)

    for where in ("result", "tangent"):
        with pytest.raises((RuleError, UnsupportedError)):
            grad(forward_mode, (0, 1))(X, V, where)
        with pytest.raises((RuleError, UnsupportedError)):
            jvp(lambda x, w, where=where: forward_mode(x, w, where), (X, V), (V, V))


def test_a_backward_rule_may_close_over_an_outer_variable_where_all_is_recorded() -> None:
    """Of the inner derivative the outer one sees every step."""

    def inner(x: Any, w: Any) -> Any:
        f = custom_vjp(lambda x: x * 1.0)
        f.defvjp(lambda x: (x * 1.0, x), lambda x, g: (g * w * x,))
        return grad(lambda x: np.sum(f(x)))(x)

    np.testing.assert_allclose(grad(lambda w: np.sum(inner(w * X, w)))(2.0), 2 * 2.0 * np.sum(X))


# ---------------------------------------------------------------- exceptions and threads
def test_an_exception_in_a_rule_leaves_all_usable() -> None:
    fail = {"forward": True, "backward": True}

    def forward(x: Any) -> Any:
        if fail["forward"]:
            raise KeyError("forward")
        return np.sin(x), x

    def backward(x: Any, g: Any) -> Any:
        if fail["backward"]:
            raise KeyError("backward")
        return (g * np.cos(x),)

    f = custom_vjp(lambda x: np.sin(x))
    f.defvjp(forward, backward)

    def h(x: Any) -> Any:
        return np.sum(f(x * 2.0))

    for step in ("forward", "backward"):
        for derivative in (
            lambda: grad(h)(X),
            lambda: jvp(h, (X,), (V,)),
            lambda: hvp(h, X, V),
            lambda: grad(lambda x: np.sum(grad(h)(x)))(X),
        ):
            with pytest.raises(KeyError, match=step):
                derivative()
            np.testing.assert_allclose(grad(lambda x: np.sum(np.sin(x)))(X), np.cos(X))
        fail[step] = False
    np.testing.assert_allclose(grad(h)(X), 2 * np.cos(2 * X))

    def recovers(x: Any) -> Any:
        fail["forward"] = True
        try:
            return h(x)
        except KeyError:
            fail["forward"] = False
            return h(x)

    np.testing.assert_allclose(grad(recovers)(X), 2 * np.cos(2 * X))


def test_threads() -> None:
    f, h = by_vjp(), by_jvp()
    found: dict[int, Any] = {}

    def work(k: int) -> None:
        x = X + k
        for _ in range(20):
            found[k] = grad(lambda x: np.sum(f(x, 2.0) * h(x, 1.0)))(x), hvp(lambda x: np.sum(f(x, 2.0)), x, V)

    in_threads(work)
    for k in range(4):
        np.testing.assert_allclose(found[k][0], 4 * np.sin(X + k) * np.cos(X + k), atol=1e-14)
        np.testing.assert_allclose(found[k][1], -2 * np.sin(X + k) * V, atol=1e-14)


def test_one_pullback_in_two_threads() -> None:
    f = by_vjp()
    _, pullback = vjp(lambda x, y: f(x, y), X, 2.0)
    found: dict[int, Any] = {}

    def work(k: int) -> None:
        for _ in range(50):
            found[k] = pullback(V * k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in range(1, 5):
        np.testing.assert_allclose(found[k][0], 2 * np.cos(X) * V * k)
        np.testing.assert_allclose(found[k][1], np.sin(X) @ V * k)


def test_rules_see_no_tensors_at_first_order() -> None:
    kinds: set[type] = set()
    f = custom_vjp(lambda x: np.sin(x))
    f.defvjp(lambda x: (kinds.add(type(x)), (np.sin(x), x))[1], lambda x, g: (kinds.add(type(g)), (g * np.cos(x),))[1])
    grad(lambda x: np.sum(f(x)))(X)
    assert Tensor not in kinds
    grad(lambda x: np.sum(grad(lambda x: np.sum(f(x)))(x)))(X)
    assert Tensor in kinds
