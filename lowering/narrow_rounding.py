"""Rounding to f16 and bf16 between the ops of a kernel, in registers: a number narrowed and widened again stays an f32.

Ops that give one of their operands, or its negative, or an integer next to it, give a number that has the narrow type's
precision already: it stays as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from xdsl.dialects import arith, func, math, memref
from xdsl.dialects.builtin import AnyFloat, BFloat16Type, Float16Type, Float32Type, FloatAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

_NARROW: tuple[Attribute, ...] = (BFloat16Type(), Float16Type())
_CHOOSING = (
    arith.MaximumfOp,
    arith.MinimumfOp,
    arith.MaxnumfOp,
    arith.MinnumfOp,
    arith.SelectOp,
    arith.NegfOp,
    math.AbsFOp,
    math.CopySignOp,
    math.FloorOp,
    math.CeilOp,
    math.TruncOp,
    math.RoundEvenOp,
)
"""Ops whose result is one of their operands, but for its sign, or an integer next to one."""

Fitting = dict[SSAValue, frozenset[Attribute]]
"""By f32 value, the narrow types that have all numbers that it may be; NaN is in all."""


def round_in_registers(body: Block, helpers: dict[str, tuple[tuple[Attribute, ...], Attribute]]) -> None:
    """Rewrites the function of a kernel in place, and adds to `helpers` what it calls from then on."""
    fitting: Fitting = {}
    clean = "_clean" if _reads_no_wide_floats(body) else ""
    for op in list(body.walk()):
        if isinstance(op, arith.ExtFOp):
            _widen(op, fitting, helpers, clean)
        elif len(op.results) == 1 and isinstance(op.results[0].type, Float32Type):
            fitting[op.results[0]] = _fitting(op, fitting)


def keep_wide(body: Block) -> None:
    """Rewrites the function of a kernel in place: what is narrowed and widened again is not rounded at all."""
    for op in list(body.walk()):
        if not isinstance(op, arith.ExtFOp) or op.input.type not in _NARROW or op.result.first_use is None:
            continue
        narrowing = op.input.owner
        if isinstance(narrowing, arith.TruncFOp) and narrowing.input.type == op.result.type == Float32Type():
            Rewriter.replace_op(op, [], [narrowing.input])
            if narrowing.result.first_use is None:
                Rewriter.erase_op(narrowing)


def _reads_no_wide_floats(body: Block) -> bool:
    """Whether all floats come from bf16: then no NaN among them has digits that bf16 has not."""
    for op in body.walk():
        match op:
            case memref.LoadOp() if not isinstance(op.memref.owner, memref.AllocaOp):
                kind = op.res.type
            case arith.BitcastOp():
                kind = op.results[0].type
            case _:
                continue
        if isinstance(kind, AnyFloat) and not isinstance(kind, BFloat16Type):
            return False
    return True


def _widen(
    op: arith.ExtFOp, fitting: Fitting, helpers: dict[str, tuple[tuple[Attribute, ...], Attribute]], clean: str
) -> None:
    """Replaces a narrowing that is widened again by a rounding, or by what was narrowed where that fits."""
    kind, narrow, narrowing = op.result.type, op.input.type, op.input.owner
    if not isinstance(kind, Float32Type) or narrow not in _NARROW:
        return
    fitting[op.result] = frozenset([narrow])
    if not isinstance(narrowing, arith.TruncFOp) or narrowing.input.type != kind or op.result.first_use is None:
        return
    wide = narrowing.input
    if narrow in fitting.get(wide, ()):
        Rewriter.replace_op(op, [], [wide])
    else:
        helper = f"fo_round{clean if isinstance(narrow, BFloat16Type) else ''}_{narrow}"
        helpers.setdefault(helper, ((kind,), kind))
        call = func.CallOp(helper, [wide], [kind])
        call.res[0].name_hint = op.result.name_hint
        Rewriter.replace_op(op, call)
        fitting[call.res[0]] = frozenset([narrow])
    if narrowing.result.first_use is None:
        Rewriter.erase_op(narrowing)


def _fitting(op: Operation, fitting: Fitting) -> frozenset[Attribute]:
    """The narrow types that hold the op's result as it is."""
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, FloatAttr):
        return frozenset(kind for kind in _NARROW if _holds(kind, op.value.value.data))
    if not isinstance(op, _CHOOSING):
        return frozenset()
    chosen: Sequence[SSAValue] = op.operands[1:] if isinstance(op, arith.SelectOp) else op.operands
    return frozenset(kind for kind in _NARROW if all(kind in fitting.get(value, ()) for value in chosen))


def _holds(kind: Attribute, number: float) -> bool:
    """Whether a number that is an f32 is one of a narrow type."""
    try:
        if isinstance(kind, Float16Type):
            return struct.unpack("<e", struct.pack("<e", number))[0] == number or number != number
        return struct.unpack("<I", struct.pack("<f", number))[0] & 0xFFFF == 0 or number != number
    except OverflowError:
        return False
