"""The errors: one family, each also the builtin that people expect."""

from __future__ import annotations

import numpy as np


class TapeError(Exception):
    """Base of every error that this library raises on purpose."""


class DetachedError(TapeError, TypeError):
    """A recorded value would have left the tape, and its gradient with it (`float(t)`, `np.asarray(t)`, ...)."""


class UnsupportedError(TapeError, TypeError, NotImplementedError):
    """A function or dtype that has no derivative rule here."""


class OutputError(TapeError, TypeError, ValueError):
    """A function returned something that has no derivative: integers, a string, a value without has_aux."""


class ScalarOutputError(OutputError):
    """A gradient was asked of an output that is not one number."""


class TangentError(TapeError, TypeError, ValueError):
    """A tangent or cotangent does not fit: its container, its shape, or its dtype."""


class RuleError(TapeError, TypeError, ValueError):
    """A rule that a user declared does not fit: it is missing, or what it gave has another structure or shape."""


class AnomalyError(TapeError, RuntimeError):
    """Under `detect_anomaly` a value or gradient was not finite."""


class InvalidBackprop(TapeError, RuntimeError):
    """Backpropagation that cannot be done: from a value without a gradient, or over a part that was cleared."""


class InvalidGradient(TapeError, ValueError, TypeError, RuntimeError):
    """A gradient that was given, or that a function of the user's returned, does not fit: its number, shape or type."""


class InplaceError(TapeError, RuntimeError):
    """A write in place to a tensor that requires a gradient, which would be lost."""


class RegistrationError(TapeError, KeyError):
    """A name that a module cannot register: it is empty, contains a dot, or exists already."""

    def __str__(self) -> str:
        return str(self.args[0])


class ParameterError(TapeError, ValueError):
    """What a module or optimiser cannot take as its parameter: a tensor that was computed, or one given twice."""


class StateDictError(TapeError, RuntimeError, ValueError, KeyError):
    """A state that was saved does not fit: a name is missing or unexpected, or a shape differs."""

    def __str__(self) -> str:
        return str(self.args[0])


class OptionError(TapeError, ValueError):
    """An option of an optimiser that makes no sense, such as a negative learning rate."""


class PatternError(TapeError, ValueError):
    """A sparsity pattern does not fit: its shape, or an element of the matrix that it lacks."""


class InputError(TapeError, TypeError):
    """An argument that cannot be differentiated: an integer array, a string, a missing argument."""


class StaleTensorError(TapeError, RuntimeError):
    """A recorded value was used after its tape was finished, or in a thread that does not own the tape."""


class GradientCheckError(TapeError, AssertionError):
    """`check_grads` found a gradient that disagrees with finite differences."""


class ConstantChangedError(TapeError, RuntimeError):
    """A plain array that the recorded function used was changed before the gradient was computed."""


class ConvergenceError(TapeError, RuntimeError):
    """A solver of equations or an integrator did not reach a solution."""


class SingularJacobianError(TapeError, np.linalg.LinAlgError):
    """The solution of an equation has no derivative: the Jacobian there is singular."""


class KernelError(TapeError, RuntimeError):
    """A compiled kernel went wrong: always a bug of this library, never of the caller."""


class MissingPackageError(TapeError, ImportError):
    """Something was asked for that needs a package which is not installed."""


def was_cleared(what: str) -> InvalidBackprop:
    """Make the error for a pass over something that an earlier pass has cleared."""
    return InvalidBackprop(
        f"the computation behind a tensor {what} was cleared by an earlier backward pass, so nothing can be propagated "
        "through it a second time: say retain_graph=True in the first pass if there are several, or compute the tensor "
        "again"
    )
