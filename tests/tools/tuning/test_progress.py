"""What people see of a search: lines on a pipe, a bar on a terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.analysis.kernel_key import KernelKey
from fuse_opt.tools.tuning import progress
from fuse_opt.tools.tuning.search.candidates import Site
from fuse_opt.tools.tuning.search.study import Limit, Outcome


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def outcome() -> Outcome:
    found = Outcome(Site("kernel_sum_0", KernelKey("k", "f"), ModuleOp([])), trials=3, spread=0.02)
    found.tried += [("a", 0.5), ("b", 1.25)]
    return found


@pytest.mark.parametrize(("stream", "library"), [(StringIO, "rich"), (Terminal, "no_such_library")])
def test_lines(stream: type[StringIO], library: str, outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LIBRARY", library)
    times = iter([0.0, 0.0, 9.0, 11.0, 11.0, 12.0])
    limit = Limit(lambda: 20.0, seconds=60.0)
    with progress.progress("tune: ", lambda: next(times), out := stream()) as told:
        told.say("begun")
        for _ in range(4):
            told.update(outcome, limit)
    assert out.getvalue() == ("tune: begun\ntune: kernel_sum_0: 3 trials, best 1.250x, sd of pairs 0.020, 60 s left\n")


def test_a_bar(outcome: Outcome) -> None:
    pytest.importorskip("rich", reason="the extra tune")
    limit = Limit(lambda: 0.0, trials=4)
    limit.used = 1
    with progress.progress("tune: ", lambda: 0.0, out := Terminal()) as told:
        told.update(outcome, limit)
        told.say("a line with [brackets]")
        limit.used = 4
        told.update(outcome, limit)
    assert "3 trials, best 1.250x" in out.getvalue() and "tune: a line with [brackets]\n" in out.getvalue()
    assert limit.share() == 1.0 and limit.left() is None
