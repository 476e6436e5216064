"""StableHLO ops that work on each element, and those that move elements without arithmetic."""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import BF16, BOOL, F16, F32, F64, I8, signed_of
from fuse_opt.frontends.builder import Emitter, Value, extents, rank
from fuse_opt.frontends.stablehlo.operators.op import HANDLERS, Handler, HloOp, Results, handler

SAME = {
    "stablehlo.abs": "abs",
    "stablehlo.atan2": "atan2",
    "stablehlo.cbrt": "cbrt",
    "stablehlo.ceil": "ceil",
    "stablehlo.cosine": "cos",
    "stablehlo.count_leading_zeros": "count_leading_zeros",
    "stablehlo.exponential": "exp",
    "stablehlo.exponential_minus_one": "expm1",
    "stablehlo.floor": "floor",
    "stablehlo.log": "log",
    "stablehlo.log_plus_one": "log1p",
    "stablehlo.logistic": "sigmoid",
    "stablehlo.negate": "negative",
    "stablehlo.popcnt": "bitwise_count",
    "stablehlo.power": "pow",
    "stablehlo.remainder": "fmod",
    "stablehlo.round_nearest_afz": "round_half_away",
    "stablehlo.round_nearest_even": "round",
    "stablehlo.rsqrt": "rsqrt",
    "stablehlo.shift_left": "bitwise_left_shift",
    "stablehlo.shift_right_arithmetic": "bitwise_right_shift",
    "stablehlo.shift_right_logical": "shift_right_logical",
    "stablehlo.sign": "sign",
    "stablehlo.sine": "sin",
    "stablehlo.sqrt": "sqrt",
    "stablehlo.subtract": "subtract",
    "stablehlo.tan": "tan",
    "stablehlo.tanh": "tanh",
    "chlo.acos": "acos",
    "chlo.acosh": "acosh",
    "chlo.asin": "asin",
    "chlo.asinh": "asinh",
    "chlo.atan": "atan",
    "chlo.atanh": "atanh",
    "chlo.bessel_i1e": "i1e",
    "chlo.cosh": "cosh",
    "chlo.digamma": "digamma",
    "chlo.erf": "erf",
    "chlo.erf_inv": "erfinv",
    "chlo.erfc": "erfc",
    "chlo.lgamma": "lgamma",
    "chlo.next_after": "nextafter",
    "chlo.sinh": "sinh",
    "chlo.square": "square",
    "chlo.tan": "tan",
}
"""Ops that are one record of the same operands."""

OF_TRUTH = {
    "stablehlo.add": ("add", "logical_or"),
    "stablehlo.and": ("bitwise_and", "logical_and"),
    "stablehlo.maximum": ("maximum", "logical_or"),
    "stablehlo.minimum": ("minimum", "logical_and"),
    "stablehlo.multiply": ("multiply", "logical_and"),
    "stablehlo.not": ("bitwise_not", "logical_not"),
    "stablehlo.or": ("bitwise_or", "logical_or"),
    "stablehlo.xor": ("bitwise_xor", "logical_xor"),
}
"""Ops that are one record of numbers, and another one of truth values."""

COMPARISONS = {
    "EQ": "equal",
    "GE": "greater_equal",
    "GT": "greater",
    "LE": "less_equal",
    "LT": "less",
    "NE": "not_equal",
}


def joined(g: Emitter, name: str, *operands: Value) -> Value:
    """An op of the table OF_TRUTH on values."""
    numbers, truth = OF_TRUTH[name]
    return g.all(truth if dtype(operands[0]) is BOOL else numbers, *operands)[0]


OF_SCALARS_SAME = ("stablehlo.broadcast_in_dim", "stablehlo.optimization_barrier", "stablehlo.reshape")
"""Ops that leave a scalar as it is."""


def ordered(g: Emitter, x: Value) -> Value:
    """Integers in the total order of floats: -NaN, -inf ... -0, 0 ... inf, NaN; integers are what they are."""
    element = dtype(x)
    if not element.is_float:
        return g.cast(x, I8) if element is BOOL else x
    whole = signed_of(element.bits)
    bits = g.bitcast(x, dtype=whole)
    sign = g.bitwise_right_shift(bits, g.number(element.bits - 1, whole))
    return g.bitwise_xor(bits, g.bitwise_and(sign, g.number(2 ** (element.bits - 1) - 1, whole)))


def _same(name: str) -> Handler:
    return lambda h, g: getattr(g, name)(*h.operands)


def _joined(name: str) -> Handler:
    return lambda h, g: joined(g, name, *h.operands)


HANDLERS.update({name: _same(graph_name) for name, graph_name in SAME.items()})
HANDLERS.update({name: _joined(name) for name in OF_TRUTH})


@handler("stablehlo.divide")
def divide(h: HloOp, g: Emitter) -> Results:
    """Of integers truncated towards zero."""
    x, y = h.operands
    return g.divide(x, y) if dtype(x).is_float else g.floor_divide(g.subtract(x, g.fmod(x, y)), y)


@handler("stablehlo.compare")
def compare(h: HloOp, g: Emitter) -> Results:
    x, y = ((g.cast(value, I8) if dtype(value) is BOOL else value) for value in h.operands)
    if "TOTALORDER" in h.words("compare_type"):
        x, y = ordered(g, x), ordered(g, y)
    return g.all(COMPARISONS[h.words("comparison_direction")], x, y)


@handler("stablehlo.select")
def select(h: HloOp, g: Emitter) -> Results:
    return g.where(*h.operands)


@handler("stablehlo.clamp")
def clamp(h: HloOp, g: Emitter) -> Results:
    low, x, high = h.operands
    return g.clip(x, low, high)


@handler("stablehlo.convert")
def convert(h: HloOp, g: Emitter) -> Results:
    return g.cast(h.operand(), h.dtype())


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


@handler("stablehlo.map")
def map_(h: HloOp, g: Emitter) -> Results:
    """The region at each element."""
    return h.apply(h.body, h.operands)


@handler("stablehlo.is_finite")
def is_finite(h: HloOp, g: Emitter) -> Results:
    return g.logical_not(g.logical_or(g.isinf(h.operand()), g.isnan(h.operand())))


@handler("stablehlo.constant")
def constant(h: HloOp, g: Emitter) -> Results:
    value = h.attributes.get("value")
    if not isinstance(value, DenseIntOrFPElementsAttr):
        raise h.refuse("expected dense elements; print the program with large_elements_limit=None")
    h.dtype()
    return g.constant(value=value)


@handler("stablehlo.iota", "stablehlo.dynamic_iota")
def iota(h: HloOp, g: Emitter) -> Results:
    return g.iota(shape=h.shape(), axis=h.integer("iota_dimension"), dtype=h.dtype())


@handler("stablehlo.optimization_barrier")
def optimization_barrier(h: HloOp, g: Emitter) -> Results:
    return list(h.operands)


@handler("stablehlo.custom_call")
def custom_call(h: HloOp, g: Emitter) -> Results:
    """Marks of sharding do nothing on one device; any other call is refused."""
    target = h.text("call_target_name")
    if target in ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"):
        return list(h.operands)
    raise h.refuse(f"calls '{target}', which is not part of the program; expected none")


@handler("stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim")
def broadcast_in_dim(h: HloOp, g: Emitter) -> Results:
    x, shape = h.operand(), h.shape()
    axes = h.integers("broadcast_dimensions")
    order = sorted(range(len(axes)), key=axes.__getitem__)
    if order != list(range(len(axes))):
        x = g.permute_dims(x, axes=order)
    inner = [1] * len(shape)
    for axis, extent in zip(sorted(axes), extents(x), strict=True):
        inner[axis] = extent
    first = next((number for number, extent in enumerate(inner) if extent != 1), len(inner))
    x = g.reshaped(x, inner[first:])
    return x if extents(x) == shape else g.broadcast_to(x, shape=shape)


@handler("stablehlo.reshape", "stablehlo.dynamic_reshape")
def reshape(h: HloOp, g: Emitter) -> Results:
    return g.reshaped(h.operand(), h.shape())


@handler("stablehlo.transpose")
def transpose(h: HloOp, g: Emitter) -> Results:
    return g.permute_dims(h.operand(), axes=h.integers("permutation"))


@handler("stablehlo.slice")
def slice_(h: HloOp, g: Emitter) -> Results:
    starts, stops, steps = (h.integers(name) for name in ("start_indices", "limit_indices", "strides"))
    return g.slice(h.operand(), starts=starts, stops=stops, steps=steps)


@handler("stablehlo.concatenate")
def concatenate(h: HloOp, g: Emitter) -> Results:
    return g.concat(*h.operands, axis=h.integer("dimension"))


@handler("stablehlo.reverse")
def reverse(h: HloOp, g: Emitter) -> Results:
    axes = h.integers("dimensions")
    return g.flip(h.operand(), axes=axes) if axes else h.operand()


@handler("stablehlo.pad")
def pad(h: HloOp, g: Emitter) -> Results:
    low, high, interior = (
        h.integers(f"{name}") for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    return padded_by(g, h.operand(), low, high, interior, h.operand(1), h.number(1))


@handler("stablehlo.dynamic_pad")
def dynamic_pad(h: HloOp, g: Emitter) -> Results:
    low, high, interior = (h.sizes(number) for number in (2, 3, 4))
    return padded_by(g, h.operand(), low, high, interior, h.operand(1), h.number(1))


def padded_by(
    g: Emitter, x: Value, low: list[int], high: list[int], interior: list[int], value: Value, number: float | None
) -> Value:
    """As `padded`, with a value that may not be known."""
    if number is not None:
        return padded(g, x, low, high, interior, number)
    inside = padded(g, g.number(1, BOOL, extents(x)), low, high, interior, 0)
    return g.where(inside, padded(g, x, low, high, interior, 0), value)


def padded(g: Emitter, x: Value, low: list[int], high: list[int], interior: list[int], number: float) -> Value:
    """Padding before, behind and, for each axis, `interior` times between neighbours; negative at the edges crops."""
    value = float(number) if dtype(x).is_float else int(number)
    for axis, between in enumerate(interior):
        if between and extents(x)[axis]:
            shape = list(extents(x))
            spread = g.pad(
                g.expand_dims(x, axes=[axis + 1]), pads=_one_axis(rank(x) + 1, axis + 1, between), value=value
            )
            flat = g.reshape(spread, shape=[*shape[:axis], shape[axis] * (between + 1), *shape[axis + 1 :]])
            stops = [*shape[:axis], shape[axis] * (between + 1) - between, *shape[axis + 1 :]]
            x = g.slice(flat, starts=[0] * len(shape), stops=stops)
    return g.pad(x, pads=[*low, *high], value=value) if any((*low, *high)) else x


def _one_axis(count: int, axis: int, after: int) -> list[int]:
    pads = [0] * 2 * count
    pads[count + axis] = after
    return pads


def flattened(g: Emitter, x: Value, groups: tuple[int, ...]) -> Value:
    """Neighbouring axes joined, as many in each group as it says."""
    shape, first, sizes = extents(x), 0, list[int]()
    for count in groups:
        sizes.append(prod(shape[first : first + count]))
        first += count
    return g.reshaped(x, sizes)


POINTWISE = frozenset(
    {
        *(name for name in (*SAME, *OF_TRUTH)),
        *(f"stablehlo.{name}" for name in ("divide", "compare", "select", "clamp", "convert", "is_finite", "constant")),
        *(f"stablehlo.{name}" for name in ("reduce_precision", "bitcast_convert")),
    }
)
"""Ops whose handlers work on each element, so that what a region says of scalars can be done with tensors."""
