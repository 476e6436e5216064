"""Entries of schedules: accepted and refused as their records say, none without effect, bits kept where that is promised."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from ir_testing import apply, parse
from lowered_programs import needs_compiler

from fuse_opt.dialects.fused.knobs import KNOBS, Knob, Words
from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.program import Program
from fuse_opt.lowering.program.float_formats import narrow
from fuse_opt.passes.remarks import RefusedError
from fuse_opt.runtime.cpu.program import CpuProgram

CHAIN = """
    %1 = graph.exp %0 : (TYPE) -> TYPE
    %2 = graph.tanh %1 : (TYPE) -> TYPE
    %3 = graph.log1p %2 : (TYPE) -> TYPE
    %4 = graph.sin %3 : (TYPE) -> TYPE
    %5 = graph.tanh %4 : (TYPE) -> TYPE
    %6 = graph.multiply %5, %0 : (TYPE, TYPE) -> TYPE
    fused.yield %6 : TYPE"""
SUM = """
    %1 = graph.sum %0 {axes = array<i64: AXIS>} : (TYPE) -> RESULT
    fused.yield %1 : RESULT"""
SHARES = """
    %most = graph.max %0 {axes = array<i64: 1>, keepdims = true} : (TYPE) -> tensor<700x1xf32>
    %less = graph.subtract %0, %most : (TYPE, tensor<700x1xf32>) -> TYPE
    %1 = graph.exp %less : (TYPE) -> TYPE
    %2 = graph.sum %1 {axes = array<i64: 1>, keepdims = true} : (TYPE) -> tensor<700x1xf32>
    %3 = graph.divide %1, %2 : (TYPE, tensor<700x1xf32>) -> TYPE
    %4 = graph.tanh %3 : (TYPE) -> TYPE
    %5 = graph.sum %4 {axes = array<i64: 1>, keepdims = true} : (TYPE) -> tensor<700x1xf32>
    %6 = graph.divide %4, %5 : (TYPE, tensor<700x1xf32>) -> TYPE
    fused.yield %6 : TYPE"""
TURNED = """
    %1 = graph.permute_dims %0 {axes = array<i64: 1, 0>} : (TYPE) -> RESULT
    %2 = graph.exp %1 : (RESULT) -> RESULT
    fused.yield %2 : RESULT"""
SQUARES = """
    %1 = graph.conv_backward_weight %0, %0 {kernel_shape = array<i64: 1, 1>} : (TYPE, TYPE) -> RESULT
    fused.yield %1 : RESULT"""
PRODUCT = """
    %1 = graph.matmul %0, %0 {transpose_lhs = true} : (TYPE, TYPE) -> RESULT
    fused.yield %1 : RESULT"""
ATTENTION = """
    %1 = graph.matmul %0, %0 {transpose_rhs = true} : (TYPE, TYPE) -> tensor<90x90xf32>
    %most = graph.max %1 {axes = array<i64: 1>, keepdims = true} : (tensor<90x90xf32>) -> tensor<90x1xf32>
    %less = graph.subtract %1, %most : (tensor<90x90xf32>, tensor<90x1xf32>) -> tensor<90x90xf32>
    %2 = graph.exp %less : (tensor<90x90xf32>) -> tensor<90x90xf32>
    %3 = graph.sum %2 {axes = array<i64: 1>, keepdims = true} : (tensor<90x90xf32>) -> tensor<90x1xf32>
    %4 = graph.reciprocal %3 : (tensor<90x1xf32>) -> tensor<90x1xf32>
    %5 = graph.multiply %2, %4 : (tensor<90x90xf32>, tensor<90x1xf32>) -> tensor<90x90xf32>
    %6 = graph.matmul %5, %0 : (tensor<90x90xf32>, TYPE) -> TYPE
    fused.yield %6 : TYPE"""
KERNELS = {
    "pointwise": (CHAIN, "300x400xbf16", "300x400xbf16"),
    "row": (SHARES, "700x400xf32", "700x400xf32"),
    "column": (SUM.replace("AXIS", "0"), "400x250xf32", "250xf32"),
    "split": (SUM.replace("AXIS", "1"), "2x50000xf32", "2xf32"),
    "tile": (TURNED, "300x400xf32", "400x300xf32"),
    "conv": (SQUARES, "8x64x28x28xf32", "64x64x1x1xf32"),
    "matmul": (PRODUCT, "300x400xf32", "400x400xf32"),
    "attention": (ATTENTION, "90x40xf32", "90x40xf32"),
}
COUNTS = {
    "splits": (3, 7),
    "block": (40, 256),
    "lanes": (8, 128),
    "tasks": (1000, 10**7),
    "rows_at_a_time": (1, 4),
    "ahead": (1 << 12, 1 << 16),
    "unroll": (2, 8),
    "vector": (128, 256),
    "window": (50, 600),
    "lent": (1600, 1601),
    "tile_bits": (256,),
    "register_bits": (256,),
}

OF_OTHERS = ("short", "long", "register_bits", "right_operand")
"""Entries that change nothing where extents are numbers; `tests/tools/compiler/test_sized_versions.py` and
`tests/lowering/cpu/test_register_parts.py` have kernels of sizes, `test_streamed_rows.py` products of few rows."""


def module(kind: str, entry: str = "") -> str:
    body, given, result = KERNELS[kind]
    implementation = f'implementation = "fuse.{kind}", ' if kind in ("conv", "matmul", "attention") else ""
    text = f"""
func.func @main(%x: TYPE) -> RESULT {{
  %r = fused.kernel(%0 = %x : TYPE) -> (RESULT) attributes {{{implementation}schedule = {{kind = "{kind}"{entry}}}}} {{{body}
  }}
  func.return %r : RESULT
}}"""
    return text.replace("TYPE", f"tensor<{given}>").replace("RESULT", f"tensor<{result}>")


def entries(knob: Knob) -> list[str]:
    if isinstance(knob.values, Words):
        return [f', {knob.name} = "{word}"' for word in knob.values.words]
    return [f", {knob.name} = {number} : i64" for number in COUNTS[knob.name]]


@cache
def lowered(kind: str, entry: str = "") -> Program:
    return build_program(apply(parse(module(kind, entry)), ["schedule-kernels"]))


def kinds(knob: Knob) -> list[str]:
    return [kind for kind in knob.kinds if kind in KERNELS]


@pytest.mark.parametrize("knob", [knob for knob in KNOBS if knob.name not in OF_OTHERS], ids=lambda knob: knob.name)
def test_each_entry_changes_some_kernel(knob: Knob) -> None:
    texts = [(lowered(kind, entry).source, lowered(kind).source) for kind in kinds(knob) for entry in entries(knob)]
    assert any(text != plain for text, plain in texts)


@needs_compiler
@pytest.mark.parametrize("knob", [knob for knob in KNOBS if knob.same_bits], ids=lambda knob: knob.name)
def test_entries_that_promise_it_change_no_bits(knob: Knob) -> None:
    for kind in kinds(knob):
        shape, element = KERNELS[kind][1].rsplit("x", 1)
        x = np.random.default_rng(1).standard_normal(tuple(map(int, shape.split("x"))), np.float32)
        given = x if element == "f32" else narrow(x, element)
        for other in (lowered(kind, entry) for entry in entries(knob)):
            if other.source != lowered(kind).source:
                found, wanted = (np.asarray(CpuProgram(each)(given)) for each in (other, lowered(kind)))
                np.testing.assert_array_equal(found.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.sampled(24)
@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
@pytest.mark.parametrize("value", ['"loose"', "0 : i64", "-4 : i64", "3.0 : f32"])
def test_other_values_are_refused(knob: Knob, value: str) -> None:
    for kind in kinds(knob):
        with pytest.raises(
            RefusedError, match=f"entry '{knob.name}': expected .*, got .*; remove the schedule, or write"
        ):
            apply(parse(module(kind, f", {knob.name} = {value}")), ["schedule-kernels"])
