"""Products that are linear in each factor: an adjoint or tangent of exactly 0 passes nothing on, beside any factor."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from ops.shape import shape_of


def shielded(product: Callable[..., Any], g: Any, *factors: Any) -> Any:
    """Give product(g, *factors), linear in each, without the terms in which g is exactly 0.

    They matter only where a factor is infinite or NaN, so the result tells whether there are any.
    """
    result = product(g, *factors)
    if bool(np.all(np.isfinite(result))):
        return result
    finite = [np.where(np.isfinite(f), f, 0.0) for f in factors]
    clean = product(g, *finite)
    reach = np.where(g == 0, 0.0, 1.0)
    ones = [np.ones(shape_of(f)) for f in factors]
    touched = np.zeros(())
    for k, f in enumerate(factors):
        bad = np.where(np.isfinite(f), 0.0, 1.0)
        touched = touched + product(reach, *ones[:k], bad, *ones[k + 1 :])
    return np.where(touched > 0, result, clean)


def in_turn(product: Callable[..., Any]) -> Callable[..., Any]:
    """Make the pushforward of a product: the sum of the products with each tangent in place of its operand."""

    def pushforward(tangents: Sequence[Any], out: Any, *operands: Any, **parameters: Any) -> Any:
        def push(k: int) -> Any:
            rest = operands[:k] + operands[k + 1 :]
            return shielded(lambda t, *rest: product(*rest[:k], t, *rest[k:], **parameters), tangents[k], *rest)

        return reduce(operator.add, (push(k) for k, t in enumerate(tangents) if t is not None))

    return pushforward
