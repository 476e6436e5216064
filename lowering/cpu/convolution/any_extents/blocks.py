"""Tasks of convolutions of images of any extents: which block of positions one is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Region, SSAValue

from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.extents import is_number
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.cpu.matmul.copies import Bounds, plus, times
from fuse_opt.lowering.kernel.loop_splitting import task_parts
from fuse_opt.lowering.kernel.scope import INDEX, Scope


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions of a task: along each axis where the first one is, and of rows and of a row how many there are."""

    first: SSAValue
    row: SSAValue
    column: SSAValue
    rows: SSAValue
    columns: SSAValue


class BlockTasks(ABC):
    """All rows of images, and all parts of a row, in blocks that are as equal as can be; each by groups, and some filters."""

    def __init__(self, of: WindowContraction, root: Scope) -> None:
        self.of, self.root = of, root
        self.extents: tuple[Extent, Extent] = (of.positions[1], of.positions[2])
        """Rows and columns of what blocks are of."""
        self.rows: Extent = 1
        self.parts: Extent = 1
        self.counts: tuple[Extent, ...] = ()

    def cut(self, rows: Extent, parts: Extent, shares: int) -> None:
        """Says how many blocks of rows there are, parts of a row, and tasks that share the filters of a block."""
        self.rows, self.parts = rows, parts
        self.counts = (self.of.batch, self.of.groups, self.of.positions[0], rows, parts, shares)

    @abstractmethod
    def build(self, task: Scope, number: SSAValue) -> None:
        """The body of a task of that number."""

    def place(self, task: Scope, number: SSAValue) -> tuple[Sequence[SSAValue], Bounds, Bounds]:
        """
        Numbers of a task's sample, group, first axis and filters, and its rows and columns. Where one block has all positions, as
        of small images, few divisions say so: they take as long as the sums of a small block.
        """
        blocks = self.rows * self.parts
        if is_number(blocks):
            return self._place_of_many(task, number)
        is_one = task.add(arith.CmpiOp(self.root.index_constant(blocks), self.root.index_constant(1), "eq"))
        branches = Scope(task, Block()), Scope(task, Block())
        for inner, place in zip(branches, (self._place_of_one, self._place_of_many), strict=True):
            numbers, rows, columns = place(inner, number)
            inner.block.add_op(scf.YieldOp(*numbers, *rows, *columns))
        found = scf.IfOp(is_one, [INDEX] * 8, Region(branches[0].block), Region(branches[1].block))
        task.block.add_op(found)
        *numbers, top, bottom, left, right = found.results
        return numbers, (top, bottom), (left, right)

    def _place_of_one(self, task: Scope, number: SSAValue) -> tuple[Sequence[SSAValue], Bounds, Bounds]:
        *outer, _, _, some = self.counts
        (height, width), constant = self.extents, self.root.index_constant
        numbers = task_parts(task, self.root, number, (*outer, some))
        return numbers, (constant(0), constant(height)), (constant(0), constant(width))

    def _place_of_many(self, task: Scope, number: SSAValue) -> tuple[Sequence[SSAValue], Bounds, Bounds]:
        *outer, row, column, some = task_parts(task, self.root, number, self.counts)
        height, width = self.extents
        return [*outer, some], self._part(task, row, height, self.rows), self._part(task, column, width, self.parts)

    def _part(self, task: Scope, number: SSAValue, extent: Extent, parts: Extent) -> Bounds:
        """Where one of so many parts of an extent, as equal as can be, begins and ends."""
        constant = self.root.index_constant
        if parts == 1:
            return constant(0), constant(extent)
        after = plus(task, number, constant(1))
        first, last = (task.add(arith.DivSIOp(times(task, n, extent), constant(parts))) for n in (number, after))
        return first, last
