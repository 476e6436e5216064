"""What is known of the device and of how a kernel is to run on it, read from attributes; the defaults are an H100's.

A module says `fused.device = {processors = 132 : i64, ...}` (see `gpu-attach-device`). A kernel says in its schedule what
it wants otherwise than chosen here: `schedule = {kind = "row", gpu = {variant = "warp", threads = 128 : i64}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Operation

from ..dialects.fused import KernelOp
from ..dialects.gpu_kernels import DEVICE
from .program_memory import LoweringError

ENTRY = "gpu"
"""The entry of a schedule that holds what is said of the GPU."""
VARIANTS = ("thread", "warp", "block", "shared", "stream")
"""Who shares a row: nobody, a warp, or a block that keeps it in registers, in shared memory, or not at all."""


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
    bytes_in_flight: int = 32 << 10
    """Loads under way on one processor that keep memory busy."""


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


_NUMBERS = tuple(f.name for f in fields(GpuSchedule) if f.name not in ("limits", "variant"))


def gpu_limits(module: Operation | None) -> GpuLimits:
    """The figures of the device that a module names."""
    while module is not None and not isinstance(module, ModuleOp):
        module = module.parent_op()
    found = None if module is None else module.attributes.get(DEVICE)
    if not isinstance(found, DictionaryAttr):
        return GpuLimits()
    numbers = {name: value.value.data for name, value in found.data.items() if isinstance(value, IntegerAttr)}
    return replace(GpuLimits(), **{name: n for name, n in numbers.items() if name in _LIMITS and n > 0})


_LIMITS = frozenset(f.name for f in fields(GpuLimits))


def gpu_schedule(kernel: KernelOp, limits: GpuLimits) -> GpuSchedule:
    """What the kernel's schedule says of the GPU. Raises LoweringError for an entry that it cannot have."""
    found = None if kernel.schedule is None else kernel.schedule.data.get(ENTRY)
    if found is None:
        return GpuSchedule(limits)
    if not isinstance(found, DictionaryAttr):
        raise _refusal(kernel, f"expected a dictionary, got {found}")
    _check(kernel, found.data)
    variant = found.data.get("variant")
    chosen = GpuSchedule(limits, variant.data if isinstance(variant, StringAttr) else None)
    numbers = {name: value.value.data for name, value in found.data.items() if isinstance(value, IntegerAttr)}
    return replace(chosen, **numbers)


def _check(kernel: KernelOp, entries: Mapping[str, Attribute]) -> None:
    for name, value in entries.items():
        if name == "variant":
            if not isinstance(value, StringAttr) or value.data not in VARIANTS:
                raise _refusal(kernel, f"entry 'variant': expected one of {', '.join(VARIANTS)}, got {value}")
        elif name not in _NUMBERS:
            raise _refusal(kernel, f"unknown entry '{name}'; expected variant, {', '.join(_NUMBERS)}")
        elif not isinstance(value, IntegerAttr) or value.value.data < 1:
            raise _refusal(kernel, f"entry '{name}': expected a positive integer, got {value}")
        elif name != "splits" and (number := value.value.data) & (number - 1):
            raise _refusal(kernel, f"entry '{name}': expected a power of two, got {number}")


def _refusal(kernel: KernelOp, problem: str) -> LoweringError:
    return LoweringError(f"'fused.kernel' schedule, {ENTRY}: {problem}; remove it", kernel)
