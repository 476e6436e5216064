"""Tiles of products: copies of what they read, for machines with vectors of every length, and their last vectors."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from c_printing import build_helpers
from ir_testing import apply, parse
from lowered_programs import needs_compiler

from fuse_opt.lowering.c.headers.product_tiles import tile_text
from fuse_opt.lowering.emit.c import build_program

Array = np.ndarray[Any, Any]
ROWS, DEPTH, STEP = 7, 21, 48
C_TYPES: dict[str, tuple[str, Any]] = {"f32": ("float", np.float32), "f64": ("double", np.float64)}
LEFT = [(element, columns) for columns in (43, 36, 34, 22) for element in C_TYPES]
SHARED = [
    (element, columns, add, rows)
    for element, columns in (("f32", 17), ("f32", 100), ("f32", 67), ("f64", 9), ("f64", 34))
    for add in (0, 1)
    for rows in (2, 3, 4, 5)
]
MACHINES = ("-march=native", "-mavx2", "")
_LEFT = """
void left_{element}_{columns}(const {c} *a, const {c} *b, {c} *sums, {c} *copy, {c} *again) {{
  {name}rcl({depth}, a, 0, {depth}, b, 0, {columns}, sums, 0, {columns}, 1, again, 0, {columns}, copy, 0, {step});
  {name}n2x3({depth}, a, 0, {depth}, copy, 0, {step}, again, 0, {columns}, 1, b, 0, {columns}, 9);
}}
"""
_SHARED = """
void shared_{element}_{columns}_{add}_{rows}(const {c} *a, const {c} *b, {c} *sums) {{
  {name}({depth}, a, 0, {depth}, b, 0, {columns}, sums, 0, {columns} + 3, {add});
}}
"""
Products = Callable[[str], ctypes.CDLL]


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> Products:
    """By what it may use of the machine: the functions of all cases, as one text: a compiler takes long to begin."""

    @functools.cache
    def build(machine: str) -> ctypes.CDLL:
        texts: list[str] = []
        helpers: list[str] = []
        for element, columns in LEFT:
            name = f"fo_tile_{element}_{ROWS}x{columns}"
            facts = {"c": C_TYPES[element][0], "name": name, "depth": DEPTH, "columns": columns, "step": STEP}
            texts.append(_LEFT.format(element=element, **facts))
            helpers += [f"{name}rcl", f"{name}n2x3"]
        for element, columns, add, rows in SHARED if machine == MACHINES[0] else []:
            name = f"fo_tile_{element}_{rows}x{columns}"
            facts = {"c": C_TYPES[element][0], "name": name, "depth": DEPTH, "columns": columns}
            texts.append(_SHARED.format(element=element, add=add, rows=rows, **facts))
            helpers.append(name)
        return build_helpers(helpers, "".join(texts), "cc", machine, tmp_path_factory.mktemp("tiles"))

    return build


@needs_compiler
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("element", "columns"), LEFT)
def test_a_tile_leaves_what_it_reads_to_those_after_it(
    element: str, columns: int, machine: str, products: Products
) -> None:
    rng, dtype = np.random.default_rng(3), C_TYPES[element][1]
    a, b, before = (
        rng.integers(-9, 9, shape).astype(dtype) for shape in ((ROWS, DEPTH), (DEPTH, columns), (ROWS, columns))
    )
    sums, again, copy = before.copy(), before.copy(), np.full((DEPTH + 1, STEP), 7.5, dtype)
    multiply = products(machine)[f"left_{element}_{columns}"]
    multiply(*(ctypes.c_void_p(each.ctypes.data) for each in (a, b, sums, copy, again)))
    np.testing.assert_array_equal(sums, before + a @ b)
    np.testing.assert_array_equal(again, sums)
    np.testing.assert_array_equal(copy[:DEPTH, :columns], b)
    assert (copy[:DEPTH, columns:] == 7.5).all() and (copy[DEPTH] == 7.5).all()


@pytest.mark.parametrize(("columns", "part"), [(16, 1), (17, 4), (20, 4), (21, 2), (24, 2), (25, 1), (12, 1)])
def test_the_last_vector_has_half_or_a_quarter_of_the_lanes_where_they_do(columns: int, part: int) -> None:
    text = tile_text(f"fo_tile_f32_6x{columns}")
    assert text is not None
    wide = text.split("#if defined(__AVX512F__)")[1].split("\n#else\n  typedef")[0]
    assert (f"(const fo_h *)(q + {columns - 8})" in wide) == (part == 2)
    assert (f"(const fo_q *)(q + {columns - 4})" in wide) == ("fo_q" in wide) == (part == 4)


@needs_compiler
@pytest.mark.parametrize(("element", "columns", "add", "rows"), SHARED)
def test_rows_share_vectors_of_their_last_columns(
    element: str, columns: int, add: int, rows: int, products: Products
) -> None:
    """Neither what is behind rows of the result changes, nor that of a row which no other one shares vectors with."""
    step, dtype = columns + 3, C_TYPES[element][1]
    rng = np.random.default_rng(rows)
    a, b, before = (
        rng.integers(-9, 9, shape).astype(dtype) for shape in ((rows, DEPTH), (DEPTH, columns), (rows + 1, step))
    )
    sums, wanted = before.copy(), before.copy()
    wanted[:rows, :columns] = before[:rows, :columns] * add + a @ b
    multiply = products(MACHINES[0])[f"shared_{element}_{columns}_{add}_{rows}"]
    multiply(*(ctypes.c_void_p(each.ctypes.data) for each in (a, b, sums)))
    np.testing.assert_array_equal(sums, wanted)


def test_tiles_are_counted_once_however_many_kernels_call_them() -> None:
    x, w = "tensor<70x40xf32>", "tensor<40x40xf32>"
    text = f"""
func.func @main(%a: {x}, %w: {w}) -> {x} {{
  %b = graph.matmul %a, %w : ({x}, {w}) -> {x}
  %c = graph.matmul %b, %w : ({x}, {w}) -> {x}
  func.return %c : {x}
}}"""
    program = build_program(apply(parse(text), ["wrap-kernels", "schedule-kernels"]))
    tiles = re.findall(r"void (fo_tile_\w+)\(", program.source)
    assert program.stats.launches == 2 and program.stats.generated_tiles == len(tiles) == len(set(tiles)) > 0


def test_tiles_ask_for_lines_of_what_follows_and_not_for_those_of_their_sums() -> None:
    for plain, other in (("6x64", "6x64l"), ("6x64rc", "6x64rcl"), ("6x16t", "6x16tl"), ("5x16n1x1", "5x16ln1x1")):
        for element in C_TYPES:
            texts = [tile_text(f"fo_tile_{element}_{name}") or "" for name in (plain, other)]
            asked = [[f"__builtin_prefetch({to}" in text for to in ("c", "lines")] for text in texts]
            assert asked == [[True, False], [False, True]], other
