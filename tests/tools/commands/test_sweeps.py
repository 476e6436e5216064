"""Programs at many extents: `fuse-run --extents NAME=A..B`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fuse_opt.tools.commands.fuse_run_main import main
from fuse_opt.tools.commands.models import parse_points

PROGRAM = """func.func @main(%x: tensor<?x4xf32> {graph.dims = ["n", ""]}, %y: tensor<?xf32> {graph.dims = ["m"]})
    -> tensor<?xf32> {
  %e = graph.sum %x {axes = array<i64: 1>} : (tensor<?x4xf32>) -> tensor<?xf32>
  %r = graph.concat %e, %y {axis = 0 : i64} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  func.return %r : tensor<?xf32>
}"""

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "program.mlir").write_text(PROGRAM)
    return str(tmp_path / "program.mlir")


def test_points_are_all_choices() -> None:
    assert parse_points("") == [{}] and parse_points("a=3") == [{"a": 3}]
    assert parse_points("a=1..2,b=5..6") == [{"a": 1, "b": 5}, {"a": 1, "b": 6}, {"a": 2, "b": 5}, {"a": 2, "b": 6}]
    for wrong in ("a", "a=", "a=2..1", "a=1..", "=1..2", "a=1..2..3", "a=-1..2"):
        with pytest.raises(ValueError, match="expected NAME=N or NAME=A..B"):
            parse_points(wrong)


def test_a_sweep_is_checked_at_each_point(program: str, capsys: Capture) -> None:
    arguments = [program, "--target", "reference", "--extents", "n=1..3,m=0..1", "--check", "--repeat", "1"]
    assert main([*arguments, "--stats", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sizes"] == 6 and found["check"]["passed"] and set(found["medians"]) == {"min", "median", "max"}
    assert main(arguments) == 0
    assert "check: passed" in capsys.readouterr().out


def test_what_a_sweep_cannot_have_is_refused(program: str, capsys: Capture) -> None:
    assert main([program, "--extents", "n=1..2", "--results", "out.npz"]) == 1
    assert "a range needs random arguments" in capsys.readouterr().err
    assert main([program, "--extents", "k=1..2", "--target", "reference"]) == 1
    assert "no argument has an unknown extent 'k'; there are: m, n" in capsys.readouterr().err
