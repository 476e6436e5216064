"""The copy of what a block of positions reads of some channels, where extents of images are known at the call alone."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.lowering.cpu.convolution.any_extents.tiling import AnyExtentsTiling
from fuse_opt.lowering.cpu.convolution.tilings.blocks import planes_of
from fuse_opt.lowering.cpu.convolution.tilings.window_rows import Reach
from fuse_opt.lowering.cpu.matmul.copies import Bounds, count_loop, element_of, parallel_loop, plus, times
from fuse_opt.lowering.kernel.loop_splitting import flat_memory
from fuse_opt.lowering.kernel.scope import Scope


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a block of positions begins, along each axis, and where the channels of its group do in the input."""

    first: SSAValue
    row: SSAValue
    column: SSAValue
    channels: SSAValue


class WindowCopy:
    """
    The memory on the stack, and what fills it: planes of rows, phase by phase, with zeros around them. Planes lie as far apart as
    the largest one is long; rows are `pitch` apart, which follows from extents.
    """

    def __init__(self, of: WindowContraction, tiling: AnyExtentsTiling, element: DType, root: Scope) -> None:
        self.of, self.tiling, self.element, self.root = of, tiling, element, root
        self.rows, self.columns = Reach.along(of, 1), Reach.along(of, 2)
        self.pitch = self._pitch()
        _, _, self.source_channel, self.source = of.x_steps()
        self.zero = root.constant(0.0, element)
        self.channel_step = planes_of(of) * tiling.plane
        whole, slack = tiling.channels * self.channel_step, tiling.tile.width
        self.memory = root.add(memref.AllocaOp.get(element.attribute, 64, [whole + slack]))
        self.memory.name_hint = "rows"
        constant = root.index_constant
        self._fill(root, constant(whole), (constant(0), constant(slack)))

    def _pitch(self) -> SSAValue:
        """The longest part of a row, and what windows read behind it; of whole rows, no more than has the zeros between them."""
        root, constant, parts, row = self.root, self.root.index_constant, self.tiling.parts, self.of.positions[2]
        whole = constant(self.columns.pitch(row))
        if parts == 1:
            return whole
        longest = root.add(arith.DivSIOp(plus(root, constant(row), constant(parts - 1)), constant(parts)))
        part = plus(root, longest, constant(self.columns.behind)) if self.columns.behind else longest
        is_whole = root.add(arith.CmpiOp(constant(parts), constant(1), "eq"))
        return root.add(arith.SelectOp(is_whole, whole, part))

    def tap_places(self) -> list[SSAValue]:
        """Where each tap reads, next to where the first position of a channel does."""
        root, found = self.root, list[SSAValue]()
        for elements, rows in self._tap_offsets():
            at = root.index_constant(elements)
            found.append(plus(root, at, times(root, self.pitch, rows)) if rows else at)
        return found

    def _tap_offsets(self) -> list[tuple[int, int]]:
        """The same, in elements, and in rows besides."""
        found: list[tuple[int, int]] = []
        for first in range(self.of.window[0]):
            for phase, down in self.rows.taps:
                for part, right in self.columns.taps:
                    plane = (first * len(self.rows.phases) + phase) * len(self.columns.phases) + part
                    found.append((plane * self.tiling.plane + right, down))
        return found[::-1] if self.of.flipped else found

    def build(self, scope: Scope, source: SSAValue, origin: Origin, channels: SSAValue, rows: SSAValue) -> None:
        """Copies what so many rows of positions from the origin on read of so many channels."""
        of, constant = self.of, self.root.index_constant
        count = plus(scope, rows, constant(self.rows.behind))
        found = [self._all_inside(scope, reach, start, met) for reach, start, met in self._axes(origin, count)]

        def plane(inner: Scope, channel: SSAValue, first: SSAValue) -> None:
            at = plus(inner, times(inner, origin.first, of.strides[0]), times(inner, first, of.dilations[0]))
            at = inner.add(arith.SubiOp(at, constant(of.begins[0]))) if of.begins[0] else at
            there = plus(inner, origin.channels, times(inner, channel, self.source_channel))
            there = plus(inner, there, times(inner, at, self.source[0]))
            exists = inner.add(arith.CmpiOp(at, constant(of.extents[0]), "ult"))  # no number below 0 is
            here = times(inner, channel, self.channel_step)
            phases = len(self.rows.phases) * len(self.columns.phases)
            here = plus(inner, here, times(inner, first, phases * self.tiling.plane))
            for number, down in enumerate(found[0]):
                last = inner.add(arith.SelectOp(exists, down.bounds[1], down.bounds[0]))
                for other, right in enumerate(found[1]):
                    place = number * len(found[1]) + other
                    target = plus(inner, here, constant(place * self.tiling.plane))
                    begin = plus(inner, there, times(inner, down.start, self.source[1]), right.start)
                    self._plane(inner, source, (begin, target), (down.bounds[0], last), right.bounds, count)

        planes = constant(0), constant(of.window[0])
        count_loop(
            scope, "copied", (constant(0), channels),
            lambda outer, channel: count_loop(outer, "plane", planes, lambda s, first: plane(s, channel, first)),
        )  # fmt: skip

    def _axes(self, origin: Origin, rows: SSAValue) -> list[tuple[Reach, SSAValue, SSAValue]]:
        return [(self.rows, origin.row, rows), (self.columns, origin.column, self.pitch)]

    def _all_inside(self, scope: Scope, reach: Reach, origin: SSAValue, count: SSAValue) -> list[_Inside]:
        """For each phase, of so many elements from a position on."""
        constant, found = self.root.index_constant, list[_Inside]()
        for phase in reach.phases:
            shift = reach.begin - phase
            start = scope.add(arith.SubiOp(times(scope, origin, reach.stride), constant(shift)))
            bounds: list[SSAValue] = []
            for first in (-(-shift // reach.stride), -(-(reach.extent + shift) // reach.stride)):
                place = scope.add(arith.SubiOp(constant(first), origin))
                place = scope.add(arith.MaxSIOp(place, constant(0)))
                bounds.append(scope.add(arith.MinSIOp(place, count)))
            found.append(_Inside(start, (bounds[0], bounds[1])))
        return found

    def _plane(
        self, scope: Scope, source: SSAValue, at: Bounds, rows: Bounds, columns: Bounds, count: SSAValue
    ) -> None:
        """
        Rows of zeros, those of the input, rows of zeros, and zeros for what a panel reads behind them: denormal numbers that lie
        there from before would take long. `at`: where it is in the input, if it is there, and in the copy.
        """
        (begin, target), zero = at, self.root.index_constant(0)

        def row(inner: Scope, number: SSAValue) -> None:
            here = plus(inner, target, inner.add(arith.MuliOp(number, self.pitch)))
            moved = times(inner, times(inner, number, self.rows.stride), self.source[1])
            self._fill(inner, here, (zero, columns[0]))
            self._copy(inner, source, plus(inner, begin, moved), here, columns)
            self._fill(inner, here, (columns[1], self.pitch))

        def scaled(number: SSAValue) -> SSAValue:
            return scope.add(arith.MuliOp(number, self.pitch))

        self._zeros(scope, target, scaled(rows[0]))
        if element_of(source) is self.element:
            self._copy_rows(scope, source, at, rows, columns)
        else:
            count_loop(scope, "row", rows, row)
        constant = self.root.index_constant
        behind = plus(scope, scaled(count), constant(self.tiling.tile.width))
        end = scope.add(arith.MinSIOp(behind, constant(self.tiling.plane)))
        first = scaled(rows[1])
        self._zeros(scope, plus(scope, target, first), scope.add(arith.SubiOp(end, first)))

    def _zeros(self, scope: Scope, first: SSAValue, count: SSAValue) -> None:
        """So many zeros, and perhaps some more, where rows come later or nothing is read."""
        memory = flat_memory(self.root, self.memory)
        scope.call_for_effect(f"fo_zeros_{self.element.name}", [memory, first, count])

    def _copy_rows(self, scope: Scope, source: SSAValue, at: Bounds, rows: Bounds, columns: Bounds) -> None:
        """Rows with zeros around them, perhaps behind the last one, too, where others are copied or zeros are."""
        constant, step = self.root.index_constant, self.columns.stride
        read = [flat_memory(self.root, source), at[0], constant(self.rows.stride * self.source[1]), constant(step)]
        written = [flat_memory(self.root, self.memory), at[1], self.pitch, *rows]
        scope.call_for_effect(f"fo_rows_{self.element.name}", [*read, *columns, *written])

    def _copy(self, scope: Scope, source: SSAValue, begin: SSAValue, here: SSAValue, columns: Bounds) -> None:
        def put(inner: Scope, column: SSAValue) -> None:
            place = plus(inner, begin, times(inner, column, self.columns.stride))
            value = inner.add(memref.LoadOp.get(source, [place]))
            if element_of(source) is not self.element:
                value = inner.add(arith.ExtFOp(value, self.element.attribute))
            inner.block.add_op(memref.StoreOp.get(value, self.memory, [plus(inner, here, column)]))

        parallel_loop(scope, "column", columns, put)

    def _fill(self, scope: Scope, here: SSAValue, columns: Bounds) -> None:
        def put(inner: Scope, column: SSAValue) -> None:
            inner.block.add_op(memref.StoreOp.get(self.zero, self.memory, [plus(inner, here, column)]))

        parallel_loop(scope, "column", columns, put)


@dataclass(frozen=True, slots=True)
class _Inside:
    """Of the elements of a phase that are copied, where the first one is in the input, and which are there."""

    start: SSAValue
    bounds: Bounds
