"""Elements two apart, in pairs: what every second element of a row is read for is read with its neighbour as one wide element.

    scf.parallel (%i) = %a to %b { store max(load %x[2 * %i], load %x[2 * %i + 1], load %x[2 * %i - 1]), %y[%i] }

becomes

    scf.for %first = %a to %b step 8 {
      %place = min(%first, %b - 8)
      scf.parallel (%lane) = 0 to 8 {
        %i = %place + %lane
        %0 = call @fo_pair_f32(%x, 2 * %i - 1)
        %1 = call @fo_pair_f32(%x, 2 * %i)
        store max(low of %1, high of %1, low of %0), %y[%i]
      }
    }

and the same with 4 for rows of 4 to 7. Wide elements are neighbours: a vector of them is one load, and takes nothing from behind
the last element that is asked for. Compilers read whole vectors of single elements, and leave the last ones of each row, up to
as many as a vector has, to a loop without vectors, as more is read than is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IntegerAttr, MemRefType, UnitAttr, f32, i32, i64
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from fuse_opt.lowering.hints import SCALAR, SIDE_BY_SIDE
from fuse_opt.lowering.inner_ops import inner_of
from fuse_opt.lowering.kernel.scope import INDEX
from fuse_opt.lowering.loops.ranges.index_set_splitting import MOST_OPERATIONS, affine_form
from fuse_opt.lowering.loops.strip_mining import (
    BlockLoops,
    HelperCalls,
    Helpers,
    constant,
    is_within,
    iterations,
    one_by_one,
)
from fuse_opt.lowering.loops.tails.loops_with_tails import is_repeatable

GROUPS = 8, 4
"""Iterations that are done together, the most first; of less than the last one each is done by itself."""
PAIR = "fo_pair_f32"

_Place = tuple[SSAValue | None, int, int]
"""A value from outside of the loop, how often its counter, and a number: what a position is the sum of."""


@dataclass(frozen=True, slots=True)
class _Half:
    """The element of a load: which pair it is in, named by where that begins, and whether it is the second one there."""

    pair: tuple[SSAValue, SSAValue | None, int]
    is_second: bool


def pair_strided_loads(body: Block, shared: Collection[int], helpers: Helpers) -> None:
    """
    Rewrites the function of a kernel in place, and adds to `helpers` what it calls from then on; `shared`: the numbers of
    arguments whose memory others may be.
    """
    blocks = BlockLoops(body)
    calls, overlaid = HelperCalls(blocks, helpers), {body.args[number] for number in shared}
    for loop in [op for op in inner_of(body, scf.ParallelOp) if SIDE_BY_SIDE in op.attributes]:
        if iterations(loop) is not None or not is_repeatable(loop, overlaid):
            continue
        halves = _halves(loop.body.block)
        if halves and (len(GROUPS) + 1) * len(loop.body.block.ops) <= MOST_OPERATIONS:
            _Groups(loop, halves, blocks, calls).replace()


def _halves(block: Block) -> Mapping[Operation, _Half]:
    """
    What loads of elements two apart read; nothing where one of them has no neighbour that is read, or others are there, or
    all of both of each pair is read, which compilers make vectors of that end where it does.
    """
    places: dict[SSAValue, _Place] = {block.args[0]: (None, 1, 0)}
    loads: dict[tuple[SSAValue, SSAValue | None, int], list[Operation]] = {}
    for op in list(block.ops)[:-1]:
        if isinstance(op, (memref.LoadOp, memref.StoreOp)):
            place = _place(op.indices[0], places, block) if len(op.indices) == 1 else None
            if place is None or place[1] not in ((1,) if isinstance(op, memref.StoreOp) else (0, 1, 2)):
                return {}
            if place[1] == 2:
                loads.setdefault((op.memref, place[0], place[2]), []).append(op)
        elif op.regions or not op.name.startswith(("arith.", "math.")):
            return {}
        elif (sum_or_product := _combined(op, places, block)) is not None:
            places[op.results[0]] = sum_or_product
    found: dict[Operation, _Half] = {}
    for (memory, base, number), same in loads.items():
        is_second = (memory, base, number + 1) not in loads
        first = (memory, base, number - is_second)
        if first not in loads or not isa(memory.type, MemRefType) or memory.type.element_type != f32:
            return {}
        found |= dict.fromkeys(same, _Half(first, is_second))
    halves = set(found.values())
    return found if len(halves) < 2 * len({half.pair for half in halves}) else {}


def _place(value: SSAValue, places: Mapping[SSAValue, _Place], block: Block) -> _Place | None:
    if is_within(value, block):
        return places.get(value)
    number = constant(value)
    return (value, 0, 0) if number is None else (None, 0, number)


def _combined(op: Operation, places: Mapping[SSAValue, _Place], block: Block) -> _Place | None:
    """A sum, or a product with a number."""
    if not isinstance(op, (arith.AddiOp, arith.MuliOp)):
        return None
    lhs, rhs = (_place(operand, places, block) for operand in op.operands)
    if lhs is None or rhs is None:
        return None
    bases = [base for base, *_ in (lhs, rhs) if base is not None]
    if len(bases) > isinstance(op, arith.AddiOp) or (form := affine_form(op, [lhs[1:], rhs[1:]])) is None:
        return None
    return bases[0] if bases else None, *form


@dataclass
class _Groups:
    """What takes the place of a loop."""

    loop: scf.ParallelOp
    halves: Mapping[Operation, _Half]
    blocks: BlockLoops
    calls: HelperCalls

    def replace(self) -> None:
        count = arith.SubiOp(self.loop.upperBound[0], self.loop.lowerBound[0])
        Rewriter.insert_op(count, InsertPoint.before(self.loop))
        Rewriter.insert_op(self._ways(count.result, GROUPS), InsertPoint.before(self.loop))
        Rewriter.erase_op(self.loop)

    def _ways(self, count: SSAValue, sizes: Sequence[int]) -> Operation:
        """Groups of the first size that there are as many iterations of; at last the loop's own body, one by one."""
        if not sizes:
            return one_by_one(self.loop)
        size, *rest = sizes
        own = Block([self._grouped(size), scf.YieldOp()])
        others = Block([self._ways(count, rest), scf.YieldOp()])
        are_enough = arith.CmpiOp(count, self.blocks.number(size), "sge")
        Rewriter.insert_op(are_enough, InsertPoint.before(self.loop))
        return scf.IfOp(are_enough, [], Region(own), Region(others))

    def _grouped(self, size: int) -> scf.ForOp:
        lower, upper = self.loop.lowerBound[0], self.loop.upperBound[0]
        number = self.blocks.number
        last = arith.SubiOp(upper, number(size))
        Rewriter.insert_op(last, InsertPoint.before(self.loop))
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = "first"
        place = arith.MinSIOp(block.args[0], last.result)
        lanes = scf.ParallelOp([number(0)], [number(size)], [number(1)], Region(self._lane(place.result)))
        lanes.attributes[SIDE_BY_SIDE] = IntegerAttr(size, 64)
        block.add_ops([place, lanes, scf.YieldOp()])
        groups = scf.ForOp(lower, upper, number(size), [], Region(block))
        groups.attributes[SCALAR] = UnitAttr()
        return groups

    def _lane(self, place: SSAValue) -> Block:
        """What a lane of the group at a place does."""
        old, block = self.loop.body.block, Block(arg_types=[INDEX])
        block.args[0].name_hint = "lane"
        block.add_op(at := arith.AddiOp(place, block.args[0]))
        values: dict[SSAValue, SSAValue] = {old.args[0]: at.result}
        pairs: dict[tuple[SSAValue, SSAValue | None, int], SSAValue] = {}
        for op in old.ops:
            if (half := self.halves.get(op)) is None:
                block.add_op(op.clone(values))
                continue
            assert isinstance(op, memref.LoadOp)
            if half.pair not in pairs:
                index = values.get(op.indices[0], op.indices[0])
                pairs[half.pair] = self._pair(block, op.memref, index, half.is_second)
            values[op.res] = self._element(block, pairs[half.pair], half.is_second)
        return block

    def _pair(self, block: Block, memory: SSAValue, index: SSAValue, is_second: bool) -> SSAValue:
        """The pair of the element with an index, which is its second one or its first."""
        if is_second:
            block.add_op(before := arith.SubiOp(index, self.blocks.number(1)))
            index = before.result
        return self.calls.call(PAIR, [self.calls.flat(memory), index], InsertPoint.at_end(block), i64).res[0]

    def _element(self, block: Block, pair: SSAValue, is_second: bool) -> SSAValue:
        if is_second:
            block.add_op(above := arith.ShRUIOp(pair, self._bits()))
            pair = above.result
        word = arith.TruncIOp(pair, i32)
        element = arith.BitcastOp(word.result, f32)
        block.add_ops([word, element])
        return element.result

    def _bits(self) -> SSAValue:
        """Of an element."""
        bits = arith.ConstantOp(IntegerAttr(32, i64))
        Rewriter.insert_op(bits, InsertPoint.before(self.loop))
        return bits.result
