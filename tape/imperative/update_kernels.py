"""The update of one parameter, compiled: everything in one pass over its elements, in place.

All arguments are flat arrays of one dtype. `o` holds the options, so that float32 is computed in float32.
"""

from __future__ import annotations

import math
from typing import Any

from tape.compiled import compiled


@compiled()
def sgd(p: Any, g: Any, o: Any) -> None:
    """`o`: the learning rate and the weight decay."""
    rate, decay = o[0], o[1]
    for i in range(p.size):
        slope = g[i] + decay * p[i] if decay != 0 else g[i]
        p[i] -= rate * slope


@compiled()
def sgd_momentum(p: Any, g: Any, velocity: Any, o: Any, nesterov: bool) -> None:
    """`o`: the learning rate, the weight decay, the momentum, and the gradient's share in the velocity."""
    rate, decay, momentum, share = o[0], o[1], o[2], o[3]
    for i in range(p.size):
        slope = g[i] + decay * p[i] if decay != 0 else g[i]
        v = momentum * velocity[i] + share * slope
        velocity[i] = v
        p[i] -= rate * (slope + momentum * v if nesterov else v)


@compiled()
def adam(p: Any, g: Any, mean: Any, square: Any, o: Any) -> None:
    """`o`: as `Adam._numbers` gives it."""
    step, shrink, decay, new, old_square, new_square, scale, eps = o[0], o[1], o[2], o[3], o[4], o[5], o[6], o[7]
    for i in range(p.size):
        slope = g[i] + decay * p[i] if decay != 0 else g[i]
        m = mean[i] + new * (slope - mean[i])
        v = old_square * square[i] + new_square * (slope * slope)
        mean[i] = m
        square[i] = v
        p[i] = shrink * p[i] - step * (m / (math.sqrt(v) * scale + eps))


@compiled()
def adam_amsgrad(p: Any, g: Any, mean: Any, square: Any, largest: Any, o: Any) -> None:
    """As `adam`, but divide by the largest mean of squares so far; a nan stays."""
    step, shrink, decay, new, old_square, new_square, scale, eps = o[0], o[1], o[2], o[3], o[4], o[5], o[6], o[7]
    for i in range(p.size):
        slope = g[i] + decay * p[i] if decay != 0 else g[i]
        m = mean[i] + new * (slope - mean[i])
        v = old_square * square[i] + new_square * (slope * slope)
        top = v if v > largest[i] or v != v else largest[i]
        mean[i] = m
        square[i] = v
        largest[i] = top
        p[i] = shrink * p[i] - step * (m / (math.sqrt(top) * scale + eps))
