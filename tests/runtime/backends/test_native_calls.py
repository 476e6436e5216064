"""Calls of libraries inside of a program's one foreign call: products and convolutions of every type of float."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fuse_opt
from fuse_opt.lowering.program.float_formats import NARROW, bit_patterns, narrow, widen
from fuse_opt.runtime.backends.blas import matmul as blas
from fuse_opt.runtime.host import thread_pool

# Of products of standard normal numbers; the kernels of a BLAS (OPENBLAS_CORETYPE) add in orders of their own.
EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-19, "f64": 2.0**-48}
CASES = {
    "matmul": ("", "3x40x65", "65x70", "3x40x70"),
    "matmul, transposed": ("{transpose_lhs = true, transpose_rhs = true}", "65x40", "70x65", "40x70"),
    "conv": ("{pads = array<i64: 1, 1, 1, 1>}", "2x24x19x18", "40x24x3x3", "2x40x19x18"),
    "conv_transpose": ("{strides = array<i64: 2, 2>}", "2x16x9x8", "16x4x3x3", "2x4x19x17"),
    "conv_backward_data": (
        "{shape = array<i64: 20, 17>, strides = array<i64: 2, 2>}",
        "2x16x9x8",
        "16x4x3x3",
        "2x4x20x17",
    ),
    "conv_backward_weight": (
        "{kernel_shape = array<i64: 3, 3>, groups = 2 : i64}",
        "3x16x9x8",
        "3x6x11x10",
        "16x3x3x3",
    ),
}


@pytest.fixture(autouse=True)
def four_threads() -> Iterator[None]:
    if blas.load_tasks() is None:
        pytest.skip("no OpenBLAS in NumPy, or no C compiler")
    before = thread_pool.num_threads()
    thread_pool.set_num_threads(4)
    yield
    thread_pool.set_num_threads(before)


def program_text(case: str, dtype: str) -> str:
    """The op on one argument and on what another op makes of one, and an op behind it."""
    attributes, *shapes = CASES[case]
    a, b, out = (f"tensor<{shape}x{dtype}>" for shape in shapes)
    return f"""
func.func @main(%a: {a}, %b: {b}) -> {out} {{
  %0 = graph.abs %a : ({a}) -> {a}
  %1 = graph.{case.partition(",")[0]} %0, %b {attributes} : ({a}, {b}) -> {out}
  %2 = graph.negative %1 : ({out}) -> {out}
  func.return %2 : {out}
}}
"""


def random_array(rng: np.random.Generator, shape: str, dtype: str) -> NDArray[Any]:
    values = rng.standard_normal([int(n) for n in shape.split("x")]).astype(np.float32)
    return narrow(values, dtype) if dtype == "bf16" else values.astype(f"f{int(dtype[1:]) // 8}")


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("case", CASES)
def test_a_program_is_one_call(case: str, dtype: str):
    rng = np.random.default_rng(7)
    text = program_text(case, dtype)
    a, b = (random_array(rng, shape, dtype) for shape in CASES[case][1:3])
    program = fuse_opt.compile(text, pipeline="wrap-kernels,select-implementation{prefer=numpy}")
    assert (program.stats.library_calls, program.stats.foreign_calls) == (1, 1)
    results = [program(a, b), fuse_opt.evaluate(text, a, b)]
    found, expected = (widen(r).astype(float) if dtype == "bf16" else r.astype(float) for r in results)
    assert np.max(abs(found - expected) / (8 + abs(expected))) < EPSILON[dtype]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_products_are_rounded_once(dtype: str):
    """Products of one term are exact in f32: what is left is rounding, of every number that there is."""
    text = f"""
func.func @main(%a: tensor<65536x1x{dtype}>, %b: tensor<1x5x{dtype}>) -> tensor<65536x5x{dtype}> {{
  %0 = graph.matmul %a, %b : (tensor<65536x1x{dtype}>, tensor<1x5x{dtype}>) -> tensor<65536x5x{dtype}>
  func.return %0 : tensor<65536x5x{dtype}>
}}
"""
    bits = np.arange(65536, dtype=np.uint16)[:, None]
    factors = np.array([[1.0, -1.0, 1.75, 2.0**-9 * 1.125, 300.0]], np.float32)
    with np.errstate(all="ignore"):
        if dtype == "f16":
            a, b = bits.view(np.float16), factors.astype(np.float16)
            expected = (a.astype(np.float32) * b.astype(np.float32)).astype(np.float16).view(np.uint16)
        else:
            a, b = bits.view(NARROW["bf16"]), narrow(factors, "bf16")
            expected = bit_patterns(narrow(widen(a) * widen(b), "bf16"))
    program = fuse_opt.compile(text)
    assert program.stats.foreign_calls == 1
    found = program(a, b).view(np.uint16)
    limit = 0x7C00 if dtype == "f16" else 0x7F80
    nan = (expected & 0x7FFF) > limit
    zero = (expected & 0x7FFF) == 0  # a sum that begins with zero has no negative one
    assert ((found & 0x7FFF) > limit)[nan].all()
    assert ((found & 0x7FFF) == 0)[zero].all()
    assert (found == expected)[~nan & ~zero].all()
