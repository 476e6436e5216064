"""A convolution's gradient by its weight where a group has few channels: vectors are of positions, for each channel and filter.

A task is some filters of a group. Block by block of positions it copies what windows reach of the group's channels, with zeros
around, and the gradients of a filter; each tap's products with these are summed up in a vector of their own, and its elements
at the end.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.weight_gradients import WeightGradient
from fuse_opt.lowering.c.headers.position_dots import dots_name, totals_name
from fuse_opt.lowering.cpu.convolution.any_extents.window_copy import Origin
from fuse_opt.lowering.cpu.convolution.input_copy import InputCopy, tap_offsets
from fuse_opt.lowering.cpu.convolution.tilings.dot_tiling import DotTiling, tap_groups
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, copy_matrix, count_loop, parallel_loop, plus, times
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import flat_memory, part_bounds, task_parts
from fuse_opt.lowering.kernel.scope import INDEX, Scope


class PositionDots:
    """The sums of a task: all taps of all channels of some filters, over the blocks of a part."""

    def __init__(self, gradient: WeightGradient, tiling: DotTiling, memory: KernelBuffers, root: Scope) -> None:
        self.of, self.tiling, self.root, self.element = gradient.contraction, tiling, root, gradient.sums
        self.lanes = 64 // self.element.itemsize
        self.grad, self.x = (root.block.args[memory.sources[value]] for value in (gradient.grad, gradient.x))
        self.copy = InputCopy(self.of, tiling.block, self.element, root, self.lanes)
        size = tiling.block.rows * tiling.block.columns
        self.given = self._memory("given", size + self.lanes)
        self._fill(root, self.given, (root.index_constant(size), root.index_constant(size + self.lanes)))
        self.size = tiling.filters * self.of.channels * self.of.taps
        self.vectors = self._memory("vectors", self.size * self.lanes)
        self.taps = self._tap_table()

    def _memory(self, name: str, size: int) -> SSAValue:
        memory = self.root.add(memref.AllocaOp.get(self.element.attribute, 64, [size]))
        memory.name_hint = name
        return memory

    def _tap_table(self) -> SSAValue:
        table = self.root.add(memref.AllocaOp.get(INDEX, 64, [self.of.taps]))
        table.name_hint = "taps"
        for number, offset in enumerate(tap_offsets(self.of, self.tiling.block)):
            value, place = (self.root.index_constant(n) for n in (offset, number))
            self.root.block.add_op(memref.StoreOp.get(value, table, [place]))
        return table

    def _fill(self, scope: Scope, memory: SSAValue, bounds: Bounds) -> None:
        zero = self.root.constant(0.0, self.element)

        def put(inner: Scope, place: SSAValue) -> None:
            inner.block.add_op(memref.StoreOp.get(zero, memory, [place]))

        parallel_loop(scope, "place", bounds, put)

    def build(self, task: Scope, number: SSAValue, memory: SSAValue, at: SSAValue) -> None:
        """Sums of a task, by filters, channels and taps, from a place of the memory on."""
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        counts = (tiling.parts, of.groups, of.filters // tiling.filters)
        part, group, some = task_parts(task, self.root, number, counts)
        self._fill(task, self.vectors, (constant(0), constant(self.size * self.lanes)))
        blocks = part_bounds(task, part, tiling.part, prod(tiling.blocks))
        first_filter = plus(task, times(task, group, of.filters), times(task, some, tiling.filters))
        count_loop(task, "block", blocks, lambda inner, place: self._block(inner, place, group, first_filter))
        given = [flat_memory(self.root, self.vectors), constant(0), flat_memory(self.root, memory), at]
        task.call_for_effect(totals_name(self.element.name), [constant(self.size), *given])

    def _block(self, scope: Scope, place: SSAValue, group: SSAValue, first_filter: SSAValue) -> None:
        of, block = self.of, self.tiling.block
        sample, first, row, column = task_parts(scope, self.root, place, self.tiling.blocks)
        rows = part_bounds(scope, row, block.rows, of.positions[1])
        columns = part_bounds(scope, column, block.columns, of.positions[2])
        sample_step, group_step, _, _ = of.x_steps()
        channels = plus(scope, times(scope, sample, sample_step), times(scope, group, group_step))
        self.copy.build(scope, self.x, Origin(first, rows[0], columns[0], channels))
        extents = tuple(scope.add(arith.SubiOp(last, begin)) for begin, last in (rows, columns))
        filter = plus(scope, times(scope, sample, of.groups * of.filters), first_filter)
        at = plus(scope, times(scope, filter, of.positions[0]), first)
        at = plus(scope, times(scope, at, of.positions[1]), rows[0])
        at = plus(scope, times(scope, at, of.positions[2]), columns[0])

        def each(inner: Scope, number: SSAValue) -> None:
            there = plus(inner, at, times(inner, number, prod(of.positions)))
            self._filter(inner, number, there, (extents[0], extents[1]))

        count_loop(scope, "filter", (self.root.index_constant(0), self.root.index_constant(self.tiling.filters)), each)

    def _filter(self, scope: Scope, number: SSAValue, at: SSAValue, extents: tuple[SSAValue, SSAValue]) -> None:
        """Adds the products of the gradients of a filter, whole rows or a part of one, with all that windows reach there."""
        of, constant, zero = self.of, self.root.index_constant, self.root.index_constant(0)
        count = scope.add(arith.MuliOp(*extents))
        given = Matrix(self.given, zero, 1)
        copy_matrix(scope, self.element, Matrix(self.grad, at, 1), given, constant(1), count)
        flat = [flat_memory(self.root, each) for each in (self.copy.memory, self.taps, self.given, self.vectors)]

        def each(inner: Scope, channel: SSAValue) -> None:
            read = [flat[0], times(inner, channel, self.copy.channel_step), constant(self.tiling.block.pitch)]
            place = plus(inner, times(inner, number, of.channels), channel)
            place = times(inner, place, of.taps * self.lanes)
            for first, taps in tap_groups(of.taps):
                to = [flat[3], plus(inner, place, constant(first * self.lanes)) if first else place]
                arguments = [*extents, *read, flat[1], constant(first), flat[2], zero, extents[1], *to]
                inner.call_for_effect(dots_name(self.element.name, taps), arguments)

        count_loop(scope, "channel", (zero, constant(of.channels)), each)
