"""Joins the partial results of the threads of a row: shuffles in each warp, one shared slot a warp, one barrier.

Every warp joins the slots itself, so that all threads know the total without a second barrier. Two sets of slots take
turns: who writes a set again has passed a barrier that all who read it last had reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, memref
from xdsl.ir import Attribute, SSAValue

from ..dialects import gpu
from ..dialects.dtypes import I32
from ..dialects.pull import Point
from .gpu_scope import WARP, KernelScope, Values, store_at, when
from .loop_builder import Scope
from .scalar_ops import emit_combine


@dataclass
class RowReducer:
    """Joins across `threads` of a row, a power of two from 32 on; more than a warp must be the whole block."""

    kernel: KernelScope
    threads: int
    _turn: int = 0
    _slots: dict[tuple[int, int, Attribute], SSAValue] = field(
        default_factory=dict[tuple[int, int, Attribute], SSAValue]
    )

    def total(self, scope: Scope, points: Sequence[Point], partials: Values) -> Values:
        """What the reductions are over all threads of the row, known to each of them."""
        values = [_across_lanes(scope, p, v, WARP) for p, v in zip(points, partials, strict=True)]
        if self.threads == WARP or not points:
            return values
        slots = [self._slot_buffer(number, value) for number, value in enumerate(values)]
        self._turn = 1 - self._turn
        warps = self.threads // WARP
        warp, lane = self._position(scope)
        first = scope.add(arith.CmpiOp(lane, scope.index_constant(0), "eq"))

        def publish(inner: Scope, _: Values) -> Values:
            for value, memory in zip(values, slots, strict=True):
                store_at(inner, value, memory, warp)
            return ()

        when(scope, first, (), publish)
        scope.block.add_op(gpu.BarrierOp())
        slot = scope.add(arith.RemSIOp(lane, scope.index_constant(warps)))
        totals: list[SSAValue] = []
        for point, value, memory in zip(points, values, slots, strict=True):
            part = scope.add(memref.LoadOp.get(memory, [slot]))
            part.name_hint = value.name_hint
            totals.append(_across_lanes(scope, point, part, warps))
        return totals

    def _position(self, scope: Scope) -> tuple[SSAValue, SSAValue]:
        thread, width = self.kernel.thread(), scope.index_constant(WARP)
        warp = self.kernel.made("warp", lambda: arith.DivSIOp(thread, width))
        lane = self.kernel.made("lane", lambda: arith.RemSIOp(thread, width))
        warp.name_hint, lane.name_hint = "warp", "lane"
        return warp, lane

    def _slot_buffer(self, number: int, value: SSAValue) -> SSAValue:
        key = (self._turn, number, value.type)
        if (found := self._slots.get(key)) is None:
            name = f"{value.name_hint or 'partial'}_slots"
            found = self._slots[key] = self.kernel.shared(value.type, self.threads // WARP, name)
        return found


def _across_lanes(scope: Scope, point: Point, value: SSAValue, lanes: int) -> SSAValue:
    """The value joined over groups of so many neighbouring lanes, in each of them."""
    assert point.op is not None
    element = point.op.body().dtype
    width = scope.constant(WARP, I32)
    offset = lanes // 2
    while offset:
        shuffle = gpu.ShuffleOp(value, scope.constant(offset, I32), width, gpu.ShuffleModeEnum.Xor)
        hint = value.name_hint
        other = scope.add(shuffle)
        value = emit_combine(scope, point.op.COMBINE, element, value, other)
        value.name_hint = hint
        offset //= 2
    return value
