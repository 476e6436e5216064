"""How accurate the C math functions are: libraries of them, samples of arguments, and distances in ULP."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fuse_opt.lowering.c.headers.functions import MATH, c_helpers, functions_of

Array = NDArray[Any]

C_MATH: str = c_helpers(functions_of(MATH))
"""All functions of scalars, ready to be put at the top of a C file."""

CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
BUILDS = [
    pytest.param((CC or "cc", "-march=native"), id="cc-native"),
    pytest.param((CC or "cc", ""), id="cc-baseline"),
    pytest.param((shutil.which("clang") or "clang", "-march=native"), id="clang-native"),
]
FLAGS = ["-O3", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-std=c11"]
WARN = ["-Wall", "-Wextra", "-Werror", "-pedantic"]

DTYPES: dict[str, Any] = {
    "float": np.float32,
    "double": np.float64,
    "fo_i8": np.int8,
    "fo_i16": np.int16,
    "fo_i32": np.int32,
    "fo_i64": np.int64,
    "fo_u8": np.uint8,
    "fo_u16": np.uint16,
    "fo_u32": np.uint32,
    "fo_u64": np.uint64,
}
WORDS = tuple(f"{word}_u{bits}" for word in ("floordiv", "rem", "shl", "shr", "f32", "f64") for bits in (32, 64))
"""How functions on unsigned integers end that are no parts of functions on bit patterns."""
SIGNATURES = {
    m[2]: (m[1], [parameter.split()[0] for parameter in m[3].split(", ")])
    for m in re.finditer(r"^FO_FN (\w+) (fo_\w+)\((.*)\) \{$", C_MATH, re.MULTILINE)
    if "*" not in m[3]
    and (m[2].endswith(WORDS) or not {m[1], *(p.split()[0] for p in m[3].split(", "))} & {"fo_u32", "fo_u64"})
}
"""Result and parameter types of the functions on values; those on bit patterns are their parts."""

BOUNDS = {m[1]: float(m[2]) for m in re.finditer(r"^/\* (fo_\w+): .*?([\d.]+) ULP", C_MATH, re.MULTILINE)}
"""The accuracy that each function's comment states."""

PARTS = ("fo_whole_f64", *(f"fo_within_{f}_{i}" for f in ("f32", "f64") for i in ("i32", "i64")))
"""What takes only arguments that its callers leave."""
CALLS_LIBM = ("fo_rem_f", "fo_floordiv_f", "fo_fmod_f", "fo_sin_f64", "fo_cos_f64", "fo_tan_f64", "fo_pow_f64")
SCALAR = (
    *CALLS_LIBM,
    "fo_opaque_f",
    "fo_lgamma_f64",
    "fo_floordiv_i64",
    "fo_truncdiv_i64",
    "fo_rem_i64",
    "fo_floordiv_u64",
    "fo_rem_u64",
)
TRANSCENDENTAL = (
    *("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "cbrt", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc"),
)
OF_TWO = ("pow", "atan2", "hypot")
SHARED = {
    "exp": ("exp", 1),
    "exp_negated": ("exp", -1),
    "exp_magnitude": ("exp", 0),
    "expm1": ("expm1", 1),
    "tanh": ("tanh", 1),
    "sigmoid": ("sigmoid", 1),
    "sigmoid_negated": ("sigmoid", -1),
    "nonpositive_exp": ("exp", 1),
    "nonpositive_tanh": ("tanh", 1),
}
"""By name: the function, and the sign of its argument in units of x; 0 for -|x|."""


def loops() -> str:
    """One loop `loop_NAME(n, out, in...)` per function, each on one line; marked where it is to be vectorised."""
    lines: list[str] = []
    for name, (result, parameters) in SIGNATURES.items():
        formals = ", ".join(f"const {t} *a{i}" for i, t in enumerate(parameters))
        actuals = ", ".join(f"a{i}[i]" for i in range(len(parameters)))
        body = f"for (long i = 0; i < n; i++) y[i] = {name}({actuals});"
        simd = "" if name.startswith(SCALAR) else '_Pragma("omp simd") '
        lines.append(f"void loop_{name}(long n, {result} *restrict y, {formals}) {{ {simd}{body} }}")
    return "\n".join(lines) + "\n"


def references() -> str:
    lines: list[str] = []
    for name in TRANSCENDENTAL:
        body = f"for (long i = 0; i < n; i++) y[i] = __builtin_{name}l(x[i]);"
        lines.append(f"void ref_{name}(long n, long double *y, const long double *x) {{ {body} }}")
    for name in OF_TWO:
        body = f"for (long i = 0; i < n; i++) y[i] = __builtin_{name}l(x[i], z[i]);"
        lines.append(
            f"void ref_{name}(long n, long double *y, const long double *x, const long double *z) {{ {body} }}"
        )
    body = "for (long i = 0; i < n; i++) y[i] = __builtin_lgammal(x[i]);"
    lines.append(f"void ref_lgamma(long n, long double *y, const long double *x) {{ {body} }}")
    return "\n".join(lines) + "\n"


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def need(compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no C compiler {compiler!r} on this machine")


class Library:
    def __init__(self, path: Path) -> None:
        self._dll = ctypes.CDLL(str(path))

    def _call(self, symbol: str, out: Array, args: tuple[Array, ...]) -> Array:
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (out, *args)]
        getattr(self._dll, symbol)(ctypes.c_long(out.size), *pointers)
        return out

    def __call__(self, name: str, *args: Any) -> Array:
        result, parameters = SIGNATURES[name]
        arrays = tuple(np.ascontiguousarray(a, DTYPES[t]) for a, t in zip(args, parameters, strict=True))
        return self._call(f"loop_{name}", np.empty(arrays[0].shape, DTYPES[result]), arrays)

    def reference(self, name: str, *args: Array) -> Array:
        with np.errstate(invalid="ignore"):
            arrays = tuple(np.ascontiguousarray(a, np.longdouble) for a in args)
        return self._call(f"ref_{name}", np.empty(arrays[0].shape, np.longdouble), arrays)


def samples(dtype: Any, count: int, seed: int) -> Array:
    """Every size of number: random bit patterns, random values around 1 and 100, specials, neighbours of powers of two."""
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype)
    bits = rng.integers(0, 2 ** (8 * dtype().itemsize), count, dtype=f"u{dtype().itemsize}").view(dtype)
    powers = np.ldexp(dtype(1), np.arange(info.minexp - info.nmant, info.maxexp)).astype(dtype)
    powers = np.concatenate([powers, np.nextafter(powers, dtype(0)), np.nextafter(powers, dtype(np.inf))])
    tiny = [info.smallest_subnormal, info.tiny, info.max, info.eps]
    special = np.array([0, 1, 0.5, 2, np.inf, np.nan, 88.72284, 89, 103.97, 710, 745.2, 9.01, 1e4, 1e5, *tiny], dtype)
    values = [rng.uniform(-2, 2, count), rng.normal(0, 5, count), rng.normal(0, 100, count)]
    return np.concatenate([bits, powers, -powers, special, -special, *(v.astype(dtype) for v in values)])


def ulps(got: Array, exact: Array) -> Array:
    """The distance in units of the spacing at the exact value; infinite where NaN, an infinity or a sign of zero is wrong."""
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        expected = exact.astype(got.dtype)
        _, exponent = np.frexp(exact)
        unit = np.ldexp(np.longdouble(1), np.maximum(exponent - 1, info.minexp) - info.nmant)
        error = np.abs(got.astype(np.longdouble) - exact) / unit
        special = ~np.isfinite(expected) | ~np.isfinite(got)
        same = (np.isnan(expected) & np.isnan(got)) | (expected == got)
        # One step past the greatest finite number is the infinity.
        edge = (np.minimum(np.abs(expected), np.abs(got)) == info.max) & (np.sign(expected) == np.sign(got))
        error = np.where(special, np.where(same, 0.0, np.where(edge, 1.0, np.inf)), error)
        sign = (np.signbit(got) != np.signbit(expected)) & ((got == 0) | (expected == 0)) & ~np.isnan(got)
        return np.where(sign, np.inf, error)


def report(name: str, got: Array, exact: Array, *args: Array) -> None:
    error = ulps(got, exact)
    at = int(np.argmax(error))
    where = ", ".join(float(a[at]).hex() for a in args)
    print(f"{name}: {float(error[at]):.2f} ULP at {where} (stated: {BOUNDS[name]})")
    assert error[at] <= BOUNDS[name], f"{name}({where}) = {got[at]}, exact {exact[at]}, {error[at]} ULP"
