"""Index-set splitting where conditions change at sizes: a loop becomes one for each stretch between these.

    scf.parallel (%i) = 0 to %n { store select(2 * %i < %w, load %x[min(2 * %i, %w - 1)], 0), %y[%i] }

becomes

    %end = max(min(%n, (%w + 1) / 2), 0)
    scf.parallel (%i) = 0 to %end { store load %x[2 * %i], %y[%i] }
    scf.parallel (%i) = %end to %n { store 0, %y[%i] }

as where extents are numbers (`index_set_splitting`): windows at the ends of rows, say, of which the last ones are bounded, and
tensors one behind the other. Where it is not known for all sizes which of the ends comes first, there is one loop for where all
conditions are what they are for small counters, and one for the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from fuse_opt.dialects.types.extents import may_exceed
from fuse_opt.dialects.types.size import Extent, Undecided
from fuse_opt.lowering.inner_ops import inner_of
from fuse_opt.lowering.loops.ranges.index_set_splitting import MOST_OPERATIONS, MOST_STRETCHES, SHORTEST, is_splittable
from fuse_opt.lowering.loops.ranges.sized_conditions import Affine, Condition, sized_conditions
from fuse_opt.lowering.loops.specialization import specialized
from fuse_opt.lowering.loops.strip_mining import BlockLoops, constant, iterations, one_by_one


@dataclass(frozen=True, slots=True)
class _Cut:
    """A counter at which conditions change: as a size, and how it is computed."""

    at: Extent
    limit: Affine
    factor: int


@dataclass(frozen=True, slots=True)
class _Range:
    """A loop, and counters that its own are among."""

    loop: scf.ParallelOp
    start: Extent
    end: Extent | None
    """None where that is not known."""

    @staticmethod
    def of(loop: scf.ParallelOp, sizes: Mapping[SSAValue, Extent]) -> _Range:
        upper = loop.upperBound[0]
        return _Range(loop, constant(loop.lowerBound[0]) or 0, sizes.get(upper, constant(upper)))


def split_sized_ends(body: Block, sizes: Mapping[SSAValue, Extent]) -> None:
    """Rewrites the function of a kernel in place; `sizes` are arguments of it."""
    blocks = BlockLoops(body)
    ranges = [_Range.of(loop, sizes) for loop in inner_of(body, scf.ParallelOp) if is_splittable(loop)]
    for found in ranges:
        if not _is_short(found.loop):
            ranges += _split(found, sizes, blocks)
        elif iterations(found.loop) is None:
            Rewriter.replace_op(found.loop, one_by_one(found.loop), [])


def _is_short(loop: scf.ParallelOp) -> bool:
    """Whether it ends after a few iterations, as one that was split there before."""
    ends = [loop.upperBound[0]]
    while ends:
        owner = ends.pop().owner
        if isinstance(owner, (arith.MaxSIOp, arith.MinSIOp)):
            ends.append(owner.lhs)
        elif isinstance(owner, arith.ConstantOp):
            number = constant(owner.result)
            return number is not None and number < SHORTEST
    return False


def _split(whole: _Range, sizes: Mapping[SSAValue, Extent], blocks: BlockLoops) -> list[_Range]:
    """
    The loops of the stretches take the loop's place, where there are not too many. Those without these conditions, where others
    may show.
    """
    loop = whole.loop
    ops = list(loop.body.block.ops)
    conditions = sized_conditions(ops, loop.body.block.args[0], sizes)
    if not any(each.is_bound for each in conditions):
        return []
    always = _known(conditions, whole.start, whole.end)
    changing = [each for each in conditions if each.value not in always]
    cuts = _cuts(changing)
    if len(cuts) >= MOST_STRETCHES or (len(cuts) + 1) * len(ops) > MOST_OPERATIONS:
        return []
    before, lower, upper = InsertPoint.before(loop), loop.lowerBound[0], loop.upperBound[0]
    if (ordered := _in_order(cuts)) is not None:
        limits, ends = [lower], list[Extent]([whole.start])
        for cut in ordered:
            limits.append(_limit(cut, upper, limits[-1], blocks, before))
            ends.append(cut.at)
        last: Sequence[Extent | None] = [*ends[1:], whole.end]
        stretches = list(zip(pairwise([*limits, upper]), ends, last, strict=True))
        knowns = [always | _known(changing, start, end) for _, start, end in stretches]
    else:
        inside = upper
        for cut in cuts:
            inside = _limit(cut, inside, lower, blocks, before)
        stretches = [(bounds, whole.start, whole.end) for bounds in ((lower, inside), (inside, upper))]
        knowns = [always | {each.value: each.before for each in changing}, always]
    again: list[_Range] = []
    for (bounds, start, end), known in zip(stretches, knowns, strict=True):
        made = specialized(loop, known, bounds)
        Rewriter.insert_op(made, before)
        if len(known) == len(conditions):  # others would be asked in vain again
            again.append(_Range(made, start, end))
    Rewriter.erase_op(loop)
    return again


def _limit(cut: _Cut, upper: SSAValue, least: SSAValue, blocks: BlockLoops, before: InsertPoint) -> SSAValue:
    """Where a stretch ends, within the bounds of the loop."""

    def put(op: Operation) -> SSAValue:
        Rewriter.insert_op(op, before)
        return op.results[0]

    number = cut.limit.number + cut.factor - 1
    total: SSAValue | None = None
    for value, factor in cut.limit.parts:
        part = value if factor == 1 else put(arith.MuliOp(value, blocks.number(factor)))
        total = part if total is None else put(arith.AddiOp(total, part))
    if total is None:
        total = blocks.number(number)
    elif number:
        total = put(arith.AddiOp(total, blocks.number(number)))
    if cut.factor > 1:
        total = put(arith.FloorDivSIOp(total, blocks.number(cut.factor)))
    limit = put(arith.MaxSIOp(put(arith.MinSIOp(upper, total)), least))
    limit.name_hint = "inside"
    return limit


def _cuts(conditions: Sequence[Condition]) -> list[_Cut]:
    """Where stretches begin: those of comparisons, and those of bounds that none of these decides."""
    found: dict[Extent, _Cut] = {}
    for each in conditions:
        if not each.is_bound:
            found.setdefault(each.reached(), _Cut(each.reached(), each.limit, each.factor))
    for each in conditions:
        if each.is_bound and each.reached() not in found and (at := each.passed()) not in found:
            beyond = Affine(0, each.limit.offset + 1, each.limit.parts, each.limit.number + 1)
            found[at] = _Cut(at, beyond, each.factor)
    return list(found.values())


def _in_order(cuts: Sequence[_Cut]) -> list[_Cut] | None:
    """The cuts in the order that they have for all sizes; None where that is not known."""
    found = list[_Cut]()
    for cut in cuts:
        try:
            place = sum(other.at <= cut.at for other in found)
        except Undecided:
            return None
        found.insert(place, cut)
    return found


def _known(conditions: Sequence[Condition], start: Extent, end: Extent | None) -> dict[SSAValue, bool | SSAValue]:
    """What conditions are for counters from one on to another."""
    known: dict[SSAValue, bool | SSAValue] = {}
    for each in conditions:
        reached, passed = each.reached(), each.passed()
        if passed == start or not may_exceed(reached, start):
            known[each.value] = each.behind
        elif end is not None and (end == reached or not may_exceed(end, passed)):
            known[each.value] = each.before
    return known
