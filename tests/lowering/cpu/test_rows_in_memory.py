"""Sums along rows that memory holds: one register of accumulators in a loop that is not unrolled, and what they come to."""

from __future__ import annotations

import numpy as np
import pytest
from ir_testing import apply, evaluate, parse, text_of
from lowered_programs import as_list, assert_close, needs_compiler

from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.kernel import loop_splitting
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.host.thread_pool import num_threads, set_num_threads

PASSES = ["decompose", "fuse-row", "wrap-kernels", "schedule-kernels"]
STREAMED = "#pragma GCC unroll 1"


def of_rows(op: str, rows: int, columns: int, kind: str = "f32") -> str:
    t = f"tensor<{rows}x{columns}x{kind}>"
    return f"func.func @main(%x: {t}) -> {t} {{ %y = graph.{op} %x : ({t}) -> {t} func.return %y : {t} }}"


def sums(rows: int, columns: int) -> str:
    """Of products that a mask keeps."""
    t, row = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows}xf32>"
    mask = t.replace("f32", "i1")
    return f"""func.func @main(%x: {t}, %y: {t}, %keep: {mask}) -> {row} {{
      %z = graph.multiply %x, %y : ({t}, {t}) -> {t}
      %k = graph.where %keep, %z, %x : ({mask}, {t}, {t}) -> {t}
      %s = graph.sum %k {{axes = array<i64: 1>}} : ({t}) -> {row}
      func.return %s : {row}
    }}"""


def source(text: str) -> str:
    return build_program(apply(parse(text), PASSES)).source


@pytest.mark.parametrize(
    ("op", "columns", "kind", "loops"),
    [
        ("layer_norm", 539, "f32", 2),
        ("layer_norm", 171, "f32", 0),  # overlapping rows
        ("layer_norm", 4001, "f32", 0),  # more than one register of sums is exact for
        ("l2_normalize", 539, "f32", 1),
        ("l2_normalize", 539, "f64", 0),
        ("softmax", 539, "f32", 0),
    ],
)
def test_which_loops_are_not_unrolled(op: str, columns: int, kind: str, loops: int) -> None:
    assert source(of_rows(op, (80 << 20) // (8 * columns), columns, kind)).count(STREAMED) == loops
    assert STREAMED not in source(of_rows(op, 64, columns, kind))


@pytest.mark.parametrize(("rows", "columns", "loops"), [(8000, 97, 1), (1000, 97, 0), (4000, 191, 1), (2000, 467, 0)])
def test_nor_are_those_of_short_rows_that_are_only_reduced_behind_the_second_cache(
    rows: int, columns: int, loops: int
) -> None:
    assert source(sums(rows, columns)).count(STREAMED) == loops
    assert STREAMED not in source(of_rows("l2_normalize", rows, columns))


def test_a_schedule_that_says_how_many_accumulators_is_kept() -> None:
    module = text_of(apply(parse(of_rows("layer_norm", 40000, 539)), PASSES))
    assert STREAMED not in build_program(parse(module.replace("schedule = {", "schedule = {lanes = 64, "))).source


@needs_compiler
@pytest.mark.parametrize("columns", (32, 97, 203, 539))
def test_values(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_splitting, "OUTSIDE_CACHES", 1)
    random, before = np.random.default_rng(columns), num_threads()
    x, y = (random.standard_normal((67, columns), np.float32) for _ in range(2))
    keep = random.random((67, columns)) < 0.7
    cases = ((sums(67, columns), [x, y, keep]), (of_rows("l2_normalize", 67, columns), [x]))
    for text, inputs in cases:
        module = apply(parse(text), PASSES)
        program = CpuProgram(build_program(module))
        assert (STREAMED in program.source) == (columns >= 96 or len(inputs) == 3)
        found = program(*inputs)
        assert_close(as_list(found), evaluate(module, inputs))
        try:
            for threads in range(1, 9):
                set_num_threads(threads)
                np.testing.assert_array_equal(program(*inputs), found)
        finally:
            set_num_threads(before)


@needs_compiler
@pytest.mark.parametrize("op", ("layer_norm", "l2_normalize"))
def test_stores_and_overlapping_rows_leave_bits_as_they_are(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_splitting, "OUTSIDE_CACHES", 1)
    x = np.random.default_rng(3).standard_normal((37, 300), np.float32)
    module = text_of(apply(parse(of_rows(op, 37, 300)), PASSES))
    entries = ('overlap = "always"', 'stores = "nontemporal"', 'stores = "deferred"')
    expected = CpuProgram(build_program(parse(module)))(x)
    for entry in entries:
        program = CpuProgram(build_program(parse(module.replace("schedule = {", f"schedule = {{{entry}, "))))
        np.testing.assert_array_equal(program(x), expected, err_msg=entry)
