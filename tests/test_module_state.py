"""Modules: saving and loading, switching, calling, copies; lists and dicts of modules."""

from __future__ import annotations

import copy
import functools
import pickle

import numpy as np
import pytest
from models import NAMES, Linear, Net, names

from tape import Module, Parameter, TapeError, no_grad, tensor
from tape.imperative.module_lists import ModuleDict, ModuleList, ParameterDict, ParameterList


# ---------------------------------------------------------------- state
def test_state_is_a_copy():
    net = Net()
    state = net.state_dict()
    assert all(type(x) is np.ndarray for x in state.values())
    state["first.weight"][...] = 7.0
    assert net.first.weight.numpy()[0, 0] == 0.0
    assert list(net.state_dict("net.")) == [f"net.{key}" for key in state]


def test_loading_is_in_place():
    net, other = Net(), Net()
    with no_grad():
        for p in other.parameters():
            p += 1.0
    other.norm.mean += 2.0
    other.norm.seen += 5
    held, mean, scratch = dict(net.named_parameters()), net.norm.mean, net.norm.scratch
    view = net.first.weight.detach()
    found = net.load_state_dict(other.state_dict())
    assert found.missing_keys == found.unexpected_keys == []
    assert all(p is held[name] for name, p in net.named_parameters())
    assert net.norm.mean is mean
    assert net.norm.scratch is scratch
    np.testing.assert_array_equal(mean, [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(view.numpy(), other.first.weight.numpy())
    for name, x in net.state_dict().items():
        np.testing.assert_array_equal(x, other.state_dict()[name])


def test_loading_while_a_tape_refers_to_the_memory():
    net = Linear(40, 60)
    x = np.ones((3, 40))
    before = net.weight.numpy().copy()
    y = np.sum(net(x) * net(x))
    net.load_state_dict({"weight": np.zeros((40, 60)), "bias": np.zeros(60)})
    assert net.weight.numpy().max() == 0.0
    y.backward()
    np.testing.assert_allclose(net.weight.grad, 2.0 * x.T @ (x @ before))


def test_loading_takes_tensors_and_casts():
    net = Linear()
    net.load_state_dict({"weight": tensor(np.ones((2, 3)), dtype=np.float32), "bias": [1, 2, 3]})
    assert net.weight.dtype == np.float64
    np.testing.assert_array_equal(net.bias.numpy(), [1.0, 2.0, 3.0])


def test_loading_strictly():
    net = Net()
    before = net.state_dict()
    state = {key: x + 1 for key, x in before.items()}
    del state["shift"]
    state["more"] = np.ones(3)
    with pytest.raises(
        RuntimeError, match=r"Missing key\(s\) in state_dict: 'shift'; Unexpected key.*: 'more'"
    ) as error:
        net.load_state_dict(state)
    assert isinstance(error.value, TapeError)
    assert unchanged(net, before)
    found = net.load_state_dict(state, strict=False)
    assert found == (["shift"], ["more"])
    np.testing.assert_array_equal(net.first.bias.numpy(), [1.0, 1.0, 1.0])


def unchanged(net, before):
    return all(np.array_equal(x, before[key]) for key, x in net.state_dict().items())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("second.bias", np.ones(2), r"size mismatch for 'second.bias': it has shape \(1,\), and the state \(2,\)"),
        ("second.bias", 1.0, "size mismatch for 'second.bias'"),
        ("norm.seen", 1.5, "'norm.seen' has dtype int64, to which float64 of the state can't be converted"),
        ("second.bias", np.ones(1, complex), "can't be converted"),
        ("second.bias", np.array(["a"]), "can't be converted"),
        ("second.bias", [[1.0], [1.0, 2.0]], "'second.bias' is no array"),
    ],
)
def test_a_load_that_fails_changes_nothing(key, value, message):
    net = Net()
    before = net.state_dict()
    with pytest.raises(RuntimeError, match=message):
        net.load_state_dict({name: x + 1 for name, x in before.items()} | {key: value}, strict=False)
    assert unchanged(net, before)


def test_loading_what_is_no_dict():
    with pytest.raises(TypeError, match="expected state_dict to be a dict"):
        Net().load_state_dict([1, 2])


def test_loading_a_buffer_that_is_read_only():
    net = Module()
    net.register_buffer("mean", np.broadcast_to(np.zeros(()), 3))
    net.register_buffer("again", net.mean)
    net.load_state_dict({"mean": np.ones(3), "again": np.ones(3)})
    np.testing.assert_array_equal(net.mean, [1.0, 1.0, 1.0])
    assert net.mean is net.again


# ---------------------------------------------------------------- switching
def test_train_and_eval():
    net = Net()
    assert net.eval() is net
    assert not any(m.training for m in net.modules())
    assert net.train() is net
    assert all(m.training for m in net.modules())
    net.first.eval()
    assert net.training
    assert not net.first.training
    with pytest.raises(TypeError, match="True or False"):
        net.train("yes")


def test_requires_grad():
    net = Net()
    assert net.requires_grad_(False) is net
    assert not any(p.requires_grad for p in net.parameters())
    assert not net(np.ones((1, 2))).requires_grad
    net.second.requires_grad_()
    np.sum(net(np.ones((1, 2)))).backward()
    assert net.first.weight.grad is None
    assert net.second.weight.grad is not None


def test_zero_grad():
    net = Net()
    np.sum(net(np.ones((4, 2)))).backward()
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad(set_to_none=False)
    assert all(not p.grad.any() for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_apply():
    net, seen = Net(), []
    assert net.apply(seen.append) is net
    assert [type(m).__name__ for m in seen] == ["Linear", "Norm", "Linear", "Net"]
    assert seen[-1] is net


# ---------------------------------------------------------------- calling
def test_call_and_gradient():
    net = Net()
    x = np.array([[0.1, -0.2], [0.3, 0.4]])
    hidden = np.tanh(x @ net.first.weight.numpy() + net.first.bias.numpy())
    np.testing.assert_allclose(net(x).numpy(), hidden @ net.second.weight.numpy() + 0.5)
    np.sum(net(x)).backward()
    np.testing.assert_allclose(net.second.weight.grad[:, 0], hidden.sum(axis=0))


def test_forward_is_missing():
    class Empty(Module):
        pass

    with pytest.raises(
        NotImplementedError, match=r'Module \[Empty\] is missing the required "forward" function'
    ) as error:
        Empty()(1.0)
    assert isinstance(error.value, TapeError)


def test_keywords():
    class Power(Module):
        def forward(self, x, *, exponent=1):
            return x**exponent

    assert Power()(3.0, exponent=2) == 9.0


def test_hooks():
    net, seen = Linear(), []
    x = np.ones((1, 2))
    plain = net(x).numpy()
    looking = net.register_forward_hook(lambda module, args, y: seen.append((module, args, y)))
    net(x)
    assert seen[0][0] is net
    assert seen[0][1][0] is x
    doubling = net.register_forward_pre_hook(lambda module, args: 2.0 * args[0])
    tripling = net.register_forward_hook(lambda module, args, y: 3.0 * y)
    np.testing.assert_allclose(net(x).numpy(), 6.0 * plain)
    np.testing.assert_array_equal(seen[1][1][0], 2.0 * x)
    doubling.remove()
    doubling.remove()
    several = net.register_forward_pre_hook(lambda module, args: (0.0 * args[0],))
    np.testing.assert_allclose(net(x).numpy(), 0.0 * plain)
    for handle in (looking, tripling, several):
        handle.remove()
    np.testing.assert_allclose(net(x).numpy(), plain)
    assert len(seen) == 3
    for register in (net.register_forward_hook, net.register_forward_pre_hook):
        with pytest.raises(TypeError, match="a hook must be a function"):
            register(3)


# ---------------------------------------------------------------- representation and copies
def test_repr():
    net = Net()
    assert repr(net) == (
        "Net(\n"
        "  shift: number\n"
        "  (first): Linear(weight: 2 x 3, bias: 3)\n"
        "  (norm): Norm(scale: 3, mean: 3, seen: number, scratch: 1)\n"
        "  (second): Linear(weight: 3 x 1, bias: 1)\n"
        ")"
    )
    assert repr(Module()) == "Module()"
    assert "  (0): Net(\n    shift: number\n    (first): Linear" in repr(ModuleList([net]))

    class Said(Module):
        def extra_repr(self):
            return "k=3"

    assert repr(Said()) == "Said(k=3)"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies(copied):
    net = Net()
    net.tied = net.second.weight
    net.first.register_forward_hook(functools.partial(keep))
    net.eval()
    other = copied(net)
    assert repr(other) == repr(net)
    assert other.tied is other.second.weight
    assert other.tied is not net.tied
    assert not other.training
    assert len(other.first._hooks) == 1
    with no_grad():
        other.shift += 1.0
    assert net.shift.item() == 0.5
    assert other.load_state_dict(net.state_dict()) == ([], [])
    np.sum(other(np.ones((1, 2)))).backward()
    assert other.shift.grad is not None
    assert net.shift.grad is None


def keep(module, args, result):
    return None


def test_a_shallow_copy_registers_apart():
    net = Net()
    other = copy.copy(net)
    assert other.first is net.first
    other.new = Parameter([1.0])
    del other.shift
    assert names(net.named_parameters()) == NAMES
    assert names(other.named_parameters()) == ["new", *NAMES[1:]]


# ---------------------------------------------------------------- lists and dicts
def test_module_list():
    net = Module()
    net.layers = ModuleList([Linear(1, 1), Linear(2, 2)])
    net.layers.append(Linear(3, 3))
    assert names(net.named_parameters())[:3] == ["layers.0.weight", "layers.0.bias", "layers.1.weight"]
    assert len(net.layers) == 3
    assert [m.bias.size for m in net.layers] == [1, 2, 3]
    assert net.layers[-1].bias.size == 3
    assert isinstance(net.layers[1:], ModuleList)
    assert len(net.layers[1:]) == 2
    with pytest.raises(IndexError):
        net.layers[3]
    del net.layers[0]
    assert [m.bias.size for m in net.layers] == [2, 3]
    net.layers.insert(0, Linear(5, 5))
    net.layers[1] = Linear(6, 6)
    net.layers.extend(Linear(k, k) for k in (7, 8))
    assert [m.bias.size for m in net.layers] == [5, 6, 3, 7, 8]
    assert list(dict(net.layers.named_children())) == ["0", "1", "2", "3", "4"]
    del net.layers[1:4]
    assert [m.bias.size for m in net.layers] == [5, 8]
    for change in (net.layers.append, functools.partial(net.layers.insert, 0)):
        with pytest.raises(TypeError, match="ModuleList takes Modules only"):
            change(Parameter([1.0]))
    assert len(net.layers) == 2
    assert len(ModuleList()) == 0
    assert len(pickle.loads(pickle.dumps(net.layers))) == 2


def test_parameter_list():
    net = Module()
    net.weights = ParameterList(Parameter(np.ones(k)) for k in (1, 2))
    assert names(net.named_parameters()) == ["weights.0", "weights.1"]
    np.sum(np.concatenate(list(net.weights)) * 2.0).backward()
    np.testing.assert_array_equal(net.weights[1].grad, [2.0, 2.0])
    assert isinstance(net.weights[:1], ParameterList)
    with pytest.raises(TypeError, match="ParameterList takes Parameters only"):
        net.weights.append(tensor([1.0]))


@pytest.mark.parametrize(
    ("kind", "make", "what"), [(ModuleDict, Linear, "Module"), (ParameterDict, lambda: Parameter([1.0]), "Parameter")]
)
def test_dicts(kind, make, what):
    one, two = make(), make()
    found = kind({"one": one})
    found["two"] = two
    assert list(found) == list(found.keys()) == ["one", "two"]
    assert found["two"] is two
    assert [x is y for x, y in zip(found.values(), (one, two), strict=True)] == [True, True]
    assert names(found.items()) == ["one", "two"]
    assert "one" in found
    assert "three" not in found
    assert len(found) == 2
    found["one"] = two
    assert found.pop("one") is two
    del found["two"]
    assert len(found) == 0
    found.update([("last", one)])
    assert any(name.startswith("last") for name, _ in found.named_parameters())
    with pytest.raises(KeyError):
        found["one"]
    for key, message in [("a.b", "can't contain"), ("items", "already exists"), ("", "empty")]:
        with pytest.raises(KeyError, match=message):
            found[key] = make()
    with pytest.raises(TypeError, match=f"{kind.__name__} takes {what}s only"):
        found["new"] = 3
