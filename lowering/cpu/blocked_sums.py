"""Blocked summation over lanes, in two levels: what a strip of elements comes to is added to accumulators of its own.

The rounding error of elements that are added one after the other grows with their number, in two levels with the numbers of
strips and of elements in one (Higham 1993: the accuracy of floating point summation; Castaldo, Whaley and Chronopoulos 2008:
superblocks).
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import arith, scf
from xdsl.ir import Block

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.types.extents import may_exceed
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.cpu.outer_vector import OuterVectors, is_float_sum
from fuse_opt.lowering.cpu.outer_vector_stage import Geometry
from fuse_opt.lowering.cpu.split_reduction import PhasedKernel
from fuse_opt.lowering.cpu.stages.loop_parts import Range
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, RowBuffer, Stage
from fuse_opt.lowering.kernel.scope import INDEX, Scope

STRIP = 64
"""Elements of a strip at least: moving what they come to takes the time of about two."""
STRIP_ADDITIONS = 16
"""Additions to an accumulator in a strip at least, each of as many elements as an iteration takes."""
LONG = 128
"""Elements that are added in one level."""
NARROWEST = 128
"""Lanes of a task: with fewer, a second loop around short rows was measured to cost up to a tenth where memory is waited for."""


class BlockedSums(OuterVectors):
    """A launch over blocks of lanes, in which long sums of floats have two levels."""

    def __init__(self, phased: PhasedKernel, nodes: KernelNodes, geometry: Geometry) -> None:
        super().__init__(phased, nodes, geometry)
        self.lengths: dict[Dim, int] = {}
        """Of the dimensions of which a task takes a part."""
        self.totals: dict[ScalarNode, RowBuffer] = {}
        """By sum of the stage: what its strips have come to."""

    def _open_part(self, stage: Stage, longest: Dim, part: int) -> tuple[dict[Dim, Range], int]:
        self.lengths[longest] = part
        return super()._open_part(stage, longest, part)

    def _build_stage(self, stage: Stage, bounds: Mapping[Dim, Range]) -> None:
        self.totals = {}
        if stage.dims and may_exceed(self._length(stage), LONG) and self.geometry.width >= NARROWEST:
            sums = [node for node in stage.reductions if is_float_sum(node)]
            memory = {node: self._buffer(node, 1, "total", filled=True) for node in sums}
            self.totals = {node: RowBuffer(buffer, self.geometry.local) for node, buffer in memory.items()}
        if self.totals:
            scope = self._open_lanes(self.task)
            for node, row in self.totals.items():
                self._put(self.initial(node), row, scope)
            self._close_lanes(scope)
        super()._build_stage(stage, bounds)
        if self.totals:
            self._move(self.task, self.totals, self.known)

    def _build_loop(self, stage: Stage, parent: Scope, bounds: Range, step: int) -> None:
        if not self.totals or step < self._unroll(stage):  # few are left over
            super()._build_loop(stage, parent, bounds, step)
            return
        strip = max(STRIP, STRIP_ADDITIONS * step)
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = "strip"
        scope = Scope(parent, block)
        end = scope.add(arith.AddiOp(block.args[0], self.root.index_constant(strip)))
        if may_exceed(self._length(stage) % strip, 0) or may_exceed(stage.dims[-1].extent % strip, 0):
            end = scope.add(arith.MinSIOp(end, bounds[1]))
        super()._build_loop(stage, scope, (block.args[0], end), step)
        self._move(scope, {node: self.known[node] for node in self.totals}, self.totals, clear=True)
        block.add_op(scf.YieldOp())
        parent.block.add_op(self.loop(block, *bounds, step=strip))

    def _length(self, stage: Stage) -> Extent:
        """Of the innermost loop."""
        return self.lengths.get(stage.dims[-1], stage.dims[-1].extent)

    def _move(
        self,
        parent: Scope,
        source: Mapping[ScalarNode, RowBuffer],
        target: Mapping[ScalarNode, RowBuffer],
        *,
        clear: bool = False,
    ) -> None:
        """Adds each accumulator to another one."""
        scope = self._open_lanes(parent)
        for node, row in source.items():
            values = self._load(target[node], scope), self._load(row, scope)
            self._put(self.combine(scope, node, *values), target[node], scope)
            if clear:
                self._put(self.initial(node), row, scope)
        self._close_lanes(scope)
