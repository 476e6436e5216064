"""StableHLO's convolution, of any order of axes, of floats, and of integers that f64 holds."""

from __future__ import annotations

import math
import re

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import F64, DType
from fuse_opt.frontends.builder import Emitter, Value, extents, rank
from fuse_opt.frontends.stablehlo.operators.movement import padded
from fuse_opt.frontends.stablehlo.operators.op import HloOp, Results, handler
from fuse_opt.frontends.stablehlo.operators.reductions import pairs

_EXACT_BITS = 53
"""Of integers in f64."""


@handler("stablehlo.convolution")
def convolution(h: HloOp, g: Emitter) -> Results:
    orders = re.search(r"\[(.*?)\]x\[(.*?)\]->\[(.*?)\]", str(h.attributes.get("dimension_numbers")))
    if orders is None:
        raise h.refuse("expected dimension_numbers of a convolution")
    x_order, w_order, y_order = ([part.strip() for part in text.split(",")] for text in orders.groups())
    spatial = [str(axis) for axis in range(len(x_order) - 2)]
    count, ones = len(spatial), [1] * len(spatial)
    x = g.permute_dims(h.operand(0), axes=[x_order.index(name) for name in ("b", "f", *spatial)])
    weight = g.permute_dims(h.operand(1), axes=[w_order.index(name) for name in ("o", "i", *spatial)])
    reversed_axes = [axis + 2 for axis, flag in enumerate(h.integers("window_reversal", [0] * count)) if flag]
    weight = g.flip(weight, axes=reversed_axes) if reversed_axes else weight
    pads = pairs(h.integers("padding", [0] * 2 * count), count)
    between = [n - 1 for n in h.integers("lhs_dilation", ones)]
    if any(between) or min((0, *(n for pair in pads for n in pair))) < 0:
        low, high = [0, 0, *(a for a, _ in pads)], [0, 0, *(b for _, b in pads)]
        x = padded(g, x, low, high, [0, 0, *between], 0)
        pads = [(0, 0)] * count
    groups, batches = h.integer("feature_group_count", 1), h.integer("batch_group_count", 1)
    if batches != 1:
        x, groups = _side_by_side(g, x, batches), batches
    element = _computed_in(h, math.prod(extents(weight)[1:]))
    y = g.conv(
        g.cast(x, element),
        g.cast(weight, element),
        strides=h.integers("window_strides", ones),
        dilations=h.integers("rhs_dilation", ones),
        pads=[a for a, _ in pads] + [b for _, b in pads],
        groups=groups,
    )
    return g.permute_dims(g.cast(y, h.dtype()), axes=[("b", "f", *spatial).index(name) for name in y_order])


def _side_by_side(g: Emitter, x: Value, batches: int) -> Value:
    """Groups of the batch as groups of channels: each has filters of its own, as in gradients of grouped convolutions."""
    batch, channels, *spatial = extents(x)
    groups = g.reshape(x, shape=[batches, batch // batches, channels, *spatial])
    groups = g.permute_dims(groups, axes=[1, 0, *range(2, rank(groups))])
    return g.reshape(groups, shape=[batch // batches, batches * channels, *spatial])


def _computed_in(h: HloOp, terms: int) -> DType:
    """The result's type; of integers f64, where sums of so many products are exact in it."""
    if h.dtype().is_float:
        return h.dtype()
    bits = sum(dtype(value).bits for value in h.operands) + terms.bit_length()
    if bits > _EXACT_BITS or h.dtype().bits < 32:
        kinds = [str(dtype(value)) for value in h.operands]
        raise h.refuse(
            f"of integers, sums of products that f64 holds exactly are supported, in i32 or wider; "
            f"got {terms} products of {kinds[0]} and {kinds[1]} in {h.dtype()}"
        )
    return F64
