"""The Wengert list as people read it."""

import numpy as np
import pytest

import tape
from tape import grad, show, tensor
from tape.errors import InputError, InvalidBackprop, StaleTensorError
from tape.show import listing


def ops_of(listed):
    return [e.op for e in listed.entries]


def test_a_line_for_each_entry():
    listed = show(lambda x: x * np.sin(x), 2.0)
    assert [(e.slot, e.op, e.operands) for e in listed.entries] == [
        (0, "input", ()),
        (1, "sin", (0,)),
        (2, "multiply", (0, 1)),
    ]
    assert listed.entries[2].value == pytest.approx(2 * np.sin(2.0), abs=0)
    assert repr(listed) == str(listed)
    assert len(str(listed).splitlines()) == 4


def test_shapes_dtypes_and_parameters():
    x = np.ones((3, 4), np.float32)
    last = show(lambda x: np.sum(x * np.float32(2), axis=1)[0], x).entries
    assert [(e.op, e.shape, str(e.dtype)) for e in last if e.op != "constant"] == [
        ("input", (3, 4), "float32"),
        ("multiply", (3, 4), "float32"),
        ("sum", (3,), "float32"),
        ("index", (), "float32"),
    ]
    assert "axis=(1,)" in last[-2].note


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_places_of_elements_and_slices(dtype):
    x = np.arange(6, dtype=dtype)
    listed = show(lambda x: x[4] + np.sum(x[2:4]) + np.sum(x[3:5]), x)
    assert [e.note for e in listed.entries if e.op == "index"] == ["at 4", "at 2", "at 3"]


def test_entries_of_many_operands():
    def f(x):
        filled = np.zeros_like(x)
        for i in range(len(x)):
            filled[i] = x[i]
        return np.sum(np.concatenate([filled, x, filled]))

    entries = show(f, np.ones(3), head=100).entries
    (assign,) = [e for e in entries if e.op == "assign"]
    (joined,) = [e for e in entries if e.op == "concatenate"]
    assert len(assign.operands) == 4
    assert assign.note == "at 0 1 2"
    assert joined.operands == (assign.slot, 0, assign.slot)


def test_three_operands_of_numbers():
    def f(x):
        return np.where(x > 1.0, x, 7.0)

    entries = show(f, 0.5).entries
    assert [entries[slot].value for slot in entries[-1].operands[1:]] == [0.5, 7.0]
    assert grad(f)(0.5) == 0.0
    assert grad(f)(1.5) == 1.0


def test_a_long_tape_is_cut_in_the_middle():
    def f(x):
        for _ in range(1000):
            x = np.sin(x)
        return x

    listed = show(f, 1.0, head=5, tail=2)
    assert listed.total == 1001
    assert [e.slot for e in listed.entries] == [0, 1, 2, 3, 4, 999, 1000]
    assert "(994 more)" in str(listed)
    assert "more" not in str(show(f, 1.0, head=1000, tail=1))
    assert "more" not in str(show(f, 1.0, head=998, tail=2))


def test_functions_that_are_derivatives_count_as_the_function():
    def f(x, y):
        return x * y

    listed = show(grad(f, argnums=1), 2.0, 3.0)
    assert ops_of(listed)[0] == "input"
    assert listed.entries[0].value == 3.0
    assert ops_of(show(f, 2.0, y=3.0, argnums=("x", "y"))) == ["input", "input", "multiply"]


def test_inside_a_function_the_tape_so_far():
    seen = []

    def f(x):
        y = np.exp(x)
        seen.append(show(y))
        seen.append(listing(y._tape, 1))
        return y * y

    grad(f)(1.0)
    assert ops_of(seen[0]) == ["input", "exp"]
    assert ops_of(seen[1]) == ["exp"]
    assert "(1 more)" not in str(seen[0])


def test_a_call_shown_inside_another_shows_its_own_entries():
    seen = []
    grad(lambda x: (seen.append(show(np.sin, x * 2)), x)[1])(1.0)
    assert ops_of(seen[0]) == ["positive", "sin"]


def test_errors_leave_everything_usable():
    with pytest.raises(ZeroDivisionError):
        show(lambda x: 1 // 0, 1.0)
    with pytest.raises(InputError, match="argument 0"):
        show(lambda x: x, np.array([1, 2]))
    kept = []
    grad(lambda x: (kept.append(x), x)[1])(1.0)
    with pytest.raises(StaleTensorError):
        show(kept[0])
    assert grad(np.sin)(0.0) == 1.0


def test_the_listing_outlives_the_tape():
    listed = show(lambda x: np.sum(np.exp(x)), np.zeros(3))
    before = str(listed)
    grad(lambda x: np.sum(np.tanh(x) * x))(np.ones(50))
    assert str(listed) == before
    assert isinstance(listed, tape.show.__globals__["Listing"])


def test_tensors_that_are_held():
    x, c = tensor([1.0, 2.0]), tensor(3.0, requires_grad=False)
    y = np.sum(np.sin(x) * 2.0)
    text = str(show(y))
    assert [line.split()[1] for line in text.splitlines()[1:]] == ["input", "sin", "constant", "multiply", "sum"]
    assert str(show(x)) == text
    with pytest.raises(InputError, match="nothing was recorded"):
        show(c)
    y.backward()
    with pytest.raises(InvalidBackprop, match="cleared"):
        show(y)
