"""Depthwise convolutions whose vectors are of neighbouring positions of a row, of images of any extents and of known ones.

A window reads a plane where it lies. A result that nothing follows is written where it goes; what follows other ones is computed
from sums of a block, row by row, or all at once where blocks have whole rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import F32
from fuse_opt.dialects.types.extents import is_number, smallest
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.c.headers.plane_sums import LANES, MOST_TAPS, STRIDES, plane_sums_name
from fuse_opt.lowering.cpu.convolution.any_extents.blocks import BlockTasks, Positions
from fuse_opt.lowering.cpu.convolution.any_extents.tiling import any_extents_tiling
from fuse_opt.lowering.cpu.matmul.copies import Bounds, count_loop, plus, times
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.cpu.matmul.row_tiles import either
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import flat_memory
from fuse_opt.lowering.kernel.scope import Scope

FEW_TAPS = 9
"""Of windows that are summed up so whatever their rows are: of more, copies leave none of a vector between rows."""
BLOCK = 4096
"""Positions of a block whose sums are not kept, about: what it reads of the input stays in a first cache."""


def reads_planes(convolution: Convolution) -> bool:
    """Whether sums are made so, in vectors of half a register, too: of more taps copies make more of the processor."""
    of = convolution.contraction
    if not of.is_depthwise or of.flipped or of.x_last or of.result_last:
        return False
    (_, height, columns), (first, *window), (_, *strides) = of.positions, of.window, of.strides
    is_plane = of.extents[0] == first == 1 and height != 1 and max(of.dilations) == 1 and of.begins[0] == 0
    most = MOST_TAPS.get(strides[1], 0) if of.has_any_extents or _fills_vectors(columns, strides) else FEW_TAPS
    is_few = of.taps <= most and min(window) > 1
    return is_plane and is_few and set(strides) <= set(STRIDES) and dtype(convolution.x) is convolution.sums is F32


def _fills_vectors(columns: Extent, strides: Sequence[int]) -> bool:
    """Whether rows of positions, which are as far apart as in the input, leave at most a quarter of their vectors."""
    vectors = -(-columns // LANES) * LANES
    return is_number(vectors) and 4 * columns >= 3 * vectors and max(strides) == 1


@dataclass(frozen=True, slots=True)
class _Planes:
    """Neighbours: the number of the first one, how many there are, and the group of the first one."""

    first: SSAValue
    count: SSAValue
    group: SSAValue


class PlaneTasks(BlockTasks):
    """A task is a block of positions of a plane."""

    def __init__(self, convolution: Convolution, memory: KernelBuffers, root: Scope) -> None:
        super().__init__(convolution.contraction, root)
        of, element = self.of, convolution.sums
        self.x, self.weight = (root.block.args[memory.sources[v]] for v in (convolution.x, convolution.weight))
        self.name = plane_sums_name((of.window[1], of.window[2]), (of.strides[1], of.strides[2]))
        product = of.result_product()
        self.epilogue = BlockEpilogue(convolution.epilogue, convolution.places, product, convolution.raw, memory, root)
        self.result = root.block.args[memory.targets[0]] if convolution.is_alone and not memory.nontemporal else None
        if self.result is not None:
            _, height, width = of.positions
            self.cut(smallest(height, -(-height * width // BLOCK)), 1, 1)
            return
        tiling = any_extents_tiling(of.at_usual_batch(), element.itemsize, memory.register_bits)
        self.cut(tiling.rows, tiling.parts, 1)
        memory_of_sums = root.add(memref.AllocaOp.get(element.attribute, 64, [tiling.columns]))
        memory_of_sums.name_hint = "sums"
        self.sums = Sums(memory_of_sums, 1, tiling.columns)

    def build_all(self, bounds: Bounds) -> None:
        """The tasks within the bounds: those that are a plane each are one call."""
        root, blocks = self.root, self.rows * self.parts
        is_plane: SSAValue | bool = self.result is not None
        if is_plane:
            is_one = arith.CmpiOp(root.index_constant(blocks), root.index_constant(1), "eq")
            is_plane = blocks == 1 if is_number(blocks) else root.add(is_one)
        either(
            root,
            is_plane,
            lambda inner: self._sum_up_planes(inner, bounds),
            lambda inner: count_loop(inner, "task", bounds, self.build),
        )

    def build(self, task: Scope, number: SSAValue) -> None:
        (batch, group, _, _), rows, columns = self.place(task, number)
        (_, height, width), constant = self.of.positions, self.root.index_constant
        plane = plus(task, times(task, batch, self.of.groups), group)
        task.indices = {self.epilogue.batch: plane}
        planes = _Planes(plane, constant(1), group)
        if self.result is not None:
            written = self.result, times(task, plane, height * width), constant(width)
            self._sum_up(task, planes, written, rows, columns)
            return
        counts = [task.add(arith.SubiOp(last, first)) for first, last in (rows, columns)]
        before = plus(task, task.add(arith.MuliOp(rows[0], counts[1])), columns[0])
        at = task.add(arith.SubiOp(constant(0), before))
        self._sum_up(task, planes, (self.sums.memory, at, counts[1]), rows, columns)
        self._store(task, Positions(constant(0), rows[0], columns[0], *counts))

    def _sum_up_planes(self, scope: Scope, bounds: Bounds) -> None:
        assert self.result is not None
        (_, height, width), constant = self.of.positions, self.root.index_constant
        group = scope.add(arith.RemSIOp(bounds[0], constant(self.of.groups)))
        planes = _Planes(bounds[0], scope.add(arith.SubiOp(bounds[1], bounds[0])), group)
        written = self.result, times(scope, bounds[0], height * width), constant(width)
        self._sum_up(scope, planes, written, (constant(0), constant(height)), (constant(0), constant(width)))

    def _sum_up(
        self, scope: Scope, planes: _Planes, written: tuple[SSAValue, SSAValue, SSAValue], rows: Bounds, columns: Bounds
    ) -> None:
        """Sums of a block of planes: into memory, in which position (0, 0) would go to a place, and rows are so far apart."""
        (_, height, width), (_, up, before), constant = self.of.extents, self.of.begins, self.root.index_constant
        x, weight, target = (flat_memory(self.root, each) for each in (self.x, self.weight, written[0]))
        read = [x, times(scope, planes.first, height * width), *map(constant, (width, height, width)), weight]
        bounds = [constant(up), constant(before), *rows, *columns]
        apart = constant(height * width), constant(prod(self.of.positions[1:]))
        several = [planes.count, *apart, planes.group, constant(self.of.groups)]
        scope.call_for_effect(self.name, [*read, target, *written[1:], *bounds, *several])

    def _store(self, task: Scope, block: Positions) -> None:
        """What follows the sums of a block: of all its rows at once, where these lie side by side in the result, too."""
        constant, (_, _, width) = self.root.index_constant, self.of.positions
        first = plus(task, times(task, block.row, width), block.column)
        is_whole = task.add(arith.CmpiOp(constant(self.parts), constant(1), "eq"))
        every = task.add(arith.MuliOp(block.rows, block.columns))
        lines = task.add(arith.SelectOp(is_whole, constant(1), block.rows))
        length = task.add(arith.SelectOp(is_whole, every, block.columns))

        def line(inner: Scope, number: SSAValue) -> None:
            place = plus(inner, first, times(inner, number, width))
            start = inner.add(arith.SubiOp(place, inner.add(arith.MuliOp(number, block.columns))))
            self.epilogue.over_columns(inner, self.sums, (place, plus(inner, place, length)), start)

        self.epilogue.over_rows(
            task, self.sums, constant(0), constant(1), lambda row: count_loop(row, "line", (constant(0), lines), line)
        )
