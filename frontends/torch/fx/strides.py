"""How the elements of strided tensors lie in memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.types.extents import estimate, exact_quotient, is_decided, largest
from fuse_opt.dialects.types.size import Extent
from fuse_opt.frontends.builder import Emitter
from fuse_opt.frontends.torch.fx.api import torch
from fuse_opt.frontends.torch.fx.symbols import known_extents, known_shape

_MOST_EXPECTED = 16
"""Strides that a dense axis may have, by which of the extents within it may be 0."""


def storage_view(value: Any) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """Shape, strides and offset of a strided tensor in its storage; None where it has none or one is not known."""
    if value.layout != torch.strided or (shape := known_shape(value)) is None:
        return None
    numbers = known_extents((*value.stride(), value.storage_offset()))
    return None if numbers is None else (shape, numbers[:-1], numbers[-1])


def contiguous_view(shape: tuple[int, ...]) -> View:
    """The layout of a tensor in C order."""
    return View(shape, tuple(prod(1 if n == 0 else n for n in shape[axis + 1 :]) for axis in range(len(shape))))


def dense_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes from the outermost in memory to the innermost where the elements fill it without gaps, else None."""
    wide = sorted((axis for axis, n in enumerate(shape) if n != 1), key=lambda axis: -estimate(strides[axis]))
    if 0 not in shape:
        expected: tuple[Extent, ...] = (1,)
        for axis in reversed(wide):
            if strides[axis] not in expected:
                return None
            extent: Extent = shape[axis]
            # PyTorch's strides are those of extents of 1 where one of them may be 0 for all that it knows.
            expected = tuple({n * m: None for n in expected for m in (extent, largest(1, extent))})[:_MOST_EXPECTED]
    else:
        wide = [axis for axis, n in enumerate(shape) if n != 1]
    if wide == sorted(wide):
        return tuple(range(len(shape)))
    return (*(axis for axis, n in enumerate(shape) if n == 1), *wide)


@dataclass(frozen=True)
class Layout:
    """Memory as a tensor in C order, and the strided tensor in it: the first `counts` positions of each of its axes."""

    extents: tuple[int, ...]
    """What lies behind the last element of the strided tensor is never read."""
    counts: tuple[int, ...]
    axes: tuple[int, ...]
    """The axis of the strided tensor that each of the first axes of memory is; the others have one position."""

    def read(self, emit: Emitter, memory: SSAValue, wanted: Sequence[int]) -> SSAValue:
        """The strided tensor, of shape `wanted`, by views of the memory."""
        x = emit.reshaped(memory, self.extents)
        if self.counts != self.extents:
            x = emit.slice(x, starts=[0] * len(self.counts), stops=list(self.counts))
        x = emit.reshaped(x, [wanted[axis] for axis in self.axes])
        order = sorted(range(len(self.axes)), key=self.axes.__getitem__)
        if order != list(range(len(order))):
            x = emit.permute_dims(x, axes=order)
        x = emit.reshaped(x, [n if axis in self.axes else 1 for axis, n in enumerate(wanted)])
        return x if shape(x) == tuple(wanted) else emit.broadcast_to(x, shape=list(wanted))


def layout_of(extents: tuple[int, ...], strides: tuple[int, ...]) -> Layout | None:
    """The layout of a tensor each stride of which is a multiple of the next smaller one; None for others."""
    if dense_order(extents, strides) == (whole := tuple(range(len(extents)))):
        return Layout(extents, extents, whole)
    axes = sorted((k for k, n in enumerate(extents) if n != 1 and strides[k]), key=lambda k: -estimate(strides[k]))
    memory = [extents[axis] for axis in axes[:1]]
    for outer, inner in itertools.pairwise(axes):
        extent = exact_quotient(strides[outer], strides[inner])
        if extent is None or not is_decided(lambda extent=extent, inner=inner: extent >= extents[inner]):
            return None
        memory.append(cast(int, extent))
    counts = [extents[axis] for axis in axes]
    if axes and strides[axes[-1]] != 1:
        memory.append(strides[axes[-1]])
        counts.append(1)
    return Layout(tuple(memory), tuple(counts), tuple(axes))


@dataclass(frozen=True)
class View:
    """A strided tensor in the memory of another one: its offset is counted in elements, from the first one there."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
