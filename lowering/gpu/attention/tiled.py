"""Attention by tiles that are copied while others are gone over: operands on their way to shared memory, and masks of scores."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import inf

from xdsl.dialects import arith, memref, vector
from xdsl.dialects.builtin import MemRefType, VectorType
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.hints import isa

from fuse_opt.dialects import gpu
from fuse_opt.dialects.analysis.contractions.online_softmax import OnlineSoftmax
from fuse_opt.dialects.analysis.contractions.operand_access import OperandAccess
from fuse_opt.dialects.types.extents import exact_quotient
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.gpu.attention.matrices import MatrixCopy
from fuse_opt.lowering.gpu.attention.parts import AttentionParts
from fuse_opt.lowering.gpu.attention.scores import Scores
from fuse_opt.lowering.gpu.scope import WARP, KernelScope, Values, less, unrolled, when
from fuse_opt.lowering.gpu.vectors import is_vector
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.iteration_space import as_expr
from fuse_opt.lowering.kernel.scope import Scope

WARPS = 4
THREADS = WARPS * WARP


def memory_element(memory: SSAValue) -> Attribute:
    assert isa(memory.type, MemRefType)
    return memory.type.element_type


class TiledAttention(AttentionParts):
    """What a block of threads does, whose scores lie in `scores`, registers of its threads."""

    scores: SSAValue
    threads: int = THREADS
    """Of a block."""
    packs: Sequence[SSAValue] = ()
    """Registers of a vector of each result."""

    def __init__(
        self,
        online: OnlineSoftmax,
        buffers: KernelBuffers,
        kernel: KernelScope,
        block: tuple[int, int],
        scored_as: Scores,
    ) -> None:
        super().__init__(online, buffers, kernel, block)
        self.scored_as = scored_as

    @abstractmethod
    def row_of(self, scope: Scope) -> SSAValue:
        """The number of the row that the loops of `rows` are at, which may lie behind the last one."""

    @abstractmethod
    def rows(self, scope: Scope, body: Callable[[Scope], None]) -> None:
        """Loops over the rows of a thread."""

    @abstractmethod
    def each_keys(self, scope: Scope, first: SSAValue, body: Callable[[Scope, list[Scope]], None]) -> None:
        """Keys of this thread, some at a time, in scopes of their own; for those behind the last one that is read."""

    def start(self, position: IndexExpr, vectors: bool) -> Extent:
        """Finds the place of the block, and makes ready what is computed of scores and copied; how many blocks there are."""
        of = self.of
        blocks = self.place(from_last=of.seen is not None)
        self.prepare(self.scored_as.products, self.scores, position, vectors)
        self.query_copy = self._copy(of.queries, of.first.rows, of.first.depth)
        self.key_copy = self._copy(of.keys.transposed(), of.first.columns, of.first.depth)
        self.value_copy = self._copy(of.values, of.first.columns, of.second.columns)
        self.waits = any(copy.chunked for copy in (self.query_copy, self.key_copy, self.value_copy))
        return blocks

    def stores_vectors(self, width: int) -> bool:
        """Whether so many neighbours of a row of the result, from a multiple of them on, are one vector wherever they go."""
        outer, inner = Dim("outer", -(-self.column.extent // width)), Dim("inner", width)
        column = {self.column: as_expr(outer) * width + as_expr(inner)}
        targets = self.targets()
        if self.column.extent % width or not all(is_vector(place.substitute(column), inner) for _, place in targets):
            return False
        self.packs = [self.kernel.registers(memory_element(memory), width, "pack") for memory, _ in targets]
        return self.parts.takes_vectors([memory for memory, _ in targets])

    def store_vector(self, scope: Scope, first: SSAValue, sums: Sequence[SSAValue]) -> None:
        """Stores what follows from the sums of neighbouring columns."""
        for number, value in enumerate(sums):
            column = scope.add(arith.AddiOp(first, scope.index_constant(number))) if number else first
            each = Scope(scope, scope.block, {self.column: column})
            for found, pack in zip(self.results_of(each, value), self.packs, strict=True):
                each.block.add_op(memref.StoreOp.get(found, pack, [scope.index_constant(number)]))
        at = Scope(scope, scope.block, {self.column: first})
        for pack, (memory, address) in zip(self.packs, self.targets(), strict=True):
            kind = VectorType(memory_element(memory), [len(sums)])
            value = scope.add(vector.LoadOp(pack, [scope.index_constant(0)], kind))
            scope.block.add_op(vector.StoreOp(value, memory, [at.index(address)]))

    def _copy(self, access: OperandAccess, rows: Extent, columns: int) -> MatrixCopy:
        source = self.kernel.parameters[self.buffers.sources[access.value]]
        copy = MatrixCopy(self.kernel, self.threads, source, access, rows, columns)
        return copy.in_chunks() if copy.is_chunked() and self.parts.takes_vectors([source]) else copy

    def arrive(self, scope: Scope) -> None:
        """Waits until all that was copied is there for all threads; they are all through with what they read before."""
        if self.waits:
            scope.call_for_effect("fo_async_wait", [])
        self.show(scope)
        scope.block.add_op(gpu.BarrierOp())

    def show(self, scope: Scope) -> None:
        """What makes what this thread wrote to shared memory visible to units that read it past the barrier."""

    def first_key(self, scope: Scope, tile: SSAValue) -> SSAValue:
        return scope.add(arith.MuliOp(tile, scope.index_constant(self.block_keys)))

    def following(self, scope: Scope, tile: SSAValue, tiles: SSAValue, copy: Callable[[Scope, SSAValue], None]) -> None:
        """Copies something of the next tile, where there is one."""
        following = scope.add(arith.AddiOp(tile, scope.index_constant(1)))

        def body(inner: Scope, _: Values) -> Values:
            copy(inner, following)
            return ()

        when(scope, scope.add(arith.CmpiOp(following, tiles, "slt")), (), body)

    def fill(self, scope: Scope, value: SSAValue, memory: SSAValue, count: int) -> None:
        """Stores a value to all of a buffer of the thread's own."""
        place = Dim("place", count)

        def one(inner: Scope, _: Values) -> Values:
            inner.block.add_op(memref.StoreOp.get(value, memory, [inner.dim_value(place)]))
            return ()

        unrolled(scope, place, (), one, "place")

    def each_row(self, scope: Scope, body: Callable[[Scope], None]) -> None:
        """Each row of this thread, whose number, or that of the last one, is known there."""

        def row(inner: Scope) -> None:
            number = inner.values["row"] = self.row_of(inner)
            last = inner.index_constant(self.of.first.rows - 1)
            inner.indices[self.row] = inner.add(arith.MinSIOp(number, last))
            body(inner)

        self.rows(scope, row)

    def at_key(self, scope: Scope, key: SSAValue, indices: dict[Dim, SSAValue]) -> Scope:
        """A scope at the place of the given one that is about a key; for one behind the last one that is read."""
        inner = Scope(scope, scope.block, indices)
        inner.values["key"] = key
        inner.indices[self.key] = inner.add(arith.MinSIOp(key, inner.index_constant(self.of.first.columns - 1)))
        return inner

    def score_place(self, scope: Scope) -> SSAValue:
        return scope.index(self.scored.taken[self.online.score].position)

    def mask(self, scope: Scope, first: SSAValue) -> None:
        """The scores that the ops make of products; -inf behind the last key."""
        scored, keys = self.scored_as, self.of.first.columns
        is_partial = exact_quotient(keys, self.block_keys) is None
        further = self.seen_after() if scored.counts else None
        unmasked = scored.unmasked if further is not None else self.online.score
        end = scope.add(arith.AddiOp(first, scope.index_constant(self.block_keys)))
        whole: SSAValue | None = less(scope, end, keys + 1) if is_partial else None
        if further is not None:
            seen = scope.add(arith.AddiOp(self.first, scope.index_constant(further)))
            all_seen = scope.add(arith.CmpiOp(end, seen, "sle"))
            whole = all_seen if whole is None else scope.add(arith.AndIOp(whole, all_seen))

        def every(inner: Scope, masked: bool) -> Values:
            node = self.online.score if masked else unmasked
            if masked or node not in scored.products:
                self.each_row(inner, lambda row: self.each_keys(row, first, lambda _, each: store(each, masked)))
            return ()

        def store(scopes: list[Scope], masked: bool) -> None:
            node = self.online.score if masked else unmasked
            for each in scopes:
                self.emitter.emit([node], each, self.raw)
                value = self.emitter.value(node, each)
                if masked and is_partial:
                    inside = less(each, each.values["key"], keys)
                    value = each.add(arith.SelectOp(inside, value, each.constant(-inf, self.element)))
                place = self.score_place(each)
                each.block.add_op(memref.StoreOp.get(value, self.scores, [place]))

        if whole is None:
            every(scope, False)
        else:
            when(scope, whole, (), lambda s, _: every(s, False), None, lambda s, _: every(s, True))
