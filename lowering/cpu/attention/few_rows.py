"""Attention of few queries, as of a token that is decoded: keys and values are read once, where they lie.

A task is a matrix: sums along the elements of keys are the scores of all its rows, some keys at a time; the pass over these
rows is the one that the ops say; the values then are the right operand of a product. Nothing is copied.
"""

from __future__ import annotations

from math import prod
from typing import cast

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.attention import Attention, most_keys
from fuse_opt.dialects.analysis.contractions.product_copies import DEPTH
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.size import Size
from fuse_opt.lowering.c.headers.product_dots import dot_name
from fuse_opt.lowering.c.headers.product_tiles import tile_name, vector_elements
from fuse_opt.lowering.cpu.attention.panels import on_stack
from fuse_opt.lowering.cpu.attention.tiling import padded_step
from fuse_opt.lowering.cpu.attention.weights import WeightRows
from fuse_opt.lowering.cpu.kernel import KernelLoops, launch_of, launch_root
from fuse_opt.lowering.cpu.matmul.copies import Matrix, count_loop, fill_columns
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.cpu.matmul.tile_shapes import REGISTERS
from fuse_opt.lowering.kernel.buffers import WORK_PER_CHUNK, KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import flat_memory
from fuse_opt.lowering.kernel.scope import Scope
from fuse_opt.lowering.loops.masked_tails import WIDTH

MOST_BESIDE = 8
"""Keys, or vectors of a value, at a time."""


def build_few_rows(of: Attention, memory: KernelBuffers) -> KernelLoops:
    """The launch of a kernel whose rows are few."""
    root = launch_root(memory, [])[0]
    body = _FewRows(of, memory, root)
    count_loop(root, "task", (root.block.args[-2], root.block.args[-1]), body.build)
    matrices = prod(of.first.batch)
    work = estimate(of.first.operations + of.second.operations) // estimate(matrices)
    return launch_of(root, memory, [], matrices, -(-WORK_PER_CHUNK // max(work, 1)))


class _FewRows:
    """The body of a task."""

    def __init__(self, of: Attention, memory: KernelBuffers, root: Scope) -> None:
        self.of, self.root = of, root
        self.element: DType = dtype(of.first_raw)
        self.rows, keys = of.first.rows, of.first.columns
        most = most_keys(of.first, of.second, self.element.itemsize)
        if isinstance(keys, Size):
            root.limits[keys] = most
        step = cast(int, padded_step(keys))
        scores = on_stack(root, self.rows * cast(int, padded_step(most)), "scores", self.element)
        self.scores = Sums(scores, self.rows, step)
        width = of.second.columns
        self.sums = Sums(on_stack(root, self.rows * width, "sums", self.element), self.rows, width)
        self.weights = WeightRows(of.weights, of.first, of.first_raw, self.scores, most, memory, root)
        self.epilogue = BlockEpilogue(of.epilogue, of.places, of.second, of.second_raw, memory, root)
        self.sources = [root.block.args[memory.sources[of_one.value]] for of_one in (of.queries, of.keys, of.values)]
        self.beside = min(MOST_BESIDE, (REGISTERS - 2) // (self.rows + 1))
        """That registers have room for."""

    def build(self, task: Scope, number: SSAValue) -> None:
        of, constant = self.of, self.root.index_constant
        task.indices = {self.epilogue.batch: number, self.weights.batch: number}
        queries, keys, values = (
            Matrix(memory, task.index(each.offset), each.row, each.column)
            for memory, each in zip(self.sources, (of.queries, of.keys, of.values), strict=True)
        )
        self._score(task, queries, keys)
        self.weights.emit(task, constant(0), constant(self.rows))
        zero, depth = constant(0), constant(of.first.columns)
        count_loop(task, "depth", (zero, depth), lambda scope, at: self._mix(scope, values, at), DEPTH)
        self.epilogue.emit(task, self.sums, zero, constant(self.rows), (zero, constant(of.second.columns)), zero)

    def _score(self, scope: Scope, queries: Matrix, keys: Matrix) -> None:
        """Scores of all keys, and zeros where rows have room behind them."""
        columns, constant = self.of.first.columns, self.root.index_constant
        scores = Matrix(self.scores.memory, constant(0), self.scores.step)
        beside = 1 << self.beside.bit_length() - 1
        whole = columns // beside * beside

        def score(inner: Scope, key: SSAValue, count: int) -> None:
            arguments = [constant(self.of.first.depth)]
            for matrix, step in (
                (queries, queries.row),
                (keys.moved(inner, constant(0), key), keys.column),
                (scores.moved(inner, constant(0), key), scores.row),
            ):
                arguments += [flat_memory(self.root, matrix.memory), matrix.at, constant(step)]
            name = dot_name(self.element.name, self.rows, count)
            inner.call_for_effect(name, [*arguments, constant(0)])

        bounds = constant(0), constant(whole), constant(columns)
        count_loop(scope, "key", bounds[:2], lambda inner, key: score(inner, key, beside), beside)
        if whole != columns:
            count_loop(scope, "key", bounds[1:], lambda inner, key: score(inner, key, 1))
        if isinstance(columns, Size):
            room = constant(columns), constant(-(-columns // WIDTH) * WIDTH)
            fill_columns(scope, scores, constant(self.rows), room, self.root.constant(0.0, self.element))

    def _mix(self, scope: Scope, values: Matrix, at: SSAValue) -> None:
        """Adds the values of a block of keys, times their weights."""
        constant, columns = self.root.index_constant, self.of.second.columns
        rest = scope.add(arith.SubiOp(constant(self.of.first.columns), at))
        depth = scope.add(arith.MinSIOp(rest, constant(DEPTH)))
        width = self.beside * vector_elements(self.element.name)
        for first in range(0, columns, width):
            arguments = [depth]
            for matrix in (
                Matrix(self.scores.memory, at, self.scores.step),
                values.moved(scope, at, constant(first)),
                Matrix(self.sums.memory, constant(first), self.sums.step),
            ):
                arguments += [flat_memory(self.root, matrix.memory), matrix.at, constant(matrix.row)]
            name = tile_name(self.element.name, self.rows, min(width, columns - first), is_far=True)
            scope.call_for_effect(name, [*arguments, at])
