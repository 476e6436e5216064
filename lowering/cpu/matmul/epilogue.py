"""What follows a product, on a block of its result while a cache has it: a loop over rows, and columns side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, memref, scf
from xdsl.ir import Block, SSAValue

from fuse_opt.dialects.analysis.contractions.result_places import result_axes
from fuse_opt.dialects.analysis.loop_body import LoopBody
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr
from fuse_opt.lowering.c.headers.functions import helper_names
from fuse_opt.lowering.cpu.matmul.copies import element_of
from fuse_opt.lowering.cpu.stages.stage import StageLoops
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, Stage
from fuse_opt.lowering.kernel.iteration_space import LoopSpace, as_expr
from fuse_opt.lowering.kernel.loop_splitting import flat_memory
from fuse_opt.lowering.kernel.scope import INDEX, Scope


@dataclass(frozen=True, slots=True)
class Sums:
    """A block of a product's result: the product of row r and column c of the block is at `at + r * step + c`."""

    memory: SSAValue
    rows: int
    step: int
    at: SSAValue | None = None
    """0 where it is None."""
    factors: SSAValue | None = None
    """What rows of the product are multiplied by before all else."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a row of a block finds side by side in memory."""

    memory: SSAValue
    address: IndexExpr
    element: DType
    function: str
    """Which asks for it, but for the element."""


class BlockEpilogue(StageLoops):
    """The pointwise pass behind a product, over blocks of its result; scopes around it must know the matrix of the batch."""

    def __init__(
        self,
        loop_body: LoopBody,
        places: Mapping[Dim, IndexExpr],
        product: Contraction,
        raw: SSAValue,
        memory: KernelBuffers,
        root: Scope,
    ) -> None:
        nodes = KernelNodes(loop_body)
        self.batch, self.row, self.column = axes = result_axes(product)
        nodes.space = LoopSpace(places, (axes,))
        nodes.finish()
        super().__init__(nodes, memory, root.block.args[: len(memory.types)], root)
        self.raw = raw
        self._asked: list[Asked] = []

    def emit(
        self,
        scope: Scope,
        sums: Sums,
        first: SSAValue,
        count: SSAValue,
        columns: Sequence[SSAValue],
        start: SSAValue,
        ahead: int = 0,
    ) -> None:
        """
        Stores so many rows from the first on, and the columns within the bounds; the block begins at column `start`. Each row
        asks for what `find_asks` found, so many rows `ahead`.
        """

        def row_of(row: Scope) -> None:
            if ahead:
                later = row.add(arith.AddiOp(row.dim_value(self.row), self.root.index_constant(ahead)))
                self._ask_row(Scope(row, row.block), later, start, row.add(arith.SubiOp(columns[1], columns[0])))
            self.over_columns(row, sums, columns, start)

        self.over_rows(scope, sums, first, count, row_of)

    def find_asks(self, also_stores: bool) -> bool:
        """
        Finds what `ask` asks for: what rows of a block read beside their sums, and where they are stored, where these lie side by
        side in memory. Gives whether there is something.
        """
        reads = [
            Asked(self.emitter.buffers[load.value], self.nodes.addresses[load], dtype(load.value), "fo_prefetch")
            for load in self.loop_body.loads()
            if load.value is not self.raw
        ]
        read = {(each.memory, each.address) for each in reads}
        stores = [
            Asked(memory, address, element_of(memory), "fo_request")
            for store in self.loop_body.stores
            for memory in [self.arguments[self.memory.targets[store.result]]]
            if (memory, address := self.nodes.space.apply(store.address)) not in read
        ]
        found = [*reads, *stores] if also_stores and not self.memory.nontemporal else reads
        found = [each for each in found if f"{each.function}_{each.element.name}" in helper_names()]
        self._asked = [each for each in found if self._lies_by_rows(each.address)]
        return bool(self._asked)

    def _lies_by_rows(self, address: IndexExpr) -> bool:
        factors = address.coefficients() or {}
        return factors.get(self.column) == 1 and factors.get(self.row, 0) != 0

    @property
    def work(self) -> float:
        """Simple operations of an element."""
        return self.stage_work(Stage((self.row, self.column), stores=list(self.loop_body.stores)))

    def ask(self, scope: Scope, first: SSAValue, count: SSAValue, start: SSAValue, columns: SSAValue) -> None:
        """Asks for them, of so many rows from the first on, and so many columns."""
        outer = Scope(scope, Block(arg_types=[INDEX]))
        outer.block.args[0].name_hint = "row"
        self._ask_row(outer, outer.add(arith.AddiOp(first, outer.block.args[0])), start, columns)
        outer.block.add_op(scf.YieldOp())
        scope.block.add_op(self.loop(outer.block, self.root.index_constant(0), count))

    def _ask_row(self, scope: Scope, row: SSAValue, start: SSAValue, columns: SSAValue) -> None:
        scope.indices = {self.row: row, self.column: start}
        for each in self._asked:
            place, memory = scope.index(each.address), flat_memory(scope.root, each.memory)
            scope.call_for_effect(f"{each.function}_{each.element.name}", [memory, place, columns])

    def over_rows(
        self, scope: Scope, sums: Sums, first: SSAValue, count: SSAValue, build: Callable[[Scope], None]
    ) -> None:
        """A loop over so many rows from the first on; `build` puts its body down."""
        outer = Scope(scope, Block(arg_types=[INDEX]))
        row = outer.block.args[0]
        row.name_hint = "row"
        outer.indices = {
            _block(sums): sums.at or scope.root.index_constant(0),
            _block_row(sums): row,
            self.row: outer.add(arith.AddiOp(first, row)),
        }
        build(outer)
        outer.block.add_op(scf.YieldOp())
        scope.block.add_op(self.loop(outer.block, self.root.index_constant(0), count))

    def over_columns(self, row: Scope, sums: Sums, columns: Sequence[SSAValue], start: SSAValue) -> None:
        """Stores the columns of a row within the bounds; the block begins at column `start`."""
        stage = Stage((self.row, self.column), stores=list(self.loop_body.stores))
        inner = self.column_scope(row, sums, start)
        for load in self.loop_body.loads():
            if (value := self.block_value(load.value, sums, row, inner)) is not None:
                value.name_hint = load.value.name_hint
                self.emitter.define(load, value, inner)
        self.emitter.emit(stage.roots(), inner, stage)
        self.store(stage.stores, inner)
        inner.block.add_op(scf.ReduceOp())
        lower, upper = columns
        row.block.add_op(self.parallel(inner.block, lower, upper))

    def block_value(self, value: SSAValue, sums: Sums, row: Scope, inner: Scope) -> SSAValue | None:
        """The element of the block that a value is, rounded where sums are of a wider type; None for any other value."""
        if value is not self.raw:
            return None
        factors = sums.factors
        factor = factors and row.add(memref.LoadOp.get(factors, [row.dim_value(_block_row(sums))]))
        found = inner.add(memref.LoadOp.get(sums.memory, [inner.index(block_place(sums))]))
        return found if factor is None else inner.add(arith.MulfOp(found, factor))

    def column_scope(self, row: Scope, sums: Sums, start: SSAValue) -> Scope:
        """The body of a loop over columns of a row of a block that begins at column `start`."""
        inner = Scope(row, Block(arg_types=[INDEX]))
        column = inner.block.args[0]
        column.name_hint = "column"
        inner.indices = {self.column: column, _block_column(sums): inner.add(arith.SubiOp(column, start))}
        return inner


def block_place(sums: Sums) -> IndexExpr:
    """Where the element of the row and the column at hand is in a block."""
    return as_expr(_block(sums)) + as_expr(_block_row(sums)) * sums.step + as_expr(_block_column(sums))


def _block(sums: Sums) -> Dim:
    return Dim("block", sums.rows * sums.step)


def _block_row(sums: Sums) -> Dim:
    return Dim("block_row", sums.rows)


def _block_column(sums: Sums) -> Dim:
    return Dim("block_column", sums.step)
