"""Fuse kernels that read the same value and do not depend on each other, so that it is read once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.interfaces.structured_op import FusionKind
from fuse_opt.passes.fusion.engine.cost_model import elements, estimate, moves_nothing
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Refusal, Rule
from fuse_opt.passes.fusion.engine.groups import used_values
from fuse_opt.passes.fusion.engine.rule_checks import refuse_loss, refuse_results
from fuse_opt.passes.fusion.engine.worklist import FusionPass
from fuse_opt.passes.fusion.fuse_row import refuse_row, traced

LOOK_BACK = 4
"""Earlier readers of a value that are considered for each of its readers."""


@dataclass
class SiblingRule:
    """Two readers of a value become one pass over it, when what they share is a good part of what they read and write."""

    readers: dict[SSAValue, list[Operation]] = field(default_factory=dict[SSAValue, list[Operation]])
    places: dict[tuple[SSAValue, Operation], int] = field(default_factory=dict[tuple[SSAValue, Operation], int])
    graph: GroupGraph | None = None

    def partners(self, graph: GroupGraph, group: Group) -> Iterable[Group]:
        """The last readers before the group of each value that it reads."""
        if graph is not self.graph:
            self._index(graph)
        found: dict[Group, None] = {}
        for op in group.ops:
            for value in dict.fromkeys(used_values(op)):
                place = self.places.get((value, op), 0)
                for earlier in self.readers.get(value, ())[max(place - LOOK_BACK, 0) : place]:
                    found[graph.group_of[earlier]] = None
        found.pop(group, None)
        return found

    def _index(self, graph: GroupGraph) -> None:
        self.graph, self.readers, self.places = graph, {}, {}
        for op, group in graph.group_of.items():
            if group.kind <= FusionKind.REDUCTION:
                for value in dict.fromkeys(used_values(op)):
                    readers = self.readers.setdefault(value, [])
                    self.places[value, op] = len(readers)
                    readers.append(op)

    def consider(self, graph: GroupGraph, producer: Group, consumer: Group) -> Sequence[Group] | Refusal | None:
        members = [producer, consumer]
        if max(producer.kind, consumer.kind) > FusionKind.REDUCTION or any(map(moves_nothing, members)):
            return None
        if producer in consumer.producers or consumer in producer.producers:
            return None
        if (refusal := _refuse_little(graph, members) or graph.refuse(members)) is not None:
            return refusal
        if FusionKind.REDUCTION in (producer.kind, consumer.kind):
            return refuse_row(graph, members) or members
        if elements(graph, producer) != elements(graph, consumer):
            return refuse_results(graph, members)
        return refuse_results(graph, members) or _refuse_other_order(graph, members) or members


def _refuse_little(graph: GroupGraph, members: list[Group]) -> Refusal | None:
    """Refuses where the shared values are less than a quarter of what the smaller member moves: it would gain little."""
    found = estimate(graph, members, 0)
    moved = min(sum(map(graph.nbytes, (*group.inputs, *group.outputs))) for group in members)
    if 4 * found.bytes_saved >= moved:
        return refuse_loss(graph, found)
    message = f"they share {found.bytes_saved} bytes of at least {moved} that each moves"
    return Refusal("little-shared", message, {"shared": found.bytes_saved, "moved": moved}, "larger shared values")


def _refuse_other_order(graph: GroupGraph, members: list[Group]) -> Refusal | None:
    """Refuses readers that do not read what they share at the same index: it would be loaded twice all the same."""
    loop_body = traced(graph, members)
    if isinstance(loop_body, Refusal):
        return loop_body
    shared = [value for value in members[0].inputs if value in members[1].inputs]
    places = {value: {node.address for node in loop_body.loads() if node.value is value} for value in shared}
    if any(len(found) == 1 and graph.nbytes(value) > 1 for value, found in places.items()):
        return None
    return Refusal("other-index", "they read different elements of what they share", flip="the same index in both")


@dataclass(frozen=True)
class FuseSiblingsPass(FusionPass):
    """Kernels that read one value become a kernel with several results.

    ```mlir
    %s = graph.sum %x {axes = array<i64: 1>} : (tensor<64x128xf32>) -> tensor<64xf32>
    %m = graph.max %x {axes = array<i64: 1>} : (tensor<64x128xf32>) -> tensor<64xf32>
    ```
    becomes one kernel that reads `%x` once and yields both.

    Ensures: the contracted graph is acyclic; limits and directives hold. Needs nothing; existing kernels may grow.
    """

    name = "fuse-siblings"

    def rule(self) -> Rule:
        return SiblingRule()
