"""The packing solver: live buffers share no byte, pins and alignment hold, the bound is one, work grows near-linearly."""

import random
import sys
from collections.abc import Callable
from itertools import count, pairwise
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packing_law import assert_law, problems, rounded, smallest_arena

from fuse_opt.passes.memory.packing import skyline as packing_skyline
from fuse_opt.passes.memory.packing.first_fit import Block, lowest_gap, occupy
from fuse_opt.passes.memory.packing.packing import ORDERS, STRATEGIES, Buffer, Problem, lower_bound, pack
from fuse_opt.passes.memory.packing.skyline import skyline_order


def naive_bound(problem: Problem) -> int:
    """The largest sum of live rounded bytes, step by step."""
    steps = {step for b in problem.buffers for step in range(b.start, b.stop)}
    sums = [sum(rounded(b.size, problem.alignment) for b in problem.buffers if b.start <= t < b.stop) for t in steps]
    return max(sums, default=0)


@given(problems(), st.sampled_from(STRATEGIES))
def test_every_strategy_keeps_the_law(problem: Problem, strategy: str) -> None:
    solution = pack(problem, strategy)
    assert_law(problem, solution.offsets, solution.arena)
    assert solution.lower_bound == lower_bound(problem) == naive_bound(problem) <= solution.arena
    assert solution.gap >= 0.0
    assert pack(problem, strategy) == solution


@given(problems())
def test_the_portfolio_is_as_good_as_each_of_its_orders(problem: Problem) -> None:
    solution = pack(problem, nodes=0)
    assert solution.arena == min(pack(problem, name).arena for name in ORDERS)
    assert solution.method == "empty" or pack(problem, solution.method).arena == solution.arena
    assert pack(problem).arena <= solution.arena


@given(problems(most=5, shortest=1))
def test_no_arena_is_below_the_optimum(problem: Problem) -> None:
    if problem.buffers:
        assert lower_bound(problem) <= smallest_arena(problem) <= pack(problem).arena


@given(problems(most=20), st.data(), st.sampled_from(STRATEGIES))
def test_some_buffers_pinned_where_a_valid_plan_has_them(problem: Problem, data: st.DataObject, strategy: str) -> None:
    plan = pack(problem, "time").offsets
    pins = [at if data.draw(st.booleans()) else None for at in plan]
    buffers = tuple(Buffer(b.size, b.start, b.stop, pin) for b, pin in zip(problem.buffers, pins, strict=True))
    pinned = Problem(buffers, problem.alignment)
    solution = pack(pinned, strategy)
    assert_law(pinned, solution.offsets, solution.arena)


@pytest.mark.parametrize(
    "rows, optimum",
    [
        ([], 0),
        ([(5, 0, 9)], 5),
        ([(4, 0, 2), (4, 2, 4)], 4),
        ([(4, 0, 3), (4, 3, 9), (4, 0, 9), (4, 9, 21), (8, 0, 21)], 16),
        ([(1, 0, 2), (2, 1, 3), (3, 2, 4), (4, 3, 5)], 7),
        ([(1 << 40, 0, 2), (1 << 40, 1, 3), (1 << 40, 2, 4)], 1 << 41),
        # The middle of a chain of long lives must not split the room of the large ones at either end.
        ([(2, 0, 2), (6, 1, 3), (2, 2, 5), (6, 4, 6), (2, 5, 7)], 8),
    ],
)
def test_small_instances_are_packed_exactly(rows: list[tuple[int, int, int]], optimum: int) -> None:
    problem = Problem(tuple(Buffer(*row) for row in rows), alignment=1)
    solution = pack(problem)
    assert (solution.arena, solution.lower_bound, solution.gap) == (optimum, optimum, 0.0)


def test_a_bound_out_of_reach_is_reported_as_a_gap() -> None:
    rows = [(3, 5, 6), (2, 3, 5), (3, 0, 2), (1, 1, 5), (1, 1, 4), (3, 4, 8), (3, 0, 1)]
    problem = Problem(tuple(Buffer(*row) for row in rows), alignment=1)
    solution = pack(problem)
    assert (solution.arena, solution.lower_bound) == (smallest_arena(problem), 6) == (7, 6)
    assert solution.gap == pytest.approx(1 / 6)  # pyright: ignore[reportUnknownMemberType]


def test_sizes_are_rounded_up_before_the_bound() -> None:
    problem = Problem((Buffer(1, 0, 2), Buffer(65, 1, 3)))
    solution = pack(problem)
    assert (solution.arena, solution.lower_bound) == (192, 192)
    assert sorted(solution.offsets) in ([0, 64], [0, 128])


def test_a_full_chain_reuses_two_places() -> None:
    chain = Problem(tuple(Buffer(256, step, step + 2) for step in range(100)))
    assert pack(chain).arena == lower_bound(chain) == 512


def test_buffers_without_bytes_or_life_take_no_room() -> None:
    problem = Problem((Buffer(64, 0, 3), Buffer(0, 0, 3), Buffer(64, 1, 1), Buffer(0, 0, 3, offset=640)))
    solution = pack(problem)
    assert (solution.offsets, solution.arena) == ((0, 0, 0, 640), 64)
    assert pack(Problem(problem.buffers[1:3])).arena == 0


def test_room_below_a_pin_is_used_and_the_pin_ends_the_arena() -> None:
    solution = pack(Problem((Buffer(64, 0, 4, offset=128), Buffer(128, 0, 4), Buffer(64, 1, 2))))
    assert (solution.offsets, solution.arena, solution.lower_bound) == ((128, 0, 192), 256, 256)
    alone = pack(Problem((Buffer(64, 0, 4, offset=1024), Buffer(128, 0, 4))))
    assert (alone.arena, alone.lower_bound) == (1088, 192)
    assert alone.method == ORDERS[0], "no order ends below a pin, so the first is enough"


def test_overlapping_pins_are_named() -> None:
    apart = (Buffer(64, 0, 4, offset=0), Buffer(64, 4, 8, offset=0))
    assert pack(Problem(apart)).offsets == (0, 0)
    with pytest.raises(ValueError, match=r"pinned buffers 1 and 2 overlap: bytes \[0, 64\) in steps \[4, 8\)"):
        pack(Problem((*apart, Buffer(10, 7, 9, offset=0))))


@pytest.mark.parametrize(
    "buffers, alignment, message",
    [
        ((), 0, "alignment must be at least 1"),
        ((Buffer(-1, 0, 1),), 64, "buffer 0 has a negative size"),
        ((Buffer(1, 0, 1), Buffer(1, 3, 2)), 64, "buffer 1 dies at step 2, before its birth at step 3"),
        ((Buffer(1, 0, 1, offset=32),), 64, "buffer 0 is pinned to byte 32, no multiple of 64"),
        ((Buffer(1, 0, 1, offset=-64),), 64, "buffer 0 is pinned"),
    ],
)
def test_impossible_problems_are_refused(buffers: tuple[Buffer, ...], alignment: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Problem(buffers, alignment)


def test_an_unknown_strategy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'best'.*auto, exact, peak-death-size, .*skyline-time"):
        pack(Problem(()), "best")


INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=12)


def taken_bytes(intervals: list[tuple[int, int]]) -> tuple[list[int], set[int]]:
    bounds: list[int] = []
    taken: set[int] = set()
    for low, size in intervals:
        new = set(range(low, low + size))
        assert occupy(bounds, low, low + size) == (not new <= taken)
        taken |= new
    return bounds, taken


@given(INTERVALS)
def test_intervals_merge_when_they_touch(intervals: list[tuple[int, int]]) -> None:
    bounds, taken = taken_bytes(intervals)
    assert all(a < b for a, b in pairwise(bounds))
    assert {byte for lo, hi in zip(bounds[::2], bounds[1::2], strict=True) for byte in range(lo, hi)} == taken


@given(st.lists(INTERVALS, max_size=4), st.integers(1, 8), st.integers(0, 20))
def test_the_lowest_gap_of_several_sets(groups: list[list[tuple[int, int]]], size: int, floor: int) -> None:
    sets = [taken_bytes(group) for group in groups]
    taken = {byte for _, group in sets for byte in group}
    naive = next(at for at in count(floor) if taken.isdisjoint(range(at, at + size)))
    assert lowest_gap([bounds for bounds, _ in sets], size, floor) == naive


def naive_skyline_order(ranked: list[Block], positions: int) -> list[Block]:
    heights = [0] * positions
    left, order = list(ranked), list[Block]()
    while left:
        low, block = min(((max(heights[b.lo : b.hi]), b) for b in left), key=lambda pair: pair[0])
        heights[block.lo : block.hi] = [low + block.size] * (block.hi - block.lo)
        left.remove(block)
        order.append(block)
    return order


@st.composite
def skylines(draw: st.DrawFn) -> tuple[list[Block], int]:
    positions = draw(st.integers(1, 9))
    ends = st.integers(0, positions - 1)
    rows = draw(st.lists(st.tuples(ends, ends, st.integers(1, 5)), max_size=20))
    spans = [(min(a, b), max(a, b) + 1, size) for a, b, size in rows]
    return [Block(i, size, lo, hi, lo, hi, None) for i, (lo, hi, size) in enumerate(spans)], positions


@given(skylines())
def test_the_skyline_order_takes_the_lowest_first(case: tuple[list[Block], int]) -> None:
    ranked, positions = case
    assert skyline_order(ranked, positions) == naive_skyline_order(ranked, positions)


def test_an_impatient_skyline_order_keeps_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing_skyline, "PATIENCE", 0)
    ranked = [Block(i, 8, at, at + 1, at, at + 1, None) for i, at in enumerate([0, 0, 1])]
    assert skyline_order(ranked, 2) == ranked != naive_skyline_order(ranked, 2)


def network(ops: int) -> Problem:
    """Short lives of mixed sizes along a schedule, with a long one now and then."""
    rng = random.Random(ops)
    lives = [rng.randint(100, 300) if rng.random() < 0.1 else rng.randint(1, 5) for _ in range(ops)]
    return Problem(tuple(Buffer(rng.randint(1, 64) * 64, step, step + life) for step, life in enumerate(lives)))


def executed_lines(action: Callable[[], object]) -> int:
    """How many lines of Python an action runs: a measure of work that is the same on every machine."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Callable[[FrameType, str, Any], Any]:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("strategy", ["peak-death-size", "size", "time", "skyline-area"])
def test_work_grows_near_linearly(strategy: str) -> None:
    small, large = network(500), network(4000)
    growth = executed_lines(lambda: pack(large, strategy)) / executed_lines(lambda: pack(small, strategy))
    assert growth < 8 * 2.5


def test_lives_nested_thousands_deep() -> None:
    problem = Problem(tuple(Buffer(64, step, 10_000 - step) for step in range(5_000)))
    assert pack(problem).arena == lower_bound(problem) == 64 * 5_000
