"""How wide the vectors of a kernel are to be.

Loops that do little but load and store rows are faster with 256 bits than with 512. Where rows begin within a cache line, a
store of a whole line is one to two lines, and takes two turns; of those of half a line, every other one does: 0.84 to 0.95 of
the time in the second level cache (Ice Lake), and 0.93 to 0.98 where rows begin at lines. Later processors, known by
arithmetic on f16, take 1.02 to 1.08 times as long with it (Emerald Rapids): the C text leaves it out for them, but where bytes
are among the elements of a row of less than 512: .80 to .97 of the time at 131 to 203. Short rows that end within a vector are
all tail, of which 512 bits take half as many vectors. Rows that memory holds take .82 to 1.0 of the time with 256 bits and
ordinary stores, however long they are (sums with a row of 64 to 701 elements, with another operand or a mask; Zen 4).
"""

from __future__ import annotations

from xdsl.dialects import arith, math, memref, scf
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Block, Operation
from xdsl.utils.hints import isa

from fuse_opt.dialects.analysis.storage import byte_size
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import VECTOR
from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.lowering.inner_ops import inner_of
from fuse_opt.lowering.kernel.loop_splitting import OUTSIDE_CACHES
from fuse_opt.lowering.loops.strip_mining import iterations

WIDEST = 512
"""Bits that compilers are asked for elsewhere."""
NARROW = 256
LINE = 64
"""Bytes of a cache line."""
FEWEST, FEWEST_BROKEN, FEWEST_NARROW = 256, 512, 128
"""Elements of a row for which it pays: of one of whole lines, of another one, and of another one some of whose elements have
fewer than 4 bytes, of which a vector of 512 bits holds more than 16."""
MOST_OPERATIONS = 10
"""Of an iteration that waits for memory."""


def vector_bits(kernel: KernelOp, body: Block) -> int:
    """What the kernel's schedule says, or what its loops are better off with."""
    asked = VECTOR.count(kernel)
    if asked is not None:
        return asked
    loops = inner_of(body, scf.ParallelOp)
    is_far = _is_far(kernel)
    return NARROW if loops and all(_is_light_row(loop, is_far) for loop in loops) else WIDEST


def is_for_lines_alone(kernel: KernelOp, body: Block) -> bool:
    """Whether narrow vectors are for stores within two lines: not by the schedule, nor for short rows with bytes in them."""
    loops = inner_of(body, scf.ParallelOp)
    counts = [iterations(loop) or 0 for loop in loops if min(_touched(loop), default=4) < 4]
    return VECTOR.count(kernel) is None and all(count >= FEWEST_BROKEN for count in counts)


def _touched(loop: scf.ParallelOp) -> set[int]:
    """Bytes of the elements that a loop reads and stores."""
    return {_bytes(op) for op in loop.body.block.ops if isinstance(op, memref.LoadOp | memref.StoreOp)}


def _is_far(kernel: KernelOp) -> bool:
    """Whether it moves more than caches hold."""
    sizes = [byte_size(value) for value in (*kernel.operands, *kernel.results)]
    return sum(size for size in sizes if isinstance(size, int)) >= OUTSIDE_CACHES


def _is_light_row(loop: scf.ParallelOp, is_far: bool) -> bool:
    """Whether it stores a row of many, long enough, and does little else."""
    count, ops = iterations(loop), list(loop.body.block.ops)[:-1]
    if count is None or loop.initVals or not _is_in_rows(loop) or not all(map(_is_light, ops)):
        return False
    stored = {_bytes(op) for op in ops if isinstance(op, memref.StoreOp)}
    touched = _touched(loop)
    computed = sum(bool(op.results) and not _is_address(op) and not isinstance(op, memref.LoadOp) for op in ops)
    if not stored or 0 in touched or computed > MOST_OPERATIONS:
        return False
    if is_far:
        return True
    if not any(count * each % LINE for each in touched):
        return count >= FEWEST
    return count >= (FEWEST_BROKEN if min(touched) >= 4 else FEWEST_NARROW)


def _is_in_rows(loop: scf.ParallelOp) -> bool:
    parent = loop.parent_op()
    while parent is not None and not isinstance(parent, scf.ForOp):
        parent = parent.parent_op()
    return parent is not None


def _is_light(op: Operation) -> bool:
    """Whether it is an instruction or two, and stores to no memory of the function's own."""
    if isinstance(op, memref.StoreOp):
        return not isinstance(op.memref.owner, memref.AllocaOp)
    if isinstance(op, memref.LoadOp | math.AbsFOp | math.FmaOp):
        return True
    return op.name.startswith("arith.") and not isinstance(op, arith.DivfOp) and not op.regions


def _is_address(op: Operation) -> bool:
    return isinstance(op, arith.AddiOp | arith.SubiOp | arith.MuliOp)


def _bytes(op: memref.LoadOp | memref.StoreOp) -> int:
    """Of an element; 0 where nobody knows."""
    kind = op.memref.type
    assert isa(kind, MemRefType)
    found = dtype_of(kind.element_type)
    return 0 if found is None else found.itemsize
