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
from fuse_opt.dialects.analysis.contractions.operand_access import OperandAccess
from fuse_opt.dialects.analysis.contractions.product_copies import DEPTH, NEAR_BYTES
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.dialects.types.extents import estimate, is_number
from fuse_opt.dialects.types.size import Size
from fuse_opt.lowering.c.headers.product_dots import FAR, dot_name
from fuse_opt.lowering.c.headers.product_tiles import tile_name, vector_elements
from fuse_opt.lowering.cpu.attention.panels import on_stack
from fuse_opt.lowering.cpu.attention.tiling import padded_step
from fuse_opt.lowering.cpu.attention.weights import WeightRows
from fuse_opt.lowering.cpu.kernel import KernelLoops, launch_of, launch_root
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, count_loop, fill_columns
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.cpu.matmul.tilings.tile_shapes import REGISTERS
from fuse_opt.lowering.kernel.buffers import WORK_PER_CHUNK, KernelBuffers
from fuse_opt.lowering.kernel.loop_splitting import flat_memory
from fuse_opt.lowering.kernel.scope import Scope
from fuse_opt.lowering.loops.vector_widths import WIDTH

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


class FewRowsProducts:
    """The two products of a matrix, over some of its keys; scopes around must know the matrix of the batch."""

    def __init__(self, of: Attention, memory: KernelBuffers, root: Scope) -> None:
        self.of, self.root = of, root
        self.element: DType = dtype(of.first_raw)
        self.rows = of.first.rows
        self.beside = min(MOST_BESIDE, (REGISTERS - 2) // (self.rows + 1))
        """Vectors of a value at a time, that registers have room for."""
        self.keys_beside = 1 << self.beside.bit_length() - 1
        """Keys at a time."""
        keys = prod(of.first.batch) * of.first.columns * of.first.depth
        self.is_far = estimate(keys) * self.element.itemsize > NEAR_BYTES
        """Whether second caches do not hold all keys: those of the next step are asked for (1.06 to 1.26 times as fast)."""
        self._buffers = memory, root.block.args[: len(memory.types)]

    def matrix(self, scope: Scope, of_one: OperandAccess) -> Matrix:
        """Queries, keys or values of the matrix."""
        memory, arguments = self._buffers
        source = arguments[memory.sources[of_one.value]]
        return Matrix(source, scope.index(of_one.offset), of_one.row, of_one.column)

    def score(self, scope: Scope, bounds: Bounds, scores: Matrix) -> None:
        """Scores of the keys within bounds."""
        constant, beside = self.root.index_constant, self.keys_beside
        queries, keys = self.matrix(scope, self.of.queries), self.matrix(scope, self.of.keys)
        first, last = bounds
        rest = scope.add(arith.RemSIOp(scope.add(arith.SubiOp(last, first)), constant(beside)))
        whole = scope.add(arith.SubiOp(last, rest))

        def score(inner: Scope, key: SSAValue, count: int) -> None:
            arguments = [constant(self.of.first.depth)]
            for matrix, step in (
                (queries, queries.row),
                (keys.moved(inner, constant(0), key), keys.column),
                (scores.moved(inner, constant(0), key), scores.row),
            ):
                arguments += [flat_memory(self.root, matrix.memory), matrix.at, constant(step)]
            name = dot_name(self.element.name, self.rows, count, FAR * self.is_far)
            inner.call_for_effect(name, [*arguments, constant(0)])

        count_loop(scope, "key", (first, whole), lambda inner, key: score(inner, key, beside), beside)
        if not is_number(self.of.first.columns) or self.of.first.columns % beside:
            count_loop(scope, "key", (whole, last), lambda inner, key: score(inner, key, 1))

    def fill_room(self, scope: Scope, scores: Matrix) -> None:
        """Puts zeros where rows have room behind their keys."""
        columns, constant = self.of.first.columns, self.root.index_constant
        if isinstance(columns, Size):
            room = constant(columns), constant(-(-columns // WIDTH) * WIDTH)
            fill_columns(scope, scores, constant(self.rows), room, self.root.constant(0.0, self.element))

    def mix(self, scope: Scope, bounds: Bounds, scores: Matrix, sums: Matrix) -> None:
        """The values of the keys within bounds, times their weights, summed in blocks of keys."""
        values = self.matrix(scope, self.of.values)
        first, last = bounds

        def mix(inner: Scope, at: SSAValue) -> None:
            rest = inner.add(arith.SubiOp(last, at))
            depth = inner.add(arith.MinSIOp(rest, self.root.index_constant(DEPTH)))
            start = inner.add(arith.SubiOp(at, first))
            self._mix_block(inner, at, (depth, start), values, scores, sums)

        count_loop(scope, "depth", bounds, mix, DEPTH)

    def _mix_block(
        self, scope: Scope, at: SSAValue, part: Bounds, values: Matrix, scores: Matrix, sums: Matrix
    ) -> None:
        """`part` says how many keys, and whether others came before (where it is not 0)."""
        constant, columns = self.root.index_constant, self.of.second.columns
        width = self.beside * vector_elements(self.element.name)
        for first in range(0, columns, width):
            arguments = [part[0]]
            for matrix in (
                scores.moved(scope, constant(0), at),
                values.moved(scope, at, constant(first)),
                sums.moved(scope, constant(0), constant(first)),
            ):
                arguments += [flat_memory(self.root, matrix.memory), matrix.at, constant(matrix.row)]
            name = tile_name(self.element.name, self.rows, min(width, columns - first), is_far=True)
            scope.call_for_effect(name, [*arguments, part[1]])


class _FewRows:
    """The body of a task."""

    def __init__(self, of: Attention, memory: KernelBuffers, root: Scope) -> None:
        self.of, self.root = of, root
        self.products = FewRowsProducts(of, memory, root)
        element, rows, keys = self.products.element, of.first.rows, of.first.columns
        most = most_keys(of.first, of.second, element.itemsize)
        if isinstance(keys, Size):
            root.limits[keys] = most
        step = cast(int, padded_step(keys))
        self.scores = Sums(on_stack(root, rows * cast(int, padded_step(most)), "scores", element), rows, step)
        width = of.second.columns
        self.sums = Sums(on_stack(root, rows * width, "sums", element), rows, width)
        self.weights = WeightRows(of.weights, of.first, of.first_raw, self.scores, most, memory, root)
        self.epilogue = BlockEpilogue(of.epilogue, of.places, of.second, of.second_raw, memory, root)

    def build(self, task: Scope, number: SSAValue) -> None:
        of, constant = self.of, self.root.index_constant
        task.indices = {self.epilogue.batch: number, self.weights.batch: number}
        zero, every = constant(0), (constant(0), constant(of.first.columns))
        scores, sums = (Matrix(each.memory, zero, each.step) for each in (self.scores, self.sums))
        self.products.score(task, every, scores)
        self.products.fill_room(task, scores)
        self.weights.emit(task, zero, constant(self.scores.rows))
        self.products.mix(task, every, scores, sums)
        self.epilogue.emit(task, self.sums, zero, constant(self.scores.rows), (zero, constant(of.second.columns)), zero)
