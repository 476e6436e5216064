"""Places for values of any sizes: sound for all of them, checked by replay, and never those of two values that live at once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from ir_testing import parse
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute
from xdsl.utils.hints import isa

from fuse_opt.dialects.analysis.place_orders import PlaceOrders
from fuse_opt.dialects.analysis.storage import ARENA, PLACES, functions_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.properties import int_array, ints
from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.dialects.types.extents import evaluate
from fuse_opt.dialects.types.size import Extent, symbol
from fuse_opt.dialects.types.symbolic_shape import SizeAttr
from fuse_opt.dialects.verify.memory_plan import PlanError, verify_plan
from fuse_opt.passes.memory.place_orders import plan_orders
from fuse_opt.passes.remarks import RefusedError, collect
from fuse_opt.tools.compiler.pipeline import make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context

CHAIN = """func.func @main(%x: tensor<?xf32> {graph.dims = ["n"]}, %w: tensor<?x7xf32> {graph.dims = ["m", ""]})
    -> (tensor<?xf32>, tensor<f32>) {
  %0 = graph.cumulative_sum %x : (tensor<?xf32>) -> tensor<?xf32>
  %1 = graph.sort %0 : (tensor<?xf32>) -> tensor<?xf32>
  %2 = graph.concat %1, %0 {axis = 0 : i64} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %3 = graph.softmax %2 : (tensor<?xf32>) -> tensor<?xf32>
  %4 = graph.sum %w : (tensor<?x7xf32>) -> tensor<f32>
  %5 = graph.softmax %3 {no_fuse} : (tensor<?xf32>) -> tensor<?xf32>
  %6 = graph.cumulative_sum %3 : (tensor<?xf32>) -> tensor<?xf32>
  %7 = graph.sort %0 : (tensor<?xf32>) -> tensor<?xf32>
  %8 = graph.cumulative_sum %7 : (tensor<?xf32>) -> tensor<?xf32>
  %9 = graph.concat %6, %5, %7, %8 {axis = 0 : i64}
    : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  func.return %9, %4 : tensor<?xf32>, tensor<f32>
}"""


@pytest.fixture
def planned() -> Iterator[ModuleOp]:
    """A function of sizes, with a plan."""
    module = parse(CHAIN)
    run_pipeline(module, make_passes("infer-shapes{symbols=true}"), make_context())
    with sizes_asked_for():
        run_pipeline(module, make_passes("decompose,wrap-kernels,infer-inplace,plan-memory"), make_context())
        yield module


def arena_of(module: ModuleOp) -> dict[str, Attribute]:
    found = functions_of(module)[0].attributes[ARENA]
    assert isinstance(found, DictionaryAttr)
    return dict(found.data)


def places_of(module: ModuleOp) -> list[SizeAttr]:
    found = arena_of(module)[PLACES]
    assert isa(found, ArrayAttr[SizeAttr])
    return list(found)


def drawn_lives(rng: random.Random, count: int) -> list[tuple[Extent, int, int]]:
    n, m = symbol("n"), symbol("m", most=4096)
    kinds: list[Extent] = [64, 4 * n, 4 * n + 60, n * n, 12 * n * m, 8 * m, 1000 * m]
    births = [rng.randrange(count) for _ in range(count)]
    return [(rng.choice(kinds), birth, birth + rng.randint(1, 5)) for birth in births]


def test_values_that_live_at_once_are_apart_at_all_sizes() -> None:
    rng, methods = random.Random(5), set[str]()
    for count in (1, 7, 30, 60):
        lives = drawn_lives(rng, count)
        plan = plan_orders(lives, 64)
        methods.add(plan.method)
        for _ in range(20):
            values = {"n": rng.randint(1, 3000), "m": rng.randint(1, 4096)}
            nbytes = [evaluate(life[0], values) for life in lives]
            offsets, arena, bound = plan.orders.at(values)
            most = max(
                sum(-(-n // 64) * 64 for n, x in zip(nbytes, lives, strict=True) if x[1] <= t < x[2])
                for _, t, _ in lives
            )
            assert bound == most and bound <= arena <= bound * 1.1 and (plan.method != "universal" or arena == bound)
            for a in range(count):
                assert offsets[a] % 64 == 0 and offsets[a] + nbytes[a] <= arena
                for b in range(a):
                    is_apart = offsets[a] + nbytes[a] <= offsets[b] or offsets[b] + nbytes[b] <= offsets[a]
                    assert is_apart or lives[a][2] <= lives[b][1] or lives[b][2] <= lives[a][1]
    assert methods == {"universal", "orders"}


def test_planning_again_changes_nothing(planned: ModuleOp) -> None:
    before = str(planned)
    assert len(places_of(planned)) > 1
    run_pipeline(planned, make_passes("plan-memory"), make_context())
    assert str(planned) == before


@pytest.mark.parametrize("number", range(2))
def test_a_place_that_is_smaller_than_a_value_is_refused(planned: ModuleOp, number: int) -> None:
    function = functions_of(planned)[0]
    smaller = [SizeAttr(4) if k == number else place for k, place in enumerate(places_of(planned))]
    function.attributes[ARENA] = DictionaryAttr({**arena_of(planned), PLACES: ArrayAttr(smaller)})
    with pytest.raises(PlanError, match=f"its place {number} has 4"):
        verify_plan(function)


def test_mutants_of_slots_are_refused(planned: ModuleOp) -> None:
    function = functions_of(planned)[0]
    kernels = [op for op in function.body.block.ops if isinstance(op, KernelOp)]
    refused = 0
    for kernel in kernels:
        for place, slot in enumerate(slots := list(ints(kernel.slots))):
            for other in (slot + 1, slot - 1, 99):
                kernel.slots = int_array([*slots[:place], other, *slots[place + 1 :]])
                try:
                    verify_plan(function)
                except PlanError:
                    refused += 1
        kernel.slots = int_array(slots)
    verify_plan(function)
    assert refused > len(kernels)


def test_mutants_of_orders_are_refused(planned: ModuleOp) -> None:
    """Each pair of an order is needed, and its direction: without it, or turned round, values in use may lie over one another."""
    function = functions_of(planned)[0]
    plan = PlaceOrders.of(function)
    assert plan is not None
    (order,) = plan.orders
    mutants = [order[:k] + order[k + 1 :] for k in range(len(order))]
    mutants += [(*order, (above, below)) for below, above in order]
    mutants += [((0, 0),), ((0, len(plan.places)),)]
    for mutant in mutants:
        for orders in ((mutant,), (order, mutant)):
            function.attributes[ARENA] = DictionaryAttr({**arena_of(planned), **replace(plan, orders=orders).entries()})
            with pytest.raises(PlanError):
                verify_plan(function)
    assert len(order) > 3


def test_bounds_are_verified(planned: ModuleOp) -> None:
    function = functions_of(planned)[0]
    plan = PlaceOrders.of(function)
    assert plan is not None
    verify_plan(function, exact=True)
    for bounds in (plan.bounds[1:], (*plan.bounds, (0,))):
        function.attributes[ARENA] = DictionaryAttr({**arena_of(planned), **replace(plan, bounds=bounds).entries()})
        with pytest.raises(PlanError, match="bounds are"):
            verify_plan(function, exact=True)


def test_what_makes_no_sense_is_refused(planned: ModuleOp) -> None:
    function = functions_of(planned)[0]
    function.attributes[ARENA] = DictionaryAttr({**arena_of(planned), "size": IntegerAttr(64, i64)})
    with pytest.raises(PlanError, match="without size"):
        verify_plan(function)


def test_offsets_by_hand_are_refused(planned: ModuleOp) -> None:
    kernel = next(op for op in functions_of(planned)[0].body.block.ops if isinstance(op, KernelOp))
    kernel.attributes["pinned_slots"] = int_array([0] * len(kernel.results))
    with pytest.raises(RefusedError, match="expected no offsets by hand"):
        run_pipeline(planned, make_passes("plan-memory"), make_context())


ARMS = """func.func @main(%x: tensor<?x250xf32> {graph.dims = ["n", ""]}, %y: tensor<3x225xf32>)
    -> tensor<475xf32> attributes {graph.symbols = {n = {RANGE}}} {
  %0 = graph.exp %y : (tensor<3x225xf32>) -> tensor<3x225xf32>
  %1 = graph.sum %0 {axes = array<i64: 0>} : (tensor<3x225xf32>) -> tensor<225xf32>
  %2 = graph.exp %x : (tensor<?x250xf32>) -> tensor<?x250xf32>
  %3 = graph.sum %2 {axes = array<i64: 0>} : (tensor<?x250xf32>) -> tensor<250xf32>
  %4 = graph.concat %1, %3 {axis = 0 : i64} : (tensor<225xf32>, tensor<250xf32>) -> tensor<475xf32>
  func.return %4 : tensor<475xf32>
}"""
"""The arm of %x runs first for few bytes, but where it is as short as one row."""


def with_passes(text: str, passes: str) -> tuple[ModuleOp, list[str]]:
    module = parse(text)
    run_pipeline(module, make_passes("infer-shapes{symbols=true}"), make_context())
    with sizes_asked_for(), collect() as remarks:
        run_pipeline(module, make_passes(passes), make_context())
    return module, [f"{remark.code}: {remark.message}" for remark in remarks]


@pytest.mark.parametrize(("least", "code"), [(1, "kept"), (16, "ordered")])
def test_orders_that_cost_bytes_at_other_extents_are_not_taken(least: int, code: str) -> None:
    text = ARMS.replace("RANGE", f"least = {least} : i64, most = 512 : i64, typical = 16 : i64")
    _, remarks = with_passes(text, "decompose,wrap-kernels,order-for-memory")
    assert [each.partition(":")[0] for each in remarks if each.startswith(("kept", "ordered"))] == [code]
    assert (code == "kept") == any("needs more at others" in each for each in remarks)


def test_a_peak_limit_holds_for_all_extents() -> None:
    """One kernel of both products needs four values at once, 4 * 64 bytes each."""
    text = """func.func @main(%x: T {graph.dims = ["n"]}) -> T attributes {graph.symbols = {n = {most = 64, typical = 8}}} {
  %0 = graph.sort %x : (T) -> T
  %1 = graph.cumulative_sum %x : (T) -> T
  %2 = graph.multiply %0, %1 : (T, T) -> T
  %3 = graph.sort %x {descending = true} : (T) -> T
  %4 = graph.cumulative_sum %3 : (T) -> T
  %5 = graph.multiply %3, %4 : (T, T) -> T
  %6 = graph.add %2, %5 : (T, T) -> T
  func.return %6 : T
}""".replace("T", "tensor<?xf32>")
    for limit, refused in ((0, True), (4 * 256 - 1, True), (4 * 256, False)):
        _, remarks = with_passes(text, f"decompose,fuse-elementwise{{peak-limit={limit}}}")
        found = [each for each in remarks if each.startswith("peak-limit")]
        assert bool(found) == refused, (limit, remarks)
        assert all("n being 64" in each for each in found if limit)


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_result_in_place_of_an_operand_of_other_sizes_is_refused(is_kept: bool) -> None:
    """Of one extent both have the same bytes; of another one it would write beside the operand."""
    row, other = "tensor<?xf32>", "tensor<?xf32>" if is_kept else "tensor<?x1xf32>"
    result, dims = (row, '["n"]') if is_kept else ("tensor<?x?xf32>", '["m", ""]')
    text = f"""func.func @main(%x: {row} {{graph.dims = ["n"], graph.donated}}, %y: {other} {{graph.dims = {dims}}})
        -> {result} {{
      %0 = graph.add %x, %y {{must_inplace}} : ({row}, {other}) -> {result}
      func.return %0 : {result}
    }}"""
    if is_kept:
        module, _ = with_passes(text, "wrap-kernels,infer-inplace")
        assert [ints(op.inplace) for op in module.walk() if isinstance(op, KernelOp)] == [(0, 0)]
        return
    with pytest.raises(RefusedError, match="must_inplace cannot be kept.*bytes"):
        with_passes(text, "wrap-kernels,infer-inplace")
