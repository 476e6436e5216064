"""Windows by twos along rows of any length: read in pairs, by groups that may overlap, and nothing beyond the last element."""

from __future__ import annotations

import re

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from ir_testing import assert_same_bits
from lowered_programs import as_list, needs_compiler
from thread_counts import by_threads

import fuse_opt

WIDTHS = (*range(1, 40), 63, 64, 65, 2047, 2049, 4099)


def program_text(kind: str, pads: str, op: str = "max_pool", element: str = "f32") -> str:
    image = f"tensor<?x2x?x?x{element}>"
    options = f"kernel_shape = array<i64: 3, {kind}>, pads = array<i64: {pads}>, strides = array<i64: 2, 2>"
    return f"""func.func @main(%x: {image} {{graph.dims = ["b", "", "h", "w"]}}) -> {image} {{
  %0 = graph.{op} %x {{{options}}} : ({image}) -> {image}
  func.return %0 : {image}
}}"""


@pytest.mark.sampled(4)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("pads", ["1, 1, 1, 1", "1, 0, 1, 0", "1, 1, 1, 0"])
@pytest.mark.parametrize("kernel", ["3", "5"])
def test_rows_of_all_lengths_are_right_and_nothing_beside_them_is_touched(kernel: str, pads: str) -> None:
    text, rng = program_text(kernel, pads), np.random.default_rng(2911)
    program = fuse_opt.compile(text)
    with guarded() as allocate:
        for width in WIDTHS:
            if width < int(kernel):
                continue
            x = rng.choice(np.array([-np.inf, -3, 0, 5, np.nan], np.float32), (2, 2, 5, width))
            wanted = as_list(fuse_opt.evaluate(text, x))
            for at_end in (False, True):
                assert_same_bits(as_list(program(allocate(x, at_end=at_end))), wanted)
    assert ("fo_pair_f32" in program.source) == (kernel == "3")  # fifteen elements are too much text


@needs_compiler
def test_each_thread_stores_its_own_lanes() -> None:
    program = fuse_opt.compile(text := program_text("3", "1, 1, 1, 1"))
    x = np.random.default_rng(7).standard_normal((3, 2, 97, 5001)).astype(np.float32)
    wanted = as_list(fuse_opt.evaluate(text, x))
    for result in by_threads(lambda: as_list(program(x).copy())):
        assert_same_bits(result, wanted)


@needs_compiler
@pytest.mark.parametrize(
    "text",
    [
        program_text("3", "1, 1, 1, 1", element="f64"),
        program_text("3", "1, 1, 1, 1", element="f16"),
        program_text("2", "1, 0, 0, 0"),  # both of each pair are read: no element is left over
        program_text("3", "1, 1, 1, 1").replace("strides = array<i64: 2, 2>", "strides = array<i64: 2, 3>"),
        program_text("3", "1, 1, 1, 1").replace("strides = array<i64: 2, 2>", "strides = array<i64: 2, 1>"),
    ],
    ids=["f64", "f16", "whole pairs", "by threes", "by ones"],
)
def test_other_windows_are_read_element_by_element(text: str) -> None:
    program = fuse_opt.compile(text)
    x = np.random.default_rng(5).standard_normal((1, 2, 9, 37))
    x = x.astype({"f64": np.float64, "f16": np.float16}.get(re.findall(r"x(f\d+)>", text)[0], np.float32))
    assert_same_bits(as_list(program(x)), as_list(fuse_opt.evaluate(text, x)))
    assert "fo_pair_f32" not in program.source[program.source.index("static void kernel") :]


@needs_compiler
@pytest.mark.parametrize("element", ["f32", "f64", "f16"])
def test_nan_anywhere_in_a_window_and_the_first_of_two_zeros(element: str) -> None:
    """Of known extents: NaN is looked for apart from the greatest."""
    windows = 22
    kinds = f"tensor<1x1x3x{3 * windows}x{element}>", f"tensor<1x1x1x{windows}x{element}>"
    text = f"""func.func @main(%x: {kinds[0]}) -> {kinds[1]} {{
      %0 = graph.max_pool %x {{kernel_shape = array<i64: 3, 3>, strides = array<i64: 3, 3>}} : ({kinds[0]}) -> {kinds[1]}
      func.return %0 : {kinds[1]}
    }}"""
    program, kind = fuse_opt.compile(text), {"f32": np.float32, "f64": np.float64, "f16": np.float16}[element]
    for place in range(9):
        x, other = np.full((windows, 9), -np.inf), (place + 1) % 9
        x[:5, place] = np.nan, 3, 0.0, -0.0, np.nan
        x[2:5, other] = -0.0, 0.0, np.inf
        wanted = np.where(np.isnan(x).any(1), np.nan, x.max(1))
        wanted[2:4] = x[2:4, min(place, other)]
        image = x.reshape(windows, 3, 3).swapaxes(0, 1).reshape(1, 1, 3, -1)
        assert_same_bits(as_list(program(image.astype(kind))), [wanted.astype(kind).reshape(1, 1, 1, -1)])
    assert "isunordered" in program.source
