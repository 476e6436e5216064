"""StableHLO ops that read or write at positions that are data: gather and scatter."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from fuse_opt.dialects.interfaces.shapes import dtype, is_static
from fuse_opt.dialects.types.dtypes import BOOL, I32, I64, DType
from fuse_opt.frontends.builder import Emitter, Value, extents, rank
from fuse_opt.frontends.stablehlo.operators.dynamic_slices import overwritten
from fuse_opt.frontends.stablehlo.operators.op import HloOp, Results, handler
from fuse_opt.frontends.stablehlo.operators.regions import combiner
from fuse_opt.frontends.stablehlo.operators.scatter import gives_update, scattered_by_region
from fuse_opt.frontends.stablehlo.operators.sizes import sliced_at

SCATTERS = {
    "stablehlo.add": "add",
    "stablehlo.multiply": "mul",
    "stablehlo.maximum": "max",
    "stablehlo.minimum": "min",
}


@handler("stablehlo.gather")
def gather(h: HloOp, g: Emitter) -> Results:
    """Slices at positions on some axes; a position at which a slice would leave the operand is moved inside."""
    return _gathered(h, g, h.integers("slice_sizes"))


@handler("stablehlo.dynamic_gather")
def dynamic_gather(h: HloOp, g: Emitter) -> Results:
    """The same, with slices of any sizes; one slice at a known position is sliced."""
    numbers, sizes, at = h.fields("dimension_numbers"), h.sizes(2), h.elements(1)
    if at is None or at.ndim != 1 or numbers.get("collapsed_slice_dims") or numbers.get("operand_batching_dims"):
        return _gathered(h, g, sizes)
    starts: list[Any] = [0] * len(sizes)
    for axis, start in zip(numbers.get("start_index_map", []), at.tolist(), strict=True):
        starts[axis] = start
    return sliced_at(h, g, starts, sizes)


def _gathered(h: HloOp, g: Emitter, sizes: list[int]) -> Results:
    x, indices, numbers = h.operand(0), h.operand(1), h.fields("dimension_numbers")
    axes, batch = numbers.get("start_index_map", []), numbers.get("operand_batching_dims", [])
    shape = extents(x)
    whole = all(size == shape[axis] for axis, size in enumerate(sizes) if axis not in (*axes, *batch))
    window = [axis for axis in range(rank(x)) if axis not in (*axes, *batch)]
    collapsed = {*numbers.get("collapsed_slice_dims", [])} == {*axes}
    if not axes or not whole or not collapsed or any(sizes[axis] != 1 for axis in axes):
        return _gather_elements(h, g, numbers, sizes)
    limits = [shape[axis] for axis in axes]
    if len(axes) > 1 and not batch and not window and is_static(x) and is_static(indices) and 0 not in shape:
        narrow = prod(shape) < 2**31 and dtype(indices) is I32
        return _elements_at(g, g.permute_dims(x, axes=axes), _vectors(g, indices, numbers, (), I32 if narrow else I64))
    positions = _positions(g, indices, numbers, "start_indices_batching_dims", limits)
    lead = rank(positions) - 1
    if len(axes) == 1 and not batch:
        y = g.take(x, g.reshape(positions, shape=extents(positions)[:-1]), axis=axes[0])
        y = g.permute_dims(y, axes=[*range(axes[0], axes[0] + lead), *range(axes[0]), *range(axes[0] + lead, rank(y))])
    elif len(axes) == 1 and not window and lead == len(batch) + 1:
        # Along rows elements are read by the kernel that wants them, in other lines by a loop of their own, line by line.
        is_row = axes[0] == rank(x) - 1 and is_static(x) and is_static(positions)
        read = g.read_at if is_row else g.take_along_axis
        x = g.permute_dims(x, axes=[*batch, *axes])
        y = read(x, g.reshape(positions, shape=extents(positions)[:-1]), axis=-1)
    else:
        x = g.permute_dims(x, axes=[*batch, *axes, *window])
        y = g.gather_nd(x, positions, batch_dims=len(batch) or None)
    batches = numbers.get("start_indices_batching_dims", [])
    return _placed(g, y, lead, numbers.get("offset_dims", []), batches, h.rank())


def _coordinates(
    h: HloOp,
    g: Emitter,
    numbers: dict[str, list[int]],
    shape: Sequence[int],
    limits: Sequence[int] | None,
    scatter: bool,
) -> Value:
    """
    For each element of the slices, of shape `shape`, its place in the operand, on a new last axis. Positions are clipped
    into `limits` where these are given.
    """
    names = (
        ("scatter_dims_to_operand_dims", "inserted_window_dims", "input_batching_dims", "update_window_dims")
        if scatter
        else ("start_index_map", "collapsed_slice_dims", "operand_batching_dims", "offset_dims")
    )
    axes, dropped, batch, windows = (numbers.get(name, []) for name in names)
    index_batch = numbers.get(f"{'scatter' if scatter else 'start'}_indices_batching_dims", [])
    indices, count = g.cast(h.operands[len(h.operands) // 2], I64), rank(h.operand(0))
    vector = numbers.get("index_vector_dim", [0])[0]
    if vector == rank(indices):
        indices = g.expand_dims(indices, axes=[vector])
    free = [axis for axis in range(len(shape)) if axis not in windows]
    lead = [axis for axis in range(rank(indices)) if axis != vector]
    spread = [extents(indices)[lead[free.index(axis)]] if axis in free else 1 for axis in range(len(shape))]
    inside = iter(sorted(windows))
    columns: list[Value] = []
    for axis in range(count):
        found: Value = g.number(0, I64)
        if axis in axes:
            part = g.reshape(_component(g, indices, vector, axes.index(axis)), shape=spread)
            found = part if limits is None else g.clip(part, found, g.number(limits[axis], I64))
        elif axis in batch:
            place = free[lead.index(index_batch[batch.index(axis)])]
            found = _counted(g, shape, place)
        if axis not in dropped and axis not in batch:
            found = g.add(found, _counted(g, shape, next(inside)))
        columns.append(g.broadcast_to(found, shape=[*shape]))
    return g.concat(*(g.expand_dims(column, axes=[len(shape)]) for column in columns), axis=len(shape))


def _counted(g: Emitter, shape: Sequence[int], axis: int) -> Value:
    return g.iota(shape=[n if number == axis else 1 for number, n in enumerate(shape)], axis=axis, dtype=I64)


def _component(g: Emitter, indices: Value, vector: int, number: int) -> Value:
    starts, stops = [0] * rank(indices), list(extents(indices))
    starts[vector], stops[vector] = number, number + 1
    return g.slice(indices, starts=starts, stops=stops)


def _gather_elements(h: HloOp, g: Emitter, numbers: dict[str, list[int]], sizes: Sequence[int]) -> Results:
    """Any gather, element by element."""
    limits = [n - size for n, size in zip(extents(h.operand(0)), sizes, strict=True)]
    return g.gather_nd(h.operand(0), _coordinates(h, g, numbers, h.shape(), limits, scatter=False))


def _places_inside(h: HloOp, g: Emitter, numbers: dict[str, list[int]]) -> Value:
    """For each element of the updates its place; out of range is the row behind the last."""
    x, updates = h.operand(0), h.operands[-1]
    places = _coordinates(h, g, numbers, extents(updates), None, scatter=True)
    zero, limits = g.number(0, I64), g.dense(np.array(extents(x), np.int64))
    inside = g.logical_and(g.greater_equal(places, zero), g.less(places, limits))
    spare = g.dense(np.array([extents(x)[0], *(0 for _ in extents(x)[1:])], np.int64))
    return g.where(g.all("all", inside, axes=[-1], keepdims=True)[0], places, spare)


def _scatter_elements(h: HloOp, g: Emitter, numbers: dict[str, list[int]], reduction: str) -> Results:
    """Any scatter, element by element; those out of range go behind the last row and are cut off."""
    x, _, updates = h.operands
    places = _places_inside(h, g, numbers)
    pads = [0] * 2 * rank(x)
    pads[rank(x)] = 1
    y = g.scatter_nd(g.pad(x, pads=pads), places, g.cast(updates, dtype(x)), reduce=reduction)
    return g.slice(y, starts=[0] * rank(x), stops=extents(x))


def _positions(g: Emitter, indices: Value, numbers: dict[str, list[int]], batches: str, limits: Sequence[int]) -> Value:
    """Index vectors on the last axis, batch axes first, clipped into `limits`."""
    indices = _vectors(g, indices, numbers, numbers.get(batches, []))
    columns = [_column(g, indices, number) for number in range(len(limits))]
    zero = g.number(0, I64)
    clipped = [g.clip(c, zero, g.number(limit - 1, I64)) for c, limit in zip(columns, limits, strict=True)]
    return g.concat(*clipped, axis=-1) if len(clipped) > 1 else clipped[0]


def _elements_at(g: Emitter, x: Value, indices: Value) -> Value:
    """Single elements, by their places in x, flat: what reads them may be part of a kernel with others."""
    shape, lead, given = extents(x), extents(indices)[:-1], dtype(indices)
    element = I32 if prod(shape) < 2**31 else I64
    flat: Value | None = None
    for axis, limit in enumerate(shape):
        place = g.clip(_column(g, indices, axis), g.number(0, given), g.number(limit - 1, given))
        place = g.multiply(g.cast(place, element), g.number(prod(shape[axis + 1 :]), element))
        flat = place if flat is None else g.add(flat, place)
    assert flat is not None
    y = g.read_at(g.reshaped(x, [prod(shape)]), g.reshaped(flat, [prod(lead)]), axis=0)
    return g.reshaped(y, lead)


def _vectors(
    g: Emitter, indices: Value, numbers: dict[str, list[int]], batch: Sequence[int], element: DType = I64
) -> Value:
    """Index vectors on the last axis, the axes of `batch` first."""
    vector = numbers.get("index_vector_dim", [0])[0]
    if vector == rank(indices):
        indices = g.expand_dims(indices, axes=[vector])
    rest = [axis for axis in range(rank(indices)) if axis not in (*batch, vector)]
    return g.permute_dims(g.cast(indices, element), axes=[*batch, *rest, vector])


def _column(g: Emitter, indices: Value, number: int) -> Value:
    """One component of the index vectors, the last axis kept."""
    shape = extents(indices)
    if shape[-1] == 1:
        return indices
    starts = [*(0 for _ in shape[:-1]), number]
    return g.slice(indices, starts=starts, stops=[*shape[:-1], number + 1])


def _placed(g: Emitter, y: Value, lead: int, offsets: Sequence[int], batches: Sequence[int], count: int) -> Value:
    """A result of `count` axes whose first `lead` are those of the indices, with the axes of the slices put at `offsets`."""
    free = [axis for axis in range(count) if axis not in offsets]
    rest = [axis for axis in range(lead) if axis not in batches]
    places = {free[axis]: number for number, axis in enumerate((*batches, *rest))}
    slices = iter(range(lead, rank(y)))
    places |= {axis: next(slices) for axis in sorted(offsets)}
    return g.permute_dims(y, axes=[places[axis] for axis in range(count)])


@handler("stablehlo.scatter")
def scatter(h: HloOp, g: Emitter) -> Results:
    """Updates out of range go to a row that is cut off again."""
    numbers, name = h.fields("scatter_dimension_numbers"), combiner(h.body)
    count = len(h.operands) // 2
    if count > 1 or name not in (*SCATTERS, None) or (name in SCATTERS and dtype(h.operand()) is BOOL):
        return scattered_by_region(h, g, numbers, _places_inside)
    if name is None and not gives_update(h.body):
        return scattered_by_region(h, g, numbers, _places_inside)
    return _scatter_slices(h, g, numbers, SCATTERS.get(name or "", "none"))


def _scatter_slices(h: HloOp, g: Emitter, numbers: dict[str, list[int]], reduction: str) -> Results:
    if reduction == "none" and (found := _known_slice(h, g, numbers)) is not None:
        return found
    x, indices, updates = h.operands
    axes, batch = numbers.get("scatter_dims_to_operand_dims", []), numbers.get("input_batching_dims", [])
    inserted, windows = numbers.get("inserted_window_dims", []), numbers.get("update_window_dims", [])
    shape = extents(x)
    window = [axis for axis in range(rank(x)) if axis not in (*axes, *batch)]
    whole = [extents(updates)[axis] for axis in windows] == [shape[axis] for axis in window]
    if ({*inserted} != {*axes} or not whole or not axes) and rank(x):
        return _scatter_elements(h, g, numbers, reduction)
    order = [*batch, *axes, *window]
    index_batch = numbers.get("scatter_indices_batching_dims", [])
    positions = _targets(g, indices, numbers, index_batch, [shape[axis] for axis in axes], [shape[a] for a in batch])
    free = [axis for axis in range(rank(updates)) if axis not in windows]
    rest = [free[axis] for axis in range(len(free)) if axis not in index_batch]
    updates = g.permute_dims(updates, axes=[*(free[axis] for axis in index_batch), *rest, *windows])
    target = g.permute_dims(x, axes=order)
    spare = [0] * 2 * rank(x)
    spare[rank(x) + len(batch)] = 1
    grown = g.pad(target, pads=spare)
    y = g.scatter_nd(grown, positions, g.cast(updates, dtype(x)), reduce=reduction)
    y = g.slice(y, starts=[0] * rank(x), stops=extents(target))
    return g.permute_dims(y, axes=[order.index(axis) for axis in range(rank(x))])


def _known_slice(h: HloOp, g: Emitter, numbers: dict[str, list[int]]) -> Value | None:
    """One slice of updates, at a place that is known and such that all of it lies inside: `x.at[2:5].set(y)`."""
    x, _, updates = h.operands
    axes, dropped = numbers.get("scatter_dims_to_operand_dims", []), numbers.get("inserted_window_dims", [])
    at, windows = h.elements(1), numbers.get("update_window_dims", [])
    if at is None or at.size != len(axes) or len(windows) != rank(updates) or numbers.get("input_batching_dims"):
        return None
    starts: list[Any] = [0] * rank(x)
    for axis, start in zip(axes, at.reshape(-1).tolist(), strict=True):
        starts[axis] = start
    return overwritten(g, x, g.expand_dims(updates, axes=dropped) if dropped else updates, starts)


def _targets(
    g: Emitter,
    indices: Value,
    numbers: dict[str, list[int]],
    index_batch: Sequence[int],
    limits: Sequence[int],
    batches: Sequence[int],
) -> Value:
    """Index vectors with the batch positions in front; those out of range name the row behind the last of the first axis."""
    indices = _vectors(g, indices, numbers, index_batch)
    columns = [_column(g, indices, number) for number in range(len(limits))]
    zero = g.number(0, I64)
    valid: Value | None = None
    for column, limit in zip(columns, limits, strict=True):
        inside = g.logical_and(g.greater_equal(column, zero), g.less(column, g.number(limit, I64)))
        valid = inside if valid is None else g.logical_and(valid, inside)
    if valid is not None:
        columns = [
            g.where(valid, column, g.number(limits[0] if number == 0 else 0, I64))
            for number, column in enumerate(columns)
        ]
    lead = extents(indices)[:-1]
    batch = [g.iota(shape=[*lead, 1], axis=axis, dtype=I64) for axis in range(len(batches))]
    return g.concat(*batch, *columns, axis=-1) if len(batch) + len(columns) > 1 else columns[0]
