"""The copy of what a block of positions reads of the input: planes of rows, phase by phase, with zeros around them."""

from __future__ import annotations

from enum import Enum

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.lowering.cpu.convolution.any_extents.window_copy import Origin
from fuse_opt.lowering.cpu.convolution.tilings.blocks import Block, copied_elements, copied_rows
from fuse_opt.lowering.cpu.convolution.tilings.window_rows import Reach
from fuse_opt.lowering.cpu.matmul.copies import (
    Bounds,
    Matrix,
    copy_matrix,
    count_loop,
    element_of,
    parallel_loop,
    plus,
    times,
)
from fuse_opt.lowering.kernel.scope import Scope

Bound = int | SSAValue


def tap_offsets(of: WindowContraction, block: Block) -> list[int]:
    """Where each tap reads, next to where the first position of a channel's block does."""
    _, rows, columns = (Reach.along(of, axis) for axis in range(3))
    _, height, row = of.extents
    found: list[int] = []
    for first in range(of.window[0]):
        for i in range(of.window[1]):
            for j in range(of.window[2]):
                if not block.copies:
                    steps = (first * height * row, i * row, j)
                    found.append(sum(d * step for d, step in zip(of.dilations, steps, strict=True)))
                    continue
                (phase, down), (part, right) = rows.taps[i], columns.taps[j]
                plane = (first * len(rows.phases) + phase) * len(columns.phases) + part
                found.append(plane * copied_rows(of, block) * block.pitch + down * block.pitch + right)
    return found[::-1] if of.flipped else found


class _Mode(Enum):
    """What a sweep over the copy does."""

    WHOLE = "elements and zeros, channel by channel"
    MATRICES = "the elements of all channels, which lie side by side, in squares of vector registers"
    ZEROS = "zeros alone"


class InputCopy:
    """The memory on the stack, and what fills it."""

    def __init__(self, of: WindowContraction, block: Block, element: DType, root: Scope, width: int) -> None:
        self.of, self.block, self.root = of, block, root
        self.rows, self.columns = Reach.along(of, 1), Reach.along(of, 2)
        _, _, self.source_channel, self.source = of.x_steps()
        self.element, self.mode = element, _Mode.WHOLE
        self.zero = root.constant(0.0, element)
        whole = copied_elements(of, block)
        slack = width + max(self.columns.behind + block.columns - block.pitch, 0)
        self.memory = root.add(memref.AllocaOp.get(element.attribute, 64, [whole + slack]))
        self.memory.name_hint = "rows"
        self._fill(root, (whole, whole + slack), root.index_constant(0))

    @property
    def channel_step(self) -> int:
        return self.of.planes * self.plane

    @property
    def plane(self) -> int:
        return copied_rows(self.of, self.block) * self.block.pitch

    def build(self, task: Scope, source: SSAValue, origin: Origin) -> None:
        """Copies what the block of positions from `origin` on reads of the group's channels."""
        constant = self.root.index_constant
        if self.of.x_last and element_of(source) is self.element:
            self.mode = _Mode.MATRICES
            self._all_planes(task, source, origin, constant(0))
            self.mode = _Mode.ZEROS

        def channel(scope: Scope, number: SSAValue) -> None:
            self._all_planes(scope, source, origin, number)

        count_loop(task, "channel", (constant(0), constant(self.of.channels)), channel)

    def _all_planes(self, scope: Scope, source: SSAValue, origin: Origin, channel: SSAValue) -> None:
        count_loop(
            scope,
            "plane",
            (self.root.index_constant(0), self.root.index_constant(self.of.window[0])),
            lambda inner, first: self._planes(inner, source, origin, channel, first),
        )

    def _planes(self, scope: Scope, source: SSAValue, origin: Origin, channel: SSAValue, first: SSAValue) -> None:
        """All phases of a plane of the input, or zeros where it has no such plane."""
        of, constant = self.of, self.root.index_constant
        step, dilation, begin = of.strides[0], of.dilations[0], of.begins[0]
        place = plus(scope, times(scope, origin.first, step), times(scope, first, dilation))
        if begin:
            place = scope.add(arith.SubiOp(place, constant(begin)))
        there = plus(scope, origin.channels, times(scope, channel, self.source_channel))
        there = plus(scope, there, times(scope, place, self.source[0]))
        bounds = self._inside_planes(scope, place)
        phases = len(self.rows.phases) * len(self.columns.phases)
        here = plus(scope, times(scope, channel, self.channel_step), times(scope, first, phases * self.plane))
        for number, down in enumerate(self.rows.phases):
            for other, right in enumerate(self.columns.phases):
                at = number * len(self.columns.phases) + other
                target = plus(scope, here, constant(at * self.plane)) if at else here
                self._plane(scope, source, there, target, (down, right), origin, bounds)

    def _inside_planes(self, scope: Scope, place: SSAValue) -> SSAValue | None:
        """Whether the input has the plane; None where it has them all."""
        of, constant = self.of, self.root.index_constant
        last = (of.positions[0] - 1) * of.strides[0] + (of.window[0] - 1) * of.dilations[0] - of.begins[0]
        if not of.begins[0] and last < of.extents[0]:
            return None
        return scope.add(
            arith.CmpiOp(place, constant(of.extents[0]), "ult")
        )  # as an unsigned number it is none below 0

    def _plane(
        self,
        scope: Scope,
        source: SSAValue,
        there: SSAValue,
        target: SSAValue,
        phase: tuple[int, int],
        origin: Origin,
        exists: SSAValue | None,
    ) -> None:
        """Rows of zeros, those of the input, rows of zeros."""
        constant, pitch, count = self.root.index_constant, self.block.pitch, copied_rows(self.of, self.block)
        lower, upper = self._inside(scope, self.rows, phase[0], origin.row, count, self.of.positions[1])
        if exists is not None:
            upper = scope.add(arith.SelectOp(exists, self._value(upper), self._value(lower)))
        left = self._inside(scope, self.columns, phase[1], origin.column, pitch, self.of.positions[2])
        down = scope.add(arith.SubiOp(times(scope, origin.row, self.rows.stride), constant(self.rows.begin - phase[0])))
        across = times(scope, origin.column, self.columns.stride)
        across = scope.add(arith.SubiOp(across, constant(self.columns.begin - phase[1])))
        first = plus(scope, there, times(scope, down, self.source[1]), times(scope, across, self.source[2]))

        def row(inner: Scope, number: SSAValue) -> None:
            here = plus(inner, target, times(inner, number, pitch))
            begin = plus(inner, first, times(inner, number, self.rows.stride * self.source[1]))
            self._fill(inner, (0, left[0]), here)
            self._copy(inner, source, begin, here, (self._value(left[0]), self._value(left[1])))
            self._fill(inner, (left[1], pitch), here)

        self._fill(scope, (0, _scaled(scope, lower, pitch)), target)
        count_loop(scope, "row", (self._value(lower), self._value(upper)), row)
        self._fill(scope, (_scaled(scope, upper, pitch), count * pitch), target)

    def _inside(
        self, scope: Scope, reach: Reach, phase: int, origin: SSAValue, count: int, positions: int
    ) -> tuple[Bound, Bound]:
        """Which of so many elements of a phase from the origin on are of the input."""
        constant = self.root.index_constant
        whole = reach.inside(phase, positions + count)
        if positions <= (self.block.rows if reach is self.rows else self.block.columns):
            return min(whole[0], count), min(whole[1], count)
        found: list[SSAValue] = []
        for bound in whole:
            place = scope.add(arith.SubiOp(constant(bound), origin))
            place = scope.add(arith.MaxSIOp(place, constant(0)))
            found.append(scope.add(arith.MinSIOp(place, constant(count))))
        return found[0], found[1]

    def _copy(self, scope: Scope, source: SSAValue, begin: SSAValue, here: SSAValue, columns: Bounds) -> None:
        if self.mode is _Mode.ZEROS:
            return
        if self.mode is _Mode.MATRICES:
            step = self.columns.stride * self.source[2]
            seen = Matrix(source, plus(scope, begin, times(scope, columns[0], step)), self.source_channel, step)
            target = Matrix(self.memory, plus(scope, here, columns[0]), self.channel_step)
            count = scope.add(arith.SubiOp(columns[1], columns[0]))
            copy_matrix(scope, self.element, seen, target, self.root.index_constant(self.of.channels), count)
            return

        def put(inner: Scope, column: SSAValue) -> None:
            place = plus(inner, begin, times(inner, column, self.columns.stride * self.source[2]))
            value = inner.add(memref.LoadOp.get(source, [place]))
            if element_of(source) is not self.element:
                value = inner.add(arith.ExtFOp(value, self.element.attribute))
            inner.block.add_op(memref.StoreOp.get(value, self.memory, [plus(inner, here, column)]))

        parallel_loop(scope, "column", columns, put)

    def _fill(self, scope: Scope, bounds: tuple[Bound, Bound], here: SSAValue) -> None:
        if bounds[0] == bounds[1] or self.mode is _Mode.MATRICES:
            return

        def put(inner: Scope, column: SSAValue) -> None:
            inner.block.add_op(memref.StoreOp.get(self.zero, self.memory, [plus(inner, here, column)]))

        parallel_loop(scope, "column", (self._value(bounds[0]), self._value(bounds[1])), put)

    def _value(self, bound: Bound) -> SSAValue:
        return self.root.index_constant(bound) if isinstance(bound, int) else bound


def _scaled(scope: Scope, bound: Bound, factor: int) -> Bound:
    return bound * factor if isinstance(bound, int) else times(scope, bound, factor)
