"""Blocks of elements that lie across: read line by line, transposed in vector registers square by square."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, memref, scf
from xdsl.ir import Attribute, Block, SSAValue

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.c.headers.functions import helper_names
from fuse_opt.lowering.cpu.stages.loop_parts import Range
from fuse_opt.lowering.cpu.stages.stage import StageLoops
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, RowBuffer, Stage
from fuse_opt.lowering.kernel.loop_splitting import Fixed, flat_memory
from fuse_opt.lowering.kernel.scalar_to_arith import value_type
from fuse_opt.lowering.kernel.scope import INDEX, Scope
from fuse_opt.lowering.kernel.transposed_loads import TransposedLoads

GROUP = 16
"""Elements along both sides of what vector registers turn at once; half as many of 8 bytes."""
LINES_AHEAD = 2 * GROUP
"""How many lines of a far operand ahead of those that are turned are asked for."""
LINES_BESIDE = 2
"""The same of what lies as the result does."""
FEWEST_LEFT = 5
"""Lines that are left over for which a square pays that overlaps another: fewer take less time element by element."""


def group_of(node: ScalarNode) -> int:
    """Elements along both sides of what vector registers turn at once, of a load: as `fo_transpose` has them."""
    return GROUP // 2 if dtype(node.value).itemsize > 4 else GROUP


@dataclass(frozen=True)
class Tile:
    """A block in memory: where its element at (tile_row, tile_column) is, its size, and where in the whole it begins."""

    position: IndexExpr
    line: int
    height: int
    begin: Mapping[str, SSAValue]
    whole: bool = False
    """Whether all that is transposed for it are whole squares along its rows."""


class RegisterTranspose(StageLoops):
    """What transposes the loads of a pass whose neighbours are along another dimension than the innermost."""

    def __init__(
        self,
        nodes: KernelNodes,
        memory: KernelBuffers,
        arguments: Sequence[SSAValue],
        root: Scope,
        transposed: TransposedLoads,
    ) -> None:
        super().__init__(nodes, memory, arguments, root)
        self.transposed = transposed
        self.along = transposed.along
        self.inner = nodes.loop(nodes.loop_body.rows)[-1]
        self.is_far = False
        """Whether what is turned lies in memory: processors find out too late about lines that are read a few vectors of each."""

    def is_transposed_by_vectors(self, node: ScalarNode) -> bool:
        element = dtype(node.value)
        return self.kept_type(node) == element.attribute and self.line_step(node) is not None

    def kept_type(self, node: ScalarNode) -> Attribute:
        """Narrow floats as they are: a NaN keeps its payload where values are only moved."""
        element = dtype(node.value)
        return value_type(element) if element.compute is element else element.attribute

    def turn(self, node: ScalarNode, task: Scope, rows: Range, columns: Range, tile: Tile) -> RowBuffer:
        """Reads a block of a load line by line, and puts it down across."""
        memory = self.root.add(memref.AllocaOp.get(self.kept_type(node), 64, [tile.line * tile.height]))
        memory.name_hint = f"{node.value.name_hint or 'value'}_tile"

        def turn(scope: Scope) -> None:
            if self.is_far:
                self.ask_lines(node, scope)
            self.transpose_square(node, scope, memory, tile.position, tile.line)

        def put(scope: Scope) -> None:
            self.emitter.emit([node], scope)
            narrow = scope.find(("narrow", node))
            value = self.emitter.value(node, scope) if narrow is None else narrow[0]
            scope.block.add_op(memref.StoreOp.get(value, memory, [scope.index(tile.position)]))

        turned = turn if self.is_transposed_by_vectors(node) else None
        self.go_over(task, rows, columns, tile, group_of(node), turned, put, True)
        return RowBuffer(memory, tile.position)

    def go_over(
        self,
        task: Scope,
        rows: Range,
        columns: Range,
        tile: Tile,
        group: int,
        turn: Callable[[Scope], None] | None,
        put: Callable[[Scope], None],
        lines_first: bool,
        may_repeat: bool = False,
    ) -> None:
        """
        A block by squares of `group` elements that vectors turn, and what is left over at its ends element by element. With
        `lines_first`, squares follow each other along the lines that are read, else along those that are written. With
        `may_repeat`, the last squares along a size overlap others, perhaps of another block, which get the same elements.
        """
        if turn is None:
            self._put_elements(put, task, rows, columns, tile)
            return
        middles = [
            self._whole_groups(task, *bounds, length, group, may_repeat)
            for bounds, length in ((rows, 0 if tile.whole else self.along.extent), (columns, self.inner.extent))
        ]
        row_loop = (self.along, "tile_row", (rows[0], middles[0]))
        column_loop = (self.inner, "tile_column", (columns[0], middles[1]))
        loops = (column_loop, row_loop) if lines_first else (row_loop, column_loop)
        outer = self.open(task, *loops[0][:2], tile)
        scope = self.open(outer, *loops[1][:2], tile)
        if may_repeat:
            self._begin_early(outer, loops[0][0], group)
            self._begin_early(scope, loops[1][0], group)
        turn(scope)
        for inside, (_, _, bounds) in zip((scope, outer), reversed(loops), strict=True):
            inside.block.add_op(scf.YieldOp())
            assert inside.parent is not None
            inside.parent.block.add_op(self.loop(inside.block, *bounds, step=group))
        if middles[0] is not rows[1]:
            self._put_elements(put, task, (middles[0], rows[1]), columns, tile, may_repeat)
        if middles[1] is not columns[1]:
            self._put_elements(put, task, (rows[0], middles[0]), (middles[1], columns[1]), tile)

    def transpose_square(
        self, node: ScalarNode, scope: Scope, target: SSAValue, place: IndexExpr, to_step: Extent
    ) -> None:
        constant = self.root.index_constant
        source, to = flat_memory(self.root, self.emitter.buffers[node.value]), flat_memory(self.root, target)
        address = scope.index(self.nodes.addresses[node])
        step = self.line_step(node)
        assert step is not None
        arguments = [source, address, constant(step), to, scope.index(place), constant(to_step)]
        scope.call_for_effect(f"fo_transpose_{dtype(node.value).name}", arguments)

    def ask_lines(self, node: ScalarNode, scope: Scope) -> None:
        """Asks for the lines of a load that are turned some squares later."""
        constant, step, element = self.root.index_constant, self.line_step(node), dtype(node.value)
        assert step is not None
        later = scope.add(arith.AddiOp(scope.index(self.nodes.addresses[node]), constant(LINES_AHEAD * step)))
        source = flat_memory(self.root, self.emitter.buffers[node.value])
        arguments = [source, later, constant(step), constant(group_of(node))]
        scope.call_for_effect(f"fo_prefetch_lines_{element.name}", arguments)

    def ask_beside(self, stage: Stage, outer: Scope, columns: Range) -> None:
        """Asks for what lies as the result does, of a line some further on."""
        count = outer.add(arith.SubiOp(columns[1], columns[0]))
        line = outer.add(arith.AddiOp(outer.dim_value(self.along), self.root.index_constant(LINES_BESIDE)))
        later = Fixed(outer, {})
        later.indices |= {self.along: line, self.inner: columns[0]}
        for node in self.nodes_of(stage):
            name = f"fo_prefetch_{dtype(node.value).name}"
            if node.op is not None or node in stage.taken or name not in helper_names():
                continue
            address = self.nodes.addresses[node]
            if (address.coefficients() or {}).get(self.inner) == 1 and self.along in address.dims():
                source = flat_memory(self.root, self.emitter.buffers[node.value])
                outer.call_for_effect(name, [source, later.index(address), count])

    def line_step(self, node: ScalarNode) -> Extent | None:
        """The distance of the lines of a load that vectors can turn."""
        factors = self.nodes.addresses[node].coefficients()
        if factors is None or factors.get(self.along) != 1:
            return None
        return factors[self.inner]

    def _whole_groups(
        self, task: Scope, first: SSAValue, last: SSAValue, length: Extent, group: int, may_repeat: bool
    ) -> SSAValue:
        """
        The end of the whole groups of a range that begins at a multiple and ends at one, or at the length; or of a last one that
        begins earlier, too.
        """
        if length % group == 0:
            return last
        constant, whole = self.root.index_constant, length // group * group
        if not may_repeat or not isinstance(length, Size):
            return task.add(arith.MinSIOp(last, constant(whole)))
        enough = self.root.made(
            ("enough", length), lambda: arith.CmpiOp(constant(length % group), constant(FEWEST_LEFT), "sge")
        )
        is_one = self.root.made(("one", length), lambda: arith.CmpiOp(constant(length), constant(group), "sge"))
        both = self.root.made(("overlaps", length), lambda: arith.AndIOp(enough, is_one))
        end = self.root.made(("end", length), lambda: arith.SelectOp(both, constant(length), constant(whole)))
        return task.add(arith.MinSIOp(last, end))

    def _begin_early(self, scope: Scope, dim: Dim, group: int) -> None:
        """Lets a square along a size end there at most."""
        if isinstance(dim.extent, Size) and dim.extent % group != 0:
            least = self.root.index_constant(dim.extent - group)
            scope.indices[dim] = scope.add(arith.MinSIOp(scope.indices[dim], least))

    def _put_elements(
        self,
        put: Callable[[Scope], None],
        task: Scope,
        rows: Range,
        columns: Range,
        tile: Tile,
        few_rows: bool = False,
    ) -> None:
        loops = [(self.inner, "tile_column", columns), (self.along, "tile_row", rows)]
        (first, above, of_outer), (second, below, bounds) = loops[::-1] if few_rows and self._is_sized() else loops
        outer = self.open(task, first, above, tile)
        scope = self.open(outer, second, below, tile)
        put(scope)
        scope.block.add_op(scf.ReduceOp())
        outer.block.add_op(self.parallel(scope.block, *bounds))
        outer.block.add_op(scf.YieldOp())
        task.block.add_op(self.loop(outer.block, *of_outer))

    def _is_sized(self) -> bool:
        return isinstance(self.along.extent, Size)

    def open(self, parent: Scope, dim: Dim, local: str, tile: Tile) -> Scope:
        """A loop over a dimension, which also knows where in the block it is."""
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = local.removeprefix("tile_")
        scope = Scope(parent, block, {dim: block.args[0]})
        begin = tile.begin[local]
        inside = next(found for found in tile.position.dims() if found.name == local)
        scope.indices[inside] = scope.add(arith.SubiOp(block.args[0], begin))
        return scope
