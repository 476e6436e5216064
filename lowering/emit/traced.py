"""Programs whose kernels can be found in their steps: for those who check or time kernels one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.analysis.prepared import Prepared, prepared_of
from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.gpu import BulkOp, LibraryCallOp
from fuse_opt.dialects.interfaces.symbols import Stated, change_sizes
from fuse_opt.dialects.types.extents import evaluate
from fuse_opt.lowering.convert.convert_fused_to_loops import ConvertFusedToLoopsPass
from fuse_opt.lowering.convert.functions import ConvertedKernel
from fuse_opt.lowering.emit.c import build_program, build_sized_program
from fuse_opt.lowering.emit.program_builder import ProgramBuilder, program_function
from fuse_opt.lowering.program import BufferRef, LibraryCall, Program, Segment


@dataclass(frozen=True)
class TracedKernel:
    """A kernel of a program: what it computes, which steps that takes, and where its operands and results lie."""

    name: str
    """No other kernel of the program has it."""
    kernel: OutlinedOp
    """It stands by itself, apart from any function."""
    steps: range
    operands: tuple[BufferRef, ...]
    results: tuple[BufferRef, ...]


@dataclass(frozen=True)
class TracedProgram:
    """A program with one kernel a bulk."""

    program: Program
    kernels: tuple[TracedKernel, ...]
    prepare: TracedProgram | None = None
    """The program that computes its further arguments."""


def trace_program(module: ModuleOp, function: str | None = None, target: str = "cpu") -> TracedProgram:
    """
    The program of a function of a tensor-level module for "cpu" or "cuda", as `build_program` and `build_cuda_program` make
    it, but for the launches, which are not grouped. The module is not changed. Raises what these raise.
    """
    lowered = module.clone()
    if target == "cpu":
        kernels = ConvertFusedToLoopsPass().traced(lowered)
        return _found(lowered, function, build_program(lowered, function), kernels)
    from fuse_opt.lowering.convert.convert_fused_to_gpu import ConvertFusedToGpuPass
    from fuse_opt.lowering.emit.cuda import build_cuda_program

    kernels = ConvertFusedToGpuPass().traced(lowered)
    return _found(lowered, function, build_cuda_program(lowered, function), kernels)


def trace_sized(module: ModuleOp, function: str | None, stated: Stated, values: Mapping[str, int]) -> TracedProgram:
    """
    The same of a program for all sizes, as it is where symbols have these values, which kernels have in their types, too; while
    sizes are asked for. Raises as `build_sized_program` and its program do.
    """
    lowered = module.clone()
    kernels = ConvertFusedToLoopsPass().traced(lowered)
    sized = build_sized_program(lowered, function, stated)
    found = _found(lowered, function, sized.at(values), kernels)
    for each in found.kernels:
        change_sizes(each.kernel, lambda extent: evaluate(extent, values))
    return found


def _found(
    lowered: ModuleOp, function: str | None, program: Program, kernels: Sequence[ConvertedKernel]
) -> TracedProgram:
    entry = program_function(lowered, function)
    found = TracedProgram(program, tuple(_traced(ProgramBuilder(lowered, entry), program, kernels)))
    prepared: Prepared | None = prepared_of(entry)
    if prepared is None or program.prepare is None:
        return found
    second = program.prepare.program
    record = ProgramBuilder(lowered, prepared.function)
    return replace(found, prepare=TracedProgram(second, tuple(_traced(record, second, kernels))))


def _traced(record: ProgramBuilder, program: Program, kernels: Sequence[ConvertedKernel]) -> Iterator[TracedKernel]:
    block, next_step = record.function.body.block, 0
    used: dict[str, int] = {}
    for each in kernels:
        if each.bulk.parent is not block:
            continue
        count = _steps(each.bulk)
        steps = range(next_step, next_step + count)
        next_step += count
        name = _name(each.name, [program.steps[number] for number in steps])
        used[name] = used.get(name, 0) + 1
        operands, results = (tuple(map(record.reference, values)) for values in (each.operands, each.results))
        unique = name if used[name] == 1 else f"{name}_run{used[name]}"
        yield TracedKernel(unique, each.kernel, steps, operands, results)
    assert next_step == len(program.steps)


def _steps(bulk: BulkOp) -> int:
    """How many steps of a program a bulk becomes: each call, and each row of launches between calls."""
    count, in_row = 0, False
    for op in bulk.body.block.ops:
        if isinstance(op, LibraryCallOp):
            count, in_row = count + 1, False
        elif op.name in (func.CallOp.name, "gpu.launch_func"):
            count, in_row = count + (not in_row), True
    return count


def _name(ops: str, steps: Sequence[Segment | LibraryCall]) -> str:
    """That of the first function launched, by which the text has it; of calls alone one made of the ops."""
    return next((step.launches[0].kernel for step in steps if isinstance(step, Segment)), ops)
