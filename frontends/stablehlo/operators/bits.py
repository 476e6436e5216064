"""StableHLO ops on the bits of each element."""

from __future__ import annotations

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import BF16, BOOL, F16, F32, F64, I8, Kind, signed_of
from fuse_opt.frontends.builder import Emitter, Value, rank
from fuse_opt.frontends.stablehlo.operators.op import HloOp, Results, handler


def ordered(g: Emitter, x: Value) -> Value:
    """Integers in the total order of floats: -NaN, -inf ... -0, 0 ... inf, NaN; integers are what they are."""
    element = dtype(x)
    if not element.is_float:
        return g.cast(x, I8) if element is BOOL else x
    whole = signed_of(element.bits)
    bits = g.bitcast(x, dtype=whole)
    sign = g.bitwise_right_shift(bits, g.number(element.bits - 1, whole))
    return g.bitwise_xor(bits, g.bitwise_and(sign, g.number(2 ** (element.bits - 1) - 1, whole)))


@handler("stablehlo.bitcast_convert")
def bitcast_convert(h: HloOp, g: Emitter) -> Results:
    """Of types of different widths by way of integers: the last axis counts the parts of the wider one, lowest first."""
    x, target = h.operand(), h.dtype()
    source = dtype(x)
    if source is target:
        return x
    if BOOL in (source, target):
        raise h.refuse("expected elements of at least 8 bits, got i1")
    if source.bits == target.bits:
        return g.bitcast(x, dtype=target)
    x = g.bitcast(x, dtype=source.unsigned) if source is not source.unsigned else x
    part, wide = sorted((source.unsigned, target.unsigned), key=lambda element: element.bits)
    x, axis = g.cast(x, wide), rank(x) - (source.bits == part.bits)
    shape = [*(1 for _ in range(axis)), wide.bits // part.bits]
    places = g.iota(shape=shape, axis=axis, dtype=wide, step=part.bits)
    if source.bits > target.bits:
        x = g.cast(g.shift_right_logical(g.expand_dims(x, axes=[rank(x)]), places), target.unsigned)
    else:
        x = g.sum(g.bitwise_left_shift(x, places), axes=[rank(x) - 1])
    return g.bitcast(x, dtype=target) if target is not target.unsigned else x


@handler("stablehlo.shift_right_arithmetic")
def shift_right_arithmetic(h: HloOp, g: Emitter) -> Results:
    """With copies of the first bit, which is none of a sign in unsigned integers."""
    x, by = h.operands
    if dtype(x).kind is not Kind.UINT:
        return g.bitwise_right_shift(x, by)
    most = dtype(x).bits - 1
    by = g.minimum(by, g.like(most, by))  # what is beyond all bits would be negative
    signed = signed_of(dtype(x).bits)
    return g.bitcast(g.bitwise_right_shift(g.bitcast(x, dtype=signed), g.bitcast(by, dtype=signed)), dtype=dtype(x))


@handler("stablehlo.reduce_precision")
def reduce_precision(h: HloOp, g: Emitter) -> Results:
    """
    On the bits, as kernels may leave out casts there and back: the mantissa to nearest, halves to even; what is too large is
    infinite, what is too small zero.
    """
    x, exponent, mantissa = h.operand(), h.integer("exponent_bits"), h.integer("mantissa_bits")
    element = dtype(x)
    own_mantissa = {F16: 10, BF16: 7, F32: 23, F64: 52}[element]
    own_exponent = element.bits - 1 - own_mantissa
    if exponent >= own_exponent and mantissa >= own_mantissa:
        return x
    whole = element.unsigned
    bits = g.bitcast(x, dtype=whole)
    if mantissa < own_mantissa:
        dropped = own_mantissa - mantissa
        odd = g.bitwise_and(g.shift_right_logical(bits, g.number(dropped, whole)), g.number(1, whole))
        bits = g.add(bits, g.add(odd, g.number((1 << dropped - 1) - 1, whole)))
        bits = g.bitwise_and(bits, g.number((1 << element.bits) - (1 << dropped), whole))
    if exponent < own_exponent:
        bits = _within_exponents(g, bits, exponent, own_exponent, own_mantissa)
    nan = x if mantissa > 0 else g.like(float("inf"), x)
    return g.where(g.isnan(x), nan, g.bitcast(bits, dtype=element))


def _within_exponents(g: Emitter, bits: Value, exponent: int, own_exponent: int, own_mantissa: int) -> Value:
    """The pattern, infinite or zero with its sign where its exponent is beyond those of so many bits."""
    whole = dtype(bits)
    bias, reduced = (1 << own_exponent - 1) - 1, (1 << exponent - 1) - 1
    field = ((1 << own_exponent) - 1) << own_mantissa
    found = g.bitwise_and(bits, g.number(field, whole))
    zero = g.bitwise_and(bits, g.number(1 << whole.bits - 1, whole))
    too_large = g.greater(found, g.number((bias + reduced) << own_mantissa, whole))
    too_small = g.less_equal(found, g.number((bias - reduced) << own_mantissa, whole))
    return g.where(too_small, zero, g.where(too_large, g.bitwise_or(zero, g.number(field, whole)), bits))
