"""Convolutions and pooling in one program for all batches and images: right at each size, and never a byte beside arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.passes.remarks import collect
from fuse_opt.tools.compiler.specialization import SpecializedPrograms

Array = np.ndarray[Any, Any]
Shapes = Callable[[int, int], Sequence[tuple[int, ...]]]
IMAGES = ((1, 1), (7, 9), (2, 65), (33, 16), (70, 130))
"""Rows and columns: fewer than a tile has, more than a part of a row, more rows than a block."""
_OF_IMAGES = {"x": '["b", "", "h", "w"]', "line": '["b", "", "w"]', "cube": '["b", "", "", "h", "w"]'}


def conv(
    x: Sequence[object],
    weight: Sequence[object],
    result: Sequence[object],
    options: str = "",
    op: str = "conv",
    **more: str,
) -> str:
    """A program of one op on images, of which a `?` is an extent that is not known."""
    element, symbols = more.get("element", "f32"), more.get("symbols", "")
    dims = _OF_IMAGES[more.get("dims", "x")]
    a, b, c = (f"tensor<{'x'.join(map(str, extents))}x{element}>" for extents in (x, weight, result))
    attributes = f" attributes {{graph.symbols = {{{symbols}}}}}" if symbols else ""
    second = ' {graph.dims = ["b", "", "", ""]}' if "?" in b else ""
    return f"""func.func @main(%x: {a} {{graph.dims = {dims}}}, %w: {b}{second}) -> {c}{attributes} {{
      %0 = graph.{op} %x, %w {options} : ({a}, {b}) -> {c}
      func.return %0 : {c}
    }}"""


UNET = """func.func @main(%x: X {graph.dims = ["b", "", "n", "n"]}, %w: tensor<20x6x3x3xf32>, %b: tensor<20x1x1xf32>,
    %v: tensor<20x20x3x3xf32>, %d: tensor<12x20x3x3xf32>, %u: tensor<8x32x3x3xf32>) -> tensor<?x8x?x?xf32>
    attributes {graph.symbols = {n = {multiple = 2}}} {
  %0 = graph.conv %x, %w {pads = array<i64: 1, 1, 1, 1>} : (X, tensor<20x6x3x3xf32>) -> Y
  %1 = graph.add %0, %b : (Y, tensor<20x1x1xf32>) -> Y
  %2 = graph.relu %1 : (Y) -> Y
  %3 = graph.conv %2, %v {pads = array<i64: 1, 1, 1, 1>} : (Y, tensor<20x20x3x3xf32>) -> Y
  %4 = graph.relu %3 : (Y) -> Y
  %5 = graph.max_pool %4 {kernel_shape = array<i64: 2, 2>, strides = array<i64: 2, 2>} : (Y) -> Y
  %6 = graph.conv %5, %d {pads = array<i64: 1, 1, 1, 1>} : (Y, tensor<12x20x3x3xf32>) -> tensor<?x12x?x?xf32>
  %7 = graph.relu %6 : (tensor<?x12x?x?xf32>) -> tensor<?x12x?x?xf32>
  %8 = graph.repeat %7 {repeats = 2 : i64, axis = 2 : i64} : (tensor<?x12x?x?xf32>) -> tensor<?x12x?x?xf32>
  %9 = graph.repeat %8 {repeats = 2 : i64, axis = 3 : i64} : (tensor<?x12x?x?xf32>) -> tensor<?x12x?x?xf32>
  %c = graph.concat %4, %9 {axis = 1 : i64} : (Y, tensor<?x12x?x?xf32>) -> tensor<?x32x?x?xf32>
  %r = graph.conv %c, %u {pads = array<i64: 1, 1, 1, 1>} : (tensor<?x32x?x?xf32>, tensor<8x32x3x3xf32>) -> tensor<?x8x?x?xf32>
  func.return %r : tensor<?x8x?x?xf32>
}""".replace("X ", "tensor<?x6x?x?xf32> ").replace("(X,", "(tensor<?x6x?x?xf32>,")
POOLED = """func.func @main(%x: Y {graph.dims = ["b", "", "h", "w"]}) -> (Y, Y, tensor<?x5x1x1xf32>)
    attributes {graph.symbols = {h = {least = 2}, w = {least = 2}}} {
  %0 = graph.max_pool %x {kernel_shape = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>} : (Y) -> Y
  %1 = graph.avg_pool %x {kernel_shape = array<i64: 2, 2>, strides = array<i64: 2, 1>} : (Y) -> Y
  %2 = graph.global_avg_pool %x : (Y) -> tensor<?x5x1x1xf32>
  func.return %0, %1, %2 : Y, Y, tensor<?x5x1x1xf32>
}""".replace("Y", "tensor<?x5x?x?xf32>")
ANY = ("?", 8, "?", "?")
CASES: dict[str, tuple[str, Shapes]] = {
    "block of a U-Net": (
        UNET.replace("Y", "tensor<?x20x?x?xf32>"),
        lambda h, w: [(h % 2 + 1, 6, 2 * h, 2 * h), (20, 6, 3, 3), (20, 1, 1), (20, 20, 3, 3), (12, 20, 3, 3), (8, 32, 3, 3)],
    ),
    "pooled": (POOLED, lambda h, w: [(2, 5, h + 1, w + 1)]),
    "strides": (
        conv(("?", 3, "?", "?"), (8, 3, 7, 7), ANY, "{strides = array<i64: 2, 2>, pads = array<i64: 3, 3, 3, 3>}"),
        lambda h, w: [(2, 3, h, w), (8, 3, 7, 7)],
    ),
    "strides, copies of rows that fill their memory": (
        conv(("?", 3, "?"), (4, 3, 3), ("?", 4, "?"), "{strides = array<i64: 2>}", dims="line"),
        lambda h, w: [(2, 3, 970 + 11 * (h % 6)), (4, 3, 3)],
    ),
    "strides, copies of several rows that fill their memory": (
        conv(("?", 3, "?", "?"), (4, 3, 3, 3), ("?", 4, "?", "?"), "{strides = array<i64: 2, 2>}"),
        lambda h, w: [(2, 3, 233 + 11 * (h % 2), 119 + 6 * (h % 2)), (4, 3, 3, 3)],
    ),
    "dilations, groups": (
        conv(
            ("?", 4, "?", "?"), (8, 2, 3, 2), ANY,
            "{dilations = array<i64: 3, 2>, pads = array<i64: 3, 2, 4, 0>, groups = 2 : i64}",
        ),
        lambda h, w: [(1, 4, h, w), (8, 2, 3, 2)],
    ),
    "strides that leave elements": (
        conv(("?", 2, "?", "?"), (8, 2, 2, 1), ANY, "{strides = array<i64: 3, 4>, pads = array<i64: 2, 0, 1, 0>}"),
        lambda h, w: [(3, 2, h, w), (8, 2, 2, 1)],
    ),
    "depthwise": (
        conv(("?", 8, "?", "?"), (8, 1, 5, 3), ANY, "{pads = array<i64: 2, 1, 2, 1>, groups = 8 : i64}"),
        lambda h, w: [(2, 8, h, w), (8, 1, 5, 3)],
    ),
    "windows of one": (conv(("?", 33, "?", "?"), (8, 33, 1, 1), ANY), lambda h, w: [(2, 33, h, w), (8, 33, 1, 1)]),
    "many channels and filters": (
        conv(("?", 70, "?", "?"), (301, 70, 3, 3), ("?", 301, "?", "?"), "{pads = array<i64: 1, 1, 1, 1>}"),
        lambda h, w: [(1, 70, h, w), (301, 70, 3, 3)],
    ),
    "windows inside": (
        conv(("?", 3, "?", "?"), (8, 3, 3, 2), ANY), lambda h, w: [(2, 3, h + 2, w + 1), (8, 3, 3, 2)]
    ),
    "rows of known length": (
        conv(("?", 3, "?", 21), (8, 3, 3, 3), ("?", 8, "?", 19), "{pads = array<i64: 1, 0, 1, 0>}"),
        lambda h, w: [(2, 3, h, 21), (8, 3, 3, 3)],
    ),
    "one axis": (
        conv(("?", 5, "?"), (8, 5, 4), ("?", 8, "?"), "{pads = array<i64: 3, 0>}", dims="line"),
        lambda h, w: [(2, 5, h * w), (8, 5, 4)],
    ),
    "three axes": (
        conv(
            ("?", 3, 4, "?", "?"), (8, 3, 2, 3, 3), ("?", 8, 5, "?", "?"), "{pads = array<i64: 1, 1, 1, 1, 1, 1>}",
            dims="cube",
        ),
        lambda h, w: [(1, 3, 4, h, w), (8, 3, 2, 3, 3)],
    ),
    "doubles": (
        conv(("?", 3, "?", "?"), (8, 3, 3, 3), ANY, "{pads = array<i64: 1, 1, 1, 1>}", element="f64"),
        lambda h, w: [(1, 3, h, w), (8, 3, 3, 3)],
    ),
    "narrow floats": (
        conv(("?", 3, "?", "?"), (8, 3, 3, 3), ANY, "{pads = array<i64: 1, 1, 1, 1>}", element="f16"),
        lambda h, w: [(1, 3, h, w), (8, 3, 3, 3)],
    ),
    "transposed": (
        conv(("?", 3, "?", "?"), (3, 8, 3, 3), ANY, "{pads = array<i64: 1, 1, 1, 1>}", op="conv_transpose"),
        lambda h, w: [(1, 3, h, w), (3, 8, 3, 3)],
    ),
    "transposed, windows of one": (
        conv(("?", 33, "?", "?"), (33, 8, 1, 1), ANY, op="conv_transpose"),
        lambda h, w: [(2, 33, h, w), (33, 8, 1, 1)],
    ),
    "transposed, windows of one, groups": (
        conv(("?", 12, "?"), (12, 5, 1), ("?", 20, "?"), "{groups = 4 : i64}", op="conv_transpose", dims="line"),
        lambda h, w: [(2, 12, h * w), (12, 5, 1)],
    ),
    "transposed, windows side by side": (
        conv(
            ("?", 6, "?", "?"), (6, 8, 2, 3), ("?", 8, "?", "?"), "{strides = array<i64: 2, 3>}", op="conv_transpose",
        ),
        lambda h, w: [(2, 6, h, w), (6, 8, 2, 3)],
    ),
    "transposed, narrow floats side by side": (
        conv(
            ("?", 6, "?", "?"), (6, 8, 2, 2), ANY, "{strides = array<i64: 2, 2>}", op="conv_transpose", element="f16",
        ),
        lambda h, w: [(2, 6, h, w), (6, 8, 2, 2)],
    ),
    "transposed, windows over each other": (
        conv(
            ("?", 20, "?", "?"), (20, 8, 3, 3), ANY,
            "{strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, output_padding = array<i64: 1, 0>}",
            op="conv_transpose",
        ),
        lambda h, w: [(2, 20, h, w), (20, 8, 3, 3)],
    ),
    "transposed, groups, windows that leave elements": (
        conv(
            ("?", 4, "?", "?"), (4, 4, 4, 1), ANY,
            "{strides = array<i64: 3, 2>, pads = array<i64: 1, 0, 0, 0>, groups = 2 : i64}", op="conv_transpose",
        ),
        lambda h, w: [(1, 4, h, w), (4, 4, 4, 1)],
    ),
    "transposed, dilations, doubles": (
        conv(
            ("?", 3, "?", "?"), (3, 8, 3, 2), ANY,
            "{strides = array<i64: 2, 3>, dilations = array<i64: 3, 2>}", op="conv_transpose", element="f64",
        ),
        lambda h, w: [(1, 3, h, w), (3, 8, 3, 2)],
    ),
    "transposed, one axis": (
        conv(("?", 5, "?"), (5, 8, 5), ("?", 8, "?"), "{strides = array<i64: 2>, pads = array<i64: 2, 1>}",
             op="conv_transpose", dims="line"),
        lambda h, w: [(2, 5, h * w), (5, 8, 5)],
    ),
    "transposed, three axes": (
        conv(("?", 3, 4, "?", "?"), (3, 8, 2, 3, 2), ("?", 8, 8, "?", "?"), "{strides = array<i64: 2, 2, 2>}",
             op="conv_transpose", dims="cube"),
        lambda h, w: [(1, 3, 4, h, w), (3, 8, 2, 3, 2)],
    ),
    "batches": (
        conv(("?", 16, 9, 9), (24, 16, 3, 3), ("?", 24, 9, 9), "{pads = array<i64: 1, 1, 1, 1>}"),
        lambda h, w: [(h, 16, 9, 9), (24, 16, 3, 3)],
    ),
    "batches of gradients": (
        conv(
            ("?", 6, 5, 5), (6, 4, 3, 3), ("?", 4, 11, 11), "{strides = array<i64: 2, 2>, shape = array<i64: 11, 11>}",
            op="conv_backward_data",
        ),
        lambda h, w: [(h, 6, 5, 5), (6, 4, 3, 3)],
    ),
    "batches of gradients by a weight": (
        conv(
            ("?", 24, 9, 7), ("?", 16, 9, 7), (24, 16, 3, 3),
            "{pads = array<i64: 1, 1, 1, 1>, kernel_shape = array<i64: 3, 3>}", op="conv_backward_weight",
        ),
        lambda h, w: [(h, 24, 9, 7), (h, 16, 9, 7)],
    ),
    "batches of gradients by a weight of few channels": (
        conv(
            ("?", 8, 5, 9), ("?", 8, 10, 9), (8, 1, 3, 3),
            "{pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 1>, groups = 8 : i64, kernel_shape = array<i64: 3, 3>}",
            op="conv_backward_weight",
        ),
        lambda h, w: [(h, 8, 5, 9), (h, 8, 10, 9)],
    ),
    "depthwise, blocks of many rows": (
        conv(("?", 4, "?", "?"), (4, 1, 3, 3), ("?", 4, "?", "?"), "{pads = array<i64: 1, 1, 1, 1>, groups = 4 : i64}"),
        lambda h, w: [(2, 4, h + 40, w), (4, 1, 3, 3)],
    ),
    "depthwise, strides": (
        conv(
            ("?", 4, "?", "?"), (4, 1, 3, 3), ("?", 4, "?", "?"),
            "{pads = array<i64: 1, 1, 0, 2>, strides = array<i64: 2, 2>, groups = 4 : i64}",
        ),
        lambda h, w: [(2, 4, h + 1, w), (4, 1, 3, 3)],
    ),
    "depthwise of doubles, strides": (
        conv(
            ("?", 4, "?", "?"), (4, 1, 3, 3), ("?", 4, "?", "?"),
            "{pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>, groups = 4 : i64}", element="f64",
        ),
        lambda h, w: [(2, 4, h + 1, w), (4, 1, 3, 3)],
    ),
}  # fmt: skip


@pytest.mark.sampled(18)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("name", CASES)
def test_one_program_runs_at_every_size(name: str) -> None:
    text, shapes = CASES[name]
    element = np.float64 if "xf64>" in text else np.float16 if "xf16>" in text else np.float32
    rng = np.random.default_rng(5)
    with collect() as remarks:
        program = fuse_opt.compile(text)
        for number, image in enumerate(IMAGES):
            given = [rng.standard_normal(shape).astype(element) for shape in shapes(*image)]
            wanted = fuse_opt.evaluate(text, *given)
            results = cast("tuple[Array, ...]", wanted if isinstance(wanted, tuple) else (wanted,))
            with guarded() as allocate:
                arrays = [allocate(array, at_end=number % 2 == 0) for array in given]
                out = [allocate(np.full_like(one, np.nan), at_end=number % 2 == 0) for one in results]
                program(*arrays, out=out)
                for found, one in zip(out, results, strict=True):
                    bound = 1e-5 if element is not np.float16 else 1e-2
                    np.testing.assert_allclose(found, one, bound, bound * max(1.0, float(np.abs(one).max())))
    assert isinstance(program.native, SpecializedPrograms) and program.native.made == 0, [r.message for r in remarks]
    assert not program.stats.library_calls


@needs_compiler
def test_images_that_no_window_fits_into_are_refused_by_name() -> None:
    text, _ = CASES["windows inside"]
    program = fuse_opt.compile(text)
    weight = np.ones((8, 3, 3, 2), np.float32)
    assert program(np.ones((1, 3, 3, 2), np.float32), weight).shape == (1, 8, 1, 1)
    with pytest.raises(ValueError, match="the window is larger than the padded input"):
        program(np.ones((1, 3, 2, 2), np.float32), weight)


CHANNELS, TAPS = (f"tensor<{a}xf32, #graph.shape<{b}>>" for a, b in (("1x?x16", "1, n, 16"), ("4x?x1", "4, n, 1")))
SUM_OF_CHANNELS = f"""func.func @main(%x: {CHANNELS}, %w: {TAPS}) -> tensor<1x4x16xf32> {{
  %0 = graph.conv %x, %w : ({CHANNELS}, {TAPS}) -> tensor<1x4x16xf32>
  func.return %0 : tensor<1x4x16xf32>
}}"""


@needs_compiler
def test_unknown_channels_are_for_programs_of_numbers() -> None:
    program = fuse_opt.compile(SUM_OF_CHANNELS)
    for n in (1, 2, 7):
        x, weight = np.ones((1, n, 16), np.float32), np.full((4, n, 1), 3, np.float32)
        np.testing.assert_array_equal(program(x, weight), np.full((1, 4, 16), 3 * n))


FROZEN = """func.func @main(%x: B16x14x14 {graph.dims = ["b", "", "", ""]}, %a: tensor<64x16x3x3xf32>, %b: tensor<96x64x1x1xf32>,
    %c: tensor<96x1x3x3xf32>, %d: tensor<128x96x3x3xf32>) -> B128x7x7 {
  %0 = graph.conv %x, %a {pads = array<i64: 1, 1, 1, 1>} : (B16x14x14, tensor<64x16x3x3xf32>) -> B64x14x14
  %1 = graph.relu %0 : (B64x14x14) -> B64x14x14
  %2 = graph.conv %1, %b : (B64x14x14, tensor<96x64x1x1xf32>) -> B96x14x14
  %3 = graph.conv %2, %c {pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>, groups = 96 : i64}
    : (B96x14x14, tensor<96x1x3x3xf32>) -> B96x7x7
  %4 = graph.conv %3, %d {pads = array<i64: 1, 1, 1, 1>} : (B96x7x7, tensor<128x96x3x3xf32>) -> B128x7x7
  func.return %4 : B128x7x7
}"""


@needs_compiler
def test_frozen_filters_meet_batches_of_any_extent() -> None:
    """Those that are packed before as well as those that are read as they are, one after the other."""
    text = re.sub(r"B([x\d]+)", r"tensor<?x\1xf32>", FROZEN)
    rng = np.random.default_rng(6)
    shapes = {"a": (64, 16, 3, 3), "b": (96, 64, 1, 1), "c": (96, 1, 3, 3), "d": (128, 96, 3, 3)}
    weights: dict[int | str, Array] = {
        name: (rng.standard_normal(shape) / np.prod(shape[1:]) ** 0.5).astype(np.float32)
        for name, shape in shapes.items()
    }
    program = fuse_opt.compile(text).freeze(weights)
    for batch in (1, 3, 8, 2):
        x = rng.standard_normal((batch, 16, 14, 14)).astype(np.float32)
        np.testing.assert_allclose(program(x), fuse_opt.evaluate(text, x, *weights.values()), 1e-4, 1e-4)
    weights["d"] = 2 * weights["d"]
    program.freeze({"d": weights["d"]})
    np.testing.assert_allclose(program(x), fuse_opt.evaluate(text, x, *weights.values()), 1e-4, 1e-4)
