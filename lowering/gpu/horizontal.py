"""The parts of a pack as one GPU kernel: each part has a range of blocks, and all have blocks of one size.

A pointwise part takes blocks of any size. A row part gives a row to a block, or to a warp where rows are short; so the
largest block that a row part asks for fits all of them. Parts never share a block, so they share its memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects import arith, scf
from xdsl.ir import Attribute, Block, Region, SSAValue

from fuse_opt.dialects import gpu
from fuse_opt.dialects.types.extents import exact_quotient, may_exceed
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.gpu.context import GpuParts, Grid
from fuse_opt.lowering.gpu.pointwise import THREADS, build_pointwise
from fuse_opt.lowering.gpu.rows import RowPlan, build_rows, plan_rows
from fuse_opt.lowering.gpu.scope import WARP, KernelScope, named
from fuse_opt.lowering.kernel.iteration_space import extent

FEWEST_THREADS = 128
"""Threads of a block where a pointwise part is among rows that would take fewer."""


def build_horizontal_blocks(parts: Sequence[GpuParts]) -> Grid:
    """Emits the parts into the kernel's scope; gives the grid for all of them."""
    kernel = parts[0].kernel
    planned = [(part, plan_rows(part) if part.nodes.loop_body.is_row else None) for part in parts if _has_work(part)]
    threads = _block_size([plan for _, plan in planned])
    pool = _Pool(kernel)
    leaves: list[tuple[Extent, Block]] = []
    first: Extent = 0
    for part, plan in planned:
        shape = None if plan is None else _row_shape(plan, threads)
        scope = _PartScope(pool, first, shape is not None and shape[0] != threads)
        packed = replace(part, kernel=scope, packed=True)
        grid = build_pointwise(packed, threads) if plan is None else build_rows(packed, plan, shape or (threads, 1))
        leaves.append((first, scope.block))
        first += grid.blocks
    _branch(kernel, kernel.block, leaves)
    return Grid(first, (threads, 1))


def _has_work(part: GpuParts) -> bool:
    return may_exceed(extent(part.nodes.loop(part.nodes.loop_body.rows)), 0)


def _block_size(plans: Sequence[RowPlan | None]) -> int:
    """Threads of a block."""
    shapes = [plan.shape() for plan in plans if plan is not None]
    if not shapes:
        return THREADS
    largest = max(threads * together for threads, together in shapes)
    return max(largest, FEWEST_THREADS) if None in plans else largest


def _row_shape(plan: RowPlan, threads: int) -> tuple[int, int]:
    """Threads of a row and rows of a block of so many threads."""
    together = threads // WARP
    if plan.shape()[0] > WARP or (plan.settle and exact_quotient(plan.row.extent, together) is None):
        return threads, 1
    return WARP, together


def _branch(kernel: KernelScope, target: Block, leaves: Sequence[tuple[Extent, Block]]) -> None:
    """Puts each part's ops where its blocks get to, by halving: `leaves` are first blocks, in order, and what they run."""
    waiting = [(target, leaves)]
    while waiting:
        block, below = waiting.pop()
        if len(below) == 1:
            for op in list(below[0][1].ops):
                op.detach()
                block.add_op(op)
        else:
            middle = len(below) // 2
            inner = KernelScope([])
            number = inner.block_number()
            limit = (kernel if isinstance(below[middle][0], Size) else inner).index_constant(below[middle][0])
            condition = inner.add(arith.CmpiOp(number, limit, "slt"))
            for op in list(inner.block.ops):
                op.detach()
                block.add_op(op)
            regions = Block(), Block()
            block.add_op(scf.IfOp(condition, [], Region(regions[0]), Region(regions[1])))
            waiting += [(regions[1], below[middle:]), (regions[0], below[:middle])]
        if block is not target:
            block.add_op(scf.YieldOp())


@dataclass
class _Pool:
    """The buffers that the parts share, by kind, size and number."""

    kernel: KernelScope
    _made: dict[tuple[str, Attribute, int, int], SSAValue] = field(
        default_factory=dict[tuple[str, Attribute, int, int], SSAValue]
    )

    def take(self, space: str, element: Attribute, count: int, number: int) -> SSAValue:
        key = (space, element, count, number)
        if (found := self._made.get(key)) is None:
            make, name = (self.kernel.shared, "slots") if space == "shared" else (self.kernel.registers, "row")
            found = self._made[key] = make(element, count, f"{name}_{number}")
        return found


class _PartScope(KernelScope):
    """The outermost scope of a part: its blocks count from `first`; `in_warps` gives each warp of a block a row."""

    def __init__(self, pool: _Pool, first: Extent, in_warps: bool) -> None:
        super().__init__([])
        self.parameters = pool.kernel.parameters
        self.helpers, self.sizes = pool.kernel.helpers, pool.kernel.sizes
        self._pool = pool
        self._first = first
        self._in_warps = in_warps
        self._taken: Counter[tuple[str, Attribute, int]] = Counter()

    def thread(self, axis: gpu.DimensionEnum = gpu.DimensionEnum.X) -> SSAValue:
        thread = super().thread()
        if not self._in_warps:
            return thread
        width = self.index_constant(WARP)
        if axis is gpu.DimensionEnum.X:
            return named(self.made("lane of row", lambda: arith.RemUIOp(thread, width)), "lane")
        return named(self.made("row of block", lambda: arith.DivUIOp(thread, width)), "warp")

    def size(self, value: Size) -> SSAValue:
        return self._pool.kernel.size(value)

    def block_number(self) -> SSAValue:
        number = super().block_number()
        if not self._first:
            return number
        first = self.index_constant(self._first)
        return named(self.made("block of part", lambda: arith.SubiOp(number, first)), "part_block")

    def shared(self, element: Attribute, count: int, name: str) -> SSAValue:
        return self._take("shared", element, count)

    def registers(self, element: Attribute, count: int, name: str) -> SSAValue:
        return self._take("registers", element, count)

    def _take(self, space: str, element: Attribute, count: int) -> SSAValue:
        number = self._taken[space, element, count]
        self._taken[space, element, count] += 1
        return self._pool.take(space, element, count, number)
