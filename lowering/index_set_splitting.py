"""Index-set splitting: a loop whose conditions change at known iterations becomes one loop for each stretch between them.

    scf.parallel (%i) = 0 to 113 { %a = load %x[max(%i - 1, 0)]; store select(%i >= 1, %a, 0), %y[%i] }

becomes

    scf.parallel (%i) = 0 to 1 { store 0, %y[%i] }
    scf.parallel (%i) = 1 to 113 { store load %x[%i - 1], %y[%i] }

and one whose body asks whether an outer loop is within the padding, two of which one asks no more. Padding and
concatenations are such loops. A bounded address is a gather in a vector loop, and machines have none of elements below 32
bits: such loops ran one element at a time (Banerjee 1979; Griebl, Feautrier and Lengauer 2000).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr, i1
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from .block_loops import BlockLoops, constant

MOST_OPERATIONS = 600
"""Operations of all stretches."""
MOST_STRETCHES = 9
SHORTEST = 8
"""Iterations of the longest stretch, where that is known."""
UNKNOWN = 1 << 62
"""Where a loop without constant bounds may end."""

_PREDICATES = {2: "slt", 3: "sle", 4: "sgt", 5: "sge"}
_TURNED = {"slt": "sgt", "sle": "sge", "sgt": "slt", "sge": "sle"}
_ORDERED = {"slt": (False, 0), "sle": (False, 1), "sgt": (True, 1), "sge": (True, 0)}
"""By predicate on `x` and `c`: what it is from `x = c + offset` on, and that offset."""


def split_index_sets(body: Block) -> None:
    """Rewrites the function of a kernel in place; counters are never negative."""
    blocks = BlockLoops(body)
    pending: list[scf.ParallelOp] = []
    for loop in [op for op in body.walk() if isinstance(op, scf.ParallelOp)]:
        inner = any(op.regions for op in list(loop.body.block.ops)[:-1])
        if len(loop.lowerBound) == 1 and not loop.initVals and constant(loop.step[0]) == 1 and not inner:
            pending += _apart(loop)
    stretches = [_Range.of(loop) for loop in pending]
    for stretch in stretches:
        stretches += _split(stretch, blocks)


def _apart(loop: scf.ParallelOp) -> list[scf.ParallelOp]:
    """Two loops, of which one is for where all holds that numbers are chosen by rather than constants and that does not
    vary in the loop; or the loop where nothing is of that kind."""
    block = loop.body.block
    asked = _asked(block)
    if not asked or 2 * len(list(block.ops)) > MOST_OPERATIONS:
        return [loop]
    before = InsertPoint.before(loop)
    values: dict[SSAValue, SSAValue] = {}
    for op in block.ops:
        if op in asked or (isinstance(op, arith.IndexCastOp) and not _is_within(op.input, block)):
            Rewriter.insert_op(op.clone(values), before)
    truths = {_meaning(op): values[op.result] for op in asked}
    truth, *others = truths.values()
    for other in others:
        both = arith.AndIOp(truth, other)
        Rewriter.insert_op(both, before)
        truth = both.result
    inside = _clone(loop, _Stretch(dict.fromkeys(asked, True), before).build(block))
    elsewhere = loop.clone()
    branches = [Region(Block([each, scf.YieldOp()])) for each in (inside, elsewhere)]
    Rewriter.replace_op(loop, scf.IfOp(truth, [], branches[0], branches[1]), [])
    return [inside, elsewhere]


def _asked(block: Block) -> list[arith.CmpiOp]:
    """The comparisons, by which a number or else a constant is chosen, of what does not vary in the loop."""
    found: dict[arith.CmpiOp, None] = {}
    for op in block.ops:
        if not isinstance(op, arith.SelectOp) or not isinstance(op.rhs.owner, arith.ConstantOp):
            continue
        stack = [op.cond]
        while stack:
            owner = stack.pop().owner
            if isinstance(owner, arith.AndIOp) and owner.parent is block:
                stack += [owner.rhs, owner.lhs]
            elif isinstance(owner, arith.CmpiOp) and not any(_is_within(_cast(v), block) for v in owner.operands):
                found[owner] = None
    return [op for op in found if op.parent is block]


def _meaning(op: arith.CmpiOp) -> Hashable:
    """Equal for comparisons that say the same."""
    sides = [_cast(value) for value in op.operands]
    return (op.predicate.value.data, *(value if (n := constant(value)) is None else n for value in sides))


def _cast(value: SSAValue) -> SSAValue:
    """What was converted from an index."""
    return value.owner.input if isinstance(value.owner, arith.IndexCastOp) else value


def _is_within(value: SSAValue, block: Block) -> bool:
    owner = value.owner
    return owner is block or (isinstance(owner, Operation) and owner.parent is block)


@dataclass(frozen=True, slots=True)
class _Condition:
    """A comparison, or the bound of a number, that is decided by how far the counter is."""

    op: Operation
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
    def of(loop: scf.ParallelOp) -> _Range:
        upper = constant(loop.upperBound[0])
        return _Range(loop, constant(loop.lowerBound[0]) or 0, UNKNOWN if upper is None else upper)


def _split(whole: _Range, blocks: BlockLoops) -> list[_Range]:
    """The loops of the stretches, which take the loop's place; nothing where there is one stretch, or too little gained."""
    loop, block = whole.loop, whole.loop.body.block
    ops = list(block.ops)
    varies = None in (constant(loop.lowerBound[0]), constant(loop.upperBound[0]))
    conditions = _conditions(ops, block.args[0])
    if all(condition.number is None for condition in conditions):
        return []
    cuts = _cuts([each for each in conditions if each.within(whole.start, whole.end) is None])
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
        known: dict[Operation, bool | SSAValue] = {}
        for condition in conditions:
            if (holds := condition.within(start, end)) is not None:
                known[condition.op] = holds
                if condition.number is not None:
                    known[condition.op] = condition.number if holds else blocks.number(condition.bound)
        made.append(_Range(_clone(loop, _Stretch(known, before).build(block), bounds), start, end))
        Rewriter.insert_op(made[-1].loop, before)
    Rewriter.erase_op(loop)
    return made


def _clone(loop: scf.ParallelOp, body: Block, bounds: tuple[SSAValue, SSAValue] | None = None) -> scf.ParallelOp:
    lower, upper = bounds or (loop.lowerBound[0], loop.upperBound[0])
    made = scf.ParallelOp([lower], [upper], list(loop.step), Region(body))
    made.attributes.update(loop.attributes)
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


def _conditions(ops: Sequence[Operation], counter: SSAValue) -> list[_Condition]:
    """Those on a multiple of the counter and a number."""
    affine: dict[SSAValue, tuple[int, int]] = {counter: (1, 0)}
    found: list[_Condition] = []
    for op in ops:
        for operand in op.operands:
            if operand not in affine and (number := constant(operand)) is not None:
                affine[operand] = (0, number)
        terms = [affine[operand] for operand in op.operands if operand in affine]
        if isinstance(op, arith.IndexCastOp) and terms:
            affine[op.result] = terms[0]
        if len(op.operands) != 2 or len(terms) != 2:
            continue
        (a, b), (c, d) = terms
        match op:
            case arith.AddiOp():
                affine[op.result] = (a + c, b + d)
            case arith.SubiOp():
                affine[op.result] = (a - c, b - d)
            case arith.MuliOp() if a == 0 or c == 0:
                affine[op.result] = (a * d + c * b, b * d)
            case arith.CmpiOp() if (a == 0) != (c == 0):
                found += _compared(op, (a, b), (c, d))
            case arith.MaxSIOp() | arith.MinSIOp() if (a == 0) != (c == 0) and op.result.type == IndexType():
                found.append(_bounded(op, (a, b), (c, d)))
            case _:
                pass
    return found


def _compared(op: arith.CmpiOp, lhs: tuple[int, int], rhs: tuple[int, int]) -> list[_Condition]:
    if (predicate := _PREDICATES.get(op.predicate.value.data)) is None:
        return []
    if lhs[0] == 0:
        lhs, rhs, predicate = rhs, lhs, _TURNED[predicate]
    above, step = _ORDERED[predicate]
    threshold, rises = _reached(*lhs, rhs[1] + step)
    return [_Condition(op, threshold, above == rises, threshold)]


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
    return _Condition(op, first, isinstance(op, arith.MaxSIOp) == rises, last, number, rhs[1])


def _reached(factor: int, offset: int, bound: int) -> tuple[int, bool]:
    """The counter from which on `factor * counter + offset >= bound` holds, or from which on it does no more."""
    if factor > 0:
        return -((offset - bound) // factor), True
    return (offset - bound) // -factor + 1, False


@dataclass
class _Stretch:
    """The body of a loop for a stretch of its iterations."""

    known: Mapping[Operation, bool | SSAValue]
    """What comparisons are, and the numbers that bounded ones are."""
    before: InsertPoint
    values: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    truths: dict[SSAValue, bool] = field(default_factory=dict[SSAValue, bool])

    def build(self, old: Block) -> Block:
        block = Block(arg_types=[old.args[0].type])
        block.args[0].name_hint = old.args[0].name_hint
        self.values[old.args[0]] = block.args[0]
        for op in old.ops:
            known = self.known.get(op)
            if isinstance(known, bool):
                self.truths[op.results[0]] = known
            elif known is not None:
                self.values[op.results[0]] = self.values.get(known, known)
            elif not self._fold(op):
                self._write_out(op)
                block.add_op(op.clone(self.values))
        _erase_unused(block)
        return block

    def _fold(self, op: Operation) -> bool:
        """Whether what is known gives the operation's result."""
        truths = self.truths
        match op:
            case arith.SelectOp() if op.cond in truths:
                chosen = op.lhs if truths[op.cond] else op.rhs
            case arith.AndIOp() | arith.OrIOp() if op.lhs in truths or op.rhs in truths:
                given, chosen = (op.lhs, op.rhs) if op.lhs in truths else (op.rhs, op.lhs)
                if truths[given] == isinstance(op, arith.OrIOp):
                    chosen = given
            case _:
                return False
        if chosen in truths:
            truths[op.results[0]] = truths[chosen]
        else:
            self.values[op.results[0]] = self.values.get(chosen, chosen)
        return True

    def _write_out(self, op: Operation) -> None:
        """What is known, where an operation needs its value."""
        for operand in op.operands:
            if operand in self.truths and operand not in self.values:
                truth = arith.ConstantOp(IntegerAttr(int(self.truths[operand]), i1))
                Rewriter.insert_op(truth, self.before)
                self.values[operand] = truth.result


def _erase_unused(block: Block) -> None:
    for op in reversed(list(block.ops)):
        pure = isinstance(op, memref.LoadOp) or op.name.startswith(("arith.", "math."))
        if pure and all(result.first_use is None for result in op.results):
            Rewriter.erase_op(op)
