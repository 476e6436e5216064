"""Vectors of accumulators in parts, where a processor's registers hold fewer lanes.

    float %sums[16]  # a register
    scf.parallel (%lane) = 0 to 16 { %sums[%lane] += load %x[%first + %lane] }

becomes, in parts of 8 lanes,

    float %sums[8], %sums_1[8]
    scf.parallel (%lane) = 0 to 8 { %sums[%lane] += load %x[%first + %lane] }
    scf.parallel (%lane) = 0 to 8 { %sums_1[%lane] += load %x[%first + %lane + 8] }

A variable of more lanes than a register has lies in memory: each addition waits for a store and a load then, and sums of rows of
34 numbers took 1.5 times as long (Zen 3). What is added to what does not change, and so no bit of a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from fuse_opt.lowering.hints import REGISTER
from fuse_opt.lowering.loops.strip_mining import BlockLoops, constant

Parts = Mapping[SSAValue, Sequence[SSAValue]]
"""What memory becomes, in order."""


def split_registers(body: Block, lanes: int) -> None:
    """Rewrites the function of a kernel in place, for registers of so many lanes."""
    parts: dict[SSAValue, Sequence[SSAValue]] = {}
    for op in list(body.walk()):
        if isinstance(op, memref.AllocaOp) and REGISTER in op.attributes and _is_divisible(op, lanes):
            parts[op.memref] = _in_parts(op, lanes)
    if not parts:
        return
    split = _Split(parts, lanes, BlockLoops(body))
    for loop in dict.fromkeys(_loop_over_lanes(use.operation) for memory in parts for use in list(memory.uses)):
        if loop is not None:
            split.loop(loop)
    for memory in parts:
        for use in list(memory.uses):
            op = use.operation
            assert isinstance(op, memref.LoadOp | memref.StoreOp)
            split.access(op, None, constant(op.indices[0]) or 0)
        assert isinstance(memory.owner, Operation)
        Rewriter.erase_op(memory.owner)


def _is_divisible(register: memref.AllocaOp, lanes: int) -> bool:
    """Whether it has several times so many lanes, and each access to it is one of a lane whose number is seen."""
    count = register.memref.type.get_shape()[0]
    return lanes < count and count % lanes == 0 and all(_is_access(use.operation) for use in register.memref.uses)


def _is_of(op: Operation, parts: Parts) -> TypeGuard[memref.LoadOp | memref.StoreOp]:
    return isinstance(op, memref.LoadOp | memref.StoreOp) and op.memref in parts


def _is_access(op: Operation) -> bool:
    if not isinstance(op, memref.LoadOp | memref.StoreOp):
        return False
    loop = _loop_over_lanes(op)
    return _number(op.indices[0], None if loop is None else loop.body.block.args[0]) is not None


def _loop_over_lanes(op: Operation) -> scf.ParallelOp | None:
    """The loop from 0 to a number whose counter the index of a load or store hangs on."""
    assert isinstance(op, memref.LoadOp | memref.StoreOp)
    loop = op.parent_op()
    while loop is not None and not isinstance(loop, scf.ParallelOp):
        loop = loop.parent_op()
    if loop is None or constant(op.indices[0]) is not None or constant(loop.lowerBound[0]) != 0:
        return None
    return None if loop.initVals or constant(loop.upperBound[0]) is None else loop


def _number(index: SSAValue, lane: SSAValue | None) -> int | None:
    """What an index is more than a lane, or than 0."""
    if index is lane:
        return 0
    if isinstance(owner := index.owner, arith.AddiOp) and lane in (owner.lhs, owner.rhs):
        return constant(owner.rhs if owner.lhs is lane else owner.lhs)
    return constant(index) if lane is None else None


def _in_parts(register: memref.AllocaOp, lanes: int) -> list[SSAValue]:
    found: list[SSAValue] = []
    for _ in range(register.memref.type.get_shape()[0] // lanes):
        part = memref.AllocaOp.get(register.memref.type.get_element_type(), 64, [lanes])
        part.attributes[REGISTER] = UnitAttr()
        part.memref.name_hint = register.memref.name_hint
        Rewriter.insert_op(part, InsertPoint.before(register))
        found.append(part.memref)
    return found


class _Split:
    """Loops and accesses in parts of so many lanes."""

    def __init__(self, parts: Parts, lanes: int, blocks: BlockLoops) -> None:
        self.parts = parts
        self.lanes = lanes
        self.blocks = blocks

    def loop(self, loop: scf.ParallelOp) -> None:
        """A loop becomes one for each part of its lanes."""
        count = constant(loop.upperBound[0])
        assert count is not None
        for first in range(0, count, self.lanes):
            part = loop
            if first + self.lanes < count:
                Rewriter.insert_op(part := loop.clone(), InsertPoint.before(loop))
            part.operands[1] = self.blocks.number(min(self.lanes, count - first))
            lane = part.body.block.args[0]
            found = [(op, _number(op.indices[0], lane)) for op in part.walk() if _is_of(op, self.parts)]
            place = arith.AddiOp(lane, self.blocks.number(first))
            if first:
                lane.replace_all_uses_with(place.result)
                place.operands[0] = lane
                Rewriter.insert_op(place, InsertPoint.at_start(part.body.block))
            for op, number in found:
                assert number is not None
                self.access(op, lane, first + number)
            if first and place.result.first_use is None:
                Rewriter.erase_op(place)

    def access(self, op: memref.LoadOp | memref.StoreOp, lane: SSAValue | None, number: int) -> None:
        """A load or store goes to the part that holds its lane."""
        which, rest = divmod(number, self.lanes)
        index, old = self.blocks.number(rest) if lane is None else lane, op.indices[0].owner
        if lane is not None and rest:
            place = arith.AddiOp(lane, self.blocks.number(rest))
            Rewriter.insert_op(place, InsertPoint.before(op))
            index = place.result
        last = len(op.operands) - 1
        op.operands[last - 1], op.operands[last] = self.parts[op.memref][which], index
        if isinstance(old, arith.AddiOp) and old.result.first_use is None:
            Rewriter.erase_op(old)
