"""Loop specialization: a copy of a loop for where some of what its body computes is known.

    scf.parallel (%i) { store select(%c, load %x[%i], 0), %y[%i] }

becomes, where %c holds,

    scf.parallel (%i) { store load %x[%i], %y[%i] }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IntegerAttr, i1
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

Known = Mapping[SSAValue, bool | SSAValue]
"""What conditions are, and the values that others are equal to."""


def specialized(loop: scf.ParallelOp, known: Known, bounds: tuple[SSAValue, SSAValue] | None = None) -> scf.ParallelOp:
    """The loop for where this is known, and within these bounds; it is not in any block yet."""
    body = _Body(known, InsertPoint.before(loop)).build(loop.body.block)
    lower, upper = bounds or (loop.lowerBound[0], loop.upperBound[0])
    made = scf.ParallelOp([lower], [upper], list(loop.step), Region(body))
    made.attributes.update(loop.attributes)
    return made


@dataclass
class _Body:
    """The copy of a body."""

    known: Known
    before: InsertPoint
    """In front of the loop."""
    values: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    truths: dict[SSAValue, bool] = field(default_factory=dict[SSAValue, bool])

    def build(self, old: Block) -> Block:
        block = Block(arg_types=[old.args[0].type])
        block.args[0].name_hint = old.args[0].name_hint
        self.values[old.args[0]] = block.args[0]
        self.truths.update((value, truth) for value, truth in self.known.items() if isinstance(truth, bool))
        for op in old.ops:
            if not self._is_known(op) and not self._fold(op):
                self._write_out(op)
                block.add_op(op.clone(self.values))
        _erase_unused(block)
        return block

    def _is_known(self, op: Operation) -> bool:
        if len(op.results) != 1 or (known := self.known.get(op.results[0])) is None:
            return False
        if isinstance(known, SSAValue):
            self.values[op.results[0]] = self.values.get(known, known)
        return True

    def _fold(self, op: Operation) -> bool:
        """Whether what is known gives the operation's result."""
        truths = self.truths
        match op:
            case arith.SelectOp() if op.cond in truths:
                chosen = op.lhs if truths[op.cond] else op.rhs
            case arith.AndIOp() | arith.OrIOp() if op.lhs in truths or op.rhs in truths:
                given, chosen = (op.lhs, op.rhs) if op.lhs in truths else (op.rhs, op.lhs)
                if truths[given] == isinstance(op, arith.OrIOp):
                    chosen = given
            case _:
                return False
        if chosen in truths:
            truths[op.results[0]] = truths[chosen]
        else:
            self.values[op.results[0]] = self.values.get(chosen, chosen)
        return True

    def _write_out(self, op: Operation) -> None:
        """What is known, where an operation needs its value."""
        for operand in op.operands:
            if operand in self.truths and operand not in self.values:
                truth = arith.ConstantOp(IntegerAttr(int(self.truths[operand]), i1))
                Rewriter.insert_op(truth, self.before)
                self.values[operand] = truth.result


def _erase_unused(block: Block) -> None:
    for op in reversed(list(block.ops)):
        pure = isinstance(op, memref.LoadOp) or op.name.startswith(("arith.", "math."))
        if pure and all(result.first_use is None for result in op.results):
            Rewriter.erase_op(op)
