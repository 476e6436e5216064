"""A convolution by windows of one element, read where they lie: the product of filters by channels and channels by positions."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.analysis.contractions.operand_access import BATCH, OperandAccess
from fuse_opt.dialects.analysis.contractions.packed_panels import LANE_BYTES
from fuse_opt.dialects.analysis.contractions.products import Product
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.index_expr import delinearize, dimension, linear
from fuse_opt.lowering.cpu.matmul.panel_products import CutProduct
from fuse_opt.lowering.cpu.matmul.tilings.any_columns import HEIGHT, tiling_for_any_columns
from fuse_opt.lowering.cpu.matmul.tilings.arithmetic import arithmetic_of
from fuse_opt.lowering.cpu.matmul.tilings.choice import choose_tiling
from fuse_opt.lowering.kernel.buffers import KernelBuffers

FEWEST_POSITIONS = 128
"""Of an image of any extents, usually: of 7x7 tiles for what is left over of columns are most (1.25 times as long; measured)."""
TALL, MANY_CHANNELS = 6, 64
"""Rows of tiles for so many channels at least: fewer give tiles that are too short to ask for all rows of the result."""


def is_position_product(convolution: Convolution) -> bool:
    """Whether it is one whose matrices lie as a product reads and stores them; of any extents, if these are seldom small."""
    of = convolution.contraction
    if convolution.panel or convolution.widens or of.result_last:
        return False
    if of.has_any_extents and estimate(prod(of.positions)) < FEWEST_POSITIONS:
        return False
    return of.taps == 1 and of.reads_in_place and of.positions == of.extents


def cut_positions(convolution: Convolution, memory: KernelBuffers) -> CutProduct:
    """
    The product, for each group of each image, in tiles whose columns are positions. Its first tile leaves a copy of a panel of
    positions, of which each channel lies in another page, and tiles ask for what is read and stored next: 64 to 256 channels of
    56x56 take .61 of the time of panels that are read where they lie, 256 to 64 .77, 512 to 128 of 28x28 .80; of any extents .6,
    .8 and .8 of what blocks of rows take (measured, AVX-512).
    """
    product, itemsize = _product(convolution), convolution.sums.itemsize
    of, arithmetic = convolution.contraction, arithmetic_of(convolution.sums, convolution.sums, False)
    if of.has_any_extents:
        bits, height = 8 * LANE_BYTES, TALL if of.channels >= MANY_CHANNELS else HEIGHT
        tiling = tiling_for_any_columns(product.contraction, itemsize, arithmetic, (False, False), bits, height)
        return CutProduct(product, arithmetic, tiling, memory)
    usual = replace(product.contraction, batch=(of.at_usual_batch().batch, of.groups))
    return CutProduct(product, arithmetic, choose_tiling(usual, itemsize, arithmetic), memory)


def _product(convolution: Convolution) -> Product:
    of = convolution.contraction
    sample, group, channel, _ = of.x_steps()
    outer = (of.batch, of.groups)
    image, which = delinearize(dimension(BATCH, prod(outer)), outer)
    filters = OperandAccess(convolution.weight, linear([(which, of.group_step)]), of.filter_step, of.channel_step)
    positions = OperandAccess(convolution.x, linear([(image, sample), (which, group)]), channel, 1)
    contraction = replace(
        of.result_product(),
        lhs=(0, of.group_step, of.filter_step, of.channel_step),
        rhs=(sample, group, channel, 1),
    )
    return Product(convolution.op, contraction, filters, positions, convolution.epilogue, convolution.places)
