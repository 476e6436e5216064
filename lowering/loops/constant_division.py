"""Some divisions by constants as multiplications in f64, which give the same bits: loops that divide and take roots wait for
the one unit that does both, while those that multiply and convert are idle.

For x and c of f32, x times the f64 nearest to 1 / c is within 2**-52 of x / c, relatively. The middle m of two neighbours
of f32 has 25 bits; where x / c is not m, x and c * m differ by a unit at least, so x / c and m by 2**-49. Where it is m, it
is no normal number, as c * m has 24 bits; c has as many such odd multiples as `is_exact_divisor` tries.

Where vectors have 256 bits, conversions of one take as long as a division: there one of four is a multiplication, which leaves
the rest to the other unit. Which of both `fo_divided_f32` is, is decided where the text is compiled.
"""

from __future__ import annotations

from math import frexp, isfinite
from struct import pack, unpack

from xdsl.dialects import arith, func, math
from xdsl.dialects.builtin import Float32Type, FloatAttr, f32, f64
from xdsl.ir import Block, Operation
from xdsl.rewriter import InsertPoint, Rewriter

from fuse_opt.lowering.loops.strip_mining import Helpers

FEWEST = 3
"""Divisions and roots of an iteration with which it is worth the conversions."""
DIVIDED = "fo_divided_f32"
"""The helper that divides or multiplies."""
MOST_TRIALS = 4096
"""Multiples of a constant that are tried; more have those of few digits."""


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
