"""What backward passes are asked for, checked: roots, seeds, and the tensors whose gradients are wanted."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.arguments import described
from tape.errors import InvalidBackprop, InvalidGradient
from tape.tensor import Tensor


def listed_of(tensors: Any) -> list[Any]:
    """List the roots."""
    found = list(tensors) if isinstance(tensors, tuple | list) else [tensors]
    for t in found:
        if not isinstance(t, Tensor):
            raise InvalidBackprop(
                f"backward needs a Tensor that was computed from tensors that require a gradient, got {described(t)}"
            )
    if not found:
        raise InvalidBackprop("backward needs at least one tensor to begin with, got an empty sequence")
    return found


def inputs_of(inputs: Any) -> list[Any]:
    """List the tensors whose gradients are wanted."""
    found = list(inputs) if isinstance(inputs, tuple | list) else [inputs]
    if not found:
        raise InvalidBackprop("`inputs` cannot be empty: name the tensors whose gradients are wanted, or leave it out")
    for t in found:
        if not isinstance(t, Tensor):
            raise InvalidBackprop(f"the inputs must be Tensors, got {described(t)}")
        if not t.requires_grad:
            raise InvalidBackprop(
                "one of the differentiated tensors does not require grad: make it with requires_grad=True"
            )
    return found


def seeds_of(tensors: Any, seeds: Any) -> list[Any]:
    """List what was given as seeds, one for each root."""
    if not isinstance(tensors, tuple | list):
        return [seeds]
    if seeds is None:
        return [None] * len(tensors)
    found = list(seeds) if isinstance(seeds, tuple | list) else [seeds]
    if len(found) != len(tensors):
        raise InvalidGradient(f"got {len(tensors)} tensors and {len(found)} gradients for them: give one for each")
    return found


def seed_of(root: Any, seed: Any, *, recorded: bool = False) -> Any:
    """Give the seed of a root: a float for a number, else an array of its shape; a Tensor only if it is `recorded`."""
    shape, dtype = root.shape, root.dtype
    if seed is None:
        if root.size != 1:
            raise InvalidBackprop(
                f"a gradient can be implicitly created only for scalar outputs, and this tensor has shape {shape}: "
                "reduce it first (`np.sum(y).backward()`), or pass one (`y.backward(np.ones_like(y))`)"
            )
        return 1.0 if root._layout.cell else np.ones(shape, dtype)
    if isinstance(seed, Tensor):
        if recorded and seed.requires_grad and seed.shape == shape:
            return seed
        seed = seed.numpy()
    try:
        array = np.asarray(seed)
    except (ValueError, TypeError):
        raise InvalidGradient(f"the gradient must be a number or an array, got {described(seed)}") from None
    if array.dtype.kind not in "fiub":
        raise InvalidGradient(f"gradients can be either arrays, Tensors or None, but got {described(seed)}")
    lead = len(shape) - array.ndim
    if lead < 0 or any(n not in (1, m) for n, m in zip(array.shape, shape[lead:], strict=True)):
        raise InvalidGradient(
            f"Mismatch in shape: a gradient of shape {array.shape} and dtype {array.dtype} was passed for a tensor of "
            f"shape {shape} and dtype {dtype}; it must broadcast to that shape without enlarging it"
        )
    return float(array) if root._layout.cell else np.broadcast_to(array, shape).astype(dtype)
