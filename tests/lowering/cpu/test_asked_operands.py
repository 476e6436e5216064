"""What is read and stored behind sums of a product's tiles is asked for before them, where it is far and tiles take some time."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ir_testing import apply, parse
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.lowering.emit.c import build_program


def program(rows: int, columns: int, depth: int, other: str) -> str:
    x, w, r = (f"tensor<{a}x{b}xf32>" for a, b in ((rows, depth), (depth, columns), (rows, columns)))
    return f"""func.func @main(%x: {x}, %w: {w}, %o: {other}) -> {r} {{
  %c = graph.matmul %x, %w : ({x}, {w}) -> {r}
  %d = graph.add %c, %o : ({r}, {other}) -> {r}
  func.return %d : {r}
}}"""


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "other", "asks"),
    [
        (600, 384, 128, "tensor<600x384xf32>", True),
        (600, 384, 64, "tensor<600x384xf32>", False),  # tiles are done soon
        (60, 384, 128, "tensor<60x384xf32>", False),  # near
        (600, 384, 128, "tensor<384xf32>", False),  # the same for all rows
        (600, 384, 128, "tensor<600x1xf32>", False),
    ],
)
def test_rows_of_a_residual_are_asked_for(rows: int, columns: int, depth: int, other: str, asks: bool) -> None:
    text = build_program(
        apply(
            parse(program(rows, columns, depth, other)),
            ["fuse-epilogue", "fuse-elementwise", "wrap-kernels", "schedule-kernels"],
        )
    ).source
    kernel = text[text.index("static void kernel_matmul") :]
    assert text.count("static void kernel_") == 1 and ("fo_prefetch_f32(o, " in kernel) == asks


@pytest.mark.parametrize("other", ("tensor<384xf32>", "tensor<600x384xf32>"))
@pytest.mark.parametrize(("depth", "asks"), [(400, "lines"), (64, "lines"), (8, "rows")])
def test_lines_of_the_result_are_asked_for(depth: int, asks: str, other: str) -> None:
    """By tiles, a row at every few steps; tiles of fewer steps than that are asked for as a whole before."""
    source = fuse_opt.compile(program(600, 384, depth, other)).source
    kernel = source[source.index("static void kernel_matmul") :]
    by_tiles = re.findall(r"fo_tile_f32_\d+x\d+r?c?l(?:n\d+x\d+)?\(", kernel)
    assert (bool(by_tiles), "fo_request_f32(d, " in kernel) == (asks == "lines", asks == "rows")


def test_few_rows_ask_for_no_rows_of_the_result() -> None:
    assert "fo_request_f32(d, " not in fuse_opt.compile(program(60, 384, 8, "tensor<384xf32>")).source


@pytest.mark.usefixtures("wide_host")
@pytest.mark.parametrize(("op", "by_tiles"), [("relu", True), ("gelu", False)])
def test_more_than_a_little_work_follows_a_panel(op: str, by_tiles: bool) -> None:
    x, w, r = "tensor<591x384xf32>", "tensor<384x1152xf32>", "tensor<591x1152xf32>"
    text = f"""func.func @main(%x: {x}, %w: {w} {{graph.frozen}}) -> {r} {{
  %c = graph.matmul %x, %w : ({x}, {w}) -> {r}
  %d = graph.{op} %c : ({r}) -> {r}
  func.return %d : {r}
}}"""
    source = fuse_opt.compile(text).source
    asked = re.findall(r"fo_request_f32\(d, \((.*?)\) \* 1152", source)
    assert "_packed" in source
    assert asked == [] if by_tiles else (len(asked) == 1 and "+ 8" in asked[0])


@needs_compiler
def test_values() -> None:
    rng = np.random.default_rng(1)
    x, w, o = (rng.standard_normal(shape).astype(np.float32) for shape in ((601, 130), (130, 390), (601, 390)))
    result = fuse_opt.compile(program(601, 390, 130, "tensor<601x390xf32>"))(x, w, o)
    np.testing.assert_allclose(result, x @ w + o, rtol=1e-4, atol=1e-4)
