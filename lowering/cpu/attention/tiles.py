"""The tiles of a task of attention: scores of all keys, the pass over their rows in a cache, the product with the values.

As whole rows of scores are there, the pass is the one that the ops say, but for the factor of a row, which may come behind the
second product: nothing is rescaled. Where panels lie outside of a second cache, several tiles go over each while it is near.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.attention import Attention
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.dialects.types.extents import is_number
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.cpu.attention.late_factor import largest_value, late_factor
from fuse_opt.lowering.cpu.attention.panels import Panels, on_stack
from fuse_opt.lowering.cpu.attention.tiling import PADDING, AttentionTiling
from fuse_opt.lowering.cpu.attention.weights import WeightRows
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, copy_matrix, count_loop, fill_columns, plus, times
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.cpu.matmul.row_tiles import RowTiles, either
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import flat_memory, part_bounds, task_parts
from fuse_opt.lowering.kernel.scope import INDEX, Scope


@dataclass(frozen=True, slots=True)
class _Group:
    """Tiles that are computed at a time, and what they read."""

    tiles: Bounds
    first: SSAValue
    """Row."""
    count: SSAValue
    queries: Matrix
    panels: tuple[SSAValue, SSAValue]
    """Where those of keys and of values begin."""
    moderate: SSAValue | None
    """Whether no value is infinite or NaN, or too large for late factors: a weight of 0 then adds nothing; None where there are
    hardly such weights, and no late factors."""


class AttentionTiles:
    """The body of a task: some tiles of the queries of a matrix."""

    def __init__(
        self, of: Attention, tiling: AttentionTiling, panels: Panels, memory: KernelBuffers, root: Scope, late: bool
    ) -> None:
        """`late` says whether factors of rows may come behind the second product."""
        self.of, self.tiling, self.panels, self.root = of, tiling, panels, root
        self.element: DType = dtype(of.first_raw)
        every = None if is_number(of.first.rows) else of.first.rows
        self.tiles = RowTiles(self.element, tiling.vectors, tiling.height, tiling.taller, every)
        self.last_tiles = replace(self.tiles, vectors=tiling.last_vectors(of.first.columns))
        """Of the last panel of keys."""
        rows = tiling.group_rows
        scores = self._on_stack(rows * tiling.most_step, "scores")
        self.scores = Sums(scores, rows, cast(int, tiling.score_step))
        hides = of.seen is not None and of.hides_alike  # which leaves out more than dividing takes
        factor = late_factor(of.weights) if late and not hides else None
        self.weights = WeightRows(
            of.weights, of.first, of.first_raw, self.scores, tiling.most_keys, memory, root, factor
        )
        self.sums = Sums(self._on_stack(rows * tiling.width, "sums"), rows, tiling.width, factors=self.weights.factors)
        self.epilogue = BlockEpilogue(of.epilogue, of.places, of.second, of.second_raw, memory, root)
        self.queries = root.block.args[memory.sources[of.queries.value]]
        self.seen = None if of.seen is None else self.weights.seen(of.seen)
        self.is_masked = any(load.value is not of.first_raw for load in of.weights.loads()) or self.seen is not None
        """Whether rows may well end with weights of 0."""
        self.ends_early = self.seen is not None and of.hides_alike and self.weights.can_end_early
        """Whether the pass over rows leaves out most of what a mask hides."""
        self.query_step = of.first.depth + PADDING
        copies = of.queries.column != 1 or dtype(of.queries.value) is not self.element
        self.copy = self._on_stack(rows * self.query_step, "rows") if copies else None

    def _on_stack(self, size: int, name: str) -> SSAValue:
        return on_stack(self.root, size, name, self.element)

    def build(self, task: Scope, number: SSAValue, blocks: Sequence[Extent]) -> None:
        tiling = self.tiling
        batch, row_block = task_parts(task, self.root, number, blocks)
        task.indices = {self.epilogue.batch: batch, self.weights.batch: batch}
        if not is_number(tiling.tiles) and tiling.row_blocks > 1:  # there may be fewer tiles than tasks of a matrix
            tiles = part_bounds(task, row_block, tiling.block, tiling.tiles)
            is_some = task.add(arith.CmpiOp(*tiles, "slt"))
            either(task, is_some, lambda inner: self._build(inner, batch, row_block))
        else:
            self._build(task, batch, row_block)

    def _build(self, task: Scope, batch: SSAValue, row_block: SSAValue) -> None:
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        starts = self.panels.starts(task, batch)
        if not tiling.shares_panels:
            every = constant(0), constant(tiling.key_panels)
            count_loop(task, "block", every, lambda scope, block: self.panels.copy_block(scope, block, starts))
        queries = Matrix(self.queries, task.index(of.queries.offset), of.queries.row, of.queries.column)
        tiles = part_bounds(task, row_block, tiling.block, tiling.tiles)
        asks = self.is_masked or self.weights.factors is not None
        moderate = self._moderate_values(task, starts[1]) if asks else None
        if self.seen is not None:  # what no tile computed is read, though it does not matter
            self._clear(task, constant(tiling.group_rows), (constant(0), constant(tiling.score_step)))

        def group(scope: Scope, tile: SSAValue) -> None:
            self._group(scope, self._group_of(scope, (tile, tiles[1]), queries, starts, moderate))

        count_loop(task, "tile", tiles, group, tiling.group)

    def _group_of(
        self, scope: Scope, tiles: Bounds, queries: Matrix, panels: tuple[SSAValue, SSAValue], moderate: SSAValue | None
    ) -> _Group:
        """The next tiles that are computed at a time."""
        first, constant = self.tiles.first_row(scope, tiles[0]), self.root.index_constant
        last, count = tiles[0], self.tiles.rows(scope, tiles[0])
        if self.tiling.group > 1:
            last = scope.add(arith.MinSIOp(plus(scope, tiles[0], constant(self.tiling.group)), tiles[1]))
            count = scope.add(arith.SubiOp(self.tiles.first_row(scope, last), first))
        left = Matrix(queries.memory, queries.place(scope, first, constant(0)), queries.row, queries.column)
        if self.copy is not None:
            target = Matrix(self.copy, constant(0), self.query_step)
            copy_matrix(scope, self.element, left, target, count, constant(self.of.first.depth))
            left = target
        return _Group((tiles[0], last), first, count, left, panels, moderate)

    def _clear(self, scope: Scope, rows: SSAValue, columns: Bounds) -> None:
        """Puts zeros where so many rows have scores in these columns."""
        scores = Matrix(self.scores.memory, self.root.index_constant(0), self.scores.step)
        fill_columns(scope, scores, rows, columns, self.root.constant(0.0, self.element))

    def _moderate_values(self, task: Scope, start: SSAValue) -> SSAValue:
        """Whether no value is infinite or NaN, nor the sum of so many of them as there may be keys, where factors are late."""
        count = self.root.index_constant(self.panels.sizes.values)
        arguments = [count, flat_memory(self.root, self.panels.values), start]
        if self.weights.factors is None:
            return task.call(f"fo_all_finite_{self.element.name}", arguments, INDEX)
        most = self.root.constant(largest_value(self.element, self.tiling.most_keys), self.element)
        return task.call(f"fo_all_within_{self.element.name}", [*arguments, most], INDEX)

    def _key_panels(self, scope: Scope, first: SSAValue, count: SSAValue) -> SSAValue:
        """How many panels have keys that rows of a group see."""
        every, constant = self.root.index_constant(self.tiling.key_panels), self.root.index_constant
        if self.seen is None:
            return every
        width = self.tiling.width
        keys = plus(scope, first, count, constant(self.seen - 1 + width - 1))
        return scope.add(arith.MinSIOp(scope.add(arith.DivSIOp(keys, constant(width))), every))

    def _seen_keys(self, scope: Scope, first: SSAValue, count: SSAValue) -> SSAValue:
        """How many keys the pass over the rows of a group goes over: all that one of them sees, and one that none does."""
        assert self.seen is not None
        last, constant = plus(scope, first, count, self.root.index_constant(self.seen)), self.root.index_constant
        whole = times(
            scope, scope.add(arith.DivSIOp(plus(scope, last, constant(PADDING - 1)), constant(PADDING))), PADDING
        )
        return scope.add(arith.MinSIOp(whole, constant(self.of.first.columns)))

    def _weigh_rows(self, scope: Scope, group: _Group) -> tuple[SSAValue, SSAValue]:
        """Makes weights of scores; gives how many leading keys got some, and how many might need them next time."""
        first, count, every = group.first, group.count, self.root.index_constant(self.of.first.columns)
        if not self.ends_early:
            self.weights.emit(scope, first, count)
            return every, every
        keys = self._seen_keys(scope, first, count)
        computed = times(scope, self._key_panels(scope, first, count), self.tiling.width)
        self._clear(scope, count, (keys, computed))
        return self.weights.emit_seen(scope, first, count, keys), keys

    def _used_keys(self, scope: Scope, group: _Group, weighed: SSAValue) -> SSAValue:
        """How many leading keys have weights that matter: behind the last one that is not 0, products of finite values are 0."""
        keys = self.root.index_constant(self.of.first.columns)
        if group.moderate is None or not self.is_masked:
            return keys
        arguments = [
            group.count,
            weighed,
            flat_memory(self.root, self.scores.memory),
            self.root.index_constant(self.scores.step),
        ]
        used = scope.call(f"fo_columns_used_{self.element.name}", arguments, INDEX)
        is_finite = scope.add(arith.CmpiOp(group.moderate, self.root.index_constant(0), "ne"))
        return scope.add(arith.SelectOp(is_finite, used, keys))

    def _divide_early(self, scope: Scope, group: _Group) -> None:
        """Multiplies weights by their factors now where values are too large for it later."""
        factors = self.weights.factors
        if factors is None or group.moderate is None:
            return
        keys, step = map(self.root.index_constant, (self.of.first.columns, self.scores.step))
        arguments = [group.count, keys, flat_memory(self.root, self.scores.memory), step, factors]
        is_large = scope.add(arith.CmpiOp(group.moderate, self.root.index_constant(0), "eq"))
        either(scope, is_large, lambda s: s.call_for_effect(f"fo_factor_rows_{self.element.name}", arguments))

    def _group(self, scope: Scope, group: _Group) -> None:
        of, tiling, constant = self.of, self.tiling, self.root.index_constant
        keys, values = group.panels

        def score(inner: Scope, panel: SSAValue) -> None:
            at = plus(inner, keys, times(inner, panel, of.first.depth * tiling.width))
            right = Matrix(self.panels.keys, at, tiling.width)
            sums = Matrix(self.scores.memory, times(inner, panel, tiling.width), tiling.score_step)

            def multiply(s: Scope, tiles: RowTiles) -> None:
                depth = constant(of.first.depth)
                self._multiply(s, tiles, group, depth, tiling.first_depth, group.queries, right, sums)

            is_last: SSAValue | bool = False
            if self.last_tiles != self.tiles:
                is_last = inner.add(arith.CmpiOp(panel, constant(tiling.key_panels - 1), "eq"))
            either(inner, is_last, lambda s: multiply(s, self.last_tiles), lambda s: multiply(s, self.tiles))

        def weigh(inner: Scope, panel: SSAValue) -> None:
            at = plus(inner, values, times(inner, panel, of.first.columns * tiling.width))
            right = Matrix(self.panels.values, at, tiling.width)
            left = Matrix(self.scores.memory, constant(0), tiling.score_step)
            sums = Matrix(self.sums.memory, constant(0), tiling.width)
            self._multiply(inner, self.tiles, group, used, tiling.second_depth, left, right, sums)
            column = times(inner, panel, tiling.width)
            after = inner.add(arith.MinSIOp(plus(inner, column, constant(tiling.width)), constant(of.second.columns)))
            self.epilogue.emit(inner, self.sums, group.first, group.count, (column, after), column)

        count_loop(scope, "panel", (constant(0), self._key_panels(scope, group.first, group.count)), score)
        weighed, expected = self._weigh_rows(scope, group)
        self._divide_early(scope, group)
        used = self._used_keys(scope, group, weighed)
        count_loop(scope, "panel", (constant(0), constant(tiling.value_panels)), weigh)
        if self.ends_early:  # rows that were gone over as a whole leave weights where the next ones expect none
            self._clear(scope, group.count, (expected, weighed))

    def _multiply(
        self,
        scope: Scope,
        tiles: RowTiles,
        group: _Group,
        depth: SSAValue,
        block: int,
        left: Matrix,
        right: Matrix,
        sums: Matrix,
    ) -> None:
        """The product of a group's rows and a panel, block by block of what is contracted."""
        zero = self.root.index_constant(0)

        def add(inner: Scope, at: SSAValue) -> None:
            count = inner.add(arith.MinSIOp(inner.add(arith.SubiOp(depth, at)), self.root.index_constant(block)))
            panel = right.moved(inner, at, zero)

            def tile_of(scope: Scope, tile: SSAValue) -> None:
                row = zero
                if self.tiling.group > 1:
                    row = scope.add(arith.SubiOp(self.tiles.first_row(scope, tile), group.first))
                rows, out = left.moved(scope, row, at), sums.moved(scope, row, zero)
                tiles.multiply(scope, tile, count, rows, panel, out, at)

            if self.tiling.group > 1:
                count_loop(inner, "tile", group.tiles, tile_of)
            else:
                tile_of(inner, group.tiles[0])

        count_loop(scope, "depth", (zero, depth), add, block)
