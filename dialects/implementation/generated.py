"""Implementations that are generated code of the program: what they take, and what may be fused with them."""

from __future__ import annotations

from fuse_opt.dialects.analysis.convolutions import convolution_problem, trace_convolution
from fuse_opt.dialects.analysis.products import product_problem, trace_product
from fuse_opt.dialects.implementation.offers import Offer, PointwiseOffer, register_offer
from fuse_opt.dialects.interfaces.op import FusionKind, OpaqueOp

CONVOLUTIONS = ("graph.conv", "graph.conv_transpose", "graph.conv_backward_data")


def _is_product(op: OpaqueOp) -> bool:
    return product_problem(op) is None


def _is_convolution(op: OpaqueOp) -> bool:
    return convolution_problem(op) is None


def register_generated() -> None:
    """Makes the offers known."""
    register_offer(
        Offer(
            "graph.matmul",
            "fuse.matmul",
            epilogue=PointwiseOffer(FusionKind.INJECTIVE),
            prologue=PointwiseOffer(FusionKind.INJECTIVE),
            priority=1,
            generated=True,
            trace=trace_product,
            accepts=_is_product,
        )
    )
    for op in CONVOLUTIONS:
        register_offer(
            Offer(
                op,
                "fuse.conv",
                epilogue=PointwiseOffer(FusionKind.INJECTIVE),
                priority=1,
                generated=True,
                trace=trace_convolution,
                accepts=_is_convolution,
            )
        )
