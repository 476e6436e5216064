"""Products whose columns or elements to add are sizes, for vectors of 256 and of 512 bits: right, and nothing beside arrays."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from lowered_programs import needs_compiler
from narrow_vectors import compiled_for

import fuse_opt

Array = np.ndarray[Any, Any]
COLUMNS = """func.func @main(%x: tensor<?x40xf32> {graph.dims = ["m", ""]}, %y: tensor<40x?xf32> {graph.dims = ["", "n"]})
    -> tensor<?x?xf32> {
  %1 = graph.matmul %x, %y : (tensor<?x40xf32>, tensor<40x?xf32>) -> tensor<?x?xf32>
  %2 = graph.relu %1 : (tensor<?x?xf32>) -> tensor<?x?xf32>
  func.return %2 : tensor<?x?xf32>
}"""
DEPTH = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]}, %y: tensor<?x37xf32> {graph.dims = ["n", ""]})
    -> tensor<?x37xf32> {
  %1 = graph.matmul %x, %y : (tensor<?x?xf32>, tensor<?x37xf32>) -> tensor<?x37xf32>
  func.return %1 : tensor<?x37xf32>
}"""
SCORES = """func.func @main(%x: tensor<2x?x24xf32> {graph.dims = ["", "m", ""]},
                     %y: tensor<2x?x24xf32> {graph.dims = ["", "n", ""]}) -> tensor<2x?x?xf32> {
  %1 = graph.matmul %x, %y {transpose_rhs = true} : (tensor<2x?x24xf32>, tensor<2x?x24xf32>) -> tensor<2x?x?xf32>
  func.return %1 : tensor<2x?x?xf32>
}"""
PROGRAMS = {"columns": COLUMNS, "depth": DEPTH, "scores": SCORES}


def shapes(name: str, m: int, n: int) -> tuple[tuple[int, ...], ...]:
    return {"columns": ((m, 40), (40, n)), "depth": ((m, n), (n, 37)), "scores": ((2, m, 24), (2, n, 24))}[name]


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("name", PROGRAMS)
def test_tiles_of_both_widths_are_right_at_all_sizes(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2412)
    narrow, wide = (compiled_for(PROGRAMS[name], size, tmp_path) for size in (32, 64))
    for number, n in enumerate((1, 5, 15, 16, 17, 24, 32, 37, 64, 65, 84, 131, 257)):
        for m in (1, 2, 5, 6, 7, 13, 25, 61):
            given = [rng.standard_normal(shape).astype(np.float32) for shape in shapes(name, m, n)]
            with guarded() as allocate:
                lying = [allocate(each, at_end=(number + m) % 2 == 0) for each in given]
                found = [np.array(program(*lying)) for program in (narrow, wide)]
            expected = np.asarray(fuse_opt.evaluate(PROGRAMS[name], *given))
            for one in found:
                np.testing.assert_allclose(one, expected, 2e-5, 2e-5, err_msg=f"{m} x {n}")


@needs_compiler
def test_tiles_are_as_wide_as_the_record_says(tmp_path: Path) -> None:
    given = [np.ones(shape, np.float32) for shape in shapes("columns", 30, 70)]
    for size, widths in ((32, {"16"}), (64, {"16", "24", "64"})):
        program = compiled_for(COLUMNS, size, tmp_path)
        program(*given)
        assert set(re.findall(r"void fo_tile_f32_\dx(\d+)l?\(", program.source)) == widths
