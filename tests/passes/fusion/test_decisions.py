"""Steering of fusion: fuel makes a prefix of the decisions, a replay makes the same text, edited files say what is wrong."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
from ir_testing import Array, apply, assert_same_bits, evaluate, kernels, parse, random_arguments, text_of
from program_generator import random_program

from fuse_opt.passes.decisions.steering import limit_fuel, record_decisions, replay_decisions
from fuse_opt.passes.decisions.text import Decision, DecisionError, OpRef, format_decisions, parse_decisions
from fuse_opt.passes.remarks import collect
from fuse_opt.tools.commands.fuse_opt_main import main
from fuse_opt.tools.compiler.api import optimize
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.mlir"))
FUSE = ("fuse-injective", "fuse-elementwise", "fuse-row", "fuse-elementwise", "fuse-injective")
SEEDS = range(5)

T, R = "tensor<32x8xf32>", "tensor<32x1xf32>"
SOFTMAX = f"""\
func.func @main(%x: {T}) -> {T} {{
  %m = graph.max %x {{axes = array<i64: 1>, keepdims = true}} : ({T}) -> {R}
  %s = graph.subtract %x, %m : ({T}, {R}) -> {T}
  %0 = graph.exp %s : ({T}) -> {T}
  %t = graph.sum %0 {{axes = array<i64: 1>, keepdims = true}} : ({T}) -> {R}
  %1 = graph.divide %0, %t : ({T}, {R}) -> {T}
  func.return %1 : {T}
}}
"""
DECISIONS = """\
fuse-elementwise @main: graph.subtract#0 %s + graph.exp#0
fuse-row @main: graph.max#0 %m + graph.subtract#0 %s
fuse-row @main: graph.exp#0 + graph.sum#0 %t
fuse-row @main: graph.exp#0 + graph.divide#0
"""
PATH_OUTSIDE = """\
func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %a = graph.exp %x : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %b = graph.matmul %a, %a : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %c = graph.add %a, %b : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %d = graph.abs %c {no_fuse} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %e = graph.negative %d : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %e_1 = graph.negative %e : (tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %e_1 : tensor<8x8xf32>
}
"""

Capture = pytest.CaptureFixture[str]


@cache
def program(seed: int) -> tuple[str, list[Array], list[Array]]:
    """A program's text, arguments, and values on the reference."""
    text = text_of(random_program(seed))
    module = parse(text)
    arguments = random_arguments(module, seed)
    return text, arguments, evaluate(module, arguments)


def recorded(text: str, passes: Sequence[str] = DEFAULT_PIPELINE) -> tuple[list[Decision], str]:
    """The decisions made, and the text that comes of them."""
    with record_decisions() as decisions:
        module = apply(parse(text), passes)
    return decisions, text_of(module)


def replayed(text: str, decisions: Sequence[Decision], passes: Sequence[str] = DEFAULT_PIPELINE) -> str:
    with replay_decisions(decisions):
        module = apply(parse(text), passes)
    return text_of(module)


@pytest.mark.parametrize("seed", range(2))
def test_fuel_makes_the_first_decisions_and_no_other(seed: int) -> None:
    text, arguments, values = program(seed)
    every, whole = recorded(text)
    before = 0
    step = 1 + len(every) // 8
    for fuel in (*range(0, len(every), step), len(every)):
        with limit_fuel(fuel) as left, record_decisions() as decisions:
            module = apply(parse(text), DEFAULT_PIPELINE)
        assert decisions == every[:fuel]
        assert left.left == 0
        assert_same_bits(evaluate(module, arguments), values, f"(seed {seed}, fuel {fuel})")
        fused = sum(len(kernel.ops()) - 1 for kernel in kernels(module))
        assert fused >= before, "more fuel, less fusion"
        before = fused
    with limit_fuel(len(every) + 5) as left:
        assert text_of(apply(parse(text), DEFAULT_PIPELINE)) == whole
    assert left.left == 5


def test_fuel_of_one_pass() -> None:
    module = parse(SOFTMAX)
    with record_decisions() as decisions, collect() as remarks:
        apply(module, "fuse-elementwise,fuse-row{fuel=1}")
    assert format_decisions(decisions) == "".join(DECISIONS.splitlines(keepends=True)[:2])
    without = [remark for remark in remarks if remark.code == "fuel"]
    assert [(remark.pass_name, remark.op_name) for remark in without] == [
        ("fuse-row", "graph.sum"),
        ("fuse-row", "graph.divide"),
    ]
    assert without[0].message == "not fused with 'graph.max' at test.mlir:2:3: the fuel for 1 decision is used up"
    assert dict(without[0].numbers)["fuel"] == 1 and without[0].flip == "more fuel"


def test_a_merge_that_is_impossible_does_not_lack_fuel() -> None:
    with limit_fuel(0), collect() as remarks:
        apply(parse(PATH_OUTSIDE), "fuse-elementwise")
    assert sorted(remark.code for remark in remarks) == ["cycle", "fuel", "no-fuse", "no-fuse"]


def test_decisions_are_named_after_ops() -> None:
    assert format_decisions(recorded(SOFTMAX)[0]) == DECISIONS
    decision = parse_decisions(DECISIONS)[1]
    ops = (OpRef("graph.max", 0, "m"), OpRef("graph.subtract", 0, "s"))
    assert decision == Decision("fuse-row", 0, "@main", ops)
    assert format_decisions(recorded(text_of(parse(SOFTMAX)))[0]) == DECISIONS


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_replay_of_an_example_prints_the_same(path: Path, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "decisions.txt"
    assert main([str(path), "--default", f"--dump-decisions={file}"]) == 0
    once = capsys.readouterr().out
    again = tmp_path / "again.txt"
    assert main([str(path), "--default", f"--replay-decisions={file}", f"--dump-decisions={again}"]) == 0
    assert capsys.readouterr() == (once, "")
    assert again.read_text() == file.read_text()
    assert len(file.read_text().splitlines()) > 1


@pytest.mark.parametrize("passes", [DEFAULT_PIPELINE, ("decompose", *FUSE, "unfuse", "cse", *FUSE, "wrap-kernels")])
def test_replay_of_random_programs_prints_the_same(passes: Sequence[str]) -> None:
    made = 0
    for seed in SEEDS:
        text = program(seed)[0]
        decisions, once = recorded(text, passes)
        assert recorded(text, passes) == (decisions, once)
        read = parse_decisions(format_decisions(decisions))
        assert read == decisions
        assert replayed(text, read, passes) == once, f"seed {seed}"
        made += len(decisions)
    assert made > 5 * len(SEEDS)


def test_fewer_decisions_are_less_fusion_or_a_clear_error() -> None:
    applied = 0
    for seed in SEEDS:
        rng = random.Random(seed)
        text, arguments, values = program(seed)
        decisions = recorded(text)[0]
        for _ in range(min(4, len(decisions))):
            kept = parse_decisions(format_decisions(decisions))
            del kept[rng.randrange(len(kept))]
            try:
                with replay_decisions(kept):
                    module = apply(parse(text), DEFAULT_PIPELINE)
            except DecisionError as error:
                assert re.fullmatch(r"<decisions>:\d+:\d+: error: \S.*", str(error))
                continue
            applied += 1
            assert_same_bits(evaluate(module, arguments), values, f"(seed {seed})")
    assert applied > len(SEEDS)


def test_no_decisions_are_no_fusion() -> None:
    text = replayed(SOFTMAX, [])
    assert text.count("fused.kernel") == 5 and "inplace" not in text
    assert replayed(SOFTMAX, parse_decisions(f"# none\n\n  # {DECISIONS.splitlines()[0]}\n")) == text


@pytest.mark.parametrize(
    "line",
    [
        "fuse-row @main: graph.max#0 %m + graph.subtract#0 %s   # why",
        "\tfuse-row  @main :graph.max%m+graph.subtract\r",
        "fuse-row#0 @main: graph.max#7 %m + graph.subtract#0 %s_3",
        "fuse-row @main: graph.max + graph.subtract + graph.exp",
    ],
)
def test_what_a_person_may_write(line: str) -> None:
    first = DECISIONS.splitlines()[0]
    edited = parse_decisions(f"{first}\n\n{line}\n{line}\n")
    wanted = parse_decisions("".join(DECISIONS.splitlines(keepends=True)[:2]))
    assert replayed(SOFTMAX, edited) == replayed(SOFTMAX, wanted)


@pytest.mark.parametrize(
    ("line", "col", "words"),
    [
        ("graph.exp + graph.abs", 10, "expected a function, as in '@main', got '+ graph.abs'"),
        ("fuse-row @main graph.abs", 15, "expected ':', got 'graph.abs'"),
        ("fuse-row @main: graph.abs", 26, "expected '+' and another op"),
        ("fuse-row @main: graph.exp + 7", 28, "expected an op, as in 'graph.add#1' or 'graph.add#1 %sum', got '7'"),
        ("fuse-row @main: graph.exp + graph.abs %0", 38, "got '%0'"),
        ("fuse-row @main: graph.exp + graph.abs#" + "9" * 5000, 38, "got '#999"),
        ("\x00\x1b]0;x\x07", 1, "expected the name of a pass"),
        ("fuse-elementwise @f: graph.exp + graph.abs", 1, "there is no function @f"),
        ("fuse-elementwise @main: graph.exp + graph.tan", 37, "no op of that name"),
        ("fuse-elementwise @main: graph.exp#3 + graph.add", 25, "there is no 'graph.exp#3' in @main at this pass"),
        ("fuse-elementwise @main: graph.exp %z + graph.add", 25, "there is graph.exp#0 %a"),
        ("fuse-elementwise @main: graph.abs + graph.negative %e", 37, "'graph.negative %e' is ambiguous in @main"),
        (
            "fuse-elementwise @main: graph.abs + graph.negative#9 %e",
            37,
            "there is graph.negative#0 %e, graph.negative#1 %e",
        ),
        ("fuse-elementwise @main: graph.exp + graph.add", 37, "'graph.matmul' outside the group depends on it"),
        ("fuse-elementwise @main: graph.add + graph.abs", 37, "'graph.abs' carries the directive no_fuse"),
        ("fuse-wor @main: graph.exp + graph.add", 1, "no pass 'fuse-wor' that takes decisions is in the pipeline"),
        ("fuse-elementwise#2 @main: graph.exp + graph.add", 1, "has no run #2: it runs 1 times, from #0"),
        ("dce @main: graph.exp + graph.add", 1, "no pass 'dce' that takes decisions is in the pipeline"),
    ],
)
def test_a_decision_that_does_not_apply_is_one_line(
    line: str, col: int, words: str, tmp_path: Path, capsys: Capture
) -> None:
    source, file = tmp_path / "program.mlir", tmp_path / "decisions.txt"
    source.write_text(PATH_OUTSIDE)
    file.write_text(f"# edited\n{line}\n")
    assert main([str(source), "--fuse-elementwise", "-p", "dce", f"--replay-decisions={file}"]) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith(f"{file}:2:{col}: error: ")
    assert words in errors
    assert errors.count("\n") == 1 and len(errors) < len(str(file)) + 500


def test_limits_of_the_pass_hold() -> None:
    with pytest.raises(DecisionError, match="3 ops exceed the limit of 2"):
        replayed(SOFTMAX, parse_decisions(DECISIONS), ("fuse-elementwise", "fuse-row{max-ops=2}"))


def test_unreadable_files(tmp_path: Path, capsys: Capture) -> None:
    source, file = tmp_path / "program.mlir", tmp_path / "decisions.bin"
    source.write_text(SOFTMAX)
    file.write_bytes(b"# \n\xff\xfe")
    assert main([str(source), f"--replay-decisions={file}"]) == 1
    assert capsys.readouterr().err.startswith(f"{file}:2:1: error: the input is not text")
    assert main([str(source), f"--replay-decisions={tmp_path / 'none'}"]) == 1
    assert "fuse-opt: error: cannot read" in capsys.readouterr().err
    assert main([str(source), f"--dump-decisions={tmp_path / 'no' / 'where'}"]) == 1
    assert "fuse-opt: error: cannot write" in capsys.readouterr().err
    for arguments in (["--fuel=-1"], ["--fuel=x"], ["--fuse-row=fuel=-1"], ["-", "--replay-decisions=-"]):
        assert main([*([] if arguments[0] == "-" else [str(source)]), *arguments]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_parts_of_a_file_have_decisions_of_their_own(tmp_path: Path, capsys: Capture) -> None:
    source, file = tmp_path / "program.mlir", tmp_path / "decisions.txt"
    source.write_text(f"{SOFTMAX}// -----\n{SOFTMAX}")
    arguments = [str(source), "--split-input-file", "--default"]
    assert main([*arguments, f"--dump-decisions={file}", "--fuel=5"]) == 0
    once = capsys.readouterr().out
    assert file.read_text() == f"{DECISIONS}// -----\n{DECISIONS.splitlines()[0]}\n"
    assert main([*arguments, f"--replay-decisions={file}"]) == 0
    assert capsys.readouterr().out == once
    source.write_text(f"nonsense\n// -----\n{SOFTMAX}")
    assert main([*arguments, f"--replay-decisions={file}"]) == 1
    assert capsys.readouterr().out.count("fused.kernel") == 4, "the second part has the second part's decisions"
    file.write_text(f"{file.read_text()}// -----\n")
    assert main([*arguments, f"--replay-decisions={file}"]) == 2
    assert "has 3 parts between // -----, the input has 2" in capsys.readouterr().err
    source.write_text(f"{SOFTMAX}// -----\n{SOFTMAX}")
    file.write_text(f"// -----\n{DECISIONS.replace('graph.exp', 'graph.log')}")
    assert main([*arguments, f"--replay-decisions={file}"]) == 1
    assert capsys.readouterr().err.startswith(f"{file}:2:47: error: there is no 'graph.log#0'")


def test_functions_are_told_apart() -> None:
    other = '@"a # b"'
    both = SOFTMAX + SOFTMAX.replace("@main", other)
    decisions, text = recorded(both, FUSE)
    assert [decision.function for decision in decisions] == ["@main", '@"a # b"'] * 1 + ["@main"] * 3 + ['@"a # b"'] * 3
    assert replayed(both, parse_decisions(format_decisions(decisions)), FUSE) == text


def test_fuel_ends_a_replay_early() -> None:
    wanted = replayed(SOFTMAX, parse_decisions(DECISIONS)[:2])
    with limit_fuel(2), collect() as remarks:
        assert replayed(SOFTMAX, parse_decisions(DECISIONS)) == wanted
    assert [remark.code for remark in remarks].count("fuel") == 2


def test_library_functions_are_steered() -> None:
    with record_decisions() as decisions, limit_fuel(1):
        optimize(SOFTMAX)
    with replay_decisions(decisions):
        assert len(kernels(optimize(SOFTMAX))) == 4
    absent = Decision("fuse-row", 0, "@main", (OpRef("graph.log", 0), OpRef("graph.exp")))
    with (
        pytest.raises(DecisionError, match="<decisions>:1:1: error: there is no 'graph.log#0'"),
        replay_decisions([absent]),
    ):
        optimize(SOFTMAX)


def test_threads_are_apart() -> None:
    def one(fuel: int) -> int:
        with limit_fuel(fuel), record_decisions() as decisions:
            optimize(SOFTMAX)
        return len(decisions)

    with record_decisions() as outside, ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, [0, 1, 2, 3, 9] * 4)) == [0, 1, 2, 3, 4] * 4
    assert outside == []


def test_the_bisection_of_the_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    tour = (ROOT / "docs" / "tour.md").read_text()
    found, error = re.findall(r"```text\n(.*?)```", tour, re.DOTALL)
    script = "".join(re.findall(r"```bash\n(.*?)```", tour, re.DOTALL))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
    command = ["bash", "-e", "-c", script]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", found)
    decisions = tmp_path / "decisions.txt"
    (other,) = re.findall(r"`(fuse-row @main: .*?)`", tour)
    decisions.write_text(decisions.read_text().replace(found, f"{other}\n"))
    monkeypatch.chdir(tmp_path)
    assert main(["examples/layernorm_residual.mlir", "--default", "--replay-decisions=decisions.txt"]) == 1
    assert capsys.readouterr().err == error
