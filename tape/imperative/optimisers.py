"""SGD and Adam: updates of parameters from their gradients, also while a backward pass is still under way."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tape.errors import OptionError, ParameterError, StateDictError
from tape.imperative import update_kernels
from tape.imperative.backward import backward_pairs
from tape.imperative.modes import enable_grad
from tape.imperative.parameter_groups import checked_number, groups_of, not_negative
from tape.tensor import Tensor


class Optimiser:
    """What `SGD` and `Adam` share.

    What is remembered from step to step lies in flat arrays, one of each kind and dtype for all parameters.

    Attributes
    ----------
    param_groups : list of dict
        The parameters of each group ("params") beside its options, which can be changed between steps.
    """

    _kinds: tuple[str, ...] = ()

    def __init__(self, parameters: Any, options: dict[str, Any]) -> None:
        self.defaults = options
        self.param_groups: list[dict[str, Any]] = []
        for group in groups_of(parameters):
            unknown = sorted(set(group) - set(options) - {"params"})
            if unknown:
                raise OptionError(f"{type(self).__name__} has no option {unknown[0]!r}: it has {', '.join(options)}")
            self.param_groups.append({"params": group["params"], **options, **group})
        for group in self.param_groups:
            self._check(group)
        self._steps = [0] * sum(len(group["params"]) for group in self.param_groups)
        self._memory: dict[tuple[str, str], np.ndarray[Any, Any]] = {}
        self._numbers_of: dict[tuple[int, str], tuple[Any, Any]] = {}
        self._arrange()

    def _arrange(self) -> None:
        """Find out which part of the flat arrays each parameter has."""
        self._places: dict[int, tuple[Any, int, int, slice]] = {}
        self._sizes: dict[str, int] = {}
        number = 0
        for k, group in enumerate(self.param_groups):
            for p in group["params"]:
                if id(p) in self._places:
                    raise ParameterError(
                        f"the optimizer got a parameter of shape {p.shape} more than once: it would be updated twice a "
                        "step. Give each parameter once, in one group"
                    )
                start = self._sizes.get(p.dtype.char, 0)
                self._sizes[p.dtype.char] = start + p.size
                self._places[id(p)] = p, number, k, slice(start, start + p.size)
                number += 1

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_places", "_sizes", "_numbers_of")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _numbers_of={})
        self._arrange()

    # ------------------------------------------------------------ options
    @property
    def lr(self) -> float:
        """The learning rate; setting it sets that of all groups."""
        rates = {float(group["lr"]) for group in self.param_groups}
        if len(rates) > 1:
            raise OptionError("the groups have different learning rates: see optimiser.param_groups[k]['lr']")
        return rates.pop()

    @lr.setter
    def lr(self, value: float) -> None:
        for group in self.param_groups:
            self._check({**group, "lr": value})
        for group in self.param_groups:
            group["lr"] = value

    def _check(self, group: dict[str, Any]) -> None:
        """Raise if the options of a group make no sense."""
        raise NotImplementedError

    def _numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        """Give what the compiled update needs of the options, at the step that is about to be made."""
        raise NotImplementedError

    def _options(self, k: int, step: int, dtype: np.dtype[Any]) -> Any:
        """Give that as an array; it is made again only if something has changed."""
        group = self.param_groups[k]
        now = step, *[tuple(x) if type(x) is list else x for x in map(group.__getitem__, self.defaults)]
        known = self._numbers_of.get((k, dtype.char))
        if known is None or known[0] != now:
            self._check(group)
            known = self._numbers_of[k, dtype.char] = now, np.array(self._numbers(group, step), dtype)
        return known[1]

    # ------------------------------------------------------------ steps
    def minimise(self, loss: Tensor, dy: Any = None) -> None:
        """Go backward from a loss, and update each parameter as soon as its gradient is complete.

        The gradient is dropped then, so that they are never all there at once. The numbers are those of
        ``zero_grad(); loss.backward(); step()``, but ``.grad`` is neither read nor written. Parameters that the loss
        does not depend on are left alone, as are leaves that this optimiser does not have.

        Parameters
        ----------
        loss : Tensor
        dy : array_like, optional
            The seed; 1 for a loss of one element.

        Raises
        ------
        InvalidBackprop, InvalidGradient
            As `backward`; nothing is updated then.
        """
        for p, g in backward_pairs(loss, dy):
            if id(p) in self._places:
                self._update(p, g)

    minimize = minimise

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient in ``.grad``.

        Parameters
        ----------
        closure : callable, optional
            Called first: it computes the gradients and gives the loss.

        Returns
        -------
        Tensor or None
            What `closure` gave.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for p, *_ in self._places.values():
            g = p.grad
            if g is not None:
                self._update(p, g.numpy() if isinstance(g, Tensor) else g)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or set them to zero with ``set_to_none=False``."""
        for p, *_ in self._places.values():
            p.zero_grad(set_to_none)

    def _update(self, p: Any, g: Any) -> None:
        _, number, k, part = self._places[id(p)]
        state = p._state
        state.storage.unshare()
        array = state.array
        if g.shape != array.shape or array.size != part.stop - part.start:
            raise ParameterError(f"the shape of a parameter has changed since the optimizer was made: {array.shape}")
        whole = array.flags.c_contiguous
        flat = (array if whole else array.copy()).reshape(-1)
        if not g.flags.carray or g.dtype != array.dtype:
            g = np.array(g, array.dtype, order="C")
        step = self._steps[number] = self._steps[number] + 1
        self._change(flat, g.reshape(-1), self._options(k, step, array.dtype), self.param_groups[k], part)
        if not whole:
            array[...] = flat.reshape(array.shape)

    def _change(self, p: Any, g: Any, numbers: Any, group: dict[str, Any], part: slice) -> None:
        """Change a parameter in place."""
        raise NotImplementedError

    def _kept(self, kind: str, dtype: np.dtype[Any], part: slice) -> Any:
        """Give a parameter's part of the flat array of a kind; zeros at first."""
        memory = self._memory.get((kind, dtype.char))
        if memory is None:
            memory = self._memory[kind, dtype.char] = np.zeros(self._sizes[dtype.char], dtype)
        return memory[part]

    # ------------------------------------------------------------ state
    def state_dict(self) -> dict[str, Any]:
        """Copy what is remembered of each parameter, by its number, and the options of each group."""
        state: dict[int, dict[str, Any]] = {}
        for p, number, _, part in self._places.values():
            if self._steps[number]:
                state[number] = {"step": self._steps[number]}
                for (kind, char), memory in self._memory.items():
                    if char == p.dtype.char:
                        state[number][kind] = memory[part].reshape(p.shape).copy()
        numbers = iter(range(len(self._steps)))
        groups = [{**group, "params": [next(numbers) for _ in group["params"]]} for group in self.param_groups]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take up what `state_dict` gave.

        Raises
        ------
        StateDictError
            If it does not fit the parameters (it is a ValueError); nothing is changed then.
        """
        if not isinstance(state_dict, Mapping) or not {"param_groups", "state"} <= set(state_dict):
            raise StateDictError("the state of an optimizer is a dict with the keys 'param_groups' and 'state'")
        groups, state = state_dict["param_groups"], state_dict["state"]
        if len(groups) != len(self.param_groups):
            raise StateDictError(
                f"loaded state dict has a different number of parameter groups: {len(groups)}, not "
                f"{len(self.param_groups)}"
            )
        options = []
        for own, group in zip(self.param_groups, groups, strict=True):
            if len(own["params"]) != len(group["params"]):
                raise StateDictError(
                    "loaded state dict contains a parameter group that doesn't match the size of optimizer's group: "
                    f"{len(group['params'])} parameters, not {len(own['params'])}"
                )
            options.append({name: group.get(name, own[name]) for name in self.defaults})
            self._check(options[-1])
        order = [number for group in groups for number in group["params"]]
        found = [{k: x for k, x in state.get(number, {}).items() if x is not None} for number in order]
        for (p, number, *_), one in zip(self._places.values(), found, strict=True):
            for kind, array in one.items():
                if kind not in ("step", *self._kinds):
                    raise StateDictError(f"{type(self).__name__} remembers no {kind!r}")
                if kind != "step" and np.shape(array) != p.shape:
                    raise StateDictError(
                        f"size mismatch for {kind} of parameter {number}: its shape is {p.shape}, and the state has "
                        f"{np.shape(array)}"
                    )
        self._memory.clear()
        for (p, number, _, part), one in zip(self._places.values(), found, strict=True):
            self._steps[number] = int(one.get("step", bool(one)))
            for kind, array in one.items():
                if kind != "step":
                    self._kept(kind, p.dtype, part)[...] = np.asarray(array).reshape(-1)
        for own, new in zip(self.param_groups, options, strict=True):
            own.update(new)

    def __repr__(self) -> str:
        groups = [
            f"{sum(p.size for p in g['params'])} numbers in {len(g['params'])} parameters: "
            + ", ".join(f"{name}={g[name]}" for name in self.defaults)
            for g in self.param_groups
        ]
        return f"{type(self).__name__}({'; '.join(groups)})"


class SGD(Optimiser):
    """Stochastic gradient descent, with momentum.

    Parameters
    ----------
    parameters : iterable of Parameter, or of dict
        What to update; or groups ``{"params": [...], "lr": ...}`` with options of their own.
    lr : float
        The learning rate; ``optimiser.lr = ...`` changes it.
    momentum : float
        The share of the velocity that each step keeps.
    nesterov : bool
        Look ahead by one step of the velocity.
    weight_decay : float
        This times the parameter is added to its gradient.
    dampening : float
        The share of the gradient that does not go into the velocity.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import Parameter
    >>> from tape import SGD
    >>> w = Parameter([4.0, -2.0])
    >>> optimiser = SGD([w], lr=0.1, momentum=0.5)
    >>> for _ in range(60):
    ...     optimiser.minimise(np.sum((w - 1.0) ** 2))
    >>> np.round(w.numpy(), 6)
    array([1., 1.])
    """

    _kinds = ("momentum_buffer",)

    def __init__(
        self,
        parameters: Any,
        lr: float = 1e-3,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        dampening: float = 0.0,
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay}
        super().__init__(parameters, {**options, "dampening": dampening})

    def _check(self, group: dict[str, Any]) -> None:
        not_negative(group, {"lr": "learning rate", "momentum": "momentum value", "weight_decay": "weight_decay value"})
        checked_number("dampening value", group["dampening"])
        if group["nesterov"] and (group["momentum"] == 0 or group["dampening"] != 0):
            raise OptionError("Nesterov momentum requires a momentum and zero dampening")

    def _numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        # The velocity begins as the gradient itself, undamped.
        share = 1.0 if step == 1 else 1.0 - group["dampening"]
        return group["lr"], group["weight_decay"], group["momentum"], share

    def _change(self, p: Any, g: Any, numbers: Any, group: dict[str, Any], part: slice) -> None:
        if group["momentum"] == 0:
            update_kernels.sgd(p, g, numbers)
        else:
            velocity = self._kept("momentum_buffer", p.dtype, part)
            update_kernels.sgd_momentum(p, g, velocity, numbers, bool(group["nesterov"]))


class Adam(Optimiser):
    """Adam: steps of the gradient's running mean, divided by the root of its running mean square.

    Parameters
    ----------
    parameters : iterable of Parameter, or of dict
        What to update; or groups ``{"params": [...], "lr": ...}`` with options of their own.
    lr : float
        The learning rate; ``optimiser.lr = ...`` changes it.
    betas : (float, float)
        The shares that the two means keep of what they were.
    eps : float
        Added to the root.
    weight_decay : float
        This times the parameter is added to its gradient.
    amsgrad : bool
        Divide by the largest mean square so far.
    decoupled_weight_decay : bool
        Shrink the parameter by ``lr * weight_decay`` instead of adding to its gradient (AdamW).

    Examples
    --------
    >>> import numpy as np
    >>> from tape import Parameter
    >>> from tape import Adam
    >>> w = Parameter([4.0, -2.0])
    >>> optimiser = Adam([w], lr=0.1)
    >>> for _ in range(300):
    ...     optimiser.zero_grad()
    ...     loss = np.sum((w - 1.0) ** 2)
    ...     loss.backward()
    ...     optimiser.step()
    >>> np.round(w.numpy(), 3)
    array([1., 1.])
    """

    _kinds = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")

    def __init__(
        self,
        parameters: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        decoupled_weight_decay: bool = False,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        super().__init__(parameters, {**options, "decoupled_weight_decay": decoupled_weight_decay})

    def _check(self, group: dict[str, Any]) -> None:
        not_negative(group, {"lr": "learning rate", "eps": "epsilon value", "weight_decay": "weight_decay value"})
        if not isinstance(group["betas"], tuple | list) or len(group["betas"]) != 2:
            raise OptionError(f"betas must be two numbers, got {group['betas']!r}")
        for k, beta in enumerate(group["betas"]):
            if not 0 <= checked_number("beta parameter", beta) < 1:
                raise OptionError(f"Invalid beta parameter at index {k}: {beta}")

    def _numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        (first, second), lr, decay = group["betas"], group["lr"], group["weight_decay"]
        apart = group["decoupled_weight_decay"]
        # The means begin as zero, which the two quotients make up for.
        return (
            lr / (1 - first**step),
            1 - lr * decay if apart else 1.0,
            0.0 if apart else decay,
            1 - first,
            second,
            1 - second,
            1 / math.sqrt(1 - second**step),
            group["eps"],
        )

    def _change(self, p: Any, g: Any, numbers: Any, group: dict[str, Any], part: slice) -> None:
        mean, square = (self._kept(kind, p.dtype, part) for kind in self._kinds[:2])
        if group["amsgrad"]:
            update_kernels.adam_amsgrad(p, g, mean, square, self._kept(self._kinds[2], p.dtype, part), numbers)
        else:
            update_kernels.adam(p, g, mean, square, numbers)
