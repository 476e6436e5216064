"""The cut of few rows that stream their right operand: reading that is what takes time."""

from __future__ import annotations

from fuse_opt.dialects.analysis.contractions.product_copies import FEWEST_STREAMED, MOST_STREAMED
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.lowering.c.headers.row_sums import STREAMS, most_columns
from fuse_opt.lowering.cpu.matmul.tilings.arithmetic import Arithmetic
from fuse_opt.lowering.cpu.matmul.tilings.tiling import Tiling, is_far

MOST_NEAR_STREAMED = 1
"""Rows of a product that stream one that second caches do hold: two and three rows take 1.1 to 1.4 times as long so (Zen 4).
Narrow floats, which are widened as they are read, are streams in either case (2 to 3 times as fast)."""
STREAMED_VECTORS = 4
"""Of a panel then, which is what threads share."""


def is_streamed(product: Contraction, itemsize: int, arithmetic: Arithmetic | None) -> bool:
    """Whether so few rows meet a right operand, whose rows lie side by side, that reading it is what takes time."""
    is_float = arithmetic is None or arithmetic.converts or not arithmetic.is_narrow
    is_widened = arithmetic is not None and arithmetic.converts
    most = MOST_STREAMED if is_widened or is_far(product, itemsize) else MOST_NEAR_STREAMED
    is_wide = product.columns >= FEWEST_STREAMED and product.rhs[-1] == 1
    return is_float and is_wide and product.depth >= STREAMS and product.rows <= most


def streamed(product: Contraction, lanes: int, itemsize: int) -> Tiling:
    """Panels are what is shared out to threads; a task goes over as many as there is room for their sums."""
    width = STREAMED_VECTORS * lanes
    panels = -(-product.columns // width)
    return Tiling(
        along_depth=False,
        columns=width,
        width=width,
        last_width=product.columns - (panels - 1) * width,
        panels=panels,
        tiles=1,
        height=product.rows,
        taller=0,
        block=1,
        depth=product.depth,
        panels_at_a_time=min(panels, most_columns(product.rows, itemsize) // width),
        copied_depth=0,
        transposed_rows=False,
        packs=False,
        depth_first=True,
        is_streamed=True,
        is_far=is_far(product, itemsize),
    )
