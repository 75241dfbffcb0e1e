"""Accuracy, special values, vectorisation and caching of the functions for compiled kernels."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.special
from numba import carray, cfunc, njit, types
from numba.cloudpickle import loads
from numba.core import serialize

from ops import libm, vectormath

ROOT = Path(__file__).resolve().parents[1]

N = 1200
TINY = {np.float64: 1e-300, np.float32: 1e-37}
HUGE = {np.float64: 1e300, np.float32: 1e37}
BOUNDS = {  # what the exponential functions take without overflow
    np.float64: 700.0,
    np.float32: 85.0,
}
DTYPES = (np.float64, np.float32)
SPECIAL_VALUES = (0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 1e5, -1e5)


def _names(text):
    return text.split()


def spread(low, high):
    """Numbers of both signs, evenly spread in magnitude."""
    half = np.geomspace(low, high, N // 2)
    return np.concatenate([half, -half])


def positive(dtype):
    return np.geomspace(TINY[dtype], HUGE[dtype], N)


def exponent(dtype):
    return np.linspace(-BOUNDS[dtype], BOUNDS[dtype], N)


def anything(dtype):
    return spread(TINY[dtype], HUGE[dtype])


def unit(dtype):
    return spread(TINY[dtype], 1.0)


def angle(dtype):
    return spread(TINY[dtype], 1e4)


UNARY = {
    "exp": exponent, "exp2": exponent, "expm1": exponent, "sinh": exponent, "cosh": exponent,
    "log": positive, "log2": positive, "log10": positive, "sqrt": positive,
    "log1p": lambda dtype: np.concatenate([positive(dtype)[::2], -np.geomspace(TINY[dtype], 0.99, N // 2)]),
    "sin": angle, "cos": angle, "tan": angle,
    "arcsin": unit, "arccos": unit,
    "arctanh": lambda dtype: spread(TINY[dtype], 0.999),
    "arctan": anything, "tanh": anything, "arcsinh": anything, "cbrt": anything,
    "arccosh": lambda dtype: 1 + np.geomspace(1e-3, HUGE[dtype], N),
    "square": lambda dtype: spread(1e-15, 1e15),
    "reciprocal": anything, "absolute": anything, "abs": anything, "fabs": anything,
    "sign": anything, "negative": anything, "positive": anything,
    "deg2rad": angle, "rad2deg": angle, "radians": angle, "degrees": angle,
    "floor": angle, "ceil": angle, "rint": angle, "trunc": angle, "fix": angle,
    "sinc": lambda dtype: np.linspace(-0.5, 0.5, N),
}  # fmt: skip
BINARY = _names(
    "power float_power arctan2 hypot copysign maximum minimum fmax fmin add subtract multiply divide "
    "fmod remainder logaddexp logaddexp2 heaviside nextafter"
)
PREDICATES = ("isnan", "isinf", "isfinite", "signbit")
RELATIONS = _names("equal not_equal less less_equal greater greater_equal")
SPECIAL_UNARY = {
    "erf": (-6, 6), "erfc": (-6, 9), "expit": (-80, 80), "log_expit": (-80, 80), "entr": (0.01, 20),
    "psi": (0.1, 30), "digamma": (0.1, 30), "gamma": (0.1, 30), "gammaln": (0.1, 90),
    "rgamma": (0.1, 30), "erfinv": (-0.99, 0.99), "erfcinv": (0.01, 1.9), "erfcx": (-4, 50),
    "dawsn": (-9, 9), "ndtr": (-9, 9), "ndtri": (0.01, 0.99), "log_ndtr": (-30, 5),
    "logit": (0.01, 0.99), "exp1": (0.1, 30), "expi": (0.5, 30), "spence": (0.1, 9),
    "j0": (0, 20), "j1": (0, 20), "y0": (0.1, 20), "y1": (0.1, 20), "i0": (-9, 9), "i0e": (-9, 9),
    "i1": (-9, 9), "i1e": (-9, 9), "k0": (0.1, 9), "k0e": (0.1, 9), "k1": (0.1, 9), "k1e": (0.1, 9),
    "zeta": (1.1, 30), "exprel": (-9, 9), "cosm1": (-3, 3), "ellipk": (-5, 0.9), "ellipe": (-5, 0.9),
    "loggamma": (0.1, 30), "expm1": (-9, 9), "log1p": (-0.9, 9), "cbrt": (-9, 9), "exp10": (-9, 9),
}  # fmt: skip
SPECIAL_BINARY = _names("xlogy xlog1py zeta beta betaln gammainc gammaincc jv iv kv rel_entr kl_div boxcox")


def compile_loops(namespace, names, arity):
    """A kernel with one loop for each function: row k of the result is function k of row k."""
    lines = ["def kernel(out, " + ", ".join("xyz"[:arity]) + "):"]
    for k, name in enumerate(names):
        args = ", ".join(f"{a}[{k}, i]" for a in "xyz"[:arity])
        lines += ["    for i in range(out.shape[1]):", f"        out[{k}, i] = ns.{name}({args})"]
    scope = {"ns": namespace}
    exec("\n".join(lines), scope)
    kernel = njit(error_model="numpy")(scope["kernel"])

    def run(*args):
        out = np.empty(args[0].shape, args[0].dtype)
        kernel(out, *args)
        return dict(zip(names, out, strict=True))

    def both(*args):
        """The results of long loops, and those of loops too short for vectors."""
        columns = range(0, args[0].shape[1], max(1, args[0].shape[1] // 60))
        single = [run(*(np.ascontiguousarray(a[:, j : j + 1]) for a in args)) for j in columns]
        return run(*args), {n: np.array([s[n][0] for s in single]) for n in names}, list(columns)

    run.kernel, run.both = kernel, both
    return run


@pytest.fixture(scope="module")
def unary():
    return compile_loops(vectormath.scalar_numpy, list(UNARY), 1)


@pytest.fixture(scope="module")
def binary():
    return compile_loops(vectormath.scalar_numpy, BINARY, 2)


@pytest.fixture(scope="module")
def special_unary():
    return compile_loops(vectormath.scalar_special, list(SPECIAL_UNARY), 1)


def ulps(got, reference):
    """Largest error in units of the last place of the reference, for finite results."""
    dtype = got.dtype
    with np.errstate(over="ignore"):
        rounded = np.asarray(reference).astype(dtype)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    assert np.array_equal(np.isfinite(got), np.isfinite(rounded))
    with np.errstate(invalid="ignore"):
        error = np.abs(got.astype(reference.dtype) - reference) / np.spacing(np.abs(rounded))
    return np.max(np.where(same, 0, error))


def exact(name, *args):
    """NumPy's function in a wider format."""
    wide = np.longdouble if args[0].dtype == np.float64 else np.float64
    with np.errstate(all="ignore"):
        return np.asarray(getattr(np, name)(*(a.astype(wide) for a in args)), dtype=wide)


@pytest.mark.parametrize("dtype", DTYPES)
def test_unary_accuracy(unary, dtype):
    x = np.array([UNARY[name](dtype) for name in UNARY]).astype(dtype)
    long, short, columns = unary.both(x)
    bad = {}
    for name, row in zip(UNARY, x, strict=True):
        want = exact(name, row)
        for what, got, ref in (("loop", long, want), ("scalar", short, want[columns])):
            error = ulps(got[name], ref)
            if error > 4:
                bad[name, what] = float(error)
    assert not bad


def pairs(dtype):
    rng = np.random.default_rng(0)
    x = (spread(1e-5, 1e5) * 1.1).astype(dtype)
    return rng.permutation(x), rng.permutation(x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_binary_accuracy(binary, dtype):
    x, y = (np.tile(v, (len(BINARY), 1)) for v in pairs(dtype))
    for name in ("power", "float_power"):  # a result in range
        x[BINARY.index(name)] = np.geomspace(1e-3, 1e3, N)
        y[BINARY.index(name)] = np.random.default_rng(1).permutation(np.linspace(-12, 12, N))
    for name in ("logaddexp", "logaddexp2"):  # no cancellation
        x[BINARY.index(name)], y[BINARY.index(name)] = np.abs([x[0], y[0]])
    long, short, columns = binary.both(x, y)
    bad = {}
    for k, name in enumerate(BINARY):
        want = exact(name, x[k], y[k])
        if name == "nextafter":
            want = np.nextafter(x[k], y[k])
        for what, got, ref in (("loop", long, want), ("scalar", short, want[columns])):
            error = ulps(got[name], ref)
            if error > 4:
                bad[name, what] = float(error)
    assert not bad


def differing(name, got, want, *args):
    """Arguments where special values differ from NumPy's (up to rounding)."""
    fine = np.isclose(got, want, rtol=1e-6 if got.dtype == np.float32 else 1e-14, equal_nan=True)
    fine &= (np.signbit(got) == np.signbit(want)) | np.isnan(want)
    return [(name, *(float(a[i]) for a in args), float(got[i]), float(want[i])) for i in np.flatnonzero(~fine)]


def special_points(dtype):
    info = np.finfo(dtype)
    points = [*SPECIAL_VALUES, info.max, -info.max, info.tiny, -info.tiny]
    return np.array([*points, info.smallest_subnormal, -info.smallest_subnormal], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_unary_special_values(unary, dtype):
    row = np.tile(special_points(dtype), 60)
    x = np.tile(row, (len(UNARY), 1))
    long, short, columns = unary.both(x)
    bad = []
    for name in UNARY:
        with np.errstate(all="ignore"):
            want = getattr(np, name)(row)
            if name == "sinc":  # of infinity and of numbers whose sine is all rounding
                keep = np.isfinite(row) & (np.abs(row) < 1)
                long[name] = np.where(keep, long[name], want)
                short[name] = np.where(keep[columns], short[name], want[columns])
        bad += differing(name, long[name], want, row)
        bad += differing(name, short[name], want[columns], row[columns])
    assert not sorted(set(bad), key=str)


@pytest.mark.parametrize("dtype", DTYPES)
def test_binary_special_values(binary, dtype):
    points = special_points(dtype)
    first, second = (v.ravel() for v in np.meshgrid(points, points))
    first, second = np.tile(first, 4), np.tile(second, 4)
    shape = (len(BINARY), 1)
    long, short, columns = binary.both(np.tile(first, shape), np.tile(second, shape))
    bad = []
    for name in BINARY:
        with np.errstate(all="ignore"):
            want = getattr(np, name)(first, second).astype(dtype)
        if name in ("maximum", "minimum", "fmax", "fmin"):  # of zeros NumPy takes either
            tie = (first == 0) & (second == 0)
            want = np.where(tie, long[name], want)
            short[name] = np.where(tie[columns], want[columns], short[name])
        bad += differing(name, long[name], want, first, second)
        bad += differing(name, short[name], want[columns], first[columns], second[columns])
    assert not sorted(set(bad), key=str)


def test_predicates_and_selection():
    points = special_points(np.float64)
    x, y = (v.ravel() for v in np.meshgrid(points, points))
    run = compile_loops(vectormath.scalar_numpy, PREDICATES, 1)
    for name, got in run(np.tile(x, (len(PREDICATES), 1))).items():
        assert np.array_equal(got.astype(bool), getattr(np, name)(x)), name
    names = (*RELATIONS, "logical_and", "logical_or", "logical_xor")
    run = compile_loops(vectormath.scalar_numpy, names, 2)
    for name, got in run(*(np.tile(v, (len(names), 1)) for v in (x, y))).items():
        assert np.array_equal(got.astype(bool), getattr(np, name)(x, y)), name
    run = compile_loops(vectormath.scalar_numpy, ("where", "clip"), 3)
    got = run(*(np.tile(v, (2, 1)) for v in (x, y, y + 1)))
    assert np.array_equal(got["where"], np.where(x, y, y + 1), equal_nan=True)
    assert np.array_equal(got["clip"], np.clip(x, y, y + 1), equal_nan=True)


@pytest.mark.parametrize("dtype", [types.float64, types.float32])
def test_types(dtype):
    names = vectormath.scalar_numpy, vectormath.scalar_special
    for namespace, name in [(names[0], n) for n in ("exp", "sign", "square")] + [(names[1], "psi")]:
        scope = {"f": getattr(namespace, name)}
        exec("def kernel(x): return f(x)", scope)
        kernel = njit((dtype,), error_model="numpy")(scope["kernel"])
        assert kernel.nopython_signatures[0].return_type == dtype
    np_ = vectormath.scalar_numpy

    @njit((dtype,), error_model="numpy")
    def mixed(x):
        return np_.where(np_.logical_not(x > 1), np_.maximum(x, 0), np_.power(x, 2))

    assert mixed.nopython_signatures[0].return_type == dtype
    assert (mixed(0.5), mixed(-0.5), mixed(3.0)) == (0.5, 0.0, 9.0)

    @njit(error_model="numpy")
    def constants():
        return np_.pi, np_.e, np_.inf, np_.nan, np_.euler_gamma

    assert constants() == pytest.approx((np.pi, np.e, np.inf, np.nan, np.euler_gamma), nan_ok=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_special(special_unary, dtype):
    x = np.array([np.linspace(*SPECIAL_UNARY[n], N) for n in SPECIAL_UNARY]).astype(dtype)
    long, short, columns = special_unary.both(x)
    tolerance = 4e-14 if dtype == np.float64 else 5e-7
    for name, row in zip(SPECIAL_UNARY, x, strict=True):
        want = getattr(scipy.special, name)(row.astype(np.float64))
        for got, ref in ((long[name], want), (short[name], want[columns])):
            np.testing.assert_allclose(got, ref, tolerance, tolerance * 1e-3, err_msg=name)
    for name in ("erf", "erfc"):
        reference = np.array([getattr(math, name)(v) for v in x[list(SPECIAL_UNARY).index(name)]])
        assert ulps(long[name], reference) <= 4


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_binary(dtype):
    rng = np.random.default_rng(2)
    x, y = (rng.uniform(low, 9, (len(SPECIAL_BINARY), N)).astype(dtype) for low in (1.1, 0.1))
    run = compile_loops(vectormath.scalar_special, SPECIAL_BINARY, 2)
    for k, (name, got) in enumerate(run(x, y).items()):
        want = getattr(scipy.special, name)(x[k].astype(np.float64), y[k].astype(np.float64))
        tolerance = 1e-13 if dtype == np.float64 else 3e-7
        np.testing.assert_allclose(got, want, tolerance, tolerance, err_msg=name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values_of_composed_functions(dtype):
    row = np.tile(special_points(dtype), 60)
    names = ("expit", "log_expit", "entr", "erf", "erfc")
    run = compile_loops(vectormath.scalar_special, names, 1)
    for name, got in run(np.tile(row, (len(names), 1))).items():
        want = getattr(scipy.special, name)(row)
        np.testing.assert_allclose(got, want, 1e-14 if dtype == np.float64 else 1e-6, err_msg=name)
    x, y = (v.ravel() for v in np.meshgrid(row[:19], row[:19]))
    run = compile_loops(vectormath.scalar_special, ("xlogy", "xlog1py"), 2)
    for name, got in run(np.tile(x, (2, 1)), np.tile(y, (2, 1))).items():
        want = getattr(scipy.special, name)(x, y)
        np.testing.assert_allclose(got, want, 1e-14 if dtype == np.float64 else 1e-6, err_msg=name)


def test_small_logistic_values_do_not_vanish():
    run = compile_loops(vectormath.scalar_special, ("expit",), 1)
    assert run(np.array([[-740.0]]))["expit"][0] == pytest.approx(math.exp(-740.0), rel=1e-12)


def test_support():
    assert vectormath.numpy_supports("arctan2") and vectormath.numpy_supports("pi")
    assert not vectormath.numpy_supports("einsum") and not vectormath.numpy_supports("__name__")
    assert vectormath.special_supports("zeta") and not vectormath.special_supports("lambertw")
    assert {"exp", "where"} <= set(dir(vectormath.scalar_numpy))
    with pytest.raises(AttributeError, match="einsum"):
        _ = vectormath.scalar_numpy.einsum
    with pytest.raises(NotImplementedError, match="lambertw"):
        vectormath.prepare_special({"psi", "lambertw"})


def test_every_special_function_is_in_scipy():
    vectormath.prepare_special(n for n in dir(vectormath.scalar_special) if vectormath.special_supports(n))


libmvec = pytest.mark.skipif("libmvec" not in vectormath.mechanism(), reason="no libmvec here")


@libmvec
@pytest.mark.parametrize("dtype", [types.float64, types.float32])
def test_loops_call_vector_functions(dtype):
    """Every function that libmvec has, in njit and in cfunc code, also under a condition."""
    np_ = vectormath.scalar_numpy
    name = "exp" if dtype is types.float64 else "expf"
    called = re.compile(rf"_ZGV[bde]N\d+v_{name}\b")

    @njit((dtype[::1], dtype[::1]), error_model="numpy")
    def loop(x, out):
        for i in range(x.size):
            out[i] = np_.where(x[i] > 0, np_.exp(-x[i]), x[i])

    assert called.search(loop.inspect_asm(loop.signatures[0]))

    @njit((types.boolean[::1], dtype[::1], types.float64[::1]), error_model="numpy")
    def mixed(mask, x, out):  # widths differ: the vectoriser may want more lanes than there are
        for i in range(x.size):
            out[i] = np_.exp(np_.where(mask[i], x[i], -x[i])) + np_.tanh(out[i])

    x, out = np.linspace(-3, 3, 1001).astype(str(dtype)), np.linspace(-2, 2, 1001)
    want = np.exp(np.where(x > 1, x, -x)) + np.tanh(out)
    mixed(x > 1, x, out)
    np.testing.assert_allclose(out, want, 1e-6)

    @cfunc(types.void(types.CPointer(dtype), types.CPointer(dtype), types.intp), error_model="numpy")
    def native(source, target, n):
        x, out = carray(source, n), carray(target, n)
        for i in range(n):
            out[i] = np_.exp(x[i])

    assert called.search(native.inspect_llvm()) or called.search(native._library.get_asm_str())


@libmvec
def test_all_of_libmvec_is_used(unary, binary, special_unary):
    for dtype, suffix in ((np.float64, ""), (np.float32, "f")):
        x = np.ones((99, 8), dtype)
        texts = []
        for run, args in ((unary, 1), (binary, 2), (special_unary, 1)):
            run.kernel(*[x] * (args + 1))
            texts += [run.kernel.inspect_asm(s) for s in run.kernel.signatures]
        used = set(re.findall(r"_ZGV[bde]N\d+v+_(\w+)", "".join(texts)))
        known = {n.rpartition("_")[2] for n in libm.VECTORS}
        stems = {n for n in known if n + "f" in known}
        assert {n + suffix for n in stems} <= used


PROGRAM = """
import sys
import numpy as np
from numba import carray, cfunc, njit, types
from numba.cloudpickle import loads
from numba.core import serialize

from ops import libm, vectormath
from ops import libm, vectormath
special_loaded = "scipy.special" in sys.modules
vectormath.prepare_special(["psi", "zeta"])
wnp, special = vectormath.scalar_numpy, vectormath.scalar_special

@njit("void(float64[::1], float64[::1])", cache=True, error_model="numpy")
def loop(x, out):
    for i in range(x.size):
        out[i] = wnp.exp(x[i]) + wnp.sin(x[i]) * special.psi(x[i]) + special.zeta(x[i] + 1, 2.0)

@cfunc("void(CPointer(float64), CPointer(float64), intp)", cache=True, error_model="numpy")
def native(source, target, n):
    x, out = carray(source, n), carray(target, n)
    for i in range(n):
        out[i] = wnp.tanh(x[i])

import ctypes
import scipy.special as sp
x = np.linspace(0.5, 9, 1001)
out = np.empty_like(x)
loop(x, out)
np.testing.assert_allclose(out, np.exp(x) + np.sin(x) * sp.psi(x) + sp.zeta(x + 1, 2.0), 1e-13)
pointer = ctypes.POINTER(ctypes.c_double)
native.ctypes(x.ctypes.data_as(pointer), out.ctypes.data_as(pointer), x.size)
np.testing.assert_allclose(out, np.tanh(x), 1e-14)
print(special_loaded, sum(loop.stats.cache_hits.values()), native.cache_hits)
print(vectormath.MECHANISM_TAG)
print(vectormath.mechanism())
"""


def run_program(path, directory, setting=""):
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(directory), "WENGERT_VECTOR_MATH": setting, "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    command = [sys.executable, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_cached_kernels_load_in_another_process(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    first = run_program(program, tmp_path / "cache")
    second = run_program(program, tmp_path / "cache")
    assert (first[0], second[0]) == ("False 0 0", "False 1 1")
    assert first[1] == second[1] == vectormath.MECHANISM_TAG or os.environ.get("WENGERT_VECTOR_MATH")


@pytest.mark.parametrize("setting", ["off", "numba"])
def test_without_vector_functions(tmp_path, setting):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    _, tag, mechanism = run_program(program, tmp_path, setting)
    assert "libmvec" not in mechanism and not tag.startswith("libmvec")
    if os.environ.get("WENGERT_VECTOR_MATH"):
        return
    tests = "accuracy or unary_special_values or binary_special_values or types or test_special"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        __file__,
        "-k",
        tests,
    ]
    environment = os.environ | {"WENGERT_VECTOR_MATH": setting}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_namespaces_pickle_by_name():
    for namespace in (vectormath.scalar_numpy, vectormath.scalar_special):
        assert loads(serialize.dumps(namespace)) is namespace
