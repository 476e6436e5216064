"""Budgets of memory: kept with the least recomputation, or refused with what is alive at once."""

from __future__ import annotations

from functools import partial

import pytest
from gradients import ONE, gradient
from ir_testing import assert_same_bits, evaluate, kernels, parse, random_arguments, text_of

import fuse_opt
from fuse_opt.passes.recompute.budget import OverBudget, parse_budget, within_budget
from fuse_opt.passes.remarks import RefusedError
from fuse_opt.tools.commands.fuse_opt_main import main
from fuse_opt.tools.compiler.pipeline import make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context

RUN = partial(run_pipeline, ctx=make_context())


def test_the_arena_fits() -> None:
    source = parse(gradient(4))
    arguments = random_arguments(source, 1)
    values = evaluate(source, arguments)
    free = fuse_opt.optimize(source.clone())
    arenas: list[int] = []
    for budget in (1 << 40, 4 * ONE):
        module = source.clone()
        run_pipeline(module, within_budget(module, make_passes(None), budget, RUN), make_context())
        arenas.append(_arena(module))
        assert arenas[-1] <= budget
        assert_same_bits(evaluate(module, arguments), values)
        if budget == 1 << 40:
            assert text_of(module) == text_of(free)
    assert arenas == sorted(arenas, reverse=True) and arenas[0] > arenas[-1]
    assert len(kernels(free)) > 1


def _arena(module: object) -> int:
    text = text_of(module)  # pyright: ignore[reportArgumentType]
    return int(text.partition("fused.arena = {")[2].partition("size = ")[2].partition(" ")[0])


def test_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    needs = rf"'graph.matmul' needs {2 * ONE} bytes at once: %\w+ \({ONE} bytes\), .*; the least budget is {2 * ONE}B"
    with pytest.raises(fuse_opt.InputError, match=rf"<string>:\d+:3: error: budget of 1000 bytes: {needs}"):
        fuse_opt.compile(gradient(3), budget="1000B")
    assert fuse_opt.compile(gradient(3), budget=2 * ONE).stats.arena_bytes == 2 * ONE
    with pytest.raises(RefusedError, match=r"the least that .* reach is \d+ bytes, as '.*' has alive %"):
        within_budget(parse(gradient(12)), make_passes("rematerialize,wrap-kernels,plan-memory"), 3 * ONE, RUN)
    with pytest.raises(RefusedError, match="budget: expected a pipeline with 'plan-memory'"):
        within_budget(parse(gradient(1)), make_passes("rematerialize"), 1, RUN)
    for text in ("64", "-1MiB", "64Mib", "MiB"):
        with pytest.raises(ValueError, match="budget: expected a number with one of the units"):
            parse_budget(text)
    assert [parse_budget(text) for text in ("64MiB", "1.5 kB", "7B")] == [64 << 20, 1500, 7]
    assert main(["-", "--default", "--budget=12"]) == 2
    assert "argument --budget: expected a number with one of the units" in capsys.readouterr().err


def test_the_least_budget_is_named() -> None:
    """Whatever was asked for: what is named is kept, and not a byte less."""
    for asked in (1, ONE, 2 * ONE + 5):
        with pytest.raises(RefusedError) as refused:
            within_budget(parse(gradient(5)), make_passes(UNFUSED), asked, RUN)
        assert isinstance(refused.value, OverBudget)
        least = refused.value.least
        module = parse(gradient(5))
        run_pipeline(module, within_budget(module, make_passes(UNFUSED), least, RUN), make_context())
        assert _arena(module) == least > asked
        with pytest.raises(RefusedError, match=rf"{least}B"):
            within_budget(parse(gradient(5)), make_passes(UNFUSED), least - 1, RUN)


UNFUSED = "rematerialize,wrap-kernels,plan-memory"
COLUMNS = "tensor<4096x96xf32>"


def test_what_kernels_work_in_counts() -> None:
    source = f"""func.func @main(%x: {COLUMNS}, %w: tensor<96x96xf32>) -> tensor<96xf32> {{
  %p = graph.matmul %x, %w : ({COLUMNS}, tensor<96x96xf32>) -> {COLUMNS}
  %s = graph.sum %p {{axes = array<i64: 0>, keepdims = false}} : ({COLUMNS}) -> tensor<96xf32>
  func.return %s : tensor<96xf32>
}}"""
    needed = fuse_opt.compile(source).stats.arena_bytes
    values = 4096 * 96 * 4
    assert needed > values  # the sum has parts
    program = fuse_opt.compile(source, budget=needed)
    assert program.stats.arena_bytes == needed and "splits" in str(program.module)
    program = fuse_opt.compile(source, budget=needed - 1)  # by sums in one part
    assert program.stats.arena_bytes == values and "splits" not in str(program.module)
    with pytest.raises(fuse_opt.InputError, match=f"the least budget is {values}B"):
        fuse_opt.compile(source, budget=values - 1)
