"""Rows of any number of lanes: loops that count what a task's number would be divided by, and ways through a row's lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr, UnitAttr
from xdsl.ir import Block, Region, SSAValue

from fuse_opt.dialects.types.index_expr import Dim, IndexExpr
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.cpu.outer_vector_stage import Geometry
from fuse_opt.lowering.cpu.stages.loop_parts import Range
from fuse_opt.lowering.hints import SCALAR, SIDE_BY_SIDE
from fuse_opt.lowering.kernel.iteration_space import as_expr
from fuse_opt.lowering.kernel.scope import INDEX, Scope

EIGHT = 8
"""Lanes of a row, of which nobody knows how many there are, that are a vector's."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way through the lanes of a row."""

    group: int
    """How many at a time: 1, or as many as compilers make a vector of; 0 for as many as they like."""
    most: int | None = None
    """Lanes of the rows that it is for, which are a task each; None for any rows, in blocks."""
    strips: bool = False
    """Whether it goes down all lines with one group and then with the next one: short rows have one or two."""

    def holds(self, scope: Scope, lanes: Extent) -> SSAValue:
        """Whether it is for rows of so many lanes; of one that is not for all, behind those for shorter rows."""
        assert self.most is not None
        return scope.add(arith.CmpiOp(scope.root.index_constant(lanes), scope.root.index_constant(self.most), "sle"))


LANES = Way(1, EIGHT - 1)
PAIRED = Way(1, 4)
"""The same where vectors of few lanes are read in pairs."""
FOURS = Way(4, EIGHT - 1, strips=True)
"""Of groups the last one may overlap the one before it: rows have one at least."""
EIGHTS = Way(EIGHT)
VECTORS = Way(0)


class LineLoops:
    """
    Rows of any number of lanes, of at most so many blocks, in loops that count what a task's number would be divided by:

        scf.for %task = %begin to %end { %row = %task floordiv %blocks; %y = %row mod %height; ... }

    becomes

        scf.for %plane = %begin floordiv (%height * %blocks) to ... {
          scf.for %line = ... { scf.for %lane = %first to %last { ... } }
        }

    where lanes of neighbouring tasks are one loop. They are open until they are closed.
    """

    def __init__(self, holder: Scope, geometry: Geometry, tasks: Range, way: Way) -> None:
        """They are put into the `holder`, for those of the tasks within the bounds."""
        inner = geometry.inner
        self._way, self._blocks = way, geometry.blocks if way.most is None else 1
        plane, line = Dim("plane", geometry.outer.extent // inner), Dim("line", inner)
        self.known: Mapping[Dim, IndexExpr] = {geometry.outer: as_expr(plane) * inner + as_expr(line)}
        """What the number of a row is made of."""
        size, constant = inner * self._blocks, holder.root.index_constant
        first = holder.add(arith.DivSIOp(tasks[0], constant(size)))
        spans = first, _ceiling(holder, tasks[1], size)
        planes = _counted(holder, plane)
        before = planes.add(arith.MuliOp(planes.indices[plane], constant(size)))
        begin, end = (planes.add(arith.SubiOp(each, before)) for each in tasks)
        begin = planes.add(arith.MaxSIOp(begin, constant(0)))
        end = planes.add(arith.MinSIOp(end, constant(size)))
        self._nest = [(planes, spans)]
        if way.group > 1:
            self.lane = self._in_group(geometry.lane, line, (begin, end))
            return
        lines = _counted(planes, line)
        if self._blocks == 1:
            span, self._lanes = (begin, end), (constant(0), constant(geometry.lane.extent))
        else:
            span = planes.add(arith.DivSIOp(begin, constant(self._blocks))), _ceiling(planes, end, self._blocks)
            self._lanes = self._lanes_of_tasks(lines, geometry, begin, end)
        self._nest.append((lines, span))
        self.lane = _counted(lines, geometry.lane, "lane")
        """The scope of a lane."""

    def _lanes_of_tasks(self, lines: Scope, geometry: Geometry, begin: SSAValue, end: SSAValue) -> Range:
        """Of a row, those that belong to tasks within the bounds."""
        constant = lines.root.index_constant
        row = lines.add(arith.MuliOp(next(iter(lines.indices.values())), constant(self._blocks)))
        width = constant(geometry.width)
        first, last = (lines.add(arith.SubiOp(each, row)) for each in (begin, end))
        first = lines.add(arith.MuliOp(lines.add(arith.MaxSIOp(first, constant(0))), width))
        last = lines.add(arith.MinSIOp(lines.add(arith.MuliOp(last, width)), constant(geometry.lane.extent)))
        return first, last

    def _in_group(self, lane: Dim, line: Dim, span: Range) -> Scope:
        """That of a lane of a group, of the lines within the bounds."""
        group, (planes, _), strips = self._way.group, self._nest[0], self._way.strips
        constant = planes.root.index_constant
        count = Dim("group", -(-lane.extent // group))
        dims = ((count, (constant(0), constant(count.extent))), (line, span))
        scope = planes
        for dim, bounds in dims if strips else reversed(dims):
            scope = _counted(scope, dim)
            self._nest.append((scope, bounds))
        groups, _ = self._nest[1 if strips else 2]
        at = groups.add(arith.MuliOp(groups.block.args[0], constant(group)))
        at = groups.add(arith.MinSIOp(at, constant(lane.extent - group)))
        self._lanes = constant(0), constant(group)
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = "lane"
        place = arith.AddiOp(at, block.args[0])
        block.add_op(place)
        return Scope(scope, block, {lane: place.result})

    def close(self, are_words: bool) -> None:
        """Compilers make vectors of groups, none of single lanes, and short ones of what is in memory as words of 32 bits."""
        group, inside = self._way.group, self._nest[-1][0]
        self.lane.block.add_op(scf.YieldOp() if group == 1 else scf.ReduceOp())
        inside.block.add_op(lane := (_loop if group == 1 else _parallel)(self.lane, *self._lanes))
        if group == 1:
            lane.attributes[SCALAR] = UnitAttr()
        elif are_words:
            lane.attributes[SIDE_BY_SIDE] = IntegerAttr(group or EIGHT, 64)
        for scope, bounds in reversed(self._nest):
            assert scope.parent is not None
            scope.block.add_op(scf.YieldOp())
            scope.parent.block.add_op(loop := _loop(scope, *bounds))
            if group > 1 and scope is inside:
                loop.attributes[SCALAR] = UnitAttr()  # nor of groups


def _counted(parent: Scope, dim: Dim, name: str = "") -> Scope:
    """The scope of a loop over a dimension."""
    block = Block(arg_types=[INDEX])
    block.args[0].name_hint = name or dim.name
    return Scope(parent, block, {dim: block.args[0]})


def _loop(scope: Scope, lower: SSAValue, upper: SSAValue) -> scf.ForOp:
    return scf.ForOp(lower, upper, scope.root.index_constant(1), [], Region(scope.block))


def _parallel(scope: Scope, lower: SSAValue, upper: SSAValue) -> scf.ParallelOp:
    return scf.ParallelOp([lower], [upper], [scope.root.index_constant(1)], Region(scope.block))


def _ceiling(scope: Scope, value: SSAValue, divisor: Extent) -> SSAValue:
    """A value that is not negative divided by an extent, rounded up."""
    constant = scope.root.index_constant
    return scope.add(arith.DivSIOp(scope.add(arith.AddiOp(value, constant(divisor - 1))), constant(divisor)))
