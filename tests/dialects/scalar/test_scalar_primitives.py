"""Every scalar primitive on every backend: that it is known there, and its values at the edges of the types."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_printing import needs_nvcc, nvcc
from primitive_backends import BODIES, COMPUTED, WHOLE, Backend, built, different, kernels, operands_of, printed

from fuse_opt.dialects.scalar import PRIMITIVES
from fuse_opt.dialects.types.dtypes import BOOL, DTYPES, F32, F64, DType, Kind
from fuse_opt.lowering.c.language import CUDA, C
from fuse_opt.lowering.kernel.scalar_to_arith import EMITTERS
from fuse_opt.lowering.reference.scalar import FUNCTIONS, NUMPY_DTYPES

pytestmark = pytest.mark.optimised  # one library has all words


def test_the_table_is_complete() -> None:
    """Every primitive at every kind, and every computed type of the dialect."""
    assert set(COMPUTED) == {dtype.compute for dtype in DTYPES}
    kinds = {(name.split("_")[0], body.args[-1].dtype.kind) for name, body in BODIES.items()}
    assert kinds == {(primitive.name, kind) for primitive in PRIMITIVES.values() for kind in primitive.kinds}


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_every_word_is_known_to_every_backend(primitive: str) -> None:
    """Fails where a scalar primitive is new and a backend was forgotten."""
    assert primitive in FUNCTIONS or primitive in ("cast", "bitcast"), (
        f"no NumPy function for '{primitive}' in FUNCTIONS (lowering/reference/scalar.py)"
    )
    for kind in PRIMITIVES[primitive].kinds:
        known = (primitive, kind) in EMITTERS or primitive in ("cast", "bitcast")
        assert known, f"no ops for '{primitive}' of {kind.value} in EMITTERS (lowering/kernel/scalar_to_arith.py)"
    for name in (name for name in BODIES if name.split("_")[0] == primitive):
        for language in (C, CUDA):
            assert f"w_{name}(" in printed(name, language).text  # raises where there is no row or helper


@needs_nvcc
def test_every_word_compiles_as_cuda(tmp_path: Path) -> None:
    """Without warnings, in a kernel each."""
    messages = nvcc(kernels(), tmp_path)
    assert all(f"'k_{name}'" in messages for name in BODIES)


@pytest.fixture(scope="module", params=["NumPy", "C", "CUDA"])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    if request.param == "NumPy":
        return Backend()
    return Backend(built(request.param, tmp_path_factory.mktemp("words")))


@pytest.mark.sampled(200)
@pytest.mark.parametrize("name", BODIES)
def test_backends_agree_at_the_edges(name: str, backend: Backend) -> None:
    """With the reference, within twice the primitive's bound: exactly where it is exact or rounded once."""
    body = BODIES[name]
    operands = operands_of(body)
    bound = PRIMITIVES[body.function].ulps
    got, expected = backend(name, *operands), Backend()(name, *operands)
    if body.function in ("max", "min"):  # of two zeros either
        got, expected = got + 0, expected + 0
    wrong = different(got, expected, 2 * bound if bound > 0.5 else 0, least=body.function == "lgamma")
    at = int(np.argmax(wrong))
    assert not wrong.any(), f"{name} of {[a[at] for a in operands]}: {got[at]}, reference {expected[at]}"


INF, NAN, PI = math.inf, math.nan, math.pi
Row = tuple[tuple[float, ...], float]
"""Operands and the value."""

ODD: list[Row] = [((0.0,), 0.0), ((-0.0,), -0.0)]
UNBOUNDED: list[Row] = [*ODD, ((INF,), INF), ((-INF,), -INF)]

SPECIAL: dict[str, list[Row]] = {
    "fmod": [
        *[((x, y), math.fmod(x, y)) for x, y in itertools.product((5.5, -5.5, 0.0, -0.0, 1e30), (2.0, -2.0, 0.3, INF))],
        *[((1.0, 0.0), NAN), ((INF, 1.0), NAN), ((-INF, INF), NAN), ((1.0, NAN), NAN), ((NAN, 1.0), NAN)],
    ],
    "atan2": [
        *[((y, x), math.atan2(y, x)) for y, x in itertools.product((0.0, -0.0, 1.0, -1.0, INF, -INF), repeat=2)],
        *[((NAN, 0.0), NAN), ((0.0, NAN), NAN), ((NAN, INF), NAN), ((1e-40, 1e-40), PI / 4)],
    ],
    "hypot": [
        *[((3.0, 4.0), 5.0), ((-3.0, -4.0), 5.0), ((0.0, -0.0), 0.0), ((-0.0, -0.0), 0.0), ((3e37, 4e37), 5e37)],
        *[((INF, NAN), INF), ((NAN, -INF), INF), ((NAN, 1.0), NAN), ((-INF, 0.0), INF)],
    ],
    "copysign": [((1.0, -0.0), -1.0), ((-2.0, 0.0), 2.0), ((-0.0, 1.0), 0.0), ((INF, -1.0), -INF), ((NAN, -1.0), NAN)],
    "fma": [
        *[((0.0, -1.0, -0.0), -0.0), ((0.0, 1.0, -0.0), 0.0), ((1.0, 1.0, -1.0), 0.0), ((INF, 0.0, 1.0), NAN)],
        *[((1e38, 1e38, -INF), -INF), ((INF, 1.0, -INF), NAN), ((2.0, 3.0, NAN), NAN), ((2.0, 3.0, 4.0), 10.0)],
    ],
    "log10": [((0.0,), -INF), ((-0.0,), -INF), ((-1.0,), NAN), ((INF,), INF), ((1.0,), 0.0), ((1000.0,), 3.0)],
    "lgamma": [
        *[((x,), INF) for x in (0.0, -0.0, -1.0, -2.0, -33.0, -1e30, INF, -INF)],
        *[
            ((1.0,), 0.0),
            ((2.0,), 0.0),
            ((3.0,), math.log(2)),
            ((0.5,), math.log(PI) / 2),
            ((-0.5,), 1.2655121234846454),
        ],
    ],
    "cbrt": [*UNBOUNDED, ((8.0,), 2.0), ((-27.0,), -3.0), ((1e-30,), 1e-10)],
    "tan": [*ODD, ((INF,), NAN), ((-INF,), NAN), ((1.0,), math.tan(1.0))],
    "asin": [*ODD, ((1.0,), PI / 2), ((-1.0,), -PI / 2), ((1.5,), NAN), ((-INF,), NAN)],
    "acos": [((1.0,), 0.0), ((-1.0,), PI), ((0.0,), PI / 2), ((-0.0,), PI / 2), ((1.5,), NAN), ((-1.5,), NAN)],
    "atan": [*ODD, ((INF,), PI / 2), ((-INF,), -PI / 2), ((-1.0,), -PI / 4)],
    "sinh": [*UNBOUNDED, ((1.0,), math.sinh(1.0)), ((1000.0,), INF), ((-1000.0,), -INF)],
    "cosh": [((0.0,), 1.0), ((-0.0,), 1.0), ((INF,), INF), ((-INF,), INF), ((-1.0,), math.cosh(1.0)), ((1000.0,), INF)],
    "asinh": [*UNBOUNDED, ((1e30,), math.asinh(1e30)), ((-1.0,), -math.asinh(1.0))],
    "acosh": [((1.0,), 0.0), ((0.5,), NAN), ((-2.0,), NAN), ((-INF,), NAN), ((INF,), INF), ((1e30,), math.acosh(1e30))],
    "atanh": [*ODD, ((1.0,), INF), ((-1.0,), -INF), ((1.5,), NAN), ((-INF,), NAN), ((0.5,), math.atanh(0.5))],
    "erfc": [
        ((0.0,), 1.0),
        ((-0.0,), 1.0),
        ((INF,), 0.0),
        ((-INF,), 2.0),
        ((-30.0,), 2.0),
        ((30.0,), 0.0),
        ((1.0,), math.erfc(1)),
    ],
}
"""By primitive: values fixed by C's annex F, or by Python's own functions."""


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("primitive", SPECIAL)
def test_special_values(primitive: str, dtype: DType, backend: Backend) -> None:
    """NaN gives NaN besides; zeros have the right sign."""
    numpy_type, arity = NUMPY_DTYPES[dtype], PRIMITIVES[primitive].arity
    rows = [*SPECIAL[primitive], *([((NAN,) * arity, NAN)] if primitive != "hypot" else [])]
    operands = [np.array([row[0][k] for row in rows]).astype(numpy_type) for k in range(arity)]
    expected = np.array([row[1] for row in rows]).astype(numpy_type)
    if primitive == "fmod" and dtype is F32:  # of the rounded operands
        with np.errstate(invalid="ignore"):
            expected = np.fmod(*(a.astype(np.float64) for a in operands))
    got = backend(f"{primitive}_{dtype}", *operands)
    wrong = different(
        got, expected.astype(numpy_type), PRIMITIVES[primitive].ulps if PRIMITIVES[primitive].ulps > 0.5 else 0
    )
    assert not wrong.any(), [(row[0], float(g)) for row, g, bad in zip(rows, got, wrong, strict=True) if bad]


def test_copysign_of_nan(backend: Backend) -> None:
    """NaN has a sign too."""
    for dtype in (F32, F64):
        got = backend(f"copysign_{dtype}", np.array([NAN, -NAN, 1.0]), np.array([-1.0, 1.0, math.copysign(NAN, -1)]))
        assert np.signbit(got).tolist() == [True, False, True]


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_fma_is_rounded_once(dtype: DType, backend: Backend) -> None:
    """Against fractions; with sums that lie next to the middle of two numbers, and at the ends of the range."""
    numpy_type = NUMPY_DTYPES[dtype]
    info, rng = np.finfo(numpy_type), np.random.default_rng(1)
    x, y = (rng.normal(0, 1, 3000).astype(numpy_type) for _ in range(2))
    product = (x.astype(np.longdouble) * y).astype(numpy_type)
    z = np.concatenate([-product[:1000], -np.nextafter(product[1000:2000], numpy_type.type(9)), rng.normal(0, 1, 1000)])
    scales = np.ldexp(1.0, rng.integers(info.minexp // 2, 0, 3000)).astype(numpy_type)
    close = product * scales * numpy_type.type(info.eps) * rng.choice([0.5, 0.25, 1, 3], 3000).astype(numpy_type)
    least = info.smallest_subnormal
    more = [(least, 0.5, least), (least, 0.5, 0), (least, -0.5, least), (info.max, 2, -info.max), (info.max, 2, 0)]
    more += [(info.tiny, info.eps, least), (info.max, info.max, 1), (1 + info.eps, 1 - info.eps, -1), (-info.max, 2, 1)]
    columns = [np.array(column, numpy_type) for column in zip(*more, strict=True)]
    a = np.concatenate([x, x * scales, columns[0]])
    b = np.concatenate([y, y, columns[1]])
    c = np.concatenate([z.astype(numpy_type), close, columns[2]])
    got = backend(f"fma_{dtype}", a, b, c)
    expected = [once(*operands, numpy_type) for operands in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    np.testing.assert_array_equal(got, np.array(expected, numpy_type))


def once(x: float, y: float, z: float, numpy_type: np.dtype[Any]) -> float:
    """x * y + z rounded once, halves to even."""
    info, value = np.finfo(numpy_type), Fraction(x) * Fraction(y) + Fraction(z)
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    exponent -= abs(value) < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, int(info.minexp)) - int(info.nmant))
    rounded = round(value / unit) * unit
    if abs(rounded) > Fraction(float(info.max)):
        return INF if rounded > 0 else -INF
    return float(rounded)


def wrapped(value: int, dtype: DType) -> int:
    """The value in the bits of the type."""
    half = 0 if dtype.kind is Kind.UINT else 1 << (dtype.bits - 1)
    return (value + half) % (1 << dtype.bits) - half


ONE: dict[str, Callable[[int], int]] = {"neg": lambda x: -x, "abs": abs, "not": lambda x: ~x}
TWO: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "floordiv": lambda x, y: x // y if y else 0,
    "truncdiv": lambda x, y: -(-x // y) if (x < 0) != (y < 0) and y else x // y if y else 0,
    "rem": lambda x, y: x % y if y else 0,
    "max": max,
    "min": min,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
}


def exact(primitive: str, dtype: DType, operands: Sequence[int]) -> int:
    """The primitive on Python's integers, before the result is wrapped."""
    match primitive:
        case "shl":
            return operands[0] << operands[1] if 0 <= operands[1] < dtype.bits else 0
        case "shr":
            return operands[0] >> operands[1] if 0 <= operands[1] < dtype.bits else -(operands[0] < 0)
        case "select":
            return operands[1] if operands[0] else operands[2]
        case _ if primitive in ONE:
            return ONE[primitive](*operands)
        case _:
            return TWO[primitive](*operands)


def truncated(x: float, target: DType) -> int:
    """Toward zero, no further than the ends of the type; NaN is 0."""
    info = np.iinfo(NUMPY_DTYPES[target])
    return (
        0 if x != x else int(min(max(x, info.min), info.max)) if math.isinf(x) else min(max(int(x), info.min), info.max)
    )


def of_integers() -> list[str]:
    """The bodies that give integers or compare them, casts from floats among them."""
    return [name for name, body in BODIES.items() if body.args[-1].dtype in WHOLE or body.dtype in WHOLE]


@pytest.mark.parametrize("word", sorted({BODIES[name].function for name in of_integers()}))
def test_integers_at_the_ends_of_their_types(word: str, backend: Backend) -> None:
    """Python's integers say what is right: sums wrap, division by zero is 0, casts of floats saturate."""
    for name in of_integers():
        if BODIES[name].function == word:
            check_integers(name, backend)


def check_integers(name: str, backend: Backend) -> None:
    body = BODIES[name]
    dtype, operands = body.args[-1].dtype, operands_of(body)
    got = backend(name, *operands)
    values = zip(*(a.tolist() for a in operands), strict=True)
    if body.function == "bitcast":
        np.testing.assert_array_equal(got, operands[0].view(got.dtype), name)
        return
    if body.function != "cast":
        expected: list[float] = [exact(body.function, dtype, row) for row in values]
    elif dtype.is_float and body.dtype is not BOOL:
        expected = [truncated(x, body.dtype) for (x,) in values]
    else:
        expected = [x != 0 if body.dtype is BOOL else x for (x,) in values]
    if body.dtype in WHOLE:
        expected = [wrapped(int(value), body.dtype) for value in expected]
    np.testing.assert_array_equal(got, np.array(expected, got.dtype), name)


CALL_ALL = """
import ctypes, sys, numpy
library, operands = ctypes.CDLL(sys.argv[1]), numpy.load(sys.argv[2])
for name in sorted({key.rpartition(":")[0] for key in operands}):
    arrays = [operands[f"{name}:{k}"] for k in range(sum(key.startswith(name + ":") for key in operands))]
    result = numpy.empty(8 * arrays[0].size, numpy.int8)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (result, *arrays)]
    library[f"loop_{name}"](ctypes.c_long(arrays[0].size), *pointers)
print("called", flush=True)
"""


@pytest.mark.parametrize("language", ["C", "CUDA"])
def test_nothing_is_undefined(language: str, tmp_path: Path) -> None:
    """Every primitive at the edges under the sanitizer, which ends the process at the first report.

    C with the flags of compiled programs, under which overflow wraps; CUDA without them: there no sum may overflow."""
    sanitize = ["-O0", "-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
    library = built(language, tmp_path, sanitize)
    operands = {f"{name}:{k}": a for name, body in BODIES.items() for k, a in enumerate(operands_of(body))}
    np.savez(tmp_path / "operands.npz", allow_pickle=False, **operands)
    command = [sys.executable, "-c", CALL_ALL, str(library), str(tmp_path / "operands.npz")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "called\n"), done.stderr
    assert "runtime error" not in done.stderr
