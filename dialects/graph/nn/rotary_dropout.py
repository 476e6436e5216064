"""Layers without parameters: rotary embedding, dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DYNAMIC_INDEX, BoolAttr, FloatAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.bases.elementwise import broadcast_shapes
from fuse_opt.dialects.graph.bases.movement import slice_properties
from fuse_opt.dialects.graph.creation.constant import scalar_constant
from fuse_opt.dialects.graph.elementwise.arithmetic import AddOp, MultiplyOp, SubtractOp, WhereOp
from fuse_opt.dialects.graph.movement.join_split import ConcatOp, StackOp
from fuse_opt.dialects.graph.movement.views import ReshapeOp, SliceOp
from fuse_opt.dialects.graph.reductions.composite import FloatComposite, check_shape, narrowed, number, widened
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import flag, int_array, int_value
from fuse_opt.dialects.interfaces.shapes import AnyTensor, agree, dtype, shape, shape_text, tensor
from fuse_opt.dialects.types.dtypes import BOOL


@irdl_op_definition
class RotaryEmbeddingOp(FloatComposite):
    """Pairs (a, b) of the last axis rotated by angles: (a * cos - b * sin, b * cos + a * sin) (Su et al. 2021).

    Operands are x [..., S, D] and `cos`, `sin` of a shape that broadcasts to [..., S, R / 2], R being `rotary_dim` (D when
    absent, even): the elements from R on stay. Element i is paired with i + R / 2, or with `interleaved` (default false)
    2 * i with 2 * i + 1 (ONNX RotaryEmbedding). The gradient of x is the same op on that of the result with -sin.
    """

    name = "graph.rotary_embedding"
    x = operand_def(TensorType)
    cos = operand_def(TensorType)
    sin = operand_def(TensorType)
    result = result_def(TensorType)
    interleaved = opt_prop_def(BoolAttr)
    rotary_dim = opt_prop_def(IntegerAttr)

    def _transposed(self) -> int:
        """The elements of a row that are rotated."""
        extents = shape(self.x)
        if not extents or extents[-1] == DYNAMIC_INDEX:
            raise VerifyException(f"expected x [..., D] with a static last extent, got {shape_text(extents)}")
        count = extents[-1] if self.rotary_dim is None else self.rotary_dim.value.data
        if count < 0 or count > extents[-1] or count % 2:
            raise VerifyException(f"attribute 'rotary_dim': expected an even number of 0 to {extents[-1]}, got {count}")
        return count

    def infer_types(self) -> Sequence[AnyTensor]:
        half = (*shape(self.x)[:-1], self._transposed() // 2)
        for name, value in (("cos", self.cos), ("sin", self.sin)):
            try:
                joined = broadcast_shapes([shape(value), half])
            except VerifyException:
                joined = ()
            if not agree(joined, half):
                given = shape_text(shape(value))
                raise VerifyException(
                    f"operand '{name}': expected a shape that broadcasts to {shape_text(half)}, got {given}"
                )
        return super().infer_types()

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        x, cos, sin = (widened(builder, value) for value in self._operands)
        extents, count = shape(x), self._transposed()
        apart = flag(self.interleaved)
        places = (range(0, count, 2), range(1, count, 2)) if apart else (range(count // 2), range(count // 2, count))
        a, b = (_part(builder, x, place) for place in places)
        transposed = (
            builder(SubtractOp, builder(MultiplyOp, a, cos), builder(MultiplyOp, b, sin)),
            builder(AddOp, builder(MultiplyOp, b, cos), builder(MultiplyOp, a, sin)),
        )
        last = int_value(len(extents) - 1)
        if apart:
            pairs = builder(StackOp, *transposed, axis=int_value(len(extents)))
            transposed = (builder(ReshapeOp, pairs, shape=int_array([*extents[:-1], count])),)
        result = builder(ConcatOp, *transposed, _part(builder, x, range(count, extents[-1])), axis=last)
        return (narrowed(builder, result, self.x),)


def _part(builder: GraphBuilder, x: SSAValue, places: range) -> SSAValue:
    """The elements at some places of the last axis."""
    extents = shape(x)
    return builder(SliceOp, x, **slice_properties([*map(range, extents[:-1]), places], extents))


@irdl_op_definition
class DropoutOp(FloatComposite):
    """x / (1 - p) where the i1 `mask` holds, else 0, whatever x is (Srivastava et al. 2014); `p` is 0.5 when absent.

    With p 1 the result is 0. The gradient of x is the same op on that of the result, with the same mask.
    """

    name = "graph.dropout"
    SLACK: ClassVar[float] = 2.0
    x = operand_def(TensorType)
    mask = operand_def(TensorType)
    result = result_def(TensorType)
    p = opt_prop_def(FloatAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        check_shape("mask", self.mask, shape(self.x))
        if dtype(self.mask) is not BOOL:
            raise VerifyException(f"operand 'mask': expected elements of i1, got '{self.mask.type}'")
        if not 0 <= (p := number(self.p, 0.5)) <= 1:
            raise VerifyException(f"attribute 'p': expected 0 to 1, got {p}")
        self.check_floats([self.x])
        return (tensor(self.x),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        x, zero = widened(builder, self.x), scalar_constant(builder, 0.0, self.x)
        if (p := number(self.p, 0.5)) == 1:
            return (builder(WhereOp, self.mask, zero, zero),)
        scaled = builder(MultiplyOp, x, scalar_constant(builder, 1 / (1 - p), x))
        return (builder(WhereOp, self.mask, narrowed(builder, scaled, self.x), zero),)
