"""Loops that read a buffer in two ways, or parts of it backwards, of which gcc 12 made wrong vectors."""

from __future__ import annotations

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from ir_testing import apply, parse
from lowered_programs import as_list, needs_compiler

import fuse_opt
from fuse_opt.lowering.emit import build_program


def turned_and_plain(rows: int, columns: int, element: str) -> str:
    """A tensor's transpose, and the tensor, as f32, in one kernel."""
    x, y = f"tensor<{rows}x{columns}x{element}>", f"tensor<{columns}x{rows}x{element}>"
    wide, turned = f"tensor<{rows}x{columns}xf32>", f"tensor<{columns}x{rows}xf32>"
    return f"""func.func @main(%x: {x}) -> ({turned}, {wide}) {{
      %r:2 = fused.kernel(%a = %x : {x}) -> ({turned}, {wide}) {{
        %0 = graph.permute_dims %a {{axes = array<i64: 1, 0>}} : ({x}) -> {y}
        %1 = graph.astype %0 {{dtype = f32}} : ({y}) -> {turned}
        %2 = graph.permute_dims %1 {{axes = array<i64: 1, 0>}} : ({turned}) -> {wide}
        %3 = graph.square %1 : ({turned}) -> {turned}
        fused.yield %3, %2 : {turned}, {wide}
      }}
      func.return %r#0, %r#1 : {turned}, {wide}
    }}"""


@needs_compiler
@pytest.mark.parametrize("element", ["f16", "i8", "ui8", "i16"])
def test_values_of_every_step(element: str) -> None:
    """Found by torch_fuzz.py --networks, seed 8007."""
    kind = {"f16": np.float16, "i8": np.int8, "ui8": np.uint8, "i16": np.int16}[element]
    for rows, columns in [(8, 7), (8, 5), (8, 9), (4, 7), (4, 6), (16, 7), (8, 12), (8, 31)]:
        x = (np.arange(rows * columns) % 60).astype(kind).reshape(rows, columns)
        turned, plain = as_list(fuse_opt.compile(turned_and_plain(rows, columns, element))(x))
        np.testing.assert_array_equal(turned, x.T.astype(np.float32) ** 2, err_msg=f"{rows}x{columns}")
        np.testing.assert_array_equal(plain, x.astype(np.float32), err_msg=f"{rows}x{columns}")


@pytest.mark.parametrize(("element", "rows", "vectors"), [("f16", 8, False), ("f32", 8, True), ("f16", 64, True)])
def test_only_small_loops_over_narrow_elements_have_no_vectors(element: str, rows: int, vectors: bool) -> None:
    module = apply(parse(turned_and_plain(rows, 7, element)), ["schedule-kernels"])
    source = build_program(module).source
    assert ("#pragma omp simd" in source[source.index("static void kernel") :]) == vectors


def backwards(width: int, element: str) -> str:
    """The second to last of every two pairs, triples, ... from the last ones on, of rows of 512 of them."""
    x, y = f"tensor<?x512x{width}x{element}>", f"tensor<?x256x{width}x{element}>"
    return f"""func.func @main(%x: {x}) -> {y} {{
      %0 = graph.slice %x {{starts = array<i64: 0, 511, 0>, stops = array<i64: {1 << 40}, -600, {width}>,
                            steps = array<i64: 1, -2, 1>}} : ({x}) -> {y}
      func.return %0 : {y}
    }}"""


@needs_compiler
@needs_guard_pages
@pytest.mark.optimised
@pytest.mark.parametrize("element", ["i1", "i16", "f32", "f64"])
def test_parts_that_are_read_backwards_take_nothing_from_behind_them(element: str) -> None:
    """Found by large_fuzz.py --passes, seed 77: SIGSEGV where a page of nobody's follows the operand."""
    kind = {"i1": np.bool_, "i16": np.int16, "f32": np.float32, "f64": np.float64}[element]
    for width in (2, 3):
        program = fuse_opt.compile(backwards(width, element), "cpu")
        for rows in (1, 3):
            x = (np.arange(rows * 512 * width) % 60).astype(kind).reshape(rows, 512, width)
            with guarded() as allocate:
                np.testing.assert_array_equal(program(allocate(x, at_end=True)), x[:, ::-2])
