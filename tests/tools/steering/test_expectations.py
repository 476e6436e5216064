"""Expectations: those that hold, and those that do not, each with the figure and the remarks that explain it."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

import fuse_opt
from fuse_opt.tools.commands.fuse_opt_main import main
from fuse_opt.tools.source.diagnostics import InputError
from fuse_opt.tools.steering.expectations import checked, parse_expectations
from fuse_opt.tools.steering.figures import FIGURES

Capture = pytest.CaptureFixture[str]
S = "tensor<64x64xf32>"
PROGRAM = f"""\
func.func @main(%x: {S}, %w: {S}) -> {S} {{
  %p = graph.matmul %x, %w : ({S}, {S}) -> {S}
  %e = graph.exp %p : ({S}) -> {S}
  %t = graph.permute_dims %x {{axes = array<i64: 1, 0>, no_fuse}} : ({S}) -> {S}
  %q = graph.matmul %e, %t {{use_implementation = "numpy.matmul"}} : ({S}, {S}) -> {S}
  %r = graph.add %q, %e : ({S}, {S}) -> {S}
  func.return %r : {S}
}}
"""
"""Two products, one by a library, a copy, and a sum over one of its operands."""


@pytest.fixture(scope="module")
def module() -> ModuleOp:
    return fuse_opt.optimize(PROGRAM)


@pytest.mark.parametrize(
    "text",
    [
        *("kernels=3", "kernels<=7, copies=1", "kernels>2", "library_calls=1", "library_calls!=0", "fallbacks=0"),
        *("arena=32768", "arena <= 32KiB, arena>=32 KiB", "lower_bound<0.05MiB", "inplace==1, recomputed=0"),
    ],
)
def test_what_holds(module: ModuleOp, text: str) -> None:
    with checked(module, parse_expectations(text)):
        pass


@pytest.mark.parametrize(
    ("text", "message", "note"),
    [
        ("kernels<=2", "expected kernels<=2, got 3", "[explain-fusion] opaque: "),
        ("kernels=0", "expected kernels=0, got 3", "not fused with 'fused.kernel' at <string>:2:3"),
        ("copies=0", "expected copies=0, got 1 (%t at <string>:4:3)", "[explain-fusion] opaque: "),
        ("library_calls=0", "expected library_calls=0, got 1 (%q at <string>:5:3)", 'run by "numpy.matmul"'),
        ("library_calls>=2", "expected library_calls>=2, got 1", 'run by "fuse.matmul"'),
        (
            "fallbacks!=0",
            "expected fallbacks!=0, got 0",
            "no pass said anything about fallbacks: kernels that the reference",
        ),
        ("arena<=30kB", "expected arena<=30kB, got 32768", "[plan-memory] peak: 'func.func' at step "),
        ("lower_bound<32KiB", "expected lower_bound<32KiB, got 32768", "[plan-memory] planned: "),
        ("inplace=0", "expected inplace=0, got 1", "[infer-inplace] inplace: "),
        ("recomputed>0", "expected recomputed>0, got 0", "no pass said anything about recomputed: graph ops that are"),
        (
            "copies=0, kernels=3, inplace>1",
            "expected copies=0, got 1 (%t at <string>:4:3); expected inplace>1, got 1",
            "[infer-inplace] inplace: ",
        ),
    ],
)
def test_what_does_not_hold(text: str, message: str, note: str) -> None:
    with pytest.raises(InputError) as error:
        fuse_opt.compile(PROGRAM, expect=text)
    assert str(error.value).startswith(f"<string>:1:1: error: 'main': {message}")
    assert note in "\n".join(getattr(error.value, "__notes__", ()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernels", "expected a figure, a relation and a number, as in 'kernels<=7', got 'kernels'"),
        ("kernals<=7", "unknown figure 'kernals'; expected one of kernels, "),
        ("kernels<=7MiB", "'kernels' has no unit, got 'MiB'"),
        ("arena<=7MiBs", "'arena' has one of the units B, kB, "),
    ],
)
def test_what_cannot_be_read(text: str, message: str, tmp_path: Path, capsys: Capture) -> None:
    with pytest.raises(ValueError, match="expected|unit") as error:
        parse_expectations(text)
    assert str(error.value).startswith(message)
    source = tmp_path / "program.mlir"
    source.write_text(PROGRAM)
    assert main([str(source), "--expect", text]) == 2
    assert message in capsys.readouterr().err
    source.write_text(
        PROGRAM.replace(") -> tensor<64x64xf32> {", f') -> {S} attributes {{fused.expect = "{text}"}} {{', 1)
    )
    assert main([str(source), "--cse"]) == 1
    assert f"{source}:1:1: error: 'fused.expect': {message}" in capsys.readouterr().err


def test_expectations_need_a_plan(tmp_path: Path, capsys: Capture) -> None:
    source = tmp_path / "program.mlir"
    source.write_text(PROGRAM)
    assert main([str(source), "--decompose", "--wrap-kernels", "--expect=arena<=1B", "--remarks"]) == 1
    errors = capsys.readouterr().err
    assert "error: 'main': expected arena<=1B, got no plan for memory: run plan-memory" in errors
    assert all(figure.doc for figure in FIGURES.values())
