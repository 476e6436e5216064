"""A guard of fusion: no merge may let more bytes of intermediate values live at once than a limit allows.

A kernel needs all its operands and all its results at one step, so a merge can raise the peak although it removes values.
Steps are the ranks of groups, which must be places in the block; a value lives from its group's to that of its last
reader, both included, and in-place updates are not foreseen. A merge changes the load of the steps between its members
only, and is judged by these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Operation, OpResult, SSAValue

from fuse_opt.dialects.analysis.storage import aliased_operand, byte_size
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Refusal

_Rank = Callable[[Group], int]


class PeakLimit:
    """Refuses merges after which a step between the members holds more than `limit` bytes, and more than any does now."""

    def __init__(self, graph: GroupGraph, limit: int) -> None:
        self.limit = limit
        self.roots: dict[SSAValue, SSAValue] = {}
        """By value that shares the memory of another: that one."""
        self.readers: dict[SSAValue, list[Operation]] = {}
        """By value with memory of its own that is the program's: the ops that read it, as itself or by another name."""
        self._find_values(graph)
        self.load = [0] * len(graph.place)
        """Bytes alive at each rank."""
        for value in self.readers:
            self._add(self.load, 0, value, 1, self._life(graph, value, _rank))
        self._pending: tuple[int, list[int]] | None = None
        graph.guards.append(self)
        graph.listeners.append(self.joined)

    def _find_values(self, graph: GroupGraph) -> None:
        escaped: set[SSAValue] = set()
        for op in graph.block.ops:
            source = aliased_operand(op)
            for result in op.results:
                if source is not None:
                    self.roots[result] = self.roots.get(source, source)
                elif op in graph.group_of:
                    self.readers[result] = []
            for value in op.operands:
                root = self.roots.get(value, value)
                self.readers.get(root, []).append(op)
                if not isinstance(op, GraphOp | KernelOp):
                    escaped.add(root)
        for value in [value for value in self.readers if value in escaped]:
            del self.readers[value]

    def _life(self, graph: GroupGraph, value: SSAValue, rank: _Rank) -> tuple[int, int] | None:
        """The first and the last rank of a value; None when it never leaves its group."""
        assert isinstance(value, OpResult)
        home = graph.group_of[value.op]
        last = max((rank(graph.group_of[op]) for op in self.readers[value]), default=rank(home))
        return None if last == rank(home) and self.readers[value] else (rank(home), last)

    def _add(self, load: list[int], low: int, value: SSAValue, sign: int, life: tuple[int, int] | None) -> None:
        """Counts a value in the steps of its life that `load`, which begins at step `low`, has."""
        if life is not None:
            nbytes = sign * (byte_size(value) or 0)
            for step in range(max(life[0], low), min(life[1], low + len(load) - 1) + 1):
                load[step - low] += nbytes

    def refuse(self, graph: GroupGraph, members: Sequence[Group]) -> Refusal | None:
        """Why the peak forbids the merge."""
        low, high = min(group.rank for group in members), max(group.rank for group in members)
        ranks = graph.ranks_after(list(members))
        touched = dict.fromkeys(value for group in (*members, *ranks) for value in (*group.inputs, *group.outputs))
        load = self.load[low : high + 1]
        for value in dict.fromkeys(self.roots.get(value, value) for value in touched):
            if value in self.readers:
                self._add(load, low, value, -1, self._life(graph, value, _rank))
                self._add(load, low, value, 1, self._life(graph, value, lambda g: ranks.get(g, g.rank)))
        before, after = max(self.load[low : high + 1]), max(load)
        self._pending = low, load
        if after <= max(self.limit, before):
            return None
        message = f"{after} bytes of intermediate values would live at once, {before} do now; the limit is {self.limit}"
        numbers: dict[str, float] = {"peak": after, "peak_before": before, "limit": self.limit}
        return Refusal("peak-limit", message, numbers, f"peak-limit={after}")

    def joined(self, group: Group, parts: Sequence[Group]) -> None:
        """Takes over the load that the merge leads to."""
        assert self._pending is not None
        low, load = self._pending
        self.load[low : low + len(load)] = load


def _rank(group: Group) -> int:
    return group.rank
