"""Elements by blocks: what is read along another dimension than it is stored along is transposed in vector registers.

A block has whole cache lines on its shorter side, and is long where more arrays go along their memory (Lam, Rothberg and
Wolf 1991: the cache performance and optimizations of blocked algorithms). What is only moved goes from its source to its
target at once; what is computed with is put down in a block in the first cache.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Block, SSAValue
from xdsl.utils.hints import isa

from fuse_opt.dialects.analysis.loop_body import LoopBody, Store
from fuse_opt.dialects.analysis.loop_order import fastest_dim
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import BLOCK
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.extents import estimate, is_number, smallest
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.c.headers.functions import helper_names
from fuse_opt.lowering.cpu.kernel import KernelLoops, build_kernel_loops, kernel_block, sized_work
from fuse_opt.lowering.cpu.register_transpose import GROUP, RegisterTranspose, Tile, group_of
from fuse_opt.lowering.cpu.stages.loop_parts import Range
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, Stage, body_cost
from fuse_opt.lowering.kernel.iteration_space import as_expr, extent
from fuse_opt.lowering.kernel.loop_splitting import (
    flat_memory,
    is_moved,
    outside_caches,
    part_bounds,
    part_length,
    task_parts,
)
from fuse_opt.lowering.kernel.scope import INDEX, Scope
from fuse_opt.lowering.kernel.transposed_loads import TransposedLoads, transposed_loads

SHORT_BYTES = 64
"""Of the shorter side of a block, where the schedule does not say how many elements both have: a cache line."""
LONG_BYTES = 1024
"""Of its longer side."""
SQUARE_BYTES = 256
"""Of both sides, where the arrays are `outside_caches`: memory is faster the more of it lies side by side in all of them."""
FAR_BYTES = 8 << 20
"""Bytes that a pass moves from which on it asks for what it turns, and reads beside, ahead: of fewer a second cache has much.
Sums with a transpose of 12 to 48 MB took .72 to .97 of the time, transposes alone .8 to 1 (Zen 4)."""
STREAMED_BYTES, STREAMED_AREA = 4096, 256 << 10
"""Of the side along the innermost dimension, and of the block, then: results may go past the caches, whole lines but for ends,
fewer pages are left and come back to, and the block lies in a second cache. `relu(a.T + b)` of 3298x3186 took .79 to .83 of the
time of squares of 1024 bytes (Zen 4)."""
FEWEST_BYTES = 4
"""Of elements that go past the caches: turning narrower ones takes longer than memory does."""
CROWDED_BYTES = 2048
"""Lines at a multiple of this distance compete for a few sets of a first level cache: blocks have few of them."""
LARGEST_BLOCK = 256
"""Elements of a side, whatever the schedule says: blocks lie on the stack."""
PADDING_BYTES = 64
"""Between the lines of a block, so that neighbours along the other dimension lie in different sets of the cache."""


def build_tile_loops(kernel: KernelOp, loop_body: LoopBody, storages: Sequence[Hashable]) -> list[KernelLoops]:
    """The loops over blocks of elements; without a load to turn, over elements."""
    nodes = KernelNodes(loop_body)
    dims = nodes.loop(loop_body.rows)
    transposed = transposed_loads(nodes, dims)
    if not transposed:
        return [build_kernel_loops(kernel, loop_body, storages)]
    memory = KernelBuffers(kernel, [loop_body], storages)
    root = Scope(None, kernel_block(memory))
    *buffers, begin, end = root.block.args
    tiles = _Tiles(nodes, memory, buffers, root, (begin, end), transposed)
    tiles.build(BLOCK.count(kernel))
    root.block.add_op(func.ReturnOp())
    parameters = tuple(memory.parameters)
    known = tuple(root.sizes), tuple(root.limits.items())
    made = KernelLoops(root.block, parameters, memory.shared, tiles.tasks, tiles.grain, root.helpers, *known)
    return [replace(made, work=sized_work(tiles.work, memory.chunk))]


class _Tiles(RegisterTranspose):
    def __init__(
        self,
        nodes: KernelNodes,
        memory: KernelBuffers,
        arguments: Sequence[SSAValue],
        root: Scope,
        bounds: Range,
        transposed: TransposedLoads,
    ) -> None:
        super().__init__(nodes, memory, arguments, root, transposed)
        self.begin, self.end = bounds
        self.tasks: Extent = 1
        self.work: Extent = 1

    @property
    def grain(self) -> int:
        return -(-self.memory.chunk // max(estimate(self.work), 1))

    def _sides(self, given: int | None, is_move: bool) -> tuple[int, int]:
        """Elements of a block along the dimension to turn and along the innermost one."""
        if given is not None:
            return min(given, LARGEST_BLOCK), min(given, LARGEST_BLOCK)
        size = max(dtype(node.value).itemsize for node in self.transposed.nodes)
        if self.is_far and not is_move and is_number(self.inner.extent):
            long = min(STREAMED_BYTES // size, -(-self.inner.extent // GROUP) * GROUP)
            return min(STREAMED_AREA // size // long, LARGEST_BLOCK), long
        if outside_caches(self.loop_body):
            return SQUARE_BYTES // size, SQUARE_BYTES // size
        short, long = SHORT_BYTES // size, min(LONG_BYTES // size, LARGEST_BLOCK)
        transposed = set(self.transposed.nodes)
        others = [(node.address, node.value) for node in self.loop_body.loads() if node not in transposed]
        others += [(store.address, store.node.value) for store in self.loop_body.stores]
        beside = crowded = 0
        for address, value in others:
            address = self.nodes.space.apply(address)
            if fastest_dim(address) == self.inner:
                step = (address.coefficients() or {}).get(self.along, 0) * dtype(value).itemsize
                beside, crowded = beside + 1, crowded + (step % CROWDED_BYTES == 0)
        wide = beside > len(transposed) or (beside == len(transposed) and crowded > 0)
        return (short, long) if wide else (long, short)

    def build(self, given: int | None) -> None:
        """A task is a block of `along` and the innermost dimension, with as many elements on a side as `given`."""
        nodes, along, inner = self.nodes, self.along, self.inner
        dims = nodes.loop(nodes.loop_body.rows)
        rest = [dim for dim in dims if dim not in (along, inner)]
        outer = Dim("outer", extent(rest))
        nodes.flatten_rows(rest, outer)
        nodes.finish()
        moved, streamed = self._moved(), any(self._is_nontemporal(store) for store in self.loop_body.stores)
        self.is_far = streamed or is_moved(self.loop_body, FAR_BYTES)
        sides = self._sides(given, moved is not None)
        unit = max(map(group_of, self.transposed.nodes))
        lengths = [
            -(-side // unit) * unit
            if isinstance(dim.extent, Size)
            else part_length(dim.extent, -(-dim.extent // side), GROUP)
            for dim, side in zip((along, inner), sides, strict=True)
        ]
        behind = self._behind_line(lengths[0])
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
        transposed = rows
        if shifted:
            assert behind is not None
            rows, transposed = self._shifted(task, digits[1], lengths[0], behind)
        size = max(dtype(node.value).compute.itemsize for node in self.transposed.nodes)
        line = lengths[1] + (PADDING_BYTES // size if lengths[1] * size > PADDING_BYTES else 0)
        if line * size % CROWDED_BYTES == 0:
            line += PADDING_BYTES // size
        position = as_expr(Dim("tile_row", lengths[0])) * line + as_expr(Dim("tile_column", lengths[1]))
        tile = Tile(position, line, lengths[0], {"tile_row": transposed[0], "tile_column": columns[0]}, shifted)
        stage = Stage((along, inner), stores=list(nodes.loop_body.stores))
        if moved is not None:
            self._move(moved, task, rows, columns, tile)
        else:
            for node in self.transposed.nodes:
                stage.taken[node] = self.turn(node, task, transposed, columns, tile)
            self._build_block(stage, task, rows, columns, tile)
        task.block.add_op(scf.YieldOp())
        self.root.block.add_op(self.loop(task.block, self.begin, self.end))
        self.tasks = outer.extent * blocks[0] * blocks[1]
        cost = sum(body_cost(p.op) if p.op else 1 for p in nodes.loop_body.nodes) + len(stage.stores)
        pairs = zip((along.extent, inner.extent), lengths, strict=True)
        sides = [smallest(whole, length) if isinstance(whole, Size) else length for whole, length in pairs]
        self.work = sides[0] * sides[1] * (cost + 2 * len(self.transposed.nodes))

    @property
    def _line_elements(self) -> int:
        """How many elements of the first transposed load a cache line has."""
        return SHORT_BYTES // dtype(self.transposed.nodes[0].value).itemsize

    def _behind_line(self, height: int) -> SSAValue | None:
        """How many elements behind the start of a cache line the first transposed load begins, at run time.

        None where its lines do not all begin alike, or blocks of this height do not keep to cache lines."""
        node, element = self.transposed.nodes[0], dtype(self.transposed.nodes[0].value)
        address = self.nodes.addresses[node]
        factors = address.coefficients() or {}
        others = [factor for dim, factor in factors.items() if dim != self.along]
        if not all(map(is_number, (self.along.extent, *others))):
            return None
        if any(factor % self._line_elements for factor in others) or height % self._line_elements:
            return None
        if self.along.extent < 2 * height or not all(self.is_transposed_by_vectors(p) for p in self.transposed.nodes):
            return None
        arguments = [
            flat_memory(self.root, self.emitter.buffers[node.value]),
            self.root.index_constant(address.constant),
        ]
        return self.root.call(f"fo_transpose_offset_{element.name}", arguments, INDEX)

    def _shifted(self, task: Scope, number: SSAValue, height: int, behind: SSAValue) -> tuple[Range, Range]:
        """The rows of a block that begins at a cache line, within those there are; and the rows transposed for it, as many as
        for any other block, or none."""
        constant, extent_of = self.root.index_constant, self.along.extent
        first = task.add(arith.SubiOp(task.add(arith.MuliOp(number, constant(height))), behind))
        last = task.add(arith.MinSIOp(task.add(arith.AddiOp(first, constant(height))), constant(extent_of)))
        begin = task.add(arith.MaxSIOp(first, constant(0)))
        origin = task.add(arith.MinSIOp(begin, constant(extent_of - height)))
        count = task.add(arith.SubiOp(last, begin))
        transposed = task.add(arith.MinSIOp(task.add(arith.MuliOp(count, constant(height))), constant(height)))
        return (begin, last), (origin, task.add(arith.AddiOp(origin, transposed)))

    def _moved(self) -> Store | None:
        """The only store, where all that it does is to put down a transposed load along lines of memory."""
        stores = list(self.loop_body.stores)
        if len(stores) != 1 or self.memory.in_place(self.loop_body) or self._is_nontemporal(stores[0]):
            return None
        node = stores[0].node
        while node.op is not None:
            body = node.op.body()
            if body.function != "operand" or dtype(node.operands[int(body.value)].value) is not dtype(node.value):
                return None
            node = node.operands[int(body.value)]
        factors = self.nodes.space.apply(stores[0].address).coefficients()
        if node not in self.transposed.nodes or factors is None or factors.get(self.inner) != 1:
            return None
        return None if self.line_step(node) is None or self.along not in factors else stores[0]

    def _move(self, store: Store, task: Scope, rows: Range, columns: Range, tile: Tile) -> None:
        """From the source of a transposed load to the target of a store, whose lines lie as far apart as the store says."""
        node = self.transposed.nodes[0]
        address = self.nodes.space.apply(store.address)
        factors = address.coefficients()
        assert factors is not None
        target = self.arguments[self.memory.targets[store.result]]

        def turn(scope: Scope) -> None:
            if self.is_far:
                self.ask_lines(node, scope)
            self.transpose_square(node, scope, target, address, factors[self.along])

        def put(scope: Scope) -> None:
            self.emitter.emit([store.node], scope)
            self.store([store], scope)

        self.go_over(task, rows, columns, tile, group_of(node), turn, put, False, may_repeat=True)

    def _build_block(self, stage: Stage, task: Scope, rows: Range, columns: Range, tile: Tile) -> None:
        """Computes and stores a block line by line."""
        outer = self.open(task, self.along, "tile_row", tile)
        if self.is_far:
            self.ask_beside(stage, outer, columns)
        scope = self.open(outer, self.inner, "tile_column", tile)
        self.emitter.emit(stage.roots(), scope, stage)
        nontemporal = {store: self._line_buffer(store, tile) for store in stage.stores if self._is_nontemporal(store)}
        self.store([store for store in stage.stores if store not in nontemporal], scope)
        place = next(as_expr(dim) for dim in tile.position.dims() if dim.name == "tile_column")
        for store, buffer in nontemporal.items():
            self.emitter.store(store.node, buffer, place, scope)
        scope.block.add_op(scf.ReduceOp())
        outer.block.add_op(self.parallel(scope.block, *columns))
        if nontemporal:
            line = Scope(outer, outer.block, {self.inner: columns[0]})
            count = task.add(arith.SubiOp(columns[1], columns[0]))
            for store, buffer in nontemporal.items():
                self._stream(store, buffer, count, line)
        outer.block.add_op(scf.YieldOp())
        task.block.add_op(self.loop(outer.block, *rows))

    def _is_nontemporal(self, store: Store) -> bool:
        """Whether a line of a block goes past the caches: the schedule asks for it, nothing reads that memory, and turning
        its elements does not take as long as memory does."""
        factors, element = self.nodes.space.apply(store.address).coefficients() or {}, dtype(store.node.value)
        wide = element.itemsize >= FEWEST_BYTES and f"fo_stream_{element.name}" in helper_names()
        return (
            self.memory.nontemporal
            and wide
            and factors.get(self.inner) == 1
            and not self.memory.in_place(self.loop_body)
        )

    def _line_buffer(self, store: Store, tile: Tile) -> SSAValue:
        kind = self.arguments[self.memory.targets[store.result]].type
        assert isa(kind, MemRefType)
        memory = self.root.add(memref.AllocaOp.get(kind.element_type, 64, [tile.line]))
        memory.name_hint = f"{store.node.value.name_hint or 'value'}_line"
        return memory

    def _stream(self, store: Store, buffer: SSAValue, count: SSAValue, scope: Scope) -> None:
        target = flat_memory(self.root, self.arguments[self.memory.targets[store.result]])
        address = scope.index(self.nodes.space.apply(store.address))
        arguments = [flat_memory(self.root, buffer), self.root.index_constant(0), target, address, count]
        scope.call_for_effect(f"fo_stream_{dtype(store.node.value).name}", arguments)
