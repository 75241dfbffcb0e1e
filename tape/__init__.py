"""Exact gradients of plain NumPy code, by a tape and compiled sweeps."""

from tape import operators as _operators  # noqa: F401  (puts the operators of Tensor in place)
from tape.check import check_grads
from tape.checkpoint import checkpoint
from tape.custom import custom_jvp, custom_vjp
from tape.draw import draw
from tape.errors import (
    AnomalyError,
    ConstantChangedError,
    ConvergenceError,
    DetachedError,
    GradientCheckError,
    InplaceError,
    InputError,
    InvalidBackprop,
    InvalidGradient,
    KernelError,
    MissingPackageError,
    OptionError,
    OutputError,
    ParameterError,
    PatternError,
    RegistrationError,
    RuleError,
    ScalarOutputError,
    SingularJacobianError,
    StaleTensorError,
    StateDictError,
    TangentError,
    TapeError,
    UnsupportedError,
)
from tape.hessians import gauss_newton_product, hessian, hessian_diagonal, hvp, vhp
from tape.imperative import dispatch as _dispatch  # noqa: F401  (puts what tensors do in place)
from tape.imperative.anomaly import detect_anomaly
from tape.imperative.backward import backward, backward_pairs, gradients
from tape.imperative.function import Function, once_differentiable
from tape.imperative.modes import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from tape.imperative.module import Module
from tape.imperative.module_lists import ModuleDict, ModuleList, ParameterDict, ParameterList
from tape.imperative.operation import Operation, SkipGradient, execute_op
from tape.imperative.optimisers import SGD, Adam
from tape.imperative.variable import Parameter, tensor
from tape.implicit import fixed_point, root
from tape.jacobians import jacobian, jacobian_forward, jacobian_reverse, value_and_jacobian
from tape.linear import jvp, linearize, vjp
from tape.ode import odeint, solve_ivp
from tape.opaque import from_callable
from tape.show import show
from tape.sparse import hessian_sparsity, jacobian_sparsity, sparse_hessian, sparse_jacobian
from tape.tensor import Tensor
from tape.transforms import elementwise_grad, grad, stop_gradient, value_and_grad
from tape.userops import elementwise_op, structural_op

__all__ = [
    "SGD",
    "Adam",
    "AnomalyError",
    "ConstantChangedError",
    "ConvergenceError",
    "DetachedError",
    "Function",
    "GradientCheckError",
    "InplaceError",
    "InputError",
    "InvalidBackprop",
    "InvalidGradient",
    "KernelError",
    "MissingPackageError",
    "Module",
    "ModuleDict",
    "ModuleList",
    "Operation",
    "OptionError",
    "OutputError",
    "Parameter",
    "ParameterDict",
    "ParameterError",
    "ParameterList",
    "PatternError",
    "RegistrationError",
    "RuleError",
    "ScalarOutputError",
    "SingularJacobianError",
    "SkipGradient",
    "StaleTensorError",
    "StateDictError",
    "TangentError",
    "TapeError",
    "Tensor",
    "UnsupportedError",
    "backward",
    "backward_pairs",
    "check_grads",
    "checkpoint",
    "custom_jvp",
    "custom_vjp",
    "detect_anomaly",
    "draw",
    "elementwise_grad",
    "elementwise_op",
    "enable_grad",
    "execute_op",
    "fixed_point",
    "from_callable",
    "gauss_newton_product",
    "grad",
    "gradients",
    "hessian",
    "hessian_diagonal",
    "hessian_sparsity",
    "hvp",
    "is_grad_enabled",
    "jacobian",
    "jacobian_forward",
    "jacobian_reverse",
    "jacobian_sparsity",
    "jvp",
    "linearize",
    "no_grad",
    "odeint",
    "once_differentiable",
    "root",
    "set_grad_enabled",
    "show",
    "solve_ivp",
    "sparse_hessian",
    "sparse_jacobian",
    "stop_gradient",
    "structural_op",
    "tensor",
    "value_and_grad",
    "value_and_jacobian",
    "vhp",
    "vjp",
]
