"""Which kernels have vectors of half a cache line, by the C text that says so."""

from __future__ import annotations

import pytest
from ir_testing import apply, parse

from fuse_opt.lowering.emit import build_program

TEXT = """
func.func @main(%x: tensor<SxT>, %y: tensor<NxT>) -> tensor<SxT> {
  %r = fused.kernel(%0 = %x : tensor<SxT>, %b = %y : tensor<NxT>) -> (tensor<SxT>)ENTRY {
    %1 = graph.OP %0, %b : (tensor<SxT>, tensor<NxT>) -> tensor<SxT>
    fused.yield %1 : tensor<SxT>
  }
  func.return %r : tensor<SxT>
}"""


def source(rows: int, row: int, element: str = "f32", op: str = "add", entry: str = "") -> str:
    text = TEXT.replace("OP", op).replace("<S", f"<{rows}x{row}").replace("<N", f"<{row}")
    schedule = f' attributes {{schedule = {{kind = "pointwise"{entry}}}}}' if entry else ""
    module = apply(parse(text.replace("xT", f"x{element}").replace("ENTRY", schedule)), ["schedule-kernels"])
    return build_program(module).source


@pytest.mark.parametrize(
    ("wanted", "arguments"),
    [
        (True, (9, 517)),
        (True, (9, 131, "i8")),
        (False, (9, 131)),
        (True, (9, 256)),
        (False, (9, 240)),
        (False, (9, 517, "f32", "divide")),
        (True, (100_000, 131)),
        (False, (100_000, 131, "f32", "divide")),
        (False, (100_000, 131, "f32", "add", ', stores = "nontemporal"')),
        (True, (9, 24, "f32", "add", ", vector = 256 : i64")),
        (False, (9, 517, "f32", "add", ", vector = 512 : i64")),
    ],
)
def test_light_loops_over_rows(wanted: bool, arguments: tuple[int, int, str]) -> None:
    assert ("prefer-vector-width=256" in source(*arguments)) == wanted


def test_processors_that_split_lines_for_nothing_are_left_alone_but_by_a_schedule() -> None:
    assert "!defined(__clang__) && !defined(__AVX512FP16__)" in source(9, 517)
    assert "__AVX512FP16__" in source(9, 517, "i8")
    assert "__AVX512FP16__" not in source(9, 131, "i8")
    assert "__AVX512FP16__" not in source(9, 24, entry=", vector = 256 : i64")
