"""Which loops have elements left over of whole vectors, and what may be done with these."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.hints import isa

from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.dialects.types.extents import exact_quotient
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.hints import FILLED
from fuse_opt.lowering.inner_ops import inner_of
from fuse_opt.lowering.loops.strip_mining import constant, is_within
from fuse_opt.lowering.loops.tails.guarded_tails import is_padded
from fuse_opt.lowering.loops.vector_widths import FEWEST_MASKED, NARROWEST, WIDTH

_HARMLESS = (
    arith.AddiOp,
    arith.SubiOp,
    arith.MuliOp,
    arith.AddfOp,
    arith.MulfOp,
    arith.CmpiOp,
    arith.CmpfOp,
    arith.MaximumfOp,
    arith.MinimumfOp,
    arith.SelectOp,
)
"""What accumulators are joined by, and indices made of."""


def left_over(loop: scf.ParallelOp) -> int | None:
    """Where the loop ends, if the last of its elements are worth a masked vector."""
    if loop.initVals or len(loop.lowerBound) != 1 or constant(loop.step[0]) != 1:
        return None
    lower, upper = constant(loop.lowerBound[0]), constant(loop.upperBound[0])
    if lower is None or upper is None or (rest := (upper - lower) % WIDTH) == 0:
        return None
    ops = loop.body.block.ops
    if any(isinstance(op, memref.StoreOp) and isinstance(op.memref.owner, memref.AllocaOp) for op in ops):
        return upper
    return upper if upper - lower >= FEWEST_MASKED and rest != WIDTH // 2 else None


def whole_vectors(loop: scf.ParallelOp, vector: int) -> int | None:
    """
    Where whole vectors of bytes end, if some elements are left over that are whole ones of wider elements. Compilers make vectors
    of half the width of them, and of the rest none: those of a loop of their own are as long as it.
    """
    if loop.initVals or len(loop.lowerBound) != 1 or constant(loop.step[0]) != 1:
        return None
    lower, upper = constant(loop.lowerBound[0]), constant(loop.upperBound[0])
    touched = [op.memref for op in loop.body.block.ops if isinstance(op, (memref.LoadOp, memref.StoreOp))]
    if lower is None or upper is None or min(map(bytes_of, touched), default=0) != 1:
        return None
    rest = (upper - lower) % vector
    return upper - rest if vector <= upper - lower and rest % WIDTH == 0 and rest % (vector // 2) else None


def sized_bounds(loop: scf.ParallelOp, sizes: Mapping[SSAValue, Size]) -> tuple[Size, Extent] | None:
    """The size that a loop counts to from a multiple of whole vectors on, and that multiple."""
    if loop.initVals or len(loop.lowerBound) != 1 or constant(loop.step[0]) != 1:
        return None
    lower = loop.lowerBound[0]
    begin, end = sizes.get(lower, constant(lower)), sizes.get(loop.upperBound[0])
    return None if begin is None or end is None or exact_quotient(begin, WIDTH) is None else (end, begin)


def is_of_computed_bounds(loop: scf.ParallelOp) -> bool:
    """
    Whether it goes along memory, and where it begins or ends is computed in the function. What lies apart, or at bounded
    positions, is read one by one anyway.
    """
    if loop.initVals or len(loop.lowerBound) != 1 or constant(loop.step[0]) != 1:
        return False
    block = loop.body.block
    if any(isinstance(op, (arith.MinSIOp, arith.MaxSIOp)) for op in block.ops):
        return False
    if not goes_along_memory(loop):
        return False
    lower, upper = loop.lowerBound[0], loop.upperBound[0]
    number = None if (count := count_of(lower, upper)) is None else constant(count)
    is_whole = number is not None and number % WIDTH == 0  # wherever it begins
    return not is_whole and any(constant(bound) is None for bound in (lower, upper))


def goes_along_memory(loop: scf.ParallelOp) -> bool:
    """Whether neighbours in memory are what iterations load and store, if not all the same."""
    block = loop.body.block
    touched = (op.indices[0] for op in block.ops if isinstance(op, (memref.LoadOp, memref.StoreOp)))
    return all(_is_of_neighbours(index, block) for index in touched if is_within(index, block))


def _is_of_neighbours(index: SSAValue, block: Block) -> bool:
    """Whether an index is a loop's counter, and more or less than it what is the same in all of the loop."""
    while index is not block.args[0]:
        owner = index.owner
        if not isinstance(owner, (arith.AddiOp, arith.SubiOp)):
            return False
        varying = [operand for operand in owner.operands if is_within(operand, block)]
        if len(varying) != 1 or (isinstance(owner, arith.SubiOp) and varying[0] is owner.rhs):
            return False
        index = varying[0]
    return True


def is_plain(loop: scf.ParallelOp) -> bool:
    """Whether its body is a run of operations on elements of which all have masks, some come from or go to others, and none is
    read after it was written."""
    ops = list(loop.body.block.ops)[:-1]
    memory = [op.memref for op in ops if isinstance(op, (memref.LoadOp, memref.StoreOp))]
    calls = (op for op in ops if isinstance(op, func.CallOp))
    written: set[SSAValue] = set()
    for op in ops:
        if isinstance(op, memref.LoadOp) and op.memref in written:
            return False
        if isinstance(op, memref.StoreOp):
            written.add(op.memref)
    return (
        not any(op.regions for op in ops)
        and all(call.results for call in calls)
        and all(bytes_of(each) >= NARROWEST for each in memory)
        and any(not isinstance(each.owner, memref.AllocaOp) for each in memory)
    )


def may_go_on(loop: scf.ParallelOp) -> bool:
    """Whether it may go to the end of a whole vector: it reads and writes memory of the function's own that has room and was
    filled so, and what it computes does no harm."""
    if loop.initVals or len(loop.lowerBound) != 1 or constant(loop.step[0]) != 1 or not goes_along_memory(loop):
        return False
    if all(constant(bound) is not None for bound in (loop.lowerBound[0], loop.upperBound[0])):
        return False
    ops = list(loop.body.block.ops)[:-1]
    touched = [op for op in ops if isinstance(op, (memref.LoadOp, memref.StoreOp))]
    others = [op for op in ops if op not in touched]
    return all(is_within(op.indices[0], loop.body.block) and _is_filled(op.memref) for op in touched) and all(
        isinstance(op, _HARMLESS) for op in others
    )


def _is_filled(memory: SSAValue) -> bool:
    return isinstance(memory.owner, memref.AllocaOp) and FILLED in memory.owner.attributes


def filled_memory(body: Block, filling: Collection[scf.ParallelOp]) -> set[SSAValue]:
    """Memory with room for a vector more, behind the elements of which those of loops' last vectors are stored, too: by loops
    that fill it, or that have whole vectors anyway."""
    stores = inner_of(body, memref.StoreOp)
    padded = {op.memref for op in stores if is_padded(op.memref)}
    return padded - {op.memref for op in stores if not _is_whole(op.parent_op(), filling)}


def _is_whole(loop: Operation | None, filling: Collection[scf.ParallelOp]) -> bool:
    if not isinstance(loop, scf.ParallelOp) or loop in filling:
        return isinstance(loop, scf.ParallelOp)
    lower, upper = constant(loop.lowerBound[0]), constant(loop.upperBound[0])
    return lower == 0 and upper is not None and upper % WIDTH == 0


def may_run_twice(loop: scf.ParallelOp, upper: int, shared: Collection[SSAValue]) -> bool:
    """Whether iterations may run twice: what they store is nothing that they load."""
    lower = constant(loop.lowerBound[0])
    return lower is not None and upper - lower > WIDTH and is_repeatable(loop, shared)


def is_repeatable(loop: scf.ParallelOp, shared: Collection[SSAValue]) -> bool:
    """The same of one of any length."""
    ops = list(loop.body.block.ops)[:-1]
    stored = {op.memref for op in ops if isinstance(op, memref.StoreOp)}
    loaded = {op.memref for op in ops if isinstance(op, memref.LoadOp)}
    return (
        not any(op.regions or (isinstance(op, func.CallOp) and not op.results) for op in ops)
        and stored.isdisjoint(loaded)
        and stored.isdisjoint(shared)
    )


def stores_outside(loop: scf.ParallelOp) -> bool:
    """Whether it stores, and nothing of that to memory of the function itself, where other loops read whole vectors."""
    stored = [op.memref for op in loop.body.block.ops if isinstance(op, memref.StoreOp)]
    return bool(stored) and not any(isinstance(each.owner, memref.AllocaOp) for each in stored)


def bytes_of(memory: SSAValue) -> int:
    kind = memory.type
    assert isa(kind, MemRefType)
    found = dtype_of(kind.element_type)
    return 0 if found is None else found.itemsize


def count_of(lower: SSAValue, upper: SSAValue) -> SSAValue | None:
    """How many elements a loop has, where it is made to end so many behind where it begins."""
    if not isinstance(owner := upper.owner, arith.AddiOp) or lower not in owner.operands:
        return None
    count = owner.rhs if owner.lhs is lower else owner.lhs
    return count if isinstance(count.owner, Operation) else None
