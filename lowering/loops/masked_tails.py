"""Masked tails: what is left over of a vector loop becomes one more vector, of which some lanes do nothing.

    scf.parallel (%i) = 0 to 127 { %a = load %x[%i]; ...; store %b, %y[%i] }

becomes

    scf.parallel (%i) = 0 to 112 { ... }
    scf.parallel (%lane) = 0 to 16 {
      %i = 112 + %lane
      %a = scf.if %bits >> %lane & 1 { load %x[%i] } else { 0 }
      ...
      scf.if %bits >> %lane & 1 { store %b, %y[%i] }
    }

of which compilers make masked loads and stores where the machine has them; 15 elements one after the other took longer than
112 in vectors. With a comparison in the place of the bits gcc would cut the loop where it fails, and make no vectors of it. Of
bits that it knows gcc 12 makes blends with whole vectors of memory, which fault beyond the end of a page: `fo_bits` hides them.
Narrow elements have such masks on few machines: where iterations may run twice, the last vector overlaps the one before.
What goes to memory of the function itself, which has room for whole vectors, is stored by all lanes: an accumulator's lane keeps
what it has. A load of several lanes waits for masked stores to the same memory, and not for whole ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import AnyFloat, Float32Type, FloatAttr, IntegerAttr, IntegerType, MemRefType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.dialects.types.extents import exact_quotient, may_exceed, most
from fuse_opt.dialects.types.size import Size
from fuse_opt.lowering.kernel.scope import INDEX
from fuse_opt.lowering.loops.specialization import specialized
from fuse_opt.lowering.loops.strip_mining import BlockLoops, Helpers, constant

WIDTH = 16
"""Lanes of a masked vector: those of f32 in the widest vectors, or two of half of it."""
FEWEST = 5
"""Elements of a loop for which it pays. A loop over accumulators, or over what is kept, may have fewer: who loads several of them
would wait for narrow stores."""
_ENDS = (WIDTH, 4 * WIDTH)
"""Elements that a loop over accumulators has at most."""
PADDED = "fused.padded"
"""Says of memory of a function's own that `WIDTH` elements more than are ever asked for belong to it."""
HIDDEN_BITS = "fo_bits"
"""The helper that gives a mask that compilers do not know."""
NARROWEST = 4
"""Bytes of an element in memory: machines with masks for fewer are few."""


def padded(count: int) -> int:
    """Elements of memory for so many, with room for whole vectors."""
    return -(-count // WIDTH) * WIDTH if count >= FEWEST else count


def mask_tails(
    body: Block, helpers: Helpers, sizes: Mapping[SSAValue, Size] | None = None, shared: Collection[int] = ()
) -> None:
    """
    Rewrites the function of a kernel in place; `sizes` are arguments of it that say where loops end, `shared` the numbers of
    those whose memory others may be.
    """
    blocks = _Masks(body, helpers)
    overlaid = {body.args[number] for number in shared}
    for op in list(body.walk()):
        if not isinstance(op, scf.ParallelOp):
            continue
        upper = _left_over(op)
        if upper is not None and _is_plain(op):
            _mask(op, upper, blocks)
        elif upper is not None and _may_repeat(op, upper, overlaid):
            _overlap(op, upper, blocks)
        elif sizes and (size := _sized_end(op, sizes)) is not None and _is_plain(op):
            _mask_sized(op, size, blocks)


def _left_over(loop: scf.ParallelOp) -> int | None:
    """Where the loop ends, if the last of its elements are worth a masked vector."""
    if loop.initVals or len(loop.lowerBound) != 1 or constant(loop.step[0]) != 1:
        return None
    lower, upper = constant(loop.lowerBound[0]), constant(loop.upperBound[0])
    if lower is None or upper is None or (rest := (upper - lower) % WIDTH) == 0:
        return None
    ops = loop.body.block.ops
    if any(isinstance(op, memref.StoreOp) and isinstance(op.memref.owner, memref.AllocaOp) for op in ops):
        return upper
    return upper if upper - lower >= FEWEST and rest != WIDTH // 2 else None


def _sized_end(loop: scf.ParallelOp, sizes: Mapping[SSAValue, Size]) -> Size | None:
    """The size that a loop counts to from a multiple of whole vectors on."""
    if loop.initVals or len(loop.lowerBound) != 1 or constant(loop.step[0]) != 1:
        return None
    lower = loop.lowerBound[0]
    begin = sizes.get(lower, constant(lower))
    return None if begin is None or exact_quotient(begin, WIDTH) is None else sizes.get(loop.upperBound[0])


def _is_plain(loop: scf.ParallelOp) -> bool:
    """Whether its body is a run of operations on elements of which all have masks, some come from or go to others, and none is
    read after it was written."""
    ops = list(loop.body.block.ops)[:-1]
    memory = [op.memref for op in ops if isinstance(op, (memref.LoadOp, memref.StoreOp))]
    calls = (op for op in ops if isinstance(op, func.CallOp))
    written: set[SSAValue] = set()
    for op in ops:
        if isinstance(op, memref.LoadOp) and op.memref in written:
            return False
        if isinstance(op, memref.StoreOp):
            written.add(op.memref)
    return (
        not any(op.regions for op in ops)
        and all(call.results for call in calls)
        and all(_bytes(each) >= NARROWEST for each in memory)
        and any(not isinstance(each.owner, memref.AllocaOp) for each in memory)
    )


def _may_repeat(loop: scf.ParallelOp, upper: int, shared: Collection[SSAValue]) -> bool:
    """Whether iterations may run twice: what they store is nothing that they load."""
    lower = constant(loop.lowerBound[0])
    ops = list(loop.body.block.ops)[:-1]
    stored = {op.memref for op in ops if isinstance(op, memref.StoreOp)}
    loaded = {op.memref for op in ops if isinstance(op, memref.LoadOp)}
    return (
        lower is not None
        and upper - lower > WIDTH
        and not any(op.regions or (isinstance(op, func.CallOp) and not op.results) for op in ops)
        and stored.isdisjoint(loaded)
        and stored.isdisjoint(shared)
    )


def _bytes(memory: SSAValue) -> int:
    kind = memory.type
    assert isa(kind, MemRefType)
    found = dtype_of(kind.element_type)
    return 0 if found is None else found.itemsize


class _Masks(BlockLoops):
    """Constants at the function's start, and masks as numbers that compilers do not know."""

    def __init__(self, body: Block, helpers: Helpers) -> None:
        super().__init__(body)
        self._helpers = helpers
        self._made: set[Operation] = set()
        self._masks: dict[tuple[int, bool], SSAValue] = {}
        self._parts: dict[SSAValue, tuple[SSAValue, SSAValue]] = {}
        self._sized: dict[tuple[SSAValue, bool], SSAValue] = {}
        self._tests: dict[SSAValue, SSAValue] = {}

    def parts(self, count: SSAValue) -> tuple[SSAValue, SSAValue]:
        """Of so many elements, those in whole vectors, and the rest."""
        if count not in self._parts:
            rest = self._first(arith.AndIOp(count, self.number(WIDTH - 1)), "rest")
            self._parts[count] = self._first(arith.SubiOp(count, rest), "whole"), rest
        return self._parts[count]

    def test(self, rest: SSAValue) -> SSAValue:
        """Whether there is a rest."""
        if rest not in self._tests:
            self._tests[rest] = self._first(arith.CmpiOp(rest, self.number(0), "ne"), "is_left")
        return self._tests[rest]

    def sized_mask(self, rest: SSAValue, again: bool) -> SSAValue:
        """The bits of so many lanes, as `mask` has them of a number."""
        if (rest, again) not in self._sized:
            one = self.number(1)
            above = self._first(arith.ShLIOp(one, rest), None)
            lanes = self._first(arith.SubiOp(above, one), None)
            bits = self._first(arith.OrIOp(lanes, self.number(1 << WIDTH + again)), None)
            self._helpers.setdefault(HIDDEN_BITS, ((INDEX,), INDEX))
            self._sized[rest, again] = self._first(func.CallOp(HIDDEN_BITS, [bits], [INDEX]), "bits")
        return self._sized[rest, again]

    def _first(self, op: Operation, name: str | None) -> SSAValue:
        """Puts an op of arguments, constants and such ops in front of all others."""
        later = next(
            each for each in self.body.ops if not isinstance(each, arith.ConstantOp) and each not in self._made
        )
        Rewriter.insert_op(op, InsertPoint.before(later))
        self._made.add(op)
        op.results[0].name_hint = name
        return op.results[0]

    def mask(self, count: int, again: bool) -> SSAValue:
        """The bits of so many lanes, and one beyond all lanes, for `again` another one: a single one would be compared."""
        if (count, again) not in self._masks:
            bits = self.number((1 << count) - 1 | 1 << WIDTH + again)
            assert isinstance(bits.owner, Operation)
            self._helpers.setdefault(HIDDEN_BITS, ((INDEX,), INDEX))
            hidden = func.CallOp(HIDDEN_BITS, [bits], [INDEX])
            hidden.results[0].name_hint = "bits"
            Rewriter.insert_op(hidden, InsertPoint.after(bits.owner))
            self._masks[count, again] = hidden.results[0]
        return self._masks[count, again]


def _mask_sized(loop: scf.ParallelOp, size: Size, blocks: _Masks) -> None:
    """The same of a loop to a size: the masked vector is left out by a condition where there is no rest."""
    before = InsertPoint.before(loop)
    whole, rest = blocks.parts(loop.upperBound[0])
    end = next((end for end in _ENDS if not may_exceed(size, end - 1)), most(size) // WIDTH * WIDTH + WIDTH)
    if end > WIDTH:
        Rewriter.insert_op(specialized(loop, {}, (loop.lowerBound[0], whole)), before)
    tail = specialized(loop, {}, (blocks.number(0), blocks.number(WIDTH)))
    condition = blocks.test(rest)
    Rewriter.insert_op(scf.IfOp(condition, [], Region(Block([tail, scf.YieldOp()]))), before)
    Rewriter.erase_op(loop)
    block = tail.body.block
    counter = block.args[0]
    if end > WIDTH:
        place = arith.AddiOp(whole, counter)
        place.result.name_hint, counter.name_hint = counter.name_hint, "lane"
        counter.replace_all_uses_with(place.result)
        place.operands[1] = counter
        Rewriter.insert_op(place, InsertPoint.at_start(block))
        counter = place.result
    _Guard(block, counter, end).put(lambda again: _is_set(block, blocks.sized_mask(rest, again), blocks))


def _mask(loop: scf.ParallelOp, upper: int, blocks: _Masks) -> None:
    """Puts whole vectors and a masked one in the place of the loop."""
    lower = constant(loop.lowerBound[0])
    assert lower is not None
    whole = lower + (upper - lower) // WIDTH * WIDTH
    before = InsertPoint.before(loop)
    if whole > lower:
        Rewriter.insert_op(specialized(loop, {}, (loop.lowerBound[0], blocks.number(whole))), before)
    tail = specialized(loop, {}, (blocks.number(0), blocks.number(WIDTH)))
    Rewriter.insert_op(tail, before)
    Rewriter.erase_op(loop)
    block = tail.body.block
    lane = block.args[0]
    _Guard(block, _moved(lane, whole, blocks), whole + WIDTH).put(
        lambda again: _is_set(block, blocks.mask(upper - whole, again), blocks)
    )


def _overlap(loop: scf.ParallelOp, upper: int, blocks: _Masks) -> None:
    """Puts whole vectors of the narrowest elements and the last one, some elements of which were in one before, in the place of
    the loop."""
    lower = constant(loop.lowerBound[0])
    assert lower is not None
    touched = (op.memref for op in loop.body.block.ops if isinstance(op, (memref.LoadOp, memref.StoreOp)))
    lanes = WIDTH * NARROWEST // max(min(map(_bytes, touched), default=NARROWEST), 1)
    width = lanes if WIDTH < lanes <= upper - lower else WIDTH
    whole = lower + (upper - lower) // width * width
    for bounds in ((lower, whole), (upper - width, upper)) if whole < upper else ((lower, upper),):
        part = specialized(loop, {}, (blocks.number(bounds[0]), blocks.number(bounds[1])))
        Rewriter.insert_op(part, InsertPoint.before(loop))
    Rewriter.erase_op(loop)


def _moved(lane: BlockArgument, first: int, blocks: BlockLoops) -> SSAValue:
    """The counter of a loop that begins at 0, in the place of one that began there."""
    if not first:
        return lane
    place = arith.AddiOp(blocks.number(first), lane)
    place.result.name_hint = lane.name_hint
    lane.name_hint = "lane"
    lane.replace_all_uses_with(place.result)
    place.operands[1] = lane
    Rewriter.insert_op(place, InsertPoint.at_start(lane.block))
    return place.result


def _is_set(block: Block, mask: SSAValue, blocks: _Masks) -> Sequence[Operation]:
    """What asks whether the lane's bit is set."""
    bits = arith.ShRSIOp(mask, block.args[0])
    bit = arith.AndIOp(bits, blocks.number(1))
    return bits, bit, arith.CmpiOp(bit, blocks.number(0), "ne")


@dataclass(frozen=True, slots=True)
class _Guard:
    """The body of a loop, some iterations of which are to do nothing; `counter` ends at `end`."""

    block: Block
    counter: SSAValue
    end: int

    def put(self, ask: Callable[[bool], Sequence[Operation]]) -> None:
        """Lets iterations only store what is in memory already, or zero where there is room for it, of which the last of what
        asks for the condition is not true.

        What is loaded is zero in lanes that do nothing. gcc 12 leaves there what registers held before: numbers that are too
        small, perhaps, with which machines take a hundred times as long. Asked again, the same condition is of bits of its own:
        where compilers see that it is the same, they leave out the zeros."""
        block, condition = self.block, ask(False)
        *ops, final = block.ops
        stores = [op for op in ops if isinstance(op, memref.StoreOp) and self._has_room(op)]
        known = [self._known(store) for store in stores]
        first = {op for op in ops if op in known or (isinstance(op, memref.LoadOp) and self._is_filled(op))}
        guarded = [op for op in ops if op not in first and op not in stores and not self._is_address(op)]
        inner, other = Block(), Block()
        loads = [op for op in guarded if isinstance(op, memref.LoadOp)]
        chosen = [self._or_zero(op, condition[-1]) for op in loads if not set(_makers(op)).intersection(guarded)]
        left = [op for op in guarded if op.parent is block]
        is_harmless = all(map(_is_harmless, left))
        outside = [op for op in left if is_harmless and not isinstance(op, memref.StoreOp)]
        for op in left:
            op.detach()
            if op not in outside:
                inner.add_op(op)
        inner.add_op(scf.YieldOp(*(store.value for store in stores)))
        kept = [_zero(store, other) if load is None else load.res for store, load in zip(stores, known, strict=True)]
        other.add_op(scf.YieldOp(*kept))
        regions = Region(inner), Region(other)
        again = ask(True) if chosen and not outside else ()
        asked = again or condition
        choice = scf.IfOp(asked[-1].results[0], [store.value.type for store in stores], *regions)
        place = InsertPoint.before(final)
        for op in (*condition, *chosen, *outside, *again, choice):
            Rewriter.insert_op(op, place)
        for store, result in zip(stores, choice.output, strict=True):
            result.name_hint = store.value.name_hint
            store.operands[0] = result
            store.detach()
            Rewriter.insert_op(store, InsertPoint.before(final))

    def _or_zero(self, load: memref.LoadOp, condition: Operation) -> scf.IfOp:
        """What a load gives where the condition is true, and zero elsewhere; takes the load out of its block."""
        other = Block()
        choice_type = load.res.type
        load.detach()
        inner = Block([load])
        zero = _zero_of(choice_type, other)
        other.add_op(scf.YieldOp(zero))
        choice = scf.IfOp(condition.results[0], [choice_type], Region(inner), Region(other))
        choice.output[0].name_hint = load.res.name_hint
        load.res.replace_all_uses_with(choice.output[0])
        inner.add_op(scf.YieldOp(load.res))
        return choice

    def _is_filled(self, load: memref.LoadOp) -> bool:
        """Whether it reads memory of the function's own, in which there is something for every iteration."""
        owner, offset = load.memref.owner, self._offset(load.indices[0])
        if not isinstance(owner, memref.AllocaOp) or PADDED in owner.attributes or offset is None:
            return False
        return self.end + offset == owner.memref.type.get_shape()[0]

    def _has_room(self, store: memref.StoreOp) -> bool:
        """Whether the function's own memory has an element for every iteration, the last ones of which nobody reads."""
        kind = store.memref.type
        assert isa(kind, MemRefType)
        offset, owner = self._offset(store.indices[0]), store.memref.owner
        if not isinstance(owner, memref.AllocaOp):
            return False
        if PADDED in owner.attributes:
            return self._known(store) is None and self._counts(store.indices[0])
        if offset is None:
            return False
        size = kind.get_shape()[0]
        return self.end + offset == size or (self.end + offset < size and self._known(store) is not None)

    def _offset(self, index: SSAValue) -> int | None:
        """What an index is more than the counter, where that is a number."""
        counter, owner = self.counter, index.owner
        if index is counter:
            return 0
        if isinstance(owner, arith.AddiOp) and counter in owner.operands:
            return constant(owner.rhs if owner.lhs is counter else owner.lhs)
        return None

    def _counts(self, index: SSAValue) -> bool:
        """Whether an index is the counter, or more than it by what is the same for all iterations."""
        owner = index.owner
        if index is self.counter or isinstance(owner, Block) or not isinstance(owner, arith.AddiOp):
            return index is self.counter
        return self._counts(owner.lhs) != self._counts(owner.rhs)

    def _known(self, store: memref.StoreOp) -> memref.LoadOp | None:
        """The load of what the store replaces."""
        same = (op for op in self.block.ops if isinstance(op, memref.LoadOp) and op.memref is store.memref)
        return next((op for op in same if tuple(op.indices) == tuple(store.indices)), None)

    def _is_address(self, op: Operation) -> bool:
        """Whether it makes an index of the counter and numbers from outside, which does no harm beyond the end."""
        if not isinstance(op, (arith.AddiOp, arith.SubiOp, arith.MuliOp)) or op.result.type != INDEX:
            return False
        owners = [operand.owner for operand in op.operands]
        return all(
            isinstance(owner, Block) or owner.parent is not self.block or self._is_address(owner) for owner in owners
        )


def _is_harmless(op: Operation) -> bool:
    """Whether lanes that do nothing may compute it, of zeros: f32, for which there are vectors, and nothing that fails for 0.
    gcc 12 makes a choice among lanes of what is in a branch, which gives the others what nobody asked for: the error function
    of 10, say, with results below the normal numbers."""
    if isinstance(op, memref.StoreOp):
        return True
    kinds = [result.type for result in op.results]
    return isinstance(op, (arith.CmpfOp, arith.SelectOp)) or (
        bool(kinds) and all(isinstance(k, Float32Type) for k in kinds)
    )


def _makers(op: Operation) -> list[Operation]:
    return [operand.owner for operand in op.operands if isinstance(operand.owner, Operation)]


def _zero(store: memref.StoreOp, block: Block) -> SSAValue:
    """Zero of the type that is stored."""
    return _zero_of(store.value.type, block)


def _zero_of(kind: Attribute, block: Block) -> SSAValue:
    if isa(kind, AnyFloat):
        op = arith.ConstantOp(FloatAttr(0.0, kind))
    else:
        assert isa(kind, IntegerType)
        op = arith.ConstantOp(IntegerAttr(0, kind))
    block.add_op(op)
    return op.result
