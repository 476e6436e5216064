"""Say of every producer and consumer that are not in one kernel why: one reason for each pair, and what would change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.analysis.bare_ops import sweep_functions
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.structured_op import FusionKind
from fuse_opt.passes.devices.device_pass import DevicePass
from fuse_opt.passes.fusion.engine.cost_model import moves_nothing
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Limits, Refusal, Rule
from fuse_opt.passes.fusion.engine.worklist import FusionPass, remark_refusal
from fuse_opt.passes.fusion.fuse_elementwise import FuseElementwisePass
from fuse_opt.passes.fusion.fuse_epilogue import EpilogueRule
from fuse_opt.passes.fusion.fuse_injective import FuseInjectivePass
from fuse_opt.passes.fusion.fuse_row import FuseRowPass
from fuse_opt.passes.options import check_counts
from fuse_opt.passes.remarks import is_collecting, retract_provisional

_PASSES: tuple[type[FusionPass], ...] = (FuseInjectivePass, FuseElementwisePass, FuseRowPass)
"""Whose rules are asked about a pair, in this order: those that join producers and consumers."""


@dataclass(frozen=True)
class ExplainFusionPass(DevicePass):
    """Changes nothing; its remarks take the place of the refusals that fusion passes made before.

    For each pair of a producer and a consumer that stay apart (ops of the function, in kernels or bare) there is exactly
    one remark: the first answer of a rule that the pair concerns, with what a fusion would have saved by the cost model,
    and what would change the answer. `not-tried` says that a pass would fuse the pair if it ran.

    Requires: nothing. Run it after the last fusion pass, with `--remarks`.
    """

    name = "explain-fusion"

    max_ops: int = 256
    """Graph ops in one kernel, as the fusion passes had it."""
    max_operands: int = 64
    """Operands of one kernel, likewise."""
    max_results: int = 16
    """Results of one kernel, likewise."""

    def __post_init__(self) -> None:
        check_counts(self)
        super().__post_init__()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not is_collecting():
            return
        retract_provisional()
        limits = Limits(self.max_ops, self.max_operands, self.max_results)
        device = self.machine(op)
        rules = [(pass_.name, pass_().rule()) for pass_ in _PASSES]
        for block in sweep_functions(op):
            graph = GroupGraph(block, limits, device)
            for consumer in graph.groups():
                for producer in consumer.producers:
                    if all(isinstance(group.first, GraphOp | KernelOp) for group in (producer, consumer)):
                        refusal = _reason(graph, rules, producer, consumer)
                        remark_refusal(graph, self.name, producer, consumer, refusal)


_OTHER_IMPLEMENTATION = "an implementation that takes an epilogue or a prologue"


def _reason(graph: GroupGraph, rules: Sequence[tuple[str, Rule]], producer: Group, consumer: Group) -> Refusal:
    if FusionKind.OPAQUE in (producer.kind, consumer.kind):
        answer = EpilogueRule().consider(graph, producer, consumer)
        if isinstance(answer, Refusal) and answer.code != "not-offered":
            return answer if answer.flip else replace(answer, flip=_OTHER_IMPLEMENTATION)
    for group in (producer, consumer):
        if (special := _refuse_kind(group)) is not None:
            return special
    for name, rule in rules:
        answer = rule.consider(graph, producer, consumer)
        if answer is None:
            continue
        refusal = answer if isinstance(answer, Refusal) else graph.refuse(answer)
        if refusal is not None:
            return refusal
        return Refusal("not-tried", f"{name} would fuse them", flip=f"--{name}")
    return Refusal("no-rule", "no rule is about ops of these kinds", flip="a pattern of your own, or fuse_group")


def _refuse_kind(group: Group) -> Refusal | None:
    """The reason that lies in one side alone."""
    if group.kind == FusionKind.OPAQUE:
        if isinstance(group.first, CompositeOp):
            return Refusal("composite", f"'{group.first.name}' is composite", flip="--decompose")
        message = f"'{group.first.name}' is run as a whole by an implementation"
        return Refusal("opaque", message, flip=_OTHER_IMPLEMENTATION)
    if moves_nothing(group):
        message = f"'{group.first.name}' keeps every element in its place and costs nothing outside"
        return Refusal("alias", message, flip="nothing to gain")
    return None
