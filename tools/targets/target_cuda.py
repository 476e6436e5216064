"""The CUDA C text of the program's kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target


@dataclass(frozen=True)
class CudaTarget(Target):
    """Wants a scheduled program, such as the default pipeline makes."""

    name = "cuda"
    platform: ClassVar[str] = "cuda"
    """What modules are made for before the passes run, unless they name a device."""

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        from fuse_opt.lowering.emit import emit_cuda

        output.write(emit_cuda(module).rstrip("\n") + "\n")
