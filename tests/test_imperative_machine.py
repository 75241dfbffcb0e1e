"""Random programs of tensors, views, in-place writes and backward passes, against the same program on plain arrays.

Every tensor has an array as its counterpart; arrays share memory where NumPy lets them. The program is kept as a list
of steps, which run again on complex arrays: a tiny imaginary part of one element gives the exact derivative of all that
follows. Where no gradient flows (under `no_grad`, from what was detached) only real parts are read and written.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from counterparts import (
    BINARY,
    EPSILON,
    GATHERS,
    PICK,
    PLACES,
    REDUCTIONS,
    SHAPES,
    UNARY,
    VIEWS,
    Environment,
    Handle,
    Memory,
    Node,
    positions_in,
)
from hypothesis import HealthCheck, Phase, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tape import InplaceError, InvalidBackprop, backward, enable_grad, gradients, no_grad, tensor
from tape.current import imperative
from tape.imperative import lifetime


class Machine(RuleBasedStateMachine):
    """Programs; every value is looked at after every step."""

    every_step = True

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Callable[[Environment], None]] = []
        self.env: Environment = {}
        self.handles: list[Handle] = []
        self.count = 0

    # ------------------------------------------------------------ the counterpart
    def live(self) -> list[Handle]:
        return [h for h in self.handles if h.held]

    def pick(self, i: int) -> Handle:
        live = self.live()
        assume(live)
        return live[-1 - i % len(live)]

    def run(self, step: Callable[[Environment], None]) -> None:
        step(self.env)
        self.steps.append(step)

    def values(self, h: Handle, recorded: bool = True) -> Callable[[Environment], Any]:
        """Give how to read a handle's array: complex if a gradient flows."""
        number = h.number
        if h.constant or not recorded:
            return lambda env: env[number].real
        return lambda env: env[number]

    def derivative(self, roots: list[tuple[Handle, Any]], memory: Memory) -> np.ndarray[Any, Any]:
        """Differentiate seeded roots with respect to the content of some memory."""
        owner = memory.owner.number
        shape = self.env[owner].shape
        result = np.zeros(shape)
        for index in np.ndindex(shape):
            env: Environment = {}
            for k, step in enumerate(self.steps):
                step(_Complex(env))
                if k + 1 == (self.first_step[owner] if memory.leaf else memory.step):
                    env[owner][index] += 1j * EPSILON
            result[index] = sum(np.sum(seed * env[h.number].imag) for h, seed in roots if not h.constant) / EPSILON
        return result

    # ------------------------------------------------------------ new tensors
    def add(self, t: Any, node: Node) -> Handle:
        h = Handle(self.count, t)
        self.count += 1
        self.handles.append(h)
        h.memory = Memory(h, node, len(self.steps) + 1)
        return h

    def add_view(self, t: Any, base: Handle, *, constant: bool) -> Handle:
        h = Handle(self.count, t, constant=constant or base.constant)
        self.count += 1
        self.handles.append(h)
        h.memory, h.parent = base.memory, base
        return h

    @initialize(shape=st.sampled_from(SHAPES), seed=st.integers(0, 99))
    def begin(self, shape: Any, seed: int) -> None:
        self.first_step: dict[int, int] = {}
        self.leaf(shape, seed, True)

    @rule(shape=st.sampled_from(SHAPES), seed=st.integers(0, 99), requires_grad=st.booleans())
    def leaf(self, shape: Any, seed: int, requires_grad: bool) -> None:
        data = np.asarray(np.round(np.random.default_rng(seed).uniform(-1.0, 1.0, shape), 3))
        h = self.add(tensor(data, requires_grad=requires_grad), Node([], gradient=requires_grad, leaf=requires_grad))
        number = h.number
        self.first_step[number] = len(self.steps) + 1
        self.run(lambda env: env.__setitem__(number, data.copy()))

    # ------------------------------------------------------------ operations
    def compute(
        self, function: Callable[..., Any], operands: list[Handle], recorded: bool, *, element: bool = False
    ) -> None:
        """Carry out an operation whose result has memory of its own.

        `element`: it reads one element, which may be one that was written, and so depend on less than the whole.
        """
        reads = [self.values(h, recorded) for h in operands]

        def on_arrays(env: Environment) -> Any:
            return np.array(function(*[read(env) for read in reads]), order="K")

        try:
            value = on_arrays(self.env)
        except (ValueError, IndexError):
            assume(False)
        assume(value.dtype == np.float64 and value.size and np.all(np.abs(value) < 1e3) and value.ndim < 4)
        with enable_grad() if recorded else no_grad():
            t = function(*[h.t for h in operands])
        gradient = recorded and any(h.requires_grad for h in operands)
        h = self.add(t, Node([h.node for h in operands], gradient=gradient))
        h.memory.replaced = element or any(x.memory.replaced for x in operands)
        number = h.number
        self.run(lambda env: env.__setitem__(number, on_arrays(env)))

    @rule(k=st.integers(0, len(UNARY) - 1), i=PICK, recorded=st.sampled_from([True, True, True, False]))
    def unary(self, k: int, i: int, recorded: bool) -> None:
        self.compute(UNARY[k], [self.pick(i)], recorded)

    @rule(k=st.integers(0, len(BINARY) - 1), i=PICK, j=PICK, recorded=st.sampled_from([True, True, True, False]))
    def binary(self, k: int, i: int, j: int, recorded: bool) -> None:
        self.compute(BINARY[k], [self.pick(i), self.pick(j)], recorded)

    @rule(k=st.integers(0, len(REDUCTIONS) - 1), i=PICK)
    def reduce(self, k: int, i: int) -> None:
        operand = self.pick(i)
        assume(k == 0 or self.env[operand.number].ndim)
        self.compute(REDUCTIONS[k], [operand], True)

    @rule(k=st.integers(0, len(GATHERS) - 1), i=PICK)
    def gather(self, k: int, i: int) -> None:
        self.compute(lambda a: a[GATHERS[k]], [self.pick(i)], True)

    @rule(i=PICK, clone=st.booleans())
    def copy(self, i: int, clone: bool) -> None:
        self.compute(lambda a: a.copy() if isinstance(a, np.ndarray) or not clone else a.clone(), [self.pick(i)], True)

    @rule(k=st.integers(0, len(VIEWS) - 1), i=PICK, recorded=st.sampled_from([True, True, True, False]))
    def view(self, k: int, i: int, recorded: bool) -> None:
        base, function = self.pick(i), VIEWS[k]
        array = self.env[base.number]
        assume(array.ndim)
        try:
            seen = function(array)
        except (ValueError, IndexError):
            assume(False)
        assume(np.shape(seen) or isinstance(seen, np.generic))  # a view of one element is a number here
        if not np.shape(seen) or not np.shares_memory(seen, array):
            self.compute(function, [base], recorded, element=not np.shape(seen))
            return
        assume(seen.ndim < 4 and seen.size)
        # What `no_grad` gives of a value that was recorded is a copy.
        assume(recorded or not self.was_recorded(base))
        with enable_grad() if recorded else no_grad():
            t = function(base.t)
        h = self.add_view(t, base, constant=not recorded and base.memory.leaf)
        number, source = h.number, base.number
        self.run(lambda env: env.__setitem__(number, function(env[source])))

    def was_recorded(self, h: Handle) -> bool:
        """Tell whether a value may be on a tape: neither a leaf nor a tensor without a gradient."""
        return h.memory.on_tape or (h.memory.leaf and h.parent is not None and not h.constant)

    @rule(i=PICK, data=st.booleans())
    def detach(self, i: int, data: bool) -> None:
        source = self.pick(i)
        shared = not self.was_recorded(source)
        t = source.t.data if data else source.t.detach()
        number, old = source.number, self.count
        if shared:
            h = self.add_view(t, source, constant=True)
            h.memory.detached = True
            self.run(lambda env: env.__setitem__(old, env[number][...]))
        else:
            copy = self.add(t, Node([], gradient=False))
            copy.memory.frozen = source.memory.frozen = True
            self.run(lambda env: env.__setitem__(old, np.array(env[number].real)))

    # ------------------------------------------------------------ writes
    def write(
        self, target: Handle, place: Any, change: Callable[[Any, Any], Any], value: Handle | None, recorded: bool
    ) -> None:
        """Let `change(target, value)` write to a target, of which the place is written."""
        memory = target.memory
        assume(not memory.frozen)
        source = self.values(value, recorded) if value is not None else lambda env: np.array(0.25)
        trial = self.env[target.number].copy()
        try:
            change(trial, np.array(source(self.env)))
        except (ValueError, IndexError, TypeError):
            assume(False)
        assume(np.all(np.abs(trial) < 1e3))
        carries = recorded and value is not None and value.requires_grad
        # A detached tensor no longer shares the memory of one that is recorded from now on.
        assume(not (carries and memory.detached))
        on_tape = self.was_recorded(target)
        # Under `no_grad`, leaves and tensors without a gradient are written to.
        assume(recorded or memory.leaf or not on_tape)
        must = recorded and memory.leaf and (target.requires_grad or carries)
        may = must or (recorded and (target.node.tainted() or (memory.leaf and target.constant)))
        try:
            with enable_grad() if recorded else no_grad():
                change(target.t, value.t if value is not None else 0.25)
        except (InplaceError, InvalidBackprop):
            assert may
            return
        assert not must
        number = target.number
        real = not recorded or target.constant
        whole = place is Ellipsis and target.parent is None
        nodes = [] if whole else [memory.node, target.node]
        parents = nodes + ([value.node] if value is not None and recorded else [])

        def on_arrays(env: Environment) -> None:
            if real:
                change(env[number].real, np.array(source(env).real))
            else:
                change(env[number], np.array(source(env)))

        if not real:
            before = memory.replaced and not whole
            memory.replaced = before or (place is Ellipsis and not whole)
            memory.replaced |= value is not None and value.memory.replaced
            memory.node = Node(parents, gradient=carries or (memory.node.gradient and not whole))
            memory.on_tape |= carries
            memory.step = len(self.steps) + 1
        self.run(on_arrays)

    @rule(k=st.integers(0, len(PLACES) - 1), i=PICK, j=PICK, plain=st.booleans(), recorded=st.booleans())
    def assign(self, k: int, i: int, j: int, plain: bool, recorded: bool) -> None:
        target, place = self.pick(i), PLACES[k]
        assume(self.env[target.number].ndim or place is Ellipsis)

        def change(a: Any, v: Any) -> None:
            a[place] = v

        self.write(target, place, change, None if plain else self.pick(j), recorded)

    @rule(k=st.integers(0, len(PLACES) - 1), i=PICK, j=PICK, multiply=st.booleans(), recorded=st.booleans())
    def update(self, k: int, i: int, j: int, multiply: bool, recorded: bool) -> None:
        target, place = self.pick(i), PLACES[k]
        assume(self.env[target.number].ndim)

        def change(a: Any, v: Any) -> None:
            if multiply:
                a[place] *= v
            else:
                a[place] += v

        self.write(target, None, change, self.pick(j), recorded)

    @rule(i=PICK, j=PICK, k=st.integers(0, 3), recorded=st.booleans())
    def augment(self, i: int, j: int, k: int, recorded: bool) -> None:
        target = self.pick(i)
        assume(self.env[target.number].ndim)

        def change(a: Any, v: Any) -> None:
            if k == 0:
                a += v
            elif k == 1:
                a -= v
            elif k == 2:
                a *= v
            else:
                np.add(a, v, out=a)

        self.write(target, None, change, self.pick(j), recorded)

    @rule(i=PICK, j=PICK, sine=st.booleans())
    def into(self, i: int, j: int, sine: bool) -> None:
        target = self.pick(i)
        assume(self.env[target.number].ndim)
        self.write(
            target,
            Ellipsis,
            lambda a, v: np.sin(v, out=a) if sine else np.multiply(v, 0.5, out=a),
            self.pick(j),
            True,
        )

    # ------------------------------------------------------------ lifetime
    @rule(i=PICK)
    def drop(self, i: int) -> None:
        h = self.pick(i)
        assume(len(self.live()) > 1)
        h.held = False
        h.t = None

    @rule(i=PICK)
    def prune(self, i: int) -> None:
        """Let the tape drop what no handle needs, as it does when it has grown."""
        found = imperative()
        if found is not None and not found.held:
            lifetime.relieve(found)

    # ------------------------------------------------------------ backward
    def seed(self, h: Handle) -> Any:
        shape = self.env[h.number].shape
        return np.linspace(0.5, 1.5, int(np.prod(shape))).reshape(shape)

    def leaves(self) -> list[Handle]:
        return [h for h in self.handles if h.parent is None and h.memory.leaf]

    def clear(self, roots: list[Handle]) -> None:
        for root in roots:
            for node in root.node.above():
                if node.gradient and not node.leaf:
                    node.cleared = True

    def attempt(self, roots: list[Handle], do: Callable[[], Any]) -> tuple[bool, Any]:
        """Carry out a pass; tell whether it was carried out."""
        must = any(not r.requires_grad for r in roots)
        may = must or any(r.node.tainted() or r.memory.replaced for r in roots)
        try:
            result = do()
        except InvalidBackprop as error:
            if may and ("cleared" in str(error) or "does not require grad" in str(error)):
                return False, None
            raise
        assert not must
        return True, result

    @rule(i=PICK, j=PICK, two=st.booleans(), retain=st.sampled_from([None, True, False]))
    def backward(self, i: int, j: int, two: bool, retain: bool | None) -> None:
        roots = [self.pick(i)] + ([self.pick(j)] if two else [])
        seeds = [self.seed(r) for r in roots]
        expected = list(zip(roots, seeds, strict=True))

        def do() -> None:
            if two:
                backward([r.t for r in roots], seeds, retain_graph=retain)
            else:
                roots[0].t.backward(seeds[0], retain_graph=retain)

        done, _ = self.attempt(roots, do)
        if not done:
            return
        for leaf in self.leaves():
            g = self.derivative(expected, leaf.memory)
            if leaf.gradient is not None or np.any(g):
                leaf.gradient = g if leaf.gradient is None else leaf.gradient + g
            if leaf.held:
                self.check_gradient(leaf.t.grad, leaf.gradient)
        passed = {id(node) for r in roots for node in r.node.above()}
        if not retain:
            self.clear(roots)
        for h in self.live():
            if h.constant:
                continue  # a view of a leaf may show the gradient of what it is a view of
            if not h.requires_grad:
                assert h.t.grad is None
            elif h.memory.leaf:
                whole = h.memory.owner.gradient
                owner = self.env[h.memory.owner.number]
                expected_g = None if whole is None else positions_in(owner, self.env[h.number], whole)
                self.check_gradient(h.t.grad, expected_g)
            elif id(h.memory.node) in passed:
                whole = self.derivative(expected, h.memory)
                g = positions_in(self.env[h.memory.owner.number], self.env[h.number], whole)
                if np.any(whole):
                    self.check_gradient(h.t.grad, g)
        if self.every_step:
            self.check_all()

    @rule(i=PICK, wanted=st.lists(PICK, min_size=1, max_size=3), retain=st.booleans())
    def gradients(self, i: int, wanted: list[int], retain: bool) -> None:
        root = self.pick(i)
        inputs = list({h.number: h for h in map(self.pick, wanted) if h.requires_grad and h.parent is None}.values())
        inputs = [h for h in inputs if h is not root and not h.node.cleared and not h.memory.replaced]
        assume(inputs)
        seed = self.seed(root)
        done, found = self.attempt(
            [root], lambda: gradients(root.t, [h.t for h in inputs], seed, retain_graph=retain, allow_unused=True)
        )
        if not done:
            return
        for h, g in zip(inputs, found, strict=True):
            expected = self.derivative([(root, seed)], h.memory)
            self.check_gradient(g, expected if g is not None or np.any(expected) else None)
        if not retain:
            self.clear([root])
        for leaf in self.leaves():
            if leaf.held:
                self.check_gradient(leaf.t.grad, leaf.gradient)

    @rule(i=PICK)
    def zero_grad(self, i: int) -> None:
        h = self.pick(i)
        assume(h.memory.leaf and h.parent is None)
        h.t.zero_grad()
        h.gradient = None

    # ------------------------------------------------------------ checks
    def check_gradient(self, got: Any, expected: Any) -> None:
        if expected is None:
            assert got is None or not np.any(got)
            return
        if got is None:
            assert not np.any(expected)
            return
        assert type(got) is np.ndarray
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-10)

    def check(self, h: Handle) -> None:
        expected = self.env[h.number]
        got = h.t.numpy()
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)
        if h.memory.replaced:
            return
        assert h.t.requires_grad == h.requires_grad
        leaf = not h.requires_grad or (h.memory.leaf and h.parent is None)
        assert h.t.is_leaf == leaf
        if leaf:
            assert h.t.grad_fn is None
        elif not h.node.tainted():
            assert h.t.grad_fn is not None

    def check_all(self) -> None:
        for h in self.live():
            self.check(h)

    @rule(i=PICK)
    def look(self, i: int) -> None:
        self.check(self.pick(i))

    @invariant()
    def values_agree(self) -> None:
        if self.every_step:
            self.check_all()

    def teardown(self) -> None:
        self.check_all()


class _Complex(dict[int, Any]):
    """An environment in which new arrays are complex."""

    def __init__(self, env: Environment) -> None:
        self.env = env

    def __getitem__(self, key: int) -> Any:
        return self.env[key]

    def __setitem__(self, key: int, value: Any) -> None:
        self.env[key] = value if value.dtype.kind == "c" else value.astype(np.complex128)


class Unwatched(Machine):
    """Programs whose values are looked at here and there only, so that writes and views are left pending."""

    every_step = False


def run(machine: type[Machine], chosen: settings) -> None:
    """Run programs. Few objects are left to Python's garbage collector, which looks for tensors among all of them."""
    gc.collect()
    gc.freeze()
    try:
        run_state_machine_as_test(machine, settings=chosen)
    finally:
        gc.unfreeze()


FEW = settings(
    max_examples=150,
    stateful_step_count=25,
    deadline=None,
    phases=(Phase.generate, Phase.shrink),
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("machine", [Machine, Unwatched])
def test_programs(machine: type[Machine]) -> None:
    """A few programs."""
    run(machine, FEW)


@pytest.mark.exhaustive
@pytest.mark.parametrize("machine", [Machine, Unwatched])
def test_many_programs(machine: type[Machine]) -> None:
    """Many longer programs."""
    many = settings(FEW, max_examples=300, stateful_step_count=30)
    run(machine, many)
