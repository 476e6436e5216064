"""One stage of a pass as a loop nest: the innermost loop is parallel, those around it carry the stage's reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, Region, SSAValue

from ..dialects.index_expr import Dim
from ..dialects.pull import Point, Store
from .kernel_buffers import KernelBuffers
from .kernel_points import KernelPoints, PointEmitter, Stage, body_cost
from .loop_builder import INDEX, Scope
from .scalar_ops import emit_combine

Bounds = Mapping[Dim, tuple[SSAValue, SSAValue]]
"""By dimension: its first value and the one after the last, where these are not 0 and the extent."""


class StageLoops:
    """Builds the stages of one pass in the function whose outermost scope is `root`."""

    def __init__(self, points: KernelPoints, memory: KernelBuffers, arguments: Sequence[SSAValue], root: Scope) -> None:
        self.points = points
        self.pulled = points.pulled
        self.memory = memory
        self.arguments = arguments
        self.root = root
        self.emitter = PointEmitter(points, {v: arguments[number] for v, number in memory.sources.items()})

    def bounds_of(self, dim: Dim, bounds: Bounds) -> tuple[SSAValue, SSAValue]:
        return bounds.get(dim) or (self.root.index_constant(0), self.root.index_constant(dim.extent))

    def build_stage(self, stage: Stage, outer: Scope, bounds: Bounds | None = None) -> None:
        """The loops of a stage, put into the outer scope, in which its reductions are known from then on."""
        for point, result in zip(stage.reductions, self.reduce_stage(stage, outer, bounds), strict=True):
            self.emitter.define(point, result, outer)

    def reduce_stage(self, stage: Stage, outer: Scope, bounds: Bounds | None = None) -> Sequence[SSAValue]:
        """The loops of a stage; gives what its reductions come to within the bounds, in their compute types."""
        accumulators: Sequence[SSAValue] = [self.initial(point) for point in stage.reductions]
        if not stage.dims:
            return self._reduce_once(stage, outer, accumulators)
        bounds = bounds or {}
        scopes: list[Scope] = [outer]
        starts: list[Sequence[SSAValue]] = []
        for dim in stage.dims[:-1]:
            block = Block(arg_types=[INDEX, *(value.type for value in accumulators)])
            self.name(block.args, dim, stage)
            starts.append(accumulators)
            accumulators = block.args[1:]
            scopes.append(Scope(scopes[-1], block, {dim: block.args[0]}))
        last = stage.dims[-1]
        block = Block(arg_types=[INDEX])
        self.name(block.args, last, stage)
        inner = Scope(scopes[-1], block, {last: block.args[0]})
        self.emitter.emit(stage.roots(), inner, stage)
        elements = [self.emitter.reduced_element(point, inner) for point in stage.reductions]
        self.store(stage.stores, inner)
        block.add_op(
            scf.ReduceOp(elements, [_combiner(point, e) for point, e in zip(stage.reductions, elements, strict=True)])
        )
        loop: Operation = self.parallel(block, *self.bounds_of(last, bounds), accumulators)
        scopes[-1].block.add_op(loop)
        for scope, dim, start in zip(scopes[:0:-1], stage.dims[-2::-1], reversed(starts), strict=True):
            self.name(loop.results, None, stage)
            scope.block.add_op(scf.YieldOp(*loop.results))
            assert scope.parent is not None
            loop = self.loop(scope.block, *self.bounds_of(dim, bounds), start)
            scope.parent.block.add_op(loop)
        return loop.results

    def parallel(
        self, block: Block, lower: SSAValue, upper: SSAValue, start: Sequence[SSAValue] = ()
    ) -> scf.ParallelOp:
        return scf.ParallelOp([lower], [upper], [self.root.index_constant(1)], Region(block), start)

    def loop(
        self, block: Block, lower: SSAValue, upper: SSAValue, start: Sequence[SSAValue] = (), step: int = 1
    ) -> scf.ForOp:
        return scf.ForOp(lower, upper, self.root.index_constant(step), list(start), Region(block))

    def _reduce_once(self, stage: Stage, scope: Scope, accumulators: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """A loop of one iteration, without the loop."""
        self.emitter.emit(stage.roots(), scope, stage)
        elements = [self.emitter.reduced_element(point, scope) for point in stage.reductions]
        self.store(stage.stores, scope)
        pairs = zip(stage.reductions, accumulators, elements, strict=True)
        return [self.combine(scope, point, start, element) for point, start, element in pairs]

    def stage_work(self, stage: Stage) -> int:
        """Simple operations for an element of the stage."""
        work = len(stage.stores) + len(stage.reductions) + len(stage.left)
        seen: set[Point] = set()
        stack = stage.roots()
        while stack:
            point = stack.pop()
            if point in seen or not self.points.varies(point, stage.dims):
                continue
            seen.add(point)
            if point in stage.taken or point.op is None:
                work += 1
            else:
                work += body_cost(point.op)
                stack.extend(point.operands)
        return work

    def initial(self, point: Point) -> SSAValue:
        """What a reduction starts from, which is neutral to it."""
        assert point.op is not None
        return self.root.constant(point.op.initial(), point.op.body().dtype)

    def combine(self, scope: Scope, point: Point, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        """Two values of a reduction joined."""
        assert point.op is not None
        return emit_combine(scope, point.op.COMBINE, point.op.body().dtype, lhs, rhs)

    def store(self, stores: Sequence[Store], scope: Scope) -> None:
        for store in stores:
            address = self.points.space.apply(store.address)
            self.emitter.store(store.point, self.arguments[self.memory.targets[store.result]], address, scope)

    def name(self, values: Sequence[SSAValue], dim: Dim | None, stage: Stage) -> None:
        hints = [point.value.name_hint for point in stage.reductions]
        for value, hint in zip(values, hints if dim is None else [loop_name(dim), *hints], strict=False):
            value.name_hint = hint


def loop_name(dim: Dim) -> str:
    return {"i": "i", "r": "row", "c": "column"}.get(dim.name[:1], "i")


def _combiner(point: Point, element: SSAValue) -> Region:
    assert point.op is not None
    block = Block(arg_types=[element.type, element.type])
    scope = Scope(None, block)
    joined = emit_combine(scope, point.op.COMBINE, point.op.body().dtype, *block.args)
    block.add_op(scf.ReduceReturnOp(joined))
    return Region(block)
