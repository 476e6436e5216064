"""Rows whose length is no multiple of a vector: the same results, and nothing outside of them is touched."""

from __future__ import annotations

import ctypes
import platform
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from ir_testing import apply, evaluate, parse, random_arguments, text_of
from lowered_programs import assert_close, needs_compiler, run
from narrow_vectors import NARROW as FOR_NARROW

import fuse_opt
from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.loops.vector_widths import padded
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import find_c_compiler
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

PASSES = ["decompose", "fuse-elementwise", "fuse-row", "wrap-kernels", "schedule-kernels"]
SOFTMAX = "  %y = graph.softmax %x {axis = 1} : (tensor<ROWxf32>) -> tensor<ROWxf32>\n"
DOWN = "  %y = graph.softmax %x {axis = 0} : (tensor<ROWxf32>) -> tensor<ROWxf32>\n"
SQUARE = "  %y = graph.square %x : (tensor<ROWxKIND>) -> tensor<ROWxKIND>\n"
TOTALS = """  %s = graph.sum %x {axes = array<i64: 1>, keepdims = true} : (tensor<ROWxKIND>) -> tensor<3x1xKIND>
  %t = graph.max %x {axes = array<i64: 1>, keepdims = true} : (tensor<ROWxKIND>) -> tensor<3x1xKIND>
  %u = graph.add %s, %t : (tensor<3x1xKIND>, tensor<3x1xKIND>) -> tensor<3x1xKIND>
  %v = graph.multiply %x, %x : (tensor<ROWxKIND>, tensor<ROWxKIND>) -> tensor<ROWxKIND>
  %y = graph.subtract %v, %u : (tensor<ROWxKIND>, tensor<3x1xKIND>) -> tensor<ROWxKIND>
"""


NARROW = """  %z = graph.constant dense<0.0> : tensor<f32>
  %k = graph.greater %x, %z : (tensor<ROWxf32>, tensor<f32>) -> tensor<ROWxi1>
  %q = fused.kernel(%a = %x : tensor<ROWxf32>, %m = %k : tensor<ROWxi1>) -> (tensor<ROWxf32>) {
    %zero = graph.constant dense<0.0> : tensor<f32>
    %w = graph.where %m, %a, %zero : (tensor<ROWxi1>, tensor<ROWxf32>, tensor<f32>) -> tensor<ROWxf32>
    %s = graph.sum %w {axes = array<i64: 1>, keepdims = true} : (tensor<ROWxf32>) -> tensor<3x1xf32>
    %r = graph.add %w, %s : (tensor<ROWxf32>, tensor<3x1xf32>) -> tensor<ROWxf32>
    fused.yield %r : tensor<ROWxf32>
  }
  %y = graph.tanh %q : (tensor<ROWxf32>) -> tensor<ROWxf32>
"""


def program(body: str, length: int, kind: str) -> str:
    text = (
        f"func.func @main(%x: tensor<ROWxKIND>) -> tensor<ROWxKIND> {{\n{body}  func.return %y : tensor<ROWxKIND>\n}}\n"
    )
    return text.replace("ROW", f"3x{length}").replace("KIND", kind)


CASES = [
    *((SOFTMAX, length, "f32") for length in (5, 17, 40, 127, 129)),
    *((TOTALS, length, kind) for length, kind in ((7, "f64"), (19, "i32"), (143, "f16"), (257, "f32"))),
    (SQUARE, 21, "f32"),
    *((TOTALS, length, kind) for length, kind in ((77, "bf16"), (35, "f16"), (127, "bf16"), (69, "f16"))),
    *((NARROW, length, "f32") for length in (19, 77, 131)),
]


@pytest.mark.sampled(9)
@needs_compiler
@pytest.mark.parametrize(("body", "length", "kind"), CASES)
def test_rows_are_those_of_the_reference(body: str, length: int, kind: str) -> None:
    text = program(body, length, kind)
    arguments = random_arguments(parse(text), length)
    expected = evaluate(parse(text), [a.copy() for a in arguments])
    assert_close(run(apply(parse(text), PASSES), arguments), expected)


KEPT = """func.func @main(%x: R, %m: B, %r: R, %g: V, %b: V) -> (R, R, R) {
  %0 = graph.where %m, %x, %r : (B, R, R) -> R
  %1 = graph.add %0, %r : (R, R) -> R
  %2 = graph.layer_norm %1, %g, %b {axis = 1 : i64, epsilon = 1.0e-05 : f64} : (R, V, V) -> R
  %3 = graph.softmax %x {axis = 1 : i64} : (R) -> R
  func.return %1, %2, %3 : R, R, R
}"""


@pytest.mark.sampled(7)
@needs_compiler
@needs_guard_pages
@pytest.mark.usefixtures("wide_host")
@pytest.mark.parametrize("length", [5, 17, 20, 24, 31, 40, 59, 72, 75, 83, 120, 171, 237, 301])
def test_rows_are_the_same_whatever_registers_they_end_in(length: int) -> None:
    """Masks of registers of 256 bits leave out no lane, and add up in no other order, than those of 512."""
    text = KEPT.replace("R", f"tensor<5x{length}xf32>").replace("B", f"tensor<5x{length}xi1>")
    text, rng = text.replace("V", f"tensor<{length}xf32>"), np.random.default_rng(length)
    x, r, g, b = (rng.standard_normal(n, np.float32) for n in ((5, length), (5, length), length, length))
    given = [x, rng.random((5, length)) < 0.5, r, g, b]
    found: list[list[Any]] = []
    for pipeline in (FOR_NARROW, DEFAULT_PIPELINE):
        with guarded() as allocate:
            inside = [allocate(array, at_end=True) for array in given]
            found.append([each.copy() for each in fuse_opt.compile(text, pipeline=pipeline)(*inside)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(found[0], evaluate(parse(text), given), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_registers_that_are_full_have_no_mask() -> None:
    """Of 75 elements 72 are in registers of 256 bits, and 3 in one that is masked; of 72 all are."""
    for length, lanes in ((75, 8), (72, None)):
        source = fuse_opt.compile(program(SOFTMAX, length, "f32"), pipeline=FOR_NARROW).source
        bodies = re.findall(r"for \(long (lane\w*) = \w+; \1 < (\d+); [^{]*\{((?:\n {6,}.*)*)", source)
        assert {int(end) for lane, end, body in bodies if f">> ({lane} & 63)" in body} == ({lanes} - {None})


@pytest.mark.sampled(7)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize(
    ("body", "length", "kind"),
    [
        *((body, length, "f32") for body in (SOFTMAX, SQUARE, DOWN) for length in (9, 15, 49)),
        *((body, length, "f16") for body in (TOTALS, SQUARE) for length in (17, 49)),
    ],
)
def test_no_lane_leaves_the_arrays(body: str, length: int, kind: str) -> None:
    """The last row ends where a page begins that is not there; gcc 12 made blends with whole vectors of masks that it knew."""
    module = apply(parse(program(body, length, kind)), PASSES)
    (x,) = random_arguments(module, 1)
    expected = evaluate(module, [x])
    with guarded() as allocate:
        inside, result = allocate(x, at_end=True), allocate(np.zeros_like(x), at_end=True)
        run(module, [inside], out=[result])
        assert_close([result.copy()], expected)


def test_whole_vectors_have_no_mask() -> None:
    """Neither where nothing is left over, nor for elements that few machines have masks for."""
    texts = {
        (length, kind): text_of(apply(parse(program(SQUARE, length, kind)), [*PASSES, "convert-fused-to-loops"]))
        for length, kind in ((16, "f32"), (64, "f32"), (7, "i8"))
    }
    assert not [case for case, text in texts.items() if "scf.if" in text]


def test_what_whole_vectors_of_bytes_leave_is_a_loop_of_its_own() -> None:
    """Where it is no vector of half the width, which compilers make: sixteen bytes one after the other took as long as 128."""
    column = "  %y = graph.multiply %x, %w : (tensor<3xROWxi8>, tensor<ROWxi8>) -> tensor<3xROWxi8>\n"
    loops = dict[int, int]()
    for length in (64, 80, 96, 112, 128):
        types = "(%x: tensor<3xROWxi8>, %w: tensor<ROWxi8>) -> tensor<3xROWxi8>"
        text = f"func.func @main{types} {{\n{column}  func.return %y : tensor<3xROWxi8>\n}}"
        module = apply(parse(text.replace("ROW", str(length))), [*PASSES, "convert-fused-to-loops"])
        loops[length] = text_of(module).count("scf.parallel")
    assert loops == {64: 1, 80: 2, 96: 1, 112: 2, 128: 1}


def test_kept_rows_are_filled_up() -> None:
    text = text_of(apply(parse(program(SOFTMAX, 49, "f32")), [*PASSES, "convert-fused-to-loops"]))
    assert f"memref<{padded(49)}xf32>" in text
    body = text[text.index("scf.for %row") :]
    assert body.count("scf.if") == 6, (
        "twice where the argument is read, as what others load is zero; is there another row"
    )


@needs_compiler
def test_long_rows_are_kept_in_the_result() -> None:
    """Of 64 KiB, memory of the function's own has room; exponentials of longer rows are computed once, too."""
    text = program(SOFTMAX, 17001, "f32").replace("3x", "16x")
    assert text_of(apply(parse(text), [*PASSES, "convert-fused-to-loops"])).count("math.exp") == 1
    arguments = random_arguments(parse(text), 3)
    expected = evaluate(parse(text), [a.copy() for a in arguments])
    assert_close(run(apply(parse(text), PASSES), arguments), expected)


PROBE = """
unsigned fuse_probe(char *const *buffers) {
  unsigned small = 1, clear = 0x1f80, found;
#define SMALL(number) __asm__ volatile("vpbroadcastd %0, %%zmm" #number ::"r"(small) : "xmm" #number);
  REGISTERS
  __asm__ volatile("ldmxcsr %0" ::"m"(clear));
  fuse_segment_0(buffers, fuse_probe_serial);
  __asm__ volatile("stmxcsr %0" : "=m"(found));
  return found;
}
"""
"""Calls a program's segment with numbers below the normal ones in all vector registers; gives what the processor noted."""
SERIAL = """
static void fuse_probe_serial(void (*task)(void *, long, long), void *arg, long count, long grain) {
  (void)grain;
  task(arg, 0, count);
}
"""
DENORMAL_OPERAND = 2
HAS_MASKS = platform.machine() == "x86_64" and "avx512f" in Path("/proc/cpuinfo").read_text()


@needs_compiler
@pytest.mark.skipif(not HAS_MASKS, reason="no masked vectors")
@pytest.mark.parametrize("length", (17, 31, 79, 97, 127))
@pytest.mark.parametrize("body", ("rms_norm %b", "layer_norm %b", "gelu %b"))
def test_lanes_that_do_nothing_compute_nothing_small(body: str, length: int) -> None:
    """Masked loads of gcc 12 leave in a register what it held: with denormals there, a row took up to eleven times as long."""
    t, v = f"tensor<5x{length}xf32>", f"tensor<{length}xf32>"
    op = body.removesuffix(" %b")
    text = f"""func.func @main(%x: {t}, %b: {v}) -> {t} {{
      %a = graph.add %x, %b : ({t}, {v}) -> {t}
      %n = graph.{op} %a : ({t}) -> {t}
      %y = graph.multiply %n, %b : ({t}, {v}) -> {t}
      func.return %y : {t}
    }}"""
    source = CpuProgram(build_program(apply(parse(text), PASSES))).source
    registers = " ".join(f"SMALL({number})" for number in range(32))
    compiler, cache = find_c_compiler(), DiskCache()
    assert compiler is not None
    text = source + SERIAL + PROBE.replace("REGISTERS", registers)
    probe = compiler.load_shared(text, cache, ["fuse_probe"]).fuse_probe
    generator = np.random.default_rng(length)
    arrays = [generator.uniform(1, 2, shape).astype(np.float32) for shape in ((5, length), length, (5, length))]
    found = probe((ctypes.c_void_p * 3)(*(each.ctypes.data for each in arrays)))
    assert not found & DENORMAL_OPERAND


@needs_compiler
def test_masks_of_numbers_and_of_sizes_in_one_kernel() -> None:
    """Masks of sizes read constants that were made before the masks of numbers that lie in front of them (a KeyError once)."""
    program = fuse_opt.compile("""
      func.func @f(%a: tensor<17xf32>, %x: tensor<?xf32>, %y: tensor<?x17xf32>) -> tensor<f32> {
        %s = graph.sum %a {axes = array<i64: 0>} : (tensor<17xf32>) -> tensor<f32>
        %t = graph.sum %x {axes = array<i64: 0>} : (tensor<?xf32>) -> tensor<f32>
        %v = graph.sum %y {axes = array<i64: 0, 1>} : (tensor<?x17xf32>) -> tensor<f32>
        %r = graph.add %s, %t : (tensor<f32>, tensor<f32>) -> tensor<f32>
        %q = graph.multiply %r, %v : (tensor<f32>, tensor<f32>) -> tensor<f32>
        func.return %q : tensor<f32>
      }""")
    for columns, rows in ((1, 1), (21, 3), (32, 16)):
        given = (np.ones(n, np.float32) for n in (17, columns, (rows, 17)))
        assert program(*given) == (17 + columns) * 17 * rows
    assert program.stats.kernels == 1


ROWS_OF_SIZES = """
  func.func @f(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]}, %w: tensor<?xf32> {graph.dims = ["n"]}) -> tensor<?x?xf32>
      attributes {graph.symbols = {n = {least = LEAST : i64, most = 400 : i64}}} {
    %y = graph.add %x, %w : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
    %z = graph.layer_norm %y, %w : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
    func.return %z : tensor<?x?xf32>
  }"""
"""Rows of an extent that is a size, which is never 0 or may be."""


@needs_guard_pages
@pytest.mark.parametrize("least", (0, 1))
def test_the_last_vector_of_rows_of_a_size(least: int) -> None:
    """Elements left over, of which some are as many as lanes, are all joined and stored, and nothing behind them is touched."""
    text, rng = ROWS_OF_SIZES.replace("LEAST", str(least)), np.random.default_rng(6)
    program = fuse_opt.compile(text)
    with guarded() as allocate:
        for columns in (1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 300, 400):
            given = [rng.standard_normal(shape).astype(np.float32) for shape in ((5, columns), (columns,))]
            inside = [allocate(each, at_end=True) for each in (*given, np.zeros_like(given[0]))]
            program(*inside[:2], out=inside[2:])
            assert_close([inside[2].copy()], [fuse_opt.evaluate(text, *given)])


def test_rows_that_have_an_element_do_not_ask_for_a_rest() -> None:
    program = fuse_opt.compile(ROWS_OF_SIZES.replace("LEAST", "1"))
    program(np.ones((2, 3), np.float32), np.ones(3, np.float32))
    assert "if (is_left" not in program.source


@needs_compiler
def test_masks_are_made_outside_of_loops_that_do_not_change_them() -> None:
    """Of columns of a matrix, a block of which is added up row by row."""
    text = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]}) -> tensor<?xf32> {
  %y = graph.sum %x {axes = array<i64: 0>} : (tensor<?x?xf32>) -> tensor<?xf32>
  func.return %y : tensor<?xf32>
}"""
    sums = fuse_opt.compile(text)
    for rows, columns in ((1, 1), (9, 15), (40, 33), (300, 271), (131, 512)):
        x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
        np.testing.assert_allclose(sums(x), x.sum(0, dtype=np.float64), 1e-5, 1e-4)
    before, _, after = sums.source.partition("for (long strip")
    assert "long bits = fo_bits(" in before
    assert "fo_bits(" not in after.partition("r_total[")[0]
