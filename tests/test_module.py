"""Modules: what is registered, how it is listed, and every error."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from models import NAMES, Linear, Net, Norm, names

from tape import Module, Parameter, TapeError, no_grad, tensor


# ---------------------------------------------------------------- registering
def test_parameters_are_registered_without_init():
    class Bare(Module):
        def __init__(self):
            self.w = Parameter([1.0])

    bare = Bare()
    assert names(bare.named_parameters()) == ["w"]
    assert bare.training
    assert bare.w is next(bare.parameters())


def test_arguments_for_a_module_without_init():
    class Bare(Module):
        pass

    with pytest.raises(TypeError, match=r"Bare\(\) takes no arguments"):
        Bare(3)


def test_an_assignment_moves_a_name():
    net = Linear()
    net.bias = Linear(1, 1)
    assert names(net.named_parameters()) == ["weight", "bias.weight", "bias.bias"]
    assert names(net.named_children()) == ["bias"]
    net.bias = Parameter([1.0])
    assert names(net.named_parameters()) == ["weight", "bias"]
    assert not list(net.children())
    net.plain = 3
    net.plain = Parameter([2.0])
    assert names(net.named_parameters()) == ["weight", "bias", "plain"]
    norm = Norm()
    norm.mean = Parameter(np.zeros(3))
    assert names(norm.named_buffers()) == ["seen", "scratch"]
    assert names(norm.named_parameters()) == ["scale", "mean"]


def test_a_parameter_is_replaced_in_its_place():
    net = Linear()
    weight = Parameter(np.ones((2, 3)))
    net.weight = weight
    assert net.weight is weight
    assert names(net.named_parameters()) == ["weight", "bias"]


@pytest.mark.parametrize("value", [3.0, np.ones(3), "text", [1.0]])
def test_a_parameter_is_not_replaced_by_something_else(value):
    net = Linear()
    before = net.bias
    with pytest.raises(
        TypeError, match=r"cannot assign .* as parameter 'bias' \(Parameter or None expected\)"
    ) as error:
        net.bias = value
    assert isinstance(error.value, TapeError)
    assert net.bias is before


def test_a_parameter_is_not_replaced_by_a_computed_tensor():
    net = Linear()
    with pytest.raises(TypeError, match=r"Parameter or None expected"):
        net.bias = net.bias * 2.0


def test_a_module_is_not_replaced_by_something_else():
    net = Net()
    with pytest.raises(TypeError, match=r"cannot assign .* as module 'first' \(Module or None expected\)"):
        net.first = 3.0
    net.first = None
    assert names(net.named_children()) == ["norm", "second"]
    net.first = Linear()
    assert names(net.named_children()) == ["first", "norm", "second"]


def test_none_keeps_the_name():
    net = Linear()
    net.bias = None
    assert net.bias is None
    assert names(net.named_parameters()) == ["weight"]
    assert list(net.state_dict()) == ["weight"]
    with pytest.raises(TypeError, match="as parameter 'bias'"):
        net.bias = 1.0
    net.bias = Parameter(np.zeros(3))
    assert names(net.named_parameters()) == ["weight", "bias"]


def test_class_attributes_and_properties():
    class Defaults(Module):
        w = None

        def __init__(self):
            self.w = Parameter([1.0])
            self.doubled = Parameter([2.0])

        @property
        def doubled(self):
            return self.inner

        @doubled.setter
        def doubled(self, value):
            self.inner = value

    made = Defaults()
    assert isinstance(made.w, Parameter)
    assert names(made.named_parameters()) == ["w", "inner"]


def test_dataclass():
    @dataclasses.dataclass(eq=False)
    class Scale(Module):
        factor: Parameter
        name: str = "scale"

        def forward(self, x):
            return self.factor * x

    assert names(Scale(Parameter([2.0])).named_parameters()) == ["factor"]
    assert Scale(Parameter(2.0))(3.0).item() == 6.0


def test_deleting():
    net = Net()
    del net.first, net.shift, net.norm.mean
    assert names(net.named_parameters()) == ["norm.scale", "second.weight", "second.bias"]
    assert names(net.named_buffers()) == ["norm.seen", "norm.scratch"]
    with pytest.raises(AttributeError, match="first"):
        net.first  # noqa: B018
    with pytest.raises(AttributeError, match="nothing"):
        del net.nothing
    net.shift = 3.0
    assert "shift" not in names(net.named_parameters())


def test_plain_tensors_are_not_registered():
    net = Linear()
    net.constant = tensor([1.0])
    net.array = np.ones(2)
    assert names(net.named_parameters()) == ["weight", "bias"]
    assert not list(net.buffers())


def test_kept_out_on_purpose():
    teacher, net = Linear(), Linear()
    object.__setattr__(net, "teacher", teacher)
    assert net.teacher is teacher
    assert names(net.named_parameters()) == ["weight", "bias"]


def test_a_module_cannot_contain_itself():
    net = Net()
    with pytest.raises(TypeError, match="it contains this one"):
        net.first.parent = net
    with pytest.raises(TypeError, match="it contains this one"):
        net.me = net
    assert names(net.named_parameters()) == NAMES


# ---------------------------------------------------------------- explicit registering
METHODS = {
    "parameter": (lambda net, name: net.register_parameter(name, Parameter([1.0]))),
    "buffer": (lambda net, name: net.register_buffer(name, np.ones(1))),
    "module": (lambda net, name: net.register_module(name, Linear())),
    "add": (lambda net, name: net.add_module(name, Linear())),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        (3, TypeError, "should be a string"),
        (None, TypeError, "should be a string"),
        ("a.b", KeyError, r"can't contain '.', got 'a.b'"),
        ("", KeyError, "can't be empty string"),
        ("forward", KeyError, "attribute 'forward' already exists"),
        ("training", KeyError, "attribute 'training' already exists"),
        ("plain", KeyError, "attribute 'plain' already exists"),
    ],
)
def test_names_that_cannot_be(method, name, kind, message):
    net = Net()
    net.plain = 3
    with pytest.raises(kind, match=message) as error:
        method(net, name)
    assert isinstance(error.value, TapeError)
    assert not str(error.value).startswith(('"', "'"))


def test_a_name_registered_as_something_else():
    net = Net()
    for method, name in [("parameter", "first"), ("buffer", "shift"), ("module", "shift")]:
        with pytest.raises(KeyError, match=f"attribute '{name}' already exists"):
            METHODS[method](net, name)
    # The same kind replaces.
    METHODS["parameter"](net, "shift")
    METHODS["buffer"](net.norm, "mean")
    METHODS["module"](net, "first")


@pytest.mark.parametrize("method", ["register_parameter", "register_buffer", "register_module"])
def test_values_that_cannot_be(method):
    with pytest.raises(TypeError, match=r"cannot assign .* expected\)"):
        getattr(Net(), method)("new", "text")


def test_register_parameter():
    net = Module()
    p = Parameter([1.0])
    net.register_parameter("w", p)
    net.register_parameter("absent", None)
    assert net.w is p
    assert net.absent is None
    assert list(net.state_dict()) == ["w"]
    with pytest.raises(TypeError, match=r"cannot assign .* as parameter 'v' \(Parameter or None expected\)"):
        net.register_parameter("v", np.ones(3))
    with pytest.raises(TypeError, match="as parameter 'v'"):
        net.register_parameter("v", tensor([1.0]))
    with pytest.raises(ValueError, match="non-leaf Tensor to parameter 'v'") as error:
        net.register_parameter("v", p * 2.0)
    assert isinstance(error.value, TapeError)
    assert not hasattr(net, "v")


# ---------------------------------------------------------------- buffers
def test_buffers():
    norm = Norm()
    assert names(norm.named_buffers()) == ["mean", "seen", "scratch"]
    assert len(list(Net().buffers())) == 3
    assert list(norm.state_dict()) == ["scale", "mean", "seen"]
    norm.mean = np.ones(3)
    norm.seen = norm.seen + 1
    norm.scratch = None
    assert norm.state_dict()["seen"] == 1
    assert names(norm.named_buffers()) == ["mean", "seen"]
    with pytest.raises(TypeError, match=r"as buffer 'mean' \(array, Tensor without a gradient or None expected\)"):
        norm.mean = "text"
    norm.register_buffer("mean", np.zeros(3), persistent=False)
    assert list(norm.state_dict()) == ["scale", "seen"]


def test_buffers_have_no_gradient():
    norm = Norm()
    with pytest.raises(TypeError, match=r"requires a gradient as buffer 'mean': give x.detach\(\)"):
        norm.mean = norm.scale * 2.0
    with pytest.raises(TypeError, match="requires a gradient as buffer 'more'"):
        norm.register_buffer("more", tensor([1.0]))
    with no_grad():
        norm.mean = norm.scale * 2.0
    np.testing.assert_array_equal(norm.state_dict()["mean"], [2.0, 2.0, 2.0])


# ---------------------------------------------------------------- listing
def test_order_and_names():
    net = Net()
    assert names(net.named_parameters()) == NAMES
    assert names(net.named_parameters("net")) == [f"net.{name}" for name in NAMES]
    assert names(net.named_parameters(recurse=False)) == ["shift"]
    assert [p is q for p, (_, q) in zip(net.parameters(), net.named_parameters(), strict=True)] == [True] * 6
    assert len(list(net.parameters(recurse=False))) == 1
    assert names(net.named_modules()) == ["", "first", "norm", "second"]
    assert next(iter(net.modules())) is net
    assert names(net.named_children()) == ["first", "norm", "second"]
    assert names(net.named_buffers(prefix="n")) == ["n.norm.mean", "n.norm.seen", "n.norm.scratch"]


def test_shared_ones_come_once():
    net = Net()
    net.again = net.first
    net.tied = net.second.weight
    assert names(net.named_modules()) == ["", "first", "norm", "second"]
    assert names(net.named_modules(remove_duplicate=False)) == ["", "first", "norm", "second", "again"]
    assert len(list(net.children())) == 3
    assert names(net.named_parameters()) == ["shift", "tied", "first.weight", "first.bias", "norm.scale", "second.bias"]
    every = names(net.named_parameters(remove_duplicate=False))
    assert len(every) == 9
    assert {"again.weight", "tied", "second.weight"} <= set(every)
    assert sorted(net.state_dict()) == sorted([*every, "norm.mean", "norm.seen"])


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ([Linear()], "Net.layers is a plain list with a Module in it, .*: make it a ModuleList"),
        ((Parameter([1.0]),), "Net.layers is a plain tuple with a Parameter in it, .*: make it a ParameterList"),
        ({"a": Linear()}, "make it a ModuleDict"),
        ({"a": [1, (Parameter([1.0]),)]}, "make it a ParameterDict"),
    ],
)
def test_plain_containers_hide_nothing(container, message):
    net = Net()
    net.layers = container
    for listing in (net.named_parameters, net.parameters, net.state_dict, net.zero_grad, net.named_buffers):
        with pytest.raises(TypeError, match=message) as error:
            list(listing() or ())
        assert isinstance(error.value, TapeError)


def test_a_list_that_is_filled_later():
    net = Net()
    net.first.layers = []
    assert names(net.named_parameters()) == NAMES
    net.first.layers.append(Linear())
    with pytest.raises(TypeError, match=r"Linear\.layers is a plain list"):
        list(net.parameters())


def test_plain_containers_may_hold_what_is_registered():
    net = Net()
    net.both = (net.first, net.second)
    net.by_name = {"shift": net.shift, "numbers": [1, 2, "text"]}
    assert names(net.named_parameters()) == NAMES
