"""Convolutions in NumPy: matrix products with unfolded windows (im2col), or folded back from them (col2im)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from fuse_opt.lowering.program import Array, Config
from fuse_opt.lowering.reference.kernels.config import integer, integers
from fuse_opt.lowering.reference.kernels.costs import convolution_cost
from fuse_opt.lowering.reference.kernels.registry import implementation, in_single

_UNFOLDED_BYTES = 32 << 20
"""What is unfolded at a time of several samples together."""


@dataclass(frozen=True)
class _Geometry:
    """The windows of a convolution of `extents`, `window` large, at `positions`."""

    extents: tuple[int, ...]
    window: tuple[int, ...]
    positions: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilations: tuple[int, ...]

    @staticmethod
    def of(config: Config, extents: Sequence[int], window: Sequence[int], positions: Sequence[int]) -> _Geometry:
        axes = len(extents)
        pads = integers(config, "pads", (0,) * 2 * axes)
        return _Geometry(
            tuple(extents),
            tuple(window),
            tuple(positions),
            integers(config, "strides", (1,) * axes),
            tuple(zip(pads[:axes], pads[axes:], strict=True)),
            integers(config, "dilations", (1,) * axes),
        )

    def padded(self, x: Array) -> Array:
        """The array with zeros around its trailing axes."""
        return np.pad(x, [*[(0, 0)] * (x.ndim - len(self.extents)), *self.pads])

    def unfold(self, padded: Array) -> Array:
        """Windows of [..., spatial...] as a view [..., window..., positions...]."""
        axes = len(self.extents)
        leading, steps = padded.strides[:-axes], padded.strides[-axes:]
        inside = (step * d for step, d in zip(steps, self.dilations, strict=True))
        between = (step * s for step, s in zip(steps, self.strides, strict=True))
        extents = (*padded.shape[:-axes], *self.window, *self.positions)
        return np.lib.stride_tricks.as_strided(padded, extents, (*leading, *inside, *between), writeable=False)

    def fold(self, columns: Array, target: Array) -> None:
        """Adds [C, window..., positions...] to [C, padded extents...], each element where its window lies."""
        for offset in product(*map(range, self.window)):
            along = zip(offset, self.dilations, self.strides, self.positions, strict=True)
            places = tuple(slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, s, n in along)
            target[(slice(None), *places)] += columns[(slice(None), *offset)]

    def inner(self, padded: Array) -> Array:
        """[..., padded extents...] without what the pads added, as far as it reaches."""
        along = zip(self.pads, self.extents, strict=True)
        return padded[(..., *(slice(begin, begin + n) for (begin, _), n in along))]


@implementation("numpy.conv", "graph.conv", cost=convolution_cost)
@in_single
def conv(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """Convolution as matrix products of unfolded windows, one sample and group at a time."""
    x, weight = inputs
    (out,) = outputs
    groups = integer(config, "groups", 1)
    geometry = _Geometry.of(config, x.shape[2:], weight.shape[2:], out.shape[2:])
    filters, positions = weight.shape[0] // groups, prod(out.shape[2:])
    kernel = weight.reshape(groups, filters, prod(weight.shape[1:]))
    for sample, target in zip(x, out, strict=True):
        columns = np.ascontiguousarray(geometry.unfold(geometry.padded(sample)))
        columns = columns.reshape(groups, kernel.shape[2], positions)
        np.matmul(kernel, columns, out=target.reshape(groups, filters, positions))


@implementation("numpy.conv_transpose", "graph.conv_transpose", cost=convolution_cost)
@implementation("numpy.conv_backward_data", "graph.conv_backward_data", cost=convolution_cost)
@in_single
def conv_transpose(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """The windows that each position adds, as matrix products, folded onto the result, one sample at a time.

    The gradient of a convolution's input is the same: the filters of the one are the channels of the other.
    """
    x, weight = inputs
    (out,) = outputs
    groups = integer(config, "groups", 1)
    geometry = _Geometry.of(config, out.shape[2:], weight.shape[2:], x.shape[2:])
    positions = prod(x.shape[2:])
    kernel = weight.reshape(groups, weight.shape[0] // groups, prod(weight.shape[1:])).swapaxes(1, 2)
    folded = np.empty((out.shape[1], *_folded_extents(geometry)), out.dtype)
    for sample, target in zip(x, out, strict=True):
        columns = np.matmul(kernel, sample.reshape(groups, kernel.shape[2], positions))
        folded.fill(0)
        geometry.fold(columns.reshape(out.shape[1], *geometry.window, *geometry.positions), folded)
        target[...] = geometry.inner(folded)


def _folded_extents(geometry: _Geometry) -> Iterator[int]:
    """The extents that hold all windows and the result: a convolution's stride, or output_padding, may leave a rest."""
    for n, (begin, _), k, d, s, extent in zip(
        geometry.positions, geometry.pads, geometry.window, geometry.dilations, geometry.strides, geometry.extents,
        strict=True,
    ):  # fmt: skip
        yield max((n - 1) * s + d * (k - 1) + 1, begin + extent)


@implementation("numpy.conv_backward_weight", "graph.conv_backward_weight", cost=convolution_cost)
@in_single
def conv_backward_weight(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """Products of the gradient with unfolded windows, of as many samples at a time as are worth a product."""
    grad, x = inputs
    (out,) = outputs
    groups = integer(config, "groups", 1)
    geometry = _Geometry.of(config, x.shape[2:], out.shape[2:], grad.shape[2:])
    filters, channels, window, positions = (
        out.shape[0] // groups,
        out.shape[1],
        prod(out.shape[2:]),
        prod(grad.shape[2:]),
    )
    total = out.reshape(groups, filters, channels * window)
    total.fill(0)
    each = max(1, x.shape[1] * window * positions * x.itemsize)
    for first in range(0, x.shape[0], step := max(1, _UNFOLDED_BYTES // each)):
        some = slice(first, first + step)
        count = x[some].shape[0]
        axes = (
            1,
            *range(2, 2 + len(geometry.window)),
            0,
            *range(2 + len(geometry.window), x.ndim + len(geometry.window)),
        )
        columns = np.ascontiguousarray(geometry.unfold(geometry.padded(x[some])).transpose(axes))
        columns = columns.reshape(groups, channels * window, count * positions)
        given = grad[some].reshape(count, groups, filters, positions).transpose(1, 2, 0, 3)
        given = given.reshape(groups, filters, count * positions)
        total += np.matmul(given, columns.swapaxes(1, 2))
