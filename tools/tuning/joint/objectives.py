"""Searches for plans whose objective is not time alone: what each says, and what goes to files and to a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fuse_opt.tools.tuning.joint.compile_time import soonest_compiled
from fuse_opt.tools.tuning.joint.pareto import Front
from fuse_opt.tools.tuning.joint.peak import least_arena
from fuse_opt.tools.tuning.joint.program_site import ProgramSite
from fuse_opt.tools.tuning.joint.trade_offs import entry_of, trade_offs
from fuse_opt.tools.tuning.search.compiling import compile_seconds
from fuse_opt.tools.tuning.search.study import Bench, Limit

TIME, PEAK, COMPILE, PARETO = "time", "peak", "compile", "pareto"


@dataclass(frozen=True)
class Found:
    """What a search came to."""

    said: str
    entry: dict[str, object]
    """Of the tuned file; nothing where rules have the best plan."""
    front: Front | None = None
    others: dict[int, dict[str, object]] = field(default_factory=dict[int, dict[str, object]])
    """By bytes of the arena, entries of files of their own."""


def search_plans(
    objective: str, program: ProgramSite, bench: Callable[[], Bench], limit: Limit, same_bits: bool
) -> Found:
    """What a search for an objective that is not time comes to. Raises NothingToDo, and what lowering raises of the default."""
    if objective == PEAK:
        least = least_arena(program, bench, limit, same_bits)
        return Found(least.said(), least.entry(program), Front(program, least.points, least.seconds))
    if objective == COMPILE:
        soonest = soonest_compiled(program, bench, compile_seconds, limit, same_bits)
        return Found(soonest.said(), soonest.entry(program))
    offs = trade_offs(program, bench, limit, same_bits)
    *smaller, fastest = offs.best()
    before = offs.points[0].arena
    others = {point.arena: entry_of(program, point, before) for point in smaller if point.edits}
    front = Front(program, offs.points, offs.seconds)
    return Found(offs.said(), entry_of(program, fastest, before), front, others)
