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
`fo_repeated_place` and `fo_repeated_bits` choose when the text is compiled. A row that was kept is not read so: a vector that two
vectors were stored as before is put together element by element (59 to 83 elements took 1.1 to 1.2 times as long).
What goes to memory of the function itself, which has room for whole vectors, is stored by all lanes: an accumulator's lane keeps
what it has. A load of several lanes waits for masked stores to the same memory, and not for whole ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, memref, scf
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from fuse_opt.dialects.types.extents import is_decided, may_exceed, most
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.inner_ops import inner_of
from fuse_opt.lowering.kernel.scope import INDEX
from fuse_opt.lowering.loops.specialization import specialized
from fuse_opt.lowering.loops.strip_mining import Helpers, constant
from fuse_opt.lowering.loops.tails.guarded_tails import Guard, store_by_parts
from fuse_opt.lowering.loops.tails.loops_with_tails import (
    bytes_of,
    count_of,
    filled_memory,
    goes_along_memory,
    is_of_computed_bounds,
    is_plain,
    is_repeatable,
    left_over,
    may_go_on,
    may_run_twice,
    sized_bounds,
    stores_outside,
    whole_vectors,
)
from fuse_opt.lowering.loops.tails.masks import Masks
from fuse_opt.lowering.loops.vector_widths import NARROWEST, WIDTH

_ENDS = (WIDTH, 4 * WIDTH)
"""Elements that a loop over accumulators has at most."""
Range = tuple[SSAValue, SSAValue]
_NOWHERE = 1 << 60
"""Where a loop ends of which that is not known: behind all memory of a function."""


def mask_tails(
    body: Block,
    helpers: Helpers,
    sizes: Mapping[SSAValue, Size] | None = None,
    shared: Collection[int] = (),
    vector: int = WIDTH * NARROWEST,
    lanes: int = WIDTH,
    only_results: bool = False,
) -> None:
    """
    Rewrites the function of a kernel in place; `sizes` are arguments of it that say where loops end, `shared` the numbers of
    those whose memory others may be, `vector` the bytes of a vector of compilers', `lanes` those of a register: as many does the
    last vector have of a loop whose bounds are computed, one of several registers is half empty mostly. With `only_results` those
    loops alone that store to arguments: memory of the function's own has no room for whole vectors then.
    """
    blocks = Masks(body, helpers, lanes)
    overlaid = {body.args[number] for number in shared}
    loops = [op for op in inner_of(body, scf.ParallelOp) if not only_results or _stores_much(op)]
    found = {op: way for op in loops if (way := _way_of(op, sizes or {}, overlaid, vector, lanes)) is not None}
    blocks.filled = filled_memory(body, {op for op, way in found.items() if way.fills})
    for way in found.values():
        way.rewrite(blocks)


def _stores_much(loop: scf.ParallelOp) -> bool:
    """Whether results are all that it stores, and more than half a vector of them: tiles of fewer columns have half vectors."""
    lower, upper = constant(loop.lowerBound[0]), constant(loop.upperBound[0])
    is_short = lower is not None and upper is not None and upper - lower <= WIDTH // 2
    return stores_outside(loop) and not is_short


def _reads_own(loop: scf.ParallelOp) -> bool:
    """Whether it reads memory of the function's own, such as a row that was kept."""
    return any(
        isinstance(op, memref.LoadOp) and isinstance(op.memref.owner, memref.AllocaOp) for op in loop.body.block.ops
    )


@dataclass(frozen=True, slots=True)
class _Way:
    """What a loop becomes."""

    rewrite: Callable[[Masks], None]
    fills: bool = False
    """Whether lanes that do nothing store, too, where there is room."""


def _way_of(
    op: scf.ParallelOp, sizes: Mapping[SSAValue, Size], overlaid: Collection[SSAValue], vector: int, lanes: int
) -> _Way | None:
    """How a loop that vectors leave something over of is rewritten."""
    upper = left_over(op)
    if upper is not None and is_plain(op):
        again = may_run_twice(op, upper, overlaid) and stores_outside(op) and not _reads_own(op)
        return _Way(lambda blocks: _mask(op, upper, blocks, again))
    if upper is not None and may_run_twice(op, upper, overlaid):
        return _Way(lambda blocks: _overlap(op, upper, blocks, vector))
    if upper is None and (whole := whole_vectors(op, vector)) is not None:
        return _Way(lambda blocks: _cut(op, whole, blocks))
    if sizes and (bounds := sized_bounds(op, sizes)) is not None and is_plain(op):
        may_repeat = bounds[1] == 0 and is_repeatable(op, overlaid) and stores_outside(op)
        return _Way(lambda blocks: _mask_sized(op, *bounds, blocks, may_repeat), fills=goes_along_memory(op))
    if sizes and is_of_computed_bounds(op) and is_plain(op):
        return _Way(lambda blocks: _mask_between(op, blocks), fills=lanes == WIDTH)
    if sizes and may_go_on(op):
        return _Way(lambda blocks: _go_on(op, blocks))
    return None


def _mask_sized(loop: scf.ParallelOp, size: Size, begin: Extent, blocks: Masks, may_repeat: bool) -> None:
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
        Rewriter.insert_op(_by_vectors(loop, (lower, whole), WIDTH, blocks), before)
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
    guard = Guard(block, counter, end, blocks.zero, blocks.filled)
    guard.put(lambda again: _is_set(block, blocks.sized_mask(rest, again), blocks))
    store_by_parts(tail, rest, blocks, blocks.helpers)


def _mask_between(loop: scf.ParallelOp, blocks: Masks) -> None:
    """
    The same where neither bound is known before the loop: what is left over is computed in front of it, or as soon as it is known
    how many elements there are.
    """
    before, (lower, upper) = InsertPoint.before(loop), (loop.lowerBound[0], loop.upperBound[0])

    def put(op: Operation, name: str | None = None) -> SSAValue:
        Rewriter.insert_op(op, before)
        op.results[0].name_hint = name
        return op.results[0]

    count = count_of(lower, upper)
    if count is None:
        count = blocks.count(lower, upper, loop)
    vectors, rest, is_left, masks = blocks.left(count)
    whole = put(arith.AddiOp(lower, vectors), "whole")
    Rewriter.insert_op(_by_vectors(loop, (lower, whole), blocks.lanes, blocks), before)
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
    guard = Guard(block, place.result, _NOWHERE, blocks.zero, blocks.filled)
    guard.put(lambda again: _is_set(block, masks[again], blocks))
    store_by_parts(tail, rest, blocks, blocks.helpers)


def _go_on(loop: scf.ParallelOp, blocks: Masks) -> None:
    """Lets a loop go to the end of a whole vector."""
    before, (lower, upper) = InsertPoint.before(loop), (loop.lowerBound[0], loop.upperBound[0])
    count = count_of(lower, upper)
    vectors = blocks.vectors(blocks.count(lower, upper, loop) if count is None else count)
    end = vectors if constant(lower) == 0 else arith.AddiOp(lower, vectors)
    if isinstance(end, arith.AddiOp):
        Rewriter.insert_op(end, before)
        end = end.result
    end.name_hint = "end"
    Rewriter.insert_op(_by_vectors(loop, (lower, end), WIDTH, blocks), before)
    Rewriter.erase_op(loop)


def _by_vectors(loop: scf.ParallelOp, bounds: Range, lanes: int, blocks: Masks) -> scf.ForOp | scf.ParallelOp:
    """
    The loop within bounds that are so many lanes apart, or several times as many, a vector at a time. Compilers, who do not see
    that, have code for what is left over of vectors, and ask for it in each row.
    """
    made = specialized(loop, {}, bounds)
    if not goes_along_memory(loop):
        return made
    block = Block(arg_types=[INDEX])
    block.args[0].name_hint = made.body.block.args[0].name_hint
    made.operands[0], made.operands[1] = blocks.number(0), blocks.number(lanes)
    _moved(made.body.block.args[0], block.args[0])
    block.add_ops([made, scf.YieldOp()])
    return scf.ForOp(*bounds, blocks.number(lanes), [], Region(block))


def _mask(loop: scf.ParallelOp, upper: int, blocks: Masks, may_repeat: bool) -> None:
    """
    Puts whole vectors and a masked one in the place of the loop, or where iterations may run twice one that overlaps them. Of
    masked vectors of two registers one would do everything, or nothing: where registers are narrower, one of them is masked.
    """
    lower = constant(loop.lowerBound[0])
    assert lower is not None
    lanes = WIDTH if may_repeat else blocks.lanes
    whole, room = (lower + (upper - lower) // width * width for width in (lanes, WIDTH))
    before = InsertPoint.before(loop)
    if whole > lower:
        Rewriter.insert_op(specialized(loop, {}, (loop.lowerBound[0], blocks.number(whole))), before)
    if whole < upper:
        tail = specialized(loop, {}, (blocks.number(0), blocks.number(lanes)))
        Rewriter.insert_op(tail, before)
        block = tail.body.block
        lane = block.args[0]
        begin = blocks.place(whole, upper - whole) if may_repeat else blocks.number(whole) if whole else None
        guard = Guard(block, _moved(lane, begin), room + WIDTH, blocks.zero)
        guard.put(lambda again: _is_set(block, blocks.mask(upper - whole, again, may_repeat), blocks))
        if not may_repeat:
            store_by_parts(tail, blocks.number(upper - whole), blocks, blocks.helpers)
    Rewriter.erase_op(loop)


def _overlap(loop: scf.ParallelOp, upper: int, blocks: Masks, vector: int) -> None:
    """Puts whole vectors of the narrowest elements and the last one, some elements of which were in one before, in the place of
    the loop."""
    lower = constant(loop.lowerBound[0])
    assert lower is not None
    touched = (op.memref for op in loop.body.block.ops if isinstance(op, (memref.LoadOp, memref.StoreOp)))
    lanes = vector // max(min(map(bytes_of, touched), default=NARROWEST), 1)
    width = lanes if WIDTH < lanes <= upper - lower else WIDTH
    whole = lower + (upper - lower) // width * width
    for bounds in ((lower, whole), (upper - width, upper)) if whole < upper else ((lower, upper),):
        part = specialized(loop, {}, (blocks.number(bounds[0]), blocks.number(bounds[1])))
        Rewriter.insert_op(part, InsertPoint.before(loop))
    Rewriter.erase_op(loop)


def _cut(loop: scf.ParallelOp, at: int, blocks: Masks) -> None:
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


def _is_set(block: Block, mask: SSAValue, blocks: Masks) -> Sequence[Operation]:
    """What asks whether the lane's bit is set."""
    bits = arith.ShRSIOp(mask, block.args[0])
    bit = arith.AndIOp(bits, blocks.number(1))
    return bits, bit, arith.CmpiOp(bit, blocks.number(0), "ne")
