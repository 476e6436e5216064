"""Ops that give a weight as it was before a transformation, so that code that wants it transformed reads their operand."""

from __future__ import annotations

from fuse_opt.dialects.interfaces.composite_op import CompositeOp

SIDE, READ = 2, 4
"""Positions of a tile along an axis, and elements that it reads."""
PRODUCTS = READ * READ
"""Of a tile, for each channel and filter."""


class TransformedWeight(CompositeOp):
    """Its result is a convolution's weight; its first operand has the transforms, `[panels][16][channels][width]`."""
