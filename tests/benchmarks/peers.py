"""The libraries that the benchmarks stand beside: each makes the gradient of a function of one array or of numbers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from tape import grad

Function = Callable[..., Any]
"""``f(np, *arguments)``: the function to differentiate, given the array module to compute with."""


def wengert(f: Function, arguments: tuple[Any, ...]) -> Callable[[], Any]:
    """Differentiate plain NumPy code with this library."""
    run = grad(lambda *a: f(np, *a), argnums=tuple(range(len(arguments))))
    return lambda: run(*arguments)


def primal(f: Function, arguments: tuple[Any, ...]) -> Callable[[], Any]:
    """Only compute the function, with NumPy."""
    return lambda: f(np, *arguments)


def autograd(f: Function, arguments: tuple[Any, ...]) -> Callable[[], Any]:
    """Differentiate with HIPS autograd."""
    import autograd
    import autograd.numpy as anp

    run = autograd.grad(lambda *a: f(anp, *a), tuple(range(len(arguments))))
    return lambda: run(*arguments)


def mygrad(f: Function, arguments: tuple[Any, ...]) -> Callable[[], Any]:
    """Differentiate with MyGrad as it comes."""
    import mygrad as mg

    def run() -> Any:
        tensors = [mg.tensor(a) for a in arguments]
        f(np, *tensors).backward()
        return tuple(t.grad for t in tensors)

    return run


def torch(f: Function, arguments: tuple[Any, ...]) -> Callable[[], Any]:
    """Differentiate with PyTorch, eagerly, on one thread."""
    import torch

    torch.set_num_threads(1)
    tensors = [torch.tensor(a, requires_grad=True) for a in arguments]

    def run() -> Any:
        return torch.autograd.grad(f(torch, *tensors), tensors)

    return run


def xad(f: Function, arguments: tuple[Any, ...]) -> Callable[[], Any]:
    """Differentiate a function of numbers with XAD's C++ tape, driven from Python."""
    from xad.adj_1st import Real, Tape

    if any(np.ndim(a) for a in arguments):
        raise NotImplementedError("XAD works on numbers")

    def run() -> Any:
        with Tape() as tape:
            numbers = [Real(float(a)) for a in arguments]
            for x in numbers:
                tape.registerInput(x)
            tape.newRecording()
            y = f(np, *numbers)
            tape.registerOutput(y)
            y.derivative = 1.0
            tape.computeAdjoints()
            return tuple(x.derivative for x in numbers)

    return run


ALL: dict[str, Callable[[Function, tuple[Any, ...]], Callable[[], Any]]] = {
    "numpy (function only)": primal,
    "wengert": wengert,
    "autograd": autograd,
    "mygrad": mygrad,
    "torch": torch,
    "xad": xad,
}


def available() -> list[str]:
    """Name the libraries that are installed."""
    own = ["numpy (function only)", "wengert"]
    return own + [name for name in ALL if name not in own and importlib.util.find_spec(name)]
