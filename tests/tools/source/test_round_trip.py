"""Text to text: random programs of one op of every record, through the library and through two processes of `fuse-opt`."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from op_samples import single_ops
from program_generator import random_program
from round_trip import RoundTrip, processes_fault, run

from fuse_opt.dialects.graph import GRAPH
from fuse_opt.dialects.interfaces.op import GraphOp

SCRIPT = Path(__file__).resolve().parents[2] / "support" / "round_trip.py"


def test_programs_of_one_op_come_back() -> None:
    summary, text = run(range(320), seed=1)
    assert not summary.failures, summary.failures[0]
    assert summary.programs == 320 and summary.dynamic > 50
    assert summary.ops == {op.name for op in GRAPH.operations}
    assert not processes_fault(text)


def test_the_command_prints_one_line() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--cases", "8"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("round trip: 8 programs of 8 ops, ")
    assert ", 0 failures, " in done.stdout and done.stdout.count("\n") == 1


def test_what_does_not_come_back_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """An op that prints no attributes is found, by name."""

    def without_attributes(op: GraphOp, printer: object) -> None:
        copy = op.clone()
        copy.properties.clear()
        print_(copy, printer)  # pyright: ignore[reportArgumentType]

    print_ = GraphOp.print
    monkeypatch.setattr(GraphOp, "print", without_attributes)
    summary, _ = run(range(250), seed=2)
    assert summary.failures


def test_text_in_other_words_is_a_fault() -> None:
    text = "func.func @p(%x: tensor<3xf32>) -> tensor<3xf32> {\n  func.return %x : tensor<3xf32>\n}"
    assert "printed as" in RoundTrip().fault(text)
    assert "refused" in RoundTrip().fault(text.replace("-> tensor<3xf32>", "-> tensor<4xf32>"))


def test_every_op_takes_part_in_random_programs() -> None:
    missing = {op.name for op in GRAPH.operations}
    for seed in range(150):
        if missing:
            missing -= {op.name for op in random_program(seed).walk()}
    assert not missing


def test_single_ops_are_the_same_for_the_same_seed() -> None:
    first, second = ([str(op) for op in single_ops(random.Random(3), range(50))] for _ in range(2))
    assert first == second
