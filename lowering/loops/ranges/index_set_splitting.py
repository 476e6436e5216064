"""Index-set splitting: a loop whose conditions change at known iterations becomes one loop for each stretch between them.

    scf.parallel (%i) = 0 to 113 { %a = load %x[max(%i - 1, 0)]; store select(%i >= 1, %a, 0), %y[%i] }

becomes

    scf.parallel (%i) = 0 to 1 { store 0, %y[%i] }
    scf.parallel (%i) = 1 to 113 { store load %x[%i - 1], %y[%i] }

Padding and concatenations are such loops. So are those over what is rolled or repeated, whose `(%i + 493) % 500` is `%i + 493` up
to 7 and `%i - 7` from there on. A bounded address is a gather in a vector loop, and machines have none of elements
below 32 bits: such loops ran one element at a time (Banerjee 1979; Griebl, Feautrier and Lengauer 2000).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntegerType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.inner_ops import inner_of
from fuse_opt.lowering.loops.ranges.unswitching import RARE
from fuse_opt.lowering.loops.specialization import specialized
from fuse_opt.lowering.loops.strip_mining import BlockLoops, constant

MOST_OPERATIONS = 600
"""Operations of all stretches."""
MOST_STRETCHES = 9
SHORTEST = 8
"""Iterations of the longest stretch, where that is known."""
UNKNOWN = 1 << 62
"""Where a loop without constant bounds may end."""

_Division: TypeAlias = arith.RemSIOp | arith.RemUIOp | arith.DivSIOp | arith.DivUIOp | arith.FloorDivSIOp
_PREDICATES = {2: "slt", 3: "sle", 4: "sgt", 5: "sge"}
_TURNED = {"slt": "sgt", "sle": "sge", "sgt": "slt", "sge": "sle"}
_ORDERED = {"slt": (False, 0), "sle": (False, 1), "sgt": (True, 1), "sge": (True, 0)}
"""By predicate on `x` and `c`: what it is from `x = c + offset` on, and that offset."""


def split_index_sets(body: Block, tasks: Extent) -> None:
    """Rewrites the function of a kernel of so many tasks in place; counters are never negative."""
    blocks = BlockLoops(body)
    loops = [op for op in inner_of(body, scf.ParallelOp) if is_splittable(op)]
    ends: dict[SSAValue, int] = {body.args[-1]: tasks} if isinstance(tasks, int) else {}
    stretches = [_Range.of(loop, ends) for loop in loops]
    for stretch in stretches:
        stretches += _split(stretch, blocks)


def is_splittable(loop: scf.ParallelOp) -> bool:
    """Whether it goes over one axis by ones, with nothing in it that goes over others, and no sum of its own."""
    inner = any(op.regions for op in list(loop.body.block.ops)[:-1])
    is_one_by_one = len(loop.step) == 1 and constant(loop.step[0]) == 1
    return is_one_by_one and not inner and not loop.initVals and RARE not in loop.attributes


@dataclass(frozen=True, slots=True)
class _Condition:
    """A comparison, or the bound of a number, that is decided by how far the counter is."""

    value: SSAValue
    reached: int
    holds: bool
    """For a comparison: what it is from `reached` on; for a bound: whether the number counts from there on."""
    ends: int
    """The contrary is so before this one, which is one later where number and bound are equal in between."""
    number: SSAValue | None = None
    """What is bounded."""
    bound: int = 0

    def within(self, start: int, end: int) -> bool | None:
        """`holds`, or the contrary, in all of a stretch."""
        if start >= self.reached:
            return self.holds
        return not self.holds if end <= self.ends else None


@dataclass(frozen=True, slots=True)
class _Range:
    """A loop, and the counters it is within: with constant bounds all of them."""

    loop: scf.ParallelOp
    start: int
    end: int

    @staticmethod
    def of(loop: scf.ParallelOp, ends: Mapping[SSAValue, int]) -> _Range:
        """`ends`: what values are at most."""
        upper = constant(loop.upperBound[0])
        most = ends.get(loop.upperBound[0], UNKNOWN)
        return _Range(loop, constant(loop.lowerBound[0]) or 0, most if upper is None else upper)


@dataclass(frozen=True, slots=True)
class _Digit:
    """The remainder or the quotient of `factor * counter + offset`, which is not negative, by a number."""

    op: _Division
    factor: int
    offset: int
    by: int

    def quotient(self, counter: int) -> int:
        return (self.factor * counter + self.offset) // self.by

    def cuts(self, whole: _Range) -> list[int] | None:
        """Where the quotient changes; None where that is often."""
        first, last = self.quotient(whole.start), self.quotient(whole.end - 1)
        if not abs(last - first) < MOST_STRETCHES:
            return None
        quotients = range(first + 1, last + 1) if last > first else range(last + 1, first + 1)
        return [_reached(self.factor, self.offset, quotient * self.by)[0] for quotient in quotients]

    def known(self, start: int, blocks: BlockLoops) -> SSAValue:
        """What it is from `start` on until the quotient changes; what is computed for that is before the division."""
        if not isinstance(self.op, arith.RemSIOp | arith.RemUIOp):
            return blocks.number(self.quotient(start))
        if (whole := self.quotient(start) * self.by) == 0:
            return self.op.lhs
        rest = arith.SubiOp(self.op.lhs, blocks.number(whole))
        Rewriter.insert_op(rest, InsertPoint.before(self.op))
        return rest.result


def _split(whole: _Range, blocks: BlockLoops) -> list[_Range]:
    """The loops of the stretches, which take the loop's place; nothing where there is one stretch, or too little gained."""
    loop = whole.loop
    ops = list(loop.body.block.ops)
    varies = None in (constant(loop.lowerBound[0]), constant(loop.upperBound[0]))
    conditions, digits = _conditions(ops, loop.body.block.args[0], whole)
    if all(condition.number is None for condition in conditions) and not digits:
        return []
    cuts = _cuts([each for each in conditions if each.within(whole.start, whole.end) is None])
    cuts = sorted({*cuts, *(cut for digit in digits for cut in digit.cuts(whole) or ())})
    if len(cuts) >= MOST_STRETCHES or (len(cuts) + 1) * len(ops) > MOST_OPERATIONS:
        return []
    ends = [whole.start, *cuts, whole.end]
    if max(end - start for start, end in pairwise(ends)) < SHORTEST:
        return []
    before = InsertPoint.before(loop)
    limits = [_limit(loop, cut, varies, blocks, before) for cut in cuts]
    limits = [loop.lowerBound[0], *limits, loop.upperBound[0]]
    made: list[_Range] = []
    for (start, end), bounds in zip(pairwise(ends), pairwise(limits), strict=True):
        known: dict[SSAValue, bool | SSAValue] = {}
        for condition in conditions:
            if (holds := condition.within(start, end)) is not None:
                known[condition.value] = holds
                if condition.number is not None:
                    known[condition.value] = condition.number if holds else blocks.number(condition.bound)
        known.update((digit.op.result, digit.known(start, blocks)) for digit in digits)
        made.append(_Range(specialized(loop, known, bounds), start, end))
        Rewriter.insert_op(made[-1].loop, before)
    Rewriter.erase_op(loop)
    return made


def _limit(loop: scf.ParallelOp, cut: int, varies: bool, blocks: BlockLoops, before: InsertPoint) -> SSAValue:
    """Where a stretch ends, within the bounds of the loop."""
    if not varies:
        return blocks.number(cut)
    least = arith.MinSIOp(blocks.number(cut), loop.upperBound[0])
    limit = arith.MaxSIOp(least, loop.lowerBound[0])
    for op in (least, limit):
        Rewriter.insert_op(op, before)
    return limit.result


def _cuts(conditions: Sequence[_Condition]) -> list[int]:
    """Where stretches begin: those of comparisons, and those of bounds that none of these decides."""
    cuts = {condition.reached for condition in conditions if condition.number is None}
    for bound in conditions:
        if bound.reached not in cuts and bound.ends not in cuts:
            cuts.add(bound.reached)
    return sorted(cuts)


def _conditions(ops: Sequence[Operation], counter: SSAValue, whole: _Range) -> tuple[list[_Condition], list[_Digit]]:
    """Those on a multiple of the counter and a number, none of which wraps in the loop, and what is divided of such."""
    affine: dict[SSAValue, tuple[int, int]] = {counter: (1, 0)}
    found: list[_Condition] = []
    digits: list[_Digit] = []
    for op in ops:
        terms = affine_terms(op, affine)
        if len(terms) != len(op.operands):
            continue
        match op:
            case arith.AddiOp() | arith.SubiOp() | arith.MuliOp() | arith.IndexCastOp():
                form = affine_form(op, terms)
                if form is not None and _is_exact(form, op.results[0], whole):
                    affine[op.results[0]] = form
            case arith.CmpiOp() if (terms[0][0] == 0) != (terms[1][0] == 0):
                found += _compared(op, *terms)
            case arith.MaxSIOp() | arith.MinSIOp() if op.result.type == IndexType():
                if (terms[0][0] == 0) != (terms[1][0] == 0):
                    found.append(_bounded(op, *terms))
            case arith.RemSIOp() | arith.RemUIOp() | arith.DivSIOp() | arith.DivUIOp() | arith.FloorDivSIOp():
                digits += _divided(op, terms, whole)
            case _:
                pass
    return found, digits


def _divided(op: _Division, terms: Sequence[tuple[int, int]], whole: _Range) -> list[_Digit]:
    (factor, offset), (none, by) = terms
    if op.result.type != IndexType() or factor == 0 or none != 0 or by < 1:
        return []
    digit = _Digit(op, factor, offset, by)
    least = min(factor * counter + offset for counter in (whole.start, max(whole.end - 1, whole.start)))
    return [digit] if least >= 0 and digit.cuts(whole) is not None else []


def affine_terms(op: Operation, affine: dict[SSAValue, tuple[int, int]]) -> list[tuple[int, int]]:
    """Factor and number of those operands that are affine in the counter; notes constants among them."""
    for operand in op.operands:
        if operand not in affine and (number := constant(operand)) is not None:
            affine[operand] = (0, number)
    return [affine[operand] for operand in op.operands if operand in affine]


def affine_form(op: Operation, terms: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Factor and number of what an operation makes of such."""
    if isinstance(op, arith.IndexCastOp):
        return terms[0]
    (a, b), (c, d) = terms
    match op:
        case arith.AddiOp():
            return a + c, b + d
        case arith.SubiOp():
            return a - c, b - d
        case _:
            return (a * d + c * b, b * d) if a == 0 or c == 0 else None


def _is_exact(form: tuple[int, int], value: SSAValue, whole: _Range) -> bool:
    """Whether the type holds the number for every counter of the loop; what wraps is no multiple of the counter."""
    kind = value.type
    half = 1 << (kind.bitwidth if isinstance(kind, IntegerType) else 64) - 1
    factor, number = form
    ends = (factor * counter + number for counter in (whole.start, max(whole.end - 1, whole.start)))
    return all(-half <= end < half for end in ends)


def _compared(op: arith.CmpiOp, lhs: tuple[int, int], rhs: tuple[int, int]) -> list[_Condition]:
    if (predicate := _PREDICATES.get(op.predicate.value.data)) is None:
        return []
    if lhs[0] == 0:
        lhs, rhs, predicate = rhs, lhs, _TURNED[predicate]
    above, step = _ORDERED[predicate]
    threshold, rises = _reached(*lhs, rhs[1] + step)
    return [_Condition(op.result, threshold, above == rises, threshold)]


def _bounded(op: arith.MaxSIOp | arith.MinSIOp, lhs: tuple[int, int], rhs: tuple[int, int]) -> _Condition:
    number = op.lhs
    if lhs[0] == 0:
        lhs, rhs, number = rhs, lhs, op.rhs
    factor, offset = lhs
    threshold, rises = _reached(factor, offset, rhs[1])
    first, last = threshold, threshold
    if rises:
        last += factor * threshold + offset == rhs[1]
    else:
        first -= factor * (threshold - 1) + offset == rhs[1]
    return _Condition(op.result, first, isinstance(op, arith.MaxSIOp) == rises, last, number, rhs[1])


def _reached(factor: int, offset: int, bound: int) -> tuple[int, bool]:
    """The counter from which on `factor * counter + offset >= bound` holds, or from which on it does no more."""
    if factor > 0:
        return -((offset - bound) // factor), True
    return (offset - bound) // -factor + 1, False
