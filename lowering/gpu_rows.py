"""A row kernel on a GPU: a block of threads for each row, or a warp where rows are short and many.

The stages of the row follow each other as loops in which the threads stride over the columns; a stage that reduces ends
with the totals known to every thread. What is stored for every element is stored in the last loop, what is stored once
for a row by one thread after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from ..dialects import gpu
from ..dialects.graph_op import dtype
from ..dialects.index_expr import Dim
from ..dialects.pull import Point, Store
from .gpu_parts import GpuParts, Grid
from .gpu_reduce import RowReducer
from .gpu_scope import WARP, Body, Values, combined_index, less, loop, when
from .kernel_points import KernelPoints, PointEmitter, RowBuffer, Stage
from .loop_builder import Scope
from .loop_space import as_expr, extent
from .row_stages import KeepRules, early_stores, plan_kept_rows, plan_stages
from .scalar_ops import emit_combine, value_type

LONGEST_IN_WARP = 512
"""Columns of a row that one warp takes on."""
ENOUGH_ROWS = 1024
"""Rows from which on a warp for each is enough to fill the device; fewer rows get a block each."""
WARPS = 8
"""Rows of a block where a warp takes one."""
FEW_ROWS = 264
"""Rows below which blocks are larger: two for each multiprocessor of a large device."""
DEAR = 4
"""Simple operations from which on a thread keeps a scalar; a load counts as many."""
MOST_KEPT = 32
"""Elements of a row that a thread keeps between loops, of one value; of all values twice as many."""


def row_shape(rows: int, columns: int, exclusive: bool) -> tuple[int, int]:
    """Threads of a row, rows of a block; `exclusive` asks that no thread of a block is without a row."""
    if columns <= 2 * WARP or (columns <= LONGEST_IN_WARP and rows >= ENOUGH_ROWS):
        together = WARPS
        while together > 1 and (together // 2 >= rows or (exclusive and rows % together)):
            together //= 2
        return WARP, together
    threads = 128 if columns <= 1024 else 256 if columns <= 4096 else 512
    while rows < FEW_ROWS and threads < 1024 and columns >= 8 * threads:
        threads *= 2
    while threads > 64 and columns % threads and columns % (threads // 2) == 0 and columns <= threads * MOST_KEPT // 2:
        threads //= 2
    return threads, 1


@dataclass(frozen=True)
class RowPlan:
    """What a row kernel is to do, before it is said with which threads."""

    row: Dim
    stages: Sequence[Stage]
    once: Sequence[Store]
    columns: int
    settle: bool
    """Whether all threads must have read before what belongs to the row is stored."""

    def shape(self) -> tuple[int, int]:
        """Threads of a row, rows of a block."""
        return row_shape(self.row.extent, self.columns, self.settle)


def plan_rows(parts: GpuParts) -> RowPlan:
    """The stages of a row; nothing is emitted yet."""
    points, pulled = parts.points, parts.points.pulled
    row_dims = points.loop(pulled.rows)
    rows = extent(row_dims)
    row = Dim("row", rows)
    points.flatten_rows(row_dims, row)
    points.finish()
    whole = [store for store in pulled.stores if not store.per_row]
    once = [store for store in pulled.stores if store.per_row]
    stages = plan_stages(points, whole, points.loop(pulled.columns), parts.in_place)
    columns = max((extent(stage.dims) for stage in stages), default=1)
    return RowPlan(row, stages, once, columns, parts.in_place and bool(once))


def build_rows(parts: GpuParts, plan: RowPlan, shape: tuple[int, int]) -> Grid:
    """Emits the pass with so many threads of a row and rows of a block; gives its grid."""
    kernel, row, rows = parts.kernel, plan.row, plan.row.extent
    threads, together = shape
    blocks = -(-rows // together)
    builder = _Rows(parts, threads, plan.settle)
    if together == 1:
        kernel.indices[row] = kernel.block_number()
        builder.build(kernel, plan.stages, plan.once)
        return Grid(blocks, (threads, 1))
    number = combined_index(kernel, kernel.block_number(), together, kernel.thread(gpu.DimensionEnum.Y), "row")

    def body(scope: Scope, _: Values) -> Values:
        builder.build(scope, plan.stages, plan.once)
        return ()

    if rows % together:
        when(kernel, less(kernel, number, rows), (), body, {row: number})
    else:
        kernel.indices[row] = number
        body(kernel, ())
    return Grid(blocks, (threads, together))


@dataclass
class _Rows:
    parts: GpuParts
    threads: int
    settle: bool
    """Whether all threads must have read before what belongs to the row is stored."""
    _emitters: dict[tuple[Dim, ...], tuple[PointEmitter, Dim]] = field(
        default_factory=dict[tuple[Dim, ...], tuple[PointEmitter, Dim]]
    )

    def __post_init__(self) -> None:
        self.points = self.parts.points
        self.emitter = self.parts.emitter(self.points)
        self.reducer = RowReducer(self.parts.kernel, self.threads)
        self.column = self.parts.kernel.thread()

    def build(self, scope: Scope, stages: Sequence[Stage], once: Sequence[Store]) -> None:
        self._keep_rows(stages)
        for stage in stages:
            if stage is stages[-1]:
                self.emitter.emit(early_stores(self.points, once, stage), scope)
            partials = self._build_stage(stage, scope)
            for point, value in zip(stage.reductions, partials, strict=True):
                self.emitter.define(point, value, scope)
        if not once:
            return
        self.emitter.emit([store.point for store in once], scope)
        if self.settle:
            scope.block.add_op(gpu.BarrierOp())
        first = scope.add(arith.CmpiOp(self.column, scope.index_constant(0), "eq"))

        def store(inner: Scope, _: Values) -> Values:
            self.parts.store(once, self.emitter, inner)
            return ()

        when(scope, first, (), store)

    def _keep_rows(self, stages: Sequence[Stage]) -> None:
        """Lets each thread keep what later stages need of its elements, as far as registers go."""
        unit = 4 * self.threads
        rules = KeepRules(DEAR, DEAR, MOST_KEPT * unit, 2 * MOST_KEPT * unit)
        for kept in plan_kept_rows(self.points, list(stages), rules):
            element = value_type(dtype(kept.point.value))
            turns = self._turns(kept.dims)
            memory = self.parts.kernel.registers(element, turns.extent, f"{kept.point.value.name_hint or 'kept'}_row")
            place = RowBuffer(memory, as_expr(turns))
            kept.source.left[kept.point] = place
            for reader in kept.readers:
                reader.taken[kept.point] = place

    def _turns(self, dims: Sequence[Dim]) -> Dim:
        return Dim("turn", -(-extent(dims) // self.threads))

    def _build_stage(self, stage: Stage, scope: Scope) -> Values:
        """The loop of a stage; gives the totals of its reductions."""
        starts = [self._initial(point) for point in stage.reductions]
        if not stage.dims:
            return self._build_once(stage, scope, starts)
        emitter, flat = self._flattened(stage.dims)
        hints = [point.value.name_hint for point in stage.reductions]

        def body(inner: Scope, values: Values) -> Values:
            emitter.emit(stage.roots(), inner, stage)
            joined = [
                self._joined(point, value, emitter.reduced_element(point, inner), inner)
                for point, value in zip(stage.reductions, values, strict=True)
            ]
            self.parts.store(stage.stores, emitter, inner)
            return joined

        if stage.taken or stage.left:
            partials = self._turn_loop(scope, flat, starts, body, hints)
        else:
            bounds = (self.column, scope.index_constant(flat.extent), scope.index_constant(self.threads))
            partials = loop(scope, bounds, starts, body, (flat, "column"), hints)
        return self.reducer.total(scope, stage.reductions, partials)

    def _turn_loop(self, scope: Scope, flat: Dim, starts: Values, body: Body, hints: Sequence[str | None]) -> Values:
        """A loop that counts the elements of a thread from 0, so that it can be unrolled and they be registers."""
        turns = self._turns((flat,))

        def turn(inner: Scope, values: Values) -> Values:
            column = combined_index(inner, inner.dim_value(turns), self.threads, self.column, "column")
            if flat.extent % self.threads == 0:
                inner.indices[flat] = column
                return body(inner, values)
            return when(inner, less(inner, column, flat.extent), values, body, {flat: column})

        bounds = (scope.index_constant(0), scope.index_constant(turns.extent), scope.index_constant(1))
        return loop(scope, bounds, starts, turn, (turns, "turn"), hints)

    def _build_once(self, stage: Stage, scope: Scope, starts: Values) -> Values:
        """A row of one element: every thread computes it, one stores it."""
        self.emitter.emit(stage.roots(), scope, stage)
        totals = [
            self._joined(point, start, self.emitter.reduced_element(point, scope), scope)
            for point, start in zip(stage.reductions, starts, strict=True)
        ]
        if stage.stores:
            first = scope.add(arith.CmpiOp(self.column, scope.index_constant(0), "eq"))

            def store(inner: Scope, _: Values) -> Values:
                self.parts.store(stage.stores, self.emitter, inner)
                return ()

            when(scope, first, (), store)
        return totals

    def _flattened(self, dims: tuple[Dim, ...]) -> tuple[PointEmitter, Dim]:
        """The points in terms of one dimension that counts through all of a stage's."""
        if (found := self._emitters.get(dims)) is None:
            if len(dims) == 1:
                found = self.emitter, dims[0]
            else:
                flat = Dim("column", extent(dims))
                points: KernelPoints = copy(self.points)
                points.flatten_rows(dims, flat)
                points.finish()
                found = self.parts.emitter(points), flat
            self._emitters[dims] = found
        return found

    def _initial(self, point: Point) -> SSAValue:
        assert point.op is not None
        return self.parts.kernel.constant(point.op.initial(), point.op.body().dtype)

    def _joined(self, point: Point, value: SSAValue, element: SSAValue, scope: Scope) -> SSAValue:
        assert point.op is not None
        joined = emit_combine(scope, point.op.COMBINE, point.op.body().dtype, value, element)
        joined.name_hint = point.value.name_hint
        return joined
