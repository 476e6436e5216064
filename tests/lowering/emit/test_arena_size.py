"""The arena of a program: known without the code of its kernels, which work where nothing else lives."""

from __future__ import annotations

import pytest
from gradients import gradient
from ir_testing import evaluate, parse, random_arguments

import fuse_opt
from fuse_opt.lowering.convert.arena_size import ArenaSizes
from fuse_opt.lowering.emit.program_builder import program_function

COLUMNS = "tensor<4096x96xf32>"
SUMS = f"""func.func @main(%x: {COLUMNS}, %w: tensor<96x96xf32>) -> (tensor<96xf32>, tensor<96x96xf32>) {{
  %p = graph.matmul %x, %w : ({COLUMNS}, tensor<96x96xf32>) -> {COLUMNS}
  %q = graph.matmul %p, %w : ({COLUMNS}, tensor<96x96xf32>) -> {COLUMNS}
  %s = graph.sum %q {{axes = array<i64: 0>, keepdims = false}} : ({COLUMNS}) -> tensor<96xf32>
  %t = graph.multiply %w, %s : (tensor<96x96xf32>, tensor<96xf32>) -> tensor<96x96xf32>
  %u = graph.matmul %t, %w : (tensor<96x96xf32>, tensor<96x96xf32>) -> tensor<96x96xf32>
  func.return %s, %u : tensor<96xf32>, tensor<96x96xf32>
}}"""
"""The sum has parts; %p, which is dead then, has room for them."""


@pytest.mark.parametrize("text", [gradient(3), SUMS], ids=["gradient", "sums"])
def test_the_size_is_that_of_the_program(text: str) -> None:
    sizes = ArenaSizes()
    for pipeline in ("default", "unfused"):
        module = fuse_opt.optimize(text, pipeline)
        expected = fuse_opt.compile(text, pipeline=pipeline).stats.arena_bytes
        assert sizes.of(module, program_function) == expected > 0
        assert sizes.of(module, program_function) == expected  # from what is known


def test_kernels_work_where_dead_values_were() -> None:
    program = fuse_opt.compile(SUMS)
    assert "parts" in program.source
    assert program.stats.arena_bytes == 2 * 4096 * 96 * 4 == program.stats.lower_bound_bytes
    arguments = random_arguments(parse(SUMS), 1)
    for got, wanted in zip(program(*arguments), evaluate(parse(SUMS), arguments), strict=True):
        assert abs(got - wanted).max() <= 1e-3 * abs(wanted).max()
