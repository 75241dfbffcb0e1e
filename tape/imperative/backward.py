"""backward, gradients and backward_pairs: what a user asks of a backward pass."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from tape.adjoint import Hooks, pull_back
from tape.current import current, recording_to
from tape.errors import InvalidBackprop, was_cleared
from tape.imperative import lifetime
from tape.imperative.hooks import hooked
from tape.imperative.seeds import inputs_of, listed_of, seed_of, seeds_of
from tape.imperative.sweeping import Pass, at, no_gradient
from tape.imperative.variable import Variable, constant
from tape.tensor import Tensor
from tape.wengert import PAUSED, WATCHED, Tape


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Compute the gradients of one or more tensors, and add them to ``.grad`` of the leaves.

    Parameters
    ----------
    tensors : Tensor or sequence of Tensor
        The roots; their gradients are summed.
    grad_tensors : array_like, Tensor or None, or a sequence of them
        The seed of each root, which must broadcast to its shape; 1 for a root of one element if it is None.
    retain_graph : bool, optional
        Keep what was recorded, so that a further pass over it is possible; `create_graph` by default. Else the part of
        the tape that the roots depend on is cleared.
    create_graph : bool
        Record the pass itself: the gradients are Tensors that can be differentiated.
    inputs : Tensor or sequence of Tensor, optional
        Add to ``.grad`` of these only.

    Raises
    ------
    InvalidBackprop
        If a root depends on nothing that requires a gradient, needs a seed, or was cleared by an earlier pass.
    InvalidGradient
        If a seed does not fit its root.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import backward, tensor
    >>> x = tensor([1.0, 2.0])
    >>> backward([np.sum(x**2), np.sum(x)])
    >>> x.grad
    array([3., 5.])
    """
    retain = create_graph if retain_graph is None else retain_graph
    wanted = None if inputs is None else inputs_of(inputs)
    work = _Work(listed_of(tensors), seeds_of(tensors, grad_tensors), wanted, retain=retain, create_graph=create_graph)
    # The pass ends before anything is computed with recorded gradients of earlier ones.
    for v, g in list(work.run()):
        _accumulate(v, g)


def gradients(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Compute the gradients of outputs with respect to inputs, without touching ``.grad``.

    Parameters
    ----------
    outputs : Tensor or sequence of Tensor
        Their gradients are summed.
    inputs : Tensor or sequence of Tensor
        Leaves, or tensors on the way.
    grad_outputs, retain_graph, create_graph
        As `grad_tensors` and the others in `backward`.
    allow_unused : bool, optional
        Give None for an input that the outputs do not depend on, instead of raising; `materialize_grads` by default.
    materialize_grads : bool
        Give zeros in place of None.

    Returns
    -------
    tuple
        A gradient for each input: an array, or a Tensor with `create_graph`.

    Raises
    ------
    InvalidBackprop
        As `backward`; if an input does not require a gradient, or is not used by the outputs.
    ValueError
        If ``allow_unused=False`` contradicts `materialize_grads`.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import gradients, tensor
    >>> x = tensor(3.0)
    >>> (slope,) = gradients(x**3, x, create_graph=True)
    >>> slope
    Tensor(27., dtype=float64)
    >>> gradients(slope, x)
    (array(18.),)
    """
    if materialize_grads and allow_unused is False:
        raise ValueError("allow_unused=False contradicts materialize_grads=True, which gives zeros for unused inputs")
    wanted = inputs_of(inputs)
    retain = create_graph if retain_graph is None else retain_graph
    work = _Work(listed_of(outputs), seeds_of(outputs, grad_outputs), wanted, retain=retain, create_graph=create_graph)
    found = {id(v): g for v, g in work.run()}
    results: list[Any] = []
    for k, t in enumerate(wanted):
        g = found.get(id(t))
        if g is None and not (materialize_grads if allow_unused is None else allow_unused):
            raise InvalidBackprop(
                f"the differentiated tensor at index {k} appears to not have been used in the graph: say "
                "allow_unused=True if this is what you want (its gradient is then None)"
            )
        results.append(np.zeros(t.shape, t.dtype) if g is None and materialize_grads else g)
    return tuple(results)


def backward_pairs(loss: Tensor, dy: Any = None, retain_graph: bool = False) -> Iterator[tuple[Any, Any]]:
    """Go backward from a loss and give each parameter with its gradient as soon as that is complete.

    The sweep goes on only when the next pair is asked for. The parameter that was used last comes first. No part of the
    sweep that is left needs its value, so it may be updated at once, and its gradient be dropped.

    Parameters
    ----------
    loss : Tensor
    dy : array_like, optional
        The seed; 1 for a loss of one element.
    retain_graph : bool
        See `backward`.

    Returns
    -------
    iterator of (Tensor, ndarray)
        Leaves that require a gradient, each once. ``.grad`` is left alone.

    Raises
    ------
    InvalidBackprop, InvalidGradient
        As `backward`, at the call.

    Examples
    --------
    >>> import numpy as np
    >>> from tape import Parameter, backward_pairs, no_grad
    >>> w, b = Parameter(np.ones(2)), Parameter(0.5)
    >>> loss = (np.dot(w, np.array([1.0, 2.0])) + b) ** 2
    >>> for parameter, gradient in backward_pairs(loss):
    ...     with no_grad():
    ...         parameter -= 0.01 * gradient
    >>> w
    Parameter([0.93, 0.86], dtype=float64, requires_grad=True)
    """
    return _Work(listed_of(loss), seeds_of(loss, dy), None, retain=retain_graph, create_graph=False).run()


def forget(t: Tensor) -> None:
    """Clear what was recorded to compute a tensor."""
    work = _Work([t], [np.ones(t.shape)], None, retain=False, create_graph=False)
    clearing = lifetime.Clearing(work.tape, work.handles, work.steps.depends, work.steps.reached)
    work.steps.close()
    clearing.carry_out({})


def _paused(stream: Iterator[Any]) -> Iterator[Any]:
    """Go through a stream that computes with nothing recorded, while what is done with its items may be."""
    while True:
        outer, current.tape = current.tape, None
        try:
            item = next(stream, None)
        finally:
            current.tape = outer
        if item is None:
            return
        yield item


def _as_tensor(g: Any, t: Tensor) -> Any:
    return g if isinstance(g, Tensor) else constant(np.array(g, t._layout.dtype))


def _total(parts: list[Any]) -> Any:
    return functools.reduce(operator.add, parts) if parts else None


def _accumulate(t: Any, g: Any) -> None:
    if not isinstance(t, Variable):
        t._tape.gradients[t._slot] = g
        return
    old = t._state.grad
    if isinstance(old, Tensor) and not isinstance(g, Tensor):
        old = old.numpy()
    t._state.grad = g if old is None else old + g if isinstance(g, Tensor) else np.asarray(old + g)


class _Work:
    """One call of backward: its roots, on the tape or leaves themselves, and what happens to the tape."""

    def __init__(
        self, roots: list[Any], seeds: list[Any], wanted: list[Any] | None, *, retain: bool, create_graph: bool
    ) -> None:
        self.retain, self.create_graph, self.wanted = retain, create_graph, wanted
        self.leaves: list[tuple[Any, Any]] = []
        self.asked: list[tuple[Any, int]] = []
        self.roots: list[Tensor] = []
        self.seeds: list[Any] = []
        for number, (t, seed) in enumerate(zip(roots, seeds, strict=True)):
            if isinstance(t, Variable) and t._state.cleared:
                raise was_cleared(f"of shape {t.shape}")
            if isinstance(t, Variable) and not t._state.requires_grad:
                raise no_gradient(number)
            t._alive()
            checked = seed_of(t, seed, recorded=create_graph)
            if isinstance(t, Variable):
                self.leaves.append((t, np.asarray(checked)))
            else:
                self.roots.append(t)
                self.seeds.append(checked)
        self.tape: Any = None
        if self.roots:
            self._prepare()

    def _prepare(self) -> None:
        tape = self.roots[0]._tape
        if any(t._tape is not tape for t in self.roots):
            raise InvalidBackprop("the tensors were recorded on different tapes, so they cannot be roots of one pass")
        if not tape.persistent:
            raise InvalidBackprop(
                "this tensor belongs to a function that `grad` or its kin is differentiating; backward is for what is "
                "computed from tensors made by `tensor(...)`, outside of such a function"
            )
        held = tape.held & (PAUSED | WATCHED)
        tape.free(held)
        try:
            if tape.held and not tape.pinned:
                lifetime.relieve(tape)
            # Before anything here refers to the tape: the references to it tell how many handles there are.
            self.handles = lifetime.live(tape, self.roots)
            lifetime.settle(self.handles)
            roots = [at(tape, t._slot, t._value) for t in self.roots]
            variables, kept = self._wanted(tape)
            self.steps = Pass(tape, roots, variables, kept, asked=bool(self.asked))
        finally:
            tape.hold(held)
        self.tape, self.length = tape, tape.count

    def _wanted(self, tape: Tape) -> tuple[list[Any] | None, list[Tensor]]:
        """Give the leaves whose gradients are wanted (None for all), and the handles of other slots."""
        if self.wanted is None:
            return None, [t for t in self.handles if t._layout.dtype.kind == "f" and getattr(t, "_base", None) is None]
        self.asked = [(t, t._slot) for t in self.wanted if not isinstance(t, Variable) and t._tape is tape]
        return [t for t in self.wanted if isinstance(t, Variable)], [t for t, _ in self.asked]

    def run(self) -> Iterator[tuple[Any, Any]]:
        """Give each wanted tensor with its gradient."""
        yield from self.leaves
        if self.roots:
            if self.tape.workspace is None or self.tape.count != self.length:
                self._again()
            yield from self._recorded() if self.create_graph else self._swept()

    def _again(self) -> None:
        """Prepare once more: something was recorded or cleared since the call."""
        for t in self.roots:
            if isinstance(t, Variable):
                raise was_cleared(f"of shape {t.shape}")
        self._prepare()

    def _swept(self) -> Iterator[tuple[Any, Any]]:
        tape, steps = self.tape, self.steps
        clearing = None if self.retain else lifetime.Clearing(tape, self.handles, steps.depends, steps.reached)
        tape.pinned += 1
        try:
            for pair in _paused(steps.stream(self.seeds)):
                if clearing is not None and not clearing.left and tape.pinned == 1:
                    lifetime.let_go(tape, pair[0])
                yield pair
        finally:
            tape.pinned -= 1
            if clearing is not None and tape.count != self.length:
                clearing = lifetime.Clearing(tape, lifetime.live(tape), steps.depends, steps.reached)
            steps.close()
            found = steps.gradients if self.wanted is None else {}
            if clearing is None:
                tape.gradients = found
            else:
                clearing.carry_out(found)
        for t, slot in self.asked:
            if slot in steps.gradients:
                yield t, steps.gradients[slot]

    def _recorded(self) -> Iterator[tuple[Any, Any]]:
        """Append the pass to the tape, so that its results can be differentiated."""
        tape, steps = self.tape, self.steps
        used = None if self.retain else steps.reached()
        hooks: Hooks = {slot: functools.partial(hooked, h) for slot, h in tape.hooks.items() if steps.depends(slot)}
        kept = [t for t in steps.kept.values() if steps.depends(t._slot)]
        groups = steps.groups()
        slots = {t._slot for t in kept}.union(*(slots for _, slots in groups))
        wanted = [at(tape, slot) for slot in slots]
        steps.close()
        held = tape.held & PAUSED
        tape.free(held)
        try:
            with recording_to(tape), tape.unpruned():
                found = pull_back(tape, wanted, steps.outputs, self.seeds, hooks)
                by_slot = {t._slot: _as_tensor(g, t) for t, g in zip(wanted, found, strict=True) if g is not None}
                totals = [(v, _total([by_slot[s] for s in slots if s in by_slot])) for v, slots in groups]
                pairs = [(v, hooked(v._state.hooks, g)) for v, g in totals if g is not None]
        finally:
            tape.hold(held)
        kept_gradients = {t._slot: by_slot[t._slot] for t in kept if t._slot in by_slot}
        if used is not None:
            known = set(np.flatnonzero(used).tolist())
            clearing = lifetime.Clearing(tape, lifetime.live(tape), known.__contains__, lambda: used)
            clearing.carry_out(kept_gradients if self.wanted is None else {})
        elif self.wanted is None:
            tape.gradients = kept_gradients
        yield from pairs
        for t, slot in self.asked:
            if slot in kept_gradients:
                yield t, kept_gradients[slot]
