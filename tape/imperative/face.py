"""What a Tensor offers to those who hold it: its gradient, backward, detach, hooks, item, and the like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tape.arguments import described
from tape.errors import InplaceError, InvalidBackprop, InvalidGradient
from tape.imperative import backward as passes
from tape.imperative import lifetime
from tape.imperative.graph import node_of
from tape.imperative.hooks import HookHandle
from tape.imperative.storage import Storage
from tape.imperative.variable import State, Variable, constant, integral, made
from tape.linked import depends_on_inputs
from tape.tensor import Tensor
from tape.transforms import stop_gradient
from tape.views import watch


# ---------------------------------------------------------------- what it is
def _requires_grad(self: Tensor) -> bool:
    """Tell whether it is, or depends on, a tensor that requires a gradient, as far as that was recorded."""
    if isinstance(self, Variable):
        return bool(self._state.requires_grad)
    self._alive()
    tape = self._tape
    if self._layout.dtype.kind != "f":
        return False
    slot = self._slot  # reading it may record more
    return depends_on_inputs(tape, slot)


def _set_requires_grad(self: Tensor, value: bool) -> None:
    self.requires_grad_(value)


def _is_leaf(self: Tensor) -> bool:
    """Tell whether it was not computed from tensors that require a gradient."""
    if isinstance(self, Variable):
        return not self._state.cleared
    return self._slot in self._tape.inputs or not _requires_grad(self)


def _grad_fn(self: Tensor) -> Any:
    """Give the entry that computed it as a node of the graph; None for leaves and what requires no gradient."""
    return None if isinstance(self, Variable) else node_of(self)


def _grad(self: Tensor) -> Any:
    """Give the gradient that backward passes found: an array of its shape and dtype, or None.

    That of a view is a view of its base's.
    """
    base = getattr(self, "_base", None)
    if base is not None:
        owner, (take, _) = base
        whole = _grad(owner)
        return None if whole is None else take(whole)
    if isinstance(self, Variable):
        return self._state.grad
    return self._tape.gradients.get(self._slot)


def _set_grad(self: Tensor, value: Any) -> None:
    if not isinstance(self, Variable):
        raise InvalidGradient("the gradient of a tensor that was computed can't be set, only that of a leaf")
    if value is not None and not isinstance(value, Tensor):
        array = np.array(value)
        if array.shape != self.shape or array.dtype.kind not in "fiu":
            raise InvalidGradient(
                f"the gradient of a tensor of shape {self.shape} can't be set to {described(value)} of shape "
                f"{array.shape} and dtype {array.dtype}"
            )
        value = array.astype(self.dtype)
    self._state.grad = value


# ---------------------------------------------------------------- backward
def _backward(
    self: Tensor,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Compute the gradients of this tensor, and add them to ``.grad`` of the leaves; see `tape.backward`."""
    passes.backward(self, gradient, retain_graph, create_graph, inputs)


def _clear_graph(self: Tensor) -> None:
    """Clear what was recorded to compute this tensor, as a backward pass does, without one."""
    if not isinstance(self, Variable):
        passes.forget(self)


def _null_grad(self: Any) -> Any:
    """Set the gradient to None; give the tensor."""
    if isinstance(self, Variable):
        self._state.grad = None
    else:
        self._tape.gradients.pop(self._slot, None)
    return self


def _zero_grad(self: Any, set_to_none: bool = True) -> None:
    """Set the gradient to None, or to zeros with ``set_to_none=False``."""
    g = _grad(self)
    if g is not None:
        if set_to_none or not isinstance(self, Variable):
            _null_grad(self)
        else:
            self._state.grad = np.zeros(self.shape, self.dtype)


def _retain_grad(self: Tensor) -> None:
    """Do nothing: the gradient of every tensor that is still held can be asked for."""
    if not _requires_grad(self):
        raise InvalidBackprop("can't retain_grad on a tensor that has requires_grad=False")


def _register_hook(self: Tensor, hook: Callable[[Any], Any]) -> HookHandle:
    """Have a function called with this tensor's gradient whenever a backward pass computes it.

    Parameters
    ----------
    hook : callable
        ``hook(gradient)`` gives None, or a gradient of the same shape that takes its place. It must not write to the
        gradient, nor compute with tensors of the same pass.

    Returns
    -------
    HookHandle
        Its ``remove()`` takes the hook back.
    """
    if not callable(hook):
        raise InvalidGradient(f"a hook must be a function of the gradient, got {described(hook)}")
    if not _requires_grad(self):
        raise InvalidBackprop("cannot register a hook on a tensor that doesn't require gradient")
    if isinstance(self, Variable):
        return HookHandle(self._state.hooks, hook)
    slot = self._slot
    return HookHandle(self._tape.hooks.setdefault(slot, {}), hook)


# ---------------------------------------------------------------- leaving the tape
def _detach(self: Any) -> Any:
    """Give the value as a tensor that requires no gradient.

    What is detached from a tensor that the user holds shares its memory: a write to one is seen through the other.
    """
    if isinstance(self, Variable):
        detached = made(Variable, State(self._state.array, False, self._state.storage))
        # What is without a gradient may become recorded, by a write; this then goes on to show its value.
        return detached if self._state.requires_grad else watch(self, detached, (stop_gradient, _overwrite))
    return constant(self.numpy())


def _overwrite(base: Any, new: Any) -> None:
    base[...] = new


def _detach_in_place(self: Any) -> Any:
    """Forget how this tensor was computed; give it."""
    if isinstance(self, Variable):
        self._state.requires_grad = self._state.cleared = False
        self._state.attached.clear()
        return self
    if getattr(self, "_base", None) is not None:
        raise InplaceError("can't detach views in place: use detach()")
    for reference in getattr(self, "_views", None) or ():
        view = reference()
        if view is not None:
            view._base = None
    lifetime.become(self, State(self.numpy(), False))
    return self


def _requires_grad_in_place(self: Any, requires_grad: bool = True) -> Any:
    """Say whether a leaf requires a gradient; give it."""
    if not isinstance(self, Variable) or self._state.cleared:
        if requires_grad == _requires_grad(self):
            return self
        raise InvalidBackprop(
            "you can only change requires_grad flags of leaf tensors; use `y.detach()` for a value without a gradient"
        )
    if requires_grad and self.dtype.kind != "f":
        raise integral(self.dtype)
    self._state.requires_grad = bool(requires_grad)
    self._state.attached.clear()
    return self


def _set_data(self: Any, value: Any) -> None:
    """Replace all elements, whether or not a gradient is required."""
    if not isinstance(self, Variable):
        raise InplaceError("the data of a tensor that was computed can't be set; make a new one")
    value = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    if value.shape != self.shape:
        self._state.array = np.array(value, self.dtype)
        self._state.storage = Storage(self._state.array)
        self._state.storage.add(self._state)
        self._state.attached.clear()
        self._layout = made(Variable, self._state)._layout
        return
    self._state.storage.unshare()
    self._state.array[...] = value


def _item(self: Any, *index: int) -> Any:
    """Give one element as a Python number; it carries no gradient."""
    self._alive()
    if isinstance(self, Variable):
        return self._state.array.item(*index)
    if self._layout.dtype.kind == "f" and not self._tape.persistent:
        raise self._detached("t.item()", "Index the Tensor (`t[0]`), or take `t.numpy().item()`")
    return self.numpy().item(*index)


def _clone(self: Any) -> Any:
    """Give a copy; the gradient flows through it."""
    return self.copy()


def install() -> None:
    """Put all of this in place."""
    properties: dict[str, Any] = {
        "requires_grad": property(_requires_grad, _set_requires_grad, doc=_requires_grad.__doc__),
        "constant": property(lambda self: not self.requires_grad, doc="Whether it requires no gradient."),
        "stores_grad": property(
            lambda self: self.is_leaf and self.requires_grad, doc="Whether backward passes add to its ``grad``."
        ),
        "is_leaf": property(_is_leaf),
        "grad_fn": property(_grad_fn),
        "grad": property(_grad, _set_grad, doc=_grad.__doc__),
        "data": property(_detach, _set_data, doc=_detach.__doc__),
    }
    methods: dict[str, Any] = {
        "backward": _backward, "clear_graph": _clear_graph, "null_grad": _null_grad, "zero_grad": _zero_grad,
        "retain_grad": _retain_grad, "register_hook": _register_hook, "detach": _detach,
        "detach_": _detach_in_place, "requires_grad_": _requires_grad_in_place, "item": _item, "clone": _clone,
    }  # fmt: skip
    for name, one in (*properties.items(), *methods.items()):
        if not isinstance(one, property):
            one.__name__ = name
        setattr(Tensor, name, one)
