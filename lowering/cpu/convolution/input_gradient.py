"""A convolution's gradient by its input where strides leave gaps: convolutions of phases, whose sums are laid between each other.

A launch gives the rows of the input of one phase. A task copies what it reads of the result's gradient once for all phases of
a row, whose sums are made one after the other by tiles and then stored in turn, so that whole rows are written. The weight is
copied before, by a launch of its own, so that the taps of a phase lie side by side; narrow floats are widened there.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.analysis.contractions.input_gradients import (
    InputGradient,
    PhaseTaps,
    RowPhase,
    input_product,
    row_phases,
)
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.lowering.cpu.convolution.input_copy import tap_offsets
from fuse_opt.lowering.cpu.convolution.position_panels import PositionPanels, Sweep
from fuse_opt.lowering.cpu.convolution.task import Place, task_grain
from fuse_opt.lowering.cpu.kernel import KernelLoops, launch_of, launch_root
from fuse_opt.lowering.cpu.matmul.copies import (
    Bounds,
    Matrix,
    count_loop,
    element_of,
    parallel_loop,
    plus,
    times,
)
from fuse_opt.lowering.cpu.matmul.epilogue import Sums
from fuse_opt.lowering.cpu.matmul.row_tiles import Taps
from fuse_opt.lowering.kernel.buffers import WORK_PER_CHUNK, KernelBuffers, Scratch, operand_pass
from fuse_opt.lowering.kernel.element_emitter import element_buffer_type
from fuse_opt.lowering.kernel.scope import INDEX, Scope


def build_input_gradient_loops(
    gradient: InputGradient, kernel: KernelOp, storages: Sequence[Hashable]
) -> list[KernelLoops]:
    """The launches of a kernel of a gradient by an input and pointwise ops."""
    passes = [gradient.epilogue, operand_pass(gradient.grad), operand_pass(gradient.weight)]
    memory = KernelBuffers(kernel, passes, storages)
    scratch = [Scratch(0, element_buffer_type(gradient.sums, prod(shape(gradient.weight))), "phase_weights")]
    launches = [_weights(gradient, memory, scratch)]
    first = 0
    for phase in row_phases(gradient.contraction):
        launches.append(_phase(gradient, phase, first, memory, scratch))
        first += _windows(gradient) * sum(len(column.taps) for column in phase.columns)
    return launches


def _windows(gradient: InputGradient) -> int:
    """Of the weight."""
    of = gradient.contraction
    return of.groups * of.filters * of.channels


def _weights(gradient: InputGradient, memory: KernelBuffers, scratch: Sequence[Scratch]) -> KernelLoops:
    """The launch that copies the weight: phase by phase, the taps of each window that are of the phase."""
    root, (packed,) = launch_root(memory, scratch)
    of, weight = gradient.contraction, root.block.args[memory.sources[gradient.weight]]
    channels = root.index_constant(0), root.index_constant(of.channels)

    def task(scope: Scope, filter: SSAValue) -> None:
        window, first = times(scope, filter, of.channels), 0
        for phase in row_phases(of):
            for column in phase.columns:
                count = len(column.taps)
                for number, tap in enumerate(column.taps):
                    target = plus(scope, times(scope, window, count), root.index_constant(first + number))
                    _copy_tap(
                        scope,
                        channels,
                        plus(scope, times(scope, window, of.taps), root.index_constant(tap)),
                        target,
                        count,
                    )
                first += _windows(gradient) * count

    def _copy_tap(scope: Scope, bounds: Bounds, source: SSAValue, target: SSAValue, count: int) -> None:
        def put(inner: Scope, channel: SSAValue) -> None:
            value = inner.add(memref.LoadOp.get(weight, [plus(inner, source, times(inner, channel, of.taps))]))
            if element_of(weight) is not gradient.sums:
                value = inner.add(arith.ExtFOp(value, gradient.sums.attribute))
            place = plus(inner, target, times(inner, channel, count))
            inner.block.add_op(memref.StoreOp.get(value, packed, [place]))

        count_loop(
            scope, "channel", bounds, put
        )  # gcc 12 drops stores of several short loops that are to be vectorised

    count_loop(root, "filter", (root.block.args[-2], root.block.args[-1]), task)
    filters = of.groups * of.filters
    return launch_of(root, memory, scratch, filters, -(-WORK_PER_CHUNK // (8 * of.channels * of.taps)))


def _phase(
    gradient: InputGradient, phase: RowPhase, first: int, memory: KernelBuffers, scratch: Sequence[Scratch]
) -> KernelLoops:
    """The launch that gives the rows of a phase, whose weights begin at the element `first`."""
    root, (packed,) = launch_root(memory, scratch)
    body = _PhasePanels(gradient, phase, first, memory, root, packed)
    count_loop(root, "task", (root.block.args[-2], root.block.args[-1]), body.build)
    return launch_of(root, memory, scratch, prod(body.counts), task_grain(body.counts, phase.contraction))


class _PhasePanels(PositionPanels):
    """Panel by panel of positions, the sums of all phases of a row; they are laid between each other and then stored."""

    def __init__(
        self,
        gradient: InputGradient,
        phase: RowPhase,
        first: int,
        memory: KernelBuffers,
        root: Scope,
        packed: SSAValue,
    ) -> None:
        convolution = Convolution(
            gradient.op, phase.contraction, gradient.grad, gradient.weight, gradient.epilogue, gradient.places
        )
        super().__init__(convolution, memory, root, packed, input_product(gradient.contraction))
        self.input, self.phase = gradient.contraction, phase
        self.step = self.input.strides[2]
        offsets, firsts = tap_offsets(self.of, self.block), [first]
        for column in phase.columns:
            firsts.append(firsts[-1] + _windows(gradient) * len(column.taps))
        self.firsts = firsts
        self.tables = [self._table(column, offsets) for column in phase.columns]
        self.all_sums = [self.sums.memory, *(self._memory(self.sums.rows * self.sums.step, "sums") for _ in firsts[2:])]
        self.row_sums = self._memory(self.sums.step * self.step, "row")

    def _memory(self, size: int, name: str) -> SSAValue:
        memory = self.root.add(memref.AllocaOp.get(self.element.attribute, 64, [size]))
        memory.name_hint = name
        return memory

    def _table(self, column: PhaseTaps, offsets: Sequence[int]) -> Taps:
        """Where the taps of a phase read."""
        table = self.root.add(memref.AllocaOp.get(INDEX, 64, [max(len(column.seen), 1)]))
        table.name_hint = "taps"
        for number, seen in enumerate(column.seen):
            value, place = (self.root.index_constant(n) for n in (offsets[seen], number))
            self.root.block.add_op(memref.StoreOp.get(value, table, [place]))
        return Taps(table, len(column.seen), self.of.channel_step * len(column.seen))

    def sweeps(self, scope: Scope, place: Place) -> Sequence[Sweep]:
        found: list[Sweep] = []
        for first, taps, sums in zip(self.firsts, self.tables, self.all_sums, strict=False):
            assert isinstance(taps.count, int)
            at = plus(scope, times(scope, place.weight.at, taps.count), self.root.index_constant(first))
            found.append(Sweep(Matrix(self.weight, at, taps.count), taps.step, taps, sums))
        return found

    def store(
        self, scope: Scope, filters: tuple[SSAValue, SSAValue], positions: Bounds, start: SSAValue, place: Place
    ) -> None:
        """Row by row of sums: those of all phases in turn, and what follows from them."""
        constant = self.root.index_constant
        joined = Sums(self.row_sums, 1, self.sums.step * self.step)

        def filter(inner: Scope, number: SSAValue) -> None:
            self._join(inner, number, inner.add(arith.SubiOp(positions[1], positions[0])))
            self.epilogue.over_rows(
                inner, joined, plus(inner, filters[0], number), constant(1),
                lambda row: self._lines(row, joined, positions, start, place),
            )  # fmt: skip

        count_loop(scope, "filter", (constant(0), filters[1]), filter)

    def _join(self, scope: Scope, filter: SSAValue, count: SSAValue) -> None:
        """Lays the sums of a filter between each other."""
        first = times(scope, filter, self.sums.step)

        def put(inner: Scope, position: SSAValue) -> None:
            for phase, sums in enumerate(self.all_sums):
                value = inner.add(memref.LoadOp.get(sums, [plus(inner, first, position)]))
                at = plus(inner, times(inner, position, self.step), self.root.index_constant(phase))
                inner.block.add_op(memref.StoreOp.get(value, self.row_sums, [at]))

        parallel_loop(scope, "position", (self.root.index_constant(0), count), put)

    def _lines(self, scope: Scope, sums: Sums, positions: Bounds, start: SSAValue, place: Place) -> None:
        """Row by row of positions, those that they are of the result."""
        constant, pitch, length = self.root.index_constant, self.block.pitch, self.of.positions[2]

        def line(inner: Scope, number: SSAValue) -> None:
            first = times(inner, number, pitch)
            lower = inner.add(arith.MaxSIOp(positions[0], first))
            upper = positions[1]
            if self.block.rows > 1:
                upper = inner.add(arith.MinSIOp(upper, plus(inner, first, constant(length))))
            begin = self._first_of_row(inner, plus(inner, place.row, number), place)
            moved = inner.add(arith.SubiOp(place.column, first))
            columns = [times(inner, plus(inner, bound, moved), self.step) for bound in (lower, upper)]
            columns[1] = inner.add(arith.MinSIOp(columns[1], constant(self.input.extents[2])))
            at = plus(inner, begin, times(inner, plus(inner, start, moved), self.step))
            self.epilogue.over_columns(inner, sums, [plus(inner, begin, column) for column in columns], at)

        if self.block.rows == 1:
            line(scope, constant(0))
            return
        first = scope.add(arith.DivSIOp(positions[0], constant(pitch)))
        last = scope.add(arith.DivSIOp(scope.add(arith.SubiOp(positions[1], constant(1))), constant(pitch)))
        count_loop(scope, "line", (first, plus(scope, last, constant(1))), line)

    def _first_of_row(self, scope: Scope, row: SSAValue, place: Place) -> SSAValue:
        """The first element of the row of the result that a row of positions is."""
        of, constant = self.input, self.root.index_constant
        plane = plus(scope, times(scope, place.plane, of.strides[0]), constant(self.phase.plane))
        line = plus(scope, times(scope, row, of.strides[1]), constant(self.phase.row))
        return times(scope, plus(scope, times(scope, plane, of.extents[1]), line), of.extents[2])
