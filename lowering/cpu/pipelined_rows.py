"""Rows one after the other, the last loop of each together with the first of the next.

    row: maximum; powers and their sum; shares                maximum of the first row
    row: maximum; powers and their sum; shares      becomes   powers and their sum; shares beside the next row's maximum
    row: maximum; powers and their sum; shares                powers and their sum; shares

Of these two loops one waits for what it stores and the other one for what it loads, and neither needs the other's result:
software pipelining (Lam 1988) of two stages. What the first loop comes to is carried from row to row.

Short rows are no loops but some vectors each, and wait for what these are joined to. Of them the first stage of the next row
comes before all others of a row: processors look a row ahead, but not two. Where only a call knows the length, it chooses.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Region, SSAValue

from fuse_opt.dialects.analysis.loop_body import Store
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import F32
from fuse_opt.dialects.types.extents import may_exceed
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.cpu.stages.lane_choice import MOST_STREAMED
from fuse_opt.lowering.cpu.stages.loop_parts import Range
from fuse_opt.lowering.cpu.stages.stage import Beside, StageLoops
from fuse_opt.lowering.kernel.element_emitter import Stage
from fuse_opt.lowering.kernel.loop_splitting import Fixed, flat_memory, outside_caches
from fuse_opt.lowering.kernel.row_stages import early_stores
from fuse_opt.lowering.kernel.scope import INDEX, Scope
from fuse_opt.lowering.loops.vector_widths import WIDTH

MOST_WORK = 64
"""Simple operations for an element of the last loop: with more, it waits for these."""

FEWEST = 128
"""Elements of a row whose loops are worth joining."""
FEWEST_OF_SIZE = 512
"""The same of rows whose length only a call knows: each of two loops side by side has few accumulators then."""

FEWEST_ALIGNED, ALIGNED_BITS, MOST_READ = 256, 256, 2
"""Elements of a row from which on the last loop's vectors begin where registers of so many bits do in memory, and what it reads
for each at most. Half of the stores were in two lines, and took two turns: RMS norms of 491 to 1425 take .92 to .96 of the time,
and layer norms, which read three, 1.0 to 1.04 (Zen 4 without AVX-512)."""
BEFORE_REGISTER = "fo_before_register_f32"

FEWEST_APART, FEWEST_LONG = 96, 256
"""Elements of shorter and of longer rows from which on rows outside of caches do not overlap: RMS norms of 89 to 127 took .84 to
.87 of the time, of 71 1.02, of 39 1.12; layer norms of 105 and 127 .84 and .94, of 171 1.3, of 291 to 771 .69 to .93 (Zen 4).
Where no loop is between the first and the last one, rows of 116 to 487 take .85 to .96, of 539 1.16, of 599 to 801 .96 to 1."""


class PipelinedRows(StageLoops):
    """Adds rows that overlap to the stages of one."""

    def may_overlap(self, stages: Sequence[Stage]) -> bool:
        """Whether the first stage only reduces what it reads, and the last one only stores, along the same neighbours."""
        if len(stages) < 2:
            return False
        first, last = stages[0], stages[-1]
        if len(first.dims) != 1 or first.dims != last.dims or first.stores or first.left or last.reductions:
            return False
        return self.lanes(first) > 0 and self.stage_work(last) <= MOST_WORK

    def overlaps(self, stages: Sequence[Stage], word: str) -> bool:
        """Whether rows overlap by the entry of a schedule; where that leaves it open, not those that wait for memory apart."""
        if word == "never" or not self.may_overlap(stages):
            return False
        return word == "always" or not (outside_caches(self.loop_body) and self._wait_apart(stages))

    def _wait_apart(self, stages: Sequence[Stage]) -> bool:
        """
        Whether rows that memory holds are read and stored sooner one after the other: where loops between the first and the last
        one compute from caches, of what they only reduce, and of a shorter row where it nearly fills what processors look ahead.
        """
        first, *others, _ = stages
        length = first.dims[0].extent
        if isinstance(length, Size) or any(stage.stores or stage.left for stage in others):
            return False
        if not others:
            return FEWEST_APART <= length <= MOST_STREAMED
        return length >= FEWEST_APART if length < FEWEST else length >= FEWEST_LONG

    def build_pipelined(self, task: Dim, bounds: Range, stages: Sequence[Stage], once: Sequence[Store]) -> None:
        """The loop over rows within the bounds; what is stored `once` for a row comes last."""
        first, *others, last = stages
        start = self._first_of_rows(task, bounds, first)
        block = Block(arg_types=[INDEX, *(value.type for value in start)])
        block.args[0].name_hint = task.name
        scope = Scope(self.root, block, {task: block.args[0]})
        for node, value in zip(first.reductions, block.args[1:], strict=True):
            value.name_hint = node.value.name_hint
            self.emitter.define(node, value, scope)
        are_long = self._are_long(first.dims[0].extent)
        early = () if are_long is True else self._first_of_next(task, bounds, scope, first, are_long)
        for stage in others:
            self.build_stage(stage, scope)
        self.emitter.emit(early_stores(self.nodes, once, last), scope)
        if are_long is False:
            self.build_stage(last, scope)
        results = early if are_long is False else self._last_of_row(task, bounds, scope, (first, last), early, are_long)
        self.emitter.emit([store.node for store in once], scope)
        self.store(once, scope)
        block.add_op(scf.YieldOp(*results))
        self.root.block.add_op(self.loop(block, *bounds, start))

    def _first_of_rows(self, task: Dim, bounds: Range, first: Stage) -> Sequence[SSAValue]:
        """What the first stage of the first row comes to, where there is a row."""
        block = Block()
        results = self.reduce_stage(first, Scope(self.root, block, {task: bounds[0]}))
        return self._choose(self.root, bounds, block, results, Block(), first)

    def _are_long(self, length: Extent) -> SSAValue | bool:
        """Whether rows are long ones; a value where only a call knows it."""
        if not isinstance(length, Size):
            return length >= FEWEST
        if not may_exceed(length, FEWEST_OF_SIZE - 1) or not may_exceed(FEWEST_OF_SIZE, length):
            return may_exceed(length, FEWEST_OF_SIZE - 1)
        return self.root.add(
            arith.CmpiOp(self.root.index_constant(length), self.root.index_constant(FEWEST_OF_SIZE), "sge")
        )

    def _first_of_next(
        self, task: Dim, bounds: Range, scope: Scope, first: Stage, are_long: SSAValue | bool
    ) -> Sequence[SSAValue]:
        """What the first stage of the next row comes to, where there is one and rows are short."""
        following, block, (begin, end) = self._next(task, scope), Block(), bounds
        if isinstance(are_long, SSAValue):
            end = self.root.add(arith.SelectOp(are_long, begin, end))
        results = self.reduce_stage(first, Scope(self.root, block, {task: following}))
        return self._choose(scope, (following, end), block, results, Block(), first)

    def _next(self, task: Dim, scope: Scope) -> SSAValue:
        following = scope.add(arith.AddiOp(scope.dim_value(task), self.root.index_constant(1)))
        following.name_hint = "next"
        return following

    def _last_of_row(
        self,
        task: Dim,
        bounds: Range,
        scope: Scope,
        stages: tuple[Stage, Stage],
        early: Sequence[SSAValue],
        are_long: SSAValue | bool,
    ) -> Sequence[SSAValue]:
        """
        The last of the stages of a row; what the first one of the next row comes to, where there is one, or where rows are short
        came to `early`.
        """
        (first, last), (begin, end) = stages, bounds
        following, shared, alone = self._next(task, scope), Block(), Block()
        if isinstance(are_long, SSAValue):
            end = self.root.add(arith.SelectOp(are_long, end, begin))
        beside = self._beside(first, last, Scope(scope, shared))
        # The next row's scope is none within this row's: no value of this row may be taken for one of the next.
        results = self.reduce_stage(first, Scope(self.root, shared, {task: following}), beside=beside)
        self.build_stage(last, Scope(scope, alone))
        return self._choose(scope, (following, end), shared, results, alone, first, early)

    def _beside(self, first: Stage, last: Stage, scope: Scope) -> Beside:
        """The last stage of a row, where that pays with vectors that begin where registers do in memory."""
        if not self._begins_anywhere(last, self.lanes(first)):
            return Beside(last, scope)
        (store,), row = last.stores, Fixed(scope, {})
        row.indices[last.dims[-1]] = self.root.index_constant(0)
        memory = flat_memory(self.root, self.arguments[self.memory.targets[store.result]])
        begin = row.index(self.nodes.space.apply(store.address))
        return Beside(last, scope, before=scope.call(BEFORE_REGISTER, [memory, begin], INDEX))

    def _begins_anywhere(self, last: Stage, lanes: int) -> bool:
        """Whether rows of one result begin within registers, and what so many lanes leave over has room to move vectors by."""
        length = last.dims[-1].extent
        if isinstance(length, Size) or length < FEWEST_ALIGNED or length % WIDTH == 0 or len(last.stores) != 1:
            return False
        if self.memory.register_bits != ALIGNED_BITS or self.memory.nontemporal:
            return False
        (store,) = last.stores
        if last.taken or dtype(store.node.value) is not F32 or length % lanes < ALIGNED_BITS // F32.bits - 1:
            return False  # what was kept may lie in the result
        read = sum(node.op is None for node in self.nodes_of(last))
        return read <= MOST_READ and not self.memory.in_place(self.loop_body, last.stores)

    def _choose(
        self,
        scope: Scope,
        bounds: Range,
        block: Block,
        results: Sequence[SSAValue],
        other: Block,
        first: Stage,
        early: Sequence[SSAValue] = (),
    ) -> Sequence[SSAValue]:
        """The results of a block where the bounds are not empty; early ones, or those of nothing, after the other block, else."""
        block.add_op(scf.YieldOp(*results))
        other.add_op(scf.YieldOp(*(early or [self.initial(node) for node in first.reductions])))
        condition = scope.add(arith.CmpiOp(*bounds, "slt"))
        choice = scf.IfOp(condition, [value.type for value in results], Region(block), Region(other))
        scope.block.add_op(choice)
        for node, value in zip(first.reductions, choice.results, strict=True):
            value.name_hint = node.value.name_hint
        return choice.results
