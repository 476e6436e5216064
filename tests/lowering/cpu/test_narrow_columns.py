"""Sums over the columns of short rows that no second level cache holds: a row at a time, and what they come to."""

from __future__ import annotations

import numpy as np
import pytest
from ir_testing import apply, evaluate, parse, text_of
from lowered_programs import as_list, assert_close, needs_compiler

from fuse_opt.lowering.cpu import column_moments, outer_vector_stage
from fuse_opt.lowering.emit import build_program
from fuse_opt.runtime.cpu.program import CpuProgram

PASSES = ["decompose", "fuse-elementwise", "fuse-row", "wrap-kernels", "schedule-kernels"]


def sums(rows: int, columns: int, operands: int = 1) -> str:
    """Of one operand, or of products of two."""
    t, row = f"tensor<{rows}x{columns}xf32>", f"tensor<{columns}xf32>"
    names = [f"%x{k}" for k in range(operands)]
    arguments = ", ".join(f"{name}: {t}" for name in names)
    product, summed = "", "%x0"
    for number, name in enumerate(names[1:]):
        product, summed = f"{product}%p{number} = graph.multiply {summed}, {name} : ({t}, {t}) -> {t}\n", f"%p{number}"
    return f"""func.func @main({arguments}) -> {row} {{
      {product}%s = graph.sum {summed} {{axes = array<i64: 0>}} : ({t}) -> {row}
      func.return %s : {row}
    }}"""


def rows_of(text: str) -> int:
    """How many rows the first loop of a kernel takes at a time."""
    source = build_program(parse(text)).source
    loop = source[source.index("for (long column") :].split("{\n")[0]
    return int(loop.split("+= ")[1].rstrip(") ")) if "+= " in loop else 1


@pytest.mark.parametrize(
    ("rows", "columns", "operands", "expected"),
    [
        (49152, 64, 1, 1),
        (4096, 64, 1, 8),  # in the second level cache
        (43835, 73, 1, 8),  # in the third one, and no whole lines
        (100000, 73, 1, 1),
        (30000, 400, 1, 8),  # long rows
        (24576, 64, 2, 4),
        (49152, 73, 2, 1),
        (49152, 64, 3, 2),
    ],
)
def test_how_many_rows_at_a_time(rows: int, columns: int, operands: int, expected: int) -> None:
    assert rows_of(text_of(apply(parse(sums(rows, columns, operands)), PASSES))) == expected


def test_a_schedule_that_says_how_many_is_kept() -> None:
    module = text_of(apply(parse(sums(49152, 64)), PASSES))
    assert rows_of(module.replace('kind = "column"', 'kind = "column", rows_at_a_time = 4 : i64')) == 4


@pytest.mark.sampled(6)
@needs_compiler
@pytest.mark.parametrize("columns", (1, 5, 16, 73, 300))
@pytest.mark.parametrize("operands", (1, 2))
def test_values(columns: int, operands: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outer_vector_stage, "SECOND_LEVEL_CACHE", 1)
    monkeypatch.setattr(outer_vector_stage, "HALF_OF_CACHES", 1)
    random = np.random.default_rng(columns)
    inputs = [random.standard_normal((517, columns), np.float32) for _ in range(operands)]
    module = apply(parse(sums(517, columns, operands)), PASSES)
    assert_close(as_list(CpuProgram(build_program(module))(*inputs)), evaluate(module, inputs))


def variances(rows: int, columns: int) -> str:
    t, row = f"tensor<{rows}x{columns}xf32>", f"tensor<{columns}xf32>"
    return f"""func.func @main(%x: {t}) -> {row} {{
      %v = graph.var %x {{axes = array<i64: 0>}} : ({t}) -> {row}
      func.return %v : {row}
    }}"""


def test_moments_take_several() -> None:
    """They read what they sum from accumulators in memory: of 208 columns one row at a time took 1.5 times as long."""
    assert rows_of(text_of(apply(parse(variances(2520, 208)), PASSES))) == 4


@pytest.mark.parametrize(("rows", "columns", "asked"), [(120000, 100, 8), (20000, 100, 0), (120000, 16, 0)])
def test_moments_ask_for_the_points_of_the_next_piece(rows: int, columns: int, asked: int) -> None:
    module = apply(parse(variances(rows, columns)), PASSES)
    assert build_program(module).source.count("fo_prefetch_f32(x") == asked


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize("rows", (1, 127, 128, 129, 1000))
def test_what_is_asked_for_may_lie_behind_the_end(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = apply(parse(variances(rows, 100)), PASSES)
    x = np.random.default_rng(rows).standard_normal((rows, 100), np.float32)
    expected = as_list(CpuProgram(build_program(module))(x))
    monkeypatch.setattr(column_moments, "HALF_OF_CACHES", 1)
    np.testing.assert_array_equal(as_list(CpuProgram(build_program(module))(x)), expected)
