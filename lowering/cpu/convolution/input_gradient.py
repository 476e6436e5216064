"""A convolution's gradient by its input where strides leave gaps: convolutions of phases, whose sums are laid between each other.

A launch gives the rows of the input of one phase. A task copies what it reads of the result's gradient once for all phases of
a row, whose sums are made one after the other by tiles and then stored in turn, so that whole rows are written. The weight is
copied before, by a launch of its own, so that the taps of a phase lie side by side; narrow floats are widened there. With little
scratch memory it is read where it lies: each phase goes through all of it, and finds its taps by a table.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import accumulate
from math import prod

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.analysis.contractions.input_gradients import (
    InputGradient,
    RowPhase,
    input_product,
    row_phases,
)
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import SCRATCH
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.lowering.cpu.convolution.any_extents.task import AnyExtents, Positions
from fuse_opt.lowering.cpu.convolution.input_copy import tap_offsets
from fuse_opt.lowering.cpu.convolution.position_panels import PositionPanels
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
from fuse_opt.lowering.cpu.matmul.row_tiles import Sweep, Taps, tap_table
from fuse_opt.lowering.hints import SCALAR
from fuse_opt.lowering.kernel.buffers import WORK_PER_CHUNK, KernelBuffers, Scratch, operand_pass
from fuse_opt.lowering.kernel.element_emitter import element_buffer_type
from fuse_opt.lowering.kernel.scope import Scope


def build_input_gradient_loops(
    gradient: InputGradient, kernel: KernelOp, storages: Sequence[Hashable]
) -> list[KernelLoops]:
    """The launches of a kernel of a gradient by an input and pointwise ops."""
    passes = [gradient.epilogue, operand_pass(gradient.grad), operand_pass(gradient.weight)]
    memory = KernelBuffers(kernel, passes, storages)
    scratch = [Scratch(0, element_buffer_type(gradient.sums, prod(shape(gradient.weight))), "phase_weights")]
    if SCRATCH.word(kernel) == "little" and dtype(gradient.weight) is gradient.sums:
        return [_phase(gradient, phase, None, memory, []) for phase in row_phases(gradient.contraction)]
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

        # gcc 12 drops stores of several short loops that are to be vectorised. Where it makes vectors of these by itself that is
        # most of its work for a program of unknown extents, which saves nothing.
        count_loop(scope, "channel", bounds, put)
        if of.has_any_extents:
            loop = scope.block.last_op
            assert loop is not None
            loop.attributes[SCALAR] = UnitAttr()

    count_loop(root, "filter", (root.block.args[-2], root.block.args[-1]), task)
    filters = of.groups * of.filters
    return launch_of(root, memory, scratch, filters, -(-WORK_PER_CHUNK // (8 * of.channels * of.taps)))


def _phase(
    gradient: InputGradient, phase: RowPhase, first: int | None, memory: KernelBuffers, scratch: Sequence[Scratch]
) -> KernelLoops:
    """The launch that gives the rows of a phase, whose weights begin at the element `first` of a copy; None without one."""
    root, buffers = launch_root(memory, scratch)
    kind = _PhaseBlocks if phase.contraction.has_any_extents else _PhasePanels
    body = kind(gradient, phase, first, memory, root, buffers[0] if buffers else None)
    count_loop(root, "task", (root.block.args[-2], root.block.args[-1]), body.build)
    return launch_of(root, memory, scratch, prod(body.counts), task_grain(body.counts, phase.contraction))


class _PhaseSums:
    """The sums of all phases of a row, beside those that a task has: where they are, and how they are laid between each other."""

    def __init__(
        self,
        gradient: InputGradient,
        phase: RowPhase,
        first: int | None,
        root: Scope,
        sums: Sums,
        places: Sequence[SSAValue],
    ) -> None:
        """`places`: where the taps of the window of the phase's contraction read; `first`: as of `_phase`."""
        self.of, self.phase, self.root, self.element = gradient.contraction, phase, root, gradient.sums
        self.sums, self.step = sums, self.of.strides[2]
        counts = [len(column.taps) for column in phase.columns]
        befores = accumulate(counts, initial=0)
        self.firsts = [0 if first is None else first + _windows(gradient) * before for before in befores]
        self.windows = [self.of.taps if first is None else count for count in counts]
        self.tables = [
            Taps(
                tap_table(root, [places[seen] for seen in column.seen]),
                len(column.taps),
                phase.contraction.channel_step * window,
                tap_table(root, [root.index_constant(tap) for tap in column.taps]) if first is None else None,
            )
            for column, window in zip(phase.columns, self.windows, strict=True)
        ]
        self.all = [sums.memory, *(self._memory(sums.rows * sums.step, "sums") for _ in counts[1:])]
        self.joined = Sums(self._memory(sums.step * self.step, "row"), 1, sums.step * self.step)

    def _memory(self, size: int, name: str) -> SSAValue:
        memory = self.root.add(memref.AllocaOp.get(self.element.attribute, 64, [size]))
        memory.name_hint = name
        return memory

    def sweeps(self, scope: Scope, weights: SSAValue, window: SSAValue) -> Sequence[Sweep]:
        """Those of a task, whose first filter has so many windows before it."""
        found: list[Sweep] = []
        for first, size, taps, sums in zip(self.firsts, self.windows, self.tables, self.all, strict=False):
            at = plus(scope, times(scope, window, size), self.root.index_constant(first))
            found.append(Sweep(Matrix(weights, at, size), taps.step, taps, sums))
        return found

    def join(self, scope: Scope, filter: SSAValue, count: SSAValue) -> None:
        """Lays so many sums of a filter between each other."""
        first = times(scope, filter, self.sums.step)

        def put(inner: Scope, position: SSAValue) -> None:
            for phase, sums in enumerate(self.all):
                value = inner.add(memref.LoadOp.get(sums, [plus(inner, first, position)]))
                at = plus(inner, times(inner, position, self.step), self.root.index_constant(phase))
                inner.block.add_op(memref.StoreOp.get(value, self.joined.memory, [at]))

        parallel_loop(scope, "position", (self.root.index_constant(0), count), put)

    def first_of_row(self, scope: Scope, plane: SSAValue, row: SSAValue) -> SSAValue:
        """The first element of the row of the result that a row of positions is."""
        of, constant = self.of, self.root.index_constant
        plane = plus(scope, times(scope, plane, of.strides[0]), constant(self.phase.plane))
        line = plus(scope, times(scope, row, of.strides[1]), constant(self.phase.row))
        return times(scope, plus(scope, times(scope, plane, of.extents[1]), line), of.extents[2])


def _phase_convolution(gradient: InputGradient, phase: RowPhase) -> Convolution:
    return Convolution(
        gradient.op, phase.contraction, gradient.grad, gradient.weight, gradient.epilogue, gradient.places
    )


class _PhaseBlocks(AnyExtents):
    """As `_PhasePanels`, where extents are known at the call."""

    def __init__(
        self,
        gradient: InputGradient,
        phase: RowPhase,
        first: int | None,
        memory: KernelBuffers,
        root: Scope,
        packed: SSAValue | None,
    ) -> None:
        convolution = _phase_convolution(gradient, phase)
        super().__init__(convolution, memory, root, packed, input_product(gradient.contraction))
        self.phases = _PhaseSums(gradient, phase, first, root, self.sums, self.copy.tap_places())

    def sweeps(self, scope: Scope, weight: SSAValue) -> Sequence[Sweep]:
        return self.phases.sweeps(scope, self.weight, weight)

    def store(self, task: Scope, first_filter: SSAValue, block: Positions) -> None:
        """Row by row of positions: those of all phases in turn, but what is no position of a shorter phase."""
        phases, constant, pitch = self.phases, self.root.index_constant, self.copy.pitch
        step, extent = phases.step, phases.of.extents[2]
        column = times(task, block.column, step)
        rest = task.add(arith.SubiOp(constant(extent), column))
        count = task.add(arith.MinSIOp(times(task, block.columns, step), rest))
        before = task.add(arith.SubiOp(block.rows, constant(1)))
        length = plus(task, task.add(arith.MuliOp(before, pitch)), block.columns)

        def line(inner: Scope, number: SSAValue) -> None:
            place = phases.first_of_row(inner, block.first, plus(inner, block.row, number))
            place = plus(inner, place, column)
            start = inner.add(arith.SubiOp(place, times(inner, inner.add(arith.MuliOp(number, pitch)), step)))
            self.epilogue.over_columns(inner, phases.joined, (place, plus(inner, place, count)), start)

        def filter(inner: Scope, number: SSAValue) -> None:
            phases.join(inner, number, length)
            self.epilogue.over_rows(
                inner, phases.joined, plus(inner, first_filter, number), constant(1),
                lambda row: count_loop(row, "line", (constant(0), block.rows), line),
            )  # fmt: skip

        count_loop(task, "filter", (constant(0), constant(self.tiling.filters)), filter)


class _PhasePanels(PositionPanels):
    """Panel by panel of positions, the sums of all phases of a row; they are laid between each other and then stored."""

    def __init__(
        self,
        gradient: InputGradient,
        phase: RowPhase,
        first: int | None,
        memory: KernelBuffers,
        root: Scope,
        packed: SSAValue | None,
    ) -> None:
        convolution = _phase_convolution(gradient, phase)
        super().__init__(convolution, memory, root, packed, input_product(gradient.contraction))
        places = [root.index_constant(offset) for offset in tap_offsets(self.of, self.block)]
        self.phases = _PhaseSums(gradient, phase, first, root, self.sums, places)

    def sweeps(self, scope: Scope, place: Place) -> Sequence[Sweep]:
        return self.phases.sweeps(scope, self.weight, place.weight.at)

    def store(
        self, scope: Scope, filters: tuple[SSAValue, SSAValue], positions: Bounds, start: SSAValue, place: Place
    ) -> None:
        """Row by row of sums: those of all phases in turn, and what follows from them."""
        constant = self.root.index_constant
        joined = self.phases.joined

        def filter(inner: Scope, number: SSAValue) -> None:
            self.phases.join(inner, number, inner.add(arith.SubiOp(positions[1], positions[0])))
            self.epilogue.over_rows(
                inner, joined, plus(inner, filters[0], number), constant(1),
                lambda row: self._lines(row, joined, positions, start, place),
            )  # fmt: skip

        count_loop(scope, "filter", (constant(0), filters[1]), filter)

    def _lines(self, scope: Scope, sums: Sums, positions: Bounds, start: SSAValue, place: Place) -> None:
        """Row by row of positions, those that they are of the result."""
        constant, pitch, length = self.root.index_constant, self.block.pitch, self.of.positions[2]

        def line(inner: Scope, number: SSAValue) -> None:
            first = times(inner, number, pitch)
            lower = inner.add(arith.MaxSIOp(positions[0], first))
            upper = positions[1]
            if self.block.rows > 1:
                upper = inner.add(arith.MinSIOp(upper, plus(inner, first, constant(length))))
            begin = self.phases.first_of_row(inner, place.plane, plus(inner, place.row, number))
            moved = inner.add(arith.SubiOp(place.column, first))
            columns = [times(inner, plus(inner, bound, moved), self.phases.step) for bound in (lower, upper)]
            columns[1] = inner.add(arith.MinSIOp(columns[1], constant(self.phases.of.extents[2])))
            at = plus(inner, begin, times(inner, plus(inner, start, moved), self.phases.step))
            self.epilogue.over_columns(inner, sums, [plus(inner, begin, column) for column in columns], at)

        if self.block.rows == 1:
            line(scope, constant(0))
            return
        first = scope.add(arith.DivSIOp(positions[0], constant(pitch)))
        last = scope.add(arith.DivSIOp(scope.add(arith.SubiOp(positions[1], constant(1))), constant(pitch)))
        count_loop(scope, "line", (first, plus(scope, last, constant(1))), line)
