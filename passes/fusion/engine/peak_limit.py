"""A guard of fusion: no merge may let more bytes of intermediate values live at once than a limit allows.

A kernel needs all its operands and all its results at one step, so a merge can raise the peak although it removes values.
Steps are the ranks of groups, which must be places in the block; a value lives from its group's to that of its last
reader, both included, and in-place updates are not foreseen. A merge changes the load of the steps between its members
only, and is judged by these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from xdsl.ir import Operation, OpResult, SSAValue

from fuse_opt.dialects.analysis.storage import aliased_operand, byte_size
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.types.extents import corners, evaluate, symbols
from fuse_opt.dialects.types.size import Extent
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Refusal

_Rank = Callable[[Group], int]
_Joined = Callable[[Operation], bool]


class PeakLimit:
    """Refuses merges after which a step between the members holds more than `limit` bytes, and more than any does now.

    A view that moves nothing shares its operand's memory for as long as it is a kernel by itself; what a merge yields of it
    has memory of its own.
    """

    def __init__(self, graph: GroupGraph, limit: int) -> None:
        self.limit = limit
        self._views: dict[SSAValue, Operation] = {}
        """By result: the view that moves nothing."""
        self._readers: dict[SSAValue, list[Operation]] = {}
        for op in graph.block.ops:
            if aliased_operand(op) is not None:
                self._views[op.results[0]] = op
            for value in dict.fromkeys(op.operands):
                self._readers.setdefault(value, []).append(op)
        self._bytes: dict[SSAValue, Extent] = {
            result: byte_size(result) or 0 for op in graph.block.ops for result in op.results
        }
        self._corners = corners(symbols(self._bytes.values()))
        self.loads = [[0] * len(graph.place) for _ in self._corners]
        """Bytes alive at each rank, at the usual values of symbols and the ends of their ranges."""
        joined = _merged(graph, ())
        results = [value for group in dict.fromkeys(graph.group_of.values()) for value in group.outputs]
        for value in self._memories(results, joined):  # of all at once: a view and what it views are one memory
            self._add(self.loads, 0, value, 1, self._life(graph, value, _rank, joined))
        self._pending: tuple[int, list[list[int]]] | None = None
        graph.guards.append(self)
        graph.listeners.append(self.joined)

    def _memories(self, values: Iterable[SSAValue], joined: _Joined) -> list[SSAValue]:
        """The values whose memory these values share, each once; `joined` says of a view's op whether it is merged."""
        found: dict[SSAValue, None] = {}
        for value in values:
            while (view := self._views.get(value)) is not None and not joined(view):
                value = view.operands[0]
            found[value] = None
        return list(found)

    def _uses(self, value: SSAValue, joined: _Joined) -> list[Operation]:
        """The ops that read a memory, as itself or by another name; views that are but names are none."""
        found: dict[Operation, None] = {}
        names = [value]
        while names:
            for op in self._readers.get(names.pop(), ()):
                if op.results and op.results[0] in self._views and not joined(op):
                    names.append(op.results[0])
                found[op] = None
        return list(found)

    def _life(self, graph: GroupGraph, value: SSAValue, rank: _Rank, joined: _Joined) -> tuple[int, int] | None:
        """The first and the last rank of a memory; None when it never leaves its group, or is not the program's."""
        if not isinstance(value, OpResult) or (home := graph.group_of.get(value.op)) is None:
            return None
        uses = self._uses(value, joined)
        if not all(isinstance(op, GraphOp | KernelOp) for op in uses):
            return None
        last = max((rank(graph.group_of[op]) for op in uses), default=rank(home))
        return None if last == rank(home) and uses else (rank(home), last)

    def _add(self, loads: list[list[int]], low: int, value: SSAValue, sign: int, life: tuple[int, int] | None) -> None:
        """Counts a value in the steps of its life that `loads`, which begin at step `low`, have."""
        if life is None:
            return
        for load, at in zip(loads, self._corners, strict=True):
            nbytes = sign * evaluate(self._bytes[value], at)
            for step in range(max(life[0], low), min(life[1], low + len(load) - 1) + 1):
                load[step - low] += nbytes

    def refuse(self, graph: GroupGraph, members: Sequence[Group]) -> Refusal | None:
        """Why the peak forbids the merge."""
        low, high = min(group.rank for group in members), max(group.rank for group in members)
        ranks = graph.ranks_after(list(members))
        now, then = _merged(graph, ()), _merged(graph, members)
        touched = dict.fromkeys(value for group in (*members, *ranks) for value in (*group.inputs, *group.outputs))
        known = {value: self._life(graph, value, _rank, now) for value in self._memories(touched, now)}
        lives = {
            value: self._life(graph, value, lambda g: ranks.get(g, g.rank), then)
            for value in dict.fromkeys([*known, *self._memories(touched, then)])
        }
        # what becomes a memory by the merge, such as a view that it makes, may live on behind the members
        high = max((high, *(life[1] for value, life in lives.items() if life is not None and not known.get(value))))
        loads = [load[low : high + 1] for load in self.loads]
        for value, life in known.items():
            self._add(loads, low, value, -1, life)
        for value, life in lives.items():
            self._add(loads, low, value, 1, life)
        self._pending = low, loads
        for load, then_load, at in zip(self.loads, loads, self._corners, strict=True):
            before, after = max(load[low : high + 1]), max(then_load)
            if after > max(self.limit, before):
                return self._refusal(before, after, at)
        return None

    def _refusal(self, before: int, after: int, at: Mapping[str, int]) -> Refusal:
        where = "".join(f", {name} being {value}" for name, value in at.items())
        message = f"{after} bytes of intermediate values would live at once, {before} do now{where}; the limit is {self.limit}"
        numbers: dict[str, float] = {"peak": after, "peak_before": before, "limit": self.limit}
        return Refusal("peak-limit", message, numbers, f"peak-limit={after}")

    def joined(self, group: Group, parts: Sequence[Group]) -> None:
        """Takes over the load that the merge leads to."""
        assert self._pending is not None
        low, loads = self._pending
        for load, found in zip(self.loads, loads, strict=True):
            load[low : low + len(found)] = found


def _rank(group: Group) -> int:
    return group.rank


def _merged(graph: GroupGraph, members: Sequence[Group]) -> _Joined:
    """Whether an op's group is merged of several, once the members are."""
    return lambda op: op in graph.group_of and (graph.group_of[op].merged or graph.group_of[op] in members)
