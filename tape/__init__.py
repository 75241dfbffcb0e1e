"""Exact gradients of plain NumPy code, by a tape and compiled sweeps."""

from tape import operators as _operators  # noqa: F401  (puts the operators of Tensor in place)
from tape.check import check_grads
from tape.errors import (
    ConstantChangedError,
    DetachedError,
    GradientCheckError,
    InputError,
    KernelError,
    OutputError,
    ScalarOutputError,
    StaleTensorError,
    TangentError,
    TapeError,
    UnsupportedError,
)
from tape.hessians import gauss_newton_product, hessian, hessian_diagonal, hvp, vhp
from tape.jacobians import jacobian, jacobian_forward, jacobian_reverse, value_and_jacobian
from tape.linear import jvp, linearize, vjp
from tape.show import show
from tape.tensor import Tensor
from tape.transforms import elementwise_grad, grad, stop_gradient, value_and_grad

__all__ = [
    "ConstantChangedError",
    "DetachedError",
    "GradientCheckError",
    "InputError",
    "KernelError",
    "OutputError",
    "ScalarOutputError",
    "StaleTensorError",
    "TangentError",
    "TapeError",
    "Tensor",
    "UnsupportedError",
    "check_grads",
    "elementwise_grad",
    "gauss_newton_product",
    "grad",
    "hessian",
    "hessian_diagonal",
    "hvp",
    "jacobian",
    "jacobian_forward",
    "jacobian_reverse",
    "jvp",
    "linearize",
    "show",
    "stop_gradient",
    "value_and_grad",
    "value_and_jacobian",
    "vhp",
    "vjp",
]
