"""Trials of ways to recompute: what is shared between them changes nothing, and few of them go through all passes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from gradients import ONE, gradient
from ir_testing import parse, text_of
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from fuse_opt.passes.decisions import format_decisions, record_decisions
from fuse_opt.passes.recompute.budget import within_budget
from fuse_opt.passes.recompute.tiers import CHEAP, DEAR
from fuse_opt.passes.recompute.trials import Trials
from fuse_opt.tools.compiler.pipeline import make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context


class Runs:
    """Runs passes, and counts those of a name."""

    def __init__(self, name: str) -> None:
        self.name, self.count = name, 0

    def __call__(self, module: ModuleOp, passes: Sequence[ModulePass]) -> None:
        self.count += sum(each.name == self.name for each in passes)
        run_pipeline(module, passes, make_context())


@pytest.mark.parametrize("tier", [None, CHEAP[0], DEAR[0]], ids=["free", "loops", "products"])
def test_a_trial_is_what_a_whole_run_gives(tier: object) -> None:
    source = parse(gradient(3))
    trials = Trials(source, make_passes(None), Runs(""))
    trials.of(CHEAP[1])  # whose first passes are those of the other
    trial = trials.of(tier)  # pyright: ignore[reportArgumentType]
    copy = source.clone()
    with record_decisions() as decisions:
        run_pipeline(copy, trial.passes, make_context())
    assert text_of(trial.module) == text_of(copy)
    assert format_decisions(trial.decisions) == format_decisions(decisions) != ""


def test_few_trials_go_through_all_passes() -> None:
    trials = Trials(parse(gradient(9)), make_passes(None), runs := Runs("plan-memory"))
    free = trials.of()
    found = trials.within(free.arena // 2)
    assert found is not None and found.arena <= free.arena // 2 and found.seconds > free.seconds
    assert runs.count <= 6
    runs.count = 0
    assert trials.within(ONE) is None
    front = trials.front(5)
    assert runs.count <= 4 + 5
    points = [(trial.arena, trial.seconds) for trial in front]
    assert 3 <= len(points) <= 5 and points == sorted(points, key=lambda point: -point[0])
    assert [seconds for _, seconds in points] == sorted({seconds for _, seconds in points})


def test_small_programs_are_of_small_values() -> None:
    """A budget computes values of 16 KiB again where a program has no larger ones."""
    trials = Trials(parse(gradient(8).replace("256x256", "64x64")), make_passes(None), Runs(""))
    assert trials.least.arena <= trials.of().arena // 2


def test_plans_that_are_likely_to_be_as_small_are_looked_at() -> None:
    """By what is alive alone one plan beats the other; it is not known yet which arena is the smaller."""
    trials = Trials(parse(gradient(9)), make_passes(None), Runs(""))
    front, few = trials.front(12), trials.front(2)
    assert len(front) >= 5 and len(few) == 2
    made = [(trial.arena, trial.seconds) for trial in trials.made()]
    for trial in front:
        assert not any(arena < trial.arena and seconds < trial.seconds for arena, seconds in made)


def test_known_trials_go_on() -> None:
    source = parse(gradient(4))
    passes, runs = make_passes(None), Runs("plan-memory")
    trials = Trials(source, passes, runs)
    budget = trials.of().arena
    assert within_budget(source, passes, budget, runs, known=[Trials(parse(gradient(3)), passes, runs), trials])
    assert runs.count == 1
    within_budget(source, passes, budget, runs)
    assert runs.count == 2
