"""Decisions of all kinds: recorded, replayed, edited, counted, and the first bad one found; a program for each kind."""

from __future__ import annotations

import re
from math import ceil, log2

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

S, W, T = "tensor<16x16xf32>", "tensor<16x512xf32>", "tensor<512x16xf32>"
PROGRAM = f"""\
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
PASSES = (
    "rematerialize{slower=1.0 smallest-bytes=0}",
    *("fuse-elementwise", "fuse-epilogue", "wrap-kernels", "select-implementation", "schedule-kernels"),
    *("order-for-memory", "infer-inplace", "plan-memory"),
)
KINDS = {
    "fuse-elementwise": "graph.multiply#0 %a",
    "rematerialize": " for ",
    "select-implementation": "graph.matmul#3 %l = ",
    "order-for-memory": " before ",
    "infer-inplace": "over operand",
    "plan-memory": "graph.matmul#4 %m = at",
}


def made(fuel: int | None = None) -> tuple[str, list[str]]:
    with record_decisions() as decisions, limit_fuel(10**6 if fuel is None else fuel):
        text = text_of(apply(parse(PROGRAM), PASSES))
    return text, list(map(str, decisions))


def replayed(lines: str) -> str:
    with replay_decisions(parse_decisions(lines)):
        return text_of(apply(parse(PROGRAM), PASSES))


@pytest.fixture(scope="module")
def whole() -> tuple[str, list[str]]:
    return made()


def test_decisions_of_all_kinds_are_replayed(whole: tuple[str, list[str]]) -> None:
    text, lines = whole
    for name, words in KINDS.items():
        assert any(line.startswith(f"{name} ") and words in line for line in lines), (name, lines)
    assert replayed("\n".join(lines)) == text
    assert format_decisions(parse_decisions("\n".join(lines))) == "".join(f"{line}\n" for line in lines)


def test_the_first_bad_decision_is_found_of_each_kind(whole: tuple[str, list[str]]) -> None:
    lines = whole[1]
    module = parse(PROGRAM)
    arguments = random_arguments(module, 0)
    values = evaluate(module, arguments)
    prefixes: dict[int, list[str]] = {}

    def first(count: int) -> list[str]:
        if count not in prefixes:
            text, prefixes[count] = made(count)
            assert_same_bits(evaluate(parse(text), arguments), values, f"(fuel {count})")
        return prefixes[count]

    for name, words in KINDS.items():
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
def test_an_edited_line_that_cannot_be(
    whole: tuple[str, list[str]], name: str, pattern: str, edited: str, message: str
) -> None:
    lines = list(whole[1])
    number = next(n for n, line in enumerate(lines) if line.startswith(f"{name} ") and re.search(pattern, line))
    lines[number] = re.sub(pattern, edited, lines[number])
    with pytest.raises(DecisionError) as error:
        replayed("\n".join(lines))
    assert str(error.value).startswith(f"<decisions>:{number + 1}:") and message in str(error.value)


def test_two_values_at_one_place(whole: tuple[str, list[str]]) -> None:
    text = re.sub(r"(plan-memory .*) at \d+", r"\1 at 0", "\n".join(whole[1]))
    with pytest.raises(DecisionError, match="would share bytes with %.* at 0, which is alive at the same time"):
        replayed(text)


def test_another_place_is_taken(whole: tuple[str, list[str]]) -> None:
    text, lines = whole
    number = next(n for n, line in enumerate(lines) if line.startswith("plan-memory "))
    lines = [*lines[:number], re.sub(r"at \d+", "at 131072", lines[number]), *lines[number + 1 :]]
    moved = replayed("\n".join(lines))
    assert "131072" in moved and 'method = "decided"' in moved and moved != text
