"""What the schemes of GPU kernels share: the nodes, the scope and the buffers of the pass under construction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.loop_body import Store
from fuse_opt.dialects.types.extents import estimate, most
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.gpu.limits import GpuSchedule
from fuse_opt.lowering.gpu.scope import KernelScope
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.element_emitter import ElementEmitter, KernelNodes
from fuse_opt.lowering.kernel.scope import Scope

LARGE = 1 << 24
"""Nodes of a kernel that memory keeps busy, however it is written."""


def usual(count: Extent) -> int:
    """
    The nodes for which a kernel is shaped: where their number is a size, as many as there may be, up to so many that it matters.
    Few take the time of a launch in any shape.
    """
    return max(estimate(count), min(most(count), LARGE)) if isinstance(count, Size) else count


@dataclass(frozen=True, slots=True)
class Grid:
    """Blocks along x, and the threads of one along x and y."""

    blocks: Extent
    block: tuple[int, int]
    shared: int = 0
    """Bytes of shared memory that a launch must ask for."""


@dataclass(frozen=True)
class GpuParts:
    """A pass of a kernel under construction."""

    nodes: KernelNodes
    buffers: KernelBuffers
    kernel: KernelScope
    schedule: GpuSchedule = field(default_factory=GpuSchedule)
    notes: list[str] = field(default_factory=list[str])
    """How the pass runs, for people; one entry of each part of a pack."""

    vectors: bool = True
    """Whether buffers that are moved by vectors begin where these may; else everything goes element by element."""
    aligned: list[int] = field(default_factory=list[int])
    """Of which buffers that was made use of."""
    packed: bool = False
    """Whether other parts have blocks of the kernel, too, so that their size is given."""

    @property
    def in_place(self) -> bool:
        """Whether the pass may write to memory that it reads."""
        return self.buffers.in_place(self.nodes.loop_body)

    def takes_vectors(self, memories: Iterable[SSAValue]) -> bool:
        """Whether these buffers may be moved by vectors; it is made use of."""
        if self.vectors:
            numbers = [self.kernel.parameters.index(memory) for memory in memories]  # pyright: ignore[reportArgumentType]
            self.aligned[:] = sorted({*self.aligned, *numbers})
        return self.vectors

    def emitter(self, nodes: KernelNodes) -> ElementEmitter:
        memory = {value: self.kernel.parameters[number] for value, number in self.buffers.sources.items()}
        return ElementEmitter(nodes, memory)

    def store(self, stores: Iterable[Store], emitter: ElementEmitter, scope: Scope) -> None:
        """Stores scalars that are known in the scope."""
        for store in stores:
            memory = self.kernel.parameters[self.buffers.targets[store.result]]
            emitter.store(store.node, memory, emitter.nodes.space.apply(store.address), scope)
