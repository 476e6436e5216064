"""A convolution as products of filters with what windows see, by tiles of sums in vector registers, without unfolding it.

Rows of a tile are filters, columns are neighbouring positions: the weight and the result are read and written where they
lie. A task is some rows of positions of a group's filters. It copies the rows of the input that their windows reach, with
zeros around them, or reads them where they lie; each tap reads this long row at a place of its own (an implicit product:
Chetlur et al. 2014, cuDNN, without a matrix of windows). Panel by panel, blocks of channels come in order, and what
follows is computed on a panel while a cache has it. Narrow floats are widened, of the input as it is copied, of the weight by
a launch of its own before. The cut follows from extents alone: every number of threads gives the
same bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod
from typing import Protocol

from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.conv_kernels import conv_kernel_of, packed_filters, winograd_kernel_of
from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.analysis.contractions.input_gradients import InputGradient
from fuse_opt.dialects.analysis.contractions.packed_panels import NARROW_BITS, filter_panel_width, reads_rows
from fuse_opt.dialects.analysis.contractions.weight_gradients import WeightGradient
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import TILE_BITS
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.cpu.convolution.any_extents.filter_panels import SizedFilterPanels
from fuse_opt.lowering.cpu.convolution.any_extents.lines import LineTasks, reads_lines
from fuse_opt.lowering.cpu.convolution.any_extents.task import AnyExtents
from fuse_opt.lowering.cpu.convolution.filter_panels import FilterPanels
from fuse_opt.lowering.cpu.convolution.input_gradient import build_input_gradient_loops
from fuse_opt.lowering.cpu.convolution.lanes.channel_lanes import ChannelLanes
from fuse_opt.lowering.cpu.convolution.lanes.inside_lanes import InsideLanes, has_lanes_inside
from fuse_opt.lowering.cpu.convolution.planes import PlaneTasks, reads_planes
from fuse_opt.lowering.cpu.convolution.position_panels import PositionPanels
from fuse_opt.lowering.cpu.convolution.position_product import cut_positions, is_position_product
from fuse_opt.lowering.cpu.convolution.row_panels import RowPanels
from fuse_opt.lowering.cpu.convolution.task import task_grain
from fuse_opt.lowering.cpu.convolution.weight_gradient import build_weight_gradient_loops
from fuse_opt.lowering.cpu.convolution.winograd.any_extents import SizedWinogradTiles
from fuse_opt.lowering.cpu.convolution.winograd.filters import transformed_filters
from fuse_opt.lowering.cpu.convolution.winograd.known_extents import WinogradTiles
from fuse_opt.lowering.cpu.kernel import KernelLoops, launch_of, launch_root
from fuse_opt.lowering.cpu.matmul.copies import count_loop
from fuse_opt.lowering.cpu.matmul.loops import product_loops
from fuse_opt.lowering.cpu.matmul.widened import widened
from fuse_opt.lowering.kernel.buffers import KernelBuffers, Scratch, operand_pass
from fuse_opt.lowering.kernel.element_emitter import element_buffer_type
from fuse_opt.lowering.kernel.scope import Scope


def build_convolution_loops(kernel: KernelOp, storages: Sequence[Hashable]) -> list[KernelLoops]:
    """The launches of a kernel of a convolution, or of a gradient of one, and pointwise ops. Raises Unschedulable."""
    convolution = conv_kernel_of(kernel)
    if isinstance(convolution, WeightGradient):
        return build_weight_gradient_loops(convolution, kernel, storages)
    if isinstance(convolution, InputGradient):
        return build_input_gradient_loops(convolution, kernel, storages)
    passes = [convolution.epilogue, operand_pass(convolution.x), operand_pass(convolution.weight)]
    memory = KernelBuffers(kernel, passes, storages)
    if TILE_BITS.number(kernel) > NARROW_BITS and is_position_product(convolution):
        return [product_loops(cut_positions(convolution, memory))]
    if not convolution.widens or _has_lanes(convolution):
        return [_convolution(convolution, memory, [])]
    kind = element_buffer_type(convolution.sums, prod(shape(convolution.weight)))
    scratch = [Scratch(0, kind, "wide_weight")]
    return [widened(convolution.weight, convolution.sums, memory, scratch), _convolution(convolution, memory, scratch)]


def build_winograd_loops(kernel: KernelOp, storages: Sequence[Hashable]) -> list[KernelLoops]:
    """The launches of a kernel of a convolution by tiles of 2x2 positions, and pointwise ops. Raises Unschedulable."""
    found = winograd_kernel_of(kernel)
    convolution, of = found.of, found.of.contraction
    passes = [convolution.epilogue, operand_pass(convolution.x), operand_pass(convolution.weight)]
    memory = KernelBuffers(kernel, passes, storages)
    panel = convolution.panel or filter_panel_width(of, convolution.sums.itemsize)
    kind = element_buffer_type(convolution.sums, packed_filters(of, panel))
    scratch = [] if found.is_transformed else [Scratch(0, kind, "filters")]
    root, buffers = launch_root(memory, scratch)
    weight = buffers[0] if scratch else root.block.args[memory.sources[convolution.weight]]
    body = (SizedWinogradTiles if of.has_any_extents else WinogradTiles)(convolution, panel, weight, memory, root)
    count_loop(root, "task", (root.block.args[-2], root.block.args[-1]), body.build)
    loops = launch_of(root, memory, scratch, prod(body.counts), task_grain(body.counts, of))
    return [transformed_filters(convolution, panel, memory, scratch), loops] if scratch else [loops]


class _Tasks(Protocol):
    """What makes the results, of which each task has a part."""

    @property
    def counts(self) -> tuple[Extent, ...]:
        """How many tasks there are, by what tells them apart."""
        ...

    def build(self, task: Scope, number: SSAValue) -> None:
        """The body of a task of that number."""
        ...


def _convolution(convolution: Convolution, memory: KernelBuffers, scratch: Sequence[Scratch]) -> KernelLoops:
    """The launch that gives the results, with the weight as it is, or as another launch has widened it."""
    root, buffers = launch_root(memory, scratch)
    bounds = root.block.args[-2], root.block.args[-1]
    if reads_planes(convolution):
        planes = PlaneTasks(convolution, memory, root)
        planes.build_all(bounds)
        counts = planes.counts
    else:
        tasks = _tasks_of(convolution, memory, root, buffers[0] if buffers else None)
        count_loop(root, "task", bounds, tasks.build)
        counts = tasks.counts
    return launch_of(root, memory, scratch, prod(counts), task_grain(counts, convolution.contraction))


def _tasks_of(convolution: Convolution, memory: KernelBuffers, root: Scope, wide: SSAValue | None) -> _Tasks:
    """What has a loop over tasks: of channels, of images of any extents, some of which are read where they lie, and of tiles."""
    if _has_lanes(convolution):
        return (InsideLanes if has_lanes_inside(convolution) else ChannelLanes)(convolution, memory, root)
    if convolution.contraction.has_any_extents:
        if convolution.panel:
            return SizedFilterPanels(convolution, memory, root)
        if reads_lines(convolution):
            return LineTasks(convolution, memory, root)
        return AnyExtents(convolution, memory, root, wide)
    if convolution.panel:
        return (RowPanels if reads_rows(convolution.contraction) else FilterPanels)(convolution, memory, root)
    return PositionPanels(convolution, memory, root, wide)


def _has_lanes(convolution: Convolution) -> bool:
    """Whether vectors are of channels."""
    return convolution.contraction.is_depthwise and convolution.contraction.result_last
