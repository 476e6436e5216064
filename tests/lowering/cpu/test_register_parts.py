"""
Accumulators of rows whose length is a size, in variables as long as registers: the same bits, whatever a register holds, but for
rows that share a vector.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from ir_testing import apply, parse
from lowered_programs import as_list, needs_compiler
from narrow_vectors import compiled_for

import fuse_opt
from fuse_opt.lowering.cpu.packed.packed_rows import LONGEST
from fuse_opt.lowering.emit.c import build_program

Array = np.ndarray[Any, Any]
ROWS = """func.func @main(%x: tensor<?x?xf32> {{graph.dims = ["m", "n"]}}) -> tensor<?x?xf32> {{
  %1 = graph.{op} %x : (tensor<?x?xf32>) -> tensor<?x?xf32>
  func.return %1 : tensor<?x?xf32>
}}"""
SUMS = """func.func @main(%x: tensor<?x3x?xf32> {graph.dims = ["m", "", "n"]})
    -> (tensor<?x3xf32>, tensor<?x3xf32>, tensor<?xf32>) {
  %1 = graph.sum %x {axes = array<i64: 2>} : (tensor<?x3x?xf32>) -> tensor<?x3xf32>
  %2 = graph.max %x {axes = array<i64: 2>} : (tensor<?x3x?xf32>) -> tensor<?x3xf32>
  %3 = graph.sum %x {axes = array<i64: 1, 2>} : (tensor<?x3x?xf32>) -> tensor<?xf32>
  func.return %1, %2, %3 : tensor<?x3xf32>, tensor<?x3xf32>, tensor<?xf32>
}"""
COLUMNS = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]}) -> tensor<?xf32> {
  %1 = graph.sum %x {axes = array<i64: 0>} : (tensor<?x?xf32>) -> tensor<?xf32>
  func.return %1 : tensor<?xf32>
}"""
PROGRAMS = {
    "softmax": ROWS.format(op="softmax"),
    "log_softmax": ROWS.format(op="log_softmax"),
    "sums": SUMS,
    "columns": COLUMNS,
}


@pytest.mark.parametrize(
    ("op", "bits", "lanes"), [("max", 256, 32), ("max", 512, 64), ("sum", 256, 64), ("sum", 512, 64)]
)
def test_accumulators_of_an_extremum_are_fewer_where_registers_are_narrow(op: str, bits: int, lanes: int) -> None:
    """Eight of 256 bits were in memory beside what else a row has in registers."""
    text = f"""func.func @main(%x: tensor<40x300xf32>) -> tensor<40xf32> {{
  %1 = graph.{op} %x {{axes = array<i64: 1>}} : (tensor<40x300xf32>) -> tensor<40xf32>
  func.return %1 : tensor<40xf32>
}}"""
    device = "cpu" if bits == 512 else "avx2"
    source = build_program(apply(parse(text), ["wrap-kernels", f"schedule-kernels{{device={device}}}"])).source
    assert re.findall(r"_lanes\[(\d+)\] __attribute__", source) == [str(lanes)]


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("name", PROGRAMS)
def test_parts_of_registers_give_the_same_bits(name: str, tmp_path: Path) -> None:
    text, rng = PROGRAMS[name], np.random.default_rng(2711)
    narrow, wide = (compiled_for(text, size, tmp_path) for size in (32, 64))
    for n in (1, 2, 7, 8, 9, 15, 16, 17, 24, 25, 31, 33, 48, 49, 130, 257):
        for m in (1, 5, 19):
            x = rng.standard_normal((m, 3, n) if name == "sums" else (m, n)).astype(np.float32)
            with guarded() as allocate:
                given = allocate(x, at_end=n % 2 == 0)
                pairs = zip(as_list(narrow(given)), as_list(wide(given)), strict=True)
                assert n <= LONGEST or all(one.tobytes() == other.tobytes() for one, other in pairs), (m, n)
            for one, other in zip(as_list(narrow(x)), as_list(fuse_opt.evaluate(text, x)), strict=True):
                np.testing.assert_allclose(one, other, 2e-5, 2e-5, err_msg=f"{m} rows of {n}")


@needs_compiler
def test_no_variable_is_longer_than_a_register(tmp_path: Path) -> None:
    x = np.ones((3, 3, 40), np.float32)
    for size, lanes in ((32, 8), (64, 16)):
        program = compiled_for(SUMS, size, tmp_path)
        program(x)
        assert set(re.findall(r"vector_size\((\d+) \* sizeof\(float\)\)", program.source)) == {str(lanes)}


JOINED = """func.func @main(%x: XF {graph.dims = ["m", "n"]}) -> tensor<?xf32> attributes {graph.symbols = {n = {least = 64}}} {
  %1 = graph.exp %x : (XF) -> XF
  %2 = graph.concat %x, %x, %1 {axis = 0 : i64} : (XF, XF, XF) -> XF
  %3 = graph.sum_squares %2 {axes = array<i64: 1>} : (XF) -> tensor<?xf32>
  func.return %3 : tensor<?xf32>
}""".replace("XF", "tensor<?x?xf32>")


@needs_compiler
def test_sums_of_rows_that_are_chosen_between(tmp_path: Path) -> None:
    """What choosing loops was measured by kept on reading accumulators that were in parts."""
    program, rng = compiled_for(JOINED, 32, tmp_path), np.random.default_rng(4)
    for m, n in ((1, 64), (3, 77)):
        x = rng.standard_normal((m, n)).astype(np.float32)
        np.testing.assert_allclose(program(x), fuse_opt.evaluate(JOINED, x), 2e-5)
