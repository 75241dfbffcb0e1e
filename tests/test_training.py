"""Optimisers: their numbers, both ways to step, and small trainings from end to end."""

from __future__ import annotations

import math

import numpy as np
import pytest
from models import Classifier, cross_entropy, every_optimiser, losses, start

from tape import SGD, Adam, Function, Parameter, backward_pairs, no_grad, tensor


def trained(kind, options, dtype=np.float64, steps=20, way="step"):
    parameters = [Parameter(x) for x in start(dtype)]
    optimiser = kind(parameters, **options)
    for k in range(steps):
        loss = losses(np, *parameters, k)
        if way == "step":
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        else:
            optimiser.minimise(loss)
    return [p.numpy() for p in parameters]


# ---------------------------------------------------------------- numbers
def by_hand(kind, options, steps=20):
    """The same training in plain NumPy, written down from the definitions."""
    parameters = start()
    o = {"momentum": 0.0, "dampening": 0.0, "nesterov": False, "weight_decay": 0.0, "betas": (0.9, 0.999), "eps": 1e-8}
    o |= {"amsgrad": False, "decoupled_weight_decay": False, **options}
    memory = [{"m": 0.0, "v": 0.0, "top": 0.0} for _ in parameters]
    for k in range(steps):
        leaves = [tensor(p) for p in parameters]
        losses(np, *leaves, k).backward()
        for i, (p, s) in enumerate(zip(parameters, memory, strict=True)):
            g = leaves[i].grad
            g = g if o["decoupled_weight_decay"] else g + o["weight_decay"] * p
            if kind is SGD:
                s["m"] = g if k == 0 else o["momentum"] * s["m"] + (1 - o["dampening"]) * g
                change = g + o["momentum"] * s["m"] if o["nesterov"] else s["m"]
                parameters[i] = p - o["lr"] * (change if o["momentum"] else g)
                continue
            first, second = o["betas"]
            s["m"] = first * s["m"] + (1 - first) * g
            s["v"] = second * s["v"] + (1 - second) * g * g
            s["top"] = np.maximum(s["top"], s["v"])
            mean = s["m"] / (1 - first ** (k + 1))
            square = (s["top"] if o["amsgrad"] else s["v"]) / (1 - second ** (k + 1))
            p = p * (1 - o["lr"] * o["weight_decay"]) if o["decoupled_weight_decay"] else p
            parameters[i] = p - o["lr"] * mean / (np.sqrt(square) + o["eps"])
    return parameters


@every_optimiser
def test_numbers(kind, options):
    for found, expected in zip(trained(kind, options), by_hand(kind, options), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@every_optimiser
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 2e-3)])
def test_numbers_beside_pytorch(kind, options, dtype, tolerance):
    torch = pytest.importorskip("torch")
    parameters = [torch.tensor(x, requires_grad=True) for x in start(dtype)]
    theirs = {name: x for name, x in options.items() if name != "decoupled_weight_decay"}
    name = "AdamW" if len(theirs) < len(options) else kind.__name__
    optimiser = getattr(torch.optim, name)(parameters, **theirs)
    for k in range(20):
        optimiser.zero_grad()
        losses(torch, *parameters, k).backward()
        optimiser.step()
    for x, p in zip(trained(kind, options, dtype), parameters, strict=True):
        assert x.dtype == dtype
        np.testing.assert_allclose(x, p.detach().numpy(), rtol=tolerance, atol=tolerance)


@every_optimiser
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_both_ways_give_the_same_bits(kind, options, dtype):
    for one, other in zip(trained(kind, options, dtype), trained(kind, options, dtype, way="minimise"), strict=True):
        assert one.dtype == dtype
        assert one.tobytes() == other.tobytes()


@every_optimiser
def test_float32_is_computed_as_such(kind, options):
    for single, double in zip(trained(kind, options, np.float32, 5), trained(kind, options, steps=5), strict=True):
        np.testing.assert_allclose(single, double, rtol=2e-4, atol=2e-4)


# ---------------------------------------------------------------- stepping
def test_an_update_happens_during_the_sweep():
    seen = []
    w, v = Parameter(np.ones(3)), Parameter(np.ones(3))
    optimiser = SGD([w, v], lr=1.0)
    w.register_hook(lambda g: seen.append(v.numpy().copy()))
    optimiser.minimise(np.sum(v * np.tanh(w)))
    # v was used last, so it is updated before the gradient of w is complete.
    np.testing.assert_allclose(seen[0], 1.0 - np.tanh(1.0))


def test_minimise_leaves_grad_alone():
    w = Parameter([1.0, 2.0])
    w.grad = [5.0, 5.0]
    SGD([w], lr=0.5).minimise(np.sum(w * w))
    np.testing.assert_array_equal(w.numpy(), [0.0, 0.0])
    np.testing.assert_array_equal(w.grad, [5.0, 5.0])


def test_minimise_with_a_seed():
    w = Parameter([1.0, 2.0])
    SGD([w], lr=1.0).minimise(w * 3.0, dy=[1.0, 0.5])
    np.testing.assert_array_equal(w.numpy(), [-2.0, 0.5])
    with pytest.raises(RuntimeError, match="scalar"):
        SGD([w], lr=1.0).minimise(w * 3.0)
    np.testing.assert_array_equal(w.numpy(), [-2.0, 0.5])


def test_minimise_is_also_spelt_with_z():
    w = Parameter(1.0)
    SGD([w], lr=0.25).minimize(w * w)
    assert w.item() == 0.5


@every_optimiser
def test_what_is_not_used_is_left_alone(kind, options):
    used, unused, foreign = Parameter([1.0]), Parameter([1.0]), Parameter([1.0])
    optimiser = kind([used, unused], **options)
    optimiser.minimise(np.sum(used * foreign))
    assert used.numpy()[0] != 1.0
    assert unused.numpy()[0] == foreign.numpy()[0] == 1.0
    assert foreign.grad is None
    assert list(optimiser.state_dict()["state"]) == [0]
    np.sum(used * foreign).backward()
    optimiser.step()
    assert unused.numpy()[0] == foreign.numpy()[0] == 1.0
    assert foreign.grad is not None


def test_the_loss_is_the_parameter():
    w = Parameter(3.0)
    SGD([w], lr=1.0).minimise(w)
    assert w.item() == 2.0


def test_shared_parameters_get_one_update():
    w = Parameter([2.0])
    SGD([w], lr=0.1).minimise(np.sum(w * w + 3.0 * w))
    np.testing.assert_allclose(w.numpy(), [2.0 - 0.1 * 7.0])


def test_closure():
    w = Parameter([3.0])
    optimiser = SGD([w], lr=0.5)

    def closure():
        optimiser.zero_grad()
        loss = np.sum(w * w)
        loss.backward()
        return loss

    with no_grad():
        assert optimiser.step(closure).item() == 9.0
    assert w.numpy()[0] == 0.0
    assert optimiser.step() is None


def test_gradients_accumulate_until_they_are_dropped():
    w = Parameter([1.0])
    optimiser = SGD([w], lr=1.0)
    for _ in range(2):
        np.sum(2.0 * w).backward()
    optimiser.step()
    assert w.numpy()[0] == -3.0
    optimiser.zero_grad(set_to_none=False)
    assert w.grad[0] == 0.0
    optimiser.zero_grad()
    assert w.grad is None
    optimiser.step()
    assert w.numpy()[0] == -3.0


def test_gradients_that_are_tensors_or_have_gaps():
    w = Parameter(np.ones((2, 3)))
    np.sum(w**3).backward(create_graph=True)
    SGD([w], lr=1.0).step()
    np.testing.assert_array_equal(w.numpy(), np.full((2, 3), -2.0))
    w.zero_grad()
    w._state.grad = np.arange(6.0).reshape(3, 2).T
    SGD([w], lr=1.0).step()
    np.testing.assert_array_equal(w.numpy(), -2.0 - np.arange(6.0).reshape(3, 2).T)


def test_gradients_that_are_not_finite_are_applied():
    for kind in (SGD, Adam):
        w = Parameter([1.0, 1.0, 1.0])
        w.grad = [np.nan, np.inf, 0.0]
        with np.errstate(invalid="ignore"):  # without compiled code NumPy would warn
            kind([w], lr=0.5).step()
        assert np.isnan(w.numpy()[0])
        assert not np.isfinite(w.numpy()[1])
        assert w.numpy()[2] == 1.0


def test_frozen_parameters_stay():
    w, v = Parameter([1.0]), Parameter([1.0], requires_grad=False)
    optimiser = SGD([w, v], lr=1.0)
    optimiser.minimise(np.sum(w * v))
    assert (w.numpy()[0], v.numpy()[0]) == (0.0, 1.0)


def test_plain_leaf_tensors():
    w = tensor([1.0, 2.0])
    SGD([w], lr=0.5).minimise(np.sum(w * w))
    np.testing.assert_array_equal(w.numpy(), [0.0, 0.0])


def test_parameters_of_both_dtypes():
    w, v = Parameter(np.ones(3, np.float32)), Parameter(np.ones(2))
    optimiser = Adam([w, v], lr=0.5)
    for _ in range(3):
        optimiser.minimise(np.sum(w) * 2.0 + np.sum(v))
    assert w.dtype == np.float32
    assert v.dtype == np.float64
    np.testing.assert_allclose(np.concatenate([w.numpy(), v.numpy()]), -0.5, rtol=1e-6)
    kinds = {(kind, memory.dtype.name, memory.size) for (kind, _), memory in optimiser._memory.items()}
    sizes = {("float32", 3), ("float64", 2)}
    assert kinds == {(kind, *size) for kind in ("exp_avg", "exp_avg_sq") for size in sizes}


def test_parameters_without_elements():
    w, v = Parameter(np.ones((0, 3))), Parameter(1.0)
    optimiser = Adam([w, v])
    optimiser.minimise(np.sum(w) + v)
    assert w.shape == (0, 3)


# ---------------------------------------------------------------- trainings
@pytest.mark.parametrize(("kind", "options"), [(SGD, {"lr": 0.3, "momentum": 0.9}), (Adam, {"lr": 0.02})])
def test_two_spirals(kind, options):
    rng = np.random.default_rng(0)
    turn = np.sqrt(rng.uniform(0.05, 1.0, 400)) * 2.0 * np.pi
    labels = np.arange(400) % 2
    side = 1.0 - 2.0 * labels
    x = np.stack([turn * np.cos(turn), turn * np.sin(turn)], axis=1) * side[:, None] / (2.0 * np.pi)
    net = Classifier(2, 32, 32, 2)
    optimiser = kind(net.parameters(), **options)
    for _ in range(400):
        optimiser.minimise(cross_entropy(net(x), labels))
    with no_grad():
        right = np.argmax(net(x).numpy(), axis=1) == labels
    assert right.mean() > 0.97


class Legendre(Function):
    """The Legendre polynomial of degree 3."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 0.5 * (5.0 * x**3 - 3.0 * x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 1.5 * (5.0 * x**2 - 1.0)


def fitted_by_hand(x, y, rate, steps):
    """The same fit with the gradients written out."""
    a, b, c, d = 0.0, -1.0, 0.0, 0.3
    for _ in range(steps):
        u = c + d * x
        p, slope = 0.5 * (5.0 * u**3 - 3.0 * u), 1.5 * (5.0 * u**2 - 1.0)
        g = 2.0 * (a + b * p - y)
        changes = g.sum(), (g * p).sum(), (g * b * slope).sum(), (g * b * slope * x).sum()
        a, b, c, d = (v - rate * change for v, change in zip((a, b, c, d), changes, strict=True))
    return a, b, c, d


@pytest.mark.parametrize("way", ["by hand", "pairs", "step", "minimise"])
def test_a_polynomial_network_with_a_custom_function(way):
    x = np.linspace(-math.pi, math.pi, 2000)
    y = np.sin(x)
    a, b, c, d = parameters = [Parameter(v) for v in (0.0, -1.0, 0.0, 0.3)]
    rate = 5e-6
    optimiser = SGD(parameters, lr=rate)
    for _ in range(1000):
        fitted = a + b * Legendre.apply(c + d * x)
        loss = np.sum((fitted - y) ** 2)
        if way == "by hand":
            loss.backward()
            with no_grad():
                for p in parameters:
                    p -= rate * p.grad
                    p.grad = None
        elif way == "pairs":
            for p, g in backward_pairs(loss):
                with no_grad():
                    p -= rate * g
        elif way == "step":
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        else:
            optimiser.minimise(loss)
    assert loss.item() < 0.02 * np.sum(y**2)
    found = [p.item() for p in parameters]
    assert found == pytest.approx(fitted_by_hand(x, y, rate, 1000), rel=1e-9, abs=1e-12)
