"""Vector loops in blocks of their iterations, and memory for what is kept of a block."""

from __future__ import annotations

from collections.abc import Hashable

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from .loop_builder import INDEX

BLOCK = 512
"""Iterations of a block: a few values of each are in the first level cache."""


class BlockLoops:
    """What the rewrites of a kernel's function share: constants and buffers at its start."""

    def __init__(self, body: Block) -> None:
        self.body = body
        self._constants: dict[int, SSAValue] = {}
        self._buffers: dict[Hashable, list[SSAValue]] = {}

    def number(self, value: int) -> SSAValue:
        """The number as an index."""
        if value not in self._constants:
            constant = arith.ConstantOp(IntegerAttr(value, IndexType()))
            Rewriter.insert_op(constant, InsertPoint.at_start(self.body))
            self._constants[value] = constant.result
        return self._constants[value]

    def buffer(self, kind: Attribute, size: int, number: int, name: str) -> SSAValue:
        """Memory for so many elements, the `number`th of its kind; loops use it one after the other."""
        known = self._buffers.setdefault((kind, size, name), [])
        while number >= len(known):
            memory = memref.AllocaOp.get(kind, 64, [size])
            memory.memref.name_hint = name
            Rewriter.insert_op(memory, InsertPoint.at_start(self.body))
            known.append(memory.memref)
        return known[number]

    def in_blocks(self, loop: scf.ParallelOp, whole: bool) -> scf.ParallelOp:
        """The loop over one block, in a new one over blocks that takes the loop's place; `whole`: no block is smaller."""
        lower, upper, step = loop.lowerBound[0], loop.upperBound[0], loop.step[0]
        block = Block(arg_types=[INDEX])
        first = block.args[0]
        first.name_hint = "first"
        ends: list[Operation] = [arith.AddiOp(first, self.number(BLOCK))]
        if not whole:
            ends.append(arith.MinSIOp(ends[0].results[0], upper))
        inner = scf.ParallelOp([first], [ends[-1].results[0]], [step], loop.detach_region(loop.body))
        Rewriter.replace_op(loop, scf.ForOp(lower, upper, self.number(BLOCK), [], Region(block)), [])
        block.add_ops([*ends, inner, scf.YieldOp()])
        return inner


def iterations(loop: scf.ParallelOp) -> int | None:
    """How many there are, where that is known."""
    lower, upper = constant(loop.lowerBound[0]), constant(loop.upperBound[0])
    return None if lower is None or upper is None else upper - lower


def counted(loop: scf.ParallelOp) -> SSAValue:
    """How many iterations came before, in the loop."""
    block, lower = loop.body.block, loop.lowerBound[0]
    if constant(lower) == 0:
        return block.args[0]
    difference = arith.SubiOp(block.args[0], lower)
    Rewriter.insert_op(difference, InsertPoint.at_start(block))
    return difference.result


def constant(value: SSAValue) -> int | None:
    """The number that an index is, where it is constant."""
    owner = value.owner
    if isinstance(owner, arith.ConstantOp) and isa(owner.value, IntegerAttr):
        return owner.value.value.data
    return None
