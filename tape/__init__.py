"""Exact gradients of plain NumPy code, by a tape and compiled sweeps."""

from tape import operators as _operators  # noqa: F401  (puts the operators of Tensor in place)
from tape.errors import (
    DetachedError,
    GradientCheckError,
    InputError,
    KernelError,
    ScalarOutputError,
    StaleTensorError,
    TapeError,
    UnsupportedError,
)
from tape.tensor import Tensor
from tape.transforms import elementwise_grad, grad, stop_gradient, value_and_grad

__all__ = [
    "DetachedError", "GradientCheckError", "InputError", "KernelError", "ScalarOutputError", "StaleTensorError",
    "TapeError", "Tensor", "UnsupportedError", "elementwise_grad", "grad", "stop_gradient", "value_and_grad",
]  # fmt: skip
