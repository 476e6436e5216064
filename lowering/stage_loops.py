"""One stage of a pass as a loop nest: the innermost loop is parallel, those around it carry the stage's reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Region, SSAValue

from ..dialects.index_expr import Dim, IndexExpr
from ..dialects.pull import Point, Store
from .kernel_buffers import KernelBuffers
from .kernel_points import KernelPoints, PointEmitter, Stage, body_cost
from .loop_builder import INDEX, Scope
from .loop_parts import Fixed
from .loop_space import as_expr
from .scalar_ops import emit_combine

STRIPS = 4
"""Parts of a long loop that run side by side."""
STRIP_MULTIPLE = 16
"""Elements; strips begin at multiples."""
LONG_LOOP = 256
LIGHT_WORK = 8
"""Simple operations of an iteration that are done before the next value of its accumulator is known."""

Range = tuple[SSAValue, SSAValue]
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
        results = self._reduce_innermost(stage, scopes[-1], bounds, accumulators)
        for scope, dim, start in zip(scopes[:0:-1], stage.dims[-2::-1], reversed(starts), strict=True):
            self.name(results, None, stage)
            scope.block.add_op(scf.YieldOp(*results))
            assert scope.parent is not None
            loop = self.loop(scope.block, *self.bounds_of(dim, bounds), start)
            scope.parent.block.add_op(loop)
            results = loop.results
        return results

    def _reduce_innermost(
        self, stage: Stage, outer: Scope, bounds: Bounds, start: Sequence[SSAValue]
    ) -> Sequence[SSAValue]:
        """The innermost loop of a stage. A long one with little to do takes several strips side by side: with one
        accumulator each iteration would wait for the one before."""
        last = stage.dims[-1]
        lower, upper = self.bounds_of(last, bounds)
        if not stage.reductions or last.extent < LONG_LOOP or self.stage_work(stage) > LIGHT_WORK:
            return self._reduce_strips(stage, outer, (lower, upper), start, [as_expr(last)])
        first, strip = as_expr(Dim(f"{last.name}_first", last.extent)), Dim("strip", last.extent)
        constant = self.root.index_constant
        if last in bounds:
            length = outer.add(arith.SubiOp(upper, lower))
            groups = outer.add(arith.DivSIOp(length, constant(STRIPS * STRIP_MULTIPLE)))
            outer.indices[strip] = size = outer.add(arith.MuliOp(groups, constant(STRIP_MULTIPLE)))
            size.name_hint = "strip"
            places = [first + as_expr(strip) * number for number in range(STRIPS)]
            middle = outer.add(arith.AddiOp(lower, size))
            rest = outer.add(arith.AddiOp(lower, outer.add(arith.MuliOp(size, constant(STRIPS)))))
        else:
            whole = last.extent // (STRIPS * STRIP_MULTIPLE) * STRIP_MULTIPLE
            places = [first + whole * number for number in range(STRIPS)]
            middle, rest = constant(whole), constant(whole * STRIPS)
        results = self._reduce_strips(stage, outer, (lower, middle), start, places)
        if last in bounds or last.extent % (STRIPS * STRIP_MULTIPLE):
            return self._reduce_strips(stage, outer, (rest, upper), results, [as_expr(last)])
        return results

    def _reduce_strips(
        self, stage: Stage, outer: Scope, bounds: Range, start: Sequence[SSAValue], places: Sequence[IndexExpr]
    ) -> Sequence[SSAValue]:
        """A parallel loop that takes the elements at these places in each iteration, with accumulators for each place."""
        last = stage.dims[-1]
        block = Block(arg_types=[INDEX])
        self.name(block.args, last, stage)
        copies: list[Scope] = [Scope(outer, block, {last: block.args[0]})]
        if len(places) > 1:
            scope = Scope(outer, block, {Dim(f"{last.name}_first", last.extent): block.args[0]})
            copies = [Fixed(scope, {last: place}) for place in places]
        for copy in copies:
            self.emitter.emit(stage.roots(), copy, stage)
        pairs = [(point, self.emitter.reduced_element(point, copy)) for copy in copies for point in stage.reductions]
        for copy in copies:
            self.store(stage.stores, copy)
        block.add_op(scf.ReduceOp([e for _, e in pairs], [_combiner(point, e) for point, e in pairs]))
        others = [self.initial(point) for point in stage.reductions] * (len(places) - 1)
        loop = self.parallel(block, *bounds, [*start, *others])
        outer.block.add_op(loop)
        values, width = list(loop.results), len(stage.reductions)
        while len(values) > width:
            half = len(values) // 2
            joined = zip(stage.reductions * (half // width), values[:half], values[half:], strict=True)
            values = [self.combine(outer, point, lhs, rhs) for point, lhs, rhs in joined]
        return values

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

    def bounds_of(self, dim: Dim, bounds: Bounds) -> Range:
        """First value and the one after the last."""
        return bounds.get(dim) or (self.root.index_constant(0), self.root.index_constant(dim.extent))

    def parallel(
        self, block: Block, lower: SSAValue, upper: SSAValue, start: Sequence[SSAValue] = ()
    ) -> scf.ParallelOp:
        return scf.ParallelOp([lower], [upper], [self.root.index_constant(1)], Region(block), start)

    def loop(
        self, block: Block, lower: SSAValue, upper: SSAValue, start: Sequence[SSAValue] = (), step: int = 1
    ) -> scf.ForOp:
        return scf.ForOp(lower, upper, self.root.index_constant(step), list(start), Region(block))


def loop_name(dim: Dim) -> str:
    return {"i": "i", "r": "row", "c": "column"}.get(dim.name[:1], "i")


def _combiner(point: Point, element: SSAValue) -> Region:
    assert point.op is not None
    block = Block(arg_types=[element.type, element.type])
    scope = Scope(None, block)
    joined = emit_combine(scope, point.op.COMBINE, point.op.body().dtype, *block.args)
    block.add_op(scf.ReduceReturnOp(joined))
    return Region(block)
