"""Reads and writes at positions that are data, in NumPy: one pass over flat memory, no temporary but flat positions.

Positions are checked before anything is written. Elements that are only moved are moved as raw bits where NumPy has no
type for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

import numpy as np

from fuse_opt.lowering.program import Array, Config
from fuse_opt.lowering.program.float_formats import bit_patterns, by_values, is_narrow
from fuse_opt.lowering.reference.kernels.config import integer, integers, text
from fuse_opt.lowering.reference.kernels.costs import moving_cost
from fuse_opt.lowering.reference.kernels.registry import implementation, in_single

_LONG_ROW = 256
"""Elements of a row from which on one call for each row costs less than a position for each element."""
_CHUNK = 1 << 16
"""Positions that are made at a time."""


def _raw(array: Array) -> Array:
    """The same memory in a type that NumPy moves fast."""
    return bit_patterns(array) if is_narrow(array.dtype) else array


def _copy(x: Array, out: Array) -> None:
    """The elements of x in the output, which may be the same array."""
    if not np.may_share_memory(x, out):
        out[...] = x


def checked(op: str, indices: Array, extent: int, axis: int, least: int | None = None) -> Array:
    """
    The indices as positions from 0 on; those from `least` (-extent) on are in range. Raises IndexError for the first that
    is not.
    """
    wide, first = np.array(indices, np.int64), -extent if least is None else least
    if not wide.size:
        return wide
    low, high = int(wide.min()), int(wide.max())
    if low < first or high >= extent:
        at = tuple(np.argwhere((wide < first) | (wide >= extent))[0].tolist())
        raise IndexError(
            f"'{op}': index {int(wide[at])} at {list(at)} of the indices is out of range for axis {axis} of extent "
            f"{extent}; expected {first} <= index < {extent}"
        )
    if low < 0:
        wide[wide < 0] += extent
    return wide


def _least(config: Config) -> int | None:
    """The least index in range, where that is not the first one from the end."""
    return None if integer(config, "wrap_negative", 1) else 0


def _steps(extents: Sequence[int]) -> list[int]:
    """Elements from one position to the next, by axis."""
    return [prod(extents[axis + 1 :]) for axis in range(len(extents))]


def _linear(positions: Array, extents: Sequence[int], result: Sequence[int], axis: int) -> Array:
    """Flat positions in a tensor of `extents`: on `axis` as given, on the others as in `result`, which they broadcast to."""
    steps = _steps(extents)
    flat = np.empty(result, np.int64)
    flat[...] = positions
    flat *= steps[axis]
    for other, (n, m) in enumerate(zip(extents, result, strict=True)):
        if other != axis and n > 1 and m > 1:
            along = np.arange(m, dtype=np.int64) * steps[other]
            flat += along.reshape([-1 if k == other else 1 for k in range(len(result))])
    return flat.reshape(-1)


def _rows(op: str, positions: Sequence[Array], extents: Sequence[int], first: int = 0) -> Array:
    """Flat positions in a tensor of `extents`, one operand of indices for each of its axes, broadcast together."""
    flat = np.zeros(np.broadcast_shapes(*(p.shape for p in positions)), np.int64)
    for axis, (indices, extent, step) in enumerate(zip(positions, extents, _steps(extents), strict=True)):
        flat += checked(op, indices, extent, first + axis) * step
    return flat


def accumulate(combine: np.ufunc, target: Array, rows: Array, updates: Array) -> None:
    """`target[rows[k]] = combine(target[rows[k]], updates[k])` for each k in order; target is [rows, width] in C order."""
    width = target.shape[1]
    if width >= _LONG_ROW:
        for row, update in zip(rows.tolist(), updates, strict=True):
            combine(target[row], update, out=target[row])
        return
    flat, columns = target.reshape(-1), np.arange(width, dtype=np.int64)
    step = max(1, _CHUNK // max(width, 1))
    for first in range(0, rows.size, step):
        some = slice(first, first + step)
        combine.at(flat, (rows[some, None] * width + columns).reshape(-1), updates[some].reshape(-1))


_COMBINE: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@implementation("numpy.take", "graph.take", moves=True, cost=moving_cost, sized=True)
def take(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """np.take into the output."""
    x, indices = inputs
    (out,) = outputs
    axis = integer(config, "axis", 0) % x.ndim
    _take_rows(x, checked("graph.take", indices, x.shape[axis], axis, _least(config)), axis, out)


def _take_rows(x: Array, positions: Array, axis: int, out: Array) -> None:
    if out.size:
        np.take(_raw(x), positions, axis=axis, out=_raw(out), mode="clip")  # "raise" would go through a buffer


@implementation("numpy.checked_positions", "graph.checked_positions", cost=moving_cost, sized=True)
def checked_positions(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """The indices as positions from 0 on."""
    extent, axis = integer(config, "extent", 0), integer(config, "axis", 0)
    outputs[0][...] = checked(text(config, "op", "graph.checked_positions"), inputs[0], extent, axis, _least(config))


@implementation("numpy.take_along_axis", "graph.take_along_axis", moves=True, cost=moving_cost, sized=True)
def take_along_axis(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """np.take at flat positions."""
    x, indices = inputs
    (out,) = outputs
    axis = integer(config, "axis", -1) % x.ndim
    positions = checked("graph.take_along_axis", indices, x.shape[axis], axis, _least(config))
    _take_rows(x.reshape(-1), _linear(positions, x.shape, out.shape, axis), 0, out.reshape(-1))


def _flat_targets(op: str, inputs: Sequence[Array], out: Array, config: Config) -> tuple[Array, Array]:
    """The output, flat, with x in it, and where in it the updates belong."""
    x, indices = inputs[0], inputs[1]
    axis = integer(config, "axis", 0) % x.ndim
    flat = _linear(checked(op, indices, x.shape[axis], axis, _least(config)), x.shape, indices.shape, axis)
    _copy(x, out)
    return out.reshape(-1), flat


@implementation("numpy.scatter", "graph.scatter", moves=True, inplace=((0, 0),), cost=moving_cost, sized=True)
def scatter(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """Assignment at flat positions: NumPy assigns in order, so the last stays."""
    target, flat = _flat_targets("graph.scatter", inputs, outputs[0], config)
    _raw(target)[flat] = _raw(inputs[2]).reshape(-1)


@implementation("numpy.scatter_add", "graph.scatter_add", inplace=((0, 0),), cost=moving_cost, sized=True)
@in_single
def scatter_add(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """np.add.at at flat positions."""
    target, flat = _flat_targets("graph.scatter_add", inputs, outputs[0], config)
    np.add.at(target, flat, inputs[2].reshape(-1))


@implementation("numpy.scatter_reduce", "graph.scatter_reduce", inplace=((0, 0),), cost=moving_cost, sized=True)
@in_single
def scatter_reduce(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """`at` of NumPy's function for the reduction."""
    target, flat = _flat_targets("graph.scatter_reduce", inputs, outputs[0], config)
    _COMBINE[text(config, "reduce", "add")].at(target, flat, inputs[2].reshape(-1))


@implementation("numpy.gather_nd", "graph.gather_nd", moves=True, cost=moving_cost, sized=True)
def gather_nd(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """np.take of rows."""
    x, indices = inputs
    (out,) = outputs
    batch, length = integer(config, "batch_dims", 0), indices.shape[-1]
    named, width = x.shape[batch : batch + length], prod(x.shape[batch + length :])
    rows = _rows("graph.gather_nd", list(np.moveaxis(indices, -1, 0)), named, batch)
    before = np.arange(prod(x.shape[:batch])).reshape((*x.shape[:batch], *[1] * (rows.ndim - batch)))
    rows += before * prod(named)
    _take_rows(x.reshape(prod(x.shape[: batch + length]), width), rows.reshape(-1), 0, out.reshape(rows.size, width))


@implementation("numpy.scatter_nd", "graph.scatter_nd", moves=True, inplace=((0, 0),), cost=moving_cost, sized=True)
def scatter_nd(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """Assignment of rows, or `at` of NumPy's function for the reduction."""
    reduced = text(config, "reduce", "none") != "none"
    (by_values(in_single(_scatter_nd)) if reduced else _scatter_nd)(inputs, outputs, config)


def _scatter_nd(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    x, indices, updates = inputs
    (out,) = outputs
    length = indices.shape[-1]
    rows = _rows("graph.scatter_nd", list(np.moveaxis(indices, -1, 0)), x.shape[:length])
    _put_rows(_COMBINE.get(text(config, "reduce", "none")), x, length, rows.reshape(-1), updates, out)


def _put_rows(combine: np.ufunc | None, x: Array, length: int, rows: Array, updates: Array, out: Array) -> None:
    """A copy of x, its first `length` axes taken as one, with the updates at these rows."""
    _copy(x, out)
    width = prod(x.shape[length:])
    target, given = out.reshape(prod(x.shape[:length]), width), updates.reshape(rows.size, width)
    if combine is None:
        _raw(target)[rows] = _raw(given)
    else:
        accumulate(combine, target, rows, given)


def _key(op: str, x: Array, indices: Sequence[Array], axes: Sequence[int]) -> tuple[Array | slice, ...]:
    """What NumPy takes in brackets."""
    key: list[Array | slice] = [slice(None)] * x.ndim
    for axis, given in zip(axes, indices, strict=True):
        key[axis] = checked(op, given, x.shape[axis], axis)
    return tuple(key)


def _axes(config: Config, x: Array, count: int) -> tuple[int, ...]:
    return tuple(axis % x.ndim for axis in integers(config, "axes", tuple(range(count))))


@implementation("numpy.index", "graph.index", moves=True, cost=moving_cost, sized=True)
def index(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """np.take along the axes taken as one; NumPy's own indexing where they are apart."""
    x, *indices = inputs
    (out,) = outputs
    axes = _axes(config, x, len(indices))
    first, count = min(axes), len(axes)
    if axes != tuple(range(first, first + count)):
        _raw(out)[...] = _raw(x)[_key("graph.index", x, indices, axes)]
        return
    named = x.shape[first : first + count]
    rows = _rows("graph.index", indices, named, first).reshape(-1)
    outer, width = prod(x.shape[:first]), prod(x.shape[first + count :])
    _take_rows(x.reshape(outer, prod(named), width), rows, 1, out.reshape(outer, rows.size, width))


@implementation("numpy.index_put", "graph.index_put", moves=True, inplace=((0, 0),), cost=moving_cost, sized=True)
def index_put(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """Assignment of rows, or sums in order; NumPy's own indexing where the axes are not the first ones."""
    reduced = integer(config, "accumulate", 0) != 0
    (by_values(in_single(_index_put)) if reduced else _index_put)(inputs, outputs, config)


def _index_put(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    x, values, *indices = inputs
    (out,) = outputs
    axes = _axes(config, x, len(indices))
    combine = np.add if integer(config, "accumulate", 0) else None
    if axes == tuple(range(len(axes))):
        rows = _rows("graph.index_put", indices, x.shape[: len(axes)])
        updates = np.broadcast_to(values, (*rows.shape, *x.shape[len(axes) :]))
        _put_rows(combine, x, len(axes), rows.reshape(-1), updates, out)
        return
    key = _key("graph.index_put", x, indices, axes)
    _copy(x, out)
    if combine is None:
        _raw(out)[key] = _raw(values)
    else:
        combine.at(out, cast(Any, key), values)


@implementation("numpy.embedding_backward", "graph.embedding_backward", cost=moving_cost, sized=True)
@in_single
def embedding_backward(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """Rows added in the order of the ids."""
    grad, ids = inputs
    (out,) = outputs
    rows = checked("graph.embedding_backward", ids, out.shape[0], 0, _least(config)).reshape(-1)
    updates = grad.reshape(rows.size, out.shape[1])
    if isinstance(padding := config.get("padding_index"), int):
        kept = rows != (padding + out.shape[0] if padding < 0 else padding)
        if not kept.all():
            rows, updates = rows[kept], updates[kept]
    out.fill(0)
    accumulate(np.add, out, rows, updates)
