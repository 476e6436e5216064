"""The copy of what a block of positions reads of some channels, where extents of images are known at the call alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.dialects.types.size import Extent
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


class CopiedPlanes(Protocol):
    """What a copy has to know of how a convolution is cut."""

    @property
    def parts(self) -> Extent:
        """Of a row."""
        ...

    @property
    def plane(self) -> int:
        """Elements of a plane of a channel's copy, at most."""
        ...

    @property
    def channels(self) -> int:
        """That are copied at a time."""
        ...

    @property
    def slack(self) -> int:
        """Elements that tiles may read behind the copy."""
        ...


class WindowCopy:
    """
    The memory on the stack, and what fills it: planes of rows, phase by phase, with zeros around them. Planes lie as far apart as
    the largest one is long; rows are `pitch` apart, which follows from extents.
    """

    def __init__(self, of: WindowContraction, tiling: CopiedPlanes, element: DType, root: Scope) -> None:
        self.of, self.tiling, self.element, self.root = of, tiling, element, root
        self.rows, self.columns = Reach.along(of, 1), Reach.along(of, 2)
        self.pitch = self._pitch()
        _, _, self.source_channel, self.source = of.x_steps()
        self.zero = root.constant(0.0, element)
        self.channel_step = of.planes * tiling.plane
        whole, slack = tiling.channels * self.channel_step, tiling.slack
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
        """
        Copies what so many rows of positions from the origin on read of so many channels: of each phase of all of them, rows of
        zeros, those of the input, rows of zeros, and zeros for what a panel reads behind them, as denormal numbers that lie there
        from before would take long.
        """
        of, constant = self.of, self.root.index_constant
        count = plus(scope, rows, constant(self.rows.behind))
        behind = plus(scope, scope.add(arith.MuliOp(count, self.pitch)), constant(self.tiling.slack))
        end = scope.add(arith.MinSIOp(behind, constant(self.tiling.plane)))
        found = [self._all_inside(scope, reach, start, met) for reach, start, met in self._axes(origin, count)]
        phases = len(self.rows.phases) * len(self.columns.phases)

        def plane(inner: Scope, first: SSAValue) -> None:
            at = plus(inner, times(inner, origin.first, of.strides[0]), times(inner, first, of.dilations[0]))
            at = inner.add(arith.SubiOp(at, constant(of.begins[0]))) if of.begins[0] else at
            there = plus(inner, origin.channels, times(inner, at, self.source[0]))
            exists = inner.add(arith.CmpiOp(at, constant(of.extents[0]), "ult"))  # no number below 0 is
            here = times(inner, first, phases * self.tiling.plane)
            for number, down in enumerate(found[0]):
                last = inner.add(arith.SelectOp(exists, down.bounds[1], down.bounds[0]))
                for other, right in enumerate(found[1]):
                    target = plus(inner, here, constant((number * len(found[1]) + other) * self.tiling.plane))
                    begin = plus(inner, there, times(inner, down.start, self.source[1]), right.start)
                    copied = _Copied(source, begin, target, (down.bounds[0], last), right.bounds, end)
                    self._plane(inner, copied, channels)

        count_loop(scope, "plane", (constant(0), constant(of.window[0])), plane)

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

    def _plane(self, scope: Scope, copied: _Copied, channels: SSAValue) -> None:
        if element_of(copied.source) is not self.element:
            self._widened(scope, copied, channels)
            return
        constant, (begin, last) = self.root.index_constant, copied.rows
        row, step = constant(self.rows.stride * self.source[1]), constant(self.columns.stride)
        read = [flat_memory(self.root, copied.source), copied.begin, row, step, *copied.columns]
        written = [flat_memory(self.root, self.memory), copied.target, self.pitch, begin, last, copied.end]
        steps = [channels, constant(self.source_channel), constant(self.channel_step)]
        scope.call_for_effect(f"fo_rows_{self.element.name}", [*read, *written, *steps])

    def _widened(self, scope: Scope, copied: _Copied, channels: SSAValue) -> None:
        """The same where elements are widened."""
        zero, (begin, last) = self.root.index_constant(0), copied.rows

        def channel(outer: Scope, number: SSAValue) -> None:
            there = plus(outer, copied.begin, times(outer, number, self.source_channel))
            here = plus(outer, copied.target, times(outer, number, self.channel_step))

            def row(inner: Scope, place: SSAValue) -> None:
                target = plus(inner, here, inner.add(arith.MuliOp(place, self.pitch)))
                moved = times(inner, times(inner, place, self.rows.stride), self.source[1])
                self._fill(inner, target, (zero, copied.columns[0]))
                self._copy(inner, copied.source, plus(inner, there, moved), target, copied.columns)
                self._fill(inner, target, (copied.columns[1], self.pitch))

            bounds = [outer.add(arith.MuliOp(each, self.pitch)) for each in (begin, last)]
            self._fill(outer, here, (zero, bounds[0]))
            count_loop(outer, "row", copied.rows, row)
            self._fill(outer, here, (bounds[1], copied.end))

        count_loop(scope, "copied", (zero, channels), channel)

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


@dataclass(frozen=True, slots=True)
class _Copied:
    """
    Rows of a phase of the first channel: where element 0 of row 0 would be in the input, and is in the copy; which rows are
    there, and which elements of these; up to which element all others are zeros.
    """

    source: SSAValue
    begin: SSAValue
    target: SSAValue
    rows: Bounds
    columns: Bounds
    end: SSAValue
