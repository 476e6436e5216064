"""Rounding to f16 and bf16 between the ops of a kernel, in registers: a number narrowed and widened again stays an f32."""

from __future__ import annotations

from xdsl.dialects import arith, func
from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type
from xdsl.ir import Attribute, Block
from xdsl.rewriter import Rewriter


def round_in_registers(body: Block, helpers: dict[str, tuple[tuple[Attribute, ...], Attribute]]) -> None:
    """Rewrites the function of a kernel in place, and adds to `helpers` what it calls from then on."""
    for op in list(body.walk()):
        if not isinstance(op, arith.ExtFOp) or not isinstance(narrowing := op.input.owner, arith.TruncFOp):
            continue
        if op.result.first_use is None:
            continue
        wide, kind, narrow = narrowing.input, op.result.type, op.input.type
        if not isinstance(kind, Float32Type) or wide.type != kind or not isinstance(narrow, Float16Type | BFloat16Type):
            continue
        helper = f"fo_round_{narrow}"
        helpers.setdefault(helper, ((kind,), kind))
        call = func.CallOp(helper, [wide], [kind])
        call.res[0].name_hint = op.result.name_hint
        Rewriter.replace_op(op, call)
        if narrowing.result.first_use is None:
            Rewriter.erase_op(narrowing)
