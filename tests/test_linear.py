"""vjp, jvp and linearize: which arguments are differentiated, and what comes back."""

from __future__ import annotations

import numpy as np
import pytest

from tape import InputError, TangentError, jvp, linearize, vjp

X = np.array([1.0, 2.0, 3.0])
CHOSEN = np.array([0, 2])


def taken(x, i, k=2.0):
    """Give some elements, scaled."""
    return x[i] * k


def test_argnums_of_vjp():
    _, pullback = vjp(taken, X, CHOSEN, argnums=0)
    np.testing.assert_array_equal(pullback(np.ones(2)), [2.0, 0.0, 2.0])
    _, pullback = vjp(taken, X, CHOSEN, argnums=(0,))
    np.testing.assert_array_equal(pullback(np.ones(2))[0], [2.0, 0.0, 2.0])
    _, pullback = vjp(taken, X, CHOSEN, 3.0, argnums=(0, "k"))
    by_x, by_k = pullback(np.ones(2))
    np.testing.assert_array_equal(by_x, [3.0, 0.0, 3.0])
    assert by_k == 4.0
    assert type(by_k) is float


def test_argnums_of_linearize():
    _, pushforward = linearize(taken, X, CHOSEN, argnums=0)
    np.testing.assert_array_equal(pushforward(X), [2.0, 6.0])
    _, pushforward = linearize(taken, X, CHOSEN, 4.0, argnums=(0, 2))
    np.testing.assert_array_equal(pushforward(X, 1.0), [5.0, 15.0])
    np.testing.assert_array_equal(pushforward(None, 1.0), [1.0, 3.0])


def test_what_jvp_holds_fixed_may_be_anything():
    value, tangent = jvp(taken, (X, CHOSEN), (X, None))
    np.testing.assert_array_equal(value, [2.0, 6.0])
    np.testing.assert_array_equal(tangent, [2.0, 6.0])
    _, tangent = jvp(taken, (X, CHOSEN, 2.0), (None, None, 1.0))
    np.testing.assert_array_equal(tangent, [1.0, 3.0])
    _, tangent = jvp(lambda x, y: x * y, (X, 2.0), (None, None))
    np.testing.assert_array_equal(tangent, np.zeros(3))


def test_errors():
    with pytest.raises(InputError, match="whole numbers"):
        vjp(taken, X, CHOSEN)
    with pytest.raises(InputError, match="argnums=5"):
        vjp(taken, X, CHOSEN, argnums=5)
    with pytest.raises(TangentError):
        jvp(lambda x, y: x * y, (X, 2.0), (X,))
