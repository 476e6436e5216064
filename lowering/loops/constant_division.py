"""Divisions by constants that loops do without.

Some are multiplications in f64, which give the same bits: loops that divide and take roots wait for the one unit that does both,
while those that multiply and convert are idle.

For x and c of f32, x times the f64 nearest to 1 / c is within 2**-52 of x / c, relatively. The middle m of two neighbours
of f32 has 25 bits; where x / c is not m, x and c * m differ by a unit at least, so x / c and m by 2**-49. Where it is m, it
is no normal number, as c * m has 24 bits; c has as many such odd multiples as `is_exact_divisor` tries.

Where vectors have 256 bits, or more that are done by halves, conversions of one take as long as a division: there one of four
is a multiplication, which leaves the rest to the other unit. Which of both `fo_divided_f32` is, is decided where the text is
compiled.

Others are of numbers of rows, whose digits are carried from row to row, as an odometer has them.

    scf.for %row = %begin to %end { %x = %row floordiv 55; %y = %row mod 55; ... }

becomes

    scf.for %digit = %begin floordiv 55 to (%end + 54) floordiv 55 {
      scf.for %row = max(%begin, 55 * %digit) to min(%end, 55 * %digit + 55) { %x = %digit; %y = %row - 55 * %digit; ... }
    }

where rows are short: rows of 16 elements, permuted, take .78 to .95 of the time with it (Zen 3).
"""

from __future__ import annotations

from math import frexp, isfinite
from struct import pack, unpack

from xdsl.dialects import arith, func, math, scf
from xdsl.dialects.builtin import Float32Type, FloatAttr, f32, f64
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from fuse_opt.lowering.kernel.scope import INDEX
from fuse_opt.lowering.loops.strip_mining import BlockLoops, Helpers, constant, iterations

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


def divide_in_f64(body: Block, helpers: Helpers) -> None:
    """
    Rewrites the function of a kernel in place: in blocks with `FEWEST` of them half of divisions and roots at most, those beyond
    a quarter by the helper.
    """
    waiting: dict[Block, list[Operation]] = {}
    for op in body.walk():
        if not isinstance(op, arith.DivfOp | math.SqrtOp | math.RsqrtOp) or not isinstance(op.result.type, Float32Type):
            continue
        if op.parent is not None and op.parent is not body:
            waiting.setdefault(op.parent, []).append(op)
    for ops in waiting.values():
        count = sum(2 if isinstance(op, math.RsqrtOp) else 1 for op in ops)
        exact = [op for op in ops if isinstance(op, arith.DivfOp) and _has_exact_reciprocal(op)]
        for number, op in enumerate(exact[: count // 2 if count >= FEWEST else 0]):
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


def _constant(op: arith.DivfOp) -> float | None:
    owner = op.rhs.owner
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
