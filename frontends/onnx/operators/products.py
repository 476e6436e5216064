"""ONNX operators that are products of matrices, and quantised ones; spectra are products with waves."""

from __future__ import annotations

import math

import numpy as np

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import F32, I8, I32, U8, DType, Kind
from fuse_opt.frontends.builder import Array, Emitter, Value, extents, numpy_name, rank
from fuse_opt.frontends.onnx.operators.byte_convolutions import channels_first, integer_convolution
from fuse_opt.frontends.onnx.operators.byte_products import byte_product
from fuse_opt.frontends.onnx.operators.movement import sliced
from fuse_opt.frontends.onnx.operators.node import Node, Results, handler

_LONGEST = 1024
"""Elements of which a spectrum is a product with a matrix; there are faster ways for more."""


@handler("MatMul")
def matmul(n: Node, g: Emitter) -> Results:
    return g.matmul(n.operand(0), n.operand(1))


@handler("Gemm")
def gemm(n: Node, g: Emitter) -> Value:
    alpha, beta = n.number("alpha", 1.0), n.number("beta", 1.0)
    flags = {"transpose_a": n.flag("transA"), "transpose_b": n.flag("transB")}
    operands = n.operands()
    if dtype(operands[0]).is_float:
        return g.gemm(*operands, alpha=alpha, beta=beta, **flags)
    a, b, *c = operands
    y = g.matmul(a, b, transpose_lhs=flags["transpose_a"], transpose_rhs=flags["transpose_b"])
    y = y if alpha == 1 else g.multiply(y, g.like(alpha, y))
    for value in c:
        y = g.add(y, value if beta == 1 else g.multiply(value, g.like(beta, value)))
    return y


@handler("Einsum")
def einsum(n: Node, g: Emitter) -> Results:
    return g.einsum(*n.operands(), equation=n.text("equation").replace(" ", ""))


@handler("MatMulInteger")
def matmul_integer(n: Node, g: Emitter) -> Results:
    zeros = [g.cast(n.operand(position), I32) if n.has(position) else None for position in (2, 3)]
    return byte_product(g, (n.operand(0), n.operand(1)), zeros, n.is_known(1))


def _blocks(g: Emitter, value: Value, like: Value, size: int, axis: int) -> Value:
    """Each element of `value` for a block of `like` on an axis."""
    repeated = g.repeat(value, repeats=size, axis=axis)
    if extents(repeated) == extents(like):
        return repeated
    return g.slice(repeated, starts=[0] * rank(like), stops=extents(like))


def _parameters(n: Node, g: Emitter) -> list[Value]:
    """Scale and, where it is there, zero point: scalars where they have one element, which is one for the whole tensor."""
    scale, *zero = [n.operand(1), *n.optional(2)]
    shape = () if math.prod(extents(scale)) == 1 else extents(scale)
    return [g.reshaped(value, shape) for value in (scale, *zero)]


@handler("QuantizeLinear")
def quantize_linear(n: Node, g: Emitter) -> Results:
    x, element = n.operand(0), dtype(n.operand(2)) if n.has(2) else n.element("output_dtype", U8)
    if n.integer("block_size"):
        return _quantize_blocks(n, g, element)
    scale, *zeros = _parameters(n, g)
    zero = zeros[0] if zeros else g.number(0, element, extents(scale))
    axis = n.integer("axis", 1) if rank(scale) else None
    return g.quantize_linear(x, g.cast(scale, dtype(x)), zero, axis=axis, saturate=n.flag("saturate", True))


def _quantize_blocks(n: Node, g: Emitter, element: DType) -> Value:
    if element.is_float:
        raise n.refuse(f"blocks of {element} are not supported")
    x, axis, size = n.operand(0), n.integer("axis", 1), n.integer("block_size")
    y = g.round(g.divide(x, g.cast(_blocks(g, n.operand(1), x, size, axis), dtype(x))))
    if n.has(2):
        y = g.add(y, g.cast(_blocks(g, n.operand(2), x, size, axis), dtype(y)))
    low = 0 if element.kind is Kind.UINT else -(2 ** (element.bits - 1))
    return g.astype(g.clip(y, g.like(low, y), g.like(low + 2**element.bits - 1, y)), dtype=element)


@handler("DequantizeLinear")
def dequantize_linear(n: Node, g: Emitter) -> Results:
    x, scale, axis, size = n.operand(0), n.operand(1), n.integer("axis", 1), n.integer("block_size")
    if not size:
        scale, *zero = _parameters(n, g)
        y = g.dequantize_linear(x, scale, *zero, axis=axis if rank(scale) else None)
    else:
        y = g.cast(x, dtype(scale)) if dtype(x).is_float else g.cast(x, I32)
        for value in n.optional(2):
            y = g.subtract(y, g.cast(_blocks(g, value, x, size, axis), dtype(y)))
        y = g.multiply(g.cast(y, dtype(scale)), _blocks(g, scale, x, size, axis))
    return g.cast(y, n.element("output_dtype", dtype(scale)))


@handler("DynamicQuantizeLinear")
def dynamic_quantize_linear(n: Node, g: Emitter) -> Results:
    return g.all("dynamic_quantize_linear", n.operand(0))


def _scalar(n: Node, g: Emitter, position: int) -> Value:
    value = n.operand(position)
    return g.reshaped(value, []) if math.prod(extents(value)) == 1 else value


@handler("QLinearMatMul")
def qlinear_matmul(n: Node, g: Emitter) -> Results:
    """The exact product of integers, of which each element is scaled and rounded once."""
    a, b = n.operand(0), n.operand(3)
    if not all(dtype(value) in (I8, U8) for value in (a, b)):
        raise n.refuse(f"operands of {dtype(a)} and {dtype(b)} are not supported; expected bytes")
    zeros = [g.cast(_scalar(n, g, position), I32) for position in (2, 5)]
    y = g.cast(byte_product(g, (a, b), zeros, n.is_known(3)), F32)
    a_scale, b_scale, y_scale = (g.cast(_scalar(n, g, position), F32) for position in (1, 4, 6))
    if rank(a_scale) == 1 and rank(a) > 1:
        a_scale = g.reshape(a_scale, shape=[-1, 1])
    y = g.multiply(y, g.divide(g.multiply(a_scale, b_scale), y_scale))
    return g.quantize_linear(y, g.number(1.0, F32), _scalar(n, g, 7))


@handler("QLinearConv")
def qlinear_conv(n: Node, g: Emitter) -> Results:
    """Exact sums, with a bias in i32, of which each is scaled and rounded once."""
    y, is_last = integer_convolution(n, g, (0, 3), (2, 5))
    channels = [-1] + [1] * (0 if is_last else rank(y) - 2)
    for bias in n.optional(8):
        y = g.add(y, g.reshape(bias, shape=channels))
    scales = [g.cast(_scalar(n, g, position), F32) for position in (1, 4, 6)]
    x_scale, weight_scale, y_scale = (g.reshape(s, shape=channels) if rank(s) else s for s in scales)
    y = g.multiply(g.cast(y, F32), g.divide(g.multiply(x_scale, weight_scale), y_scale))
    y = g.quantize_linear(y, g.number(1.0, F32), _scalar(n, g, 7))
    return channels_first(g, y) if is_last else y


@handler("DFT")
def dft(n: Node, g: Emitter) -> Results:
    x, last = n.operand(0), rank(n.operand(0)) - 1
    axis = (n.known_integer(2, -2) if n.opset >= 20 else n.integer("axis", 1)) % rank(x)
    inverse, half = n.flag("inverse"), n.flag("onesided")
    length = n.known_integer(1) or (2 * (extents(x)[axis] - 1) if inverse and half else extents(x)[axis])
    if not 0 < length <= _LONGEST or axis == last:
        raise n.refuse(f"spectra of {length} elements on axis {axis} are not supported")
    side = length // 2 + 1 if half else length
    pads = [0] * 2 * rank(x)
    pads[rank(x) + axis] = (side if inverse else length) - extents(x)[axis]
    x = g.pad(x, pads=pads) if any(pads) else x
    parts = [sliced(g, x, [k], [k + 1], [last], [1]) for k in range(extents(x)[last])]
    found = _products(n, g, parts, axis, (length, side), inverse)
    return found[0] if inverse and half else g.concat(*found, axis=last)


def _products(
    n: Node, g: Emitter, parts: list[Value], axis: int, counts: tuple[int, int], inverse: bool
) -> list[Value]:
    """
    Real and imaginary part of the sums over an axis with waves, of which only those of one `side` are kept: of an inverse each of
    these stands for the two that are alike.
    """
    length, side = counts
    angles = 2 * np.pi / length * (np.outer(np.arange(length), np.arange(side)) % length)
    scales = np.ones(side)
    if inverse:
        twice = (np.arange(side) % length != 0) & (2 * np.arange(side) != length) & (side != length)
        scales = np.where(twice, 2.0, 1.0) / length
    cosine, sine = (scales * wave for wave in (np.cos(angles), np.sin(angles)))
    waves = [wave.T if inverse else wave for wave in (cosine, sine)]
    cosines, sines = ([_along(n, g, part, wave, axis) for part in parts] for wave in waves)
    real, imaginary = cosines[0], sines[0] if inverse else g.negative(sines[0])
    if len(parts) == 2:
        real = (g.subtract if inverse else g.add)(real, sines[1])
        imaginary = g.add(imaginary, cosines[1])
    return [real, imaginary]


def _along(n: Node, g: Emitter, x: Value, matrix: Array, axis: int) -> Value:
    last, weights = rank(x) - 1, n.constant(matrix.astype(numpy_name(dtype(x))))
    there = [k for k in range(rank(x)) if k != axis] + [axis]
    back = [*range(axis), last, *range(axis, last)]
    return g.permute_dims(g.matmul(g.permute_dims(x, axes=there), weights), axes=back)
