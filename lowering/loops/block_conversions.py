"""Conversions at the edges of vector loops, a block of neighbours at a time, as machines convert vectors: of f16, and of booleans
that are read beside wider elements.

    scf.parallel (%i) { %h = load %x[%base + %i]; %a = extf %h; ...; %r = truncf %b; store %r, %y[%to + %i] }

becomes

    fo_widen_f16(%x, %base, %wide, 0, %count)
    scf.parallel (%i) { %a = load %wide[%i]; ...; store %b, %narrow[%i] }
    fo_narrow_f16(%narrow, 0, %y, %to, %count)

Iterations are independent, so all may read before any of them writes. bf16 is a shift, which loops do as fast on the way.
Where little is computed, the blocks are of 32 neighbours, a number that compilers know: they unroll all three, and what is in
between stays in registers. What is left over is a block of its own.

A boolean is a byte. Of a loop over bytes and f32 compilers make whole vectors of bytes, each of which is four of f32; of fewer
iterations gcc 12 makes vectors of two f32 each. There, `fo_widen_i1` makes numbers of 32 bits of them, of which the loop asks
whether they are 0. Such loops are masked as those over f32 alone.
Where there are many iterations, those before the last 64 or fewer are a loop of their own over bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import Float16Type, Float32Type, MemRefType, f32, i1, i32
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.lowering.inner_ops import inner_of
from fuse_opt.lowering.loops.distribution import work_of
from fuse_opt.lowering.loops.specialization import specialized
from fuse_opt.lowering.loops.strip_mining import (
    BLOCK,
    BlockLoops,
    HelperCalls,
    Helpers,
    constant,
    counted,
    iterations,
    neighbours,
    whole_groups,
)
from fuse_opt.lowering.loops.vector_widths import NARROWEST, WIDTH

LARGEST = 4096
"""Iterations of a loop that carries a reduction, which is not taken apart."""
FEWEST = 16
"""Neighbours that are worth a call."""
UNROLLED = 32
"""Neighbours of a block that is unrolled: four vectors of eight f32."""
LIGHTEST = 32.0
"""Instructions of such a block for a vector; compilers unroll no more than some 200."""
WHOLE = 64
"""Booleans of the widest vectors: of multiples compilers make vectors."""
FEWEST_SPLIT = 2 * WHOLE
"""Iterations beyond which only those behind the last whole vector of booleans are on words."""


def is_widened(count: int) -> bool:
    """Whether booleans of so many iterations, which read and write else what has a word or more, are widened."""
    return count <= BLOCK and count % WHOLE != 0


def convert_in_blocks(body: Block, helpers: Helpers) -> None:
    """Rewrites the function of a kernel in place, and adds to `helpers` what it calls from then on."""
    blocks = BlockLoops(body)
    rewriter = _Rewriter(blocks, HelperCalls(blocks, helpers))
    for op in inner_of(body, scf.ParallelOp):
        if len(op.body.block.args) == 1:
            rewriter.widen(op)
            rewriter.rewrite(op)


@dataclass(frozen=True, slots=True)
class _Conversion:
    """A load that is widened or a narrowed value that is stored: `op` is replaced by one on an f32 at a buffer."""

    op: Operation
    memory: SSAValue
    offsets: tuple[SSAValue, ...]
    """What the address is more than the loop's counter."""
    stores: bool = False


@dataclass
class _Rewriter:
    blocks: BlockLoops
    calls: HelperCalls

    def rewrite(self, loop: scf.ParallelOp) -> None:
        conversions = _conversions(loop.body.block)
        count = iterations(loop)
        if not conversions or constant(loop.step[0]) != 1 or (count is not None and count < FEWEST):
            return
        if not loop.initVals and (count or LARGEST) >= 2 * UNROLLED and work_of(loop.body.block) <= LIGHTEST:
            self._unroll(loop, count)
        elif count is not None and count <= (LARGEST if loop.initVals else BLOCK):
            self._convert(loop, conversions, count, self.blocks.number(count))
        elif not loop.initVals:
            whole = self.blocks.number(BLOCK) if count is not None and count % BLOCK == 0 else None
            self._convert(self.blocks.in_blocks(loop, whole is not None), conversions, BLOCK, whole)

    def _unroll(self, loop: scf.ParallelOp, count: int | None) -> None:
        """The loop in blocks that compilers unroll, and what is left over behind them."""
        rest = count % UNROLLED if count is not None else UNROLLED - 1
        size = self.blocks.number(UNROLLED)
        if rest:
            middle = self._middle(loop, count)
            last = specialized(loop, {}, (middle, loop.upperBound[0]))
            Rewriter.insert_op(last, InsertPoint.after(loop))
            loop.operands[1] = middle
            left = self.blocks.number(rest) if count is not None else None
            self._convert(last, _conversions(last.body.block), rest, left)
        whole = whole_groups(loop, UNROLLED, self.blocks)
        self._convert(whole, _conversions(whole.body.block), UNROLLED, size)

    def _middle(self, loop: scf.ParallelOp, count: int | None) -> SSAValue:
        """Where the last whole block ends."""
        lower, upper = loop.lowerBound[0], loop.upperBound[0]
        if count is not None and (first := constant(lower)) is not None:
            return self.blocks.number(first + count // UNROLLED * UNROLLED)
        place = InsertPoint.before(loop)
        many = _insert(arith.SubiOp(upper, lower), place)
        rest = _insert(arith.RemSIOp(many, self.blocks.number(UNROLLED)), place)
        return _insert(arith.SubiOp(upper, rest), place)

    def _convert(
        self, loop: scf.ParallelOp, conversions: Sequence[_Conversion], size: int, count: SSAValue | None
    ) -> None:
        """The loop of at most `size` iterations on f32s alone; `count` of them where that is known."""
        before, after = InsertPoint.before(loop), InsertPoint.after(loop)
        place, zero = counted(loop), self.blocks.number(0)
        if count is None:
            count = _insert(arith.SubiOp(loop.upperBound[0], loop.lowerBound[0]), before)
        for number, conversion in enumerate(conversions):
            buffer = self.blocks.buffer(f32, size, number, "converted")
            flat = self.calls.flat(buffer)
            at = self.calls.address((*conversion.offsets, loop.lowerBound[0]), before)
            memory = self.calls.flat(conversion.memory)
            if not conversion.stores:
                self.calls.call("fo_widen_f16", (memory, at, flat, zero, count), before)
                load = memref.LoadOp.get(buffer, [place])
                load.res.name_hint = conversion.op.results[0].name_hint
                Rewriter.replace_op(conversion.op, load)
            else:
                narrowing = conversion.op.operands[0].owner
                assert isinstance(narrowing, arith.TruncFOp)  # of what a conversion before may have replaced
                Rewriter.replace_op(conversion.op, memref.StoreOp.get(narrowing.input, buffer, [place]), [])
                call = self.calls.call("fo_narrow_f16", (flat, zero, memory, at, count), after)
                after = InsertPoint.after(call)
        _erase_unused(loop.body.block)

    def widen(self, loop: scf.ParallelOp) -> None:
        """
        The loop on booleans that are numbers of a word, made before it; as many iterations as whole vectors of bytes have are a
        loop before that, on booleans.
        """
        count, block = iterations(loop), loop.body.block
        if constant(loop.step[0]) != 1 or count is None or count < 1 or not is_widened(count):
            return
        booleans = _booleans(block)
        if booleans and count > FEWEST_SPLIT and not loop.initVals:
            self._split(loop, count // WHOLE * WHOLE)
            count %= WHOLE
        before = InsertPoint.before(loop)
        for number, (load, offsets) in enumerate(booleans):
            buffer = self.blocks.buffer(i32, -(-count // WIDTH) * WIDTH, number, "wide")
            at = self.calls.address((*offsets, loop.lowerBound[0]), before)
            memory, zero = self.calls.flat(load.memref), self.blocks.number(0)
            self.calls.call(
                "fo_widen_i1", (memory, at, self.calls.flat(buffer), zero, self.blocks.number(count)), before
            )
            no = arith.ConstantOp.from_int_and_width(0, 32)
            Rewriter.insert_op(no, InsertPoint.at_start(self.blocks.body))
            word = memref.LoadOp.get(buffer, [counted(loop)])
            Rewriter.insert_op(word, InsertPoint.before(load))
            is_set = arith.CmpiOp(word.res, no.result, "ne")
            is_set.result.name_hint = load.res.name_hint
            Rewriter.replace_op(load, is_set)
        _erase_unused(block)

    def _split(self, loop: scf.ParallelOp, first: int) -> None:
        """Puts the first iterations of the loop in front of it."""
        lower = constant(loop.lowerBound[0])
        assert lower is not None
        middle = self.blocks.number(lower + first)
        Rewriter.insert_op(specialized(loop, {}, (loop.lowerBound[0], middle)), InsertPoint.before(loop))
        loop.operands[0] = middle


def _booleans(block: Block) -> list[tuple[memref.LoadOp, tuple[SSAValue, ...]]]:
    """Loads of neighbours that are booleans, with what their addresses are more than the counter; none where anything else in
    memory has less than a word."""
    touched = [op for op in block.ops if isinstance(op, memref.LoadOp | memref.StoreOp)]
    found: list[tuple[memref.LoadOp, tuple[SSAValue, ...]]] = []
    for op in touched:
        kind = op.memref.type
        assert isa(kind, MemRefType)
        if isinstance(op, memref.LoadOp) and kind.element_type == i1:
            if (offsets := neighbours(op.indices, block)) is None:
                return []
            found.append((op, offsets))
        elif (element := dtype_of(kind.element_type)) is None or element.itemsize < NARROWEST:
            return []
    return found if len(found) < len(touched) else []


def _conversions(block: Block) -> list[_Conversion]:
    """Those of the loop's own neighbours."""
    found: list[_Conversion] = []
    for op in block.ops:
        match op:
            case arith.ExtFOp() if isinstance(op.input.type, Float16Type) and isinstance(op.result.type, Float32Type):
                load = op.input.owner
                if isinstance(load, memref.LoadOp) and load.parent is block:
                    offsets = neighbours(load.indices, block)
                    found += [_Conversion(op, load.memref, offsets)] if offsets is not None else []
            case memref.StoreOp():
                narrowing = op.value.owner
                if isinstance(narrowing, arith.TruncFOp) and _narrows(narrowing):
                    offsets = neighbours(op.indices, block)
                    found += [_Conversion(op, op.memref, offsets, stores=True)] if offsets is not None else []
            case _:
                pass
    return found


def _narrows(op: arith.TruncFOp) -> bool:
    return isinstance(op.result.type, Float16Type) and isinstance(op.input.type, Float32Type)


def _insert(op: Operation, place: InsertPoint) -> SSAValue:
    Rewriter.insert_op(op, place)
    return op.results[0]


def _erase_unused(block: Block) -> None:
    """Loads, their addresses and roundings that nothing reads any more."""
    for op in reversed(list(block.ops)):
        if isinstance(op, memref.LoadOp | arith.AddiOp | arith.TruncFOp) and op.results[0].first_use is None:
            Rewriter.erase_op(op)
