"""Elements by blocks: what is read along another dimension than it is stored along is turned in a block in the first cache.

A block is read in the order of its source and stored in that of the results, so both sides go along lines of memory and
touch few pages (Lam, Rothberg and Wolf 1991: the cache performance and optimizations of blocked algorithms).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerAttr, MemRefType, f32
from xdsl.ir import Block, SSAValue

from ..dialects.dtypes import F32
from ..dialects.fused import KernelOp
from ..dialects.graph_op import dtype
from ..dialects.index_expr import Dim, IndexExpr
from ..dialects.loop_order import fastest_dim, steps_elsewhere
from ..dialects.pull import Point, Pulled
from .kernel_buffers import KernelBuffers
from .kernel_loops import WORK_PER_CHUNK, KernelLoops, build_kernel_loops, kernel_block
from .kernel_points import KernelPoints, RowBuffer, Stage, body_cost
from .loop_builder import INDEX, Scope
from .loop_parts import part_bounds, part_length, task_parts
from .loop_space import as_expr, extent
from .scalar_ops import value_type
from .stage_loops import StageLoops

BLOCK_BYTES = 256
"""Of a line of a block, where the schedule does not say how many elements it has."""
GROUP = 8
"""Elements along both sides of what vector registers turn at once."""
LARGEST_BLOCK = 256
"""Elements of a line, whatever the schedule says: blocks lie on the stack."""
PADDING_BYTES = 64
"""Between the lines of a block, so that neighbours along the other dimension lie in different sets of the cache."""


Range = tuple[SSAValue, SSAValue]


def build_tile_loops(kernel: KernelOp, pulled: Pulled, storages: Sequence[Hashable]) -> list[KernelLoops]:
    """The loops over blocks of elements; without a load to turn, over elements."""
    points = KernelPoints(pulled)
    dims = points.loop(pulled.rows)
    turned = _turned_loads(points, dims)
    if not turned:
        return [build_kernel_loops(kernel, pulled, storages)]
    memory = KernelBuffers(kernel, [pulled], storages)
    root = Scope(None, kernel_block(memory))
    *buffers, begin, end = root.block.args
    tiles = _Tiles(points, memory, buffers, root, (begin, end), turned)
    size = max(dtype(point.value).compute.itemsize for point in turned.points)
    entry = None if kernel.schedule is None else kernel.schedule.data.get("block")
    given = entry.value.data if isinstance(entry, IntegerAttr) and entry.value.data > 0 else BLOCK_BYTES // size
    tiles.build(min(given, LARGEST_BLOCK), PADDING_BYTES // size)
    root.block.add_op(func.ReturnOp())
    parameters = tuple(memory.parameters)
    return [KernelLoops(root.block, parameters, memory.shared, tiles.tasks, tiles.grain, root.helpers)]


@dataclass(frozen=True)
class _Turned:
    """Loads whose neighbours lie along one dimension, which is not the innermost."""

    along: Dim
    points: list[Point]


def _turned_loads(points: KernelPoints, dims: Sequence[Dim]) -> _Turned | None:
    """The loads to turn; those along the dimension that most of them have."""
    if len(dims) < 2:
        return None
    found: list[tuple[Dim, Point]] = []
    for point in points.pulled.loads():
        address = points.space.apply(point.address)
        along = fastest_dim(address)
        if along is not None and along in dims and steps_elsewhere(address, dims[-1]):
            found.append((along, point))
    if not found:
        return None
    along = Counter(dim for dim, _ in found).most_common(1)[0][0]
    return _Turned(along, [point for dim, point in found if dim == along])


@dataclass(frozen=True)
class _Tile:
    """A block in memory: where its element at (tile_row, tile_column) is, its size, and where in the whole it begins."""

    position: IndexExpr
    line: int
    height: int
    begin: Mapping[str, SSAValue]


class _Tiles(StageLoops):
    def __init__(
        self,
        points: KernelPoints,
        memory: KernelBuffers,
        arguments: Sequence[SSAValue],
        root: Scope,
        bounds: Range,
        turned: _Turned,
    ) -> None:
        super().__init__(points, memory, arguments, root)
        self.begin, self.end = bounds
        self.turned = turned
        self.along = turned.along
        self.inner = points.loop(points.pulled.rows)[-1]
        self.tasks = self.work = 1

    @property
    def grain(self) -> int:
        return -(-WORK_PER_CHUNK // max(self.work, 1))

    def build(self, block: int, padding: int) -> None:
        """A task is a block of `along` and the innermost dimension."""
        points, along, inner = self.points, self.along, self.inner
        dims = points.loop(points.pulled.rows)
        rest = [dim for dim in dims if dim not in (along, inner)]
        outer = Dim("outer", extent(rest))
        points.flatten_rows(rest, outer)
        points.finish()
        lengths = [part_length(dim.extent, -(-dim.extent // block), GROUP) for dim in (along, inner)]
        blocks = [-(-dim.extent // length) for dim, length in zip((along, inner), lengths, strict=True)]
        task = Scope(self.root, Block(arg_types=[INDEX]))
        task.block.args[0].name_hint = "task"
        digits = task_parts(task, self.root, task.block.args[0], (outer.extent, *blocks))
        task.indices = {outer: digits[0]}
        rows = part_bounds(task, digits[1], lengths[0], along.extent)
        columns = part_bounds(task, digits[2], lengths[1], inner.extent)
        line = lengths[1] + padding
        position = as_expr(Dim("tile_row", lengths[0])) * line + as_expr(Dim("tile_column", lengths[1]))
        tile = _Tile(position, line, lengths[0], {"tile_row": rows[0], "tile_column": columns[0]})
        stage = Stage((along, inner), stores=list(points.pulled.stores))
        for point in self.turned.points:
            stage.taken[point] = self._turn(point, task, rows, columns, tile)
        self._build_block(stage, task, rows, columns, tile)
        task.block.add_op(scf.YieldOp())
        self.root.block.add_op(self.loop(task.block, self.begin, self.end))
        self.tasks = outer.extent * blocks[0] * blocks[1]
        cost = sum(body_cost(p.op) if p.op else 1 for p in points.pulled.points) + len(stage.stores)
        self.work = lengths[0] * lengths[1] * (cost + 2 * len(self.turned.points))

    def _turn(self, point: Point, task: Scope, rows: Range, columns: Range, tile: _Tile) -> RowBuffer:
        """Reads a block of a load line by line, and puts it down across."""
        element = dtype(point.value)
        # Narrow floats as they are: a NaN keeps its payload where values are only moved.
        kept = value_type(element) if element.compute is element else element.attribute
        memory = self.root.add(memref.AllocaOp.get(kept, 64, [tile.line * tile.height]))
        memory.name_hint = f"{point.value.name_hint or 'value'}_tile"
        step = self._line_step(point)
        if step is None:
            self._turn_elements(point, task, rows, columns, tile, memory)
            return RowBuffer(memory, tile.position)
        middles = [
            self._whole_groups(task, *bounds, dim.extent) for bounds, dim in ((rows, self.along), (columns, self.inner))
        ]
        self._turn_groups(point, task, (rows[0], middles[0]), (columns[0], middles[1]), tile, memory, step)
        if middles[0] is not rows[1]:
            self._turn_elements(point, task, (middles[0], rows[1]), columns, tile, memory)
        if middles[1] is not columns[1]:
            self._turn_elements(point, task, (rows[0], middles[0]), (middles[1], columns[1]), tile, memory)
        return RowBuffer(memory, tile.position)

    def _line_step(self, point: Point) -> int | None:
        """The distance of the lines of a load that vectors can turn."""
        factors = self.points.addresses[point].coefficients()
        if dtype(point.value) is not F32 or factors is None or factors.get(self.along) != 1:
            return None
        return factors[self.inner]

    def _whole_groups(self, task: Scope, first: SSAValue, last: SSAValue, length: int) -> SSAValue:
        """The end of the whole groups of a range that begins at a multiple and ends at one, or at the length."""
        if length % GROUP == 0:
            return last
        return task.add(arith.MinSIOp(last, self.root.index_constant(length // GROUP * GROUP)))

    def _turn_groups(
        self, point: Point, task: Scope, rows: Range, columns: Range, tile: _Tile, memory: SSAValue, step: int
    ) -> None:
        """Squares of GROUP by GROUP elements in vector registers."""
        outer = self._open(task, self.inner, "tile_column", tile)
        scope = self._open(outer, self.along, "tile_row", tile)
        constant = self.root.index_constant
        source, target = self._flat(self.emitter.buffers[point.value]), self._flat(memory)
        address, place = scope.index(self.points.addresses[point]), scope.index(tile.position)
        arguments = [source, address, constant(step), target, place, constant(tile.line)]
        scope.call_for_effect("fo_transpose_f32", arguments)
        for inside, bounds in ((scope, rows), (outer, columns)):
            inside.block.add_op(scf.YieldOp())
            assert inside.parent is not None
            inside.parent.block.add_op(self.loop(inside.block, *bounds, step=GROUP))

    def _flat(self, memory: SSAValue) -> SSAValue:
        """The memory without its size, as helpers take it."""
        return self.root.made(("flat", memory), lambda: memref.CastOp.get(memory, MemRefType(f32, [DYNAMIC_INDEX])))

    def _turn_elements(
        self, point: Point, task: Scope, rows: Range, columns: Range, tile: _Tile, memory: SSAValue
    ) -> None:
        outer = self._open(task, self.inner, "tile_column", tile)
        scope = self._open(outer, self.along, "tile_row", tile)
        self.emitter.emit([point], scope)
        narrow = scope.find(("narrow", point))
        value = self.emitter.value(point, scope) if narrow is None else narrow[0]
        scope.block.add_op(memref.StoreOp.get(value, memory, [scope.index(tile.position)]))
        scope.block.add_op(scf.ReduceOp())
        outer.block.add_op(self.parallel(scope.block, *rows))
        outer.block.add_op(scf.YieldOp())
        task.block.add_op(self.loop(outer.block, *columns))

    def _build_block(self, stage: Stage, task: Scope, rows: Range, columns: Range, tile: _Tile) -> None:
        """Computes and stores a block line by line."""
        outer = self._open(task, self.along, "tile_row", tile)
        scope = self._open(outer, self.inner, "tile_column", tile)
        self.emitter.emit(stage.roots(), scope, stage)
        self.store(stage.stores, scope)
        scope.block.add_op(scf.ReduceOp())
        outer.block.add_op(self.parallel(scope.block, *columns))
        outer.block.add_op(scf.YieldOp())
        task.block.add_op(self.loop(outer.block, *rows))

    def _open(self, parent: Scope, dim: Dim, local: str, tile: _Tile) -> Scope:
        """A loop over a dimension, which also knows where in the block it is."""
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = local.removeprefix("tile_")
        scope = Scope(parent, block, {dim: block.args[0]})
        begin = tile.begin[local]
        inside = next(found for found in tile.position.dims() if found.name == local)
        scope.indices[inside] = scope.add(arith.SubiOp(block.args[0], begin))
        return scope
