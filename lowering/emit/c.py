"""From a module to a `Program` and its text: tensor-level modules are lowered on a copy.

The text comes in units that compile on their own, too, where compiling them side by side is worth their overhead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.analysis.place_orders import PlaceOrders
from fuse_opt.dialects.implementation.offers import find_offer
from fuse_opt.dialects.interfaces.symbols import NOTHING_STATED, Stated
from fuse_opt.dialects.types.size import Size, SizeRefusal
from fuse_opt.lowering.c.headers.functions import generated_tiles
from fuse_opt.lowering.c.language import C
from fuse_opt.lowering.c.printer import FunctionText, print_function, print_translation_unit
from fuse_opt.lowering.convert.convert_fused_to_loops import ConvertFusedToLoopsPass
from fuse_opt.lowering.emit.c_program import segments_text
from fuse_opt.lowering.emit.lower import lowered_record, prepared_record, program_of
from fuse_opt.lowering.emit.program_builder import ProgramBuilder
from fuse_opt.lowering.emit.sized_program import SizedProgram
from fuse_opt.lowering.emit.sizes_text import sizes_layout, sizes_text
from fuse_opt.lowering.program import Buffer, LibraryCall, Preparation, Program, Segment, Unit

_CALL = 1000
"""What the inlined text of a scalar function costs a compiler, in characters of plain arithmetic: measured with gcc 12."""
_WORTH_A_UNIT = 80_000
"""In such characters: about 0.3 s of compilation, beside which starting a compiler and linking are little."""
_MOST_UNITS = 32
_HIDDEN = '__attribute__((visibility("hidden"))) '


def build_program(module: ModuleOp, function: str | None = None) -> Program:
    """
    The function called `function`, or the only one (or `main`), as a program in C. The module may hold fused kernels
    or what convert-fused-to-loops made of them; it is not changed. Raises LoweringError, EvaluationError, CPrintError.
    """
    record = lowered_record(module, function, ConvertFusedToLoopsPass())
    found = prepared_record(record)
    prepare = None if found is None else Preparation(_program(found[0]), found[1].frozen, found[1].arguments)
    return _program(record, prepare)


def build_sized_program(module: ModuleOp, function: str | None = None, stated: Stated = NOTHING_STATED) -> SizedProgram:
    """
    The same of a function some of whose extents are sizes, while these are asked for: one text for all of them, which checks what
    is stated of symbols. Raises SizeRefusal for what needs numbers.
    """
    record = lowered_record(module, function, ConvertFusedToLoopsPass())
    calls = (step for step in record.steps if not isinstance(step, Segment))
    if (call := next((call for call in calls if not _takes_sizes(call)), None)) is not None:
        about = next((op for op in module.walk() if op.name == call.operation), None)
        raise SizeRefusal(f"'{call.operation}': '{call.implementation}' takes extents that are numbers").about(about)
    found = prepared_record(record)
    if found is not None and (found[0].size_table.sizes or any(_has_sizes(each) for each in found[0].buffers)):
        raise SizeRefusal("arguments that are prepared have extents that are numbers")
    prepare = None if found is None else Preparation(_program(found[0]), found[1].frozen, found[1].arguments)
    limits = [(size, most) for size, most in record.limits.items() if isinstance(size, Size) and isinstance(most, int)]
    table, orders = record.size_table, PlaceOrders.of(record.function)
    layout, numbers = sizes_layout(record.buffers, record.steps, table, record.arena_bytes, orders, limits, stated)
    text = sizes_text(layout, numbers, orders, limits, stated)
    program = _program(record, prepare, more=text or "")
    if text is not None:
        program = replace(program, sizes=layout)
    return SizedProgram(program, table, tuple(limits), orders)


def _has_sizes(buffer: Buffer) -> bool:
    return any(isinstance(extent, Size) for extent in buffer.shape)


def _takes_sizes(call: LibraryCall) -> bool:
    """Whether what runs a call is told the extents of each."""
    offer = find_offer(call.operation, call.implementation)
    return offer is not None and offer.sized


def _program(record: ProgramBuilder, prepare: Preparation | None = None, more: str = "") -> Program:
    kernels, launcher = _parts([record])
    launcher += more
    program = program_of(record, _whole(kernels, launcher), _units(kernels, launcher), prepare)
    tiles = generated_tiles({name for kernel in kernels for name in kernel.helpers})
    return replace(program, stats=replace(program.stats, generated_tiles=len(tiles)))


def emit_c(module: ModuleOp, function: str | None = None) -> str:
    """The C text of a program, and of what prepares its arguments; raises as `build_program` does."""
    record = lowered_record(module, function, ConvertFusedToLoopsPass())
    found = prepared_record(record)
    return _whole(*_parts([record] if found is None else [record, found[0]]))


def _parts(records: Sequence[ProgramBuilder]) -> tuple[list[FunctionText], str]:
    """The kernels, and the text that launches them."""
    kernels = {name: kernel for record in records for name, kernel in record.kernels.items()}
    segments = [step for record in records for step in record.steps if isinstance(step, Segment)]
    table = records[0].size_table
    return [print_function(kernel, C) for kernel in kernels.values()], segments_text(segments, table)


def _whole(kernels: list[FunctionText], launcher: str) -> str:
    return print_translation_unit(kernels, C, launcher) if kernels or launcher else ""


def _units(kernels: Sequence[FunctionText], launcher: str) -> tuple[Unit, ...]:
    """
    The kernels in units of like cost, each with its neighbours, and a last one that launches them; () where the whole
    compiles as fast in one. The division depends on the text alone, so that a cache knows it on every machine.
    """
    costs = [len(kernel.text) + _CALL * kernel.text.count("fo_") for kernel in kernels]
    count = min(sum(costs) // _WORTH_A_UNIT, len(kernels), _MOST_UNITS)
    if count < 2 or any(kernel.calls for kernel in kernels):
        return ()
    groups: list[list[FunctionText]] = [[] for _ in range(count)]
    before, share = 0, sum(costs) / count
    for kernel, cost in zip(kernels, costs, strict=True):
        groups[min(int((before + cost / 2) / share), count - 1)].append(kernel)
        before += cost
    units = [Unit(print_translation_unit([_shared(kernel) for kernel in group], C)) for group in groups if group]
    prototypes = "".join(f"{_shared(kernel).prototype}\n" for kernel in kernels)
    return (*units, Unit(print_translation_unit([], C, f"{prototypes}\n{launcher}")))


def _shared(kernel: FunctionText) -> FunctionText:
    """The function as other units of the object may call it, and nobody else."""
    head = kernel.prototype.removesuffix(";")
    seen = _HIDDEN + head.removeprefix("static ")
    return replace(kernel, text=kernel.text.replace(head, seen, 1), prototype=f"{seen};")
