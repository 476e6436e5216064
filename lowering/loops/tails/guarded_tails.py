"""Bodies of loops of which some iterations are to do nothing: what they load, compute and store then, and how."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    Float32Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    MemRefType,
    NoneType,
    i32,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from fuse_opt.lowering.hints import FILLED, PADDED
from fuse_opt.lowering.kernel.scope import INDEX
from fuse_opt.lowering.loops.strip_mining import BlockLoops, Helpers, constant, is_within

STORED_BITS, LAST = "fo_stored_bits", "fo_last_f32"


def is_padded(memory: SSAValue) -> bool:
    return isinstance(memory.owner, memref.AllocaOp) and PADDED in memory.owner.attributes


@dataclass(frozen=True, slots=True)
class Guard:
    """The body of a loop, some iterations of which are to do nothing; `counter` ends at `end`."""

    block: Block
    counter: SSAValue
    end: int
    hidden_zero: Callable[[AnyFloat], SSAValue]
    """Zero of a type, which compilers do not know."""
    filled: Collection[SSAValue] = ()
    """Padded memory whose last vectors were stored as a whole."""

    def put(self, ask: Callable[[bool], Sequence[Operation]]) -> None:
        """Lets iterations only store what is in memory already, or zero where there is room for it, of which the last of what
        asks for the condition is not true.

        What is loaded is zero in lanes that do nothing. gcc 12 leaves there what registers held before: numbers that are too
        small, perhaps, with which machines take a hundred times as long. Where it sees that a condition is asked again, or what
        comes of zero, it does what is in between under the condition, and leaves out the zeros: so the same condition is of bits
        of its own then, and it does not know zero."""
        block, condition = self.block, ask(False)
        *ops, final = block.ops
        stores = [op for op in ops if isinstance(op, memref.StoreOp) and self._has_room(op)]
        known = [self._known(store) for store in stores]
        first = {op for op in ops if op in known or (isinstance(op, memref.LoadOp) and self._is_filled(op))}
        guarded = [op for op in ops if op not in first and op not in stores and not self._is_address(op)]
        inner, other = Block(), Block()
        loads = [op for op in guarded if isinstance(op, memref.LoadOp)]
        chosen = [self._or_zero(op, condition[-1]) for op in loads if not set(_makers(op)).intersection(guarded)]
        left = [op for op in guarded if op.parent is block]
        is_harmless = all(map(_is_harmless, left))
        outside = dict.fromkeys(op for op in left if is_harmless and not isinstance(op, memref.StoreOp))
        for op in left:
            op.detach()
            if op not in outside:
                inner.add_op(op)
        inner.add_op(scf.YieldOp(*(store.value for store in stores)))
        kept = [_zero(store, other) if load is None else load.res for store, load in zip(stores, known, strict=True)]
        other.add_op(scf.YieldOp(*kept))
        regions = Region(inner), Region(other)
        again = ask(True) if chosen else ()
        asked = again or condition
        choice = scf.IfOp(asked[-1].results[0], [store.value.type for store in stores], *regions)
        place = InsertPoint.before(final)
        for op in (*condition, *chosen, *outside, *again, choice):
            Rewriter.insert_op(op, place)
        for store, result in zip(stores, choice.output, strict=True):
            result.name_hint = store.value.name_hint
            store.operands[0] = result
            store.detach()
            Rewriter.insert_op(store, InsertPoint.before(final))

    def _or_zero(self, load: memref.LoadOp, condition: Operation) -> scf.IfOp:
        """What a load gives where the condition is true, and zero elsewhere; takes the load out of its block."""
        other = Block()
        choice_type = load.res.type
        load.detach()
        inner = Block([load])
        zero = self.hidden_zero(choice_type) if isa(choice_type, AnyFloat) else _zero_of(choice_type, other)
        other.add_op(scf.YieldOp(zero))
        choice = scf.IfOp(condition.results[0], [choice_type], Region(inner), Region(other))
        choice.output[0].name_hint = load.res.name_hint
        load.res.replace_all_uses_with(choice.output[0])
        inner.add_op(scf.YieldOp(load.res))
        return choice

    def _is_filled(self, load: memref.LoadOp) -> bool:
        """Whether it reads memory of the function's own, in which there is something for every iteration."""
        owner, offset = load.memref.owner, self._offset(load.indices[0])
        if isinstance(owner, memref.AllocaOp) and (FILLED in owner.attributes or load.memref in self.filled):
            return self._counts(load.indices[0])
        if not isinstance(owner, memref.AllocaOp) or PADDED in owner.attributes or offset is None:
            return False
        return self.end + offset == owner.memref.type.get_shape()[0]

    def _has_room(self, store: memref.StoreOp) -> bool:
        """Whether the function's own memory has an element for every iteration, the last ones of which nobody reads."""
        kind = store.memref.type
        assert isa(kind, MemRefType)
        offset, owner = self._offset(store.indices[0]), store.memref.owner
        if not isinstance(owner, memref.AllocaOp):
            return False
        if FILLED in owner.attributes:
            return self._counts(store.indices[0])
        if PADDED in owner.attributes:
            return self._known(store) is None and self._counts(store.indices[0])
        if offset is None:
            return False
        size = kind.get_shape()[0]
        return self.end + offset == size or (self.end + offset < size and self._known(store) is not None)

    def _offset(self, index: SSAValue) -> int | None:
        """What an index is more than the counter, where that is a number."""
        counter, owner = self.counter, index.owner
        if index is counter:
            return 0
        if isinstance(owner, arith.AddiOp) and counter in owner.operands:
            return constant(owner.rhs if owner.lhs is counter else owner.lhs)
        return None

    def _counts(self, index: SSAValue) -> bool:
        """Whether an index is the counter, or more than it by what is the same for all iterations."""
        owner = index.owner
        if isinstance(owner, arith.SubiOp) and not is_within(owner.rhs, self.block):
            return self._counts(owner.lhs)
        if index is self.counter or isinstance(owner, Block) or not isinstance(owner, arith.AddiOp):
            return index is self.counter
        return self._counts(owner.lhs) != self._counts(owner.rhs)

    def _known(self, store: memref.StoreOp) -> memref.LoadOp | None:
        """The load of what the store replaces."""
        same = (op for op in self.block.ops if isinstance(op, memref.LoadOp) and op.memref is store.memref)
        return next((op for op in same if tuple(op.indices) == tuple(store.indices)), None)

    def _is_address(self, op: Operation) -> bool:
        """Whether it makes an index of the counter and numbers from outside, which does no harm beyond the end."""
        if not isinstance(op, (arith.AddiOp, arith.SubiOp, arith.MuliOp)) or op.result.type != INDEX:
            return False
        owners = [operand.owner for operand in op.operands]
        return all(
            isinstance(owner, Block) or owner.parent is not self.block or self._is_address(owner) for owner in owners
        )


def store_by_parts(tail: scf.ParallelOp, rest: SSAValue, blocks: BlockLoops, helpers: Helpers) -> None:
    """
    Lets masked stores of a last vector, where these are slow, go to memory of the function, and from there on part by part.

        scf.parallel (%lane) = 0 to 16 { ...; scf.if %bits >> %lane & 1 { store %b, %y[%first + %lane] } }

    becomes

        scf.parallel (%lane) = 0 to 16 {
          ...
          store %b, %last[%lane]
          scf.if fo_stored_bits(%bits) >> %lane & 1 { store %b, %y[%first + %lane] }
        }
        fo_last_f32(%last, %y, %first, %rest)

    Of the two ways to store, `fo_stored_bits` and `fo_last_f32` leave one when the text is compiled: 8, 4, 2 and 1 elements
    take a cycle each, and a masked store of AVX2 takes 13 on Zen 3.

    `tail` is a loop over lanes, of which the first `rest` store; where it stores something else than f32 side by side, nothing
    is done.
    """
    block = tail.body.block
    choice = next((op for op in reversed(list(block.ops)) if isinstance(op, scf.IfOp)), None)
    if choice is None or choice.results or (shift := _mask_shift(choice)) is None:
        return
    *stores, _ = choice.true_region.block.ops
    for store in stores:
        if not isinstance(store, memref.StoreOp) or not isinstance(store.value.type, Float32Type):
            return
        if is_within(store.value, choice.true_region.block) or _first(store.indices[0], block) is None:
            return
    helpers.setdefault(STORED_BITS, ((INDEX,), INDEX))
    bits = func.CallOp(STORED_BITS, [shift.lhs], [INDEX])
    bits.results[0].name_hint = "stored"
    Rewriter.insert_op(bits, InsertPoint.before(tail))
    shift.operands[0] = bits.results[0]
    place = InsertPoint.after(tail)
    for number, store in enumerate(stores):
        assert isinstance(store, memref.StoreOp)
        last = blocks.buffer(store.value.type, 16, number, "last")
        Rewriter.insert_op(memref.StoreOp.get(store.value, last, [block.args[0]]), InsertPoint.before(choice))
        memory = [_flat(last), _flat(store.memref)]
        first, chain = _first(store.indices[0], block) or (block.args[0], [])
        arguments = [*(each.dest for each in memory), first, rest]
        helpers.setdefault(LAST, (tuple(each.type for each in arguments), NoneType()))
        Rewriter.insert_op([*chain, *memory, func.CallOp(LAST, arguments, [])], place)


def _is_harmless(op: Operation) -> bool:
    """Whether lanes that do nothing may compute it, of zeros: f32, for which there are vectors, and nothing that fails for 0.
    gcc 12 makes a choice among lanes of what is in a branch, which gives the others what nobody asked for: the error function
    of 10, say, with results below the normal numbers."""
    if isinstance(op, memref.StoreOp):
        return True
    if isinstance(op, arith.CmpiOp):
        return op.lhs.type == i32  # booleans as words, which vectors of f32 are chosen by
    kinds = [result.type for result in op.results]
    return isinstance(op, (arith.CmpfOp, arith.SelectOp)) or (
        bool(kinds) and all(isinstance(k, Float32Type) for k in kinds)
    )


def _makers(op: Operation) -> list[Operation]:
    return [operand.owner for operand in op.operands if isinstance(operand.owner, Operation)]


def _zero(store: memref.StoreOp, block: Block) -> SSAValue:
    """Zero of the type that is stored."""
    return _zero_of(store.value.type, block)


def _zero_of(kind: Attribute, block: Block) -> SSAValue:
    if isa(kind, AnyFloat):
        op = arith.ConstantOp(FloatAttr(0.0, kind))
    else:
        assert isa(kind, IntegerType)
        op = arith.ConstantOp(IntegerAttr(0, kind))
    block.add_op(op)
    return op.result


def _mask_shift(choice: scf.IfOp) -> arith.ShRSIOp | None:
    """What takes the bits of lanes, for that choice alone."""
    asked = choice.cond.owner
    if not isinstance(asked, arith.CmpiOp) or not isinstance(bit := asked.lhs.owner, arith.AndIOp):
        return None
    alone = all(len(list(each.uses)) == 1 for each in (choice.cond, asked.lhs, bit.lhs))
    return bit.lhs.owner if alone and isinstance(bit.lhs.owner, arith.ShRSIOp) else None


def _first(index: SSAValue, block: Block) -> tuple[SSAValue, list[Operation]] | None:
    """An index in the first lane of those of neighbours, with the operations that make it; None of others."""
    lane, owner = block.args[0], index.owner
    if not isinstance(owner, arith.AddiOp | arith.SubiOp):
        return None
    left, right = owner.lhs, owner.rhs
    if isinstance(owner, arith.AddiOp) and lane in (left, right):
        other = right if left is lane else left
        return None if is_within(other, block) else (other, [])
    is_left = is_within(left, block)
    if is_left == is_within(right, block) or (not is_left and isinstance(owner, arith.SubiOp)):
        return None
    if (found := _first(left if is_left else right, block)) is None:
        return None
    made = type(owner)(*((found[0], right) if is_left else (left, found[0])))
    return made.result, [*found[1], made]


def _flat(memory: SSAValue) -> memref.CastOp:
    """The memory without its size, as helpers take it."""
    kind = memory.type
    assert isa(kind, MemRefType)
    return memref.CastOp.get(memory, MemRefType(kind.element_type, [DYNAMIC_INDEX]))
