"""A row kernel on a GPU: a warp for each row where rows are short and many, else a block of threads.

What several stages of a row need is kept by the threads in registers (`warp`, `block`); in shared memory where it is too
much for these (`shared`); and where it is too much for that, too, each stage reads memory again (`stream`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from fuse_opt.dialects import gpu
from fuse_opt.dialects.analysis.loop_body import Store
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.extents import ceiling_quotient, estimate, exact_quotient, largest, may_exceed
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.gpu.context import GpuParts, Grid, usual
from fuse_opt.lowering.gpu.moments import build_moments, build_running
from fuse_opt.lowering.gpu.reduce import RowReducer
from fuse_opt.lowering.gpu.scope import WARP, KernelScope, Values, combined_index, less, named, when
from fuse_opt.lowering.gpu.stages import HeldRow, RowStages, Team
from fuse_opt.lowering.gpu.vectors import widest_vector
from fuse_opt.lowering.kernel.element_emitter import Stage
from fuse_opt.lowering.kernel.iteration_space import extent
from fuse_opt.lowering.kernel.row_stages import KeepRules, KeptRow, plan_kept_rows, plan_stages
from fuse_opt.lowering.kernel.scope import Scope

LONGEST_IN_WARP = 1280
"""Columns of a row that one warp takes on."""
LONGEST_OF_WIDE = 640
"""
The same of elements of four bytes or more that are written again. On an H200 blocks took a softmax of 771 and 1024 columns 5 and
3.5 % less time than warps, a residual norm 3 %; a norm of 771 elements of bf16, and sums of 1021, take warps 9 % less.
"""
ENOUGH_ROWS = 1024
"""Rows from which on a warp for each is enough to fill the device; fewer rows get a block each."""
WARPS = 8
"""Rows of a block where a warp takes one."""
FEWEST_LANES = 4
"""Threads of a row where a warp takes several."""
FEWEST_VECTORS = 4
"""Vectors of a row; shorter rows have smaller ones."""
COSTLY = 4
"""Simple operations from which on a thread keeps a scalar; a load counts as many."""
MOST_KEPT = 32
"""Elements of a row that a thread of a block keeps between loops, of one value; of all values twice as many."""
MOST_KEPT_IN_WARP = LONGEST_IN_WARP // WARP
"""The same where a warp has a row to itself."""
MOST_TAKEN = {8: 32, 4: 24}
"""
Elements that a thread takes at most, by those of its vectors: reductions of a row cost each thread the same, so that few threads
with several vectors do less than many with one.
"""
THREADS_OF_ANY = 256
"""Of a row that has any number of columns, and more than a warp takes on."""
SLOT_BYTES = 4096
"""Of shared memory that are left for partial results."""


@dataclass(frozen=True)
class RowPlan:
    """What a row kernel is to do, before it is said with which threads."""

    parts: GpuParts
    row: Dim
    whole: list[Store]
    once: list[Store]
    columns: Extent

    @property
    def usual_columns(self) -> int:
        """Of a row, for what is only a matter of time."""
        return estimate(self.columns)

    @property
    def usual_rows(self) -> int:
        return usual(self.row.extent)

    @property
    def settle(self) -> bool:
        """Whether all threads must have read before what belongs to the row is stored."""
        return self.parts.in_place and bool(self.once)

    def stages(self) -> list[Stage]:
        """The stages of a row, new ones each time: what they keep is said in them."""
        nodes = self.parts.nodes
        return plan_stages(nodes, self.whole, nodes.loop(nodes.loop_body.columns), self.parts.in_place)

    def width(self) -> int:
        """Elements of a vector of a row."""
        loop_body, given = self.parts.nodes.loop_body, self.parts.schedule.vector
        dims = [stage.dims for stage in self.stages() if stage.dims]
        loads = [p for p in loop_body.loads() if any(self.parts.nodes.varies(p, each) for each in dims)]
        width = widest_vector(loads, self.whole)
        width = width if given is None else min(given, width)
        fewest = FEWEST_VECTORS if given is None else 0
        while width > 1 and (exact_quotient(self.columns, width) is None or self.usual_columns < fewest * width):
            width //= 2
        return width

    def shape(self) -> tuple[int, int]:
        """Threads of a row, rows of a block."""
        schedule, rows, columns = self.parts.schedule, self.usual_rows, self.usual_columns
        few = 2 * schedule.limits.processors
        threads, together = row_shape(rows, columns, self.settle, few, self.width(), self.longest_in_warp())
        if schedule.threads is not None:
            threads = min(schedule.threads, schedule.limits.max_threads)
        if schedule.variant == "warp":
            threads = WARP
        elif schedule.variant is not None and threads <= WARP:
            threads = 2 * WARP
        if threads > WARP:
            return threads, 1
        return (WARP, together) if together > 1 else self.shape_of_warps()

    def shape_of_warps(self) -> tuple[int, int]:
        """The same where a warp has a row, whatever its length."""
        together = _rows_together(self.usual_rows, self.settle)
        return WARP, 1 if self.settle and exact_quotient(self.row.extent, together) is None else together

    def shape_of_block(self) -> tuple[int, int]:
        """The same where a block has one."""
        return THREADS_OF_ANY, 1

    def longest_in_warp(self) -> int:
        """Columns up to which a warp has a row to itself."""
        loads = self.parts.nodes.loop_body.loads()
        least = 2 * self.usual_columns
        bytes_of = [dtype(node.value).itemsize for node in loads if estimate(prod(shape(node.value))) >= least]
        is_wide = bool(self.whole) and self.is_read_again() and max(bytes_of, default=0) >= 4
        return LONGEST_OF_WIDE if is_wide else LONGEST_IN_WARP

    def lanes(self) -> int:
        """
        Threads of a warp that are enough for a row, so that it can take several: each has two vectors under way where rows are
        enough for all threads of the device, else one.
        """
        width, limits, lanes = self.width(), self.parts.schedule.limits, FEWEST_LANES
        columns = self.usual_columns
        while lanes < WARP and lanes * width < columns:
            lanes *= 2
        fewer = lanes // 2
        is_filled = self.usual_rows * fewer >= limits.processors * limits.processor_threads
        return fewer if width > 1 and is_filled and fewer * 2 * width == columns else lanes

    def is_read_again(self) -> bool:
        """Whether several stages go through the elements of a row."""
        return sum(may_exceed(extent(stage.dims), 1) for stage in self.stages()) > 1

    def kept_in_registers(self, threads: int, each: int | None = None) -> tuple[Sequence[KeptRow], list[Stage]]:
        """What threads keep for later stages, `each` so many elements at most, and the stages that do."""
        unit, stages = 4 * threads, self.stages()
        if self.parts.schedule.variant in ("shared", "stream") or isinstance(self.columns, Size):
            return [], stages
        most = (each or (MOST_KEPT_IN_WARP if threads <= WARP else MOST_KEPT)) * unit
        rules = KeepRules(COSTLY, COSTLY, most, 2 * most)
        return plan_kept_rows(self.parts.nodes, stages, rules), stages

    def kept(self, threads: int) -> tuple[Sequence[KeptRow], bool, list[Stage]]:
        """What is kept for later stages, whether in shared memory, and the stages that do."""
        kept, stages = self.kept_in_registers(threads)
        schedule = self.parts.schedule
        if threads <= WARP or schedule.variant in ("warp", "block", "stream") or isinstance(self.columns, Size):
            return kept, False, stages
        room, others = schedule.limits.shared_memory - SLOT_BYTES, self.stages()
        shared = plan_kept_rows(self.parts.nodes, others, KeepRules(COSTLY, COSTLY, room, room))
        return (shared, True, others) if len(shared) > len(kept) else (kept, False, stages)


def row_shape(
    rows: int, columns: int, exclusive: bool, few_rows: int = 264, width: int = 1, longest: int = LONGEST_IN_WARP
) -> tuple[int, int]:
    """
    Threads of a row that is read by vectors of `width` elements, and rows of a block; `exclusive` asks that no thread of a block
    is without a row. A row of up to `longest` columns is a warp's, where rows are many.
    """
    if columns <= 2 * WARP or (columns <= longest and rows >= ENOUGH_ROWS):
        return WARP, _rows_together(rows, exclusive)
    if rows >= ENOUGH_ROWS and (threads := _threads_by_work(columns, width)) is not None:
        return threads, 1
    few = 4096 if rows < ENOUGH_ROWS else 256 * MOST_KEPT
    threads = 128 if columns <= 1024 else 256 if columns <= few else 512
    while rows < few_rows and threads < 1024 and columns >= 8 * threads:
        threads *= 2
    while threads < 1024 and columns > threads * MOST_KEPT:
        threads *= 2
    while threads > 64 and columns % threads and columns % (threads // 2) == 0 and columns <= threads * MOST_KEPT // 2:
        threads //= 2
    return threads, 1


def _threads_by_work(columns: int, width: int) -> int | None:
    """The fewest threads for which a row is whole turns of their vectors, and that take no more than their most."""
    most = MOST_TAKEN.get(width, 0)
    counts = range(2 * WARP, 512 + 1, WARP)
    return next((n for n in counts if columns % (n * width) == 0 and columns <= n * most), None)


def _rows_together(rows: int, exclusive: bool) -> int:
    together = WARPS
    while together > 1 and (together // 2 >= rows or (exclusive and rows % together)):
        together //= 2
    return together


def plan_rows(parts: GpuParts) -> RowPlan:
    """What is to be done for a row; nothing is emitted yet."""
    nodes, loop_body = parts.nodes, parts.nodes.loop_body
    row_dims = nodes.loop(loop_body.rows)
    row = Dim("row", extent(row_dims))
    nodes.flatten_rows(row_dims, row)
    nodes.finish()
    whole = [store for store in loop_body.stores if not store.per_row]
    once = [store for store in loop_body.stores if store.per_row]
    plan = RowPlan(parts, row, whole, once, 1)
    columns = reduce(largest, (extent(stage.dims) for stage in plan.stages()), 1)
    return RowPlan(parts, row, whole, once, columns)


def build_rows(parts: GpuParts, plan: RowPlan, shape: tuple[int, int]) -> Grid:
    """Emits the pass with so many threads of a row and rows of a block; gives its grid."""
    kernel, row, rows = parts.kernel, plan.row, plan.row.extent
    threads, together = shape
    if threads == WARP and not parts.packed and (lanes := plan.lanes()) < WARP:
        return build_in_warps(parts, plan, lanes)
    builder = _RowBuilder(parts, plan, Team(RowReducer(kernel, threads), kernel.thread()))
    blocks = ceiling_quotient(rows, together)
    if together == 1:
        kernel.indices[row] = kernel.block_number()
        builder.build(kernel)
        parts.notes.append(builder.note(together))
        return Grid(blocks, (threads, 1))
    parts.notes.append(builder.note(together))
    number = combined_index(kernel, kernel.block_number(), together, kernel.thread(gpu.DimensionEnum.Y), "row")

    def body(scope: Scope, _: Values) -> Values:
        builder.build(scope)
        return ()

    if exact_quotient(rows, together) is None:
        when(kernel, less(kernel, number, rows), (), body, {row: number})
    else:
        kernel.indices[row] = number
        body(kernel, ())
    return Grid(blocks, (threads, together))


def build_in_warps(parts: GpuParts, plan: RowPlan, lanes: int) -> Grid:
    """Several rows a warp; threads behind the last row compute it again and store nothing, as warps shuffle whole."""
    kernel, rows, together = parts.kernel, plan.row.extent, WARP * WARPS // lanes
    row, inside = clamped_row(kernel, plan, kernel.block_number(), together, kernel.thread(gpu.DimensionEnum.Y))
    kernel.indices[plan.row] = row
    builder = _RowBuilder(parts, plan, Team(RowReducer(kernel, lanes), kernel.thread(), inside))
    parts.notes.append(builder.note(together))
    builder.build(kernel)
    return Grid(ceiling_quotient(rows, together), (lanes, together))


def clamped_row(
    kernel: KernelScope, plan: RowPlan, block: SSAValue, together: int, number: SSAValue
) -> tuple[SSAValue, SSAValue | None]:
    """The row of a thread, the last one for those behind it; and whether the thread is before, where not all are."""
    rows = plan.row.extent
    row = combined_index(kernel, block, together, number, "row")
    if exact_quotient(rows, together) is not None:
        return row, None
    inside = less(kernel, row, rows)
    return named(kernel.add(arith.MinSIOp(row, kernel.index_constant(rows - 1))), "row"), inside


class _RowBuilder:
    """A row by vectors where its addresses allow them, else by elements."""

    def __init__(self, parts: GpuParts, plan: RowPlan, team: Team) -> None:
        self.parts, self.plan, self.team = parts, plan, team
        self.width = 1
        memories = self._stages(plan.width()).memories(plan.stages()) if plan.width() > 1 else []
        if memories and parts.takes_vectors(memories):
            self.width = plan.width()
        self.kept = plan.kept(team.threads)
        self.held: HeldRow | None = None
        """What is held of each row, once it is built."""

    @property
    def holds(self) -> bool:
        """Whether what fits of a long row is held in shared memory, though the row does not fit."""
        is_known = isinstance(self.plan.columns, int) and self.parts.schedule.variant is None
        return is_known and self.width > 1 and self.team.threads > WARP

    def note(self, together: int) -> str:
        kept, shared, stages = self.kept
        reading = sum(may_exceed(extent(stage.dims), 1) for stage in stages)
        variant = "stream" if not kept and reading > 1 else "warp" if self.team.threads <= WARP else "block"
        vectors = f", vectors of {self.width} elements" if self.width > 1 else ""
        if self.held is not None and isinstance(self.plan.columns, int):
            vectors += f", {100 * self.held.counted * self.width // self.plan.columns} % held"
        said = f"{self.team.threads} threads a row, {together} a block{vectors}"
        return f"row, {'shared' if shared else variant}: {said}"

    def build(self, scope: Scope) -> None:
        rows = self._stages(self.width)
        kept, shared, stages = self.plan.kept(self.team.threads)
        rows.keep(kept, shared)
        if not kept:
            if self.holds:
                rows.hold(stages, self.parts.schedule.limits.shared_memory - SLOT_BYTES)
            build_moments(rows, stages, scope)
        elif shared:
            build_running(rows, stages, scope)
        self.held = rows.held
        rows.build(scope, stages, self.plan.once)

    def _stages(self, width: int) -> RowStages:
        return RowStages(self.parts, self.team, self.plan.settle, width)
