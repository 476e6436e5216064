"""The Program record of a function on buffers: reads launches and addresses back from the IR."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from math import prod
from typing import cast

import numpy as np
from xdsl.dialects import arith, func, memref, vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnrealizedConversionCastOp,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.hints import isa

from fuse_opt.dialects import gpu
from fuse_opt.dialects.analysis.place_orders import PlaceOrders
from fuse_opt.dialects.analysis.prepared import called_functions, prepared_arguments
from fuse_opt.dialects.analysis.storage import ARENA, DONATED, argument_attributes
from fuse_opt.dialects.analysis.stored_values import columns_of
from fuse_opt.dialects.fused import PARTITION
from fuse_opt.dialects.gpu import ArenaOp, BulkOp, LaunchFuncOp, LibraryCallOp, SizeOp
from fuse_opt.dialects.gpu.kernels import ALIGNED, DYNAMIC_SHARED, UNALIGNED
from fuse_opt.dialects.implementation.subgraph import Subgraph
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import plain_value
from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.dialects.types.extents import smallest
from fuse_opt.dialects.types.size import Extent, Size, SizeRefusal
from fuse_opt.dialects.types.symbolic_shape import ShapeAttr, SizeAttr
from fuse_opt.lowering.c.printer import is_helper_target
from fuse_opt.lowering.convert.library_epilogues import EPILOGUE
from fuse_opt.lowering.convert.memory import AXES, RESULTS, SIZES
from fuse_opt.lowering.emit.access_ranges import task_slices
from fuse_opt.lowering.emit.barriers import is_sized, one_by_one, plan_phases
from fuse_opt.lowering.emit.c_program import NO_SIZES, SizeTable
from fuse_opt.lowering.errors import EvaluationError, LoweringError
from fuse_opt.lowering.hints import LIMITS, WRITTEN
from fuse_opt.lowering.program import (
    CHAIN,
    INSIDE,
    NUMPY_NAMES,
    ORDERS,
    REFERENCE,
    Buffer,
    BufferRef,
    ConfigValue,
    GridLaunch,
    Launch,
    LibraryCall,
    ProgramStats,
    Result,
    Run,
    Segment,
)
from fuse_opt.lowering.program.float_formats import Array
from fuse_opt.lowering.reference.interpreter import dense_array, evaluate_function, logical_array, memory_array
from fuse_opt.lowering.reference.kernels import find_implementation
from fuse_opt.lowering.reference.kernels.partitions import find_partition_build

Kernel = func.FuncOp | gpu.FuncOp


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
        self._traffic: dict[str, tuple[frozenset[int], frozenset[int]]] = {}
        self._slices: dict[str, tuple[int | None, ...]] = {}
        self._results = [entry.data for entry in _dictionaries(self.function.attributes.get(RESULTS))]
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
        entries = _dictionaries(self.function.attributes.get(RESULTS))
        own = sum(_text(entry.data["kind"]) == "buffer" for entry in entries)
        arguments = self.function.body.block.args
        for number, argument in enumerate(arguments):
            kind = "argument" if number < len(arguments) - own else "result"
            marks = argument_attributes(self.function, number)
            donated, axes = DONATED in marks, _axes(marks.get(AXES))
            shape, dtype = _described_type(argument.type, marks.get(SIZES))
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
                self._refs[op.memref] = BufferRef(buffer, 0, *_described(op.memref))
            case memref.ViewOp():
                base, shift = self._refs[op.source], _constant_index(op.byte_shift)
                shape, dtype = _described(op.result, op.sizes)
                self._refs[op.result] = BufferRef(base.buffer, base.offset + shift, shape, dtype)
            case memref.ReinterpretCastOp():
                base = self._refs[op.source]
                self._refs[op.result] = BufferRef(base.buffer, base.offset, *_described(op.result, op.sizes))
            case UnrealizedConversionCastOp():
                base = self._refs[op.operands[0]]
                _, dtype = _described_type(op.results[0].type)  # its extents are those of the operand, be they sizes
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
            shape, dtype = _described_type(op.type)
            self._globals[symbol] = len(self.buffers)
            self.buffers.append(Buffer("constant", symbol, dtype, shape, data=data))
        return self._globals[symbol]

    def _call(self, op: func.CallOp) -> Launch:
        name = op.callee.string_value()
        kernel = self._symbols.get(name)
        if not isinstance(kernel, func.FuncOp) or kernel.is_declaration:
            raise LoweringError(f"'func.call' of '{name}', which is no kernel of this module", op)
        self.kernels[name] = kernel
        if isa(said := kernel.attributes.get(LIMITS), ArrayAttr[ArrayAttr[SizeAttr]]):
            for size, most in said:
                self.limits[size.data] = min(most.data, self.limits.get(size.data, most.data))
        buffers = tuple(self._refs[argument] for argument in op.arguments if argument in self._refs)
        *given, _, _ = op.arguments
        sizes = tuple(_constant_index(argument) for argument in given if argument not in self._refs)
        tasks = _constant_index(op.arguments[-1])
        grain = _integer(kernel.attributes.get("fused.grain"), 1)
        loads, stores = (tuple(sorted(found)) for found in self._kernel_traffic(name))
        return Launch(name, buffers, tasks, grain, loads=loads, stores=stores, sizes=sizes)

    def _grid_launch(self, op: LaunchFuncOp) -> GridLaunch:
        container = self._symbols.get(op.kernel.root_reference.data)
        name = op.kernel.string_value().rpartition(".")[2]
        inner = container.body.block.ops if isinstance(container, gpu.ModuleOp) else ()
        kernel = next((k for k in inner if isinstance(k, gpu.FuncOp) and k.sym_name.data == name), None)
        if kernel is None:
            raise LoweringError(f"'gpu.launch_func' of {op.kernel}, which is no kernel of this module", op)
        self.kernels[name] = kernel
        grid = [_constant_index(size) for size in (op.gridSizeX, op.gridSizeY, op.gridSizeZ)]
        block = [_constant_index(size) for size in (op.blockSizeX, op.blockSizeY, op.blockSizeZ)]
        buffers = tuple(self._refs[argument] for argument in op.kernelOperands)
        shared = _integer(kernel.attributes.get(DYNAMIC_SHARED), 0)
        sizes = (grid[0], grid[1], grid[2]), (block[0], block[1], block[2])
        launch = GridLaunch(name, buffers, prod(grid), 1, *sizes, shared)
        return self._with_unaligned(launch, op, {k.sym_name.data: k for k in inner if isinstance(k, gpu.FuncOp)})

    def _with_unaligned(self, launch: GridLaunch, op: LaunchFuncOp, kernels: Mapping[str, gpu.FuncOp]) -> GridLaunch:
        """The launch with what takes its place for buffers that do not begin where its kernel wants them."""
        symbol, aligned = op.attributes.get(UNALIGNED), op.attributes.get(ALIGNED)
        if not isinstance(symbol, SymbolRefAttr) or not isinstance(aligned, DenseArrayBase):
            return launch
        name = symbol.string_value().rpartition(".")[2]
        kernel = kernels.get(name)
        if (
            kernel is None
            or len(kernel.arguments) != len(launch.buffers)
            or not (kernel.grid_size and kernel.block_size)
        ):
            raise LoweringError(
                f"'gpu.launch_func' attribute '{UNALIGNED}': expected a kernel of this module with "
                f"{len(launch.buffers)} arguments, known_grid_size and known_block_size, got {symbol}; remove both "
                "attributes",
                op,
            )
        self.unaligned[name] = kernel
        shared = _integer(kernel.attributes.get(DYNAMIC_SHARED), 0)
        grid, block = ((s[0], s[1], s[2]) for s in (kernel.grid_size, kernel.block_size))
        other = GridLaunch(name, launch.buffers, prod(grid), 1, grid, block, shared)
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
            sized = any(map(is_sized, launches))
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
            self._routine(op),
            workspace=None if op.workspace is None else self._refs[op.workspace],
            touched=() if op.touched is None else tuple(map(int, op.touched.get_values())),
            columns=self._columns(op),
        )

    def _columns(self, op: LibraryCallOp) -> tuple[int, ...]:
        """`columns` of a call: of inputs that are whole buffers, one behind the other."""
        refs = [self._refs[value] for value in op.ins]
        found = [0] * len(refs)
        for number, (rows, ref) in enumerate(pairwise(refs), 1):
            if ref.buffer == rows.buffer + 1 and not ref.offset and not rows.offset:
                found[number] = self._patterns.get(ref.buffer, 0)
        return tuple(found) if any(found) else ()

    def _routine(self, op: LibraryCallOp) -> Run:
        if op.implementation.data == REFERENCE:
            return partial(_run_reference, self._reference_function(op))
        if op.implementation.data == PARTITION:
            return self._partition(op)
        if CHAIN in op.config.data:
            run = partial(_run_reference, self._reference_function(op))
            return run if op.workspace is None else _without_workspace(run)
        found = find_implementation(op.operation.data, op.implementation.data)
        if found is None:
            raise LoweringError(
                f"'{op.implementation.data}' is not a registered implementation of '{op.operation.data}'", op
            )
        run = found.run if op.workspace is None or found.takes_workspace else _without_workspace(found.run)
        return partial(_run_in_orders, run) if ORDERS in op.config.data else run

    def _partition(self, op: LibraryCallOp) -> Run:
        """What the backend makes of the function that has the partition's ops."""
        backend = _text(op.config.data.get("backend"))
        if (build := find_partition_build(backend)) is None:
            problem = f"nothing builds partitions of '{backend}'"
            raise LoweringError(f"'fused.partition': {problem}; name the backend's file or run unfuse", op)
        block = self._reference_function(op).body.block
        ops = [inner for inner in block.ops if isinstance(inner, GraphOp)]
        try:
            return build(Subgraph.of(ops, block.args, block.last_op.operands if block.last_op else ()))
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise LoweringError(f"'fused.partition': backend '{backend}' raised {said}; run unfuse", op) from error

    def _reference_function(self, op: LibraryCallOp) -> func.FuncOp:
        """The function with the ops of a call."""
        name = _text(op.config.data.get("function"))
        function = self._symbols.get(name)
        if not isinstance(function, func.FuncOp):
            raise LoweringError(f"'gpu.library_call' of the reference: there is no function '{name}'", op)
        return function

    def reference(self, value: SSAValue) -> BufferRef:
        """What a buffer of the function is in the program."""
        return self._refs[value]

    def results(self) -> tuple[Result, ...]:
        own = [number for number, buffer in enumerate(self.buffers) if buffer.kind == "result"]
        found: list[Result] = []
        for entry in self._results:
            kind, number = _text(entry["kind"]), _integer(entry.get("number"), 0)
            shape, dtype = _described_type(entry["type"], entry.get(SIZES))
            if kind == "result":
                index, copied = found[number].index, True
            elif kind == "constant":
                index, copied = self._globals[_text(entry["symbol"])], True
            else:
                index, copied = (own[number] if kind == "buffer" else number), kind == "argument"
            found.append(Result(shape, dtype, index, copied, _axes(entry.get(AXES))))
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
            loaded, stored = self._kernel_traffic(launch.kernel)
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
            sum(BufferRef(0, 0, *_described(argument)).nbytes for argument in self._prepared()),
            max((call.workspace.nbytes for call in calls if call.workspace is not None), default=0),
            sum(ref.nbytes for call in calls for ref in _inside(call)),
        )  # fmt: skip

    def _prepared(self) -> list[SSAValue]:
        """The arguments that another function computes."""
        return [self.function.body.block.args[number] for number in prepared_arguments(self.function)]

    def _kernel_traffic(self, name: str) -> tuple[frozenset[int], frozenset[int]]:
        """Which of a kernel's buffers it reads, and which it writes."""
        if name not in self._traffic:
            loaded: set[int] = set()
            stored: set[int] = set()
            kernel = self.kernels[name]
            blocks = kernel.arguments if isinstance(kernel, gpu.FuncOp) else kernel.body.block.args
            parameters: dict[SSAValue, int] = {argument: argument.index for argument in blocks}
            for op in kernel.walk():
                if isinstance(op, memref.LoadOp | memref.StoreOp) and op.memref in parameters:
                    (loaded if isinstance(op, memref.LoadOp) else stored).add(parameters[op.memref])
                elif isinstance(op, vector.LoadOp | vector.StoreOp) and op.base in parameters:
                    (loaded if isinstance(op, vector.LoadOp) else stored).add(parameters[op.base])
                elif isinstance(op, memref.CastOp) and op.source in parameters:
                    (stored if _is_target(op.dest) else loaded).add(parameters[op.source])
            self._traffic[name] = frozenset(loaded), frozenset(stored)
        return self._traffic[name]


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


def _is_target(memory: SSAValue) -> bool:
    """Whether a helper writes to memory that was cast for it."""
    uses = list(memory.uses)
    return any(
        isinstance(use.operation, func.CallOp) and is_helper_target(use.operation.callee.string_value(), use.index)
        for use in uses
    )


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


def _run_reference(
    function: func.FuncOp, inputs: Sequence[Array], outputs: Sequence[Array], config: Mapping[str, ConfigValue]
) -> None:
    types = function.function_type
    given = [logical_array(array, type_) for array, type_ in zip(inputs, types.inputs, strict=True)]
    results = zip(outputs, evaluate_function(function, given), types.outputs, strict=True)
    for out, value, type_ in results:
        np.copyto(out, memory_array(value, type_))


def _run_in_orders(
    run: Run, inputs: Sequence[Array], outputs: Sequence[Array], config: Mapping[str, ConfigValue]
) -> None:
    """Runs on views that have their axes as types write them."""
    orders = config[ORDERS]
    assert isinstance(orders, tuple)
    arrays = [*inputs, *outputs]
    views = [_in_order(array, str(order)) for array, order in zip(arrays, orders, strict=False)]
    views += arrays[len(orders) :]  # a workspace
    run(views[: len(inputs)], views[len(inputs) :], config)


def _in_order(array: Array, order: str) -> Array:
    """A view; of panels a copy, which only what is read lies in."""
    axes, _, panel = order.partition("|")
    if panel:
        place = int(panel.partition(":")[0])
        rest = list(range(1, array.ndim - 1))
        array = array.transpose(*rest[:place], 0, array.ndim - 1, *rest[place:])
        array = array.reshape(*array.shape[:place], -1, *array.shape[place + 2 :])
    return array.transpose(np.argsort(np.array(axes.split(), int))) if axes else array


def _inside(call: LibraryCall) -> Sequence[BufferRef]:
    """The outputs that are values inside of a partition."""
    count = call.config.get(INSIDE, 0)
    assert isinstance(count, int)
    return call.outputs[len(call.outputs) - count :]


def _without_workspace(run: Run) -> Run:
    """A function of the reference, in the place of compiled code that works in memory of the plan's."""
    return lambda inputs, outputs, config: run(inputs, outputs[:-1], config)


def _dictionaries(attribute: Attribute | None) -> Iterable[DictionaryAttr]:
    return attribute.data if isa(attribute, ArrayAttr[DictionaryAttr]) else ()


def _axes(attribute: Attribute | None) -> tuple[int, ...] | None:
    return tuple(attribute.get_values()) if isa(attribute, DenseArrayBase[IntegerType]) else None


def _text(attribute: Attribute | None) -> str:
    return attribute.data if isinstance(attribute, StringAttr) else ""


def _integer(attribute: Attribute | None, default: int) -> int:
    return attribute.value.data if isinstance(attribute, IntegerAttr) else default


def _constant_index(value: SSAValue) -> int:
    owner = value.owner
    if isinstance(owner, SizeOp):
        return cast(int, owner.size.data)
    assert isinstance(owner, arith.ConstantOp), "expected a constant index"
    return _integer(owner.value, 0)


def _described(value: SSAValue, sizes: Sequence[SSAValue] = ()) -> tuple[tuple[int, ...], str]:
    """The shape and element type of a buffer; `sizes` are the extents that its type does not say."""
    shape, dtype = _described_type(value.type)
    given = iter(sizes)
    return tuple(_constant_index(next(given)) if n == DYNAMIC_INDEX else n for n in shape), dtype


def _described_type(kind: Attribute, sizes: Attribute | None = None) -> tuple[tuple[int, ...], str]:
    """The same of a type, whose unknown extents are those of `sizes`."""
    assert isa(kind, MemRefType)
    if isinstance(sizes, ShapeAttr):
        return cast(tuple[int, ...], sizes.sizes), _described_type(kind)[1]
    element = dtype_of(kind.element_type)
    assert element is not None, f"no element type {kind.element_type}"
    return kind.get_shape(), element.name
