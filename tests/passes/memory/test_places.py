"""Places for values of any sizes: sound for all of them, checked by replay, and never those of two values that live at once."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from ir_testing import parse
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute
from xdsl.utils.hints import isa

from fuse_opt.dialects.analysis.storage import ARENA, PLACES, functions_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.properties import int_array, ints
from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.dialects.types.extents import evaluate
from fuse_opt.dialects.types.size import Extent, symbol
from fuse_opt.dialects.types.symbolic_shape import SizeAttr
from fuse_opt.dialects.verify.memory_plan import PlanError, verify_plan
from fuse_opt.passes.memory.places import assign_places
from fuse_opt.passes.remarks import RefusedError
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
  %6 = graph.softmax %5 {no_fuse} : (tensor<?xf32>) -> tensor<?xf32>
  func.return %6, %4 : tensor<?xf32>, tensor<f32>
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


def test_values_that_live_at_once_are_apart_at_all_sizes() -> None:
    rng, n, m = random.Random(5), symbol("n"), symbol("m", most=4096)
    kinds: list[Extent] = [64, 4 * n, 4 * n + 60, n * n, 12 * n * m, 8 * m, 1000 * m]
    for count in (1, 7, 60):
        births = [rng.randrange(count) for _ in range(count)]
        lives = [(rng.choice(kinds), birth, birth + rng.randint(1, 5)) for birth in births]
        numbers, places = assign_places(lives)
        for a in range(count):
            for b in range(a):
                is_apart = lives[a][2] <= lives[b][1] or lives[b][2] <= lives[a][1]
                assert is_apart or numbers[a] != numbers[b]
        for _ in range(20):
            values = {"n": rng.randint(1, 3000), "m": rng.randint(1, 4096)}
            for (nbytes, _, _), number in zip(lives, numbers, strict=True):
                assert evaluate(nbytes, values) <= evaluate(places[number], values)


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
