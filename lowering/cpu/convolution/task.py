"""A task of a convolution, some filters at a block of positions: what it copies of the input, and what it stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.cpu.convolution.any_extents.window_copy import Origin
from fuse_opt.lowering.cpu.convolution.input_copy import InputCopy, tap_offsets
from fuse_opt.lowering.cpu.convolution.tilings.blocks import block_counts
from fuse_opt.lowering.cpu.convolution.tilings.filter_tiling import FilterTiling
from fuse_opt.lowering.cpu.convolution.tilings.tiling import ConvolutionTiling
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, copy_matrix, count_loop, plus, times
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.cpu.matmul.row_tiles import Taps, either, tap_table
from fuse_opt.lowering.kernel.buffers import WORK_PER_CHUNK, KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import part_bounds, task_parts
from fuse_opt.lowering.kernel.scope import Scope


@dataclass(frozen=True, slots=True)
class Place:
    """What a task works on: of filters, of the input, and where its positions end and have their results."""

    first_filter: SSAValue
    weight: Matrix
    """Of the first filter."""
    source: Matrix
    """Channels, of which the first position is at 0."""
    plane: SSAValue
    """Of positions, the only one."""
    row: SSAValue
    """Of positions, the first one."""
    column: SSAValue
    """Of positions, the first one."""
    moved: SSAValue
    """What is added to a position to have that of its result, but for what lies between rows."""
    end: SSAValue


def task_grain(counts: Sequence[Extent], of: WindowContraction) -> int:
    """How many tasks, of `counts` along each axis, are worth a thread."""
    return -(-WORK_PER_CHUNK * estimate(prod(counts)) // max(estimate(of.operations), 1))


class ConvolutionTask(ABC):
    """The body of a task: what it copies, where it works, and what it stores."""

    def __init__(
        self,
        convolution: Convolution,
        tiling: ConvolutionTiling | FilterTiling,
        memory: KernelBuffers,
        root: Scope,
        weight: SSAValue | None = None,
        product: Contraction | None = None,
    ) -> None:
        """`weight`: another buffer of it; `product`: that whose result the kernel's is, where positions are parts of it."""
        self.block, self.filters = tiling.block, tiling.filters
        self.of, self.root = convolution.contraction, root
        element = convolution.sums
        of, block, product = self.of, self.block, product or convolution.contraction.result_product()
        self.element = element
        self.epilogue = BlockEpilogue(convolution.epilogue, convolution.places, product, convolution.raw, memory, root)
        self.x, given = (root.block.args[memory.sources[v]] for v in (convolution.x, convolution.weight))
        self.weight = given if weight is None else weight
        self.counts = (of.batch, of.groups, *block_counts(of, block), -(-of.filters // tiling.filters))
        sums = root.add(memref.AllocaOp.get(element.attribute, 64, [tiling.rows * tiling.columns]))
        sums.name_hint = "sums"
        self.sums = Sums(sums, tiling.rows, tiling.columns)
        self._turned: SSAValue | None = None
        self.taps = self._taps() if of.taps > 1 or of.channel_step != 1 else None
        self.copy = InputCopy(of, block, element, root, tiling.widest) if block.copies else None

    def _taps(self) -> Taps:
        """A table of places."""
        places = [self.root.index_constant(offset) for offset in tap_offsets(self.of, self.block)]
        return Taps(tap_table(self.root, places), self.of.taps, self.of.channel_step)

    def build(self, task: Scope, number: SSAValue) -> None:
        of, block, constant = self.of, self.block, self.root.index_constant
        batch, group, first, row, column, some = task_parts(task, self.root, number, self.counts)
        rows = part_bounds(task, row, block.rows, of.positions[1])
        columns = part_bounds(task, column, block.columns, of.positions[2])
        first_filter = times(task, some, self.filters)
        image = plus(task, times(task, batch, of.groups), group)
        task.indices = {self.epilogue.batch: image}
        weight = plus(task, times(task, group, of.group_step), times(task, first_filter, of.filter_step))
        sample_step, group_step, channel_step, _ = of.x_steps()
        channels = plus(task, times(task, batch, sample_step), times(task, group, group_step))
        moved = times(task, first, of.positions[1] * of.positions[2])
        if self.copy is not None:
            copy, origin = self.copy, Origin(first, rows[0], columns[0], channels)
            either(task, self._is_new(task, number, some), lambda inner: copy.build(inner, self.x, origin))
            source, start = Matrix(self.copy.memory, constant(0), self.copy.channel_step), constant(0)
            moved = plus(task, moved, times(task, rows[0], of.positions[2]), columns[0])
        else:
            at = plus(task, channels, times(task, first, of.extents[1] * of.extents[2]))
            source = Matrix(self.x, at, channel_step)
            start = plus(task, times(task, rows[0], block.pitch), columns[0])
        last = task.add(arith.SubiOp(task.add(arith.SubiOp(rows[1], rows[0])), constant(1)))
        length = plus(task, times(task, last, block.pitch), task.add(arith.SubiOp(columns[1], columns[0])))
        end = plus(task, start, length)
        place = Place(
            first_filter, Matrix(self.weight, weight, of.filter_step), source, first, rows[0], columns[0], moved, end
        )
        self.sum_up(task, start, place)

    @abstractmethod
    def sum_up(self, task: Scope, start: SSAValue, place: Place) -> None:
        """All sums of the task, from the first position on, and what follows from them."""

    def _is_new(self, task: Scope, number: SSAValue, some: SSAValue) -> SSAValue | bool:
        """Whether a task is the first one of its block of positions here: those of other filters find its copy."""
        if self.counts[-1] == 1:
            return True
        begins = task.add(arith.CmpiOp(number, self.root.block.args[-2], "eq"))
        return task.add(arith.OrIOp(begins, task.add(arith.CmpiOp(some, self.root.index_constant(0), "eq"))))

    def store(
        self, scope: Scope, filters: tuple[SSAValue, SSAValue], positions: Bounds, start: SSAValue, place: Place
    ) -> None:
        """
        Stores panels of the result, and what follows from it: from the first filter on, for so many of them, the rows of
        positions that they have. The sums of the first one begin at the position `start`.
        """
        if self.of.result_last:
            self._store_turned(scope, filters, positions, start, place)
            return

        def stretch(inner: Scope, moved: SSAValue, bounds: Bounds) -> None:
            columns = [plus(inner, bound, moved) for bound in bounds]
            self.epilogue.over_columns(inner, self.sums, columns, plus(inner, start, moved))

        self.epilogue.over_rows(scope, self.sums, *filters, lambda s: self._stretches(s, positions, place, stretch))

    def _stretches(
        self, scope: Scope, positions: Bounds, place: Place, build: Callable[[Scope, SSAValue, Bounds], None]
    ) -> None:
        """The stretches of positions that are neighbours in the result, with what is added to have their places there."""
        constant, pitch, length = self.root.index_constant, self.block.pitch, self.of.positions[2]

        def stretch(inner: Scope, row: SSAValue, bounds: Bounds) -> None:
            moved = plus(inner, place.moved, times(inner, row, length - pitch)) if length != pitch else place.moved
            build(inner, moved, bounds)

        whole = self.block.positions(self.block.rows) <= self.sums.step

        def segment(inner: Scope, row: SSAValue) -> None:
            lower = times(inner, row, pitch)
            upper = plus(inner, lower, constant(length))
            if not whole:  # else the length of the loop is known: what does not fill a vector is not done one by one
                lower, upper = (
                    inner.add(arith.MaxSIOp(positions[0], lower)),
                    inner.add(arith.MinSIOp(positions[1], upper)),
                )
            stretch(inner, row, (lower, upper))

        if length == pitch or self.block.rows == 1:
            stretch(scope, constant(0) if self.copy is not None else place.row, positions)
            return
        first = scope.add(arith.DivSIOp(positions[0], constant(pitch)))
        last = scope.add(arith.DivSIOp(scope.add(arith.SubiOp(positions[1], constant(1))), constant(pitch)))
        count_loop(scope, "line", (first, plus(scope, last, constant(1))), segment)

    def _store_turned(
        self, scope: Scope, filters: tuple[SSAValue, SSAValue], positions: Bounds, start: SSAValue, place: Place
    ) -> None:
        """As `store`, where neighbouring filters lie side by side in the result: of sums by position."""
        by_position = self.by_position(scope, filters[1], scope.add(arith.SubiOp(positions[1], start)))
        bounds, step = (filters[0], plus(scope, *filters)), by_position.row
        assert isinstance(step, int), step

        def stretch(inner: Scope, moved: SSAValue, some: Bounds) -> None:
            at = times(inner, inner.add(arith.SubiOp(some[0], start)), step)
            sums = Sums(by_position.memory, self.sums.step, step, at)
            count = inner.add(arith.SubiOp(some[1], some[0]))
            self.epilogue.over_rows(
                inner, sums, plus(inner, some[0], moved), count,
                lambda row: self.epilogue.over_columns(row, sums, bounds, filters[0]),
            )  # fmt: skip

        self._stretches(scope, positions, place, stretch)

    def by_position(self, scope: Scope, filters: SSAValue, positions: SSAValue) -> Matrix:
        """The sums with those of a position side by side: a copy, in squares of vector registers."""
        constant = self.root.index_constant
        if self._turned is None:
            self._turned = self.root.add(
                memref.AllocaOp.get(self.element.attribute, 64, [self.sums.rows * self.sums.step])
            )
            self._turned.name_hint = "turned"
        found = Matrix(self._turned, constant(0), self.sums.rows)
        copy_matrix(
            scope, self.element, Matrix(self.sums.memory, constant(0), 1, self.sums.step), found, positions, filters
        )
        return found
