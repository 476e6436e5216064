"""Value tables: a long chain of operations of one narrow number is computed once for each number that there is.

    scf.parallel (%i = %begin to %end) { %t = tanh(load %x[%i]); store exp(%t), %y[%i] }

becomes

    %many = %end - %begin >= 150000
    scf.if %many { fo_every_bf16(%table) }
    %from, %to = %many ? %table, %table : %x, %y
    %first, %last = %many ? 0, 65536 : %begin, %end
    scf.parallel (%i = %first to %last) { %t = tanh(load %from[%i]); store exp(%t), %to[%i] }
    scf.if %many { fo_look_up_bf16(%table, %x, %y, %begin, %end) }

so that the loop is there once. A table of f16 or bf16 has 65536 entries, 128 KiB; numbers that occur often share few of its
lines, so that a first cache holds them. Looking up an element takes about 1.2 cycles, 1.7 of arbitrary bits, for which a second
cache has the table (Zen 4). The bits are those of the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, BFloat16Type, Float16Type, MemRefType, NoneType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.loops.strip_mining import BlockLoops, Helpers, constant

ENTRIES = 1 << 16
LOOKED_UP = 36.0
"""Instructions for a vector, as the model of distribution counts them, that cost what looking up its elements does."""
WORTH = 45.0
"""Of a chain, for which it pays."""
MARGIN = 1.25
"""For how many times the elements, with which both would take the same time, it is done."""
_KINDS: dict[Attribute, str] = {BFloat16Type(): "bf16", Float16Type(): "f16"}


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
        elif op.regions or not op.results or loop.body.block.args[0] in op.operands:
            return None
    if len(sources) != 1 or len(targets) != 1:
        return None
    (source,), (target,) = sources, targets
    elements = {value.type.element_type for value in (source, target) if isa(value.type, MemRefType)}
    element = elements.pop()
    return None if elements or element not in _KINDS else Lookup(source, target, element)


def _is_over_tasks(loop: scf.ParallelOp, body: Block) -> bool:
    """Whether its iterations are the tasks."""
    bounds = [*loop.lowerBound, *loop.upperBound]
    return bounds == list(body.args[-2:]) and not loop.initVals and constant(loop.step[0]) == 1


def least_tasks(instructions: float, word: str) -> int | None:
    """From how many elements on a table pays for an iteration of so many instructions, by the entry of a schedule."""
    if word == "never" or (word == "modelled" and instructions < WORTH):
        return None
    return ENTRIES if word == "always" else int(ENTRIES * MARGIN * instructions / (instructions - LOOKED_UP))


def look_up_values(body: Block, found: Lookup, tasks: Extent, least: int | None, helpers: Helpers) -> None:
    """
    Rewrites the function of a kernel in place, when all else was done to it: where a task has `least` elements, which one of a
    launch of so many tasks may have, it looks them up.
    """
    if least is not None and estimate(tasks) >= least:
        _Table(body, found, helpers).put(least)


class _Table:
    """The table at the start of a function, and what it takes to use it."""

    def __init__(self, body: Block, found: Lookup, helpers: Helpers) -> None:
        self.body, self.found, self.helpers = body, found, helpers
        self.numbers = BlockLoops(body)
        self.name = _KINDS[found.element]
        self.own: set[Operation] = set()
        """Ops that are not of the loop."""

    def put(self, least: int) -> None:
        """Begins the function with the table, and ends it with looking up, where it has so many tasks."""
        begin, end = self.body.args[-2:]
        first, last = self.body.first_op, self.body.last_op
        assert first is not None and last is not None
        before, behind = InsertPoint.before(first), InsertPoint.before(last)
        memory = memref.AllocaOp.get(self.found.element, 64, [ENTRIES])
        memory.memref.name_hint = "table"
        self._insert(memory, before)
        buffers = memory.memref, self.found.source, self.found.target
        table, source, target = (self._open(each, before) for each in buffers)
        count = self._insert(arith.SubiOp(end, begin), before)
        many = self._insert(arith.CmpiOp(count, self.numbers.number(least), "sge"), before)
        many.name_hint = "many"
        self._call_where(many, f"fo_every_{self.name}", [table], before)
        zero, entries = self.numbers.number(0), self.numbers.number(ENTRIES)
        choices = {
            self.found.source: (table, source),
            self.found.target: (table, target),
            begin: (zero, begin),
            end: (entries, end),
        }
        chosen = {old: self._insert(arith.SelectOp(many, *both), before) for old, both in choices.items()}
        self._call_where(many, f"fo_look_up_{self.name}", [table, source, target, begin, end], behind)
        for old, new in chosen.items():
            self._replace(old, new)

    def _insert(self, op: Operation, where: InsertPoint) -> SSAValue:
        Rewriter.insert_op(op, where)
        self.own.add(op)
        return op.results[0]

    def _open(self, memory: SSAValue, where: InsertPoint) -> SSAValue:
        """The buffer as one of any size."""
        return self._insert(memref.CastOp.get(memory, MemRefType(self.found.element, [DYNAMIC_INDEX])), where)

    def _call_where(self, many: SSAValue, helper: str, arguments: Sequence[SSAValue], where: InsertPoint) -> None:
        self.helpers.setdefault(helper, (tuple(argument.type for argument in arguments), NoneType()))
        call = func.CallOp(helper, list(arguments), [])
        Rewriter.insert_op(scf.IfOp(many, [], Region(Block([call, scf.YieldOp()]))), where)
        self.own.add(call)

    def _replace(self, argument: SSAValue, chosen: SSAValue) -> None:
        """The loop has the second one in the place of the first."""
        chosen.name_hint = argument.name_hint
        for use in list(argument.uses):
            if isinstance(use.operation, memref.CastOp) and use.operation not in self.own:
                Rewriter.replace_op(use.operation, [], [chosen])
            elif use.operation not in self.own:
                use.operation.operands[use.index] = chosen
