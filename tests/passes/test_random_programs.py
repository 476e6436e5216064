"""A small budget of fuzzing, whether it finds what is broken, and the reducer: on a seeded fault, on kernels, as a command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from draws import draws
from fuzz import Mismatch, main, run
from ir_testing import apply, graph_ops, kernels, op_names, parse, text_of
from laws import Subject, grouping_fault, pass_fault
from program_generator import dense_program, random_program
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.passes import ModulePass

from fuse_opt.dialects.graph.elementwise.arithmetic import SubtractOp
from fuse_opt.dialects.graph.reductions.reductions import Reduction
from fuse_opt.dialects.interfaces.properties import ints
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.types.dtypes import DTYPES
from fuse_opt.passes.fusion.fuse_elementwise import FuseElementwisePass
from fuse_opt.tools.compiler.registry import available_passes
from fuse_opt.tools.reduce import __main__ as reduce
from fuse_opt.tools.reduce.edits import EDITS, droppable, extents, with_extent
from fuse_opt.tools.reduce.search import isolated, reduce_failure
from fuse_opt.tools.source.verification import OpVerifyError, verify

CASES = draws(6)


def test_random_programs_keep_the_laws() -> None:
    summary = run(CASES, reported=1)
    assert not summary.mismatches, "\n".join(summary.reports)
    count = len(CASES)
    assert summary.cases == count and summary.ops > 10 * count
    assert summary.work.passes > 4 * count and summary.work.kernels > count


@dataclass(frozen=True)
class SwapOperandsPass(ModulePass):
    """Broken: takes subtraction for commutative; twice, it is right again."""

    name = "swap-operands"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for inner in op.walk():
            if isinstance(inner, SubtractOp):
                inner.operands = list(reversed(inner.operands))


@dataclass(frozen=True)
class DropSubtractionPass(ModulePass):
    """Broken: takes x - y for x where the shapes allow that."""

    name = "drop-subtraction"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for inner in op.walk():
            if isinstance(inner, SubtractOp) and inner.operands[0].type == inner.results[0].type:
                inner.results[0].replace_all_uses_with(inner.operands[0])


@dataclass(frozen=True)
class FuseAroundMiddlePass(ModulePass):
    """Broken: what it fuses depends on which op stands in the middle."""

    name = "fuse-around-middle"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        ops = [inner for inner in graph_ops(op) if inner.operands]
        if ops and not any("no_fuse" in inner.attributes for inner in ops):
            ops[len(ops) // 2].attributes["no_fuse"] = UnitAttr()
        FuseElementwisePass().apply(ctx, op)


BROKEN: list[type[ModulePass]] = [SwapOperandsPass, DropSubtractionPass, FuseAroundMiddlePass]


@pytest.fixture
def broken_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken passes stand among the others of the registry."""
    known = {**available_passes(), **{pass_.name: lambda pass_=pass_: pass_ for pass_ in BROKEN}}
    monkeypatch.setattr("fuse_opt.tools.compiler.pipeline.available_passes", lambda: known)


def long_program(size: int = 40) -> str:
    """Of 40 ops five are subtractions."""
    return text_of(dense_program(25, size=size))


@pytest.mark.parametrize("name", ["swap-operands", "drop-subtraction"])
def test_a_seeded_fault_is_reduced_to_its_pass_and_its_op(name: str, broken_passes: None) -> None:
    text, passes = long_program(), ["canonicalize", "fuse-row", "cse", name, "fuse-elementwise{max-ops=9}", "dce"]
    assert len(droppable(parse(text))) >= 40
    asked: list[str] = []

    def fails(text: str, passes: Sequence[str]) -> str | None:
        asked.append(text)
        return reduce.Failing()(text, passes)

    found = reduce_failure(text, passes, fails, trials=400)
    assert found is not None and found.kind == "values differ from the reference's"
    assert found.passes == (name,)
    assert found.ops <= 3 and "graph.subtract" in found.text and len(extents(found.text)) <= 1, found.text
    assert found.trials == len(asked) - 1 < 400 and not found.exhausted
    assert fails(found.text, found.passes) == found.kind
    for candidate in asked:
        assert text_of(parse(candidate)) == candidate.rstrip("\n"), "every program that is tried verifies"


def test_nothing_more_can_be_left_out(broken_passes: None) -> None:
    fails, text = reduce.Failing(), long_program(20)
    found = reduce_failure(text, ["cse", "swap-operands", "dce"], fails)
    assert found is not None
    assert reduce_failure(text, ["cse", "swap-operands", "dce"], fails) == found, "not deterministic"
    module = parse(found.text)
    for edit in EDITS:
        for number in range(edit.count(module)):
            copy = module.clone()
            edit.drop(copy, [number])
            try:
                verify(copy)
            except OpVerifyError:
                continue
            smaller = text_of(copy)
            assert smaller == text_of(module) or fails(smaller, found.passes) != found.kind, f"{edit.name}: {smaller}"


def test_trials_are_bounded() -> None:
    found = reduce_failure(long_program(), ["cse"], lambda text, passes: "always", trials=1)
    assert found is not None and found.exhausted and found.trials == 1
    found = reduce_failure(long_program(), ["cse"], lambda text, passes: "always")
    assert found is not None and (found.ops, found.passes) == (0, ()) and not found.exhausted
    assert reduce_failure(long_program(), ["cse"], lambda text, passes: None) is None


def test_another_failure_is_not_the_failure() -> None:
    """What no longer has an exp fails otherwise, and is not where the search goes on."""

    def fails(text: str, passes: Sequence[str]) -> str:
        return "exp" if "graph.exp " in text else "other"

    found = reduce_failure(long_program(), [], fails)
    assert found is not None and found.kind == "exp" and "graph.exp " in found.text and found.ops == 1


KERNELS = """
func.func @main(%x: tensor<8x4xf32> {graph.donated}, %y: tensor<4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %0 = graph.exp %x : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %1 = graph.add %0, %y : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
  %2 = graph.tanh %1 : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %3 = graph.sin %1 : (tensor<8x4xf32>) -> tensor<8x4xf32>
  func.return %2, %3 : tensor<8x4xf32>, tensor<8x4xf32>
}"""


def test_ops_in_kernels_are_dropped() -> None:
    """A kernel that holds one op, with the operand and the result that it needs, and no plan."""

    def fails(text: str, passes: Sequence[str]) -> str | None:
        held = [name for kernel in kernels(parse(text)) for name in op_names(kernel.ops())]
        return "held" if "add" in held else None

    text = text_of(apply(parse(KERNELS), "default"))
    found = reduce_failure(text, [], fails)
    assert found is not None
    (kernel,) = kernels(parse(found.text))
    assert op_names(kernel.ops()) == ["add"] and not kernel.properties
    assert not kernel.results and len(kernel.operands) == 2
    assert "8" not in found.text and "donated" not in found.text


def test_extents_shrink_in_types_and_lists() -> None:
    text = "tensor<8x16xbf16> {shape = array<i64: 16, -8>} tensor<f64>"
    assert extents(text) == [16, 8]
    assert with_extent(text, 16, 2, lists=True) == "tensor<8x2xbf16> {shape = array<i64: 2, -8>} tensor<f64>"
    assert with_extent(text, 16, 2, lists=False) == "tensor<8x2xbf16> {shape = array<i64: 16, -8>} tensor<f64>"


def test_a_check_that_dies_or_hangs_has_failed() -> None:
    def dies() -> str | None:
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    assert isolated(lambda: "answer", 20) == "answer" and isolated(lambda: None, 20) is None
    assert isolated(dies, 20) == "the process ended by SIGKILL"
    assert isolated(lambda: time.sleep(20) or "late", 0.2) == "no answer in 0.2 seconds"


def test_fuzzing_finds_broken_passes(broken_passes: None) -> None:
    subject = Subject.of(long_program(), 1)
    assert pass_fault(subject, ["cse", "swap-operands"]) == "'swap-operands' is not idempotent"
    assert pass_fault(subject, ["cse", "drop-subtraction"]) == "values differ"
    kind = grouping_fault(subject.text, ["cse", "dce", "fuse-around-middle"], range(40))
    assert kind == "kernels depend on the order of ops"
    report = Mismatch(1, "grouping", kind, subject.text, ("cse", "fuse-around-middle", "fuse-row")).report()
    assert report.startswith(
        'seed 1, grouping: kernels depend on the order of ops\n// fuse-opt -p "fuse-around-middle"\n'
    )
    assert len(droppable(parse(report.partition("\n")[2]))) <= 4


def test_the_fuzzer_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cases", "2", "--seed", "1", "--processes", "1", "--target", "c"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("fuzz: 2 cases, ") and printed.count("\n") == 1
    assert "2 compiled, 0 mismatches" in printed


def test_the_command_reduces(tmp_path: Path, capsys: pytest.CaptureFixture[str], broken_passes: None) -> None:
    file = tmp_path / "long.mlir"
    file.write_text(KERNELS.replace("graph.add", "graph.subtract"))
    assert reduce.main([str(file), "-p", "unfuse,swap-operands,cse"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith('// fuse-opt -p "swap-operands"\n')
    assert len(droppable(parse(printed.out))) == 1
    assert printed.err.startswith("values differ from the reference's: from 4 ops and 3 passes to 1 and 1 in ")
    assert reduce.main([str(file), "-p", "unfuse,swap-operands,cse,swap-operands"]) == 0
    assert reduce.main([str(file), "-p", "cse,swap-operands,swap-operands", "--idempotent"]) == 0
    assert "'swap-operands' is not idempotent" in capsys.readouterr().err


def test_the_command_says_that_nothing_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "program.mlir"
    file.write_text(KERNELS)
    for target in ("reference", "cpu"):
        assert reduce.main([str(file), "--target", target, "--idempotent"]) == 0
        printed = capsys.readouterr()
        assert not printed.out and printed.err.startswith("nothing fails: 4 ops under ")


@pytest.mark.parametrize(
    ("text", "arguments", "status", "message"),
    [
        ("func.func", [], 1, "program.mlir:1:"),
        (KERNELS.replace("graph.exp", "graph.no_such_op"), [], 1, "no_such_op"),
        (
            KERNELS.replace("(tensor<8x4xf32>) -> tensor<8x4xf32>", "(tensor<8x4xf32>) -> tensor<8x5xf32>"),
            [],
            1,
            "error: ",
        ),
        (KERNELS, ["--function", "other"], 1, "other"),
        (KERNELS, ["-p", "no-such-pass"], 2, "unknown pass 'no-such-pass'"),
        (KERNELS, ["--trials", "-1"], 2, "expected 0 or more"),
        (None, [], 1, "cannot read"),
    ],
)
def test_broken_input_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str | None,
    arguments: list[str],
    status: int,
    message: str,
) -> None:
    file = tmp_path / "program.mlir"
    if text is not None:
        file.write_text(text)
    assert reduce.main([str(file), *arguments]) == status
    printed = capsys.readouterr()
    assert not printed.out and printed.err.count("\n") == 1 and message in printed.err


def test_help_answers_at_once_and_says_what_fails() -> None:
    command = [sys.executable, "-m", "fuse_opt.tools.reduce", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert all(flag in done.stdout for flag in ("--target", "--trials", "--idempotent", "fuse-run --check"))


def test_programs_have_what_breaks_passes() -> None:
    """Views, values of several readers, operands of every position broadcast, reductions over every axis, all types."""
    seen: Counter[object] = Counter()
    for seed in draws(160):
        for op in graph_ops(dense_program(seed) if seed % 3 == 2 else random_program(seed)):
            seen.update(("dtype", dtype(value).name) for value in op.results)
            seen.update(("readers", min(2, len({use.operation for use in value.uses}))) for value in op.results)
            if not isinstance(op, StructuredOp) or not op.operands:
                continue
            seen["view"] += op.is_view()
            if op.COMBINE:
                seen.update(("axis", len(shape(op.operands[0])), axis) for axis in reduced_axes(op))
            elif not op.is_view():
                seen.update(
                    ("broadcast", len(op.operands), k)
                    for k, value in enumerate(op.operands)
                    if shape(value) != shape(op.results[0])
                )
    wanted: list[object] = [("dtype", element.name) for element in DTYPES]
    wanted += [("axis", rank, axis) for rank in range(1, 5) for axis in range(rank)]
    wanted += [("broadcast", count, k) for count in (2, 3) for k in range(count)]
    assert not [item for item in wanted if not seen[item]], seen
    assert seen["view"] > 120 and seen["readers", 2] > 120


def reduced_axes(op: StructuredOp) -> list[int]:
    """The axes of a reduction's operand that it states."""
    rank = len(shape(op.operands[0]))
    return [axis % rank for axis in ints(op.axes)] if isinstance(op, Reduction) else []
