"""StableHLO ops that reduce: reduce and reduce_window with their regions, sort, dot_general."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod

from xdsl.ir import Block, Operation

from fuse_opt.dialects.graph.reductions.reductions import extreme
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import BF16, BOOL, F16, F32, I8, I32, I64, U8, Kind
from fuse_opt.frontends.builder import Emitter, Value, extents, rank
from fuse_opt.frontends.stablehlo.operators.bits import ordered
from fuse_opt.frontends.stablehlo.operators.movement import flattened, padded, padded_by
from fuse_opt.frontends.stablehlo.operators.op import HloOp, Results, attributes_of, handler, name_of
from fuse_opt.frontends.stablehlo.operators.pointwise import joined
from fuse_opt.frontends.stablehlo.operators.regions import (
    arg_direction,
    combiner,
    order_of,
    places,
    reduced,
    region_of,
    windowed,
    windowed_in_order,
)

REDUCTIONS = {
    "stablehlo.add": ("sum", 0.0),
    "stablehlo.multiply": ("prod", 1.0),
    "stablehlo.maximum": ("max", -math.inf),
    "stablehlo.minimum": ("min", math.inf),
}
OF_TRUTH = {
    "stablehlo.and": ("all", 1.0),
    "stablehlo.minimum": ("all", 1.0),
    "stablehlo.or": ("any", 0.0),
    "stablehlo.maximum": ("any", 0.0),
}
RUNNING = {"stablehlo.add": "cumulative_sum", "stablehlo.multiply": "cumulative_prod"}
SCATTERED = {
    **{"stablehlo.add": "add", "stablehlo.multiply": "mul", "stablehlo.maximum": "max", "stablehlo.minimum": "min"},
    **{"stablehlo.or": "max", "stablehlo.and": "min"},
}
"""Of numbers; of truth values, which are 0 and 1 then, the last four."""
LONGEST_COMPARED = 8192
"""Elements of a line that are each compared with all others."""
_FEW = 16
"""Elements of a window that a region joins one after another."""
WINDOWS = {"stablehlo.add": "window_sum", "stablehlo.maximum": "window_max", "stablehlo.minimum": "window_min"}


@handler("stablehlo.reduce")
def reduce(h: HloOp, g: Emitter) -> Results:
    """One record where the region is one word, or that of argmax and argmin; else by the region itself, in pairs."""
    axes, count = h.integers("dimensions"), len(h.operands) // 2
    values, initial = h.operands[:count], h.operands[count:]
    combine, table = combiner(h.body), OF_TRUTH if dtype(values[0]) is BOOL else REDUCTIONS
    if count == 1 and combine in table:
        return _reduction(h, g, axes, combine, *table[combine])
    if count == 2 and (found := _arg_reduction(h, g, axes)) is not None:
        return found
    return reduced(g, region_of(h), values, initial, axes)


def _reduction(h: HloOp, g: Emitter, axes: list[int], combine: str, name: str, neutral: float) -> Results:
    x, initial = h.operands
    if not axes:
        return joined(g, combine, x, initial)
    if name in ("max", "min") and 0 in extents(x):
        return g.broadcast_to(initial, shape=[n for axis, n in enumerate(extents(x)) if axis not in axes])
    y = g.all(name, x, axes=axes)[0]
    return y if _is_neutral(h.number(1), neutral, x) else joined(g, combine, y, initial)


def _is_neutral(number: float | None, neutral: float, x: Value) -> bool:
    """Whether a start value changes nothing; of integers the limits of the type stand for the infinities."""
    if number is None:
        return False
    if math.isinf(neutral) and not dtype(x).is_float:
        return number == extreme(dtype(x), neutral > 0)
    return number == neutral


def _arg_reduction(h: HloOp, g: Emitter, axes: list[int]) -> Results | None:
    """A reduction of values and their positions by argmax or argmin; None for another one, and for other start values."""
    x, positions = h.operands[:2]
    counted = h.op.operands[1].owner
    direction = arg_direction(h, h.body) if dtype(positions).kind in (Kind.INT, Kind.UINT) else None
    if direction is None or len(axes) != 1 or not _counts_along(counted, axes[0]) or 0 in extents(x):
        return None
    largest = direction == "GT"
    is_truth = dtype(x) is BOOL
    neutral = h.number(2) == (not largest) if is_truth else _is_neutral(h.number(2), _least(largest), x)
    if not neutral or h.number(3) != 0:
        return None
    compared = g.cast(x, I8) if is_truth else x
    values = (g.max if largest else g.min)(compared, axes=axes)
    places = (g.argmax if largest else g.argmin)(compared, axis=axes[0])
    return [g.cast(values, dtype(x)), g.cast(places, h.dtype(1))]


def _least(largest: bool) -> float:
    """What every number is at least as much as; or else as little."""
    return -math.inf if largest else math.inf


def _counts_along(owner: Operation | Block, axis: int) -> bool:
    if not isinstance(owner, Operation) or name_of(owner) != "stablehlo.iota":
        return False
    return HloOp(owner, (), attributes_of(owner)).integer("iota_dimension") == axis


@handler("stablehlo.reduce_window")
def reduce_window(h: HloOp, g: Emitter) -> Results:
    """Padding holds the start value, which each window begins with besides."""
    count = len(h.operands) // 2
    x, ones = h.operand(), [1] * rank(h.operand())
    window, strides = h.integers("window_dimensions", ones), h.integers("window_strides", ones)
    dilations, base = h.integers("window_dilations", ones), h.integers("base_dilations", ones)
    pads = pairs(h.integers("padding", [0] * 2 * rank(x)), rank(x))
    combine, number = combiner(h.body), h.number(1)
    if count == 1 and number is not None and combine in REDUCTIONS and dtype(x) is not BOOL:
        neutral = _is_neutral(number, REDUCTIONS[combine][1], x)
        axis = _running(x, window, strides, dilations, base, pads) if neutral else None
        if axis is not None and combine in RUNNING:
            return g.all(RUNNING[combine], x, axis=axis, reverse=pads[axis][0] == 0)[0]
        # An extremum is the same however often the start value takes part; a sum of few is rounded as they come.
        in_order = combine == "stablehlo.add" and dtype(x).is_float and prod(window) <= _FEW
        if combine in WINDOWS and not in_order and (neutral or combine != "stablehlo.add"):
            y = _window(h, g, combine, window, strides, dilations, base, pads)
            return y if neutral else joined(g, combine, y, h.operand(1))
    low, high = [pad for pad, _ in pads], [pad for _, pad in pads]
    values, initial = h.operands[:count], h.operands[count:]
    grown = [
        padded_by(g, value, low, high, [n - 1 for n in base], start, h.number(count + k))
        for k, (value, start) in enumerate(zip(values, initial, strict=True))
    ]
    region = region_of(h)
    if prod(window) <= _FEW:
        return windowed_in_order(g, region, grown, initial, window, strides, dilations)
    return region(g, *initial, *windowed(g, region, grown, window, strides, dilations))


def _window(
    h: HloOp,
    g: Emitter,
    combine: str,
    window: list[int],
    strides: list[int],
    dilations: list[int],
    base: list[int],
    pads: list[tuple[int, int]],
) -> Value:
    x, between = h.operand(), [n - 1 for n in base]
    x = padded_by(g, x, [low for low, _ in pads], [high for _, high in pads], between, h.operand(1), h.number(1))
    if {*window, *strides, *dilations} == {1}:
        return x
    return g.all(WINDOWS[combine], x, window=window, strides=strides, dilations=dilations, axes=range(rank(x)))[0]


@handler("stablehlo.select_and_scatter")
def select_and_scatter(h: HloOp, g: Emitter) -> Results:
    """Each source goes to the element that its window selects, and is joined with the start value and others there."""
    x, source, initial = h.operands
    combine, shape, ones = combiner(h.op.regions[1].block), extents(x), [1] * rank(x)
    if combine not in SCATTERED:
        raise h.refuse(f"expected a region that scatters by one of {', '.join(SCATTERED)}; got another one")
    window, strides = h.integers("window_dimensions", ones), h.integers("window_strides", ones)
    pads = pairs(h.integers("padding", [0] * 2 * rank(x)), rank(x))
    low, high = [pad for pad, _ in pads], [pad for _, pad in pads]
    count = prod(shape)
    flat = g.reshaped(g.iota(shape=[count], dtype=I64), shape)
    places = padded(g, flat, low, high, [0] * rank(x), -1)
    select = region_of(h)

    def chosen(g: Emitter, a: Value, i: Value, b: Value, j: Value) -> list[Value]:
        """The value and the place that stay of two; of padding, which is at -1, the other one."""
        nothing = g.number(0, I64)
        keeps = g.logical_and(g.greater_equal(i, nothing), g.logical_or(g.less(j, nothing), select(g, a, b)[0]))
        return [g.where(keeps, a, b), g.where(keeps, i, j)]

    grown = padded_by(g, x, low, high, [0] * rank(x), g.like(0, x), 0)
    _, found = windowed(g, chosen, [grown, places], window, strides, ones)
    at = g.reshape(g.where(g.less(found, g.number(0, I64)), g.number(count, I64), found), shape=[-1, 1])
    kept = [g.cast(value, I8) if dtype(value) is BOOL else value for value in (initial, source)]
    start = g.broadcast_to(kept[0], shape=[count + 1])
    y = g.scatter_nd(start, at, g.reshaped(kept[1], [prod(extents(source))]), reduce=SCATTERED[combine])
    return g.cast(g.reshaped(g.slice(y, starts=[0], stops=[count]), shape), dtype(x))


def pairs(flat: list[int], count: int) -> list[tuple[int, int]]:
    flat = flat * (2 * count) if len(flat) == 1 else flat
    return [(flat[2 * axis], flat[2 * axis + 1]) for axis in range(count)]


def _running(
    x: Value,
    window: list[int],
    strides: list[int],
    dilations: list[int],
    base: list[int],
    pads: list[tuple[int, int]],
) -> int | None:
    """The axis along which a window makes running totals; None when it does not."""
    wide = [axis for axis, extent in enumerate(window) if extent > 1]
    if len(wide) != 1 or {*strides, *dilations, *base} != {1}:
        return None
    (axis,), extent = wide, extents(x)[wide[0]]
    others = all(pair == (0, 0) for number, pair in enumerate(pads) if number != axis)
    runs = window[axis] == extent and pads[axis] in ((extent - 1, 0), (0, extent - 1))
    return axis if runs and others else None


@handler("stablehlo.sort")
def sort(h: HloOp, g: Emitter) -> Results:
    """All operands in the order that the region says; another one than that of a key counts what comes before each."""
    axis, found = h.integer("dimension", -1), order_of(h, h.body)
    if found is None:
        if extents(h.operand())[axis] > LONGEST_COMPARED:
            raise h.refuse(
                f"expected at most {LONGEST_COMPARED} elements for a comparison that is no order by one key, "
                f"got {extents(h.operand())[axis]}"
            )
        order = places(g, region_of(h), h.operands, axis)
    elif len(h.operands) == 1:
        return g.sort(h.operand(), axis=axis, descending=found[1] == "GT")
    else:
        order = g.argsort(h.operand(found[0]), axis=axis, descending=found[1] == "GT")
    return [g.take_along_axis(value, order, axis=axis) for value in h.operands]


@handler("chlo.top_k")
def top_k(h: HloOp, g: Emitter) -> Results:
    """The largest in the total order of floats, which begins with NaN and ends with -NaN; of equal ones the first."""
    x = h.operand()
    keys = ordered(g, x)
    values, positions = g.all("top_k", keys, k=h.integer("k"))
    if keys is not x:
        values = g.take_along_axis(x, positions, axis=-1)
    return [values, g.cast(positions, h.dtype(1))]


_WIDENED = {(I8, I8, I32), (U8, I8, I32), (F16, F16, F32), (BF16, BF16, F32)}
"""Element types of operands and result of products that are computed in the result's."""


@handler("stablehlo.dot_general")
def dot_general(h: HloOp, g: Emitter) -> Results:
    found = h.fields("dot_dimension_numbers")
    batches = found.get("lhs_batching_dimensions", []), found.get("rhs_batching_dimensions", [])
    contracted = found.get("lhs_contracting_dimensions", []), found.get("rhs_contracting_dimensions", [])
    element, lhs, rhs = h.dtype(), *h.operands
    types = dtype(lhs), dtype(rhs)
    if not element.is_float:  # integers of floats are of the products, as XLA has them
        element = max((each for each in types if each.is_float), key=lambda each: each.bits, default=element)
    widened = (*types, element) in _WIDENED
    if not widened:
        lhs, rhs = (g.cast(value, element) for value in h.operands)
    lhs_free, rhs_free = (
        [axis for axis in range(rank(value)) if axis not in (*batch, *inner)]
        for value, batch, inner in zip((lhs, rhs), batches, contracted, strict=True)
    )
    is_swapped = bool(batches[0]) and _come_before(contracted[0], lhs_free) and _come_before(rhs_free, contracted[1])
    if is_swapped:  # as weights of attention behind the values: each lies as the other operand does
        lhs, rhs, batches, contracted = rhs, lhs, batches[::-1], contracted[::-1]
        lhs_free, rhs_free = rhs_free, lhs_free
    a, transpose_a = _matrix(g, lhs, batches[0], lhs_free, contracted[0])
    b, transpose_b = _matrix(g, rhs, batches[1], contracted[1], rhs_free)
    flags = {"transpose_lhs": transpose_a or None, "transpose_rhs": transpose_b or None}
    outer = [extents(lhs)[axis] for axis in (*batches[0], *lhs_free)]
    shape = [*outer, *(extents(rhs)[axis] for axis in rhs_free)]
    result = g.cast(g.reshaped(g.matmul(a, b, dtype=element if widened else None, **flags), shape), h.dtype())
    if not is_swapped:
        return result
    first, second, end = len(batches[0]), len(batches[0]) + len(lhs_free), len(shape)
    return g.permute_dims(result, axes=[*range(first), *range(second, end), *range(first, second)])


def _come_before(axes: Sequence[int], others: Sequence[int]) -> bool:
    return bool(axes) and bool(others) and max(axes) < min(others)


def _matrix(
    g: Emitter, x: Value, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]
) -> tuple[Value, bool]:
    """A stack of matrices over groups of axes, as it lies where rows and columns are only to be swapped."""
    groups = (1,) * len(batch) + (len(rows), len(columns))
    straight, swapped = [*batch, *rows, *columns], [*batch, *columns, *rows]
    if straight == list(range(rank(x))):
        return flattened(g, x, groups), False
    if swapped == list(range(rank(x))):
        return flattened(g, x, (*groups[:-2], len(columns), len(rows))), True
    return flattened(g, g.permute_dims(x, axes=straight), groups), False
