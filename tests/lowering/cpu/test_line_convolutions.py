"""Convolutions of windows of one element, of images of any extents, read where they lie: values, bits, and what lies around."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from lowered_programs import as_list, needs_compiler
from narrow_vectors import compiled_for
from thread_counts import by_threads

import fuse_opt
from fuse_opt.lowering.cpu.convolution import loops

Array = np.ndarray[Any, Any]
SHAPES = {"few": (5, 3, 1), "many": (33, 70, 1), "deep": (600, 12, 1), "groups": (12, 20, 4)}
"""Channels, filters, groups."""
SIZES = ((1, 4), (3, 5), (7, 9), (8, 8), (5, 13), (3, 43), (16, 32), (27, 19), (40, 41))
"""Of images, from less than a panel to several blocks."""


def program_text(name: str, more: bool) -> str:
    channels, filters, groups = SHAPES[name]
    kind, result = (f"tensor<?x{n}x?x?xf32>" for n in (channels, filters))
    weight, dims = f"tensor<{filters}x{channels // groups}x1x1xf32>", 'graph.dims = ["b", "", "h", "w"]'
    last = f"""%2 = graph.add %1, %y : ({result}, {result}) -> {result}
  %3 = graph.relu %2 : ({result}) -> {result}"""
    return f"""func.func @main(%x: {kind} {{{dims}}}, %w: {weight}, %y: {result} {{{dims}}}) -> {result} {{
  %1 = graph.conv %x, %w {{groups = {groups} : i64}} : ({kind}, {weight}) -> {result}
  {last if more else ""}
  func.return {"%3" if more else "%1"} : {result}
}}"""


def arrays(name: str, batch: int, height: int, width: int) -> tuple[Array, ...]:
    rng, (channels, filters, groups) = np.random.default_rng(2811), SHAPES[name]
    image = (height, width)
    shapes = ((batch, channels, *image), (filters, channels // groups, 1, 1), (batch, filters, *image))
    return tuple(rng.standard_normal(shape).astype(np.float32) for shape in shapes)


def never(*_: object) -> bool:
    return False


@pytest.mark.sampled(5)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("more", [False, True], ids=["alone", "residual"])
@pytest.mark.parametrize("name", SHAPES)
def test_panels_of_lines_are_those_of_copies(
    name: str, more: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = program_text(name, more)
    lines, wide = (compiled_for(text, size, tmp_path) for size in (32, 64))
    for program in (lines, wide):  # compiled at the first call
        program(*arrays(name, 1, *SIZES[0]))
    monkeypatch.setattr(loops, "reads_lines", never)
    copies = compiled_for(text, 32, tmp_path)
    for number, (height, width) in enumerate(SIZES):
        given = arrays(name, 1 + number % 2, height, width)
        with guarded() as allocate:
            placed = [allocate(array, at_end=number % 2 == 0) for array in given]
            wanted = as_list(copies(*given))[0]
            assert as_list(lines(*placed))[0].tobytes() == wanted.tobytes(), (height, width)
            out = allocate(np.zeros_like(wanted), at_end=number % 2 == 0)
            lines(*placed, out=out)
            assert out.tobytes() == wanted.tobytes(), (height, width)
        np.testing.assert_allclose(wanted, as_list(fuse_opt.evaluate(text, *given))[0], 2e-4, 2e-4)
        np.testing.assert_allclose(
            as_list(wide(*given))[0], wanted, 1e-4, 1e-4
        )  # a product, of other blocks of channels
    for program in (lines, wide):
        assert "fo_tile_f32_" in program.source
        assert "fo_taps_f32_" not in program.source


@needs_compiler
@pytest.mark.parametrize("name", SHAPES)
def test_threads_change_no_bit(name: str, tmp_path: Path) -> None:
    program = compiled_for(program_text(name, more=True), 32, tmp_path)
    for batch, height, width in ((1, 40, 41), (5, 3, 5), (7, 16, 32), (2, 1, 4)):
        given = arrays(name, batch, height, width)
        assert len(set(by_threads(lambda given=given: as_list(program(*given))[0].tobytes()))) == 1, (height, width)


@needs_compiler
def test_what_follows_wide_and_narrow_panels_is_compiled_once(tmp_path: Path) -> None:
    """Over whole vectors, and over what is left of one: not again for images that are shorter than a panel."""
    program = compiled_for(program_text("many", more=True), 32, tmp_path)
    program(*arrays("many", 1, 3, 5))
    assert program.source.count(" = y[") == 2
    assert "fo_rows_f32(" in program.source


@needs_compiler
def test_a_result_that_an_operand_lies_in_is_stored_once(tmp_path: Path) -> None:
    text = program_text("many", more=True).replace(
        '%y: tensor<?x70x?x?xf32> {', '%y: tensor<?x70x?x?xf32> {graph.donated, '
    )  # fmt: skip
    program = compiled_for(text, 32, tmp_path)
    for height, width in SIZES:
        x, weight, y = arrays("many", 1, height, width)
        wanted = as_list(fuse_opt.evaluate(text, x, weight, y.copy()))[0]
        np.testing.assert_allclose(as_list(program(x, weight, y.copy()))[0], wanted, 2e-5, 2e-5)
