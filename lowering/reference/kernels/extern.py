"""Ops that only the framework they come from can run: programs of them are lowered, and whoever runs one makes its calls."""

from __future__ import annotations

from collections.abc import Sequence

from fuse_opt.lowering.program import Array, Config
from fuse_opt.lowering.reference.kernels.registry import implementation


@implementation("aten", "torch.aten", moves=True, sized=True)
def aten(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """A call of one of PyTorch's kernels. Raises RuntimeError: here is no PyTorch."""
    raise RuntimeError(f"{config['callee']} is run by torch.compile(backend='fuse_opt') only")
