"""Ops that give a weight as it was before a transformation, so that code that wants it transformed reads their operand."""

from __future__ import annotations

from fuse_opt.dialects.interfaces.composite_op import CompositeOp


class TransformedWeight(CompositeOp):
    """Its result is a convolution's weight; its first operand has the transforms, `[panels][16][channels][width]`."""
