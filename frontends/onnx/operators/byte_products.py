"""Products of bytes less their zero points, exact in i32."""

from __future__ import annotations

from collections.abc import Sequence

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import I8, I32, U8
from fuse_opt.frontends.builder import Emitter, Value, extents, rank

MOVED = 128
"""What is between a byte as it is signed and as it is not."""


def byte_product(g: Emitter, operands: Sequence[Value], zeros: Sequence[Value | None], is_weight: bool) -> Value:
    """
    The product of the bytes themselves; what zero points change of it are sums of rows and columns: all of it exact.
    `is_weight`: whether the right one is known, so that its sums are, too.
    """
    (a, b), zeros = operands, list(zeros)
    if zeros[0] is not None and rank(zeros[0]) == 1 and rank(a) > 1:
        zeros[0] = g.reshape(zeros[0], shape=[-1, 1])
    if 1 in (rank(a), rank(b)) or extents(a)[-1] == 0:
        wide = [g.cast(value, I32) for value in (a, b)]
        return g.matmul(*(x if zero is None else g.subtract(x, zero) for x, zero in zip(wide, zeros, strict=True)))
    (a, b), zeros = as_tiles_read(g, (a, b), zeros, is_weight)
    y = g.matmul(a, b, dtype=I32)
    if zeros[0] is not None:
        y = g.subtract(y, g.multiply(zeros[0], g.sum(g.cast(b, I32), axes=[rank(b) - 2], keepdims=True)))
    if zeros[1] is not None:
        x = g.cast(a, I32) if zeros[0] is None else g.subtract(g.cast(a, I32), zeros[0])
        y = g.subtract(y, g.multiply(zeros[1], g.sum(x, axes=[rank(a) - 1], keepdims=True)))
    return y


def as_tiles_read(
    g: Emitter, operands: Sequence[Value], zeros: Sequence[Value | None], is_weight: bool
) -> tuple[tuple[Value, Value], list[Value | None]]:
    """The bytes as tiles of products read them, signed on the right and not on the left of weights, and zero points of these."""
    (a, b), zeros = operands, list(zeros)
    if dtype(b) is U8:  # both less by 128
        b, moved = g.bitcast(g.bitwise_xor(b, g.like(MOVED, b)), dtype=I8), zeros[1]
        zeros[1] = g.number(-MOVED, I32) if moved is None else g.subtract(moved, g.like(MOVED, moved))
    if dtype(a) is I8 and is_weight:  # both more by 128: as weights that unsigned bytes meet are packed
        a, moved = g.bitwise_xor(g.bitcast(a, dtype=U8), g.number(MOVED, U8)), zeros[0]
        zeros[0] = g.number(MOVED, I32) if moved is None else g.add(moved, g.like(MOVED, moved))
    return (a, b), zeros
