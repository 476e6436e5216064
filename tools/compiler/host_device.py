"""The device that programs for this machine are made for, where nobody names one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from fuse_opt.passes.devices.device import HOST, VARIABLE

if TYPE_CHECKING:
    from xdsl.passes import ModulePass

NARROW = "avx2"
"""The device like HOST with vectors of 256 bits."""


def with_host_device(passes: Sequence[ModulePass]) -> list[ModulePass]:
    """
    The passes, of which those that are for HOST are for the processor that is there: where that has vectors of 256 bits alone,
    and `$FUSE_OPT_DEVICE` says nothing of it, for the device that is described so.
    """
    if os.environ.get(VARIABLE) or not _is_narrow():
        return list(passes)
    return [
        replace(cast("Any", each), device=NARROW) if getattr(each, "device", None) == HOST else each for each in passes
    ]


@cache
def _is_narrow() -> bool:
    from fuse_opt.runtime.host.processors import is_avx2_alone, processor_features

    return is_avx2_alone(processor_features(("avx2", "avx512f")))
