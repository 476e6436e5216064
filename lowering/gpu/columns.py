"""Rows whose neighbours in memory belong to other rows: a block takes rows side by side, its threads along y share each.

Threads along x read neighbours, so reads are coalesced; those along y stride over what is reduced and join what they found
through shared memory. Threads behind the last row compute the last one again, so that all meet at the barriers, and store
nothing.
"""

from __future__ import annotations

from math import prod

from xdsl.ir import SSAValue

from fuse_opt.dialects import gpu
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.extents import ceiling_quotient, estimate
from fuse_opt.lowering.gpu.context import GpuParts, Grid
from fuse_opt.lowering.gpu.moments import build_moments, plan_moments
from fuse_opt.lowering.gpu.reduce import ColumnReducer
from fuse_opt.lowering.gpu.rows import RowPlan, clamped_row
from fuse_opt.lowering.gpu.scope import WARP
from fuse_opt.lowering.gpu.stages import RowStages, Team

THREADS = 256
SHORT = 8
"""Elements of a row that one thread reduces alone."""
FEWEST_OF_THREAD = 4
"""Elements that a further thread of a row must have."""
FEWEST_OF_VECTOR = 4
"""Elements of vectors for which several threads of a warp take on a short row."""
MOST_KEPT = 32
"""Elements of a row that each of its threads keeps in registers for later stages; with more, memory is read again."""
SETS = 2
"""Sets of slots, which take turns."""
WIDE_THREADS = 512
"""Of a block of few rows that blocks share, which a processor has two of."""
MOST_JOINED = 64
"""Threads of a row whose results are joined one after another in little time."""


def is_short(plan: RowPlan) -> bool:
    """
    Whether a warp would be wasted on a row, and rows are enough for a thread each: what one thread reads after another, its first
    level cache has from the others. Where vectors of some size make a row, neighbours read them side by side instead.
    """
    if plan.usual_columns >= WARP or plan.width() >= FEWEST_OF_VECTOR:
        return False
    return plan.usual_rows >= plan.parts.schedule.limits.processors * THREADS


def few_lanes(plan: RowPlan) -> int:
    """Rows of a block: those of a warp, or all where they are fewer, so that its other threads read what lies behind them."""
    rows = plan.usual_rows
    return 1 << (rows - 1).bit_length() if 1 < rows < WARP else WARP


def lie_side_by_side(plan: RowPlan) -> bool:
    """Whether neighbours in memory are of other rows, all of which a warp has at once, and a row is long."""
    rows, nodes = plan.usual_rows, plan.parts.nodes
    if not 1 < rows < WARP or plan.usual_columns < THREADS * FEWEST_OF_THREAD:
        return False
    loads = [node for node in nodes.loop_body.loads() if nodes.varies(node, nodes.loop(nodes.loop_body.columns))]
    return bool(loads) and all(nodes.addresses[node].step(plan.row) == 1 for node in loads)


def column_shape(plan: RowPlan) -> tuple[int, int]:
    """Rows of a block, threads of each: so many that they can keep what several stages read, where that is few enough."""
    schedule = plan.parts.schedule
    limits = schedule.limits
    if plan.usual_columns <= SHORT and schedule.threads is None:
        return THREADS, 1
    if (lanes := few_lanes(plan)) < WARP:
        threads = THREADS // lanes
        while threads > 1 and plan.usual_columns < threads * FEWEST_OF_THREAD:
            threads //= 2
    else:
        threads = _threads_of_column(plan)
    if schedule.threads is not None:
        threads = max(min(schedule.threads, limits.max_threads) // lanes, 1)
    if lanes == WARP and 2 * lanes * threads > limits.max_threads and _has_half_lanes(plan, threads):
        lanes //= 2  # two blocks on a processor: one loads while the other one computes or stores
    size = sum(dtype(p.value).compute.itemsize for stage in plan.stages() for p in stage.reductions)
    while threads > 1 and SETS * threads * lanes * size > limits.static_shared:
        threads //= 2
    return lanes, threads


def can_be_wide(plan: RowPlan) -> bool:
    """Whether a row that blocks share is reduced in one go, so that a thread has few numbers for each element that it reads."""
    return len(plan.stages()) == 1 and not plan_moments(plan.stages()) and plan.parts.schedule.threads is None


def wide_shape(plan: RowPlan) -> tuple[int, int]:
    """
    Rows of a block whose rows others share, threads of each: whole lines of memory side by side, in blocks of which a
    processor has one or two. Blocks of twice the warps' rows read with fewer places open in memory: a sum over axis 0 of
    30011x1021 f32 took .93 of the time on an H100.
    """
    limits, lanes = plan.parts.schedule.limits, few_lanes(plan)
    if lanes == WARP and plan.usual_rows >= 2 * WARP:
        lanes = 2 * WARP
    size = sum(dtype(p.value).compute.itemsize for p in plan.stages()[0].reductions)
    threads = (
        limits.max_threads // lanes if lanes >= WARP else max(THREADS // lanes, min(WIDE_THREADS // lanes, MOST_JOINED))
    )
    while threads > 1 and (
        plan.usual_columns < threads * FEWEST_OF_THREAD or SETS * threads * lanes * size > limits.static_shared
    ):
        threads //= 2
    return lanes, threads


def _has_half_lanes(plan: RowPlan, threads: int) -> bool:
    """Whether rows kept in registers leave no room for a second block, and half of a warp reads 64 bytes at once."""
    columns = plan.usual_columns
    loads = [node for node in plan.parts.nodes.loop_body.loads() if estimate(prod(shape(node.value))) >= columns]
    is_wide = min((dtype(node.value).itemsize for node in loads), default=0) >= 4
    is_full = 2 * columns > threads * MOST_KEPT >= columns
    return is_wide and is_full and plan.parts.schedule.threads is None and plan.is_read_again()


def _threads_of_column(plan: RowPlan) -> int:
    """Of each of a warp's rows."""
    limits, threads, columns = plan.parts.schedule.limits, THREADS // WARP, plan.usual_columns
    few = -(-plan.usual_rows // WARP) < 2 * limits.processors
    while few and threads < limits.max_threads // WARP and columns >= 2 * threads * FEWEST_OF_THREAD:
        threads *= 2
    most = limits.max_threads // WARP
    if threads < most and threads * MOST_KEPT < columns <= most * MOST_KEPT and plan.is_read_again():
        threads = 1 << (-(-columns // MOST_KEPT) - 1).bit_length()
    return threads


def column_team(parts: GpuParts, plan: RowPlan, block: SSAValue, shape: tuple[int, int]) -> Team:
    """The threads of a row in a block of so many; says which row it is."""
    kernel, (lanes, threads) = parts.kernel, shape
    row, inside = clamped_row(kernel, plan, block, lanes, kernel.thread())
    kernel.indices[plan.row] = row
    number = kernel.index_constant(0) if threads == 1 else kernel.thread(gpu.DimensionEnum.Y)
    return Team(ColumnReducer(kernel, threads, lanes=lanes), number, inside)


def build_columns(parts: GpuParts, plan: RowPlan, shape: tuple[int, int]) -> Grid:
    """Emits the pass with so many rows of a block and threads of each; gives its grid."""
    lanes, threads = shape
    team = column_team(parts, plan, parts.kernel.block_number(), shape)
    rows = RowStages(parts, team, plan.settle)
    kept, stages = plan.kept_in_registers(threads, MOST_KEPT)
    rows.keep(kept, shared=False)
    if not kept:
        build_moments(rows, stages, parts.kernel)
    rows.build(parts.kernel, stages, plan.once)
    kind = "row, thread" if threads == 1 else "column"
    parts.notes.append(f"{kind}: {lanes} rows a block, {threads} thread{'s' * (threads > 1)} each")
    return Grid(ceiling_quotient(plan.row.extent, lanes), shape)
