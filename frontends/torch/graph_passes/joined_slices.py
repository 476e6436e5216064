"""Sums of slices in zeros, as the gradient of a tensor that is read slice by slice: one concatenation of the slices.

Each term has the size of the whole: the sum of n of them reads n values for each element, the concatenation one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fuse_opt.frontends.torch.fx.api import aten
from fuse_opt.frontends.torch.fx.handler import bound_arguments
from fuse_opt.frontends.torch.graph_passes.sums import emit, plus

_FEW = 4
"""Parts of a concatenation that kernels read where they lie."""


@dataclass(frozen=True)
class _Slice:
    """Elements `start` to `stop` of an axis; all others are zero."""

    source: Any
    axis: int
    start: int
    stop: int
    selected: bool
    """Whether the source lacks the axis."""


def join_slices(graph: Any, root: Any, terms: Sequence[Any]) -> Any:
    """The slices among the terms that do not overlap as one tensor, with the others added; None where there are few."""
    found = {number: piece for number, term in enumerate(terms) if (piece := _slice(term)) is not None}
    if len(found) < 2:
        return None
    chosen = max((_apart(found, axis) for axis in sorted({piece.axis for piece in found.values()})), key=len)
    if len(chosen) < 2:
        return None
    extent: int = root.meta["val"].shape[found[chosen[0]].axis]
    pieces = [found[number] for number in chosen]
    filled = sum(piece.stop - piece.start for piece in pieces)
    edges = [0, *(edge for piece in pieces for edge in (piece.start, piece.stop)), extent]
    gaps = sum(a != b for a, b in zip(edges[::2], edges[1::2], strict=True))
    if len(pieces) + gaps > _FEW and 2 * filled < extent:
        return None
    joined = emit(graph, aten.cat.default, _parts(graph, root, pieces, extent), pieces[0].axis)
    return plus(graph, joined, [term for number, term in enumerate(terms) if number not in chosen])


def _slice(node: Any) -> _Slice | None:
    """What the node puts into zeros, if that is all it does and is done for its only reader."""
    scatters = (aten.select_scatter.default, aten.slice_scatter.default)
    if node.op != "call_function" or node.target not in scatters or len(node.users) != 1:
        return None
    given = bound_arguments(node)
    whole, source, shape = given["self"], given["src"], node.meta["val"].shape
    if not _is_zero(whole) or source.meta["val"].dtype != node.meta["val"].dtype:
        return None
    axis = given["dim"] % len(shape)
    if node.target is aten.select_scatter.default:
        start = given["index"] % shape[axis]
        return _Slice(source, axis, start, start + 1, True)
    positions = range(shape[axis])[slice(given["start"], given["end"], given["step"])]
    return _Slice(source, axis, positions.start, positions.stop, False) if positions and positions.step == 1 else None


def _is_zero(node: Any) -> bool:
    if node.op != "call_function":
        return False
    if node.target in (aten.full.default, aten.full_like.default, aten.new_full.default):
        return bound_arguments(node)["fill_value"] == 0
    return node.target in (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)


def _apart(found: dict[int, _Slice], axis: int) -> list[int]:
    """Of the slices of an axis, by number, as many as do not overlap, in the order of their places."""
    chosen: list[int] = []
    for number in sorted((n for n, p in found.items() if p.axis == axis), key=lambda n: (found[n].stop, n)):
        if not chosen or found[chosen[-1]].stop <= found[number].start:
            chosen.append(number)
    return chosen


def _parts(graph: Any, root: Any, pieces: Sequence[_Slice], extent: int) -> list[Any]:
    """What lies along the axis from its beginning to its end: the slices, and zeros between them."""
    parts: list[Any] = []
    place = 0
    for piece in pieces:
        parts += _zeros(graph, root, piece.axis, piece.start - place)
        parts.append(emit(graph, aten.unsqueeze.default, piece.source, piece.axis) if piece.selected else piece.source)
        place = piece.stop
    return parts + _zeros(graph, root, pieces[0].axis, extent - place)


def _zeros(graph: Any, root: Any, axis: int, count: int) -> list[Any]:
    if not count:
        return []
    extents = list(root.meta["val"].shape)
    extents[axis] = count
    return [emit(graph, aten.new_zeros.default, root.args[0], extents)]
