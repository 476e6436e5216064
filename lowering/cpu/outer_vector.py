"""The loops over lanes: whole rows that lie side by side, parts of them, or every element written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import nan

from xdsl.dialects import arith, memref, scf
from xdsl.ir import Block, Region, SSAValue

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.extents import is_number, least
from fuse_opt.dialects.types.index_expr import Clamp, Dim, IndexExpr, constant, linearize
from fuse_opt.lowering.cpu.line_loops import EIGHT, EIGHTS, FOURS, LANES, PAIRED, VECTORS, LineLoops, Way
from fuse_opt.lowering.cpu.outer_vector_stage import OuterVectorStages
from fuse_opt.lowering.cpu.split_reduction import in_pairs
from fuse_opt.lowering.kernel.element_emitter import RowBuffer, Stage, body_cost
from fuse_opt.lowering.kernel.iteration_space import as_expr, extent
from fuse_opt.lowering.kernel.loop_splitting import Fixed, part_bounds
from fuse_opt.lowering.kernel.moments import float_of
from fuse_opt.lowering.kernel.nan_analysis import is_extremum
from fuse_opt.lowering.kernel.row_stages import KeepRules, plan_kept_rows
from fuse_opt.lowering.kernel.scope import Scope

KEPT = 256 << 10
"""Bytes of a block of rows that several stages read, and of what one keeps for another: a second level cache has more."""
SHORT_WORK = 64
"""Simple operations of a lane that stands in the text twice, for rows of less lanes, too."""
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
        work = sum(extent(stage.dims) * self.stage_work(stage) for stage in stages)
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
        Rows of any number of lanes. Those of few lanes that are little work go by fours or eights that may overlap, or one lane
        after the other: a loop of vectors takes longer to begin.
        """
        geometry = self.geometry
        ways: list[Way] = [VECTORS]
        if least(geometry.lane.extent) < EIGHT and work <= SHORT_WORK:
            ways = [PAIRED if self._goes_by_pairs() else LANES, *ways]
            if self._goes_by_groups():
                ways = [replace(LANES, most=FOURS.group - 1), FOURS, replace(EIGHTS, most=geometry.width), VECTORS]
        self._build_ways(self.root, ways, stages, early)
        self.kernel.finish(self, geometry.outer.extent * geometry.blocks, work * geometry.width)

    def _goes_by_groups(self) -> bool:
        """Whether compilers make a vector of few lanes, each of which may be stored twice."""
        lane = self.geometry.lane
        addresses = (self.nodes.space.apply(node.address) for node in self.loop_body.loads())
        bounded = (atom for each in addresses for atom, _ in each.terms if not isinstance(atom, Dim))
        return (
            self._are_words()
            and not any(lane in IndexExpr(((atom, 1),)).dims() for atom in bounded)
            and not self.memory.in_place(self.loop_body)
        )

    def _goes_by_pairs(self) -> bool:
        """Whether lanes read an odd number of neighbours each, as far as rows go, and two lanes' are two apart."""
        lane = self.geometry.lane
        addresses = (self.nodes.space.apply(node.address) for node in self.loop_body.loads())
        bounded = (atom.value for each in addresses for atom, _ in each.terms if isinstance(atom, Clamp))
        steps = [affine for each in bounded if (affine := each.coefficients()) and lane in affine]
        odd = [
            any(by == 1 and is_number(dim.extent) and dim.extent % 2 == 1 for dim, by in affine.items())
            for affine in steps
        ]
        return self._are_words() and bool(steps) and all(odd) and all(affine[lane] == 2 for affine in steps)

    def _are_words(self) -> bool:
        """Whether all elements are words of 32 bits in memory."""
        return all(dtype(node.value).itemsize == 4 for node in self.loop_body.nodes)

    def _build_ways(
        self, holder: Scope, ways: Sequence[Way], stages: Sequence[Stage], early: Sequence[ScalarNode]
    ) -> None:
        """The first way for rows of as many lanes as it says, the next ones for others."""
        way, *rest = ways
        own = Scope(holder, Block()) if rest else holder
        loops = LineLoops(own, self.geometry, (self.begin, self.end), way)
        self._write_out(stages, early, loops.lane, loops.known)
        loops.close(self._are_words())
        if not rest:
            return
        others = Scope(holder, Block())
        self._build_ways(others, rest, stages, early)
        for scope in (own, others):
            scope.block.add_op(scf.YieldOp())
        is_own = way.holds(holder, self.geometry.lane.extent)
        holder.block.add_op(scf.IfOp(is_own, [], Region(own.block), Region(others.block)))

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
        if is_extremum(node) and node not in self.without_nan and len(elements) > 2:
            return self._extremum(node, elements, scope)
        value = self.tree(scope, node, elements)
        return self.combine(scope, node, value, self.initial(node)) if is_float_sum(node) else value

    def _extremum(self, node: ScalarNode, elements: Sequence[SSAValue], scope: Scope) -> SSAValue:
        """
        The greatest or least of floats. That one is NaN is asked of two at a time and apart: less work than extrema of two
        that look for it, above all where compilers make no vectors.
        """
        assert node.op is not None
        pairs = zip(elements[::2], (*elements[1::2], elements[-1]), strict=False)
        unordered = [scope.add(arith.CmpfOp(*pair, "uno")) for pair in pairs]
        is_nan = in_pairs(unordered, lambda a, b: scope.add(arith.OrIOp(a, b)))
        found = in_pairs(elements, partial(self.further, scope, node))
        return scope.add(arith.SelectOp(is_nan, scope.constant(nan, node.op.body().dtype), found))


def is_float_sum(node: ScalarNode) -> bool:
    """Whether it is a sum of floats."""
    return node.op is not None and node.op.COMBINE == "add" and dtype(node.value).compute.is_float
