"""The gpu dialect's additions for kernels: buffers on functions, shuffles, address spaces."""

from __future__ import annotations

from collections.abc import Sequence
from enum import auto
from typing import ClassVar

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
    StringAttr,
    SymbolNameConstraint,
    UnitAttr,
    VectorType,
    i1,
    i32,
    i64,
)
from xdsl.dialects.gpu import (
    DimensionEnum,
    ModuleOp,
)
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import (
    Attribute,
    Block,
    BlockArgument,
    Operation,
    Region,
    SpacedOpaqueSyntaxAttribute,
    SSAValue,
)
from xdsl.irdl import (
    BaseAttr,
    IRDLOperation,
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
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import (
    HasParent,
    IsolatedFromAbove,
    IsTerminator,
    NoMemoryEffect,
    SymbolOpInterface,
)
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa
from xdsl.utils.str_enum import StrEnum

from fuse_opt.dialects.types.dtypes import dtype_of


def refusal(op: Operation, expected: str, got: str, remedy: str) -> VerifyException:
    return VerifyException(f"'{op.name}' op expected {expected}, got {got}; {remedy}")


def _sizes(values: Sequence[int] | None) -> DenseArrayBase | None:
    return None if values is None else DenseArrayBase.from_list(i32, values)


def type_list(types: Sequence[Attribute]) -> str:
    return f"({', '.join(map(str, types))})"


DEVICE = "fused.device"
"""Attribute of a module: what the kernels of the GPU that it is made for may use."""
DYNAMIC_SHARED = "fused.dynamic_shared"
"""Attribute of a kernel: bytes of workgroup buffers that a launch must ask for, as a kernel may not declare so many."""
LEAST_BLOCKS = "fused.least_blocks"
"""Attribute of a kernel: blocks that a processor should have room for, so that registers are shared out between so many."""
ALIGNED = "fused.aligned"
"""Attribute of a launch: the kernel's arguments that must begin at multiples of 16 bytes, as the host finds out."""
UNALIGNED = "fused.unaligned"
"""Attribute of a launch: the kernel to launch where one of these does not, by its own grid and block."""
UNALIGNED_SIZES = "fused.unaligned_sizes"
"""Attribute of such a launch of a program with sizes: how many blocks that kernel has, then its arguments behind the buffers."""
_SHARED_ALIGNMENT = 16


def shared_bytes(types: Sequence[Attribute]) -> int:
    """Bytes of workgroup buffers of these types, one behind the other."""
    total = 0
    for kind in types:
        assert isa(kind, MemRefType)
        element = dtype_of(kind.element_type)
        assert element is not None
        total += -(-kind.element_count() * element.itemsize // _SHARED_ALIGNMENT) * _SHARED_ALIGNMENT
    return total


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
            raise refusal(
                self,
                "a kernel without results",
                f"results {type_list(self.function_type.outputs.data)}",
                "pass a memref for each result and store into it",
            )
        if not self.body.blocks:
            raise refusal(self, "a body", "an empty region", "add an entry block that ends with gpu.return")
        self._verify_entry_block()

    def _verify_entry_block(self) -> None:
        inputs = self.function_type.inputs.data
        arguments = self.body.blocks[0].arg_types
        if arguments[: len(inputs)] != inputs:
            raise refusal(
                self,
                f"entry block arguments that begin with the function's inputs {type_list(inputs)}",
                type_list(arguments),
                "make the function type and the entry block agree",
            )
        extra = len(arguments) - len(inputs)
        workgroup = self._workgroup_count
        if not 0 <= workgroup <= extra:
            raise refusal(
                self,
                f"workgroup_attributions between 0 and {extra}, the entry block arguments after the inputs",
                str(workgroup),
                "add a block argument for each workgroup buffer",
            )
        if self.private_attributions is not None and self.private_attributions.value.data != extra - workgroup:
            raise refusal(
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
                raise refusal(
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
                raise refusal(
                    self,
                    f"the property {name} and the attribute gpu.{name} to agree",
                    f"{inherent.get_values()} and {discardable.get_values()}",
                    "remove the attribute",
                )
            sizes = discardable if inherent is None else inherent
            if sizes is not None and (len(sizes) != len(DimensionEnum) or min(sizes.get_values()) < 1):
                raise refusal(
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
        if not isinstance(function, FuncOp) or not isinstance(function.properties.get("function_type"), FunctionType):
            return  # what is wrong with the function is said of it
        if self.args.types != function.function_type.outputs.data:
            raise refusal(
                self,
                f"the results of '{function.sym_name.data}' {type_list(function.function_type.outputs.data)}",
                type_list(self.args.types),
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
            raise refusal(self, "a scalar or a vector of one fixed dimension", str(kind), "shuffle its rows one by one")
