"""Attention in one launch: keys and values of a matrix are copied into panels once, then goes tile by tile of queries.

For each tile of rows: scores of all keys, the pass over their rows in a cache, the product with the values, what follows it.
As whole rows of scores are there, the pass is exactly the one that the ops say. Blocks and tiles follow from the shapes
alone: every number of threads gives the same bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod

from xdsl.dialects import arith, func, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.attention import Attention, attention_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.lowering.cpu.attention.tiling import PADDING, AttentionTiling, choose_attention_tiling
from fuse_opt.lowering.cpu.attention.weights import WeightRows
from fuse_opt.lowering.cpu.kernel import WORK_PER_CHUNK, KernelLoops, kernel_block
from fuse_opt.lowering.cpu.matmul.copies import (
    Matrix,
    copy_matrix,
    count_loop,
    element_of,
    fill_columns,
    pack_panel,
    plus,
    times,
)
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.cpu.matmul.loops import operand_pass
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import flat_memory, part_bounds, task_parts
from fuse_opt.lowering.kernel.scope import INDEX, Scope


def build_attention_loops(kernel: KernelOp, storages: Sequence[Hashable]) -> list[KernelLoops]:
    """The launch of a kernel of attention. Raises Unschedulable."""
    of = attention_of(kernel)
    operands = [operand_pass(access.value) for access in (of.queries, of.keys, of.values)]
    memory = KernelBuffers(kernel, [of.weights, of.epilogue, *operands], storages)
    tiling = choose_attention_tiling(of.first, of.second, dtype(of.first_raw).itemsize)
    root = Scope(None, kernel_block(memory))
    tasks = prod(of.first.batch), tiling.row_blocks
    body = _Tiles(of, tiling, memory, root)
    bounds = root.block.args[-2], root.block.args[-1]
    count_loop(root, "task", bounds, lambda task, number: body.build(task, number, tasks))
    root.block.add_op(func.ReturnOp())
    work = of.first.operations + of.second.operations
    grain = -(-WORK_PER_CHUNK * prod(tasks) // work)
    return [KernelLoops(root.block, tuple(memory.parameters), memory.shared, prod(tasks), grain, root.helpers)]


class _Tiles:
    """The body of a task: some tiles of the queries of a matrix."""

    def __init__(self, of: Attention, tiling: AttentionTiling, memory: KernelBuffers, root: Scope) -> None:
        self.of, self.tiling, self.root = of, tiling, root
        self.element: DType = dtype(of.first_raw)
        self.tiles = RowTiles(self.element, tiling.vectors, tiling.height, tiling.taller)
        rows, keys = tiling.most_rows, of.first.columns
        self.scores = Sums(self._on_stack(rows * tiling.score_step, "scores"), rows, tiling.score_step)
        self.sums = Sums(self._on_stack(rows * tiling.width, "sums"), rows, tiling.width)
        self.key_panels = self._on_stack(tiling.key_panels * of.first.depth * tiling.width, "key_panels")
        self.value_panels = self._on_stack(tiling.value_panels * keys * tiling.width, "value_panels")
        self.weights = WeightRows(of.weights, of.first, of.first_raw, self.scores, memory, root)
        self.epilogue = BlockEpilogue(of.epilogue, of.places, of.second, of.second_raw, memory, root)
        sources = memory.sources
        self.queries, self.keys, self.values = (
            root.block.args[sources[access.value]] for access in (of.queries, of.keys, of.values)
        )
        self.seen = None if of.seen is None else self.weights.seen(of.seen)
        self.is_masked = any(load.value is not of.first_raw for load in of.weights.loads()) or self.seen is not None
        """Whether rows may well end with weights of 0."""
        self.ends_early = self.seen is not None and of.hides_alike and self.weights.can_end_early
        """Whether the pass over rows leaves out most of what a mask hides."""
        if self.ends_early:
            self.weighed = root.add(memref.AllocaOp.get(INDEX, 64, [1]))
            self.weighed.name_hint = "weighed"
        self.query_step = of.first.depth + PADDING
        copies = of.queries.column != 1 or dtype(of.queries.value) is not self.element
        self.copy = self._on_stack(rows * self.query_step, "rows") if copies else None
        self.narrow: dict[DType, SSAValue] = {}
        """By element type of keys or values in memory, a panel of these."""

    def _on_stack(self, size: int, name: str, element: DType | None = None) -> SSAValue:
        memory = self.root.add(memref.AllocaOp.get((element or self.element).attribute, 64, [size]))
        memory.name_hint = name
        return memory

    def build(self, task: Scope, number: SSAValue, blocks: Sequence[int]) -> None:
        of, tiling = self.of, self.tiling
        batch, row_block = task_parts(task, self.root, number, blocks)
        task.indices = {self.epilogue.batch: batch, self.weights.batch: batch}
        keys = Matrix(self.keys, task.index(of.keys.offset), of.keys.row, of.keys.column)
        self._pack(task, keys, self.key_panels, (of.first.depth, of.first.columns))
        values = Matrix(self.values, task.index(of.values.offset), of.values.row, of.values.column)
        self._pack(task, values, self.value_panels, (of.first.columns, of.second.columns))
        queries = Matrix(self.queries, task.index(of.queries.offset), of.queries.row, of.queries.column)
        tiles = part_bounds(task, row_block, tiling.block, tiling.tiles)
        finite = self._finite_values(task) if self.is_masked else None
        if self.seen is not None:  # what no tile computed is read, though it does not matter
            scores = Matrix(self.scores.memory, self.root.index_constant(0), tiling.score_step)
            zero, rows = self.root.constant(0.0, self.element), self.root.index_constant(tiling.most_rows)
            fill_columns(task, scores, rows, (scores.at, self.root.index_constant(tiling.score_step)), zero)
        count_loop(task, "tile", tiles, lambda scope, tile: self._tile(scope, tile, queries, finite))

    def _finite_values(self, task: Scope) -> SSAValue:
        """Whether no value is infinite or NaN: a weight of 0 then adds nothing."""
        count = self.root.index_constant(self.tiling.value_panels * self.of.first.columns * self.tiling.width)
        arguments = [count, flat_memory(self.root, self.value_panels), self.root.index_constant(0)]
        return task.call(f"fo_all_finite_{self.element.name}", arguments, INDEX)

    def _key_panels(self, scope: Scope, first: SSAValue, count: SSAValue) -> SSAValue:
        """How many panels have keys that rows of a tile see."""
        every, constant = self.root.index_constant(self.tiling.key_panels), self.root.index_constant
        if self.seen is None:
            return every
        width = self.tiling.width
        keys = plus(scope, first, count, constant(self.seen - 1 + width - 1))
        return scope.add(arith.MinSIOp(scope.add(arith.DivSIOp(keys, constant(width))), every))

    def _seen_keys(self, scope: Scope, first: SSAValue, count: SSAValue) -> SSAValue:
        """How many keys the pass over the rows of a tile goes over: all that one of them sees, and one that none does."""
        assert self.seen is not None
        last, constant = plus(scope, first, count, self.root.index_constant(self.seen)), self.root.index_constant
        whole = times(
            scope, scope.add(arith.DivSIOp(plus(scope, last, constant(PADDING - 1)), constant(PADDING))), PADDING
        )
        return scope.add(arith.MinSIOp(whole, constant(self.of.first.columns)))

    def _weigh_rows(self, scope: Scope, first: SSAValue, count: SSAValue) -> SSAValue:
        """Makes weights of scores; gives how many leading keys may have some. Behind there are zeros, before and after."""
        constant, scores = self.root.index_constant, self.scores
        if not self.ends_early:
            self.weights.emit(scope, first, count)
            return constant(self.of.first.columns)
        keys = self._seen_keys(scope, first, count)
        self.weights.emit_seen(scope, first, count, keys, self.weighed)
        computed = times(scope, self._key_panels(scope, first, count), self.tiling.width)
        weighed = scope.add(memref.LoadOp.get(self.weighed, [constant(0)]))
        rest = Matrix(scores.memory, constant(0), scores.step)
        fill_columns(scope, rest, count, (weighed, computed), self.root.constant(0.0, self.element))
        return weighed

    def _used_keys(self, scope: Scope, count: SSAValue, finite: SSAValue | None, weighed: SSAValue) -> SSAValue:
        """How many leading keys have weights that matter: behind the last one that is not 0, products of finite values are 0."""
        keys = self.root.index_constant(self.of.first.columns)
        if finite is None:
            return keys
        arguments = [
            count,
            weighed,
            flat_memory(self.root, self.scores.memory),
            self.root.index_constant(self.scores.step),
        ]
        used = scope.call(f"fo_columns_used_{self.element.name}", arguments, INDEX)
        is_finite = scope.add(arith.CmpiOp(finite, self.root.index_constant(0), "ne"))
        return scope.add(arith.SelectOp(is_finite, used, keys))

    def _pack(self, task: Scope, source: Matrix, panels: SSAValue, extents: tuple[int, int]) -> None:
        """Copies a matrix of so many rows and columns, panel after panel."""
        rows, columns = extents
        if (given := element_of(source.memory)) is not self.element and given not in self.narrow:
            self.narrow[given] = self._on_stack(
                max(self.of.first.depth, self.of.first.columns) * self.tiling.width, "narrow_panel", given
            )
        width, constant = self.tiling.width, self.root.index_constant

        def panel(scope: Scope, number: SSAValue) -> None:
            column = times(scope, number, width)
            count = scope.add(arith.MinSIOp(scope.add(arith.SubiOp(constant(columns), column)), constant(width)))
            part = Matrix(source.memory, source.place(scope, constant(0), column), source.row, source.column)
            target = Matrix(panels, times(scope, number, rows * width), width)
            if (given := element_of(part.memory)) is not self.element and part.row == 1 != part.column:
                turned = Matrix(
                    self.narrow[given], constant(0), width
                )  # by squares in registers, then to wider elements
                copy_matrix(scope, given, part, turned, constant(rows), count)
                part = turned
            pack_panel(scope, self.element, part, target, constant(rows), count, columns % width != 0)

        count_loop(task, "panel", (constant(0), constant(-(-columns // width))), panel)

    def _tile(self, scope: Scope, tile: SSAValue, queries: Matrix, finite: SSAValue | None) -> None:
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        first, count = self.tiles.first_row(scope, tile), self.tiles.rows(scope, tile)
        left = Matrix(queries.memory, queries.place(scope, first, constant(0)), queries.row, queries.column)
        if self.copy is not None:
            target = Matrix(self.copy, constant(0), self.query_step)
            copy_matrix(scope, self.element, left, target, count, constant(of.first.depth))
            left = target

        def score(inner: Scope, panel: SSAValue) -> None:
            right = Matrix(self.key_panels, times(inner, panel, of.first.depth * tiling.width), tiling.width)
            sums = Matrix(self.scores.memory, times(inner, panel, tiling.width), tiling.score_step)
            self._multiply(inner, tile, constant(of.first.depth), tiling.first_depth, left, right, sums)

        def weigh(inner: Scope, panel: SSAValue) -> None:
            right = Matrix(self.value_panels, times(inner, panel, of.first.columns * tiling.width), tiling.width)
            left = Matrix(self.scores.memory, constant(0), tiling.score_step)
            sums = Matrix(self.sums.memory, constant(0), tiling.width)
            self._multiply(inner, tile, used, tiling.second_depth, left, right, sums)
            column = times(inner, panel, tiling.width)
            after = inner.add(arith.MinSIOp(plus(inner, column, constant(tiling.width)), constant(of.second.columns)))
            self.epilogue.emit(inner, self.sums, first, count, (column, after), column)

        count_loop(scope, "panel", (constant(0), self._key_panels(scope, first, count)), score)
        weighed = self._weigh_rows(scope, first, count)
        used = self._used_keys(scope, count, finite, weighed)
        count_loop(scope, "panel", (constant(0), constant(tiling.value_panels)), weigh)
        if self.ends_early:  # rows that were gone over as a whole, leave weights behind those of the next tile
            rest = Matrix(self.scores.memory, constant(0), tiling.score_step)
            bounds = self._seen_keys(scope, first, count), weighed
            fill_columns(scope, rest, count, bounds, self.root.constant(0.0, self.element))

    def _multiply(
        self, scope: Scope, tile: SSAValue, depth: SSAValue, block: int, left: Matrix, right: Matrix, sums: Matrix
    ) -> None:
        """The product of a tile's rows and a panel, block by block of what is contracted."""
        constant = self.root.index_constant

        def add(inner: Scope, at: SSAValue) -> None:
            count = inner.add(arith.MinSIOp(inner.add(arith.SubiOp(depth, at)), constant(block)))
            rows = Matrix(left.memory, plus(inner, left.at, at), left.row)
            panel = Matrix(right.memory, plus(inner, right.at, times(inner, at, right.row)), right.row)
            self.tiles.multiply(inner, tile, count, rows, panel, sums, at)

        count_loop(scope, "depth", (constant(0), depth), add, block)
