"""Sines, cosines and tangents of moderate arguments: a loop asks once a block whether all are.

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
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from xdsl.dialects import arith, func, math, memref, scf
from xdsl.dialects.builtin import Float32Type, IntegerAttr, IntegerType, i32
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
_WORDS: Mapping[type[Operation], str] = {math.SinOp: "sin", math.CosOp: "cos", math.TanOp: "tan"}


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
    for op in _functions(moderate.body.block, {copies.get(argument, argument) for argument in arguments}):
        _call(op, helpers)
    results = [value.type for value in loop.res]
    place = InsertPoint.before(loop)
    Rewriter.insert_op([limit, less], place)
    other = scf.ParallelOp(loop.lowerBound, loop.upperBound, loop.step, loop.detach_region(loop.body), loop.initVals)
    other.attributes.update(loop.attributes)
    taken, rest = (Region(Block([each, scf.YieldOp(*each.res)])) for each in (moderate, other))
    Rewriter.replace_op(loop, scf.IfOp(less.result, results, taken, rest))


def _arguments(block: Block) -> list[SSAValue]:
    """Those that are cheap, of a body without loops in it."""
    ops = list(block.ops)
    if any(op.regions for op in ops[:-1]):
        return []
    found = dict.fromkeys(op.operands[0] for op in ops if type(op) in _WORDS)
    return [x for x in found if isinstance(x.type, Float32Type) and _needed([x], block) is not None]


def _functions(block: Block, arguments: Collection[SSAValue]) -> list[Operation]:
    return [op for op in block.ops if type(op) in _WORDS and op.operands[0] in arguments]


def _needed(arguments: Sequence[SSAValue], block: Block) -> list[Operation] | None:
    """What computes the arguments, in order; None where that is much, or reads what the loop may have stored."""
    found: set[Operation] = set()
    stack = list(arguments)
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


def _largest(loop: scf.ParallelOp, needed: Sequence[Operation], arguments: Sequence[SSAValue]) -> SSAValue:
    """The largest bits of an argument's magnitude, in front of the loop; those of NaN are above all others."""
    block = Block(arg_types=[INDEX])
    values: dict[SSAValue, SSAValue] = {loop.body.block.args[0]: block.args[0]}
    block.args[0].name_hint = loop.body.block.args[0].name_hint
    for op in needed:
        block.add_op(op.clone(values))
    _reduce(block, [values.get(argument, argument) for argument in arguments])
    return _asking(loop, Region(block))


def _reduce(block: Block, arguments: Sequence[SSAValue]) -> None:
    """Ends a loop's body with the largest bits of a magnitude."""
    mask = arith.ConstantOp(IntegerAttr(0x7FFFFFFF, i32))
    block.add_op(mask)
    sizes: list[SSAValue] = []
    for argument in arguments:
        bits = arith.BitcastOp(argument, IntegerType(32))
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


def _run_again(loop: scf.ParallelOp, arguments: Sequence[SSAValue], helpers: Helpers) -> None:
    """The loop with functions of moderate arguments, and behind it, where some were not moderate, itself."""
    copies: dict[SSAValue, SSAValue] = {}
    moderate = loop.clone(copies)
    block, found = moderate.body.block, [copies.get(argument, argument) for argument in arguments]
    for op in _functions(block, found):
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
    argument = op.operands[0]
    helper = f"fo_moderate_{_WORDS[type(op)]}_f32"
    helpers.setdefault(helper, ((argument.type,), argument.type))
    call = func.CallOp(helper, [argument], [argument.type])
    call.res[0].name_hint = op.results[0].name_hint
    Rewriter.replace_op(op, call)
