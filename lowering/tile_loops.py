"""Elements by blocks: what is read along another dimension than it is stored along is turned in vector registers.

A block has whole cache lines on its shorter side, and is long where more arrays go along their memory (Lam, Rothberg and
Wolf 1991: the cache performance and optimizations of blocked algorithms). What is only moved goes from its source to its
target at once; what is computed with is put down in a block in the first cache.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerAttr, MemRefType
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.utils.hints import isa

from ..dialects.fused import KernelOp
from ..dialects.graph_op import dtype
from ..dialects.index_expr import Dim, IndexExpr
from ..dialects.loop_order import fastest_dim
from ..dialects.pull import Point, Pulled, Store
from .kernel_buffers import KernelBuffers
from .kernel_loops import WORK_PER_CHUNK, KernelLoops, build_kernel_loops, kernel_block
from .kernel_points import KernelPoints, RowBuffer, Stage, body_cost
from .loop_builder import INDEX, Scope
from .loop_parts import outside_caches, part_bounds, part_length, task_parts
from .loop_space import as_expr, extent
from .scalar_ops import value_type
from .stage_loops import StageLoops
from .turned_loads import TurnedLoads, turned_loads

SHORT_BYTES = 64
"""Of the shorter side of a block, where the schedule does not say how many elements both have: a cache line."""
LONG_BYTES = 1024
"""Of its longer side."""
SQUARE_BYTES = 256
"""Of both sides, where the arrays are `outside_caches`: memory is faster the more of it lies side by side in all of them."""
CROWDED_BYTES = 2048
"""Lines at a multiple of this distance compete for a few sets of a first level cache: blocks have few of them."""
LARGEST_BLOCK = 256
"""Elements of a side, whatever the schedule says: blocks lie on the stack."""
GROUP = 16
"""Elements along both sides of what vector registers turn at once; half as many of 8 bytes."""
PADDING_BYTES = 64
"""Between the lines of a block, so that neighbours along the other dimension lie in different sets of the cache."""


Range = tuple[SSAValue, SSAValue]


def build_tile_loops(kernel: KernelOp, pulled: Pulled, storages: Sequence[Hashable]) -> list[KernelLoops]:
    """The loops over blocks of elements; without a load to turn, over elements."""
    points = KernelPoints(pulled)
    dims = points.loop(pulled.rows)
    turned = turned_loads(points, dims)
    if not turned:
        return [build_kernel_loops(kernel, pulled, storages)]
    memory = KernelBuffers(kernel, [pulled], storages)
    root = Scope(None, kernel_block(memory))
    *buffers, begin, end = root.block.args
    tiles = _Tiles(points, memory, buffers, root, (begin, end), turned)
    entry = None if kernel.schedule is None else kernel.schedule.data.get("block")
    given = entry.value.data if isinstance(entry, IntegerAttr) and entry.value.data > 0 else None
    tiles.build(given)
    root.block.add_op(func.ReturnOp())
    parameters = tuple(memory.parameters)
    return [KernelLoops(root.block, parameters, memory.shared, tiles.tasks, tiles.grain, root.helpers)]


@dataclass(frozen=True)
class _Tile:
    """A block in memory: where its element at (tile_row, tile_column) is, its size, and where in the whole it begins."""

    position: IndexExpr
    line: int
    height: int
    begin: Mapping[str, SSAValue]
    whole: bool = False
    """Whether all that is turned for it are whole squares along its rows."""


class _Tiles(StageLoops):
    def __init__(
        self,
        points: KernelPoints,
        memory: KernelBuffers,
        arguments: Sequence[SSAValue],
        root: Scope,
        bounds: Range,
        turned: TurnedLoads,
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

    def _sides(self, given: int | None) -> tuple[int, int]:
        """Elements of a block along the dimension to turn and along the innermost one."""
        if given is not None:
            return min(given, LARGEST_BLOCK), min(given, LARGEST_BLOCK)
        size = max(dtype(point.value).itemsize for point in self.turned.points)
        if outside_caches(self.pulled):
            return SQUARE_BYTES // size, SQUARE_BYTES // size
        short, long = SHORT_BYTES // size, min(LONG_BYTES // size, LARGEST_BLOCK)
        turned = set(self.turned.points)
        others = [(point.address, point.value) for point in self.pulled.loads() if point not in turned]
        others += [(store.address, store.point.value) for store in self.pulled.stores]
        beside = crowded = 0
        for address, value in others:
            address = self.points.space.apply(address)
            if fastest_dim(address) == self.inner:
                step = (address.coefficients() or {}).get(self.along, 0) * dtype(value).itemsize
                beside, crowded = beside + 1, crowded + (step % CROWDED_BYTES == 0)
        wide = beside > len(turned) or (beside == len(turned) and crowded > 0)
        return (short, long) if wide else (long, short)

    def build(self, given: int | None) -> None:
        """A task is a block of `along` and the innermost dimension, with as many elements on a side as `given`."""
        points, along, inner = self.points, self.along, self.inner
        sides = self._sides(given)
        dims = points.loop(points.pulled.rows)
        rest = [dim for dim in dims if dim not in (along, inner)]
        outer = Dim("outer", extent(rest))
        points.flatten_rows(rest, outer)
        points.finish()
        lengths = [
            part_length(dim.extent, -(-dim.extent // side), GROUP)
            for dim, side in zip((along, inner), sides, strict=True)
        ]
        moved, behind = self._moved(), self._behind_line(lengths[0])
        shifted = moved is None and behind is not None
        blocks = [-(-dim.extent // length) for dim, length in zip((along, inner), lengths, strict=True)]
        if shifted:
            blocks[0] = -(-(along.extent + self._line_elements - 1) // lengths[0])
        task = Scope(self.root, Block(arg_types=[INDEX]))
        task.block.args[0].name_hint = "task"
        digits = task_parts(task, self.root, task.block.args[0], (outer.extent, *blocks))
        task.indices = {outer: digits[0]}
        rows = part_bounds(task, digits[1], lengths[0], along.extent)
        columns = part_bounds(task, digits[2], lengths[1], inner.extent)
        turned = rows
        if shifted:
            assert behind is not None
            rows, turned = self._shifted(task, digits[1], lengths[0], behind)
        size = max(dtype(point.value).compute.itemsize for point in self.turned.points)
        line = lengths[1] + (PADDING_BYTES // size if lengths[1] * size > PADDING_BYTES else 0)
        position = as_expr(Dim("tile_row", lengths[0])) * line + as_expr(Dim("tile_column", lengths[1]))
        tile = _Tile(position, line, lengths[0], {"tile_row": turned[0], "tile_column": columns[0]}, shifted)
        stage = Stage((along, inner), stores=list(points.pulled.stores))
        if moved is not None:
            self._move(moved, task, rows, columns, tile)
        else:
            for point in self.turned.points:
                stage.taken[point] = self._turn(point, task, turned, columns, tile)
            self._build_block(stage, task, rows, columns, tile)
        task.block.add_op(scf.YieldOp())
        self.root.block.add_op(self.loop(task.block, self.begin, self.end))
        self.tasks = outer.extent * blocks[0] * blocks[1]
        cost = sum(body_cost(p.op) if p.op else 1 for p in points.pulled.points) + len(stage.stores)
        self.work = lengths[0] * lengths[1] * (cost + 2 * len(self.turned.points))

    @property
    def _line_elements(self) -> int:
        """How many elements of the first turned load a cache line has."""
        return SHORT_BYTES // dtype(self.turned.points[0].value).itemsize

    def _behind_line(self, height: int) -> SSAValue | None:
        """How many elements behind the start of a cache line the first turned load begins, at run time.

        None where its lines do not all begin alike, or blocks of this height do not keep to cache lines."""
        point, element = self.turned.points[0], dtype(self.turned.points[0].value)
        address = self.points.addresses[point]
        factors = address.coefficients() or {}
        others = [factor for dim, factor in factors.items() if dim != self.along]
        if any(factor % self._line_elements for factor in others) or height % self._line_elements:
            return None
        if self.along.extent < 2 * height or not all(self._is_turned_by_vectors(p) for p in self.turned.points):
            return None
        arguments = [self._flat(self.emitter.buffers[point.value]), self.root.index_constant(address.constant)]
        return self.root.call(f"fo_transpose_offset_{element.name}", arguments, INDEX)

    def _shifted(self, task: Scope, number: SSAValue, height: int, behind: SSAValue) -> tuple[Range, Range]:
        """The rows of a block that begins at a cache line, within those there are; and the rows turned for it, as many as
        for any other block, or none."""
        constant, extent_of = self.root.index_constant, self.along.extent
        first = task.add(arith.SubiOp(task.add(arith.MuliOp(number, constant(height))), behind))
        last = task.add(arith.MinSIOp(task.add(arith.AddiOp(first, constant(height))), constant(extent_of)))
        begin = task.add(arith.MaxSIOp(first, constant(0)))
        origin = task.add(arith.MinSIOp(begin, constant(extent_of - height)))
        count = task.add(arith.SubiOp(last, begin))
        turned = task.add(arith.MinSIOp(task.add(arith.MuliOp(count, constant(height))), constant(height)))
        return (begin, last), (origin, task.add(arith.AddiOp(origin, turned)))

    def _is_turned_by_vectors(self, point: Point) -> bool:
        element = dtype(point.value)
        return self._kept_type(point) == element.attribute and self._line_step(point) is not None

    def _kept_type(self, point: Point) -> Attribute:
        """Narrow floats as they are: a NaN keeps its payload where values are only moved."""
        element = dtype(point.value)
        return value_type(element) if element.compute is element else element.attribute

    def _turn(self, point: Point, task: Scope, rows: Range, columns: Range, tile: _Tile) -> RowBuffer:
        """Reads a block of a load line by line, and puts it down across."""
        memory = self.root.add(memref.AllocaOp.get(self._kept_type(point), 64, [tile.line * tile.height]))
        memory.name_hint = f"{point.value.name_hint or 'value'}_tile"

        def turn(scope: Scope) -> None:
            self._turn_square(point, scope, memory, tile.position, tile.line)

        def put(scope: Scope) -> None:
            self.emitter.emit([point], scope)
            narrow = scope.find(("narrow", point))
            value = self.emitter.value(point, scope) if narrow is None else narrow[0]
            scope.block.add_op(memref.StoreOp.get(value, memory, [scope.index(tile.position)]))

        self._go_over(task, rows, columns, tile, turn if self._is_turned_by_vectors(point) else None, put)
        return RowBuffer(memory, tile.position)

    def _go_over(
        self,
        task: Scope,
        rows: Range,
        columns: Range,
        tile: _Tile,
        turn: Callable[[Scope], None] | None,
        put: Callable[[Scope], None],
    ) -> None:
        """A block by squares that vectors turn, and what is left over at its ends element by element."""
        if turn is None:
            self._put_elements(put, task, rows, columns, tile)
            return
        group = self.group
        middles = [
            self._whole_groups(task, *bounds, length, group)
            for bounds, length in ((rows, 0 if tile.whole else self.along.extent), (columns, self.inner.extent))
        ]
        outer = self._open(task, self.along, "tile_row", tile)
        scope = self._open(outer, self.inner, "tile_column", tile)
        turn(scope)
        ranges = (columns[0], middles[1]), (rows[0], middles[0])
        for inside, bounds in zip((scope, outer), ranges, strict=True):
            inside.block.add_op(scf.YieldOp())
            assert inside.parent is not None
            inside.parent.block.add_op(self.loop(inside.block, *bounds, step=group))
        if middles[0] is not rows[1]:
            self._put_elements(put, task, (middles[0], rows[1]), columns, tile)
        if middles[1] is not columns[1]:
            self._put_elements(put, task, (rows[0], middles[0]), (middles[1], columns[1]), tile)

    @property
    def group(self) -> int:
        """Elements along both sides of what vector registers turn at once."""
        return min(8 if dtype(point.value).itemsize > 4 else GROUP for point in self.turned.points)

    def _turn_square(self, point: Point, scope: Scope, target: SSAValue, place: IndexExpr, to_step: int) -> None:
        constant = self.root.index_constant
        source, to = self._flat(self.emitter.buffers[point.value]), self._flat(target)
        address = scope.index(self.points.addresses[point])
        step = self._line_step(point)
        assert step is not None
        arguments = [source, address, constant(step), to, scope.index(place), constant(to_step)]
        scope.call_for_effect(f"fo_transpose_{dtype(point.value).name}", arguments)

    def _moved(self) -> Store | None:
        """The only store, where all that it does is to put down a turned load along lines of memory."""
        stores = list(self.pulled.stores)
        if len(stores) != 1 or self.memory.in_place(self.pulled):
            return None
        point = stores[0].point
        while point.op is not None:
            body = point.op.body()
            if body.function != "operand" or dtype(point.operands[int(body.value)].value) is not dtype(point.value):
                return None
            point = point.operands[int(body.value)]
        factors = self.points.space.apply(stores[0].address).coefficients()
        if point not in self.turned.points or factors is None or factors.get(self.inner) != 1:
            return None
        return None if self._line_step(point) is None or self.along not in factors else stores[0]

    def _move(self, store: Store, task: Scope, rows: Range, columns: Range, tile: _Tile) -> None:
        """From the source of a turned load to the target of a store, whose lines lie as far apart as the store says."""
        point = self.turned.points[0]
        address = self.points.space.apply(store.address)
        factors = address.coefficients()
        assert factors is not None
        target = self.arguments[self.memory.targets[store.result]]

        def turn(scope: Scope) -> None:
            self._turn_square(point, scope, target, address, factors[self.along])

        def put(scope: Scope) -> None:
            self.emitter.emit([store.point], scope)
            self.store([store], scope)

        self._go_over(task, rows, columns, tile, turn, put)

    def _line_step(self, point: Point) -> int | None:
        """The distance of the lines of a load that vectors can turn."""
        factors = self.points.addresses[point].coefficients()
        if factors is None or factors.get(self.along) != 1:
            return None
        return factors[self.inner]

    def _whole_groups(self, task: Scope, first: SSAValue, last: SSAValue, length: int, group: int) -> SSAValue:
        """The end of the whole groups of a range that begins at a multiple and ends at one, or at the length."""
        if length % group == 0:
            return last
        return task.add(arith.MinSIOp(last, self.root.index_constant(length // group * group)))

    def _flat(self, memory: SSAValue) -> SSAValue:
        """The memory without its size, as helpers take it."""
        kind = memory.type
        assert isa(kind, MemRefType)
        flat = MemRefType(kind.element_type, [DYNAMIC_INDEX])
        return self.root.made(("flat", memory), lambda: memref.CastOp.get(memory, flat))

    def _put_elements(
        self, put: Callable[[Scope], None], task: Scope, rows: Range, columns: Range, tile: _Tile
    ) -> None:
        outer = self._open(task, self.inner, "tile_column", tile)
        scope = self._open(outer, self.along, "tile_row", tile)
        put(scope)
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
