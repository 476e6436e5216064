"""From a module to the CUDA text of its program: the kernels, and the launches as a comment that a person can follow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.analysis.place_orders import PlaceOrders
from fuse_opt.dialects.gpu import FuncOp
from fuse_opt.dialects.implementation.offers import find_offer
from fuse_opt.dialects.types.size import Extent, Size, SizeRefusal
from fuse_opt.lowering.c.language import CUDA
from fuse_opt.lowering.c.names import comment_lines, global_identifier
from fuse_opt.lowering.c.printer import print_function, print_translation_unit
from fuse_opt.lowering.convert.convert_fused_to_gpu import ConvertFusedToGpuPass
from fuse_opt.lowering.emit.c_program import NO_SIZES
from fuse_opt.lowering.emit.lower import lowered_record, prepared_record, program_of
from fuse_opt.lowering.emit.program_builder import ProgramBuilder
from fuse_opt.lowering.emit.sized_program import SizedProgram
from fuse_opt.lowering.errors import LoweringError
from fuse_opt.lowering.program import (
    VECTOR_BYTES,
    Buffer,
    BufferRef,
    GridLaunch,
    Launch,
    LibraryCall,
    Preparation,
    Program,
    Result,
    Segment,
)


def build_cuda_program(module: ModuleOp, function: str | None = None) -> Program:
    """
    The function called `function`, or the only one (or `main`), as a program in CUDA C, whose launches are all
    `GridLaunch`es. The module may hold fused kernels or what convert-fused-to-gpu made of them; it is not changed.
    Raises LoweringError, EvaluationError, CPrintError.
    """
    record = lowered_record(module, function, ConvertFusedToGpuPass())
    found = prepared_record(record)
    prepare = None if found is None else Preparation(_program(found[0]), found[1].frozen, found[1].arguments)
    return _program(record, prepare)


def build_sized_cuda_program(
    module: ModuleOp, function: str | None = None, is_callers: Callable[[LibraryCall], bool] | None = None
) -> SizedProgram:
    """
    The same of a function some of whose extents are sizes, while these are asked for: one text for all of them, whose kernels
    take sizes as arguments, and grids that follow from them. Who binds the program makes calls that are the caller's
    (`is_callers`). Raises SizeRefusal for what needs numbers.
    """
    record = lowered_record(module, function, ConvertFusedToGpuPass())
    for step in record.steps:
        if isinstance(step, LibraryCall) and not _is_on_device(step) and not (is_callers and is_callers(step)):
            raise SizeRefusal(
                f"'{step.operation}': of sizes it runs on the host, which programs for numbers may not need"
            )
    found = prepared_record(record)
    if found is not None and any(isinstance(extent, Size) for each in found[0].buffers for extent in each.shape):
        raise SizeRefusal("arguments that are prepared have extents that are numbers")
    prepare = None if found is None else Preparation(_program(found[0]), found[1].frozen, found[1].arguments)
    limits = [(size, most) for size, most in record.limits.items() if isinstance(size, Size) and isinstance(most, int)]
    return SizedProgram(_program(record, prepare), NO_SIZES, tuple(limits), PlaceOrders.of(record.function))


def _program(record: ProgramBuilder, prepare: Preparation | None = None) -> Program:
    program = program_of(record, _cuda_text(record), prepare=prepare)
    on_host = sum(isinstance(step, LibraryCall) and not _is_on_device(step) for step in program.steps)
    stats = replace(program.stats, host_ops=on_host)
    return replace(program, steps=tuple(map(_in_cuda, program.steps)), stats=stats)


def _is_on_device(call: LibraryCall) -> bool:
    offer = find_offer(call.operation, call.implementation)
    return offer is not None and offer.platform == "cuda"


def _in_cuda(step: Segment | LibraryCall) -> Segment | LibraryCall:
    """The step with kernels called as the text calls them."""
    if isinstance(step, LibraryCall):
        return step
    return replace(step, launches=tuple(map(_named, step.launches)))


def _named(launch: Launch) -> Launch:
    other = launch.unaligned if isinstance(launch, GridLaunch) else None
    if isinstance(launch, GridLaunch) and other is not None:
        launch = replace(launch, unaligned=replace(other, kernel=global_identifier(other.kernel)))
    return replace(launch, kernel=global_identifier(launch.kernel))


def emit_cuda(module: ModuleOp, function: str | None = None) -> str:
    """The CUDA text of a program, and of what prepares its arguments; raises as `build_cuda_program` does."""
    record = lowered_record(module, function, ConvertFusedToGpuPass())
    found = prepared_record(record)
    return _cuda_text(record) if found is None else f"{_cuda_text(record)}\n{_cuda_text(found[0])}"


def _cuda_text(record: ProgramBuilder) -> str:
    for kernel in record.kernels.values():
        if not isinstance(kernel, FuncOp):
            raise LoweringError(
                f"'{kernel.sym_name.data}' is loops of the CPU, which are no kernel of a GPU; "
                "print them as C, or run convert-fused-to-gpu on a program of tensors",
                kernel,
            )
    kernels = [print_function(kernel, CUDA) for kernel in (*record.kernels.values(), *record.unaligned.values())]
    text = print_translation_unit(kernels, CUDA)
    return "\n".join([text.rstrip("\n"), "", *_comment(_program_lines(record))]) + "\n"


def _comment(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        yield from comment_lines(line)


def _program_lines(record: ProgramBuilder) -> Iterable[str]:
    """The program as sentences: its buffers, its steps in order, where its results are."""
    yield f"Program {record.function.sym_name.data}"
    for buffer in record.buffers:
        given = ", its memory is given up" if buffer.donated else ""
        aligned = f", at a multiple of {record.arena_alignment} bytes" if buffer.kind == "arena" else ""
        yield f"{buffer.kind} {buffer.name}: {_type(buffer.dtype, buffer.shape)}{given}{aligned}"
    number = 0
    for step in record.steps:
        if isinstance(step, Segment):
            yield f"segment {number}:"
            for launch in step.launches:
                yield from _launch(launch, record.buffers)
            number += 1
        else:
            yield _library_call(step, record.buffers)
    for position, result in enumerate(record.results()):
        yield _result(position, result, record.buffers)


def _launch(launch: Launch, buffers: list[Buffer]) -> Iterable[str]:
    assert isinstance(launch, GridLaunch)
    yield f"  {_call(launch, buffers)}"
    if (other := launch.unaligned) is not None:
        wanted = ", ".join(dict.fromkeys(_ref(launch.buffers[number], buffers) for number in launch.aligned))
        yield f"  or, unless these begin at multiples of {VECTOR_BYTES} bytes: {wanted}"
        yield f"  {_call(other, buffers)}"


def _call(launch: GridLaunch, buffers: list[Buffer]) -> str:
    grid, block = (", ".join(map(_extent, sizes)) for sizes in (launch.grid, launch.block))
    arguments = ", ".join([*(_ref(ref, buffers) for ref in launch.buffers), *map(_extent, launch.sizes)])
    shared = f", {launch.shared} bytes" if launch.shared else ""
    return f"{global_identifier(launch.kernel)}<<<({grid}), ({block}){shared}>>>({arguments})"


def _library_call(call: LibraryCall, buffers: list[Buffer]) -> str:
    inputs, outputs = (", ".join(_ref(ref, buffers) for ref in refs) for refs in (call.inputs, call.outputs))
    config = "".join(f", {name} = {value}" for name, value in call.config.items())
    within = "" if call.workspace is None else f" within {_ref(call.workspace, buffers)}"
    return f"library {call.implementation}({inputs}) to ({outputs}){within}: {call.operation}{config}"


def _ref(ref: BufferRef, buffers: list[Buffer]) -> str:
    return f"{buffers[ref.buffer].name}{f' + {_extent(ref.offset)}' if ref.offset != 0 else ''}"


def _result(position: int, result: Result, buffers: list[Buffer]) -> str:
    where = f"{'a copy of ' if result.copied else ''}{buffers[result.index].name}"
    return f"result {position}: {_type(result.dtype, result.shape)} is {where}"


def _type(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} [{', '.join(map(_extent, shape))}]"


def _extent(extent: Extent) -> str:
    """A number, or a size without what is known of its symbols."""
    return re.sub(r"\{[^}]*\}", "", str(extent))
