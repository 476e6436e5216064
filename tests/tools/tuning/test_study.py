"""The tuner driven by a table of times: what it chooses, what it leaves out and does not repeat, and that chance never wins."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import log
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.passes.devices.this_machine import Machine
from fuse_opt.passes.scheduling.tuned_schedules import read_tuned
from fuse_opt.tools.compiler.api import load
from fuse_opt.tools.tuning.report import report_html, report_text
from fuse_opt.tools.tuning.search import sampling
from fuse_opt.tools.tuning.search.candidates import Candidate, Site, single_changes
from fuse_opt.tools.tuning.search.race import Raced, confirm, judge
from fuse_opt.tools.tuning.search.records import RecordedBench, Records, finished, outcome_line
from fuse_opt.tools.tuning.search.sites import find_sites
from fuse_opt.tools.tuning.search.study import Limit, Measured, Study, TrialFailed
from fuse_opt.tools.tuning.search.tune_program import Options, Result, Tuner, said_of, tuned_text

Times = dict[tuple[str, str | int], float | str]
HERE = Machine("d:here", "c:now")
TEXT = """
func.func @main(%x: tensor<300x400xf32>, %y: tensor<70xf32>) -> (tensor<300x400xf32>, tensor<70xf32>) {
  %0 = graph.softmax %x {axis = -1 : i64} : (tensor<300x400xf32>) -> tensor<300x400xf32>
  %1 = graph.exp %y : (tensor<70xf32>) -> tensor<70xf32>
  func.return %0, %1 : tensor<300x400xf32>, tensor<70xf32>
}"""


@cache
def sites() -> list[Site]:
    return find_sites(load(TEXT))


class Table:
    """Times of candidates, relative to the default's, by what their schedules say; with noise of a seed."""

    def __init__(self, times: Times, noise: float = 0.0, seed: int = 0) -> None:
        self.times, self.noise, self.seed = times, noise, seed
        self.undefined: set[tuple[str, str | int]] = set()
        self.unchecked = ""
        self.asked: list[tuple[str, int]] = []

    def measure(self, candidate: Candidate, turn: int, pairs: int) -> Measured:
        self.asked.append((candidate.text, turn))
        factor = 1.0
        for entry, time in self.times.items():
            if entry in candidate.settings.items():
                if isinstance(time, str):
                    raise TrialFailed(time)
                factor *= time
        drawn = random.Random(f"{candidate.text} {turn} {self.seed}")
        found = tuple(drawn.gauss(-log(factor), self.noise) for _ in range(pairs))
        return Measured(found, candidate.same_bits, 1e-3)

    def look_again(self, candidate: Candidate) -> str:
        """What is undefined in C is said in the table, too."""
        for entry in self.undefined & candidate.settings.items():
            raise TrialFailed(f"crash: {entry}")
        return self.unchecked

    def close(self) -> None:
        """There is nothing to close."""


def search(table: Table, trials: int = 64, *, same_bits: bool = False, seed: int = 0) -> Study:
    study = Study(sites()[0], table, Limit(lambda: 0.0, trials), seed=seed, same_bits=same_bits)
    study.run()
    return study


def test_the_fastest_is_found_and_entries_that_win_alone_are_combined() -> None:
    table = Table({("lanes", 64): 0.9, ("lanes", 128): 0.8, ("tasks", 65536): 0.95, ("tasks", 16384): 1.3})
    outcome = search(table).outcome
    assert outcome.winner is not None and outcome.verdict is not None
    assert {"lanes": 128, "tasks": 65536}.items() <= outcome.winner.settings.items()
    assert outcome.verdict.median == pytest.approx(1 / (0.8 * 0.95))
    assert outcome.exhausted and not outcome.same_bits and outcome.duplicates > 0
    texts = [text for text, turn in table.asked if turn == 0]
    assert len(texts) == len(set(texts)) == outcome.trials and sites()[0].default.text not in texts
    kept = search(table, same_bits=True).outcome
    assert kept.winner is None or "lanes" not in kept.winner.settings


@pytest.mark.parametrize("library", ["optuna", "no such library"])
def test_of_too_many_combinations_a_sample_is_tried(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if library == "optuna":
        pytest.importorskip("optuna", reason="the extra tune")
    monkeypatch.setattr(sampling, "LIBRARY", library)
    site, best = sites()[0], Candidate.of({"kind": "row", "lanes": 64, "tasks": 8, "unroll": 4}, False)
    single = [("lanes", 32), ("lanes", 64), ("tasks", 8), ("tasks", 9), ("unroll", 2), ("unroll", 4)]
    winners = [Candidate.of({"kind": "row", name: value}, name != "lanes") for name, value in single]

    def sampled(seed: int) -> list[Candidate]:
        shown: dict[Candidate, float] = {}
        for candidate in sampling.combinations(site, winners, seed, 12, shown.get):
            shown[candidate] = float(len(candidate.settings.items() & best.settings.items()))
        return list(shown)

    found = sampled(3)
    assert found == sampled(3) and 8 <= len(found) <= 12
    assert all(candidate.same_bits == ("lanes" not in candidate.settings) for candidate in found)
    assert len(list(sampling.combinations(site, winners, 0, 20, lambda _: None))) == 20


def test_failures_are_recorded_and_never_chosen() -> None:
    faults: Times = {
        ("lanes", 8): "hang: no answer",
        ("lanes", 16): "wrong: bits",
        ("lanes", 32): "crash: SIGSEGV",
        ("lanes", 64): "slow: 100 times",
    }
    outcome = search(Table({**faults, ("tasks", 65536): 0.9, ("lanes", 128): 3.0}, 0.0)).outcome
    assert sorted(reason.partition(":")[0] for reason in outcome.failed.values()) == ["crash", "hang", "slow", "wrong"]
    assert outcome.winner is not None and not faults.keys() & outcome.winner.settings.items()


def test_a_winner_that_c_does_not_define_is_none() -> None:
    table = Table({("lanes", 64): 0.9})
    table.undefined = {("lanes", 64)}
    outcome = search(table, 12).outcome
    assert outcome.winner is None and [*outcome.failed.values()] == ["crash: ('lanes', 64)"]


def test_what_a_last_look_left_out_is_said() -> None:
    table = Table({("lanes", 64): 0.9})
    table.unchecked = "its addresses were not checked: nobody could"
    outcome = search(table, 12).outcome
    assert f"({table.unchecked}); 12 candidates" in said_of(outcome)
    assert outcome_line(outcome, "")["unchecked"] == table.unchecked


def test_a_kernel_against_itself_is_never_accepted() -> None:
    found = [search(Table({}, 0.03, seed), trials=12, seed=seed).outcome for seed in range(16)]
    assert [each for each in found if each.winner is not None] == []
    assert all(each.verdict is None or each.refused is not None for each in found)


def test_chance_is_not_confirmed_and_a_gain_is() -> None:
    def confirmed(seed: int, gain: float) -> bool:
        drawn = random.Random(seed)

        def measure(candidate: Candidate, turn: int, pairs: int) -> list[float]:
            return [drawn.gauss(gain, 0.02 if drawn.random() < 0.9 else 0.1) for _ in range(pairs)]

        verdict = confirm(Raced(Candidate("{}", True), tuple(drawn.gauss(gain, 0.02) for _ in range(12))), measure)
        return verdict is not None and verdict.accepted

    assert not any(confirmed(seed, 0.0) for seed in range(300))
    assert sum(confirmed(seed, 0.04) for seed in range(40)) >= 36


@pytest.mark.parametrize(
    ("pairs", "accepted"),
    [([log(1.03)] * 24, True), ([log(1.01)] * 96, False), ([0.3] * 13 + [-0.3] * 11, False), ([0.1] * 4, False)],
)
def test_verdicts(pairs: list[float], accepted: bool) -> None:
    assert judge(pairs).accepted is accepted


def tuner(folder: Path, table: Callable[[Site], Table], **options: object) -> Tuner:
    chosen = Options(trials=14, seconds=None, **options)  # pyright: ignore[reportArgumentType]
    return Tuner(sites(), Records(folder, HERE), table, lambda: 0.0, chosen, lambda: 2e-3)


def table(site: Site) -> Table:
    return Table(TIMES, 0.01)


TIMES: Times = {("lanes", 64): 0.9, ("cut", "never"): 0.97, ("tasks", 4096): 1.1}


def test_a_run_that_was_ended_goes_on_with_the_same_trials(tmp_path: Path) -> None:
    """Of the kernels that are left, too: none is measured that a run to the end would not measure."""
    whole = tuner(tmp_path / "whole", table).run()
    ended = tuner(tmp_path / "parts", table)
    ended.interrupted = lambda: bool(ended.records.of(first) and finished(ended.records.of(first), ended.options.study))
    first = max(sites(), key=lambda site: whole.shares[site.key.key])
    parts = ended.run()
    assert len(parts.outcomes) == 1 < len(whole.outcomes)
    rest = tuner(tmp_path / "parts", table).run()
    assert rest.before == parts.trials and rest.before + rest.trials == whole.trials
    assert rest.measured + parts.measured == whole.measured and rest.lines.keys() == whole.lines.keys()


def test_records_are_the_study(tmp_path: Path) -> None:
    tables: list[Table] = []

    def made(site: Site) -> Table:
        tables.append(Table(TIMES, 0.01))
        return tables[-1]

    first = tuner(tmp_path / "a", made).run()
    assert first.won and first.measured == sum(len(table.asked) for table in tables)
    again = tuner(tmp_path / "a", made).run()
    assert (again.measured, again.won) == (0, first.won)
    assert tuned(again) == tuned(first)
    (tmp_path / "t.json").write_text(tuned(first))
    assert {each.settings["lanes"] for key in first.won for each in read_tuned(tmp_path / "t.json").entries[key]} == {
        64
    }
    assert {each.settings["lanes"] for key in first.won for each in read_tuned(tmp_path / "a").entries[key]} == {64}


def test_what_was_lowered_once_is_not_lowered_again(tmp_path: Path) -> None:
    run = tuner(tmp_path, table)
    run.run()
    site = sites()[0]
    for candidate in single_changes(site, False):
        text = RecordedBench(site, run.records, lambda: table(site)).text(candidate)
        unlowered = replace(site, module=ModuleOp([]))
        assert RecordedBench(unlowered, Records(tmp_path, HERE), lambda: table(site)).text(candidate) == text


def tuned(result: Result) -> str:
    shown = Result(result.lines)
    return tuned_text(sites(), shown, HERE, {"program": "x.mlir"})


def test_a_torn_file_loses_nothing_that_is_finished(tmp_path: Path) -> None:
    whole = tuner(tmp_path / "whole", table).run()
    (file,) = (tmp_path / "whole").glob("*.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    for cut in (1, len(lines) // 2, len(lines) - 1):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "torn.jsonl").write_text("".join(lines[:cut]) + lines[cut][:40])
        rest = tuner(folder, table).run()
        finished = sum(json.loads(line)["state"] in ("raced", "failed") for line in lines[:cut])
        assert rest.measured <= whole.measured - finished
        assert tuned(rest) == tuned(whole)


def test_what_another_device_found_is_tried_first_and_never_taken_for_granted(tmp_path: Path) -> None:
    assert tuner(tmp_path, table).run().won
    tables: list[Table] = []

    def slow_here(site: Site) -> Table:
        tables.append(Table({("lanes", 64): 1.5}))
        return tables[-1]

    other = tuner(tmp_path, slow_here)
    other.records = Records(tmp_path, Machine("d:other", "c:now"))
    result = other.run()
    first = next(text for each in tables for text, turn in each.asked if turn == 0)
    assert '"lanes": 64' in first
    assert not result.won and {line["state"] for line in result.lines.values()} == {"default"}


def test_what_is_interrupted_is_confirmed_and_written_and_goes_on_later(tmp_path: Path) -> None:
    tables: list[Table] = []

    def made(site: Site) -> Table:
        tables.append(Table(TIMES, 0.01))
        return tables[-1]

    stopped = tuner(tmp_path, made)
    stopped.interrupted = lambda: sum(len(table.asked) for table in tables) > 9
    told: list[str] = []
    stopped.told = told.append
    first = stopped.run()
    assert len(first.lines) == 1 and not any("goes on" in line for line in told)
    later = tuner(tmp_path, made)
    later.told = told.append
    rest = later.run()
    assert len(rest.lines) == 2 and rest.won
    turns = [json.loads(line) for path in tmp_path.glob("*.jsonl") for line in path.read_text().splitlines()]
    before = len([each for each in turns if each["state"] == "raced"])
    (said,) = [line for line in told if line.startswith("goes on behind ")]
    assert 0 < int(said.split()[3]) < before


def test_times_that_are_no_numbers(tmp_path: Path) -> None:
    result = tuner(tmp_path, lambda _: Table({("lanes", 32): float("nan"), ("lanes", 16): 0.9})).run()
    reasons = [reason for outcome in result.outcomes.values() for reason in outcome.failed.values()]
    assert reasons and all(reason == "nan: times are no numbers" for reason in reasons)
    assert result.won


def test_reports(tmp_path: Path) -> None:
    result = tuner(tmp_path, lambda _: Table({("lanes", 64): 0.9, ("lanes", 8): "crash: <signal>"})).run()
    text, page = report_text(sites(), result, "t.json"), report_html(sites(), result, "t.json")
    assert "1.111x" in text and '"lanes": 8}: crash: <signal>' in text and "--tuned t.json" in text
    assert page.count("<circle") == sum(len(outcome.tried) for outcome in result.outcomes.values())
    assert "crash: &lt;signal&gt;" in page and "<script" not in page and "http" not in page


def test_nothing_is_tried_where_nothing_can_be_won(tmp_path: Path) -> None:
    idle = tuner(tmp_path, lambda _: Table({}))
    idle.total = lambda: 1.0
    result = idle.run()
    assert result.message == "0.2% of the time is in kernels that have something to choose: nothing is tried"
    assert not result.outcomes
    idle.total = lambda: 0.05  # 4 % of it
    assert idle.run().message.startswith("4.0% of the time is in kernels")
    idle.total = lambda: 0.06
    idle.sites = [replace(site, key=replace(site.key, key=f"{site.key.key}{k}")) for site in sites() for k in range(2)]
    assert idle.run().message == "none of 4 kernels takes 2% of the time: nothing is tried"
    idle.sites = []
    assert idle.run().message == "no kernel has something to choose: nothing is tried"


@pytest.mark.parametrize(("seconds", "weighed"), [(100.0, 8), (6.0, 2), (0.1, 1)])
def test_weighing_leaves_time_to_search(seconds: float, weighed: int, tmp_path: Path) -> None:
    """One kernel after another, each a second, until a quarter of the time is spent: those that move the most bytes first."""
    small, large = sorted(sites(), key=lambda site: site.nbytes)
    now, told = 0.0, list[str]()

    def made(site: Site) -> Table:
        nonlocal now
        now += 1.0
        return table(site)

    short = tuner(tmp_path, made)
    short.options = replace(short.options, trials=None, seconds=seconds)
    short.begun, short.clock, short.told = 0.0, lambda: now, told.append
    short.sites = [replace(small, key=replace(small.key, key=f"small {k}")) for k in range(7)] + [large]
    result = short.run()
    assert large.key.key in result.shares and len(result.shares) == weighed and result.unweighed == 8 - weighed
    said = [line for line in told if "left alone" in line]
    assert said == ([] if weighed == 8 else [f"{8 - weighed} of 8 kernels are left alone: {NO_TIME}"])
    assert result.outcomes and (result.trials > 0) == (seconds > 1)


NO_TIME = "there was no time to see how long they take"


def test_few_kernels_that_were_weighed_say_nothing_of_the_others(tmp_path: Path) -> None:
    short = tuner(tmp_path, table)
    short.options = replace(short.options, trials=None, seconds=10.0)
    ticks = iter(range(0, 1000, 3))
    short.clock, short.total = lambda: float(next(ticks)), lambda: 1.0
    assert short.run().message == "none of 1 of 2 kernels takes 2% of the time: nothing is tried"


def test_a_kernel_whose_default_fails_is_no_search(tmp_path: Path) -> None:
    alone = tuner(tmp_path, lambda _: Table({("kind", "row"): "crash: SIGSEGV"}), kernel=sites()[0].name)
    told: list[str] = []
    alone.told = told.append
    assert alone.run().message == "the default is best: 0 candidates, none >= 1.02x"
    assert told == [f"{sites()[0].name}: its default cannot be measured: crash: SIGSEGV"]
