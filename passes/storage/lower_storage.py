"""Take values of storage kinds apart: every op works on the parts, which are dense tensors like any others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.storage import argument_attributes
from fuse_opt.dialects.analysis.stored_values import PART, part_attribute
from fuse_opt.dialects.graph.sparse.expansion import Flat, over_parts
from fuse_opt.dialects.interfaces.op import GraphBuilder, GraphOp
from fuse_opt.dialects.interfaces.stored_values import is_stored
from fuse_opt.dialects.types.storage_kinds import PARTS, part_types, stored_as
from fuse_opt.passes.decisions.choices import choosing
from fuse_opt.passes.remarks import RefusedError
from fuse_opt.passes.rewrite_pass import RewritePass
from fuse_opt.passes.storage.assign_storage import assign_storage, functions_with_stored


@dataclass(frozen=True)
class LowerStoragePass(RewritePass):
    """A csr or row-sparse value becomes its parts; an op on such values becomes ops on parts.

    ```mlir
    func.func @f(%a: tensor<4x8xf32, #graph.csr<capacity = 9>>, %x: tensor<8x2xf32>) -> tensor<4x2xf32> {
      %0 = graph.relu %a : (tensor<4x8xf32, #graph.csr<capacity = 9>>) -> tensor<4x8xf32, #graph.csr<capacity = 9>>
      %1 = graph.matmul %0, %x : (tensor<4x8xf32, #graph.csr<capacity = 9>>, tensor<8x2xf32>) -> tensor<4x2xf32>
    ```
    becomes
    ```mlir
    func.func @f(%a_indptr: tensor<5xi32> {graph.part = ["indptr", ...]}, %a_indices: tensor<9xi32> {...},
                 %a_values: tensor<9xf32> {...}, %x: tensor<8x2xf32>) -> tensor<4x2xf32> {
      %0 = graph.relu %a_values : (tensor<9xf32>) -> tensor<9xf32>
      %1 = graph.csr_matmul %a_indptr, %a_indices, %0, %x : ... -> tensor<4x2xf32>
    ```
    From here on parts are fused, planned and reused like any tensors; what keeps a pattern reads the same `indptr` and
    `indices`. Attributes of an argument (`graph.frozen`, `graph.donated`) are those of its parts.

    An op that has no way to run on what is stored gets dense operands first, as `assign-storage` does it.

    Ensures: no value of a storage kind is left.
    """

    name = "lower-storage"

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        if functions := functions_with_stored(op):
            with choosing(self.name, op) as choices:
                for function in functions:
                    assign_storage(function, self.name, choices)
                    _Lowering(function).run()


class _Lowering:
    """The change of one function."""

    def __init__(self, function: FuncOp) -> None:
        self._function = function
        self._block = function.body.block
        self._flat: dict[SSAValue, Flat] = {}

    def run(self) -> None:
        known = list(self._block.ops)
        self._take_arguments_apart()
        dead: list[Operation] = []
        for op in known:
            if isinstance(op, ReturnOp):
                self._return(op)
            elif any(map(is_stored, (*op.operands, *op.results))):
                self._lower(op)
                dead.append(op)
        for op in reversed(dead):
            Rewriter.erase_op(op)
        for value in [value for value in self._block.args if is_stored(value)]:
            self._block.erase_arg(value)
        self._function.update_function_type()

    def _of(self, value: SSAValue) -> Flat:
        return self._flat.get(value, (value,))

    def _take_arguments_apart(self) -> None:
        marks: list[DictionaryAttr] = []
        arguments = list(self._block.args)
        known = [dict(argument_attributes(self._function, number)) for number in range(len(arguments))]
        for argument, given in zip(arguments, known, strict=True):
            if not is_stored(argument):
                marks.append(DictionaryAttr(given))
                continue
            parts: list[SSAValue] = []
            for number, type_ in enumerate(part_types(argument.type)):
                part = self._block.insert_arg(type_, argument.index + 1 + number)
                _name(part, argument, number)
                parts.append(part)
                marks.append(DictionaryAttr({**given, PART: part_attribute(argument.type, number)}))
            self._flat[argument] = tuple(parts)
        self._function.arg_attrs = ArrayAttr(marks) if any(mark.data for mark in marks) else None

    def _lower(self, op: Operation) -> None:
        builder = GraphBuilder()
        made = None
        if isinstance(op, GraphOp):
            made = over_parts(op, builder, [self._of(value) for value in op.operands])
        if made is None:
            types = ", ".join(str(value.type) for value in op.operands)
            raise RefusedError(f"'{op.name}' has no way to run on ({types}) as stored", op)
        for inner in builder.ops:
            inner.location = op.location
            self._block.insert_op_before(inner, op)
        self._mark(op, builder)
        for result, flat in zip(op.results, made, strict=True):
            if is_stored(result):
                self._flat[result] = flat
                for number, part in enumerate(flat):
                    _name(part, result, number)
            else:
                flat[0].name_hint = result.name_hint or flat[0].name_hint
                result.replace_all_uses_with(flat[0])

    def _mark(self, op: Operation, builder: GraphBuilder) -> None:
        """Directives, and what counts fallbacks, go to the op that makes the last result."""
        if builder.ops:
            builder.ops[-1].attributes.update(op.attributes)

    def _return(self, op: ReturnOp) -> None:
        if not any(map(is_stored, op.operands)):
            return
        given = _result_attributes(self._function)
        marks: list[DictionaryAttr] = []
        for value, mark in zip(op.operands, given, strict=True):
            if stored_as(value.type) is None:
                marks.append(mark)
                continue
            for number in range(len(PARTS)):
                marks.append(DictionaryAttr({**mark.data, PART: part_attribute(value.type, number)}))
        self._function.res_attrs = ArrayAttr(marks)
        op.operands = [part for value in op.operands for part in self._of(value)]


def _result_attributes(function: FuncOp) -> Sequence[DictionaryAttr]:
    if function.res_attrs is None:
        return [DictionaryAttr({})] * len(function.function_type.outputs)
    return function.res_attrs.data


def _name(part: SSAValue, whole: SSAValue, number: int) -> None:
    if part.name_hint is None and whole.name_hint is not None:
        part.name_hint = f"{whole.name_hint}_{PARTS[number]}"
