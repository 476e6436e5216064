"""Refine result types from operand types: dimensions that are `?` become known where they follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import DYNAMIC_INDEX, FunctionType, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.symbolic_shapes import symbolic_shapes
from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import AnyTensor, shape
from fuse_opt.passes.remarks import is_collecting, remark
from fuse_opt.passes.rewrite_pass import RewritePass


@dataclass(frozen=True)
class InferShapesPass(RewritePass):
    """Carries shapes forward through ops, kernels and function results.

    ```mlir
    %r = graph.exp %x : (tensor<8xf32>) -> tensor<?xf32>   // becomes -> tensor<8xf32>
    ```
    Ops whose types are known already are not touched. Nothing is made less precise.
    """

    name = "infer-shapes"

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for function in op.walk():
            if isinstance(function, FuncOp) and not function.is_declaration:
                for block in function.body.blocks:
                    _refine_block(block)
                _refine_signature(function)
                if is_collecting():
                    self._report(function)

    def _report(self, function: FuncOp) -> None:
        """How unknown extents follow from those of the arguments."""
        shapes = symbolic_shapes(function)
        for value in shapes.extents:
            if isinstance(value, OpResult) and _is_dynamic(value):
                numbers = {"result": value.index, "shape": shapes.text(value) or "?"}
                remark(
                    self.name,
                    value.op,
                    "symbolic-shape",
                    "has a shape that follows from the arguments':",
                    numbers=numbers,
                )


def _refine_block(block: Block) -> None:
    """Operands come before users, so one sweep carries every known extent as far as it goes."""
    for op in list(block.ops):
        if isinstance(op, GraphOp) and any(map(_is_dynamic, op.results)):
            for result, type_ in zip(list(op.results), op.infer_types(), strict=True):
                _refine(result, type_)
        elif isinstance(op, OutlinedOp):
            for argument, operand in zip(list(op.block.args), op.operands, strict=True):
                _refine(argument, operand.type)
            _refine_block(op.block)
            for result, value in zip(list(op.results), op.yielded(), strict=True):
                _refine(result, value.type)


def _is_dynamic(value: SSAValue) -> bool:
    return DYNAMIC_INDEX in shape(value)


def _refine(value: OpResult | BlockArgument, type_: Attribute) -> None:
    """Gives the value a type of which more extents are known."""
    given = value.type
    if not isinstance(type_, TensorType) or not isinstance(given, TensorType):
        return
    mine, other = cast(AnyTensor, given), cast(AnyTensor, type_)
    extents = [a if a != DYNAMIC_INDEX else b for a, b in zip(mine.get_shape(), other.get_shape(), strict=True)]
    refined = TensorType(mine.element_type, extents, mine.encoding)
    if refined != mine:
        Rewriter.replace_value_with_new_type(value, refined)


def _refine_signature(function: FuncOp) -> None:
    last: Operation | None = function.body.block.last_op
    if last is None:
        return
    outputs = [value.type for value in last.operands]
    if outputs != list(function.function_type.outputs):
        function.properties["function_type"] = FunctionType.from_lists(list(function.function_type.inputs), outputs)
