"""Stores past the caches, of results that these cannot hold: no line is read before it is written as a whole.

    scf.parallel (%i) = (%lo) to (%hi) { ...; store %v, %y[%base + %i] }

becomes a loop over blocks of whole cache lines of %y, of which the first and the last are in part out of bounds; for these
some neighbours within the bounds are computed again:

    scf.for %line = %lo - offset(%y[%base + %lo]) to %hi step 32 {
      %start = clamp(%line, %lo, %hi - 32)
      scf.parallel (%k) = (0) to (32) { %i = %start + %k; ...; store %v, %block[%k] }
      fo_stream_block_f32(%block, %low - %start, %y, %base + %low, %high - %low, 32)   // [%low, %high): what is in bounds
    }

The block stays in a register where the compiler sees through. The function ends with `fo_stream_end`. A result that the
function reads as well, or another of its buffers shares memory with, is stored as before: its lines are in the caches.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.lowering.c.headers.functions import helper_names
from fuse_opt.lowering.kernel.scope import INDEX
from fuse_opt.lowering.loops.strip_mining import BlockLoops, HelperCalls, Helpers, constant, neighbours

LINE = 64
"""Bytes of a cache line."""
WIDTH = 32
"""Elements of a block; as many as fill a line where that is more. Two vectors of f32: a loop of one is all overhead."""
FEWEST = 4
"""Blocks that are worth it: the first and the last one are computed for a part of them."""


def make_nontemporal(body: Block, shared: Collection[int], tasks: int, helpers: Helpers) -> None:
    """
    Rewrites the function of a kernel of so many tasks in place, and adds to `helpers` what it calls from then on; `shared`
    are the numbers of the buffers that another one has memory of.
    """
    targets = {
        argument for argument in body.args if argument.index not in shared and is_only_written(argument, "fo_stream")
    }
    blocks = BlockLoops(body)
    rewriter = _Rewriter(blocks, HelperCalls(blocks, helpers), targets, tasks)
    for op in list(body.walk()):
        if isinstance(op, scf.ParallelOp) and len(op.lowerBound) == 1 and constant(op.step[0]) == 1:
            rewriter.rewrite(op)
    if any(name.startswith("fo_stream_") for name in helpers):
        assert body.last_op is not None
        rewriter.calls.call("fo_stream_end", (), InsertPoint.before(body.last_op))


def is_only_written(argument: BlockArgument, helper: str) -> bool:
    """Whether it is a buffer of elements that there is such a helper for, which are stored to it, and nothing else is done."""
    if not isa(argument.type, MemRefType) or f"{helper}_{argument.type.element_type}" not in helper_names():
        return False
    return all(isinstance(use.operation, memref.StoreOp) for use in argument.uses)


@dataclass(frozen=True, slots=True)
class _Store:
    """A store to neighbours, and what its address is more than the loop's counter."""

    op: memref.StoreOp
    offsets: tuple[SSAValue, ...]

    @property
    def element(self) -> Attribute:
        assert isa(self.op.memref.type, MemRefType)
        return self.op.memref.type.element_type

    @property
    def bytes(self) -> int:
        found = dtype_of(self.element)
        assert found is not None
        return found.itemsize


@dataclass
class _Rewriter:
    blocks: BlockLoops
    calls: HelperCalls
    targets: Collection[SSAValue]
    tasks: int

    def rewrite(self, loop: scf.ParallelOp) -> None:
        stores = self._stores(loop)
        if not stores or loop.initVals:
            return
        width = max(WIDTH, LINE // min(store.bytes for store in stores))
        least = self._least(loop, width)
        if least is not None:
            self._stream(loop, stores, width, least)

    def _stores(self, loop: scf.ParallelOp) -> list[_Store]:
        """What the loop stores, where all of it goes to neighbours in memory that it does not read."""
        block = loop.body.block
        found: list[_Store] = []
        for op in block.walk():
            if not isinstance(op, memref.StoreOp):
                if isinstance(op, func.CallOp) and not op.results:
                    return []
                continue
            offsets = neighbours(op.indices, block) if op.parent is block and op.memref in self.targets else None
            if offsets is None:
                return []
            found.append(_Store(op, offsets))
        return found

    def _least(self, loop: scf.ParallelOp, width: int) -> SSAValue | None:
        """The first iteration that there is, the loop's own or one of another task; None where there are few, or some read
        memory that holds no more than the loop's own."""
        lower, upper = loop.lowerBound[0], loop.upperBound[0]
        first, last = constant(lower), constant(upper)
        if first is not None and last is not None:
            return lower if last - first >= FEWEST * width else None
        if _reads_own_memory(loop):
            return None
        *_, begin, end = self.blocks.body.args
        whole = self.tasks if lower is begin and upper is end else _parted(lower, upper)
        return self.blocks.number(0) if whole is not None and whole >= FEWEST * width else None

    def _stream(self, loop: scf.ParallelOp, stores: Sequence[_Store], width: int, least: SSAValue) -> None:
        lower, upper = loop.lowerBound[0], loop.upperBound[0]
        before, size = InsertPoint.before(loop), self.blocks.number(width)
        lead = min(stores, key=lambda store: store.bytes)
        at = self.calls.address((*lead.offsets, lower), before)
        offset = self.calls.call(f"fo_line_offset_{lead.element}", (self.calls.flat(lead.op.memref), at), before, INDEX)
        first = _insert(arith.SubiOp(lower, offset.results[0]), before)
        final = _insert(arith.SubiOp(upper, size), before)
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = "line"
        Rewriter.insert_op(scf.ForOp(first, upper, size, [], Region(block)), before)
        place = InsertPoint.at_end(block)
        start = _insert(arith.MinSIOp(block.args[0], final), place)
        start = _insert(arith.MaxSIOp(start, least), place)
        low = _insert(arith.MaxSIOp(block.args[0], lower), place)
        end = _insert(arith.AddiOp(block.args[0], size), place)
        high = _insert(arith.MinSIOp(end, upper), place)
        count = _insert(arith.SubiOp(high, low), place)
        skipped = _insert(arith.SubiOp(low, start), place)
        inner = self._block_loop(loop, start, size)
        Rewriter.insert_op(inner, place)
        for number, store in enumerate(stores):
            buffer = self.blocks.buffer(store.element, width, number, "block")
            replacement = memref.StoreOp.get(store.op.value, buffer, [inner.body.block.args[0]])
            Rewriter.replace_op(store.op, replacement, [])
            to = self.calls.address((*store.offsets, low), place)
            arguments = (self.calls.flat(buffer), skipped, self.calls.flat(store.op.memref), to, count, size)
            self.calls.call(f"fo_stream_block_{store.element}", arguments, place)
        Rewriter.insert_op(scf.YieldOp(), place)
        Rewriter.erase_op(loop)

    def _block_loop(self, loop: scf.ParallelOp, start: SSAValue, size: SSAValue) -> scf.ParallelOp:
        """The loop over a block that begins there."""
        zero, one = self.blocks.number(0), self.blocks.number(1)
        body = loop.detach_region(loop.body)
        counter = body.block.args[0]
        number = body.block.insert_arg(INDEX, 0)
        number.name_hint = "lane"
        position = arith.AddiOp(start, number)
        position.result.name_hint = counter.name_hint
        Rewriter.insert_op(position, InsertPoint.at_start(body.block))
        counter.replace_all_uses_with(position.result)
        body.block.erase_arg(counter)
        return scf.ParallelOp([zero], [size], [one], body)


def _parted(lower: SSAValue, upper: SSAValue) -> int | None:
    """How many iterations there are at least, in the loop of which these bounds are a part."""
    end = upper.owner
    if isinstance(end, arith.MinSIOp) and isinstance(end.lhs.owner, arith.AddiOp) and end.lhs.owner.lhs is lower:
        return constant(end.rhs)
    return constant(end.rhs) if isinstance(end, arith.AddiOp) and end.lhs is lower else None


def _reads_own_memory(loop: scf.ParallelOp) -> bool:
    return any(isinstance(op, memref.LoadOp) and isinstance(op.memref.owner, Operation) for op in loop.body.walk())


def _insert(op: Operation, place: InsertPoint) -> SSAValue:
    Rewriter.insert_op(op, place)
    return op.results[0]
