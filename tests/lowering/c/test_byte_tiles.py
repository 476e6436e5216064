"""Tiles of products of bytes, for machines with and without instructions for fours and pairs of them."""

from __future__ import annotations

import ctypes
import functools
import itertools
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_printing import build_helpers
from guard_pages import guarded, needs_guard_pages
from lowered_programs import needs_compiler

from fuse_opt.lowering.c.headers.product_groups import FEWEST_LANES, KEEPS, LINES, kept_longs

Array = np.ndarray[Any, Any]
SHAPES = [(7, 40), (31, 29), (9, 60), (16, 3)]
"""Rows and columns: of vectors, and of matrix registers where there are some: that share sums, beside each other, and narrow."""
STEP = 64
REGISTERS = ["fo_matrix_begin", "fo_matrix_end"]
MOST_DEPTH = 1027
MORE = 33
"""Rows that are copied, of which squares are transposed in registers where columns lie side by side."""
_CALLS = """
void {function}(long k, const {left} char *x, long x_row, long x_column, const signed char *w, {left} char *rows,
    long step, signed char *panel, int *sums) {{
  fo_rows_{name}({more}, k, x, 0, x_row, x_column, rows, 0, step, {groups});
  fo_panel_{name}(k, {columns}, w, 0, {columns}, 1, panel, 0, {step}, {groups});
  long registers;
  fo_matrix_begin(&registers);
  {tile}((k + 3) / 4, rows, 0, step, panel, 0, {step}, sums, {columns}, {columns}, 0, &registers);
  {tile}((k + 3) / 4, rows, 0, step, panel, 0, {step}, sums, {columns}, {columns}, 1, &registers);
  fo_matrix_end(&registers);
{kept}}}
"""
_KEPT = """\
  static long kept[{longs}] __attribute__((aligned(64)));
  fo_matrix_begin(kept);
  {tile}((k + 3) / 4, rows, 0, step, panel, 0, {step}, sums, {columns}, {columns}, 1, kept, 0);
  {tile}((k + 3) / 4, rows, 0, step, panel, 0, {step}, sums, {columns}, {columns}, 1, kept, 1);
  fo_matrix_end(kept);
"""


MACHINES = {
    "native": "-march=native",
    "vectors": "-march=native -mno-amx-tile -mno-amx-int8 -mno-amx-bf16",
    "halves": "-mavx2",
    "one by one": "",
}
if platform.machine() != "x86_64":
    del MACHINES["vectors"], MACHINES["halves"]
LEFT = {"i8": "signed", "ui8": "unsigned"}
Products = Callable[[str], ctypes.CDLL]


def _keeps(name: str, columns: int) -> bool:
    """Whether there are tiles of such bytes that keep rows."""
    return name == "i8" and columns >= FEWEST_LANES


def _name_of(name: str, many: int, columns: int, in_lines: bool) -> str:
    return f"{name}_{many}x{columns}{LINES * in_lines}"


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> Products:
    """By what it may use of the machine: a library of `product_NAME` for all tiles, which share most of what is compiled."""

    @functools.cache
    def build(machine: str) -> ctypes.CDLL:
        texts: list[str] = []
        helpers = {*REGISTERS, "fo_panel_bf16", *(f"fo_{each}_{name}" for each in ("rows", "panel") for name in LEFT)}
        for (many, columns), in_lines in itertools.product(SHAPES, [False, True]):
            for name, step, text in (*((name, 4, _CALLS) for name in LEFT), ("bf16", 2, _PAIRS)):
                function, line = _name_of(name, many, columns, in_lines), 16 * step if in_lines else step
                groups = f"(k + {line - 1}) / {line} * {line // step}"
                shape = {"columns": columns, "groups": groups, "more": MORE, "step": STEP}
                facts = {"name": name, "left": LEFT.get(name), "function": f"product_{function}"}
                tile, kept = f"fo_tile_{function}", ""
                if _keeps(name, columns):
                    kept = _KEPT.format(tile=f"{tile}{KEEPS}", longs=kept_longs(many), **shape)
                    helpers.add(f"{tile}{KEEPS}")
                texts.append(text.format(tile=tile, kept=kept, **shape, **facts))
                helpers.add(tile)
        level = "-O2" if machine == MACHINES["native"] else "-O0"  # of others it is their text that is asked about
        return build_helpers(sorted(helpers), "".join(texts), "cc", machine, tmp_path_factory.mktemp("tiles"), level)

    return build


@needs_compiler
@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize(("name", "left"), LEFT.items())
@pytest.mark.parametrize(("many", "columns"), SHAPES)
@pytest.mark.parametrize("in_lines", [False, True], ids=["as they are", "in lines"])
def test_every_build_gives_exact_sums(
    name: str, left: str, machine: str, many: int, columns: int, in_lines: bool, products: Products
) -> None:
    """Of rows that end in their last group, and of those that zeros follow up to whole lines; and where tiles keep rows."""
    product = products(machine)[f"product_{_name_of(name, many, columns, in_lines)}"]
    line = 64 if in_lines else 4
    rng = np.random.default_rng(11)
    low = -128 if left == "signed" else 0
    for depth, transposed in (
        (1, False),
        (4, True),
        (31, True),
        (31, False),
        (64, True),
        (MOST_DEPTH, False),
        (MOST_DEPTH, True),
    ):  # the last one has more groups than are taken apart at a time
        x = rng.integers(low, low + 256, (MORE, depth + 5)).astype(np.int8 if left == "signed" else np.uint8)
        w = rng.integers(-128, 128, (depth, columns)).astype(np.int8)
        sums = rng.integers(-1000, 1000, (many + 2, columns)).astype(np.int32)
        around = sums[[0, -1]].copy()
        length = -(-depth // line) * line
        step = length + 16
        rows: Array = np.full((MORE, step), 7, x.dtype)
        panel: Array = np.full((length // 4 + 1) * STEP * 4, 7, np.int8)
        given = np.ascontiguousarray(x.T) if transposed else x
        x_row, x_column = (stride // given.itemsize for stride in (given.T if transposed else given).strides)
        x_at, w_at, rows_at, panel_at, sums_at = (ctypes.c_void_p(e.ctypes.data) for e in (given, w, rows, panel, sums))
        steps = [ctypes.c_long(each) for each in (depth, x_row, x_column, step)]
        product(steps[0], x_at, *steps[1:3], w_at, rows_at, steps[3], panel_at, sums_at)
        wanted = (4 if _keeps(name, columns) else 2) * x[:many, :depth].astype(np.int64) @ w.astype(np.int64)
        np.testing.assert_array_equal(sums[1:-1], wanted)
        np.testing.assert_array_equal(sums[[0, -1]], around)


_COPY = """
void copy(long k, const signed char *from, long row, signed char *to, long step) {
  fo_rows_i8(3, k, from, 0, row, 1, to, 0, step, step / 4);
}
"""


@needs_compiler
@needs_guard_pages
def test_copies_of_rows_end_where_their_last_group_does(tmp_path: Path) -> None:
    """With zeros behind every length up to two lines, read from where memory ends, and written to where it does."""
    library = build_helpers(["fo_rows_i8"], _COPY, "cc", MACHINES["native"], tmp_path)
    rng = np.random.default_rng(13)
    for depth in range(1, 131):
        wanted: Array = np.zeros((3, -(-depth // 4) * 4), np.int8)
        wanted[:, :depth] = rng.integers(-128, 128, (3, depth))
        with guarded() as allocate:
            given, to = (
                allocate(np.ascontiguousarray(each), at_end=True) for each in (wanted[:, :depth], np.ones_like(wanted))
            )
            places = [ctypes.c_void_p(each.ctypes.data) for each in (given, to)]
            steps = [ctypes.c_long(each) for each in (depth, depth, wanted.shape[1])]
            library.copy(steps[0], places[0], steps[1], places[1], steps[2])
            np.testing.assert_array_equal(to, wanted)
            del given, to


_PAIRS = """
void {function}(long k, const unsigned short *x, long x_row, const unsigned short *w, long w_row, long w_column,
    unsigned short *panel, float *sums) {{
  fo_panel_bf16(k, {columns}, w, 0, w_row, w_column, panel, 0, {step}, {groups});
  long registers;
  fo_matrix_begin(&registers);
  {tile}((k + 1) / 2, x, 0, x_row, panel, 0, {step}, sums, 0, {columns}, 1, &registers);
  fo_matrix_end(&registers);
}}
"""


@needs_compiler
@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize(("many", "columns"), SHAPES)
@pytest.mark.parametrize("in_lines", [False, True], ids=["as they are", "in lines"])
def test_every_build_multiplies_pairs_of_bf16(
    machine: str, many: int, columns: int, in_lines: bool, products: Products
) -> None:
    """
    Where no instruction does, a panel is of f32, in a copy that has room for it. What lies there before are no numbers: none
    is multiplied, not even by the zeros that follow a row.
    """
    product = products(machine)[f"product_{_name_of('bf16', many, columns, in_lines)}"]
    line = 32 if in_lines else 2
    rng = np.random.default_rng(12)
    for depth, transposed in ((1, False), (31, True), (700, False)):
        even = -(-depth // line) * line
        x, w = (
            rng.integers(-20, 20, (many, even)),
            rng.integers(-20, 20, (depth, columns)),
        )  # exact, and so are their sums
        x[:, depth:] = 0
        narrow = [
            np.ascontiguousarray(e.astype(np.float32)).view(np.uint32) >> 16 for e in (x, w.T if transposed else w)
        ]
        left, right = (each.astype(np.uint16) for each in narrow)
        sums = np.ones((many, columns), np.float32)
        panel: Array = np.full(even * STEP * 2, 0x7FC0, np.uint16)
        places = [ctypes.c_void_p(each.ctypes.data) for each in (left, right, panel, sums)]
        row, column = (1, depth) if transposed else (columns, 1)
        steps = [ctypes.c_long(each) for each in (depth, even, row, column)]
        product(steps[0], places[0], steps[1], places[1], *steps[2:], *places[2:])
        np.testing.assert_array_equal(sums, 1 + x[:, :depth] @ w)
