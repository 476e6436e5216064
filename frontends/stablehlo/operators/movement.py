"""StableHLO ops that move elements without arithmetic."""

from __future__ import annotations

from math import prod

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import BOOL
from fuse_opt.frontends.builder import Emitter, Value, extents, rank
from fuse_opt.frontends.stablehlo.operators.op import HloOp, Results, handler


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
