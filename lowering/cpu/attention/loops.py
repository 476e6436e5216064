"""Attention: keys and values of a matrix are copied into panels once, then goes tile by tile of queries.

Panels that no stack has room for are copied by a launch of their own, once for all tasks. Blocks and tiles follow from the
shapes alone: every number of threads gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import prod

from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.attention import Attention, attention_of
from fuse_opt.dialects.analysis.contractions.result_places import result_axes
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import ROW_FACTOR, SPLITS, TILE_BITS
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.cpu.attention.panels import Panels, PanelSizes, on_stack
from fuse_opt.lowering.cpu.attention.split_keys import build_split_keys
from fuse_opt.lowering.cpu.attention.tiles import AttentionTiles
from fuse_opt.lowering.cpu.attention.tiling import AttentionTiling, choose_attention_tiling
from fuse_opt.lowering.cpu.kernel import KernelLoops, launch_of, launch_root
from fuse_opt.lowering.cpu.matmul.copies import count_loop
from fuse_opt.lowering.kernel.buffers import WORK_PER_CHUNK, KernelBuffers, Scratch, operand_pass
from fuse_opt.lowering.kernel.element_emitter import element_buffer_type
from fuse_opt.lowering.kernel.loop_splitting import task_parts
from fuse_opt.lowering.kernel.scope import Scope

ALIGNMENT = 64
"""Bytes at which panels begin."""


def build_attention_loops(kernel: KernelOp, storages: Sequence[Hashable]) -> list[KernelLoops]:
    """The launches of a kernel of attention. Raises Unschedulable."""
    of = attention_of(kernel)
    operands = [operand_pass(access.value) for access in (of.queries, of.keys, of.values)]
    memory = KernelBuffers(kernel, [of.weights, of.epilogue, *operands], storages)
    if of.reads_in_place:
        return build_split_keys(of, memory, SPLITS.count(kernel))
    tiling = choose_attention_tiling(of.first, of.second, dtype(of.first_raw).itemsize, TILE_BITS.number(kernel))
    build = _Build(of, tiling, memory, ROW_FACTOR.word(kernel) == "late")
    return [*([build.copies()] if tiling.shares_panels else []), build.attention()]


class _Build:
    """The launches of one kernel."""

    def __init__(self, of: Attention, tiling: AttentionTiling, memory: KernelBuffers, late: bool) -> None:
        self.of, self.tiling, self.memory, self.late = of, tiling, memory, late
        self.matrices = prod(of.first.batch)
        self.scratch = self._scratch() if tiling.shares_panels else []

    def _scratch(self) -> list[Scratch]:
        """Memory for the panels of all matrices."""
        keys, values = PanelSizes.most(self.of, self.tiling)
        element = dtype(self.of.first_raw)
        found: list[Scratch] = []
        offset = 0
        for name, size in (("key_panels", keys), ("value_panels", values)):
            kind = element_buffer_type(element, self.matrices * size)
            found.append(Scratch(offset, kind, name))
            offset += -(-self.matrices * size * element.itemsize // ALIGNMENT) * ALIGNMENT
        return found

    def copies(self) -> KernelLoops:
        """Keys and values of all matrices, copied into panels."""
        root = self._root()
        body = _Copies(self.of, self._panels(root), root)
        blocks = self.matrices, self.tiling.key_panels
        elements = self.of.first.columns * (self.of.first.depth + self.of.second.columns)
        return self._finish(root, lambda task, number: body.build(task, number, blocks), blocks, elements)

    def attention(self) -> KernelLoops:
        root = self._root()
        body = AttentionTiles(self.of, self.tiling, self._panels(root), self.memory, root, self.late)
        blocks = self.matrices, self.tiling.row_blocks
        work = estimate(self.of.first.operations + self.of.second.operations) // estimate(self.matrices)
        return self._finish(root, lambda task, number: body.build(task, number, blocks), blocks, work)

    def _root(self) -> Scope:
        return launch_root(self.memory, self.scratch)[0]

    def _panels(self, root: Scope) -> Panels:
        of, tiling, memory = self.of, self.tiling, self.memory
        keys, values = (root.block.args[memory.sources[access.value]] for access in (of.keys, of.values))
        if self.scratch:
            first, second, *_ = root.block.args[len(memory.types) :]
        else:
            sizes, element = PanelSizes.most(of, tiling), dtype(of.first_raw)
            first, second = (
                on_stack(root, sizes[0], "key_panels", element),
                on_stack(root, sizes[1], "value_panels", element),
            )
            if isinstance(of.first.columns, Size):
                root.limits[of.first.columns] = tiling.most_keys
        return Panels(of, tiling, root, (keys, values), (first, second))

    def _finish(
        self, root: Scope, build: Callable[[Scope, SSAValue], None], blocks: Sequence[Extent], work: int
    ) -> KernelLoops:
        """The launch of tasks that are blocks of matrices, each of which takes so much work; without buffers it does not use."""
        count_loop(root, "task", (root.block.args[-2], root.block.args[-1]), build)
        grain = -(-WORK_PER_CHUNK * estimate(blocks[1]) // max(work, 1))
        return launch_of(root, self.memory, self.scratch, prod(blocks), grain)


class _Copies:
    """The body of a task: the keys of a panel, and their values."""

    def __init__(self, of: Attention, panels: Panels, root: Scope) -> None:
        self.panels, self.root = panels, root
        self.batches = [result_axes(product)[0] for product in (of.first, of.second)]

    def build(self, task: Scope, number: SSAValue, blocks: Sequence[Extent]) -> None:
        batch, block = task_parts(task, self.root, number, blocks)
        task.indices = dict.fromkeys(self.batches, batch)
        self.panels.copy_block(task, block, self.panels.starts(task, batch))
