"""Scatters of StableHLO by any region, of several operands: what is there and the update to what will be."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block

from fuse_opt.frontends.builder import Emitter, Value, extents, rank
from fuse_opt.frontends.stablehlo.operators.op import HloOp, Results
from fuse_opt.frontends.stablehlo.operators.regions import Region, region_of

_LONGEST = 1024
"""Updates that are done one after another."""

Places = Callable[[HloOp, Emitter, dict[str, list[int]]], Value]


def gives_update(block: Block) -> bool:
    """Whether a region of one operand returns the update as it is."""
    last = block.last_op
    return len(block.args) == 2 and last is not None and list(last.operands) == [block.args[1]]


def scattered_by_region(h: HloOp, g: Emitter, numbers: dict[str, list[int]], places_of: Places) -> Results:
    """All at once where no two updates meet, as the program says or there is one only; else one after another."""
    count = len(h.operands) // 2
    values, updates = list(h.operands[:count]), h.operands[count + 1 :]
    if rank(values[0]) == 0:
        return _of_scalars(h, g, values, [g.reshaped(update, [prod(extents(update))]) for update in updates])
    windows = numbers.get("update_window_dims", [])
    free = [axis for axis in range(rank(updates[0])) if axis not in windows]
    shape = extents(updates[0])
    rounds, size = prod(shape[axis] for axis in free), prod(shape[axis] for axis in windows)
    places = places_of(h, g, numbers)
    places = g.reshaped(g.permute_dims(places, axes=[*free, *windows, len(shape)]), [rounds, size, rank(values[0])])
    flat = [g.reshaped(g.permute_dims(update, axes=[*free, *windows]), [rounds, size]) for update in updates]
    pads = [0] * 2 * rank(values[0])
    pads[rank(values[0])] = 1
    grown = [g.pad(value, pads=pads) for value in values]
    region = region_of(h)
    alone = h.attributes.get("unique_indices")
    if rounds <= 1 or (isinstance(alone, IntegerAttr) and alone.value.data != 0):
        grown = _step(g, region, grown, places, flat)
    elif rounds > _LONGEST:
        raise h.refuse(f"expected at most {_LONGEST} updates for this region where they may meet, got {rounds}")
    else:
        for number in range(rounds):
            at = g.slice(places, starts=[number, 0, 0], stops=[number + 1, *extents(places)[1:]])
            part = [g.slice(update, starts=[number, 0], stops=[number + 1, size]) for update in flat]
            grown = _step(g, region, grown, at, part)
    return [
        g.slice(value, starts=[0] * rank(value), stops=extents(old)) for value, old in zip(grown, values, strict=True)
    ]


def _step(g: Emitter, region: Region, values: list[Value], places: Value, updates: list[Value]) -> list[Value]:
    """Updates at places none of which is there twice, but for the row that is cut off."""
    olds = [g.gather_nd(value, places) for value in values]
    news = region(g, *olds, *updates)
    return [g.scatter_nd(value, places, new, reduce="none") for value, new in zip(values, news, strict=True)]


def _of_scalars(h: HloOp, g: Emitter, values: list[Value], updates: list[Value]) -> list[Value]:
    region, count = region_of(h), extents(updates[0])[0]
    if count > _LONGEST:
        raise h.refuse(f"expected at most {_LONGEST} updates of a scalar by this region, got {count}")
    for number in range(count):
        part = [g.reshape(g.slice(update, starts=[number], stops=[number + 1]), shape=[]) for update in updates]
        values = region(g, *values, *part)
    return values
