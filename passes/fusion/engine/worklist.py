"""The loop that every fusion pass shares: offer each pair of groups to a rule until nothing changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from fuse_opt.dialects.analysis.bare_ops import sweep_functions
from fuse_opt.dialects.analysis.loop_body import member_ops
from fuse_opt.passes.decisions.steering import Steering, Step, steer
from fuse_opt.passes.devices.device import Device, find_device
from fuse_opt.passes.devices.gpu_attach_device import attached_machine
from fuse_opt.passes.fusion.engine.cost_model import estimate
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Limits, Refusal, Rule
from fuse_opt.passes.fusion.engine.named_merges import describe_merge
from fuse_opt.passes.fusion.engine.outline import build_kernels
from fuse_opt.passes.fusion.engine.peak_limit import PeakLimit
from fuse_opt.passes.options import check_counts, tunable
from fuse_opt.passes.remarks import RefusedError, is_collecting, location, remark
from fuse_opt.passes.rewrite_pass import RewritePass


@dataclass(frozen=True)
class FusionPass(RewritePass, ABC):
    """A pass that applies one rule to a fixpoint, within limits that are its options."""

    max_ops: int = field(default=256, metadata=tunable(8, 24))
    """Graph ops in one kernel."""
    max_operands: int = 64
    """Operands of one kernel."""
    max_results: int = 16
    """Results of one kernel."""
    fuel: int | None = None
    """Merges that one run may make, to find the one that breaks a program. All where nothing is given."""
    only: tuple[str, ...] = ()
    """Names of ops, with or without their dialect: kernels grow by no others. Empty for all."""
    except_: tuple[str, ...] = ()
    """Names of ops that stay as they are."""
    device: str = ""
    """
    What the cost model computes with: a device's name, such as cpu or h100, or the path of a .toml file like theirs. Without a
    word what the module is made for (see gpu-attach-device), or else cpu.
    """
    peak_limit: int | None = None
    """Bytes of intermediate values alive at once that no merge may exceed, unless they were exceeded before."""

    def __post_init__(self) -> None:
        check_counts(self)
        if self.device:
            find_device(self.device)

    @abstractmethod
    def rule(self) -> Rule:
        """The rule, for one run over a module."""

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        limits = Limits(self.max_ops, self.max_operands, self.max_results)
        selection = Selection(self.only, self.except_)
        options = Options(limits, attached_machine(self.name, self.device, op), selection, self.peak_limit)
        run_rule(op, self.name, self.rule(), options, steer(self.name, op, self.fuel))


@dataclass(frozen=True)
class Selection:
    """Which ops a run may touch, by name with or without the dialect."""

    only: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def refuse(self, members: Sequence[Group]) -> Refusal | None:
        """Why the run is not asked to merge the groups; None when it is."""
        if not (self.only or self.excluded):
            return None
        for op in (op for group in members for op in member_ops(group.ops)):
            names = {op.name, op.name.partition(".")[2]}
            if not names.isdisjoint(self.excluded):
                return Refusal("except", f"'{op.name}' is excluded by the option except", flip="remove it from except")
            if self.only and names.isdisjoint(self.only):
                return Refusal("only", f"'{op.name}' is not among the ops of the option only", flip="add it to only")
        return None


@dataclass(frozen=True)
class Options:
    """What a run of a rule obeys."""

    limits: Limits = field(default_factory=Limits)
    device: Device | None = None
    selection: Selection = field(default_factory=Selection)
    peak_limit: int | None = None


def offered(rule: Rule, graph: GroupGraph, group: Group) -> Iterable[Group]:
    """The groups that may join a group: those the rule names by `partners`, or the group's producers."""
    partners = getattr(rule, "partners", None)
    return group.producers if partners is None else partners(graph, group)


def run_rule(module: ModuleOp, name: str, rule: Rule, options: Options, steering: Steering | None = None) -> None:
    """
    Applies a rule, or the decisions to be replayed instead, to every block of tensor ops, to a fixpoint. Decisions and
    refusals are remarks of pass `name`.
    """
    for block in sweep_functions(module):
        graph = GroupGraph(block, options.limits, options.device, by_place=options.peak_limit is not None)
        merge_named_groups(graph)
        if options.peak_limit is not None:
            PeakLimit(graph, options.peak_limit)
        run = _Run(graph, name, rule, options.selection, steering)
        graph.listeners.append(run.joined)
        if (joined := getattr(rule, "joined", None)) is not None:
            graph.listeners.append(joined)
        if steering is None or steering.steps is None:
            run.apply()
        else:
            run.replay(steering.steps.get(block, []), steering)
        if graph.changed:
            build_kernels(graph, [group for group in graph.groups() if group.merged])


@dataclass
class _Run:
    """One rule on one block."""

    graph: GroupGraph
    name: str
    rule: Rule
    selection: Selection
    steering: Steering | None
    merges: int = 0
    bytes_saved: float = 0
    refused: dict[tuple[Group, Group], Refusal] = field(default_factory=dict[tuple[Group, Group], Refusal])
    settled: dict[Group, dict[Group, None]] = field(default_factory=dict[Group, dict[Group, None]])
    """By group, those that were offered to it in this sweep."""
    changed: dict[Group, None] | None = None
    """The groups made in this sweep."""
    fresh: dict[Group, None] | None = None
    """Those made in the sweep before; None in a sweep over all."""

    def apply(self) -> None:
        """Sweeps over all groups, then over those that changed, until a sweep over all changes nothing."""
        rounds = 0
        self.changed = None
        while self._sweep():
            rounds += 1
            while self.changed and self._sweep():
                rounds += 1
            self.changed = None
            self.refused.clear()
        for (producer, consumer), refusal in self.refused.items():
            remark_refusal(self.graph, self.name, producer, consumer, refusal)
            if self.steering is not None and self.steering.notes_refusals:
                self.steering.refuse(describe_merge(self.steering, self.graph, [producer, consumer]), refusal.code)
        if rounds and is_collecting():
            self._report(rounds)

    def replay(self, steps: Sequence[Step], steering: Steering) -> None:
        """Merges what the decisions name; ops that share a kernel already are as they should be. Raises DecisionError."""
        graph = self.graph
        for step in steps:
            members = list(dict.fromkeys(graph.group_of[graph.top(op)] for op in step.ops))
            if len(members) < 2:
                continue
            first, *others = step.decision.ops
            together = f"with {', '.join(map(str, others))}"
            # Not whether it would be possible: that may hang on decisions that lacked fuel, too.
            if (refusal := _refuse_for_fuel(steering)) is not None:
                message = f"not fused {together}: {refusal.message}"
                remark(self.name, step.ops[0], refusal.code, message, numbers=refusal.numbers)
            elif (refusal := self._merge(members)) is not None:
                raise step.decision.error(f"{first} cannot be in one kernel {together}: {refusal.message}", others[-1])

    def _sweep(self) -> bool:
        """Offers every pair once, in canonical order, or every pair of which one has changed; whether any was merged."""
        graph, before = self.graph, self.merges
        self.settled.clear()
        self.fresh, self.changed = self.changed, {}
        if self.fresh is None:
            ops = list(graph.group_of)
        else:
            near = dict.fromkeys(other for group in self.fresh for other in (group, *group.consumers))
            ops = sorted(
                (group.first for group in near if graph.group_of[group.first] is group), key=graph.position.__getitem__
            )
        for op in ops:
            self._offer_all(op)
        return self.merges > before

    def _offer_all(self, op: Operation) -> None:
        """Offers to the op's group, as it grows, each group that was not yet offered to it or to a part of it."""
        graph, grown = self.graph, True
        while grown:
            grown, group = False, graph.group_of[op]
            settled = self.settled.setdefault(group, {})
            for other in [other for other in offered(self.rule, graph, group) if other not in settled]:
                settled[other] = None
                if self._is_fresh(other, group) and self._try(other, group):
                    grown = True
                    break

    def _is_fresh(self, *groups: Group) -> bool:
        return self.fresh is None or any(group in self.fresh or group in (self.changed or ()) for group in groups)

    def joined(self, group: Group, parts: Sequence[Group]) -> None:
        """What was offered to a part was offered to the whole."""
        self.settled[group] = dict(pair for part in parts for pair in self.settled.get(part, {}).items())
        if self.changed is not None:
            self.changed[group] = None

    def _try(self, producer: Group, consumer: Group) -> bool:
        """Whether the rule wanted the pair merged, and it was; a refusal is noted."""
        answer = self.rule.consider(self.graph, producer, consumer)
        if answer is None:
            return False
        if not isinstance(answer, Refusal):
            answer = self.selection.refuse(answer) or self._merge(answer)
        if answer is not None:
            self.refused[producer, consumer] = answer
        return answer is None

    def _merge(self, members: Sequence[Group]) -> Refusal | None:
        graph, steering = self.graph, self.steering
        decision = None
        if steering is not None:
            if (without := _refuse_for_fuel(steering)) is not None:
                return graph.refuse(members) or without
            decision = describe_merge(steering, graph, members)
        collecting = is_collecting()
        found = estimate(graph, members) if collecting else None
        first, names = members[-1].first, ", ".join(f"'{group.first.name}'" for group in members)
        refusal = graph.merge(members)
        if refusal is None:
            self.merges += 1
            if found is not None:
                self.bytes_saved += found.bytes_saved
                remark(self.name, first, "fused", f"fused {names} into one kernel", numbers=found.numbers())
            if steering is not None:
                steering.made(decision)
        return refusal

    def _report(self, rounds: int) -> None:
        groups = self.graph.groups()
        message = f"merges: {self.merges} in {rounds} rounds; groups: {len(groups)} of {len(self.graph.group_of)} ops"
        function = self.graph.block.parent_op()
        assert function is not None
        numbers = {"merges": self.merges, "rounds": rounds, "groups": len(groups), "bytes_saved": self.bytes_saved}
        remark(self.name, function, "rounds", message, numbers=numbers)


def remark_refusal(graph: GroupGraph, name: str, producer: Group, consumer: Group, refusal: Refusal) -> None:
    """Says why two groups stay apart, with what the fusion would have saved and what would change the answer."""
    if is_collecting():
        numbers = {**estimate(graph, [producer, consumer]).numbers(), **refusal.numbers}
        place = location(producer.first)
        at = "" if place == "-" else f" at {place}"
        message = f"not fused with '{producer.first.name}'{at}: {refusal.message}"
        remark(name, consumer.first, refusal.code, message, flip=refusal.flip, provisional=True, numbers=numbers)


def _refuse_for_fuel(steering: Steering) -> Refusal | None:
    if (limit := steering.exhausted()) is None:
        return None
    message = f"the fuel for {limit} decision{'' if limit == 1 else 's'} is used up"
    return Refusal("fuel", message, {"fuel": limit}, "more fuel")


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
