"""Divisions by constants that loops do without.

Some are multiplications in f64, which give the same bits: loops that divide and take roots wait for the one unit that does both,
while those that multiply and convert are idle.

For x and c of f32, x times the f64 nearest to 1 / c is within 2**-52 of x / c, relatively. The middle m of two neighbours
of f32 has 25 bits; where x / c is not m, x and c * m differ by a unit at least, so x / c and m by 2**-49. Where it is m, it
is no normal number, as c * m has 24 bits; c has as many such odd multiples as `is_exact_divisor` tries.

Where vectors have 256 bits, or more that are done by halves, conversions of one take as long as a division: there one of four
is a multiplication, which leaves the rest to the other unit. Which of both `fo_divided_f32` is, is decided where the text is
compiled.

A quotient whose root is only added to a positive constant, as in Adam, is two products and a sum, rounded twice: x * h + x * l
where h + l is nearly 1 / c. Where `split_reciprocal` finds h and l these are the bits of a division but for quotients so small
that their roots are lost in the sum.

Others are of numbers of rows, whose digits are carried from row to row, as an odometer has them.

    scf.for %row = %begin to %end { %x = %row floordiv 55; %y = %row mod 55; ... }

becomes

    scf.for %digit = %begin floordiv 55 to (%end + 54) floordiv 55 {
      scf.for %row = max(%begin, 55 * %digit) to min(%end, 55 * %digit + 55) { %x = %digit; %y = %row - 55 * %digit; ... }
    }

where rows are short: rows of 16 elements, permuted, take .78 to .95 of the time with it (Zen 3).
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import frexp, inf, isfinite
from struct import pack, unpack

import numpy as np
from xdsl.dialects import arith, func, math, scf
from xdsl.dialects.builtin import Float32Type, FloatAttr, f32, f64
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from fuse_opt.lowering.inner_ops import inner_ops
from fuse_opt.lowering.kernel.scope import INDEX
from fuse_opt.lowering.loops.strip_mining import BlockLoops, Helpers, constant, iterations

ROOTED = "fo_rooted_quotient_f32"
"""The helper that gives quotients whose roots are added to constants."""
SMALLEST_SUMMAND = 2.0**-27
"""A constant to which roots of numbers below `LOST` add nothing: 2**-51.5 is less than half of a unit of its last place."""
LOST = 103
"""Two to the minus this: quotients that need not be exact."""
LEAST_ROOTED = 2.0**-20
"""The least divisor of such a quotient; the largest one is 1, so that only zero gives zero."""
FEWEST = 3
"""Divisions and roots of an iteration with which it is worth the conversions."""
DIVIDED = "fo_divided_f32"
"""The helper that divides or multiplies."""
MOST_TRIALS = 4096
"""Multiples of a constant that are tried; more have those of few digits."""
LONGEST = 64
"""Iterations of all loops of a row for which it pays."""
FEWEST_ROWS = 8
"""Rows between two that begin anew, for which it pays."""

_DIVIDING = (arith.DivfOp, math.SqrtOp, math.RsqrtOp)


def divide_in_f64(body: Block, helpers: Helpers) -> None:
    """
    Rewrites the function of a kernel in place: in blocks with `FEWEST` of them half of divisions and roots at most, those beyond
    a quarter by the helper.
    """
    waiting: dict[Block, list[Operation]] = {}
    for op in inner_ops(body):
        if type(op) not in _DIVIDING or not isinstance(op.results[0].type, Float32Type):
            continue
        if op.parent is not None and op.parent is not body:
            waiting.setdefault(op.parent, []).append(op)
    for ops in waiting.values():
        count = sum(2 if isinstance(op, math.RsqrtOp) else 1 for op in ops)
        rooted = [op for op in ops if isinstance(op, arith.DivfOp) and _replace_rooted(op, body, helpers)]
        left = [op for op in ops if op not in rooted]
        exact = [op for op in left if isinstance(op, arith.DivfOp) and _has_exact_reciprocal(op)]
        for number, op in enumerate(exact[: max(count // 2 - len(rooted), 0) if count >= FEWEST else 0]):
            if number < count // 4:
                _multiply(op, body)
            else:
                _ask(op, body, helpers)


def _has_exact_reciprocal(op: arith.DivfOp) -> bool:
    number = _constant(op)
    return number is not None and is_exact_divisor(number)


def is_exact_divisor(c: float) -> bool:
    """Whether every f32 divided by this one is its product with the f64 nearest to 1 / c, rounded."""
    if not isfinite(c) or abs(c) < 2.0**-126:
        return False
    odd = int(abs(frexp(c)[0]) * 2**24)
    odd //= odd & -odd
    most = 2**24 // odd
    return most <= MOST_TRIALS and all((m * c) * (1 / c) == m for m in range(1, most + 1, 2))


def _summand(op: arith.DivfOp) -> float | None:
    """The positive constant that a root of the quotient is added to, where nothing else is done with the quotient or the root."""
    root = _only_user(op.result)
    total = _only_user(root.result) if isinstance(root, math.SqrtOp) else None
    if not isinstance(total, arith.AddfOp):
        return None
    numbers = (_number(value) for value in total.operands)
    return next((each for each in numbers if each is not None and SMALLEST_SUMMAND <= each < inf), None)


def _only_user(value: SSAValue) -> Operation | None:
    uses = list(value.uses)
    return uses[0].operation if len(uses) == 1 else None


def split_reciprocal(c: float, summand: float) -> tuple[float, float] | None:
    """
    Two f32 of which the sum is nearly 1 / c, the first one below it, so that x * h + x * l (the second product rounded, then the
    sum) does for x / c where its root is added to a positive number, whichever f32 x is.

    Before it is rounded, the sum is within 2**-45 of x / c, relatively, where that is 2**-LOST or more; so near to the middle of
    two neighbours are the few x with |x * 2**s - c * m| <= 16 for an odd m, in units of their last places. These are tried, with
    every exponent with which x * l is no normal number (Brisebarre and Muller 2008: correctly rounded multiplication by arbitrary
    precision constants).
    """
    if not LEAST_ROOTED <= c <= 1.0:
        return None
    exact, scaled = Fraction(1) / Fraction(c), int(frexp(c)[0] * 2**24)
    high = _below(exact)
    low = nearest(exact - high)
    places = product((24, 25), range(-16, 17))
    tried = [x for shift, distance in places for x in _near_middles(scaled, shift, distance)]
    for x, exponent in product(tried, (*range(-LOST, -78), 0)):
        number = Fraction(x, scaled) * Fraction(c) * Fraction(2) ** exponent
        if _rooted(nearest(number * high + nearest(number * low)), summand) != _rooted(
            nearest(number * exact), summand
        ):
            return None
    return (float(high), float(low)) if low else None


def _rooted(quotient: Fraction, summand: float) -> np.float32:
    return np.sqrt(np.float32(quotient)) + np.float32(summand)


def _near_middles(c: int, shift: int, distance: int) -> list[int]:
    """Of 24 bits: all x with x * 2**shift - c * m = distance for an m of 25 bits that is odd."""
    step = c & -c
    if distance % step or not distance:
        return []
    modulus = (1 << shift) // step
    first = -(distance // step) * pow(c // step, -1, modulus) % modulus
    middles = range(first, 1 << 25, modulus)
    found = ((c * m + distance) >> shift for m in middles if m >= 1 << 24 and m % 2)
    return [x for x in found if 1 << 23 <= x < 1 << 24]


def nearest(number: Fraction) -> Fraction:
    """The nearest f32, halves to even; of magnitudes that are not too large for one."""
    if not number:
        return number
    unit = Fraction(2) ** (max(_exponent(number), -126) - 23)
    return round(number / unit) * unit


def _below(number: Fraction) -> Fraction:
    """The next f32 towards zero."""
    unit = Fraction(2) ** (_exponent(number) - 23)
    return number // unit * unit


def _exponent(number: Fraction) -> int:
    found = abs(number.numerator).bit_length() - number.denominator.bit_length()
    return found if abs(number) >= Fraction(2) ** found else found - 1


def _replace_rooted(op: arith.DivfOp, body: Block, helpers: Helpers) -> bool:
    number, summand = _constant(op), _summand(op)
    parts = None if number is None or summand is None else split_reciprocal(number, summand)
    if parts is None:
        return False
    high, low = (arith.ConstantOp(FloatAttr(part, f32)) for part in parts)
    Rewriter.insert_op([high, low], InsertPoint.at_start(body))
    helpers.setdefault(ROOTED, ((f32,) * 4, f32))
    call = func.CallOp(ROOTED, [op.lhs, op.rhs, high.result, low.result], [f32])
    call.results[0].name_hint = op.result.name_hint
    Rewriter.replace_op(op, call)
    return True


def _constant(op: arith.DivfOp) -> float | None:
    return _number(op.rhs)


def _number(value: SSAValue) -> float | None:
    """The f32 that it is, where that is constant."""
    owner = value.owner
    if not isinstance(owner, arith.ConstantOp) or not isinstance(owner.value, FloatAttr):
        return None
    try:
        return unpack("f", pack("f", owner.value.value.data))[0]
    except OverflowError:
        return None


def _multiply(op: arith.DivfOp, body: Block) -> None:
    number = _constant(op)
    assert number is not None
    reciprocal = arith.ConstantOp(FloatAttr(1 / number, f64))
    Rewriter.insert_op(reciprocal, InsertPoint.at_start(body))
    wide = arith.ExtFOp(op.lhs, f64)
    product = arith.MulfOp(wide.result, reciprocal.result)
    quotient = arith.TruncFOp(product.result, f32)
    quotient.result.name_hint = op.result.name_hint
    Rewriter.replace_op(op, [wide, product, quotient])


def _ask(op: arith.DivfOp, body: Block, helpers: Helpers) -> None:
    number = _constant(op)
    assert number is not None
    reciprocal = arith.ConstantOp(FloatAttr(1 / number, f64))
    Rewriter.insert_op(reciprocal, InsertPoint.at_start(body))
    helpers.setdefault(DIVIDED, ((f32, f32, f64), f32))
    call = func.CallOp(DIVIDED, [op.lhs, op.rhs, reciprocal.result], [f32])
    call.results[0].name_hint = op.result.name_hint
    Rewriter.replace_op(op, call)


def carry_digits(body: Block) -> None:
    """Rewrites the function of a kernel in place."""
    blocks = BlockLoops(body)
    for loop in list(body.ops):
        if isinstance(loop, scf.ForOp) and _is_of_short_rows(loop) and (least := _least_divisor(loop)) is not None:
            _nest(loop, least, blocks)


def _is_of_short_rows(loop: scf.ForOp) -> bool:
    """Whether a row is few iterations of loops, of which the numbers are known."""
    if loop.iter_args or constant(loop.step) != 1:
        return False
    inner = [op for op in loop.body.block.ops if op.regions]
    counts = [iterations(op) if isinstance(op, scf.ParallelOp) else None for op in inner]
    return bool(counts) and all(count is not None for count in counts) and sum(filter(None, counts)) <= LONGEST


def _divisions(loop: scf.ForOp) -> list[tuple[arith.DivSIOp | arith.RemSIOp, int]]:
    """Those of the number of a row by constants, which are known to have no sign."""
    row, found = loop.body.block.args[0], list[tuple[arith.DivSIOp | arith.RemSIOp, int]]()
    for op in loop.body.block.ops:
        if isinstance(op, (arith.DivSIOp, arith.RemSIOp)) and op.lhs is row and (by := constant(op.rhs)) is not None:
            found.append((op, by))
    return found


def _least_divisor(loop: scf.ForOp) -> int | None:
    """That of the digit that changes with every row, if all others are multiples of it."""
    divisors = [by for _, by in _divisions(loop)]
    least = min(divisors, default=0)
    return least if least >= FEWEST_ROWS and not any(by % least for by in divisors) else None


def _nest(loop: scf.ForOp, least: int, blocks: BlockLoops) -> None:
    """Puts a loop over all but the last digit around the loop."""
    number, before = blocks.number, InsertPoint.before(loop)

    def put(op: Operation, where: InsertPoint) -> SSAValue:
        Rewriter.insert_op(op, where)
        return op.results[0]

    begin = put(arith.DivSIOp(loop.lb, number(least)), before)
    end = put(arith.DivSIOp(put(arith.AddiOp(loop.ub, number(least - 1)), before), number(least)), before)
    outer = Block(arg_types=[INDEX])
    digit = outer.args[0]
    digit.name_hint = "digit"
    nest = scf.ForOp(begin, end, number(1), [], Region(outer))
    Rewriter.insert_op(nest, before)
    lower, upper = loop.lb, loop.ub
    loop.detach()
    outer.add_ops([loop, scf.YieldOp()])
    inside = InsertPoint.before(loop)
    first = put(arith.MuliOp(digit, number(least)), inside)
    loop.operands[0] = put(arith.MaxSIOp(lower, first), inside)
    loop.operands[1] = put(arith.MinSIOp(upper, put(arith.AddiOp(first, number(least)), inside)), inside)
    row = loop.body.block.args[0]
    for op, by in _divisions(loop):
        factor, at = by // least, InsertPoint.before(op)
        if isinstance(op, arith.DivSIOp):
            found = digit if factor == 1 else put(arith.DivSIOp(digit, number(factor)), inside)
        else:
            found = put(arith.SubiOp(row, first), at)
            if factor > 1:
                above = put(arith.RemSIOp(digit, number(factor)), inside)
                found = put(arith.AddiOp(put(arith.MuliOp(above, number(least)), inside), found), at)
        op.result.replace_all_uses_with(found)
        Rewriter.erase_op(op)
