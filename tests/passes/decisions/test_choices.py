"""Decisions of all kinds: recorded, replayed, edited, counted, and the first bad one found; a program for each kind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2

import numpy as np
import pytest
from ir_testing import apply, assert_same_bits, evaluate, parse, random_arguments, text_of

from fuse_opt.passes.decisions import (
    DecisionError,
    format_decisions,
    limit_fuel,
    parse_decisions,
    record_decisions,
    replay_decisions,
)
from fuse_opt.tools.steering.bisection import first_failing

S, W, T = "tensor<16x16xf32>", "tensor<16x20xf32>", "tensor<20x16xf32>"
DENSE = f"""\
func.func @main(%x: {S}, %w: {S}, %u: {W}, %v: {T}) -> ({S}, {S}) {{
  %p = graph.matmul %x, %w : ({S}, {S}) -> {S}
  %h = graph.add %p, %x : ({S}, {S}) -> {S}
  %r = graph.tanh %h : ({S}) -> {S}
  %q = graph.matmul %r, %w : ({S}, {S}) -> {S}
  %d = graph.matmul %q, %q : ({S}, {S}) -> {S}
  %a = graph.multiply %d, %h : ({S}, {S}) -> {S}
  %b = graph.multiply %a, %r : ({S}, {S}) -> {S}
  %l = graph.matmul %x, %u : ({S}, {W}) -> {W}
  %m = graph.matmul %w, %u : ({S}, {W}) -> {W}
  %s = graph.matmul %l, %v : ({W}, {T}) -> {S}
  %t = graph.matmul %m, %v : ({W}, {T}) -> {S}
  %y = graph.exp %s : ({S}) -> {S}
  %z = graph.add %y, %t : ({S}, {S}) -> {S}
  func.return %b, %z : {S}, {S}
}}
"""
DENSE_PASSES = (
    "rematerialize{slower=1.0 smallest-bytes=0}",
    *("fuse-elementwise", "fuse-epilogue", "wrap-kernels", "select-implementation", "schedule-kernels"),
    *("order-for-memory", "infer-inplace", "plan-memory"),
)
DENSE_KINDS = {
    "fuse-elementwise": "graph.multiply#0 %a",
    "rematerialize": " for ",
    "select-implementation": "graph.matmul#3 %l = ",
    "order-for-memory": " before ",
    "infer-inplace": "over operand",
    "plan-memory": "graph.matmul#4 %m = at",
}
A = "tensor<64x64xf32, #graph.csr<capacity = 4096>>"
D, X, Y, Z = "tensor<64x64xf32>", "tensor<64x12xf32>", "tensor<12x100xf32>", "tensor<64x100xf32>"
STORED = f"""\
func.func @main(%x: {D}, %y: {D}, %g: {X}, %w: {Y} {{graph.frozen}}) -> ({D}, {D}, {Z}, tensor<1x64xf32>) {{
  %a = graph.to_storage %x : ({D}) -> {A}
  %r = graph.relu %a : ({A}) -> {D}
  %p = graph.matmul %r, %y : ({D}, {D}) -> {D}
  %f = graph.softmax %a {{axis = 1 : i64}} : ({A}) -> {D}
  %e = graph.exp %y : ({D}) -> {D}
  %s = graph.sum %e {{axes = array<i64: 0>, keepdims = true}} : ({D}) -> tensor<1x64xf32>
  %q = graph.matmul %g, %w : ({X}, {Y}) -> {Z}
  %t = graph.tanh %q : ({Z}) -> {Z}
  func.return %p, %f, %t, %s : {D}, {D}, {Z}, tensor<1x64xf32>
}}
"""
STORED_PASSES = (
    *("assign-storage", "choose-storage{numerics=fast}", "lower-storage", "decompose", "wrap-kernels"),
    *("select-implementation", "pack-weights{smallest-bytes=0}", "schedule-kernels", "bulk-launches"),
)
STORED_KINDS = {
    "assign-storage": "graph.relu#0 %r = csr",
    "choose-storage": "graph.matmul#0 %p = dense",
    "pack-weights": "graph.matmul#1 %q = packed",
    "schedule-kernels": "graph.sum#0 %s = column",
    "bulk-launches": "graph.sum#0 %s = joined",
}


@dataclass
class Sample:
    """A program, and words of a decision by each pass that makes some."""

    program: str
    passes: Sequence[str]
    kinds: Mapping[str, str]
    text: str = ""
    lines: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.text, self.lines = self.made()

    def made(self, fuel: int = 10**6) -> tuple[str, list[str]]:
        with record_decisions() as decisions, limit_fuel(fuel):
            text = text_of(apply(parse(self.program), self.passes))
        return text, list(map(str, decisions))

    def replayed(self, lines: str) -> str:
        with replay_decisions(parse_decisions(lines)):
            return text_of(apply(parse(self.program), self.passes))


@pytest.fixture(scope="module")
def dense() -> Sample:
    return Sample(DENSE, DENSE_PASSES, DENSE_KINDS)


@pytest.fixture(scope="module")
def stored() -> Sample:
    return Sample(STORED, STORED_PASSES, STORED_KINDS)


@pytest.fixture(scope="module", params=["dense", "stored"])
def sample(request: pytest.FixtureRequest) -> Sample:
    return request.getfixturevalue(request.param)


def test_decisions_of_all_kinds_are_replayed(sample: Sample) -> None:
    for name, words in sample.kinds.items():
        assert any(line.startswith(f"{name} ") and words in line for line in sample.lines), (name, sample.lines)
    assert sample.replayed("\n".join(sample.lines)) == sample.text
    again = format_decisions(parse_decisions("\n".join(sample.lines)))
    assert again == "".join(f"{line}\n" for line in sample.lines)


def test_the_first_bad_decision_is_found_of_each_kind(sample: Sample) -> None:
    lines = sample.lines
    module = parse(sample.program)
    arguments = random_arguments(module, 0)
    if sample.kinds is STORED_KINDS:  # products of which each order of summing gives the same
        arguments = [np.round(4 * value) for value in arguments]
    values = evaluate(module, arguments)
    prefixes: dict[int, list[str]] = {}

    def first(count: int) -> list[str]:
        if count not in prefixes:
            text, prefixes[count] = sample.made(count)
            assert_same_bits(evaluate(parse(text), arguments), values, f"(fuel {count})")
        return prefixes[count]

    for name, words in sample.kinds.items():
        asked: list[int] = []
        bad = next(line for line in lines if line.startswith(f"{name} ") and words in line)

        def fails(count: int, asked: list[int] = asked, bad: str = bad) -> bool:
            asked.append(count)
            return bad in first(count)

        found = first_failing(len(lines), fails)
        assert found is not None and lines[found - 1] == bad
        assert len(asked) <= ceil(log2(len(lines) + 1)) + 1


@pytest.mark.parametrize(
    ("name", "pattern", "edited", "message"),
    [
        ("select-implementation", r"%l = \S+", "%l = my.matmul", "expected one of "),
        (
            "select-implementation",
            r"matmul#3 %l",
            "matmul#9",
            "there is no 'graph.matmul#9' in @main at this pass",
        ),
        ("select-implementation", r" = \S+", "", "expected '+' and another op"),
        ("infer-inplace", r"= .*", "= over operand 77", "expected 'over operand N' of "),
        ("infer-inplace", r"= .*", "= result 9 over operand 0", "expected a result of its kernel, named as 'result N'"),
        ("plan-memory", r"at \d+", "at 13", "expected a multiple of 64 bytes, got 13"),
        ("plan-memory", r"at \d+", "nowhere", "expected 'at OFFSET' or 'apart'"),
        ("plan-memory", r"at \d+", "apart", "the result is of no pair that it could be apart from"),
        ("order-for-memory", r"%t before .*", "%t before graph.matmul#4 %m", "cannot run before"),
        ("order-for-memory", r"before (.*)", r"for \1", "expected '=' and what is chosen"),
    ],
)
def test_an_edited_line_that_cannot_be(dense: Sample, name: str, pattern: str, edited: str, message: str) -> None:
    _check_refused(dense, name, pattern, edited, message)


@pytest.mark.parametrize(
    ("name", "pattern", "edited", "message"),
    [
        ("assign-storage", "csr", "row_sparse", "expected 'csr', got 'row_sparse'"),
        (
            "assign-storage",
            "relu#0 %r",
            "matmul#0 %p",
            "'assign-storage' has nothing to choose about graph.matmul#0 %p",
        ),
        ("choose-storage", "matmul#0 %p", "matmul#1 %q", "'choose-storage' has nothing to choose about"),
        ("pack-weights", "matmul#1 %q", "matmul#0 %p", "follows from no frozen argument, or is packed already"),
        ("schedule-kernels", "= column", "= columns", "expected one of pointwise, row, tile, column"),
        ("schedule-kernels", "= column", "= column(splits=0)", "entry 'splits': expected a positive integer, got 0"),
        ("schedule-kernels", "= column", "= row(splits=2)", 'expected none for kind "row"'),
        ("schedule-kernels", "= column", "= pointwise", "'pointwise' cannot run the kernel: it holds a reduction"),
        (
            "schedule-kernels",
            "= column",
            "= column(splits 2)",
            "expected a schedule, as in 'row' or 'column(splits=4)'",
        ),
        ("bulk-launches", "= joined", "= apart", "expected 'joined', got 'apart'"),
        ("bulk-launches", ": .* =", ": graph.csr_from_dense#0 =", "'bulk-launches' has nothing to choose about"),
    ],
)
def test_an_edited_line_of_storage_or_schedules(
    stored: Sample, name: str, pattern: str, edited: str, message: str
) -> None:
    _check_refused(stored, name, pattern, edited, message)


def _check_refused(sample: Sample, name: str, pattern: str, edited: str, message: str) -> None:
    lines = list(sample.lines)
    number = next(n for n, line in enumerate(lines) if line.startswith(f"{name} ") and re.search(pattern, line))
    lines[number] = re.sub(pattern, edited, lines[number])
    with pytest.raises(DecisionError) as error:
        sample.replayed("\n".join(lines))
    assert str(error.value).startswith(f"<decisions>:{number + 1}:") and message in str(error.value)


def test_two_values_at_one_place(dense: Sample) -> None:
    text = re.sub(r"(plan-memory .*) at \d+", r"\1 at 0", "\n".join(dense.lines))
    with pytest.raises(DecisionError, match="would share bytes with %.* at 0, which is alive at the same time"):
        dense.replayed(text)


def test_another_schedule_is_taken(stored: Sample) -> None:
    lines = "\n".join(stored.lines).replace("= column", "= column(splits=3,block=64)")
    changed = stored.replayed(lines)
    assert 'schedule = {kind = "column", splits = 3 : i64, block = 64 : i64}' in changed


def test_another_place_is_taken(dense: Sample) -> None:
    text, lines = dense.text, list(dense.lines)
    number = next(n for n, line in enumerate(lines) if line.startswith("plan-memory "))
    lines = [*lines[:number], re.sub(r"at \d+", "at 131072", lines[number]), *lines[number + 1 :]]
    moved = dense.replayed("\n".join(lines))
    assert "131072" in moved and 'method = "decided"' in moved and moved != text
