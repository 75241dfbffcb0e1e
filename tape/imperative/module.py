"""Module: a model as an object that knows its parameters, its buffers and the modules it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from tape.arguments import described
from tape.errors import InputError, ParameterError, RegistrationError, StateDictError, UnsupportedError
from tape.imperative.hooks import HookHandle
from tape.imperative.registration import (
    IncompatibleKeys,
    Kind,
    Registering,
    called,
    fitting,
    load,
    refuse_hidden,
    unfit,
    values,
)
from tape.imperative.variable import Parameter
from tape.tensor import Tensor

M = TypeVar("M", bound="Module")


class Module(Registering):
    """The base of models: subclass it, make parameters and submodules attributes, and define ``forward``.

    An attribute that is a `Parameter` or a `Module` is registered under its name. ``module(...)`` calls
    ``forward(...)`` and the hooks. ``super().__init__()`` need not be called.

    Attributes
    ----------
    training : bool
        What `train` and `eval` switch.

    Notes
    -----
    Only attributes are registered, not what is inside of a list, tuple, set or dict: put such parameters and modules
    into a `ParameterList`, `ParameterDict`, `ModuleList` or `ModuleDict`. One that was left in a plain container raises
    an error when the parameters are listed, because it would silently not be learnt. To keep a parameter or module out
    on purpose, write ``object.__setattr__(self, name, it)``. Tensors that are no `Parameter` are not registered.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import Parameter
    >>> from tape import Module
    >>> class Linear(Module):
    ...     def __init__(self, inputs, outputs):
    ...         self.weight = Parameter(np.full((inputs, outputs), 0.5))
    ...         self.bias = Parameter(np.zeros(outputs))
    ...
    ...     def forward(self, x):
    ...         return x @ self.weight + self.bias
    >>> class Net(Module):
    ...     def __init__(self):
    ...         self.first, self.second = Linear(2, 3), Linear(3, 1)
    ...
    ...     def forward(self, x):
    ...         return self.second(np.tanh(self.first(x)))
    >>> net = Net()
    >>> [name for name, p in net.named_parameters()]
    ['first.weight', 'first.bias', 'second.weight', 'second.bias']
    >>> np.mean(net(np.ones((4, 2)))).backward()
    >>> net.second.bias.grad
    array([1.])
    >>> net
    Net(
      (first): Linear(weight: 2 x 3, bias: 3)
      (second): Linear(weight: 3 x 1, bias: 1)
    )
    """

    training: bool
    _hooks: dict[int, Callable[..., Any]]
    _pre_hooks: dict[int, Callable[..., Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make a module that can register from the first line of its ``__init__`` on."""
        if cls.__init__ is object.__init__ and (args or kwargs):
            raise TypeError(f"{cls.__name__}() takes no arguments: it has no __init__")
        self = object.__new__(cls)
        # Values are ordinary attributes; what they are registered as stands apart, in order of registration.
        self.__dict__.update(_registered={}, _hooks={}, _pre_hooks={}, training=True)
        return self

    # ------------------------------------------------------------ registering
    def __setattr__(self, name: str, value: Any) -> None:
        kind = self._registered.get(name)
        own: Kind | None = "parameter" if isinstance(value, Parameter) else None
        own = "module" if isinstance(value, Module) else own
        if own is not None and not hasattr(getattr(type(self), name, None), "__set__"):
            self._register(name, value, own)
        elif kind is None:
            object.__setattr__(self, name, value)
        elif value is None or (kind.endswith("buffer") and isinstance(value, Tensor | np.ndarray | np.generic)):
            self._register(name, value, kind)
        else:
            raise unfit(kind, name, value)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._registered.pop(name, None)

    def _register(self, name: str, value: Any, kind: Kind) -> None:
        if kind == "module" and value is not None and any(m is self for m in value.modules()):
            raise InputError(f"cannot assign {type(value).__name__} as module {name!r}: it contains this one")
        if kind.endswith("buffer") and isinstance(value, Tensor) and value.requires_grad:
            raise InputError(
                f"cannot assign a Tensor that requires a gradient as buffer {name!r}: give x.detach() or x.numpy(), or "
                "tensor(data, requires_grad=False)"
            )
        if self._registered.get(name, kind) != kind:
            del self._registered[name]
        self.__dict__[name] = value
        self._registered[name] = kind

    def _register_new(self, name: str, value: Any, kind: Kind, types: Any) -> None:
        what = kind.removeprefix("transient ")
        if not isinstance(name, str):
            raise InputError(f"the name of a {what} should be a string, got {described(name)}")
        if "." in name:
            raise RegistrationError(f"the name of a {what} can't contain '.', got {name!r}")
        if not name:
            raise RegistrationError(f"the name of a {what} can't be empty string ''")
        before = self._registered.get(name)
        if hasattr(self, name) and (before is None or before.removeprefix("transient ") != what):
            raise RegistrationError(f"attribute {name!r} already exists in {type(self).__name__}")
        if value is not None and not isinstance(value, types):
            if kind == "parameter" and isinstance(value, Tensor) and not value.is_leaf:
                raise ParameterError(
                    f"cannot assign a non-leaf Tensor to parameter {name!r}: it was computed from others. Register "
                    "those, and compute it in forward"
                )
            raise unfit(kind, name, value)
        self._register(name, value, kind)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Register a parameter; None keeps the name for one that is absent.

        Raises
        ------
        RegistrationError
            If the name is empty, contains a dot, or is taken (it is a KeyError).
        InputError
            If `param` is no `Parameter`, or the name no string (it is a TypeError).
        ParameterError
            If it is a tensor that was computed (it is a ValueError).
        """
        self._register_new(name, param, "parameter", Parameter)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Register an array that belongs to the model but is not learnt, such as a running mean.

        Parameters
        ----------
        name : str
        tensor : ndarray, Tensor without a gradient, or None
        persistent : bool
            Whether it is part of `state_dict`.
        """
        kind: Kind = "buffer" if persistent else "transient buffer"
        self._register_new(name, tensor, kind, Tensor | np.ndarray | np.generic)

    def register_module(self, name: str, module: Module | None) -> None:
        """Register a submodule."""
        self._register_new(name, module, "module", Module)

    add_module = register_module

    def __copy__(self) -> Any:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.__dict__.update({name: dict(self.__dict__[name]) for name in ("_registered", "_hooks", "_pre_hooks")})
        return made

    # ------------------------------------------------------------ listing
    def named_modules(self, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """Give this module and all below it, each with its dotted name; shared ones once."""
        seen: set[int] = set()
        pending: list[tuple[str, Module]] = [(prefix, self)]
        while pending:
            name, module = pending.pop()
            if remove_duplicate and id(module) in seen:
                continue
            seen.add(id(module))
            yield name, module
            below = list(module._members("module"))
            pending += [(f"{name}.{key}" if name else key, child) for key, child in reversed(below)]

    def _named(self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        modules = list(self.named_modules(prefix, remove_duplicate)) if recurse else [(prefix, self)]
        refuse_hidden(modules)
        seen: set[int] = set()
        for path, module in modules:
            for name, value in module._members(kind):
                if not (remove_duplicate and id(value) in seen):
                    seen.add(id(value))
                    yield f"{path}.{name}" if path else name, value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Give the parameters with their dotted names, in order of registration.

        Parameters
        ----------
        prefix : str
            What the names begin with.
        recurse : bool
            Those of the submodules, too.
        remove_duplicate : bool
            Give a parameter that has several names only once, under its first.

        Raises
        ------
        InputError
            If a plain list, tuple, set or dict holds a parameter or module that is registered nowhere.
        """
        return self._named("parameter", prefix, recurse, remove_duplicate)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Give the buffers with their dotted names, as `named_parameters` does."""
        return self._named("buffer", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Give the parameters, in order of registration, shared ones once."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def buffers(self, recurse: bool = True) -> Iterator[Any]:
        """Give the buffers."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def modules(self) -> Iterator[Module]:
        """Give this module and all below it."""
        return (m for _, m in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Give the modules that are registered here, with their names; shared ones once."""
        seen: set[int] = set()
        for name, module in self._members("module"):
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def children(self) -> Iterator[Module]:
        """Give the modules that are registered here."""
        return (m for _, m in self.named_children())

    # ------------------------------------------------------------ state
    def _state(self) -> dict[str, tuple[Module, str]]:
        """Tell for each dotted name of the state where it is registered."""
        found = {}
        modules = list(self.named_modules(remove_duplicate=False))
        refuse_hidden(modules)
        for path, module in modules:
            for kind in ("parameter", "buffer"):
                for name, _ in module._members(kind):
                    if module._registered[name] == kind:
                        found[f"{path}.{name}" if path else name] = module, name
        return found

    def state_dict(self, prefix: str = "") -> dict[str, Any]:
        """Copy all parameters and persistent buffers as plain arrays, by their dotted names."""
        return {prefix + key: values(m.__dict__[name]).copy() for key, (m, name) in self._state().items()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Copy arrays into the parameters and buffers, which stay the objects that they are.

        Parameters
        ----------
        state_dict : dict
            Arrays or tensors by dotted names, as `state_dict` gives them.
        strict : bool
            Raise if a name is missing or unexpected.

        Returns
        -------
        IncompatibleKeys
            ``missing_keys`` and ``unexpected_keys``.

        Raises
        ------
        StateDictError
            If it does not fit; nothing is changed then.
        """
        if not isinstance(state_dict, Mapping):
            raise InputError(f"expected state_dict to be a dict of arrays, got {described(state_dict)}")
        own = self._state()
        keys = IncompatibleKeys([k for k in own if k not in state_dict], [k for k in state_dict if k not in own])
        wrong = keys.complaints() if strict else []
        new: dict[str, Any] = {}
        for key, (module, name) in own.items():
            if key in state_dict:
                try:
                    new[key] = fitting(key, state_dict[key], values(module.__dict__[name]))
                except StateDictError as error:
                    wrong.append(str(error))
        if wrong:
            raise StateDictError(f"cannot load the state of {type(self).__name__}: " + "; ".join(wrong))
        moved: dict[int, Any] = {}
        for key, array in new.items():
            module, name = own[key]
            load(module, name, array, moved)
        return keys

    def train(self: M, mode: bool = True) -> M:
        """Set ``training`` here and below; give this module."""
        if not isinstance(mode, bool | np.bool_):
            raise InputError(f"the mode of training must be True or False, got {described(mode)}")
        for module in self.modules():
            module.training = bool(mode)
        return self

    def eval(self: M) -> M:
        """Set ``training`` to False here and below; whether operations are recorded is another matter (`no_grad`)."""
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Set for all parameters whether they require a gradient; give this module."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or set them to zero with ``set_to_none=False``."""
        for p in self.parameters():
            p.zero_grad(set_to_none)

    def apply(self: M, fn: Callable[[Module], Any]) -> M:
        """Call a function with every module below, then with this one, which is given back."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # ------------------------------------------------------------ calling
    def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002
        """Compute the result; subclasses define it."""
        raise UnsupportedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``forward`` and the hooks."""
        for hook in list(self._pre_hooks.values()):
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        result = self.forward(*args, **kwargs)
        for hook in list(self._hooks.values()):
            changed = hook(self, args, result)
            if changed is not None:
                result = changed
        return result

    def register_forward_pre_hook(self, hook: Callable[[Any, tuple[Any, ...]], Any]) -> HookHandle:
        """Have ``hook(module, args)`` called before forward; what it gives, unless None, takes the arguments' place."""
        return HookHandle(self._pre_hooks, called(hook))

    def register_forward_hook(self, hook: Callable[[Any, tuple[Any, ...], Any], Any]) -> HookHandle:
        """Have ``hook(module, args, result)`` called after forward; what it gives, unless None, is the result."""
        return HookHandle(self._hooks, called(hook))

    # ------------------------------------------------------------ showing
    def extra_repr(self) -> str:
        """Tell what else stands in the representation; parameters and buffers with their shapes by default."""
        arrays = [*self._members("parameter"), *self._members("buffer")]
        return ", ".join(f"{name}: {' x '.join(map(str, np.shape(value))) or 'number'}" for name, value in arrays)

    def __repr__(self) -> str:
        head, children = self.extra_repr(), list(self._members("module"))
        if not children:
            return f"{type(self).__name__}({head})"
        lines = [head] if head else []
        lines += [f"({name}): {child!r}" for name, child in children]
        body = "\n".join(lines).replace("\n", "\n  ")
        return f"{type(self).__name__}(\n  {body}\n)"
