"""Vector loops in blocks of their iterations, and memory for what is kept of a block."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, IndexType, IntegerAttr, MemRefType, NoneType, UnitAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from fuse_opt.lowering.hints import SCALAR
from fuse_opt.lowering.inner_ops import inner_of
from fuse_opt.lowering.kernel.scope import INDEX

Helpers: TypeAlias = dict[str, tuple[tuple[Attribute, ...], Attribute]]
"""By name of a function of C that programs call: the types of its arguments, and of its result."""

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


def unroll_vectors(body: Block, together: int) -> None:
    """
    Loops over neighbours, of which there are twice as many as are to be done together or more, as loops over so many: compilers
    make a run of vector operations of each then. What is left over is a loop of its own.
    """
    blocks = BlockLoops(body)
    for loop in inner_of(body, scf.ParallelOp):
        if has_groups(loop, together):
            in_groups(loop, together, blocks)


def has_groups(loop: scf.ParallelOp, together: int) -> bool:
    """Whether it is a loop over neighbours, of which there are known to be twice as many or more."""
    return _is_of_neighbours(loop) and (iterations(loop) or 0) >= 2 * together


def _is_of_neighbours(loop: scf.ParallelOp) -> bool:
    return len(loop.step) == 1 and constant(loop.step[0]) == 1 and not loop.initVals and not _holds_loops(loop)


def _holds_loops(loop: scf.ParallelOp) -> bool:
    return any(isinstance(op, scf.ForOp | scf.ParallelOp) for op in loop.walk() if op is not loop)


def in_groups(loop: scf.ParallelOp, together: int, blocks: BlockLoops) -> scf.ForOp:
    """The loop that takes its place, over the first ones of so many neighbours each; what is left over is behind it."""
    lower, count = constant(loop.lowerBound[0]), iterations(loop)
    assert lower is not None and count is not None
    middle = lower + count // together * together
    if count % together:
        rest = loop.clone()
        rest.operands[0] = blocks.number(middle)
        Rewriter.insert_op(rest, InsertPoint.after(loop))
        loop.operands[1] = blocks.number(middle)
    groups = whole_groups(loop, together, blocks).parent_op()
    assert isinstance(groups, scf.ForOp)
    return groups


def whole_groups(loop: scf.ParallelOp, together: int, blocks: BlockLoops) -> scf.ParallelOp:
    """The loop over one group of so many neighbours, from 0 on, in a new one over groups, all whole, that takes its place."""
    lower, upper, counter = loop.lowerBound[0], loop.upperBound[0], loop.body.block.args[0]
    block, lane = Block(arg_types=[INDEX]), Block(arg_types=[INDEX])
    block.args[0].name_hint, lane.args[0].name_hint = "first", "lane"
    neighbour = arith.AddiOp(block.args[0], lane.args[0])
    neighbour.result.name_hint = counter.name_hint
    counter.replace_all_uses_with(neighbour.result)
    lane.add_op(neighbour)
    for op in list(loop.body.block.ops):
        op.detach()
        lane.add_op(op)
    inner = scf.ParallelOp([blocks.number(0)], [blocks.number(together)], [blocks.number(1)], Region(lane))
    block.add_ops([inner, scf.YieldOp()])
    groups = scf.ForOp(lower, upper, blocks.number(together), [], Region(block))
    Rewriter.insert_op(groups, InsertPoint.before(loop))
    Rewriter.erase_op(loop)
    return inner


class HelperCalls:
    """Calls of functions that take stretches of buffers: memory, where to begin in it, how many elements."""

    def __init__(self, blocks: BlockLoops, helpers: Helpers) -> None:
        self.blocks = blocks
        self.helpers = helpers
        self._flat: dict[SSAValue, SSAValue] = {}

    def flat(self, memory: SSAValue) -> SSAValue:
        """The buffer as one of any size."""
        if memory not in self._flat:
            kind = memory.type
            assert isa(kind, MemRefType)
            cast = memref.CastOp.get(memory, MemRefType(kind.element_type, [DYNAMIC_INDEX]))
            owner = memory.owner
            place = InsertPoint.after(owner) if isinstance(owner, Operation) else InsertPoint.at_start(self.blocks.body)
            Rewriter.insert_op(cast, place)
            self._flat[memory] = cast.dest
        return self._flat[memory]

    def call(
        self, helper: str, arguments: Sequence[SSAValue], place: InsertPoint, result: Attribute | None = None
    ) -> func.CallOp:
        self.helpers.setdefault(helper, (tuple(argument.type for argument in arguments), result or NoneType()))
        call = func.CallOp(helper, list(arguments), [] if result is None else [result])
        Rewriter.insert_op(call, place)
        return call

    def address(self, terms: Sequence[SSAValue], place: InsertPoint) -> SSAValue:
        """The sum."""
        terms = [term for term in terms if constant(term) != 0] or [self.blocks.number(0)]
        at = terms[0]
        for term in terms[1:]:
            addition = arith.AddiOp(at, term)
            Rewriter.insert_op(addition, place)
            at = addition.result
        return at


def neighbours(indices: Sequence[SSAValue], *blocks: Block) -> tuple[SSAValue, ...] | None:
    """The terms of an address besides the counters of the loops with these bodies, where it is their sum and no other of
    them varies in the loops."""
    offsets: list[SSAValue] = []
    counters: list[SSAValue] = [block.args[0] for block in blocks]
    stack = list(indices)
    while stack:
        value = stack.pop()
        owner = value.owner
        if value in counters:
            counters.remove(value)
        elif isinstance(owner, arith.AddiOp) and owner.parent in blocks:
            stack += [owner.lhs, owner.rhs]
        elif (owner if isinstance(owner, Block) else owner.parent) in blocks:
            return None
        else:
            offsets.append(value)
    return tuple(offsets) if not counters and len(indices) == 1 else None


def iterations(loop: scf.ParallelOp) -> int | None:
    """How many there are, where that is known."""
    # Operands are the lower bounds, then the upper ones: by name they are counted first.
    operands = loop.operands
    lower, upper = constant(operands[0]), constant(operands[len(loop.body.block.args)])
    return None if lower is None or upper is None else upper - lower


def counted(loop: scf.ParallelOp) -> SSAValue:
    """How many iterations came before, in the loop."""
    block, lower = loop.body.block, loop.lowerBound[0]
    if constant(lower) == 0:
        return block.args[0]
    difference = arith.SubiOp(block.args[0], lower)
    Rewriter.insert_op(difference, InsertPoint.at_start(block))
    return difference.result


def one_by_one(loop: scf.ParallelOp) -> scf.ForOp:
    """A loop with the body of this one, whose place it is to take, of which no vectors are made."""
    reduce = loop.body.block.last_op
    assert reduce is not None
    Rewriter.replace_op(reduce, scf.YieldOp(), [])
    made = scf.ForOp(loop.lowerBound[0], loop.upperBound[0], loop.step[0], [], loop.detach_region(loop.body))
    made.attributes[SCALAR] = UnitAttr()
    return made


def is_within(value: SSAValue, block: Block) -> bool:
    """Whether the value is an argument of the block or made by an op of it."""
    owner = value.owner
    return owner is block or (isinstance(owner, Operation) and owner.parent is block)


def constant(value: SSAValue) -> int | None:
    """The number that an index is, where it is constant."""
    owner = value.owner
    if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, IntegerAttr):
        return owner.value.value.data
    return None
