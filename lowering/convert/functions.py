"""From functions on tensors to programs on buffers, whatever the device: memory, launches in bulks, library calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Generic, TypeVar

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr, TensorType, UnitAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from fuse_opt.dialects.analysis.contractions.generated_products import PRODUCT_KINDS
from fuse_opt.dialects.analysis.kernel_access import generated_kind, library_op
from fuse_opt.dialects.analysis.kernel_parts import kernel_passes
from fuse_opt.dialects.analysis.loop_body import LoopBody, Unschedulable
from fuse_opt.dialects.analysis.prepared import PREPARED, prepare_name, prepared_arguments
from fuse_opt.dialects.analysis.storage import analyse_storage, argument_attributes, functions_of
from fuse_opt.dialects.fused import KernelOp, OutlinedOp, PartitionOp
from fuse_opt.dialects.gpu import BulkOp
from fuse_opt.dialects.implementation.queries import absorbed_chain, opaque_op
from fuse_opt.dialects.interfaces.layouts import memory_extents
from fuse_opt.dialects.interfaces.shapes import has_sizes, may_rows_be_long, shape, sizes_asked_for
from fuse_opt.dialects.types.size import Extent, SizeRefusal
from fuse_opt.dialects.types.symbolic_shape import ShapeAttr
from fuse_opt.lowering.convert.calls import Calls, is_fallback
from fuse_opt.lowering.convert.convertible import check_convertible, check_in_place
from fuse_opt.lowering.convert.library_epilogues import EPILOGUE, LibraryParts, library_parts, split_library_kernels
from fuse_opt.lowering.convert.memory import RESULTS, SIZES, Constants, ProgramMemory, caller_axes, memref_type
from fuse_opt.lowering.convert.overwritten_boxes import trace_written
from fuse_opt.lowering.convert.shared_starts import AnyStart, shared_starts
from fuse_opt.lowering.errors import LoweringError
from fuse_opt.lowering.kernel.buffers import Parameter, Scratch
from fuse_opt.lowering.kernel.naming import kernel_key, kernel_name
from fuse_opt.lowering.program import REFERENCE

Generated = TypeVar("Generated")
"""A kernel's code on a target, with what launching it takes."""


@dataclass(frozen=True)
class ConvertedKernel:
    """A kernel, and where its program on buffers has it: asked for by those who look at kernels one by one."""

    name: str
    """Of its ops; several kernels may have it."""
    kernel: OutlinedOp
    """A copy that stands by itself: its operands are the arguments of a block without ops."""
    bulk: BulkOp
    """All launches and calls of it and of no other kernel."""
    operands: tuple[SSAValue, ...]
    """Buffers, in the kernel's order."""
    results: tuple[SSAValue, ...]


def convert_programs(
    module: ModuleOp, converter: Callable[[Block], ModuleConverter[Any]], traced: list[ConvertedKernel] | None = None
) -> None:
    """
    Lowers every function on tensors; those of one block share a converter. What becomes of each kernel is added to `traced`
    where it is given: then each has a bulk of its own.
    """
    converters: dict[Block, ModuleConverter[Any]] = {}
    for function in functions_of(module):
        block = function.parent
        if block is not None and is_program(function):
            if block not in converters:
                converters[block] = converter(block)
                converters[block].traced = traced
            converters[block].convert(function)


def is_program(function: func.FuncOp) -> bool:
    """Whether the function computes with tensors, and is not the body of a kernel left to the reference."""
    kinds = (*function.function_type.inputs.data, *function.function_type.outputs.data)
    return any(isinstance(kind, TensorType) for kind in kinds) and REFERENCE not in function.attributes


class ModuleConverter(ABC, Generic[Generated]):
    """What the functions of a module share: kernels, globals, declared helpers. A target says what a kernel is on it."""

    ALIGNMENT: ClassVar[int] = 64
    """Bytes; of the arena, of what it holds without a plan, and of constants."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.symbols: dict[str, Operation] = {}
        for op in block.ops:
            name = op.properties.get("sym_name", op.attributes.get("sym_name"))
            if isinstance(name, StringAttr):
                self.symbols[name.data] = op
        self.prepares = {
            prepare_name(op, number)
            for op in self.symbols.values()
            if isinstance(op, func.FuncOp)
            for number in prepared_arguments(op)
        }
        """Names of functions that compute arguments of others."""
        self.traced: list[ConvertedKernel] | None = None
        self.constants = Constants(block, self.symbols, self.ALIGNMENT)
        self.kernels: dict[Hashable, Generated] = {}

    @abstractmethod
    def generate(
        self, kernel: KernelOp, passes: Sequence[LoopBody], memory: Sequence[int], before: func.FuncOp
    ) -> Generated:
        """
        The code of a kernel, put into the module: one pass, or several side by side. `memory` names the storage of each
        operand and result.
        """

    def generates_product(self, kernel: KernelOp) -> bool:
        """Whether `generate` takes the kernel as a product, without passes; elsewhere a library runs it."""
        return False

    @abstractmethod
    def parameters(self, generated: Generated) -> Sequence[Parameter]:
        """The buffers that the code takes."""

    @abstractmethod
    def launch(
        self, generated: Generated, buffers: Sequence[SSAValue], number: Callable[[Extent], SSAValue]
    ) -> Operation:
        """An op that runs the code on these buffers; `number` gives constants."""

    def scratch(self, generated: Generated) -> Sequence[Scratch]:
        """What the launches of the code hand on to each other."""
        return [each.scratch for each in self.parameters(generated) if each.scratch is not None]

    def launches(
        self, generated: Generated, buffer: Callable[[Parameter], SSAValue], number: Callable[[Extent], SSAValue]
    ) -> Sequence[Operation]:
        """The ops that run the code, one after another."""
        return [self.launch(generated, [buffer(p) for p in self.parameters(generated)], number)]

    def convert(self, function: func.FuncOp) -> None:
        """Puts the function on buffers in the place of the function on tensors."""
        converted = _FunctionConverter(self, function).convert()
        self.block.insert_op_before(converted, function)
        function.detach()
        function.erase(safe_erase=False)

    def unique(self, stem: str) -> str:
        """A name that no symbol of the module has."""
        name, number = stem, 0
        while name in self.symbols:
            number += 1
            name = f"{stem}_{number}"
        return name

    def define(self, function: func.FuncOp, before: func.FuncOp) -> None:
        self.symbols[function.sym_name.data] = function
        self.block.insert_op_before(function, before)


class _FunctionConverter(Generic[Generated]):
    def __init__(self, module: ModuleConverter[Generated], function: func.FuncOp) -> None:
        self.module = module
        self.function = function
        check_convertible(function)
        split_library_kernels(function, module.generates_product)
        storages = analyse_storage(function)
        check_in_place(function, storages)
        self.block = Block(arg_types=[memref_type(value) for value in function.body.block.args])
        for new, old in zip(self.block.args, function.body.block.args, strict=True):
            new.name_hint = old.name_hint
        self.memory = ProgramMemory(function, storages, self.block, module.constants, module.ALIGNMENT)
        for value in self.memory.own_results:
            argument = self.block.insert_arg(memref_type(value), len(self.block.args))
            argument.name_hint = value.name_hint
        self.calls = Calls(function, self.memory, module.unique, module.define)
        self.bulks: list[BulkOp] = []
        self._segment: object = None
        kernels = [op for op in function.body.block.ops if isinstance(op, KernelOp) and module.generates_product(op)]
        self.starts = shared_starts([(op, self._memory_of(op)) for op in kernels])

    def convert(self) -> func.FuncOp:
        for op in self.function.body.block.ops:
            if isinstance(op, KernelOp) and any(prod(shape(result)) for result in op.results):
                try:
                    self._convert_kernel(op)
                except SizeRefusal as error:
                    raise error.about(op) from error.__cause__
            elif isinstance(op, PartitionOp):
                self._bulk_of(op).body.block.add_op(self.calls.partition_call(op))
            else:
                continue
            if self.module.traced is not None:
                self.module.traced.append(self._traced(op))
        self.memory.finish()
        for bulk in self.bulks:
            self.block.add_op(bulk)
        self.block.add_op(func.ReturnOp())
        old = self.function
        new = func.FuncOp(
            old.sym_name.data,
            ([argument.type for argument in self.block.args], []),
            Region(self.block),
            old.sym_visibility,
            arg_attrs=self._argument_attributes(),
        )
        new.attributes.update(old.attributes)
        last = old.body.block.last_op
        assert isinstance(last, func.ReturnOp)
        axes = [{} if self._is_prepare() else caller_axes(value) for value in last.operands]
        given = zip(self.memory.results, axes, strict=True)
        new.attributes[RESULTS] = ArrayAttr(source.attribute(entry) for source, entry in given)
        new.location = old.location
        return new

    def _argument_attributes(self) -> ArrayAttr[DictionaryAttr] | None:
        old = self.function
        known: list[DictionaryAttr] = []
        for number, value in enumerate(old.body.block.args):
            marks = argument_attributes(old, number)
            known.append(
                DictionaryAttr({**marks, **({} if PREPARED in marks else caller_axes(value)), **_sizes_of(value)})
            )
        added = [DictionaryAttr(_sizes_of(value)) for value in self.memory.own_results]
        every = [*known, *added]
        return ArrayAttr(every) if any(attribute.data for attribute in every) else None

    def _is_prepare(self) -> bool:
        """Whether the results are arguments of another function, and no caller's."""
        return self.function.sym_name.data in self.module.prepares

    def _convert_kernel(self, kernel: KernelOp) -> None:
        memory = self._memory_of(kernel)
        if (general := self.starts.get(kernel)) is not None:
            self._convert_any_start(kernel, general, memory)
            return
        key = kernel_key(kernel, memory)
        if (found := self.module.kernels.get(key)) is not None:
            self._launch(kernel, found)
            return
        if self.module.generates_product(kernel):
            found = self.module.kernels[key] = self.module.generate(kernel, (), memory, self.function)
            self._launch(kernel, found)
            return
        if (passes := scheduled(kernel)) is not None:
            count = len(kernel.operands)
            passes = [
                trace_written(kernel, each, lambda result, operand: memory[count + result] == memory[operand])
                for each in passes
            ]
            found = self.module.kernels[key] = self.module.generate(kernel, passes, memory, self.function)
            self._launch(kernel, found)
            return
        if (
            kernel.schedule_kind() != REFERENCE
            and (op := library_op(kernel)) is not None
            and not is_fallback(kernel, op)
        ):
            launch = self.calls.library_call(kernel, op, kernel.results)
        elif kernel.schedule_kind() != REFERENCE and (links := absorbed_chain(kernel)) is not None:
            launch = self.calls.absorbing_call(kernel, opaque_op(kernel), links)
        elif kernel.schedule_kind() != REFERENCE and (parts := library_parts(kernel)) is not None:
            launch = self._call_and_launch(kernel, parts, memory)
        elif kernel.implementation is not None:
            raise LoweringError(
                f"'fused.kernel' implementation \"{kernel.implementation.data}\" cannot run it: expected a kernel of one "
                "op of a library; remove the property", kernel
            )  # fmt: skip
        else:
            launch = self.calls.reference_call(kernel)
        self._bulk_of(kernel).body.block.add_op(launch)

    def _memory_of(self, kernel: KernelOp) -> list[int]:
        """The storages of its operands and results."""
        return [self.memory.storage(value).number for value in (*kernel.operands, *kernel.results)]

    def _convert_any_start(self, kernel: KernelOp, general: AnyStart, memory: Sequence[int]) -> None:
        """A product that shares its function with those that begin elsewhere in an operand."""
        key = kernel_key(general.kernel, memory)
        if (found := self.module.kernels.get(key)) is None:
            with sizes_asked_for(may_rows_be_long()):
                found = self.module.kernels[key] = self.module.generate(general.kernel, (), memory, self.function)
        self._launch(kernel, found, general.at(self.memory.number))

    def _bulk_of(self, kernel: OutlinedOp) -> BulkOp:
        """The bulk to launch the kernel in: that of the one before if both are of one segment."""
        segment = kernel if kernel.segment is None else kernel.segment.value.data
        if self.module.traced is not None:
            segment = kernel
        if not self.bulks or segment != self._segment:
            self.bulks.append(BulkOp(len(self.bulks)))
        self._segment = segment
        return self.bulks[-1]

    def _traced(self, kernel: OutlinedOp) -> ConvertedKernel:
        """What became of the kernel just now."""
        operands = Block(arg_types=[value.type for value in kernel.operands]).args
        copy = kernel.clone(dict(zip(kernel.operands, operands, strict=False)))
        copy.operands = operands
        copy.location = kernel.location
        buffers = [tuple(map(self.memory.shaped, values)) for values in (kernel.operands, kernel.results)]
        name = kernel_name(kernel) if isinstance(kernel, KernelOp) else "partition"
        return ConvertedKernel(name, copy, self.bulks[-1], *buffers)

    def _launch(
        self, kernel: KernelOp, generated: Generated, number: Callable[[Extent], SSAValue] | None = None
    ) -> None:
        shared = self.module.scratch(generated)
        start = self.memory.scratch_start(kernel, shared) if shared else 0

        def buffer(parameter: Parameter) -> SSAValue:
            if (scratch := parameter.scratch) is not None:
                return self.memory.scratch(start + scratch.offset, scratch.type, scratch.elements)
            return self.memory.flat(parameter.value_of(kernel))

        launches = self.module.launches(generated, buffer, number or self.memory.number)
        self._bulk_of(kernel).body.block.add_ops(launches)

    def _call_and_launch(self, kernel: KernelOp, parts: LibraryParts, memory: Sequence[int]) -> Operation:
        """Adds the call; gives the launch that goes over its result in place."""
        call = self.calls.library_call(kernel, parts.op, [kernel.results[parts.home]])
        if parts.offered:
            call.attributes[EPILOGUE] = UnitAttr()
        self._bulk_of(kernel).body.block.add_op(call)
        memory = parts.launch_memory(memory)
        key = kernel_key(parts.epilogue, memory)
        if (found := self.module.kernels.get(key)) is None:
            passes = scheduled(parts.epilogue)
            assert passes is not None
            found = self.module.kernels[key] = self.module.generate(parts.epilogue, passes, memory, self.function)
        buffers = [self.memory.flat(parts.value_of(kernel, p)) for p in self.module.parameters(found)]
        parts.epilogue.drop_all_references()
        return self.module.launch(found, buffers, self.memory.number)


def scheduled(kernel: KernelOp) -> Sequence[LoopBody] | None:
    """
    The kernel as one pass or as several side by side, or None when it is to run otherwise. Raises LoweringError where its
    schedule cannot be kept.
    """
    kind = kernel.schedule_kind()
    if kind in ("library", REFERENCE, *PRODUCT_KINDS) or kernel.implementation is not None:
        return None
    try:
        return kernel_passes(kernel, generated_kind(kernel))
    except Unschedulable as reason:
        if kind is not None:
            raise LoweringError(
                f"'fused.kernel' schedule \"{kind}\" cannot be kept: {reason}; remove the property or run schedule-kernels",
                reason.op or kernel,
            ) from reason
        return None


def _sizes_of(value: SSAValue) -> dict[str, Attribute]:
    """What says the extents of a buffer whose type has unknown ones."""
    return {SIZES: ShapeAttr.of(memory_extents(value))} if has_sizes(value) else {}
