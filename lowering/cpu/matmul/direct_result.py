"""Products that nothing follows: their tiles store where the result lies."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.products import Product
from fuse_opt.dialects.analysis.contractions.result_places import result_axes
from fuse_opt.dialects.types.index_expr import IndexExpr, linear
from fuse_opt.lowering.cpu.matmul.copies import Matrix, plus, times
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.scope import Scope


@dataclass(frozen=True, slots=True)
class DirectResult:
    """Where the matrices of a product's result lie in a buffer of the kernel, and at which distance their rows."""

    parameter: int
    offset: IndexExpr
    """In terms of the dimension that counts the matrices."""
    row: int

    def matrix(self, scope: Scope, row: SSAValue, column: SSAValue) -> Matrix:
        """From a row and a column on; the scope must know the matrix of the batch."""
        memory = scope.root.block.args[self.parameter]
        return Matrix(memory, plus(scope, scope.index(self.offset), times(scope, row, self.row), column), self.row)


def direct_result(product: Product, memory: KernelBuffers) -> DirectResult | None:
    """Where tiles can store sums as they are; None where something follows, or the buffer is another one's, too."""
    stores = product.epilogue.stores
    if len(stores) != 1 or stores[0].node.op is not None or stores[0].node.value is not product.raw:
        return None
    found = stored_rows(product, memory)
    return None if found is None or memory.in_place(product.epilogue) or found.parameter in memory.shared else found


def stored_rows(product: Product, memory: KernelBuffers) -> DirectResult | None:
    """Where the first of what is stored lies; None where that is past caches, or not by rows of the product's result."""
    store = product.epilogue.stores[0]
    if memory.nontemporal:
        return None
    batch, row, column = result_axes(product.contraction)
    rest: list[tuple[IndexExpr, int]] = []
    steps = {row: 0, column: 0}
    for atom, factor in store.address.substitute(product.places).terms:
        if atom in steps:
            steps[atom] = factor
        elif IndexExpr(((atom, 1),)).dims() <= {batch}:
            rest.append((IndexExpr(((atom, 1),)), factor))
        else:
            return None
    return None if steps[column] > 1 else DirectResult(memory.targets[store.result], linear(rest), steps[row])
