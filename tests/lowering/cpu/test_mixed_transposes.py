"""Blocks of elements of unlike sizes that lie across: registers turn squares of 8 wide elements, and of 16 narrow ones."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt

PAIRS = (("f64", "i1"), ("f64", "f32"), ("i64", "i32"), ("i64", "i8"), ("f32", "i1"))
EXTENTS = ((100, 64), (17, 33), (16, 16), (8, 24), (130, 8))
RNG = np.random.default_rng(7)
KINDS = {"i1": bool, "i8": np.int8, "i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64}


def text(wide: str, narrow: str, extents: tuple[int, int] | None) -> str:
    """A product of two transposed operands; of sizes where there are no extents."""
    m, n = extents or ("?", "?")
    given, turned = ("", "") if extents else (", #graph.shape<m, n>", ", #graph.shape<n, m>")
    a, b = (f"tensor<{m}x{n}x{element}{given}>" for element in (wide, narrow))
    p, q = (f"tensor<{n}x{m}x{element}{turned}>" for element in (wide, narrow))
    return f"""
    func.func @main(%a: {a}, %b: {b}) -> {p} {{
      %p = graph.permute_dims %a {{axes = array<i64: 1, 0>}} : ({a}) -> {p}
      %q = graph.permute_dims %b {{axes = array<i64: 1, 0>}} : ({b}) -> {q}
      %c = graph.astype %q {{dtype = {wide}}} : ({q}) -> {p}
      %d = graph.multiply %p, %c : ({p}, {p}) -> {p}
      func.return %d : {p}
    }}
    """


@pytest.mark.sampled(6)
@needs_compiler
@pytest.mark.parametrize("sized", (False, True))
@pytest.mark.parametrize("pair", PAIRS)
def test_squares_are_those_of_each_operand(pair: tuple[str, str], sized: bool):
    """Found by gradients of dropout in f64: masks were turned by squares of 16 in steps of 8, over the next rows and the end."""
    whole = fuse_opt.compile(text(*pair, None)) if sized else None
    for extents in EXTENTS:
        program = whole or fuse_opt.compile(text(*pair, extents))
        for _ in range(2):
            a = RNG.integers(-9, 9, extents).astype(KINDS[pair[0]])
            b = RNG.integers(0, 9, extents).astype(KINDS[pair[1]])
            np.testing.assert_array_equal(program(a, b), a.T * b.T.astype(a.dtype), err_msg=str(extents))
