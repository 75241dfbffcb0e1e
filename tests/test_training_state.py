"""Optimisers: memory that is shared, options and groups, every error, states saved and loaded."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from models import Classifier, cross_entropy, every_optimiser, losses, start

from tape import SGD, Adam, Parameter, TapeError, no_grad, tensor
from tape.imperative.storage import Storage


# ---------------------------------------------------------------- memory
@pytest.mark.parametrize("way", ["step", "minimise"])
def test_data_and_gradients_are_not_modified(way):
    data, x = np.ones((50, 60)), np.full((60, 2), 0.5)
    w = Parameter(data)
    seen = []
    w.register_hook(lambda g: seen.append((g, g.copy())))
    optimiser = Adam([w], lr=0.1, weight_decay=0.1)
    for _ in range(3):
        loss = np.sum((w @ x) ** 2)
        if way == "minimise":
            optimiser.minimise(loss)
        else:
            optimiser.zero_grad()
            loss.backward()
            given, before = w.grad, w.grad.copy()
            optimiser.step()
            assert w.grad is given
            np.testing.assert_array_equal(given, before)
    assert data.max() == data.min() == 1.0
    assert x.max() == x.min() == 0.5
    for g, before in seen:
        np.testing.assert_array_equal(g, before)


@every_optimiser
def test_another_graph_keeps_the_old_values(kind, options):
    w = Parameter(np.full((40, 40), 2.0))
    view = w.detach()
    other = np.sum(w * w * w)
    kept = other.item()
    optimiser = kind([w], **options)
    for _ in range(2):
        np.sum(w * w).backward()
        optimiser.step()
    assert w.numpy().max() < 2.0
    np.testing.assert_array_equal(view.numpy(), w.numpy())
    w.grad = None
    assert other.item() == kept
    other.backward()
    np.testing.assert_array_equal(w.grad, np.full((40, 40), 12.0))


def test_a_leaf_with_gaps():
    whole = tensor(np.ones((4, 6)), requires_grad=False)
    part = whole[:, ::2].detach().requires_grad_()
    SGD([part], lr=0.25).minimise(np.sum(part * part))
    np.testing.assert_array_equal(part.numpy(), np.full((4, 3), 0.5))


def test_an_update_is_seen_through_shared_memory():
    w = Parameter(np.ones(2000))
    assert isinstance(w._state.storage, Storage)
    view, before = w.detach(), w._state.storage.version
    SGD([w], lr=0.25).minimise(np.sum(w * w))
    np.testing.assert_array_equal(view.numpy(), np.full(2000, 0.5))
    assert w._state.storage.version > before


# ---------------------------------------------------------------- options and groups
def test_the_learning_rate_can_be_changed():
    w = Parameter([1.0])
    optimiser = SGD([w], lr=1.0)
    assert optimiser.lr == 1.0
    np.sum(w).backward()
    optimiser.step()
    optimiser.lr = 0.25
    optimiser.step()
    optimiser.param_groups[0]["lr"] = 0.5
    optimiser.step()
    assert w.numpy()[0] == -0.75
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        optimiser.lr = -1
    assert optimiser.lr == 0.5
    optimiser.param_groups[0]["lr"] = -2
    with pytest.raises(ValueError, match="Invalid learning rate: -2"):
        optimiser.step()


def test_groups():
    w, v, u = (Parameter([1.0]) for _ in range(3))
    optimiser = SGD([{"params": [w], "lr": 0.5}, {"params": iter([v])}, {"params": u, "momentum": 0.5}], lr=0.25)
    for _ in range(2):
        optimiser.minimise(np.sum(w + v + u))
    assert (w.numpy()[0], v.numpy()[0], u.numpy()[0]) == (0.0, 0.5, 1.0 - 0.25 - 0.375)
    with pytest.raises(ValueError, match="the groups have different learning rates"):
        optimiser.lr  # noqa: B018
    optimiser.lr = 0.125
    assert [group["lr"] for group in optimiser.param_groups] == [0.125] * 3
    assert repr(optimiser).startswith("SGD(1 numbers in 1 parameters: lr=0.125, momentum=0.0")


BAD_PARAMETERS = [
    ([], ValueError, "optimizer got an empty parameter list"),
    (iter([]), ValueError, "optimizer got an empty parameter list"),
    (Parameter([1.0]), TypeError, "should be an iterable of Parameters or dicts"),
    ({"params": [Parameter([1.0])]}, TypeError, "should be an iterable of Parameters or dicts"),
    (3, TypeError, "should be an iterable of Parameters or dicts, got"),
    ([np.ones(3)], TypeError, "optimizer can only optimize Parameters and Tensors, got"),
    ([("name", Parameter([1.0]))], TypeError, "optimizer can only optimize Parameters and Tensors, got"),
    ([tensor([1, 2])], TypeError, "floating-point Tensors, and this one is of int64"),
    ({1, 2}, TypeError, "a set has none"),
    ([{"params": {1, 2}}], TypeError, "a set has none"),
    ([{"lr": 1.0}], TypeError, "dict with the key 'params'"),
    ([{"params": [Parameter([1.0])]}, Parameter([1.0])], TypeError, "dict with the key 'params'"),
    ([{"params": [Parameter([1.0])], "rate": 1.0}], ValueError, "SGD has no option 'rate': it has lr, momentum"),
]


@pytest.mark.parametrize(("parameters", "kind", "message"), BAD_PARAMETERS)
def test_parameters_that_cannot_be(parameters, kind, message):
    with pytest.raises(kind, match=message) as error:
        SGD(parameters, lr=0.1)
    assert isinstance(error.value, TapeError)


def test_computed_tensors_cannot_be():
    w = Parameter([1.0])
    y = w * 2.0
    with pytest.raises(ValueError, match="can't optimize a non-leaf Tensor") as error:
        SGD([y], lr=0.1)
    assert isinstance(error.value, TapeError)
    np.sum(y).backward()
    with pytest.raises(ValueError, match="can't optimize a non-leaf Tensor"):
        SGD([y], lr=0.1)


def test_duplicates_cannot_be():
    w = Parameter([1.0])
    for parameters in ([w, w], [{"params": [w]}, {"params": [w]}]):
        with pytest.raises(ValueError, match="more than once"):
            SGD(parameters, lr=0.1)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (SGD, {"lr": -0.1}, "Invalid learning rate: -0.1"),
        (SGD, {"lr": math.nan}, "Invalid learning rate: nan"),
        (SGD, {"lr": math.inf}, "Invalid learning rate: inf"),
        (SGD, {"lr": "0.1"}, "Invalid learning rate: '0.1'"),
        (SGD, {"lr": None}, "Invalid learning rate: None"),
        (SGD, {"momentum": -0.5}, "Invalid momentum value: -0.5"),
        (SGD, {"weight_decay": -0.5}, "Invalid weight_decay value: -0.5"),
        (SGD, {"dampening": "much"}, "Invalid dampening value: 'much'"),
        (SGD, {"nesterov": True}, "Nesterov momentum requires a momentum and zero dampening"),
        (SGD, {"nesterov": True, "momentum": 0.9, "dampening": 0.1}, "Nesterov momentum requires"),
        (Adam, {"lr": -0.1}, "Invalid learning rate: -0.1"),
        (Adam, {"eps": -1e-8}, "Invalid epsilon value: -1e-08"),
        (Adam, {"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0: 1.0"),
        (Adam, {"betas": (0.9, -0.1)}, "Invalid beta parameter at index 1: -0.1"),
        (Adam, {"betas": 0.9}, "betas must be two numbers, got 0.9"),
        (Adam, {"weight_decay": -1}, "Invalid weight_decay value: -1"),
    ],
)
def test_options_that_cannot_be(kind, options, message):
    with pytest.raises(ValueError, match=message) as error:
        kind([Parameter([1.0])], **options)
    assert isinstance(error.value, TapeError)
    with pytest.raises(ValueError, match=message):
        kind([{"params": [Parameter([1.0])], **options}])


def test_a_parameter_of_another_shape():
    w = Parameter([1.0, 2.0])
    optimiser = SGD([w], lr=0.1)
    w.grad = [1.0, 1.0]
    w._state.array = np.ones(3)
    with pytest.raises(ValueError, match="the shape of a parameter has changed"):
        optimiser.step()


# ---------------------------------------------------------------- state
@every_optimiser
def test_training_goes_on_where_it_was(kind, options):
    def run(optimiser, parameters, steps):
        for k in steps:
            optimiser.minimise(losses(np, *parameters, k))

    parameters = [Parameter(x) for x in start()]
    optimiser = kind(parameters, **options)
    run(optimiser, parameters, range(5))
    others = [Parameter(p.numpy()) for p in parameters]
    other = kind(others, lr=1.0)
    other.load_state_dict(pickle.loads(pickle.dumps(optimiser.state_dict())))
    for k in (5, 6, 7):
        run(optimiser, parameters, [k])
        run(other, others, [k])
    for p, q in zip(parameters, others, strict=True):
        assert p.numpy().tobytes() == q.numpy().tobytes()


def test_state_is_a_copy_with_shapes():
    w = Parameter(np.ones((2, 3)))
    optimiser = Adam([w, Parameter([1.0])])
    optimiser.minimise(np.sum(w))
    state = optimiser.state_dict()
    assert state["param_groups"][0]["params"] == [0, 1]
    assert state["state"][0]["step"] == 1
    assert state["state"][0]["exp_avg"].shape == (2, 3)
    state["state"][0]["exp_avg"][...] = 7.0
    np.testing.assert_allclose(optimiser.state_dict()["state"][0]["exp_avg"], 0.1)


def test_a_state_of_pytorch_can_be_loaded():
    torch = pytest.importorskip("torch")
    p, w = torch.ones(3, dtype=torch.float64, requires_grad=True), Parameter(np.ones(3))
    for kind, ours in ((torch.optim.SGD, SGD), (torch.optim.Adam, Adam)):
        options = {"lr": 0.1, "momentum": 0.9} if ours is SGD else {"lr": 0.1}
        theirs, mine = kind([p], **options), ours([w], **options)
        for k in range(4):
            theirs.zero_grad()
            (p**3).sum().backward()
            theirs.step()
            if k == 2:
                mine.load_state_dict(theirs.state_dict())
                with no_grad():
                    w[...] = p.detach().numpy()
        mine.minimise(np.sum(w**3))
        np.testing.assert_allclose(w.numpy(), p.detach().numpy(), rtol=1e-12)


def test_states_that_cannot_be():
    w, v = Parameter([1.0]), Parameter([1.0, 2.0])
    optimiser = Adam([w, v])
    optimiser.minimise(np.sum(w) + np.sum(v))
    before = optimiser.state_dict()
    one_group = before["param_groups"]
    cases = [
        (SGD([w, v], lr=1.0, momentum=0.5), "Adam remembers no 'momentum_buffer'"),
        (Adam([{"params": [w]}, {"params": [v]}]), "a different number of parameter groups: 2, not 1"),
        (Adam([w]), "doesn't match the size of optimizer's group: 1 parameters, not 2"),
        (Adam([v, w]), r"size mismatch for exp_avg of parameter 0: its shape is \(1,\), and the state has \(2,\)"),
    ]
    for other, message in cases:
        other.minimise(np.sum(w) + np.sum(v))
        with pytest.raises(ValueError, match=message) as error:
            optimiser.load_state_dict(other.state_dict())
        assert isinstance(error.value, TapeError)
    with pytest.raises(ValueError, match="'param_groups' and 'state'"):
        optimiser.load_state_dict({"state": {}})
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        optimiser.load_state_dict({"state": {}, "param_groups": [{**one_group[0], "lr": -1}]})
    after = optimiser.state_dict()
    assert after["param_groups"] == before["param_groups"]
    for number, state in before["state"].items():
        for name, x in state.items():
            np.testing.assert_array_equal(after["state"][number][name], x)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_of_model_and_optimiser(copied):
    net = Classifier(3, 4, 2)
    optimiser = Adam(net.parameters(), lr=0.1)
    x, labels = np.eye(3), np.array([0, 1, 0])
    optimiser.minimise(cross_entropy(net(x), labels))
    other, optimiser_of_other = copied((net, optimiser))
    for _ in range(3):
        optimiser.minimise(cross_entropy(net(x), labels))
    before = net.state_dict()
    for _ in range(3):
        optimiser_of_other.minimise(cross_entropy(other(x), labels))
    for name, found in other.state_dict().items():
        np.testing.assert_array_equal(found, before[name])
