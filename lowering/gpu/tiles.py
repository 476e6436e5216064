"""Elements by square blocks in shared memory: what is read along another dimension than it is stored along is transposed there.

A block reads its part of each such operand along the operand's lines and writes it down across; after a barrier it
computes along the lines of the results. So both sides are coalesced. Lines of the shared block are padded, so that its
columns lie in different banks (Ruetsch and Micikevicius 2009: optimizing matrix transpose in CUDA).
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects import gpu
from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.extents import ceiling_quotient, exact_quotient, may_exceed
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.lowering.gpu.context import GpuParts, Grid
from fuse_opt.lowering.gpu.scope import Body, Values, combined_index, less, named, unrolled, when
from fuse_opt.lowering.kernel.element_emitter import RowBuffer, Stage
from fuse_opt.lowering.kernel.iteration_space import as_expr, extent
from fuse_opt.lowering.kernel.loop_splitting import task_parts
from fuse_opt.lowering.kernel.scope import Scope
from fuse_opt.lowering.kernel.transposed_loads import TransposedLoads, transposed_loads

THREADS = 32, 8
BANK = 4
"""Bytes of a bank of shared memory."""
MOST_FETCHED = 2
"""Operands that a thread loads before the barrier besides those that are transposed."""
SMALL_TILE, LARGE_TILE = 32, 64
"""Elements along both sides; the larger one for elements of two bytes and less."""


def build_tiles(parts: GpuParts) -> Grid | None:
    """Emits the pass over blocks of elements and gives its grid; None, and nothing emitted, without a load to turn."""
    nodes = parts.nodes
    dims = nodes.loop(nodes.loop_body.rows)
    transposed = transposed_loads(nodes, dims)
    if transposed is None or not may_exceed(extent(dims), 0):
        return None
    widest = max(dtype(node.value).itemsize for node in transposed.nodes)
    size = parts.schedule.tile or (LARGE_TILE if widest <= BANK // 2 else SMALL_TILE)
    size = min(max(size, THREADS[0]), LARGE_TILE)
    fitting = _fitting(transposed, size, parts.schedule.limits.static_shared)
    if not fitting.nodes and size > SMALL_TILE:
        size = SMALL_TILE
        fitting = _fitting(transposed, size, parts.schedule.limits.static_shared)
    if not fitting.nodes:
        return None
    rest = [dim for dim in dims if dim not in (transposed.along, dims[-1])]
    outer = Dim("outer", extent(rest))
    nodes.flatten_rows(rest, outer)
    nodes.finish()
    return _Tiles(parts, fitting, outer, dims[-1], size).build()


def _line(node: ScalarNode, size: int) -> int:
    """Elements from one line of a shared block to the next."""
    return size + max(BANK // dtype(node.value).itemsize, 1)


def _fitting(transposed: TransposedLoads, size: int, room: int) -> TransposedLoads:
    """The loads whose blocks fit shared memory together."""
    fitting: list[ScalarNode] = []
    for node in transposed.nodes:
        room -= _line(node, size) * size * dtype(node.value).itemsize
        if room < 0:
            break
        fitting.append(node)
    return TransposedLoads(transposed.along, fitting)


@dataclass
class _Tiles:
    parts: GpuParts
    transposed: TransposedLoads
    outer: Dim
    inner: Dim
    size: int

    def build(self) -> Grid:
        parts, kernel, size, along, inner = self.parts, self.parts.kernel, self.size, self.transposed.along, self.inner
        blocks = [ceiling_quotient(dim.extent, size) for dim in (along, inner)]
        digits = task_parts(kernel, kernel, kernel.block_number(), (self.outer.extent, *blocks))
        kernel.indices[self.outer] = digits[0]
        self.first = {
            dim: named(kernel.add(arith.MuliOp(digit, kernel.index_constant(size))), f"first_{name}")
            for dim, digit, name in zip((along, inner), digits[1:], ("row", "column"), strict=True)
        }
        self.local = Dim("tile_row", size), Dim("tile_column", size)
        self.emitter = parts.emitter(parts.nodes)
        stage = Stage((along, inner), stores=list(parts.nodes.loop_body.stores))
        for node in self.transposed.nodes:
            element = dtype(node.value)
            memory = kernel.shared(
                element.attribute, _line(node, size) * size, f"{node.value.name_hint or 'value'}_tile"
            )
            position = as_expr(self.local[0]) * _line(node, size) + as_expr(self.local[1])
            stage.taken[node] = RowBuffer(memory, position)

        def read(scope: Scope, _: Values) -> Values:
            for node in self.transposed.nodes:
                self._read(node, stage.taken[node], scope)
            return ()

        def write(scope: Scope, _: Values) -> Values:
            self.emitter.emit(stage.roots(), scope, stage)
            parts.store(stage.stores, self.emitter, scope)
            return ()

        self._go_through((inner, along), read)
        self._fetch(stage)
        kernel.block.add_op(gpu.BarrierOp())
        self._go_through((along, inner), write)
        parts.notes.append(f"tile, {size} x {size} elements a block, {len(self.transposed.nodes)} turned")
        return Grid(self.outer.extent * blocks[0] * blocks[1], THREADS)

    def _fetch(self, stage: Stage) -> None:
        """Lets each thread load what it needs besides before all meet, so that its loads are under way with the others."""
        parts, kernel = self.parts, self.parts.kernel
        tall, wide = self._turns()
        place = as_expr(tall) * wide.extent + as_expr(wide) if wide.extent > 1 else as_expr(tall)
        others = [
            node
            for node in parts.nodes.loop_body.loads()
            if node not in self.transposed.nodes and parts.nodes.varies(node, (self.transposed.along,))
            and parts.nodes.varies(node, (self.inner,)) and not parts.nodes.addresses[node].loaded()
        ][:MOST_FETCHED]  # fmt: skip
        for node in others:
            name = f"{node.value.name_hint or 'value'}_ahead"
            memory = kernel.registers(dtype(node.value).attribute, tall.extent * wide.extent, name)
            stage.taken[node] = RowBuffer(memory, place)

        def fetch(scope: Scope, _: Values) -> Values:
            for node in others:
                self._read(node, stage.taken[node], scope)
            return ()

        if others:
            self._go_through((self.transposed.along, self.inner), fetch)

    def _turns(self) -> tuple[Dim, Dim]:
        """Lines and parts of a line that each thread takes."""
        return Dim("line", self.size // THREADS[1]), Dim("half", self.size // THREADS[0])

    def _read(self, node: ScalarNode, place: RowBuffer, scope: Scope) -> None:
        source = self.parts.kernel.parameters[self.parts.buffers.sources[node.value]]
        value = scope.add(memref.LoadOp.get(source, [scope.index(self.parts.nodes.addresses[node])]))
        value.name_hint = node.value.name_hint
        scope.block.add_op(memref.StoreOp.get(value, place.memory, [scope.index(place.position)]))

    def _go_through(self, dims: tuple[Dim, Dim], body: Body) -> None:
        """All elements of the block: threads along x take neighbours of the second dimension, those along y lines."""
        kernel, (lines, neighbours) = self.parts.kernel, dims
        local = dict(zip((self.transposed.along, self.inner), self.local, strict=True))
        turns = self._turns()
        x, y = kernel.thread(), kernel.thread(gpu.DimensionEnum.Y)

        def line(scope: Scope, _: Values) -> Values:
            at = combined_index(scope, scope.dim_value(turns[0]), THREADS[1], y, "line")
            return self._within(
                scope, lines, local[lines], at, lambda inner, _: unrolled(inner, turns[1], (), half, "half")
            )

        def half(scope: Scope, _: Values) -> Values:
            at = combined_index(scope, scope.dim_value(turns[1]), THREADS[0], x, "place")
            return self._within(scope, neighbours, local[neighbours], at, body)

        unrolled(kernel, turns[0], (), line, "turn")

    def _within(self, scope: Scope, dim: Dim, local: Dim, at: SSAValue, body: Body) -> Values:
        """Runs the body for a place of the block that lies within the whole."""
        place = named(scope.add(arith.AddiOp(self.first[dim], at)), "row" if dim == self.transposed.along else "column")
        indices = {dim: place, local: at}
        if exact_quotient(dim.extent, self.size) is None:
            return when(scope, less(scope, place, dim.extent), (), body, indices)
        scope.indices.update(indices)
        return body(scope, ())
