"""The body of a GPU kernel under construction: what a thread knows of itself, memory of its block, guarded parts and loops."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IntegerAttr, MemRefType, UnitAttr, i64
from xdsl.ir import Attribute, Block, BlockArgument, Region, SSAValue

from fuse_opt.dialects import gpu
from fuse_opt.dialects.types.index_expr import Dim
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.hints import MODERATE, UNROLL
from fuse_opt.lowering.kernel.scope import INDEX, Scope

WARP = 32

Values = Sequence[SSAValue]
Body = Callable[[Scope, Values], Values]
"""Emits a part into a scope; takes the accumulators as they are before and gives them as they are after."""


class KernelScope(Scope):
    """The outermost scope of a kernel; its block is that of the `gpu.func`."""

    QUOTIENT = arith.DivUIOp
    """Which takes a shift of powers of two, where a division of numbers with a sign takes four instructions."""
    REMAINDER = arith.RemUIOp
    HINTS = frozenset((MODERATE,))

    def __init__(self, types: Sequence[MemRefType]) -> None:
        super().__init__(None, Block(arg_types=types))
        self.parameters: tuple[BlockArgument, ...] = tuple(self.block.args)
        self.workgroup: list[BlockArgument] = []
        self.private: list[BlockArgument] = []
        self.asks_for_shared = False
        """Whether launches ask for all memory that a block shares, which begins at a multiple of 1024 bytes then."""
        self._types: list[MemRefType] = []

    def thread(self, axis: gpu.DimensionEnum = gpu.DimensionEnum.X) -> SSAValue:
        value = self.made(("thread", axis), lambda: gpu.ThreadIdOp(gpu.DimensionAttr(axis)))
        value.name_hint = "thread" if axis is gpu.DimensionEnum.X else "thread_y"
        return value

    def block_number(self) -> SSAValue:
        value = self.made("block", lambda: gpu.BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X)))
        value.name_hint = "block"
        return value

    def shared(self, element: Attribute, count: int, name: str) -> SSAValue:
        """A buffer that the threads of a block share."""
        return self._buffer(self.workgroup, 0, gpu.AddressSpaceEnum.Workgroup, element, count, name)

    def shared_once(self, key: Hashable, element: Attribute, count: int, name: str) -> SSAValue:
        """The shared buffer known by the key, new where there is none."""
        if (found := self.values.get(("shared", key))) is None:
            found = self.values["shared", key] = self.shared(element, count, name)
        return found

    def registers(self, element: Attribute, count: int, name: str) -> SSAValue:
        """A buffer of a thread's own; in registers when all loops over it are unrolled."""
        return self._buffer(self.private, len(self.workgroup), gpu.AddressSpaceEnum.Private, element, count, name)

    def _place_of_size(self) -> int:
        return len(self.parameters) + len(self.sizes)

    @property
    def workgroup_types(self) -> list[MemRefType]:
        return self._types[: len(self.workgroup)]

    @property
    def private_types(self) -> list[MemRefType]:
        return self._types[len(self.workgroup) :]

    def _buffer(
        self,
        group: list[BlockArgument],
        before: int,
        space: gpu.AddressSpaceEnum,
        element: Attribute,
        count: int,
        name: str,
    ) -> SSAValue:
        kind = MemRefType(element, [count], memory_space=gpu.AddressSpaceAttr(space))
        place = before + len(group)
        self._types.insert(place, kind)
        argument = self.block.insert_arg(kind, self._place_of_size() + place)
        argument.name_hint = name
        group.append(argument)
        return argument


def named(value: SSAValue, name: str) -> SSAValue:
    value.name_hint = name
    return value


def combined_index(scope: Scope, outer: SSAValue, factor: int, inner: SSAValue, name: str) -> SSAValue:
    """`outer * factor + inner`."""
    if isinstance(outer.owner, arith.ConstantOp) and outer is scope.index_constant(0):
        return inner
    if factor != 1:
        outer = scope.add(arith.MuliOp(outer, scope.index_constant(factor)))
    return named(scope.add(arith.AddiOp(outer, inner)), name)


def less(scope: Scope, value: SSAValue, limit: Extent) -> SSAValue:
    """Whether an index is below a number or a size."""
    return scope.add(arith.CmpiOp(value, scope.index_constant(limit), "slt"))


def when(
    outer: Scope,
    condition: SSAValue,
    accumulators: Values,
    body: Body,
    indices: dict[Dim, SSAValue] | None = None,
    otherwise: Body | None = None,
) -> Values:
    """Runs the body where the condition holds, else the other one or nothing; gives the accumulators after it."""

    def region(part: Body | None) -> Region:
        inner = Scope(outer, Block(), dict(indices or {}))
        results = accumulators if part is None else part(inner, accumulators)
        inner.block.add_op(scf.YieldOp(*results))
        return Region(inner.block)

    both = bool(accumulators) or otherwise is not None
    types = [value.type for value in accumulators]
    branch = scf.IfOp(condition, types, region(body), region(otherwise) if both else None)
    outer.block.add_op(branch)
    _copy_hints(accumulators, branch.results)
    return branch.results


def loop(
    outer: Scope,
    bounds: tuple[SSAValue, SSAValue, SSAValue],
    accumulators: Values,
    body: Body,
    counted: tuple[Dim, str],
    hints: Sequence[str | None] = (),
) -> Values:
    """Runs the body from, up to and by the bounds; the loop counts a dimension under a name and names accumulators."""
    dim, name = counted
    block = Block(arg_types=[INDEX, *(value.type for value in accumulators)])
    for argument, hint in zip(block.args, [name, *hints], strict=True):
        argument.name_hint = hint
    inner = Scope(outer, block, {dim: block.args[0]})
    block.add_op(scf.YieldOp(*body(inner, block.args[1:])))
    made = scf.ForOp(*bounds, list(accumulators), Region(block))
    outer.block.add_op(made)
    _copy_hints(block.args[1:], made.results)
    return made.results


def unrolled(
    scope: Scope,
    dim: Dim,
    accumulators: Values,
    body: Body,
    name: str,
    hints: Sequence[str | None] = (),
    count: int | None = None,
) -> Values:
    """A loop over all of a dimension, or its first elements, that is written out by the compiler."""
    if dim.extent == 1:
        scope.indices[dim] = scope.index_constant(0)
        return body(scope, accumulators)
    last = dim.extent if count is None else count
    bounds = (scope.index_constant(0), scope.index_constant(last), scope.index_constant(1))
    results = loop(scope, bounds, accumulators, body, (dim, name), hints)
    unroll_last(scope)
    return results


def unroll_last(scope: Scope, count: int | None = None) -> None:
    """Has the compiler write out the loop that was just made, or so many turns of it at a time."""
    made = scope.block.last_op
    assert made is not None
    made.attributes[UNROLL] = UnitAttr() if count is None else IntegerAttr(count, i64)


def store_at(scope: Scope, value: SSAValue, memory: SSAValue, index: SSAValue) -> None:
    scope.block.add_op(memref.StoreOp.get(value, memory, [index]))


def _copy_hints(sources: Values, targets: Sequence[SSAValue]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.name_hint = source.name_hint
