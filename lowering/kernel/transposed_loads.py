"""Loads whose neighbours in memory are no neighbours of the innermost loop: what blocks turn, on every target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fuse_opt.dialects.analysis.loop_body import ScalarNode
from fuse_opt.dialects.analysis.loop_order import fastest_dim, steps_elsewhere
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.lowering.kernel.element_emitter import KernelNodes


@dataclass(frozen=True)
class TransposedLoads:
    """Loads whose neighbours lie along one dimension, which is not the innermost."""

    along: Dim
    nodes: list[ScalarNode]


def transposed_loads(nodes: KernelNodes, dims: Sequence[Dim]) -> TransposedLoads | None:
    """The loads to turn; those along the dimension that most of them have."""
    if len(dims) < 2:
        return None
    found: list[tuple[Dim, ScalarNode]] = []
    for node in nodes.loop_body.loads():
        address = nodes.space.apply(node.address)
        along = fastest_dim(address)
        if along is not None and along in dims and steps_elsewhere(address, dims[-1]):
            found.append((along, node))
    if not found:
        return None
    along = Counter(dim for dim, _ in found).most_common(1)[0][0]
    return TransposedLoads(along, [node for dim, node in found if dim == along])
