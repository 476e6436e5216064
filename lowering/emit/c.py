"""From a module to a `Program` and its text: tensor-level modules are lowered on a copy."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from fuse_opt.lowering.c.language import C
from fuse_opt.lowering.c.printer import FunctionText, print_function, print_translation_unit
from fuse_opt.lowering.convert.convert_fused_to_loops import ConvertFusedToLoopsPass
from fuse_opt.lowering.emit.c_program import segments_text
from fuse_opt.lowering.emit.c_units import translation_units
from fuse_opt.lowering.emit.lower import lowered_record, program_of
from fuse_opt.lowering.emit.program_builder import ProgramBuilder
from fuse_opt.lowering.program import Program, Segment


def build_program(module: ModuleOp, function: str | None = None) -> Program:
    """
    The function called `function`, or the only one (or `main`), as a program in C. The module may hold fused kernels
    or what convert-fused-to-loops made of them; it is not changed. Raises LoweringError, EvaluationError, CPrintError.
    """
    record = lowered_record(module, function, ConvertFusedToLoopsPass())
    kernels, launcher = _parts(record)
    return program_of(record, _whole(kernels, launcher), translation_units(kernels, launcher))


def emit_c(module: ModuleOp, function: str | None = None) -> str:
    """The C text of a program; raises as `build_program` does."""
    return _whole(*_parts(lowered_record(module, function, ConvertFusedToLoopsPass())))


def _parts(record: ProgramBuilder) -> tuple[list[FunctionText], str]:
    """The kernels, and the text that launches them."""
    kernels = [print_function(kernel, C) for kernel in record.kernels.values()]
    segments = [step for step in record.steps if isinstance(step, Segment)]
    return kernels, segments_text(segments)


def _whole(kernels: list[FunctionText], launcher: str) -> str:
    return print_translation_unit(kernels, C, launcher) if kernels else ""
