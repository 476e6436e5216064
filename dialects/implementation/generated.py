"""Implementations that are generated code of the program: what they take, and what may be fused with them."""

from __future__ import annotations

from fuse_opt.dialects.analysis.products import product_problem, trace_product
from fuse_opt.dialects.implementation.offers import Offer, PointwiseOffer, register_offer
from fuse_opt.dialects.interfaces.op import FusionKind, OpaqueOp

MATMUL_IMPLEMENTATION = "fuse.matmul"


def _is_product(op: OpaqueOp) -> bool:
    return product_problem(op) is None


def register_generated() -> None:
    """Makes the offers known."""
    register_offer(
        Offer(
            "graph.matmul",
            MATMUL_IMPLEMENTATION,
            epilogue=PointwiseOffer(FusionKind.INJECTIVE),
            prologue=PointwiseOffer(FusionKind.INJECTIVE),
            priority=1,
            generated=True,
            trace=trace_product,
            accepts=_is_product,
        )
    )
