"""Ends that are sizes: of a loop whose conditions hold up to some size one becomes for where all do, and one for the rest.

    scf.parallel (%i) = 0 to %n { store select(2 * %i < %w, load %x[min(2 * %i, %w - 1)], 0), %y[%i] }

becomes

    %end = max(min(%n, (%w + 1) / 2), 0)
    scf.parallel (%i) = 0 to %end { store load %x[2 * %i], %y[%i] }
    scf.parallel (%i) = %end to %n { store select(2 * %i < %w, load %x[min(2 * %i, %w - 1)], 0), %y[%i] }

as index-set splitting does where extents are numbers: windows at the ends of rows, say, of which the last ones are bounded.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from fuse_opt.lowering.inner_ops import inner_of
from fuse_opt.lowering.loops.ranges.index_set_splitting import MOST_OPERATIONS, SHORTEST, affine_form, affine_terms
from fuse_opt.lowering.loops.ranges.unswitching import RARE
from fuse_opt.lowering.loops.specialization import specialized
from fuse_opt.lowering.loops.strip_mining import BlockLoops, constant, iterations, one_by_one

_LESS = {2: 0, 3: 1}
"""By the number of a predicate, `<` and `<=`: what is added to the number on the right, so that it is `<`."""
_MORE = {4: 0, 5: 1}
"""The same with sides exchanged."""


@dataclass(frozen=True, slots=True)
class _Condition:
    """`factor * counter + offset < size`, or what always holds, and what an operation gives where that is so."""

    result: SSAValue
    factor: int
    offset: int
    size: SSAValue | None
    holds: bool | SSAValue


def split_sized_ends(body: Block, sizes: Collection[SSAValue]) -> None:
    """Rewrites the function of a kernel in place; `sizes` are arguments of it."""
    blocks = BlockLoops(body)
    for loop in inner_of(body, scf.ParallelOp):
        ops = list(loop.body.block.ops)
        if RARE in loop.attributes or loop.initVals or len(loop.step) != 1:
            continue
        if constant(loop.step[0]) != 1 or any(op.regions for op in ops[:-1]):
            continue
        found = _conditions(ops, loop.body.block.args[0], sizes)
        is_bounded = any(not isinstance(each.holds, bool) for each in found)
        if _is_short(loop):
            if iterations(loop) is None:
                Rewriter.replace_op(loop, one_by_one(loop), [])
        elif is_bounded and 2 * len(ops) <= MOST_OPERATIONS:
            _split(loop, found, blocks)


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


def _split(loop: scf.ParallelOp, conditions: Sequence[_Condition], blocks: BlockLoops) -> None:
    before = InsertPoint.before(loop)

    def put(op: Operation) -> SSAValue:
        Rewriter.insert_op(op, before)
        return op.results[0]

    end = loop.upperBound[0]
    for factor, offset, size in dict.fromkeys((each.factor, each.offset, each.size) for each in conditions):
        if size is None:
            continue
        last = put(arith.AddiOp(size, blocks.number(factor - 1 - offset))) if factor - 1 != offset else size
        last = put(arith.FloorDivSIOp(last, blocks.number(factor))) if factor > 1 else last
        end = put(arith.MinSIOp(end, last))
    end = put(arith.MaxSIOp(end, loop.lowerBound[0]))
    end.name_hint = "inside"
    known = {each.result: each.holds for each in conditions}
    for part in (specialized(loop, known, (loop.lowerBound[0], end)), specialized(loop, {}, (end, loop.upperBound[0]))):
        Rewriter.insert_op(part, before)
    Rewriter.erase_op(loop)


def _conditions(ops: Sequence[Operation], counter: SSAValue, sizes: Collection[SSAValue]) -> list[_Condition]:
    """Those on a multiple of the counter, more or less a number, and a size, which hold as long as the counter is small."""
    affine: dict[SSAValue, tuple[int, int]] = {counter: (1, 0)}
    found: list[_Condition] = []
    for op in ops:
        terms = affine_terms(op, affine)
        if isinstance(op, (arith.CmpiOp, arith.MinSIOp)):
            found += [*_asked(op, affine, sizes), *_always(op, affine)]
            continue
        is_known = isinstance(op, (arith.AddiOp, arith.MuliOp, arith.IndexCastOp)) and len(terms) == len(op.operands)
        if is_known and (form := affine_form(op, terms)) is not None:
            affine[op.results[0]] = form
    return found


def _asked(
    op: arith.CmpiOp | arith.MinSIOp, affine: dict[SSAValue, tuple[int, int]], sizes: Collection[SSAValue]
) -> list[_Condition]:
    for number, other, turned in ((op.lhs, op.rhs, False), (op.rhs, op.lhs, True)):
        factor, offset = affine.get(number, (0, 0))
        if factor < 1 or (size := _size(other, sizes)) is None:
            continue
        if isinstance(op, arith.CmpiOp):
            more = (_MORE if turned else _LESS).get(op.predicate.value.data)
            return [] if more is None else [_Condition(op.result, factor, offset - more, size, True)]
        return [_Condition(op.result, factor, offset - 1, size, number)] if op.result.type == IndexType() else []
    return []


def _always(op: Operation, affine: dict[SSAValue, tuple[int, int]]) -> list[_Condition]:
    """A comparison that holds for the counter 0, and for later ones, too: none is below 0."""
    if not isinstance(op, arith.CmpiOp) or (less := _MORE.get(op.predicate.value.data)) is None:
        return []
    (factor, offset), (other, number) = affine.get(op.lhs, (0, 0)), affine.get(op.rhs, (1, 0))
    holds = factor > 0 and other == 0 and offset + less > number
    return [_Condition(op.result, factor, offset, None, True)] if holds else []


def _size(value: SSAValue, sizes: Collection[SSAValue]) -> SSAValue | None:
    """The size that a value is, perhaps of another type."""
    value = value.owner.input if isinstance(value.owner, arith.IndexCastOp) else value
    return value if value in sizes else None
