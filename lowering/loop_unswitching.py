"""Loop unswitching: what is chosen by a condition on outer counters is chosen before the loop (Allen and Cocke 1972).

    scf.parallel (%i) { store select(%row < 4, load %x[..., %i], load %z[..., %i]), %y[...] }

becomes

    scf.if %row < 4 { scf.parallel (%i) { store load %x[..., %i], %y[...] } }
    else { scf.parallel (%i) { store load %z[..., %i], %y[...] } }

Concatenations along an axis in front of the last are such loops. Compilers do the same with two or three conditions; with more
they read all operands for each element.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

from xdsl.dialects import arith, memref, scf
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from .block_loops import constant

MOST_CONDITIONS = 32
MOST_OPERATIONS = 600
"""Operations of all loops that one becomes."""


def unswitch_loops(body: Block) -> None:
    """Rewrites the function of a kernel in place."""
    for loop in [op for op in body.walk() if isinstance(op, scf.ParallelOp)]:
        if not loop.initVals and not any(op.regions for op in list(loop.body.block.ops)[:-1]):
            _unswitch(loop)


def _unswitch(loop: scf.ParallelOp) -> None:
    chosen = _chosen(loop.body.block)
    count = len({_meaning(op) for op in chosen})
    if not chosen or count > MOST_CONDITIONS:
        return
    least = _without(loop, chosen[-1], True)
    if len(list(least.body.block.ops)) * (count + 1) > MOST_OPERATIONS:
        return
    while chosen:
        # The last condition chooses between an operand and what the others choose: it is asked first.
        condition, rest = chosen[-1], _without(loop, chosen[-1], False)
        branches = [Region(Block([each, scf.YieldOp()])) for each in (_without(loop, condition, True), rest)]
        Rewriter.replace_op(loop, scf.IfOp(_before(condition, loop), [], branches[0], branches[1]), [])
        loop, chosen = rest, _chosen(rest.body.block)


def _chosen(block: Block) -> list[arith.CmpiOp]:
    """The comparisons of outer counters by which one of two loaded numbers is chosen, in the order of the choices."""
    found: list[arith.CmpiOp] = []
    for op in block.ops:
        if isinstance(op, arith.SelectOp) and isinstance(owner := op.cond.owner, arith.CmpiOp):
            outer = all(_is_outer(value, block) for value in owner.operands)
            if outer and all(_is_within(value, block) for value in (op.lhs, op.rhs)):
                found.append(owner)
    return found


def _is_outer(value: SSAValue, block: Block) -> bool:
    return not _is_within(_cast(value), block)


def _cast(value: SSAValue) -> SSAValue:
    """What was converted from an index."""
    return value.owner.input if isinstance(value.owner, arith.IndexCastOp) else value


def _is_within(value: SSAValue, block: Block) -> bool:
    owner = value.owner
    return owner is block or (isinstance(owner, Operation) and owner.parent is block)


def _meaning(op: arith.CmpiOp) -> Hashable:
    """Equal for comparisons that say the same."""
    sides = [_cast(value) for value in op.operands]
    return (op.predicate.value.data, *(value if (n := constant(value)) is None else n for value in sides))


def _asks(op: arith.SelectOp) -> Hashable:
    return _meaning(op.cond.owner) if isinstance(op.cond.owner, arith.CmpiOp) else None


def _before(condition: arith.CmpiOp, loop: scf.ParallelOp) -> SSAValue:
    """The condition, in front of the loop."""
    values: dict[SSAValue, SSAValue] = {}
    for operand in condition.operands:
        owner = operand.owner
        if isinstance(owner, arith.IndexCastOp) and owner.parent is loop.body.block:
            Rewriter.insert_op(made := owner.clone(values), InsertPoint.before(loop))
            values[operand] = made.result
    if condition.parent is not loop.body.block:
        return condition.result
    Rewriter.insert_op(made := condition.clone(values), InsertPoint.before(loop))
    return made.result


def _without(loop: scf.ParallelOp, condition: arith.CmpiOp, holds: bool) -> scf.ParallelOp:
    """The loop for where the condition holds, or does not."""
    old, known = loop.body.block, _meaning(condition)
    block = Block(arg_types=[arg.type for arg in old.args])
    values: dict[SSAValue, SSAValue] = dict(zip(old.args, block.args, strict=True))
    for new, arg in zip(block.args, old.args, strict=True):
        new.name_hint = arg.name_hint
    for op in old.ops:
        if isinstance(op, arith.SelectOp) and _asks(op) == known:
            taken = op.lhs if holds else op.rhs
            values[op.result] = values.get(taken, taken)
        else:
            block.add_op(op.clone(values))
    _erase_unused(list(block.ops))
    made = scf.ParallelOp(list(loop.lowerBound), list(loop.upperBound), list(loop.step), Region(block))
    made.attributes.update(loop.attributes)
    return made


def _erase_unused(ops: Collection[Operation]) -> None:
    for op in reversed([*ops]):
        pure = isinstance(op, memref.LoadOp) or op.name.startswith(("arith.", "math."))
        if pure and all(result.first_use is None for result in op.results):
            Rewriter.erase_op(op)
