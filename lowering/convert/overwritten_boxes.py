"""Kernels that write over a box of an operand: what is left to do where the result is in place of it, or once it is copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TypeAlias, cast

from xdsl.ir import BlockArgument, SSAValue

from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode, Store, Tracer, member_ops
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.layouts import address, element_index, encoding, memory_extents
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.interfaces.structured_op import Overwritten
from fuse_opt.dialects.types.index_expr import IndexExpr, dimensions
from fuse_opt.dialects.types.size import Extent


def trace_written(kernel: KernelOp, loop_body: LoopBody, is_in_place: Callable[[int, int], bool]) -> LoopBody:
    """
    What is left of a kernel's pass where a result, by its number, is in place of an operand: the elements that are not what is
    there already. The pass as it is where that is all, or not known.
    """
    if (found := _kept(kernel, loop_body)) is None:
        return loop_body
    kept, store, _ = found
    return _box(kernel, found) if is_in_place(store.result, cast(BlockArgument, kept.value).index) else loop_body


def trace_copied(kernel: KernelOp, loop_body: LoopBody) -> tuple[LoopBody, LoopBody] | None:
    """
    Two passes in place of one that writes over a box which begins where data says: the copy of all, and the box. No loop over all
    can be cut where the box begins and ends, as that of a box at known places is.
    """
    if (found := _kept(kernel, loop_body)) is None:
        return None
    kept, store, box = found
    if not any(isinstance(start, IndexExpr) and start.loaded() for start in box.starts):
        return None
    copied = replace(loop_body, nodes=(kept,), stores=(replace(store, node=kept),))
    return copied, _box(kernel, found)


_Kept: TypeAlias = tuple[ScalarNode, Store, Overwritten]
"""The operand that a result is but for a box, where that is stored, and the box."""


def _kept(kernel: KernelOp, loop_body: LoopBody) -> _Kept | None:
    if loop_body.is_row or len(loop_body.stores) != 1:
        return None
    (store,) = loop_body.stores
    op = store.node.op
    if op is None or (found := op.overwritten()) is None or encoding(kernel.results[store.result]) is not None:
        return None
    kept = store.node.operands[found.operand]
    is_kept = kept.op is None and isinstance(kept.value, BlockArgument) and kept.address == store.address
    return (kept, store, found) if is_kept else None


def _box(kernel: KernelOp, kept: _Kept) -> LoopBody:
    """The elements of the box alone."""
    _, store, found = kept
    assert store.node.op is not None
    elements, value = store.node.op.operands[found.elements], store.node.value
    extents = memory_extents(elements)
    place = dimensions("i", extents)
    walk = Tracer(dict.fromkeys(kernel.block.ops), frozenset(), 16 * len(member_ops([kernel])) + 64)
    node = walk.at(elements, element_index(elements, place))
    at = tuple(i + cast(int, start) for i, start in zip(element_index(elements, place), found.starts, strict=True))
    stored = Store(store.result, node, address(value, at), False)
    for atom in stored.address.loaded():
        walk.at(cast(SSAValue, atom.source), atom.index)
    return LoopBody(place, extents, (), (), tuple(walk.order), (stored,))


def written_elements(kernel: KernelOp, passes: Sequence[LoopBody]) -> Extent | None:
    """How many elements a kernel of one pass writes, where `trace_written` left less than all; else None."""
    if len(passes) != 1 or passes[0].is_row or len(passes[0].stores) != 1:
        return None
    count = prod(passes[0].row_extents)
    return None if count == prod(shape(kernel.results[passes[0].stores[0].result])) else count
