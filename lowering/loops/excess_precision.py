"""Rounding to f16 and bf16 between the ops of a kernel, in registers: a number narrowed and widened again stays an f32.

Ops that give one of their operands, or its negative, or an integer next to it, give a number that has the narrow type's
precision already: it stays as it is. What is only chosen and stored stays narrow: bits are moved.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import frexp

import numpy as np
from xdsl.dialects import arith, func, math, memref
from xdsl.dialects.builtin import AnyFloat, BFloat16Type, Float16Type, Float32Type, FloatAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import PRECISION
from fuse_opt.lowering.inner_ops import inner_of, inner_ops
from fuse_opt.lowering.program.float_formats import narrow, widen

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

_CHOSEN = (arith.ExtFOp, arith.SelectOp, arith.TruncFOp)
LEAST_FACTOR = 2.0**-100
"""A power of two that is still one of f32 times 2**-16."""

Fitting = dict[SSAValue, frozenset[Attribute]]
"""By f32 value, the narrow types that have all numbers that it may be; NaN is in all."""


def round_in_registers(body: Block, helpers: dict[str, tuple[tuple[Attribute, ...], Attribute]]) -> None:
    """Rewrites the function of a kernel in place, and adds to `helpers` what it calls from then on."""
    ops = inner_ops(body)
    if not any(type(op) is arith.ExtFOp for op in ops):
        return
    fitting: Fitting = {}
    clean = "_clean" if _reads_no_wide_floats(body) else ""
    for op in ops:
        if isinstance(op, arith.ExtFOp):
            _widen(op, fitting, helpers, clean)
        elif len(op.results) == 1 and isinstance(op.results[0].type, Float32Type):
            fitting[op.results[0]] = _fitting(op, fitting)


def store_clean(body: Block, helpers: dict[str, tuple[tuple[Attribute, ...], Attribute]]) -> None:
    """Rewrites the function of a kernel in place: bf16 numbers are narrowed without a look for NaN that bf16 has not, and
    what bf16 has without rounding."""
    ops = inner_ops(body)
    if not any(type(op) is arith.TruncFOp for op in ops) or not _reads_no_wide_floats(body):
        return
    fitting: Fitting = {}
    for op in ops:
        if isinstance(op, arith.ExtFOp) and op.input.type in _NARROW:
            fitting[op.result] = frozenset([op.input.type])
        elif isinstance(op, func.CallOp) and op.callee.string_value() == "fo_round_clean_bf16":
            fitting[op.res[0]] = frozenset([BFloat16Type()])
        elif isinstance(op, arith.TruncFOp) and (op.input.type, op.result.type) == (Float32Type(), BFloat16Type()):
            exact = BFloat16Type() in fitting.get(op.input, ())
            helper = "fo_exact_f32_to_bf16" if exact else "fo_clean_f32_to_bf16"
            helpers.setdefault(helper, ((Float32Type(),), BFloat16Type()))
            call = func.CallOp(helper, [op.input], [BFloat16Type()])
            call.res[0].name_hint = op.result.name_hint
            Rewriter.replace_op(op, call)
        elif len(op.results) == 1 and isinstance(op.results[0].type, Float32Type):
            fitting[op.results[0]] = _fitting(op, fitting)


def choose_narrow(body: Block) -> None:
    """Rewrites the function of a kernel in place: what is narrowed after a choice among widened numbers is chosen narrow."""
    widened: dict[SSAValue, SSAValue] = {}
    for op in [op for op in inner_ops(body) if type(op) in _CHOSEN]:
        match op:
            case arith.ExtFOp() if op.input.type in _NARROW and op.result.type == Float32Type():
                _widen_constant(op)
                if op.parent is not None:
                    widened[op.result] = op.input
            case arith.SelectOp() if op.lhs in widened or op.rhs in widened:
                kind = widened[op.lhs if op.lhs in widened else op.rhs].type
                lhs, rhs = (_narrow_form(value, kind, widened) for value in (op.lhs, op.rhs))
                if lhs is not None and rhs is not None:
                    choice = arith.SelectOp(op.cond, lhs, rhs)
                    choice.result.name_hint = op.result.name_hint
                    Rewriter.insert_op(choice, InsertPoint.after(op))
                    widened[op.result] = choice.result
            case arith.TruncFOp() if (form := _narrow_form(op.input, op.result.type, widened)) is not None:
                Rewriter.replace_op(op, [], [form])
            case _:
                pass
    _erase_unread(widened)


def _narrow_form(value: SSAValue, kind: Attribute, widened: dict[SSAValue, SSAValue]) -> SSAValue | None:
    """What narrowing gives, where that is there or the number is a constant."""
    if value in widened:
        return widened[value] if widened[value].type == kind else None
    owner = value.owner
    if not (isinstance(owner, arith.ConstantOp) and isinstance(owner.value, FloatAttr)):
        return None
    if not isinstance(kind, BFloat16Type | Float16Type) or value.type != Float32Type():
        return None
    constant = arith.ConstantOp(FloatAttr(_nearest(kind, owner.value.value.data), kind))
    Rewriter.insert_op(constant, InsertPoint.after(owner))
    widened[value] = constant.result
    return constant.result


def _widen_constant(op: arith.ExtFOp) -> None:
    """Replaces a widened constant by one."""
    owner = op.input.owner
    if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, FloatAttr):
        constant = arith.ConstantOp(FloatAttr(owner.value.value.data, Float32Type()))
        Rewriter.insert_op(constant, InsertPoint.after(owner))
        Rewriter.replace_op(op, [], [constant.result])


def _nearest(kind: Attribute, number: float) -> float:
    """The number of a narrow type that is nearest to one of f32."""
    with np.errstate(all="ignore"):
        wide = np.float32(number)
        return float(wide.astype(np.float16) if isinstance(kind, Float16Type) else widen(narrow(wide, "bf16")))


def _erase_unread(widened: dict[SSAValue, SSAValue]) -> None:
    """Of each choice and constant, the form that nothing needs, users first."""
    for forms in reversed(widened.items()):
        for each in forms:
            owner = each.owner
            if isinstance(owner, arith.SelectOp | arith.ExtFOp | arith.ConstantOp) and each.first_use is None:
                Rewriter.erase_op(owner)


def keeps_excess(kernel: KernelOp) -> bool:
    """Whether the kernel's schedule says that f16 and bf16 are rounded at its results alone."""
    return PRECISION.word(kernel) == "kernel"


def keep_wide(body: Block) -> None:
    """Rewrites the function of a kernel in place: what is narrowed and widened again is not rounded at all."""
    for op in inner_of(body, arith.ExtFOp):
        if op.input.type not in _NARROW or op.result.first_use is None:
            continue
        narrowing = op.input.owner
        if isinstance(narrowing, arith.TruncFOp) and narrowing.input.type == op.result.type == Float32Type():
            Rewriter.replace_op(op, [], [narrowing.input])
            if narrowing.result.first_use is None:
                Rewriter.erase_op(narrowing)


def _reads_no_wide_floats(body: Block) -> bool:
    """Whether all floats come from bf16: then no NaN among them has digits that bf16 has not."""
    for op in inner_ops(body):
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
    wide = _scaled(narrowing, fitting)
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
        product = narrowing.input.owner
        Rewriter.erase_op(narrowing)
        if wide.owner is not product and isinstance(product, arith.MulfOp) and product.result.first_use is None:
            Rewriter.erase_op(product)


def _scaled(narrowing: arith.TruncFOp, fitting: Fitting) -> SSAValue:
    """What is narrowed; a bf16 number times a power of two below one by two products, the first of which rounds.

    Of the product, only what is below the least normal number loses digits: times 2**-16, f32 loses them as bf16 does."""
    wide, product = narrowing.input, narrowing.input.owner
    factor = _power_of_two(product, fitting)
    if factor is None or not isinstance(product, arith.MulfOp) or narrowing.result.type != BFloat16Type():
        return wide
    if not LEAST_FACTOR <= abs(factor) < 1.0:
        return wide
    number = product.rhs if isinstance(product.lhs.owner, arith.ConstantOp) else product.lhs
    first, back = (arith.ConstantOp(FloatAttr(value, Float32Type())) for value in (factor * 2.0**-16, 2.0**16))
    rounded = arith.MulfOp(number, first.result)
    result = arith.MulfOp(rounded.result, back.result)
    result.result.name_hint = wide.name_hint
    Rewriter.insert_op([first, back, rounded, result], InsertPoint.after(product))
    fitting[result.result] = frozenset([BFloat16Type()])
    return result.result


def _power_of_two(op: Operation | Block, fitting: Fitting) -> float | None:
    """The constant power of two that a bf16 number is multiplied by."""
    if not isinstance(op, arith.MulfOp):
        return None
    for number, factor in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        owner = factor.owner
        if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, FloatAttr):
            value = owner.value.value.data
            if BFloat16Type() in fitting.get(number, ()) and abs(frexp(value)[0]) == 0.5:
                return value
    return None


def _fitting(op: Operation, fitting: Fitting) -> frozenset[Attribute]:
    """The narrow types that hold the op's result as it is."""
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, FloatAttr):
        return frozenset(kind for kind in _NARROW if _holds(kind, op.value.value.data))
    if abs(_power_of_two(op, fitting) or 0.0) >= 1.0:
        return frozenset([BFloat16Type()])
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
