"""StableHLO slices that begin where data says: those that are read, and those that are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuse_opt.dialects.interfaces.shapes import dtype, is_static
from fuse_opt.dialects.types.dtypes import I32, I64
from fuse_opt.dialects.types.extents import largest, smallest
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.frontends.builder import Emitter, Value, extents, rank
from fuse_opt.frontends.stablehlo.operators.op import HloOp, Results, handler
from fuse_opt.frontends.stablehlo.operators.sizes import has_sizes, sliced_at


def _starts(h: HloOp, g: Emitter, first: int, sizes: Sequence[int]) -> list[Value | Extent]:
    """Where a dynamic slice begins: numbers or sizes where they are known, which lie inside."""
    found: list[Value | Extent] = []
    for axis, size in enumerate(sizes):
        limit = extents(h.operand())[axis] - size
        number, known = h.number(first + axis), h.elements(first + axis)
        if known is not None and isinstance(known.item(), Size):
            found.append(smallest(largest(known.item(), 0), limit))
        elif limit == 0 or number is not None:
            found.append(smallest(largest(int(number or 0), 0), limit))
        else:
            start = h.operand(first + axis)
            found.append(start if dtype(start) in (I32, I64) else g.cast(start, I64))
    return found


def _as_data(g: Emitter, start: Value | Extent) -> Value:
    return g.number(start, I64) if isinstance(start, int | Size) else start


def _clipped(g: Emitter, start: Value, limit: int) -> Value:
    """For axes whose extents are sizes."""
    return g.clip(g.cast(start, I64), g.number(0, I64), g.number(limit, I64))


@handler("stablehlo.dynamic_slice")
def dynamic_slice(h: HloOp, g: Emitter) -> Results:
    x, sizes = h.operand(), h.integers("slice_sizes")
    at = [h.elements(number) for number in range(1, len(h.operands))]
    if any(map(has_sizes, at)) and not any(each is None for each in at):
        return sliced_at(h, g, [each.item() for each in at if each is not None], sizes)
    starts, given = _starts(h, g, 1, sizes), h.operand()
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if isinstance(start, int):
            if size != extents(x)[axis]:
                begin, stops = [0] * rank(x), list(extents(x))
                begin[axis], stops[axis] = start, start + size
                x = g.slice(x, starts=begin, stops=stops)
        elif not is_static(given):
            offset = g.number(start, I64) if isinstance(start, Size) else _clipped(g, start, extents(x)[axis] - size)
            x = g.take(x, g.add(offset, g.iota(shape=[size], dtype=I64)), axis=axis)
    axes = [axis for axis, start in enumerate(starts) if not isinstance(start, int)]
    if axes and is_static(given):
        found = [_as_data(g, starts[axis]) for axis in axes]
        x = g.dynamic_slice(x, *found, axes=axes, sizes=[sizes[axis] for axis in axes])
    return x


@handler("stablehlo.dynamic_update_slice")
def dynamic_update_slice(h: HloOp, g: Emitter) -> Results:
    x, update = h.operand(0), h.operand(1)
    sizes = extents(update)
    starts = _starts(h, g, 2, sizes)
    if rank(x) == 0:
        return update
    if (found := overwritten(g, x, update, starts)) is not None:
        return found
    if is_static(x) and is_static(update):
        axes = [axis for axis, size in enumerate(sizes) if size != extents(x)[axis]]
        given = [_as_data(g, starts[axis]) for axis in axes]
        return g.dynamic_update_slice(x, g.cast(update, dtype(x)), *given, axes=axes)
    # Slices that are whole on the last axes go as rows.
    count = 1 + max((axis for axis, size in enumerate(sizes) if size != extents(x)[axis]), default=0)
    positions: list[Value] = []
    for axis, (start, size) in enumerate(zip(starts[:count], sizes, strict=False)):
        shape = [size if number == axis else 1 for number in range(count)]
        counted = g.iota(shape=shape, axis=axis, dtype=I64, start=start if isinstance(start, int) else 0)
        if not isinstance(start, int):
            clipped = isinstance(start, Size)
            offset = g.number(start, I64) if clipped else _clipped(g, start, extents(x)[axis] - size)
            counted = g.add(offset, counted)
        positions.append(counted)
    return g.index_put(x, update, *positions, axes=range(count))


def overwritten(g: Emitter, x: Value, update: Value, starts: Sequence[Any]) -> Value | None:
    """The update in the place of the slice that begins there; None where that is not known, or not inside."""
    pairs = list(zip(starts, extents(update), extents(x), strict=True))
    if not all(isinstance(each, int) for pair in pairs for each in pair):
        return None
    if any(start < 0 or start + size > extent for start, size, extent in pairs):
        return None
    stops = [start + size for start, size, _ in pairs]
    return g.slice_scatter(x, g.cast(update, dtype(x)), starts=list(starts), stops=stops)
