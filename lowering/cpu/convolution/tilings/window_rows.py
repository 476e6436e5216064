"""Where windows find their elements in rows of an input that are laid side by side, with zeros between them.

Rows of `pitch` elements, one behind the other, are one long row: a tap reads as many neighbours from some place on, across
the ends of rows, and what it reads there belongs to no position. The zeros behind a row are those before the next one. With
a stride each phase has rows of its own, of every stride-th element, so that neighbours stay neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import cast

from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.extents import largest, smallest


@dataclass(frozen=True, slots=True)
class Reach:
    """The taps of a window along one axis: element j of phase f is that at `j * stride + phases[f] - begin` of the input."""

    stride: int
    begin: int
    extent: int
    phases: tuple[int, ...]
    taps: tuple[tuple[int, int], ...]
    """By tap: the number of its phase, and how far it lies behind the first one of that phase."""
    behind: int
    """Elements of a phase that the last tap reads behind the first position's."""

    @staticmethod
    def along(contraction: WindowContraction, axis: int) -> Reach:
        stride, dilation = contraction.strides[axis], contraction.dilations[axis]
        offsets = [dilation * tap for tap in range(contraction.window[axis])]
        phases = contraction.phases(axis)
        taps = tuple((phases.index(offset % stride), offset // stride) for offset in offsets)
        begin, extent, behind = contraction.begins[axis], contraction.extents[axis], contraction.behind(axis)
        return Reach(stride, begin, extent, phases, taps, behind)

    def inside(self, phase: int, count: int) -> tuple[int, int]:
        """Which of so many elements of a phase are of the input, and no zeros: the first, and the one after the last."""
        first = max(-(-(self.begin - phase) // self.stride), 0)
        last = largest(-(-(self.extent + self.begin - phase) // self.stride), 0)
        return cast(int, smallest(first, count)), cast(int, smallest(last, count))

    def pitch(self, positions: int) -> int:
        """The least distance of rows, so that what a window reads behind a row is 0, and so is what lies there."""
        length = positions + self.behind
        ranges = [self.inside(phase, length) for phase in self.phases]
        zeros_before = reduce(smallest, (first for first, _ in ranges))
        zeros_from = reduce(largest, (last for _, last in ranges))
        return cast(int, largest(largest(positions, zeros_from), length - zeros_before))
