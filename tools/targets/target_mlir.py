"""MLIR text, in the custom or the generic form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer
from xdsl.utils.target import Target


@dataclass(frozen=True)
class MlirTarget(Target):
    """What every tool here reads back."""

    name = "mlir"

    generic: bool = False
    """Every op in the generic form."""
    debuginfo: bool = False
    """Locations behind ops and arguments."""

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        printer = Printer(stream=output, print_generic_format=self.generic, print_debuginfo=self.debuginfo)
        printer.print_op(module)
        printer.print_metadata(ctx.loaded_dialects)
        output.write("\n")
