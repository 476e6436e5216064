"""The sums of a panel of filters at positions that lie beside each other, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, copy_matrix, count_loop, plus, times
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.scope import Scope

SQUARE = 16
"""Positions that are turned at a time, at most."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of positions: where the result of the first one lies, how many they are, how long, and how far apart."""

    place: SSAValue
    count: SSAValue
    length: SSAValue
    apart: SSAValue
    """In the sums."""
    row: Extent
    """In the result."""


class PanelResult:
    """Sums on the stack, `[positions][panel]`; they are turned where neighbours in the result are positions."""

    def __init__(
        self, convolution: Convolution, memory: KernelBuffers, root: Scope, positions: int, panel: int
    ) -> None:
        self.root, self.element, self.positions, self.panel = root, convolution.sums, positions, panel
        of = convolution.contraction
        product = of.result_product()
        self.epilogue = BlockEpilogue(convolution.epilogue, convolution.places, product, convolution.raw, memory, root)
        self.sums = self._memory("sums", panel)
        self.turned = None if of.result_last else self._memory("turned", positions)
        """With the sums of a filter side by side."""

    def _memory(self, name: str, row: int) -> Matrix:
        """On the stack, the sums of a panel at all positions of a task."""
        memory = self.root.add(memref.AllocaOp.get(self.element.attribute, 64, [self.positions * self.panel]))
        memory.name_hint = name
        return Matrix(memory, self.root.index_constant(0), row)

    def ask(self, scope: Scope, filters: Bounds, place: SSAValue, positions: SSAValue) -> None:
        """Asks for what `follow` reads and stores of a panel's filters at so many positions from `place` on."""
        self.epilogue.ask(scope, place, positions, filters[0], self._count(scope, filters))

    def follow(self, scope: Scope, filters: Bounds, place: SSAValue, positions: SSAValue, at: SSAValue) -> None:
        """What follows from the sums that lie from `at` on, of a panel's filters at so many positions from `place` on."""
        sums, last = (
            Sums(self.sums.memory, self.positions, self.panel, at),
            plus(scope, filters[0], self._count(scope, filters)),
        )
        self.epilogue.emit(scope, sums, place, positions, (filters[0], last), filters[0])

    def _count(self, scope: Scope, filters: Bounds) -> SSAValue:
        """Filters of the panel that begins with the first one."""
        size = self.root.index_constant(self.panel)
        return scope.add(arith.MinSIOp(scope.add(arith.SubiOp(filters[1], filters[0])), size))

    def store(
        self, scope: Scope, filters: Bounds, place: SSAValue, positions: SSAValue, at: SSAValue | None = None
    ) -> None:
        """
        What follows from the sums of a panel's filters, from `at` on, at so many positions, the first of which is at `place`.
        """
        at = self.sums.at if at is None else at
        if self.turned is None:
            self.follow(scope, filters, place, positions, at)
            return
        sums = self._turn(scope, self.turned, at, positions)
        count = self._count(scope, filters)
        self.epilogue.emit(scope, sums, filters[0], count, (place, plus(scope, place, positions)), place)

    def store_lines(self, scope: Scope, filters: Bounds, lines: Lines) -> None:
        """What follows from the sums of a panel's filters at lines of positions, which are turned."""
        assert self.turned is not None
        constant = self.root.index_constant
        before = scope.add(arith.SubiOp(lines.count, constant(1)))
        length = plus(scope, scope.add(arith.MuliOp(before, lines.apart)), lines.length, constant(SQUARE - 1))
        whole = times(scope, scope.add(arith.DivSIOp(length, constant(SQUARE))), SQUARE)
        sums = self._turn(scope, self.turned, self.sums.at, whole)
        is_one = scope.add(arith.CmpiOp(lines.apart, constant(lines.row), "eq"))
        every = scope.add(arith.MuliOp(lines.count, lines.length))
        columns = scope.add(arith.SelectOp(is_one, every, lines.length))
        count = scope.add(arith.SelectOp(is_one, constant(1), lines.count))

        def line(inner: Scope, number: SSAValue) -> None:
            place = plus(inner, lines.place, times(inner, number, lines.row))
            start = inner.add(arith.SubiOp(place, inner.add(arith.MuliOp(number, lines.apart))))
            self.epilogue.over_columns(inner, sums, (place, plus(inner, place, columns)), start)

        self.epilogue.over_rows(
            scope, sums, filters[0], self._count(scope, filters),
            lambda row: count_loop(row, "line", (constant(0), count), line),
        )  # fmt: skip

    def _turn(self, scope: Scope, turned: Matrix, at: SSAValue, positions: SSAValue) -> Sums:
        """The sums from `at` on with those of a filter side by side."""
        source = Matrix(self.sums.memory, at, 1, self.panel)
        copy_matrix(scope, self.element, source, turned, self.root.index_constant(self.panel), positions)
        return Sums(turned.memory, self.panel, self.positions)


def is_new_copy(scope: Scope, task: SSAValue, some: SSAValue, counts: Sequence[Extent]) -> SSAValue | bool:
    """Whether a task, of `counts` along each axis, is the first one of its positions here, whose copy others find."""
    if counts[-1] == 1:
        return True
    root = scope.root
    begins = scope.add(arith.CmpiOp(task, root.block.args[-2], "eq"))
    return scope.add(arith.OrIOp(begins, scope.add(arith.CmpiOp(some, root.index_constant(0), "eq"))))
