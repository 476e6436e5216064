"""Convolutions whose windows are apart, of images of any extents: those of few positions have tiles of one vector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from lowered_programs import as_list, needs_compiler
from narrow_vectors import compiled_for

import fuse_opt

Array = np.ndarray[Any, Any]
WINDOWS = {"first-layer": (3, 32, 7, 2, 3), "wide": (5, 48, 3, 2, 1), "far": (4, 24, 2, 3, 0)}
"""Channels, filters, elements of a window along each axis, steps, and zeros around."""
SIZES = ((2, 2), (5, 5), (6, 5), (7, 8), (8, 7), (9, 9), (3, 17), (12, 9), (31, 2), (20, 33))


def program_text(name: str) -> str:
    channels, filters, window, stride, zeros = WINDOWS[name]
    kind, result = (f"tensor<?x{n}x?x?xf32>" for n in (channels, filters))
    weight = f"tensor<{filters}x{channels}x{window}x{window}xf32>"
    pads, strides = f"array<i64: {', '.join([str(zeros)] * 4)}>", f"array<i64: {stride}, {stride}>"
    return f"""func.func @main(%x: {kind} {{graph.dims = ["b", "", "h", "w"]}}, %w: {weight}) -> {result} {{
  %1 = graph.conv %x, %w {{pads = {pads}, strides = {strides}}} : ({kind}, {weight}) -> {result}
  func.return %1 : {result}
}}"""


@pytest.mark.sampled(4)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", WINDOWS)
def test_values_at_few_and_at_more_positions(name: str, bits: int, tmp_path: Path) -> None:
    text, (channels, filters, window, *_) = program_text(name), WINDOWS[name]
    program, rng = compiled_for(text, bits, tmp_path), np.random.default_rng(2911)
    weight = rng.standard_normal((filters, channels, window, window)).astype(np.float32)
    for number, (height, width) in enumerate(SIZES):
        x = rng.standard_normal((1 + number % 2, channels, height, width)).astype(np.float32)
        wanted = as_list(fuse_opt.evaluate(text, x, weight))[0]
        with guarded() as allocate:
            placed = [allocate(array, at_end=number % 2 == 0) for array in (x, weight)]
            out = allocate(np.zeros_like(wanted), at_end=number % 2 == 0)
            program(*placed, out=out)
            np.testing.assert_allclose(out, wanted, 2e-4, 2e-4, err_msg=str((height, width)))


@needs_compiler
def test_few_positions_have_tiles_of_one_vector(tmp_path: Path) -> None:
    """Of 32 filters, of which wide panels have tiles of two vectors."""
    program = compiled_for(program_text("first-layer"), 64, tmp_path)
    program(np.ones((1, 3, 6, 5), np.float32), np.ones((32, 3, 7, 7), np.float32))
    assert "fo_taps_f32_8x16(" in program.source
    assert "x32(" in program.source
