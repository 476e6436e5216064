"""Schedules: every kind on every awkward extent gives what the reference gives, however its tasks are handed out."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import CudaOnCpu, needs_cxx
from ir_testing import apply, evaluate, parse, random_arguments, text_of
from ir_testing import kernels as kernels_of
from lowered_programs import Array, as_list, needs_compiler
from narrow_floats import decode, name_of
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.dialects.func import FuncOp

from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.program import Segment
from fuse_opt.passes.remarks import RefusedError
from fuse_opt.runtime.cpu import CpuProgram
from fuse_opt.runtime.stepwise import StepwiseProgram
from fuse_opt.runtime.thread_pool import num_threads, set_num_threads

SIZES = (1, 3, 7, 8, 9, 513)
STEP = {"float16": 2**-11, "bf16": 2**-8, "float32": 2**-24, "float64": 2**-53}
"""By float type: half its spacing at 1."""


class Kernels:
    """A function of many kernels, for one compilation."""

    def __init__(self) -> None:
        self.arguments: list[str] = []
        self.lines: list[str] = []
        self.results: list[tuple[str, str]] = []

    def add(self, schedule: str, operands: Sequence[str], body: Sequence[str], results: Sequence[str]) -> None:
        """A kernel over %a, %b ... with ops that make %r, %s ..., which have the types of `results`."""
        number = len(self.lines)
        names = [f"%x{number}_{k}" for k in range(len(operands))]
        self.arguments += [f"{name}: tensor<{kind}>" for name, kind in zip(names, operands, strict=True)]
        inner = ", ".join(
            f"%{'abc'[k]} = {n} : tensor<{t}>" for k, (n, t) in enumerate(zip(names, operands, strict=True))
        )
        outs = ", ".join(f"tensor<{kind}>" for kind in results)
        given = ", ".join(f"%{'rst'[k]}" for k in range(len(results)))
        attributes = f"attributes {{schedule = {{{schedule}}}}} " if schedule else ""
        yielded = f"fused.yield {given} : {outs}"
        text = "\n    ".join([*body, yielded])
        self.lines.append(
            f"  %y{number}:{len(results)} = fused.kernel({inner}) -> ({outs}) {attributes}{{\n    {text}\n  }}"
        )
        self.results += [(f"%y{number}#{k}", kind) for k, kind in enumerate(results)]

    def text(self) -> str:
        kinds = ", ".join(f"tensor<{kind}>" for _, kind in self.results)
        names = ", ".join(name for name, _ in self.results)
        head = f"func.func @main({', '.join(self.arguments)}) -> ({kinds}) {{"
        return "\n".join([head, *self.lines, f"  func.return {names} : {kinds}", "}"])


def typed(extents: Sequence[int], element: str) -> str:
    return "x".join([*map(str, extents), element])


def reduce(
    kernels: Kernels, schedule: str, op: str, extents: Sequence[int], axes: Sequence[int], element: str = "f32"
) -> None:
    kept = typed([n for axis, n in enumerate(extents) if axis not in axes], element)
    listed = f": {', '.join(map(str, axes))}" if axes else ""
    source = typed(extents, element)
    line = f"%r = graph.{op} %a {{axes = array<i64{listed}>}} : (tensor<{source}>) -> tensor<{kept}>"
    kernels.add(schedule, [source], [line], [kept])


def normalize(kernels: Kernels, schedule: str, extents: Sequence[int], axis: int, element: str = "f32") -> None:
    """Three stages: the largest, the sum of exponentials, the quotient; and what is stored once for a row."""
    full, kept = typed(extents, element), typed([1 if k == axis else n for k, n in enumerate(extents)], element)
    reduced = f"{{axes = array<i64: {axis}>, keepdims = true}} : (tensor<{full}>) -> tensor<{kept}>"
    body = [
        f"%m = graph.max %a {reduced}",
        f"%d = graph.subtract %a, %m : (tensor<{full}>, tensor<{kept}>) -> tensor<{full}>",
        f"%e = graph.exp %d : (tensor<{full}>) -> tensor<{full}>",
        f"%t = graph.sum %e {reduced}",
        f"%q = graph.reciprocal %t : (tensor<{kept}>) -> tensor<{kept}>",
        f"%r = graph.multiply %e, %q : (tensor<{full}>, tensor<{kept}>) -> tensor<{full}>",
        f"%s = graph.add %m, %b : (tensor<{kept}>, tensor<{kept}>) -> tensor<{kept}>",
    ]
    kernels.add(schedule, [full, kept], body, [full, kept])


def permute(kernels: Kernels, schedule: str, extents: Sequence[int], axes: Sequence[int], element: str = "f32") -> None:
    """A transpose, added to a straight operand and to one that is broadcast."""
    source, target = typed(extents, element), typed([extents[axis] for axis in axes], element)
    line = typed([extents[axes[-1]]], element)
    listed = ", ".join(map(str, axes))
    body = [
        f"%p = graph.permute_dims %a {{axes = array<i64: {listed}>}} : (tensor<{source}>) -> tensor<{target}>",
        f"%q = graph.subtract %p, %b : (tensor<{target}>, tensor<{target}>) -> tensor<{target}>",
        f"%r = graph.multiply %q, %c : (tensor<{target}>, tensor<{line}>) -> tensor<{target}>",
    ]
    kernels.add(schedule, [source, target, line], body, [target])


COLUMN, SPLIT, TILE = 'kind = "column"', 'kind = "split"', 'kind = "tile"'


def reductions(schedule: str) -> Kernels:
    kernels = Kernels()
    for rows in SIZES:
        for columns in SIZES:
            reduce(kernels, schedule, "sum" if rows != 9 else "max", (rows, columns), (0,))
    for extents, axes in (
        ((3, 513, 7), (1,)),
        ((7, 9, 8), (0, 2)),
        ((3, 8, 70), (0, 1)),
        ((513,), (0,)),
        ((65, 66), (1,)),
    ):
        reduce(kernels, schedule, "sum", extents, axes)
    return kernels


def kinds(schedule: str) -> Kernels:
    """Element types, empty tensors and none."""
    kernels = Kernels()
    for element in ("f16", "bf16", "f64", "i8", "ui8", "i64"):
        reduce(kernels, schedule, "sum" if element not in ("i8", "ui8") else "max", (41, 19), (0,), element)
    reduce(kernels, schedule, "any", (9, 33), (0,), "i1")
    reduce(kernels, schedule, "prod", (9, 33), (0,))
    reduce(kernels, schedule, "min", (300, 2), (0,))
    reduce(kernels, schedule, "sum", (0, 5), (0,))
    reduce(kernels, schedule, "sum", (5, 0, 3), (1,))
    reduce(kernels, schedule, "sum", (), ())
    return kernels


def stages(schedule: str) -> Kernels:
    kernels = Kernels()
    for extents, axis in (((9, 513), 0), ((300, 71), 0), ((3, 40, 9), 1), ((2, 700), 1), ((70, 3), 1), ((1, 1), 0)):
        normalize(kernels, schedule, extents, axis)
    normalize(kernels, schedule, (33, 17), 0, "f16")
    normalize(kernels, schedule, (33, 17), 0, "f64")
    return kernels


def tiles(schedule: str) -> Kernels:
    kernels = Kernels()
    for rows in SIZES:
        for columns in SIZES:
            permute(kernels, schedule, (rows, columns), (1, 0))
    for element in ("f16", "bf16", "f64", "i8", "i64"):
        permute(kernels, schedule, (33, 21), (1, 0), element)
    permute(kernels, schedule, (3, 17, 9, 20), (0, 3, 2, 1))
    permute(kernels, schedule, (5, 24, 40), (2, 0, 1))
    permute(kernels, schedule, (5, 24, 40), (1, 0, 2))
    permute(kernels, schedule, (0, 4), (1, 0))
    return kernels


def moves(schedule: str) -> Kernels:
    """What is only moved: squares in registers, and what is left over at both ends; every size of element."""
    kernels = Kernels()
    for element in ("f32", "f64", "i64", "i32", "i16", "f16", "bf16", "i8", "ui8", "i1"):
        for extents, axes in (((33, 50), (1, 0)), ((3, 16, 40), (0, 2, 1)), ((17, 2, 35), (2, 1, 0))):
            source, target = typed(extents, element), typed([extents[axis] for axis in axes], element)
            listed = f"{{axes = array<i64: {', '.join(map(str, axes))}>}}"
            line = f"%r = graph.permute_dims %a {listed} : (tensor<{source}>) -> tensor<{target}>"
            kernels.add(schedule, [source], [line], [target])
    return kernels


def lanes(schedule: str) -> Kernels:
    """Rows so long that reductions have several accumulators, with a last part of any length."""
    kernels = Kernels()
    for columns in (32, 33, 100, 128, 191, 512, 1000):
        for op in ("max", "min", "sum"):
            reduce(kernels, schedule, op, (5, columns), (1,))
    for element, op in (
        ("f16", "max"),
        ("bf16", "sum"),
        ("f64", "min"),
        ("i8", "max"),
        ("ui8", "min"),
        ("i64", "prod"),
    ):
        reduce(kernels, schedule, op, (3, 777), (1,), element)
    reduce(kernels, schedule, "any", (3, 777), (1,), "i1")
    reduce(kernels, schedule, "sum", (3, 4, 5, 130), (1, 3))
    normalize(kernels, schedule, (3, 700), 1)
    normalize(kernels, schedule, (3, 700), 1, "f16")
    return kernels


def elements(schedule: str) -> Kernels:
    """Short innermost dimensions, few long rows, and every way to broadcast."""
    kernels = Kernels()
    for extents in ((70, 3), (5, 9, 2), (2, 70001), (3, 1, 7), (1, 1), (), (0, 3), (4, 3, 1, 5)):
        for axis in range(max(len(extents), 1)):
            small = typed([n if k == axis else 1 for k, n in enumerate(extents)], "f32")
            full = typed(extents, "f32")
            line = f"%r = graph.add %a, %b : (tensor<{full}>, tensor<{small}>) -> tensor<{full}>"
            kernels.add(schedule, [full, small], [line], [full])
    source, turned = "40x6xf32", "6x40xf32"
    flipped = f"%r = graph.flip %a {{axes = array<i64: 1>}} : (tensor<{source}>) -> tensor<{source}>"
    kernels.add(schedule, [source], [flipped], [source])
    kernels.add(
        schedule,
        [turned],
        [f"%r = graph.permute_dims %a {{axes = array<i64: 1, 0>}} : (tensor<{turned}>) -> tensor<{source}>"],
        [source],
    )
    return kernels


CASES: dict[str, Callable[[], Kernels]] = {
    "column": lambda: reductions(COLUMN),
    "column in parts": lambda: reductions(f"{COLUMN}, splits = 4 : i64, block = 32 : i64"),
    "split": lambda: reductions(f"{SPLIT}, splits = 5 : i64"),
    "column kinds": lambda: kinds(f"{COLUMN}, splits = 3 : i64"),
    "split kinds": lambda: kinds(SPLIT),
    "column stages": lambda: stages(COLUMN),
    "column stages in parts": lambda: stages(f"{COLUMN}, splits = 3 : i64"),
    "split stages": lambda: stages(f"{SPLIT}, splits = 3 : i64"),
    "tile": lambda: tiles(TILE),
    "moves": lambda: moves(TILE),
    "lanes of rows": lambda: lanes('kind = "row"'),
    "lanes of parts": lambda: lanes(f"{SPLIT}, splits = 2 : i64"),
    "small tile": lambda: tiles(f"{TILE}, block = 8 : i64"),
    "pointwise": lambda: elements('kind = "pointwise"'),
}


def lowered(module: ModuleOp, grain: int | None) -> ModuleOp:
    """The module as loops, whose tasks are all handed out, `grain` at least at a time."""
    module = apply(module, ["convert-fused-to-loops"])
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and "fused.grain" in op.attributes and grain is not None:
            op.attributes["fused.grain"] = IntegerAttr(grain, i64)
    return module


def assert_within_bounds(actual: Sequence[Array], expected: Sequence[Array], about: str) -> None:
    """Integers are equal; floats within the spacing of their type, times the length of the longest sum of the tests."""
    for number, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert (a.dtype, a.shape) == (e.dtype, e.shape)
        step = 64 * STEP.get(name_of(e.dtype), 0.0)
        wide, other = decode(e).astype(np.float64), decode(a).astype(np.float64)
        scale = np.maximum(np.abs(wide), 8.0 if step else 0.0)
        fine = (wide == other) | (np.abs(wide - other) <= step * scale)
        assert np.all(fine), f"{about}, result {number}: {other[~fine][:3]} instead of {wide[~fine][:3]}"


def in_pieces(rng: random.Random) -> Any:
    """A loop that hands out tasks in pieces of any size, in any order."""
    task_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_long, ctypes.c_long)

    def run(task: Any, argument: int, count: int, grain: int) -> None:
        cuts = sorted({0, count, *rng.sample(range(count), min(count // 3, 5))})
        pieces = list(pairwise(cuts))
        rng.shuffle(pieces)
        for begin, end in pieces:
            task(argument, begin, end)

    return ctypes.CFUNCTYPE(None, task_type, ctypes.c_void_p, ctypes.c_long, ctypes.c_long)(run)


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_every_extent_and_every_way_to_hand_out_tasks(name: str) -> None:
    module = parse(CASES[name]().text())
    arguments = random_arguments(module, 3)
    with np.errstate(all="ignore"):
        expected = evaluate(module, [a.copy() for a in arguments])
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
def test_the_kinds_on_a_gpu(name: str, tmp_path: Path) -> None:
    module = parse(CASES[name]().text())
    arguments = random_arguments(module, 3)
    with np.errstate(all="ignore"):
        expected = evaluate(module, [a.copy() for a in arguments])
    actual = CudaOnCpu(apply(module, ["convert-fused-to-gpu"]), tmp_path).run("main", arguments)
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


@pytest.mark.parametrize("rows, columns, sides", [(1024, 512, (16, 256)), (8192, 1024, (64, 64))])
def test_blocks_are_square_where_arrays_lie_outside_of_caches(rows: int, columns: int, sides: tuple[int, int]) -> None:
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
