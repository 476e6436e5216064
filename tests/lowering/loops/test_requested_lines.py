"""Lines that are asked for before they are stored to: which loops do, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from ir_testing import apply, parse, text_of
from lowered_programs import as_list, needs_compiler
from scheduled_kernels import Kernels, assert_within_bounds, lowered, normalize, typed, with_expected

from fuse_opt.lowering.emit import build_program
from fuse_opt.runtime.cpu.program import CpuProgram

REQUESTED = 'stores = "requested"'


def add_sum(
    written: Kernels, extents: Sequence[int], element: str, schedule: str = f'kind = "pointwise", {REQUESTED}'
) -> None:
    full, line = typed(extents, element), typed(extents[-1:], element)
    added = f"%r = graph.add %a, %b : (tensor<{full}>, tensor<{line}>) -> tensor<{full}>"
    written.add(schedule, [full, line], [added], [full])


def requests(written: Kernels) -> int:
    return text_of(apply(parse(written.text()), ["convert-fused-to-loops"])).count("call @fo_request_")


@needs_compiler
def test_bits_are_those_of_ordinary_stores() -> None:
    """Of elements of all widths, lengths that leave something over, and two results of a loop."""
    found: list[list[Any]] = []
    for stores in (REQUESTED, 'stores = "temporal"'):
        written = Kernels()
        for element in ("f32", "f64", "f16", "bf16", "i8", "i64"):
            add_sum(written, (5, 301), element, f'kind = "pointwise", {stores}')
        for columns in (31, 32, 33, 64, 255, 700):
            add_sum(written, (3, columns), "f32", f'kind = "pointwise", {stores}')
            normalize(written, f'kind = "row", {stores}', (5, columns), 1)
        module, arguments, expected = with_expected(written.text())
        program = build_program(lowered(module, 1))
        assert (program.source.count(" fo_request_f32(") > 8) == (stores == REQUESTED)
        found.append(as_list(CpuProgram(program)(*arguments)))
        assert_within_bounds(found[-1], expected, stores)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@needs_compiler
@needs_guard_pages
def test_what_is_asked_for_may_lie_behind_the_result() -> None:
    """There are pages behind it that nobody may touch."""
    written = Kernels()
    add_sum(written, (7, 301), "f32")
    module, arguments, expected = with_expected(written.text())
    program = CpuProgram(build_program(lowered(module, 1)))
    with guarded() as allocate:
        room = allocate(np.zeros_like(as_list(program(*arguments))[0]), at_end=True)
        program(*arguments, out=room)
        assert_within_bounds([room.copy()], expected, "guarded")


@pytest.mark.parametrize(
    ("extents", "schedule", "count"),
    [
        ((4, 32), f'kind = "pointwise", {REQUESTED}', 1),
        ((4, 31), f'kind = "pointwise", {REQUESTED}', 0),
        ((4, 256), 'kind = "pointwise", stores = "temporal"', 0),
        ((4, 256), 'kind = "pointwise", stores = "nontemporal"', 0),
        ((4, 256), f'kind = "pointwise", unroll = 2, {REQUESTED}', 1),
    ],
)
def test_loops_of_two_groups_and_more_ask(extents: Sequence[int], schedule: str, count: int) -> None:
    written = Kernels()
    add_sum(written, extents, "f32", schedule)
    assert requests(written) == count


def test_results_in_place_are_in_the_caches() -> None:
    text = f"""
func.func @main(%x: tensor<8x64xf32> {{graph.donated}}) -> tensor<8x64xf32> {{
  %r = fused.kernel(%a = %x : tensor<8x64xf32>) -> (tensor<8x64xf32>)
      attributes {{inplace = array<i64: 0, 0>, schedule = {{kind = "pointwise", {REQUESTED}}}}} {{
    %0 = graph.relu %a : (tensor<8x64xf32>) -> tensor<8x64xf32>
    fused.yield %0 : tensor<8x64xf32>
  }}
  func.return %r : tensor<8x64xf32>
}}"""
    assert "fo_request" not in text_of(apply(parse(text), ["convert-fused-to-loops"]))
