"""Sums, and squares about their means, of rows that lie side by side: one way through memory, accumulators in registers.

A task goes through its part of what is reduced once for each strip of lanes. Elements are taken relative to a point near
the part's mean, the mean of eight of them, and both sums are moved to the mean afterwards (Chan, Golub and LeVeque 1983:
algorithms for computing the sample variance). As the eight are elements of the part, squares about the point are at most
1 + n / 8 times those about the mean, n being the part's length: 1.1 times where the eight are like the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, memref, scf
from xdsl.ir import Block, SSAValue

from ..dialects.graph_op import dtype
from ..dialects.index_expr import Dim, IndexExpr, constant
from ..dialects.pull import Point
from .kernel_points import KernelPoints, RowBuffer, Stage
from .lane_loops import Geometry, Lanes
from .loop_builder import INDEX, Scope
from .loop_parts import Fixed, part_bounds, task_parts
from .loop_space import as_expr, extent
from .moments import Moments, float_of
from .phases import PhasedKernel
from .stage_loops import Bounds, Range

STRIPS = (128, 64, 32)
"""Lanes that are taken together: vector registers hold their accumulators."""
LONGEST_PART = 128
"""Elements of a lane in a part."""
NEAR = 8
"""Elements of a part whose mean is taken for the part's at first."""
AT_A_TIME = 4
"""Elements of a lane that one iteration takes."""


def strip_width(lanes: int) -> int | None:
    """Lanes of a strip, for so many in a row."""
    return next((strip for strip in STRIPS if lanes % strip == 0), None)


class MomentLanes(Lanes):
    """The launch over parts; `geometry` has the width of a strip."""

    def __init__(self, phased: PhasedKernel, points: KernelPoints, geometry: Geometry) -> None:
        super().__init__(phased, points, geometry)
        self.start, self.strip = Dim("start", geometry.lane.extent), Dim("strip", geometry.width)
        self.lane_place = {geometry.lane: as_expr(self.start) + as_expr(self.strip)}

    def build_strips(self, stage: Stage, longest: Dim, part: int, width: int, moments: Moments) -> None:
        """Leaves the sums of each part, and its squares about its mean; a task takes `width` lanes."""
        geometry, lanes, task = self.geometry, self.geometry.lane.extent, self.task
        splits, blocks = -(-longest.extent // part), -(-lanes // width)
        digits = task_parts(task, self.root, task.block.args[0], (geometry.outer.extent, splits, blocks))
        task.indices = {geometry.outer: digits[0], Dim("split", splits): digits[1]}
        bounds = {longest: part_bounds(task, digits[1], part, longest.extent)}
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = "start"
        strip = self.task = Scope(task, block, {self.start: block.args[0]})
        self._build_strip(stage, bounds, self._near(task, stage, longest, bounds[longest], part), moments)
        block.add_op(scf.YieldOp())
        task.block.add_op(self.loop(strip.block, *part_bounds(task, digits[2], width, lanes), step=geometry.width))
        task.block.add_op(scf.YieldOp())
        self.root.block.add_op(self.loop(task.block, self.begin, self.end))
        elements = extent(stage.dims) // max(longest.extent, 1) * part
        self.kernel.finish(
            self, geometry.outer.extent * splits * blocks, elements * width * (self.stage_work(stage) + 4)
        )

    def _near(self, task: Scope, stage: Stage, longest: Dim, bounds: Range, part: int) -> list[dict[Dim, IndexExpr]]:
        """Where elements are that lie all over a part; its last one again where it is shorter than others."""
        first, last = bounds
        number_of, short = self.root.index_constant, longest.extent % part or part
        fixed = {dim: constant(0) for dim in stage.dims if dim != longest}
        places: list[dict[Dim, IndexExpr]] = []
        for number in range(NEAR):
            offset, place = number * max(part // NEAR, 1), first
            if number:
                place = task.add(arith.AddiOp(first, number_of(offset)))
            if offset >= short:
                place = task.add(arith.MinSIOp(place, task.add(arith.SubiOp(last, number_of(1)))))
            dim = Dim(f"near{number}", longest.extent)
            task.indices[dim] = place
            places.append({**fixed, longest: as_expr(dim)})
        return places

    def _build_strip(
        self, stage: Stage, bounds: Bounds, near: Sequence[dict[Dim, IndexExpr]], moments: Moments
    ) -> None:
        """All of a part for the lanes of a strip."""
        self._settle(self._to_settle(stage))
        stage.taken.update(self.known)
        about = self._begin(stage, near, moments)
        scopes = [self.task]
        for dim in stage.dims[:-1]:
            block = Block(arg_types=[INDEX])
            self.name(block.args, dim, stage)
            scopes.append(Scope(scopes[-1], block, {dim: block.args[0]}))
        self._go_along(stage, scopes[-1], bounds, about, moments)
        for scope, dim in zip(scopes[:0:-1], stage.dims[-2::-1], strict=True):
            assert scope.parent is not None
            scope.block.add_op(scf.YieldOp())
            scope.parent.block.add_op(self.loop(scope.block, *self.bounds_of(dim, bounds)))
        self._to_means(stage, bounds, about, moments)
        self._leave([*stage.reductions, *moments])

    def _begin(self, stage: Stage, near: Sequence[dict[Dim, IndexExpr]], moments: Moments) -> dict[Point, RowBuffer]:
        """Zeros in all accumulators; by sum, a point near its mean, and 0 where that is not finite."""
        about = {total: RowBuffer(self._buffer(total, 1, "near"), self.geometry.local) for total in stage.reductions}
        for point in (*stage.reductions, *moments):
            self.known[point] = RowBuffer(self._buffer(point, 1, "lanes"), self.geometry.local)
        scope = self._open_lanes(self.task)
        self.emitter.emit(self._taken_by_lane(stage), scope, stage)
        copies = [Fixed(scope, {**place, **self.lane_place}) for place in near]
        for copy in copies:
            self.emitter.emit(stage.roots(), copy, stage)
        for total, row in about.items():
            kind = dtype(total.value).compute
            value = self._tree(scope, total, [self.emitter.reduced_element(total, copy) for copy in copies])
            mean = scope.add(arith.MulfOp(value, scope.constant(1 / NEAR, kind)))
            zero = scope.constant(0.0, kind)
            finite = scope.add(arith.CmpfOp(scope.add(arith.SubfOp(mean, mean)), zero, "oeq"))
            self._put(scope.add(arith.SelectOp(finite, mean, zero)), row, scope)
        for point in (*stage.reductions, *moments):
            self._put(scope.constant(0.0, dtype(point.value).compute), self.known[point], scope)
        self._close_lanes(scope)
        return about

    def _go_along(
        self, stage: Stage, parent: Scope, bounds: Bounds, about: dict[Point, RowBuffer], moments: Moments
    ) -> None:
        """The loop over the last dimension."""
        dim = stage.dims[-1]
        block = Block(arg_types=[INDEX])
        self.name(block.args, dim, stage)
        lanes = self._open_lanes(Scope(parent, block, {dim: block.args[0]}))
        self.emitter.emit([*self._taken_by_lane(stage), *stage.roots()], lanes, stage)
        for total in stage.reductions:
            apart = lanes.add(arith.SubfOp(self.emitter.reduced_element(total, lanes), self._load(about[total], lanes)))
            self._add(total, apart, lanes)
            for square, of in moments.items():
                if of is total:
                    self._add(square, lanes.add(arith.MulfOp(apart, apart)), lanes)
        self._close_lanes(lanes)
        block.add_op(scf.YieldOp())
        parent.block.add_op(self.loop(block, *self.bounds_of(dim, bounds)))

    def _add(self, point: Point, value: SSAValue, scope: Scope) -> None:
        row = self.known[point]
        self._put(scope.add(arith.AddfOp(self._load(row, scope), value)), row, scope)

    def _to_means(self, stage: Stage, bounds: Bounds, about: dict[Point, RowBuffer], moments: Moments) -> None:
        """From sums about the points to sums, and to squares about means."""
        scope, count = self._open_lanes(self.task), self._count(stage, bounds)
        for total in stage.reductions:
            number = float_of(self.task, count, dtype(total.value).compute)
            inverse = self.task.add(arith.DivfOp(self.task.constant(1.0, dtype(total.value).compute), number))
            apart = self._load(self.known[total], scope)
            between = scope.add(arith.MulfOp(apart, scope.add(arith.MulfOp(apart, inverse))))
            for square, of in moments.items():
                if of is total:
                    value = self._load(self.known[square], scope)
                    self._put(scope.add(arith.SubfOp(value, between)), self.known[square], scope)
            moved = scope.add(arith.MulfOp(self._load(about[total], scope), number))
            self._put(scope.add(arith.AddfOp(moved, apart)), self.known[total], scope)
        self._close_lanes(scope)

    def _count(self, stage: Stage, bounds: Bounds) -> SSAValue:
        """Elements of a lane in the part."""
        ((longest, (first, last)),) = bounds.items()
        count = self.task.add(arith.SubiOp(last, first))
        others = extent(stage.dims) // max(longest.extent, 1)
        return self.task.add(arith.MuliOp(count, self.root.index_constant(others))) if others > 1 else count

    def _put(self, value: SSAValue, row: RowBuffer, scope: Scope) -> None:
        scope.block.add_op(memref.StoreOp.get(value, row.memory, [scope.index(row.position)]))

    def _open_lanes(self, parent: Scope) -> Scope:
        """A loop over the lanes of a strip, counted from its first: its length is known to compilers."""
        geometry = self.geometry
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = "lane"
        scope = Fixed(Scope(parent, block, {self.strip: block.args[0]}), self.lane_place)
        scope.indices[Dim("lane", geometry.width)] = block.args[0]
        return scope

    def _close_lanes(self, scope: Scope) -> None:
        assert scope.parent is not None and scope.parent.parent is not None
        scope.block.add_op(scf.ReduceOp())
        constant_of = self.root.index_constant
        loop = self.parallel(scope.block, constant_of(0), constant_of(self.geometry.width))
        scope.parent.parent.block.add_op(loop)
