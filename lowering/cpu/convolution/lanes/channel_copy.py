"""The copy of what a block of positions reads of the input with channels innermost, and zeros around it."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Protocol

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.weight_gradients import joins_taps
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.lowering.cpu.convolution.tilings.weight_tiling import Steps, copied_channels, copied_elements
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, copy_matrix, count_loop, parallel_loop, plus, times
from fuse_opt.lowering.kernel.scope import INDEX, Scope


class CopiedBlock(Protocol):
    """What is copied at a time."""

    @property
    def rows(self) -> int:
        """Of positions."""
        ...

    @property
    def columns(self) -> int:
        """Positions of a row."""
        ...

    @property
    def width(self) -> int:
        """Channels of a panel."""
        ...


class ChannelCopy:
    """The memory on the stack, and what fills it."""

    def __init__(
        self,
        of: WindowContraction,
        tiling: CopiedBlock,
        x: SSAValue,
        element: DType,
        root: Scope,
        fills: bool = True,
        sized: tuple[SSAValue, int] | None = None,
    ) -> None:
        """
        `fills`: vectors of channels are read, also of those that no panel has. `sized`, where extents are sizes: elements from a
        row to the next one, and of all rows at most.
        """
        self.of, self.tiling, self.x, self.element, self.root = of, tiling, x, element, root
        self.steps = [Steps.along(of, axis) for axis in range(3)]
        self.channels = copied_channels(of, tiling.width) if fills else tiling.width
        _, down, right = self.steps
        self.rows, self.columns = down.count(tiling.rows), right.count(tiling.columns)
        self.pitch = self.columns * self.channels
        """From a row to the next one, where extents are numbers."""
        self.apart, whole = sized or (self.pitch, copied_elements(of, tiling.rows, tiling.columns, self.channels))
        """`apart`: the same, whatever extents are."""
        self.memory = root.add(memref.AllocaOp.get(element.attribute, 64, [whole + tiling.width]))
        self.memory.name_hint = "copied"
        written = (
            0 if fills and of.channels % self.channels else whole
        )  # by each block, where no panel has fewer channels
        self._fill(root, root.index_constant(written), root.index_constant(whole + tiling.width))

    @property
    def column_step(self) -> int:
        """From a position to its neighbour."""
        return self.steps[2].stride * self.channels

    @property
    def row_step(self) -> int:
        """From a position to the one in the next row."""
        return self.steps[1].stride * self.pitch

    def tap_table(self) -> SSAValue:
        """A table of where taps read, next to where the first one does."""
        table = self.root.add(memref.AllocaOp.get(INDEX, 64, [self.of.taps]))
        table.name_hint = "taps"
        _, down, right = self.steps
        _, height, width = self.of.window
        for number in range(self.of.taps):
            plane, line, column = number // (height * width), number // width % height, number % width
            at = (plane * self.rows + line * down.dilation) * self.pitch + column * right.dilation * self.channels
            offset, place = (self.root.index_constant(n) for n in (at, number))
            self.root.block.add_op(memref.StoreOp.get(offset, table, [place]))
        return table

    def each_tap(self, scope: Scope, build: Callable[[Scope, SSAValue, SSAValue], None]) -> None:
        """A loop over taps, given their number and where the first position reads; those that are joined are one."""
        _, down, right = self.steps
        constant = self.root.index_constant
        zero, side = constant(0), 1 if joins_taps(self.of) else self.of.window[2]

        def along(outer: Scope, row: SSAValue) -> None:
            def tap(inner: Scope, column: SSAValue) -> None:
                plane = inner.add(arith.DivSIOp(row, constant(self.of.window[1])))
                line = inner.add(arith.RemSIOp(row, constant(self.of.window[1])))
                at = plus(inner, times(inner, plane, self.rows), times(inner, line, down.dilation))
                at = plus(inner, times(inner, at, self.pitch), times(inner, column, right.dilation * self.channels))
                build(inner, plus(inner, times(inner, row, side), column), at)

            count_loop(outer, "tap_column", (zero, constant(side)), tap)

        count_loop(scope, "tap_row", (zero, constant(prod(self.of.window[:2]))), along)

    def build(self, scope: Scope, image: SSAValue, panel: SSAValue, block: tuple[SSAValue, Bounds, Bounds]) -> None:
        """Copies what the block reads of the panel's channels in a group of a sample: in an image of all channels of it."""
        copy_lines = self.lines(scope, image, panel, block)
        copy_lines(scope, (self.root.index_constant(0), self._count(scope, 1, block[1])))

    def lines(
        self, scope: Scope, image: SSAValue, panel: SSAValue, block: tuple[SSAValue, Bounds, Bounds]
    ) -> Callable[[Scope, Bounds], None]:
        """What copies some of the lines of a block, as `build` copies all of them."""
        of, constant = self.of, self.root.index_constant
        sample_step, group_step, channel_step, (plane_step, line_step, column_step) = of.x_steps()
        first_channel = times(scope, panel, self.channels)
        channels = scope.add(
            arith.MinSIOp(constant(self.channels), scope.add(arith.SubiOp(constant(of.channels), first_channel)))
        )
        image_step = sample_step if of.groups == 1 else group_step
        source = plus(scope, times(scope, image, image_step), times(scope, first_channel, channel_step))
        first, rows, columns = block
        left = self._start(scope, 2, columns[0])
        inside = self._inside(scope, 2, left, self._count(scope, 2, columns))
        top = self._start(scope, 1, rows[0])

        def line(inner: Scope, plane: SSAValue, number: SSAValue) -> None:
            place = plus(inner, top, times(inner, number, self.steps[1].step))
            depth = plus(inner, self._start(inner, 0, first), times(inner, plane, of.dilations[0]))
            there = inner.add(arith.CmpiOp(place, constant(of.extents[1]), "ult"))  # no number below 0 is
            exists = inner.add(arith.CmpiOp(depth, constant(of.extents[0]), "ult"))
            exists = inner.add(arith.AndIOp(there, exists))
            last = inner.add(arith.SelectOp(exists, inside[1], inside[0]))
            target = plus(inner, times(inner, plane, self.rows), number)
            target = times(inner, target, self.apart)
            at = plus(inner, source, times(inner, depth, plane_step), times(inner, place, line_step))
            at = plus(inner, at, times(inner, left, column_step))
            self._line(inner, at, target, (inside[0], last), channels, (column_step, channel_step))

        def copy_lines(scope: Scope, numbers: Bounds) -> None:
            planes = constant(0), constant(of.window[0])
            count_loop(
                scope, "plane", planes,
                lambda s, plane: count_loop(s, "line", numbers, lambda inner, n: line(inner, plane, n)),
            )  # fmt: skip

        return copy_lines

    def new_lines(self, scope: Scope, row: SSAValue) -> Bounds:
        """The lines that a row of positions of a block meets, and none of the rows before."""
        steps, constant = self.steps[1], self.root.index_constant
        seen = steps.count(1)
        before = plus(scope, times(scope, row, steps.stride), constant(seen - steps.stride))
        is_first = scope.add(arith.CmpiOp(row, constant(0), "eq"))
        before = scope.add(arith.SelectOp(is_first, constant(0), before))
        return before, plus(scope, times(scope, row, steps.stride), constant(seen))

    def _line(
        self,
        scope: Scope,
        at: SSAValue,
        target: SSAValue,
        inside: Bounds,
        channels: SSAValue,
        steps: tuple[int, int],
    ) -> None:
        """Zeros, elements of the input, zeros; `steps`: in the input, of neighbouring columns and channels."""
        constant, step = self.root.index_constant, self.steps[2].step * steps[0]
        self._fill(scope, target, plus(scope, target, times(scope, inside[0], self.channels)))
        begin = plus(scope, target, times(scope, inside[0], self.channels))
        seen = Matrix(self.x, plus(scope, at, times(scope, inside[0], step)), step, steps[1])
        count = scope.add(arith.SubiOp(inside[1], inside[0]))
        if steps[1] == 1 and step == self.channels:  # one stretch of memory
            count, channels = constant(1), times(scope, count, step)
        copy_matrix(scope, self.element, seen, Matrix(self.memory, begin, self.channels), count, channels)
        end = plus(scope, target, times(scope, inside[1], self.channels))
        pitch = self.apart if isinstance(self.apart, SSAValue) else constant(self.apart)
        self._fill(scope, end, plus(scope, target, pitch))

    def _start(self, scope: Scope, axis: int, position: SSAValue) -> SSAValue:
        """The element of the input that is copied first along an axis, for positions from this one on."""
        begin = self.root.index_constant(self.of.begins[axis])
        return scope.add(arith.SubiOp(times(scope, position, self.of.strides[axis]), begin))

    def _count(self, scope: Scope, axis: int, bounds: Bounds) -> SSAValue:
        """Elements along an axis that positions within the bounds meet."""
        steps, constant = self.steps[axis], self.root.index_constant
        count = scope.add(arith.SubiOp(scope.add(arith.SubiOp(bounds[1], bounds[0])), constant(1)))
        return plus(scope, times(scope, count, steps.stride), constant(steps.dilation * (steps.taps - 1) + 1))

    def _inside(self, scope: Scope, axis: int, start: SSAValue, count: SSAValue) -> Bounds:
        """Which of so many elements, a step apart from the start on, are of the input."""
        step, constant = self.steps[axis].step, self.root.index_constant
        found: list[SSAValue] = []
        for bound in (0, self.of.extents[axis]):
            away = scope.add(arith.SubiOp(constant(bound + step - 1), start))
            away = scope.add(arith.MaxSIOp(away, constant(0)))
            found.append(scope.add(arith.MinSIOp(scope.add(arith.DivSIOp(away, constant(step))), count)))
        return found[0], found[1]

    def _fill(self, scope: Scope, first: SSAValue, last: SSAValue) -> None:
        zero = self.root.constant(0.0, self.element)

        def put(inner: Scope, place: SSAValue) -> None:
            inner.block.add_op(memref.StoreOp.get(zero, self.memory, [place]))

        parallel_loop(scope, "place", (first, last), put)
