"""Divisions by constants that are multiplications in f64: the same bits as a division, whatever is divided."""

from __future__ import annotations

import numpy as np
import pytest
from ir_testing import parse
from lowered_programs import needs_compiler

from fuse_opt.lowering.emit import build_program, emit_c
from fuse_opt.lowering.loops.constant_division import is_exact_divisor, split_reciprocal
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


def rooted(c: float, summand: float, more: str = "") -> str:
    """A root of a quotient and a constant; `more` is what else becomes of the quotient."""
    shape = "tensor<300000xf32>"
    return f"""func.func @main(%x: {shape}) -> ({shape}, {shape}) {{
  %r, %s = fused.kernel(%a = %x : {shape}) -> ({shape}, {shape}) {{
    %c = graph.constant dense<{c:.17e}> : tensor<f32>
    %e = graph.constant dense<{summand:.17e}> : tensor<f32>
    %d = graph.divide %a, %c : ({shape}, tensor<f32>) -> {shape}
    %q = graph.sqrt %d : ({shape}) -> {shape}
    %t = graph.add %q, %e : ({shape}, tensor<f32>) -> {shape}
    %u = graph.divide %a, %t : ({shape}, {shape}) -> {shape}
    fused.yield %t, %{more or "u"} : {shape}, {shape}
  }}
  func.return %r, %s : {shape}, {shape}
}}"""


@needs_compiler
@pytest.mark.parametrize("summand", [1e-8, 1e-3])
@pytest.mark.parametrize("c", [0.009955119790251765, 0.6513215599, 0.19, 0.001])
def test_quotients_whose_roots_are_added_have_the_bits_of_divisions(c: float, summand: float) -> None:
    module = parse(rooted(c, summand))
    assert emit_c(module).count("= fo_rooted_quotient_f32(") == 1
    every = dividends(c)
    x = np.concatenate([every, np.random.default_rng(2).integers(0, 1 << 27, 300000, np.uint32).view(np.float32)])
    x = x[-300000:]
    got, _ = CpuProgram(build_program(module))(x)
    with np.errstate(all="ignore"):
        wanted = np.sqrt(x / np.float32(c)) + np.float32(summand)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("c", "summand", "more"),
    [
        (0.19, 1e-9, ""),
        (0.19, -1e-3, ""),
        (-0.19, 1e-3, ""),
        (1.9, 1e-3, ""),
        (0.5, 1e-3, ""),
        (0.19, 1e-3, "d"),
        (0.19, 1e-3, "q"),
    ],
)
def test_others_are_divided(c: float, summand: float, more: str) -> None:
    """A constant to which the least roots add something, one that changes signs or gives zeros, and quotients that are seen."""
    assert "fo_rooted" not in emit_c(parse(rooted(c, summand, more)))


def test_not_every_reciprocal_is_two_numbers() -> None:
    divisors = [float(np.float32(1 - 0.999**step)) for step in range(1, 101, 4)]
    found = {c: parts for c in divisors if (parts := split_reciprocal(c, 1e-8)) is not None}
    assert 20 <= len(found) < 25
    for c, parts in found.items():
        high, low = (np.float32(part) for part in parts)
        assert 0 < low < high and abs(float(high) + float(low) - 1 / c) < 2.0**-45 / c
