"""The C text of the program: its kernels and the launches that run them on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target


@dataclass(frozen=True)
class CTarget(Target):
    """Wants a scheduled program, such as the default pipeline makes."""

    name = "c"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        from fuse_opt.lowering.emit import emit_c

        output.write(emit_c(module).rstrip("\n") + "\n")
