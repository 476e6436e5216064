"""Rows that are too few for a device: several blocks share one, and what they reduce is joined by the launches after it.

A launch for each stage: its blocks write partial results to scratch memory in the arena, and those of later launches read
all partial results of their row first. So no launch waits for another inside, there are no atomics, and the result is the
same in every run: how many parts there are depends on the kernel and the device alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.dialects.types.extents import exact_quotient
from fuse_opt.dialects.types.index_expr import IndexExpr, dimension
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.gpu.columns import column_team
from fuse_opt.lowering.gpu.context import GpuParts, Grid, usual
from fuse_opt.lowering.gpu.moments import LARGEST, MomentsOfRow, about_mean, plan_moments
from fuse_opt.lowering.gpu.reduce import RowReducer, combine
from fuse_opt.lowering.gpu.rows import RowPlan
from fuse_opt.lowering.gpu.scope import WARP, KernelScope, Values, loop, named, when
from fuse_opt.lowering.gpu.stages import RowPart, RowStages, Team
from fuse_opt.lowering.kernel.buffers import Scratch
from fuse_opt.lowering.kernel.element_emitter import Stage
from fuse_opt.lowering.kernel.iteration_space import Dim, extent
from fuse_opt.lowering.kernel.loop_splitting import part_length
from fuse_opt.lowering.kernel.moments import Moments, float_of
from fuse_opt.lowering.kernel.row_stages import early_stores, nodes_below
from fuse_opt.lowering.kernel.scalar_to_arith import value_type
from fuse_opt.lowering.kernel.scope import Scope

THREADS = 256
VALUES_OF_THREAD = 16
"""Elements that each thread of a part must have."""
MOST_SPLITS = 256
WIDE_RESIDENT = 1024
"""Threads of a processor that are enough where each has so many loads under way as a wide split unrolls."""
WIDE_UNROLL = 8
_ALIGNMENT = 256


@dataclass(frozen=True)
class Phase:
    """One launch: its body, its parameters after those of the kernel, and its grid."""

    scope: KernelScope
    grid: Grid
    note: str
    aligned: tuple[int, ...] = ()
    """Parameters that must begin where vectors may."""


@dataclass
class _Partials:
    """Partial results of a reduction: `splits` times one of each row."""

    node: ScalarNode
    splits: int
    scratch: Scratch


def split_count(plan: RowPlan, shape: tuple[int, int], blocks: int, wide: bool = False) -> int:
    """Blocks that share a row, where `blocks` would do without; `wide` ones have loads enough under way to be few."""
    schedule = plan.parts.schedule
    if schedule.splits is not None:
        return min(schedule.splits, MOST_SPLITS * 4)
    if schedule.variant is not None or blocks >= schedule.limits.processors:
        return 1
    shortest = shape[1] * VALUES_OF_THREAD
    wanted = WIDE_RESIDENT // (shape[0] * shape[1]) if wide else 2
    # One launch more is little where nothing else depends on what is reduced, and a row of any length may be long.
    columns = usual(plan.columns) if len(plan.stages()) == 1 else plan.usual_columns
    return min(wanted * schedule.limits.processors // max(blocks, 1), columns // shortest, MOST_SPLITS)


def can_split(plan: RowPlan) -> bool:
    """Whether nothing that is stored once for a row must be read before another block overwrites it."""
    stages = plan.stages()
    if not stages or not stages[-1].stores or not plan.parts.in_place:
        return bool(stages)
    buffers = plan.parts.buffers
    overwritten = {buffers.targets[store.result] for store in stages[-1].stores}
    read: set[int] = set()
    for node in nodes_below(early_stores(plan.parts.nodes, plan.once, stages[-1])):
        if node.op is None and node.value in buffers.sources:
            read.add(buffers.sources[node.value])
    return read.isdisjoint(overwritten) and (read.isdisjoint(buffers.shared) or overwritten.isdisjoint(buffers.shared))


def reductions_below(roots: Iterable[ScalarNode]) -> set[ScalarNode]:
    """The reductions whose results the roots are made of."""
    return {node for node in nodes_below(roots) if node.op is not None and node.op.COMBINE}


@dataclass
class SplitKernel:
    """The launches of a kernel whose rows are shared by `splits` blocks; `shape`: rows of a block, threads of each."""

    parts: GpuParts
    plan: RowPlan
    shape: tuple[int, int]
    splits: int
    columns: bool
    """Whether neighbours in memory belong to other rows."""
    wide: bool = False
    """Whether loads of WIDE_UNROLL turns of the loop are under way together."""
    partials: list[_Partials] = field(default_factory=list[_Partials])
    moments: Moments = field(default_factory=dict[ScalarNode, ScalarNode])
    """Of the first two stages, which are one launch then."""
    part: Extent = 0
    """Elements of a part of these; the last one may have fewer."""
    _bytes: int = 0

    @property
    def scratch(self) -> list[Scratch]:
        return [partials.scratch for partials in self.partials]

    def build(self) -> list[Phase]:
        stages = self.plan.stages()
        self.moments = plan_moments(stages)
        width = 1 if self.columns else self.plan.width()
        lengths = [self._length(stage, width) for stage in stages]
        self.part = lengths[0]
        for stage, length in zip(stages, lengths, strict=True):
            for node in stage.reductions:
                self._add_partials(node, self._parts_of(stage, length))
        launches = [number for number in range(len(stages)) if not (self.moments and number == 1)]
        count = len(launches) + bool(self.plan.once)
        phases: list[Phase] = []
        for number in launches:
            phases.append(self._stage_phase(stages, number, lengths[number], width, (len(phases) + 1, count)))
        if self.plan.once:
            phases.append(self._last_phase(stages, count))
        return phases

    def _parts_of(self, stage: Stage, length: Extent) -> int:
        """How many there are."""
        if isinstance(length, int):  # of a number of columns
            return -(-extent(stage.dims) // length)
        return self.splits

    def _length(self, stage: Stage, width: int) -> Extent:
        multiple = 1 if self.columns else self.shape[1] * width
        if self.moments and self.columns:
            multiple = self.shape[1] * LARGEST  # whole batches
        return part_length(extent(stage.dims), self.splits, multiple)

    def _add_partials(self, node: ScalarNode, splits: int) -> None:
        kind = MemRefType(value_type(dtype(node.value)), [splits * self.plan.row.extent])
        scratch = Scratch(self._bytes, kind, node.value.name_hint)
        size = kind.element_count() * dtype(node.value).compute.itemsize
        self._bytes += -(-size // _ALIGNMENT) * _ALIGNMENT
        self.partials.append(_Partials(node, splits, scratch))

    def _stage_phase(
        self, stages: Sequence[Stage], number: int, length: Extent, width: int, launch: tuple[int, int]
    ) -> Phase:
        stage, splits = stages[number], max(self._parts_of(stages[number], length), 1)
        parts, kernel = self._open()
        block, split = kernel.block_number(), kernel.index_constant(0)
        if splits > 1:
            split = named(kernel.add(arith.RemUIOp(block, kernel.index_constant(splits))), "split")
            block = named(kernel.add(arith.DivUIOp(block, kernel.index_constant(splits))), "row")
        team = self._team(parts, block)
        part = RowPart(split, length)
        rows = RowStages(parts, team, False, part=part)
        self._join(rows, stages[:number], stage.roots())
        self._publish(rows, self._totals(parts, team, stage, width, part), split)
        note = f"split, launch {launch[0]} of {launch[1]}: {splits} blocks share a row, {self._said()}"
        return Phase(kernel, Grid(self._blocks() * splits, self._block()), note, tuple(parts.aligned))

    def _totals(
        self, parts: GpuParts, team: Team, stage: Stage, width: int, part: RowPart
    ) -> Mapping[ScalarNode, SSAValue]:
        """What the reductions of a launch come to over a part of a row."""
        kernel, rows = parts.kernel, RowStages(parts, team, False, width, part)
        if width > 1 and not ((memories := rows.memories([stage])) and parts.takes_vectors(memories)):
            rows = RowStages(parts, team, False, 1, part)
        rows.together = WIDE_UNROLL if self.wide else None
        if self._has_moments(stage):
            moments = MomentsOfRow(rows, stage, self.moments)
            return moments.total(kernel, moments.reduce(kernel))
        totals = rows.total(stage, rows.reduce(stage, kernel), kernel)
        return dict(zip(stage.reductions, totals, strict=True))

    def _has_moments(self, stage: Stage) -> bool:
        return not set(self.moments.values()).isdisjoint(stage.reductions)

    def _last_phase(self, stages: Sequence[Stage], launches: int) -> Phase:
        parts, kernel = self._open()
        rows = RowStages(parts, self._team(parts, kernel.block_number()), self.plan.settle)
        self._join(rows, stages, [store.node for store in self.plan.once])
        rows.store_once(kernel, self.plan.once)
        return Phase(
            kernel, Grid(self._blocks(), self._block()), f"split, launch {launches} of {launches}: {self._said()}"
        )

    def _join(self, rows: RowStages, stages: Sequence[Stage], roots: Sequence[ScalarNode]) -> None:
        """Makes the results of stages known that the roots need, whose parts earlier launches reduced."""
        needed = reductions_below(roots)
        needed |= {self.moments[node] for node in needed if node in self.moments}
        for stage in stages:
            nodes = [node for node in stage.reductions if node in needed]
            if nodes:
                for node, value in zip(nodes, self._joined(rows, nodes, stage), strict=True):
                    rows.emitter.define(node, value, rows.parts.kernel)

    def _joined(self, rows: RowStages, nodes: Sequence[ScalarNode], stage: Stage) -> Values:
        kernel, team = rows.parts.kernel, rows.team
        splits = self.partials[self._number(nodes[0])].splits
        count = Dim("part", splits)
        if splits == 1:
            kernel.indices[count] = kernel.index_constant(0)
            return [self._part(rows, node, kernel) for node in nodes]

        def body(scope: Scope, values: Values) -> Values:
            pairs = zip(nodes, values, strict=True)
            return [combine(scope, node, value, self._joinable(rows, node, stage, scope)) for node, value in pairs]

        starts = [rows.initial(node) for node in nodes]
        bounds = (team.number, kernel.index_constant(splits), kernel.index_constant(team.threads))
        totals = loop(kernel, bounds, starts, body, (count, "part"), [node.value.name_hint for node in nodes])
        return team.reducer.total(kernel, nodes, totals)

    def _joinable(self, rows: RowStages, node: ScalarNode, stage: Stage, scope: Scope) -> SSAValue:
        """A part's result, to be joined with others: squares are those about the mean of the row."""
        part = self._part(rows, node, scope)
        if (total := self.moments.get(node)) is None:
            return part
        kind, partials = dtype(node.value), self.partials[self._number(node)]
        mean = self._mean(rows, total, stage)
        counts = self._counts(scope, partials.splits, extent(stage.dims), kind)
        return about_mean(scope, (self._part(rows, total, scope), part), counts, mean)

    def _mean(self, rows: RowStages, total: ScalarNode, stage: Stage) -> SSAValue:
        kernel, kind = rows.parts.kernel, dtype(total.value)
        sum_, columns = rows.emitter.value(total, kernel), extent(stage.dims)
        if isinstance(columns, Size):
            count = float_of(kernel, kernel.index_constant(columns), kind)
            return kernel.made(("mean", total), lambda: arith.DivfOp(sum_, count))
        scale = kernel.constant(1.0 / columns, kind)
        return kernel.made(("mean", total), lambda: arith.MulfOp(sum_, scale))

    def _counts(self, scope: Scope, splits: int, elements: Extent, kind: DType) -> tuple[SSAValue, SSAValue]:
        """How many elements a part has, and one over that, which of an empty one is any number."""
        one, length = scope.constant(1.0, kind), self.part
        if isinstance(length, int) and exact_quotient(elements, length) is not None:
            return scope.constant(length, kind), scope.constant(1.0 / length, kind)
        constant = scope.index_constant
        before = scope.add(arith.MuliOp(scope.dim_value(Dim("part", splits)), constant(length)))
        rest = scope.add(arith.SubiOp(constant(elements), before))
        found = scope.add(arith.MinSIOp(rest, constant(length)))
        if isinstance(length, int):
            count = float_of(scope, found, kind)
            return count, scope.add(arith.DivfOp(one, count))
        count = float_of(scope, scope.add(arith.MaxSIOp(found, constant(0))), kind)
        divisor = float_of(scope, scope.add(arith.MaxSIOp(found, constant(1))), kind)
        return count, scope.add(arith.DivfOp(one, divisor))

    def _number(self, node: ScalarNode) -> int:
        return next(k for k, partials in enumerate(self.partials) if partials.node is node)

    def _part(self, rows: RowStages, node: ScalarNode, scope: Scope) -> SSAValue:
        number = self._number(node)
        place = self._place(dimension("part", self.partials[number].splits))
        memory = rows.parts.kernel.parameters[len(self.parts.buffers.types) + number]
        value = scope.add(memref.LoadOp.get(memory, [scope.index(place)]))
        value.name_hint = node.value.name_hint
        return value

    def _publish(self, rows: RowStages, totals: Mapping[ScalarNode, SSAValue], split: SSAValue) -> None:
        """One thread writes the partial results of its row."""
        if not totals:
            return
        kernel, team = rows.parts.kernel, rows.team
        first = kernel.add(arith.CmpiOp(team.number, kernel.index_constant(0), "eq"))
        if team.inside is not None:
            first = kernel.add(arith.AndIOp(first, team.inside))

        def store(scope: Scope, _: Values) -> Values:
            for node, value in totals.items():
                number = self._number(node)
                splits = self.partials[number].splits
                scope.indices[Dim("split", splits)] = split
                place = scope.index(self._place(dimension("split", splits)))
                memory = kernel.parameters[len(self.parts.buffers.types) + number]
                scope.block.add_op(memref.StoreOp.get(value, memory, [place]))
            return ()

        when(kernel, first, (), store)

    def _place(self, split: IndexExpr) -> IndexExpr:
        row = IndexExpr(((self.plan.row, 1),)) if self.plan.row.extent > 1 else IndexExpr()
        return split * self.plan.row.extent + row

    def _open(self) -> tuple[GpuParts, KernelScope]:
        kernel = KernelScope([*self.parts.buffers.types, *(scratch.type for scratch in self.scratch)])
        return replace(self.parts, kernel=kernel, aligned=[]), kernel

    def _team(self, parts: GpuParts, block: SSAValue) -> Team:
        if self.columns:
            return column_team(parts, self.plan, block, self.shape)
        parts.kernel.indices[self.plan.row] = block
        return Team(RowReducer(parts.kernel, self.shape[1]), parts.kernel.thread())

    def _blocks(self) -> int:
        return -(-self.plan.row.extent // self.shape[0])

    def _block(self) -> tuple[int, int]:
        return self.shape if self.columns else (self.shape[1], 1)

    def _said(self) -> str:
        rows, threads = self.shape
        return f"{threads} threads a row, {rows} a block"


def row_team_threads(plan: RowPlan) -> int:
    """Threads of a block that has a part of a row."""
    given = plan.parts.schedule.threads
    return THREADS if given is None else min(max(given, 2 * WARP), plan.parts.schedule.limits.max_threads)
