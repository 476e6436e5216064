"""Products of any number of rows: what is left over of tiles, by few functions, right and with the same bits for each number."""

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
LARGEST = 31
"""Rows: two tiles of the most rows that there are, and all that may be left over behind them."""


def product(columns: int, element: str, transposed: bool) -> str:
    """Of any number of rows and 21 elements."""
    x, name = (f"tensor<21x?x{element}>", '"", "m"') if transposed else (f"tensor<?x21x{element}>", '"m", ""')
    w, y = f"tensor<21x{columns}x{element}>", f"tensor<?x{columns}x{element}>"
    how = " {transpose_lhs = true}" if transposed else ""
    return f"""func.func @main(%x: {x} {{graph.dims = [{name}]}}, %w: {w}) -> {y} {{
  %0 = graph.matmul %x, %w{how} : ({x}, {w}) -> {y}
  func.return %0 : {y}
}}"""


@pytest.mark.sampled(14)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("transposed", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("columns", [9, 16, 32, 48, 64, 200])
@pytest.mark.parametrize("nbytes", [32, 64])
def test_what_is_left_over_of_tiles(nbytes: int, columns: int, element: str, transposed: bool, tmp_path: Path) -> None:
    kind = np.dtype({"f32": np.float32, "f64": np.float64}[element])
    program = compiled_for(product(columns, element, transposed), nbytes, tmp_path)
    rng = np.random.default_rng(columns)
    rows, weight = rng.standard_normal((LARGEST, 21)).astype(kind), rng.standard_normal((21, columns)).astype(kind)
    whole = np.array(program(rows.T.copy() if transposed else rows, weight))
    np.testing.assert_allclose(whole, rows @ weight, 1e-4, 1e-5)
    for number in range(1, LARGEST):
        given = rows[:number].T.copy() if transposed else rows[:number].copy()
        with guarded() as allocate:
            found = np.array(program(*(allocate(each, at_end=number % 2 == 0) for each in (given, weight))))
        assert found.tobytes() == whole[:number].tobytes(), f"{number} rows"


@needs_compiler
@pytest.mark.parametrize("columns", [16, 32, 64])
def test_tiles_have_few_heights(columns: int) -> None:
    program = fuse_opt.compile(product(columns, "f32", False))
    program(np.ones((5, 21), np.float32), np.ones((21, columns), np.float32))
    heights = set(re.findall(rf"void fo_tile_f32_(\d+)x{columns}\(", program.source))
    assert len(heights) == (2 if columns == 64 else 3), heights
    assert "1" not in heights
