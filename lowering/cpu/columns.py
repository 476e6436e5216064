"""Many rows at a time: reductions over leading axes, whose neighbours in memory belong to different rows.

The innermost loop runs over rows that lie side by side (lanes), and their accumulators are a block of memory in the first
level cache. A task is a block of lanes; where there are too few, also a part of what is reduced, joined afterwards.
Where there is little to reduce, all of it is written out for a lane, and nothing is kept in memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from fuse_opt.dialects.analysis.loop_body import LoopBody
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import BLOCK, SPLITS
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.extents import estimate, is_number, may_exceed
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.cpu.blocked_sums import BlockedSums
from fuse_opt.lowering.cpu.column_moments import (
    AT_A_TIME,
    LANE_BYTES,
    LONGEST_PIECE,
    NARROWEST,
    MomentLanes,
    build_moments_join,
)
from fuse_opt.lowering.cpu.kernel import KernelLoops, build_kernel_loops
from fuse_opt.lowering.cpu.outer_vector import KEPT, OuterVectors
from fuse_opt.lowering.cpu.outer_vector_stage import MOST_AT_A_TIME, Geometry
from fuse_opt.lowering.cpu.split_reduction import MOST, Phase, PhasedKernel, build_join
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, Stage
from fuse_opt.lowering.kernel.iteration_space import extent
from fuse_opt.lowering.kernel.loop_splitting import part_length
from fuse_opt.lowering.kernel.moments import Moments, find_moments

ACCUMULATORS = 16 << 10
"""Bytes of accumulators of a task: half of a first level cache, or less."""
FEWEST_LANES = 256
"""Lanes of a block at least: fewer would make a new start in memory for each row that is no longer worth it."""
LANES_OF_TASK = 1024
"""Lanes that make good use of each memory page a task touches."""
TASKS = 32
"""Tasks to make where lanes suffice."""
LANE_MULTIPLE = 16
"""Elements; blocks of lanes begin at multiples."""
WRITTEN_OUT = 9
"""Elements to reduce that are written out one by one: a window of 3 x 3, too."""


def build_column_loops(kernel: KernelOp, loop_body: LoopBody, storages: Sequence[Hashable]) -> list[KernelLoops]:
    """The launches of a kernel over blocks of rows; a kernel of one row runs as a row."""
    phased = PhasedKernel(kernel, loop_body, storages)
    nodes = KernelNodes(loop_body)
    rows = nodes.loop(loop_body.rows)
    if not rows:
        return [build_kernel_loops(kernel, loop_body, storages)]
    outer = Dim("outer", extent(rows[:-1]))
    nodes.flatten_rows(rows[:-1], outer)
    nodes.finish()
    stages = phased.stages(nodes)
    splits = phased.entry(SPLITS) or 1
    early = phased.reads_early(nodes, stages)
    if splits > 1 and early:
        splits = 1
    lengths = [extent(stage.dims) for stage in stages]
    written_out = all(is_number(each) and each <= WRITTEN_OUT for each in lengths)
    widest = _widest_block(phased, stages, splits if not written_out else 1)
    if splits < 2 or written_out:
        fewest = LANE_MULTIPLE if written_out else FEWEST_LANES
        widest = min(widest, max(fewest, estimate(outer.extent * rows[-1].extent) // TASKS))
    geometry = Geometry(outer, rows[-1], _block_width(rows[-1].extent, widest), extent(rows[-2:-1]))
    if written_out:
        OuterVectors(phased, nodes, geometry).build_written_out(stages, early)
        return phased.phases
    if splits < 2:
        BlockedSums(phased, nodes, geometry).build_whole(stages, early)
        return phased.phases
    if moments := find_moments(stages):
        _build_moments(phased, nodes, geometry, stages, moments)
        return phased.phases
    for stage in stages:
        longest = max(stage.dims, key=lambda dim: dim.extent, default=Dim("i", 1))
        part = part_length(longest.extent, splits, MOST_AT_A_TIME)
        for node in stage.reductions:
            phased.add_partials(node, max(-(-longest.extent // part), 1), geometry.rows)
        BlockedSums(phased, nodes, geometry).build_part(stage, longest, part)
        if stage.reductions and stage is not stages[-1]:
            build_join(phased, stage.reductions, ())
    joined, once = stages[-1].reductions, phased.once()
    if joined or once:
        build_join(phased, joined, once)
    return phased.phases


def _build_moments(
    phased: PhasedKernel, nodes: KernelNodes, geometry: Geometry, stages: Sequence[Stage], moments: Moments
) -> None:
    """Both stages of each part in one launch, with parts so small that the second finds its elements in a cache."""
    dims, lanes = stages[0].dims, geometry.lane.extent
    longest = max(dims, key=lambda dim: dim.extent, default=Dim("i", 1))
    others, splits = extent(dims) // max(longest.extent, 1), phased.entry(SPLITS) or 1
    piece = LONGEST_PIECE // others // AT_A_TIME * AT_A_TIME
    if lanes >= NARROWEST and piece:
        size = max(dtype(node.value).compute.itemsize for node in stages[0].reductions)
        width = _block_width(lanes, min(geometry.width, LANE_BYTES // size))
        geometry = Geometry(geometry.outer, geometry.lane, width)
    else:
        piece, splits = 0, max(splits, -(-longest.extent * others * geometry.width * 4 // KEPT))
    part = part_length(longest.extent, min(splits, MOST), piece or MOST_AT_A_TIME)
    for node in (*stages[0].reductions, *stages[1].reductions):
        phased.add_partials(node, max(-(-longest.extent // part), 1), geometry.rows)
    if piece:
        MomentLanes(phased, nodes, geometry, moments).build_pieces(stages[0], longest, part, piece)
    else:
        BlockedSums(phased, nodes, geometry).build_moments(stages, longest, part)
    joined = [*stages[0].reductions, *stages[1].reductions]

    def join(phase: Phase) -> None:
        build_moments_join(phased, phase, moments, part * others, longest.extent * others)

    build_join(phased, joined, phased.once(), join)


def _reading(stages: Sequence[Stage]) -> int:
    """How many stages go through the elements of a row."""
    return sum(may_exceed(extent(stage.dims), 1) for stage in stages)


def _widest_block(phased: PhasedKernel, stages: Sequence[Stage], splits: int) -> int:
    """Lanes of a block that caches take."""
    sizes = [dtype(node.value).compute.itemsize for stage in stages for node in stage.reductions]
    room = ACCUMULATORS // max(sum(sizes), 1)
    if (given := phased.entry(BLOCK)) is not None:
        return min(given, 4 * room)
    if splits > 1:
        return max(room // LANE_MULTIPLE * LANE_MULTIPLE, FEWEST_LANES)
    most = min(room, LANES_OF_TASK)
    if _reading(stages) > 1:
        most = min(most, KEPT // (max(estimate(extent(stage.dims)) for stage in stages) * 4))
    return max(most // LANE_MULTIPLE * LANE_MULTIPLE, FEWEST_LANES)


def _block_width(lanes: Extent, widest: int) -> int:
    """Lanes of a block, where all are of about one size; the widest where nobody knows how many there are."""
    if isinstance(lanes, Size):
        return widest
    blocks = -(-lanes // widest)
    return part_length(lanes, blocks, LANE_MULTIPLE) if blocks > 1 else lanes
