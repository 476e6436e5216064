"""Booleans beside f32 in loops of few iterations are words there: the same results, and nothing else is touched."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from c_printing import BUILDS, build_helpers
from guard_pages import guarded, needs_guard_pages
from ir_testing import apply, evaluate, parse, random_arguments, text_of
from lowered_programs import as_list, assert_close, needs_compiler

import fuse_opt

PASSES = ["decompose", "fuse-elementwise", "fuse-row", "wrap-kernels", "schedule-kernels", "convert-fused-to-loops"]
ROWS = 9


def residual_norm(length: int, kind: str = "f32", results: int = 2) -> str:
    """Dropout by a mask, a residual and a layer norm; the sum before the norm is a result, too."""
    x, row, mask = f"tensor<{ROWS}x{length}x{kind}>", f"tensor<{length}x{kind}>", f"tensor<{ROWS}x{length}xi1>"
    given = f"%x: {x}, %r: {x}, %m: {mask}, %g: {row}, %b: {row}"
    names, types = ("%s, %y", f"{x}, {x}") if results == 2 else ("%y", x)
    return f"""func.func @main({given}) -> ({types}) {{
  %c = graph.constant dense<1.25> : tensor<{kind}>
  %z = graph.constant dense<0.0> : tensor<{kind}>
  %0 = graph.multiply %x, %c : ({x}, tensor<{kind}>) -> {x}
  %1 = graph.where %m, %0, %z : ({mask}, {x}, tensor<{kind}>) -> {x}
  %s = graph.add %1, %r : ({x}, {x}) -> {x}
  %y = graph.layer_norm %s, %g, %b : ({x}, {row}, {row}) -> {x}
  func.return {names} : {types}
}}"""


@pytest.mark.parametrize(
    ("length", "kind", "calls"),
    [(59, "f32", 2), (48, "f32", 1), (5, "f32", 1), (64, "f32", 0), (1000, "f32", 0), (59, "f16", 0), (59, "f64", 2)],
)
def test_loops_of_no_whole_vectors_of_bytes_have_words(length: int, kind: str, calls: int) -> None:
    """Of a multiple of 64 compilers make vectors, of long rows mostly. f16 is converted itself, by the block."""
    text = text_of(apply(parse(residual_norm(length, kind)), PASSES))
    assert text.count("call @fo_widen_i1(") == calls


@needs_compiler
@pytest.mark.parametrize(("length", "words"), [(127, 127), (300, 44), (505, 57)])
def test_of_many_only_those_behind_whole_vectors_are_words(length: int, words: int) -> None:
    x, mask = f"tensor<9x{length}xf32>", f"tensor<9x{length}xi1>"
    text = f"""func.func @main(%x: {x}, %r: tensor<{length}xf32>, %m: {mask}) -> {x} {{
  %0 = graph.multiply %x, %r : ({x}, tensor<{length}xf32>) -> {x}
  %y = graph.where %m, %0, %x : ({mask}, {x}, {x}) -> {x}
  func.return %y : {x}
}}"""
    assert f"%wide = memref.alloca() {{alignment = 64 : i64}} : memref<{-(-words // 16) * 16}xi32>" in text_of(
        apply(parse(text), PASSES)
    )
    arguments = random_arguments(parse(text), length)
    assert_close(as_list(fuse_opt.compile(text)(*arguments)), evaluate(parse(text), arguments))


def test_a_mask_that_lies_across_is_read_as_it_is() -> None:
    x, mask = "tensor<9x59xf32>", "tensor<59x9xi1>"
    text = f"""func.func @main(%x: {x}, %m: {mask}) -> {x} {{
  %z = graph.constant dense<0.0> : tensor<f32>
  %t = graph.permute_dims %m {{axes = array<i64: 1, 0>}} : ({mask}) -> tensor<9x59xi1>
  %0 = graph.where %t, %x, %z : (tensor<9x59xi1>, {x}, tensor<f32>) -> {x}
  %y = graph.softmax %0 {{axis = 1}} : ({x}) -> {x}
  func.return %y : {x}
}}"""
    assert "fo_widen_i1" not in text_of(apply(parse(text), PASSES))


def test_short_rows_that_end_within_a_vector_are_not_read_back_from_a_result() -> None:
    for length, own in ((59, True), (64, False), (300, False)):
        text = text_of(apply(parse(residual_norm(length)), PASSES))
        assert ("_row = memref.alloca" in text) == own, length


@pytest.mark.sampled(8)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("length", [5, 15, 16, 17, 33, 48, 59, 63, 65, 79, 127, 197, 255, 300, 601])
def test_rows_are_those_of_the_reference(length: int) -> None:
    """Arrays with memory before or behind them that cannot be touched."""
    text = residual_norm(length)
    arguments = random_arguments(parse(text), length)
    expected = evaluate(parse(text), [a.copy() for a in arguments])
    program = fuse_opt.compile(text)
    for at_end in (True, False):
        with guarded() as allocate:
            held = [allocate(array, at_end=at_end) for array in arguments]
            assert_close(as_list(program(*held)), expected)
            for array, before in zip(held, arguments, strict=True):
                np.testing.assert_array_equal(array, before)


@needs_compiler
def test_any_stride_and_shared_masks() -> None:
    """A mask of every second column, and one that all rows share."""
    text, rng = residual_norm(59), np.random.default_rng(3)
    x, r, m, g, b = random_arguments(parse(text), 3)
    wide = rng.random((ROWS, 118)) < 0.5
    for mask in (wide[:, ::2], np.broadcast_to(m[:1], m.shape)):
        expected = evaluate(parse(text), [x, r, np.ascontiguousarray(mask), g, b])
        assert_close(as_list(fuse_opt.compile(text)(x, r, mask, g, b)), expected)


@pytest.mark.parametrize("compiler, machine", BUILDS)
def test_widened_booleans(compiler: str, machine: str, tmp_path: Path) -> None:
    """Any count, from odd places on; what is written goes no further than a whole vector."""
    text = "void widen(const unsigned char *m, long at, int *to, long count) { fo_widen_i1(m, at, to, 0, count); }\n"
    widen = build_helpers(["fo_widen_i1"], text, compiler, machine, tmp_path).widen
    mask = np.random.default_rng(1).integers(0, 2, 200).astype(np.uint8)
    for count in range(1, 100):
        to = np.full(128, -7, np.int32)
        pointers = ctypes.c_void_p(mask.ctypes.data), ctypes.c_long(count % 5), ctypes.c_void_p(to.ctypes.data)
        widen(*pointers, ctypes.c_long(count))
        np.testing.assert_array_equal(to[:count], mask[count % 5 :][:count])
        assert (to[-(-count // 16) * 16 :] == -7).all()
