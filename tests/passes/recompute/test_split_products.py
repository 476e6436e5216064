"""Products of their own for parts of a product: budgets try them where nothing fits without."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
from ir_testing import evaluate, parse, random_arguments, text_of

import fuse_opt
from fuse_opt.passes.recompute.budget import within_budget
from fuse_opt.passes.recompute.splitting.split_products import SplitProductsPass, reads_products_in_parts
from fuse_opt.tools.compiler.pipeline import make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context

RUN = partial(run_pipeline, ctx=make_context())
WIDE = 64 * 256 * 4
"""Bytes of the value, of which a quarter is read late, and of each of two that are alive then."""


def program(columns: int = 256) -> str:
    wide, part, rest = (f"tensor<64x{n}xf32>" for n in (columns, columns // 4 * 3, columns // 4))
    middle = columns // 4 * 3
    square, first, last = (
        f"tensor<{a}x{b}xf32>" for a, b in ((columns, columns), (middle, columns), (columns, columns // 4))
    )

    def part_of(name: str, begin: int, end: int, kind: str) -> str:
        bounds = f"starts = array<i64: 0, {begin}>, stops = array<i64: 64, {end}>, steps = array<i64: 1, 1>"
        return f"%{name} = graph.slice %d {{{bounds}}} : ({wide}) -> {kind}"

    return f"""func.func @main(%g: {wide}, %w: {square}, %v: {first}, %u: {last}) -> {rest} {{
  %d = graph.matmul %g, %w : ({wide}, {square}) -> {wide}
  {part_of("a", 0, middle, part)}
  %s = graph.matmul %a, %v : ({part}, {first}) -> {wide}
  %t = graph.matmul %s, %w : ({wide}, {square}) -> {wide}
  %z = graph.matmul %t, %u : ({wide}, {last}) -> {rest}
  {part_of("b", middle, columns, rest)}
  %r = graph.add %b, %z : ({rest}, {rest}) -> {rest}
  func.return %r : {rest}
}}"""


@pytest.mark.parametrize(("budget", "split"), [(3 * WIDE, False), (2 * WIDE + WIDE // 4, True)])
def test_budgets_split_products_where_nothing_fits_without(budget: int, split: bool) -> None:
    module = parse(program())
    arguments = random_arguments(module, 1)
    values = evaluate(module, arguments)
    passes = within_budget(module, make_passes(None), budget, RUN)
    assert any(isinstance(each, SplitProductsPass) for each in passes) == split
    run_pipeline(module, passes, make_context())
    near = 2e-6 * float(np.abs(values[0]).max())  # sums of terms of that size, in another order
    np.testing.assert_allclose(evaluate(module, arguments)[0], values[0], rtol=1e-4, atol=near)
    assert fuse_opt.compile(program(), budget=budget).stats.arena_bytes <= budget


def test_the_least_budget_is_kept_and_no_byte_less() -> None:
    with pytest.raises(fuse_opt.InputError) as refusal:
        fuse_opt.compile(program(), budget=1)
    said = re.search(r"(?:least budget is|give a budget of) (\d+)B", str(refusal.value))
    assert said is not None
    least = int(said[1])
    assert least <= 2 * WIDE + WIDE // 4
    assert fuse_opt.compile(program(), budget=least).stats.arena_bytes == least
    with pytest.raises(fuse_opt.InputError):
        fuse_opt.compile(program(), budget=least - 1)


def test_a_second_run_finds_nothing() -> None:
    module = parse(program())
    assert reads_products_in_parts(module)
    run_pipeline(module, [SplitProductsPass()], make_context())
    once = text_of(module)
    assert not reads_products_in_parts(module)
    run_pipeline(module, [SplitProductsPass()], make_context())
    assert text_of(module) == once
