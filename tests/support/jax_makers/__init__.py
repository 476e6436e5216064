"""Statements of random functions of jax. Each function adds one, or nothing."""

from jax_makers.elements import (
    binary,
    bitcasts,
    bits,
    casts,
    comparisons,
    exact,
    quotients,
    ranged,
    scalars,
    smooth,
    where,
)
from jax_makers.indices import gathers, scatters
from jax_makers.movement import creation, dynamic_slices, movement, pads, slices
from jax_makers.products import contractions, convolutions, images, products, windows
from jax_makers.reductions import control, orders, reductions, special_reductions

MAKERS = (
    smooth, smooth, exact, ranged, binary, binary, scalars, quotients, comparisons, bits, where, casts, bitcasts, movement,
    movement, slices, dynamic_slices, pads, reductions, reductions, special_reductions, orders, gathers, gathers, scatters,
    scatters, products, products, contractions, convolutions, convolutions, windows, windows, control, creation, images,
)  # fmt: skip
