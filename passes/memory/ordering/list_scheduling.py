"""Orders made node by node: list scheduling by the growth of memory, and depth-first post-order."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from fuse_opt.passes.memory.ordering.problem import Node, Problem


def least_growth_first(problem: Problem, before: Sequence[Sequence[int]]) -> list[int]:
    """List scheduling: of the nodes that are ready the one after which least memory is in use; O((n + reads) log n).

    Equal ones by what they need while they run, then in the given order. A node's growth falls when it becomes the last
    reader of a value; it is then queued again, and its older entries are passed over.
    """
    schedule = _ListSchedule(problem)
    after: list[list[int]] = [[] for _ in problem.nodes]
    for node, found in enumerate(before):
        for other in found:
            after[other].append(node)
    missing = [len(found) for found in before]
    ready = [(*schedule.growth(node), node) for node, count in enumerate(missing) if not count]
    heapify(ready)
    order: list[int] = []
    done = [False] * len(missing)
    while ready:
        growth, need, node = heappop(ready)
        if done[node] or (growth, need) != schedule.growth(node):
            continue
        done[node] = True
        order.append(node)
        for last_reader in schedule.run(node):
            if not missing[last_reader]:
                heappush(ready, (*schedule.growth(last_reader), last_reader))
        for other in after[node]:
            missing[other] -= 1
            if not missing[other]:
                heappush(ready, (*schedule.growth(other), other))
    return order


class _ListSchedule:
    """Which values are in use and outside of the arena, while nodes run one after another."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.left = [1 if value.lasts else 0 for value in problem.values]
        """By value: how many readers are to come; one more where it is never free."""
        self.mixed = [0] * len(problem.values)
        """By value: the numbers of these readers, exclusive-or."""
        for number, node in enumerate(problem.nodes):
            for value in node.reads:
                self.left[value] += 1
                self.mixed[value] ^= number
        self.outside = [value.outside for value in problem.values]

    def growth(self, number: int) -> tuple[int, int]:
        """Bytes in use after the node less those before, and the most that come to them while it runs."""
        node, values, outside = self.problem.nodes[number], self.problem.values, self.outside
        freed = sum(values[v].size for v in node.reads if self.left[v] == 1 and not outside[v])
        made = sum(values[v].size for v in node.writes if not outside[v])
        kept = sum(values[v].size for v in node.writes if not outside[v] and self.left[v])
        saved = 0
        for written, read in self.taken(node):
            if outside[read] and not outside[written]:
                kept -= values[written].size if self.left[written] else 0
                made -= values[written].size
            elif not outside[written]:
                saved += values[written].size
        return kept - freed, made - saved

    def taken(self, node: Node) -> list[tuple[int, int]]:
        """Pairs that would be chosen now, each value once."""
        if not node.pairs:
            return []
        found: list[tuple[int, int]] = []
        used: set[int] = set()
        for written, read in node.pairs:
            if self.left[read] == 1 and written not in used and read not in used:
                used.update((written, read))
                found.append((written, read))
        return found

    def run(self, number: int) -> list[int]:
        """Runs a node; returns those that have become the last reader of a value."""
        node = self.problem.nodes[number]
        for written, read in self.taken(node):
            self.outside[written] |= self.outside[read]
        found: list[int] = []
        for value in node.reads:
            self.left[value] -= 1
            self.mixed[value] ^= number
            if self.left[value] == 1 and not self.problem.values[value].lasts:
                found.append(self.mixed[value])
        return found


def post_order(problem: Problem, before: Sequence[Sequence[int]]) -> list[int]:
    """Depth-first post-order from the nodes that nothing depends on, in order; O((n + reads) log n).

    Of what a node depends on, that comes first which needs most memory beyond what it leaves, as if it were a tree.
    """
    children = _by_need(problem, before)
    inner = {other for found in before for other in found}
    done = [False] * len(children)
    order: list[int] = []
    for root in (node for node in range(len(children)) if node not in inner):
        stack = [(root, 0)]
        while stack:
            node, place = stack.pop()
            if done[node]:
                continue
            if place < len(children[node]):
                stack += [(node, place + 1), (children[node][place], 0)]
            else:
                done[node] = True
                order.append(node)
    return order


def _by_need(problem: Problem, before: Sequence[Sequence[int]]) -> list[list[int]]:
    """By node what it depends on, by falling need beyond what it leaves; needs as if nothing were shared."""
    values = problem.values
    left = [sum(values[v].size for v in node.writes if not values[v].outside) for node in problem.nodes]
    need: list[int] = []
    children: list[list[int]] = []
    for node, found in enumerate(before):
        ranked = sorted(found, key=lambda other: (left[other] - need[other], other))
        held = most = 0
        for other in ranked:
            most = max(most, held + need[other])
            held += left[other]
        need.append(max(most, held + left[node]))
        children.append(ranked)
    return children
