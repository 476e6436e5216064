"""Masks of what is left over of vectors, computed once at a function's start."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.dialects import arith, func
from xdsl.dialects.builtin import AnyFloat
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from fuse_opt.dialects.types.extents import exact_quotient
from fuse_opt.dialects.types.size import Size
from fuse_opt.lowering.kernel.scope import INDEX
from fuse_opt.lowering.loops.strip_mining import BlockLoops, Helpers
from fuse_opt.lowering.loops.vector_widths import HIDDEN_BITS, WIDTH

REPEATED_BITS, REPEATED_PLACE = "fo_repeated_bits", "fo_repeated_place"
"""What gives a mask, and where the last vector begins, of a loop whose iterations may run twice: all lanes of an earlier one,
where masked stores take long."""
EARLIER_PLACE = "fo_earlier_place"
"""The same place where it is not known whether there are as many elements as lanes."""


class Masks(BlockLoops):
    """Constants at the function's start, and masks as numbers that compilers do not know."""

    def __init__(self, body: Block, helpers: Helpers, lanes: int) -> None:
        super().__init__(body)
        self.helpers = helpers
        self.lanes = lanes
        self.filled: Collection[SSAValue] = ()
        """Memory that last vectors are stored to as a whole."""
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
        self._counts: dict[tuple[SSAValue, SSAValue], SSAValue] = {}
        self._vectors: dict[SSAValue, SSAValue] = {}
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

    def count(self, lower: SSAValue, upper: SSAValue, loop: Operation) -> SSAValue:
        """How many elements the loop has: as far outside of the loops around it as its bounds are known."""
        if (lower, upper) not in self._counts:
            outer, inner = _block_of(lower), _block_of(upper)
            known = inner if outer.is_ancestor(inner) else outer
            around = known.find_ancestor_op_in_block(loop)
            assert around is not None
            count = arith.SubiOp(upper, lower)
            Rewriter.insert_op(count, InsertPoint.before(around))
            self._counts[lower, upper] = count.result
        return self._counts[lower, upper]

    def vectors(self, count: SSAValue) -> SSAValue:
        """Lanes of the vectors that hold so many, behind what gives the count."""
        if count not in self._vectors:
            assert isinstance(count.owner, Operation)
            above = arith.AddiOp(count, self.number(WIDTH - 1))
            vectors = arith.AndIOp(above, self.number(-WIDTH))
            Rewriter.insert_op([above, vectors], InsertPoint.after(count.owner))
            self._vectors[count] = vectors.result
        return self._vectors[count]

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


def _block_of(value: SSAValue) -> Block:
    if isinstance(value.owner, Block):
        return value.owner
    assert value.owner.parent is not None
    return value.owner.parent
