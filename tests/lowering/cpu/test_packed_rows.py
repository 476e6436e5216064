"""Rows that are shorter than a vector, several of them in one: right at every length, and within the arrays."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_printing import BUILDS, build_helpers
from guard_pages import guarded, needs_guard_pages
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.lowering.cpu.packed.packed_rows import LONGEST, PACKED_LENGTH, SPREAD

Array = np.ndarray[Any, Any]
X = '%x: tensor<?x?xf32> {graph.dims = ["m", "n"]}'
ROW, COLUMN = '%b: tensor<?x1xf32> {graph.dims = ["m", ""]}', '%w: tensor<?xf32> {graph.dims = ["n"]}'
IN_PLACE = f"""func.func @main({X.replace("]}", "], graph.donated}")}) -> tensor<?x?xf32> {{
  %r = graph.softmax %x : (tensor<?x?xf32>) -> tensor<?x?xf32>
  func.return %r : tensor<?x?xf32>
}}"""
OPERANDS = f"""func.func @main({X}, {ROW}, {COLUMN}, %s: tensor<f32>) -> (tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>) {{
  %0 = graph.add %x, %b : (tensor<?x?xf32>, tensor<?x1xf32>) -> tensor<?x?xf32>
  %1 = graph.multiply %0, %w : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
  %2 = graph.sum %1 {{axes = array<i64: 1>, keepdims = true}} : (tensor<?x?xf32>) -> tensor<?x1xf32>
  %3 = graph.subtract %1, %2 : (tensor<?x?xf32>, tensor<?x1xf32>) -> tensor<?x?xf32>
  %4 = graph.divide %3, %s : (tensor<?x?xf32>, tensor<f32>) -> tensor<?x?xf32>
  %5 = graph.max %4 {{axes = array<i64: 1>}} : (tensor<?x?xf32>) -> tensor<?xf32>
  %6 = graph.prod %x {{axes = array<i64: 1>}} : (tensor<?x?xf32>) -> tensor<?xf32>
  func.return %4, %5, %6 : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>
}}"""
COUNTED = f"""func.func @main({X}) -> tensor<?xf32> {{
  %z = graph.constant dense<0.0> : tensor<f32>
  %p = graph.greater %x, %z : (tensor<?x?xf32>, tensor<f32>) -> tensor<?x?xi1>
  %k = graph.where %p, %x, %z : (tensor<?x?xi1>, tensor<?x?xf32>, tensor<f32>) -> tensor<?x?xf32>
  %r = graph.sum %k {{axes = array<i64: 1>}} : (tensor<?x?xf32>) -> tensor<?xf32>
  func.return %r : tensor<?xf32>
}}"""
OTHERS = {
    "f64": COUNTED.replace("f32", "f64"),
    "may be empty": COUNTED.replace(
        "-> tensor<?xf32> {", "-> tensor<?xf32> attributes {graph.symbols = {n = {least = 0 : i64}}} {"
    ),
    "turned": COUNTED.replace('["m", "n"]', '["n", "m"]').replace("array<i64: 1>", "array<i64: 0>"),
}
"""Rows that are not packed."""


def _given(text: str, m: int, n: int) -> list[Array]:
    rng = np.random.default_rng(m * 100 + n)
    shapes = [(m, n), (m, 1), (n,), ()] if text is OPERANDS else [(m, n)]
    return [np.asarray(rng.standard_normal(shape), np.float32) for shape in shapes]


def _all(results: Any) -> list[Array]:
    return [*results] if isinstance(results, tuple) else [results]


@needs_compiler
@needs_guard_pages
@pytest.mark.usefixtures("wide_host")
@pytest.mark.parametrize("text", [IN_PLACE, OPERANDS, COUNTED], ids=["in place", "operands", "counted"])
def test_short_rows_of_every_length(text: str) -> None:
    program, module = fuse_opt.compile(text), fuse_opt.load(text)
    for n in range(1, LONGEST + 2):
        for m in (1, 2, 3, 7, 16, 17, 301):
            given = _given(text, m, n)
            expected = _all(fuse_opt.evaluate(module, *(array.copy() for array in given)))
            with guarded() as allocate:
                inside = [allocate(array, at_end=(m + n) % 2 == 0) for array in given]
                found = _all(program(*inside))
                for one, other in zip(found, expected, strict=True):
                    np.testing.assert_allclose(one, other, 1e-4, 1e-3)
    assert PACKED_LENGTH in program.source


@needs_compiler
@pytest.mark.parametrize("name", OTHERS)
def test_other_rows_are_not_packed(name: str) -> None:
    program = fuse_opt.compile(OTHERS[name])
    x = np.random.default_rng(3).standard_normal((7, 5)).astype(np.float64 if name == "f64" else np.float32)
    np.testing.assert_allclose(program(x), np.maximum(x, 0).sum(0 if name == "turned" else 1), 1e-5)
    if name == "may be empty":
        np.testing.assert_array_equal(program(x[:, :0]), np.zeros(7))
    assert PACKED_LENGTH not in program.source


@pytest.mark.parametrize("compiler, machine", BUILDS)
def test_lanes_are_moved_as_numbers_say(compiler: str, machine: str, tmp_path: Path) -> None:
    text = """void turn(const float *from, float *to, const int *where, long step, long count) {
  float x[16] __attribute__((aligned(64))), y[16] __attribute__((aligned(64)));
  int lanes[16] __attribute__((aligned(64)));
  for (long lane = 0; lane < 16; ++lane) lanes[lane] = where[lane];
  fo_first_f32(from, 1, count, x);
  fo_spread_f32(x, lanes, step, y);
  fo_put_first_f32(y, to, 2, count);
}
long packed(long length) { return fo_packed_length(length); }
"""
    names = ["fo_first_f32", SPREAD, "fo_put_first_f32", PACKED_LENGTH]
    library = build_helpers(names, text, compiler, machine, tmp_path)
    source, where = np.arange(20, dtype=np.float32), np.arange(16, dtype=np.int32)[::-1].copy()
    for count, step in ((0, 0), (1, 3), (7, 1), (16, 5)):
        x = np.where(np.arange(16) < count, source[1:17], 0)
        target = np.zeros(20, np.float32)
        memory = (ctypes.c_void_p(each.ctypes.data) for each in (source, target, where))
        library.turn(*memory, ctypes.c_long(step), ctypes.c_long(count))
        np.testing.assert_array_equal(target, [0, 0, *x[(where + step) % 16][:count], *[0] * (18 - count)])
    library.packed.restype = ctypes.c_long
    assert library.packed(ctypes.c_long(LONGEST)) in (0, LONGEST)
