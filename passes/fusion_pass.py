"""The loop that every fusion pass shares: offer each producer-consumer pair to a rule until nothing changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from .fusion import Group, GroupGraph, Limits, Refusal, Rule
from .kernel_building import build_kernels, sweep_functions
from .remarks import RefusedError, remark


@dataclass(frozen=True)
class FusionPass(ModulePass, ABC):
    """A pass that applies one rule to a fixpoint, within limits that are its options."""

    max_ops: int = 256
    """Graph ops in one kernel."""
    max_operands: int = 64
    """Operands of one kernel."""
    max_results: int = 16
    """Results of one kernel."""

    @abstractmethod
    def rule(self) -> Rule:
        """The rule, for one run over a module."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        run_rule(op, self.name, self.rule(), Limits(self.max_ops, self.max_operands, self.max_results))


def run_rule(module: ModuleOp, name: str, rule: Rule, limits: Limits) -> None:
    """Applies a rule to every block of tensor ops, to a fixpoint. Decisions and refusals are remarks of pass `name`."""
    for block in sweep_functions(module):
        graph = GroupGraph(block, limits)
        merge_named_groups(graph)
        refused: dict[tuple[Group, Group], Refusal] = {}
        while _sweep(graph, name, rule, refused):
            refused.clear()
        for (producer, consumer), refusal in refused.items():
            message = f"not fused with '{producer.first.name}': {refusal.message}"
            remark(name, consumer.first, refusal.code, message, **refusal.numbers)
        if graph.changed:
            build_kernels(graph, [group for group in graph.groups() if group.merged])


def _sweep(graph: GroupGraph, name: str, rule: Rule, refused: dict[tuple[Group, Group], Refusal]) -> bool:
    """Offers every pair once, in block order; whether anything was merged."""
    merged = False
    for op in list(graph.group_of):
        progress = True
        while progress:
            progress = False
            consumer = graph.group_of[op]
            for producer in list(consumer.producers):
                answer = rule.consider(graph, producer, consumer)
                if answer is None:
                    continue
                refusal = answer if isinstance(answer, Refusal) else _merge(graph, name, answer)
                if refusal is not None:
                    refused[producer, consumer] = refusal
                    continue
                merged = progress = True
                break
    return merged


def _merge(graph: GroupGraph, name: str, members: Sequence[Group]) -> Refusal | None:
    first, names = members[-1].first, ", ".join(f"'{group.first.name}'" for group in members)
    refusal = graph.merge(members)
    if refusal is None:
        remark(name, first, "fused", f"fused {names} into one kernel")
    return refusal


def merge_named_groups(graph: GroupGraph) -> None:
    """Keeps the promise of `fuse_group`: ops of one name form one kernel. Raises RefusedError naming the conflict."""
    named: dict[str, list[Group]] = {}
    for group in graph.groups():
        if group.fuse_group is not None:
            named.setdefault(group.fuse_group, []).append(group)
    for label, members in named.items():
        if len(members) < 2:
            continue
        refusal = graph.merge(members)
        if refusal is not None:
            raise RefusedError(
                f"'{members[-1].first.name}' fuse_group = \"{label}\" cannot be one kernel: {refusal.message}; "
                "remove the directive or the conflict",
                members[-1].first,
            )
