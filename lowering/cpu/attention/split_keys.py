"""Attention of few queries to long keys, where there are few matrices: parts of the keys are tasks apart.

Scores of all keys lie in the arena: a launch computes them part by part, one goes over their rows as the ops say, one multiplies
the values of each part, and one joins these products in order. As no part has a norm of its own, none is rescaled. Parts follow
from the shapes and the number of keys alone: every number of threads gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import cast

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.attention import Attention, most_keys
from fuse_opt.dialects.analysis.contractions.result_places import result_axes
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.extents import estimate, is_number, most, smallest
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.cpu.attention.few_rows import FewRowsProducts, build_few_rows
from fuse_opt.lowering.cpu.attention.panels import on_stack
from fuse_opt.lowering.cpu.attention.tiling import padded_step
from fuse_opt.lowering.cpu.attention.weights import WeightRows
from fuse_opt.lowering.cpu.kernel import KernelLoops, launch_of, launch_root
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, copy_matrix, count_loop, parallel_loop, plus, times
from fuse_opt.lowering.cpu.matmul.epilogue import BlockEpilogue, Sums
from fuse_opt.lowering.kernel.buffers import WORK_PER_CHUNK, KernelBuffers, Scratch
from fuse_opt.lowering.kernel.element_emitter import element_buffer_type
from fuse_opt.lowering.kernel.loop_splitting import task_parts
from fuse_opt.lowering.kernel.scope import Scope

FEWEST_TASKS = 8
"""Matrices from which on their keys are not cut."""
LONG = 512
"""Keys from which on they are cut."""
FEWEST_KEYS = 256
"""Of a part where the schedule does not say how many parts there are; fewer are not worth to wait for each other."""
MULTIPLE = 16
"""Keys, of which a part but the last has a multiple."""
ALIGNMENT = 64
"""Bytes at which what launches hand on begins."""


def build_split_keys(of: Attention, memory: KernelBuffers, asked: int | None) -> list[KernelLoops]:
    """
    The launches of a kernel whose rows are few, with keys in as many parts as the schedule asks for, or as there should be.
    For any number of keys there are launches of both kinds: those that a number does not need have no tasks.
    """
    keys, parts = of.first.columns, _parts(of, asked)
    if parts == 1:
        return [build_few_rows(of, memory)]
    if is_number(keys) or asked is not None:
        return _Build(of, memory, parts, MULTIPLE if asked else FEWEST_KEYS).launches(1)
    is_long = smallest(keys // LONG, 1)
    whole = build_few_rows(of, memory)
    return [
        replace(whole, tasks=whole.tasks * (1 - is_long)),
        *_Build(of, memory, parts, FEWEST_KEYS).launches(is_long),
    ]


def _parts(of: Attention, asked: int | None) -> int:
    """How many parts the keys of a matrix are cut into, at most."""
    matrices, keys = prod(of.first.batch), of.first.columns
    if not is_number(matrices) or not matrices:
        return 1
    if asked is not None:
        return asked
    if matrices >= FEWEST_TASKS or most(keys) < LONG:
        return 1
    return min(-(-FEWEST_TASKS // matrices), most(keys) // FEWEST_KEYS)


class _Build:
    """The launches of one kernel."""

    def __init__(self, of: Attention, memory: KernelBuffers, parts: int, fewest: int) -> None:
        self.of, self.memory, self.parts, self.fewest = of, memory, parts, fewest
        self.matrices = prod(of.first.batch)
        self.element = dtype(of.first_raw)
        self.rows, self.width = of.first.rows, of.second.columns
        keys = of.first.columns
        self.most = most_keys(of.first, of.second, self.element.itemsize)
        self.step = cast(int, padded_step(keys))
        self.used: Extent = smallest(parts, -(-keys // fewest))
        """Parts that may have keys."""
        sums = self.matrices * parts * self.rows * self.width
        scores = self.matrices * self.rows * self.step
        behind = -(-sums * self.element.itemsize // ALIGNMENT) * ALIGNMENT
        self.scratch = [
            Scratch(0, element_buffer_type(self.element, sums), "part_sums"),
            Scratch(behind, element_buffer_type(self.element, scores), "scores", scores),
        ]

    def launches(self, factor: Extent) -> list[KernelLoops]:
        """All of them, in order; with so many times their tasks."""
        found = [self.scores(), self.weights(), self.products(), self.join()]
        return [replace(each, tasks=each.tasks * factor) for each in found]

    def scores(self) -> KernelLoops:
        """Scores of the keys of a part."""
        root, (_, scores) = self._root()
        products = FewRowsProducts(self.of, self.memory, root)

        def build(task: Scope, number: SSAValue) -> None:
            matrix, part = self._open(task, root, number)
            products.score(task, self._bounds(task, part), self._scores(task, scores, matrix))

        return self._finish(root, build, self.used, 2 * self.of.first.depth)

    def weights(self) -> KernelLoops:
        """Rows of scores become weights where they lie."""
        root, (_, memory) = self._root()
        scores = Sums(memory, self.matrices * self.rows, self.step)
        products = FewRowsProducts(self.of, self.memory, root)
        weights = WeightRows(self.of.weights, self.of.first, self.of.first_raw, scores, self.most, self.memory, root)

        def build(task: Scope, number: SSAValue) -> None:
            matrix, _ = self._open(task, root, number, 1)
            products.fill_room(task, self._scores(task, memory, matrix))
            zero = root.index_constant(0)
            weights.emit(task, zero, root.index_constant(self.rows), times(task, matrix, self.rows))

        return self._finish(root, build, 1, estimate(weights.work) // max(estimate(self.of.first.columns), 1))

    def products(self) -> KernelLoops:
        """Values of the keys of a part, times their weights."""
        root, (sums, scores) = self._root()
        products = FewRowsProducts(self.of, self.memory, root)

        def build(task: Scope, number: SSAValue) -> None:
            matrix, part = self._open(task, root, number)
            place = plus(task, times(task, matrix, self.parts), part)
            target = Matrix(sums, times(task, place, self.rows * self.width), self.width)
            products.mix(task, self._bounds(task, part), self._scores(task, scores, matrix), target)

        return self._finish(root, build, self.used, 2 * self.width)

    def join(self) -> KernelLoops:
        """The sums of all parts in their order, and what follows the product."""
        root, (memory, _) = self._root()
        of, constant = self.of, root.index_constant
        sums = Sums(on_stack(root, self.rows * self.width, "sums", self.element), self.rows, self.width)
        epilogue = BlockEpilogue(of.epilogue, of.places, of.second, of.second_raw, self.memory, root)
        rows, columns = constant(self.rows), constant(self.width)

        def build(task: Scope, number: SSAValue) -> None:
            matrix, _ = self._open(task, root, number, 1)
            task.indices[epilogue.batch] = matrix
            zero, one = constant(0), constant(1)
            first = Matrix(memory, times(task, matrix, self.parts * self.rows * self.width), self.width)
            total = Matrix(sums.memory, zero, self.width)
            copy_matrix(task, self.element, first, total, rows, columns)
            length = self._length(task)
            last = task.add(arith.SubiOp(plus(task, constant(of.first.columns), length), one))
            used = task.add(arith.DivSIOp(last, length))

            def add(inner: Scope, part: SSAValue) -> None:
                start = times(inner, part, self.rows * self.width)
                self._add(inner, first.moved(inner, zero, start), total, (rows, columns))

            count_loop(task, "part", (one, used), add)
            epilogue.emit(task, sums, zero, rows, (zero, columns), zero)

        return self._finish(root, build, 1, 1)

    def _add(self, scope: Scope, part: Matrix, total: Matrix, extents: tuple[SSAValue, SSAValue]) -> None:
        zero = scope.root.index_constant(0)

        def put(inner: Scope, row: SSAValue, column: SSAValue) -> None:
            place = total.place(inner, row, column)
            a = inner.add(memref.LoadOp.get(total.memory, [place]))
            b = inner.add(memref.LoadOp.get(part.memory, [part.place(inner, row, column)]))
            inner.block.add_op(memref.StoreOp.get(inner.add(arith.AddfOp(a, b)), total.memory, [place]))

        def row_of(outer: Scope, row: SSAValue) -> None:
            parallel_loop(outer, "column", (zero, extents[1]), lambda inner, column: put(inner, row, column))

        count_loop(scope, "row", (zero, extents[0]), row_of)

    def _root(self) -> tuple[Scope, Sequence[SSAValue]]:
        root, shared = launch_root(self.memory, self.scratch)
        if isinstance(keys := self.of.first.columns, Size):
            root.limits[keys] = self.most
        return root, shared

    def _open(self, task: Scope, root: Scope, number: SSAValue, parts: int | None = None) -> tuple[SSAValue, SSAValue]:
        """The matrix and the part of a task."""
        matrix, part = task_parts(task, root, number, (self.matrices, self.used if parts is None else parts))
        task.indices = {result_axes(product)[0]: matrix for product in (self.of.first, self.of.second)}
        return matrix, part

    def _scores(self, scope: Scope, memory: SSAValue, matrix: SSAValue) -> Matrix:
        return Matrix(memory, times(scope, matrix, self.rows * self.step), self.step)

    def _length(self, scope: Scope) -> SSAValue:
        """How many keys a part has, but the last one that has any."""
        constant, keys = scope.root.index_constant, self.of.first.columns
        length = -(-keys // (self.parts * MULTIPLE)) * MULTIPLE
        return scope.add(arith.MaxSIOp(constant(length), constant(self.fewest)))

    def _bounds(self, scope: Scope, part: SSAValue) -> Bounds:
        """The keys of a part, which may be none."""
        length, every = self._length(scope), scope.root.index_constant(self.of.first.columns)
        first = scope.add(arith.MinSIOp(scope.add(arith.MuliOp(part, length)), every))
        return first, scope.add(arith.MinSIOp(plus(scope, first, length), every))

    def _finish(self, root: Scope, build: Callable[[Scope, SSAValue], None], parts: Extent, work: int) -> KernelLoops:
        """The launch of tasks that are parts of matrices; `work` is that of a query and a key."""
        count_loop(root, "task", (root.block.args[-2], root.block.args[-1]), build)
        keys = max(estimate(self.of.first.columns), LONG)
        keys_of_task = -(-keys // min(self.parts, -(-keys // self.fewest))) if parts != 1 else keys
        grain = -(-WORK_PER_CHUNK // max(self.rows * keys_of_task * work, 1))
        return launch_of(root, self.memory, self.scratch, self.matrices * parts, grain)
