"""The commands about decisions: bisection and differences."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuse_opt.passes.decisions import parse_decisions
from fuse_opt.tools.commands.fuse_opt_main import main
from fuse_opt.tools.steering.decision_diff import diff_decisions

ROOT = Path(__file__).resolve().parents[3]
ADAM = str(ROOT / "examples" / "adam_step.mlir")
Capture = pytest.CaptureFixture[str]


def test_bisection_names_a_decision(capsys: Capture) -> None:
    assert main([ADAM, "--default", "--bisect", "! grep -q inplace {}"]) == 0
    output, errors = capsys.readouterr()
    assert output.startswith("infer-inplace @main: ") and output.count("\n") == 1
    assert 4 <= errors.count("\nwith ") + errors.startswith("with ") <= 6 and "of 16, found by" in errors


@pytest.mark.parametrize(
    ("command", "status", "message"),
    [
        ("true", 1, "'true' passes with all decisions made: no decision is to blame"),
        ("false", 1, "'false' fails without any decision: no decision is to blame"),
        ("no-such-command-here", 2, "the shell cannot run 'no-such-command-here "),
    ],
)
def test_bisection_that_finds_nothing(command: str, status: int, message: str, capsys: Capture) -> None:
    assert main([ADAM, "--infer-inplace", "--bisect", command]) == status
    output, errors = capsys.readouterr()
    assert message in errors and output == ""


def test_bisection_needs_a_file(capsys: Capture) -> None:
    assert main(["-", "--bisect", "true"]) == 2
    assert "name one file" in capsys.readouterr().err


OLD = """\
fuse-row @main: graph.max#0 + graph.exp#0
plan-memory @main: graph.exp#0 = at 0
plan-memory @main: graph.exp#0 = result 1 at 64
infer-inplace @main: graph.exp#0 = over operand 1
"""


@pytest.mark.parametrize(
    ("new", "lines"),
    [
        (OLD, ""),
        (OLD.replace("at 64", "at 128"), "~ plan-memory @main: graph.exp#0 = result 1 at 64 -> result 1 at 128\n"),
        (OLD.partition("\n")[2], "- fuse-row @main: graph.max#0 + graph.exp#0\n"),
        (f"{OLD}dce @f: a + b\n", "+ dce @f: a + b\n"),
        ("".join(reversed(OLD.splitlines(keepends=True))), "# the same decisions in another order\n"),
    ],
)
def test_differences(new: str, lines: str, tmp_path: Path, capsys: Capture) -> None:
    assert diff_decisions(parse_decisions(OLD), parse_decisions(new)) == lines
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for file, text in zip(files, (OLD, new), strict=True):
        file.write_text(text)
    assert main(["--diff-decisions", *map(str, files)]) == (1 if lines else 0)
    assert capsys.readouterr() == (lines, "")


def test_differences_of_what_is_no_file_of_decisions(tmp_path: Path, capsys: Capture) -> None:
    (bad := tmp_path / "bad.txt").write_text("nonsense\n")
    assert main(["--diff-decisions", str(bad), str(bad)]) == 1
    assert capsys.readouterr().err.startswith(f"{bad}:1:9: error: expected a function")
    assert main(["--diff-decisions", str(tmp_path / "none"), str(bad)]) == 1
    assert "cannot read" in capsys.readouterr().err
