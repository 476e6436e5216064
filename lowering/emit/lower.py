"""What every target does alike: lower a copy of a module, and put a program's record and text together."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from fuse_opt.lowering.convert.functions import is_program
from fuse_opt.lowering.emit.program_builder import ProgramBuilder, program_function
from fuse_opt.lowering.program import Program, Unit


def lowered_record(module: ModuleOp, function: str | None, conversion: ModulePass) -> ProgramBuilder:
    """
    The record of a function (the only one, or `main`). A tensor-level module is lowered by `conversion`, on a copy: the
    caller's is not changed. Raises LoweringError and EvaluationError.
    """
    if any(isinstance(op, FuncOp) and not op.is_declaration and is_program(op) for op in module.body.block.ops):
        module = module.clone()
        conversion.apply(Context(), module)
    return ProgramBuilder(module, program_function(module, function))


def program_of(record: ProgramBuilder, text: str, units: tuple[Unit, ...] = ()) -> Program:
    """All that a runtime reads."""
    return Program(
        record.function.sym_name.data,
        text,
        tuple(record.buffers),
        tuple(record.steps),
        record.results(),
        record.arena_bytes,
        record.arena_alignment,
        record.stats(),
        units,
    )
