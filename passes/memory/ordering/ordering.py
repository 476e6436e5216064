"""Orders of operations that keep few bytes alive at once, apart from any IR: a problem goes in, a better order comes out.

    Problem -> given order, list schedule, depth-first post-order -> windows around the peak -> Order

Orders are judged by the most bytes alive at any step, after in-place pairs as `infer-inplace` would choose them. Finding
the best order is NP-complete (Sethi, "Complete register allocation problems", 1975).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fuse_opt.passes.memory.ordering.list_scheduling import least_growth_first, post_order
from fuse_opt.passes.memory.ordering.problem import Problem, loads_of, needs_of, predecessors
from fuse_opt.passes.memory.ordering.window_search import improve_windows

STRATEGIES = ("auto", "lpmf", "dfs")
"""What `reorder` takes as a strategy: "auto" for the better of both and windows, or one list order alone."""

LEAST_FALL = 128
"""A better order has at least one part in so many fewer bytes, so that few rounds lead to one that has none better."""

MOST_POLISHED = 1024
"""How many nodes a problem may have for windows to be tried."""


@dataclass(frozen=True, slots=True)
class Order:
    """A permutation of a problem's nodes, the bytes that it and the given order need, and what it was found by."""

    order: tuple[int, ...]
    bound: int
    given: int
    method: str


def reorder(problem: Problem, strategy: str = "auto", window: int = 24) -> Order:
    """The best order found, the given one if none is clearly better; a second call with it as given order changes nothing.

    Candidates are tried again from each better order until none falls by one part in LEAST_FALL, so that what this returns
    is a fixed point. Raises ValueError for an unknown strategy.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"unknown strategy {strategy!r}, expected one of {', '.join(STRATEGIES)}")
    order = tuple(range(len(problem.nodes)))
    given = loads_of(problem).bound
    bound, methods = given, list[str]()
    while (better := _better(problem, strategy, window)) is not None:
        permutation, method, bound = better
        order = tuple(order[n] for n in permutation)
        problem = problem.permuted(permutation)
        if methods[-1:] != [method]:
            methods.append(method)
    return Order(order, bound, given, "+".join(methods) or "given")


def _better(problem: Problem, strategy: str, window: int) -> tuple[Sequence[int], str, int] | None:
    """The best candidate, if it is clearly better than the given order: its permutation, method and bound."""
    given = loads_of(problem)
    limit = given.bound - max(1, given.bound // LEAST_FALL)
    if not given.bound or len(problem.nodes) < 2:
        return None
    if needs_of(problem, given)[given.at.index(given.bound)] > limit:
        return None
    before = predecessors(problem)
    candidates = {"lpmf": least_growth_first, "dfs": post_order}
    best: tuple[Sequence[int], str, int] | None = None
    for name in candidates if strategy == "auto" else (strategy,):
        found = candidates[name](problem, before)
        bound = loads_of(problem.permuted(found)).bound
        if bound <= limit and (best is None or bound < best[2]):
            best = found, name, bound
    if best is None and strategy == "auto" and window > 1 and len(problem.nodes) <= MOST_POLISHED:
        found = improve_windows(problem, before, given, limit, window)
        if found is not None and (bound := loads_of(problem.permuted(found)).bound) <= limit:
            best = found, "window", bound
    return best
