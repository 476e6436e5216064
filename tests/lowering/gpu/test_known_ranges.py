"""Reciprocals and roots of numbers that are known to be far from the ends of their range take fewer instructions, with the same
bits; those of what may be zero, tiny or infinite do not."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cuda_on_cpu import kernels_text, needs_cxx, needs_nvcc
from ir_testing import apply, evaluate, parse
from sass import instructions

from fuse_opt.lowering.c.headers.functions import cuda_helpers
from fuse_opt.runtime.device.compiler import compile_cuda, find_cuda_compiler
from fuse_opt.runtime.disk_cache import DiskCache

T, ROW, F = "tensor<32x48xf32>", "tensor<32x1xf32>", "tensor<f32>"
KEPT = "{axes = array<i64: 1>, keepdims = true}"
MAXIMUM = f"%m = graph.max %x {KEPT} : ({T}) -> {ROW}\n%d = graph.subtract %x, %m : ({T}, {ROW}) -> {T}"
EXP = f"%e = graph.exp %d : ({T}) -> {T}"
SUM = f"%t = graph.sum %e {KEPT} : ({T}) -> {ROW}"
SQUARE = f"%q = graph.multiply %x, %x : ({T}, {T}) -> {T}"

DIVISORS = {
    "sum of a softmax": f"{MAXIMUM}\n{EXP}\n{SUM}",
    "one and an exponential of what is not positive": f"""%a = graph.abs %x : ({T}) -> {T}
      %n = graph.negative %a : ({T}) -> {T}
      %e = graph.exp %n : ({T}) -> {T}
      %one = graph.constant dense<1.0> : {F}
      %t = graph.add %e, %one : ({T}, {F}) -> {T}""",
    "two and a hyperbolic tangent": f"""%h = graph.tanh %x : ({T}) -> {T}
      %two = graph.constant dense<2.0> : {F}
      %t = graph.add %h, %two : ({T}, {F}) -> {T}""",
    "clipped": f"""%low = graph.constant dense<1.0e-20> : {F}
      %high = graph.constant dense<1.0e+20> : {F}
      %a = graph.maximum %x, %low : ({T}, {F}) -> {T}
      %t = graph.minimum %a, %high : ({T}, {F}) -> {T}""",
}
UNKNOWN_DIVISORS = {
    "sum": f"%t = graph.sum %x {KEPT} : ({T}) -> {ROW}",
    "sum of exponentials": f"%e = graph.exp %x : ({T}) -> {T}\n{SUM}",
    "sum of exponentials below another's maximum": f"""%m = graph.max %y {KEPT} : ({T}) -> {ROW}
      %d = graph.subtract %x, %m : ({T}, {ROW}) -> {T}\n{EXP}\n{SUM}""",
    "sum over a part of a row": f"""{MAXIMUM}\n{EXP}
      %part = graph.slice %e {{starts = array<i64: 0, 1>, stops = array<i64: 32, 48>}} : ({T}) -> tensor<32x47xf32>
      %t = graph.sum %part {KEPT} : (tensor<32x47xf32>) -> {ROW}""",
    "one and what may be infinite": f"""%a = graph.abs %x : ({T}) -> {T}
      %one = graph.constant dense<1.0> : {F}
      %t = graph.add %a, %one : ({T}, {F}) -> {T}""",
    "clipped, rounded to what has no such numbers": f"""%low = graph.constant dense<1.0e-20> : {F}
      %high = graph.constant dense<1.0e+20> : {F}
      %a = graph.maximum %x, %low : ({T}, {F}) -> {T}
      %b = graph.minimum %a, %high : ({T}, {F}) -> {T}
      %c = graph.astype %b {{dtype = f16}} : ({T}) -> tensor<32x48xf16>
      %t = graph.astype %c {{dtype = f32}} : (tensor<32x48xf16>) -> {T}""",
}
ROOTS = {
    "sum of squares and a little": f"""{SQUARE}
      %s = graph.sum %q {KEPT} : ({T}) -> {ROW}
      %little = graph.constant dense<1.0e-05> : {F}
      %t = graph.add %s, %little : ({ROW}, {F}) -> {ROW}""",
}
UNKNOWN_ROOTS = {
    "sum of squares": f"{SQUARE}\n%t = graph.sum %q {KEPT} : ({T}) -> {ROW}",
    "argument and a little": f"""%little = graph.constant dense<1.0e-05> : {F}
      %t = graph.add %x, %little : ({T}, {F}) -> {T}""",
}


def program(body: str, last: str) -> str:
    """One kernel of the op `last` of %t; or %t itself, without it."""
    kind = ROW if f"-> {ROW}" in body.strip().splitlines()[-1] else T
    end = f"%r = graph.{last} %t : ({kind}) -> {kind}" if last else ""
    return f"""func.func @main(%first: {T}, %second: {T}) -> {kind} {{
      %o = fused.kernel(%x = %first : {T}, %y = %second : {T}) -> ({kind}) {{
        {body}
        {end}
        fused.yield %{"r" if last else "t"} : {kind}
      }}
      func.return %o : {kind}
    }}"""


def text(body: str, last: str) -> str:
    return kernels_text(apply(parse(program(body, last)), ["convert-fused-to-gpu"]))


def special(seed: int) -> np.ndarray:
    """Rows of ordinary numbers, of tiny, huge and infinite ones, of one number alone."""
    random = np.random.default_rng(seed)
    x = random.normal(0, 30, (32, 48)).astype(np.float32)
    x[1] *= np.float32(1e-42)
    x[2], x[3], x[4], x[5] = 3e38, -3e38, 0, 1e-45
    x[6, :5], x[7, 3], x[8], x[9, ::2] = np.inf, np.nan, -np.inf, -np.inf
    return x


@pytest.mark.parametrize("body", DIVISORS.values(), ids=DIVISORS.keys())
def test_a_reciprocal_of_a_moderate_number(body: str) -> None:
    """Which the divisor is, or NaN, whatever the arguments are."""
    assert "fo_moderate_reciprocal_f32(" in text(body, "reciprocal")
    with np.errstate(all="ignore"):
        (found,) = evaluate(parse(program(body, "")), [special(1), special(2)])
    assert np.all(np.isnan(found) | ((found >= 2.0**-100) & (found <= 2.0**100)))


@pytest.mark.parametrize("body", ROOTS.values(), ids=ROOTS.keys())
def test_a_root_of_what_is_not_tiny(body: str) -> None:
    assert "fo_moderate_rsqrt_f32(" in text(body, "rsqrt")
    with np.errstate(all="ignore"):
        (found,) = evaluate(parse(program(body, "")), [special(1), special(2)])
    assert np.all(np.isnan(found) | (found >= 2.0**-100))


@pytest.mark.parametrize("body", UNKNOWN_DIVISORS.values(), ids=UNKNOWN_DIVISORS.keys())
def test_a_reciprocal_of_what_may_be_any_number(body: str) -> None:
    found = text(body, "reciprocal")
    assert " = 1.0f / " in found
    assert "fo_moderate" not in found


@pytest.mark.parametrize("body", UNKNOWN_ROOTS.values(), ids=UNKNOWN_ROOTS.keys())
def test_a_root_of_what_may_be_tiny(body: str) -> None:
    found = text(body, "rsqrt")
    assert " = rsqrtf(" in found
    assert "fo_moderate" not in found


@needs_cxx
def test_reciprocals_have_the_bits_of_divisions(tmp_path: Path) -> None:
    """All 24-bit numbers, at both ends of the range and around 1, by the steps behind the hardware's approximation."""
    source, library = tmp_path / "reciprocal.cpp", tmp_path / "reciprocal.so"
    preamble = "#include <cmath>\nusing std::fmaf;\n#define __device__\n#define __forceinline__ inline\n"
    loop = 'extern "C" void each(const float *x, float *y, long n) { for (long i = 0; i < n; ++i) y[i] = %s(x[i]); }\n'
    name = "fo_moderate_reciprocal_f32"
    source.write_text(preamble + cuda_helpers([name]) + loop % name)
    build = ["g++", "-std=c++17", "-O2", "-march=native", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([*build, str(source), "-o", str(library)], check=True)
    each = ctypes.CDLL(str(library)).each
    for exponent in (27, 126, 127, 226):
        x = np.arange(exponent << 23, (exponent + 1) << 23, dtype=np.uint32).view(np.float32)
        y = np.empty_like(x)
        each(*(ctypes.c_void_p(a.ctypes.data) for a in (x, y)), ctypes.c_long(x.size))
        assert np.array_equal(y.view(np.uint32), (np.float32(1) / x).view(np.uint32))


@needs_nvcc
def test_the_reciprocal_is_what_nvcc_makes_of_the_division() -> None:
    """A special function, and two products and sums, of which nvcc's division spells one with another sign."""
    compiler = find_cuda_compiler()
    assert compiler is not None
    name = "fo_moderate_reciprocal_f32"
    kernel = 'extern "C" __global__ void k(float *x) { x[threadIdx.x] = %s; }\n'
    ours = compile_cuda(compiler, cuda_helpers([name]) + kernel % f"{name}(x[threadIdx.x])", "sm_90", DiskCache())
    plain = compile_cuda(compiler, kernel % "1.0f / x[threadIdx.x]", "sm_90", DiskCache())
    counts = [fused_operations(each.data) for each in (ours, plain)]
    assert counts[0] == (1, 2) and counts[1][0] >= 1, counts


def fused_operations(cubin: bytes) -> tuple[int, int]:
    """Special functions and fused multiply-adds of f32 of a kernel alone in a cubin, its functions included."""
    names = [name for name, _ in instructions(cubin)["k"]]
    return names.count("MUFU"), names.count("FFMA")
