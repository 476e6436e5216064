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
Narrow elements have such masks on few machines: where iterations may run twice, the last vector overlaps the one before. So it
does of wider ones where the machine's masked stores are slow, as are those of AVX2 (13 cycles on Zen 3, one for a whole vector):
`fo_repeated_place` and `fo_repeated_bits` choose when the text is compiled.
What goes to memory of the function itself, which has room for whole vectors, is stored by all lanes: an accumulator's lane keeps
what it has. A load of several lanes waits for masked stores to the same memory, and not for whole ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import AnyFloat, MemRefType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.dialects.types.extents import exact_quotient, is_decided, may_exceed, most
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.kernel.scope import INDEX
from fuse_opt.lowering.loops.guarded_tails import Guard, store_by_parts
from fuse_opt.lowering.loops.specialization import specialized
from fuse_opt.lowering.loops.strip_mining import BlockLoops, Helpers, constant, is_within

WIDTH = 16
"""Lanes of a masked vector: those of f32 in the widest vectors, or two of half of it."""
FEWEST = 5
"""Elements of a loop for which it pays. A loop over accumulators, or over what is kept, may have fewer: who loads several of them
would wait for narrow stores."""
_ENDS = (WIDTH, 4 * WIDTH)
"""Elements that a loop over accumulators has at most."""
_NOWHERE = 1 << 60
"""Where a loop ends of which that is not known: behind all memory of a function."""
HIDDEN_BITS = "fo_bits"
"""The helper that gives a mask which compilers do not know."""
REPEATED_BITS, REPEATED_PLACE = "fo_repeated_bits", "fo_repeated_place"
"""The same, and where the last vector begins, of a loop whose iterations may run twice: all lanes of an earlier one, where
masked stores take long."""
EARLIER_PLACE = "fo_earlier_place"
"""The same place where it is not known whether there are as many elements as lanes."""
NARROWEST = 4
"""Bytes of an element in memory: machines with masks for fewer are few."""


def padded(count: int) -> int:
    """Elements of memory for so many, with room for whole vectors."""
    return -(-count // WIDTH) * WIDTH if count >= FEWEST else count


def mask_tails(
    body: Block,
    helpers: Helpers,
    sizes: Mapping[SSAValue, Size] | None = None,
    shared: Collection[int] = (),
    vector: int = WIDTH * NARROWEST,
    lanes: int = WIDTH,
) -> None:
    """
    Rewrites the function of a kernel in place; `sizes` are arguments of it that say where loops end, `shared` the numbers of
    those whose memory others may be, `vector` the bytes of a vector of compilers', `lanes` those of a register: as many does the
    last vector have of a loop whose bounds are computed, one of several registers is half empty mostly.
    """
    blocks = _Masks(body, helpers, lanes)
    overlaid = {body.args[number] for number in shared}
    for op in list(body.walk()):
        if not isinstance(op, scf.ParallelOp):
            continue
        upper = _left_over(op)
        if upper is not None and _is_plain(op):
            _mask(op, upper, blocks, _may_repeat(op, upper, overlaid) and _stores_outside(op))
        elif upper is not None and _may_repeat(op, upper, overlaid):
            _overlap(op, upper, blocks, vector)
        elif upper is None and (whole := _whole_vectors(op, vector)) is not None:
            _cut(op, whole, blocks)
        elif sizes and (found := _sized_bounds(op, sizes)) is not None and _is_plain(op):
            may_repeat = found[1] == 0 and _is_repeatable(op, overlaid) and _stores_outside(op)
            _mask_sized(op, *found, blocks, may_repeat)
        elif sizes and _is_of_computed_bounds(op) and _is_plain(op):
            _mask_between(op, blocks)


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


def _whole_vectors(loop: scf.ParallelOp, vector: int) -> int | None:
    """
    Where whole vectors of bytes end, if some elements are left over that are whole ones of wider elements. Compilers make vectors
    of half the width of them, and of the rest none: those of a loop of their own are as long as it.
    """
    if loop.initVals or len(loop.lowerBound) != 1 or constant(loop.step[0]) != 1:
        return None
    lower, upper = constant(loop.lowerBound[0]), constant(loop.upperBound[0])
    touched = [op.memref for op in loop.body.block.ops if isinstance(op, (memref.LoadOp, memref.StoreOp))]
    if lower is None or upper is None or min(map(_bytes, touched), default=0) != 1:
        return None
    rest = (upper - lower) % vector
    return upper - rest if vector <= upper - lower and rest % WIDTH == 0 and rest % (vector // 2) else None


def _sized_bounds(loop: scf.ParallelOp, sizes: Mapping[SSAValue, Size]) -> tuple[Size, Extent] | None:
    """The size that a loop counts to from a multiple of whole vectors on, and that multiple."""
    if loop.initVals or len(loop.lowerBound) != 1 or constant(loop.step[0]) != 1:
        return None
    lower = loop.lowerBound[0]
    begin, end = sizes.get(lower, constant(lower)), sizes.get(loop.upperBound[0])
    return None if begin is None or end is None or exact_quotient(begin, WIDTH) is None else (end, begin)


def _is_of_computed_bounds(loop: scf.ParallelOp) -> bool:
    """
    Whether it goes along memory, and where it begins or ends is computed in the function. What lies apart, or at bounded
    positions, is read one by one anyway.
    """
    if loop.initVals or len(loop.lowerBound) != 1 or constant(loop.step[0]) != 1:
        return False
    block = loop.body.block
    if any(isinstance(op, (arith.MinSIOp, arith.MaxSIOp)) for op in block.ops):
        return False
    touched = (op.indices[0] for op in block.ops if isinstance(op, (memref.LoadOp, memref.StoreOp)))
    if not all(_is_of_neighbours(index, block) for index in touched if is_within(index, block)):
        return False
    lower, upper = loop.lowerBound[0], loop.upperBound[0]
    number = None if (count := _count(lower, upper)) is None else constant(count)
    is_whole = number is not None and number % WIDTH == 0  # wherever it begins
    return not is_whole and any(constant(bound) is None for bound in (lower, upper))


def _is_of_neighbours(index: SSAValue, block: Block) -> bool:
    """Whether an index is a loop's counter, and more or less than it what is the same in all of the loop."""
    while index is not block.args[0]:
        owner = index.owner
        if not isinstance(owner, (arith.AddiOp, arith.SubiOp)):
            return False
        varying = [operand for operand in owner.operands if is_within(operand, block)]
        if len(varying) != 1 or (isinstance(owner, arith.SubiOp) and varying[0] is owner.rhs):
            return False
        index = varying[0]
    return True


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
    return lower is not None and upper - lower > WIDTH and _is_repeatable(loop, shared)


def _is_repeatable(loop: scf.ParallelOp, shared: Collection[SSAValue]) -> bool:
    """The same of one of any length."""
    ops = list(loop.body.block.ops)[:-1]
    stored = {op.memref for op in ops if isinstance(op, memref.StoreOp)}
    loaded = {op.memref for op in ops if isinstance(op, memref.LoadOp)}
    return (
        not any(op.regions or (isinstance(op, func.CallOp) and not op.results) for op in ops)
        and stored.isdisjoint(loaded)
        and stored.isdisjoint(shared)
    )


def _stores_outside(loop: scf.ParallelOp) -> bool:
    """Whether it stores, and nothing of that to memory of the function itself, where other loops read whole vectors."""
    stored = [op.memref for op in loop.body.block.ops if isinstance(op, memref.StoreOp)]
    return bool(stored) and not any(isinstance(each.owner, memref.AllocaOp) for each in stored)


def _bytes(memory: SSAValue) -> int:
    kind = memory.type
    assert isa(kind, MemRefType)
    found = dtype_of(kind.element_type)
    return 0 if found is None else found.itemsize


class _Masks(BlockLoops):
    """Constants at the function's start, and masks as numbers that compilers do not know."""

    def __init__(self, body: Block, helpers: Helpers, lanes: int) -> None:
        super().__init__(body)
        self.helpers = helpers
        self.lanes = lanes
        self._made: set[Operation] = set()
        self._masks: dict[tuple[int, bool, str], SSAValue] = {}
        self._places: dict[tuple[int, int], SSAValue] = {}
        self._rests: list[tuple[Size, bool, SSAValue]] = []
        self._wholes: dict[tuple[SSAValue, bool], SSAValue] = {}
        self._sized: dict[tuple[SSAValue, bool], SSAValue] = {}
        self._earlier: dict[SSAValue, SSAValue] = {}
        self._behind: dict[SSAValue, SSAValue] = {}
        self._tests: dict[SSAValue, SSAValue] = {}
        self._zeros: dict[Attribute, SSAValue] = {}
        self._left: dict[SSAValue, tuple[SSAValue, SSAValue, SSAValue, Sequence[SSAValue]]] = {}

    def zero(self, kind: AnyFloat) -> SSAValue:
        """Zero, which compilers do not know."""
        if kind not in self._zeros:
            name = f"fo_zero_{kind.name}"
            self.helpers.setdefault(name, ((), kind))
            self._zeros[kind] = self._first(func.CallOp(name, [], [kind]), "zero")
        return self._zeros[kind]

    def rest(self, count: SSAValue, size: Size, is_left: bool) -> SSAValue:
        """
        How many of so many elements are behind whole vectors; where something is always left over, 1 to all lanes. Sizes that
        differ by whole vectors have the same rest.
        """
        for other, of_left, found in self._rests:
            if of_left == is_left and exact_quotient(size - other, WIDTH) is not None:
                return found
        rest = self._first(arith.SubiOp(count, self.whole(count, is_left)), "rest")
        self._rests.append((size, is_left, rest))
        return rest

    def whole(self, count: SSAValue, is_left: bool) -> SSAValue:
        """Those of so many elements that come before the rest, as compilers see that they are whole vectors."""
        if (count, is_left) not in self._wholes:
            before = self._first(arith.SubiOp(count, self.number(1)), None) if is_left else count
            whole = self._first(arith.AndIOp(before, self.number(-WIDTH)), "whole")
            self._wholes[count, is_left] = whole
        return self._wholes[count, is_left]

    def earlier(self, count: SSAValue, whole: SSAValue) -> SSAValue:
        """Where the last vector of so many elements begins, behind these or some of them."""
        if whole not in self._earlier:
            self.helpers.setdefault(EARLIER_PLACE, ((INDEX, INDEX), INDEX))
            self._earlier[whole] = self._first(func.CallOp(EARLIER_PLACE, [whole, count], [INDEX]), "place")
        return self._earlier[whole]

    def behind(self, count: SSAValue, place: SSAValue) -> SSAValue:
        """How many of the elements come from there on."""
        if place not in self._behind:
            self._behind[place] = self._first(arith.SubiOp(count, place), "rest")
        return self._behind[place]

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
            self.helpers.setdefault(HIDDEN_BITS, ((INDEX,), INDEX))
            self._sized[rest, again] = self._first(func.CallOp(HIDDEN_BITS, [bits], [INDEX]), "bits")
        return self._sized[rest, again]

    def left(self, count: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue, Sequence[SSAValue]]:
        """Of a number of elements that an op computes, behind it: those in whole vectors, the rest, if there is one, masks."""
        if count not in self._left:
            assert isinstance(count.owner, Operation)
            vectors = arith.AndIOp(count, self.number(-self.lanes))
            rest = arith.SubiOp(count, vectors)
            is_left = arith.CmpiOp(rest.result, self.number(0), "ne")
            lanes = arith.SubiOp(above := arith.ShLIOp(self.number(1), rest), self.number(1))
            rest.result.name_hint, is_left.result.name_hint = "rest", "is_left"
            bits = [arith.OrIOp(lanes, self.number(1 << WIDTH + again)) for again in (False, True)]
            self.helpers.setdefault(HIDDEN_BITS, ((INDEX,), INDEX))
            masks = [func.CallOp(HIDDEN_BITS, [each.result], [INDEX]) for each in bits]
            for each in masks:
                each.results[0].name_hint = "bits"
            vectors.result.name_hint = "vectors"
            Rewriter.insert_op([vectors, rest, is_left, above, lanes, *bits, *masks], InsertPoint.after(count.owner))
            found = [each.results[0] for each in masks]
            self._left[count] = vectors.result, rest.result, is_left.result, found
        return self._left[count]

    def _first(self, op: Operation, name: str | None) -> SSAValue:
        """Puts an op of arguments, constants and such ops in front of all others, but for those that make what it reads."""
        waiting = {value.owner for value in op.operands if isinstance(value.owner, Operation)}
        for later in self.body.ops:
            if not waiting and not isinstance(later, arith.ConstantOp) and later not in self._made:
                break
            waiting.discard(later)
        else:
            raise AssertionError("a function ends with a terminator")
        Rewriter.insert_op(op, InsertPoint.before(later))
        self._made.add(op)
        op.results[0].name_hint = name
        return op.results[0]

    def mask(self, count: int, again: bool, may_repeat: bool = False) -> SSAValue:
        """The bits of so many lanes, and one beyond all lanes, for `again` another one: a single one would be compared."""
        helper = REPEATED_BITS if may_repeat else HIDDEN_BITS
        if (count, again, helper) not in self._masks:
            bits = self.number((1 << count) - 1 | 1 << WIDTH + again)
            self._masks[count, again, helper] = self._asked(helper, [bits], "bits")
        return self._masks[count, again, helper]

    def place(self, whole: int, rest: int) -> SSAValue:
        """Where the last vector begins, behind so many elements in whole vectors, with so many left over that may run twice."""
        if (whole, rest) not in self._places:
            numbers = [self.number(whole), self.number(WIDTH - rest)]
            self._places[whole, rest] = self._asked(REPEATED_PLACE, numbers, "place")
        return self._places[whole, rest]

    def _asked(self, helper: str, numbers: Sequence[SSAValue], name: str) -> SSAValue:
        """What a helper says of numbers, behind them."""
        self.helpers.setdefault(helper, ((INDEX,) * len(numbers), INDEX))
        made = {number.owner for number in numbers}
        last = next(op for op in reversed(list(self.body.ops)) if op in made)
        call = func.CallOp(helper, list(numbers), [INDEX])
        call.results[0].name_hint = name
        Rewriter.insert_op(call, InsertPoint.after(last))
        return call.results[0]


def _mask_sized(loop: scf.ParallelOp, size: Size, begin: Extent, blocks: _Masks, may_repeat: bool) -> None:
    """
    The same of a loop from one size to another. Where there is a first element, the masked vector takes all that are left over of
    whole vectors but one, as many as lanes perhaps, and is asked for by nothing; elsewhere a condition leaves it out. Where
    iterations may run twice, it may begin earlier.
    """
    before, (lower, upper) = InsertPoint.before(loop), (loop.lowerBound[0], loop.upperBound[0])
    is_left = is_decided(lambda: size - begin >= 1)
    end = next((end for end in _ENDS if not may_exceed(size, end - (not is_left))), most(size) // WIDTH * WIDTH + WIDTH)
    rest = blocks.rest(upper, size, is_left)
    whole = blocks.whole(upper, is_left) if end > WIDTH else lower
    if end > WIDTH and begin != (size - 1 if is_left else size) // WIDTH * WIDTH:
        Rewriter.insert_op(specialized(loop, {}, (lower, whole)), before)
    tail = specialized(loop, {}, (blocks.number(0), blocks.number(WIDTH)))
    if is_left:
        Rewriter.insert_op(tail, before)
    else:
        Rewriter.insert_op(scf.IfOp(blocks.test(rest), [], Region(Block([tail, scf.YieldOp()]))), before)
    Rewriter.erase_op(loop)
    block = tail.body.block
    counter = block.args[0]
    if end > WIDTH and may_repeat:
        whole = blocks.earlier(upper, whole)
        rest = blocks.behind(upper, whole)
    if end > WIDTH:
        place = arith.AddiOp(whole, counter)
        place.result.name_hint, counter.name_hint = counter.name_hint, "lane"
        counter.replace_all_uses_with(place.result)
        place.operands[1] = counter
        Rewriter.insert_op(place, InsertPoint.at_start(block))
        counter = place.result
    guard = Guard(block, counter, end, blocks.zero)
    guard.put(lambda again: _is_set(block, blocks.sized_mask(rest, again), blocks))
    store_by_parts(tail, rest, blocks, blocks.helpers)


def _mask_between(loop: scf.ParallelOp, blocks: _Masks) -> None:
    """
    The same where neither bound is known before the loop: what is left over is computed in front of it, or as soon as it is known
    how many elements there are.
    """
    before, (lower, upper) = InsertPoint.before(loop), (loop.lowerBound[0], loop.upperBound[0])

    def put(op: Operation, name: str | None = None) -> SSAValue:
        Rewriter.insert_op(op, before)
        op.results[0].name_hint = name
        return op.results[0]

    count = _count(lower, upper)
    if count is None:
        count = put(arith.SubiOp(upper, lower))
    vectors, rest, is_left, masks = blocks.left(count)
    whole = put(arith.AddiOp(lower, vectors), "whole")
    Rewriter.insert_op(specialized(loop, {}, (lower, whole)), before)
    tail = specialized(loop, {}, (blocks.number(0), blocks.number(blocks.lanes)))
    Rewriter.insert_op(scf.IfOp(is_left, [], Region(Block([tail, scf.YieldOp()]))), before)
    Rewriter.erase_op(loop)
    block = tail.body.block
    counter = block.args[0]
    place = arith.AddiOp(whole, counter)
    place.result.name_hint, counter.name_hint = counter.name_hint, "lane"
    counter.replace_all_uses_with(place.result)
    place.operands[1] = counter
    Rewriter.insert_op(place, InsertPoint.at_start(block))
    guard = Guard(block, place.result, _NOWHERE, blocks.zero)
    guard.put(lambda again: _is_set(block, masks[again], blocks))
    store_by_parts(tail, rest, blocks, blocks.helpers)


def _count(lower: SSAValue, upper: SSAValue) -> SSAValue | None:
    """How many elements a loop has, where it is made to end so many behind where it begins."""
    if not isinstance(owner := upper.owner, arith.AddiOp) or lower not in owner.operands:
        return None
    count = owner.rhs if owner.lhs is lower else owner.lhs
    return count if isinstance(count.owner, Operation) else None


def _mask(loop: scf.ParallelOp, upper: int, blocks: _Masks, may_repeat: bool) -> None:
    """Puts whole vectors and a masked one in the place of the loop, or where iterations may run twice one that overlaps them."""
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
    begin = blocks.place(whole, upper - whole) if may_repeat else blocks.number(whole) if whole else None
    guard = Guard(block, _moved(lane, begin), whole + WIDTH, blocks.zero)
    guard.put(lambda again: _is_set(block, blocks.mask(upper - whole, again, may_repeat), blocks))
    if not may_repeat:
        store_by_parts(tail, blocks.number(upper - whole), blocks, blocks.helpers)


def _overlap(loop: scf.ParallelOp, upper: int, blocks: _Masks, vector: int) -> None:
    """Puts whole vectors of the narrowest elements and the last one, some elements of which were in one before, in the place of
    the loop."""
    lower = constant(loop.lowerBound[0])
    assert lower is not None
    touched = (op.memref for op in loop.body.block.ops if isinstance(op, (memref.LoadOp, memref.StoreOp)))
    lanes = vector // max(min(map(_bytes, touched), default=NARROWEST), 1)
    width = lanes if WIDTH < lanes <= upper - lower else WIDTH
    whole = lower + (upper - lower) // width * width
    for bounds in ((lower, whole), (upper - width, upper)) if whole < upper else ((lower, upper),):
        part = specialized(loop, {}, (blocks.number(bounds[0]), blocks.number(bounds[1])))
        Rewriter.insert_op(part, InsertPoint.before(loop))
    Rewriter.erase_op(loop)


def _cut(loop: scf.ParallelOp, at: int, blocks: _Masks) -> None:
    """Puts two loops in the place of one."""
    for bounds in ((loop.lowerBound[0], blocks.number(at)), (blocks.number(at), loop.upperBound[0])):
        Rewriter.insert_op(specialized(loop, {}, bounds), InsertPoint.before(loop))
    Rewriter.erase_op(loop)


def _moved(lane: BlockArgument, first: SSAValue | None) -> SSAValue:
    """The counter of a loop that begins at 0, in the place of one that began there."""
    if first is None:
        return lane
    place = arith.AddiOp(first, lane)
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
