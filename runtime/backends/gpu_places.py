"""Where ops read and write at positions that are data, as steps along axes: one form for all of them.

A place is an element of what is read, or an update. Its element of x is the sum of its coordinates times `x_steps`, and for
each operand of indices of what that names times a weight; the operand itself is read at steps of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from fuse_opt.lowering.program import BufferRef, LibraryCall
from fuse_opt.runtime.backends.gpu_calls import axis_of

Steps = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """An operand of indices: what it names is a position of `axis`, worth `weight` elements of x."""

    ref: BufferRef
    axis: int
    extent: int
    weight: int
    steps: Steps
    shift: int = 0
    """Elements in front of the one of the first place."""


@dataclass(frozen=True, slots=True)
class Places:
    """All places of a call, and for each the element of x, and of the values that are written."""

    extents: Steps
    x_steps: Steps
    named: tuple[Named, ...]
    value_steps: Steps

    @property
    def count(self) -> int:
        return prod(self.extents)

    def collapsed(self) -> Places:
        """The same places with axes of extent 1 left out, and neighbours joined where all steps go on."""
        kept = [k for k, n in enumerate(self.extents) if n != 1] or list(range(len(self.extents)))[:1]
        rows = [self.extents, self.x_steps, self.value_steps, *(each.steps for each in self.named)]
        columns = [[row[k] for row in rows] for k in kept]
        joined: list[list[int]] = []
        for column in columns:
            before = joined[-1] if joined else None
            if before is not None and all(b == a * column[0] for a, b in zip(column[1:], before[1:], strict=True)):
                joined[-1] = [before[0] * column[0], *column[1:]]
            else:
                joined.append(column)
        extents, x_steps, value_steps, *steps = (tuple(row) for row in zip(*joined, strict=True)) if joined else _EMPTY
        named = (replace(each, steps=s) for each, s in zip(self.named, steps, strict=False))
        return Places(extents, x_steps, tuple(named) if joined else self.named, value_steps)


_EMPTY: tuple[Steps, ...] = ((), (), ())


def strides(shape: Sequence[int]) -> Steps:
    return tuple(prod(shape[k + 1 :]) for k in range(len(shape)))


def _broadcast(shape: Sequence[int], result: Sequence[int]) -> Steps:
    """The steps of an operand along the axes of what it broadcasts to."""
    own = [step if n > 1 else 0 for n, step in zip(shape, strides(shape), strict=True)]
    return (*(0,) * (len(result) - len(shape)), *own)


def _with_values(extents: Sequence[int], x_steps: Sequence[int], named: Sequence[Named], values: BufferRef) -> Places:
    given = strides(extents) if prod(values.shape) == prod(extents) else _broadcast(values.shape, extents)
    return Places(tuple(extents), tuple(x_steps), tuple(named), given)


def take(call: LibraryCall) -> Places:
    x, ref = call.inputs
    axis, steps = axis_of(call, 0, len(x.shape)), strides(x.shape)
    before, behind = (0,) * axis, (0,) * (len(x.shape) - axis - 1)
    x_steps = (*steps[:axis], *(0 for _ in ref.shape), *steps[axis + 1 :])
    named = Named(ref, axis, x.shape[axis], steps[axis], (*before, *strides(ref.shape), *behind))
    return _with_values(call.outputs[0].shape, x_steps, [named], call.outputs[0])


def checked_positions(call: LibraryCall) -> Places:
    """As if x were positions that count from 0 on."""
    ref, extent, axis = call.inputs[0], call.config["extent"], call.config["axis"]
    assert isinstance(extent, int) and isinstance(axis, int)
    named = Named(ref, axis, extent, 1, strides(ref.shape))
    return _with_values(ref.shape, [0 for _ in ref.shape], [named], call.outputs[0])


def take_along_axis(call: LibraryCall) -> Places:
    x, ref = call.inputs
    axis, shape = axis_of(call, -1, len(x.shape)), call.outputs[0].shape
    x_steps = [0 if k == axis else step for k, step in enumerate(_broadcast(x.shape, shape))]
    named = Named(ref, axis, x.shape[axis], strides(x.shape)[axis], _broadcast(ref.shape, shape))
    return _with_values(shape, x_steps, [named], call.outputs[0])


def _positions(x: BufferRef, ref: BufferRef, batch: int, values: BufferRef) -> Places:
    """Positions along the last axis of an operand, behind `batch` axes that it has in common with x."""
    length, steps, along = ref.shape[-1], strides(x.shape), strides(ref.shape)[:-1]
    rest = x.shape[batch + length :]
    extents = (*ref.shape[:-1], *rest)
    x_steps = (*steps[:batch], *(0 for _ in ref.shape[batch:-1]), *steps[batch + length :])
    own = (*along, *(0 for _ in rest))
    named = [Named(ref, batch + k, x.shape[batch + k], steps[batch + k], own, k) for k in range(length)]
    return _with_values(extents, x_steps, named, values)


def gather_nd(call: LibraryCall) -> Places:
    batch = call.config.get("batch_dims", 0)
    assert isinstance(batch, int)
    return _positions(call.inputs[0], call.inputs[1], batch, call.outputs[0])


def scatter_nd(call: LibraryCall) -> Places:
    x, indices, updates = call.inputs
    return _positions(x, indices, 0, updates)


def _indexed(x: BufferRef, refs: Sequence[BufferRef], call: LibraryCall, values: BufferRef) -> Places:
    """NumPy's `x[i, :, j]`."""
    given, steps = call.config.get("axes", tuple(range(len(refs)))), strides(x.shape)
    assert isinstance(given, tuple)
    axes = [int(axis) % len(x.shape) for axis in given]
    together = tuple(np.broadcast_shapes(*(ref.shape for ref in refs)))
    rest = [k for k in range(len(x.shape)) if k not in axes]
    first = min(axes)
    at = first if sorted(axes) == list(range(first, first + len(axes))) else 0
    before, behind = rest[:at], rest[at:]
    extents = (*(x.shape[k] for k in before), *together, *(x.shape[k] for k in behind))
    x_steps = (*(steps[k] for k in before), *(0 for _ in together), *(steps[k] for k in behind))
    zeros = (0,) * len(before), (0,) * len(behind)
    named = [
        Named(ref, axis, x.shape[axis], steps[axis], (*zeros[0], *_broadcast(ref.shape, together), *zeros[1]))
        for ref, axis in zip(refs, axes, strict=True)
    ]
    return Places(extents, x_steps, tuple(named), _broadcast(values.shape, extents))


def index(call: LibraryCall) -> Places:
    return _indexed(call.inputs[0], call.inputs[1:], call, call.outputs[0])


def index_put(call: LibraryCall) -> Places:
    return _indexed(call.inputs[0], call.inputs[2:], call, call.inputs[1])


def scatter(call: LibraryCall) -> Places:
    x, ref, updates = call.inputs
    axis, steps = axis_of(call, 0, len(x.shape)), strides(x.shape)
    x_steps = [0 if k == axis else step for k, step in enumerate(steps)]
    named = Named(ref, axis, x.shape[axis], steps[axis], strides(ref.shape))
    return _with_values(ref.shape, x_steps, [named], updates)


def embedding_backward(call: LibraryCall) -> Places:
    grad, ids = call.inputs
    rows, width = call.outputs[0].shape
    named = Named(ids, 0, rows, width, (*strides(ids.shape), 0))
    return _with_values((*ids.shape, width), (*(0 for _ in ids.shape), 1), [named], grad)
