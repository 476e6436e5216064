"""The default passes for a device whose vectors have 256 bits, with small weights packed, too."""

from __future__ import annotations

from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

NARROW = [
    name.replace("pack-weights", "pack-weights{smallest-bytes=0 device=avx2}").replace(
        "schedule-kernels", "schedule-kernels{device=avx2}"
    )
    for name in DEFAULT_PIPELINE
]
