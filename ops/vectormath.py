"""Scalar functions for compiled kernels, in loops that LLVM turns into SIMD code.

A derivative rule is a lambda over NumPy functions. To compile it, its global ``np`` is replaced by
`scalar_numpy` and its global ``special`` by `scalar_special`: namespaces of functions under the same
names, for one float64 or float32 at a time, that numba code may call.

How a call becomes vector code. Every function is a numba intrinsic. The transcendental ones call the C
library's libm through a symbol of our own (``wengert_exp``), so that machine code in a cache holds a
name and no address. Each such call carries a ``vector-function-abi-variant`` attribute that names the
vector versions in glibc's libmvec (``_ZGVdN4v_exp`` takes four float64); LLVM's loop vectoriser picks
one by the width it chose. The versions must stay declared in the module until then: the global
``llvm.compiler.used`` sees to that. Only versions that the target's instruction set can call are named.
Without libmvec the same calls stay scalar; without a libm they go to numba's own implementations.

The environment variable ``WENGERT_VECTOR_MATH``, read at import, takes ``off`` (scalar libm) or
``numba`` (numba's implementations); anything else means the best there is.

Special functions come from ``scipy.special.cython_special``, which takes long to import:
`prepare_special` imports it and must run before a kernel that uses them is compiled or loaded.
"""

import importlib
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from ops.libm import ISAS, LIBM, MECHANISM_TAG, PREFIX, SCALARS, VECTORS, mechanism, vector_name
from ops.scipy_symbols import UFUNC_LOOPS, register_cython, register_ufunc

__all__ = ["MECHANISM_TAG", "mechanism", "numpy_supports", "prepare_special"]
__all__ += ["scalar_numpy", "scalar_special", "special_supports"]

_Value: TypeAlias = ir.Value
_Emit: TypeAlias = Callable[..., ir.Value]
_DOUBLE, _BYTES = ir.DoubleType(), ir.IntType(8).as_pointer()


class _Site:
    """One call being lowered: emits instructions on values of the float type `real`."""

    def __init__(self, context: Any, builder: ir.IRBuilder, real: types.Float) -> None:
        self.context, self.b, self.real = context, builder, real
        self.type: ir.Type = context.get_value_type(real)

    def const(self, value: float) -> ir.Constant:
        return ir.Constant(self.type, value)

    def llvm(self, name: str, *args: _Value) -> _Value:
        """Call the LLVM intrinsic `name`, which the backend turns into an instruction."""
        kind = ir.FunctionType(self.type, [self.type] * len(args))
        return self.b.call(self.b.module.declare_intrinsic("llvm." + name, [self.type], kind), args)

    def op(self, name: str, *args: _Value) -> _Value:
        return getattr(self.b, name)(*args)

    def is_(self, relation: str, x: _Value, y: _Value | float) -> _Value:
        """Compare; false if either is NaN."""
        return self.b.fcmp_ordered(relation, x, self.const(y) if isinstance(y, float) else y)

    def isnan(self, x: _Value) -> _Value:
        return self.b.fcmp_unordered("uno", x, x)

    def select(self, condition: _Value, x: _Value | float, y: _Value | float) -> _Value:
        x, y = (self.const(v) if isinstance(v, float) else v for v in (x, y))
        return self.b.select(condition, x, y)

    def scale(self, x: _Value, factor: float) -> _Value:
        return self.b.fmul(x, self.const(factor))

    def libm(self, name: str, *args: _Value) -> _Value:
        """Call a libm function in the precision at hand, and say which vector versions it has."""
        scalar = name if self.type == _DOUBLE else name + "f"
        if scalar not in SCALARS:
            return self._numba(LIBM[name], args)
        features = self.context.codegen().magic_tuple()[2].split(",") if VECTORS else ()
        bits, v, versions = (64 if self.type == _DOUBLE else 32), "v" * len(args), []
        for isa, (width, needed) in ISAS.items():
            vector, lanes = vector_name(isa, bits, scalar), width // bits
            if vector in VECTORS and all(feature in features for feature in needed):
                self._keep(PREFIX + vector, ir.VectorType(self.type, lanes), len(args))
                versions.append(f"_ZGV_LLVM_N{lanes}{v}_{PREFIX}{scalar}({PREFIX}{vector})")
        variants = f'"vector-function-abi-variant"="{",".join(versions)}"' if versions else ""
        call = self._call(PREFIX + scalar, args, variants)
        set.add(call.callee.attributes, "speculatable")
        return call

    def special(self, name: str, *args: _Value) -> _Value:
        """Call a function of ``scipy.special.cython_special``; the site is a float64 one."""
        register_cython(name, len(args))
        return self._call(f"{PREFIX}special_{name}", (*args, ir.Constant(ir.IntType(32), 0)))

    def ufunc(self, name: str, *args: _Value) -> _Value:
        """Call the float64 loop of a ufunc of ``scipy.special`` on one element."""
        register_ufunc(name)
        b, size = self.b, self.context.get_value_type(types.intp)
        cells = [cgutils.alloca_once_value(b, arg) for arg in (*args, self.const(0.0))]
        pointers = cgutils.pack_array(b, [b.bitcast(cell, _BYTES) for cell in cells])
        ones = ir.Constant(ir.ArrayType(size, len(cells)), [1] * len(cells))
        arrays = [cgutils.alloca_once_value(b, array) for array in (pointers, ones)]
        kind = ir.FunctionType(ir.VoidType(), [_BYTES] * 4)
        loop, data = (  # the data is no function, but an address all the same
            cgutils.get_or_insert_function(b.module, kind, f"{PREFIX}{part}_{name}") for part in ("loop", "data")
        )
        # the length is 1, and so the steps are never taken
        operands = (arrays[0], arrays[1], arrays[1], data)
        b.call(loop, [b.bitcast(operand, _BYTES) for operand in operands])
        return b.load(cells[-1])

    def _call(self, symbol: str, args: tuple[_Value, ...], attributes: str = "") -> ir.CallInstr:
        kind = ir.FunctionType(self.type, [arg.type for arg in args])
        function = cgutils.get_or_insert_function(self.b.module, kind, symbol)
        call = self.b.call(function, args)
        # llvmlite knows only some attributes; set.add goes past its check
        set.add(call.attributes, f"{attributes} nounwind willreturn memory(none)")
        return call

    def _keep(self, name: str, lanes: ir.VectorType, arity: int) -> None:
        """Declare a vector function such that it is not dropped before the vectoriser runs."""
        module, keeper = self.b.module, "llvm.compiler.used"
        if name in module.globals:
            return
        function = ir.Function(module, ir.FunctionType(lanes, [lanes] * arity), name)
        used = module.globals.get(keeper)
        kept = [*(used.initializer.constant if used else ()), function.bitcast(_BYTES)]
        array = ir.ArrayType(_BYTES, len(kept))
        if used is None:
            used = ir.GlobalVariable(module, array, keeper)
            used.linkage, used.section = "appending", "llvm.metadata"
        used.value_type, used.type = array, array.as_pointer()
        used.initializer = ir.Constant(array, kept)

    def _numba(self, function: Callable[..., Any], args: tuple[_Value, ...]) -> _Value:
        """Compile numba's implementation of a NumPy or math function."""
        unary, binary = (lambda x: function(x)), (lambda x, y: function(x, y))
        signature = self.real(*[self.real] * len(args))
        python = unary if len(args) == 1 else binary
        return self.context.compile_internal(self.b, python, signature, args)


# Each function emits its instructions at a site, from operands of the site's type. Where NumPy and C
# differ, it is NumPy's answer for NaN, infinities and signed zeros that counts.


def _maximum(s: _Site, x: _Value, y: _Value, relation: str = ">=") -> _Value:
    return s.select(s.b.or_(s.is_(relation, x, y), s.isnan(x)), x, y)


def _minimum(s: _Site, x: _Value, y: _Value) -> _Value:
    return _maximum(s, x, y, "<=")


def _sign(s: _Site, x: _Value) -> _Value:
    nonzero = s.select(s.is_(">", x, 0.0), 1.0, s.select(s.is_("<", x, 0.0), -1.0, x))
    return s.select(s.is_("==", x, 0.0), 0.0, nonzero)


def _mod(s: _Site, x: _Value, y: _Value) -> _Value:
    """Remainder with the sign of the divisor."""
    rest = s.libm("fmod", x, y)
    differs = s.b.xor(s.is_("<", rest, 0.0), s.is_("<", y, 0.0))
    moved = s.select(differs, s.b.fadd(rest, y), rest)
    return s.select(s.is_("==", rest, 0.0), s.llvm("copysign", s.const(0.0), y), moved)


def _logaddexp(s: _Site, x: _Value, y: _Value, exp: str, unit: float) -> _Value:
    gap = s.select(s.is_("==", x, y), 0.0, s.b.fsub(x, y))  # of equal infinities too
    rest = s.libm("log1p", s.libm(exp, s.b.fneg(s.llvm("fabs", gap))))
    return s.b.fadd(_maximum(s, x, y), s.scale(rest, unit))


def _sinc(s: _Site, x: _Value) -> _Value:
    angle = s.scale(x, math.pi)
    return s.select(s.is_("==", x, 0.0), 1.0, s.b.fdiv(s.libm("sin", angle), angle))


def _expit(s: _Site, x: _Value) -> _Value:
    """Give the logistic function; the exponential never overflows, so its tail is exact."""
    e = s.libm("exp", s.b.fneg(s.llvm("fabs", x)))
    return s.b.fdiv(s.select(s.is_("<", x, 0.0), e, 1.0), s.b.fadd(s.const(1.0), e))


def _log_expit(s: _Site, x: _Value) -> _Value:
    e = s.libm("exp", s.b.fneg(s.llvm("fabs", x)))
    return s.b.fsub(_minimum(s, x, s.const(0.0)), s.libm("log1p", e))


def _xlogy(s: _Site, x: _Value, y: _Value, log: str) -> _Value:
    absent = s.b.and_(s.is_("==", x, 0.0), s.b.fcmp_ordered("ord", y, y))
    return s.select(absent, 0.0, s.b.fmul(x, s.libm(log, y)))


def _entr(s: _Site, x: _Value) -> _Value:
    positive = s.b.fneg(s.b.fmul(x, s.libm("log", x)))
    inside = s.select(s.is_("==", x, 0.0), 0.0, positive)
    return s.select(s.is_("<", x, 0.0), -math.inf, inside)


def _zeta(s: _Site, x: _Value, *q: _Value) -> _Value:
    return s.ufunc("_zeta" if q else "_riemann_zeta", x, *q)


@dataclass(frozen=True)
class _Call:
    """An emitter that only calls a function, through a method of the site."""

    method: str
    name: str
    arity: int

    def __call__(self, s: _Site, *args: _Value) -> _Value:
        return getattr(s, self.method)(self.name, *args)


def _calls(method: str, arity: int, names: str) -> dict[str, _Emit]:
    """One call a name; ``"power:pow"`` is named power and calls pow."""
    pairs = (name.partition(":") for name in names.split())
    return {name: _Call(method, other or name, arity) for name, _, other in pairs}


_REAL: dict[str, _Emit] = {
    **_calls("libm", 1, "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh cbrt"),
    **_calls("libm", 1, "arcsin:asin arccos:acos arctan:atan"),
    **_calls("libm", 1, "arcsinh:asinh arccosh:acosh arctanh:atanh"),
    **_calls("libm", 2, "power:pow float_power:pow arctan2:atan2 hypot fmod nextafter"),
    **_calls("llvm", 1, "sqrt absolute:fabs floor ceil trunc rint"),
    **_calls("llvm", 2, "copysign"),
    **_calls("op", 1, "negative:fneg"),
    **_calls("op", 2, "add:fadd subtract:fsub multiply:fmul divide:fdiv true_divide:fdiv"),
    "square": lambda s, x: s.b.fmul(x, x),
    "reciprocal": lambda s, x: s.b.fdiv(s.const(1.0), x),
    "positive": lambda s, x: x,
    "zeros_like": lambda s, x: s.const(0.0),
    "ones_like": lambda s, x: s.const(1.0),
    "deg2rad": lambda s, x: s.scale(x, math.pi / 180),
    "rad2deg": lambda s, x: s.scale(x, 180 / math.pi),
    "maximum": lambda s, x, y: _maximum(s, x, y),
    "minimum": _minimum,
    "fmax": lambda s, x, y: s.select(s.isnan(x), y, s.select(s.isnan(y), x, _maximum(s, x, y))),
    "fmin": lambda s, x, y: s.select(s.isnan(x), y, s.select(s.isnan(y), x, _minimum(s, x, y))),
    "clip": lambda s, x, low, high: _minimum(s, _maximum(s, x, low), high),
    "sign": _sign,
    "remainder": _mod,
    "logaddexp": lambda s, x, y: _logaddexp(s, x, y, "exp", 1.0),
    "logaddexp2": lambda s, x, y: _logaddexp(s, x, y, "exp2", 1 / math.log(2)),
    "heaviside": lambda s, x, at_zero: s.select(s.is_("==", x, 0.0), at_zero, _maximum(s, _sign(s, x), s.const(0.0))),
    "sinc": _sinc,
}
_ALIASES = (
    "abs:absolute fabs:absolute fix:trunc round:rint around:rint mod:remainder radians:deg2rad "
    "degrees:rad2deg pow:power asin:arcsin acos:arccos atan:arctan atan2:arctan2 asinh:arcsinh "
    "acosh:arccosh atanh:arctanh real:positive conj:positive conjugate:positive"
)
_REAL |= {alias: _REAL[name] for alias, name in (pair.split(":") for pair in _ALIASES.split())}

_PREDICATES: dict[str, _Emit] = {
    "isnan": lambda s, x: s.isnan(x),
    "isinf": lambda s, x: s.is_("==", s.llvm("fabs", x), math.inf),
    "isfinite": lambda s, x: s.is_("<", s.llvm("fabs", x), math.inf),
    "signbit": lambda s, x: s.is_("<", s.llvm("copysign", s.const(1.0), x), 0.0),
    "not_equal": lambda s, x, y: s.b.fcmp_unordered("!=", x, y),
    **_calls("is_", 2, "equal:== less:< less_equal:<= greater:> greater_equal:>="),
}
_LOGICAL: dict[str, _Emit] = {
    **_calls("op", 2, "logical_and:and_ logical_or:or_ logical_xor:xor"),
    **_calls("op", 1, "logical_not:not_"),
}
_SELECT: dict[str, _Emit] = _calls("op", 3, "where:select")
_CONSTANTS = {
    "pi": np.pi, "e": np.e, "inf": np.inf, "nan": np.nan, "euler_gamma": np.euler_gamma,
    "float64": np.float64, "float32": np.float32, "bool_": np.bool_,
}  # fmt: skip

# Functions of scipy.special.cython_special; zeta is not there, but has ufuncs.
_CYTHON: dict[str, _Emit] = {
    **_calls(
        "special",
        1,
        "psi digamma:psi gamma gammaln rgamma gammasgn loggamma erfinv erfcinv erfcx erfi dawsn "
        "ndtr ndtri log_ndtr logit exprel cosm1 exp1 expi exp10 spence wrightomega ellipk ellipe "
        "ellipkm1 j0 j1 y0 y1 i0 i0e i1 i1e k0 k0e k1 k1e",
    ),
    **_calls(
        "special",
        2,
        "beta betaln binom poch gammainc gammaincc gammaincinv gammainccinv jv yv iv ive kv kve "
        "rel_entr kl_div huber pseudo_huber boxcox boxcox1p inv_boxcox inv_boxcox1p owens_t agm "
        "ellipkinc ellipeinc",
    ),
    **_calls("special", 3, "betainc betaincinv hyp1f1"),
}
_SPECIAL: dict[str, _Emit] = _CYTHON | {
    **_calls("libm", 1, "erf erfc"),
    **{name: _REAL[name] for name in ("expm1", "log1p", "exp2", "cbrt", "round", "sinc")},
    "expit": _expit,
    "log_expit": _log_expit,
    "xlogy": lambda s, x, y: _xlogy(s, x, y, "log"),
    "xlog1py": lambda s, x, y: _xlogy(s, x, y, "log1p"),
    "entr": _entr,
    "zeta": _zeta,
}


def _signature(group: Mapping[str, Any], args: tuple[types.Type, ...]) -> Any:
    """Tell what numba is to cast arguments to and what comes out; None for complex and other types."""
    if not all(isinstance(a, types.Integer | types.Float | types.Boolean) for a in args):
        return None
    if group is _LOGICAL:
        return types.boolean(*[types.boolean] * len(args))
    choices = args[1:] if group is _SELECT else args
    floats = {a for a in choices if isinstance(a, types.Float)}
    real = types.float32 if floats == {types.float32} else types.float64
    if group is _SELECT:
        return real(types.boolean, real, real)
    return (types.boolean if group is _PREDICATES else real)(*[real] * len(args))


def _build(name: str, group: Mapping[str, _Emit]) -> Any:
    """Make the numba intrinsic `name`."""
    emit = group[name]
    arity = emit.arity if isinstance(emit, _Call) else emit.__code__.co_argcount - 1
    arities = (1, 2) if emit is _zeta else (arity,)

    wide = emit is _zeta or (isinstance(emit, _Call) and emit.method == "special")

    def lower(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> _Value:
        args = [a for a in signature.args if not isinstance(a, types.Omitted)]
        if not wide:
            return emit(_Site(context, builder, args[-1]), *values[: len(args)])
        f64 = types.float64
        cast = [context.cast(builder, v, a, f64) for v, a in zip(values, args, strict=False)]
        result = emit(_Site(context, builder, f64), *cast)
        return context.cast(builder, result, f64, signature.return_type)

    def function(typingctx, x, y=None, z=None):  # type: ignore[no-untyped-def]
        args = tuple(arg for arg in (x, y, z) if arg is not None)
        signature = _signature(group, args) if len(args) in arities else None
        if signature is None:
            return None
        omitted = [types.Omitted(None)] * (3 - len(args))
        return signature.return_type(*signature.args, *omitted), lower

    function.__name__ = function.__qualname__ = name
    made = intrinsic(function)
    cpu_target.typing_context.refresh()  # in case that a compilation is under way
    return made


class _Namespace(ModuleType):
    """A module, as numba wants it, whose functions are made on first use (import must be quick)."""

    def __init__(self, name: str, *groups: Mapping[str, Any], **constants: Any) -> None:
        super().__init__(name, "Functions of one number, for numba code.")
        self._groups = groups
        self.__dict__.update(constants)
        sys.modules[name] = self

    def __getattr__(self, name: str) -> Any:
        for group in self.__dict__.get("_groups", ()):
            if name in group:
                return self.__dict__.setdefault(name, _build(name, group))
        raise AttributeError(f"{self.__name__} has no function {name!r} for compiled code")

    def __reduce__(self) -> Any:  # by name: numba's caches hash what they pickle
        return importlib.import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *(name for group in self._groups for name in group)})


scalar_numpy = _Namespace(f"{__name__}.scalar_numpy", _REAL, _PREDICATES, _LOGICAL, _SELECT, **_CONSTANTS)
"""NumPy's names for functions and constants of numbers."""

scalar_special = _Namespace(f"{__name__}.scalar_special", _SPECIAL)
"""Names of ``scipy.special`` for functions of numbers; see `prepare_special`."""


def numpy_supports(name: str) -> bool:
    """Whether `scalar_numpy` has a function or constant `name`."""
    return name in _CONSTANTS or any(name in group for group in scalar_numpy._groups)


def special_supports(name: str) -> bool:
    """Whether `scalar_special` has a function `name`."""
    return name in _SPECIAL


def prepare_special(names: Iterable[str]) -> None:
    """Tell LLVM where the functions are that `names` of `scalar_special` need.

    Call it before a kernel that uses them is compiled or loaded from a cache. It imports SciPy the
    first time that a name needs it.

    Parameters
    ----------
    names : iterable of str
        Names in ``scipy.special``, as the kernel writes them.

    Raises
    ------
    NotImplementedError
        If a name is not supported, or the SciPy at hand lacks it.
    """
    for name in names:
        emit = _SPECIAL.get(name)
        if emit is None:
            raise NotImplementedError(f"scipy.special.{name} is not available in compiled code")
        if emit is _zeta:
            for ufunc in UFUNC_LOOPS:
                register_ufunc(ufunc)
        elif isinstance(emit, _Call) and emit.method == "special":
            register_cython(emit.name, emit.arity)
