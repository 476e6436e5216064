"""Plans of whole programs, by a table of times: what wins is confirmed, written, and applied where it fits and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import log
from pathlib import Path

import pytest

from fuse_opt.passes.devices.this_machine import Machine
from fuse_opt.passes.remarks import Remark, collect
from fuse_opt.passes.scheduling.tuned_schedules import Line
from fuse_opt.tools.compiler.api import load
from fuse_opt.tools.compiler.backend_switch import with_tuned
from fuse_opt.tools.compiler.pipeline import make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.steering.tuned_plan import PlanError, kept_plan
from fuse_opt.tools.tuning.joint.edits import ADDED, DROPPED
from fuse_opt.tools.tuning.joint.pareto import tried_front
from fuse_opt.tools.tuning.joint.program_site import ProgramSite
from fuse_opt.tools.tuning.joint.whole import Search, Whole, said_of_whole
from fuse_opt.tools.tuning.report import report_html
from fuse_opt.tools.tuning.search.candidates import Candidate, Site
from fuse_opt.tools.tuning.search.records import Records
from fuse_opt.tools.tuning.search.study import Measured, TrialFailed
from fuse_opt.tools.tuning.search.tune_program import Options, Result, Tuner, tuned_text

HERE = Machine("d:here", "c:now")
TEXT = """
func.func @main(%x: tensor<8x16xf32>, %w: tensor<16x24xf32>) -> tensor<8x24xf32> {
  %h = graph.matmul %x, %w : (tensor<8x16xf32>, tensor<16x24xf32>) -> tensor<8x24xf32>
  %e = graph.exp %h : (tensor<8x24xf32>) -> tensor<8x24xf32>
  %s = graph.sum %e {axes = array<i64: 1>, keepdims = true} : (tensor<8x24xf32>) -> tensor<8x1xf32>
  %r = graph.divide %e, %s : (tensor<8x24xf32>, tensor<8x1xf32>) -> tensor<8x24xf32>
  func.return %r : tensor<8x24xf32>
}
"""
MATMUL = "select-implementation @main: graph.matmul#0 %h"
EPILOGUE = "fuse-epilogue @main: graph.matmul#0 %h + graph.exp#0 %e"


@cache
def program() -> ProgramSite:
    return ProgramSite(load(TEXT), make_passes(None), "x.mlir")


class Table:
    """Times relative to the default's, by edits; all else takes as long."""

    def __init__(self, times: Mapping[str, float]) -> None:
        self.times = times

    def measure(self, candidate: Candidate, turn: int, pairs: int) -> Measured:
        factor = 1.0
        for label, value in candidate.settings.items():
            factor *= self.times.get(label, self.times.get(str(value), 1.0 if label != "tuned" else 0.8))
        return Measured((-log(factor),) * pairs, True, 1e-3)

    def look_again(self, candidate: Candidate) -> str:
        if "undefined" in candidate.settings:
            raise TrialFailed("crash")
        return ""

    def close(self) -> None:
        """There is nothing to close."""


def search(folder: Path, times: Mapping[str, float]) -> tuple[Result, Path]:
    options = Options(trials=6, seconds=None)
    tuner = Tuner([], Records(folder, HERE), lambda site: Table(times), lambda: 0.0, options, lambda: 1e-3)

    def write(sites: Sequence[Site], result: Result, more: Mapping[str, object]) -> None:
        file.write_text(tuned_text(sites, result, HERE, dict(more)))

    file = folder / "t.json"
    return Search(program(), tuner, lambda plan: [], write, file, True).run(), file


def test_candidates_are_edits_of_what_rules_decide() -> None:
    edits = [candidate.settings for candidate in program().changes(False)]
    assert {EPILOGUE: DROPPED} in edits and {"order-for-memory": "strategy=dfs"} in edits
    assert {"fuse-row": "without"} in edits and {"fuse-elementwise#1": "twice"} in edits
    (label,) = {label for each in edits for label in each if label.startswith("select-implementation")}
    assert label == MATMUL and {label: "numpy.matmul"} in edits
    kept = [candidate for candidate in program().changes(True)]
    assert kept and all(candidate.same_bits for candidate in kept)
    assert all("fuse" not in label for candidate in kept for label in candidate.settings)
    texts = {program().text(candidate) for candidate in program().changes(False) if EPILOGUE in candidate.settings}
    assert texts.isdisjoint({program().text(program().default)})


def made(text: str, tuned: Path | None = None) -> tuple[str, list[Remark]]:
    """The text of a program after all passes, with a tuned file, and the remarks."""
    module = load(text).clone()
    with collect() as remarks:
        run_pipeline(module, with_tuned(make_passes(None), tuned or ""), make_context())
    return str(module), [*remarks]


def test_a_plan_that_is_confirmed_is_applied_to_its_program_alone(tmp_path: Path) -> None:
    result, file = search(tmp_path, {"numpy.matmul": 0.8})
    whole = json.loads(file.read_text())
    assert whole["plan"]["edits"] == {MATMUL: "numpy.matmul"} and whole["whole"] == [1.25] * 3
    assert whole["plan"]["speedup"][1] == pytest.approx(1.25) and result.outcomes
    (outcome,) = result.outcomes.values()
    page = report_html([program()], result, "t.json", tried_front(program(), outcome.tried, outcome.seconds))
    assert "<h2>Memory and time</h2>" in page and "no other beats in both" in page and "numpy.matmul" in page
    again, _ = search(tmp_path, {})
    assert again.measured == 0 and json.loads(file.read_text()) == whole

    text, remarks = made(TEXT, file)
    assert 'implementation = "numpy.matmul"' in text and text != made(TEXT)[0]
    assert [each for each in remarks if each.code == "tuned" and "its passes and decisions are those" in each.message]
    other = TEXT.replace("x24x", "x32x").replace("x24xf32", "x32xf32")
    text, remarks = made(other, file)
    assert text == made(other)[0] and [each for each in remarks if "which has none of the ops" in each.message]


def test_what_makes_the_whole_slower_is_taken_back(tmp_path: Path) -> None:
    _, file = search(tmp_path, {"numpy.matmul": 0.8, "tuned": 1.004})
    taken_back = json.loads(file.read_text())
    assert "plan" not in taken_back and taken_back["whole"] == [0.996] * 3
    for speedup, is_slower in (((0.96, 0.995, 1.02), True), ((0.97, 1.01, 1.03), False)):
        assert Whole(speedup, 24).is_slower is is_slower
        assert said_of_whole(Whole(speedup, 24)).endswith("the default stays") is is_slower
    assert not Whole().is_slower and Whole(problem="crash").is_slower


@pytest.mark.parametrize("edit", ["names", "before", "behind"])
def test_a_plan_follows_its_ops_into_an_edited_program(edit: str, tmp_path: Path) -> None:
    """The product is another number by then, or has another name."""
    _, file = search(tmp_path, {"numpy.matmul": 0.8})
    w, x = "tensor<16x24xf32>", "tensor<8x16xf32>"
    first = f"  %n = graph.matmul %x, %v : ({x}, tensor<16x16xf32>) -> {x}\n"
    last = "  %q = graph.negative %r : (tensor<8x24xf32>) -> tensor<8x24xf32>\n"
    if edit == "names":
        text = TEXT.replace("%h", "%g").replace("%e", "%h")
    else:
        text = TEXT.replace("%w: ", "%v: tensor<16x16xf32>, %w: ")
        text = text.replace("{\n", "{\n" + first, 1).replace("tensor<8x24xf32> {", f"(tensor<8x24xf32>, {x}) {{")
        text = text.replace("return %r : tensor<8x24xf32>", f"return %r, %n : tensor<8x24xf32>, {x}")
    if edit == "behind":
        text = text.replace("  func.return %r", last + "  func.return %q")
    planned, remarks = made(text, file)
    assert planned.count('implementation = "numpy.matmul"') == 1 and planned.count("graph.matmul") == text.count(
        "matmul"
    )
    assert '"numpy.matmul"' in next(line for line in planned.splitlines() if w in line and "implementation" in line)
    assert [each for each in remarks if "decisions of select-implementation" in each.message]


def test_a_plan_that_does_not_fit_leaves_the_program_to_the_rules(tmp_path: Path) -> None:
    entry: Line = {"key": program().key.key, "passes": {}, "steered": ["fuse-row"], "decisions": [EPILOGUE]}
    path, plain = tmp_path / "t.json", made(TEXT)[0]
    cases: tuple[tuple[Line, str], ...] = (
        ({}, "pass 'fuse-epilogue' has no run #0"),
        ({"decisions": ["fuse-row @main: graph.log#0 + graph.exp#0"]}, "does not fit any more"),
        ({"passes": {"fuse-nothing": "without"}, "decisions": []}, "there is no pass 'fuse-nothing'"),
        ({"passes": {"fuse-row": "colour=2"}, "decisions": []}, "has no option 'colour'"),
    )
    for changed, said in cases:
        whole: Line = {"fuse-opt-tuned": 1, "device": "d", "code": "c", "kernels": [], "plan": {**entry, **changed}}
        path.write_text(json.dumps(whole))
        text, remarks = made(TEXT, path)
        assert text == plain and [each for each in remarks if each.code == "tuned-problem" and said in each.message]
    path.write_text(json.dumps({"plan": {"key": "p"}}))
    with pytest.raises(PlanError, match="expected passes, decisions and steered"):
        kept_plan(str(path))


def test_what_a_model_refused_can_be_asked_for() -> None:
    base = program().baseline
    plan = replace(base, refused=base.decisions[:1]).plan({str(base.decisions[0]): ADDED})
    assert plan.decisions[-1] == str(base.decisions[0]) and plan.steered == (base.decisions[0].pass_name,)
