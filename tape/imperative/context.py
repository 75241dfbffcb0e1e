"""What `forward` of a user's `Function` hands to its `backward`, and what becomes of it in a second derivative.

What forward saved is told apart. Arguments and results are found by identity: backward gets them back as what they are
there, recorded values if backward is itself recorded. Whole numbers, masks and names have no derivative and stay as
they are. Anything else may depend on the arguments, and so is computed again by forward on recorded values.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tape import containers
from tape.arguments import described
from tape.errors import InputError, InvalidBackprop, RuleError, UnsupportedError
from tape.tensor import Tensor

SAVED = "saved_tensors"
SAVED_FOR_FORWARD = "saved for forward"


class Context:
    """The object `ctx` by which the forward of a `Function` tells its backward what it needs.

    Attributes may be set in forward, and are there in backward.

    Parameters
    ----------
    name : str
        The class's, for messages.
    needs_input_grad : tuple of bool
        For each argument of `apply` whether it takes part in the derivative.
    reading : Reading, optional
        In backward: what forward left.
    """

    __slots__ = ("__dict__", "_marked", "_materialize", "_name", "_reading", "_saved", "needs_input_grad")

    def __init__(self, name: str, needs_input_grad: tuple[bool, ...], reading: Reading | None = None) -> None:
        self.needs_input_grad = needs_input_grad
        self._name = name
        self._reading = reading
        self._saved: dict[str, tuple[Any, ...]] = {}
        self._marked: tuple[Any, ...] = ()
        self._materialize = True

    # ------------------------------------------------------------ values
    def save_for_backward(self, *values: Any) -> None:
        """Save arrays and numbers, or None, for backward, which finds them in `saved_tensors`; once, in forward."""
        self._save(SAVED, "save_for_backward", values)

    def save_for_forward(self, *values: Any) -> None:
        """Save values for jvp, which finds them in `saved_tensors`; without this it finds those for backward."""
        self._save(SAVED_FOR_FORWARD, "save_for_forward", values)

    def _save(self, key: str, method: str, values: tuple[Any, ...]) -> None:
        self._in_forward(method)
        if key in self._saved:
            raise RuleError(f"{self._name}: {method} may be called once only: give it all values at once")
        for k, x in enumerate(values):
            if x is not None and not isinstance(x, np.ndarray | np.generic | float | int | Tensor):
                raise RuleError(
                    f"{self._name}: {method} takes arrays, numbers and None, but argument {k} is {described(x)}: keep "
                    "it as an attribute, `ctx.name = value`"
                )
        self._saved[key] = values

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved, in its order."""
        if self._reading is None:
            return self._saved.get(SAVED, ())
        found: tuple[Any, ...] = self._reading.saved()
        return found

    @property
    def saved_values(self) -> tuple[Any, ...]:
        """Another name of `saved_tensors`."""
        return self.saved_tensors

    def __getattr__(self, name: str) -> Any:
        if name in Context.__slots__:
            raise AttributeError(name)
        if self._reading is None or name not in self._reading.memory.kept:
            raise AttributeError(f"{self._name}: forward has set no attribute {name!r} of ctx")
        value = self.__dict__[name] = self._reading.get(name)
        return value

    # ------------------------------------------------------------ statements
    def mark_non_differentiable(self, *results: Any) -> None:
        """Say that some results have no derivative; to be called in forward, with what it will return."""
        self._in_forward("mark_non_differentiable")
        self._marked += results

    def set_materialize_grads(self, value: bool) -> None:
        """Say whether backward gets zeros (the default), or None, for a result that has no gradient."""
        self._in_forward("set_materialize_grads")
        self._materialize = bool(value)

    def mark_dirty(self, *arguments: Any) -> None:  # noqa: ARG002
        """Raise: arguments are never changed."""
        raise UnsupportedError(
            f"{self._name}: mark_dirty is not supported, since forward cannot change its arguments: compute a new "
            "array and return it (`return 2 * x`, not `x *= 2`)"
        )

    def _in_forward(self, method: str) -> None:
        if self._reading is not None:
            raise RuleError(f"{self._name}: {method} is to be called in forward, not in backward or jvp")


# ---------------------------------------------------------------- what forward left
class Origin(NamedTuple):
    """Where a value comes from: it is argument or result `number` of forward."""

    result: bool
    number: int


class Memory:
    """What a call of forward left in its context.

    Parameters
    ----------
    ctx : Context
    arguments : sequence
        Those of forward. No two of them are the same object where it matters which one was saved.
    results : sequence
    sloped : set of int
        Which results have a derivative.
    """

    def __init__(self, ctx: Context, arguments: Any, results: Any, sloped: set[int]) -> None:
        self.materialize = ctx._materialize
        origins = {id(y): Origin(True, j) for j, y in enumerate(results) if j in sloped}
        origins |= {id(x): Origin(False, k) for k, x in enumerate(arguments)}
        self.kept = {name: _Kept(value, origins) for name, value in {**ctx.__dict__, **ctx._saved}.items()}

    @staticmethod
    def marked(ctx: Context, results: Any) -> set[int]:
        """Give the numbers of the results that were marked as not differentiable."""
        numbers = {id(y): j for j, y in enumerate(results)}
        for k, y in enumerate(ctx._marked):
            if id(y) not in numbers:
                raise InputError(
                    f"{ctx._name}: mark_non_differentiable must be given what forward returns, but argument {k}, "
                    f"{described(y)}, is no result of it"
                )
        return {numbers[id(y)] for y in ctx._marked}


class _Kept:
    """One value that forward kept, in parts: those that are arguments or results, and others."""

    def __init__(self, value: Any, origins: dict[int, Origin]) -> None:
        leaves, self.structure = containers.flatten(value)
        self.origins = [origins.get(id(x)) for x in leaves]
        self.leaves = [x if origin is None else None for x, origin in zip(leaves, self.origins, strict=True)]
        self.itself = value if all(origin is None for origin in self.origins) else None
        self.computed = [
            k
            for k, (x, origin) in enumerate(zip(leaves, self.origins, strict=True))
            if origin is None and _may_depend(x)
        ]

    def value(self, source: Callable[[Origin], Any]) -> Any:
        """Give the value, with arguments and results from a source."""
        if all(origin is None for origin in self.origins):
            return self.itself
        leaves = [x if o is None else source(o) for x, o in zip(self.leaves, self.origins, strict=True)]
        return containers.unflatten(self.structure, leaves)

    def agrees(self, value: Any) -> bool:
        """Tell whether the parts that forward computed are the same in a value that it computed again."""
        leaves, structure = containers.flatten(value)
        return structure == self.structure and all(_close(leaves[k], self.leaves[k]) for k in self.computed)


_CONSTANT = (type(None), bool, int, str, bytes, slice, range, type, type(...), enum.Enum)
_CONSTANT += (np.bool_, np.integer, np.dtype, np.ufunc)  # type: ignore[assignment]


def _may_depend(x: Any) -> bool:
    """Tell whether a value may have a derivative by the arguments."""
    return x.dtype.kind not in "biuSUmM" if isinstance(x, np.ndarray) else not isinstance(x, _CONSTANT)


def _close(now: Any, before: Any) -> bool:
    """Tell whether two values are the same but for rounding; what is no number is not compared."""
    if isinstance(now, Tensor):
        now = now._value
    kinds = np.ndarray | np.generic | float | int
    if not isinstance(now, kinds) or not isinstance(before, kinds):
        return True
    if np.shape(now) != np.shape(before):
        return False
    if np.asarray(before).dtype.kind not in "fc":
        return True
    finite = np.abs(before)[np.isfinite(before)]
    return np.allclose(now, before, rtol=1e-3, atol=1e-3 * np.max(finite, initial=0.0), equal_nan=True)


class Reading:
    """How backward reads what forward left.

    Parameters
    ----------
    name : str
        The class's, for messages.
    memory : Memory
    source : callable
        Gives arguments and results as backward gets them.
    again : callable or None
        Calls forward on recorded arguments, and gives its context. None: nothing is recorded.
    forward : bool
        Whether jvp reads, not backward.
    """

    def __init__(
        self,
        name: str,
        memory: Memory,
        source: Callable[[Origin], Any],
        again: Callable[[], Context] | None,
        *,
        forward: bool = False,
    ) -> None:
        self.name, self.memory, self.source, self.again, self.forward = name, memory, source, again, forward
        self.recomputed: dict[str, Any] | None = None

    def saved(self) -> Any:
        """Give the saved values."""
        kept = self.memory.kept
        key = SAVED_FOR_FORWARD if self.forward and SAVED_FOR_FORWARD in kept else SAVED
        return self.get(key) if key in kept else ()

    def get(self, name: str) -> Any:
        """Give an attribute of the context, or the saved values."""
        kept = self.memory.kept[name]
        if not kept.computed or self.again is None:
            return kept.value(self.source)
        what = "what it saved" if name in (SAVED, SAVED_FOR_FORWARD) else f"ctx.{name}"
        if self.recomputed is None:
            self.recomputed = self._again(what)
        found = self.recomputed.get(name)
        if name not in self.recomputed or not kept.agrees(found):
            raise InvalidBackprop(
                f"{self.name}: forward computed {what} and gave another value when it was called again, which a second "
                "derivative needs. It must depend on its arguments alone: draw random numbers outside and pass them in"
            )
        return found

    def _again(self, what: str) -> dict[str, Any]:
        assert self.again is not None
        try:
            ctx = self.again()
        except Exception as error:
            raise InvalidBackprop(
                f"{self.name}: a second derivative needs {what} as a function of the arguments, so forward is called "
                f"again on recorded values, but that fails ({type(error).__name__}: {error}). Save only arguments and "
                "results: return the value as a result of its own, compute it in backward, or write forward in NumPy"
            ) from error
        return {**ctx.__dict__, **ctx._saved}
