"""Lines that loops store to, asked for some iterations before: `stores = "requested"`.

A store to a line that no cache holds waits for it in a queue, and where that is full, so do the loads behind it. Processors ask
for what is stored to next, too, but in time or not by where in memory the instructions of the loop lie: RMS norms of 539 f32 took
1.0 to 1.3 times the time that they took with this (Zen 4).

    scf.parallel (%i) = (0) to (539) { ...; store %v, %y[%base + %i] }

becomes

    scf.for %first = 0 to 528 step 16 {
      fo_request_f32(%y, %base + %first + 64, 16)
      scf.parallel (%k) = (0) to (16) { %i = %first + %k; ...; store %v, %y[%base + %i] }
    }
    scf.parallel (%i) = (528) to (539) { ... }
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from xdsl.dialects import memref, scf
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, Block
from xdsl.rewriter import InsertPoint
from xdsl.utils.hints import isa

from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.lowering.inner_ops import inner_of
from fuse_opt.lowering.loops.nontemporal_stores import LINE, is_only_written
from fuse_opt.lowering.loops.strip_mining import BlockLoops, HelperCalls, Helpers, has_groups, in_groups, neighbours

GROUP = 16
"""Neighbours of an iteration, or as many as fill a line where that is more."""
AHEAD = 4 * LINE
"""How far ahead, in bytes: RMS norms of 203 to 702 f32 took .93 to 1.0 times the time of C with it, with 6 lines .95 to 1.0, with
8 lines .96 to 1.19, with none .97 to 1.22 (Zen 4)."""


def request_lines(body: Block, shared: Collection[int], helpers: Helpers) -> None:
    """
    Rewrites the function of a kernel in place, and adds to `helpers` what it calls from then on. What it also reads, or what
    another buffer shares memory with (`shared`: their numbers), is in the caches when it is stored to.
    """
    targets = {
        argument for argument in body.args if argument.index not in shared and is_only_written(argument, "fo_request")
    }
    blocks = BlockLoops(body)
    calls = HelperCalls(blocks, helpers)
    for loop in inner_of(body, scf.ParallelOp):
        stores = [op for op in _stores(loop.body.block) if op.memref in targets]
        group = max([GROUP, *(LINE // _itemsize(op.memref.type) for op in stores)])
        if stores and has_groups(loop, group):
            _request(loop, group, stores, calls)


def _request(loop: scf.ParallelOp, group: int, stores: list[memref.StoreOp], calls: HelperCalls) -> None:
    """In front of each group of neighbours."""
    asked = [(op.memref, neighbours(op.indices, loop.body.block) or ()) for op in stores]
    groups = in_groups(loop, group, calls.blocks)
    first_op = groups.body.block.first_op
    assert first_op is not None
    place, number = InsertPoint.before(first_op), calls.blocks.number
    for memory, offsets in asked:
        assert isa(memory.type, MemRefType)
        ahead = number(AHEAD // _itemsize(memory.type))
        at = calls.address((*offsets, groups.body.block.args[0], ahead), place)
        calls.call(f"fo_request_{memory.type.element_type}", (calls.flat(memory), at, number(group)), place)


def _stores(block: Block) -> Iterator[memref.StoreOp]:
    """Those to neighbours."""
    for op in block.ops:
        if isinstance(op, memref.StoreOp) and neighbours(op.indices, block) is not None:
            yield op


def _itemsize(kind: Attribute) -> int:
    assert isa(kind, MemRefType)
    found = dtype_of(kind.element_type)
    assert found is not None
    return found.itemsize
