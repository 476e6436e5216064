"""What a device's record says of its processor otherwise than lowering takes for granted, as entries of schedules."""

from __future__ import annotations

from xdsl.dialects.builtin import BFloat16Type, Float16Type

from fuse_opt.dialects.analysis.contractions.packed_panels import NARROW_BITS
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import LENT, REGISTER_BITS, TABLE, TILE_BITS, WINDOW
from fuse_opt.dialects.interfaces.shapes import tensor
from fuse_opt.passes.devices.device import Device

ROWS_OF_CACHE = 48
"""A row of this part of a first level cache is better kept where it goes. Softmax of 209 columns took 1.00 to 1.04 times as long
so, of 233 .90 to .96, of 300 to 650 .75 to .94 (Emerald Rapids, all levels of memory); short rows 1.0 to 1.13."""


def processor_entries(kind: str, device: Device) -> dict[str, int]:
    """Entries for a schedule of that kind; none for a processor like those that lowering was measured on."""
    stated = {
        WINDOW: int(device.window),
        LENT: int(device.first_cache_bytes) // ROWS_OF_CACHE,
        TILE_BITS: 8 * int(device.vector_bytes),
        REGISTER_BITS: 8 * int(device.vector_bytes),
    }
    return {knob.name: value for knob, value in stated.items() if kind in knob.kinds and value != knob.usual}


def entries_of_kernel(kernel: KernelOp, kind: str, device: Device) -> dict[str, int | str]:
    """These, and what depends on the kernel's elements."""
    found: dict[str, int | str] = {**processor_entries(kind, device)}
    if kind in TABLE.kinds and 8 * int(device.vector_bytes) <= NARROW_BITS and _is_of_narrow_floats(kernel):
        found[TABLE.name] = "narrow"
    return found


def _is_of_narrow_floats(kernel: KernelOp) -> bool:
    values = (*kernel.operands, *kernel.results)
    return any(isinstance(tensor(value).element_type, Float16Type | BFloat16Type) for value in values)
