"""Lists and dicts of modules or parameters that are registered: what plain ones are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tape.arguments import described
from tape.errors import InputError
from tape.imperative.module import Module
from tape.imperative.registration import Kind
from tape.imperative.variable import Parameter


class _Registered(Module):
    """What lists and dicts share. Their entries are attributes, registered as one kind."""

    _kind: Kind = "module"
    _types: Any = Module

    def _put(self, name: str, value: Any) -> None:
        if not isinstance(value, self._types):
            raise InputError(f"{type(self).__name__} takes {self._types.__name__}s only, got {described(value)}")
        self._register_new(name, value, self._kind, self._types)

    def _entries(self) -> dict[str, Any]:
        return dict(self._members(self._kind))

    def __len__(self) -> int:
        return len(self._entries())


class _List(_Registered):
    def __init__(self, items: Iterable[Any] = ()) -> None:
        self.extend(items)

    def _refill(self, items: list[Any]) -> None:
        for x in items:
            if not isinstance(x, self._types):
                raise InputError(f"{type(self).__name__} takes {self._types.__name__}s only, got {described(x)}")
        for name in self._entries():
            delattr(self, name)
        for k, x in enumerate(items):
            self._put(str(k), x)

    def __getitem__(self, index: int | slice) -> Any:
        """Give an entry, or a list of the same kind with several."""
        found = list(self._entries().values())[index]
        return type(self)(found) if isinstance(index, slice) else found

    def __setitem__(self, index: int, value: Any) -> None:
        items = list(self)
        items[index] = value
        self._refill(items)

    def __delitem__(self, index: int | slice) -> None:
        items = list(self)
        del items[index]
        self._refill(items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries().values())

    def append(self, item: Any) -> None:
        """Add an entry at the end."""
        self._put(str(len(self)), item)

    def extend(self, items: Iterable[Any]) -> None:
        """Add entries at the end."""
        for item in list(items):
            self.append(item)

    def insert(self, index: int, item: Any) -> None:
        """Add an entry before another."""
        items = list(self)
        items.insert(index, item)
        self._refill(items)


class _Dict(_Registered):
    def __init__(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        self.update(items)

    def __getitem__(self, key: str) -> Any:
        """Give an entry."""
        return self._entries()[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._put(key, value)

    def __delitem__(self, key: str) -> None:
        self.pop(key)

    def __contains__(self, key: object) -> bool:
        return key in self._entries()

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def keys(self) -> Iterable[str]:
        """Give the names."""
        return self._entries().keys()

    def values(self) -> Iterable[Any]:
        """Give the entries."""
        return self._entries().values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Give names and entries."""
        return self._entries().items()

    def pop(self, key: str) -> Any:
        """Take an entry out and give it."""
        value = self[key]
        delattr(self, key)
        return value

    def update(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Add entries, or replace them."""
        for key, value in dict(items).items():
            self._put(key, value)


class ModuleList(_List):
    """A list of modules that are registered as "0", "1" and so on.

    Parameters
    ----------
    items : iterable of Module

    Examples
    --------
    >>> import numpy as np
    >>> from tape import Parameter
    >>> from tape import Module
    >>> from tape import ModuleList
    >>> class Scale(Module):
    ...     def __init__(self, factor):
    ...         self.factor = Parameter(factor)
    ...
    ...     def forward(self, x):
    ...         return self.factor * x
    >>> class Chain(Module):
    ...     def __init__(self):
    ...         self.layers = ModuleList(Scale(k + 1.0) for k in range(3))
    ...
    ...     def forward(self, x):
    ...         for layer in self.layers:
    ...             x = layer(x)
    ...         return x
    >>> chain = Chain()
    >>> chain(1.0).item(), [name for name, p in chain.named_parameters()]
    (6.0, ['layers.0.factor', 'layers.1.factor', 'layers.2.factor'])
    """


class ModuleDict(_Dict):
    """A dict of modules that are registered under their keys.

    Parameters
    ----------
    items : dict of str to Module, or pairs
    """


class ParameterList(_List):
    """A list of parameters that are registered as "0", "1" and so on.

    Parameters
    ----------
    items : iterable of Parameter

    Examples
    --------
    >>> from tape import Parameter
    >>> from tape import ParameterList
    >>> weights = ParameterList([Parameter([1.0]), Parameter([2.0, 3.0])])
    >>> weights
    ParameterList(0: 1, 1: 2)
    """

    _kind: Kind = "parameter"
    _types: Any = Parameter


class ParameterDict(_Dict):
    """A dict of parameters that are registered under their keys.

    Parameters
    ----------
    items : dict of str to Parameter, or pairs
    """

    _kind: Kind = "parameter"
    _types: Any = Parameter
