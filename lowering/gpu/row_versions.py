"""Rows whose length is a size: a launch for each range of lengths, with threads that suit it.

A call has one of them: the grids of the others are empty, as each is a number of blocks times 1 where the length lies in its
range, else 0. So neither the host nor a kernel chooses anything that the program's record does not say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fuse_opt.dialects.types.extents import largest, least, most, smallest
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.gpu.context import Grid
from fuse_opt.lowering.gpu.rows import RowPlan, build_in_warps, build_rows
from fuse_opt.lowering.gpu.scope import KernelScope
from fuse_opt.lowering.gpu.split import Phase

OF_LANES, OF_WARP = 64, 512
"""Columns up to which a warp has several rows, and up to which it has one; a block has a longer one."""
LANES = 8
"""Threads of a row where a warp has several."""


@dataclass(frozen=True)
class _Version:
    most: int | None
    """Columns of the longest row that it is for; None for any that is left."""
    build: Callable[[RowPlan], Grid]


_VERSIONS = (
    _Version(OF_LANES, lambda plan: build_in_warps(plan.parts, plan, LANES)),
    _Version(OF_WARP, lambda plan: build_rows(plan.parts, plan, plan.shape_of_warps())),
    _Version(None, lambda plan: build_rows(plan.parts, plan, plan.shape_of_block())),
)


def row_versions(plan: RowPlan) -> list[Phase] | None:
    """The launches; None where columns are a number, or the schedule says threads."""
    schedule, columns = plan.parts.schedule, plan.columns
    if not isinstance(columns, Size) or schedule.variant is not None or schedule.threads is not None:
        return None
    phases: list[Phase] = []
    behind = 0
    for version in _VERSIONS:
        end = most(columns) if version.most is None else version.most
        if behind < most(columns) and end >= least(columns):
            phases.append(_phase(plan, version, _is_within(columns, behind, end)))
        behind = end
    return phases


def _phase(plan: RowPlan, version: _Version, chosen: Extent) -> Phase:
    kernel = KernelScope(plan.parts.buffers.types)
    parts = replace(plan.parts, kernel=kernel, notes=[], aligned=[])
    grid = version.build(replace(plan, parts=parts))
    return Phase(kernel, replace(grid, blocks=grid.blocks * chosen), "; ".join(parts.notes), tuple(parts.aligned))


def _is_within(columns: Size, behind: int, end: int) -> Extent:
    """1 where there are more columns than some and no more than others, else 0."""
    is_more, is_no_more = (smallest(largest(rest, 0), 1) for rest in (columns - behind, end + 1 - columns))
    return is_more * is_no_more
