"""What `math = "fast"` in a kernel's schedule allows: approximations of more ULP, reciprocals, contraction.

A rewrite of a kernel's function of loops, so that the choice is seen in the IR. `docs/c.md` has the bounds. Special values
stay what they are: an infinity or a NaN goes in and comes out as in strict mode; results below the smallest normal
number may be 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import arith, func, math
from xdsl.dialects.builtin import Float32Type, Float64Type, FloatAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import MATH
from fuse_opt.lowering.hints import NONPOSITIVE

Helpers = dict[str, tuple[tuple[Attribute, ...], Attribute]]
"""Functions that are called, with the types of their arguments and result."""

_FAST: Mapping[type[Operation], str] = {math.ExpOp: "exp", math.ErfOp: "erf"}
_HELPERS = (
    *("fo_fast_exp_f32", "fo_fast_exp_f64", "fo_fast_exp_negative_f32"),
    *("fo_fast_sigmoid_f32", "fo_fast_sigmoid_f64", "fo_fast_erf_f32"),
)


def is_fast(kernel: KernelOp) -> bool:
    """Whether the kernel's schedule asks for it."""
    return MATH.word(kernel) == "fast"


def relax_math(body: Block, helpers: Helpers) -> None:
    """Rewrites the function of a kernel in place, and adds to `helpers` what it calls from then on."""
    for op in list(body.walk()):
        if isinstance(op, arith.DivfOp):
            if (argument := sigmoid_argument(op)) is None:
                multiply_by_reciprocal(op)
            elif _has_inverse_exponential(argument):
                _call("sigmoid", op, argument, helpers)
        elif isinstance(op, arith.AddfOp):
            _contract(op, helpers)
    for op in list(body.walk()):
        if (name := _FAST.get(type(op))) is not None:
            _call(f"{name}_negative" if NONPOSITIVE in op.attributes else name, op, op.operands[0], helpers)


def _has_inverse_exponential(x: SSAValue) -> bool:
    """Whether exp(-x) is computed, too: the exponential of its sigmoid."""
    negated = [use.operation.result for use in x.uses if isinstance(use.operation, arith.NegfOp)]
    return any(isinstance(use.operation, math.ExpOp) for value in negated for use in value.uses)


def _call(name: str, op: Operation, argument: SSAValue, helpers: Helpers) -> None:
    """A helper's value in place of the op's, where there is one for the type."""
    helper = f"fo_fast_{name}_{argument.type}"
    if helper not in _HELPERS:
        return
    helpers.setdefault(helper, ((argument.type,), argument.type))
    call = func.CallOp(helper, [argument], [argument.type])
    call.res[0].name_hint = op.results[0].name_hint
    Rewriter.replace_op(op, call)


def sigmoid_argument(op: arith.DivfOp) -> SSAValue | None:
    """x where the op is (x < 0 ? e : 1) / (1 + e) with e = exp(-|x|)."""
    select, total = op.lhs.owner, op.rhs.owner
    if not isinstance(select, arith.SelectOp) or not isinstance(total, arith.AddfOp):
        return None
    e, compare = select.lhs, select.cond.owner
    exp = e.owner
    if not isinstance(exp, math.ExpOp) or not _is(select.rhs, 1.0) or not isinstance(compare, arith.CmpfOp):
        return None
    negated = exp.operand.owner
    if not isinstance(negated, arith.NegfOp) or not isinstance(size := negated.operand.owner, math.AbsFOp):
        return None
    less = arith.CMPF_COMPARISON_OPERATIONS[compare.predicate.value.data] == "olt"
    joined = (_is(total.lhs, 1.0) and total.rhs is e) or (_is(total.rhs, 1.0) and total.lhs is e)
    x = size.operand
    return x if less and joined and compare.lhs is x and _is(compare.rhs, 0.0) else None


def _is(value: SSAValue, number: float) -> bool:
    owner = value.owner
    return (
        isinstance(owner, arith.ConstantOp)
        and isinstance(found := owner.value, FloatAttr)
        and found.value.data == number
    )


def multiply_by_reciprocal(op: arith.DivfOp) -> None:
    """A division by a constant, or by what an outer loop fixes, becomes a multiplication; the reciprocal is made there."""
    divisor, kind = op.rhs, op.rhs.type
    owner = divisor.owner
    home = owner if isinstance(owner, Block) else owner.parent
    if home is None or not isinstance(kind, Float32Type | Float64Type):
        return
    if isinstance(owner, arith.ConstantOp):
        if not _has_normal_reciprocal(owner):
            return
    elif home is op.parent:
        return
    one = arith.ConstantOp(FloatAttr(1.0, kind))
    reciprocal = arith.DivfOp(one.result, divisor)
    reciprocal.result.name_hint = "reciprocal"
    place = InsertPoint.at_start(owner) if isinstance(owner, Block) else InsertPoint.after(owner)
    Rewriter.insert_op([one, reciprocal], place)
    product = arith.MulfOp(op.lhs, reciprocal.result)
    product.result.name_hint = op.result.name_hint
    Rewriter.replace_op(op, product)


def _has_normal_reciprocal(constant: arith.ConstantOp) -> bool:
    """Whether neither the number nor its reciprocal is zero, infinite or below the smallest normal number."""
    value = constant.value
    return isinstance(value, FloatAttr) and 2.0**-126 <= abs(value.value.data) <= 2.0**126


def _contract(op: arith.AddfOp, helpers: Helpers) -> None:
    """a * b + c by one instruction, where the machine has it."""
    kind = op.result.type
    if not isinstance(kind, Float32Type | Float64Type):
        return
    for product, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        factor = product.owner
        if isinstance(factor, arith.MulfOp) and factor.parent is op.parent and product.has_one_use():
            helper = f"fo_mad_{kind}"
            helpers.setdefault(helper, ((kind,) * 3, kind))
            call = func.CallOp(helper, [factor.lhs, factor.rhs, other], [kind])
            call.res[0].name_hint = op.result.name_hint
            Rewriter.replace_op(op, call)
            Rewriter.erase_op(factor)
            return
