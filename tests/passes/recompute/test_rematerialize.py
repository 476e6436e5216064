"""Recomputation: same bits for random programs, decisions that replay, and the least cut against all of them."""

from __future__ import annotations

import random
from collections.abc import Collection
from itertools import chain, combinations
from typing import Any

import pytest
from gradients import gradient
from ir_testing import apply, assert_same_bits, evaluate, parse, random_arguments, text_of
from laws import parses_to_itself
from xdsl.ir import Operation

from fuse_opt.dialects.analysis.storage import functions_of
from fuse_opt.passes.decisions import DecisionError, limit_fuel, record_decisions, replay_decisions
from fuse_opt.passes.decisions.text import format_decisions, parse_decisions
from fuse_opt.passes.memory.packing.stabbing import Stabbing
from fuse_opt.passes.recompute import proposals
from fuse_opt.passes.recompute.least_cut import LeastCut
from fuse_opt.passes.recompute.times import Times
from fuse_opt.passes.remarks import collect

EAGER = "rematerialize{slower=1.0 smallest-bytes=0}"
"""All that saves bytes, whatever it takes."""
S, V = "tensor<6x6xf32>", "tensor<6xf32>"
OPS = ("exp", "tanh", "abs", "negative")
GRADIENT = f"""\
func.func @main(%x: {S}, %w: {S}, %g: {S}) -> {S} {{
  %p = graph.matmul %x, %w : ({S}, {S}) -> {S}
  %h = graph.add %p, %x : ({S}, {S}) -> {S}
  %r = graph.relu %h : ({S}) -> {S}
  %q = graph.matmul %r, %w : ({S}, {S}) -> {S}
  %d = graph.matmul %q, %g : ({S}, {S}) -> {S}
  %a = graph.multiply %d, %h : ({S}, {S}) -> {S}
  %b = graph.multiply %a, %r : ({S}, {S}) -> {S}
  func.return %b : {S}
}}
"""
DECISION = "rematerialize @main: graph.relu#0 %r for graph.multiply#1 %b\n"


def program(seed: int, ops: int = 40) -> str:
    """Products, sums, views and pointwise ops, of which later ones read early ones again."""
    choose = random.Random(seed)
    values = ["x", "w"]
    lines: list[str] = []
    for number in range(ops):
        kind = choose.random()
        near, far = values[-1 - choose.randrange(min(3, len(values)))], choose.choice(values)
        name = f"v{number}"
        if kind < 0.25:
            lines.append(f"%{name} = graph.matmul %{near}, %{far} : ({S}, {S}) -> {S}")
        elif kind < 0.35:
            lines.append(f"%s{number} = graph.sum %{far} {{axes = array<i64: 0>}} : ({S}) -> {V}")
            lines.append(f"%{name} = graph.subtract %{near}, %s{number} : ({S}, {V}) -> {S}")
        elif kind < 0.45:
            lines.append(f"%{name} = graph.permute_dims %{far} {{axes = array<i64: 1, 0>}} : ({S}) -> {S}")
        elif kind < 0.7:
            lines.append(f"%{name} = graph.{choose.choice(OPS)} %{far} : ({S}) -> {S}")
        else:
            lines.append(f"%{name} = graph.{choose.choice(('add', 'minimum'))} %{near}, %{far} : ({S}, {S}) -> {S}")
        values.append(name)
    result = values[-1]
    body = "\n  ".join([*lines, f"func.return %{result} : {S}"])
    donated = " {graph.donated}" if seed % 4 == 0 else ""
    return f"func.func @main(%x: {S}{donated}, %w: {S}) -> {S} {{\n  {body}\n}}\n"


@pytest.mark.parametrize("more", ["", " rows=true products=2", " rows=true products=1 target=512"])
def test_programs_keep_their_bits(more: str) -> None:
    made, eager = 0, EAGER.replace("}", f"{more}}}")
    for seed in range(5):
        text = program(seed)
        module = parse(text)
        arguments = random_arguments(module, seed)
        values = evaluate(module, arguments)
        with record_decisions() as decisions:
            module = apply(parse(text), eager)
        once = text_of(module)
        made += len(decisions)
        assert parses_to_itself(once)
        assert text_of(apply(parse(once), eager)) == once, f"not idempotent (seed {seed})"
        assert_same_bits(evaluate(module, arguments), values, f"(seed {seed})")
        with replay_decisions(parse_decisions(format_decisions(decisions))):
            assert text_of(apply(parse(text), eager)) == once
        clones = text_of(apply(module, "cse,dce")).count("recompute = ")
        fused = text_of(apply(module, "fuse-to-fixpoint,fuse-horizontal,cse,dce"))
        assert fused.count("recompute = ") == clones, "a clone is joined with its original"
        assert_same_bits(evaluate(parse(fused), arguments), values, f"(seed {seed}, fused)")
    assert made > 12


def test_fuel_and_decisions() -> None:
    with record_decisions() as decisions:
        whole = text_of(apply(parse(GRADIENT), EAGER))
    assert format_decisions(decisions) == DECISION and "recompute" in whole
    with limit_fuel(0), record_decisions() as decisions:
        assert "recompute" not in text_of(apply(parse(GRADIENT), EAGER))
    assert decisions == []
    with replay_decisions(parse_decisions(DECISION)):
        assert text_of(apply(parse(GRADIENT), "rematerialize")) == whole


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "graph.relu#0 + graph.add#0",
            "<decisions>:1:1: error: expected 'for' and the ops that read what is computed again",
        ),
        ("graph.relu#0 for graph.multiply#0", "1:39: error: graph.multiply#0 reads none of what is computed again"),
        (
            "graph.matmul#2 for graph.multiply#0",
            "1:22: error: graph.matmul#2 cannot be computed again: it has directives or several results, or the caller runs it",
        ),
        (
            "graph.relu#0 for",
            "1:38: error: expected an op, as in 'graph.add#1' or 'graph.add#1 %sum', got the end of the line",
        ),
    ],
)
def test_decisions_that_do_not_apply(line: str, message: str) -> None:
    with pytest.raises(DecisionError) as error, replay_decisions(parse_decisions(f"rematerialize @main: {line}")):
        apply(parse(GRADIENT.replace("%q, %g", "%q, %g {keep_live}")), "rematerialize")
    assert message in str(error.value)


WIDE = "tensor<6x64xf32>"


def test_what_takes_time_lowers_the_most_bytes_alive() -> None:
    """Where more is alive elsewhere, nothing is computed again at the cost of time; it is said why."""
    more = f"""  %l = graph.matmul %x, %u : ({S}, {WIDE}) -> {WIDE}
  %m = graph.tanh %l : ({WIDE}) -> {WIDE}
  %n = graph.matmul %b, %m : ({S}, {WIDE}) -> {WIDE}
  %o = graph.add %n, %l : ({WIDE}, {WIDE}) -> {WIDE}
  func.return %b, %o : {S}, {WIDE}"""
    text = GRADIENT.replace(f"  func.return %b : {S}", more).replace(
        f") -> {S} {{", f", %u: {WIDE}) -> ({S}, {WIDE}) {{"
    )
    with collect() as remarks:
        assert "recompute" not in text_of(apply(parse(text), EAGER))
    assert "no-fewer-bytes" in {each.code for each in remarks}
    assert all(each.code != "recomputed" for each in remarks)


@pytest.mark.parametrize("kept", [2, 3, 5])
def test_sweeps_end_where_no_fewer_bytes_are_kept(kept: int) -> None:
    """Each would compute more again, for the sake of values at other calls."""
    module = parse(gradient(16))
    most, count = Times(functions_of(module)[0]).most(), len(list(module.walk()))
    apply(module, f"rematerialize{{slower=1000.0 rows=true products={kept} max-ops=512}}")
    assert Times(functions_of(module)[0]).most() < most / 2
    assert len(list(module.walk())) < 2.5 * count


VIEWS = f"""\
func.func @main(%x: tensor<36xf32>, %w: {S}) -> {S} {{
  %v = graph.reshape %x {{shape = array<i64: 6, 6>}} : (tensor<36xf32>) -> {S}
  %h = graph.exp %v : ({S}) -> {S}
  %p = graph.matmul %h, %w : ({S}, {S}) -> {S}
  %q = graph.matmul %p, %w : ({S}, {S}) -> {S}
  %y = graph.add %q, %h : ({S}, {S}) -> {S}
  func.return %y : {S}
}}
"""


def test_clones_read_views_of_their_own() -> None:
    """One view that early and late readers share would have fusion make a kernel of all of them, early."""
    text = text_of(apply(parse(VIEWS), EAGER))
    assert text.count("recompute = 5") == 2 and text.count("graph.reshape") == 2


def test_products_are_replayed_without_their_option() -> None:
    """A file that says so is enough: options are about what is decided without one."""
    with record_decisions() as decisions:
        whole = text_of(apply(parse(GRADIENT), "rematerialize{slower=1.0 smallest-bytes=0 rows=true products=2}"))
    assert "graph.matmul" in format_decisions(decisions)
    with replay_decisions(decisions):
        assert text_of(apply(parse(GRADIENT), "rematerialize")) == whole


def test_nothing_is_looked_at_beyond_what_may_be_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a large function all hangs together: what each of its readers needs would be a square of its size."""
    seen: list[int] = []

    def counted(times: Times, ops: Collection[Operation], *rest: Any) -> proposals.Clones:
        seen.append(len(ops))
        return clones_of(times, ops, *rest)

    clones_of = proposals.clones_of
    monkeypatch.setattr(proposals, "clones_of", counted)
    lines = [f"%p = graph.matmul %x, %w : ({S}, {S}) -> {S}", f"%h0 = graph.exp %p : ({S}) -> {S}"]
    lines += [f"%h{k + 1} = graph.tanh %h{k} : ({S}) -> {S}" for k in range(40)]
    lines += [f"%g0 = graph.matmul %h40, %w : ({S}, {S}) -> {S}"]
    for k in reversed(range(40)):
        lines += [f"%m{k} = graph.multiply %g{39 - k}, %h{k} : ({S}, {S}) -> {S}"]
        lines += [f"%g{40 - k} = graph.matmul %m{k}, %w : ({S}, {S}) -> {S}"]
    text = f"func.func @main(%x: {S}, %w: {S}) -> {S} {{\n" + "\n".join([*lines, f"func.return %g40 : {S}", "}"])
    with collect() as remarks:
        assert "recompute" not in text_of(apply(parse(text), EAGER.replace("}", " max-ops=8}")))
    assert max(seen) == 9 and [each.code for each in remarks] == ["many-ops"]
    assert remarks[0].message.endswith("more than 8 ops would be computed again for a reader")


@pytest.mark.parametrize("seed", range(30))
def test_least_cut_is_the_least(seed: int) -> None:
    choose = random.Random(seed)
    count = choose.randint(3, 8)
    nbytes = [choose.randint(1, 5) for _ in range(count)]
    fixed = [k < 2 or choose.random() < 0.15 for k in range(count)]
    needs = [sorted(choose.sample(range(k), min(k, choose.randint(1, 3)))) for k in range(count)]
    wanted = choose.sample(range(count), choose.randint(1, min(4, count)))
    cut = LeastCut[int](nbytes.__getitem__, lambda k: None if fixed[k] else needs[k])
    for value in wanted:
        cut.want(value)

    def gives_all(kept: set[int]) -> bool:
        known = [False] * count
        for k in range(count):
            known[k] = k in kept or (not fixed[k] and all(known[other] for other in needs[k]))
        return all(known[k] for k in wanted)

    assert gives_all(set(cut.kept()))
    assert not set(cut.kept()) & set(cut.computed())
    subsets = chain.from_iterable(combinations(range(count), size) for size in range(count + 1))
    least = min(sum(map(nbytes.__getitem__, kept)) for kept in subsets if gives_all(set(kept)))
    assert sum(map(nbytes.__getitem__, cut.kept())) == least


def test_stabbing_tells_each_interval_once() -> None:
    choose = random.Random(1)
    intervals = [(first, first + choose.randint(1, 9)) for first in (choose.randrange(40) for _ in range(60))]
    alive = Stabbing(intervals, 64)
    left = set(range(60))
    for point in choose.sample(range(64), 64):
        expected = sorted(k for k in left if intervals[k][0] <= point < intervals[k][1])
        assert alive.take(point) == expected
        left.difference_update(expected)
    assert not left
