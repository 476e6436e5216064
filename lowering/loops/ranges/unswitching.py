"""Loop unswitching: what outer counters decide is asked before the loop (Allen and Cocke 1972).

    scf.parallel (%i) { store select(%row < 4, load %x[..., %i], load %z[..., %i]), %y[...] }

becomes

    scf.if %row < 4 { scf.parallel (%i) { store load %x[..., %i], %y[...] } }
    else { scf.parallel (%i) { store load %z[..., %i], %y[...] } }

Concatenations along an axis in front of the last are such loops. Compilers do the same with two or three conditions; with more
they read all operands for each element. Conditions by which a number or else a constant is chosen, as whether an outer counter
is within a padding, are asked together: there is one loop for where all of them hold, and one that asks as before elsewhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from fuse_opt.lowering.inner_ops import inner_of
from fuse_opt.lowering.loops.specialization import Known, specialized
from fuse_opt.lowering.loops.strip_mining import constant, is_within

MOST_CONDITIONS = 64
MOST_OPERATIONS = 600
"""Operations of all loops that one becomes."""


RARE = "fused.rare"
"""Attribute of a loop over rows at the ends of images of any extents: conditions are asked for each of its elements, as to
leave them out where they hold would make a compiler's work more than twice as much for a few rows."""


def unswitch_loops(body: Block, has_sizes: bool = False) -> None:
    """Rewrites the function of a kernel in place; `has_sizes`: of a program for all of some extents."""
    for loop in _plain_loops(body):
        _unswitch_each(loop)
    for loop in _plain_loops(body):
        _unswitch_all(loop, has_sizes)


def _plain_loops(body: Block) -> list[scf.ParallelOp]:
    loops = [op for op in inner_of(body, scf.ParallelOp) if not op.initVals]
    return [loop for loop in loops if not any(op.regions for op in list(loop.body.block.ops)[:-1])]


def _unswitch_each(loop: scf.ParallelOp) -> None:
    """A loop for each of the loaded numbers that are chosen between."""
    chosen = _choosing(loop.body.block)
    count = len({_meaning(op) for op in chosen})
    if not chosen or count > MOST_CONDITIONS:
        return
    least = specialized(loop, _where(chosen[-1], True, loop.body.block))
    operations = len(list(least.body.block.ops))
    least.erase()  # nothing uses what the function has outside of it
    if operations * (count + 1) > MOST_OPERATIONS:
        return
    while chosen:
        # The last condition chooses between an operand and what the others choose: it is asked first.
        last = chosen[-1]
        taken, rest = (specialized(loop, _where(last, holds, loop.body.block)) for holds in (True, False))
        _replace(loop, _hoist([last], loop)[0], taken, rest)
        loop, chosen = rest, _choosing(rest.body.block)


def _unswitch_all(loop: scf.ParallelOp, has_sizes: bool) -> None:
    """A loop for where all numbers are chosen rather than constants, as far as that does not vary in the loop."""
    block = loop.body.block
    asked = _guarding(block)
    if not asked or 2 * len(list(block.ops)) > MOST_OPERATIONS:
        return
    truth, *others = dict(zip(map(_meaning, asked), _hoist(asked, loop), strict=True)).values()
    for other in others:
        Rewriter.insert_op(both := arith.AndIOp(truth, other), InsertPoint.before(loop))
        truth = both.result
    inside, elsewhere = specialized(loop, {op.result: True for op in asked}), loop.clone()
    if has_sizes:
        elsewhere.attributes[RARE] = UnitAttr()
    _replace(loop, truth, inside, elsewhere)


def _choosing(block: Block) -> list[arith.CmpiOp]:
    """The comparisons of outer counters by which one of two loaded numbers is chosen, in the order of the choices."""
    found: list[arith.CmpiOp] = []
    for op in block.ops:
        if isinstance(op, arith.SelectOp) and all(is_within(value, block) for value in (op.lhs, op.rhs)):
            condition = op.cond.owner
            found += [condition] if isinstance(condition, arith.CmpiOp) and _is_outer(condition, block) else []
    return found


def _guarding(block: Block) -> list[arith.CmpiOp]:
    """The comparisons of outer counters by which a number or else a constant is chosen."""
    found: dict[arith.CmpiOp, None] = {}
    for op in block.ops:
        if not isinstance(op, arith.SelectOp) or not isinstance(op.rhs.owner, arith.ConstantOp):
            continue
        stack = [op.cond]
        while stack:
            owner = stack.pop().owner
            if isinstance(owner, arith.AndIOp) and owner.parent is block:
                stack += [owner.rhs, owner.lhs]
            elif isinstance(owner, arith.CmpiOp) and _is_outer(owner, block):
                found[owner] = None
    return [op for op in found if op.parent is block]


def _where(condition: arith.CmpiOp, holds: bool, block: Block) -> Known:
    """What the conditions of the body's choices that say the same as this one are, where it holds or does not."""
    asked = [op.cond for op in block.ops if isinstance(op, arith.SelectOp)]
    meaning = _meaning(condition)
    return {v: holds for v in asked if isinstance(v.owner, arith.CmpiOp) and _meaning(v.owner) == meaning}


def _is_outer(op: arith.CmpiOp, block: Block) -> bool:
    """Whether it compares what does not vary in the loop."""
    return not any(is_within(_cast(value), block) for value in op.operands)


def _cast(value: SSAValue) -> SSAValue:
    """What was converted from an index."""
    return value.owner.input if isinstance(value.owner, arith.IndexCastOp) else value


def _meaning(op: arith.CmpiOp) -> Hashable:
    """Equal for comparisons that say the same."""
    sides = [_cast(value) for value in op.operands]
    return (op.predicate.value.data, *(value if (n := constant(value)) is None else n for value in sides))


def _hoist(conditions: Sequence[arith.CmpiOp], loop: scf.ParallelOp) -> list[SSAValue]:
    """The conditions, in front of the loop."""
    values: dict[SSAValue, SSAValue] = {}
    for condition in conditions:
        for value in (*condition.operands, condition.result):
            owner = value.owner
            if isinstance(owner, Operation) and owner.parent is loop.body.block and value not in values:
                Rewriter.insert_op(owner.clone(values), InsertPoint.before(loop))
    return [values.get(condition.result, condition.result) for condition in conditions]


def _replace(loop: scf.ParallelOp, condition: SSAValue, taken: scf.ParallelOp, other: scf.ParallelOp) -> None:
    """One of the two loops runs in place of the loop."""
    branches = [Region(Block([each, scf.YieldOp()])) for each in (taken, other)]
    Rewriter.replace_op(loop, scf.IfOp(condition, [], branches[0], branches[1]), [])
