"""Elements that several neighbours of a result read: the neighbours are written out, in place of a division for each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt

TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i8": np.int8}


def repeated(name: str, shape: tuple[int, ...], axis: int, times: int, ops: str = "") -> str:
    result = tuple(n * times if k == axis else n for k, n in enumerate(shape))
    a, b = (f"tensor<{''.join(f'{n}x' for n in extents)}{name}>" for extents in (shape, result))
    lines = ops.replace("TYPE", f"({b}, {b}) -> {b}")
    return f"""func.func @f(%x: {a}, %y: {b}) -> {b} {{
  %r = graph.repeat %x {{repeats = {times} : i64, axis = {axis} : i64}} : ({a}) -> {b}
  {lines}
  func.return %{"z" if ops else "r"} : {b}
}}"""


@needs_compiler
@pytest.mark.sampled(12)
@pytest.mark.parametrize("times", (2, 3, 4, 5, 7, 8))
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(
    ("shape", "axis"), [((501,), 0), ((3, 67), 1), ((5, 9), 0), ((2, 3, 33), 1), ((4, 7), 1), ((2, 1), 1)]
)
def test_neighbours_that_are_equal(shape: tuple[int, ...], axis: int, name: str, times: int) -> None:
    ops = "%s = graph.multiply %r, %y : TYPE\n  %z = graph.subtract %s, %r : TYPE"
    x = np.arange(np.prod(shape)).reshape(shape) % 100
    given = x.astype(TYPES[name])
    other = (np.repeat(x, times, axis) % 7).astype(TYPES[name])
    for text in (repeated(name, shape, axis, times), repeated(name, shape, axis, times, ops)):
        np.testing.assert_array_equal(fuse_opt.compile(text)(given, other), fuse_opt.evaluate(text, given, other))


@needs_compiler
def test_images_in_blocks() -> None:
    """Pixels of blocks that channels hold: neighbours are read from channels that lie apart."""
    image, blocks = "tensor<2x12x9x11xf32>", "tensor<2x3x2x2x9x11xf32>"
    text = f"""func.func @f(%x: {image}) -> tensor<2x3x18x22xf32> {{
  %b = graph.reshape %x {{shape = array<i64: 2, 3, 2, 2, 9, 11>}} : ({image}) -> {blocks}
  %p = graph.permute_dims %b {{axes = array<i64: 0, 1, 4, 2, 5, 3>}} : ({blocks}) -> tensor<2x3x9x2x11x2xf32>
  %r = graph.reshape %p {{shape = array<i64: 2, 3, 18, 22>}} : (tensor<2x3x9x2x11x2xf32>) -> tensor<2x3x18x22xf32>
  func.return %r : tensor<2x3x18x22xf32>
}}"""
    x: Any = np.arange(2 * 12 * 99, dtype=np.float32).reshape(2, 12, 9, 11)
    np.testing.assert_array_equal(fuse_opt.compile(text)(x), fuse_opt.evaluate(text, x))


@pytest.mark.parametrize(
    ("name", "times", "is_written_out"),
    [("f32", 2, True), ("f32", 7, True), ("f32", 8, False), ("i8", 8, True), ("i8", 9, False), ("f16", 8, False)],
)
def test_no_division_for_each_element(name: str, times: int, is_written_out: bool) -> None:
    """Of eight elements a loop is made, but for bytes, for eight of which there are no vectors."""
    source = fuse_opt.compile(repeated(name, (64,), 0, times)).source
    assert f"/ {times}]" not in source
    assert (f"i * {times} + {times - 1}]" in source) == is_written_out
