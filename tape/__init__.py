"""Exact gradients of plain NumPy code, by a tape and compiled sweeps."""

from tape import operators as _operators  # noqa: F401  (puts the operators of Tensor in place)
from tape.check import check_grads
from tape.checkpoint import checkpoint
from tape.custom import custom_jvp, custom_vjp
from tape.errors import (
    ConstantChangedError,
    ConvergenceError,
    DetachedError,
    GradientCheckError,
    InputError,
    KernelError,
    MissingPackageError,
    OutputError,
    PatternError,
    RuleError,
    ScalarOutputError,
    SingularJacobianError,
    StaleTensorError,
    TangentError,
    TapeError,
    UnsupportedError,
)
from tape.hessians import gauss_newton_product, hessian, hessian_diagonal, hvp, vhp
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
    "ConstantChangedError",
    "ConvergenceError",
    "DetachedError",
    "GradientCheckError",
    "InputError",
    "KernelError",
    "MissingPackageError",
    "OutputError",
    "PatternError",
    "RuleError",
    "ScalarOutputError",
    "SingularJacobianError",
    "StaleTensorError",
    "TangentError",
    "TapeError",
    "Tensor",
    "UnsupportedError",
    "check_grads",
    "checkpoint",
    "custom_jvp",
    "custom_vjp",
    "elementwise_grad",
    "elementwise_op",
    "fixed_point",
    "from_callable",
    "gauss_newton_product",
    "grad",
    "hessian",
    "hessian_diagonal",
    "hessian_sparsity",
    "hvp",
    "jacobian",
    "jacobian_forward",
    "jacobian_reverse",
    "jacobian_sparsity",
    "jvp",
    "linearize",
    "odeint",
    "root",
    "show",
    "solve_ivp",
    "sparse_hessian",
    "sparse_jacobian",
    "stop_gradient",
    "structural_op",
    "value_and_grad",
    "value_and_jacobian",
    "vhp",
    "vjp",
]
