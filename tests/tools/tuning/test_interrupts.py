"""Ctrl-C, once and twice, by a table of times: what is best is confirmed, or the file has what was confirmed before."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from math import log
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.tools.compiler.builders import has_c_compiler
from fuse_opt.tools.tuning import places
from fuse_opt.tools.tuning.fuse_tune_main import main
from fuse_opt.tools.tuning.search.candidates import Candidate, Site
from fuse_opt.tools.tuning.search.race import CONFIRMATION
from fuse_opt.tools.tuning.search.study import Measured

pytestmark = pytest.mark.skipif(not has_c_compiler(), reason="machines are told apart by their compilers")
Run = Callable[[dict[int, int]], tuple[int, list[dict[str, object]]]]
TEXT = """
func.func @main(%x: tensor<33x300xf32>) -> tensor<33xf32> {
  %0 = graph.sum %x {axes = array<i64: 1>} : (tensor<33x300xf32>) -> tensor<33xf32>
  func.return %0 : tensor<33xf32>
}"""
INTERRUPTED = 130


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Tunes with so many signals at some of the measurements, by their numbers; -1 stands for those of a confirmation."""
    monkeypatch.setenv("FUSE_OPT_DEVICE", "cpu")
    here, asked = places._here, list[int]()  # pyright: ignore[reportPrivateUsage]
    signals: dict[int, int] = {}

    class Table:
        """32 accumulators are a fifth faster than all else."""

        def measure(self, candidate: Candidate, turn: int, pairs: int) -> Measured:
            asked.append(turn)
            for _ in range(signals.get(len(asked), 0) + signals.get(-1, 0) * (turn == CONFIRMATION)):
                os.kill(os.getpid(), signal.SIGINT)
            won = candidate.settings.get("lanes") == 32 or "tuned" in candidate.settings
            return Measured((-log(0.8 if won else 1.1),) * pairs, candidate.same_bits, 1e-3)

        def look_again(self, candidate: Candidate) -> str:
            return ""

        def close(self) -> None: ...

    def table(site: Site) -> Table:
        return Table()

    def fixed(module: ModuleOp) -> float:
        return 1e-3

    def by_table(threads: int, seed: int, jobs: int, arguments: object) -> places.Place:
        return replace(here(threads, seed, jobs, None), bench=table, seconds=fixed, width=1)

    monkeypatch.setattr(places, "_here", by_table)
    (source := tmp_path / "x.mlir").write_text(TEXT)
    words = [str(source), "--threads", "1", "--records", str(tmp_path / "r"), "-o", str(file := tmp_path / "t.json")]

    def run(at: dict[int, int]) -> tuple[int, list[dict[str, object]]]:
        signals.clear()
        signals.update(at)
        asked.clear()
        status = main([*words, "--trials", str(20 + len(at))])
        return status, json.loads(file.read_text())["kernels"]

    return run


def test_once_confirms_the_best_so_far(tuned: Run, capsys: pytest.CaptureFixture[str]) -> None:
    status, (kernel,) = tuned({12: 1})
    said = capsys.readouterr().err
    assert status == 0 and "interrupted: the best so far is confirmed and written" in said
    assert kernel["state"] == "confirmed" and kernel["schedule"] == {"kind": "row", "lanes": 32}


def test_twice_ends_it_with_what_was_confirmed_before(
    tuned: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tuned({4: 2}) == (INTERRUPTED, [])
    assert "else the default; what was measured is in the records" in capsys.readouterr().err
    lines = [line for path in (tmp_path / "r").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert sum(json.loads(line)["state"] == "raced" for line in lines) == 3
    assert tuned({-1: 2}) == (INTERRUPTED, []), "it was not confirmed"
    status, (kernel,) = tuned({})
    assert status == 0 and kernel["state"] == "confirmed"
    for path in (tmp_path / "r").glob("*.jsonl"):
        kept = [line for line in path.read_text().splitlines(keepends=True) if json.loads(line)["state"] == "confirmed"]
        path.write_text("".join(kept))
    status, (again,) = tuned({2: 2})
    assert status == INTERRUPTED and again["schedule"] == kernel["schedule"]
