"""Turning groups into kernels: moves ops into `fused.kernel` bodies and puts the block back in a topological order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute, Block, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.bare_ops import is_creation
from fuse_opt.dialects.fused import USE_IMPLEMENTATION, KernelOp, YieldOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Limits

_NO_LIMIT = 2**62
_KERNEL_DIRECTIVES = ("must_inplace", "no_inplace", "keep_live", USE_IMPLEMENTATION)


def build_kernels(graph: GroupGraph, groups: Iterable[Group]) -> list[KernelOp]:
    """Replaces each given group by one kernel, which are returned, and reorders the block so that definitions precede uses."""
    chosen = list(groups)
    if not chosen:
        return []
    order = _block_order(graph)
    kernels = {group: _build(graph, group) for group in chosen}
    _reattach(graph.block, order, kernels)
    for op in list(graph.block.ops):
        if is_creation(op) and not any(result.uses for result in op.results):
            Rewriter.erase_op(op)
    return list(kernels.values())


def build_kernel_each(block: Block, opened: Iterable[Sequence[Operation]]) -> list[KernelOp]:
    """Makes a kernel of the ops of a block that each op became, whatever their number."""
    graph = GroupGraph(block, Limits(_NO_LIMIT, _NO_LIMIT, _NO_LIMIT))
    found: list[Group] = []
    for ops in opened:
        refusal = graph.merge([graph.group_of[op] for op in ops if op in graph.group_of])
        assert refusal is None, refusal
        found.append(graph.group_of[ops[-1]])
    return build_kernels(graph, found)


def _block_order(graph: GroupGraph) -> list[Group | Operation]:
    """Groups and creation ops in a topological order that stays close to the order given."""
    creations = [op for op in graph.block.ops if is_creation(op)]
    waiting = {group: len(group.producers) for group in graph.groups()}
    keys = {group: max(graph.place[op] for op in group.ops) for group in waiting}
    heap = [keys[group] for group, count in waiting.items() if not count]
    at = {key: group for group, key in keys.items()}
    heapq.heapify(heap)
    order: list[Group | Operation] = list(creations)
    while heap:
        group = at[heapq.heappop(heap)]
        order.append(group)
        for consumer in group.consumers:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                heapq.heappush(heap, keys[consumer])
    assert len(order) == len(creations) + len(waiting), "the contracted graph has a cycle"
    return order


def _reattach(block: Block, order: Sequence[Group | Operation], kernels: dict[Group, KernelOp]) -> None:
    for op in list(block.ops):
        op.detach()
    for item in order:
        if isinstance(item, Operation):
            block.add_op(item)
        elif item in kernels:
            block.add_op(kernels[item])
        else:
            block.add_ops(item.ops)


def _build(graph: GroupGraph, group: Group) -> KernelOp:
    """A detached kernel that holds the group's ops; uses of their results outside now use the kernel's."""
    results = _results(graph, group)
    mapped: dict[SSAValue, SSAValue] = {}
    body_ops: list[GraphOp] = []
    for op in group.ops:
        if isinstance(op, KernelOp):
            _open_kernel(op, mapped, body_ops)
        else:
            assert isinstance(op, GraphOp)
            body_ops.append(op)
    body = _KernelBody(mapped)
    for op in body_ops:
        body.take(op)
    outputs = [body.inside(value) for value in results]
    block = body.block
    block.add_op(YieldOp.create(operands=outputs))
    kernel = KernelOp(body.inputs, [value.type for value in results], Region(block), _kernel_attributes(group))
    kernel.location = group.first.location
    for old, new in zip(results, kernel.results, strict=True):
        new.name_hint = old.name_hint
        old.replace_uses_with_if(new, lambda use: use.operation.parent is not block)
    for op in group.ops:
        if isinstance(op, KernelOp):
            op.detach()
            op.erase(safe_erase=False)
    return kernel


def _results(graph: GroupGraph, group: Group) -> list[OpResult]:
    """What is read outside; of an op that a library runs every result, for it writes all of them."""
    if len(group.ops) == 1 and isinstance(group.first, OpaqueOp):
        return list(group.first.results)
    return graph.results([group]) or group.outputs[-1:]


def _kernel_attributes(group: Group) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for op in group.ops:
        if isinstance(op, KernelOp):
            found.update(op.attributes)
        else:
            found.update({name: value for name, value in op.attributes.items() if name in _KERNEL_DIRECTIVES})
    return {name: value for name, value in found.items() if name != "no_fuse" or isinstance(value, UnitAttr)}


def _open_kernel(kernel: KernelOp, mapped: dict[SSAValue, SSAValue], ops: list[GraphOp]) -> None:
    """Hands out the kernel's ops; its results stand for what it yields, its arguments for its operands."""
    mapped.update(zip(kernel.block.args, kernel.operands, strict=True))
    mapped.update(zip(kernel.results, kernel.yielded(), strict=True))
    ops.extend(kernel.ops())


class _KernelBody:
    """A body under construction: ops move in, and every outside value becomes an operand or a copy of a constant."""

    def __init__(self, mapped: dict[SSAValue, SSAValue]) -> None:
        self.mapped = mapped
        self.block = Block()
        self.inputs: list[SSAValue] = []
        self._arguments: dict[SSAValue, SSAValue] = {}
        self._constants: dict[tuple[type[Operation], frozenset[tuple[str, Attribute]]], SSAValue] = {}
        self._own: set[Operation] = set()

    def take(self, op: GraphOp) -> None:
        if is_creation(op):
            key = (type(op), frozenset(op.properties.items()))
            if key in self._constants:
                self.mapped[op.results[0]] = self._constants[key]
                return
            self._constants[key] = op.results[0]
        op.detach()
        operands = [self.inside(value) for value in op.operands]
        if operands != list(op.operands):
            op.operands = operands
        self.block.add_op(op)
        self._own.add(op)

    def inside(self, value: SSAValue) -> SSAValue:
        """The value by which the body knows `value`."""
        while value in self.mapped:
            value = self.mapped[value]
        if isinstance(value, OpResult) and value.op in self._own:
            return value
        if is_creation(value.owner):
            return self._copy_of(value)
        if value not in self._arguments:
            argument = self.block.insert_arg(value.type, len(self.inputs))
            argument.name_hint = value.name_hint
            self._arguments[value] = argument
            self.inputs.append(value)
        return self._arguments[value]

    def _copy_of(self, value: SSAValue) -> SSAValue:
        op = value.owner
        assert isinstance(op, Operation)
        key = (type(op), frozenset(op.properties.items()))
        if key not in self._constants:
            copy = op.clone()
            copy.results[0].name_hint = value.name_hint
            self.block.add_op(copy)
            self._own.add(copy)
            self._constants[key] = copy.results[0]
        return self._constants[key]
