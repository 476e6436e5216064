"""From a module to a `Program` and its text: tensor-level modules are lowered on a copy."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from .c_language import C
from .c_printer import print_function, print_translation_unit
from .c_program import segments_text
from .convert_fused_to_loops import ConvertFusedToLoopsPass
from .emit_cuda import build_cuda_program, emit_cuda
from .program import Program, Segment
from .program_conversion import is_program
from .program_record import ProgramRecord, program_function

__all__ = ["build_cuda_program", "build_program", "emit_c", "emit_cuda"]


def build_program(module: ModuleOp, function: str | None = None) -> Program:
    """
    The function called `function`, or the only one (or `main`), as a program in C. The module may hold fused kernels
    or what convert-fused-to-loops made of them; it is not changed. Raises LoweringError, EvaluationError, CPrintError.
    """
    record = _record(module, function)
    return Program(
        record.function.sym_name.data,
        _c_text(record),
        tuple(record.buffers),
        tuple(record.steps),
        record.results(),
        record.arena_bytes,
        record.arena_alignment,
        record.stats(),
    )


def emit_c(module: ModuleOp, function: str | None = None) -> str:
    """The C text of a program; raises as `build_program` does."""
    return _c_text(_record(module, function))


def _record(module: ModuleOp, function: str | None) -> ProgramRecord:
    if any(isinstance(op, FuncOp) and not op.is_declaration and is_program(op) for op in module.body.block.ops):
        module = module.clone()
        ConvertFusedToLoopsPass().apply(Context(), module)
    return ProgramRecord(module, program_function(module, function))


def _c_text(record: ProgramRecord) -> str:
    kernels = [print_function(kernel, C) for kernel in record.kernels.values()]
    if not kernels:
        return ""
    segments = [step for step in record.steps if isinstance(step, Segment)]
    return print_translation_unit(kernels, C, segments_text(segments))
