"""Rows of any number of lanes in loops that count what the number of a task would be divided by, for each row.

    scf.for %task = %begin to %end { %row = %task floordiv %blocks; %y = %row mod %height; ... }

becomes

    scf.for %plane = %begin floordiv (%height * %blocks) to ... {
      scf.for %line = ... { scf.for %lane = %first to %last { ... } }
    }

where lanes of neighbouring tasks are one loop.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Block, SSAValue

from fuse_opt.dialects.types.index_expr import Dim, IndexExpr
from fuse_opt.lowering.cpu.outer_vector_stage import Geometry
from fuse_opt.lowering.cpu.stage import Range, StageLoops
from fuse_opt.lowering.hints import SCALAR
from fuse_opt.lowering.kernel.iteration_space import as_expr
from fuse_opt.lowering.kernel.scope import INDEX, Scope


class LineLoops:
    """The loops of a block of code for rows of at most so many blocks of lanes, which is open until it is closed."""

    def __init__(self, holder: Scope, geometry: Geometry, tasks: Range, blocks: int) -> None:
        """They are put into the `holder`, for those of the tasks within the bounds."""
        inner = geometry.inner
        plane, line = Dim("plane", geometry.outer.extent // inner), Dim("line", inner)
        self.known: Mapping[Dim, IndexExpr] = {geometry.outer: as_expr(plane) * inner + as_expr(line)}
        """What the number of a row is made of."""
        size, constant = inner * blocks, holder.root.index_constant
        first = holder.add(arith.DivSIOp(tasks[0], constant(size)))
        self._planes = first, _ceiling(holder, tasks[1], size)
        planes = _counted(holder, plane)
        before = planes.add(arith.MuliOp(planes.indices[plane], constant(size)))
        begin, end = (planes.add(arith.SubiOp(each, before)) for each in tasks)
        begin = planes.add(arith.MaxSIOp(begin, constant(0)))
        end = planes.add(arith.MinSIOp(end, constant(size)))
        lines = _counted(planes, line)
        if blocks == 1:
            self._lines = begin, end
            self._lanes = constant(0), constant(geometry.lane.extent)
        else:
            self._lines = planes.add(arith.DivSIOp(begin, constant(blocks))), _ceiling(planes, end, blocks)
            row = lines.add(arith.MuliOp(lines.indices[line], constant(blocks)))
            width = constant(geometry.width)
            first, last = (lines.add(arith.SubiOp(each, row)) for each in (begin, end))
            first = lines.add(arith.MuliOp(lines.add(arith.MaxSIOp(first, constant(0))), width))
            last = lines.add(arith.MinSIOp(lines.add(arith.MuliOp(last, width)), constant(geometry.lane.extent)))
            self._lanes = first, last
        self.lane = _counted(lines, geometry.lane, "lane")
        """The scope of a lane."""

    def close(self, loops: StageLoops, is_scalar: bool) -> None:
        """With `is_scalar` compilers make no vectors of lanes."""
        lanes, lines = self.lane, self.lane.parent
        assert lines is not None and lines.parent is not None and lines.parent.parent is not None
        planes, holder = lines.parent, lines.parent.parent
        if is_scalar:
            lanes.block.add_op(scf.YieldOp())
            lines.block.add_op(lane := loops.loop(lanes.block, *self._lanes))
            lane.attributes[SCALAR] = UnitAttr()
        else:
            lanes.block.add_op(scf.ReduceOp())
            lines.block.add_op(loops.parallel(lanes.block, *self._lanes))
        lines.block.add_op(scf.YieldOp())
        planes.block.add_ops([loops.loop(lines.block, *self._lines), scf.YieldOp()])
        holder.block.add_op(loops.loop(planes.block, *self._planes))


def _ceiling(scope: Scope, value: SSAValue, divisor: int) -> SSAValue:
    """A value that is not negative divided by an extent, rounded up."""
    constant = scope.root.index_constant
    return scope.add(arith.DivSIOp(scope.add(arith.AddiOp(value, constant(divisor - 1))), constant(divisor)))


def _counted(parent: Scope, dim: Dim, name: str = "") -> Scope:
    """The scope of a loop over a dimension."""
    block = Block(arg_types=[INDEX])
    block.args[0].name_hint = name or dim.name
    return Scope(parent, block, {dim: block.args[0]})
