"""What every target does alike: lower a copy of a module, and put a program's record and text together."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.prepared import Prepared, prepared_of
from fuse_opt.lowering.convert.functions import is_program
from fuse_opt.lowering.emit.program_builder import ProgramBuilder, program_function
from fuse_opt.lowering.program import Preparation, Program, Unit


def lowered_record(module: ModuleOp, function: str | None, conversion: ModulePass) -> ProgramBuilder:
    """
    The record of a function (the only one, or `main`). A tensor-level module is lowered by `conversion`, on a copy: the
    caller's is not changed. Raises LoweringError and EvaluationError.
    """
    if any(isinstance(op, FuncOp) and not op.is_declaration and is_program(op) for op in module.body.block.ops):
        module = module.clone()
        conversion.apply(Context(), module)
    return ProgramBuilder(module, program_function(module, function))


def prepared_record(record: ProgramBuilder) -> tuple[ProgramBuilder, Prepared] | None:
    """The record of the function that computes arguments of another, and which they are; None where there is none."""
    prepared = prepared_of(record.function)
    if prepared is None:
        return None
    return ProgramBuilder(record.module, prepared.function, segment_names="fuse_prepare"), prepared


def program_of(
    record: ProgramBuilder, text: str, units: tuple[Unit, ...] = (), prepare: Preparation | None = None
) -> Program:
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
        prepare,
    )
