"""Non-temporal stores: which kernels get them, and that what they store is what ordinary ones would."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from c_printing import BUILDS, build_helpers
from ir_testing import apply, kernels, parse, text_of
from lowered_programs import as_list, needs_compiler
from scheduled_kernels import Kernels, assert_within_bounds, in_pieces, lowered, normalize, typed, with_expected
from xdsl.dialects.builtin import StringAttr

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.lowering.emit import build_program
from fuse_opt.passes.remarks import RefusedError, collect
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.cpu.stepwise import StepwiseProgram

from sanitizer import sanitize  # isort: skip

NONTEMPORAL = 'stores = "nontemporal"'
ELEMENTS = ("f32", "f64", "f16", "bf16", "i8", "ui8", "i16", "i32", "i64")


def add_sum(
    written: Kernels, extents: Sequence[int], element: str, schedule: str = f'kind = "pointwise", {NONTEMPORAL}'
) -> None:
    full, line = typed(extents, element), typed(extents[-1:], element)
    written.add(
        schedule, [full, line], [f"%r = graph.add %a, %b : (tensor<{full}>, tensor<{line}>) -> tensor<{full}>"], [full]
    )


def add_line_sum(written: Kernels, extents: Sequence[int]) -> None:
    """Few long rows, which are cut into parts."""
    full, column = typed(extents, "f32"), typed([*extents[:-1], 1], "f32")
    line = f"%r = graph.add %a, %b : (tensor<{full}>, tensor<{column}>) -> tensor<{full}>"
    written.add(f'kind = "pointwise", {NONTEMPORAL}', [full, column], [line], [full])


def add_residual(written: Kernels, extents: Sequence[int], schedule: str) -> None:
    """Two results of each element, one of which two loops need, and a mask of i1."""
    full, row = typed(extents, "f32"), typed([*extents[:-1], 1], "f32")
    body = [
        f"%e = graph.exp %a : (tensor<{full}>) -> tensor<{full}>",
        f"%r = graph.add %e, %b : (tensor<{full}>, tensor<{full}>) -> tensor<{full}>",
        f"%m = graph.sum %r {{axes = array<i64: {len(extents) - 1}>, keepdims = true}} : (tensor<{full}>) -> tensor<{row}>",
        f"%s = graph.subtract %r, %m : (tensor<{full}>, tensor<{row}>) -> tensor<{full}>",
        f"%t = graph.greater %s, %b : (tensor<{full}>, tensor<{full}>) -> tensor<{full.replace('f32', 'i1')}>",
    ]
    written.add(schedule, [full, full], body, [full, full, full.replace("f32", "i1")])


def streamed_kernels() -> Kernels:
    written = Kernels()
    for element in ELEMENTS:
        add_sum(written, (5, 301), element)
        add_sum(written, (1000,), element)
    for size in (128, 129, 255, 1023):
        add_sum(written, (3, size), "f32")
        add_sum(written, (size,), "f32")
    add_sum(written, (1, 70000), "f32")
    add_line_sum(written, (3, 140001))
    row = f'kind = "row", {NONTEMPORAL}'
    for columns in (100, 256, 700):
        normalize(written, row, (5, columns), 1)
        add_residual(written, (7, columns), row)
    normalize(written, row, (3, 700), 1, "f16")
    normalize(written, row, (3, 700), 1, "f64")
    normalize(written, f'kind = "column", {NONTEMPORAL}', (9, 700), 0)
    return written


@needs_compiler
def test_every_type_and_size_is_what_the_reference_says() -> None:
    """However tasks are handed out, and wherever results begin."""
    module, arguments, expected = with_expected(streamed_kernels().text())
    program = build_program(lowered(module, 1))
    assert program.source.count("fo_stream_block_") > 60
    compiled = CpuProgram(program)
    first = as_list(compiled(*arguments))
    assert_within_bounds(first, expected, "streamed")
    for behind in (1, 3, 17):
        room = [np.zeros(a.size + 2 * behind, a.dtype) for a in first]
        views = [r[behind : behind + a.size].reshape(a.shape) for r, a in zip(room, first, strict=True)]
        compiled(*arguments, out=views)
        for view, whole, a in zip(views, room, first, strict=True):
            np.testing.assert_array_equal(view, a)
            assert not whole[:behind].any() and not whole[behind + a.size :].any(), "stores beyond the result"
    loop = in_pieces(random.Random(2))
    stepwise = StepwiseProgram(build_program(lowered(module, 1)), parallel_for=ctypes.cast(loop, ctypes.c_void_p).value)
    for a, b in zip(as_list(stepwise(*arguments)), first, strict=True):
        np.testing.assert_array_equal(a, b, err_msg="in pieces")


@needs_compiler
def test_nothing_undefined_is_done(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    written = Kernels()
    add_sum(written, (3, 301), "f32")
    add_sum(written, (257,), "i8")
    normalize(written, f'kind = "row", {NONTEMPORAL}', (3, 300), 1)
    module, arguments, expected = with_expected(written.text())
    sanitize(monkeypatch)
    assert_within_bounds(as_list(CpuProgram(build_program(lowered(module, 1)))(*arguments)), expected, "sanitized")
    assert "runtime error" not in capfd.readouterr().err


@pytest.mark.parametrize("compiler, machine", BUILDS)
def test_stretches_of_any_length_from_any_place_on(compiler: str, machine: str, tmp_path: Path) -> None:
    names = [
        f"fo_{kind}_{element}" for kind in ("stream", "stream_block", "line_offset") for element in ("i1", "f32", "f64")
    ]
    text = """
void stretch(const unsigned char *x, long at, unsigned char *y, long to, long n) {
  fo_stream_i1(x, at, y, to, n);
  fo_stream_end();
}
long block(const float *x, long at, float *y, long to, long n) {
  fo_stream_block_f32(x, at, y, to, n, 32);
  fo_stream_end();
  return fo_line_offset_f32(y, to);
}
"""
    library = build_helpers([*names, "fo_stream_end"], text, compiler, machine, tmp_path)
    library.block.restype = ctypes.c_long
    x = np.random.default_rng(3).integers(1, 100, 1024, np.uint8)
    for count in (0, 1, 63, 64, 65, 130, 333):
        for to in range(0, 130, 3):
            y = np.zeros(512, np.uint8)
            library.stretch(
                *(ctypes.c_void_p(x.ctypes.data), ctypes.c_long(5)), *(ctypes.c_void_p(y.ctypes.data), to, count)
            )
            np.testing.assert_array_equal(
                y, np.concatenate([np.zeros(to), x[5 : 5 + count], np.zeros(512 - to - count)])
            )
    floats = x.astype(np.float32)
    for count in (1, 31, 32):
        for to in range(20):
            y = np.zeros(64, np.float32)
            found = library.block(
                *(ctypes.c_void_p(floats.ctypes.data), 3), *(ctypes.c_void_p(y.ctypes.data), to, count)
            )
            assert found == (y.ctypes.data + 4 * to) % 64 // 4
            np.testing.assert_array_equal(y[to : to + count], floats[3 : 3 + count])
            assert np.count_nonzero(y) == count


def nontemporal(text: str, passes: Sequence[str] = ("convert-fused-to-loops",)) -> int:
    """How many calls for blocks the functions of a program hold."""
    return text_of(apply(parse(text), list(passes))).count("func.call @fo_stream_")


IN_PLACE = """
func.func @main(%x: tensor<1000xf32> {graph.donated}, %y: tensor<1000xf32>) -> (tensor<1000xf32>, tensor<1000xf32>) {
  %r:2 = fused.kernel(%a = %x : tensor<1000xf32>, %b = %y : tensor<1000xf32>) -> (tensor<1000xf32>, tensor<1000xf32>)
      attributes {INPLACE schedule = {kind = "pointwise", stores = "nontemporal"}} {
    %0 = graph.add %a, %b : (tensor<1000xf32>, tensor<1000xf32>) -> tensor<1000xf32>
    %1 = graph.subtract %a, %b : (tensor<1000xf32>, tensor<1000xf32>) -> tensor<1000xf32>
    fused.yield %0, %1 : tensor<1000xf32>, tensor<1000xf32>
  }
  func.return %r#0, %r#1 : tensor<1000xf32>, tensor<1000xf32>
}
"""


def test_a_loop_that_overwrites_what_it_reads_stores_as_usual() -> None:
    """Some neighbours would be computed again, from what they were overwritten with."""
    assert nontemporal(IN_PLACE.replace("INPLACE ", "")) == 3  # two blocks and the end
    assert nontemporal(IN_PLACE.replace("INPLACE", "inplace = array<i64: 0, 0>,")) == 0


@pytest.mark.parametrize(
    ("extents", "schedule"),
    [
        ((8, 127), 'kind = "pointwise"'),
        ((127,), 'kind = "pointwise"'),
        ((8, 300), 'kind = "pointwise", stores = "temporal"'),
    ],
)
def test_short_rows_and_ordinary_stores_stay(extents: Sequence[int], schedule: str) -> None:
    written = Kernels()
    add_sum(written, extents, "f32", schedule if "temporal" in schedule else f"{schedule}, {NONTEMPORAL}")
    assert "fo_stream" not in text_of(apply(parse(written.text()), ["convert-fused-to-loops"]))


CODES = ("nontemporal", "arithmetic-bound", "broken-lines", "short-rows", "stays-in-cache")


def schedule_remarks(text: str, passes: str = "schedule-kernels") -> list[tuple[str, str]]:
    """By kernel: why it stores as it does, and what its schedule says of stores."""
    with collect() as remarks:
        module = apply(parse(text), ["wrap-kernels", passes])
    codes = [r.code for r in remarks if r.code in CODES]
    flags = [_stores(kernel) for kernel in kernels(module)]
    return list(zip([*codes, *[""] * (len(flags) - len(codes))], flags, strict=True))


def _stores(kernel: KernelOp) -> str:
    said = None if kernel.schedule is None else kernel.schedule.data.get("stores")
    return said.data if isinstance(said, StringAttr) else ""


LARGE = "16777216xf32"


@pytest.mark.parametrize(
    ("argument", "body", "expected"),
    [
        (f"tensor<{LARGE}>", "%r = graph.relu %x : (T) -> T", [("nontemporal", "nontemporal")]),
        ("tensor<4194304xf32>", "%r = graph.relu %x : (T) -> T", [("", "")]),
        (f"tensor<{LARGE}>", "%r = graph.gelu %x : (T) -> T", [("arithmetic-bound", "")]),
        (f"tensor<{LARGE}>", "%r = graph.sum %x {axes = array<i64: 0>} : (T) -> tensor<f32>", [("", "")]),
        (
            "tensor<16384x1024xf32>",
            "%r = graph.slice %x {starts = array<i64: 0, 0>, stops = array<i64: 2048, 1024>} : (T) -> tensor<2048x1024xf32>",
            [("", "")],
        ),
    ],
)
def test_large_results_that_wait_for_memory(argument: str, body: str, expected: list[tuple[str, str]]) -> None:
    result = body.rpartition("-> ")[2].replace("T", argument)
    body = body.replace("T", argument)
    text = f"func.func @main(%x: {argument}) -> {result} {{\n  {body}\n  func.return %r : {result}\n}}"
    assert schedule_remarks(text) == expected


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (159, ("broken-lines", "")),
        (512, ("short-rows", "requested")),
        (576, ("nontemporal", "nontemporal")),
        (647, ("broken-lines", "requested")),
        (711, ("nontemporal", "nontemporal")),
    ],
)
def test_short_rows_and_those_that_share_cache_lines_go_through_the_caches(
    length: int, expected: tuple[str, str]
) -> None:
    rows = f"tensor<{(1 << 25) // length}x{length}xf32>"
    column = rows.replace(f"x{length}x", "x1x")
    text = f"""
func.func @main(%x: {rows}) -> {rows} {{
  %r = fused.kernel(%a = %x : {rows}) -> ({rows}) {{
    %0 = graph.sum %a {{axes = array<i64: 1>, keepdims = true}} : ({rows}) -> {column}
    %1 = graph.subtract %a, %0 : ({rows}, {column}) -> {rows}
    fused.yield %1 : {rows}
  }}
  func.return %r : {rows}
}}"""
    assert schedule_remarks(text) == [expected]


@pytest.mark.parametrize(
    ("length", "expected"),
    [(1024, "arithmetic-bound"), (8192, "nontemporal"), (16384, "nontemporal"), (16400, "arithmetic-bound")],
)
def test_rows_that_compute_more_go_past_the_caches_where_they_are_long(length: int, expected: str) -> None:
    rows = f"tensor<{(1 << 25) // length}x{length}xf32>"
    text = f"func.func @main(%x: {rows}) -> {rows} {{ %y = graph.softmax %x : ({rows}) -> {rows} func.return %y : {rows} }}"
    with collect() as remarks:
        apply(parse(text), ["decompose", "fuse-row", "wrap-kernels", "schedule-kernels"])
    assert [r.code for r in remarks if r.code in CODES] == [expected]


@pytest.mark.parametrize(
    ("length", "expected"),
    [(512, ("nontemporal", "nontemporal")), (517, ("broken-lines", "")), (1021, ("nontemporal", "nontemporal"))],
)
@pytest.mark.parametrize("repeated", [False, True])
def test_so_do_rows_that_loops_go_along(length: int, expected: tuple[str, str], repeated: bool) -> None:
    """Beside a row that is read anew for each; where elements are one row after another, all of them are a row."""
    count = (1 << 25) // length
    x = f"tensor<{count}x{length}xf32>"
    flat, row = f"tensor<{count * length}xf32>", f"tensor<{length}xf32>"
    repeats = f"""
    %0 = graph.tile %b {{repeats = array<i64: {count}>}} : ({row}) -> {flat}
    %1 = graph.add %a, %0 : ({flat}, {flat}) -> {flat}"""
    broadcast = f"\n    %1 = graph.add %a, %b : ({x}, {row}) -> {x}"
    kind = flat if repeated else x
    text = f"""
func.func @main(%x: {kind}, %y: {row}) -> {kind} {{
  %r = fused.kernel(%a = %x : {kind}, %b = %y : {row}) -> ({kind}) {{{repeats if repeated else broadcast}
    fused.yield %1 : {kind}
  }}
  func.return %r : {kind}
}}"""
    assert schedule_remarks(text) == [expected]
    alone = f"func.func @main(%x: {x}) -> {x} {{ %r = graph.relu %x : ({x}) -> {x} func.return %r : {x} }}"
    assert schedule_remarks(alone) == [("nontemporal", "nontemporal")]


def test_results_that_may_lie_in_place_or_are_read_again_soon_stay_in_caches() -> None:
    kind = "tensor<16777216xf32>"
    chain = f"""
func.func @main(%x: {kind} {{graph.donated}}, %y: {kind}) -> {kind} {{
  %a = graph.relu %y : ({kind}) -> {kind}
  %b = graph.negative %a : ({kind}) -> {kind}
  %r = graph.add %x, %b : ({kind}, {kind}) -> {kind}
  func.return %r : {kind}
}}"""
    assert schedule_remarks(chain) == [("nontemporal", "nontemporal"), ("stays-in-cache", ""), ("stays-in-cache", "")]
    small = kind.replace("16777216", "6291456")
    read = f"""
func.func @main(%x: {small}, %y: {small}, %z: {small}) -> ({small}, {small}) {{
  %r = fused.kernel(%a = %x : {small}, %b = %y : {small}, %c = %z : {small}) -> ({small}) {{
    %0 = graph.add %a, %b : ({small}, {small}) -> {small}
    %1 = graph.add %0, %c : ({small}, {small}) -> {small}
    fused.yield %1 : {small}
  }}
  %s = graph.negative %r : ({small}) -> {small}
  func.return %r, %s : {small}, {small}
}}"""
    assert schedule_remarks(read)[0] == ("stays-in-cache", "")
    assert schedule_remarks(
        read.replace("%r, %s :", "%r, %x :").replace("%s = graph.negative %r", "%s = graph.negative %x")
    )[0] == ("nontemporal", "nontemporal")


def test_the_caches_are_the_devices(tmp_path: Path) -> None:
    text = "func.func @main(%x: T) -> T {\n  %r = graph.relu %x : (T) -> T\n  func.return %r : T\n}".replace(
        "T", "tensor<4096xf32>"
    )
    known = (Path(__file__).resolve().parents[3] / "passes" / "devices" / "device_cpu.toml").read_text()
    own = tmp_path / "own.toml"
    own.write_text(
        known.replace("last_level_cache_bytes = 33554432", "last_level_cache_bytes = 8192").replace("4194304", "64")
    )
    assert schedule_remarks(text, f'schedule-kernels{{device="{own}"}}') == [("nontemporal", "nontemporal")]
    assert schedule_remarks(text, 'schedule-kernels{device="h100"}') == [("", "")]


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (
            'kind = "row", stores = "past"',
            'entry \'stores\': expected "temporal" or "requested" or "nontemporal" or "deferred", got "past"',
        ),
        ('kind = "reference", stores = "deferred"', "entry 'stores': expected generated code, or \"temporal\""),
        ('kind = "reference", stores = "nontemporal"', "entry 'stores': expected generated code, or \"temporal\""),
    ],
)
def test_an_entry_that_cannot_be_kept_is_refused(schedule: str, message: str) -> None:
    written = Kernels()
    normalize(written, schedule, (4, 8), 1)
    with pytest.raises(RefusedError) as error:
        apply(parse(written.text()), ["schedule-kernels"])
    assert message in str(error.value)
