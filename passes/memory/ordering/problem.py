"""Problems of ordering operations for memory: what depends on what, and the bytes that an order keeps alive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fuse_opt.passes.memory.ordering.matching import largest_matching
from fuse_opt.passes.memory.packing.live_bytes import live_bytes


@dataclass(frozen=True, slots=True)
class Value:
    """Memory that is written by one node at most: `size` in bytes, rounded up as a planner would."""

    size: int
    outside: bool = False
    """It is not the arena's: the caller's, a constant's, or nobody's."""
    lasts: bool = False
    """It is used after the last node; nothing may take it over."""
    donated: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """An operation: values by number, each at most once; `pairs` (written, read) may share memory if nobody reads later."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...] = ()
    ordered: bool = False
    """It stays in the given order among all that are."""
    reads_last: bool = False
    """Who reads its operands before it in the given order stays before it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Nodes in the given order, which is one of those allowed: what is read is written before, or by no node."""

    values: tuple[Value, ...]
    nodes: tuple[Node, ...]

    def permuted(self, order: Sequence[int]) -> Problem:
        """The same problem with another given order."""
        return Problem(self.values, tuple(self.nodes[n] for n in order))


@dataclass(slots=True)
class Loads:
    """Of one order: bytes alive at each position, and which values are outside of the arena at last."""

    at: list[int]
    outside: list[bool]

    @property
    def bound(self) -> int:
        return max(self.at, default=0)


def predecessors(problem: Problem) -> list[list[int]]:
    """By node: the nodes that must come before it, ascending; O(n + reads)."""
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    before: list[list[int]] = []
    last_ordered: int | None = None
    for number, node in enumerate(problem.nodes):
        found = {writer[value] for value in node.reads if value in writer}
        if node.ordered:
            if last_ordered is not None:
                found.add(last_ordered)
            last_ordered = number
        if node.reads_last:
            found.update(reader for value in node.reads for reader in readers.get(value, ()))
        before.append(sorted(found))
        for value in node.reads:
            readers.setdefault(value, []).append(number)
        for value in node.writes:
            writer[value] = number
    return before


def loads_of(problem: Problem) -> Loads:
    """Bytes alive at each position of the given order, after in-place pairs; O(n + reads)."""
    values, nodes = problem.values, problem.nodes
    end = len(nodes)
    last = [end if value.lasts else -1 for value in values]
    birth = [-1] * len(values)
    for at, node in enumerate(nodes):
        for value in node.reads:
            if last[value] < at:
                last[value] = at
        for value in node.writes:
            birth[value] = at
            if last[value] < at:
                last[value] = at
    root = list(range(len(values)))
    outside = [value.outside for value in values]
    donated = [value.donated for value in values]
    for at, node in enumerate(nodes):
        if not node.pairs:
            continue
        for written, read in _chosen(node, at, values, root, last, donated, birth):
            into = root[read]
            root[written] = into
            last[into] = last[written]
            outside[into] |= outside[written]
    lives = (
        (birth[number], min(last[number] + 1, end), value.size)
        for number, value in enumerate(values)
        if root[number] == number and not outside[number] and birth[number] >= 0
    )
    return Loads(live_bytes(lives, end), [outside[into] for into in root])


def _chosen(
    node: Node, at: int, values: Sequence[Value], root: Sequence[int], last: Sequence[int],
    donated: Sequence[bool], birth: Sequence[int],
) -> list[tuple[int, int]]:  # fmt: skip
    """The pairs that `infer-inplace` would choose: a largest matching, donated memory first, then by the reads' births.

    What a returned value takes over leaves the arena, so the longest life is best; else the shortest.
    """
    candidates: dict[int, list[int]] = {}
    for written, read in node.pairs:
        if last[root[read]] <= at:
            candidates.setdefault(written, []).append(read)
    for written, reads in candidates.items():
        sign = 1 if values[written].outside else -1
        reads.sort(key=lambda read: (not donated[root[read]], sign * birth[root[read]]))
    if len(candidates) <= 1:
        return [(written, reads[0]) for written, reads in candidates.items()]
    return list(largest_matching(candidates).items())


def needs_of(problem: Problem, loads: Loads) -> list[int]:
    """By node: the bytes that it reads and writes itself, less what it can take over; other orders need them, too.

    As far as the same values leave the arena: so this ends a search early, it proves nothing.
    """
    sizes = [0 if out else value.size for value, out in zip(problem.values, loads.outside, strict=True)]
    needs: list[int] = []
    for node in problem.nodes:
        taken: dict[int, int] = {}
        for written, read in node.pairs:
            if not problem.values[read].lasts and read not in taken.values():
                taken.setdefault(written, read)
        saved = sum(min(sizes[written], sizes[read]) for written, read in taken.items())
        needs.append(sum(sizes[value] for value in (*node.reads, *node.writes)) - saved)
    return needs
