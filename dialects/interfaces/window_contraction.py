"""What a convolution is to those who generate code for it: sums over channels and taps of elements that windows reach."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.types.extents import estimate, is_number, may_exceed

SPATIAL = 3
"""Axes to which those of fewer are brought."""


@dataclass(frozen=True, slots=True)
class WindowContraction:
    """
    result[n, g, f, p] = sum over c and t of weight[g, f, c, t] * x[n, g, c, p * stride + t * dilation - begin], where x is 0
    outside of its extents; x and the result are in row-major order, or have their channels innermost. Positions p and taps t are
    indices of spatial axes.

    The weight has its taps side by side, in row-major order or, where `flipped`, in the reverse one; the strides of its
    groups, filters and channels are in elements.
    """

    batch: int
    groups: int
    filters: int
    """Of a group."""
    channels: int
    """Of a group."""
    extents: tuple[int, ...]
    positions: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    """Zeros before the first element, along each axis."""
    group_step: int
    filter_step: int
    channel_step: int
    flipped: bool = False
    x_last: bool = False
    """Whether x has its channels, of all groups, innermost in memory."""
    result_last: bool = False
    """Whether the result has; of one group, or of groups of one channel and one filter."""

    @property
    def taps(self) -> int:
        return prod(self.window)

    @property
    def has_any_extents(self) -> bool:
        """Whether an extent of an image is a size; that of the batch may be one, too."""
        return not all(map(is_number, (*self.extents, *self.positions)))

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel has a filter of its own, and no other reads it."""
        return self.groups > 1 and self.channels == self.filters == 1

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        places = self.batch * self.groups * self.filters * prod(self.positions)
        return 2 * places * self.channels * self.taps

    @property
    def reads_all_inside(self) -> bool:
        """Whether windows lie at all elements, one behind the other, and reach none outside."""
        along = zip(self.positions, self.window, self.dilations, self.extents, strict=True)
        inside = all(not may_exceed(n + d * (k - 1), extent) for n, k, d, extent in along)
        return inside and not any(self.begins) and all(s == 1 for s in self.strides)

    @property
    def reads_in_place(self) -> bool:
        """Whether windows can be read where they lie: all inside, with neighbours side by side."""
        return self.reads_all_inside and not self.x_last

    def at_usual_batch(self) -> WindowContraction:
        """The same of a typical batch, where that is a size: what is chosen for profit is chosen for it."""
        return self if is_number(self.batch) else replace(self, batch=estimate(self.batch))

    def x_steps(self) -> tuple[int, int, int, tuple[int, int, int]]:
        """Of a merged contraction, how far samples, groups, channels and the elements of each axis of x are apart."""
        size, (_, height, row) = prod(self.extents), self.extents
        channels = self.groups * self.channels
        if self.x_last:
            return channels * size, self.channels, 1, (height * row * channels, row * channels, channels)
        return channels * size, self.channels * size, size, (height * row, row, 1)

    def result_product(self) -> Contraction:
        """The product whose result lies in memory as that of the convolution does."""
        found = self.product()
        if not self.result_last:
            return found
        if self.groups > 1:  # their filters lie side by side, too
            rows, columns = prod(self.positions), self.groups * self.filters
            return Contraction((self.batch,), rows, columns, self.taps, (0, 0, 0), (0, 0, 0), in_memory=True)
        return replace(found.swapped(), in_memory=True)

    def reached(self, rows: int, columns: int) -> int:
        """
        Elements of a channel that a copy has, at most, of what windows at neighbouring positions reach, with zeros around it; of
        a merged contraction, whose first axis has a plane for each of its taps. With a stride it has its phases apart.
        """
        count = self.planes
        for axis, positions in ((1, rows), (2, columns)):
            count *= positions + self.behind(axis)
        return count

    @property
    def planes(self) -> int:
        """Of a channel's copy: one for each tap of the first axis and each phase of the others."""
        return self.window[0] * len(self.phases(1)) * len(self.phases(2))

    def phases(self, axis: int) -> tuple[int, ...]:
        """Where taps lie between the first elements of two neighbouring windows."""
        return tuple(sorted({self.dilations[axis] * tap % self.strides[axis] for tap in range(self.window[axis])}))

    def behind(self, axis: int) -> int:
        """Positions behind its own at which a window reads, at most: elements of a phase behind its first one."""
        return self.dilations[axis] * (self.window[axis] - 1) // self.strides[axis]

    def product(self) -> Contraction:
        """The product, for each group of each sample, of filters by what windows see: of unfolded windows, side by side."""
        columns, depth = prod(self.positions), self.channels * self.taps
        weight, windows = (0, self.group_step, depth, 1), (depth * columns * self.groups, depth * columns, columns, 1)
        return Contraction((self.batch, self.groups), self.filters, columns, depth, weight, windows)

    def merged(self) -> WindowContraction:
        """The same with three axes; a window of one element that goes over all of them sees a single long one."""
        extents, positions, window = self.extents, self.positions, self.window
        strides, dilations, begins = self.strides, self.dilations, self.begins
        if self.taps == 1 and self.reads_all_inside and extents == positions:
            extents, positions, window = (prod(extents),), (prod(positions),), (1,)
            strides, dilations, begins = (1,), (1,), (0,)
        more = SPATIAL - len(extents)
        ones = (1,) * more
        return replace(
            self,
            extents=ones + extents,
            positions=ones + positions,
            window=ones + window,
            strides=ones + strides,
            dilations=ones + dilations,
            begins=(0,) * more + begins,
        )
