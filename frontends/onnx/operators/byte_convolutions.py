"""ONNX convolutions of bytes less their zero points, exact in i32."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import OpResult

from fuse_opt.dialects.graph.movement.views import PermuteDimsOp
from fuse_opt.dialects.interfaces.properties import ints
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import F32, F64, I8, I32, U8
from fuse_opt.frontends.builder import Emitter, Value, extents, rank
from fuse_opt.frontends.onnx.operators.byte_products import MOVED, as_tiles_read
from fuse_opt.frontends.onnx.operators.node import Node, Results, handler
from fuse_opt.frontends.onnx.operators.windows import convolution, geometry

LEAST_CHANNELS = 16
"""Of convolutions of bytes whose windows have several elements: fewer are no depth to speak of."""
MOST_TAPS = 9
"""Of windows over channels with a filter each: sums over more do not stay in registers, and f32 is faster (measured)."""


@handler("ConvInteger")
def conv_integer(n: Node, g: Emitter) -> Results:
    y, is_last = integer_convolution(n, g, (0, 1), (2, 3))
    return channels_first(g, y) if is_last else y


def channels_first(g: Emitter, y: Value) -> Value:
    """A value whose channels are its last axis, in the order that ONNX has: not by the product, whose tiles store rows."""
    return g.permute_dims(_marked(y, "stop_fusion"), axes=_first(rank(y)))


def _first(rank: int) -> list[int]:
    return [0, rank - 1, *range(1, rank - 1)]


def _channels_last(g: Emitter, x: Value) -> Value:
    """A value with its channels side by side, so that taps of windows read stretches of memory; of `channels_first` as it was."""
    if isinstance(x, OpResult) and isinstance(x.op, PermuteDimsOp) and list(ints(x.op.axes)) == _first(rank(x)):
        return x.op.x
    return g.permute_dims(x, axes=[0, *range(2, rank(x)), 1])


def _marked(value: Value, directive: str) -> Value:
    """The same, with a directive on what makes it."""
    if isinstance(value, OpResult):
        value.op.attributes[directive] = UnitAttr()
    return value


def integer_convolution(n: Node, g: Emitter, operands: tuple[int, int], zeros: tuple[int, int]) -> tuple[Value, bool]:
    """
    The sums in i32 of products of bytes less their zero points: a convolution of bytes where channels are not in groups, or have
    a filter each, else one of f32 where the weights are so small that no sum of some of the products is rounded, else of f64.
    Those of bytes have their channels last, which the second value says: what follows is computed so, and stored in order.
    """
    if (padding := _padding_byte(n, operands, zeros)) is not None:
        return _of_bytes(n, g, operands, zeros, padding), True
    element = F32 if _fits_f32(n, operands, zeros) else F64
    centered: list[Value] = []
    for operand, zero in zip(operands, zeros, strict=True):
        value = g.cast(n.operand(operand), element)
        if n.has(zero):
            moved = g.cast(n.operand(zero), element)
            by_filter = [-1] + [1] * (rank(value) - 1)
            value = g.subtract(value, g.reshaped(moved, [] if math.prod(extents(moved)) == 1 else by_filter))
        centered.append(value)
    x, weight = centered
    return g.cast(convolution(n, g, x, weight), I32), False


def _padding_byte(n: Node, operands: tuple[int, int], zeros: tuple[int, int]) -> int | None:
    """The byte that stands for 0 around the input, where `graph.conv_integer` computes the convolution; else None."""
    x, weight = (n.operand(position) for position in operands)
    if not all(dtype(value) in (I8, U8) for value in (x, weight)) or 0 in (*extents(x), *extents(weight)):
        return None
    groups, channels, taps = n.integer("group", 1), extents(x)[1], math.prod(extents(weight)[2:])
    if groups == 1 and taps > 1 and channels < LEAST_CHANNELS:
        return None
    if groups > 1 and (groups != channels or extents(weight)[:2] != (channels, 1) or taps > MOST_TAPS):
        return None
    if not n.has(zeros[0]):
        return 0
    if math.prod(extents(n.operand(zeros[0]))) != 1:
        return None
    if not any(geometry(n, extents(x)[2:], extents(weight)[2:])["pads"]):
        return 0
    return int(n.known(zeros[0]).reshape(())) if n.is_known(zeros[0]) else None


def _of_bytes(n: Node, g: Emitter, operands: tuple[int, int], zeros: tuple[int, int], padding: int) -> Value:
    """
    Such a convolution, channels last: that of the bytes themselves, less what zero points change of it, which are sums of
    filters and of windows.
    """
    given, weight = (n.operand(position) for position in operands)
    window = geometry(n, extents(given)[2:], extents(weight)[2:])
    (x, weight), moved = as_tiles_read(
        g, (_channels_last(g, given), weight), _zeros(n, g, zeros), n.is_known(operands[1])
    )
    if _moves_nothing(n, zeros[1], 0 if dtype(weight) is dtype(n.operand(operands[1])) else MOVED):
        moved[1] = None
    x = _padded(g, x, window.pop("pads"), padding if dtype(x) is dtype(given) else padding + MOVED)
    filters = _filters_last(g, weight)
    groups = n.integer("group", 1)
    y = g.conv_integer(x, filters, groups=groups if groups > 1 else None, **window)
    if (zero := moved[0]) is not None:
        y = g.subtract(y, g.multiply(zero, g.sum(g.cast(filters, I32), axes=[*range(rank(filters) - 1)])))
    if moved[1] is not None:
        sums = _window_sums(g, x, extents(filters), window, groups)
        if zero is not None:
            sums = g.subtract(sums, g.multiply(zero, g.number(math.prod(extents(filters)[:-1]), I32)))
        y = g.subtract(y, g.multiply(moved[1], sums))
    return y


def _zeros(n: Node, g: Emitter, zeros: tuple[int, int]) -> list[Value | None]:
    """Zero points in i32, of which one alone has no axis; None where there is none."""
    found = [g.cast(n.operand(zero), I32) if n.has(zero) else None for zero in zeros]
    return [g.reshaped(v, []) if v is not None and math.prod(extents(v)) == 1 else v for v in found]


def _moves_nothing(n: Node, zero: int, moved: int) -> bool:
    """Whether a zero point is known, and nothing is left of it less what bytes are less by."""
    return n.has(zero) and n.is_known(zero) and not (n.known(zero).astype(np.int64) - moved).any()


def _padded(g: Emitter, x: Value, pads: Sequence[int], byte: int) -> Value:
    """With that byte around, in a kernel of its own: each tap would ask again where it is, and each part of a product turn x."""
    if not any(pads):
        return _marked(x, "stop_fusion")
    before, after = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    return _marked(g.pad(x, pads=[0, *before, 0, 0, *after, 0], value=byte), "no_fuse")


def _filters_last(g: Emitter, weight: Value) -> Value:
    """The weight with its filters last, of stretches by channels, which are made once of frozen ones, as no view is."""
    filters, channels, *kernel = extents(weight)
    taps = [_of_tap(g, weight, tap) for tap in itertools.product(*map(range, kernel))]
    rows = g.stack(*taps, axis=1) if len(taps) > 1 else taps[0]
    rows = g.reshape(rows, shape=[filters, *kernel, channels])
    return g.permute_dims(rows, axes=[*range(1, rank(rows)), 0])


def _of_tap(g: Emitter, weight: Value, tap: Sequence[int]) -> Value:
    """What a tap has of each filter, by channels."""
    filters, channels, *_ = extents(weight)
    stops = [filters, channels, *(place + 1 for place in tap)]
    found = g.slice(weight, starts=[0, 0, *tap], stops=stops, steps=[1] * len(stops))
    return g.reshape(found, shape=[filters, channels])


def _window_sums(g: Emitter, x: Value, filters: Sequence[int], window: dict[str, list[int]], groups: int) -> Value:
    """The sums of what windows see, in i32: as one channel, or of channels in groups of one of each."""
    wide, axes = g.cast(x, I32), [*range(1, rank(x) - 1)]
    if groups > 1:
        return g.window_sum(wide, window=list(filters[:-2]), axes=axes, **window)
    sums = g.window_sum(g.sum(wide, axes=[rank(x) - 1]), window=list(filters[:-2]), **window)
    return g.reshape(sums, shape=[*extents(sums), 1])


def _fits_f32(n: Node, operands: tuple[int, int], zeros: tuple[int, int]) -> bool:
    """Whether sums of magnitudes of products stay below what f32 has all integers of, for known weights and any input."""
    if not n.is_known(operands[1]) or (n.has(zeros[1]) and not n.is_known(zeros[1])):
        return False
    weight = n.known(operands[1]).astype(np.int64)
    if n.has(zeros[1]):
        moved = n.known(zeros[1]).astype(np.int64).reshape(-1)
        weight = weight - moved.reshape(-1, *(1,) * (weight.ndim - 1))
    magnitudes = np.abs(weight).sum(axis=tuple(range(1, weight.ndim)))
    least, most = {I8: (-128, 127), U8: (0, 255)}[dtype(n.operand(operands[0]))]
    largest = 255
    if not n.has(zeros[0]):
        largest = max(-least, most)
    elif n.is_known(zeros[0]):
        zero = n.known(zeros[0]).astype(np.int64)
        largest = int(max((most - zero).max(), (zero - least).max()))
    return int(magnitudes.max(initial=0)) * largest <= 1 << 24
