"""Memory and time of the plans that a search looked at: those that no other beats in both, as text and as a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fuse_opt.passes.recompute.trials import undominated
from fuse_opt.tools.steering.tuned_plan import ENTRY
from fuse_opt.tools.tuning.joint.program_site import ProgramSite
from fuse_opt.tools.tuning.search.candidates import Candidate
from fuse_opt.tools.watching.pareto import Plan, pareto_section, table


@dataclass(frozen=True)
class Point:
    """A plan that was measured."""

    edits: Mapping[str, str | int]
    arena: int
    speedup: tuple[float, float, float]
    """Against the rules' plan: low, median, high."""


@dataclass(frozen=True)
class Front:
    """Plans of a program, those that others beat among them; `seconds` are those of a call by the rules' one."""

    program: ProgramSite
    points: Sequence[Point]
    seconds: float

    def best(self) -> list[Plan]:
        """Those that no other beats in both, by ascending bytes."""
        kept = undominated([(point.arena, 1 / point.speedup[1]) for point in self.points])
        return [self._plan(self.points[number]) for number in kept]

    def text(self) -> str:
        """A table of them."""
        return table(self.best())

    def section(self) -> str:
        """HTML: the picture, the table, and each plan as an entry of a tuned file."""
        best = self.best()
        return f"<h2>Memory and time</h2>{pareto_section(len(self.points) - len(best), best)}"

    def _plan(self, point: Point) -> Plan:
        low, median, high = point.speedup
        entry = {"key": self.program.key.key, "edits": dict(point.edits)}
        entry |= self.program.baseline.plan(point.edits).entry()
        seconds = self.seconds / high, self.seconds / median, self.seconds / low
        name = ", ".join(f"{label}: {change}" for label, change in point.edits.items()) or "the rules' plan"
        command = f"fuse-run {self.program.place} --tuned FILE.json, with this entry in the file"
        return Plan(
            point.arena, seconds, self.program.again(point.edits), name, json.dumps({ENTRY: entry}, indent=1), command
        )


def tried_front(program: ProgramSite, tried: Sequence[tuple[str, float]], seconds: float) -> Front:
    """The plans of a search for time, by their first pairs. Raises what passes and lowering raise."""
    points = [Point({}, program.program(program.default).arena_bytes, (1.0, 1.0, 1.0))]
    for text, speedup in tried:
        candidate = Candidate(text, False)
        points.append(Point(candidate.settings, program.program(candidate).arena_bytes, (speedup, speedup, speedup)))
    return Front(program, points, seconds)
