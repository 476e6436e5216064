"""The command fuse-tune: tables that select-implementation reads, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fuse_opt
from fuse_opt.passes.scheduling.schedule_kernels import ScheduleKernelsPass
from fuse_opt.tools.compiler.backend_switch import with_tuned
from fuse_opt.tools.compiler.builders import has_c_compiler
from fuse_opt.tools.tuning import dispatch_times
from fuse_opt.tools.tuning.fuse_tune_main import main

Capture = pytest.CaptureFixture[str]
TEXT = """
func.func @main(%x: tensor<8x16xf32>, %w: tensor<16x32xf32> {graph.frozen}, %b: tensor<32xf32>) -> tensor<8x32xf32> {
  %0 = graph.matmul %x, %w : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = graph.add %0, %b : (tensor<8x32xf32>, tensor<32xf32>) -> tensor<8x32xf32>
  %2 = graph.relu %1 : (tensor<8x32xf32>) -> tensor<8x32xf32>
  func.return %2 : tensor<8x32xf32>
}
"""
PRODUCTS = """
func.func @main(%x: tensor<16x16xf32>) -> tensor<16x16xf32> {
  %0 = graph.matmul %x, %x : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %1 = graph.matmul %0, %0 : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  func.return %1 : tensor<16x16xf32>
}
"""
SUM = """
func.func @main(%x: tensor<33x70xf32>) -> tensor<33xf32> {
  %0 = graph.sum %x {axes = array<i64: 1>} : (tensor<33x70xf32>) -> tensor<33xf32>
  func.return %0 : tensor<33xf32>
}
"""


@pytest.mark.skipif(not has_c_compiler(), reason="programs are compiled")
def test_a_table_names_every_implementation_that_takes_a_site(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_times, "SLOTS", 2)
    monkeypatch.setattr(dispatch_times, "_SLOT_SECONDS", 1e-5)
    monkeypatch.setattr(dispatch_times, "_LARGER_THAN_CACHES", 1 << 12)
    (source := tmp_path / "x.mlir").write_text(TEXT)
    assert main(["dispatch", str(source), "-o", str(tmp_path / "t.jsonl")]) == 0
    assert capsys.readouterr().out == ""
    header, *rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert header["fuse-opt-dispatch-table"] == 1 and header["threads"] == 1
    site = "graph.matmul(8x16xf32, 16x32xf32!) -> 8x32xf32 + graph.add + graph.relu"
    assert {row["site"] for row in rows} == {site}
    assert {"fuse.matmul", "numpy.matmul"} <= {row["implementation"] for row in rows}
    assert all(row["seconds"] > 0 and row["cold"] > 0 for row in rows)
    monkeypatch.setenv("FUSE_OPT_DISPATCH_TABLE", str(tmp_path / "t.jsonl"))
    (name,) = fuse_opt.compile(TEXT).implementations
    least = min(row["seconds"] for row in rows)
    assert any(row["implementation"] == name and row["seconds"] <= 1.05 * least for row in rows)


@pytest.mark.skipif(not has_c_compiler(), reason="programs are compiled")
def test_a_program_is_tuned_once_and_compiled_by_its_file(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source := tmp_path / "x.mlir").write_text(SUM)
    arguments = [
        str(source),
        "--threads",
        "1",
        "--trials",
        "1",
        "-o",
        str(file := tmp_path / "t.json"),
        "--records",
        str(tmp_path / "r"),
    ]
    assert main(arguments) == 0
    whole = json.loads(file.read_text())
    assert whole["fuse-opt-tuned"] == 1 and [each["name"] for each in whole["kernels"]] == ["kernel_sum_0"]
    assert "kernel_sum_0: the default is best: 1 candidate (" in capsys.readouterr().err
    assert main(arguments) == 0
    assert "; 0 measurements; written to" in capsys.readouterr().err
    whole["kernels"][0] |= {"state": "confirmed", "schedule": {"kind": "row", "lanes": 64}}
    file.write_text(json.dumps(whole, indent=1))
    assert "lanes = 64" in str(fuse_opt.compile(SUM, tuned=file).module)
    assert "lanes" not in str(fuse_opt.compile(SUM, tuned=tmp_path / "r").module)
    monkeypatch.setenv("FUSE_OPT_TUNED", str(file))
    assert "lanes = 64" in str(fuse_opt.compile(SUM).module) and "lanes" not in str(
        fuse_opt.compile(SUM, tuned="").module
    )


def test_refusals_of_searches(tmp_path: Path, capsys: Capture) -> None:
    for options, message in (
        (["--trials", "0"], "--trials: expected 1 or more, got 0"),
        (["--trials", "2", "--minutes", "1"], "--trials and --minutes exclude each other"),
        (["--jobs", "0"], "--jobs: expected 1 or more, got 0"),
        (["--jobs", "2", "--cluster", "tcp://h:1"], "--jobs: expected none with --cluster, whose workers say how many"),
        (["--minutes", "-1"], "--minutes: expected a number above 0, got -1"),
        (["--report", "x.pdf"], "--report: expected FILE.html or FILE.txt, got 'x.pdf'"),
        (["--minutes", "nan"], "--minutes: expected a number above 0, got nan"),
    ):
        assert main(["x.mlir", *options]) == 2
        assert message in capsys.readouterr().err
    if has_c_compiler():
        (source := tmp_path / "x.mlir").write_text(SUM)
        (unknown := tmp_path / "y.mlir").write_text(SUM.replace("33x", "?x").replace("33", "?"))
        (products := tmp_path / "z.mlir").write_text(PRODUCTS)
        for words, message in (
            ([str(source), "-o", str(tmp_path / "none" / "t.json")], "t.json' cannot be written: expected a file in"),
            ([str(source), "--kernel", "k"], "--kernel: there is no 'k'; expected one of kernel_sum_0"),
            ([str(unknown)], "expected known extents of arguments, got `?`"),
            ([str(tmp_path / "none.mlir")], "none.mlir': No such file or directory"),
            ([str(products), "--budget", "12B"], "z.mlir:3:3: error: budget of 12 bytes: 'graph.matmul' needs"),
        ):
            assert main([*words, "--records", str(tmp_path / "r")]) == 1
            assert message in capsys.readouterr().err


def test_a_variable_that_names_nothing_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSE_OPT_TUNED", str(missing := tmp_path / "none"))
    with pytest.warns(RuntimeWarning, match=r"FUSE_OPT_TUNED='.*none': there is no such file or folder"):
        (kept,) = with_tuned([ScheduleKernelsPass()])
    assert kept == ScheduleKernelsPass()
    missing.mkdir()
    assert with_tuned([kept]) == [ScheduleKernelsPass(tuned=str(missing))]
    assert with_tuned([kept], "") == [kept]


def test_refusals(tmp_path: Path, capsys: Capture) -> None:
    if has_c_compiler():
        (source := tmp_path / "x.mlir").write_text(TEXT.replace("8x", "?x"))
        assert main(["dispatch", str(source)]) == 1
        assert "expected known extents of arguments, got `?`" in capsys.readouterr().err
        assert main(["dispatch", str(tmp_path / "none.mlir")]) == 1
        assert "none.mlir': No such file or directory" in capsys.readouterr().err
    assert main(["knobs", "x.mlir"]) == 2
    assert main(["dispatch", "x.mlir", "--threads", "0"]) == 2
