"""`math = "fast"`: the bounds that the functions state, special values, and what the option does to loops and programs."""

from __future__ import annotations

import ctypes
import re
from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ir_testing import apply, parse, text_of
from lowered_programs import needs_compiler
from math_accuracy import C_MATH
from numpy.typing import NDArray

from fuse_opt.lowering.c.headers.functions import c_helpers, functions_of
from fuse_opt.lowering.emit import build_program
from fuse_opt.passes.remarks import RefusedError
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import find_c_compiler

pytestmark = pytest.mark.optimised

Array = NDArray[Any]

HEADER = "\n".join(functions_of(["fast_math.h"]).values())
DOCS = Path(__file__).resolve().parents[3] / "docs" / "c.md"
BOUNDS = {m[1]: float(m[2]) for m in re.finditer(r"^/\* (fo_fast_\w+): ([\d.]+) ULP", HEADER, re.MULTILINE)}
TYPES = {"f32": (np.float32, "float"), "f64": (np.float64, "double")}


def named(helper: str) -> tuple[str, str]:
    """The function and the type that a helper's name says."""
    word, _, kind = helper.removeprefix("fo_fast_").rpartition("_")
    return word, kind


def exact(name: str, x: Array) -> Array:
    """In long double, of finite arguments."""
    wide = x.astype(np.longdouble)
    if name.startswith("exp"):
        return np.exp(wide)
    if name == "sigmoid":
        e = np.exp(-np.abs(wide))
        return np.where(wide < 0, e, np.longdouble(1)) / (1 + e)
    return np.array([erf(float(value)) for value in x], np.longdouble)  # an error in f64 is nothing in f32


def samples(dtype: Any) -> Array:
    rng = np.random.default_rng(7)
    widest = 88.7 if dtype is np.float32 else 709.7
    small = np.ldexp(rng.uniform(-1, 1, 4000), rng.integers(-60, 3, 4000))
    return np.concatenate([rng.uniform(-widest, widest, 40000), rng.normal(0, 1, 40000), small]).astype(dtype)


@pytest.fixture(scope="module")
def functions() -> dict[str, Any]:
    compiler = find_c_compiler()
    if compiler is None:
        pytest.skip("no working C compiler")
    lines = [c_helpers(BOUNDS)]
    for name in BOUNDS:
        kind = TYPES[name[-3:]][1]
        body = f'_Pragma("omp simd") for (long i = 0; i < n; i++) y[i] = {name}(x[i]);'
        lines.append(f"void loop_{name}(long n, {kind} *restrict y, const {kind} *x) {{ {body} }}")
    library = ctypes.CDLL(str(compiler.compile_shared("\n".join(lines), DiskCache())))
    return {name: getattr(library, f"loop_{name}") for name in BOUNDS}


def call(function: Any, x: Array) -> Array:
    y = np.empty_like(x)
    function(ctypes.c_long(x.size), ctypes.c_void_p(y.ctypes.data), ctypes.c_void_p(x.ctypes.data))
    return y


@pytest.mark.parametrize("name", BOUNDS)
def test_the_bound_that_a_function_states(functions: dict[str, Any], name: str) -> None:
    word, kind = named(name)
    dtype = TYPES[kind][0]
    info, x = np.finfo(dtype), samples(dtype)
    x = -np.abs(x) if word == "exp_negative" else x
    y, expected = call(functions[name], x), exact(word, x)
    with np.errstate(all="ignore"):
        unit = np.ldexp(np.longdouble(1), np.frexp(expected)[1] - 1 - info.nmant)
        errors = np.abs(y.astype(np.longdouble) - expected) / unit
    least = 2 * np.longdouble(info.tiny)
    normal = (np.abs(expected) >= least) & (np.abs(expected) <= np.longdouble(info.max))
    assert np.max(errors[normal]) <= BOUNDS[name]
    assert np.all(np.abs(y[np.abs(expected) < least]) <= least)


@pytest.mark.parametrize("name", BOUNDS)
def test_special_values(functions: dict[str, Any], name: str) -> None:
    word, kind = named(name)
    x = np.array([-0.0, 0.0, np.nan, -np.inf, -1e6, np.inf, 1e6], TYPES[kind][0])
    expected = {
        "exp": [1, 1, np.nan, 0, 0, np.inf, np.inf],
        "exp_negative": [1, 1, np.nan, 0, 0],
        "sigmoid": [0.5, 0.5, np.nan, 0, 0, 1, 1],
        "erf": [-0.0, 0, np.nan, -1, -1, 1, 1],
    }[word]
    y = call(functions[name], x[: len(expected)])
    np.testing.assert_array_equal(y, np.array(expected, x.dtype))
    assert np.signbit(y[0]) == np.signbit(expected[0])


def test_the_documentation_states_the_bounds() -> None:
    rows = [
        line.strip("|").split("|") for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith("|")
    ]
    table = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows if len(row) == 5}
    for name, bound in BOUNDS.items():
        word, kind = named(name)
        assert float(table[word.removesuffix("_negative")][2 if kind == "f32" else 3]) == bound, name
    strict = {m[1]: float(m[2]) for m in re.finditer(r"^/\* (fo_\w+): .*?([\d.]+) ULP", C_MATH, re.MULTILINE)}
    for word, cells in table.items():
        for kind, cell in zip(TYPES, cells[:2], strict=True):
            if (bound := strict.get(f"fo_{word}_{kind}")) is not None:
                assert float(cell) == bound, (word, kind)


@needs_compiler
@pytest.mark.parametrize("kind", TYPES)
def test_the_bound_of_sigmoid_in_strict_mode(kind: str) -> None:
    """Denormal results included."""
    dtype = TYPES[kind][0]
    x = samples(dtype)
    shape = f"tensor<{x.size}x{kind}>"
    text = f"func.func @main(%x: {shape}) -> {shape} {{ %y = graph.sigmoid %x : ({shape}) -> {shape} func.return %y : {shape} }}"
    y = CpuProgram(build_program(apply(parse(text), [*PASSES, "schedule-kernels"])))(x)
    rows = re.search(r"^\| sigmoid \| ([\d.]+) \| ([\d.]+) ", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows is not None
    info, expected = np.finfo(dtype), exact("sigmoid", x)
    exponent = np.maximum(np.frexp(expected)[1] - 1, info.minexp)
    errors = np.abs(y.astype(np.longdouble) - expected) / np.ldexp(np.longdouble(1), exponent - info.nmant)
    assert np.max(errors) <= float(rows[1 if kind == "f32" else 2])


PROGRAM = """
func.func @main(%x: tensor<64x512xf32>) -> (tensor<64x512xf32>, tensor<64x512xf32>, tensor<64x512xf32>) {
  %s = graph.softmax %x {axis = -1 : i64} : (tensor<64x512xf32>) -> tensor<64x512xf32>
  %g = graph.sigmoid %x : (tensor<64x512xf32>) -> tensor<64x512xf32>
  %e = graph.erf %g : (tensor<64x512xf32>) -> tensor<64x512xf32>
  %m = graph.multiply %e, %x : (tensor<64x512xf32>, tensor<64x512xf32>) -> tensor<64x512xf32>
  %a = graph.add %m, %g : (tensor<64x512xf32>, tensor<64x512xf32>) -> tensor<64x512xf32>
  %n = graph.negative %x : (tensor<64x512xf32>) -> tensor<64x512xf32>
  %k = graph.exp %n : (tensor<64x512xf32>) -> tensor<64x512xf32>
  %b = graph.add %a, %k : (tensor<64x512xf32>, tensor<64x512xf32>) -> tensor<64x512xf32>
  %t = graph.sum %x {axes = array<i64: 1>, keepdims = true} : (tensor<64x512xf32>) -> tensor<64x1xf32>
  %q = graph.divide %x, %t : (tensor<64x512xf32>, tensor<64x1xf32>) -> tensor<64x512xf32>
  func.return %s, %b, %q : tensor<64x512xf32>, tensor<64x512xf32>, tensor<64x512xf32>
}
"""
PASSES = ["decompose", "fuse-row", "fuse-elementwise", "wrap-kernels"]


@needs_compiler
def test_a_program_in_fast_mode() -> None:
    x = np.random.default_rng(1).standard_normal((64, 512), np.float32) * np.float32(4)
    strict = apply(parse(PROGRAM), [*PASSES, "schedule-kernels"])
    fast = apply(parse(PROGRAM), [*PASSES, "schedule-kernels{math=fast}"])
    assert 'math = "fast"' in text_of(fast)
    assert "math" not in text_of(strict)
    loops = text_of(apply(fast, ["convert-fused-to-loops"]))
    assert 'fused.math = "fast"' in loops
    for name in ("fast_exp", "fast_exp_negative", "fast_sigmoid", "fast_erf", "mad"):
        assert f"@fo_{name}_f32(" in loops
    assert "%reciprocal" in loops
    first, second = (build_program(module) for module in (strict, fast))
    assert "fo_fast" not in first.source
    exact, relaxed = CpuProgram(first)(x), CpuProgram(second)(x)
    np.testing.assert_allclose(relaxed[0], exact[0], rtol=1e-6)
    np.testing.assert_allclose(relaxed[1], exact[1], rtol=1e-6, atol=1e-6)  # a sum that may cancel
    np.testing.assert_allclose(relaxed[2], exact[2], rtol=1e-6)


@needs_compiler
@pytest.mark.parametrize("divisor", ("3.1", "-7.0e-3", "1.0e38", "1.0e-40", "0.0"))
def test_division_by_a_constant_in_fast_mode(divisor: str) -> None:
    """One reciprocal, where that is a normal number; within 1.5 ULP of the quotient."""
    shape = "tensor<512xf32>"
    text = f"""func.func @main(%x: {shape}) -> {shape} {{
      %c = graph.constant dense<{divisor}> : tensor<f32>
      %y = graph.divide %x, %c : ({shape}, tensor<f32>) -> {shape}
      func.return %y : {shape} }}"""
    module = apply(parse(text), [*PASSES, "schedule-kernels{math=fast}"])
    x = np.random.default_rng(2).standard_normal(512, np.float32)
    y = CpuProgram(build_program(module))(x)
    with np.errstate(divide="ignore", over="ignore"):
        expected = x / np.float32(divisor)
    np.testing.assert_allclose(y, expected, rtol=1.5 * 2.0**-23)
    loops = text_of(apply(module, ["convert-fused-to-loops"]))
    assert ("%reciprocal" in loops) == (divisor not in ("1.0e38", "1.0e-40", "0.0"))


def test_an_unknown_accuracy_is_refused() -> None:
    given = text_of(apply(parse(PROGRAM), [*PASSES, "schedule-kernels{math=fast}"])).replace('"fast"', '"sloppy"')
    with pytest.raises(RefusedError, match='expected "strict" or "fast", got "sloppy"'):
        apply(parse(given), ["schedule-kernels"])
