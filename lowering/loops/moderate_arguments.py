"""Functions of moderate arguments: a loop asks once a block whether all are.

    scf.parallel (%i) { store sin(load %x[%i] * %c), %y[%i] }

becomes, over a block of iterations,

    %most = the largest bits of |load %x[%i] * %c|
    scf.if %most < bits of 10000 { scf.parallel (%i) { store fo_moderate_sin_f32(load %x[%i] * %c), %y[%i] } }
    else { scf.parallel (%i) { store sin(load %x[%i] * %c), %y[%i] } }

Where iterations may run twice, as they store nothing that they read, the loop itself finds the largest bits, and runs again in
the other form where these are too large:

    %most = scf.parallel (%i) { store fo_moderate_sin_f32(...), %y[%i]; reduce the largest bits }
    scf.if %most >= bits of 10000 { scf.parallel (%i) { store sin(load %x[%i] * %c), %y[%i] } }

What takes every argument needs five times as many instructions. It gives the same bits where the argument is moderate, so what
is beside an element changes nothing about it. Arguments that take more than a few operations are not computed twice.

Sines, cosines and tangents ask for their arguments, remainders and floored quotients for the quotient of theirs: it is below
10000 times 2**15 in f32, and 2**39 in f64, so that products with it are exact. What takes every quotient is libm's, an element at
a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from xdsl.dialects import arith, func, math, memref, scf
from xdsl.dialects.builtin import Float32Type, FloatAttr, IntegerAttr, IntegerType, f32, f64, i32
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.inner_ops import inner_of
from fuse_opt.lowering.kernel.scope import INDEX
from fuse_opt.lowering.loops.strip_mining import BLOCK, BlockLoops, Helpers, iterations
from fuse_opt.lowering.loops.vector_widths import WIDTH

FEWEST = 64
"""Iterations that are worth a second loop."""
MOST_OPERATIONS = 24
"""Of what is computed twice."""
_LIMIT = 0x461C4000
"""The bits of 10000 as an f32."""
_HELPERS: Mapping[type[Operation], str] = {
    math.SinOp: "fo_moderate_sin_f32",
    math.CosOp: "fo_moderate_cos_f32",
    math.TanOp: "fo_moderate_tan_f32",
}
"""Of f32."""
_OF_F32, _OF_F64 = 2.0**-15, 2.0**-39
_QUOTIENTS = {
    "fo_fmod_f32": ("fo_moderate_fmod_f32", _OF_F32),
    "fo_fmod_f64": ("fo_moderate_fmod_f64", _OF_F64),
    "fo_rem_f32": ("fo_moderate_rem_f32", _OF_F32),
    "fo_rem_f64": ("fo_moderate_rem_f64", _OF_F64),
    "fo_floordiv_f32": ("fo_moderate_floordiv_f32", _OF_F32),
    "fo_floordiv_f64": ("fo_moderate_floordiv_f64", _OF_F64),
}
"""By callee: what takes moderate quotients, and what a quotient is multiplied by before it is compared."""
_Arguments: TypeAlias = tuple[SSAValue, ...]


def ask_for_moderate_arguments(body: Block, tasks: Extent, helpers: Helpers, shared: Collection[int] = ()) -> None:
    """
    Rewrites the function of a kernel in place, and adds to `helpers` what it calls from then on; loops without constant bounds
    are over some of so many tasks. `shared` are the numbers of arguments whose memory others may be.
    """
    blocks = BlockLoops(body)
    overlaid = {body.args[number] for number in shared}
    for loop in [op for op in inner_of(body, scf.ParallelOp) if len(op.body.block.args) == 1]:
        _choose(loop, estimate(tasks), blocks, helpers, overlaid)


def _choose(
    loop: scf.ParallelOp, tasks: int, blocks: BlockLoops, helpers: Helpers, shared: Collection[SSAValue]
) -> None:
    count = iterations(loop)
    arguments = [] if (tasks if count is None else count) < FEWEST else _arguments(loop.body.block)
    needed = _needed(arguments, loop.body.block)
    if not arguments or needed is None:
        return
    if not loop.initVals and not _is_block(loop) and (count is None or count > BLOCK):
        loop = blocks.in_blocks(loop, count is not None and count % BLOCK == 0)
    if _may_run_again(loop, shared):
        _run_again(loop, arguments, helpers)
        return
    most = _largest(loop, needed, arguments)
    limit = arith.ConstantOp(IntegerAttr(_LIMIT, i32))
    less = arith.CmpiOp(most, limit.result, "slt")
    copies: dict[SSAValue, SSAValue] = {}
    moderate = loop.clone(copies)
    for op in _functions(moderate.body.block, {values for values, _ in _copied(arguments, copies)}):
        _call(op, helpers)
    results = [value.type for value in loop.res]
    place = InsertPoint.before(loop)
    Rewriter.insert_op([limit, less], place)
    other = scf.ParallelOp(loop.lowerBound, loop.upperBound, loop.step, loop.detach_region(loop.body), loop.initVals)
    other.attributes.update(loop.attributes)
    taken, rest = (Region(Block([each, scf.YieldOp(*each.res)])) for each in (moderate, other))
    Rewriter.replace_op(loop, scf.IfOp(less.result, results, taken, rest))


def _arguments(block: Block) -> list[tuple[_Arguments, float]]:
    """Those that are cheap, of a body without loops in it, and the scale of their quotient."""
    ops = list(block.ops)
    if any(op.regions for op in ops[:-1]):
        return []
    found = dict.fromkeys((tuple(op.operands), _scale(op)) for op in ops if _moderate(op) is not None)
    return [each for each in found if _needed([each], block) is not None]


def _moderate(op: Operation) -> str | None:
    """What does the same for moderate arguments."""
    if isinstance(op, func.CallOp):
        return _QUOTIENTS.get(op.callee.string_value(), (None, 1.0))[0]
    return _HELPERS[type(op)] if type(op) in _HELPERS and isinstance(op.operands[0].type, Float32Type) else None


def _scale(op: Operation) -> float:
    return _QUOTIENTS[op.callee.string_value()][1] if isinstance(op, func.CallOp) else 1.0


def _functions(block: Block, arguments: Collection[_Arguments]) -> list[Operation]:
    return [op for op in block.ops if _moderate(op) is not None and tuple(op.operands) in arguments]


def _needed(arguments: Sequence[tuple[_Arguments, float]], block: Block) -> list[Operation] | None:
    """What computes the arguments, in order; None where that is much, or reads what the loop may have stored."""
    found: set[Operation] = set()
    stack = [value for values, _ in arguments for value in values]
    while stack:
        owner = stack.pop().owner
        if isinstance(owner, Operation) and owner.parent is block and owner not in found:
            found.add(owner)
            stack += owner.operands
    needed: list[Operation] = []
    for op in block.ops:
        if isinstance(op, memref.StoreOp):
            break
        if op in found:
            if not _is_cheap(op):
                return None
            needed.append(op)
    return needed if len(needed) == len(found) <= MOST_OPERATIONS else None


def _is_cheap(op: Operation) -> bool:
    if isinstance(op, func.CallOp):
        return op.callee.string_value().startswith("fo_mad_")
    return isinstance(op, memref.LoadOp | math.FmaOp | math.AbsFOp) or op.name.startswith("arith.")


def _is_block(loop: scf.ParallelOp) -> bool:
    """Whether the loop is over one block already."""
    parent = loop.parent_op()
    return isinstance(parent, scf.ForOp) and loop.lowerBound[0] is parent.body.block.args[0]


def _copied(
    arguments: Sequence[tuple[_Arguments, float]], copies: Mapping[SSAValue, SSAValue]
) -> list[tuple[_Arguments, float]]:
    return [(tuple(copies.get(value, value) for value in values), scale) for values, scale in arguments]


def _largest(
    loop: scf.ParallelOp, needed: Sequence[Operation], arguments: Sequence[tuple[_Arguments, float]]
) -> SSAValue:
    """The largest bits of an argument's magnitude, in front of the loop; those of NaN are above all others."""
    block = Block(arg_types=[INDEX])
    values: dict[SSAValue, SSAValue] = {loop.body.block.args[0]: block.args[0]}
    block.args[0].name_hint = loop.body.block.args[0].name_hint
    for op in needed:
        block.add_op(op.clone(values))
    _reduce(block, _copied(arguments, values))
    return _asking(loop, Region(block))


def _reduce(block: Block, arguments: Sequence[tuple[_Arguments, float]]) -> None:
    """Ends a loop's body with the largest bits of a magnitude."""
    mask = arith.ConstantOp(IntegerAttr(0x7FFFFFFF, i32))
    block.add_op(mask)
    sizes: list[SSAValue] = []
    for values, scale in arguments:
        bits = arith.BitcastOp(_measured(values, scale, block), IntegerType(32))
        size = arith.AndIOp(bits.result, mask.result)
        block.add_ops([bits, size])
        sizes.append(size.result)
    most, *others = sizes
    for size in others:
        block.add_op(larger := arith.MaxSIOp(most, size))
        most = larger.result
    inner = Block(arg_types=[i32, i32])
    inner.add_ops([joined := arith.MaxSIOp(inner.args[0], inner.args[1]), scf.ReduceReturnOp(joined.result)])
    block.add_op(scf.ReduceOp([most], [Region(inner)]))


def _measured(values: _Arguments, scale: float, block: Block) -> SSAValue:
    """What must be moderate, as an f32 that the block ends with."""
    if len(values) == 1:
        return values[0]
    wide: list[SSAValue] = []
    for value in values:
        if isinstance(value.type, Float32Type):
            block.add_op(extended := arith.ExtFOp(value, f64))
            wide.append(extended.result)
        else:
            wide.append(value)
    quotient, by = arith.DivfOp(wide[0], wide[1]), arith.ConstantOp(FloatAttr(scale, f64))
    scaled = arith.MulfOp(quotient.result, by.result)
    narrow = arith.TruncFOp(scaled.result, f32)
    block.add_ops([quotient, by, scaled, narrow])
    return narrow.result


def _asking(loop: scf.ParallelOp, body: Region) -> SSAValue:
    """What a loop with that body comes to, in front of the one given, over the same iterations."""
    zero = arith.ConstantOp(IntegerAttr(0, i32))
    asked = scf.ParallelOp(loop.lowerBound, loop.upperBound, loop.step, body, [zero.result])
    asked.attributes.update(loop.attributes)
    asked.res[0].name_hint = "most"
    Rewriter.insert_op([zero, asked], InsertPoint.before(loop))
    return asked.res[0]


def _may_run_again(loop: scf.ParallelOp, shared: Collection[SSAValue]) -> bool:
    """Whether iterations may run twice. Loops of a known rest do not: a reduction has no masked vectors."""
    ops, count = list(loop.body.block.ops)[:-1], iterations(loop)
    stored = {op.memref for op in ops if isinstance(op, memref.StoreOp)}
    loaded = {op.memref for op in ops if isinstance(op, memref.LoadOp)}
    return (
        not loop.initVals
        and (count is None or count % WIDTH == 0)
        and all(op.results or isinstance(op, memref.StoreOp) for op in ops)
        and stored.isdisjoint(loaded)
        and stored.isdisjoint(shared)
    )


def _run_again(loop: scf.ParallelOp, arguments: Sequence[tuple[_Arguments, float]], helpers: Helpers) -> None:
    """The loop with functions of moderate arguments, and behind it, where some were not moderate, itself."""
    copies: dict[SSAValue, SSAValue] = {}
    moderate = loop.clone(copies)
    block, found = moderate.body.block, _copied(arguments, copies)
    for op in _functions(block, {values for values, _ in found}):
        _call(op, helpers)
    assert block.last_op is not None
    Rewriter.erase_op(block.last_op)
    _reduce(block, found)
    most = _asking(loop, moderate.detach_region(moderate.body))
    moderate.erase()
    limit = arith.ConstantOp(IntegerAttr(_LIMIT, i32))
    large = arith.CmpiOp(most, limit.result, "sge")
    Rewriter.insert_op([limit, large], InsertPoint.before(loop))
    other = scf.ParallelOp(loop.lowerBound, loop.upperBound, loop.step, loop.detach_region(loop.body))
    other.attributes.update(loop.attributes)
    Rewriter.replace_op(loop, scf.IfOp(large.result, [], Region(Block([other, scf.YieldOp()]))))


def _call(op: Operation, helpers: Helpers) -> None:
    """What takes moderate arguments alone, in the op's place."""
    helper, result = _moderate(op), op.results[0]
    assert helper is not None
    helpers.setdefault(helper, (tuple(operand.type for operand in op.operands), result.type))
    call = func.CallOp(helper, list(op.operands), [result.type])
    call.res[0].name_hint = result.name_hint
    Rewriter.replace_op(op, call)
