"""Copies of keys and values: panels as wide as a tile, in the order in which tiles read them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.attention import Attention
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.dialects.types.extents import may_exceed
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.cpu.attention.tiling import AttentionTiling
from fuse_opt.lowering.cpu.matmul.copies import Matrix, count_loop, pack_panel, plus, times
from fuse_opt.lowering.kernel.scope import Scope


@dataclass(frozen=True, slots=True)
class PanelSizes:
    """Elements of the panels of a matrix: `[panel][depth][width]` of its keys, `[panel][keys][width]` of its values."""

    keys: Extent
    values: Extent

    @staticmethod
    def of(attention: Attention, tiling: AttentionTiling) -> PanelSizes:
        keys, values = tiling.key_panels * attention.first.depth, tiling.value_panels * attention.first.columns
        return PanelSizes(keys * tiling.width, values * tiling.width)

    @staticmethod
    def most(attention: Attention, tiling: AttentionTiling) -> tuple[int, int]:
        """Of the keys and values of so many keys as there may be."""
        panels = -(-tiling.most_keys // tiling.width)
        keys, values = panels * attention.first.depth, tiling.value_panels * tiling.most_keys
        return keys * tiling.width, values * tiling.width


class Panels:
    """Panels of keys and of values in two buffers, which hold those of one matrix, or of all where they are shared."""

    def __init__(
        self,
        of: Attention,
        tiling: AttentionTiling,
        root: Scope,
        sources: tuple[SSAValue, SSAValue],
        buffers: tuple[SSAValue, SSAValue],
    ) -> None:
        self.of, self.tiling, self.root = of, tiling, root
        self.element: DType = dtype(of.first_raw)
        self.sources = sources
        self.keys, self.values = buffers
        self.sizes = PanelSizes.of(of, tiling)

    def starts(self, scope: Scope, batch: SSAValue) -> tuple[SSAValue, SSAValue]:
        """Where the panels of a matrix begin."""
        if not self.tiling.shares_panels or prod(self.of.first.batch) == 1:
            zero = self.root.index_constant(0)
            return zero, zero
        return times(scope, batch, self.sizes.keys), times(scope, batch, self.sizes.values)

    def copy_block(self, scope: Scope, number: SSAValue, starts: tuple[SSAValue, SSAValue]) -> None:
        """Copies as many keys as a panel has, and their values; scopes around must know the matrix of the batch."""
        of, width, constant = self.of, self.tiling.width, self.root.index_constant
        depth, keys, columns = of.first.depth, of.first.columns, of.second.columns
        first = times(scope, number, width)
        count = self._count(scope, first, keys)
        source = Matrix(self.sources[0], scope.index(of.keys.offset), of.keys.row, of.keys.column)
        target = Matrix(self.keys, plus(scope, starts[0], times(scope, number, depth * width)), width)
        self._copy(scope, source.moved(scope, constant(0), first), target, (constant(depth), count), keys)
        source = Matrix(self.sources[1], scope.index(of.values.offset), of.values.row, of.values.column)
        rows = plus(scope, starts[1], times(scope, first, width))

        def value_panel(inner: Scope, panel: SSAValue) -> None:
            column = times(inner, panel, width)
            part = source.moved(inner, first, column)
            target = Matrix(self.values, plus(inner, rows, times(inner, panel, keys * width)), width)
            self._copy(inner, part, target, (count, self._count(inner, column, columns)), columns)

        count_loop(scope, "panel", (constant(0), constant(self.tiling.value_panels)), value_panel)

    def _count(self, scope: Scope, first: SSAValue, extent: Extent) -> SSAValue:
        """How many of the columns from the first on are those of its panel."""
        rest = scope.add(arith.SubiOp(self.root.index_constant(extent), first))
        return scope.add(arith.MinSIOp(rest, self.root.index_constant(self.tiling.width)))

    def _copy(
        self, scope: Scope, part: Matrix, target: Matrix, extents: tuple[SSAValue, SSAValue], columns: Extent
    ) -> None:
        """Copies so many rows and columns of a panel of a matrix that has `columns`."""
        pack_panel(scope, self.element, part, target, *extents, may_exceed(columns % self.tiling.width, 0))


def on_stack(root: Scope, size: int, name: str, element: DType) -> SSAValue:
    """Memory for so many elements."""
    memory = root.add(memref.AllocaOp.get(element.attribute, 64, [size]))
    memory.name_hint = name
    return memory
