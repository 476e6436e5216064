"""The default passes for devices whose vectors have 256 bits, or any other number."""

from __future__ import annotations

from pathlib import Path

import fuse_opt
from fuse_opt.passes.devices import device
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

NARROW = [
    name.replace("pack-weights", "pack-weights{smallest-bytes=0 device=avx2}").replace(
        "schedule-kernels", "schedule-kernels{device=avx2}"
    )
    for name in DEFAULT_PIPELINE
]
"""For vectors of 256 bits, with small weights packed, too."""
RECORD = Path(device.__file__).with_name("device_cpu.toml")


def compiled_for(text: str, size: int, folder: Path) -> fuse_opt.CompiledProgram:
    """For a processor with vectors of so many bytes."""
    path = folder / f"own{size}.toml"
    path.write_text(RECORD.read_text().replace("vector_bytes = 64", f"vector_bytes = {size}"))
    schedule = f'schedule-kernels{{device="{path}"}}'
    return fuse_opt.compile(
        text, pipeline=",".join(schedule if name == "schedule-kernels" else name for name in DEFAULT_PIPELINE)
    )
