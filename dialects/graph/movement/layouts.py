"""Conversions between layouts: the same elements, in another order in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from xdsl.dialects.builtin import NoneAttr, TensorType
from xdsl.ir import OpResult, SSAValue, SSAValues
from xdsl.irdl import irdl_op_definition, operand_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.bases.movement import ViewOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import AnyTensor, is_static, tensor
from fuse_opt.dialects.interfaces.structured_op import FusionKind
from fuse_opt.dialects.types.encodings import EncodingPart, with_encoding
from fuse_opt.dialects.types.index_expr import Index


@irdl_op_definition
class ToLayoutOp(ViewOp):
    """The same elements at the same indices, lying in memory as the result's type says: a copy in another order.

    `graph.to_layout %x : (tensor<4x8xf32>) -> tensor<4x8xf32, #graph.order<1, 0>>`; the result has the element type and
    the shape of the operand.
    """

    name = "graph.to_layout"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    @classmethod
    def of(cls, value: SSAValue, encoding: EncodingPart | None) -> Self:
        """A value in another layout; in row-major order for None."""
        op = cls.create(operands=[value])
        op.results = SSAValues([OpResult(with_encoding(tensor(value), encoding), op, 0)])
        return op

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        return source

    def encoded_types(self) -> Sequence[AnyTensor]:
        """The layout is the result's own."""
        (type_,) = self.infer_types()
        if not self.results or isinstance(tensor(self.result).encoding, NoneAttr):
            return (type_,)
        return (TensorType(type_.element_type, type_.get_shape(), tensor(self.result).encoding),)

    def check_encodings(self) -> None:
        if not is_static(self.x) and tensor(self.x).encoding != tensor(self.result).encoding:
            raise VerifyException(f"type '{self.x.type}': expected known extents; give them or run infer-shapes")

    def fusion_kind(self) -> FusionKind:
        """Its elements come from other places of memory."""
        return FusionKind.ELEMENTWISE if self.is_alias() else FusionKind.INJECTIVE

    def canonical(self) -> GraphOp | None:
        """Of what the operand was converted from."""
        inner = self.x.owner
        if not isinstance(inner, ToLayoutOp):
            return None
        op = ToLayoutOp.create(operands=[inner.x], result_types=[self.result.type])
        return op

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        return index
