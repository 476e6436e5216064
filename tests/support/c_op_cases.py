"""One row per op and type of the C printer's tables: the op, and what NumPy computes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from c_printing import CONSTANTS, COUNT, NUMPY, Array, parallel

Expected = Callable[[Any, Any], Any]


class Case:
    """One op on arrays `x` and `y`, and what NumPy says."""

    def __init__(self, op: str, types: str, expected: Expected, rtol: float = 0, low: float = -50):
        self.op = op
        self.kinds = types.split()
        self.expected = expected
        self.rtol = rtol
        self.low = low

    @property
    def name(self) -> str:
        return re.sub(r"\W+", "_", f"k {self.op} {' '.join(self.kinds)}").strip("_")

    def function(self) -> str:
        x, y, r = self.kinds
        body = f"""
    %x = memref.load %a[%i] : memref<{COUNT}x{x}>
    %y = memref.load %b[%i] : memref<{COUNT}x{y}>
    %r = {self.op}
    memref.store %r, %o[%i] : memref<{COUNT}x{r}>
    scf.reduce"""
        return f"""
func.func @{self.name}(%a: memref<{COUNT}x{x}>, %b: memref<{COUNT}x{y}>, %o: memref<{COUNT}x{r}>) {{
  {CONSTANTS}
  {parallel("%i", "%n", body)}
  func.return
}}"""

    def inputs(self) -> list[Array]:
        random = np.random.default_rng(1)
        return [_random(random, kind, self.low) for kind in self.kinds[:2]]


def _random(random: np.random.Generator, kind: str, low: float) -> Array:
    dtype: Any = NUMPY[kind]
    if kind == "i1":
        return random.integers(0, 2, COUNT).astype(np.bool_)
    if kind == "bf16":
        return random.integers(0, 2**16, COUNT).astype(np.uint16)
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        values: Array = np.frombuffer(random.bytes(8 * COUNT), dtype)[:COUNT].copy()
        values[:4] = info.min, info.max, 1, info.max - 1
        values[(values == 0) | (values == -1)] = 3  # what division leaves undefined
        return values
    numbers = random.uniform(low, 50, COUNT)
    if low < 0:
        numbers[:14:2] = np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3e4
        numbers[100:200] *= 1e4
    with np.errstate(over="ignore"):
        return numbers.astype(dtype)


def _unsigned(x: Any) -> Any:
    return x.view(f"u{x.dtype.itemsize}")


def _on_unsigned(function: Expected) -> Expected:
    """The function on operands read as unsigned; integer results are read as signed again."""

    def expected(x: Any, y: Any) -> Any:
        result = function(_unsigned(x), _unsigned(y))
        return result if result.dtype == np.bool_ else result.astype(_unsigned(x).dtype).view(x.dtype)

    return expected


def _truncated(x: Any, y: Any) -> Any:
    quotient = np.floor_divide(x, y)
    return quotient + ((np.remainder(x, y) != 0) & ((x < 0) != (y < 0)))


def _to(kind: str) -> Expected:
    return lambda x, y: x.astype(NUMPY[kind])


def _saturated(kind: str) -> Expected:
    """Toward zero, clamped to the type's range; NaN is 0."""
    info = np.iinfo(NUMPY[kind])

    def expected(x: Any, y: Any) -> Any:
        whole = [0 if v != v else info.max if v == np.inf else info.min if v == -np.inf else int(v) for v in x.tolist()]
        return np.array([min(max(v, info.min), info.max) for v in whole], NUMPY[kind])

    return expected


def _bf16(x: Any, y: Any) -> Any:
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


def _fused(x: Any, y: Any) -> Any:
    return (x.astype(np.float64) * x + y).astype(x.dtype)


INTEGER: dict[str, Expected] = {
    "addi": np.add,
    "subi": np.subtract,
    "muli": np.multiply,
    "andi": np.bitwise_and,
    "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
    "maxsi": np.maximum,
    "minsi": np.minimum,
    "maxui": _on_unsigned(np.maximum),
    "minui": _on_unsigned(np.minimum),
    "divsi": _truncated,
    "remsi": lambda x, y: x - _truncated(x, y) * y,
    "floordivsi": np.floor_divide,
    "ceildivsi": lambda x, y: np.floor_divide(x, y) + (np.remainder(x, y) != 0),
    "divui": _on_unsigned(np.floor_divide),
    "remui": _on_unsigned(np.remainder),
    "ceildivui": _on_unsigned(lambda x, y: x // y + (x % y != 0)),
    "shli": lambda x, y: x << (y & (8 * x.itemsize - 1)),
    "shrsi": lambda x, y: x >> (y & (8 * x.itemsize - 1)),
    "shrui": _on_unsigned(lambda x, y: x >> (y & (8 * x.itemsize - 1))),
}

CMPI: dict[str, Expected] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "slt": np.less,
    "sle": np.less_equal,
    "sgt": np.greater,
    "sge": np.greater_equal,
    "ult": _on_unsigned(np.less),
    "ule": _on_unsigned(np.less_equal),
    "ugt": _on_unsigned(np.greater),
    "uge": _on_unsigned(np.greater_equal),
}

BOOLEAN: dict[str, Expected] = {
    "andi": np.logical_and,
    "ori": np.logical_or,
    "xori": np.not_equal,
    "addi": np.not_equal,
    "muli": np.logical_and,
    "maxui": np.logical_or,
    "minui": np.logical_and,
}

FLOAT: dict[str, Expected] = {
    "addf": np.add,
    "subf": np.subtract,
    "mulf": np.multiply,
    "divf": np.divide,
    "maximumf": np.maximum,
    "minimumf": np.minimum,
    "maxnumf": np.fmax,
    "minnumf": np.fmin,
}

CMPF: dict[str, Expected] = {
    "false": lambda x, y: np.zeros_like(x),
    "oeq": lambda x, y: x == y,
    "ogt": lambda x, y: x > y,
    "oge": lambda x, y: x >= y,
    "olt": lambda x, y: x < y,
    "ole": lambda x, y: x <= y,
    "one": lambda x, y: (x < y) | (x > y),
    "ord": lambda x, y: ~(np.isnan(x) | np.isnan(y)),
    "ueq": lambda x, y: ~((x < y) | (x > y)),
    "ugt": lambda x, y: ~(x <= y),
    "uge": lambda x, y: ~(x < y),
    "ult": lambda x, y: ~(x >= y),
    "ule": lambda x, y: ~(x > y),
    "une": lambda x, y: x != y,
    "uno": lambda x, y: np.isnan(x) | np.isnan(y),
    "true": lambda x, y: np.ones_like(x),
}

UNARY: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
}

UNARY_ABOVE_0: dict[str, Callable[[Any], Any]] = {
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}

EXACT: dict[str, Callable[[Any], Any]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "roundeven": np.rint,
    "absf": np.abs,
}

CASTS: tuple[tuple[str, str, str, Expected], ...] = (
    ("arith.extf", "f16", "f32", _to("f32")),
    ("arith.extf", "f16", "f64", _to("f64")),
    ("arith.extf", "bf16", "f32", lambda x, y: (x.astype(np.uint32) << 16).view(np.float32)),
    ("arith.extf", "f32", "f64", _to("f64")),
    ("arith.truncf", "f32", "f16", _to("f16")),
    ("arith.truncf", "f64", "f16", _to("f16")),
    ("arith.truncf", "f64", "f32", _to("f32")),
    ("arith.truncf", "f32", "bf16", _bf16),
    ("arith.bitcast", "f32", "i32", lambda x, y: x.view(np.int32)),
    ("arith.bitcast", "i32", "f32", lambda x, y: x.view(np.float32)),
    ("arith.bitcast", "i64", "f64", lambda x, y: x.view(np.float64)),
    ("arith.bitcast", "f16", "i16", lambda x, y: x.view(np.int16)),
    ("arith.extsi", "i8", "i64", _to("i64")),
    ("arith.extsi", "i1", "i32", lambda x, y: -x.astype(np.int32)),
    ("arith.extui", "i8", "i64", lambda x, y: x.view(np.uint8).astype(np.int64)),
    ("arith.extui", "i32", "i64", lambda x, y: x.view(np.uint32).astype(np.int64)),
    ("arith.extui", "i1", "i32", _to("i32")),
    ("arith.trunci", "i64", "i8", _to("i8")),
    ("arith.trunci", "i32", "i1", lambda x, y: x & 1),
    ("arith.uitofp", "i1", "f32", _to("f32")),
    ("arith.sitofp", "i1", "f32", lambda x, y: 0 - x.astype(np.float32)),
    ("builtin.unrealized_conversion_cast", "ui8", "i8", lambda x, y: x.view(np.int8)),
)


def _cases() -> Iterable[Case]:
    for kind in ("i8", "i16", "i32", "i64"):
        yield from _integer_cases(kind)
    for kind in ("f32", "f64"):
        yield from _float_cases(kind)
    for name, expected in BOOLEAN.items():
        yield Case(f"arith.{name} %x, %y : i1", "i1 i1 i1", expected)
    yield Case("arith.select %x, %y, %x : i1", "i1 i1 i1", np.logical_and)
    yield Case("arith.cmpi ult, %x, %y : i1", "i1 i1 i1", np.less)
    for name, source, target, expected in CASTS:
        yield Case(f"{name} %x : {source} to {target}", f"{source} i8 {target}", expected)
    yield Case("math.fma %x, %x, %y : f32", "f32 f32 f32", _fused, 1e-6)
    yield Case("func.call @fo_rem_f32(%x, %y) : (f32, f32) -> f32", "f32 f32 f32", np.remainder)
    yield Case("func.call @fo_floordiv_i32(%x, %y) : (i32, i32) -> i32", "i32 i32 i32", np.floor_divide)
    yield Case("math.fma %x, %x, %y : f64", "f64 f64 f64", _fused, 1e-13)
    yield Case("func.call @fo_cast_f32_u8(%x) : (f32) -> ui8", "f32 i8 ui8", _saturated("ui8"))


def _integer_cases(kind: str) -> Iterable[Case]:
    same = f"{kind} {kind} {kind}"
    for name, expected in INTEGER.items():
        yield Case(f"arith.{name} %x, %y : {kind}", same, expected)
    for name, expected in CMPI.items():
        yield Case(f"arith.cmpi {name}, %x, %y : {kind}", f"{kind} {kind} i1", expected)
    yield Case(f"math.absi %x : {kind}", same, lambda x, y: np.abs(x))
    for f in ("f32", "f64"):
        signed = _to(f)
        yield Case(f"arith.sitofp %x : {kind} to {f}", f"{kind} i8 {f}", signed)
        unsigned: Expected = lambda x, y, to=signed: to(_unsigned(x), y)  # noqa: E731
        yield Case(f"arith.uitofp %x : {kind} to {f}", f"{kind} i8 {f}", unsigned)
        yield Case(f"arith.fptosi %x : {f} to {kind}", f"{f} i8 {kind}", _saturated(kind))


def _float_cases(kind: str) -> Iterable[Case]:
    same = f"{kind} {kind} {kind}"
    close = 1e-6 if kind == "f32" else 1e-13
    for name, expected in FLOAT.items():
        yield Case(f"arith.{name} %x, %y : {kind}", same, expected)
    for name, expected in CMPF.items():
        yield Case(f"arith.cmpf {name}, %x, %y : {kind}", f"{kind} {kind} i1", expected)
    yield Case(f"arith.negf %x : {kind}", same, lambda x, y: -x)
    for name, function in UNARY.items():
        # NumPy's f32 functions are the less exact side.
        yield Case(f"math.{name} %x : {kind}", same, lambda x, y, f=function: f(x.astype(np.float64)), close)
    for name, function in UNARY_ABOVE_0.items():
        yield Case(f"math.{name} %x : {kind}", same, lambda x, y, f=function: f(x), close, low=0.001)
    for name, function in EXACT.items():
        yield Case(f"math.{name} %x : {kind}", same, lambda x, y, f=function: f(x))
    yield Case(f"math.copysign %x, %y : {kind}", same, np.copysign)
    yield Case(f"math.atan2 %x, %y : {kind}", same, np.arctan2, close)
    yield Case(f"math.powf %x, %y : {kind}", same, np.power, close, low=0.01)


CASES = {case.name: case for case in _cases()}
