"""The command fuse-tune: tables that select-implementation reads, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fuse_opt
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


def test_refusals(tmp_path: Path, capsys: Capture) -> None:
    if has_c_compiler():
        (source := tmp_path / "x.mlir").write_text(TEXT.replace("8x", "?x"))
        assert main(["dispatch", str(source)]) == 1
        assert "expected known extents of arguments, got `?`" in capsys.readouterr().err
        assert main(["dispatch", str(tmp_path / "none.mlir")]) == 1
        assert "none.mlir': No such file or directory" in capsys.readouterr().err
    assert main(["knobs", "x.mlir"]) == 2
    assert main(["dispatch", "x.mlir", "--threads", "0"]) == 2
