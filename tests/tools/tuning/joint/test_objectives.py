"""Plans that compile soonest, and those that no other beats in memory and time, by tables of times in place of a clock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuse_opt.tools.compiler.api import load
from fuse_opt.tools.compiler.builders import has_c_compiler
from fuse_opt.tools.compiler.pipeline import make_passes
from fuse_opt.tools.tuning.fuse_tune_main import main
from fuse_opt.tools.tuning.joint.compile_time import soonest_compiled
from fuse_opt.tools.tuning.joint.pareto import Front
from fuse_opt.tools.tuning.joint.program_site import ProgramSite
from fuse_opt.tools.tuning.joint.trade_offs import entry_of, trade_offs
from fuse_opt.tools.tuning.report import plans_html, plans_text
from fuse_opt.tools.tuning.search.candidates import Candidate
from fuse_opt.tools.tuning.search.compiling import compile_seconds
from fuse_opt.tools.tuning.search.race import FIRST
from fuse_opt.tools.tuning.search.sites import find_sites
from fuse_opt.tools.tuning.search.study import Limit, Measured, TrialFailed

TEXT = """
func.func @main(%x: tensor<8x16xf32>) -> tensor<8xf32> {
  %e = graph.exp %x : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %s = graph.sum %e {axes = array<i64: 1>} : (tensor<8x16xf32>) -> tensor<8xf32>
  func.return %s : tensor<8xf32>
}
"""
NONE = Limit(lambda: 0.0, 10**6)


class Made:
    """A program, as far as it is asked."""

    def __init__(self, edits: Mapping[str, str | int], arena: int) -> None:
        self.source, self.arena_bytes, self.edits = str(sorted(edits)), arena, edits


class Table(ProgramSite):
    """Arenas by what is edited; what is in no table changes nothing but names."""

    ARENAS: Mapping[str, int] = {"order-for-memory": 300, "fuse-elementwise": 200, "plan-memory": 500}

    def program(self, candidate: Candidate) -> Any:
        if "fuse-row" in candidate.settings:
            raise ValueError("this cannot be lowered")
        return Made(candidate.settings, 1000 - sum(self.ARENAS.get(label, 0) for label in candidate.settings))

    def text(self, candidate: Candidate) -> str:
        return self.program(candidate).source


class Bench:
    """Speed-ups by what is edited; where `FIRST` pairs are asked for they are better by `luck`."""

    SPEEDS: Mapping[str, float] = {
        "order-for-memory": 0.8,
        "fuse-elementwise": 0.9,
        "canonicalize": 1.0,
        "fuse-injective": 1.2,
    }

    def __init__(self, luck: float = 1.0) -> None:
        self.luck, self.asked = luck, list[tuple[str, int]]()

    def measure(self, candidate: Candidate, turn: int, pairs: int) -> Measured:
        self.asked.append((candidate.text, pairs))
        if "plan-memory" in candidate.settings:
            raise TrialFailed("wrong: bits differ")
        speed = self.luck if pairs == FIRST else 1.0
        for label in candidate.settings:
            speed *= self.SPEEDS.get(label, 0.99)
        return Measured((log(speed),) * pairs, candidate.same_bits, 2e-3)

    def look_again(self, candidate: Candidate) -> str:
        return ""

    def close(self) -> None: ...


def table() -> Table:
    return Table(load(TEXT), make_passes(None), "x.mlir")


def seconds_by(edits: Mapping[str, float]) -> Any:
    def seconds(program: Made) -> float:
        if "fuse-injective" in program.edits:
            raise RuntimeError("no compiler takes this")
        return 2.0 - sum(edits.get(label, 0.0) for label in program.edits)

    return seconds


def test_edits_that_compile_sooner_are_put_together() -> None:
    program = table()
    found = soonest_compiled(
        program,
        Bench,
        seconds_by({"order-for-memory": 0.5, "fuse-elementwise": 0.4, "plan-memory": 1.0, "fuse-epilogue": 0.05}),
        NONE,
        False,
    )
    assert set(found.edits) == {"order-for-memory", "fuse-elementwise"}, "what is wrong, or gains little, is left out"
    assert (found.before, found.after) == (2.0, pytest.approx(1.1)) and found.speedup[1] == pytest.approx(0.72)
    assert "takes 1.10 s in place of 2.00 (0.550), at 0.720x" in found.said()
    entry: Any = found.entry(program)["plan"]
    assert entry["edits"] == found.edits and entry["compile"] == [2.0, 1.1]
    assert not soonest_compiled(program, Bench, seconds_by({}), NONE, False).entry(program)
    assert not soonest_compiled(
        program, Bench, seconds_by({"order-for-memory": 1.0}), Limit(lambda: 0.0, 1), False
    ).edits


def test_times_of_compilers_that_do_not_repeat_are_nothing() -> None:
    calls = list[int]()

    def seconds(program: Made) -> float:
        calls.append(1)
        return 1.0 if len(calls) < 40 and program.edits else 2.0

    found = soonest_compiled(table(), Bench, seconds, NONE, False)  # pyright: ignore[reportArgumentType]
    assert not found.edits and "no plan compiles sooner" in found.said()


def test_plans_that_no_other_beats() -> None:
    program, bench = table(), Bench()
    found = trade_offs(program, lambda: bench, NONE, False)
    best = found.best()
    assert [point.arena for point in best] == sorted({point.arena for point in best})
    speeds = [point.speedup[1] for point in best]
    assert speeds == sorted(speeds) and len(best) >= 3
    assert best[0].arena == 500 and set(best[0].edits) == {"order-for-memory", "fuse-elementwise"}
    assert speeds[-1] == pytest.approx(1.2) and "fuse-injective" in best[-1].edits
    assert all("wrong: bits differ" in each for each in found.failed) and found.failed
    confirmed = {text for text, pairs in bench.asked if pairs != FIRST}
    assert len(confirmed) == len(found.points) - 1, "those alone that may be among the best are confirmed"
    assert len({text for text, pairs in bench.asked if pairs == FIRST}) == sum(
        pairs == FIRST for _, pairs in bench.asked
    )
    entry: Any = entry_of(program, best[0], 1000)["plan"]
    assert entry["arena"] == [1000, 500] and entry["edits"] == best[0].edits
    assert f"{len(best)} plans that no other beats, from 500 bytes" in found.said()
    front = Front(program, found.points, found.seconds)
    text, page = plans_text(found.said(), front, "t.json"), plans_html(found.said(), front, "t.json")
    assert "order-for-memory" in text and page.count("<circle") == len(best)


@pytest.mark.parametrize("speed", [0.99, 1.001, 1.019])
def test_luck_of_first_pairs_is_no_plan(speed: float) -> None:
    """First pairs that are all too good leave no plan in the front that fresh ones do not confirm, nor is a near tie one."""

    class Slow(Bench):
        SPEEDS: Mapping[str, float] = {"fuse-injective": speed}

    class Same(Table):
        ARENAS: Mapping[str, int] = {}

    program = Same(load(TEXT), make_passes(None), "x.mlir")
    bench = Slow(1.5)
    found = trade_offs(program, lambda: bench, NONE, False)
    assert any(pairs != FIRST for _, pairs in bench.asked) and [dict(point.edits) for point in found.best()] == [{}]
    assert "no plan beats the rules' one" in found.said()
    assert not entry_of(program, found.best()[0], 1000)


@pytest.mark.skipif(not has_c_compiler(), reason="programs are compiled")
def test_a_compiler_is_timed() -> None:
    program = ProgramSite(load(TEXT), make_passes(None), "-")
    assert 0 < compile_seconds(program.program(program.default)) < 60


@pytest.mark.skipif(not has_c_compiler(), reason="programs are compiled")
def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source := tmp_path / "x.mlir").write_text(TEXT)
    (open_ := tmp_path / "y.mlir").write_text(TEXT.replace("8x16", "?x16").replace("<8xf32", "<?xf32"))
    np.savez(tmp_path / "y.npz", y=np.zeros(3, "f4"))
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 3), "f4"))
    words = ["-o", str(tmp_path / "t.json"), "--records", str(tmp_path / "r")]
    for file, options, status, message in (
        (source, ["--objective", "compile", "--cluster", "tcp://h:1"], 2, "--objective compile: expected no --cluster"),
        (source, ["--objective", "pareto", "--target", "cuda"], 2, "expected no --objective"),
        (source, ["--inputs", "x.txt"], 2, "argument --inputs: expected random:SEED, FILE.npz or NAME=FILE.npz"),
        (source, ["--inputs", "x.npz", "--cluster", "tcp://h:1"], 2, "--inputs: expected none with --cluster"),
        (source, ["--inputs", "random:1", "--target", "cuda"], 2, "expected no --inputs"),
        (source, ["--inputs", str(tmp_path / "y.npz")], 1, "has no array for"),
        (source, ["--inputs", str(tmp_path / "x.npz")], 1, "expected"),
        (source, ["--inputs", str(tmp_path / "z.npz")], 1, "No such file"),
        (open_, ["--inputs", "random:1"], 1, "expected known extents of arguments"),
    ):
        assert main([str(file), *words, *options]) == status
        assert message in capsys.readouterr().err


def test_kernels_are_given_what_a_run_gives_them() -> None:
    """Each kernel's operands are those of the program's arguments; measurements on them are told from others."""
    text = TEXT.replace("graph.sum %e", "graph.sum %m").replace(
        "  %s =",
        "  %w = graph.constant dense<0.5> : tensor<16x16xf32>\n"
        "  %m = graph.matmul %e, %w : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>\n  %s =",
    )
    passes = make_passes(None)
    x = np.random.default_rng(0).standard_normal((8, 16)).astype("f4")
    sites = {site.name: site for site in find_sites(load(text), passes, arguments=[x])}
    plain = {site.name: site for site in find_sites(load(text), passes)}
    assert sites.keys() == plain.keys() and sites
    for name, site in sites.items():
        (given, *_), (drawn, *_) = site.arguments(0), plain[name].arguments(0)
        assert given.shape == drawn.shape and site.given and not plain[name].given
        assert site.key == plain[name].key
    first = next(site for site in sites.values() if site.name.startswith("kernel_exp"))
    np.testing.assert_array_equal(first.arguments(0)[0], x)
    again = find_sites(load(text), passes, arguments=[x + 1])
    assert {site.given for site in again}.isdisjoint({site.given for site in sites.values()})


@pytest.mark.skipif(not has_c_compiler(), reason="programs are compiled")
def test_a_file_of_arguments(tmp_path: Path) -> None:
    """Records of measurements on given arguments are no others' than theirs."""
    (source := tmp_path / "x.mlir").write_text(TEXT)
    np.savez(tmp_path / "x.npz", x=np.ones((8, 16), "f4"))
    words = [
        str(source),
        "--trials",
        "1",
        "--threads",
        "1",
        "-o",
        str(tmp_path / "t.json"),
        "--records",
        str(tmp_path / "r"),
    ]
    assert main([*words, "--inputs", str(tmp_path / "x.npz")]) == 0
    lines = [json.loads(line) for path in (tmp_path / "r").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert len({line.get("inputs") for line in lines if str(line["key"]).startswith("k:")} - {None}) <= 1
    assert json.loads((tmp_path / "t.json").read_text())["objective"] == "time"
