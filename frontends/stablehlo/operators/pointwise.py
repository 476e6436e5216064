"""StableHLO ops that work on each element, and constants."""

from __future__ import annotations

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import BOOL, I8
from fuse_opt.frontends.builder import Emitter, Value
from fuse_opt.frontends.stablehlo.operators.bits import ordered
from fuse_opt.frontends.stablehlo.operators.floored import floored
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
    return g.quotient(x, y)


@handler("stablehlo.compare")
def compare(h: HloOp, g: Emitter) -> Results:
    if dtype(h.operand()) is BOOL and h.words("comparison_direction") == "NE":
        return g.logical_xor(*h.operands)
    x, y = ((g.cast(value, I8) if dtype(value) is BOOL else value) for value in h.operands)
    if "TOTALORDER" in h.words("compare_type"):
        x, y = ordered(g, x), ordered(g, y)
    return g.all(COMPARISONS[h.words("comparison_direction")], x, y)


@handler("stablehlo.select")
def select(h: HloOp, g: Emitter) -> Results:
    """Also floored quotients and remainders, which are made of truncated ones."""
    condition, x, y = h.operands
    return floored(g, condition, x, y) or g.where(condition, x, y)


@handler("stablehlo.clamp")
def clamp(h: HloOp, g: Emitter) -> Results:
    low, x, high = h.operands
    return g.clip(x, low, high)


@handler("stablehlo.convert")
def convert(h: HloOp, g: Emitter) -> Results:
    return g.cast(h.operand(), h.dtype())


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


POINTWISE = frozenset(
    {
        *(name for name in (*SAME, *OF_TRUTH)),
        *(f"stablehlo.{name}" for name in ("divide", "compare", "select", "clamp", "convert", "is_finite", "constant")),
        *(f"stablehlo.{name}" for name in ("reduce_precision", "bitcast_convert", "shift_right_arithmetic")),
    }
)
"""Ops whose handlers work on each element, so that what a region says of scalars can be done with tensors."""
