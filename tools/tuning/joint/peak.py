"""Plans for the least arena: which edits of a program make it smaller, found by lowering alone; a clock says what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fuse_opt.tools.tuning.joint.pareto import Point
from fuse_opt.tools.tuning.joint.program_site import ProgramSite
from fuse_opt.tools.tuning.search.candidates import Candidate
from fuse_opt.tools.tuning.search.race import LEAST_PAIRS, judge
from fuse_opt.tools.tuning.search.study import Bench, Limit, TrialFailed

_TURN = 300


class NothingToDo(ValueError):
    """The program has no arena."""


@dataclass
class Smallest:
    """What a search for the least arena came to."""

    before: int
    """Bytes of the arena by the rules."""
    after: int
    edits: dict[str, str | int] = field(default_factory=dict[str, str | int])
    same_bits: bool = True
    """Whether all edits promise that."""
    trials: int = 0
    speedup: tuple[float, float, float] = (1.0, 1.0, 1.0)
    points: list[Point] = field(default_factory=list[Point])
    """All that was measured, the rules' plan first."""
    seconds: float = 0.0
    """Of a call of the rules' plan."""

    def said(self) -> str:
        """A sentence about it."""
        tried = f"{self.trials} plans"
        if not self.edits:
            return f"no plan has a smaller arena than the rules' {self.before} bytes: {tried}"
        low, median, high = self.speedup
        return (
            f"the arena takes {self.after} bytes in place of {self.before} ({self.after / self.before:.3f}), "
            f"at {median:.3f}x ({low:.3f} to {high:.3f}) of the speed: {tried}"
        )

    def entry(self, program: ProgramSite) -> dict[str, object]:
        """What a tuned file has of it; nothing where rules have the best plan."""
        if not self.edits:
            return {}
        return program.entry(self.edits, self.speedup, {"arena": [self.before, self.after]})


def least_arena(program: ProgramSite, bench: Callable[[], Bench], limit: Limit, same_bits: bool) -> Smallest:
    """
    Edits, one by one and then together from the best on, that make the arena smaller; what a process refuses, or finds wrong, is
    left out. Raises NothingToDo, and what lowering raises of the default.
    """
    before = program.program(program.default).arena_bytes
    if not before:
        raise NothingToDo("--objective peak: the program has no arena: there is nothing to do")
    found, alone = Smallest(before, before), list[tuple[int, Candidate]]()
    found.points.append(Point({}, before, found.speedup))
    for candidate in program.changes(same_bits):
        if limit.is_spent():
            break
        limit.used += 1
        if (arena := _arena(program, candidate)) is not None and arena < before:
            alone.append((arena, candidate))
    alone.sort(key=lambda each: (each[0], each[1].text))
    measuring = bench()
    try:
        for candidate in _together(alone, found):
            if (arena := _arena(program, candidate)) is not None and arena < found.after:
                try:
                    measured = measuring.measure(candidate, _TURN, LEAST_PAIRS)
                except TrialFailed:
                    continue
                verdict, found.seconds = judge(measured.pairs), measured.seconds
                found.edits, found.after, found.same_bits = candidate.settings, arena, candidate.same_bits
                found.speedup = verdict.low, verdict.median, verdict.high
                found.points.append(Point(found.edits, arena, found.speedup))
    finally:
        measuring.close()
    found.trials = limit.used
    return found


def _together(alone: list[tuple[int, Candidate]], found: Smallest) -> Iterator[Candidate]:
    """The edits that were taken so far, and each further one, the best first."""
    for _, candidate in alone:
        if not candidate.settings.keys() & found.edits.keys():
            yield Candidate.of({**found.edits, **candidate.settings}, found.same_bits and candidate.same_bits)


def _arena(program: ProgramSite, candidate: Candidate) -> int | None:
    """None where there is no such program."""
    try:
        return program.program(candidate).arena_bytes
    except Exception:  # whatever passes and lowering say of it: the default stands
        return None
