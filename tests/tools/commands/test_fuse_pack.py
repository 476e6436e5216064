"""The command fuse-pack: what it prints, what it writes, and how it refuses."""

import json
from pathlib import Path

import pytest
from packing_law import assert_law

from fuse_opt.passes.memory.packing.packing import Problem
from fuse_opt.tools.commands.fuse_pack import main, read_rows

EXAMPLE = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n"


def run(tmp_path: Path, text: str, *arguments: str) -> int:
    path = tmp_path / "problem.csv"
    path.write_text(text)
    return main([str(path), *arguments])


def test_prints_one_line_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, EXAMPLE, "--capacity", "12") == 0
    (line,) = capsys.readouterr().out.splitlines()
    summary = json.loads(line)
    assert summary.pop("seconds") >= 0
    expected = {"arena": 12, "lower_bound": 12, "gap": 0.0, "optimal": True, "method": "peak-death-size"}
    assert summary == expected


@pytest.mark.parametrize(
    "options", [[], ["--no-native"], ["--strategy", "size"], ["--time-limit", "5"], ["--nodes", "10"]]
)
def test_writes_a_solution_that_holds(tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "solution.csv"
    assert run(tmp_path, EXAMPLE, "--solution", str(target), *options) == 0
    arena = json.loads(capsys.readouterr().out)["arena"]
    rows = read_rows(str(target))
    assert [row.name for row in rows] == ["b1", "b2", "b3", "b4", "b5"]
    offsets = tuple(row.buffer.offset or 0 for row in rows)
    assert_law(Problem(tuple(row.buffer for row in rows), 1), offsets, arena)


def test_columns_may_come_in_any_order_and_pin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "size,offset,upper,lower,id\n\n4,8,3,0,a\n 4 ,,3,0,b\n"
    assert run(tmp_path, text) == 0
    assert json.loads(capsys.readouterr().out)["arena"] == 12


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "expected a line with the columns"),
        ("id,lower,size\n", "line 1: expected columns id, lower, upper, size; no upper"),
        ("id,lower,upper,size\na,1,2\n", "line 2: expected 4 cells, got 3"),
        ("id,lower,upper,size\na,1,2,x\n", "line 2: expected a whole number as size, got 'x'"),
        ("id,lower,upper,size\na,1,2,1e3\n", "got '1e3'"),
        (f"id,lower,upper,size\na,1,2,{'9' * 99}\n", "got '9999"),
        ("id,lower,upper,size\na,5,2,1\n", "line 2: dies at step 2, before its birth at step 5"),
        ("id,lower,upper,size\na,1,2,-1\n", "line 2: has a negative size"),
        ("id,lower,upper,size,offset\na,1,2,4,0\nb,1,2,4,2\n", "pinned buffers 0 and 1 overlap"),
        ('id,lower,upper,size\n"a,1,2,3\n', "unexpected end of data"),
    ],
)
def test_bad_files_are_refused_in_one_line(
    tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, text) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fuse-pack: error: ") and message in line


def test_other_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.csv")]) == 1
    assert "none.csv': No such file" in capsys.readouterr().err
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    assert main([str(tmp_path / "bytes.csv")]) == 1
    assert "expected text in UTF-8" in capsys.readouterr().err
    assert run(tmp_path, EXAMPLE, "--solution", str(tmp_path / "no" / "such")) == 1
    assert "cannot open" in capsys.readouterr().err


def test_a_capacity_out_of_reach(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, EXAMPLE, "--capacity", "11") == 1
    assert capsys.readouterr().err == "fuse-pack: error: capacity of 11 bytes cannot be met: 12 are alive at once\n"
    hard = "id,lower,upper,size\n" + "a,5,6,3\nb,3,5,2\nc,0,2,3\nd,1,5,1\ne,1,4,1\nf,4,8,3\ng,0,1,3\n"
    assert run(tmp_path, hard, "--capacity", "6") == 1
    assert capsys.readouterr().err.endswith("capacity of 6 bytes was not met: the least possible is 7\n")


@pytest.mark.parametrize(
    "arguments", [[], ["x", "--strategy", "best"], ["x", "--capacity", "0"], ["x", "--time-limit", "nan"], ["x", "-q"]]
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "error" in capsys.readouterr().err
