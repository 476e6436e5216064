"""Elements by square blocks in shared memory: what is read along another dimension than it is stored along is turned there.

A block reads its part of each such operand along the operand's lines and writes it down across; after a barrier it
computes along the lines of the results. So both sides are coalesced. Lines of the shared block are padded, so that its
columns lie in different banks (Ruetsch and Micikevicius 2009: optimizing matrix transpose in CUDA).
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects import gpu
from fuse_opt.dialects.analysis.loop_body import Point
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.lowering.gpu.context import GpuParts, Grid
from fuse_opt.lowering.gpu.scope import Body, Values, combined_index, less, named, unrolled, when
from fuse_opt.lowering.kernel.element_emitter import RowBuffer, Stage
from fuse_opt.lowering.kernel.iteration_space import as_expr, extent
from fuse_opt.lowering.kernel.loop_splitting import task_parts
from fuse_opt.lowering.kernel.scope import Scope
from fuse_opt.lowering.kernel.transposed_loads import TurnedLoads, turned_loads

THREADS = 32, 8
BANK = 4
"""Bytes of a bank of shared memory."""
MOST_FETCHED = 2
"""Operands that a thread loads before the barrier besides those that are turned."""
SMALL_TILE, LARGE_TILE = 32, 64
"""Elements along both sides; the larger one for elements of two bytes and less."""


def build_tiles(parts: GpuParts) -> Grid | None:
    """Emits the pass over blocks of elements and gives its grid; None, and nothing emitted, without a load to turn."""
    points = parts.points
    dims = points.loop(points.pulled.rows)
    turned = turned_loads(points, dims)
    if turned is None or extent(dims) == 0:
        return None
    widest = max(dtype(point.value).itemsize for point in turned.points)
    size = parts.schedule.tile or (LARGE_TILE if widest <= BANK // 2 else SMALL_TILE)
    size = min(max(size, THREADS[0]), LARGE_TILE)
    fitting = _fitting(turned, size, parts.schedule.limits.static_shared)
    if not fitting.points and size > SMALL_TILE:
        size = SMALL_TILE
        fitting = _fitting(turned, size, parts.schedule.limits.static_shared)
    if not fitting.points:
        return None
    rest = [dim for dim in dims if dim not in (turned.along, dims[-1])]
    outer = Dim("outer", extent(rest))
    points.flatten_rows(rest, outer)
    points.finish()
    return _Tiles(parts, fitting, outer, dims[-1], size).build()


def _line(point: Point, size: int) -> int:
    """Elements from one line of a shared block to the next."""
    return size + max(BANK // dtype(point.value).itemsize, 1)


def _fitting(turned: TurnedLoads, size: int, room: int) -> TurnedLoads:
    """The loads whose blocks fit shared memory together."""
    fitting: list[Point] = []
    for point in turned.points:
        room -= _line(point, size) * size * dtype(point.value).itemsize
        if room < 0:
            break
        fitting.append(point)
    return TurnedLoads(turned.along, fitting)


@dataclass
class _Tiles:
    parts: GpuParts
    turned: TurnedLoads
    outer: Dim
    inner: Dim
    size: int

    def build(self) -> Grid:
        parts, kernel, size, along, inner = self.parts, self.parts.kernel, self.size, self.turned.along, self.inner
        blocks = [-(-dim.extent // size) for dim in (along, inner)]
        digits = task_parts(kernel, kernel, kernel.block_number(), (self.outer.extent, *blocks))
        kernel.indices[self.outer] = digits[0]
        self.first = {
            dim: named(kernel.add(arith.MuliOp(digit, kernel.index_constant(size))), f"first_{name}")
            for dim, digit, name in zip((along, inner), digits[1:], ("row", "column"), strict=True)
        }
        self.local = Dim("tile_row", size), Dim("tile_column", size)
        self.emitter = parts.emitter(parts.points)
        stage = Stage((along, inner), stores=list(parts.points.pulled.stores))
        for point in self.turned.points:
            element = dtype(point.value)
            memory = kernel.shared(
                element.attribute, _line(point, size) * size, f"{point.value.name_hint or 'value'}_tile"
            )
            position = as_expr(self.local[0]) * _line(point, size) + as_expr(self.local[1])
            stage.taken[point] = RowBuffer(memory, position)

        def read(scope: Scope, _: Values) -> Values:
            for point in self.turned.points:
                self._read(point, stage.taken[point], scope)
            return ()

        def write(scope: Scope, _: Values) -> Values:
            self.emitter.emit(stage.roots(), scope, stage)
            parts.store(stage.stores, self.emitter, scope)
            return ()

        self._go_through((inner, along), read)
        self._fetch(stage)
        kernel.block.add_op(gpu.BarrierOp())
        self._go_through((along, inner), write)
        parts.notes.append(f"tile, {size} x {size} elements a block, {len(self.turned.points)} turned")
        return Grid(self.outer.extent * blocks[0] * blocks[1], THREADS)

    def _fetch(self, stage: Stage) -> None:
        """Lets each thread load what it needs besides before all meet, so that its loads are under way with the others."""
        parts, kernel = self.parts, self.parts.kernel
        tall, wide = self._turns()
        place = as_expr(tall) * wide.extent + as_expr(wide) if wide.extent > 1 else as_expr(tall)
        others = [
            point
            for point in parts.points.pulled.loads()
            if point not in self.turned.points and parts.points.varies(point, (self.turned.along,))
            and parts.points.varies(point, (self.inner,))
        ][:MOST_FETCHED]  # fmt: skip
        for point in others:
            name = f"{point.value.name_hint or 'value'}_ahead"
            memory = kernel.registers(dtype(point.value).attribute, tall.extent * wide.extent, name)
            stage.taken[point] = RowBuffer(memory, place)

        def fetch(scope: Scope, _: Values) -> Values:
            for point in others:
                self._read(point, stage.taken[point], scope)
            return ()

        if others:
            self._go_through((self.turned.along, self.inner), fetch)

    def _turns(self) -> tuple[Dim, Dim]:
        """Lines and parts of a line that each thread takes."""
        return Dim("line", self.size // THREADS[1]), Dim("half", self.size // THREADS[0])

    def _read(self, point: Point, place: RowBuffer, scope: Scope) -> None:
        source = self.parts.kernel.parameters[self.parts.buffers.sources[point.value]]
        value = scope.add(memref.LoadOp.get(source, [scope.index(self.parts.points.addresses[point])]))
        value.name_hint = point.value.name_hint
        scope.block.add_op(memref.StoreOp.get(value, place.memory, [scope.index(place.position)]))

    def _go_through(self, dims: tuple[Dim, Dim], body: Body) -> None:
        """All elements of the block: threads along x take neighbours of the second dimension, those along y lines."""
        kernel, (lines, neighbours) = self.parts.kernel, dims
        local = dict(zip((self.turned.along, self.inner), self.local, strict=True))
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
        place = named(scope.add(arith.AddiOp(self.first[dim], at)), "row" if dim == self.turned.along else "column")
        indices = {dim: place, local: at}
        if dim.extent % self.size:
            return when(scope, less(scope, place, dim.extent), (), body, indices)
        scope.indices.update(indices)
        return body(scope, ())
