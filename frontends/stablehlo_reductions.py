"""StableHLO ops that reduce: reduce and reduce_window with their regions, sort, dot_general, convolution."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from xdsl.ir import Block, Operation

from fuse_opt.dialects.dtypes import BOOL
from fuse_opt.dialects.graph_op import dtype
from fuse_opt.dialects.graph_reductions import extreme
from fuse_opt.frontends.emit import Emitter, Value, extents, rank
from fuse_opt.frontends.stablehlo_op import HloOp, Results, attributes_of, body_ops, name_of, record
from fuse_opt.frontends.stablehlo_pointwise import flattened, joined, padded

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
WINDOWS = {"stablehlo.add": "window_sum", "stablehlo.maximum": "window_max", "stablehlo.minimum": "window_min"}


@record("stablehlo.reduce")
def reduce(h: HloOp, g: Emitter) -> Results:
    axes = h.integers("dimensions")
    if len(h.operands) == 4:
        return _arg_reduction(h, g, axes)
    if len(h.operands) != 2 or len(body_ops(h.body)) != 1:
        raise h.refuse("expected a region of one op, or that of argmax or argmin; got another one")
    x, initial, (combine,) = h.operand(0), h.operand(1), body_ops(h.body)
    table = OF_TRUTH if dtype(x) is BOOL else REDUCTIONS
    if combine not in table:
        raise h.refuse(f"expected a region of one of {', '.join(table)}, got {combine}")
    name, neutral = table[combine]
    if not axes:
        return joined(g, combine, x, initial)
    if name in ("max", "min") and 0 in extents(x):
        return g.broadcast_to(initial, shape=h.shape())
    y = g.all(name, x, axes=axes)[0]
    return y if _is_neutral(h.number(1), neutral, x) else joined(g, combine, y, initial)


def _is_neutral(number: float | None, neutral: float, x: Value) -> bool:
    """Whether a start value changes nothing; of integers the limits of the type stand for the infinities."""
    if number is None:
        return False
    if math.isinf(neutral) and not dtype(x).is_float:
        return number == extreme(dtype(x), neutral > 0)
    return number == neutral


def _arg_reduction(h: HloOp, g: Emitter, axes: list[int]) -> Results:
    """A reduction of values and their positions: the region compares values, and positions where those are equal."""
    kinds = [_direction(op) for op in h.body.ops if name_of(op) == "stablehlo.compare"]
    counts = _owner_name(h.op.operands[1].owner) == "stablehlo.iota"
    if len(axes) != 1 or not counts or kinds[:1] not in (["GT"], ["LT"]) or "EQ" not in kinds:
        raise h.refuse("expected the region of argmax or argmin for a reduction of two operands; got another one")
    largest = kinds[0] == "GT"
    x = h.operand(0)
    values = (g.max if largest else g.min)(x, axes=axes)
    positions = (g.argmax if largest else g.argmin)(x, axis=axes[0])
    return [values, g.cast(positions, h.dtype(1))]


def _owner_name(owner: Operation | Block) -> str:
    return name_of(owner) if isinstance(owner, Operation) else ""


def _direction(op: Operation) -> str:
    found = re.search(r"comparison_direction (\w+)", str(attributes_of(op).get("comparison_direction")))
    return found[1] if found else ""


@record("stablehlo.reduce_window")
def reduce_window(h: HloOp, g: Emitter) -> Results:
    names = body_ops(h.body)
    if len(h.operands) != 2 or len(names) != 1 or names[0] not in (*WINDOWS, "stablehlo.multiply"):
        raise h.refuse(f"expected one operand and a region of one of {', '.join(WINDOWS)}; got {', '.join(names)}")
    x, number = h.operand(), h.number(1)
    ones = [1] * rank(x)
    window, strides = h.integers("window_dimensions"), h.integers("window_strides", ones)
    dilations, base = h.integers("window_dilations", ones), h.integers("base_dilations", ones)
    pads = _pairs(h.integers("padding", [0] * 2 * rank(x)), rank(x))
    if number is None or not _is_neutral(number, REDUCTIONS[names[0]][1], x):
        raise h.refuse("expected the neutral value as the start of a window; got another one")
    axis = _running(x, window, strides, dilations, base, pads)
    if axis is not None and names[0] in ("stablehlo.add", "stablehlo.multiply"):
        running = g.cumulative_sum if names[0] == "stablehlo.add" else g.cumulative_prod
        return running(x, axis=axis, reverse=pads[axis][0] == 0)
    if names[0] not in WINDOWS:
        raise h.refuse("expected products that run along an axis; got those of another window")
    x = padded(g, x, [low for low, _ in pads], [high for _, high in pads], [n - 1 for n in base], number)
    if window == strides == dilations == ones:
        return x
    return g.all(WINDOWS[names[0]], x, window=window, strides=strides, dilations=dilations, axes=range(rank(x)))[0]


@record("stablehlo.select_and_scatter")
def select_and_scatter(h: HloOp, g: Emitter) -> Results:
    """The gradient of a pooling by maximum: each source goes to the first largest element of its window."""
    x, source = h.operand(0), h.operand(1)
    select = [_direction(op) for op in h.op.regions[0].block.ops if name_of(op) == "stablehlo.compare"]
    if select != ["GE"] or body_ops(h.op.regions[1].block) != ["stablehlo.add"] or h.number(2) != 0:
        raise h.refuse("expected a selection by GE, a sum and 0, the gradient of a pooling; got another one")
    window, ones = h.integers("window_dimensions"), [1] * rank(x)
    strides, pads = h.integers("window_strides", ones), _pairs(h.integers("padding", [0] * 2 * rank(x)), rank(x))
    spatial = [axis for axis in range(rank(x)) if (window[axis], strides[axis], pads[axis]) != (1, 1, (0, 0))] or [0]
    order = [*(axis for axis in range(rank(x)) if axis not in spatial), *spatial]

    def stacked(value: Value) -> Value:
        moved = g.permute_dims(value, axes=order)
        return g.reshaped(moved, [-1 if 0 not in extents(value) else 0, 1, *(extents(value)[axis] for axis in spatial)])

    pool = {
        "kernel_shape": [window[axis] for axis in spatial],
        "strides": [strides[axis] for axis in spatial],
        "pads": [pads[axis][0] for axis in spatial] + [pads[axis][1] for axis in spatial],
    }
    _, places = g.all("max_pool_with_indices", stacked(x), **pool)
    y = g.max_pool_backward(stacked(source), places, extents=[extents(x)[axis] for axis in spatial], **pool)
    y = g.reshaped(y, [extents(x)[axis] for axis in order])
    return g.permute_dims(y, axes=[order.index(axis) for axis in range(rank(x))])


def _pairs(flat: list[int], count: int) -> list[tuple[int, int]]:
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


@record("stablehlo.sort")
def sort(h: HloOp, g: Emitter) -> Results:
    """By the first operand; others are put into its order."""
    axis, keys = h.integer("dimension", -1), h.operand()
    directions = [_direction(op) for op in h.body.ops if name_of(op) == "stablehlo.compare"]
    if not directions or directions[-1] not in ("LT", "GT") or "stablehlo.and" in body_ops(h.body):
        raise h.refuse("expected a region that compares the first operands by LT or GT; got another one")
    descending = directions[-1] == "GT"
    if len(h.operands) == 1:
        return g.sort(keys, axis=axis, descending=descending)
    order = g.argsort(keys, axis=axis, descending=descending)
    return [g.take_along_axis(value, order, axis=axis) for value in h.operands]


@record("chlo.top_k")
def top_k(h: HloOp, g: Emitter) -> Results:
    values, positions = g.all("top_k", h.operand(), k=h.integer("k"))
    return [values, g.cast(positions, h.dtype(1))]


@record("stablehlo.dot_general")
def dot_general(h: HloOp, g: Emitter) -> Results:
    found = h.fields("dot_dimension_numbers")
    batches = found.get("lhs_batching_dimensions", []), found.get("rhs_batching_dimensions", [])
    contracted = found.get("lhs_contracting_dimensions", []), found.get("rhs_contracting_dimensions", [])
    element = h.dtype()
    lhs, rhs = (g.cast(value, element) for value in h.operands)
    lhs_free, rhs_free = (
        [axis for axis in range(rank(value)) if axis not in (*batch, *inner)]
        for value, batch, inner in zip((lhs, rhs), batches, contracted, strict=True)
    )
    a, transpose_a = _matrix(g, lhs, batches[0], lhs_free, contracted[0])
    b, transpose_b = _matrix(g, rhs, batches[1], contracted[1], rhs_free)
    flags = {"transpose_lhs": transpose_a or None, "transpose_rhs": transpose_b or None}
    return g.reshaped(g.matmul(a, b, **flags), h.shape())


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


@record("stablehlo.convolution")
def convolution(h: HloOp, g: Emitter) -> Results:
    orders = re.search(r"\[(.*?)\]x\[(.*?)\]->\[(.*?)\]", str(h.attributes.get("dimension_numbers")))
    if orders is None or h.integer("batch_group_count", 1) != 1:
        raise h.refuse("expected a convolution with batch_group_count 1")
    x_order, w_order, y_order = ([part.strip() for part in text.split(",")] for text in orders.groups())
    spatial = [str(axis) for axis in range(len(x_order) - 2)]
    count, ones = len(spatial), [1] * len(spatial)
    x = g.permute_dims(h.operand(0), axes=[x_order.index(name) for name in ("b", "f", *spatial)])
    weight = g.permute_dims(h.operand(1), axes=[w_order.index(name) for name in ("o", "i", *spatial)])
    reversed_axes = [axis + 2 for axis, flag in enumerate(h.integers("window_reversal", [0] * count)) if flag]
    weight = g.flip(weight, axes=reversed_axes) if reversed_axes else weight
    pads = _pairs(h.integers("padding", [0] * 2 * count), count)
    between = [n - 1 for n in h.integers("lhs_dilation", ones)]
    if any(between) or min((0, *(n for pair in pads for n in pair))) < 0:
        low, high = [0, 0, *(a for a, _ in pads)], [0, 0, *(b for _, b in pads)]
        x = padded(g, x, low, high, [0, 0, *between], 0)
        pads = [(0, 0)] * count
    element = h.dtype()
    y = g.conv(
        g.cast(x, element),
        g.cast(weight, element),
        strides=h.integers("window_strides", ones),
        dilations=h.integers("rhs_dilation", ones),
        pads=[a for a, _ in pads] + [b for _, b in pads],
        groups=h.integer("feature_group_count", 1),
    )
    return g.permute_dims(y, axes=[("b", "f", *spatial).index(name) for name in y_order])
