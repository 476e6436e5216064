"""One stage of a pass as a loop nest: the innermost loop is parallel, those around it carry the stage's reductions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Block, Region, SSAValue

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.types.extents import may_exceed
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.lowering.cpu.stages.lane_joins import Accumulators, LaneJoins
from fuse_opt.lowering.cpu.stages.loop_parts import Bounds, Range
from fuse_opt.lowering.hints import ROLLED, STREAMED
from fuse_opt.lowering.kernel.element_emitter import Stage
from fuse_opt.lowering.kernel.scalar_to_arith import emit_combine
from fuse_opt.lowering.kernel.scope import INDEX, Scope
from fuse_opt.lowering.loops.vector_widths import WIDTH

PAIRED_WORK = 8
"""Simple operations of an iteration that stands twice in a loop, once for each of two vectors of accumulators."""

PAIRED_LENGTH = 64
"""Elements before the last vector of a row from which on such a loop pays: it is asked for, and its vectors are joined."""


@dataclass(frozen=True, slots=True)
class Beside:
    """A stage without reductions over the same dimension as another one, and the scope that knows what it needs."""

    stage: Stage
    scope: Scope
    before: SSAValue | None = field(default=None, kw_only=True)
    """Elements in front of the first vector of the loop; a vector of its own begins with them."""


class StageLoops(LaneJoins):
    """Builds the stages of one pass."""

    def build_stage(self, stage: Stage, outer: Scope, bounds: Bounds | None = None) -> None:
        """The loops of a stage, put into the outer scope, in which its reductions are known from then on."""
        for node, result in zip(stage.reductions, self.reduce_stage(stage, outer, bounds), strict=True):
            self.emitter.define(node, result, outer)

    def reduce_stage(
        self, stage: Stage, outer: Scope, bounds: Bounds | None = None, beside: Beside | None = None
    ) -> Sequence[SSAValue]:
        """The loops of a stage; gives what its reductions come to within the bounds, in their compute types.

        Another stage may share the innermost loop of one that has accumulators in memory."""
        accumulators: Sequence[SSAValue] = [self.initial(node) for node in stage.reductions]
        if not stage.dims:
            return self._reduce_once(stage, outer, accumulators)
        bounds = bounds or {}
        lanes = self.lanes(stage)
        memories: Accumulators = self._accumulators(stage, outer, lanes, bounds) if lanes else []
        apart = not lanes or self._has_short_rest(stage, bounds, lanes)
        carried = accumulators if apart else []
        scopes: list[Scope] = [outer]
        starts: list[Sequence[SSAValue]] = []
        for dim in stage.dims[:-1]:
            block = Block(arg_types=[INDEX, *(value.type for value in carried)])
            self.name(block.args, dim, stage)
            starts.append(carried)
            carried = block.args[1:]
            scopes.append(Scope(scopes[-1], block, {dim: block.args[0]}))
        if lanes:
            results: Sequence[SSAValue] = self._accumulate(stage, scopes[-1], bounds, memories, lanes, carried, beside)
        else:
            results = self._reduce_innermost(stage, scopes[-1], bounds, carried)
        for scope, dim, start in zip(scopes[:0:-1], stage.dims[-2::-1], reversed(starts), strict=True):
            self.name(results, None, stage)
            scope.block.add_op(scf.YieldOp(*results))
            assert scope.parent is not None
            loop = self.loop(scope.block, *self.bounds_of(dim, bounds), start)
            scope.parent.block.add_op(loop)
            results = loop.results
        if lanes:
            pairs = zip(stage.reductions, memories[0], strict=True)
            folded = [self._folded(outer, node, memory, lanes) for node, memory in pairs]
            if not apart:
                return folded
            joined = zip(stage.reductions, folded, results, strict=True)
            return [self.combine(outer, node, *pair) for node, *pair in joined]
        return results

    def _reduce_innermost(
        self, stage: Stage, outer: Scope, bounds: Bounds, start: Sequence[SSAValue]
    ) -> Sequence[SSAValue]:
        """The innermost loop of a stage as a parallel one that carries its reductions."""
        last = stage.dims[-1]
        block = Block(arg_types=[INDEX])
        self.name(block.args, last, stage)
        scope = Scope(outer, block, {last: block.args[0]})
        self.emitter.emit(stage.roots(), scope, stage)
        elements = [self.emitter.reduced_element(node, scope) for node in stage.reductions]
        self.store(stage.stores, scope)
        pairs = zip(stage.reductions, elements, strict=True)
        block.add_op(scf.ReduceOp(elements, [_combiner(node, element) for node, element in pairs]))
        loop = self.parallel(block, *self.bounds_of(last, bounds), start)
        outer.block.add_op(loop)
        return loop.results

    def _accumulate(
        self,
        stage: Stage,
        outer: Scope,
        bounds: Bounds,
        memories: Accumulators,
        lanes: int,
        carried: Sequence[SSAValue],
        beside: Beside | None,
    ) -> Sequence[SSAValue]:
        """The innermost loop of a stage, so many neighbours at a time, then those left over; gives what the carried
        accumulators of these come to."""
        last, constant = stage.dims[-1], self.root.index_constant
        lower, upper = self.bounds_of(last, bounds)
        first = Dim(f"{last.name}_first", last.extent)
        if last in bounds:
            rest = outer.add(arith.RemSIOp(outer.add(arith.SubiOp(upper, lower)), constant(lanes)))
            middle = outer.add(arith.SubiOp(upper, rest))
        else:
            whole = self._whole_vectors(last.extent, lanes)
            rest, middle = constant(last.extent - whole), constant(whole)
        if len(memories) > 1 and beside is None and self.stage_work(stage) <= PAIRED_WORK:
            lower = self._join_pairs(stage, outer, first, memories, lanes, (lower, middle))
            memories = memories[:1]
        self._start(stage, memories[1:], outer, lanes)
        block = Block(arg_types=[INDEX])
        self.name(block.args, last, stage)
        scope = Scope(outer, block, {first: block.args[0]})
        self.ask_ahead(stage, scope, first, lanes)
        if beside is not None:  # first, as what it reads in row buffers may be overwritten
            self.join_beside(beside, block, first, lanes)
        self._join_lanes(stage, scope, first, memories[0], constant(lanes), turns=memories[1:])
        block.add_op(scf.YieldOp())
        loop = self.loop(block, lower, middle, step=lanes)
        loop.attributes[STREAMED if self.is_streamed(stage) else ROLLED] = UnitAttr()
        if last in bounds or may_exceed(last.extent, lanes - 1):
            outer.block.add_op(loop)
        self._join_all(
            stage, outer, memories, lanes
        )  # before what is left over is: a short row does not wait for it then
        has_rest = may_exceed(last.extent % lanes, 0)
        if beside is not None:
            self.rest_beside(beside, (middle, upper), lanes)
        if carried:
            return self._reduce_innermost(stage, outer, {**bounds, last: (middle, upper)}, carried)
        if last not in bounds and not has_rest:
            return []
        if self.rows_have_room and self._may_compute_beyond(stage):
            self._join_with_room(stage, outer, first, memories[0], lanes, (middle, upper), last in bounds)
            return []
        if self._overlaps(stage, bounds):
            width = min(self._vector(stage), lanes)
            short = last.extent % lanes % width
            if whole := last.extent % lanes - short:
                self._join_at(stage, outer, first, memories[0], middle, constant(whole))
            if short:
                self._join_short(stage, outer, first, memories[0], short, width)
        else:
            self._join_at(stage, outer, first, memories[0], middle, rest)
        return []

    def _join_pairs(
        self, stage: Stage, outer: Scope, first: Dim, memories: Accumulators, lanes: int, bounds: Range
    ) -> SSAValue:
        """
        A loop of which an iteration joins so many neighbours for each of the accumulators: moves of these and counting took
        longer than a few operations. What is left of whole vectors joins the first of them, as it does where they take turns: a
        row has the same bits beside another one and alone. Gives where the rest begins. Of short rows it is all.
        """
        (lower, middle), step, constant = bounds, lanes * len(memories), self.root.index_constant
        long = Scope(outer, Block())
        self._start(stage, memories[1:], long, lanes)
        pairs = long.add(arith.AndIOp(middle, constant(-step)))
        block = Block(arg_types=[INDEX])
        self.name(block.args, stage.dims[-1], stage)
        scope = Scope(long, block, {first: block.args[0]})
        self.ask_ahead(stage, scope, first, step)
        for number, memory in enumerate(memories):
            begin = scope.add(arith.AddiOp(block.args[0], constant(number * lanes))) if number else block.args[0]
            self._join_at(stage, scope, first, memory, begin, constant(lanes))
        block.add_op(scf.YieldOp())
        loop = self.loop(block, lower, pairs, step=step)
        loop.attributes[ROLLED] = UnitAttr()
        long.block.add_op(loop)
        single = Scope(long, Block())
        self._join_at(stage, single, first, memories[0], pairs, constant(lanes))
        single.block.add_op(scf.YieldOp())
        is_left = long.add(arith.CmpiOp(pairs, middle, "slt"))
        long.block.add_op(scf.IfOp(is_left, [], Region(single.block)))
        self._join_all(stage, long, memories, lanes)
        long.block.add_op(scf.YieldOp(middle))
        is_long = outer.add(arith.CmpiOp(middle, constant(PAIRED_LENGTH), "sge"))
        choice = scf.IfOp(is_long, [INDEX], Region(long.block), Region(Block([scf.YieldOp(lower)])))
        outer.block.add_op(choice)
        return choice.results[0]

    def _join_all(self, stage: Stage, outer: Scope, memories: Accumulators, lanes: int) -> None:
        """The first vectors of accumulators become what all of them come to."""
        for others in memories[1:]:
            for node, memory, other in zip(stage.reductions, memories[0], others, strict=True):
                self._join_halves(outer, node, memory, lanes, (other, 0))

    def join_beside(self, beside: Beside, block: Block, first: Dim, lanes: int) -> None:
        """So many neighbours of a stage in the block of another one's loop, which counts the first of them."""
        scope = Scope(beside.scope, block, {first: block.args[0]})
        if beside.before is not None:
            scope.indices[first] = scope.add(arith.AddiOp(block.args[0], beside.before))
        self._join_lanes(beside.stage, scope, first, [], self.root.index_constant(lanes))

    def rest_beside(self, beside: Beside, bounds: Range, lanes: int) -> None:
        """What that loop leaves over of it, within the bounds."""
        last = beside.stage.dims[-1]
        if not may_exceed(last.extent % lanes, 0):
            return
        begin, upper = bounds
        if beside.before is not None:
            ends = self.root.index_constant(0), self.root.index_constant(WIDTH)
            self._reduce_innermost(beside.stage, beside.scope, {last: ends}, [])
        if self._overlaps(beside.stage, {}) and last.extent % lanes < WIDTH:
            begin = self.root.index_constant(last.extent - WIDTH)
        self._reduce_innermost(beside.stage, beside.scope, {last: (begin, upper)}, [])

    def ask_ahead(self, stage: Stage, scope: Scope, first: Dim, count: int) -> None:
        """Asks for memory that comes into use later than so many neighbours from `first` on, in the scope of their loop."""

    def _reduce_once(self, stage: Stage, scope: Scope, accumulators: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """A loop of one iteration, without the loop."""
        self.emitter.emit(stage.roots(), scope, stage)
        elements = [self.emitter.reduced_element(node, scope) for node in stage.reductions]
        self.store(stage.stores, scope)
        pairs = zip(stage.reductions, accumulators, elements, strict=True)
        return [self.combine(scope, node, start, element) for node, start, element in pairs]


def _combiner(node: ScalarNode, element: SSAValue) -> Region:
    assert node.op is not None
    block = Block(arg_types=[element.type, element.type])
    scope = Scope(None, block)
    joined = emit_combine(scope, node.op.COMBINE, node.op.body().dtype, *block.args)
    block.add_op(scf.ReduceReturnOp(joined))
    return Region(block)
