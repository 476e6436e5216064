"""Blocks of a transposed load begin at cache lines, wherever in one its array begins."""

from __future__ import annotations

import re

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from ir_testing import apply, parse
from lowered_programs import Array, needs_compiler

from fuse_opt.lowering.emit import build_program
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.tools.compiler.api import compile
from fuse_opt.tools.compiler.compiled_program import CompiledProgram

pytestmark = needs_compiler
KINDS = {"f32": np.float32, "f64": np.float64, "i16": np.int16, "i8": np.int8}


def at(offset: int, values: Array) -> Array:
    """A copy of the array that begins so many bytes behind the start of a cache line."""
    memory = np.zeros(values.nbytes + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    copy = memory[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def program(rows: int, columns: int, kind: str, donated: bool) -> CompiledProgram:
    x, y = f"tensor<{rows}x{columns}x{kind}>", f"tensor<{columns}x{rows}x{kind}>"
    return compile(
        f"""
func.func @main(%x: {x}, %y: {y}{" {graph.donated}" if donated else ""}) -> {y} {{
  %t = graph.permute_dims %x {{axes = array<i64: 1, 0>}} : ({x}) -> {y}
  %s = graph.add %t, %y : ({y}, {y}) -> {y}
  func.return %s : {y}
}}""",
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("rows", "columns", "kind"),
    [(40, 80, "f32"), (17, 1000, "f64"), (100, 96, "i16"), (40, 192, "i8"), (33, 48, "f32")],
)
@pytest.mark.parametrize("donated", [False, True])
def test_every_offset(rows: int, columns: int, kind: str, donated: bool) -> None:
    compiled, step = program(rows, columns, kind, donated), np.dtype(KINDS[kind]).itemsize
    assert f"fo_transpose_offset_{kind}" in compiled.source
    rng = np.random.default_rng(1)
    x, y = rng.integers(-50, 50, (rows, columns)), rng.integers(-50, 50, (columns, rows))
    for offset in range(0, 64, max(step, 4)):
        source, other = at(offset, x.astype(KINDS[kind])), at(0, y.astype(KINDS[kind]))
        np.testing.assert_array_equal(compiled(source, other), (x.T + y).astype(KINDS[kind]))


def nontemporal(x: str, y: str, axes: str, add: bool) -> CpuProgram:
    """A transposed load, added to another array or only moved, whose result goes past the caches."""
    body = f"%r = graph.permute_dims %a {{axes = array<i64: {axes}>}} : ({x}) -> {y}"
    if add:
        body = body.replace("%r", "%t") + f"\n    %r = graph.add %t, %b : ({y}, {y}) -> {y}"
    module = parse(f"""
func.func @main(%x: {x}, %y: {y}) -> {y} {{
  %k = fused.kernel(%a = %x : {x}, %b = %y : {y}) -> ({y})
      attributes {{schedule = {{kind = "tile", stores = "nontemporal"}}}} {{
    {body}
    fused.yield %r : {y}
  }}
  func.return %k : {y}
}}""")
    return CpuProgram(build_program(apply(module, ["convert-fused-to-loops"])))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("shape", "axes", "kind"),
    [
        ((300, 131), "1, 0", "f32"),
        ((3, 70, 65), "2, 0, 1", "f32"),
        ((129, 257), "1, 0", "f64"),
        ((40, 33), "1, 0", "i8"),
    ],
)
@pytest.mark.parametrize("add", [False, True])
def test_results_past_the_caches(shape: tuple[int, ...], axes: str, kind: str, add: bool) -> None:
    order = [int(axis) for axis in axes.split(",")]
    sizes = "x".join(map(str, shape)), "x".join(str(shape[axis]) for axis in order)
    program = nontemporal(f"tensor<{sizes[0]}x{kind}>", f"tensor<{sizes[1]}x{kind}>", axes, add)
    assert ("fo_stream_" in program.source) == (kind != "i8")  # turning bytes takes longer than memory does
    rng = np.random.default_rng(1)
    x, y = rng.integers(-50, 50, shape), rng.integers(-50, 50, [shape[axis] for axis in order])
    wanted = (x.transpose(order) + y * add).astype(KINDS[kind])
    for offset in (0, 8, 24, 56):
        result = at(offset, np.zeros_like(wanted))
        program(x.astype(KINDS[kind]), y.astype(KINDS[kind]), out=[result])
        np.testing.assert_array_equal(result, wanted)


@needs_guard_pages
@pytest.mark.parametrize("shape", [(1008, 80), (70, 1008), (1100, 130), (33, 17)])
def test_lines_are_asked_for_ahead_of_those_that_are_turned(shape: tuple[int, int]) -> None:
    """What is asked for may lie behind an operand; lines of a block do not compete for the same sets of a cache."""
    (rows, columns), turned = shape, shape[::-1]
    x, y = f"tensor<{rows}x{columns}xf32>", f"tensor<{columns}x{rows}xf32>"
    program = nontemporal(x, y, "1, 0", True)
    assert "fo_prefetch_lines_f32(" in program.source and "fo_prefetch_f32(" in program.source
    (line,) = {int(step) for step in re.findall(r"fo_transpose_f32\(.*, (\d+)\);", program.source)}
    assert line * 4 % 2048
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(each).astype(np.float32) for each in (shape, turned))
    with guarded() as allocate:
        for at_end in (True, False):
            given, out = [allocate(each, at_end=at_end) for each in (a, b)], allocate(np.zeros_like(b), at_end=at_end)
            program(*given, out=[out])
            np.testing.assert_array_equal(out, a.T + b)
            del given, out


@pytest.mark.parametrize(("rows", "asks"), [(640, False), (1024, True)])
def test_what_a_second_cache_holds_is_not_asked_for(rows: int, asks: bool) -> None:
    assert ("fo_prefetch_lines_f32(" in program(rows, 1024, "f32", False).source) == asks


def test_lines_that_do_not_begin_alike_are_left_as_they_are() -> None:
    assert "fo_transpose_offset" not in program(64, 100 + 3, "f32", False).source
