"""Products of tensors that are matrix products after some movement: gemm, linear layers, products of vectors.

The matrix product itself is `graph.matmul` in the operands' own type, which a library computes fast; what follows it is
fused with its reader.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.bases.elementwise import broadcast_shapes
from fuse_opt.dialects.graph.contractions.matmul import MatmulOp
from fuse_opt.dialects.graph.creation.constant import scalar_constant
from fuse_opt.dialects.graph.elementwise.arithmetic import AddOp, MultiplyOp
from fuse_opt.dialects.graph.movement.views import ReshapeOp
from fuse_opt.dialects.graph.reductions.composite import (
    FloatComposite,
    check_shape,
    narrowed,
    number,
    total_of,
    widened,
)
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import ErrorBound, GraphBuilder
from fuse_opt.dialects.interfaces.properties import bool_value, flag, int_array
from fuse_opt.dialects.interfaces.shapes import AnyTensor, agree, dtype, shape, shape_text, tensor, tensor_type
from fuse_opt.dialects.types.dtypes import BOOL


@irdl_op_definition
class GemmOp(FloatComposite):
    """alpha * a @ b + beta * c of matrices a and b and, which may be left out, c that broadcasts to their product (ONNX).

    `alpha` and `beta` are 1 when absent; with `transpose_a` or `transpose_b` (default false) that operand is transposed
    first. With beta 0 c does not count, whatever it holds. Narrow floats are rounded after the product and at the end.
    """

    name = "graph.gemm"
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    c = var_operand_def(TensorType)
    result = result_def(TensorType)
    alpha = opt_prop_def(FloatAttr)
    beta = opt_prop_def(FloatAttr)
    transpose_a = opt_prop_def(BoolAttr)
    transpose_b = opt_prop_def(BoolAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        a, b = shape(self.a), shape(self.b)
        if len(a) != 2 or len(b) != 2 or len(self.c) > 1:
            count = len(self._operands)
            raise VerifyException(
                f"expected matrices a and b and at most the operand c, got {count} operands, {shape_text(a)}, {shape_text(b)}"
            )
        a = a[::-1] if flag(self.transpose_a) else a
        b = b[::-1] if flag(self.transpose_b) else b
        if not agree(a[1:], b[:1]):
            raise VerifyException(
                f"contracted dimensions differ: {shape_text(a)} @ {shape_text(b)}; they must be equal"
            )
        result = (a[0], b[1])
        for value in self.c:
            try:
                joined = broadcast_shapes([result, shape(value)])
            except VerifyException:
                joined = ()
            if not agree(joined, result):
                given = shape_text(shape(value))
                raise VerifyException(
                    f"operand 'c': expected a shape that broadcasts to {shape_text(result)}, got {given}"
                )
        self.check_floats(self._operands)
        return (tensor_type(tensor(self.a).element_type, result),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        orders = {"transpose_lhs": self.transpose_a, "transpose_rhs": self.transpose_b}
        transposed = {name: bool_value(True) for name, value in orders.items() if flag(value)}
        product = builder(MatmulOp, self.a, self.b, **transposed)
        alpha, beta = number(self.alpha, 1.0), number(self.beta, 1.0)
        result = widened(builder, product)
        if alpha != 1:
            result = builder(MultiplyOp, result, scalar_constant(builder, alpha, result))
        for value in self.c if beta else ():
            added = widened(builder, value)
            if beta != 1:
                added = builder(MultiplyOp, added, scalar_constant(builder, beta, added))
            result = builder(AddOp, result, added)
        return (narrowed(builder, result, self.a),)


@irdl_op_definition
class LinearOp(FloatComposite):
    """x @ transpose(weight) + bias: x [..., K], weight [M, K] and, which may be left out, bias [M] (torch's linear).

    Narrow floats are rounded after the product and at the end.
    """

    name = "graph.linear"
    x = operand_def(TensorType)
    weight = operand_def(TensorType)
    bias = var_operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        x, weight = shape(self.x), shape(self.weight)
        if not x or len(weight) != 2 or not agree(x[-1:], weight[1:]):
            raise VerifyException(
                f"expected x [..., K] and weight [M, K], got {shape_text(x)} and {shape_text(weight)}"
            )
        if len(self.bias) > 1:
            raise VerifyException(f"expected at most the operand bias behind weight, got {len(self.bias)}")
        for value in self.bias:
            check_shape("bias", value, weight[:1])
        self.check_floats(self._operands)
        return (tensor_type(tensor(self.x).element_type, (*x[:-1], weight[0])),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        result = builder(MatmulOp, self.x, self.weight, transpose_rhs=bool_value(True))
        for value in self.bias:
            result = builder(AddOp, result, value)
        return (result,)


class NumberProduct(CompositeOp):
    """A product of numbers of one type; integers wrap."""

    def check_numbers(self) -> None:
        """Raises VerifyException unless all operands are of one type of numbers."""
        first = dtype(self._operands[0])
        for place, value in enumerate(self._operands):
            if dtype(value) is not first or first is BOOL or first.storage_only:
                raise VerifyException(
                    f"operand {place}: expected numbers of one type, got '{value.type}'; insert graph.astype"
                )


@irdl_op_definition
class OuterOp(NumberProduct):
    """Every product a[i] * b[j] of the elements of two vectors (array API, linalg.outer)."""

    name = "graph.outer"
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        a, b = shape(self.a), shape(self.b)
        if len(a) != 1 or len(b) != 1:
            raise VerifyException(f"expected vectors, got {shape_text(a)} and {shape_text(b)}")
        self.check_numbers()
        return (tensor_type(tensor(self.a).element_type, [*a, *b]),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        column = builder(ReshapeOp, self.a, shape=int_array([*shape(self.a), 1]))
        return (builder(MultiplyOp, column, self.b),)


@irdl_op_definition
class VecdotOp(NumberProduct):
    """The sum of a * b over `axis` (-1), counted from the end, of operands that broadcast on all other axes (array API).

    Narrow floats are computed in f32 and rounded once. Over an empty axis the result is 0.
    """

    name = "graph.vecdot"
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    result = result_def(TensorType)
    axis = opt_prop_def(IntegerAttr)

    def _axis(self) -> int:
        return -1 if self.axis is None else self.axis.value.data

    def infer_types(self) -> Sequence[AnyTensor]:
        a, b, axis = shape(self.a), shape(self.b), self._axis()
        if not -min(len(a), len(b)) <= axis < 0:
            lowest = -min(len(a), len(b))
            raise VerifyException(f"attribute 'axis': expected {lowest} <= axis < 0, got {axis}")
        if not agree(a[axis:][:1], b[axis:][:1]):
            raise VerifyException(f"the extents of axis {axis} of {shape_text(a)} and {shape_text(b)} must be equal")
        self.check_numbers()
        extents = broadcast_shapes([a, b])
        place = len(extents) + axis
        return (tensor_type(tensor(self.a).element_type, extents[:place] + extents[place + 1 :]),)

    def error_bound(self) -> ErrorBound:
        return ErrorBound(1.0, 4.0 + 2.0 * max(shape(self.a)[self._axis()], 0) if dtype(self.a).is_float else 0.0)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        product = builder(MultiplyOp, widened(builder, self.a), widened(builder, self.b))
        result = total_of(builder, product, [len(shape(product)) + self._axis()])
        return (narrowed(builder, result, self.a),)
