"""What a search keeps of a chain of values: beside every way there is, and in a gradient."""

from __future__ import annotations

import random
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import combinations

from ir_testing import apply, parse
from xdsl.dialects.func import FuncOp

from fuse_opt.passes.recompute.kept_values import LONGEST, values_to_keep
from fuse_opt.passes.recompute.times import Times

S = "tensor<256x256xf32>"
ONE = 4 * 256 * 256
LAYERS = 8


def least_work(sizes: Sequence[int], work: Sequence[float], room: int, kept: frozenset[int]) -> float:
    """That of having all values from the last to the first, from those kept, found by trying all ways."""
    waiting: list[tuple[float, int, tuple[int, ...]]] = [(0.0, len(sizes), tuple(sorted(kept)))]
    best: dict[tuple[int, tuple[int, ...]], float] = {}
    while waiting:
        spent, wanted, there = heappop(waiting)
        if wanted == 0:
            return spent
        if best.setdefault((wanted, there), spent) < spent:
            continue
        if wanted - 1 in there:
            heappush(waiting, (spent, wanted - 1, there))
        for value in there:
            heappush(waiting, (spent, wanted, tuple(k for k in there if k != value)))
        for source, value in ((s, v) for s in (-1, *there) for v in range(s + 1, wanted) if v not in there):
            if sum(sizes[k] for k in (*there, value)) <= room:
                heappush(waiting, (spent + sum(work[source + 1 : value + 1]), wanted, tuple(sorted((*there, value)))))
    return float("inf")


def test_no_other_values_take_less_work() -> None:
    choose = random.Random(5)
    for case in range(12):
        count = choose.randint(1, 6)
        sizes = [choose.choice((1, 2, 3)) if case % 2 else 1 for _ in range(count)]
        work = [float(choose.randint(1, 5)) for _ in range(count)]
        room = choose.randint(max(sizes), sum(sizes))
        now = choose.randint(0, room)
        kept = frozenset(values_to_keep(sizes, work, now, room))
        sets = (frozenset(some) for n in range(count + 1) for some in combinations(range(count), n))
        fitting = [some for some in sets if sum(sizes[k] for k in some) <= now]
        assert kept in fitting
        assert least_work(sizes, work, room, kept) == min(least_work(sizes, work, room, some) for some in fitting)


def test_long_chains_and_no_room() -> None:
    kept = values_to_keep([3] * (5 * LONGEST), [1.0] * (5 * LONGEST), 60, 90)
    assert kept and kept == sorted(set(kept)) and 3 * len(kept) <= 60
    assert values_to_keep([4, 4], [1.0, 1.0], -1, 0) == []


def test_work_is_asked_for_where_something_may_be_kept() -> None:
    asked: list[int] = []
    choose = random.Random(8)
    for _ in range(40):
        sizes = [choose.choice((64, 96, 4096)) for _ in range(choose.randint(1, 2 * LONGEST))]
        work, room, later = [choose.random() for _ in sizes], choose.randint(0, 200), choose.randint(0, 9000)

        def ask(work: Sequence[float] = work) -> Sequence[float]:
            asked.append(len(work))
            return work

        before = len(asked)
        assert values_to_keep(sizes, ask, room, later) == values_to_keep(sizes, work, room, later)
        assert len(asked) - before <= 1
    assert 0 < len(asked) < 40


def gradient() -> str:
    """Of a chain of products and of a pointwise op behind each, with respect to all factors."""
    lines: list[str] = []

    def op(name: str, kind: str, left: str, right: str, more: str = "") -> None:
        lines.append(f"%{name} = graph.{kind} %{left}, %{right}{more} : ({S}, {S}) -> {S}")

    for k in range(LAYERS):
        op(f"h{k + 1}", "matmul", f"a{k}", f"w{k}")
        lines.append(f"%a{k + 1} = graph.tanh %h{k + 1} : ({S}) -> {S}")
    op(f"z{LAYERS}", "multiply", f"a{LAYERS}", f"h{LAYERS}")
    for k in reversed(range(LAYERS)):
        op(f"g{k}", "matmul", f"a{k}", f"z{k + 1}", " {transpose_lhs = true}")
        if k:
            op(f"d{k}", "matmul", f"z{k + 1}", f"w{k}", " {transpose_rhs = true}")
            op(f"z{k}", "multiply", f"d{k}", f"h{k}")
    given = ", ".join(f"%{name}: {S}" for name in ("a0", *(f"w{k}" for k in range(LAYERS))))
    made = ", ".join(f"%g{k}" for k in range(LAYERS))
    types = ", ".join([S] * LAYERS)
    body = "\n  ".join(lines)
    return f"func.func @main({given}) -> ({types}) {{\n  {body}\n  func.return {made} : {types}\n}}\n"


def test_a_gradient_takes_the_fewest_products() -> None:
    """Of 23 products, and as many as the best order of all takes in so many values' memory, found by trying all orders."""
    for room, products in ((8, 24), (5, 27), (4, 30)):
        options = f"slower=1.0 smallest-bytes=0 max-ops=99 rows=true products=1 target={room * ONE}"
        module = apply(parse(gradient()), f"rematerialize{{{options}}}")
        (function,) = (op for op in module.walk() if isinstance(op, FuncOp))
        assert max(Times(function).loads(whole=True).values()) <= room * ONE
        assert sum(op.name == "graph.matmul" for op in module.walk()) == products
