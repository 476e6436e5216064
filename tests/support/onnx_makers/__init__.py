"""Nodes of random ONNX graphs. Each function adds one, or nothing."""

from onnx_makers.elements import (
    binary,
    bits,
    casts,
    clip,
    comparisons,
    integer_powers,
    logic,
    quotients,
    ranged,
    several,
    smooth,
    steps,
    where,
)
from onnx_makers.indices import gathers, one_hots, scatters
from onnx_makers.movement import (
    blocks,
    center,
    concats,
    copies,
    flattens,
    pads,
    reshapes,
    sequences,
    shapes,
    slices,
    splits,
    squeezes,
    transposes,
    triangles,
)
from onnx_makers.products import einsums, gemms, norms, products, recurrences
from onnx_makers.quantised import byte_convolutions, byte_products, dynamic_quantised, quantised
from onnx_makers.reductions import arguments, orders, reductions, softmaxes, totals
from onnx_makers.windows import convolutions, pools, resizes, transposed, whole_pools

PLAIN = (
    smooth, smooth, steps, ranged, binary, binary, several, quotients, integer_powers, comparisons, logic, bits, where, clip,
    casts, transposes, reshapes, flattens, squeezes, concats, splits, slices, slices, pads, pads, copies, triangles, blocks,
    center, sequences, reductions, reductions, reductions, arguments, orders, totals, softmaxes, gathers, gathers, scatters,
    scatters, one_hots, shapes,
)  # fmt: skip
WINDOWS = (
    convolutions, convolutions, convolutions, transposed, transposed, pools, pools, pools, whole_pools, products, products,
    products, gemms, gemms, einsums, norms, norms, norms, resizes, resizes, quantised, quantised, byte_products,
    byte_convolutions, dynamic_quantised, recurrences,
)  # fmt: skip
MAKERS = (*PLAIN, *WINDOWS)
