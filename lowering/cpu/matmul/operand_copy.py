"""Copies of parts of a product's operands as tiles read them: rows side by side, wider elements, or groups of narrow ones."""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.packed_panels import LANE_BYTES
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.lowering.cpu.matmul.computed_matrix import ComputedMatrix, Source
from fuse_opt.lowering.cpu.matmul.copies import Matrix, copy_matrix, plus, times
from fuse_opt.lowering.cpu.matmul.tilings.arithmetic import Arithmetic
from fuse_opt.lowering.kernel.loop_splitting import flat_memory
from fuse_opt.lowering.kernel.scope import Scope

PADDING = 16
"""Elements between the rows of a copy, so that they lie in different sets of a cache."""


class OperandCopy:
    """
    Memory on the stack for a matrix of so many rows and columns in memory, transposed or not; of groups there may be zeros behind
    those of a row, up to whole lines, and of a panel as many rows of them.
    """

    def __init__(
        self,
        arithmetic: Arithmetic,
        element: DType,
        extents: tuple[int, int],
        transposed: bool,
        root: Scope,
        name: str,
        count: int = 1,
        in_lines: bool = False,
        repeats: bool = False,
    ) -> None:
        self.arithmetic, self.element, self.transposed = arithmetic, element, transposed
        self.root, self.name, self.in_lines, self.repeats = root, name, in_lines, repeats
        rows, columns = extents
        if arithmetic.group > 1 and name == "panel":
            step = -(-columns // PADDING) * PADDING  # of groups
            self.size = rows * step * arithmetic.room
        elif arithmetic.group > 1:
            lines = -(-columns * element.itemsize // LANE_BYTES) | 1  # odd: for different sets of a cache
            step = lines * LANE_BYTES // element.itemsize
            self.size = rows * step
        else:
            step = columns + PADDING if name == "rows" or transposed else -(-columns // PADDING) * PADDING
            self.size = rows * step
        self.matrix = Matrix(self._memory(element, name, self.size * count), root.index_constant(0), step)
        self.extents = extents
        self.computed: dict[tuple[bool, DType], Matrix] = {}

    def _memory(self, element: DType, name: str, size: int | None = None) -> SSAValue:
        memory = self.root.add(memref.AllocaOp.get(element.attribute, 64, [self.size if size is None else size]))
        memory.name_hint = name
        return memory

    def rows(self, scope: Scope, source: Source, rows: SSAValue, depth: SSAValue) -> Matrix:
        """So many rows of the left operand, of so much depth."""
        if self.arithmetic.group == 1:
            found = self._copied(scope, source, rows, depth)
            if self.repeats:
                self._repeat_last(scope, rows, depth)
            return found
        self._call(
            scope, f"fo_rows_{self.element.name}", (rows, depth), source, self.matrix, self._groups(scope, depth)
        )
        return self.matrix

    def panel(
        self, scope: Scope, source: Source, depth: SSAValue, columns: SSAValue, number: SSAValue | None = None
    ) -> Matrix:
        """So many columns of the right operand, of so much depth; of panels of groups there may be a number in a row."""
        if self.arithmetic.group == 1:
            return self._copied(scope, source, depth, columns)
        to = self.matrix if number is None else self.of_number(scope, number)
        self._call(scope, f"fo_panel_{self.arithmetic.tile}", (depth, columns), source, to, self._groups(scope, depth))
        return to

    def panels(self, scope: Scope, source: Matrix, depth: SSAValue, columns: SSAValue, width: int) -> None:
        """Panels in a row of so many columns of groups."""
        more = self._groups(scope, depth), self.root.index_constant(width), self.root.index_constant(self.size)
        self._call(scope, f"fo_panels_{self.arithmetic.tile}", (depth, columns), source, self.matrix, *more)

    def of_number(self, scope: Scope, number: SSAValue) -> Matrix:
        """One of several panels."""
        return replace(self.matrix, at=times(scope, number, self.size))

    def _groups(self, scope: Scope, depth: SSAValue) -> SSAValue:
        """Of so many elements: all that there are, and zeros up to whole lines of the left operand where tiles read these."""
        group = LANE_BYTES // self.element.itemsize if self.in_lines else self.arithmetic.group
        whole = scope.add(
            arith.DivSIOp(plus(scope, depth, self.root.index_constant(group - 1)), self.root.index_constant(group))
        )
        return times(scope, whole, group // self.arithmetic.group)

    def _call(
        self, scope: Scope, name: str, extents: tuple[SSAValue, SSAValue], source: Source, to: Matrix, *more: SSAValue
    ) -> None:
        if isinstance(source, ComputedMatrix):
            source = self._computed(scope, source, *extents)
        constant = self.root.index_constant
        given = [flat_memory(self.root, source.memory), source.at, constant(source.row), constant(source.column)]
        memory = flat_memory(self.root, to.memory)
        scope.call_for_effect(name, [*extents, *given, memory, to.at, constant(to.row), *more])

    def _copied(self, scope: Scope, source: Source, rows: SSAValue, columns: SSAValue) -> Matrix:
        target = self.matrix.transposed() if self.transposed else self.matrix
        if self.transposed:
            source, rows, columns = source.transposed(), columns, rows
        if isinstance(source, ComputedMatrix):
            if source.column == 1 or source.row != 1:
                source.copy(scope, self.matrix, rows, columns)
                return target
            source = self._computed(scope, source, rows, columns)
        copy_matrix(scope, self.element, source, self.matrix, rows, columns)
        return target

    def _repeat_last(self, scope: Scope, rows: SSAValue, depth: SSAValue) -> None:
        """Puts the last row, of those that lie side by side, behind itself: for tiles of two that one is left over for."""
        zero, one = map(self.root.index_constant, (0, 1))
        last = scope.add(arith.SubiOp(rows, one))
        source, target = (self.matrix.moved(scope, zero, column) for column in (last, rows))
        copy_matrix(scope, self.element, source, target, depth, one)

    def _computed(self, scope: Scope, source: ComputedMatrix, rows: SSAValue, columns: SSAValue) -> Matrix:
        """So many rows and columns, computed in the order in which they are read, in memory of their own on the stack."""
        turned = source.row == 1 != source.column
        element = source.element if self.arithmetic.group > 1 else self.element
        most_rows, most_columns = self.extents
        if turned:
            source, rows, columns = source.transposed(), columns, rows
            most_rows, most_columns = most_columns, most_rows
        if (to := self.computed.get((turned, element))) is None:
            step = most_columns + PADDING
            memory = self._memory(element, f"computed_{self.name}", most_rows * step)
            to = self.computed[turned, element] = Matrix(memory, self.root.index_constant(0), step)
        source.copy(scope, to, rows, columns)
        return to.transposed() if turned else to
