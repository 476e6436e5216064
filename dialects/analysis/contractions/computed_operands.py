"""Operands of a product that its kernel computes: a pointwise pass over the rows and columns of their matrices.

Such an operand is in no memory: whoever copies parts of operands in front of a product computes the elements of the copy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.analysis.contractions.operand_access import OperandAccess, OperandAxes
from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode, Store, Unschedulable, trace_nodes
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr, delinearize


@dataclass(frozen=True, slots=True)
class ComputedElements:
    """What gives the elements of an operand; a dimension of one element is None."""

    loop_body: LoopBody
    """Over the dimension `BATCH`, `row` and `column`; it stores the operand's element."""
    row: Dim | None
    column: Dim | None

    def transposed(self) -> ComputedElements:
        """The same with rows for columns."""
        return replace(self, row=self.column, column=self.row)

    @property
    def root(self) -> ScalarNode:
        return self.loop_body.stores[0].node

    @property
    def work(self) -> int:
        """Simple operations for an element; what is the same for a row, or for a column, counts as if it were not."""
        return sum(sc.cost(node.op.body()) for node in self.loop_body.nodes if node.op is not None)


@dataclass(frozen=True, slots=True)
class ComputedOperand(OperandAccess):
    """An operand whose elements are computed: `row` and `column` say in which order it is best done, as strides would."""

    elements: ComputedElements | None = None

    def transposed(self) -> ComputedOperand:
        """The same with rows for columns."""
        assert self.elements is not None
        return replace(self, row=self.column, column=self.row, elements=self.elements.transposed())


def read_by(operand: OperandAccess) -> set[SSAValue]:
    """What is in memory of an operand."""
    if isinstance(operand, ComputedOperand) and operand.elements is not None:
        return {load.value for load in operand.elements.loop_body.loads()}
    return {operand.value}


def computed_operand(
    value: SSAValue,
    strides: Sequence[int],
    extents: Sequence[int],
    members: Collection[Operation],
    outside: Collection[Operation] = (),
) -> ComputedOperand:
    """
    The pass that gives an operand of a product, with `strides` in `value` of the axes `(*batch, rows, columns)`. Raises
    Unschedulable where it reduces, or reads something whose rows or columns lie at no constant distance.
    """
    axes = OperandAxes.of(strides, extents)
    nodes = trace_nodes(value, delinearize(axes.position, shape(value)), members, outside)
    for node in nodes:
        if node.op is not None and node.op.COMBINE:
            raise Unschedulable("prologue", f"an operand is reduced by '{node.op.name}' in the kernel", node.op)
    index = (axes.batch, axes.row, axes.column)
    batch = tuple(extents[:-2])
    stores = (Store(0, nodes[-1], axes.position, False),)
    body = LoopBody(index, (prod(batch), *extents[-2:]), (), (), nodes, stores)
    row, column = _order(axes, body.loads())
    elements = ComputedElements(body, axes.row_dim, axes.column_dim)
    return ComputedOperand(nodes[-1].value, IndexExpr(), row, column, elements=elements)


def _order(axes: OperandAxes, loads: Sequence[ScalarNode]) -> tuple[int, int]:
    """The distances of rows and columns in the widest elements of those that are read for each row and column."""
    found: list[tuple[int, int, int]] = []
    for load in loads:
        _, (row, column) = axes.split(load.address)
        if row and column:
            found.append((dtype(load.value).itemsize, row, column))
    if not found:
        return axes.natural
    return max(found, key=lambda one: one[0])[1:]
