"""Plans that a C compiler is done with soonest: edits of a program that leave it less to do; pairs say what a call costs then."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from fuse_opt.lowering.program import Program
from fuse_opt.tools.tuning.joint.program_site import ProgramSite
from fuse_opt.tools.tuning.search.candidates import Candidate
from fuse_opt.tools.tuning.search.race import LEAST_PAIRS, judge
from fuse_opt.tools.tuning.search.study import Bench, Limit, TrialFailed

_TURN = 300
_WORTH = 0.95
"""Of the time of what was there: an edit that takes more may be noise."""
_ROUNDS = 5
"""In each of which the plan has to take less than the default, each compiled once more."""


@dataclass
class Soonest:
    """What a search for the least time to compile came to."""

    before: float
    """Seconds by the rules' plan: the processor time of the C compiler."""
    after: float
    edits: dict[str, str | int] = field(default_factory=dict[str, str | int])
    same_bits: bool = True
    """Whether all edits promise that."""
    trials: int = 0
    speedup: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Of a call."""

    def said(self) -> str:
        """A sentence about it."""
        tried = f"{self.trials} plans"
        if not self.edits:
            return f"no plan compiles sooner than the rules' in {self.before:.2f} s: {tried}"
        low, median, high = self.speedup
        return (
            f"the C compiler takes {self.after:.2f} s in place of {self.before:.2f} ({self.after / self.before:.3f}), "
            f"at {median:.3f}x ({low:.3f} to {high:.3f}) of the speed: {tried}"
        )

    def entry(self, program: ProgramSite) -> dict[str, object]:
        """What a tuned file has of it; nothing where rules have the best plan."""
        if not self.edits:
            return {}
        return program.entry(self.edits, self.speedup, {"compile": [round(self.before, 3), round(self.after, 3)]})


class _Compiling:
    """Seconds for texts, each of which is compiled once."""

    def __init__(self, program: ProgramSite, seconds: Callable[[Program], float]) -> None:
        self._program, self._seconds = program, seconds
        self._known: dict[str, float] = {}

    def of(self, candidate: Candidate) -> float:
        """Raises what passes, lowering and the compiler raise."""
        made = self._program.program(candidate)
        if made.source not in self._known:
            self._known[made.source] = self._seconds(made)
        return self._known[made.source]

    def tried(self, candidate: Candidate) -> float | None:
        """None where there is no such program."""
        try:
            return self.of(candidate)
        except Exception:  # whatever passes, lowering and compilers say of it: the default stands
            return None

    def again(self, candidate: Candidate) -> float:
        """The same, compiled once more."""
        return self._seconds(self._program.program(candidate))


def soonest_compiled(
    program: ProgramSite,
    bench: Callable[[], Bench],
    seconds: Callable[[Program], float],
    limit: Limit,
    same_bits: bool,
) -> Soonest:
    """
    Edits, one by one and then together from the best on, with which a program compiles sooner; what a process refuses, or finds
    wrong, is left out, and so is all where the plan and the default, compiled in turns, do not agree. `seconds` compiles a
    program that nobody kept. Raises what lowering and the compiler raise of the default.
    """
    compiling = _Compiling(program, seconds)
    before = compiling.of(program.default)
    found, alone = Soonest(before, before), list[tuple[float, Candidate]]()
    for candidate in program.changes(same_bits):
        if limit.is_spent():
            break
        limit.used += 1
        if (taken := compiling.tried(candidate)) is not None and taken < _WORTH * before:
            alone.append((taken, candidate))
    alone.sort(key=lambda each: (each[0], each[1].text))
    measuring = bench()
    try:
        for _, candidate in alone:
            _join(candidate, compiling, measuring, found)
    finally:
        measuring.close()
    if found.edits:
        _confirm(program, compiling, found)
    found.trials = limit.used
    return found


def _join(candidate: Candidate, compiling: _Compiling, measuring: Bench, found: Soonest) -> None:
    """Takes what a candidate edits, beside what was taken, where that compiles sooner yet and gives the same results."""
    if candidate.settings.keys() & found.edits.keys():
        return
    both = Candidate.of({**found.edits, **candidate.settings}, found.same_bits and candidate.same_bits)
    taken = compiling.tried(both)
    if taken is None or taken >= _WORTH * found.after:
        return
    try:
        verdict = judge(measuring.measure(both, _TURN, LEAST_PAIRS).pairs)
    except TrialFailed:
        return
    found.edits, found.after, found.same_bits = both.settings, taken, both.same_bits
    found.speedup = verdict.low, verdict.median, verdict.high


def _confirm(program: ProgramSite, compiling: _Compiling, found: Soonest) -> None:
    """Compiles the default and the plan in turns; what is not sooner each time is nothing."""
    plan = Candidate.of(found.edits, found.same_bits)
    turns = [(compiling.again(program.default), compiling.again(plan)) for _ in range(_ROUNDS)]
    found.before, found.after = (statistics.median(each) for each in zip(*turns, strict=True))
    if any(after >= before for before, after in turns):
        found.edits, found.after, found.speedup = {}, found.before, (1.0, 1.0, 1.0)
