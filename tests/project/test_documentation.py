"""README and docs stay true: their commands run, their examples are real output, their tables come from the registry."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fuse_opt.tools.commands import demo, fuse_opt_main, fuse_run_main
from fuse_opt.tools.tuning import calibration, dispatch_times, fuse_tune_main

pytestmark = pytest.mark.optimised  # commands run as they do for readers

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(page.read_text()) if kind == language]


def commands() -> list[str]:
    """Of blocks of `sh`; those of `console` take minutes, or need files of the reader, servers, containers, other machines."""
    lines = [line for page in PAGES for text in blocks(page, "sh") for line in text.splitlines()]
    return sorted(
        {
            line.split("#")[0].strip()
            for line in lines
            if line.startswith(("fuse-opt", "fuse-run", "fuse-tune", "python -m"))
        }
    )


def run(command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of this environment from the root of the checkout."""
    program, *arguments = shlex.split(command)
    path = Path(sys.executable) if program == "python" else Path(sys.executable).with_name(program)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(
        [str(path), *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


IN_PROCESS: dict[str, Callable[[Sequence[str]], int]] = {
    "fuse-opt": fuse_opt_main.main,
    "fuse-run": fuse_run_main.main,
    "fuse-tune": fuse_tune_main.main,
}
"""What needs no process of its own: the files that a shell would start do nothing but call these."""


@pytest.mark.parametrize("command", commands())
def test_command_runs(command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    program, *arguments = shlex.split(command)
    if (main := IN_PROCESS.get(program)) is None:
        done = run(command)
        status, said = done.returncode, done.stderr
    else:
        monkeypatch.chdir(ROOT)
        for measured in (calibration, dispatch_times):
            monkeypatch.setattr(measured, "SLOTS", 2)  # the times are of no interest here
        monkeypatch.setattr(calibration, "SLOT_SECONDS", 1e-5)
        monkeypatch.setattr(calibration, "cache_sizes", lambda: (1 << 18, 1 << 20))
        status, said = main(arguments), capfd.readouterr().err
    assert status == 0, said
    assert "Traceback" not in said


def test_table_of_checks_is_what_is_printed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """But for its numbers, which differ from processor to processor."""
    monkeypatch.chdir(ROOT)
    (text,) = blocks(ROOT / "docs" / "watching.md", "console")
    command, table = text.removeprefix("$ ").split("\n", 1)
    assert fuse_run_main.main(shlex.split(command)[1:]) == 0

    def words(printed: str) -> list[list[str]]:
        return [re.findall(r"[a-z_:]{2,}", line) for line in printed.splitlines()]

    assert words(capfd.readouterr().out) == words(table)


@pytest.mark.parametrize("program", IN_PROCESS)
def test_programs_of_the_shell_are_those(program: str) -> None:
    done = run(f"{program} --help")
    assert done.returncode == 0 and f"usage: {program}" in done.stdout, done


def test_set_up_commands_exist() -> None:
    listed = {line.split("#")[0].strip() for text in blocks(ROOT / "README.md", "sh") for line in text.splitlines()}
    assert {"python3 tools/bootstrap.py demo", "python3 tools/bootstrap.py test"} <= listed
    assert "python3 tools/bootstrap.py test" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("page", ["README.md", "docs/memory.md"])
def test_python_examples_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of docs/implementations.md, which register something, are run by the three tests below, in processes of their own."""
    monkeypatch.chdir(ROOT)
    texts = blocks(ROOT / page, "python")
    assert texts
    for text in texts:
        exec(compile(text, page, "exec"), {"__name__": "__main__"})


def test_registered_function_runs_the_op() -> None:
    """The function of docs/implementations.md is the default of its op, and gives what the op means."""
    _, _, text = blocks(ROOT / "docs" / "implementations.md", "python")
    check = """
import fuse_opt
x = np.array([[3, 1, 2], [6, 5, 4]], np.float32)
program = "func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {\\n" \\
    "  %r = graph.sort %x {axis = 0 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>\\n  func.return %r : tensor<2x3xf32>\\n}"
calls = []
def noted(inputs, outputs, config):
    calls.append(dict(config))
    sort(inputs, outputs, config)
implementation("mylib.noted", "graph.sort", priority=2)(noted)
assert np.array_equal(fuse_opt.evaluate(program, x), np.sort(x, axis=0)) and calls
"""
    done = subprocess.run([sys.executable, "-c", text + check], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_backend_of_one_file_runs_the_op(tmp_path: Path) -> None:
    text, *_ = blocks(ROOT / "docs" / "implementations.md", "python")
    (tmp_path / "mine.py").write_text(text)
    (tmp_path / "sort.mlir").write_text(
        "func.func @main(%x: tensor<4x3xf32>) -> tensor<4x3xf32> {\n"
        "  %0 = graph.sort %x {axis = 0 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>\n"
        "  func.return %0 : tensor<4x3xf32>\n}\n"
    )
    files = f"{tmp_path}/sort.mlir --backend=-numpy,{tmp_path}/mine.py"
    assert 'implementation = "mine.sort"' in run(f"fuse-opt {files} --default").stdout
    assert "check: passed" in run(f"fuse-run {files} --check").stdout


def test_the_grammar_of_a_chain_says_what_it_takes() -> None:
    _, text, _ = blocks(ROOT / "docs" / "implementations.md", "python")
    check = """
bias, column = (Link("graph.add", operand=0, extents=extents) for extents in ((1, 8), (6, 1)))
tanh = Link("graph.tanh")
found = [offer.refusal(links) for links in ((bias, tanh), (column,), (Link("graph.exp"),), (bias, tanh, tanh))]
assert found == [None, "step-operand", "step-op", "max-ops"], found
"""
    done = subprocess.run([sys.executable, "-c", text + check], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_worked_example_is_real_output(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    source, fused = blocks(ROOT / "README.md", "mlir")
    example = (ROOT / "examples" / "ffn.mlir").read_text()
    assert source in example
    (command,) = [c for c in commands() if "--infer-inplace" in c and "ffn" in c]
    monkeypatch.chdir(ROOT)
    assert fuse_opt_main.main([*shlex.split(command)[1:], "--remarks"]) == 0
    said = capfd.readouterr()
    assert said.out.strip() == fused.strip()
    remarks = next(text for text in blocks(ROOT / "README.md", "text") if "remark:" in text)
    assert remarks and set(remarks.splitlines()) <= set(said.err.splitlines())


def test_demo_checks_its_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main([str(ROOT / "examples" / "ffn.mlir"), "--repeat", "1"]) == 0
    printed = capsys.readouterr().out
    assert "check: ok" in printed and "MiB moved" in printed
    assert demo.main(["no/such/file.mlir"]) == 2
