"""Plans that no other beats: told apart exactly, made by their decisions, refused for what has no plans."""

from __future__ import annotations

import random
import re
import shlex
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from c_printing import needs_cc
from model_texts import gradient_text

import fuse_opt
from fuse_opt.passes.recompute.trials import undominated
from fuse_opt.tools.commands.fuse_run_main import main
from fuse_opt.tools.compiler.api import steered
from fuse_opt.tools.watching.pareto import Plan, pareto_section, table

ONE = 4 * 128 * 128


@pytest.mark.parametrize("seed", range(5))
def test_undominated(seed: int) -> None:
    choose = random.Random(seed)
    points = [(choose.randrange(6), float(choose.randrange(6))) for _ in range(12)]
    kept = undominated(points)
    beaten = {k for k, p in enumerate(points) if any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points)}
    assert {points[k] for k in kept} == {p for k, p in enumerate(points) if k not in beaten}
    assert [points[k][0] for k in kept] == sorted({points[k][0] for k in kept})


def test_a_clock_that_stands_still() -> None:
    plans = [
        Plan(64, (0.0, 0.0, 0.004), 0, "1.decisions", "", ""),
        Plan(32, (0.0, 0.004, 0.004), 1, "2.decisions", "", ""),
    ]
    assert [line.split()[6] for line in table(plans).splitlines()[1:]] == ["-", "-"]
    assert "1.decisions" in pareto_section(0, plans)


@needs_cc
def test_plans_are_made_again_by_their_decisions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, page = tmp_path / "a net.mlir", tmp_path / "page.html"
    model.write_text(gradient_text(2))
    (folder := tmp_path / "page-plans").mkdir()
    (folder / "99.decisions").write_text("of an earlier run\n")
    assert main([str(model), "--pareto", str(page), "--repeat", "2"]) == 0
    head, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head[0] == "no." and rows
    arenas = [int(row[1]) for row in rows]
    assert arenas == sorted(arenas) and min(arenas) < 4 * ONE
    assert sorted(map(str, folder.iterdir())) == sorted(row[-1] for row in rows)
    for arena, row in zip(arenas, rows, strict=True):
        with steered(row[-1]):
            assert f"size = {arena} " in str(fuse_opt.optimize(gradient_text(2)))
    read = HTMLParser()
    read.feed(text := page.read_text())
    read.close()
    assert text.count("<circle") == text.count("<details>") == len(rows) and "http" not in text
    *words, decisions = shlex.split(unescape(re.findall("<code>(.*)</code>", text)[-1]))
    assert words == ["fuse-opt", str(model), "--default", "--replay-decisions"] and decisions == rows[-1][-1]


@needs_cc
def test_what_has_no_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, page = tmp_path / "net.mlir", tmp_path / "page.html"
    model.write_text(gradient_text(1))
    assert main([str(model), "-p", "fuse-elementwise", "--pareto", str(page)]) == 1
    assert "expected a pipeline with 'rematerialize'" in capsys.readouterr().err
    assert not page.exists() and not (tmp_path / "page-plans").exists()
    assert main([str(model), "--pareto", str(page), "--budget", "1MiB"]) == 2
    assert "--pareto and --budget exclude each other" in capsys.readouterr().err
