"""Implementations that are generated code of the program: what they take, cost, and may be fused with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from fuse_opt.dialects.analysis.contractions.attention import ATTENTION, trace_attention
from fuse_opt.dialects.analysis.contractions.attention_gradients import ATTENTION_GRADIENT, trace_attention_gradient
from fuse_opt.dialects.analysis.contractions.conv_kernels import (
    WINOGRAD,
    conv_problem,
    trace_conv,
    trace_winograd,
    winograd_problem,
    winograd_tiles,
)
from fuse_opt.dialects.analysis.contractions.convolutions import CONV
from fuse_opt.dialects.analysis.contractions.online_softmax import trace_online_softmax
from fuse_opt.dialects.analysis.contractions.product_copies import computed_operands, copies_near
from fuse_opt.dialects.analysis.contractions.products import MATMUL, product_problem, trace_product
from fuse_opt.dialects.analysis.loop_body import Unschedulable
from fuse_opt.dialects.implementation.attention_costs import attention_cost
from fuse_opt.dialects.implementation.offers import Offer, PointwiseOffer, register_offer
from fuse_opt.dialects.implementation.site import Cost, LayoutRow, Site
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.structured_op import FusionKind
from fuse_opt.dialects.interfaces.transformed_weight import PRODUCTS, TransformedWeight
from fuse_opt.dialects.types.encodings import EncodingPart, OrderAttr
from fuse_opt.dialects.types.extents import estimate

_PRIORITY = 2
"""Fusion asks code of the program's own first: it takes most."""
_FEWEST_BLAS_ROWS = 129
"""Of a product that copies rows, from which on a BLAS is called for it: NumPy's backend has tiles of its own for fewer
(`_NARROW` of its matmul.py), of which generated code is 1.16 and 1.20 times as fast (128x768x3072, 64x1024x4096, Zen 4 without
AVX-512; of OpenBLAS itself 1.05 and .98 times)."""
_POINTWISE = PointwiseOffer(FusionKind.INJECTIVE)


def _accepts(problem: Callable[[OpaqueOp], Unschedulable | None]) -> Callable[[Site], str | None]:
    def accepts(site: Site) -> str | None:
        found = problem(site.op)
        return None if found is None else found.code

    return accepts


def _channels_last(site: Site) -> list[LayoutRow]:
    """Channels innermost, of the first operand and the result; the weight lies as it does."""
    rank = len(site.results[0].shape)
    order = OrderAttr.of((0, *range(2, rank), 1))
    return [LayoutRow((order, None), (order,))]


def _any_channels(site: Site) -> list[LayoutRow]:
    """Channels innermost, or where they are, of the first operand and of the result."""
    order = OrderAttr.of((0, *range(2, len(site.results[0].shape)), 1))
    of = site.op.window_contraction()
    if of is None or of.has_any_extents:
        return []
    rows = ((order, order), (order, None), (None, order))
    return [LayoutRow((x, None), (y,)) for x, y in (rows[::2] if _is_depthwise(site) else rows)]


def _transposed(site: Site) -> list[LayoutRow]:
    """
    Operands and results of matrices, each with its last two axes the other way round where it lies in another order already:
    who gives row-major matrices gains nothing from another order.
    """
    choices: list[tuple[EncodingPart | None, ...]] = []
    for tensor in (*site.operands, *site.results):
        rank = len(tensor.shape)
        turned = (
            OrderAttr.of((*range(rank - 2), rank - 1, rank - 2)) if rank > 1 and tensor.encoding is not None else None
        )
        choices.append((None,) if turned is None else (None, turned))
    count = len(site.operands)
    return [LayoutRow(found[:count], found[count:]) for found in product(*choices)]


def _cost(site: Site) -> Cost:
    """A kernel among others, without a call, at the rate of the element type that is multiplied."""
    assert site.device is not None
    return Cost(site.operations, site.nbytes, site.device.product_rate(site.operands[0].dtype))


def _product_cost(site: Site) -> Cost:
    """More where tiles for narrow vectors read copies of rows; panels of what never changes are copied before."""
    assert site.device is not None
    found, of = _cost(site), site.op.contraction()
    if of is None or site.is_sized or site.operands[1].frozen or of.merged().rows < _FEWEST_BLAS_ROWS:
        return found
    if not copies_near(of.merged(), site.operands[0].itemsize):
        return found
    return replace(found, rate=found.rate / site.device.factor("copied_rows"))


def _is_depthwise(site: Site) -> bool:
    of = site.op.window_contraction() if isinstance(site.op, OpaqueOp) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    return of is not None and of.is_depthwise


_OF_SINGLE = ((512, "single_of_512"), (128, "single_of_128"), (0, "single"))
"""From so many positions on: which factor says how much faster a product is than a convolution of windows of one element."""


def _single_cost(site: Site) -> Cost:
    """Of a convolution that is a product, next to `_convolution_cost`, which is optimistic."""
    assert site.device is not None
    found, positions = _cost(site), prod(site.results[0].shape[2:])
    if site.operands[1].encoding is not None:
        return found  # a weight that lies in another order is not packed
    factor = next(name for least, name in _OF_SINGLE if positions >= least)
    return replace(found, rate=found.rate * site.device.factor(factor))


def _convolution_cost(site: Site) -> Cost:
    """As of a product; more where what it copies or stores lies in another order than it computes."""
    assert site.device is not None
    found, factor = _cost(site), site.device.factor
    if _is_depthwise(site):
        x, result = (tensor.encoding is not None for tensor in (site.operands[0], site.results[0]))
        name = "depthwise_lanes" if x and result else "depthwise_to_lanes" if result else "depthwise"
        return replace(found, rate=found.rate / factor(name))
    turned = sum(tensor.encoding is not None for tensor in (*site.operands, *site.results))
    if turned and site.operands[1].frozen:
        return replace(found, rate=found.rate / (factor("panels") * factor("turned") ** (2 - turned)))
    return replace(found, rate=found.rate / factor("turned") ** turned)


def _accepts_tiles(site: Site) -> str | None:
    """The code of why a convolution is not one by tiles of 2x2 positions, of filters that are transformed once."""
    if (problem := winograd_problem(site.op)) is not None:
        return problem.code
    is_made = isinstance(site.op.operands[1].owner, TransformedWeight)
    return None if site.operands[1].frozen or is_made else "not-frozen"


def _winograd_cost(site: Site) -> Cost:
    """Less than of windows by the products that are left, more by what is transformed, and by filters that no cache holds."""
    assert site.device is not None
    of, direct = site.op.window_contraction(), _convolution_cost(site)
    assert of is not None
    of = of.merged()
    tiles, windows = estimate(winograd_tiles(of)), estimate(prod(of.positions)) * of.taps
    made = site.device.factor("winograd_tile") * tiles * (1 / of.channels + 1 / of.filters)
    work = PRODUCTS * (tiles + site.device.factor("winograd_filters")) + made
    return replace(direct, rate=direct.rate * windows / work)


_PRODUCT = Offer(
    "",
    "fuse.matmul",
    (),
    _POINTWISE,
    _POINTWISE,
    _PRIORITY,
    kind=MATMUL,
    trace=trace_product,
    computes=computed_operands,
    accepts=_accepts(product_problem),
    cost=_product_cost,
    layouts=_transposed,
    sized=True,
)
_ATTENTION = Offer(
    "",
    "fuse.attention",
    priority=_PRIORITY,
    kind=ATTENTION,
    composite=True,
    trace=trace_attention,
    cost=_cost,
    sized=True,
)
_ATTENTION_GRADIENT = replace(
    _ATTENTION, name="fuse.attention_gradient", kind=ATTENTION_GRADIENT, trace=trace_attention_gradient, sized=False
)
_CONVOLUTION = Offer(
    "",
    "fuse.conv",
    (),
    _POINTWISE,
    None,
    _PRIORITY,
    kind=CONV,
    trace=trace_conv,
    accepts=_accepts(conv_problem),
    cost=_convolution_cost,
    sized=True,
)
_WINOGRAD = replace(
    _CONVOLUTION,
    name="fuse.conv_winograd",
    priority=_PRIORITY - 1,
    kind=WINOGRAD,
    trace=trace_winograd,
    accepts=_accepts_tiles,
    cost=_winograd_cost,
    layouts=_any_channels,
    numerics="finite",
)
_GPU_ATTENTION = replace(_ATTENTION, name="gpu.attention", platform="cuda", trace=trace_online_softmax)
_BLOCK = 64
"""Queries, and keys, that `gpu.attention` goes over at a time: others are computed for nothing."""


def _attention_cost(site: Site) -> Cost:
    """Of all blocks that queries and keys touch, with what is between the products."""
    return attention_cost(site, "gpu.attention", _BLOCK)


_OFFERS: Mapping[str, Sequence[Offer]] = {
    "graph.matmul": (
        _PRODUCT,
        _ATTENTION,
        _ATTENTION_GRADIENT,
        _GPU_ATTENTION,
    ),
    "graph.conv": (
        replace(_PRODUCT, cost=_single_cost, layouts=_channels_last),
        replace(_CONVOLUTION, layouts=_any_channels),
        _WINOGRAD,
    ),
    "graph.scaled_dot_product_attention": (replace(_GPU_ATTENTION, trace=None, cost=_attention_cost),),
    "graph.conv_transpose": (_CONVOLUTION,),
    "graph.conv_backward_data": (_CONVOLUTION,),
    "graph.conv_backward_weight": (_CONVOLUTION,),
}
"""By op; a convolution with windows of one element is a product, too."""


def register_generated() -> None:
    """Makes the offers known."""
    for op, offers in _OFFERS.items():
        for offer in offers:
            register_offer(replace(offer, op=op))
