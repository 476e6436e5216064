"""The gpu dialect's additions for programs, on any device: an arena, library calls, bulks of launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    I64,
    DenseArrayBase,
    DictionaryAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    NoneAttr,
    StringAttr,
    i8,
    i64,
)
from xdsl.dialects.gpu import (
    LaunchFuncOp,
)
from xdsl.ir import (
    Attribute,
    Block,
    Operation,
    Region,
    SSAValue,
)
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import (
    MemoryAllocEffect,
    NoTerminator,
    Pure,
    RecursiveMemoryEffect,
)
from xdsl.utils.hints import isa

from fuse_opt.dialects.gpu.kernels import refusal, type_list
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.dialects.types.symbolic_shape import SizeAttr


@irdl_op_definition
class ArenaOp(IRDLOperation):
    """The one block of memory, as many bytes as its type says, in which all intermediate buffers of a program live.

    Slots are `memref.view`s of it with constant byte shifts. The runtime allocates it once, at an address that is a
    multiple of `alignment`, and keeps it between calls: its contents are undefined when the program starts.
    """

    name = "gpu.arena"

    alignment = prop_def(IntegerAttr[I64])
    bytes = opt_prop_def(SizeAttr)
    """How many, where its type does not say it."""
    result = result_def(MemRefType)

    # Not free of effects: two equal arenas are two blocks of memory.
    traits = traits_def(MemoryAllocEffect())

    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, size: Extent, alignment: int = 64) -> None:
        sized = isinstance(size, Size)
        super().__init__(
            result_types=[MemRefType(i8, [DYNAMIC_INDEX if sized else size])],
            properties={"alignment": IntegerAttr(alignment, i64), "bytes": SizeAttr(size) if sized else None},
        )

    @property
    def size(self) -> int:
        """Bytes; where the type does not say them a size that answers as numbers do."""
        return self.result.type.get_shape()[0] if self.bytes is None else cast(int, self.bytes.data)

    def verify_(self) -> None:
        kind = self.result.type
        plain = kind.layout == NoneAttr() and kind.memory_space == NoneAttr()
        if (
            kind.element_type != i8
            or kind.get_num_dims() != 1
            or not plain
            or kind.has_static_shape() != (self.bytes is None)
        ):
            raise refusal(
                self, "a result of type memref<Nxi8>", str(kind), "write the number of bytes as its only dimension"
            )
        alignment = self.alignment.value.data
        if alignment < 1 or alignment & (alignment - 1):
            raise refusal(self, "an alignment that is a power of two", str(alignment), "use 64 on CPUs and 256 on GPUs")


def _counts(numbers: Sequence[int | None]) -> DenseArrayBase[I64]:
    return DenseArrayBase.from_list(i64, [-1 if number is None else number for number in numbers])


@irdl_op_definition
class LibraryCallOp(IRDLOperation):
    """A call of a library's routine: reads `ins`, writes all of `outs`.

    `implementation` names the routine in the registry of implementations, `operation` the op it stands for and `config`
    that op's attributes, so that a runtime needs nothing but this op. An output may be one of the inputs where the
    implementation works in place. `workspace` is memory that it works in, whose contents nobody reads. `touched` has, for
    each of `ins` and `outs`, how many elements are read or written at most, -1 for all; where there is one for the first
    output, they hold if that is the first input.
    """

    name = "gpu.library_call"

    implementation = prop_def(StringAttr)
    operation = prop_def(StringAttr)
    config = prop_def(DictionaryAttr, default_value=DictionaryAttr({}))
    touched = opt_prop_def(DenseArrayBase.constr(i64))
    ins = var_operand_def()
    outs = var_operand_def()
    workspace = opt_operand_def()

    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    assembly_format = (
        "$implementation `` `(` $ins `)` `outs` `` `(` $outs `)` attr-dict "
        "`:` `(` type($ins) `)` `outs` `` `(` type($outs) `)` (`workspace` `` `(` $workspace^ `:` type($workspace) `)`)?"
    )

    def __init__(
        self,
        implementation: str,
        operation: str,
        ins: Sequence[SSAValue | Operation],
        outs: Sequence[SSAValue | Operation],
        config: Mapping[str, Attribute] | DictionaryAttr | None = None,
        workspace: SSAValue | None = None,
        touched: Sequence[int | None] = (),
    ) -> None:
        if not isinstance(config, DictionaryAttr):
            config = DictionaryAttr(config or {})
        super().__init__(
            operands=[ins, outs, [] if workspace is None else [workspace]],
            properties={
                "implementation": StringAttr(implementation),
                "operation": StringAttr(operation),
                "config": config,
                "touched": _counts(touched) if touched else None,
            },
        )

    def verify_(self) -> None:
        if self.touched is not None and len(self.touched) != len(self.ins) + len(self.outs):
            count = len(self.ins) + len(self.outs)
            cure = "write one for each input and output, -1 for all of it"
            raise refusal(self, f"{count} numbers in 'touched'", str(len(self.touched)), cure)
        for name, value in (("implementation", self.implementation.data), ("operation", self.operation.data)):
            if not value:
                raise refusal(self, f"a name as its {name}", '""', 'write one, as in "numpy.matmul"')
        if not self.outs:
            raise refusal(
                self, "at least one output buffer", "none", "list the buffers that the routine writes in outs(...)"
            )
        if self.workspace is not None:
            self._verify_workspace(self.workspace.type)
        for group, values in (("input", self.ins), ("output", self.outs)):
            for index, value in enumerate(values):
                if not isinstance(value.type, MemRefType):
                    raise refusal(
                        self,
                        f"a memref as {group} #{index}",
                        str(value.type),
                        "give tensors and scalars a buffer first; a constant scalar belongs in config",
                    )

    def _verify_workspace(self, kind: Attribute) -> None:
        bytes_ = (
            isa(kind, MemRefType) and kind.has_static_shape() and kind.get_num_dims() == 1 and kind.element_type == i8
        )
        if not bytes_:
            raise refusal(self, "bytes as its workspace", str(kind), "give it a view of the arena of type memref<Nxi8>")


@irdl_op_definition
class SizeOp(IRDLOperation):
    """A size of a program that runs for a range of extents, as an index; a call of the program says what it is."""

    name = "gpu.size"

    size = prop_def(SizeAttr)
    result = result_def(IndexType)

    traits = traits_def(Pure())

    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, size: Size) -> None:
        super().__init__(result_types=[IndexType()], properties={"size": SizeAttr(size)})


LAUNCHES: tuple[type[Operation], ...] = (LaunchFuncOp, func.CallOp, LibraryCallOp)
"""The ops that run a kernel: on a GPU, on the CPU, of a library."""

_ADDRESSING: tuple[type[Operation], ...] = (memref.ViewOp, memref.ReinterpretCastOp, arith.ConstantOp, SizeOp)


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
            raise refusal(self, "a segment number of 0 or more", str(segment), "count the segments from 0")
        if self.body.block.args:
            raise refusal(
                self,
                "a body without block arguments",
                type_list(self.body.block.arg_types),
                "use the values from outside directly",
            )
        for op in self.body.block.ops:
            if isinstance(op, BulkOp):
                raise refusal(
                    self,
                    f"no bulk within segment {segment}",
                    f"a nested 'gpu.bulk' of segment {op.segment.value.data}",
                    "move its launches into the outer one, or write the two one after the other",
                )
            if not isinstance(op, LAUNCHES + _ADDRESSING):
                allowed = ", ".join(kind.name for kind in LAUNCHES + _ADDRESSING)
                raise refusal(
                    self,
                    f"only launches and what computes their operands ({allowed}) in segment {segment}",
                    f"'{op.name}'",
                    "move it in front of the segment, or end the segment before it",
                )
