"""Operands that are computed as they are copied: what is before a product, on the part that tiles read next."""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.dialects import memref, scf
from xdsl.ir import Block, SSAValue

from fuse_opt.dialects.analysis.contractions.computed_operands import ComputedOperand
from fuse_opt.dialects.analysis.contractions.operand_access import OperandAccess
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.lowering.cpu.matmul.copies import Matrix, element_of, plus
from fuse_opt.lowering.cpu.stages.stage import StageLoops
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.element_emitter import KernelNodes
from fuse_opt.lowering.kernel.iteration_space import LoopSpace, index_dims
from fuse_opt.lowering.kernel.scope import INDEX, Scope


class OperandPass(StageLoops):
    """The pointwise pass that gives an operand's elements; scopes around it must know the matrix of the batch."""

    def __init__(self, operand: ComputedOperand, memory: KernelBuffers, root: Scope) -> None:
        assert operand.elements is not None
        self.elements = operand.elements
        nodes = KernelNodes(self.elements.loop_body)
        nodes.space = LoopSpace({}, (index_dims(self.elements.loop_body.rows),))
        nodes.finish()
        super().__init__(nodes, memory, root.block.args[: len(memory.types)], root)

    @property
    def element(self) -> DType:
        return dtype(self.elements.root.value)

    def store_element(self, scope: Scope, target: Matrix, row: SSAValue, column: SSAValue) -> None:
        """Stores the element that the scope's dimensions say, rounded to the operand's type; the target's may be a wider one."""
        root = self.elements.root
        self.emitter.emit([root], scope)
        narrow = element_of(target.memory) is self.element
        value = self.emitter.stored_value(root, scope) if narrow else self.emitter.value(root, scope)
        scope.block.add_op(memref.StoreOp.get(value, target.memory, [target.place(scope, row, column)]))


@dataclass(frozen=True)
class ComputedMatrix:
    """A matrix of an operand that is computed, from an element on; where its neighbours are read side by side, as by strides."""

    computed: OperandPass
    first_row: SSAValue
    first_column: SSAValue
    row: int
    column: int
    is_transposed: bool = False

    @property
    def element(self) -> DType:
        return self.computed.element

    def moved(self, scope: Scope, row: SSAValue, column: SSAValue) -> ComputedMatrix:
        """The same from that row and column on."""
        first = plus(scope, self.first_row, row), plus(scope, self.first_column, column)
        return replace(self, first_row=first[0], first_column=first[1])

    def transposed(self) -> ComputedMatrix:
        return ComputedMatrix(
            self.computed, self.first_column, self.first_row, self.column, self.row, not self.is_transposed
        )

    def copy(self, scope: Scope, target: Matrix, rows: SSAValue, columns: SSAValue) -> None:
        """Computes so many rows and columns into the target: the columns of a row side by side."""
        elements, root = self.computed.elements, self.computed.root
        row_dim, column_dim = (elements.column, elements.row) if self.is_transposed else (elements.row, elements.column)
        outer, row = _loop_scope(scope, "row", row_dim, self.first_row)
        inner, column = _loop_scope(outer, "column", column_dim, self.first_column)
        self.computed.store_element(inner, target, row, column)
        inner.block.add_op(scf.ReduceOp())
        zero = root.index_constant(0)
        outer.block.add_op(self.computed.parallel(inner.block, zero, columns))
        outer.block.add_op(scf.YieldOp())
        scope.block.add_op(self.computed.loop(outer.block, zero, rows))


Source = Matrix | ComputedMatrix


def operand_matrix(operand: OperandAccess, memory: KernelBuffers, root: Scope) -> ComputedMatrix | None:
    """An operand that is computed, from its first element on; None of one that is in memory."""
    if not isinstance(operand, ComputedOperand):
        return None
    zero = root.index_constant(0)
    return ComputedMatrix(OperandPass(operand, memory, root), zero, zero, operand.row, operand.column)


def _loop_scope(scope: Scope, name: str, dim: Dim | None, first: SSAValue) -> tuple[Scope, SSAValue]:
    """The body of a loop that counts from 0 where a dimension begins at `first`, and its counter."""
    inner = Scope(scope, Block(arg_types=[INDEX]))
    counter = inner.block.args[0]
    counter.name_hint = name
    if dim is not None:
        inner.indices = {dim: plus(inner, first, counter)}
    return inner, counter
