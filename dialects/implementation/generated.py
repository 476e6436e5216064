"""Implementations that are generated code of the program: what they take, cost, and may be fused with."""

from __future__ import annotations

from collections.abc import Callable

from fuse_opt.dialects.analysis.contractions.attention import ATTENTION
from fuse_opt.dialects.analysis.contractions.convolutions import CONV, convolution_problem, trace_convolution
from fuse_opt.dialects.analysis.contractions.product_copies import computed_operands
from fuse_opt.dialects.analysis.contractions.products import MATMUL, product_problem, trace_product
from fuse_opt.dialects.analysis.loop_body import Unschedulable
from fuse_opt.dialects.implementation.offers import Offer, PointwiseOffer, register_offer
from fuse_opt.dialects.implementation.site import Cost, Site
from fuse_opt.dialects.interfaces.op import FusionKind, OpaqueOp

PRODUCTS = ("graph.matmul",)
CONVOLUTIONS = ("graph.conv", "graph.conv_transpose", "graph.conv_backward_data")
_PRIORITY = 2
"""Fusion asks code of the program's own first: it takes most."""
_POINTWISE = PointwiseOffer(FusionKind.INJECTIVE)


def _accepts(problem: Callable[[OpaqueOp], Unschedulable | None]) -> Callable[[Site], str | None]:
    def accepts(site: Site) -> str | None:
        found = problem(site.op)
        return None if found is None else found.code

    return accepts


def _cost(site: Site) -> Cost:
    """A kernel among others, without a call, at the rate of the element type that is multiplied."""
    assert site.device is not None
    return Cost(site.operations, site.nbytes, site.device.product_rate(site.operands[0].dtype))


def register_generated() -> None:
    """Makes the offers known."""
    for op in PRODUCTS:
        takes = _accepts(product_problem)
        register_offer(
            Offer(
                op,
                "fuse.matmul",
                (),
                _POINTWISE,
                _POINTWISE,
                _PRIORITY,
                kind=MATMUL,
                trace=trace_product,
                computes=computed_operands,
                accepts=takes,
                cost=_cost,
            )
        )
        register_offer(Offer(op, "fuse.attention", priority=_PRIORITY, kind=ATTENTION, composite=True, cost=_cost))
    for op in CONVOLUTIONS:
        takes = _accepts(convolution_problem)
        register_offer(
            Offer(
                op,
                "fuse.conv",
                (),
                _POINTWISE,
                None,
                _PRIORITY,
                kind=CONV,
                trace=trace_convolution,
                accepts=takes,
                cost=_cost,
            )
        )
