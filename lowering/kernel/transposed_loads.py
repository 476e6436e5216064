"""Loads whose neighbours in memory are no neighbours of the innermost loop: what blocks turn, on every target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fuse_opt.dialects.analysis.loop_body import Point
from fuse_opt.dialects.analysis.loop_order import fastest_dim, steps_elsewhere
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.lowering.kernel.element_emitter import KernelPoints


@dataclass(frozen=True)
class TurnedLoads:
    """Loads whose neighbours lie along one dimension, which is not the innermost."""

    along: Dim
    points: list[Point]


def turned_loads(points: KernelPoints, dims: Sequence[Dim]) -> TurnedLoads | None:
    """The loads to turn; those along the dimension that most of them have."""
    if len(dims) < 2:
        return None
    found: list[tuple[Dim, Point]] = []
    for point in points.pulled.loads():
        address = points.space.apply(point.address)
        along = fastest_dim(address)
        if along is not None and along in dims and steps_elsewhere(address, dims[-1]):
            found.append((along, point))
    if not found:
        return None
    along = Counter(dim for dim, _ in found).most_common(1)[0][0]
    return TurnedLoads(along, [point for dim, point in found if dim == along])
