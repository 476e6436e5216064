"""The `fused` dialect: `fused.kernel` is one future kernel, and decisions about it are its properties.

```mlir
%r = fused.kernel(%a = %x : tensor<8x4xf32>, %c = %b : tensor<4xf32>) -> (tensor<8x4xf32>)
    attributes {schedule = {kind = "pointwise"}} {
  %s = graph.add %a, %c : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
  fused.yield %s : tensor<8x4xf32>
}
```
A rewrite that builds a new kernel starts without decisions, so stale ones vanish by construction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from xdsl.dialects.builtin import (
    DenseArrayBase,
    DictionaryAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    TensorType,
    i64,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.fused.gpu_schedule import gpu_entry_problem
from fuse_opt.dialects.interfaces.layouts import check_encoding
from fuse_opt.dialects.interfaces.op import GraphOp, OpClass
from fuse_opt.dialects.interfaces.properties import ints

NOT_IN_ARENA = -1
"""The slot of a result that lives outside the arena: a result of the program or a donated argument."""

STOP_FUSION = "stop_fusion"
"""The directive that ends a kernel: nothing in the kernel of the op reads its results."""

USE_IMPLEMENTATION = "use_implementation"
"""The directive that names what has to run an opaque op."""

RECOMPUTED = "recompute"
"""The attribute of an op that computes again what another one does; a number says for which readers."""

DIRECTIVES = ("no_fuse", "fuse_group", STOP_FUSION, "must_inplace", "no_inplace", "keep_live", USE_IMPLEMENTATION)
"""Attributes by which a person steers the passes; they survive every rewrite or it is refused."""


@irdl_op_definition
class YieldOp(IRDLOperation):
    """The results of a kernel or a partition, in order."""

    name = "fused.yield"
    values = var_operand_def(TensorType)
    traits = traits_def(IsTerminator(), Pure())
    assembly_format = "attr-dict ($values^ `:` type($values))?"

    def verify_(self) -> None:
        if not isinstance(self.parent_op(), OutlinedOp):
            raise VerifyException("'fused.yield' expects parent op to be one of 'fused.kernel', 'fused.partition'")


class OutlinedOp(IRDLOperation, metaclass=OpClass):
    """A region of graph ops on tensors that runs as one, isolated from above; what kernels and partitions have in common."""

    inputs = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)
    body = region_def("single_block")

    implementation = opt_prop_def(StringAttr)
    """Name of the registered implementation that runs it; absent: generated code, or an opaque op's default."""
    unread = opt_prop_def(DenseArrayBase[IntegerType])
    """Operands of which the implementation reads nothing: their memory may be another value's while it runs."""
    inplace = opt_prop_def(DenseArrayBase[IntegerType])
    """Pairs (result, operand): the result takes over the operand's storage."""
    schedule = opt_prop_def(DictionaryAttr)
    """How it runs; `kind` names the scheme, the other entries are its parameters."""
    slots = opt_prop_def(DenseArrayBase[IntegerType])
    """Byte offset in the arena of each result, or -1 when it lives elsewhere."""
    workspace = opt_prop_def(IntegerAttr)
    """Bytes that the implementation takes beside operands and results, while it runs."""
    workspace_slot = opt_prop_def(IntegerAttr)
    """Byte offset in the arena of the workspace."""
    segment = opt_prop_def(IntegerAttr)
    """Bulk segment: kernels of one segment are launched together, without a synchronisation between."""

    NAMES_IMPLEMENTATION: ClassVar[bool] = True
    """Whether a workspace is that of an implementation, which has to be named."""

    traits = traits_def(IsolatedFromAbove(), Pure())

    __hash__ = GraphOp.__hash__

    def __init__(
        self,
        inputs: Sequence[SSAValue],
        result_types: Sequence[Attribute],
        body: Region,
        attributes: dict[str, Attribute] | None = None,
    ) -> None:
        super().__init__(operands=[inputs], result_types=[result_types], regions=[body], attributes=attributes or {})

    @property
    def block(self) -> Block:
        return self.regions[0].block  # its only one; by name it is looked for in the definition

    def ops(self) -> list[GraphOp]:
        """The graph ops of the body, in order, without the terminator."""
        return [op for op in self.block.ops if isinstance(op, GraphOp)]

    def yielded(self) -> Sequence[SSAValue]:
        last = self.block.last_op
        if not isinstance(last, YieldOp):
            raise VerifyException(f"'{self.name}' body must end in 'fused.yield'")
        return last.operands

    def inplace_pairs(self) -> list[tuple[int, int]]:
        """The (result, operand) pairs of the in-place decision."""
        flat = ints(self.inplace)
        return list(zip(flat[::2], flat[1::2], strict=True))

    def read_operands(self) -> Sequence[SSAValue]:
        """The operands whose elements are read."""
        if self.unread is None:
            return self.operands
        unread = ints(self.unread)
        return [value for number, value in enumerate(self.operands) if number not in unread]

    def set_unread(self, numbers: Sequence[int]) -> None:
        """Says which operands the implementation does not read; places in the arena, chosen for others, are dropped."""
        if tuple(numbers) != tuple(ints(self.unread)):
            self.unread = DenseArrayBase.from_list(i64, list(numbers)) if numbers else None
            self.drop_places()

    def workspace_bytes(self) -> int:
        """Bytes of the workspace, 0 without one."""
        return 0 if self.workspace is None else self.workspace.value.data

    def workspace_offset(self) -> int | None:
        """Where a plan puts the workspace; None without a plan."""
        return None if self.workspace_slot is None else self.workspace_slot.value.data

    def set_workspace(self, nbytes: int) -> None:
        """Says how many bytes the implementation takes; places in the arena, chosen for another number, are dropped."""
        if nbytes != self.workspace_bytes():
            self.workspace = IntegerAttr(nbytes, i64) if nbytes else None
            self.drop_places()

    def drop_places(self) -> None:
        """Forgets where the kernel's results and its workspace lie in the arena."""
        self.slots = self.workspace_slot = None

    def drop_decisions(self) -> None:
        """Forgets what was decided about the kernel; for rewrites that change its body or interface."""
        self.properties.clear()

    def schedule_kind(self) -> str | None:
        kind = None if self.schedule is None else self.schedule.data.get("kind")
        return kind.data if isinstance(kind, StringAttr) else None

    def verify_(self) -> None:
        self._verify_body()
        self._verify_interface()
        self._verify_decisions()

    def _verify_body(self) -> None:
        ops = list(self.block.ops)
        if not ops or not isinstance(ops[-1], YieldOp):
            raise VerifyException(f"'{self.name}' body: expected 'fused.yield' as its last op")
        for op in ops[:-1]:
            if not isinstance(op, GraphOp):
                raise VerifyException(
                    f"'{self.name}' body: expected graph ops (or ops that implement their interface), got '{op.name}'; "
                    "move it out of the kernel"
                )

    def _verify_interface(self) -> None:
        arguments = [value.type for value in self.block.args]
        operands = [value.type for value in self.operands]
        if arguments != operands:
            raise VerifyException(
                f"'{self.name}' block arguments: expected {_types(operands)} as its operands, got {_types(arguments)}"
            )
        for value in (*self.operands, *self.results):
            try:
                check_encoding(value)
            except VerifyException as error:
                raise VerifyException(f"'{self.name}' {error}") from error
        yielded = [value.type for value in self.yielded()]
        results = [value.type for value in self.results]
        if yielded != results:
            raise VerifyException(f"'fused.yield' of '{self.name}': expected {_types(results)}, got {_types(yielded)}")

    def _verify_decisions(self) -> None:
        if self.slots is not None and len(ints(self.slots)) != len(self.results):
            raise VerifyException(
                f"'{self.name}' property 'slots': expected {len(self.results)} offsets, one for each result, "
                f"got {len(ints(self.slots))}; remove it and run plan-memory again"
            )
        self._verify_workspace()
        self._verify_unread()
        if self.schedule is not None and self.schedule_kind() is None:
            raise VerifyException(f"'{self.name}' property 'schedule': expected an entry kind = \"...\"")
        if self.schedule is not None and (problem := gpu_entry_problem(self.schedule)) is not None:
            raise VerifyException(f"'{self.name}' property 'schedule', gpu: {problem}")
        if len(ints(self.inplace)) % 2:
            raise VerifyException(f"'{self.name}' property 'inplace': expected pairs of result and operand numbers")
        pairs = self.inplace_pairs()
        for result, operand in pairs:
            if not (0 <= result < len(self.results) and 0 <= operand < len(self.operands)):
                raise VerifyException(
                    f"'{self.name}' property 'inplace': pair ({result}, {operand}) is out of range for "
                    f"{len(self.results)} results and {len(self.operands)} operands"
                )
        if len({r for r, _ in pairs}) != len(pairs) or len({o for _, o in pairs}) != len(pairs):
            raise VerifyException(f"'{self.name}' property 'inplace': a result or an operand is in two pairs")

    def _verify_unread(self) -> None:
        if self.unread is None:
            return
        numbers = ints(self.unread)
        if self.implementation is None or not all(0 <= number < len(self.operands) for number in numbers):
            raise VerifyException(
                f"'{self.name}' property 'unread': expected numbers of operands that its implementation does not read, got "
                f"{list(numbers)} of {len(self.operands)}; remove it and run select-implementation again"
            )

    def _verify_workspace(self) -> None:
        if self.workspace is not None and (self.workspace.type != i64 or self.workspace_bytes() < 1):
            raise VerifyException(
                f"'{self.name}' property 'workspace': expected a number of bytes above 0, as in 4096 : i64, got "
                f"{self.workspace}; remove it and run select-implementation again"
            )
        if self.workspace is not None and self.implementation is None and self.NAMES_IMPLEMENTATION:
            raise VerifyException(
                f"'{self.name}' property 'workspace': expected an implementation that takes it, got none; remove it or "
                "run select-implementation"
            )
        if (slot := self.workspace_slot) is None:
            return
        if self.workspace is None:
            raise VerifyException(
                f"'{self.name}' property 'workspace_slot': expected the property 'workspace' beside it, got none; "
                "remove it and run plan-memory again"
            )
        if slot.type != i64 or slot.value.data < 0:
            raise VerifyException(
                f"'{self.name}' property 'workspace_slot': expected an offset, as in 0 : i64, got {slot}; "
                "remove it and run plan-memory again"
            )

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        def binding() -> tuple[Parser.Argument, UnresolvedOperand]:
            name = parser.parse_argument(expect_type=False)
            parser.parse_punctuation("=")
            operand = parser.parse_unresolved_operand()
            parser.parse_punctuation(":")
            return name.resolve(parser.parse_type()), operand

        position = parser.pos
        bindings = parser.parse_comma_separated_list(parser.Delimiter.PAREN, binding)
        parser.parse_punctuation("->")
        types = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        dictionary = parser.parse_optional_attr_dict_with_keyword()
        attributes: dict[str, Attribute] = {} if dictionary is None else dict(dictionary.data)
        body = parser.parse_region([argument for argument, _ in bindings])
        operands = parser.resolve_operands([o for _, o in bindings], [a.type for a, _ in bindings], position)
        names = cls.get_irdl_definition().properties
        kernel = cls(operands, types, body, {k: v for k, v in attributes.items() if k not in names})
        kernel.properties.update({k: v for k, v in attributes.items() if k in names})
        return kernel

    def print(self, printer: Printer) -> None:
        def binding(pair: tuple[SSAValue, SSAValue]) -> None:
            argument, operand = pair
            printer.print_ssa_value(argument)
            printer.print_string(" = ")
            printer.print_ssa_value(operand)
            printer.print_string(" : ")
            printer.print_attribute(operand.type)

        printer.print_string("(")
        printer.print_list(list(zip(self.block.args, self.operands, strict=True)), binding)
        printer.print_string(") -> (")
        printer.print_list(self.result_types, printer.print_attribute)
        printer.print_string(")")
        if self.properties or self.attributes:
            printer.print_string(" attributes ")
            printer.print_attr_dict({**self.properties, **self.attributes})
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)


@irdl_op_definition
class KernelOp(OutlinedOp):
    """One future kernel."""

    name = "fused.kernel"

    saved = opt_prop_def(DenseArrayBase[IntegerType])
    """
    Results that the implementation leaves beside those of its op, by number: the last ones. Each op that makes some reads
    operands alone, and is no work of its own.
    """

    def saved_ops(self) -> list[GraphOp]:
        """The ops whose results are left beside those of the op that the implementation runs, in the order of results."""
        if self.saved is None:
            return []
        yielded = self.yielded()
        owners = dict.fromkeys(yielded[number].owner for number in ints(self.saved) if number in range(len(yielded)))
        return [op for op in owners if isinstance(op, GraphOp)]

    def _verify_decisions(self) -> None:
        super()._verify_decisions()
        if self.saved is None:
            return
        ops, first = self.saved_ops(), len(self.results) - len(ints(self.saved))
        left = [value for op in ops for value in op.results]
        main = [op for op in self.ops() if op not in ops]
        if (
            self.implementation is None
            or ints(self.saved) != tuple(range(max(first, 1), len(self.results)))
            or list(self.yielded()[first:]) != left
            or not all(isinstance(value, BlockArgument) for op in ops for value in op.operands)
            or len(main) != 1
        ):
            raise VerifyException(
                f"'{self.name}' property 'saved': expected the numbers of the last results, all of what ops beside one op "
                f"make of its operands, and the implementation that leaves them, got {list(ints(self.saved))} of "
                f"{len(self.results)} results; run unfuse and select-composites again"
            )


def _types(types: Sequence[Attribute]) -> str:
    return "(" + ", ".join(map(str, types)) + ")"


def directives(op: Operation) -> dict[str, Attribute]:
    """The directives that a person wrote on an op."""
    return {name: value for name, value in op.attributes.items() if name in DIRECTIVES}
