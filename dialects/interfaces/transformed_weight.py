"""Ops that give a weight as it was before a transformation, so that code that wants it transformed reads their operand."""

from __future__ import annotations

from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphBuilder

SIDE, READ = 2, 4
"""Positions of a tile along an axis, and elements that it reads."""
PRODUCTS = READ * READ
"""Of a tile, for each channel and filter."""


class TransformedWeight(CompositeOp):
    """Its result is a convolution's weight; its first operand has the transforms, `[panels][16][channels][width]`."""

    @classmethod
    def transforms_of(cls, build: GraphBuilder, weight: SSAValue, width: int) -> SSAValue:
        """The transforms of a weight `[filters][channels][taps...]`, with zeros behind the last filter."""
        raise NotImplementedError

    @classmethod
    def seen(cls, build: GraphBuilder, transforms: SSAValue, filters: int) -> SSAValue:
        """The weight of which the operand has the transforms."""
        raise NotImplementedError
