"""A kernel as `gpu.func`s: its passes by the scheme that fits the device, and the grids to launch them with."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, StringAttr, UnitAttr, i64
from xdsl.ir import Attribute, Block, BlockArgument, Region

from fuse_opt.dialects import gpu
from fuse_opt.dialects.analysis.kernel_access import COLUMN, TILE
from fuse_opt.dialects.analysis.loop_body import LoopBody
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.gpu.kernels import DYNAMIC_SHARED, shared_bytes
from fuse_opt.dialects.interfaces.shapes import may_rows_be_long, shape
from fuse_opt.dialects.types.extents import may_exceed
from fuse_opt.dialects.types.size import Size
from fuse_opt.dialects.types.symbolic_shape import SizeAttr
from fuse_opt.lowering.errors import LoweringError
from fuse_opt.lowering.gpu.columns import (
    THREADS,
    build_columns,
    can_be_wide,
    column_shape,
    is_short,
    lie_side_by_side,
    wide_shape,
)
from fuse_opt.lowering.gpu.context import GpuLimits, GpuParts, GpuSchedule, Grid, gpu_limits, gpu_schedule
from fuse_opt.lowering.gpu.horizontal import build_horizontal_blocks
from fuse_opt.lowering.gpu.math import shape_math
from fuse_opt.lowering.gpu.pointwise import build_pointwise
from fuse_opt.lowering.gpu.row_versions import row_versions
from fuse_opt.lowering.gpu.rows import RowPlan, build_rows, plan_rows
from fuse_opt.lowering.gpu.scope import KernelScope
from fuse_opt.lowering.gpu.split import Phase, SplitKernel, can_split, row_team_threads, split_count
from fuse_opt.lowering.gpu.tiles import build_tiles
from fuse_opt.lowering.hints import LARGE_BUFFER, LIMITS, SMALL_BUFFERS
from fuse_opt.lowering.kernel.buffers import KernelBuffers, Parameter
from fuse_opt.lowering.kernel.cache_hints import hint_caches
from fuse_opt.lowering.kernel.common_reductions import merge_equal_reductions
from fuse_opt.lowering.kernel.element_emitter import KernelNodes
from fuse_opt.lowering.kernel.scope import INDEX
from fuse_opt.lowering.loops.excess_precision import keeps_excess
from fuse_opt.lowering.loops.fast_math import is_fast

MOST_BLOCKS = 2**31 - 1
"""Blocks along x, the only ones that are used."""


@dataclass(frozen=True, slots=True)
class GpuKernel:
    """A kernel's function with what a caller needs: which buffers it takes and how it is launched."""

    function: gpu.FuncOp
    parameters: tuple[Parameter, ...]
    sizes: tuple[Size, ...]
    """What the function takes behind their buffers."""
    grid: Grid
    helpers: dict[str, tuple[tuple[Attribute, ...], Attribute]]
    aligned: tuple[int, ...] = ()
    """Parameters that must begin at multiples of `VECTOR_BYTES`."""
    unaligned: GpuKernel | None = None
    """What runs where these do not: the same element by element."""


class _TooMuchShared(LoweringError):
    """A block would need more shared memory than the device has."""


def build_gpu_kernels(
    kernel: KernelOp,
    passes: Sequence[LoopBody],
    memory: Sequence[Hashable],
    name: Callable[[], str],
    comment: str,
) -> list[GpuKernel]:
    """
    The kernel's launches in order, most often one; `memory` names the storage of each operand and result, so that equal
    ones are one buffer, and `name` gives a new name. Where a kernel moves vectors, it comes with one that does not, whose
    function has no place and no name of its own yet. What does not fit the device runs without shared memory, with a
    warning. Raises LoweringError for what the schedule says and cannot be.
    """
    passes = [merge_equal_reductions(loop_body) for loop_body in passes]
    buffers = KernelBuffers(kernel, passes, memory)
    schedule = gpu_schedule(kernel, gpu_limits(kernel))
    try:
        return _build_both(kernel, passes, buffers, schedule, name, comment)
    except _TooMuchShared as problem:
        warnings.warn(f"{problem.args[0]}; it runs with a warp for each row", stacklevel=2)
        simplest = GpuSchedule(schedule.limits, variant="warp", splits=1)
        return _build_both(kernel, passes, buffers, simplest, name, comment)


def _build_both(
    kernel: KernelOp,
    passes: Sequence[LoopBody],
    buffers: KernelBuffers,
    schedule: GpuSchedule,
    name: Callable[[], str],
    comment: str,
) -> list[GpuKernel]:
    """The launches for aligned buffers, each with what runs for others."""
    kernels = _build(kernel, passes, buffers, schedule, True, comment)
    if any(each.aligned for each in kernels):
        others = _build(kernel, passes, buffers, schedule, False, comment)
        pairs = zip(kernels, others, strict=True)
        kernels = [replace(each, unaligned=other) if each.aligned else each for each, other in pairs]
    for each in kernels:
        each.function.sym_name = StringAttr(name())
        assert each.unaligned is None or each.unaligned.parameters == each.parameters
    return kernels


def _build(
    kernel: KernelOp,
    passes: Sequence[LoopBody],
    buffers: KernelBuffers,
    schedule: GpuSchedule,
    vectors: bool,
    comment: str,
) -> list[GpuKernel]:
    phases, scratch = _build_phases(kernel, passes, buffers, schedule, vectors)
    if schedule.cache == "once":
        hint_caches([(phase.scope.block, phase.scope.parameters) for phase in phases])
    return finished_kernels(kernel, phases, scratch, buffers, schedule.limits, comment)


def finished_kernels(
    kernel: KernelOp,
    phases: Sequence[Phase],
    scratch: Sequence[Parameter],
    buffers: KernelBuffers,
    limits: GpuLimits,
    comment: str,
) -> list[GpuKernel]:
    """Functions of the launches of a kernel, without names."""
    for phase in phases:
        if (size := shared_bytes(phase.scope.workgroup_types)) > (most := limits.shared_memory):
            raise _TooMuchShared(f"'fused.kernel' needs {size} bytes of shared memory, a block has {most}", kernel)
    every = [*buffers.parameters, *scratch]
    hints = [*buffers.hints, *(f"{p.scratch.name or 'value'}_parts" for p in scratch if p.scratch is not None)]
    kernels: list[GpuKernel] = []
    for phase in phases:
        for argument, hint in zip(phase.scope.parameters, hints, strict=True):
            argument.name_hint = hint
        shape_math(phase.scope.block, phase.scope.helpers, is_fast(kernel), keeps_excess(kernel))
        found = _finished(phase, every, buffers.shared, limits)
        found.function.attributes["fused.comment"] = StringAttr(comment)
        if is_fast(kernel):
            found.function.attributes["fused.math"] = StringAttr("fast")
        bounds = list(phase.scope.limits.items())
        if isinstance(phase.grid.blocks, Size):
            bounds.append((phase.grid.blocks, MOST_BLOCKS))
        if not may_rows_be_long():
            found.function.attributes[SMALL_BUFFERS] = UnitAttr()
            bounds += _limits_of_buffers(kernel)
        if bounds:
            found.function.attributes[LIMITS] = ArrayAttr(ArrayAttr(map(SizeAttr, each)) for each in bounds)
        kernels.append(found)
    return kernels


def _limits_of_buffers(kernel: KernelOp) -> list[tuple[Size, int]]:
    """The extents that are too large for positions of 32 bits."""
    counts = dict.fromkeys(prod(shape(value)) for value in (*kernel.operands, *kernel.results))
    return [
        (each, LARGE_BUFFER - 1) for each in counts if isinstance(each, Size) and may_exceed(each, LARGE_BUFFER - 1)
    ]


def _build_phases(
    kernel: KernelOp, passes: Sequence[LoopBody], buffers: KernelBuffers, schedule: GpuSchedule, vectors: bool
) -> tuple[list[Phase], list[Parameter]]:
    """The launches of a kernel, and the scratch memory between them."""
    scope, notes = KernelScope(buffers.types), list[str]()
    aligned = list[int]()
    parts = [
        GpuParts(KernelNodes(loop_body), buffers, scope, schedule, notes, vectors, aligned) for loop_body in passes
    ]
    first, kind = parts[0], kernel.schedule_kind()
    grid: Grid | None = None
    if len(parts) > 1:
        grid = build_horizontal_blocks(parts)
    elif first.nodes.loop_body.is_row:
        plan = plan_rows(first)
        columns = kind == COLUMN or (schedule.variant is None and lie_side_by_side(plan))
        split = _split(plan, columns)
        if split is not None:
            phases = split.build()
            return phases, [Parameter(None, None, each) for each in split.scratch]
        if not columns and (versions := row_versions(plan)) is not None:
            return versions, []
        grid = _build_whole(plan, columns)
    elif kind == TILE:
        grid = build_tiles(first)
    grid = grid or build_pointwise(first)
    return [Phase(scope, grid, "; ".join(dict.fromkeys(notes)), tuple(aligned))], []


def _split(plan: RowPlan, columns: bool) -> SplitKernel | None:
    """The kernel with rows that several blocks share, where this is worth it."""
    if isinstance(plan.row.extent, Size) or not can_split(plan) or not may_exceed(plan.columns * plan.row.extent, 0):
        return None
    wide = columns and can_be_wide(plan)
    shape = wide_shape(plan) if wide else column_shape(plan) if columns else (1, row_team_threads(plan))
    splits = split_count(plan, shape, -(-plan.usual_rows // shape[0]), wide)
    return SplitKernel(plan.parts, plan, shape, splits, columns, wide) if splits > 1 else None


def _build_whole(plan: RowPlan, columns: bool) -> Grid:
    variant = plan.parts.schedule.variant
    if variant == "thread" or (variant is None and is_short(plan)):
        return build_columns(plan.parts, plan, (plan.parts.schedule.threads or THREADS, 1))
    if columns and variant is None:
        return build_columns(plan.parts, plan, column_shape(plan))
    return build_rows(plan.parts, plan, plan.shape())


def _finished(phase: Phase, parameters: Sequence[Parameter], shared: frozenset[int], limits: GpuLimits) -> GpuKernel:
    """The function of a launch, without the buffers that it does not use."""
    scope, grid = phase.scope, phase.grid
    if isinstance(grid.blocks, int) and grid.blocks > MOST_BLOCKS:  # calls that give a size more are refused
        grid = _repeat_blocks(scope, grid.blocks, grid.block)
    scope.block.add_op(gpu.ReturnOp())
    kept = [number for number, argument in enumerate(scope.parameters) if argument.first_use is not None]
    sizes = tuple(size for size, argument in scope.sizes.items() if argument.first_use is not None)
    for argument in (*scope.parameters, *scope.sizes.values()):
        if argument.first_use is None:
            scope.block.erase_arg(cast(BlockArgument, argument))
    inputs = [argument.type for argument in scope.block.args[: len(kept) + len(sizes)]]
    function = gpu.FuncOp(
        "kernel",
        (inputs, []),
        Region(scope.block),
        kernel=True,
        known_block_size=(*grid.block, 1),
        workgroup_buffers=scope.workgroup_types,
        private_buffers=scope.private_types,
    )
    if any(number in shared for number in kept):
        alias = DictionaryAttr({"fused.alias": UnitAttr()})
        marks = [alias if k in shared else DictionaryAttr({}) for k in kept]
        function.arg_attrs = ArrayAttr([*marks, *(DictionaryAttr({}) for _ in sizes)])
    function.attributes["fused.schedule"] = StringAttr(phase.note)
    if (size := shared_bytes(scope.workgroup_types)) > limits.static_shared or scope.asks_for_shared:
        function.attributes[DYNAMIC_SHARED] = IntegerAttr(size, i64)
        grid = Grid(grid.blocks, grid.block, size)
    aligned = tuple(kept.index(number) for number in phase.aligned)
    return GpuKernel(function, tuple(parameters[number] for number in kept), sizes, grid, scope.helpers, aligned)


def _repeat_blocks(scope: KernelScope, blocks: int, block: tuple[int, int]) -> Grid:
    """Lets each block of the largest grid do the work of several, one after another."""
    old = scope.block_number()
    number = gpu.BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X))
    constants = [arith.ConstantOp(IntegerAttr(value, INDEX)) for value in (blocks, MOST_BLOCKS)]
    inner = Block(arg_types=[INDEX])
    inner.args[0].name_hint = "block"
    old.replace_all_uses_with(inner.args[0])
    for op in list(scope.block.ops):
        op.detach()
        if op is old.owner:
            op.erase()
        else:
            inner.add_op(op)
    inner.add_ops([gpu.BarrierOp(), scf.YieldOp()])
    loop = scf.ForOp(number, constants[0], constants[1], [], Region(inner))
    scope.block.add_ops([number, *constants, loop])
    return Grid(MOST_BLOCKS, block)
