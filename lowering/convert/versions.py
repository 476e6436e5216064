"""Versions of a row kernel: code of its own for rows that are short, or long, chosen at the function's entry by a size.

    func.func private @kernel(%x: memref<?xf32>, %r: memref<?xf32>, %n: index, %begin: index, %end: index) {
      scf.if %n <= 4 { loops over rows side by side, of at most 4 elements }
      else { scf.if %n >= 256 { loops with more accumulators } else { loops of any row } }
    }

of which the schedule says `short = 4, long = 256`. A version is made for the sizes that its predicate leaves: a bound of loops
that is never above 4 needs no blocks. All have the same buffers; where a task of one is several of the others' in order, it is
done with the first of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from fuse_opt.dialects.analysis.kernel_access import COLUMN
from fuse_opt.dialects.analysis.loop_body import LoopBody
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import LANES, LONG, ROWS_AT_A_TIME, SHORT
from fuse_opt.dialects.interfaces.symbols import change_sizes
from fuse_opt.dialects.types.extents import is_symbol, least, most, substitute
from fuse_opt.dialects.types.size import Extent, Floor, Size, symbol
from fuse_opt.lowering.cpu.kernel import KernelLoops
from fuse_opt.lowering.cpu.packed.packed_rows import LONGEST, PACKED_LENGTH
from fuse_opt.lowering.kernel.scope import INDEX

LANES_OF_LONG = 64
"""Accumulators of a sum along a long row, as where its length is a number: bits are the same then."""


@dataclass(frozen=True, slots=True)
class Version:
    """The kernel as it is where a size is at most, or at least, so large."""

    size: Size
    predicate: Literal["sle", "sge"]
    bound: int
    kernel: KernelOp
    """By itself, with a schedule of its own and with types that say what the predicate leaves of sizes."""
    helper: str = ""
    """What gives the bound where a compiler decides whether there is the version at all."""

    def whole(self, extent: Extent) -> Extent:
        """An extent of this version as the others have it."""
        one = is_symbol(self.size)
        return extent if one is None else substitute(extent, {one.name: self.size})


def versions_of(kernel: KernelOp, passes: Sequence[LoopBody]) -> list[Version]:
    """Those that the schedule asks for beside the one of any size, the first that holds first."""
    if len(passes) != 1 or len(passes[0].column_extents) != 1 or kernel.schedule is None:
        return []
    size = passes[0].column_extents[0]
    if not isinstance(size, Size):
        return []
    entries = {name: value for name, value in kernel.schedule.data.items() if name not in (SHORT.name, LONG.name)}
    found: list[Version] = []
    if (short := SHORT.count(kernel)) is not None and least(size) <= short < most(size):
        own = {**entries, "kind": StringAttr(COLUMN), ROWS_AT_A_TIME.name: IntegerAttr(1, i64)}
        found.append(Version(size, "sle", short, _of(kernel, size, (1, short), own)))
    if (long := LONG.count(kernel)) is not None and least(size) < long <= most(size):
        own = {LANES.name: IntegerAttr(LANES_OF_LONG, i64), **entries}
        found.append(Version(size, "sge", long, _of(kernel, size, (long, most(size)), own)))
    return found


def short_version(kernel: KernelOp, passes: Sequence[LoopBody]) -> Version | None:
    """That of rows so short that a vector has several, where the schedule says nothing of short ones."""
    if len(passes) != 1 or len(passes[0].column_extents) != 1 or kernel.schedule_kind() != "row" or SHORT.count(kernel):
        return None
    size = passes[0].column_extents[0]
    if not isinstance(size, Size) or not 1 <= least(size) <= LONGEST < most(size):
        return None
    assert kernel.schedule is not None
    return Version(size, "sle", LONGEST, _of(kernel, size, (1, LONGEST), kernel.schedule.data), PACKED_LENGTH)


def _of(kernel: KernelOp, size: Size, bounds: tuple[int, int], schedule: Mapping[str, Attribute]) -> KernelOp:
    """A copy whose types say that a size, where it is a symbol, is within the bounds."""
    block = Block(arg_types=[value.type for value in kernel.operands])
    copy = kernel.clone(dict(zip(kernel.operands, block.args, strict=False)))
    copy.operands = block.args
    copy.schedule = DictionaryAttr(dict(schedule))
    block.add_op(copy)
    holder = func.FuncOp("version", (list(block.arg_types), []), Region(block))
    if (one := is_symbol(size)) is not None and one.multiple == 1:
        low, high = max(bounds[0], one.range[0]), bounds[1]
        cut = symbol(one.name, low, high, typical=min(max(one.usual, low), high))
        change_sizes(holder, lambda extent: substitute(extent, {one.name: cut}))
    return copy


def join_versions(versions: Sequence[tuple[Version, KernelLoops]], others: KernelLoops) -> KernelLoops:
    """One function of all of them. Those whose buffers or tasks are no part of the others' are left out."""
    parts = [(one, loops, width) for one, loops in versions if (width := _tasks_of_one(one, loops, others))]
    if not parts:
        return others
    *buffers, begin, end = others.body.args
    names = dict(zip(others.sizes, buffers[len(others.parameters) :], strict=True))
    sizes: dict[Size, SSAValue | None] = dict(names)
    for one, loops, _ in parts:
        made_of = zip(loops.sizes, list(loops.body.args)[len(loops.parameters) : -2], strict=True)
        sizes = {one.size: None, **{_size(one.whole(each)): value for each, value in made_of}} | sizes
    buffers = buffers[: len(others.parameters)]
    body = Block(arg_types=[*(each.type for each in buffers), *(INDEX for _ in sizes), INDEX, INDEX])
    for new, old in zip(body.args, [*buffers, *sizes.values(), begin, end], strict=True):
        new.name_hint = "size" if old is None else old.name_hint
    own = list(body.args)
    given = dict(zip(others.parameters, own, strict=False))
    known = dict(zip(sizes, own[len(buffers) : -2], strict=True))
    block = body
    for one, loops, width in parts:
        bound, least = (_add(block, arith.ConstantOp(IntegerAttr(each, INDEX))) for each in (one.bound, width - 1))
        bound = _add(block, func.CallOp(one.helper, [bound], [INDEX])) if one.helper else bound
        holds = _add(block, arith.CmpiOp(known[one.size], bound, one.predicate))
        inner, rest = Block(), Block()
        tasks = (own[-2], own[-1])
        if width > 1:
            divisor = _add(inner, arith.ConstantOp(IntegerAttr(width, INDEX)))
            above = [_add(inner, arith.AddiOp(each, least)) for each in tasks]
            first, last = (_add(inner, arith.DivSIOp(each, divisor)) for each in above)
            tasks = (first, last)
        _move(
            inner, loops, [given[p] for p in loops.parameters], [known[_size(one.whole(z))] for z in loops.sizes], tasks
        )
        inner.add_op(scf.YieldOp())
        block.add_op(scf.IfOp(holds, [], Region(inner), Region(rest)))
        if block is not body:
            block.add_op(scf.YieldOp())
        block = rest
    _move(block, others, list(given.values()), [known[size] for size in others.sizes], (own[-2], own[-1]))
    block.add_op(scf.YieldOp())
    body.add_op(func.ReturnOp())
    helpers = {name: kind for _, loops, _ in parts for name, kind in loops.helpers.items()}
    helpers |= {one.helper: ((INDEX,), INDEX) for one, _, _ in parts if one.helper}
    return replace(others, body=body, helpers={**others.helpers, **helpers}, sizes=tuple(sizes))


def _tasks_of_one(one: Version, loops: KernelLoops, others: KernelLoops) -> int | None:
    """How many tasks of the others one of the version is; None where it cannot be part of their function."""
    if loops.limits or loops.shared != others.shared or not set(loops.parameters) <= set(others.parameters):
        return None
    tasks = one.whole(loops.tasks)
    if tasks == others.tasks:
        return 1
    parts = [atom for monomial in tasks.terms for atom in monomial] if isinstance(tasks, Size) else []
    widths = [atom.divisor for atom in parts if isinstance(atom, Floor)]
    return next((width for width in widths if -(-others.tasks // width) == tasks), None)


def _move(
    block: Block, loops: KernelLoops, buffers: Sequence[SSAValue], sizes: Sequence[SSAValue], tasks: Sequence[SSAValue]
) -> None:
    """Puts what a function does into a block, with other values for its arguments."""
    for old, new in zip(loops.body.args, [*buffers, *sizes, *tasks], strict=True):
        old.replace_all_uses_with(new)
    for op in list(loops.body.ops):
        op.detach()
        if not isinstance(op, func.ReturnOp):
            block.add_op(op)


def _add(block: Block, op: Operation) -> SSAValue:
    block.add_op(op)
    return op.results[0]


def _size(extent: Extent) -> Size:
    assert isinstance(extent, Size)
    return extent
