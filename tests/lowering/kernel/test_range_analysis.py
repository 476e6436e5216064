"""Arguments of exp that cannot be positive are seen as such, through broadcasts and moves, and only these."""

from __future__ import annotations

import numpy as np
import pytest
from ir_testing import apply, parse, text_of
from lowered_programs import needs_compiler

import fuse_opt

T, ROW, TURNED = "tensor<32x48xf32>", "tensor<32x1xf32>", "tensor<48x32xf32>"
MAXIMUM = f"%m = graph.max %x {{axes = array<i64: 1>, keepdims = true}} : ({T}) -> {ROW}"
SAFE = f"""{MAXIMUM}
      %i = graph.constant dense<0xff800000> : tensor<f32>
      %z = graph.constant dense<0.0> : tensor<f32>
      %h = graph.equal OTHER, %i : ({ROW}, tensor<f32>) -> tensor<32x1xi1>
      %k = graph.where %h, %z, %m : (tensor<32x1xi1>, tensor<f32>, {ROW}) -> {ROW}"""
HALVES = "tensor<32x48xf16>"

NONPOSITIVE = {
    "minus its size": f"%a = graph.abs %x : ({T}) -> {T}\n%t = graph.negative %a : ({T}) -> {T}",
    "minus its square": f"%a = graph.multiply %x, %x : ({T}, {T}) -> {T}\n%t = graph.negative %a : ({T}) -> {T}",
    "minus the maximum": f"{MAXIMUM}\n%t = graph.subtract %x, %m : ({T}, {ROW}) -> {T}",
    "minus the maximum over all": f"""%m = graph.max %x {{axes = array<i64: 0, 1>}} : ({T}) -> tensor<f32>
      %t = graph.subtract %x, %m : ({T}, tensor<f32>) -> {T}""",
    "computed, minus its maximum": f"""%s = graph.add %x, %y : ({T}, {T}) -> {T}
      %m = graph.max %s {{axes = array<i64: 1>}} : ({T}) -> tensor<32xf32>
      %k = graph.reshape %m {{shape = array<i64: 32, 1>}} : (tensor<32xf32>) -> {ROW}
      %t = graph.subtract %s, %k : ({T}, {ROW}) -> {T}""",
    "minus the maximum, or 0 where that is -inf": f"""{SAFE.replace("OTHER", "%m")}
      %t = graph.subtract %x, %k : ({T}, {ROW}) -> {T}""",
    "halved": f"""{MAXIMUM}\n%d = graph.subtract %x, %m : ({T}, {ROW}) -> {T}
      %h = graph.constant dense<0.5> : tensor<f32>
      %t = graph.multiply %d, %h : ({T}, tensor<f32>) -> {T}""",
    "through halves": f"""%n = graph.astype %x {{dtype = f16}} : ({T}) -> {HALVES}
      %a = graph.abs %n : ({HALVES}) -> {HALVES}
      %b = graph.negative %a : ({HALVES}) -> {HALVES}
      %t = graph.astype %b {{dtype = f32}} : ({HALVES}) -> {T}""",
}
UNKNOWN = {
    "itself": f"%t = graph.negative %x : ({T}) -> {T}",
    "its size": f"%t = graph.abs %x : ({T}) -> {T}",
    "minus a product": f"%a = graph.multiply %x, %y : ({T}, {T}) -> {T}\n%t = graph.negative %a : ({T}) -> {T}",
    "another minus the maximum": f"{MAXIMUM}\n%t = graph.subtract %y, %m : ({T}, {ROW}) -> {T}",
    "the maximum minus it": f"{MAXIMUM}\n%t = graph.subtract %m, %x : ({ROW}, {T}) -> {T}",
    "minus the maximum of another row": f"""{MAXIMUM}
      %k = graph.flip %m {{axes = array<i64: 0>}} : ({ROW}) -> {ROW}
      %t = graph.subtract %x, %k : ({T}, {ROW}) -> {T}""",
    "minus 0 where another maximum is -inf": f"""%n = graph.max %y {{axes = array<i64: 1>, keepdims = true}} : ({T}) -> {ROW}
      {SAFE.replace("OTHER", "%n")}
      %t = graph.subtract %x, %k : ({T}, {ROW}) -> {T}""",
    "minus 0 where the maximum is 0": f"""{SAFE.replace("OTHER", "%m").replace("0xff800000", "0.0")}
      %t = graph.subtract %x, %k : ({T}, {ROW}) -> {T}""",
    "minus the minimum": f"""%m = graph.min %x {{axes = array<i64: 1>, keepdims = true}} : ({T}) -> {ROW}
      %t = graph.subtract %x, %m : ({T}, {ROW}) -> {T}""",
}


def lowered(body: str) -> str:
    """Loops of one kernel that ends with the exp of %t."""
    return text_of(
        apply(
            parse(f"""
func.func @main(%p: {T}, %q: {T}) -> {T} {{
  %r = fused.kernel(%x = %p : {T}, %y = %q : {T}) -> ({T}) {{
    {body}
    %e = graph.exp %t : ({T}) -> {T}
    fused.yield %e : {T}
  }}
  func.return %r : {T}
}}"""),
            ["convert-fused-to-loops"],
        )
    )


@pytest.mark.parametrize("body", NONPOSITIVE.values(), ids=NONPOSITIVE.keys())
def test_an_argument_that_cannot_be_positive(body: str) -> None:
    assert "{fused.nonpositive}" in lowered(body)


@pytest.mark.parametrize("body", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_an_argument_that_may_be_positive(body: str) -> None:
    text = lowered(body)
    assert "math.exp" in text
    assert "fused.nonpositive" not in text


ROWS = f"""func.func @main(%x: {T}) -> ({T}, {T}) {{
  %s = graph.softmax %x {{axis = 1 : i64}} : ({T}) -> {T}
  %g = graph.sigmoid %x : ({T}) -> {T}
  func.return %s, %g : {T}, {T}
}}"""


@needs_compiler
def test_rows_with_special_values() -> None:
    x = np.random.default_rng(1).normal(0, 40, (32, 48)).astype(np.float32)
    for row, values in enumerate(
        [(np.inf,), (-np.inf,), (np.nan,), (np.inf, -np.inf), (np.inf, np.nan), (3e38, -3e38)]
    ):
        x[row, 3 : 3 + len(values)] = values
    x[6], x[7], x[8] = -np.inf, np.inf, np.nan
    program = fuse_opt.compile(ROWS, "cpu")
    with np.errstate(all="ignore"):
        expected = fuse_opt.compile(ROWS, "reference")(x)
    assert "fo_exp_f32(" not in program.source
    assert program.source.count(" = fo_exp_negative_f32(") == 2
    for got, wanted in zip(program(x), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-44)
