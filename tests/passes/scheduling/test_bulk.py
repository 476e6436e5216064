"""Segments of launches, and schedules of kernels."""

import pytest
from planned_programs import apply, kernels_of, parse
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, i64

import fuse_opt
from fuse_opt.passes.fusion.wrap_kernels import WrapKernelsPass
from fuse_opt.passes.remarks import RefusedError, Remark, collect, remark
from fuse_opt.passes.scheduling.bulk_launches import BulkLaunchesPass
from fuse_opt.passes.scheduling.schedule_kernels import ScheduleKernelsPass

T = "tensor<4x4xf32>"
PROGRAM = f"""
func.func @main(%x: {T}) -> ({T}, tensor<16xf32>) {{
  %a = graph.exp %x : ({T}) -> {T}
  %v = graph.reshape %a {{shape = array<i64: 16>}} : ({T}) -> tensor<16xf32>
  %b = graph.sin %v : (tensor<16xf32>) -> tensor<16xf32>
  %c = graph.matmul %a, %a : ({T}, {T}) -> {T}
  %d = graph.max %c {{axes = array<i64: 1>, keepdims = true}} : ({T}) -> tensor<4x1xf32>
  %e = graph.subtract %c, %d : ({T}, tensor<4x1xf32>) -> {T}
  %k = graph.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %f = graph.add %e, %k : ({T}, tensor<4xf32>) -> {T}
  func.return %f, %b : {T}, tensor<16xf32>
}}
"""


def wrapped(text: str = PROGRAM) -> ModuleOp:
    return apply(parse(text), WrapKernelsPass())


def segments(module: ModuleOp) -> list[int | None]:
    return [None if k.segment is None else k.segment.value.data for k in kernels_of(module)]


def kinds(module: ModuleOp) -> list[str | None]:
    return [kernel.schedule_kind() for kernel in kernels_of(module)]


def test_library_calls_end_segments_and_views_and_constants_do_not() -> None:
    assert segments(apply(wrapped(), BulkLaunchesPass())) == [0, 0, None, 1, 1, 1]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(0, [0, 0, None, 1, 1, 1]), (1, [0, 1, None, 2, 3, 4]), (2, [0, 0, None, 1, 1, 2]), (9, [0, 0, None, 1, 1, 1])],
)
def test_segments_are_no_longer_than_asked(limit: int, expected: list[int | None]) -> None:
    assert segments(apply(wrapped(), BulkLaunchesPass(max_launches=limit))) == expected


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (0, [0, 0, None, 1, 1, 1]),
        (1, [0, 1, None, 2, 3, 4]),
        (256, [0, 0, None, 1, 1, 2]),
        (255, [0, 1, None, 2, 2, 3]),
    ],
)
def test_segments_move_no_more_bytes_than_asked(limit: int, expected: list[int | None]) -> None:
    """%a and %b move 128 bytes each, %d 80, %e and %f 144; a launch of more than the limit is a segment of its own."""
    assert segments(apply(wrapped(), BulkLaunchesPass(max_bytes=limit))) == expected


def test_remark_of_a_segment() -> None:
    with collect() as remarks:
        apply(wrapped(), BulkLaunchesPass())
    assert [dict(r.numbers) for r in remarks if r.code == "segment"] == [
        {"segment": 0, "launches": 2, "bytes": 256, "depth": 2},
        {"segment": 1, "launches": 3, "bytes": 368, "depth": 3},
    ]


def test_segments_are_made_anew() -> None:
    module = apply(wrapped(), BulkLaunchesPass(max_launches=1))
    kernels_of(module)[2].segment = IntegerAttr(0, i64)
    text = str(apply(module, BulkLaunchesPass()))
    assert segments(module) == [0, 0, None, 1, 1, 1]
    assert str(apply(module, BulkLaunchesPass())) == text


def test_op_outside_of_kernels_and_kernel_run_op_by_op_end_segments() -> None:
    module = wrapped()
    own = kernels_of(module)
    own[4].schedule = DictionaryAttr({"kind": StringAttr("reference")})
    assert segments(apply(module, BulkLaunchesPass())) == [0, 0, None, 1, None, 2]
    text = str(wrapped()).replace("func.return", f"%bare = graph.exp %f : ({T}) -> {T}\nfunc.return")
    text = text.replace("%k = graph.constant", f"%o = graph.exp %e : ({T}) -> {T}\n%k = graph.constant")
    assert segments(apply(parse(text), BulkLaunchesPass())) == [0, 0, None, 1, 1, 2]


def test_no_kernels_no_segments() -> None:
    module = parse(PROGRAM)
    before = str(module)
    assert str(apply(module, BulkLaunchesPass(), ScheduleKernelsPass())) == before


def test_schedules() -> None:
    module = apply(wrapped(), ScheduleKernelsPass())
    assert kinds(module) == ["pointwise", "pointwise", "matmul", "row", "pointwise", "pointwise"]
    text = str(module)
    assert str(apply(module, ScheduleKernelsPass())) == text


def schedule_first(kind: str, **entries: int) -> ModuleOp:
    module = wrapped()
    numbers = {name: IntegerAttr(value, i64) for name, value in entries.items()}
    kernels_of(module)[3].schedule = DictionaryAttr({"kind": StringAttr(kind), **numbers})
    return apply(module, ScheduleKernelsPass())


def test_schedule_written_by_hand_is_kept_with_its_entries() -> None:
    assert kinds(schedule_first("reference"))[3] == "reference"
    schedule = kernels_of(schedule_first("row", rows=4))[3].schedule
    assert schedule is not None and schedule.data["rows"] == IntegerAttr(4, i64)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("pointwise", 'kind "pointwise" cannot run the kernel: it holds a reduction; remove .* write "row"'),
        ("library", 'kind "library" cannot run the kernel: it holds no op of a library'),
        ("pack", 'kind "pack" cannot run the kernel: it is one part'),
        (
            "rows",
            'kind "rows": expected one of pointwise, row, .*, library, reference',
        ),
    ],
)
def test_impossible_schedule_is_an_error(kind: str, message: str) -> None:
    with pytest.raises(RefusedError, match=message) as caught:
        schedule_first(kind)
    assert caught.value.op.name == "fused.kernel"


UNSCHEDULABLE = f"""
func.func @main(%x: {T}) -> ({T}, tensor<2x2xf32>) {{
  %r:2 = fused.kernel(%a = %x : {T}) -> ({T}, tensor<2x2xf32>) {{
    %b = graph.exp %a : ({T}) -> {T}
    %c = graph.slice %b {{starts = array<i64: 0, 0>, stops = array<i64: 2, 2>, steps = array<i64: 1, 1>}}
        : ({T}) -> tensor<2x2xf32>
    fused.yield %b, %c : {T}, tensor<2x2xf32>
  }}
  func.return %r#0, %r#1 : {T}, tensor<2x2xf32>
}}
"""


def test_kernel_that_is_not_one_pass_runs_op_by_op_and_a_remark_says_why() -> None:
    with collect() as remarks:
        module = apply(parse(UNSCHEDULABLE), ScheduleKernelsPass(), BulkLaunchesPass())
    assert kinds(module) == ["reference"]
    assert segments(module) == [None]
    assert [r.code for r in remarks] == ["unequal-results", "apart"]


def test_remarks_are_collected_by_the_innermost_and_only_there() -> None:
    module = wrapped()
    remark("some-pass", module, "code", "nobody hears this")
    with collect() as outer:
        remark("some-pass", module, "code", "one", count=1)
        with collect() as inner:
            remark("some-pass", module, "code", "two")
        remark("some-pass", module, "code", "three", ratio=0.5)
    assert outer[0] == Remark("some-pass", "builtin.module", "-", "code", "one", (("count", 1),))
    assert str(outer[1]) == "-: remark: [some-pass] code: 'builtin.module' three ratio=0.5"
    assert [r.message for r in inner] == ["two"]


def test_options_of_a_pipeline_hold_when_it_is_completed() -> None:
    text = """func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<2xf32>) {
      %a = graph.exp %x : (tensor<4xf32>) -> tensor<4xf32>
      %b = graph.slice %a {starts = array<i64: 1>, stops = array<i64: 3>} : (tensor<4xf32>) -> tensor<2xf32>
      %c = graph.sin %b : (tensor<2xf32>) -> tensor<2xf32>
      func.return %a, %c : tensor<4xf32>, tensor<2xf32>
    }"""
    unfused = "decompose,wrap-kernels,schedule-kernels,plan-memory"
    assert fuse_opt.compile(text, pipeline=unfused).stats.segments == 1
    limited = fuse_opt.compile(text, pipeline=f"{unfused},bulk-launches{{max-launches=1}}")
    assert limited.stats.segments == limited.stats.launches == 3
