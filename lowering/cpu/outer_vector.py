"""The loops over lanes: whole rows that lie side by side, parts of them, or every element written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IntegerAttr, UnitAttr
from xdsl.ir import Block, Region, SSAValue

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.extents import estimate, is_number, least
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr, constant, linearize
from fuse_opt.lowering.cpu.outer_vector_stage import Geometry, OuterVectorStages
from fuse_opt.lowering.cpu.stages.loop_parts import Range
from fuse_opt.lowering.cpu.stages.stage import StageLoops
from fuse_opt.lowering.hints import SCALAR, SIDE_BY_SIDE
from fuse_opt.lowering.kernel.element_emitter import RowBuffer, Stage, body_cost
from fuse_opt.lowering.kernel.iteration_space import as_expr, extent
from fuse_opt.lowering.kernel.loop_splitting import Fixed, part_bounds
from fuse_opt.lowering.kernel.moments import float_of
from fuse_opt.lowering.kernel.row_stages import KeepRules, plan_kept_rows
from fuse_opt.lowering.kernel.scope import INDEX, Scope

KEPT = 256 << 10
"""Bytes of a block of rows that several stages read, and of what one keeps for another: a second level cache has more."""
SHORT_WORK = 64
"""Simple operations of a lane that stands in the text twice, for rows of less lanes, too."""
SHORT = 8
"""Lanes of a row, of which nobody knows how many there are, that are a vector's."""
COSTLY = 8
"""Simple operations from which on a scalar is kept for a later stage rather than computed again."""


class OuterVectors(OuterVectorStages):
    """A launch over blocks of lanes that goes through some stages of them."""

    def build_whole(self, stages: Sequence[Stage], early: Sequence[ScalarNode]) -> None:
        """All stages of a block of rows, then what is stored once for a row."""
        self._open(1)
        width = self.geometry.width
        room = KEPT // max(width, 1)
        rules = KeepRules(costly=COSTLY, largest=room, room=room, along=self.geometry.lane, long_rows=True)
        for kept in plan_kept_rows(self.nodes, list(stages), rules):
            if not is_number(extent(kept.dims)):
                continue  # nobody knows how much memory that takes: it is computed again
            memory = self._buffer(kept.node, extent(kept.dims), "kept")
            place = linearize(tuple(map(as_expr, kept.dims)), [dim.extent for dim in kept.dims]) * width
            row = RowBuffer(memory, place + self.geometry.local)
            kept.source.left[kept.node] = row
            for reader in kept.readers:
                reader.taken[kept.node] = row
        for stage in stages:
            if stage is stages[-1]:
                self._settle(early)
            self._build_stage(stage, {})
            self._round(stage.reductions)
        if once := self.kernel.once():
            scope = self._open_lanes(self.task)
            self.emitter.emit([store.node for store in once], scope, Stage((), taken=self.known))
            self.store(once, scope)
            self._close_lanes(scope)
        work = sum(estimate(extent(stage.dims)) * self.stage_work(stage) for stage in stages)
        self._close(work + sum(body_cost(p.op) for p in self.loop_body.nodes if p.op and not p.op.COMBINE), 1)

    def build_part(self, stage: Stage, longest: Dim, part: int) -> None:
        """One stage for a part of what it reduces."""
        for node, memory in self.parts.items():
            if node not in stage.reductions:
                self.known[node] = RowBuffer(memory, self.geometry.row)
        bounds, splits = self._open_part(stage, longest, part)
        self._build_stage(stage, bounds)
        self._leave(stage.reductions)
        work = extent(stage.dims) // max(longest.extent, 1) * part * self.stage_work(stage)
        self._close(work, splits)

    def build_moments(self, stages: Sequence[Stage], longest: Dim, part: int) -> None:
        """Sums over a part, then sums of squares about their means there: a sum counts for the second stage as if all
        parts were like this one."""
        bounds, splits = self._open_part(stages[0], longest, part)
        self._build_stage(stages[0], bounds)
        self._leave(stages[0].reductions)
        first, last = bounds[longest]
        size = self.task.add(arith.SubiOp(last, first))
        element = dtype(stages[0].reductions[0].value)
        counts = [float_of(self.task, number, element) for number in (self.root.index_constant(longest.extent), size)]
        ratio = self.task.add(arith.DivfOp(counts[0], counts[1]))
        scope = self._open_lanes(self.task)
        for node in stages[0].reductions:
            row = self.known[node]
            scaled = scope.add(arith.MulfOp(self._load(row, scope), ratio))
            scope.block.add_op(memref.StoreOp.get(scaled, row.memory, [scope.index(row.position)]))
        self._close_lanes(scope)
        self._build_stage(stages[1], bounds)
        self._leave(stages[1].reductions)
        work = extent(stages[0].dims) // max(longest.extent, 1) * part * sum(map(self.stage_work, stages))
        self._close(work, splits)

    def _open_part(self, stage: Stage, longest: Dim, part: int) -> tuple[dict[Dim, tuple[SSAValue, SSAValue]], int]:
        """The bounds of a task's part, and how many parts there are."""
        split = Dim("split", max(-(-longest.extent // part), 1))
        number = self._open(split.extent)
        return {longest: part_bounds(self.task, number, part, longest.extent)} if stage.dims else {}, split.extent

    def _leave(self, reductions: Sequence[ScalarNode]) -> None:
        """Stores what a part of the lanes came to for those who join it."""
        if not reductions:
            return
        scope = self._open_lanes(self.task)
        for node in reductions:
            partials = self.kernel.partials[node]
            place = partials.position.substitute({Dim("row", self.geometry.rows): self.geometry.row})
            value = self._load(self.known[node], scope)
            scope.block.add_op(memref.StoreOp.get(value, self.parts[node], [scope.index(place)]))
        self._close_lanes(scope)

    def build_written_out(self, stages: Sequence[Stage], early: Sequence[ScalarNode]) -> None:
        """All stages of each lane, with every element that is reduced written out."""
        nodes = sum(body_cost(p.op) if p.op else 1 for p in self.loop_body.nodes)
        work = nodes * max((extent(stage.dims) for stage in stages), default=1)
        if not is_number(self.geometry.lane.extent):
            self._build_lines(stages, early, work)
            return
        self._open(1)
        scope = self._open_lanes(self.task)
        self._write_out(stages, early, scope, {})
        self._close_lanes(scope)
        self._close(work, 1)

    def _build_lines(self, stages: Sequence[Stage], early: Sequence[ScalarNode], work: int) -> None:
        """
        Rows of any number of lanes. Short ones, where a lane is little work, go one lane after the other: a loop that is a
        vector's takes longer to begin.
        """
        geometry, root, tasks = self.geometry, self.root, (self.begin, self.end)
        has_short = least(geometry.lane.extent) < SHORT and work <= SHORT_WORK
        others = Scope(root, Block()) if has_short else root
        loops = LineLoops(others, geometry, tasks, geometry.blocks)
        self._write_out(stages, early, loops.lane, loops.known)
        loops.close(self, is_scalar=False)
        if has_short:
            short = Scope(root, Block())
            loops = LineLoops(short, geometry, tasks, 1)
            self._write_out(stages, early, loops.lane, loops.known)
            loops.close(self, is_scalar=True)
            lanes, most = root.index_constant(geometry.lane.extent), root.index_constant(SHORT - 1)
            is_short = root.add(arith.CmpiOp(lanes, most, "sle"))
            for scope in (short, others):
                scope.block.add_op(scf.YieldOp())
            root.block.add_op(scf.IfOp(is_short, [], Region(short.block), Region(others.block)))
        self.kernel.finish(self, geometry.outer.extent * geometry.blocks, work * geometry.width)

    def _write_out(
        self, stages: Sequence[Stage], early: Sequence[ScalarNode], lane: Scope, known: Mapping[Dim, IndexExpr]
    ) -> None:
        """All stages of a lane in its scope, where some dimensions are known by others."""
        scope = Fixed(lane, known)
        made: dict[tuple[tuple[Dim, int], ...], Fixed] = {}
        once = self.kernel.once()
        for stage in stages:
            if stage is stages[-1]:
                self.emitter.emit(early, scope)
            places = [tuple(zip(stage.dims, at, strict=True)) for at in product(*(range(d.extent) for d in stage.dims))]
            for place in places:
                if place not in made:
                    made[place] = Fixed(scope, {**known, **{dim: constant(value) for dim, value in place}})
                self.emitter.emit(stage.roots(), made[place])
            for node in stage.reductions:
                elements = [self.emitter.reduced_element(node, made[place]) for place in places]
                self.emitter.define(node, self._written_out(node, elements, scope), scope)
            for place in places:
                self.store(stage.stores, made[place])
        self.emitter.emit([store.node for store in once], scope)
        self.store(once, scope)

    def _written_out(self, node: ScalarNode, elements: Sequence[SSAValue], scope: Scope) -> SSAValue:
        """All elements joined, behind what a reduction starts from where that shows: 0 + -0 is 0."""
        if not elements:
            return self.initial(node)
        value = self.tree(scope, node, elements)
        return self.combine(scope, node, value, self.initial(node)) if is_float_sum(node) else value


def is_float_sum(node: ScalarNode) -> bool:
    """Whether it is a sum of floats."""
    return node.op is not None and node.op.COMBINE == "add" and dtype(node.value).compute.is_float


class LineLoops:
    """
    Rows of any number of lanes, of at most so many blocks, in loops that count what a task's number would be divided by:

        scf.for %task = %begin to %end { %row = %task floordiv %blocks; %y = %row mod %height; ... }

    becomes

        scf.for %plane = %begin floordiv (%height * %blocks) to ... {
          scf.for %line = ... { scf.for %lane = %first to %last { ... } }
        }

    where lanes of neighbouring tasks are one loop. They are open until they are closed.
    """

    def __init__(self, holder: Scope, geometry: Geometry, tasks: Range, blocks: int) -> None:
        """They are put into the `holder`, for those of the tasks within the bounds."""
        inner = geometry.inner
        plane, line = Dim("plane", geometry.outer.extent // inner), Dim("line", inner)
        self.known: Mapping[Dim, IndexExpr] = {geometry.outer: as_expr(plane) * inner + as_expr(line)}
        """What the number of a row is made of."""
        size, constant = inner * blocks, holder.root.index_constant
        first = holder.add(arith.DivSIOp(tasks[0], constant(size)))
        self._planes = first, _ceiling(holder, tasks[1], size)
        planes = _counted(holder, plane)
        before = planes.add(arith.MuliOp(planes.indices[plane], constant(size)))
        begin, end = (planes.add(arith.SubiOp(each, before)) for each in tasks)
        begin = planes.add(arith.MaxSIOp(begin, constant(0)))
        end = planes.add(arith.MinSIOp(end, constant(size)))
        lines = _counted(planes, line)
        if blocks == 1:
            self._lines = begin, end
            self._lanes = constant(0), constant(geometry.lane.extent)
        else:
            self._lines = planes.add(arith.DivSIOp(begin, constant(blocks))), _ceiling(planes, end, blocks)
            row = lines.add(arith.MuliOp(lines.indices[line], constant(blocks)))
            width = constant(geometry.width)
            first, last = (lines.add(arith.SubiOp(each, row)) for each in (begin, end))
            first = lines.add(arith.MuliOp(lines.add(arith.MaxSIOp(first, constant(0))), width))
            last = lines.add(arith.MinSIOp(lines.add(arith.MuliOp(last, width)), constant(geometry.lane.extent)))
            self._lanes = first, last
        self.lane = _counted(lines, geometry.lane, "lane")
        """The scope of a lane."""

    def close(self, loops: StageLoops, is_scalar: bool) -> None:
        """With `is_scalar` compilers make no vectors of lanes, else short ones of what is in memory as words of 32 bits."""
        are_words = all(dtype(node.value).itemsize == 4 for node in loops.loop_body.nodes)
        lanes, lines = self.lane, self.lane.parent
        assert lines is not None and lines.parent is not None and lines.parent.parent is not None
        planes, holder = lines.parent, lines.parent.parent
        if is_scalar:
            lanes.block.add_op(scf.YieldOp())
            lines.block.add_op(lane := loops.loop(lanes.block, *self._lanes))
            lane.attributes[SCALAR] = UnitAttr()
        else:
            lanes.block.add_op(scf.ReduceOp())
            lines.block.add_op(lane := loops.parallel(lanes.block, *self._lanes))
            if are_words:
                lane.attributes[SIDE_BY_SIDE] = IntegerAttr(SHORT, 64)
        lines.block.add_op(scf.YieldOp())
        planes.block.add_ops([loops.loop(lines.block, *self._lines), scf.YieldOp()])
        holder.block.add_op(loops.loop(planes.block, *self._planes))


def _ceiling(scope: Scope, value: SSAValue, divisor: int) -> SSAValue:
    """A value that is not negative divided by an extent, rounded up."""
    constant = scope.root.index_constant
    return scope.add(arith.DivSIOp(scope.add(arith.AddiOp(value, constant(divisor - 1))), constant(divisor)))


def _counted(parent: Scope, dim: Dim, name: str = "") -> Scope:
    """The scope of a loop over a dimension."""
    block = Block(arg_types=[INDEX])
    block.args[0].name_hint = name or dim.name
    return Scope(parent, block, {dim: block.args[0]})
