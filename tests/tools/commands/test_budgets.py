"""Budgets of `fuse-opt` and of the library are of the same bytes where both are for one device: it is `cpu` for text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fuse_opt
from fuse_opt.tools.commands.fuse_opt_main import main

EXAMPLES = sorted(Path(__file__).resolve().parents[3].joinpath("examples").glob("*.mlir"))


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSE_OPT_DEVICE", "cpu")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_command_and_the_library_agree(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _check(example, capsys)


def test_they_agree_for_another_device(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which libraries run other products."""
    monkeypatch.setenv("FUSE_OPT_DEVICE", "avx2")
    assert "blas." in _check(next(path for path in EXAMPLES if path.stem == "transformer_block"), capsys)


def test_what_kernels_work_in_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sums of parts lie beside the values, in the printed program, too."""
    kind, weight = "tensor<2x128x4x4xf32>", "tensor<128x128x3x3xf32>"
    window = "pads = array<i64: 1, 1, 1, 1>, kernel_shape = array<i64: 3, 3>"
    path = tmp_path / "sums.mlir"
    path.write_text(f"""func.func @main(%g: {kind}, %x: {kind}) -> {weight} {{
  %h = graph.exp %g : ({kind}) -> {kind}
  %y = graph.conv_backward_weight %h, %x {{{window}}} : ({kind}, {kind}) -> {weight}
  func.return %y : {weight}
}}""")
    assert 'scratch = "little"' in _check(path, capsys)


def _check(example: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Holds both against each other; gives what the command prints for the least budget."""
    arena = fuse_opt.compile(example).stats.arena_bytes
    if arena == 0:
        assert fuse_opt.compile(example, budget=0).stats.arena_bytes == 0
        assert main([str(example), "--default", "--budget=0B"]) == 0
        return capsys.readouterr().out
    with pytest.raises(fuse_opt.InputError) as refused:
        fuse_opt.compile(example, budget=1)
    assert main([str(example), "--default", "--budget=1B"]) == 1
    assert str(refused.value) in capsys.readouterr().err
    found = re.search(r"(\d+)B(?: or more)?$", str(refused.value))
    assert found is not None
    least = int(found[1])
    assert least <= arena
    assert fuse_opt.compile(example, budget=least).stats.arena_bytes == least
    assert main([str(example), "--default", f"--budget={least}B"]) == 0
    printed = capsys.readouterr().out
    assert main([str(example), "--default", f"--budget={least - 1}B"]) == 1
    return printed


def test_values_count_where_there_is_no_program(capsys: pytest.CaptureFixture[str]) -> None:
    """A plan of ops that are in no kernel."""
    softmax = next(path for path in EXAMPLES if path.stem == "lstm_cell")
    assert main([str(softmax), "--rematerialize", "--plan-memory", "--budget=0B"]) == 0
    assert "graph.sigmoid" in capsys.readouterr().out
