"""The least arena: edits that make it smaller are put together, wrong ones left out, and where there is none nothing is done."""

from __future__ import annotations

from math import log
from pathlib import Path
from typing import Any

import pytest

from fuse_opt.tools.compiler.api import load
from fuse_opt.tools.compiler.builders import has_c_compiler
from fuse_opt.tools.compiler.pipeline import make_passes
from fuse_opt.tools.tuning.fuse_tune_main import main
from fuse_opt.tools.tuning.joint.pareto import Front
from fuse_opt.tools.tuning.joint.peak import least_arena
from fuse_opt.tools.tuning.joint.program_site import ProgramSite
from fuse_opt.tools.tuning.report import plans_html, plans_text
from fuse_opt.tools.tuning.search.candidates import Candidate
from fuse_opt.tools.tuning.search.study import Limit, Measured, TrialFailed

TEXT = """
func.func @main(%x: tensor<8x16xf32>) -> tensor<8xf32> {
  %e = graph.exp %x : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %s = graph.sum %e {axes = array<i64: 1>} : (tensor<8x16xf32>) -> tensor<8xf32>
  func.return %s : tensor<8xf32>
}
"""


class Sized:
    """A program, as far as it is asked."""

    def __init__(self, arena_bytes: int) -> None:
        self.arena_bytes = arena_bytes


class Table(ProgramSite):
    """Arenas by what is edited."""

    def program(self, candidate: Candidate) -> Any:
        if "fuse-row" in candidate.settings:
            raise ValueError("this cannot be lowered")
        taken = {"order-for-memory": 300, "fuse-elementwise": 200, "plan-memory": 500}
        return Sized(1000 - sum(taken.get(label, -1) for label in candidate.settings))


class Bench:
    def measure(self, candidate: Candidate, turn: int, pairs: int) -> Measured:
        if "plan-memory" in candidate.settings:
            raise TrialFailed("wrong: bits differ")
        return Measured((log(0.8),) * pairs, True)

    def look_again(self, candidate: Candidate) -> str:
        return ""

    def close(self) -> None: ...


def test_edits_that_make_the_arena_smaller_are_put_together() -> None:
    program = Table(load(TEXT), make_passes(None), "x.mlir")
    found = least_arena(program, Bench, Limit(lambda: 0.0, 10**6), False)
    assert {label for label in found.edits} == {"order-for-memory", "fuse-elementwise"}
    assert (found.before, found.after) == (1000, 500) and found.speedup[1] == pytest.approx(0.8)
    assert "500 bytes in place of 1000 (0.500), at 0.800x" in found.said()
    entry: Any = found.entry(program)["plan"]
    assert entry["edits"] == found.edits and entry["arena"] == [1000, 500]
    assert least_arena(program, Bench, Limit(lambda: 0.0, 1), False).edits == {}
    front = Front(program, found.points, 1e-3)
    assert [plan.arena for plan in front.best()] == [500, 1000]
    page, text = plans_html(found.said(), front, "t.json"), plans_text(found.said(), front, "t.json")
    assert page.count("<circle") == 2 and "order-for-memory: " in page and "<script" not in page and "http" not in page
    assert "the rules' plan" in text and "--tuned t.json" in text


@pytest.mark.skipif(not has_c_compiler(), reason="programs are compiled")
def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source := tmp_path / "x.mlir").write_text(TEXT)
    words = [str(source), "-o", str(tmp_path / "t.json"), "--records", str(tmp_path / "r")]
    for options, status, message in (
        (["--objective", "peak"], 1, "--objective peak: the program has no arena: there is nothing to do"),
        (["--objective", "size"], 2, "--objective: invalid choice: 'size'"),
        (["--budget", "64"], 2, "--budget: expected a number with one of the units B, kB"),
        (["--budget", "-1MiB"], 2, "--budget: expected"),
    ):
        assert main([*words, *options]) == status
        assert message in capsys.readouterr().err
