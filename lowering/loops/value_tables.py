"""Value tables: a long chain of operations of one narrow number is computed once for each number that there is.

    scf.parallel (%i = %begin to %end) { %t = tanh(load %x[%i]); store exp(%t), %y[%i] }

becomes

    %table, %made = alloca {fused.lasting}
    %turn = fo_turn_of_table(%made, %end - %begin)
    %makes, %looks = %turn == 1, %turn != 0
    scf.if %makes { fo_every_bf16(%table) }
    %from, %to = %makes ? %table, %table : %x, %y
    %first, %last = %makes ? 0, 65536 : %begin, %turn == 2 ? %begin : %end
    scf.parallel (%i = %first to %last) { %t = tanh(load %from[%i]); store exp(%t), %to[%i] }
    scf.if %makes { fo_table_is_made(%made) }
    scf.if %looks { fo_look_up_bf16(%table, %x, %y, %begin, %end) }

so that the loop is there once. A table of f16 or bf16 has 65536 entries, 128 KiB, and is there once for all calls of a program: a
task makes it when as many elements were computed as it has entries, so that no call takes longer than twice the time without
(as whoever rents until the rent has reached the price: Karlin, Manasse, Rudolph and Sleator, "Competitive snoopy caching", 1988);
other threads compute theirs meanwhile. Numbers that occur often share few of its lines, so that a first cache holds them. Looking
up an element takes about 1.2 cycles, 1.7 of arbitrary bits, for which a second cache has the table (Zen 4). The bits are those of
the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, BFloat16Type, Float16Type, IndexType, MemRefType, NoneType, UnitAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.hints import LASTING
from fuse_opt.lowering.loops.strip_mining import BlockLoops, Helpers, constant

ENTRIES = 1 << 16
WORTH = 45.0
"""
Instructions of a chain for a vector, as the model of distribution counts them, for which it pays: looking up its elements costs
what 36 do.
"""
NARROW_WORTH = {"bf16": 29.0, "f16": 22.0}
"""The same of registers of 256 bits, by the kind of number: chains of 29 and of 22 take 1.5 times as long as looking up, which
costs what 23 and 14 do (Zen 4 without AVX-512), or more where numbers are arbitrary bits."""
FEWEST = 1 << 13
"""Elements of a launch, for which it is done: those of fewer would not find the table in near caches."""
WORTH_A_THREAD = 1 << 14
"""Elements that are looked up in some microseconds, which sharing them with another thread takes, too."""
_KINDS: dict[Attribute, str] = {BFloat16Type(): "bf16", Float16Type(): "f16"}
_NEITHER, _MAKES, _LOOKS = 0, 1, 2
"""What a task does with the table."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """A function whose one loop computes each element of a buffer of the same element of another, or of its own."""

    source: SSAValue
    target: SSAValue
    element: Attribute


def lookup_of(body: Block) -> Lookup | None:
    """What a kernel's function, as it was built, could look up."""
    loops = [op for op in body.ops if op.regions]
    if len(loops) != 1 or not isinstance(loop := loops[0], scf.ParallelOp) or not _is_over_tasks(loop, body):
        return None
    ops = list(loop.body.block.ops)[:-1]
    sources, targets = set[SSAValue](), list[SSAValue]()
    for op in ops:
        if isinstance(op, memref.LoadOp | memref.StoreOp):
            if list(op.indices) != [loop.body.block.args[0]] or op.memref not in body.args:
                return None
            sources.update([op.memref] if isinstance(op, memref.LoadOp) else [])
            targets += [op.memref] if isinstance(op, memref.StoreOp) else []
        elif op.regions or not op.results or not all(_is_of_the_number(each, loop.body.block) for each in op.operands):
            return None
    if len(sources) != 1 or len(targets) != 1:
        return None
    (source,), (target,) = sources, targets
    elements = {value.type.element_type for value in (source, target) if isa(value.type, MemRefType)}
    element = elements.pop()
    return None if elements or element not in _KINDS else Lookup(source, target, element)


def _is_of_the_number(operand: SSAValue, iteration: Block) -> bool:
    """Whether all calls have it for the same number: not what depends on the place, or on a size that calls bring."""
    owner = operand.owner
    return isinstance(owner, Operation) and (owner.parent is iteration or isinstance(owner, arith.ConstantOp))


def _is_over_tasks(loop: scf.ParallelOp, body: Block) -> bool:
    """Whether its iterations are the tasks."""
    bounds = [*loop.lowerBound, *loop.upperBound]
    return bounds == list(body.args[-2:]) and not loop.initVals and constant(loop.step[0]) == 1


def has_table(found: Lookup, instructions: float, word: str) -> bool:
    """Whether a table pays for an iteration of so many instructions, by the entry of a schedule."""
    worth = {"always": 0.0, "modelled": WORTH, "narrow": NARROW_WORTH[_KINDS[found.element]]}
    return word in worth and instructions >= worth[word]


def look_up_values(body: Block, found: Lookup, tasks: Extent, helpers: Helpers) -> bool:
    """
    Rewrites the function of a kernel in place, when all else was done to it, where a launch has so many tasks that it pays;
    whether it does.
    """
    if estimate(tasks) < FEWEST:
        return False
    _Table(body, found, helpers).put()
    return True


class _Table:
    """The table at the start of a function, and what it takes to use it."""

    def __init__(self, body: Block, found: Lookup, helpers: Helpers) -> None:
        self.body, self.found, self.helpers = body, found, helpers
        self.numbers = BlockLoops(body)
        self.name = _KINDS[found.element]
        self.own: set[Operation] = set()
        """Ops that are not of the loop."""

    def put(self) -> None:
        """Begins the function with the table, and ends it with looking up."""
        begin, end = self.body.args[-2:]
        first, last = self.body.first_op, self.body.last_op
        assert first is not None and last is not None
        before, behind = InsertPoint.before(first), InsertPoint.before(last)
        lasting = self._lasting(self.found.element, ENTRIES, "table", before)
        table, source, target = (self._open(each, before) for each in (lasting, self.found.source, self.found.target))
        made = self._open(self._lasting(IndexType(), 2, "made", before), before)
        count = self._insert(arith.SubiOp(end, begin), before)
        turn = self._call(func.CallOp("fo_turn_of_table", [made, count], [IndexType()]), before)
        turn.name_hint = "turn"
        makes, looks, only_looks = (
            self._insert(arith.CmpiOp(turn, self.numbers.number(number), how), before)
            for number, how in ((_MAKES, "eq"), (_NEITHER, "ne"), (_LOOKS, "eq"))
        )
        self._call_where(makes, f"fo_every_{self.name}", [table], before)
        zero, entries = self.numbers.number(0), self.numbers.number(ENTRIES)
        own_end = self._insert(arith.SelectOp(only_looks, begin, end), before)
        choices = {
            self.found.source: (table, source),
            self.found.target: (table, target),
            begin: (zero, begin),
            end: (entries, own_end),
        }
        chosen = {old: self._insert(arith.SelectOp(makes, *both), before) for old, both in choices.items()}
        self._call_where(makes, "fo_table_is_made", [made], behind)
        self._call_where(looks, f"fo_look_up_{self.name}", [table, source, target, begin, end], behind)
        for old, new in chosen.items():
            self._replace(old, new)

    def _lasting(self, element: Attribute, size: int, name: str, where: InsertPoint) -> SSAValue:
        memory = memref.AllocaOp.get(element, 64, [size])
        memory.attributes[LASTING] = UnitAttr()
        memory.memref.name_hint = name
        return self._insert(memory, where)

    def _insert(self, op: Operation, where: InsertPoint) -> SSAValue:
        Rewriter.insert_op(op, where)
        self.own.add(op)
        return op.results[0]

    def _open(self, memory: SSAValue, where: InsertPoint) -> SSAValue:
        """The buffer as one of any size."""
        assert isa(memory.type, MemRefType)
        return self._insert(memref.CastOp.get(memory, MemRefType(memory.type.element_type, [DYNAMIC_INDEX])), where)

    def _call(self, call: func.CallOp, where: InsertPoint) -> SSAValue:
        self._declare(call)
        return self._insert(call, where)

    def _call_where(self, condition: SSAValue, helper: str, arguments: Sequence[SSAValue], where: InsertPoint) -> None:
        call = func.CallOp(helper, list(arguments), [])
        self._declare(call)
        Rewriter.insert_op(scf.IfOp(condition, [], Region(Block([call, scf.YieldOp()]))), where)
        self.own.add(call)

    def _declare(self, call: func.CallOp) -> None:
        result = call.results[0].type if call.results else NoneType()
        types = tuple(argument.type for argument in call.operands)
        self.helpers.setdefault(call.callee.string_value(), (types, result))

    def _replace(self, argument: SSAValue, chosen: SSAValue) -> None:
        """The loop has the second one in the place of the first."""
        chosen.name_hint = argument.name_hint
        for use in list(argument.uses):
            if isinstance(use.operation, memref.CastOp) and use.operation not in self.own:
                Rewriter.replace_op(use.operation, [], [chosen])
            elif use.operation not in self.own:
                use.operation.operands[use.index] = chosen
