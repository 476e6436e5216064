"""Extrema ignore NaN only where what is stored does not depend on that."""

from __future__ import annotations

import numpy as np
import pytest
from ir_testing import apply, parse, text_of
from lowered_programs import needs_compiler

import fuse_opt

T, ROW = "tensor<32x80xf32>", "tensor<32x1xf32>"
MAXIMUM = f"%m = graph.max %x {{axes = array<i64: 1>, keepdims = true}} : ({T}) -> {ROW}"
POWERS = f"{MAXIMUM}\n%d = graph.subtract %x, %m : ({T}, {ROW}) -> {T}\n%e = graph.exp %d : ({T}) -> {T}"
TOTAL = f"%s = graph.sum %e {{axes = array<i64: 1>, keepdims = true}} : ({T}) -> {ROW}"
SHARES = f"{POWERS}\n{TOTAL}\n%t = graph.divide %e, %s : ({T}, {ROW}) -> {T}"

IGNORED = {
    "softmax": f"%t = graph.softmax %x : ({T}) -> {T}",
    "log_softmax": f"%t = graph.log_softmax %x : ({T}) -> {T}",
    "divided": SHARES,
    "of sums": f"""%z = graph.add %x, %y : ({T}, {T}) -> {T}
      %t = graph.softmax %z : ({T}) -> {T}""",
    "of what is chosen": f"""%c = graph.less %x, %y : ({T}, {T}) -> tensor<32x80xi1>
      %z = graph.where %c, %x, %y : (tensor<32x80xi1>, {T}, {T}) -> {T}
      %t = graph.softmax %z : ({T}) -> {T}""",
    "by the minimum": f"""%m = graph.min %x {{axes = array<i64: 1>, keepdims = true}} : ({T}) -> {ROW}
      %d = graph.subtract %m, %x : ({ROW}, {T}) -> {T}
      %e = graph.exp %d : ({T}) -> {T}
      {TOTAL}
      %t = graph.multiply %e, %s : ({T}, {ROW}) -> {T}""",
}
SEEN = {
    "returned": f"{MAXIMUM}\n%t = graph.add %y, %m : ({T}, {ROW}) -> {T}",
    "powers alone": f"{POWERS}\n%t = graph.add %e, %y : ({T}, {T}) -> {T}",
    "powers beside shares": f"""{SHARES.replace("%t =", "%q =")}
      %c = graph.less %y, %x : ({T}, {T}) -> tensor<32x80xi1>
      %t = graph.where %c, %e, %q : (tensor<32x80xi1>, {T}, {T}) -> {T}""",
    "another's sum": f"""{POWERS.replace("subtract %x", "subtract %y")}
      {TOTAL}
      %t = graph.divide %e, %s : ({T}, {ROW}) -> {T}""",
    "compared": f"""{POWERS}\n{TOTAL}
      %l = graph.constant dense<0.0> : tensor<f32>
      %b = graph.less %m, %l : ({ROW}, tensor<f32>) -> tensor<32x1xi1>
      %w = graph.where %b, %l, %s : (tensor<32x1xi1>, tensor<f32>, {ROW}) -> {ROW}
      %t = graph.multiply %e, %w : ({T}, {ROW}) -> {T}""",
    "a power of a sum": f"""{POWERS}\n{TOTAL}
      %l = graph.constant dense<0.0> : tensor<f32>
      %p = graph.pow %s, %l : ({ROW}, tensor<f32>) -> {ROW}
      %t = graph.multiply %e, %p : ({T}, {ROW}) -> {T}""",
}


def program(body: str) -> str:
    return f"func.func @main(%x: {T}, %y: {T}) -> {T} {{\n{body}\nfunc.return %t : {T}\n}}"


def loops_of(body: str) -> str:
    return text_of(apply(parse(program(body)), ["decompose", "fuse-row", "wrap-kernels", "convert-fused-to-loops"]))


@pytest.mark.parametrize("body", IGNORED.values(), ids=IGNORED.keys())
def test_an_extremum_that_need_not_be_nan(body: str) -> None:
    text = loops_of(body)
    assert "arith.maximumf" not in text and "arith.minimumf" not in text


@pytest.mark.parametrize("body", SEEN.values(), ids=SEEN.keys())
def test_an_extremum_that_must_be_nan(body: str) -> None:
    assert "arith.maximumf" in loops_of(body)


@needs_compiler
@pytest.mark.parametrize("columns", (8, 33, 100, 512))
def test_rows_with_nan(columns: int) -> None:
    """NaN in each place of a row, alone and next to infinities; other rows are as if there were none."""
    x = np.random.default_rng(3).normal(0, 4, (columns + 4, columns)).astype(np.float32)
    np.fill_diagonal(x, np.nan)
    x[columns], x[columns + 1, 1], x[columns + 2, 5] = -np.inf, np.inf, -np.inf
    x[3, 5], x[4, 6] = np.inf, -np.inf
    shape = f"tensor<{columns + 4}x{columns}xf32>"
    text = f"""func.func @main(%x: {shape}) -> ({shape}, {shape}) {{
      %s = graph.softmax %x : ({shape}) -> {shape}
      %l = graph.log_softmax %x : ({shape}) -> {shape}
      func.return %s, %l : {shape}, {shape}
    }}"""
    with np.errstate(all="ignore"):
        expected = fuse_opt.compile(text, "reference")(x)
    assert np.isnan(expected[0][: columns + 2]).all() and np.isfinite(expected[0][columns + 2 :]).all()
    for got, wanted in zip(fuse_opt.compile(text, "cpu")(x), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=3e-6, atol=1e-6)
