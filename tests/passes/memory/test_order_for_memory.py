"""Ordering for memory: orders keep dependences and lower the bound that planning then has; nothing else moves."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from itertools import permutations

import memory
import memory_graphs
import pytest
from planned_programs import apply, function_of, kernels_of, parse, random_program
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.analysis.storage import analyse_storage
from fuse_opt.passes.fusion.fuse_elementwise import FuseElementwisePass
from fuse_opt.passes.fusion.fuse_row import FuseRowPass
from fuse_opt.passes.fusion.wrap_kernels import WrapKernelsPass
from fuse_opt.passes.memory.infer_inplace import InferInplacePass
from fuse_opt.passes.memory.order_for_memory import OrderForMemoryPass, memory_problems
from fuse_opt.passes.memory.ordering.ordering import LEAST_FALL, MOST_POLISHED, reorder
from fuse_opt.passes.memory.ordering.problem import Node, Problem, Value, loads_of, predecessors
from fuse_opt.passes.memory.packing.packing import Buffer, lower_bound
from fuse_opt.passes.memory.packing.packing import Problem as PackingProblem
from fuse_opt.passes.remarks import RefusedError, collect


def random_problem(count: int, seed: int, reach: int = 20, pairs: bool = True) -> Problem:
    rng = random.Random(seed)
    values: list[Value] = []
    nodes: list[Node] = []
    for number in range(count):
        returned = rng.random() < 0.1
        values.append(Value(64 * rng.choice((1, 1, 2, 3, 8)), outside=returned, lasts=returned))
        recent = range(max(0, number - reach), number)
        reads = tuple(dict.fromkeys(rng.choice(recent) for _ in range(rng.randrange(4)))) if recent else ()
        own = tuple((number, read) for read in reads if values[read].size == values[number].size and pairs)
        nodes.append(Node(reads, (number,), own, ordered=rng.random() < 0.05))
    return Problem(tuple(values), tuple(nodes))


def is_allowed(problem: Problem, order: Sequence[int]) -> bool:
    """Whether the order is a permutation of the nodes in which each comes after those that it depends on."""
    if sorted(order) != list(range(len(problem.nodes))):
        return False
    place = {node: at for at, node in enumerate(order)}
    return all(place[other] < place[node] for node, found in enumerate(predecessors(problem)) for other in found)


@pytest.mark.parametrize("strategy", ["auto", "lpmf", "dfs"])
def test_orders_are_allowed_never_worse_and_fixed_points(strategy: str) -> None:
    better = 0
    for seed in range(40):
        problem = random_problem(40, seed)
        found = reorder(problem, strategy, 16)
        assert is_allowed(problem, found.order)
        assert (found.given, found.bound) == (loads_of(problem).bound, loads_of(problem.permuted(found.order)).bound)
        assert found.bound <= found.given
        assert (found.bound == found.given) == (found.method == "given")
        again = reorder(problem.permuted(found.order), strategy, 16)
        assert again.order == tuple(range(40)) and again.method == "given"
        better += found.bound < found.given
    assert better > 10


def test_small_problems_are_solved_as_well_as_by_trying_all_orders() -> None:
    optimal = 0
    for seed in range(60):
        problem = random_problem(6, seed)
        before = predecessors(problem)
        orders = permutations(range(6))  # as places of nodes
        allowed = [at for at in orders if all(at[other] < at[n] for n in range(6) for other in before[n])]
        best = min(loads_of(problem.permuted(sorted(range(6), key=at.__getitem__))).bound for at in allowed)
        found = reorder(problem).bound
        assert found >= best
        optimal += found <= best + max(1, best // LEAST_FALL)
    assert optimal >= 57, f"{optimal} of 60"


def test_windows_lower_what_lists_do_not() -> None:
    gains = [(reorder(p, "auto", 24).bound, reorder(p, "auto", 0).bound) for p in map(of_sixty, range(12))]
    assert all(window <= lists for window, lists in gains)
    assert sum(window < lists for window, lists in gains) >= 6


def of_sixty(seed: int) -> Problem:
    return random_problem(60, seed)


def test_in_place_pairs_count() -> None:
    """Two chains of equal values: one at a time needs two values, and one where the second takes over the first."""
    values = (Value(64), Value(64))
    for pairs, bound in (((), 128), (((1, 0),), 64)):
        problem = Problem(values, (Node((), (0,)), Node((0,), (1,), pairs)))
        assert loads_of(problem).bound == bound
    returned = Problem((Value(64), Value(64, True, True)), (Node((), (0,)), Node((0,), (1,), ((1, 0),))))
    assert loads_of(returned).bound == 0  # both are in the caller's buffer


def test_twenty_thousand_nodes() -> None:
    wide = random_problem(20_000, 3, reach=1000)
    towers = towers_problem(2 * MOST_POLISHED)
    start = time.process_time()
    assert reorder(wide).bound <= loads_of(wide).bound
    assert reorder(towers).bound == 64 * 9 + 64 * (2 * MOST_POLISHED - 1)
    assert time.process_time() - start < 8


def towers_problem(count: int) -> Problem:
    """All values of 8 units first, then all of one unit that are made of them, which one node reads."""
    values = (*[Value(8 * 64)] * count, *[Value(64)] * count)
    first = [Node((), (n,)) for n in range(count)]
    second = [Node((n,), (count + n,)) for n in range(count)]
    return Problem(values, (*first, *second, Node(tuple(range(count, 2 * count)), ())))


def test_unknown_strategy() -> None:
    with pytest.raises(ValueError, match="unknown strategy 'best', expected one of auto, lpmf, dfs"):
        reorder(random_problem(4, 0), "best")


def planned_bound(module: ModuleOp) -> int:
    """What no plan can do without, after `infer-inplace`."""
    apply(module, InferInplacePass())
    chosen = [s for s in analyse_storage(function_of(module)).storages if s.kind == "intermediate"]
    return lower_bound(PackingProblem(tuple(Buffer(s.nbytes, s.birth, s.death) for s in chosen), 8))


@pytest.mark.sampled(10)
@pytest.mark.parametrize("seed", range(60))
def test_the_estimate_is_the_bound_that_planning_finds(seed: int) -> None:
    rng = random.Random(seed)
    module = parse(random_program(rng, rng.choice((8, 16, 40))))
    if seed % 2:
        apply(module, FuseElementwisePass(), FuseRowPass())
    apply(module, WrapKernelsPass())
    before = module.clone()
    assert loads_of(memory_problems(function_of(module), 8)[0]).bound == planned_bound(module)
    with collect() as remarks:
        apply(before, OrderForMemoryPass(alignment=8))
    estimate = loads_of(memory_problems(function_of(before), 8)[0]).bound
    for remark in remarks:
        assert dict(remark.numbers)["after"] == estimate
    assert estimate == planned_bound(before)


TOWERS = """
func.func @main(%x: tensor<64xf32>, %d: tensor<64xf32> {graph.donated}) -> (tensor<64xf32>, tensor<64xf32>) {
  %a = graph.broadcast_to %x {shape = array<i64: 64, 64>} : (tensor<64xf32>) -> tensor<64x64xf32>
  %b = graph.broadcast_to %d {shape = array<i64: 64, 64>} : (tensor<64xf32>) -> tensor<64x64xf32>
  %c = graph.sum %a {axes = array<i64: 1>} : (tensor<64x64xf32>) -> tensor<64xf32>
  %e = graph.exp %d DIRECTIVE : (tensor<64xf32>) -> tensor<64xf32>
  %f = graph.sum %b {axes = array<i64: 1>} : (tensor<64x64xf32>) -> tensor<64xf32>
  %g = graph.add %c, %f : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  func.return %g, %e : tensor<64xf32>, tensor<64xf32>
}"""


def names(module: ModuleOp) -> str:
    return "".join(kernel.results[0].name_hint or "?" for kernel in kernels_of(module))


def test_what_is_ordered_and_what_is_said_of_it() -> None:
    module = apply(parse(TOWERS.replace("DIRECTIVE", "")), WrapKernelsPass(), InferInplacePass())
    with collect() as remarks:
        apply(module, OrderForMemoryPass())
    (remark,) = remarks
    assert remark.code == "ordered"
    assert dict(remark.numbers) == {"before": 2 * 16384, "after": 16384 + 256, "method": "lpmf"}
    assert names(module).index("c") < names(module).index("b")
    assert all(kernel.inplace is None for kernel in kernels_of(module))
    with collect() as remarks:
        apply(module, OrderForMemoryPass())
    assert [(r.code, dict(r.numbers)) for r in remarks] == [("kept", {"before": 16384 + 256, "after": 16384 + 256})]


def test_readers_stay_before_what_must_run_in_place() -> None:
    """%e overwrites %d, which %b reads: else %e would be as good before it."""
    module = apply(parse(TOWERS.replace("DIRECTIVE", "{must_inplace}")), WrapKernelsPass())
    problem = memory_problems(function_of(module), 64)[0]
    assert [node.reads_last for node in problem.nodes] == [False, False, False, True, False, False]
    assert predecessors(problem)[3] == [1]
    apply(module, OrderForMemoryPass(), InferInplacePass())
    assert names(module).index("b") < names(module).index("e")


@pytest.mark.parametrize(
    ("pass_", "message"),
    [
        (OrderForMemoryPass(strategy="best"), "unknown 'best'; use one of auto, lpmf, dfs"),
        (OrderForMemoryPass(window=65), "window: expected 0 to 64 kernels, got 65"),
        (OrderForMemoryPass(alignment=0), "alignment: expected 1 byte or more, got 0"),
    ],
)
def test_wrong_options_are_refused(pass_: OrderForMemoryPass, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        apply(parse(TOWERS.replace("DIRECTIVE", "")), pass_)


GAINS = {"inception": 0.91, "wide_and_deep": 0.76, "nas_cells": 0.83, "multi_tower": 0.32, "unet": 1.0, "lstm": 1.0}
"""The bound after ordering as a part of the one before, at most."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", GAINS)
def test_graphs_of_models(name: str) -> None:
    row = memory.measure(name, memory_graphs.GRAPHS[name](), without=("fuse-horizontal", "fuse-siblings"))
    assert row.gain <= GAINS[name]
    assert row.ordered == row.ordered_bound, "the plan is not proven optimal"
    assert row.ordered <= row.both <= min(row.sharing, row.inplace) <= row.nothing
