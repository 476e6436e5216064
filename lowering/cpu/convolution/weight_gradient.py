"""A convolution's gradient by its weight as tiles of sums in vector registers, over positions of all samples.

Rows of a tile are filters, whose gradients are read where they lie; columns are neighbouring channels of the input, which a task
copies block by block with channels innermost and zeros around, so that each tap reads the same copy from a place of its own.
Sums of a task, for all taps, stay in a second cache while blocks come in order. Where tasks are few all blocks are cut into
parts, whose sums a launch of its own joins in order. The cut follows from extents alone: every number of threads gives the
same bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from math import prod

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.weight_gradients import (
    WeightGradient,
    has_few_columns,
    joins_taps,
    weight_product,
)
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import SCRATCH
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.dialects.types.extents import estimate, is_number
from fuse_opt.lowering.cpu.convolution.lanes.channel_copy import ChannelCopy
from fuse_opt.lowering.cpu.convolution.position_dots import PositionDots
from fuse_opt.lowering.cpu.convolution.tilings.dot_tiling import DotTiling, dot_tiling
from fuse_opt.lowering.cpu.convolution.tilings.weight_tiling import WeightTiling, row_taps, weight_tiling
from fuse_opt.lowering.cpu.kernel import KernelLoops, launch_of, launch_root
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, count_loop, parallel_loop, plus, times
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles, Taps, either
from fuse_opt.lowering.cpu.matmul.widened import widened
from fuse_opt.lowering.kernel.buffers import WORK_PER_CHUNK, KernelBuffers, Scratch, operand_pass
from fuse_opt.lowering.kernel.element_emitter import element_buffer_type
from fuse_opt.lowering.kernel.loop_splitting import part_bounds, task_parts
from fuse_opt.lowering.kernel.scope import INDEX, Scope

ALIGNMENT = 64
"""Of each of several stretches of scratch memory."""


def build_weight_gradient_loops(
    gradient: WeightGradient, kernel: KernelOp, storages: Sequence[Hashable]
) -> list[KernelLoops]:
    """The launches of a kernel of a gradient by a weight and pointwise ops."""
    of, element = gradient.contraction, gradient.sums
    few = has_few_columns(of)
    cut = dot_tiling if few else weight_tiling
    tiling = cut(of.at_usual_batch(), element.itemsize).for_batch(of.batch)
    if SCRATCH.word(kernel) == "little":
        tiling = replace(tiling, parts=1)
    memory = KernelBuffers(kernel, [gradient.epilogue, operand_pass(gradient.grad), operand_pass(gradient.x)], storages)
    sizes: dict[str, int] = {}
    if not few and element is not dtype(gradient.raw):
        sizes["wide_grad"] = prod(shape(gradient.grad))  # tiles read it where it lies
    if tiling.parts > 1:
        sizes["parts"] = tiling.parts * _tasks(gradient, tiling) * _sums(gradient, tiling)
    scratch = _side_by_side(element, sizes)
    launches = [widened(gradient.grad, element, memory, scratch)] if "wide_grad" in sizes else []
    launches.append(_launch(gradient, tiling, memory, scratch))
    return [*launches, _joined(gradient, tiling, memory, scratch)] if tiling.parts > 1 else launches


def _side_by_side(element: DType, sizes: Mapping[str, int]) -> list[Scratch]:
    """Memory for so many elements each, by name."""
    found: list[Scratch] = []
    offset = 0
    for name, size in sizes.items():
        found.append(Scratch(offset, element_buffer_type(element, size), name))
        offset += -(-size * element.itemsize // ALIGNMENT) * ALIGNMENT
    return found


def _tasks(gradient: WeightGradient, tiling: WeightTiling | DotTiling) -> int:
    """Of a part: groups, panels, and parts of filters."""
    of = gradient.contraction
    return of.groups * tiling.panels * (of.filters // tiling.filters)


def _sums(gradient: WeightGradient, tiling: WeightTiling | DotTiling) -> int:
    """Elements of the sums of a task."""
    of = gradient.contraction
    if isinstance(tiling, DotTiling):
        return tiling.filters * of.channels * of.taps
    return row_taps(of) * tiling.filters * tiling.width


def _launch(
    gradient: WeightGradient, tiling: WeightTiling | DotTiling, memory: KernelBuffers, scratch: Sequence[Scratch]
) -> KernelLoops:
    """The launch that sums up: to the results, or to a buffer of sums of parts."""
    root, buffers = launch_root(memory, scratch)
    known = {each.name: buffer for each, buffer in zip(scratch, buffers, strict=True)}
    parts = known.get("parts")
    body = (
        PositionDots(gradient, tiling, memory, root)
        if isinstance(tiling, DotTiling)
        else _Sums(gradient, tiling, memory, root, known.get("wide_grad"))
    )
    finish = None if parts is not None else _Finish(gradient, tiling, memory, root)
    sums = _on_stack(gradient, tiling, root) if parts is None else parts
    count = tiling.parts * _tasks(gradient, tiling)

    def task(scope: Scope, number: SSAValue) -> None:
        at = root.index_constant(0) if parts is None else times(scope, number, _sums(gradient, tiling))
        body.build(scope, number, sums, at)
        if finish is not None:
            finish.build(scope, number, sums)

    count_loop(root, "task", (root.block.args[-2], root.block.args[-1]), task)
    grain = -(-WORK_PER_CHUNK * count // max(estimate(gradient.contraction.operations), 1))
    return launch_of(root, memory, scratch, count, grain)


def _joined(
    gradient: WeightGradient, tiling: WeightTiling | DotTiling, memory: KernelBuffers, scratch: Sequence[Scratch]
) -> KernelLoops:
    """The launch that joins sums of parts, in order, and gives the results."""
    root, (*_, parts) = launch_root(memory, scratch)
    finish, sums = _Finish(gradient, tiling, memory, root), _on_stack(gradient, tiling, root)
    size, tasks, zero = _sums(gradient, tiling), _tasks(gradient, tiling), root.index_constant(0)

    def task(scope: Scope, number: SSAValue) -> None:
        first = times(scope, number, size)

        def take(inner: Scope, place: SSAValue) -> None:
            total = inner.add(memref.LoadOp.get(parts, [plus(inner, first, place)]))
            for part in range(1, tiling.parts):
                at = plus(inner, first, root.index_constant(part * tasks * size), place)
                total = inner.add(arith.AddfOp(total, inner.add(memref.LoadOp.get(parts, [at]))))
            inner.block.add_op(memref.StoreOp.get(total, sums, [place]))

        parallel_loop(scope, "place", (zero, root.index_constant(size)), take)
        finish.build(scope, number, sums)

    count_loop(root, "task", (root.block.args[-2], root.block.args[-1]), task)
    return launch_of(root, memory, scratch, tasks, -(-WORK_PER_CHUNK // (4 * size * tiling.parts)))


def _on_stack(gradient: WeightGradient, tiling: WeightTiling | DotTiling, root: Scope) -> SSAValue:
    memory = root.add(memref.AllocaOp.get(gradient.sums.attribute, 64, [_sums(gradient, tiling)]))
    memory.name_hint = "sums"
    return memory


class _Sums:
    """The sums of a task: all taps of some filters at a panel of channels, over the blocks of a part."""

    def __init__(
        self,
        gradient: WeightGradient,
        tiling: WeightTiling,
        memory: KernelBuffers,
        root: Scope,
        grad: SSAValue | None,
    ) -> None:
        """`grad`: another buffer of the result's gradient, in the elements of sums."""
        self.of, self.tiling, self.root, self.element = gradient.contraction, tiling, root, gradient.sums
        self.grad = root.block.args[memory.sources[gradient.grad]] if grad is None else grad
        x = root.block.args[memory.sources[gradient.x]]
        self.copy = ChannelCopy(self.of, tiling, x, gradient.sums, root)
        tile = tiling.tile
        self.tiles = RowTiles(gradient.sums, tile.vectors, tile.height, tile.taller)
        self.places = self._table()

    def _table(self) -> SSAValue:
        """Where positions of a row read, next to where the first one does."""
        table = self.root.add(memref.AllocaOp.get(INDEX, 64, [self.tiling.columns]))
        table.name_hint = "places"

        def put(inner: Scope, column: SSAValue) -> None:
            inner.block.add_op(memref.StoreOp.get(times(inner, column, self.copy.column_step), table, [column]))

        constant = self.root.index_constant
        parallel_loop(self.root, "column", (constant(0), constant(self.tiling.columns)), put)
        return table

    def build(self, task: Scope, number: SSAValue, memory: SSAValue, at: SSAValue) -> None:
        of, tiling = self.of, self.tiling
        sums = Matrix(memory, at, tiling.width)
        part, group, panel, some = task_parts(
            task, self.root, number, (tiling.parts, of.groups, tiling.panels, of.filters // tiling.filters)
        )
        blocks = part_bounds(task, part, tiling.part, prod(tiling.blocks))

        def block(inner: Scope, place: SSAValue) -> None:
            sample, first, row, column = task_parts(inner, self.root, place, tiling.blocks)
            rows = part_bounds(inner, row, tiling.rows, of.positions[1])
            columns = part_bounds(inner, column, tiling.columns, of.positions[2])
            image = plus(inner, times(inner, sample, of.groups), group)
            self.copy.build(inner, image, panel, (first, rows, columns))
            filter = plus(inner, times(inner, image, of.filters), times(inner, some, tiling.filters))
            at = plus(inner, times(inner, filter, of.positions[0]), first)
            at = plus(inner, times(inner, at, of.positions[1]), rows[0])
            at = plus(inner, times(inner, at, of.positions[2]), columns[0])
            add = inner.add(arith.SubiOp(place, blocks[0]))
            self._tiles(inner, Matrix(self.grad, at, prod(of.positions)), (rows, columns), sums, add)

        if tiling.parts > 1 and not is_number(of.batch):
            nothing = task.add(arith.CmpiOp(blocks[0], blocks[1], "sge"))
            either(task, nothing, lambda inner: self._clear(inner, sums))
        count_loop(task, "block", blocks, block)

    def _clear(self, scope: Scope, sums: Matrix) -> None:
        """Those of a part without a block, as small batches leave some."""
        size, zero = row_taps(self.of) * self.tiling.filters * self.tiling.width, self.root.constant(0.0, self.element)

        def put(inner: Scope, place: SSAValue) -> None:
            inner.block.add_op(memref.StoreOp.get(zero, sums.memory, [plus(inner, sums.at, place)]))

        parallel_loop(scope, "place", (self.root.index_constant(0), self.root.index_constant(size)), put)

    def _tiles(self, scope: Scope, grad: Matrix, block: tuple[Bounds, Bounds], sums: Matrix, add: SSAValue) -> None:
        """Tile by tile of filters, all taps."""
        tiling, constant = self.tiling, self.root.index_constant
        rows, columns = (scope.add(arith.SubiOp(last, first)) for first, last in block)
        taps = Taps(self.places, columns, self.of.positions[2])

        def tap(inner: Scope, tile: SSAValue, number: SSAValue, at: SSAValue) -> None:
            row = self.tiles.first_row(inner, tile)
            left = Matrix(grad.memory, plus(inner, grad.at, times(inner, row, grad.row)), grad.row)
            right = Matrix(self.copy.memory, at, self.copy.row_step)
            place = plus(inner, times(inner, number, tiling.filters), row)
            out = Matrix(sums.memory, plus(inner, sums.at, times(inner, place, tiling.width)), tiling.width)
            self.tiles.multiply(inner, tile, rows, left, right, out, add, taps)

        def each(inner: Scope, tile: SSAValue) -> None:
            self.copy.each_tap(inner, lambda s, number, at: tap(s, tile, number, at))

        count_loop(scope, "tile", (constant(0), constant(tiling.tile.tiles)), each)


class _Finish:
    """What follows from the sums of a task: channels come before their taps in the result."""

    def __init__(
        self, gradient: WeightGradient, tiling: WeightTiling | DotTiling, memory: KernelBuffers, root: Scope
    ) -> None:
        self.of, self.tiling, self.root = gradient.contraction, tiling, root
        product = weight_product(self.of)
        self.epilogue = BlockEpilogue(gradient.epilogue, gradient.places, product, gradient.raw, memory, root)
        self.joined = self.of.window[2] if joins_taps(self.of) else 1
        self.width, self.channels = 0, self.of.channels
        if isinstance(tiling, WeightTiling):
            self.width = tiling.width
            self.channels = tiling.width if self.joined == 1 else self.of.channels
        self.turned: SSAValue | None = None
        if self.of.taps > 1 and self.width:  # dots are in the order of the result
            size = tiling.filters * self.channels * self.of.taps
            self.turned = root.add(memref.AllocaOp.get(gradient.sums.attribute, 64, [size]))
            self.turned.name_hint = "turned"

    def build(self, task: Scope, number: SSAValue, sums: SSAValue) -> None:
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        *_, group, panel, some = task_parts(
            task, self.root, number, (tiling.parts, of.groups, tiling.panels, of.filters // tiling.filters)
        )
        task.indices = {self.epilogue.batch: group}
        channels = part_bounds(task, panel, self.channels, of.channels)
        step = self.channels * of.taps
        if self.turned is not None:
            self._turn(task, sums, self.turned, task.add(arith.SubiOp(channels[1], channels[0])))
        found = Sums(sums if self.turned is None else self.turned, tiling.filters, step)
        columns = tuple(times(task, bound, of.taps) for bound in channels)
        first = times(task, some, tiling.filters)
        self.epilogue.emit(task, found, first, constant(tiling.filters), columns, columns[0])

    def _turn(self, scope: Scope, sums: SSAValue, turned: SSAValue, channels: SSAValue) -> None:
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        zero, step = constant(0), self.channels * of.taps

        def filter(outer: Scope, row: SSAValue) -> None:
            def put(inner: Scope, tap: SSAValue, next: SSAValue, channel: SSAValue) -> None:
                at = plus(inner, times(inner, tap, tiling.filters), row)
                column = plus(inner, times(inner, next, of.channels), channel)
                value = inner.add(memref.LoadOp.get(sums, [plus(inner, times(inner, at, self.width), column)]))
                place = plus(inner, times(inner, row, step), times(inner, channel, of.taps))
                place = plus(inner, place, times(inner, tap, self.joined), next)
                inner.block.add_op(memref.StoreOp.get(value, turned, [place]))

            def tap_loop(scope: Scope, tap: SSAValue) -> None:
                count_loop(
                    scope, "next", (zero, constant(self.joined)),
                    lambda s, next: parallel_loop(s, "channel", (zero, channels), lambda i, c: put(i, tap, next, c)),
                )  # fmt: skip

            count_loop(outer, "tap", (zero, constant(row_taps(of))), tap_loop)

        count_loop(scope, "filter", (zero, constant(tiling.filters)), filter)
