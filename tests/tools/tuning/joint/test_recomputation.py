"""Ways to compute values again as edits: smaller and smaller arenas, of programs and pipelines that have some."""

from __future__ import annotations

from math import log

import pytest
from gradients import gradient
from ir_testing import parse

from fuse_opt.tools.compiler.pipeline import make_passes
from fuse_opt.tools.tuning.joint.pareto import Front
from fuse_opt.tools.tuning.joint.program_site import ProgramSite
from fuse_opt.tools.tuning.joint.recomputation import WAYS, recomputations, spread
from fuse_opt.tools.tuning.joint.trade_offs import trade_offs
from fuse_opt.tools.tuning.search.candidates import Candidate
from fuse_opt.tools.tuning.search.study import Limit, Measured


class Bench:
    """All that differs from the rules' plan is slower than it, and the less so the more of it is kept."""

    def __init__(self, program: ProgramSite) -> None:
        self.program = program

    def measure(self, candidate: Candidate, turn: int, pairs: int) -> Measured:
        whole = self.program.program(self.program.default).arena_bytes
        return Measured((log(0.5 + 0.4 * self.program.program(candidate).arena_bytes / whole),) * pairs, True, 1e-3)

    def look_again(self, candidate: Candidate) -> str:
        return ""

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def program() -> ProgramSite:
    return ProgramSite(parse(gradient(7)), make_passes(None), "x.mlir")


def test_each_way_has_a_smaller_arena(program: ProgramSite) -> None:
    found = list(program.recomputations())
    arenas = [program.program(candidate).arena_bytes for candidate in (program.default, *found)]
    assert 3 <= len(found) <= WAYS and len(set(arenas)) == len(arenas) and min(arenas) == arenas[1] < arenas[0] / 2
    assert max(arenas) == arenas[0]
    assert all(candidate.settings.keys() == {"rematerialize"} for candidate in found)


def test_they_are_among_the_plans_that_no_other_beats(program: ProgramSite) -> None:
    """Of a limit that leaves no time for anything else, too."""
    ways = len(list(program.recomputations()))
    found = trade_offs(program, lambda: Bench(program), Limit(lambda: 0.0, 2 * ways), False)
    assert len(found.best()) >= 4 and "rematerialize" in found.best()[0].edits
    counts = [plan.again for plan in Front(program, found.points, found.seconds).best()]
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1]
    alike = trade_offs(program, lambda: Bench(program), Limit(lambda: 0.0, 8), True)
    assert not any("rematerialize" in point.edits for point in alike.points), "kernels may add up in another order"


def test_those_between_known_ones_come_last() -> None:
    assert [spread(count) for count in range(4)] == [[], [0], [1, 0], [2, 0, 1]]
    assert spread(8) == [7, 0, 3, 1, 5, 2, 4, 6]
    assert sorted(spread(13)) == list(range(13))


@pytest.mark.parametrize("passes", ["decompose,wrap-kernels,plan-memory", "decompose,rematerialize,wrap-kernels"])
def test_pipelines_without(passes: str) -> None:
    assert not list(recomputations(parse(gradient(2)), make_passes(passes)))
