"""Divisions by constants that are multiplications in f64: the same bits as a division, whatever is divided."""

from __future__ import annotations

import numpy as np
import pytest
from ir_testing import parse
from lowered_programs import needs_compiler

from fuse_opt.lowering.emit import build_program, emit_c
from fuse_opt.lowering.loops.constant_division import is_exact_divisor
from fuse_opt.runtime.cpu.program import CpuProgram

DIVISORS = [0.6513215599, 0.009955119790251765, 0.3, -1.7, 1.3e-38, 3e38, 4097.0, 1 / 3, 12345.678, 1e20]


def dividends(c: float) -> np.ndarray:
    """Of every size, special values, and those whose quotients are in the middle of two denormal numbers."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 1 << 18, np.uint32).view(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -3.4028235e38], np.float32)
    middles = (np.arange(1, 1 << 14, 2) * float(np.float32(c))) * 2.0**-150
    with np.errstate(over="ignore"):
        return np.concatenate([bits, special, middles.astype(np.float32), np.nextafter(middles.astype(np.float32), 9)])


@pytest.mark.parametrize("c", DIVISORS)
def test_the_product_is_the_quotient(c: float) -> None:
    divisor = np.float32(c)
    assert is_exact_divisor(float(divisor))
    x = dividends(c)
    with np.errstate(all="ignore"):
        product, quotient = (x.astype(np.float64) * (1 / float(divisor))).astype(np.float32), x / divisor
    known = ~np.isnan(quotient)
    assert np.array_equal(known, ~np.isnan(product))
    assert np.array_equal(product[known].view(np.uint32), quotient[known].view(np.uint32))


@pytest.mark.parametrize("c", [3.0, 10.0, 1.2345e-30, 0.0, np.inf, np.nan, 1e-45])
def test_constants_of_few_digits_and_others_are_left_alone(c: float) -> None:
    assert not is_exact_divisor(float(np.float32(c)))


def program(roots: int) -> str:
    shape = "tensor<20000xf32>"
    lines = [f"%v{k + 1} = graph.sqrt %v{k} : ({shape}) -> {shape}" for k in range(roots)]
    return f"""func.func @main(%x: {shape}, %y: {shape}) -> ({shape}, {shape}) {{
  %r, %s = fused.kernel(%a = %x : {shape}, %v0 = %y : {shape}) -> ({shape}, {shape}) {{
    %c = graph.constant dense<0.651321560> : tensor<f32>
    %d = graph.divide %a, %c : ({shape}, tensor<f32>) -> {shape}
    {chr(10).join(lines)}
    fused.yield %d, %v{roots} : {shape}, {shape}
  }}
  func.return %r, %s : {shape}, {shape}
}}"""


@needs_compiler
@pytest.mark.parametrize(("roots", "wide", "asked"), [(1, 0, 0), (2, 0, 1), (3, 1, 0)])
def test_one_of_three_is_by_f64(roots: int, wide: int, asked: int) -> None:
    """Of four on every machine, of three where the machine's vectors are wide."""
    module = parse(program(roots))
    text = emit_c(module)
    assert (text.count(" = (double)"), text.count("= fo_divided_f32(")) == (wide, asked)
    x, y = dividends(0.65132156)[-20000:], np.abs(np.random.default_rng(1).standard_normal(20000, np.float32))
    got, _ = CpuProgram(build_program(module))(x, y)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, x / np.float32(0.65132156))
