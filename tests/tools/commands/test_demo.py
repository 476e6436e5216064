"""The demo: what it compares with computes the same, it fits a screen, and it says so when a result is wrong."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuse_opt.tools.commands import demo, demo_baselines
from fuse_opt.tools.commands.demo_baselines import numpy_function, torch_function
from fuse_opt.tools.commands.measuring import Call, example_inputs, largest_difference, take_turns
from fuse_opt.tools.compiler.api import evaluate

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SMALLER = {
    "layernorm_residual": ("8192", "6"),
    "softmax": ("4096", "5"),
    "adam_step": ("2048", "9"),
    "gated_unit": ("1024", "3"),
    "transformer_block": ("256", "8"),
}
"""An extent of each example, and one in its place that is soon computed."""
Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name, (extent, smaller) in SMALLER.items():
        text = (EXAMPLES / f"{name}.mlir").read_text()
        (tmp_path / f"{name}.mlir").write_text(re.sub(rf"(?<!\d){extent}(?!\d)", smaller, text))
    return [str(tmp_path / f"{name}.mlir") for name in SMALLER]


def test_what_is_compared_with_computes_the_same(files: list[str]) -> None:
    for name, file in zip(SMALLER, files, strict=True):
        inputs = example_inputs(Path(file), seed=1)
        expected = evaluate(Path(file), *inputs)
        for function in (numpy_function(name), torch_function(name)):
            if function is not None:
                assert largest_difference(function(*[array.copy() for array in inputs]), expected) < 2e-6, name
        assert numpy_function(name) is not None
        assert (torch_function(name) is None) == (find_spec("torch") is None)


def test_the_demo_fits_a_screen_and_names_every_program(files: list[str], capsys: Capture) -> None:
    assert demo.main([*files, "--repeat", "1", "--without-torch"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 60 and max(map(len, lines)) <= 118
    for name in SMALLER:
        decided, *_ = [line.split() for line in lines if line.startswith(f"{name} ")]
        assert int(decided[4]) < int(decided[3]), "fewer kernels fused than unfused"
    assert [line.split()[0] for line in lines if re.match(r"(decompose|fuse-row|plan-memory|bulk-launches) ", line)]
    assert lines[-1].startswith("check: ok")


def test_the_demo_takes_the_examples() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.mlir")} >= set(SMALLER)
    assert demo.EXAMPLES == EXAMPLES and set(demo.SHOWN) == set(SMALLER)


def test_a_wrong_result_is_said(files: list[str], capsys: Capture, monkeypatch: Patch) -> None:
    def wrong(name: str) -> Any:
        return np.negative

    monkeypatch.setattr(demo_baselines, "numpy_function", wrong)
    assert demo.main([files[1], "--repeat", "1", "--without-torch"]) == 1
    assert re.search(r"^check: WRONG.*: softmax NumPy \d", capsys.readouterr().out, re.MULTILINE)


def test_without_a_c_compiler_decisions_are_shown(files: list[str], capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.setattr("fuse_opt.tools.compiler.api.has_c_compiler", lambda: False)
    assert demo.main([files[1], "--without-torch"]) == 0
    printed = capsys.readouterr().out
    assert "Time: not measured" in printed and "check: ok" in printed


def test_wrong_files(tmp_path: Path, capsys: Capture) -> None:
    assert demo.main(["no/such/file.mlir"]) == 2
    bad = tmp_path / "bad.mlir"
    bad.write_text("func.func @main(\n")
    assert demo.main([str(bad)]) == 1
    assert re.fullmatch(
        r"demo: error: [^\n]*\n|.*bad.mlir:\d+:\d+: error: [^\n]*\n", capsys.readouterr().err.split("\n", 1)[1]
    )


def test_turns_end_when_time_is_up() -> None:
    calls: list[str] = []
    take_turns({"a": Call(lambda: calls.append("a")), "b": Call(lambda: calls.append("b"))}, 9, warmup=1, limit=0.0)
    assert calls == ["a", "b"] * 4
    assert take_turns({"a": Call(lambda: calls.append("a"))}, 5, warmup=0)["a"].minimum >= 0.0
    assert len(calls) == 13
