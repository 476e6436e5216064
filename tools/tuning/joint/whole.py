"""The whole program: a plan for it that is faster, and whether all that was found makes it faster together."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from fuse_opt.passes.scheduling.tuned_schedules import CONFIRMED
from fuse_opt.tools.compiler.backend_switch import with_tuned
from fuse_opt.tools.compiler.pipeline import run_pipeline
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.steering.tuned_plan import ENTRY, Plan
from fuse_opt.tools.tuning.joint.program_site import ProgramSite
from fuse_opt.tools.tuning.search.candidates import Candidate, Site
from fuse_opt.tools.tuning.search.race import CONFIRMATION, LEAST_PAIRS, judge
from fuse_opt.tools.tuning.search.records import RecordedBench, program_digest
from fuse_opt.tools.tuning.search.study import TrialFailed
from fuse_opt.tools.tuning.search.tune_program import Result, Tuner, candidate_of

_SHARE = 0.5
"""Of the time or the trials that a plan of the program gets; kernels get the rest."""
_TURN = 2 * CONFIRMATION


Write = Callable[[Sequence[Site], Result, Mapping[str, object]], None]
"""Writes the file of what was found, with further entries."""


@dataclass
class Search:
    """A search for schedules of kernels, and before it for a plan of the program where one is asked for."""

    program: ProgramSite
    tuner: Tuner
    """How kernels are tuned."""
    sites: Callable[[Plan], Sequence[Site]]
    """The kernels of the program as a plan has it."""
    write: Write
    file: Path
    joint: bool = False
    plans: Result = field(default_factory=Result)
    """What came of plans."""

    def run(self) -> Result:
        """What came of kernels; the file is written as that comes. Raises OSError."""
        tuner, program = self.tuner, self.program
        tuner.begun = tuner.clock()
        plan, head = Plan(), dict[str, object]()
        if self.joint:
            plan, head = self._plan()
            tuner.sites, tuner.used = self.sites(plan), self.plans.before + self.plans.trials
        tuner.improved = lambda result: self.write(tuner.sites, result, head)
        result = tuner.run()
        if result.won or head:
            whole = compare_whole(program, self.file, tuner)
            tuner.told(said_of_whole(whole))
            result.measured += whole.measured
            if whole.is_slower:
                head.clear()
                result.lines = {key: line for key, line in result.lines.items() if line.get("state") != CONFIRMED}
            head["whole"] = [round(each, 4) for each in whole.speedup]
            tuner.improved(result)
        result.measured += self.plans.measured
        result.lines, result.outcomes = self.plans.lines | result.lines, self.plans.outcomes | result.outcomes
        return result

    def _plan(self) -> tuple[Plan, dict[str, object]]:
        """The fastest plan that is confirmed, and what a file says of it; none where rules have the best one."""
        program, options = self.program, self.tuner.options
        trials = None if options.trials is None else max(round(_SHARE * options.trials), 1)
        seconds = None if options.seconds is None else _SHARE * options.seconds
        chosen = replace(options, kernel=program.name, trials=trials, seconds=seconds)
        self.plans = replace(self.tuner, sites=[program], options=chosen, improved=_unwritten).run()
        line = self.plans.lines.get(program.key.key)
        if line is None or line.get("state") != CONFIRMED:
            return Plan(), {}
        plan, edits = program.plan(candidate_of(line)), candidate_of(line).settings
        kept = {name: line[name] for name in ("speedup", "pairs", "same_bits") if name in line}
        near = program.baseline.near(edits)
        return plan, {ENTRY: {"key": program.key.key, "edits": edits, "near": near, **plan.entry(), **kept}}


def _unwritten(result: Result) -> None:
    """Plans are written with the kernels."""


class _TunedProgram(ProgramSite):
    """A program whose one candidate is what a tuned file makes of it."""

    def __init__(self, site: ProgramSite, file: Path) -> None:
        super().__init__(site.module, site.passes, site.place, site.target, site.inputs)
        self.candidate = Candidate.of({"tuned": program_digest(_chosen(file))}, False)
        self._file = file

    def planned(self, candidate: Candidate) -> ModuleOp:
        if candidate != self.candidate:
            return super().planned(candidate)
        module = self.module.clone()
        run_pipeline(module, with_tuned(self.passes, self._file), make_context())
        return module


def _chosen(file: Path) -> str:
    """What a tuned file changes, without what it says of it. Raises OSError."""
    whole = json.loads(file.read_text(encoding="utf-8"))
    kernels = sorted([each["key"], sorted(each["schedule"].items())] for each in whole["kernels"])
    plan = whole.get(ENTRY, {})
    return json.dumps([kernels, plan.get("key"), plan.get("edits")])


@dataclass(frozen=True)
class Whole:
    """What a tuned file is for the whole program: how much faster than the default, in fresh pairs, or why nobody knows."""

    speedup: tuple[float, float, float] = (1.0, 1.0, 1.0)
    pairs: int = 0
    problem: str = ""
    measured: int = 0

    @property
    def is_slower(self) -> bool:
        """
        Whether it is to be taken back: it cannot be used, or most pairs say that the default is faster. What is won in kernels
        that hardly count is not worth a doubt.
        """
        return bool(self.problem) or self.speedup[1] < 1


def compare_whole(site: ProgramSite, file: Path, tuner: Tuner) -> Whole:
    """The program as a tuned file makes it against its default. Raises OSError."""
    whole = _TunedProgram(site, file)
    recorded = RecordedBench(whole, tuner.records, partial(tuner.bench, whole))
    try:
        if recorded.text(whole.candidate) == recorded.text(whole.default):
            return Whole()
        verdict = judge(recorded.measure(whole.candidate, _TURN, LEAST_PAIRS).pairs)
        return Whole((verdict.low, verdict.median, verdict.high), verdict.pairs, "", recorded.measured)
    except TrialFailed as failure:
        return Whole(problem=str(failure), measured=recorded.measured)
    finally:
        recorded.close()


def said_of_whole(whole: Whole) -> str:
    """A sentence about it."""
    if whole.problem:
        return f"the whole program cannot run so: {whole.problem}; the default stays"
    if not whole.pairs:
        return "the whole program is as it was"
    low, median, high = whole.speedup
    stays = "; the default stays" if whole.is_slower else ""
    return f"the whole program: {median:.3f}x ({low:.3f} to {high:.3f}, {whole.pairs} pairs){stays}"
