"""Joins the partial results of the threads that share a row, so that each of them knows the total.

Neighbouring threads: shuffles in each warp, one shared slot a warp, one barrier; every warp joins the slots itself, so that
no second barrier is needed. Threads below each other (neighbours belong to other rows): a slot of each, one barrier, and
each thread joins the slots of its row in their order. Two sets of slots take turns: who writes a set again has passed a
barrier that all who read it last had reached.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, memref
from xdsl.ir import Attribute, SSAValue

from fuse_opt.dialects import gpu
from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.types.dtypes import I32
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.lowering.gpu.scope import WARP, KernelScope, Values, combined_index, store_at, unrolled, when
from fuse_opt.lowering.kernel.scalar_to_arith import emit_combine
from fuse_opt.lowering.kernel.scope import Scope


@dataclass
class Reducer(ABC):
    """Joins across `threads` of a row."""

    kernel: KernelScope
    threads: int
    _turn: int = 0
    _slots: dict[tuple[int, int, Attribute], SSAValue] = field(
        default_factory=dict[tuple[int, int, Attribute], SSAValue]
    )

    @abstractmethod
    def total(self, scope: Scope, nodes: Sequence[ScalarNode], partials: Values) -> Values:
        """What the reductions are over all threads of the row, known to each of them."""

    def next_slots(self, values: Values, count: int) -> list[SSAValue]:
        """Shared memory for so many of each of the values, other than the last time."""
        self._turn = 1 - self._turn
        return [self._slot_buffer(number, value, count) for number, value in enumerate(values)]

    def _slot_buffer(self, number: int, value: SSAValue, count: int) -> SSAValue:
        key = (self._turn, number, value.type)
        if (found := self._slots.get(key)) is None:
            name = f"{value.name_hint or 'partial'}_slots"
            found = self._slots[key] = self.kernel.shared(value.type, count, name)
        return found


class RowReducer(Reducer):
    """Threads side by side: a power of two, or whole warps; more than one of them must be the whole block."""

    def total(self, scope: Scope, nodes: Sequence[ScalarNode], partials: Values) -> Values:
        lanes = min(self.threads, WARP)
        values = [_across_lanes(scope, p, v, lanes) for p, v in zip(nodes, partials, strict=True)]
        if self.threads <= WARP or not nodes:
            return values
        warps = self.threads // WARP
        slots = self.next_slots(values, warps)
        warp, lane = self._position(scope)
        first = scope.add(arith.CmpiOp(lane, scope.index_constant(0), "eq"))

        def publish(inner: Scope, _: Values) -> Values:
            for value, memory in zip(values, slots, strict=True):
                store_at(inner, value, memory, warp)
            return ()

        when(scope, first, (), publish)
        scope.block.add_op(gpu.BarrierOp())
        if warps & (warps - 1):
            return [self._in_turn(scope, node, memory, warps) for node, memory in zip(nodes, slots, strict=True)]
        slot = scope.add(arith.RemUIOp(lane, scope.index_constant(warps)))
        totals: list[SSAValue] = []
        for node, value, memory in zip(nodes, values, slots, strict=True):
            part = scope.add(memref.LoadOp.get(memory, [slot]))
            part.name_hint = value.name_hint
            totals.append(_across_lanes(scope, node, part, warps))
        return totals

    def _in_turn(self, scope: Scope, node: ScalarNode, memory: SSAValue, warps: int) -> SSAValue:
        """The slots joined one after another: halves are equal for powers of two alone."""
        value, *others = (scope.add(memref.LoadOp.get(memory, [scope.index_constant(n)])) for n in range(warps))
        for other in others:
            value = combine(scope, node, value, other)
        return value

    def _position(self, scope: Scope) -> tuple[SSAValue, SSAValue]:
        thread, width = self.kernel.thread(), scope.index_constant(WARP)
        warp = self.kernel.made("warp", lambda: arith.DivUIOp(thread, width))
        lane = self.kernel.made("lane", lambda: arith.RemUIOp(thread, width))
        warp.name_hint, lane.name_hint = "warp", "lane"
        return warp, lane


@dataclass
class ColumnReducer(Reducer):
    """Threads along y, in a block of `lanes` rows along x."""

    lanes: int = WARP

    def total(self, scope: Scope, nodes: Sequence[ScalarNode], partials: Values) -> Values:
        if self.threads == 1 or not nodes:
            return partials
        slots = self.next_slots(partials, self.threads * self.lanes)
        lane, number = self.kernel.thread(), self.kernel.thread(gpu.DimensionEnum.Y)
        own = combined_index(scope, number, self.lanes, lane, "slot")
        for value, memory in zip(partials, slots, strict=True):
            store_at(scope, value, memory, own)
        scope.block.add_op(gpu.BarrierOp())
        others = Dim("other", self.threads - 1)
        starts = [scope.add(memref.LoadOp.get(memory, [lane])) for memory in slots]

        def join(inner: Scope, values: Values) -> Values:
            after = inner.add(arith.AddiOp(inner.dim_value(others), inner.index_constant(1)))
            slot = combined_index(inner, after, self.lanes, lane, "slot")
            joined: list[SSAValue] = []
            for node, value, memory in zip(nodes, values, slots, strict=True):
                joined.append(combine(inner, node, value, inner.add(memref.LoadOp.get(memory, [slot]))))
            return joined

        return unrolled(scope, others, starts, join, "other", [value.name_hint for value in partials])


def combine(scope: Scope, node: ScalarNode, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
    """Two values of a reduction joined."""
    assert node.op is not None
    joined = emit_combine(scope, node.op.COMBINE, node.op.body().dtype, lhs, rhs)
    joined.name_hint = node.value.name_hint
    return joined


def _across_lanes(scope: Scope, node: ScalarNode, value: SSAValue, lanes: int) -> SSAValue:
    """The value joined over groups of so many neighbouring lanes, in each of them."""
    assert node.op is not None
    element = node.op.body().dtype
    width = scope.constant(WARP, I32)
    offset = lanes // 2
    while offset:
        shuffle = gpu.ShuffleOp(value, scope.constant(offset, I32), width, gpu.ShuffleModeEnum.Xor)
        hint = value.name_hint
        other = scope.add(shuffle)
        value = emit_combine(scope, node.op.COMBINE, element, value, other)
        value.name_hint = hint
        offset //= 2
    return value
