"""Floats that programs keep within an integer's range by a comparison, as PyTorch's casts do."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt

NUMBERS = [
    0.0,
    -1.5,
    127.9,
    128.0,
    -129.0,
    65537.0,
    2147483520.0,
    2.0**31,
    -(2.0**31),
    3e9,
    -1e20,
    np.nan,
    np.inf,
    -np.inf,
    1e-42,
]


def kept_within(bound: float, element: str, wide: str, narrow: str) -> str:
    x, z, i = (f"tensor<75x{kind}>" for kind in (element, "i1", wide))
    return f"""func.func @f(%x: {x}) -> tensor<75x{narrow}> {{
  %c = graph.constant dense<{bound}> : tensor<{element}>
  %0 = graph.constant dense<0.0> : tensor<{element}>
  %a = graph.abs %x : ({x}) -> {x}
  %l = graph.less %a, %c : ({x}, tensor<{element}>) -> {z}
  %w = graph.where %l, %x, %0 : ({z}, {x}, tensor<{element}>) -> {x}
  %i = graph.astype %w {{dtype = {wide}}} : ({x}) -> {i}
  %r = graph.astype %i {{dtype = {narrow}}} : ({i}) -> tensor<75x{narrow}>
  func.return %r : tensor<75x{narrow}>
}}"""


@needs_compiler
@pytest.mark.parametrize(
    ("bound", "element", "wide", "narrow", "helper"),
    [
        (2.0**31, "f32", "i32", "i8", "fo_within_f32_i32"),
        (2.0**31, "f32", "i32", "i16", "fo_within_f32_i32"),
        (1000.0, "f32", "i32", "i8", "fo_within_f32_i32"),
        (2.0**31, "f64", "i32", "i8", "fo_within_f64_i32"),
        (2.0**63, "f64", "i64", "i32", "fo_within_f64_i64"),
        (2.0**63, "f32", "i64", "i8", "fo_within_f32_i64"),
        (2.0**32, "f32", "i32", "i8", "fo_cast_f32_i32"),
    ],
)
def test_values(bound: float, element: str, wide: str, narrow: str, helper: str) -> None:
    text = kept_within(bound, element, wide, narrow)
    x = np.array(NUMBERS * 5, {"f32": "f4", "f64": "f8"}[element])
    program = fuse_opt.compile(text)
    np.testing.assert_array_equal(program(x), fuse_opt.evaluate(text, x))
    assert f"= {helper}(" in program.source
