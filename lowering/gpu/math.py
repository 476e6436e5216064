"""Functions of a GPU kernel by the hardware's approximations: where a result is rounded to 16 bits at once, or asked for.

The approximations are off by 2**-14 at most, which a result of f16 or bf16, rounded to 2**-11 or 2**-8, does not
show; so they are taken there in strict mode, too. What is multiplied or divided on before it is rounded keeps its relative error:
exponentials and sigmoids are approximated there by what gives numbers below the smallest normal one as well, as a factor may be
large. `math = "fast"` in a schedule takes them for f32, too. `docs/cuda.md` has the bounds. Rounding between ops stays in
registers, where it is one instruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import arith, func, math
from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from fuse_opt.lowering.hints import MODERATE
from fuse_opt.lowering.loops.excess_precision import keep_wide, round_in_registers
from fuse_opt.lowering.loops.fast_math import Helpers, multiply_by_reciprocal, sigmoid_argument

_MOST_STEPS = 8
_FAST: Mapping[type[Operation], str] = {math.ExpOp: "fast_exp", arith.DivfOp: "fast_divide", math.SqrtOp: "fast_sqrt"}


def shape_math(body: Block, helpers: Helpers, fast: bool, wide: bool) -> None:
    """
    Rewrites the function of a kernel in place, and adds to `helpers` what it calls from then on. Where numbers stay `wide` inside
    of it, the approximations are taken all the same where an op would round.
    """
    for op in list(body.walk()):
        if isinstance(op, arith.DivfOp):
            if (x := sigmoid_argument(op)) is not None:
                kind = "fast_" if fast or _is_rounded(op) else "near_" if _is_scaled(op) else ""
                _call(f"{kind}sigmoid", op, [x], helpers)
            elif fast:
                multiply_by_reciprocal(op)
            elif MODERATE in op.attributes and not _is_rounded(op):
                _call("moderate_reciprocal", op, [op.rhs], helpers)
    for op in list(body.walk()):
        if isinstance(op, math.TanhOp) and _is_rounded(op):
            _call("fast_tanh" if fast and _is_rounded(op, BFloat16Type) else "narrow_tanh", op, op.operands, helpers)
        elif isinstance(op, math.TanhOp):
            _call("tanh", op, op.operands, helpers)
        elif (name := _FAST.get(type(op))) is not None and (fast or _is_rounded(op)):
            _call(name, op, op.operands, helpers)
        elif isinstance(op, math.ExpOp) and _is_scaled(op):
            _call("near_exp", op, op.operands, helpers)
        elif isinstance(op, math.RsqrtOp) and MODERATE in op.attributes:
            _call("moderate_rsqrt", op, op.operands, helpers)
    if wide:
        keep_wide(body)
    round_in_registers(body, helpers)


def _is_rounded(op: Operation, narrow: type | tuple[type, ...] = (Float16Type, BFloat16Type)) -> bool:
    """Whether the op's result is only rounded to 16 bits, or to one type of these."""
    users = [use.operation for use in op.results[0].uses]
    return bool(users) and all(
        isinstance(user, arith.TruncFOp) and isinstance(user.result.type, narrow) for user in users
    )


def _is_scaled(op: Operation) -> bool:
    """Whether the op's result is only multiplied and divided on, in a few steps, and then rounded to 16 bits."""
    waiting, steps = [op], 0
    while waiting:
        users = [use.operation for use in waiting.pop().results[0].uses]
        for user in users:
            if isinstance(user, arith.TruncFOp) and isinstance(user.result.type, Float16Type | BFloat16Type):
                continue
            if not isinstance(user, arith.MulfOp | arith.DivfOp) or (steps := steps + 1) > _MOST_STEPS:
                return False
            waiting.append(user)
        if not users:
            return False
    return True


def _call(name: str, op: Operation, arguments: Sequence[SSAValue], helpers: Helpers) -> None:
    """The approximation in place of the op; there are those of f32 alone."""
    kind = op.results[0].type
    if not isinstance(kind, Float32Type):
        return
    helper = f"fo_{name}_f32"
    helpers.setdefault(helper, ((kind,) * len(arguments), kind))
    call = func.CallOp(helper, list(arguments), [kind])
    call.res[0].name_hint = op.results[0].name_hint
    Rewriter.replace_op(op, call)
