"""Small models, and the optimisers that tests train them with."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tape import SGD, Adam, Module, Parameter, tensor
from tape.imperative.module_lists import ModuleList


class Linear(Module):
    def __init__(self, inputs=2, outputs=3):
        super().__init__()
        self.weight = Parameter(np.arange(float(inputs * outputs)).reshape(inputs, outputs))
        self.bias = Parameter(np.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Norm(Module):
    def __init__(self):
        self.scale = Parameter(np.ones(3))
        self.register_buffer("mean", np.zeros(3))
        self.register_buffer("seen", np.array(0))
        self.register_buffer("scratch", tensor([1.0], requires_grad=False), persistent=False)

    def forward(self, x):
        return (x - self.mean) * self.scale


class Net(Module):
    def __init__(self):
        self.first = Linear()
        self.norm = Norm()
        self.second = Linear(3, 1)
        self.shift = Parameter(0.5)

    def forward(self, x):
        return self.second(np.tanh(self.norm(self.first(x)))) + self.shift


NAMES = ["shift", "first.weight", "first.bias", "norm.scale", "second.weight", "second.bias"]


def names(pairs):
    return [name for name, _ in pairs]


class Dense(Module):
    def __init__(self, inputs, outputs, rng):
        self.weight = Parameter(rng.normal(scale=inputs**-0.5, size=(inputs, outputs)))
        self.bias = Parameter(np.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Classifier(Module):
    def __init__(self, *sizes, seed=0):
        rng = np.random.default_rng(seed)
        self.layers = ModuleList(Dense(n, m, rng) for n, m in itertools.pairwise(sizes))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = np.maximum(layer(x), 0)
        return self.layers[-1](x)


def cross_entropy(scores, labels):
    scores = scores - np.max(scores, axis=1, keepdims=True)
    chosen = scores[np.arange(len(labels)), labels]
    return np.mean(np.log(np.sum(np.exp(scores), axis=1)) - chosen)


OPTIONS = {
    "sgd": (SGD, {"lr": 0.05}),
    "sgd, decay": (SGD, {"lr": 0.05, "weight_decay": 0.1}),
    "momentum": (SGD, {"lr": 0.05, "momentum": 0.9}),
    "momentum, damped, decay": (SGD, {"lr": 0.05, "momentum": 0.8, "dampening": 0.3, "weight_decay": 0.01}),
    "nesterov": (SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "adam": (Adam, {"lr": 0.02}),
    "adam, decay": (Adam, {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.05}),
    "adam, small beta": (Adam, {"lr": 0.02, "betas": (0.3, 0.9)}),
    "amsgrad": (Adam, {"lr": 0.05, "betas": (0.5, 0.6), "amsgrad": True}),
    "adamw": (Adam, {"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True}),
}
every_optimiser = pytest.mark.parametrize(("kind", "options"), OPTIONS.values(), ids=OPTIONS)


def start(dtype=np.float64):
    rng = np.random.default_rng(3)
    return [rng.normal(size=shape).astype(dtype) for shape in ((4, 5), (5,), ())]


def losses(xp, w, b, c, k):
    """A loss that is another one at each step."""
    return ((xp.tanh(w + b) * (1.0 + 0.1 * k)) ** 2).sum() + ((w * w).sum() * c - 0.3 * k) ** 2 * 0.01 + c * c
