"""Products that read operands through views in their kernel, and store results that are views of theirs."""

from __future__ import annotations

import numpy as np
import pytest
from ir_testing import evaluate, kernels, parse, random_arguments
from lowered_programs import needs_compiler

import fuse_opt

SHORT = {"XS": "tensor<2x40x3x4x24xf32>", "X1": "tensor<2x40x1x4x24xf32>", "X4": "tensor<2x40x4x24xf32>"}
HEADS = """
func.func @main(%x: XS, %y: XS) -> tensor<2x40x4x40xf32> {
  %r = fused.kernel(%a = %x : XS, %b = %y : XS) -> (tensor<2x40x4x40xf32>) attributes {schedule = {kind = "matmul"}} {
    %q0 = graph.slice %a {starts = array<i64: 0, 0, 1, 0, 0>, stops = array<i64: 2, 40, 2, 4, 24>} : (XS) -> X1
    %q1 = graph.reshape %q0 {shape = array<i64: 2, 40, 4, 24>} : (X1) -> X4
    %q = graph.permute_dims %q1 {axes = array<i64: 0, 2, 1, 3>} : (X4) -> tensor<2x4x40x24xf32>
    %k0 = graph.slice %b {starts = array<i64: 0, 0, 2, 0, 0>, stops = array<i64: 2, 40, 3, 4, 24>} : (XS) -> X1
    %k1 = graph.reshape %k0 {shape = array<i64: 2, 40, 4, 24>} : (X1) -> X4
    %k = graph.permute_dims %k1 {axes = array<i64: 0, 2, 3, 1>} : (X4) -> tensor<2x4x24x40xf32>
    %p = graph.matmul %q, %k : (tensor<2x4x40x24xf32>, tensor<2x4x24x40xf32>) -> tensor<2x4x40x40xf32>
    %g = graph.gelu %p : (tensor<2x4x40x40xf32>) -> tensor<2x4x40x40xf32>
    %o = graph.permute_dims %g {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x4x40x40xf32>) -> tensor<2x40x4x40xf32>
    fused.yield %o : tensor<2x40x4x40xf32>
  }
  func.return %r : tensor<2x40x4x40xf32>
}"""


def check(text: str) -> None:
    module = parse(text)
    arguments = random_arguments(module, 1)
    program = fuse_opt.compile(text)
    assert program.stats.library_calls == 0
    np.testing.assert_allclose(program(*arguments), evaluate(module, arguments)[0], rtol=1e-5, atol=1e-4)


@needs_compiler
def test_heads_side_by_side() -> None:
    text = HEADS
    for short, kind in SHORT.items():
        text = text.replace(short, kind)
    check(text)


@needs_compiler
@pytest.mark.parametrize("axis", [0, 1])
def test_flipped_operand(axis: int) -> None:
    """Rows and columns at negative distances."""
    kind = "tensor<40x48xf32>"
    check(f"""
func.func @main(%x: {kind}, %y: tensor<48x40xf32>) -> tensor<40x40xf32> {{
  %r = fused.kernel(%a = %x : {kind}, %b = %y : tensor<48x40xf32>) -> (tensor<40x40xf32>)
      attributes {{schedule = {{kind = "matmul"}}}} {{
    %f = graph.flip %a {{axes = array<i64: {axis}>}} : ({kind}) -> {kind}
    %g = graph.flip %b {{axes = array<i64: {axis}>}} : (tensor<48x40xf32>) -> tensor<48x40xf32>
    %p = graph.matmul %f, %g : ({kind}, tensor<48x40xf32>) -> tensor<40x40xf32>
    fused.yield %p : tensor<40x40xf32>
  }}
  func.return %r : tensor<40x40xf32>
}}""")


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("rows", [1, 5, 50])
def test_weights_that_are_widened_first(element: str, rows: int) -> None:
    """The conversion is done where the product copies its operand; the other one stays as it is."""
    x, w, y = f"tensor<{rows}x70xf32>", f"tensor<48x70x{element}>", f"tensor<{rows}x48xf32>"
    text = f"""
func.func @main(%x: {x}, %w: {w}) -> {y} {{
  %f = graph.astype %w {{dtype = f32}} : ({w}) -> tensor<48x70xf32>
  %p = graph.matmul %x, %f {{transpose_rhs = true}} : ({x}, tensor<48x70xf32>) -> {y}
  func.return %p : {y}
}}"""
    program = fuse_opt.compile(text)
    assert [kernel.schedule_kind() for kernel in kernels(program.module)] == ["matmul"]
    check(text)


def test_transposed_store_is_refused() -> None:
    kind = "tensor<40x40xf32>"
    text = f"""
func.func @main(%x: {kind}) -> {kind} {{
  %r = fused.kernel(%a = %x : {kind}) -> ({kind}) attributes {{schedule = {{kind = "matmul"}}}} {{
    %p = graph.matmul %a, %a : ({kind}, {kind}) -> {kind}
    %o = graph.permute_dims %p {{axes = array<i64: 1, 0>}} : ({kind}) -> {kind}
    fused.yield %o : {kind}
  }}
  func.return %r : {kind}
}}"""
    with pytest.raises(Exception, match="cannot run the kernel: neighbours of a row of the product are not stored"):
        fuse_opt.compile(text)


@needs_compiler
def test_rows_stored_across_matrices() -> None:
    """Three times four rows of what are two matrices of six: no axis of the product counts them."""
    check("""
func.func @main(%x: tensor<2x6x8xf32>, %w: tensor<2x8x16xf32>, %b: tensor<3x4x16xf32>) -> tensor<3x4x16xf32> {
  %0 = graph.matmul %x, %w : (tensor<2x6x8xf32>, tensor<2x8x16xf32>) -> tensor<2x6x16xf32>
  %1 = graph.reshape %0 {shape = array<i64: 3, 4, 16>} : (tensor<2x6x16xf32>) -> tensor<3x4x16xf32>
  %2 = graph.add %1, %b : (tensor<3x4x16xf32>, tensor<3x4x16xf32>) -> tensor<3x4x16xf32>
  func.return %2 : tensor<3x4x16xf32>
}""")
