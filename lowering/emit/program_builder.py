"""The Program record of a function on buffers: reads launches and addresses back from the IR."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import cast

import numpy as np
from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnrealizedConversionCastOp,
)
from xdsl.ir import Operation, SSAValue
from xdsl.utils.hints import isa

from fuse_opt.dialects import gpu
from fuse_opt.dialects.analysis.place_orders import PlaceOrders
from fuse_opt.dialects.analysis.prepared import called_functions, prepared_arguments
from fuse_opt.dialects.analysis.storage import ARENA, DONATED, argument_attributes
from fuse_opt.dialects.analysis.stored_values import columns_of
from fuse_opt.dialects.gpu import ArenaOp, BulkOp, LaunchFuncOp, LibraryCallOp, SizeOp
from fuse_opt.dialects.gpu.kernels import ALIGNED, DYNAMIC_SHARED, UNALIGNED, UNALIGNED_SIZES
from fuse_opt.dialects.interfaces.properties import plain_value
from fuse_opt.dialects.types.extents import smallest
from fuse_opt.dialects.types.size import Extent, Size, SizeRefusal
from fuse_opt.dialects.types.symbolic_shape import SizeAttr
from fuse_opt.lowering.convert.library_epilogues import EPILOGUE
from fuse_opt.lowering.convert.memory import AXES, RESULTS, SIZES
from fuse_opt.lowering.emit.access_ranges import task_slices
from fuse_opt.lowering.emit.attributes import (
    axes_of,
    constant_index,
    described,
    described_type,
    dictionaries,
    integer_of,
    text_of,
    work_of,
)
from fuse_opt.lowering.emit.barriers import is_sized, one_by_one, plan_phases
from fuse_opt.lowering.emit.c_program import NO_SIZES, SizeTable
from fuse_opt.lowering.emit.kernel_traffic import Kernel, KernelTraffic
from fuse_opt.lowering.emit.library_routines import routine_of
from fuse_opt.lowering.errors import EvaluationError, LoweringError
from fuse_opt.lowering.hints import LIMITS, WRITTEN
from fuse_opt.lowering.program import (
    INSIDE,
    NUMPY_NAMES,
    Buffer,
    BufferRef,
    GridLaunch,
    Launch,
    LibraryCall,
    ProgramStats,
    Result,
    Segment,
)
from fuse_opt.lowering.reference.interpreter import dense_array


@dataclass
class ProgramBuilder:
    """What a Program holds but for its text; `kernels` are the functions that it launches, in order of first use."""

    module: ModuleOp
    function: func.FuncOp
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    steps: list[Segment | LibraryCall] = field(default_factory=list[Segment | LibraryCall])
    kernels: dict[str, Kernel] = field(default_factory=dict[str, Kernel])
    unaligned: dict[str, gpu.FuncOp] = field(default_factory=dict[str, gpu.FuncOp])
    """Those that take the place of others, by where buffers begin."""
    bulks: int = 0
    arena_alignment: int = 1
    limits: dict[Extent, Extent] = field(default_factory=dict[Extent, Extent])
    """Sizes with the largest numbers that kernels have room for."""
    segment_names: str = "fuse_segment"
    """What names of segments begin with: no two programs of a text may share it."""

    def __post_init__(self) -> None:
        self._symbols = {
            name.data: op
            for op in self.module.body.block.ops
            if isinstance(name := op.properties.get("sym_name"), StringAttr)
        }
        self._refs: dict[SSAValue, BufferRef] = {}
        self._patterns: dict[int, int] = {}
        """By buffer, of columns of csr arguments: what they are below."""
        self._globals: dict[str, int] = {}
        self._traffic = KernelTraffic(self.kernels)
        self._slices: dict[str, tuple[int | None, ...]] = {}
        self._results = [entry.data for entry in dictionaries(self.function.attributes.get(RESULTS))]
        with _refusing(self.function):
            self._read_arguments()
            for entry in self._results:
                if isinstance(symbol := entry.get("symbol"), StringAttr):
                    self._constant(symbol.data)
        self._launches: list[Launch] = []
        self._bulk = self._segments = 0
        self._with_calls: set[int] = set()
        """Bulks that hold a call: nobody asked for these to be apart."""
        self._followed: LibraryCall | None = None
        """The call just before, when what follows it may run by parts."""
        for op in self.function.body.block.ops:
            with _refusing(op):
                self._read(op)
        with _refusing(self.function):
            self._end_segment()
            self.results()

    def _read_arguments(self) -> None:
        entries = dictionaries(self.function.attributes.get(RESULTS))
        own = sum(text_of(entry.data["kind"]) == "buffer" for entry in entries)
        arguments = self.function.body.block.args
        for number, argument in enumerate(arguments):
            kind = "argument" if number < len(arguments) - own else "result"
            marks = argument_attributes(self.function, number)
            donated, axes = DONATED in marks, axes_of(marks.get(AXES))
            shape, dtype = described_type(argument.type, marks.get(SIZES))
            name = argument.name_hint or f"{kind}_{number}"
            self._refs[argument] = BufferRef(len(self.buffers), 0, shape, dtype)
            if not donated and (columns := columns_of(marks)) is not None:  # in donated memory others may write columns
                self._patterns[len(self.buffers)] = columns
            self.buffers.append(Buffer(kind, name, shape=shape, dtype=dtype, donated=donated, axes=axes))

    def _read(self, op: Operation) -> None:
        match op:
            case ArenaOp():
                self._refs[op.result] = BufferRef(len(self.buffers), 0, (op.size,), "i8")
                self.buffers.append(Buffer("arena", "arena", "i8", (op.size,)))
                self.arena_alignment = op.alignment.value.data
            case memref.GetGlobalOp():
                buffer = self._constant(op.name_.root_reference.data)
                self._refs[op.memref] = BufferRef(buffer, 0, *described(op.memref))
            case memref.ViewOp():
                base, shift = self._refs[op.source], constant_index(op.byte_shift)
                shape, dtype = described(op.result, op.sizes)
                self._refs[op.result] = BufferRef(base.buffer, base.offset + shift, shape, dtype)
            case memref.ReinterpretCastOp():
                base = self._refs[op.source]
                self._refs[op.result] = BufferRef(base.buffer, base.offset, *described(op.result, op.sizes))
            case UnrealizedConversionCastOp():
                base = self._refs[op.operands[0]]
                _, dtype = described_type(op.results[0].type)  # its extents are those of the operand, be they sizes
                self._refs[op.results[0]] = BufferRef(base.buffer, base.offset, base.shape, dtype)
            case BulkOp():
                self.bulks += 1
                for inner in op.body.block.ops:
                    self._read(inner)
                    if isinstance(inner, func.CallOp):
                        self._launch(self._call(inner), self.bulks)
                    elif isinstance(inner, LaunchFuncOp):
                        self._launch(self._grid_launch(inner), self.bulks)
            case LibraryCallOp():
                self._end_segment()
                self._with_calls.add(self.bulks)
                call = self._library_call(op)
                self.steps.append(call)
                self._followed = call if EPILOGUE in op.attributes else None
            case func.CallOp() | LaunchFuncOp() | func.ReturnOp() | arith.ConstantOp() | SizeOp():
                pass
            case _:
                raise LoweringError(f"'{op.name}' has no meaning in a program on buffers", op)

    def _constant(self, symbol: str) -> int:
        if symbol not in self._globals:
            op = self._symbols.get(symbol)
            assert isinstance(op, memref.GlobalOp), symbol
            assert isinstance(op.initial_value, DenseIntOrFPElementsAttr), symbol
            data = np.array(dense_array(op.initial_value), order="C")
            shape, dtype = described_type(op.type)
            self._globals[symbol] = len(self.buffers)
            self.buffers.append(Buffer("constant", symbol, dtype, shape, data=data))
        return self._globals[symbol]

    def _call(self, op: func.CallOp) -> Launch:
        name = op.callee.string_value()
        kernel = self._symbols.get(name)
        if not isinstance(kernel, func.FuncOp) or kernel.is_declaration:
            raise LoweringError(f"'func.call' of '{name}', which is no kernel of this module", op)
        self.kernels[name] = kernel
        self._read_limits(kernel)
        buffers = tuple(self._refs[argument] for argument in op.arguments if argument in self._refs)
        *given, _, _ = op.arguments
        sizes = tuple(constant_index(argument) for argument in given if argument not in self._refs)
        tasks = constant_index(op.arguments[-1])
        grain = integer_of(kernel.attributes.get("fused.grain"), 1)
        loads, stores = (tuple(sorted(found)) for found in self._traffic.of(name))
        work, chunk = work_of(kernel)
        return Launch(name, buffers, tasks, grain, loads=loads, stores=stores, sizes=sizes, work=work, chunk=chunk)

    def _read_limits(self, kernel: Kernel) -> None:
        said = kernel.attributes.get(LIMITS)
        if said is not None and isa(said, ArrayAttr[ArrayAttr[SizeAttr]]):
            for size, most in said:
                self.limits[size.data] = min(most.data, self.limits.get(size.data, most.data))

    def _grid_launch(self, op: LaunchFuncOp) -> GridLaunch:
        container = self._symbols.get(op.kernel.root_reference.data)
        name = op.kernel.string_value().rpartition(".")[2]
        inner = container.body.block.ops if isinstance(container, gpu.ModuleOp) else ()
        kernel = next((k for k in inner if isinstance(k, gpu.FuncOp) and k.sym_name.data == name), None)
        if kernel is None:
            raise LoweringError(f"'gpu.launch_func' of {op.kernel}, which is no kernel of this module", op)
        self.kernels[name] = kernel
        self._read_limits(kernel)
        grid = [constant_index(size) for size in (op.gridSizeX, op.gridSizeY, op.gridSizeZ)]
        block = [constant_index(size) for size in (op.blockSizeX, op.blockSizeY, op.blockSizeZ)]
        buffers = tuple(self._refs[each] for each in op.kernelOperands if each in self._refs)
        numbers = tuple(constant_index(each) for each in op.kernelOperands if each not in self._refs)
        shared = integer_of(kernel.attributes.get(DYNAMIC_SHARED), 0)
        shape = (grid[0], grid[1], grid[2]), (block[0], block[1], block[2])
        launch = GridLaunch(name, buffers, prod(grid), 1, *shape, shared, sizes=numbers)
        return self._with_unaligned(launch, op, {k.sym_name.data: k for k in inner if isinstance(k, gpu.FuncOp)})

    def _with_unaligned(self, launch: GridLaunch, op: LaunchFuncOp, kernels: Mapping[str, gpu.FuncOp]) -> GridLaunch:
        """The launch with what takes its place for buffers that do not begin where its kernel wants them."""
        symbol, aligned = op.attributes.get(UNALIGNED), op.attributes.get(ALIGNED)
        if not isinstance(symbol, SymbolRefAttr) or not isinstance(aligned, DenseArrayBase):
            return launch
        name = symbol.string_value().rpartition(".")[2]
        kernel = kernels.get(name)
        blocks, *numbers = _sizes_of_unaligned(op, kernel) or (None,)
        if (
            kernel is None
            or blocks is None
            or len(kernel.arguments) != len(launch.buffers) + len(numbers)
            or kernel.block_size is None
        ):
            raise LoweringError(
                f"'gpu.launch_func' attribute '{UNALIGNED}': expected a kernel of this module with "
                f"{len(launch.buffers)} arguments, known_grid_size and known_block_size, got {symbol}; remove both "
                "attributes",
                op,
            )
        self.unaligned[name] = kernel
        self._read_limits(kernel)
        shared, (x, y, z) = integer_of(kernel.attributes.get(DYNAMIC_SHARED), 0), kernel.block_size
        other = GridLaunch(name, launch.buffers, blocks, 1, (blocks, 1, 1), (x, y, z), shared, sizes=tuple(numbers))
        return replace(launch, aligned=tuple(aligned.get_values()), unaligned=other)

    def _launch(self, launch: Launch, bulk: int) -> None:
        """Launches of one bulk are one segment, as far as no library call comes between."""
        if bulk != self._bulk:
            self._end_segment()
        self._bulk = bulk
        self._launches.append(launch)
        if (call := self._followed) is not None and not isinstance(launch, GridLaunch):
            if prod(call.outputs[0].shape) % launch.tasks == 0:
                self.steps[-1] = replace(call, epilogue=launch)
            self._end_segment()
        self._followed = None

    def _end_segment(self) -> None:
        if self._launches:
            launches, generated = tuple(self._launches), not isinstance(self._launches[0], GridLaunch)
            sized = generated and any(map(is_sized, launches))
            phases = one_by_one(launches) if sized else plan_phases(launches, self._slices_of) if generated else ()
            region = None if self._bulk in self._with_calls else self._bulk
            self.steps.append(Segment(f"{self.segment_names}_{self._segments}", launches, phases, region))
            self._segments += 1
            self._launches.clear()

    def _slices_of(self, name: str) -> tuple[int | None, ...]:
        if name not in self._slices:
            kernel = self.kernels[name]
            assert isinstance(kernel, func.FuncOp), name
            self._slices[name] = task_slices(kernel)
        return self._slices[name]

    def _library_call(self, op: LibraryCallOp) -> LibraryCall:
        config = {name: plain_value(name, value) for name, value in op.config.data.items()}
        return LibraryCall(
            op.implementation.data,
            op.operation.data,
            tuple(self._refs[value] for value in op.ins),
            tuple(self._refs[value] for value in op.outs),
            config,
            routine_of(op, self._symbols),
            workspace=None if op.workspace is None else self._refs[op.workspace],
            touched=() if op.touched is None else tuple(map(int, op.touched.get_values())),
            columns=self._columns(op),
        )

    def _columns(self, op: LibraryCallOp) -> tuple[int, ...]:
        """`columns` of a call: of inputs that are whole buffers, one behind the other."""
        refs = [self._refs[value] for value in op.ins]
        found = [0] * len(refs)
        for number, (rows, ref) in enumerate(pairwise(refs), 1):
            if ref.buffer == rows.buffer + 1 and ref.offset == 0 and rows.offset == 0:
                found[number] = self._patterns.get(ref.buffer, 0)
        return tuple(found) if any(found) else ()

    def reference(self, value: SSAValue) -> BufferRef:
        """What a buffer of the function is in the program."""
        return self._refs[value]

    def results(self) -> tuple[Result, ...]:
        own = [number for number, buffer in enumerate(self.buffers) if buffer.kind == "result"]
        found: list[Result] = []
        for entry in self._results:
            kind, number = text_of(entry["kind"]), integer_of(entry.get("number"), 0)
            shape, dtype = described_type(entry["type"], entry.get(SIZES))
            if kind == "result":
                index, copied = found[number].index, True
            elif kind == "constant":
                index, copied = self._globals[text_of(entry["symbol"])], True
            else:
                index, copied = (own[number] if kind == "buffer" else number), kind == "argument"
            found.append(Result(shape, dtype, index, copied, axes_of(entry.get(AXES))))
        return tuple(found)

    @cached_property
    def size_table(self) -> SizeTable:
        """The sizes that the text names, in a buffer behind all others; the first use adds it."""
        launches = [launch for step in self.steps if isinstance(step, Segment) for launch in step.launches]
        numbers = [n for each in launches for n in (*(ref.offset for ref in each.buffers), *each.sizes, each.tasks)]
        found = tuple(dict.fromkeys(n for n in numbers if isinstance(n, Size)))
        if not found:
            return NO_SIZES
        self.buffers.append(Buffer("constant", "sizes", "i64", (len(found),)))
        return SizeTable(len(self.buffers) - 1, found)

    @property
    def arena_bytes(self) -> int:
        return sum(buffer.shape[0] for buffer in self.buffers if buffer.kind == "arena")

    def stats(self) -> ProgramStats:
        segments = [step for step in self.steps if isinstance(step, Segment)]
        launches = [launch for segment in segments for launch in segment.launches]
        calls = [step for step in self.steps if isinstance(step, LibraryCall)]
        read = written = 0
        for launch in launches:
            loaded, stored = self._traffic.of(launch.kernel)
            runs = smallest(launch.tasks, 1)  # a version of a kernel that a call does not need has no tasks
            read += sum(launch.buffers[k].nbytes for k in loaded) * cast(int, runs)
            said = self.kernels[launch.kernel].attributes.get(WRITTEN)
            if isinstance(said, SizeAttr):
                (target,) = stored
                itemsize = np.dtype(NUMPY_NAMES[launch.buffers[target].dtype]).itemsize
                written += cast(int, said.data) * itemsize * cast(int, runs)
                continue
            written += sum(launch.buffers[k].nbytes for k in stored) * cast(int, runs)
        for call in calls:
            read, written = (total + more for total, more in zip((read, written), call.moved, strict=True))
        plan = self.function.attributes.get(ARENA)
        bound = plan.data.get("lower_bound") if isinstance(plan, DictionaryAttr) else None
        orders = PlaceOrders.of(self.function)
        return ProgramStats(
            len(self.kernels), len(launches), len(calls), self.bulks, self.arena_bytes,
            bound.value.data if isinstance(bound, IntegerAttr) else None if orders is None else orders.bound, read, written,
            sum(BufferRef(0, 0, *described(argument)).nbytes for argument in self._prepared()),
            max((call.workspace.nbytes for call in calls if call.workspace is not None), default=0),
            sum(ref.nbytes for call in calls for ref in _inside(call)),
        )  # fmt: skip

    def _prepared(self) -> list[SSAValue]:
        """The arguments that another function computes."""
        return [self.function.body.block.args[number] for number in prepared_arguments(self.function)]


def _sizes_of_unaligned(op: LaunchFuncOp, kernel: gpu.FuncOp | None) -> Sequence[int] | None:
    """The blocks of what takes the place of a launch, and its arguments behind the buffers; None where nothing says them."""
    said = op.attributes.get(UNALIGNED_SIZES)
    if isa(said, ArrayAttr[SizeAttr]):
        return [cast(int, each.data) for each in said]
    return None if kernel is None or kernel.grid_size is None else [prod(kernel.grid_size)]


@contextmanager
def _refusing(op: Operation) -> Generator[None]:
    """
    Around what is read of an op: passes write it as it is expected here, people who edit a lowered program may not. Raises
    LoweringError.
    """
    try:
        yield
    except SizeRefusal:
        raise
    except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        what = f"'{op.name}' is not as programs on buffers have it ({type(error).__name__}: {error})"
        raise LoweringError(f"{what}; convert the program again", op) from error


def _inside(call: LibraryCall) -> Sequence[BufferRef]:
    """The outputs that are values inside of a partition."""
    count = call.config.get(INSIDE, 0)
    assert isinstance(count, int)
    return call.outputs[len(call.outputs) - count :]


def program_function(module: ModuleOp, name: str | None = None) -> func.FuncOp:
    """The function on buffers called `name`, or the only one (or `main`). Raises EvaluationError."""
    found = [op for op in called_functions(module) if RESULTS in op.attributes]
    if name is not None or len(found) > 1:
        wanted = [op for op in found if op.sym_name.data == (name or "main")]
    else:
        wanted = found
    if len(wanted) == 1:
        return wanted[0]
    names = ", ".join(op.sym_name.data for op in found) or "none"
    expected = f"a function '{name}'" if name else "one function, or one named main"
    raise EvaluationError(f"expected {expected}; the module has: {names}")
