"""Arguments as containers: arrays and numbers in nested dicts, lists, tuples, namedtuples and dataclasses."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import optree

from tape.tensor import Tensor

_NAMESPACE = "wengert"
_known: set[type] = set()


def _register(kind: type) -> None:
    names = tuple(f.name for f in dataclasses.fields(kind))

    def flatten(value: Any) -> Any:
        return [getattr(value, n) for n in names], None, names

    def unflatten(_: Any, children: Any) -> Any:
        # Not through __init__: a field may be computed there, and a gradient need not satisfy its checks.
        made: Any = object.__new__(kind)
        for name, child in zip(names, children, strict=True):
            object.__setattr__(made, name, child)
        return made

    optree.register_pytree_node(kind, flatten, unflatten, namespace=_NAMESPACE)
    _known.add(kind)


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """List the leaves of a container and give its structure."""
    while True:
        leaves, structure = optree.tree_flatten(tree, namespace=_NAMESPACE, none_is_leaf=True)
        new = {type(x) for x in leaves if dataclasses.is_dataclass(x) and not isinstance(x, type)} - _known
        if not new:
            return leaves, structure
        for kind in new:
            _register(kind)


def unflatten(structure: Any, leaves: list[Any]) -> Any:
    """Put leaves into a structure."""
    return optree.tree_unflatten(structure, leaves)


def settled(tree: Any) -> Any:
    """Give the Tensors of a container as they take part in what is being recorded: as handles, or as plain arrays."""
    if isinstance(tree, Tensor):
        return tree._settled()
    if not Tensor.held_by_users or isinstance(tree, np.ndarray | float | int | str):
        return tree
    leaves, structure = flatten(tree)
    if not any(isinstance(x, Tensor) for x in leaves):
        return tree
    return unflatten(structure, [x._settled() if isinstance(x, Tensor) else x for x in leaves])


def paths(tree: Any) -> list[str]:
    """Name the leaves of a container as one would index them."""
    flatten(tree)
    accessors, _, _ = optree.tree_flatten_with_accessor(tree, namespace=_NAMESPACE, none_is_leaf=True)[:3]
    return [accessor.codify("") for accessor in accessors]


def outline(structure: Any) -> str:
    """Print the structure of a container."""
    return str(structure).removeprefix("PyTreeSpec(").removesuffix(")").removesuffix(", NoneIsLeaf")
