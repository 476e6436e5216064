"""Rows that are too few for a device: several blocks share one, and what they reduce is joined by the launches after it.

A launch for each stage: its blocks write partial results to scratch memory in the arena, and those of later launches read
all partial results of their row first. So no launch waits for another inside, there are no atomics, and the result is the
same in every run: how many parts there are depends on the kernel and the device alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue

from ..dialects.graph_op import dtype
from ..dialects.index_expr import IndexExpr, dimension
from ..dialects.pull import Point
from .gpu_columns import column_team
from .gpu_parts import GpuParts, Grid
from .gpu_reduce import RowReducer, combine
from .gpu_rows import RowPlan
from .gpu_scope import WARP, KernelScope, Values, loop, named, when
from .gpu_stages import RowPart, RowStages, Team
from .gpu_vectors import aligned
from .kernel_buffers import Scratch
from .kernel_points import Stage
from .loop_builder import Scope
from .loop_parts import part_length
from .loop_space import Dim, extent
from .row_stages import early_stores
from .scalar_ops import value_type

THREADS = 256
VALUES_OF_THREAD = 16
"""Elements that each thread of a part must have."""
MOST_SPLITS = 256
_ALIGNMENT = 256


@dataclass(frozen=True)
class Phase:
    """One launch: its body, its parameters after those of the kernel, and its grid."""

    scope: KernelScope
    grid: Grid
    note: str


@dataclass
class _Partials:
    """Partial results of a reduction: `splits` times one of each row."""

    point: Point
    splits: int
    scratch: Scratch


def split_count(plan: RowPlan, shape: tuple[int, int], blocks: int) -> int:
    """Blocks that share a row, where `blocks` would do without."""
    schedule = plan.parts.schedule
    if schedule.splits is not None:
        return min(schedule.splits, MOST_SPLITS * 4)
    if schedule.variant is not None or blocks >= schedule.limits.processors:
        return 1
    shortest = shape[1] * VALUES_OF_THREAD
    return min(2 * schedule.limits.processors // max(blocks, 1), plan.columns // shortest, MOST_SPLITS)


def can_split(plan: RowPlan) -> bool:
    """Whether nothing that is stored once for a row must be read before another block overwrites it."""
    stages = plan.stages()
    if not stages or not stages[-1].stores or not plan.parts.in_place:
        return bool(stages)
    buffers = plan.parts.buffers
    overwritten = {buffers.targets[store.result] for store in stages[-1].stores}
    read: set[int] = set()
    for point in _points_below(early_stores(plan.parts.points, plan.once, stages[-1])):
        if point.op is None and point.value in buffers.sources:
            read.add(buffers.sources[point.value])
    return read.isdisjoint(overwritten) and (read.isdisjoint(buffers.shared) or overwritten.isdisjoint(buffers.shared))


def reductions_below(roots: Iterable[Point]) -> set[Point]:
    """The reductions whose results the roots are made of."""
    return {point for point in _points_below(roots) if point.op is not None and point.op.COMBINE}


def _points_below(roots: Iterable[Point]) -> set[Point]:
    """All points that the roots are made of, reductions among them but not what they reduce."""
    found: set[Point] = set()
    stack = list(roots)
    while stack:
        if (point := stack.pop()) not in found:
            found.add(point)
            if point.op is None or not point.op.COMBINE:
                stack.extend(point.operands)
    return found


@dataclass
class SplitKernel:
    """The launches of a kernel whose rows are shared by `splits` blocks; `shape`: rows of a block, threads of each."""

    parts: GpuParts
    plan: RowPlan
    shape: tuple[int, int]
    splits: int
    columns: bool
    """Whether neighbours in memory belong to other rows."""
    partials: list[_Partials] = field(default_factory=list[_Partials])
    _bytes: int = 0

    @property
    def scratch(self) -> list[Scratch]:
        return [partials.scratch for partials in self.partials]

    def build(self) -> list[Phase]:
        stages = self.plan.stages()
        width = 1 if self.columns else self.plan.width()
        lengths = [self._length(stage, width) for stage in stages]
        for stage, length in zip(stages, lengths, strict=True):
            for point in stage.reductions:
                self._add_partials(point, -(-extent(stage.dims) // length))
        last = bool(self.plan.once)
        phases = [
            self._stage_phase(stages, number, lengths[number], width, len(stages) + last)
            for number in range(len(stages))
        ]
        if last:
            phases.append(self._last_phase(stages))
        return phases

    def _length(self, stage: Stage, width: int) -> int:
        multiple = 1 if self.columns else self.shape[1] * width
        return part_length(extent(stage.dims), self.splits, multiple)

    def _add_partials(self, point: Point, splits: int) -> None:
        kind = MemRefType(value_type(dtype(point.value)), [splits * self.plan.row.extent])
        scratch = Scratch(self._bytes, kind, point.value.name_hint)
        size = kind.element_count() * dtype(point.value).compute.itemsize
        self._bytes += -(-size // _ALIGNMENT) * _ALIGNMENT
        self.partials.append(_Partials(point, splits, scratch))

    def _stage_phase(self, stages: Sequence[Stage], number: int, length: int, width: int, count: int) -> Phase:
        stage, splits = stages[number], max(-(-extent(stages[number].dims) // length), 1)
        parts, kernel = self._open()
        block, split = kernel.block_number(), kernel.index_constant(0)
        if splits > 1:
            split = named(kernel.add(arith.RemSIOp(block, kernel.index_constant(splits))), "split")
            block = named(kernel.add(arith.DivSIOp(block, kernel.index_constant(splits))), "row")
        team = self._team(parts, block)
        part = RowPart(split, length)
        rows = RowStages(parts, team, False, part=part)
        self._join(rows, stages[:number], stage.roots())
        partials = self._reduce(parts, team, stage, width, part)
        totals = rows.total(stage, partials, kernel)
        self._publish(rows, stage, totals, split)
        note = f"split, launch {number + 1} of {count}: {splits} blocks share a row, {self._said()}"
        return Phase(kernel, Grid(self._blocks() * splits, self._block()), note)

    def _reduce(self, parts: GpuParts, team: Team, stage: Stage, width: int, part: RowPart) -> Values:
        kernel, elements = parts.kernel, RowStages(parts, team, False, 1, part)
        vectors = RowStages(parts, team, False, width, part)
        memories = vectors.memories([stage]) if width > 1 else []
        if not memories:
            return elements.reduce(stage, kernel)
        starts = [elements.initial(point) for point in stage.reductions]
        return when(
            kernel,
            aligned(kernel, memories),
            starts,
            lambda scope, _: vectors.reduce(stage, scope),
            otherwise=lambda scope, _: elements.reduce(stage, scope),
        )

    def _last_phase(self, stages: Sequence[Stage]) -> Phase:
        parts, kernel = self._open()
        rows = RowStages(parts, self._team(parts, kernel.block_number()), self.plan.settle)
        self._join(rows, stages, [store.point for store in self.plan.once])
        rows.store_once(kernel, self.plan.once)
        launches = len(stages) + 1
        return Phase(
            kernel, Grid(self._blocks(), self._block()), f"split, launch {launches} of {launches}: {self._said()}"
        )

    def _join(self, rows: RowStages, stages: Sequence[Stage], roots: Sequence[Point]) -> None:
        """Makes the results of stages known that the roots need, whose parts earlier launches reduced."""
        needed = reductions_below(roots)
        for stage in stages:
            points = [point for point in stage.reductions if point in needed]
            if points:
                for point, value in zip(points, self._joined(rows, points), strict=True):
                    rows.emitter.define(point, value, rows.parts.kernel)

    def _joined(self, rows: RowStages, points: Sequence[Point]) -> Values:
        kernel, team = rows.parts.kernel, rows.team
        splits = self.partials[self._number(points[0])].splits
        count = Dim("part", splits)
        if splits == 1:
            kernel.indices[count] = kernel.index_constant(0)
            return [self._part(rows, point, kernel) for point in points]

        def body(scope: Scope, values: Values) -> Values:
            pairs = zip(points, values, strict=True)
            return [combine(scope, point, value, self._part(rows, point, scope)) for point, value in pairs]

        starts = [rows.initial(point) for point in points]
        bounds = (team.number, kernel.index_constant(splits), kernel.index_constant(team.threads))
        totals = loop(kernel, bounds, starts, body, (count, "part"), [point.value.name_hint for point in points])
        return team.reducer.total(kernel, points, totals)

    def _number(self, point: Point) -> int:
        return next(k for k, partials in enumerate(self.partials) if partials.point is point)

    def _part(self, rows: RowStages, point: Point, scope: Scope) -> SSAValue:
        number = self._number(point)
        place = self._place(dimension("part", self.partials[number].splits))
        memory = rows.parts.kernel.parameters[len(self.parts.buffers.types) + number]
        value = scope.add(memref.LoadOp.get(memory, [scope.index(place)]))
        value.name_hint = point.value.name_hint
        return value

    def _publish(self, rows: RowStages, stage: Stage, totals: Values, split: SSAValue) -> None:
        """One thread writes the partial results of its row."""
        if not stage.reductions:
            return
        kernel, team = rows.parts.kernel, rows.team
        first = kernel.add(arith.CmpiOp(team.number, kernel.index_constant(0), "eq"))
        if team.inside is not None:
            first = kernel.add(arith.AndIOp(first, team.inside))

        def store(scope: Scope, _: Values) -> Values:
            for point, value in zip(stage.reductions, totals, strict=True):
                number = self._number(point)
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
        return replace(self.parts, kernel=kernel), kernel

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
