"""The tape as a graph of nodes that are made on demand."""

import time

import numpy as np
import pytest

import ops
from tape import Tensor, elementwise_op, grad, stop_gradient, vjp
from tape.errors import InvalidBackprop
from tape.imperative import graph
from tape.imperative.graph import Node, node_of, variable_of, walk
from tape.imperative.variable import attach, tensor
from tape.wengert import Tape


def inside(f, *args, argnums=0, look):
    """Differentiate f, look at its result while it is being recorded, and give what was seen."""
    seen = []

    def looked(*args):
        y = f(*args)
        seen.append(look(y))
        return y

    vjp(looked, *args, argnums=argnums)
    return seen[0]


def nexts(node):
    assert all(position == 0 for _, position in node.next_functions)
    return [n and n.name() for n, _ in node.next_functions]


def next_of(f, *args, argnums=0):
    return inside(f, *args, argnums=argnums, look=lambda y: (node_of(y).name(), nexts(node_of(y))))


X = np.arange(1.0, 5.0).reshape(2, 2)
CONSTANT = np.array([[2.0, 1.0], [0.5, 3.0]])


@pytest.mark.parametrize(
    ("f", "x", "name", "expected"),
    [
        (lambda x: x, 2.0, "AccumulateGrad", []),
        (np.sin, 2.0, "SinBackward", ["AccumulateGrad"]),
        (lambda x: x * x, 2.0, "MultiplyBackward", ["AccumulateGrad", "AccumulateGrad"]),
        (lambda x: 3.0 * x, 2.0, "MultiplyBackward", [None, "AccumulateGrad"]),
        (lambda x: x**2.5, 2.0, "PowerBackward", ["AccumulateGrad", None]),
        (lambda x: np.float_power(np.exp(x), x), X, "FloatPowerBackward", ["ExpBackward", "AccumulateGrad"]),
        (lambda x: x + CONSTANT, X, "AddBackward", ["AccumulateGrad", None]),
        (lambda x: x * np.float32(2), X.astype(np.float32), "MultiplyBackward", ["AccumulateGrad", None]),
        (lambda x: x @ np.cos(x), X, "MatmulBackward", ["AccumulateGrad", "CosBackward"]),
        (lambda x: CONSTANT @ x, X, "MatmulBackward", [None, "AccumulateGrad"]),
        (lambda x: x[0], X, "IndexBackward", ["AccumulateGrad"]),
        (lambda x: x[0], X[0], "IndexBackward", ["AccumulateGrad"]),
        (lambda x: x[np.array([0, 0, 1])], X, "IndexBackward", ["AccumulateGrad", None]),
        (
            lambda x: np.concatenate([x, CONSTANT, x]),
            X,
            "ConcatenateBackward",
            ["AccumulateGrad", None, "AccumulateGrad"],
        ),
        (lambda x: np.linalg.solve(CONSTANT, x), X, "SolveBackward", [None, "AccumulateGrad"]),
        (lambda x: np.linalg.solve(x, CONSTANT), X, "SolveBackward", ["AccumulateGrad", None]),
        (lambda x: np.broadcast_to(x, (3, 2, 2)), X, "BroadcastToBackward", ["AccumulateGrad"]),
        (lambda x: np.sum(x, axis=0), X, "SumBackward", ["AccumulateGrad"]),
        # Of two operands that depend on the input, the gradient goes to the first only.
        (lambda x: np.copysign(np.exp(x), x), 2.0, "CopysignBackward", ["ExpBackward", None]),
        (lambda x: np.copysign(np.exp(x), x), X, "CopysignBackward", ["ExpBackward", None]),
        (lambda x: stop_gradient(np.exp(x)) * x, 2.0, "MultiplyBackward", [None, "AccumulateGrad"]),
    ],
)
def test_the_gradient_goes_on_to_the_operands_that_need_one(f, x, name, expected):
    assert next_of(f, x) == (name, expected)


@pytest.mark.parametrize("x", [0.5, X])
def test_masks_get_no_gradient(x):
    def f(x):
        return np.where(x > 1.0, x, 7.0)

    name, found = next_of(f, x)
    assert (name, found) == ("WhereBackward", [None, "AccumulateGrad", None])
    assert inside(f, x, look=lambda y: Node(y._tape, node_of(y).operands[0]).name()) == "GreaterBackward"


def test_item_assignment():
    def f(x):
        filled = np.zeros_like(x)
        filled[1] = np.exp(x[0])
        filled[0] = 3.0
        return filled

    name, found = next_of(f, X)
    assert name == "AssignBackward"
    assert found == [None, "ExpBackward", None]
    assert next_of(f, np.ones(3)) == (name, found)


def test_joined_numbers():
    assert next_of(lambda x: ops.array([x, 1.0, np.sin(x)]), 2.0)[1] == ["AccumulateGrad", None, "SinBackward"]


def test_only_inputs_need_a_gradient():
    def f(x, y):
        return x * y

    assert next_of(f, 2.0, 3.0) == ("MultiplyBackward", ["AccumulateGrad", None])
    assert next_of(f, 2.0, 3.0, argnums=1) == ("MultiplyBackward", [None, "AccumulateGrad"])
    assert next_of(f, 2.0, 3.0, argnums=(0, 1)) == ("MultiplyBackward", ["AccumulateGrad"] * 2)


def test_the_name_of_an_op_of_a_user():
    cube = elementwise_op(lambda x: x**3, lambda x, out: 3 * x**2, name="cube of-x")
    assert next_of(cube, X)[0] == "CubeOfXBackward"


def test_what_a_node_tells():
    def look(y):
        node = node_of(y)
        leaf = node.next_functions[0][0]
        constant = Node(y._tape, node.operands[1])
        assert node == Node(y._tape, y._slot) != leaf
        assert node != y._slot
        assert len({node, Node(y._tape, y._slot), leaf}) == 2
        assert repr(node) == f"<MultiplyBackward at slot {y._slot}>"
        assert (node.op, node.shape, node.dtype, node.slot) == ("multiply", (2, 2), np.float64, y._slot)
        assert (leaf.op, leaf.operands, leaf.next_functions) == ("leaf", (), ())
        assert constant.name() == "Constant" and constant.next_functions == ()
        assert leaf.variable is None
        assert not hasattr(node, "variable") and not hasattr(constant, "variable")
        saved = node.saved_value
        saved[0, 0] = 100.0
        assert np.array_equal(node.saved_value, X * CONSTANT)
        return node

    inside(lambda x: x * CONSTANT, X, look=look)


def test_the_value_of_a_number_is_a_number():
    value = inside(np.sin, 2.0, look=lambda y: node_of(y).saved_value)
    assert type(value) is float and value == np.sin(2.0)


def test_what_depends_on_nothing_has_no_node():
    def f(x):
        assert node_of(x > 1.0) is None
        assert node_of(np.floor(x)) is None
        assert node_of(stop_gradient(np.exp(x)) * 2.0) is None
        assert node_of(np.zeros_like(x)) is None
        assert node_of(np.argsort(x)) is None
        return np.sum(x)

    grad(f)(np.ones(3))
    assert node_of(tensor([1.0], requires_grad=False)) is None


def test_slots_that_are_not_there():
    def look(y):
        for slot in (-1, y._tape.count):
            with pytest.raises(IndexError, match="is not on the tape"):
                Node(y._tape, slot)

    inside(np.sin, 1.0, look=look)


def test_inside_a_nested_derivative_the_graph_goes_on_outside():
    names = []

    def outer(x):
        def inner(z):
            y = np.sin(z) * x
            names.extend(n.name() for n in walk(node_of(y)))
            return y

        return grad(inner)(np.exp(x))

    grad(outer)(1.0)
    assert names[:2] == ["MultiplyBackward", "SinBackward"]
    assert names[-2:] == ["ExpBackward", "AccumulateGrad"]


def test_a_walk_gives_each_node_once_and_users_first():
    def f(x):
        a = np.sin(x)
        for _ in range(50):  # as many paths as 2 ** 50
            a = a + a * 2.0
        np.cos(x)
        return a

    def look(y):
        found = list(walk(node_of(y)))
        assert len(found) == len(set(found)) == 102
        assert [n.slot for n in found] == sorted((n.slot for n in found), reverse=True)
        assert "CosBackward" not in {n.name() for n in found}
        assert found[-1].name() == "AccumulateGrad"
        assert [n.name() for n in walk(found[-1])] == ["AccumulateGrad"]

    inside(f, 1.0, look=look)


def test_a_long_chain_is_walked_in_linear_time_without_recursion():
    length = 100_000

    def f(x):
        for _ in range(length):
            x = np.sin(x)
        return x

    def look(y):
        start = time.perf_counter()
        assert sum(1 for _ in walk(node_of(y))) == length + 1
        node = node_of(y)
        steps = 0
        while node.next_functions:  # the way people walk by hand: the tape must not be read through for each node
            (node, _), *_ = node.next_functions
            steps += 1
        assert steps == length
        assert node.name() == "AccumulateGrad"
        return time.perf_counter() - start

    assert inside(f, 1.0, look=look) < 20.0


def test_the_tape_is_read_through_once_for_nodes_of_one_root(monkeypatch):
    calls = []
    marks_of = graph.marks_of
    monkeypatch.setattr(graph, "marks_of", lambda *args: calls.append(args) or marks_of(*args))

    def look(y):
        node = node_of(y)
        while node.next_functions:
            node = node.next_functions[0][0]
        assert len(calls) == 1
        last = Node(y._tape, y._slot)
        assert last.next_functions == last.next_functions
        assert len(calls) == 2

    inside(lambda x: np.exp(np.sin(np.cos(x))), 1.0, look=look)


def test_more_entries_change_nothing():
    def f(x):
        y = np.sin(x)
        node = node_of(y)
        walking = walk(node)
        assert next(walking) == node
        z = y * np.cos(y)
        assert nexts(node) == ["AccumulateGrad"]
        assert nexts(node_of(z)) == ["SinBackward", "CosBackward"]
        assert [n.name() for n in walking] == ["AccumulateGrad"]
        return z

    grad(f)(1.0)


# ---------------------------------------------------------------- tapes that are finished, cleared, pruned
def reads(node):
    yield lambda: node.name()
    yield lambda: node.op
    yield lambda: node.operands
    yield lambda: node.saved_value
    yield lambda: node.next_functions
    yield lambda: node.variable
    yield lambda: list(walk(node))


def test_a_finished_tape():
    kept = []

    def f(x):
        y = x * np.sin(x)
        kept.extend([y, node_of(y)])
        return y

    grad(f)(1.0)
    y, node = kept
    for read in (*reads(node), lambda: node_of(y), lambda: Node(y._tape, 0)):
        with pytest.raises(InvalidBackprop, match="cleared"):
            read()
    assert repr(node) == "<node of a cleared tape, at slot 2>"
    assert node == node and hash(node) == hash(node)
    assert node.shape == ()
    grad(f)(1.0)
    assert kept[3] != node  # the same slot of another tape


def test_a_handle_that_became_a_tensor_of_its_own():
    def look(y):
        node = node_of(y)
        before = hash(node)
        node._handle = tensor(1.0)
        for read in reads(node):
            with pytest.raises(InvalidBackprop, match="cleared"):
                read()
        assert node.slot == y._slot and hash(node) == before
        assert "cleared" in repr(node)

    inside(np.sin, 1.0, look=look)


def test_a_node_moves_with_its_handle():
    """Pruning renumbers handles; a node reads what it needs again."""

    def f(x):
        a = np.sin(x)
        return np.cos(x) * 2.0 + a * 3.0

    def look(y):
        node = next(n for n in walk(node_of(y)) if n.op == "sin")
        assert nexts(node) == ["AccumulateGrad"]
        walking = walk(node)
        next(walking)
        node._handle._slot = y._slot
        assert node == node_of(y)
        assert nexts(node) == ["MultiplyBackward", "MultiplyBackward"]
        with pytest.raises(InvalidBackprop, match="pruned"):
            next(walking)

    inside(f, 1.0, look=look)


# ---------------------------------------------------------------- leaves that a user holds
def test_the_variable_of_a_leaf():
    tape = Tape()
    x, y = tensor(2.0), tensor([1.0, 3.0])
    handles = attach(x, tape), attach(y, tape)
    z = handles[0] * handles[1]
    assert isinstance(z, Tensor)
    found = [n.variable for n, _ in node_of(z).next_functions]
    assert found[0] is x and found[1] is y
    assert variable_of(tape, z._slot) is None
    tape.close()


def test_a_leaf_that_stands_for_what_was_cleared():
    tape = Tape()
    x, y = tensor(2.0), tensor(3.0)
    y._state.cleared = True
    z = attach(x, tape) * attach(y, tape)
    assert nexts(node_of(z)) == ["AccumulateGrad", "Cleared"]
    leaf = node_of(z).next_functions[1][0]
    assert leaf.next_functions == () and not hasattr(leaf, "variable")
    tape.close()
