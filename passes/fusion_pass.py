"""The loop that every fusion pass shares: offer each producer-consumer pair to a rule until nothing changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from .decisions import Steering, Step, steer
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
    fuel: int | None = None
    """Merges that one run may make; None for all. For finding the one that breaks a program."""

    def __post_init__(self) -> None:
        if self.fuel is not None and self.fuel < 0:
            raise ValueError(f"option 'fuel': expected 0 or more, got {self.fuel}")

    @abstractmethod
    def rule(self) -> Rule:
        """The rule, for one run over a module."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        limits = Limits(self.max_ops, self.max_operands, self.max_results)
        run_rule(op, self.name, self.rule(), limits, steer(self.name, op, self.fuel))


def run_rule(module: ModuleOp, name: str, rule: Rule, limits: Limits, steering: Steering | None = None) -> None:
    """
    Applies a rule, or the decisions to be replayed instead, to every block of tensor ops, to a fixpoint. Decisions and
    refusals are remarks of pass `name`.
    """
    for block in sweep_functions(module):
        graph = GroupGraph(block, limits)
        merge_named_groups(graph)
        if steering is None or steering.steps is None:
            _apply_rule(graph, name, rule, steering)
        else:
            _replay(graph, name, steering.steps.get(block, []), steering)
        if graph.changed:
            build_kernels(graph, [group for group in graph.groups() if group.merged])


def _apply_rule(graph: GroupGraph, name: str, rule: Rule, steering: Steering | None) -> None:
    refused: dict[tuple[Group, Group], Refusal] = {}
    while _sweep(graph, name, rule, refused, steering):
        refused.clear()
    for (producer, consumer), refusal in refused.items():
        message = f"not fused with '{producer.first.name}': {refusal.message}"
        remark(name, consumer.first, refusal.code, message, **refusal.numbers)


def _replay(graph: GroupGraph, name: str, steps: Sequence[Step], steering: Steering) -> None:
    """Merges what the decisions name; ops that share a kernel already are as they should be. Raises DecisionError."""
    for step in steps:
        members = list(dict.fromkeys(graph.group_of[graph.top(op)] for op in step.ops))
        if len(members) < 2:
            continue
        first, *others = step.decision.ops
        together = f"with {', '.join(map(str, others))}"
        # Not whether it would be possible: that may hang on decisions that lacked fuel, too.
        if (refusal := _refuse_for_fuel(steering)) is not None:
            remark(name, step.ops[0], refusal.code, f"not fused {together}: {refusal.message}", **refusal.numbers)
        elif (refusal := _merge(graph, name, members, steering)) is not None:
            raise step.decision.error(f"{first} cannot be in one kernel {together}: {refusal.message}", others[-1])


def _sweep(
    graph: GroupGraph,
    name: str,
    rule: Rule,
    refused: dict[tuple[Group, Group], Refusal],
    steering: Steering | None,
) -> bool:
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
                refusal = answer if isinstance(answer, Refusal) else _merge(graph, name, answer, steering)
                if refusal is not None:
                    refused[producer, consumer] = refusal
                    continue
                merged = progress = True
                break
    return merged


def _merge(graph: GroupGraph, name: str, members: Sequence[Group], steering: Steering | None) -> Refusal | None:
    first, names = members[-1].first, ", ".join(f"'{group.first.name}'" for group in members)
    decision = None
    if steering is not None:
        if (without := _refuse_for_fuel(steering)) is not None:
            return graph.refuse(members) or without
        decision = steering.describe(graph, members)
    refusal = graph.merge(members)
    if refusal is None:
        remark(name, first, "fused", f"fused {names} into one kernel")
        if steering is not None:
            steering.made(decision)
    return refusal


def _refuse_for_fuel(steering: Steering) -> Refusal | None:
    if (limit := steering.exhausted()) is None:
        return None
    return Refusal("fuel", f"the fuel for {limit} decision{'' if limit == 1 else 's'} is used up", {"fuel": limit})


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
