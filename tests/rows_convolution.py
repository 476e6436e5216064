"""Rows of convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from graph_op_table import (
    FLOATS,
    Array,
    Case,
    Row,
    noise,
    rounded,
)


def _convolved(
    x: Array, w: Array, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int], groups: int
) -> Array:
    """Every output element as a sum over the window, in plain loops."""
    spatial = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:], strict=True)])
    reach = [dilations[k] * (w.shape[2 + k] - 1) + 1 for k in range(spatial)]
    extents = [(padded.shape[2 + k] - reach[k]) // strides[k] + 1 for k in range(spatial)]
    out = np.zeros((x.shape[0], w.shape[0], *extents))
    inputs, outputs = w.shape[1], w.shape[0] // groups
    for n, o, position in product(range(x.shape[0]), range(w.shape[0]), np.ndindex(*extents)):
        group = o // outputs
        for c, offset in product(range(inputs), np.ndindex(*w.shape[2:])):
            at = [p * s + q * d for p, s, q, d in zip(position, strides, offset, dilations, strict=True)]
            out[(n, o, *position)] += padded[(n, group * inputs + c, *at)] * w[(o, c, *offset)]
    return out


CONVS: list[tuple[tuple[int, ...], tuple[int, ...], list[int], list[int], list[int], int]] = [
    ((2, 3, 7), (4, 3, 3), [1], [0, 0], [1], 1),
    ((1, 4, 8), (6, 2, 3), [2], [1, 2], [2], 2),
    ((2, 2, 5, 6), (3, 2, 3, 2), [2, 1], [1, 0, 2, 1], [1, 2], 1),
    ((1, 4, 4, 4), (4, 1, 3, 3), [1, 1], [1, 1, 1, 1], [1, 1], 4),
    ((1, 2, 3, 4, 3), (2, 2, 2, 2, 2), [1, 1, 1], [0, 1, 0, 0, 1, 0], [1, 1, 1], 1),
    ((0, 3, 7), (4, 3, 3), [1], [0, 0], [1], 1),
]


def _conv_cases() -> Iterator[Case]:
    for name, (shape, kernel, strides, pads, dilations, groups) in product(FLOATS, CONVS):
        x, w = noise(name, *shape), noise(name, *kernel)
        value = _convolved(x.astype(np.float64), w.astype(np.float64), strides, pads, dilations, groups)
        lists = {"strides": strides, "pads": pads, "dilations": dilations}
        parts = [f"{key} = array<i64: {', '.join(map(str, values))}>" for key, values in lists.items()]
        yield Case("graph.conv", ", ".join([*parts, f"groups = {groups} : i64"]), (x, w), rounded(value, name))


ROWS: list[Row] = [
    Row("conv", FLOATS, _conv_cases),
]
