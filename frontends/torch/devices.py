"""Whether programs can run where the tensors of a graph are."""

from __future__ import annotations

from typing import Any

from fuse_opt.frontends.torch.fx.api import torch
from fuse_opt.tools.compiler.targets import cuda_problem


def check_device(device: Any, target: str | None) -> None:
    """Raises NotImplementedError, which says why, where no program is to run on a device, or can."""
    wanted = "cuda" if target == "cuda" else "cpu"
    if target is not None and device.type != wanted:
        raise NotImplementedError(
            f"tensors on {device}: option 'target' is {target!r}, which takes those on {wanted!r}"
        )
    if device.type != "cuda":
        return
    torch.cuda.init()  # the context of the device that is open is PyTorch's
    if (problem := cuda_problem(device.index or 0)) is not None:
        raise NotImplementedError(f"tensors on {device}: {problem}")
