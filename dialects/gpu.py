"""The gpu dialect: upstream's, plus what GPU kernels and a *program* of launches need.

Everything that upstream's `gpu` parses and prints stays as it is: its classes are reused here, except `gpu.func` and
`gpu.return`, which are replaced together because `gpu.return` names the class of its parent. Added are

- for kernels: workgroup and private buffers on `gpu.func`, `gpu.shuffle`, `#gpu.address_space<...>`;
- for programs, on any device: `gpu.arena`, `gpu.library_call` and `gpu.bulk`. A slot of the arena is upstream's
  `memref.view` with a constant byte shift.

```mlir
%arena = gpu.arena {alignment = 64 : i64} : memref<4096xi8>
gpu.bulk 0 {
  %shift = arith.constant 1024 : index
  %c = memref.view %arena[%shift][] : memref<4096xi8> to memref<8x2xf32>
  gpu.library_call "numpy.matmul"(%a, %b) outs(%c) {operation = "graph.matmul"}
    : (memref<8x4xf32>, memref<4x2xf32>) outs(memref<8x2xf32>)
}
```

`GPU` is registered by this project's driver and `register` function *instead of* upstream's dialect. It must never be
published through the `xdsl.universe` entry point: xDSL merges all installed universes and raises on a dialect name that
occurs twice, so a second `gpu` there would break every xDSL tool of that environment, whatever its input
("Duplicate definition of gpu").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import auto
from typing import ClassVar

from xdsl.dialects import arith, func, memref
from xdsl.dialects import gpu as upstream
from xdsl.dialects.builtin import (
    I64,
    AnyFloatConstr,
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    NoneAttr,
    StringAttr,
    SymbolNameConstraint,
    UnitAttr,
    VectorType,
    i1,
    i8,
    i32,
    i64,
)
from xdsl.dialects.gpu import (
    AllocOp,
    AllReduceOp,
    AllReduceOpAttr,
    AllReduceOpEnum,
    AsyncTokenType,
    BarrierOp,
    BlockDimOp,
    BlockIdOp,
    DeallocOp,
    DimensionAttr,
    DimensionEnum,
    GlobalIdOp,
    GridDimOp,
    HostRegisterOp,
    HostUnregisterOp,
    LaneIdOp,
    LaunchFuncOp,
    LaunchOp,
    LoopDimMapAttr,
    MemcpyOp,
    ModuleOp,
    NumSubgroupsOp,
    ProcessorAttr,
    ProcessorEnum,
    SetDefaultDeviceOp,
    SubgroupIdOp,
    SubgroupSizeOp,
    TerminatorOp,
    ThreadIdOp,
    WaitOp,
    YieldOp,
)
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import (
    Attribute,
    Block,
    BlockArgument,
    Dialect,
    Operation,
    Region,
    SpacedOpaqueSyntaxAttribute,
    SSAValue,
)
from xdsl.irdl import (
    AttrSizedOperandSegments,
    BaseAttr,
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    attr_def,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import (
    HasParent,
    IsolatedFromAbove,
    IsTerminator,
    MemoryAllocEffect,
    NoMemoryEffect,
    NoTerminator,
    RecursiveMemoryEffect,
    SymbolOpInterface,
)
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa
from xdsl.utils.str_enum import StrEnum


def _refusal(op: Operation, expected: str, got: str, remedy: str) -> VerifyException:
    return VerifyException(f"'{op.name}' op expected {expected}, got {got}; {remedy}")


def _sizes(values: Sequence[int] | None) -> DenseArrayBase | None:
    return None if values is None else DenseArrayBase.from_list(i32, values)


def _type_list(types: Sequence[Attribute]) -> str:
    return f"({', '.join(map(str, types))})"


class AddressSpaceEnum(StrEnum):
    """Where a buffer lives: all of the device, one block of threads, or one thread."""

    Global = auto()
    Workgroup = auto()
    Private = auto()


@irdl_attr_definition
class AddressSpaceAttr(EnumAttribute[AddressSpaceEnum]):
    """A memory space of the GPU: `memref<32xf32, #gpu.address_space<workgroup>>`."""

    name = "gpu.address_space"

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            super().print_parameter(printer)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> AddressSpaceEnum:
        with parser.in_angle_brackets():
            return super().parse_parameter(parser)


class ShuffleModeEnum(StrEnum):
    """How a lane finds its source lane from the offset operand."""

    Xor = auto()
    Up = auto()
    Down = auto()
    Idx = auto()


@irdl_attr_definition
class ShuffleModeAttr(EnumAttribute[ShuffleModeEnum], SpacedOpaqueSyntaxAttribute):
    """The mode of a `gpu.shuffle`: `#gpu<shuffle_mode xor>`."""

    name = "gpu.shuffle_mode"


@irdl_op_definition
class FuncOp(IRDLOperation):
    """A function of a `gpu.module`: a kernel (`gpu.kernel`) or a device function.

    The entry block takes the function's inputs, then the workgroup buffers (`workgroup_attributions` of them: shared
    memory, one per block of threads), then the private buffers (one per thread). As in MLIR the private ones are what
    remains; `private_attributions`, when present, must agree.

    Two things have two spellings, one of MLIR and one of upstream. Both parse and print back; the constructor writes
    MLIR's, and `is_kernel`, `block_size`, `grid_size` read either:

    - a kernel: the attribute `gpu.kernel` (MLIR, which silently drops the other one), the property `kernel`;
    - launch bounds: the properties `known_block_size`, `known_grid_size` (MLIR), the attributes `gpu.known_block_size`,
      `gpu.known_grid_size`.
    """

    name = "gpu.func"

    body = region_def()
    sym_name = attr_def(SymbolNameConstraint())
    function_type = prop_def(FunctionType)
    kernel_attribute = opt_attr_def(UnitAttr, attr_name="gpu.kernel")
    kernel = opt_prop_def(UnitAttr)
    workgroup_attributions = opt_attr_def(IntegerAttr[I64])
    private_attributions = opt_attr_def(IntegerAttr[I64])
    known_block_size = opt_prop_def(DenseArrayBase.constr(i32))
    known_grid_size = opt_prop_def(DenseArrayBase.constr(i32))
    known_cluster_size = opt_prop_def(DenseArrayBase.constr(i32))
    discardable_block_size = opt_attr_def(DenseArrayBase.constr(i32), attr_name="gpu.known_block_size")
    discardable_grid_size = opt_attr_def(DenseArrayBase.constr(i32), attr_name="gpu.known_grid_size")
    arg_attrs = opt_prop_def(ArrayAttr[DictionaryAttr])
    res_attrs = opt_prop_def(ArrayAttr[DictionaryAttr])
    workgroup_attrib_attrs = opt_prop_def(ArrayAttr[DictionaryAttr])
    private_attrib_attrs = opt_prop_def(ArrayAttr[DictionaryAttr])

    traits = traits_def(IsolatedFromAbove(), HasParent(ModuleOp), SymbolOpInterface())

    def __init__(
        self,
        name: str,
        function_type: FunctionType | tuple[Sequence[Attribute], Sequence[Attribute]],
        region: Region | type[Region.DEFAULT] = Region.DEFAULT,
        kernel: bool | None = None,
        known_block_size: Sequence[int] | None = None,
        known_grid_size: Sequence[int] | None = None,
        *,
        workgroup_buffers: Sequence[MemRefType] = (),
        private_buffers: Sequence[MemRefType] = (),
    ) -> None:
        if isinstance(function_type, tuple):
            function_type = FunctionType.from_lists(*function_type)
        if not isinstance(region, Region):
            region = Region(Block(arg_types=[*function_type.inputs, *workgroup_buffers, *private_buffers]))
        attributes: dict[str, Attribute | None] = {
            "sym_name": StringAttr(name),
            "gpu.kernel": UnitAttr() if kernel else None,
            "workgroup_attributions": IntegerAttr(len(workgroup_buffers), i64) if workgroup_buffers else None,
            "private_attributions": IntegerAttr(len(private_buffers), i64) if private_buffers else None,
        }
        properties: dict[str, Attribute | None] = {
            "function_type": function_type,
            "known_block_size": _sizes(known_block_size),
            "known_grid_size": _sizes(known_grid_size),
        }
        super().__init__(properties=properties, attributes=attributes, regions=[region])

    @property
    def is_kernel(self) -> bool:
        return self.kernel_attribute is not None or self.kernel is not None

    @property
    def block_size(self) -> tuple[int, ...] | None:
        """Threads per block along x, y and z, where the function states them."""
        sizes = self.discardable_block_size if self.known_block_size is None else self.known_block_size
        return None if sizes is None else sizes.get_values()

    @property
    def grid_size(self) -> tuple[int, ...] | None:
        """Blocks along x, y and z, where the function states them."""
        sizes = self.discardable_grid_size if self.known_grid_size is None else self.known_grid_size
        return None if sizes is None else sizes.get_values()

    @property
    def arguments(self) -> tuple[BlockArgument, ...]:
        """The entry block's arguments that a caller passes."""
        return tuple(self.body.blocks[0].args[: len(self.function_type.inputs)])

    @property
    def workgroup_buffers(self) -> tuple[BlockArgument, ...]:
        """The entry block's arguments in workgroup (shared) memory."""
        start = len(self.function_type.inputs)
        return tuple(self.body.blocks[0].args[start : start + self._workgroup_count])

    @property
    def private_buffers(self) -> tuple[BlockArgument, ...]:
        """The entry block's arguments in private memory."""
        return tuple(self.body.blocks[0].args[len(self.function_type.inputs) + self._workgroup_count :])

    @property
    def _workgroup_count(self) -> int:
        return 0 if self.workgroup_attributions is None else self.workgroup_attributions.value.data

    def verify_(self) -> None:
        self._verify_launch_bounds()
        if self.is_kernel and self.function_type.outputs.data:
            raise _refusal(
                self,
                "a kernel without results",
                f"results {_type_list(self.function_type.outputs.data)}",
                "pass a memref for each result and store into it",
            )
        if not self.body.blocks:
            raise _refusal(self, "a body", "an empty region", "add an entry block that ends with gpu.return")
        self._verify_entry_block()

    def _verify_entry_block(self) -> None:
        inputs = self.function_type.inputs.data
        arguments = self.body.blocks[0].arg_types
        if arguments[: len(inputs)] != inputs:
            raise _refusal(
                self,
                f"entry block arguments that begin with the function's inputs {_type_list(inputs)}",
                _type_list(arguments),
                "make the function type and the entry block agree",
            )
        extra = len(arguments) - len(inputs)
        workgroup = self._workgroup_count
        if not 0 <= workgroup <= extra:
            raise _refusal(
                self,
                f"workgroup_attributions between 0 and {extra}, the entry block arguments after the inputs",
                str(workgroup),
                "add a block argument for each workgroup buffer",
            )
        if self.private_attributions is not None and self.private_attributions.value.data != extra - workgroup:
            raise _refusal(
                self,
                f"private_attributions = {extra - workgroup}, the entry block arguments left over by "
                f"{len(inputs)} inputs and {workgroup} workgroup buffers",
                str(self.private_attributions.value.data),
                "count each buffer once",
            )
        self._verify_buffers(self.workgroup_buffers, AddressSpaceEnum.Workgroup)
        self._verify_buffers(self.private_buffers, AddressSpaceEnum.Private)

    def _verify_buffers(self, buffers: Sequence[BlockArgument], space: AddressSpaceEnum) -> None:
        for buffer in buffers:
            found = buffer.type.memory_space if isa(buffer.type, MemRefType) else None
            # A space that is not ours (an LLVM number, say) has been lowered already: as in MLIR, not our business.
            if found is None or (isinstance(found, AddressSpaceAttr) and found.data != space):
                raise _refusal(
                    self,
                    f"a memref with memory space #gpu.address_space<{space}> for entry block argument "
                    f"#{buffer.index}, a {space} buffer",
                    str(buffer.type),
                    "change its type, or correct function_type and workgroup_attributions",
                )

    def _verify_launch_bounds(self) -> None:
        pairs = (
            ("known_block_size", self.known_block_size, self.discardable_block_size),
            ("known_grid_size", self.known_grid_size, self.discardable_grid_size),
            ("known_cluster_size", self.known_cluster_size, None),
        )
        for name, inherent, discardable in pairs:
            if inherent is not None and discardable is not None and inherent != discardable:
                raise _refusal(
                    self,
                    f"the property {name} and the attribute gpu.{name} to agree",
                    f"{inherent.get_values()} and {discardable.get_values()}",
                    "remove the attribute",
                )
            sizes = discardable if inherent is None else inherent
            if sizes is not None and (len(sizes) != len(DimensionEnum) or min(sizes.get_values()) < 1):
                raise _refusal(
                    self,
                    f"three positive sizes in {name}",
                    str(sizes.get_values()),
                    "write one size for each of x, y and z, 1 where a dimension is unused",
                )


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """Ends a `gpu.func` and gives its results."""

    name = "gpu.return"

    args = var_operand_def()

    traits = traits_def(IsTerminator(), HasParent(FuncOp))

    def __init__(self, operands: Sequence[SSAValue | Operation] = ()) -> None:
        super().__init__(operands=[operands])

    def verify_(self) -> None:
        function = self.parent_op()
        if isinstance(function, FuncOp) and self.args.types != function.function_type.outputs.data:
            raise _refusal(
                self,
                f"the results of '{function.sym_name.data}' {_type_list(function.function_type.outputs.data)}",
                _type_list(self.args.types),
                "return those, or change the function type",
            )


@irdl_op_definition
class ShuffleOp(IRDLOperation):
    """Reads `value` from another lane of the subgroup; `valid` says whether that lane was within `width`.

    The source lane is `lane ^ offset` (xor), `lane - offset` (up), `lane + offset` (down) or `offset` (idx). Every lane
    of the subgroup must reach the op, so it is free of memory effects but not speculatable: never hoisted.
    """

    name = "gpu.shuffle"

    T: ClassVar = VarConstraint("T", BaseAttr(IntegerType) | AnyFloatConstr | BaseAttr(VectorType))

    mode = prop_def(ShuffleModeAttr)
    value = operand_def(T)
    offset = operand_def(i32)
    width = operand_def(i32)
    result = result_def(T)
    valid = result_def(i1)

    traits = traits_def(NoMemoryEffect())

    assembly_format = "$mode $value `,` $offset `,` $width attr-dict `:` type($value)"

    def __init__(
        self,
        value: SSAValue | Operation,
        offset: SSAValue | Operation,
        width: SSAValue | Operation,
        mode: ShuffleModeEnum,
    ) -> None:
        super().__init__(
            operands=[value, offset, width],
            result_types=[SSAValue.get(value).type, i1],
            properties={"mode": ShuffleModeAttr(mode)},
        )

    def verify_(self) -> None:
        kind = self.value.type
        if isa(kind, VectorType) and (kind.get_num_dims() != 1 or any(kind.scalable_dims)):
            raise _refusal(
                self, "a scalar or a vector of one fixed dimension", str(kind), "shuffle its rows one by one"
            )


@irdl_op_definition
class ArenaOp(IRDLOperation):
    """The one block of memory, as many bytes as its type says, in which all intermediate buffers of a program live.

    Slots are `memref.view`s of it with constant byte shifts. The runtime allocates it once, at an address that is a
    multiple of `alignment`, and keeps it between calls: its contents are undefined when the program starts.
    """

    name = "gpu.arena"

    alignment = prop_def(IntegerAttr[I64])
    result = result_def(MemRefType)

    # Not free of effects: two equal arenas are two blocks of memory.
    traits = traits_def(MemoryAllocEffect())

    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, size: int, alignment: int = 64) -> None:
        super().__init__(result_types=[MemRefType(i8, [size])], properties={"alignment": IntegerAttr(alignment, i64)})

    @property
    def size(self) -> int:
        """Bytes."""
        return self.result.type.get_shape()[0]

    def verify_(self) -> None:
        kind = self.result.type
        plain = kind.layout == NoneAttr() and kind.memory_space == NoneAttr()
        if kind.element_type != i8 or kind.get_num_dims() != 1 or not plain or not kind.has_static_shape():
            raise _refusal(
                self, "a result of type memref<Nxi8>", str(kind), "write the number of bytes as its only dimension"
            )
        alignment = self.alignment.value.data
        if alignment < 1 or alignment & (alignment - 1):
            raise _refusal(
                self, "an alignment that is a power of two", str(alignment), "use 64 on CPUs and 256 on GPUs"
            )


@irdl_op_definition
class LibraryCallOp(IRDLOperation):
    """A call of a library's routine: reads `ins`, writes all of `outs`.

    `implementation` names the routine in the registry of implementations, `operation` the op it stands for and `config`
    that op's attributes, so that a runtime needs nothing but this op. An output may be one of the inputs where the
    implementation works in place.
    """

    name = "gpu.library_call"

    implementation = prop_def(StringAttr)
    operation = prop_def(StringAttr)
    config = prop_def(DictionaryAttr, default_value=DictionaryAttr({}))
    ins = var_operand_def()
    outs = var_operand_def()

    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    assembly_format = (
        "$implementation `` `(` $ins `)` `outs` `` `(` $outs `)` attr-dict "
        "`:` `(` type($ins) `)` `outs` `` `(` type($outs) `)`"
    )

    def __init__(
        self,
        implementation: str,
        operation: str,
        ins: Sequence[SSAValue | Operation],
        outs: Sequence[SSAValue | Operation],
        config: Mapping[str, Attribute] | DictionaryAttr | None = None,
    ) -> None:
        if not isinstance(config, DictionaryAttr):
            config = DictionaryAttr(config or {})
        super().__init__(
            operands=[ins, outs],
            properties={
                "implementation": StringAttr(implementation),
                "operation": StringAttr(operation),
                "config": config,
            },
        )

    def verify_(self) -> None:
        for name, value in (("implementation", self.implementation.data), ("operation", self.operation.data)):
            if not value:
                raise _refusal(self, f"a name as its {name}", '""', 'write one, as in "numpy.matmul"')
        if not self.outs:
            raise _refusal(
                self, "at least one output buffer", "none", "list the buffers that the routine writes in outs(...)"
            )
        for group, values in (("input", self.ins), ("output", self.outs)):
            for index, value in enumerate(values):
                if not isinstance(value.type, MemRefType):
                    raise _refusal(
                        self,
                        f"a memref as {group} #{index}",
                        str(value.type),
                        "give tensors and scalars a buffer first; a constant scalar belongs in config",
                    )


LAUNCHES: tuple[type[Operation], ...] = (LaunchFuncOp, func.CallOp, LibraryCallOp)
"""The ops that run a kernel: on a GPU, on the CPU, of a library."""

_ADDRESSING: tuple[type[Operation], ...] = (memref.ViewOp, memref.ReinterpretCastOp, arith.ConstantOp)


@irdl_op_definition
class BulkOp(IRDLOperation):
    """Launches that share one synchronisation, and may be captured as one CUDA graph.

    They run in the order written and nobody waits between them, whatever one launch alone would promise; whoever reads
    their results outside waits once for the whole segment. Segments are numbered in the order of the program. Beside
    launches there may be only what computes their operands without running anything.
    """

    name = "gpu.bulk"

    segment = prop_def(IntegerAttr[I64])
    body = region_def("single_block")

    traits = traits_def(NoTerminator(), RecursiveMemoryEffect())

    def __init__(self, segment: int, body: Region | Sequence[Operation] = ()) -> None:
        if not isinstance(body, Region):
            body = Region(Block(body))
        super().__init__(properties={"segment": IntegerAttr(segment, i64)}, regions=[body])

    @classmethod
    def parse(cls, parser: Parser) -> BulkOp:
        segment = parser.parse_integer(allow_boolean=False)
        attributes = parser.parse_optional_attr_dict_with_keyword(("segment",))
        body = parser.parse_region()
        if not body.blocks:
            body.add_block(Block())
        op = cls(segment, body)
        op.attributes.update(attributes.data if attributes is not None else {})
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.segment.value.data}")
        printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body, print_empty_block=False)

    @property
    def launches(self) -> Iterator[Operation]:
        """The launches in the order they run, without the ops that only compute their operands."""
        return (op for op in self.body.block.ops if isinstance(op, LAUNCHES))

    def verify_(self) -> None:
        segment = self.segment.value.data
        if segment < 0:
            raise _refusal(self, "a segment number of 0 or more", str(segment), "count the segments from 0")
        if self.body.block.args:
            raise _refusal(
                self,
                "a body without block arguments",
                _type_list(self.body.block.arg_types),
                "use the values from outside directly",
            )
        for op in self.body.block.ops:
            if isinstance(op, BulkOp):
                raise _refusal(
                    self,
                    f"no bulk within segment {segment}",
                    f"a nested 'gpu.bulk' of segment {op.segment.value.data}",
                    "move its launches into the outer one, or write the two one after the other",
                )
            if not isinstance(op, LAUNCHES + _ADDRESSING):
                allowed = ", ".join(kind.name for kind in LAUNCHES + _ADDRESSING)
                raise _refusal(
                    self,
                    f"only launches and what computes their operands ({allowed}) in segment {segment}",
                    f"'{op.name}'",
                    "move it in front of the segment, or end the segment before it",
                )


_OURS: tuple[type[Operation], ...] = (FuncOp, ReturnOp, ShuffleOp, ArenaOp, LibraryCallOp, BulkOp)
_NAMES = frozenset(op.name for op in _OURS)

GPU = Dialect(
    "gpu",
    [*(op for op in upstream.GPU.operations if op.name not in _NAMES), *_OURS],
    [*upstream.GPU.attributes, AddressSpaceAttr, ShuffleModeAttr],
)

__all__ = [
    "GPU",
    "LAUNCHES",
    "AddressSpaceAttr",
    "AddressSpaceEnum",
    "AllReduceOp",
    "AllReduceOpAttr",
    "AllReduceOpEnum",
    "AllocOp",
    "ArenaOp",
    "AsyncTokenType",
    "BarrierOp",
    "BlockDimOp",
    "BlockIdOp",
    "BulkOp",
    "DeallocOp",
    "DimensionAttr",
    "DimensionEnum",
    "FuncOp",
    "GlobalIdOp",
    "GridDimOp",
    "HostRegisterOp",
    "HostUnregisterOp",
    "LaneIdOp",
    "LaunchFuncOp",
    "LaunchOp",
    "LibraryCallOp",
    "LoopDimMapAttr",
    "MemcpyOp",
    "ModuleOp",
    "NumSubgroupsOp",
    "ProcessorAttr",
    "ProcessorEnum",
    "ReturnOp",
    "SetDefaultDeviceOp",
    "ShuffleModeAttr",
    "ShuffleModeEnum",
    "ShuffleOp",
    "SubgroupIdOp",
    "SubgroupSizeOp",
    "TerminatorOp",
    "ThreadIdOp",
    "WaitOp",
    "YieldOp",
]
