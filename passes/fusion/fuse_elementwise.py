"""Fuse elementwise ops, broadcasts among them, with the elementwise ops that read their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fuse_opt.dialects.interfaces.structured_op import FusionKind
from fuse_opt.passes.fusion.engine.cost_model import elements
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Refusal, Rule
from fuse_opt.passes.fusion.engine.rule_checks import is_internal, refuse_multi_use, refuse_recompute, refuse_results
from fuse_opt.passes.fusion.engine.worklist import FusionPass


class ElementwiseRule:
    """Both sides are elementwise; a smaller producer joins when it is read nowhere else and cheap to repeat."""

    def consider(self, graph: GroupGraph, producer: Group, consumer: Group) -> Sequence[Group] | Refusal | None:
        if max(producer.kind, consumer.kind) > FusionKind.BROADCAST:
            return None
        members = [producer, consumer]
        if (refusal := graph.refuse_by_limits(members)) is not None:
            return refusal
        if elements(graph, producer) == elements(graph, consumer):
            return refuse_results(graph, members) or members
        if not is_internal(graph, producer, consumer):
            return refuse_multi_use("has another size and ")
        return refuse_recompute(graph, producer, consumer) or refuse_results(graph, members) or members


@dataclass(frozen=True)
class FuseElementwisePass(FusionPass):
    """Chains, trees and diamonds of elementwise ops become kernels with one or several results.

    ```mlir
    %0 = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    %1 = graph.add %0, %y : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    ```
    becomes one `fused.kernel` that yields `%1` (and `%0` when it is read elsewhere).

    Ensures: the contracted graph is acyclic; limits and directives hold. Needs nothing; existing kernels may grow.
    """

    name = "fuse-elementwise"

    def rule(self) -> Rule:
        return ElementwiseRule()
