"""What the schemes of GPU kernels share: the device, what a schedule says, and the pass under construction.

A module says `fused.device = {processors = 132 : i64, ...}` (see `gpu-attach-device`); the defaults are an H100's.
A kernel says in its schedule what it wants otherwise than chosen here:
`schedule = {kind = "row", gpu = {variant = "warp", threads = 128 : i64}}`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.loop_body import Store
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.gpu_schedule import ENTRY, gpu_entry_problem
from fuse_opt.dialects.gpu.kernels import DEVICE
from fuse_opt.dialects.types.extents import estimate, most
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.errors import LoweringError
from fuse_opt.lowering.gpu.scope import KernelScope
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.element_emitter import ElementEmitter, KernelNodes
from fuse_opt.lowering.kernel.scope import Scope


@dataclass(frozen=True, slots=True)
class GpuLimits:
    """What a device offers kernels."""

    processors: int = 132
    max_threads: int = 1024
    """Threads of a block."""
    processor_threads: int = 2048
    static_shared: int = 48 << 10
    """Bytes of shared memory that a kernel may declare."""
    shared_memory: int = 227 << 10
    """Bytes of a block that asks for them when it is launched."""
    bytes_in_flight: int = 40 << 10
    """Loads under way on one processor that keep memory busy."""
    capability: int = 90
    """Ten times the compute capability, such as 75."""

    @property
    def multiplies_matrices(self) -> bool:
        """Whether warps multiply matrices of f16 and bf16 and copy past registers."""
        return self.capability >= 80

    @property
    def multiplies_in_groups(self) -> bool:
        """Whether four warps together multiply matrices in shared memory (PTX ISA, wgmma): older and newer ones do not."""
        return self.capability == 90


@dataclass(frozen=True, slots=True)
class GpuSchedule:
    """Numbers and a variant that a kernel's schedule gives; None is for the lowering to choose."""

    limits: GpuLimits = field(default_factory=GpuLimits)
    variant: str | None = None
    threads: int | None = None
    """Threads of a block, or of a row in it."""
    vector: int | None = None
    """Elements that one access moves."""
    unroll: int | None = None
    """Vectors of a thread whose loads are under way together."""
    splits: int | None = None
    """Blocks that share a row."""
    tile: int | None = None
    """Elements along both sides of a block of a transpose."""
    cache: str | None = None
    """Whether what is read or written `once` leaves the caches first."""


def gpu_limits(module: Operation | None) -> GpuLimits:
    """The figures of the device that a module names."""
    while module is not None and not isinstance(module, ModuleOp):
        module = module.parent_op()
    found = None if module is None else module.attributes.get(DEVICE)
    if not isinstance(found, DictionaryAttr):
        return GpuLimits()
    numbers = {name: value.value.data for name, value in found.data.items() if isinstance(value, IntegerAttr)}
    chosen = {name: n for name, n in numbers.items() if name in _LIMITS and n > 0}
    if "capability" not in chosen and found.data:
        chosen["capability"] = 80 if chosen.get("shared_memory", 0) >= _SHARED_SINCE_80 else 70
    return replace(GpuLimits(), **chosen)


_SHARED_SINCE_80 = 99 << 10
"""Bytes of shared memory that a block may have from 8.0 on, and on no older one (CUDA C++ Programming Guide)."""
_LIMITS = frozenset(f.name for f in fields(GpuLimits))


def gpu_schedule(kernel: KernelOp, limits: GpuLimits) -> GpuSchedule:
    """What the kernel's schedule says of the GPU. Raises LoweringError for an entry that it cannot have."""
    if kernel.schedule is None:
        return GpuSchedule(limits)
    if (problem := gpu_entry_problem(kernel.schedule)) is not None:
        raise LoweringError(f"'fused.kernel' schedule, {ENTRY}: {problem}", kernel)
    found = kernel.schedule.data.get(ENTRY)
    if not isinstance(found, DictionaryAttr):
        return GpuSchedule(limits)
    words = {name: value.data for name, value in found.data.items() if isinstance(value, StringAttr)}
    numbers = {name: value.value.data for name, value in found.data.items() if isinstance(value, IntegerAttr)}
    return replace(GpuSchedule(limits), **words, **numbers)


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
