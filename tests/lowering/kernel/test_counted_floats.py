"""Floats that count along an axis are made of i32, where that holds the axis."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt


def counted(element: str, extent: int) -> str:
    kind = f"tensor<3x{extent}x{element}>"
    return f"""func.func @f(%x: {kind}) -> {kind} {{
  %i = graph.iota {{shape = array<i64: {extent}>, axis = 0 : i64, dtype = {element}}} : () -> tensor<{extent}x{element}>
  %r = graph.add %x, %i : ({kind}, tensor<{extent}x{element}>) -> {kind}
  func.return %r : {kind}
}}"""


@needs_compiler
@pytest.mark.parametrize("element", ["f32", "f64", "f16", "i32"])
def test_values(element: str) -> None:
    text = counted(element, 517)
    x = np.zeros((3, 517), {"f32": "f4", "f64": "f8", "f16": "f2", "i32": "i4"}[element])
    np.testing.assert_array_equal(fuse_opt.compile(text)(x), fuse_opt.evaluate(text, x))
    np.testing.assert_array_equal(fuse_opt.evaluate(text, x)[0], np.arange(517).astype(x.dtype))


@pytest.mark.parametrize(("extent", "is_short"), [(517, True), (2**31 - 1, True), (2**31 + 1, False)])
def test_long_axes_are_counted_in_i64(extent: int, is_short: bool) -> None:
    source = fuse_opt.compile(counted("f32", extent)).source
    assert ("(float)(int)" in source) == is_short and ("(float)(long)" in source) != is_short
