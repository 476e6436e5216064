"""Schedules: every kind on every awkward extent gives what the reference gives, however its tasks are handed out."""

from __future__ import annotations

import ctypes
import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import CudaOnCpu, needs_cxx
from ir_testing import apply, evaluate, parse, random_arguments, text_of
from ir_testing import kernels as kernels_of
from lowered_programs import as_list, needs_compiler, softmax_program
from scheduled_kernels import (
    CASES,
    COLUMN,
    SPLIT,
    Kernels,
    assert_within_bounds,
    in_pieces,
    lowered,
    permute,
    reduce,
    with_expected,
)
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr, i64

from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.program import Segment
from fuse_opt.passes.remarks import RefusedError
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.cpu.stepwise import StepwiseProgram
from fuse_opt.runtime.host.thread_pool import num_threads, set_num_threads


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_every_extent_and_every_way_to_hand_out_tasks(name: str) -> None:
    module, arguments, expected = with_expected(CASES[name]().text())
    compiled = CpuProgram(build_program(lowered(module, 1)))
    first = as_list(compiled(*arguments))
    assert_within_bounds(first, expected, name)
    before = num_threads()
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            for a, b in zip(as_list(compiled(*arguments)), first, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=f"{threads} threads")
    finally:
        set_num_threads(before)
    rng = random.Random(1)
    loop = in_pieces(rng)
    address = ctypes.cast(loop, ctypes.c_void_p).value
    stepwise = StepwiseProgram(build_program(lowered(module, 1)), parallel_for=address)
    for _ in range(3):
        for a, b in zip(as_list(stepwise(*arguments)), first, strict=True):
            np.testing.assert_array_equal(a, b, err_msg="in pieces")


def chosen(text: str) -> list[dict[str, Any]]:
    """The schedules that the pass gives to the kernels."""
    module = apply(parse(text), ["schedule-kernels"])
    found: list[dict[str, Any]] = []
    for kernel in kernels_of(module):
        assert kernel.schedule is not None
        entries = kernel.schedule.data.items()
        found.append({n: v.value.data if isinstance(v, IntegerAttr) else kernel.schedule_kind() for n, v in entries})
    return found


@pytest.mark.parametrize(
    ("extents", "axes", "expected"),
    [
        ((64, 4096), (1,), {"kind": "row"}),
        ((64, 65536), (0,), {"kind": "column"}),
        ((64, 256, 256), (1,), {"kind": "column"}),
        ((4096, 4096), (0,), {"kind": "column", "splits": 32}),
        ((64, 8192), (0,), {"kind": "column"}),
        ((8192, 256), (0,), {"kind": "column", "splits": 32}),
        ((40, 64), (0,), {"kind": "column"}),
        ((4096, 3), (1,), {"kind": "column"}),
        ((8, 3), (1,), {"kind": "row"}),
        ((4096, 3), (0,), {"kind": "row"}),
        ((1 << 24,), (0,), {"kind": "split", "splits": 32}),
        ((2, 1 << 20), (1,), {"kind": "split", "splits": 16}),
        ((1000,), (0,), {"kind": "row"}),
        ((64, 32, 56, 56), (0, 2, 3), {"kind": "row"}),
    ],
)
def test_the_kind_of_a_reduction(extents: Sequence[int], axes: Sequence[int], expected: dict[str, Any]) -> None:
    kernels = Kernels()
    reduce(kernels, "", "sum", extents, axes)
    assert chosen(kernels.text()) == [expected]


@pytest.mark.parametrize(
    ("extents", "axes", "expected"),
    [
        ((64, 96), (1, 0), "tile"),
        ((4, 32, 64), (0, 2, 1), "tile"),
        ((4, 32, 64), (1, 0, 2), "pointwise"),
        ((64, 3), (1, 0), "pointwise"),
        ((3, 64), (1, 0), "pointwise"),
    ],
)
def test_the_kind_of_a_transpose(extents: Sequence[int], axes: Sequence[int], expected: str) -> None:
    kernels = Kernels()
    permute(kernels, "", extents, axes)
    assert chosen(kernels.text()) == [{"kind": expected}]


IN_PLACE = """func.func @main(%x: tensor<SHAPE> {graph.donated}, %w: tensor<KEPT> {graph.donated})
    -> (tensor<SHAPE>, tensor<KEPT>) {
  %y:2 = fused.kernel(%a = %x : tensor<SHAPE>, %b = %w : tensor<KEPT>) -> (tensor<SHAPE>, tensor<KEPT>)
      attributes {schedule = {SCHEDULE}, inplace = array<i64: 0, 0, 1, 1>} {
    %p = graph.multiply %a, %b : (tensor<SHAPE>, tensor<KEPT>) -> tensor<SHAPE>
    %t = graph.sum %p {axes = array<i64: AXIS>, keepdims = true} : (tensor<SHAPE>) -> tensor<KEPT>
    %d = graph.subtract %p, %t : (tensor<SHAPE>, tensor<KEPT>) -> tensor<SHAPE>
    %m = graph.max %d {axes = array<i64: AXIS>, keepdims = true} : (tensor<SHAPE>) -> tensor<KEPT>
    fused.yield %d, %m : tensor<SHAPE>, tensor<KEPT>
  }
  func.return %y#0, %y#1 : tensor<SHAPE>, tensor<KEPT>
}"""


@needs_compiler
@pytest.mark.parametrize("schedule", [COLUMN, f"{COLUMN}, splits = 4 : i64", f"{SPLIT}, splits = 3 : i64"])
@pytest.mark.parametrize(("shape", "kept", "axis"), [("70x33xf32", "1x33xf32", 0), ("30x5xf32", "30x1xf32", 1)])
def test_in_place(schedule: str, shape: str, kept: str, axis: int) -> None:
    """Results take over what stages read before; only an element may be overwritten in the stage that reads it."""
    text = (
        IN_PLACE.replace("SHAPE", shape).replace("KEPT", kept).replace("AXIS", str(axis)).replace("SCHEDULE", schedule)
    )
    module = parse(text)
    arguments = random_arguments(module, 2)
    expected = evaluate(module, [a.copy() for a in arguments])
    compiled = CpuProgram(build_program(lowered(module, 1)))
    assert_within_bounds(as_list(compiled(*[a.copy() for a in arguments])), expected, schedule)


@needs_cxx
@pytest.mark.parametrize("name", ["column stages in parts", "split kinds", "small tile"])
def test_the_kinds_on_a_gpu(name: str) -> None:
    module, arguments, expected = with_expected(CASES[name]().text())
    actual = CudaOnCpu(apply(module, ["convert-fused-to-gpu"])).run("main", arguments)
    assert_within_bounds(actual, expected, name)


def test_launches_of_one_kernel_follow_each_other_through_scratch_memory() -> None:
    """What one launch leaves in the arena the next one reads; it lies behind all planned values, for all kernels alike."""
    kernels = Kernels()
    for _ in range(2):
        reduce(kernels, f"{COLUMN}, splits = 4 : i64", "sum", (640, 33), (0,))
        reduce(kernels, f"{SPLIT}, splits = 8 : i64", "sum", (4096,), (0,))
    program = build_program(parse(kernels.text()))
    assert program.arena_bytes == 4 * 33 * 4
    assert (program.stats.kernels, program.stats.launches) == (4, 8)
    for step in program.steps:
        assert isinstance(step, Segment)
        for first, second in zip(step.launches[::2], step.launches[1::2], strict=True):
            left = {first.buffers[k].buffer for k in first.stores or ()}
            assert left == {second.buffers[k].buffer for k in second.loads or ()}


@pytest.mark.parametrize("entry", ["splits = 0 : i64", "block = -8 : i64", 'splits = "many"'])
def test_a_number_that_counts_nothing_is_refused(entry: str) -> None:
    kernels = Kernels()
    reduce(kernels, f"{COLUMN}, {entry}", "sum", (64, 64), (0,))
    with pytest.raises(RefusedError, match=r"expected a positive integer, got .*; remove the schedule"):
        apply(parse(kernels.text()), ["schedule-kernels"])


@needs_compiler
@pytest.mark.parametrize("schedule", ['kind = "row"', f"{SPLIT}, splits = 2 : i64"])
def test_an_extremum_keeps_nan_wherever_it_is(schedule: str) -> None:
    kernels = Kernels()
    for op in ("max", "min"):
        reduce(kernels, schedule, op, (300, 200), (1,))
    module = parse(kernels.text())
    x = np.random.default_rng(1).standard_normal((300, 200), np.float32)
    x[np.arange(200), np.arange(200)] = np.nan
    program = CpuProgram(build_program(apply(module, ["convert-fused-to-loops"])))
    for result, expected in zip(program(x, x), (np.max(x, 1), np.min(x, 1)), strict=True):
        np.testing.assert_array_equal(result, expected)


@needs_compiler
@pytest.mark.parametrize(("rows", "donated", "exponentials"), [(3, False, 1), (3, True, 2), (60, False, 2)])
def test_parts_keep_what_is_dear_in_the_result(rows: int, donated: bool, exponentials: int) -> None:
    """Not where it is the operand's memory, nor where caches do not hold it."""
    shape, kept = f"{rows}x5003xf32", f"{rows}x1xf32"
    text = softmax_program(shape, kept, "1", donated=donated)
    module = parse(text)
    (kernel,) = kernels_of(module)
    kernel.schedule = DictionaryAttr({"kind": StringAttr("split"), "splits": IntegerAttr(7, i64)})
    x = np.random.default_rng(2).standard_normal((rows, 5003), np.float32)
    x[1, [5, 4000]] = np.inf, np.nan
    program = CpuProgram(build_program(apply(module, ["convert-fused-to-loops"])))
    functions = program.program.source.partition("static void kernel")[2]
    assert len(re.findall(r"= fo_exp\w*\(", functions)) == exponentials
    expected = evaluate(parse(text), [x.copy()])
    np.testing.assert_allclose(as_list(program(x.copy()))[0], expected[0], rtol=1e-5)


def test_equal_reductions_are_made_once() -> None:
    """A mean with the axis and one without, and a variance."""
    full = "64x4096xf32"
    both = f"(tensor<{full}>) -> tensor<64x1xf32>", f"(tensor<{full}>) -> tensor<64xf32>"
    kernels = Kernels()
    body = [
        f"%s = graph.sum %a {{axes = array<i64: 1>, keepdims = true}} : {both[0]}",
        f"%r = graph.sum %a {{axes = array<i64: 1>}} : {both[1]}",
    ]
    kernels.add('kind = "row"', [full], body, ["64xf32", "64x1xf32"])
    source = build_program(apply(parse(kernels.text()), ["convert-fused-to-loops"])).source
    assert source.count("_lanes[64]") == 1


@needs_compiler
@pytest.mark.parametrize(
    ("rows", "columns", "splits", "mean"),
    [(97, 40, 3, 0.0), (97, 40, 3, 1000.0), (4099, 33, 7, 3.0), (700, 513, 32, 3.0)],
)
def test_a_variance_over_rows_goes_through_memory_once(rows: int, columns: int, splits: int, mean: float) -> None:
    """Parts are joined by their means; rounding the elements once changes the result by as much."""
    x = (np.random.default_rng(1).standard_normal((rows, columns)) + mean).astype(np.float32)
    full, kept = f"{rows}x{columns}xf32", f"{columns}xf32"
    parse_axes = f"{{axes = array<i64: 0>}} : (tensor<{full}>) -> tensor<{kept}>"
    kernels = Kernels()
    body = [f"%r = graph.mean %a {parse_axes}", f"%s = graph.var %a {parse_axes}"]
    kernels.add("", [full], body, [kept, kept])
    module = apply(parse(kernels.text()), ["decompose", "cse"])
    for kernel in kernels_of(module):
        kernel.schedule = DictionaryAttr({"kind": StringAttr("column"), "splits": IntegerAttr(splits, i64)})
    program = build_program(lowered(module, 1))
    assert program.stats.launches == 2
    found, variance = CpuProgram(program)(x)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found, wide.mean(0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(variance, wide.var(0), rtol=2**-24 * (32 + mean))


@pytest.mark.parametrize("rows, columns, sides", [(1024, 512, (16, 256)), (8192, 1024, (64, 1024))])
def test_blocks_have_long_lines_where_arrays_lie_outside_of_caches(
    rows: int, columns: int, sides: tuple[int, int]
) -> None:
    x, y = f"tensor<{rows}x{columns}xf32>", f"tensor<{columns}x{rows}xf32>"
    module = parse(f"""
func.func @main(%x: {x}, %y: {y}) -> {y} {{
  %r = fused.kernel(%a = %x : {x}, %b = %y : {y}) -> ({y}) attributes {{schedule = {{kind = "tile"}}}} {{
    %t = graph.permute_dims %a {{axes = array<i64: 1, 0>}} : ({x}) -> {y}
    %s = graph.add %t, %b : ({y}, {y}) -> {y}
    fused.yield %s : {y}
  }}
  func.return %r : {y}
}}""")
    text = text_of(apply(module, ["convert-fused-to-loops"]))
    tasks = int(text.partition("fused.tasks = ")[2].partition(" ")[0])
    assert tasks == -(-(columns + 15) // sides[0]) * rows // sides[1]  # from cache line to cache line
