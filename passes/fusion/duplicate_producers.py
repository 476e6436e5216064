"""Give each reader of a cheap value a copy of its own, where computing it again costs less than storing and reading it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.bare_ops import sweep_functions
from fuse_opt.dialects.analysis.loop_body import member_ops
from fuse_opt.dialects.analysis.storage import byte_size
from fuse_opt.dialects.fused import directives
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.interfaces.structured_op import FusionKind
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.passes.decisions.steering import Steering, steer
from fuse_opt.passes.devices.device import Device
from fuse_opt.passes.devices.device_pass import DevicePass
from fuse_opt.passes.fusion.engine.cost_model import moves_nothing, work
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Limits, Refusal, Rule
from fuse_opt.passes.fusion.engine.named_merges import describe_merge
from fuse_opt.passes.fusion.engine.outline import build_kernels
from fuse_opt.passes.fusion.fuse_elementwise import FuseElementwisePass
from fuse_opt.passes.fusion.fuse_injective import FuseInjectivePass
from fuse_opt.passes.fusion.fuse_row import FuseRowPass
from fuse_opt.passes.options import check_counts, tunable
from fuse_opt.passes.remarks import remark
from fuse_opt.passes.rewrite_pass import RewritePass

_Copies = dict[Operation, list[tuple[Operation, Operation]]]
"""By op, each copy of it and the reader that has it."""


@dataclass(frozen=True)
class DuplicateProducersPass(DevicePass, RewritePass):
    """A pointwise op or kernel with one result becomes part of each kernel that reads it.

    ```mlir
    %a = graph.negative %x : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %s = graph.sum %a {axes = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %t = graph.sum %a {axes = array<i64: 1>} : (tensor<8x4xf32>) -> tensor<8xf32>
    ```
    The two sums cannot be one pass over rows: with a `negative` in each of two kernels, `%a` is never stored.

    It is done when the fusion passes would merge a copy with each reader, and the cost model finds the added work and reads
    cheaper than a store and the loads. What those passes would merge as it is, is left to them.

    Requires: nothing. Ensures: values stay; ops with directives stay as they are.
    """

    name = "duplicate-producers"

    max_copies: int = field(default=8, metadata=tunable(2))
    """Readers of one value at most."""

    def __post_init__(self) -> None:
        check_counts(self)
        super().__post_init__()

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        device, steering = self.machine(op), steer(self.name, op, None)
        for block in sweep_functions(op):
            replayed = None if steering is None or steering.steps is None else steering.steps.get(block, [])
            if replayed is not None:
                graph = GroupGraph(block, Limits(), device)
                _duplicate(graph, [graph.group_of[graph.top(step.ops[0])] for step in replayed], steering)
            else:  # a reader that takes a copy may be worth a copy itself then
                while self._duplicate_once(GroupGraph(block, Limits(), device), steering):
                    pass

    def _duplicate_once(self, graph: GroupGraph, steering: Steering | None) -> bool:
        rules = _rules()
        chosen = [
            group
            for group in graph.groups()
            if self._is_candidate(graph, group)
            and all(_members(graph, rules, group.first, reader.first) is None for reader in group.consumers)
        ]
        return bool(chosen) and _duplicate(graph, chosen, steering)

    def _is_candidate(self, graph: GroupGraph, group: Group) -> bool:
        op, readers = group.first, list(group.consumers)
        if group.kind > FusionKind.BROADCAST or not op.operands or len(op.results) != 1:
            return False
        if not 2 <= len(readers) <= self.max_copies or _is_directed(group) or moves_nothing(group):
            return False
        if any(
            reader.kind > FusionKind.REDUCTION or moves_nothing(reader) or _is_directed(reader) for reader in readers
        ):
            return False
        return (
            not any(reader.producers.keys() & {*readers} for reader in readers) and _gain(graph.device, op, readers) > 0
        )


def _is_directed(group: Group) -> bool:
    return any(op.attributes and directives(op) for op in (*group.ops, *member_ops(group.ops)))


def _gain(device: Device, op: Operation, readers: Sequence[Group]) -> float:
    """Seconds saved: a store and the loads, less the work and the operands read once more for each further copy."""
    cost = sum(work(inner) for inner in member_ops([op]))
    copies = len(readers) - 1
    stored = estimate(byte_size(op.results[0]) or 0)
    again = sum(estimate(byte_size(value) or 0) for value in dict.fromkeys(op.operands))
    saved = device.move_seconds(stored) * (1 + len(readers)) + device.launch
    lost = device.work_seconds(cost * estimate(prod(shape(op.results[0]))) * copies) + device.move_seconds(again) * len(
        readers
    )
    return saved - lost if cost <= device.recompute_limit else -1.0


def _duplicate(before: GroupGraph, chosen: Sequence[Group], steering: Steering | None) -> bool:
    """
    Merges a copy of each chosen op with each of its readers, where all of them can be merged and there is fuel; whether
    any was.
    """
    block = before.block
    decisions = {
        group.first: steering and describe_merge(steering, before, [group, *group.consumers]) for group in chosen
    }
    pairs = {group.first: _copies(group.first, before.place) for group in chosen}
    unfit = list(pairs)
    graph = GroupGraph(block, Limits(), before.device)
    while unfit:
        rules = _rules()  # anew: they remember groups and ops
        unfit = [op for op in pairs if any(_members(graph, rules, *pair) is None for pair in pairs[op])]
        for op in unfit:
            _take_back(op, pairs.pop(op))
        if unfit and pairs:
            graph = GroupGraph(block, Limits(), before.device)
    for op in list(pairs):
        if steering is not None and steering.exhausted() is not None:
            _take_back(op, pairs.pop(op))
        elif steering is not None:
            steering.made(decisions[op])
    if pairs:
        _merge(GroupGraph(block, Limits(), before.device), pairs)
    return bool(pairs)


def _merge(graph: GroupGraph, pairs: _Copies) -> None:
    rules = _rules()
    for op, copies in pairs.items():
        remark(DuplicateProducersPass.name, op, "duplicated", "is computed again in each kernel that reads it")
        for pair in copies:
            if (members := _members(graph, rules, *pair)) is not None:
                graph.merge(members)
    build_kernels(graph, [group for group in graph.groups() if group.merged])
    for op in pairs:
        if not op.results[0].uses:
            Rewriter.erase_op(op)


def _take_back(op: Operation, copies: Sequence[tuple[Operation, Operation]]) -> None:
    for copy, _ in copies:
        copy.results[0].replace_all_uses_with(op.results[0])
        Rewriter.erase_op(copy)


def _rules() -> list[Rule]:
    return [pass_().rule() for pass_ in (FuseInjectivePass, FuseElementwisePass, FuseRowPass)]


def _copies(op: Operation, place: dict[Operation, int]) -> list[tuple[Operation, Operation]]:
    """A copy of the op before each op that reads it, with that reader."""
    readers = sorted(
        dict.fromkeys(use.operation for use in op.results[0].uses), key=lambda reader: place.get(reader, -1)
    )
    pairs: list[tuple[Operation, Operation]] = []
    for reader in readers:
        copy = op.clone()
        copy.location = op.location
        copy.results[0].name_hint = op.results[0].name_hint
        assert reader.parent is not None
        reader.parent.insert_op_before(copy, reader)
        op.results[0].replace_uses_with_if(copy.results[0], lambda use, own=reader: use.operation is own)
        pairs.append((copy, reader))
    return pairs


def _members(graph: GroupGraph, rules: Sequence[Rule], copy: Operation, reader: Operation) -> Sequence[Group] | None:
    """What a rule would merge of a copy and its reader."""
    for rule in rules:
        answer = rule.consider(graph, graph.group_of[copy], graph.group_of[reader])
        if answer is not None:
            return None if isinstance(answer, Refusal) or graph.refuse(answer) is not None else answer
    return None
