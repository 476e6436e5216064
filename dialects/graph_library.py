"""Opaque records: run as a whole by an implementation (a library, or a kernel of its own)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IntegerAttr, IntegerType, TensorType
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from .dtypes import BOOL
from .graph_elementwise import broadcast_shapes
from .graph_op import AnyTensor, OpaqueOp, dtype, ints, shape, shape_text, tensor


@irdl_op_definition
class MatmulOp(OpaqueOp):
    """Matrix product as in the array API: stacks broadcast over leading axes, a 1-d operand is a row or a column."""

    name = "graph.matmul"
    SLACK: ClassVar[float] = 32.0
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        a, b = shape(self.lhs), shape(self.rhs)
        if len(a) == 0 or len(b) == 0:
            raise VerifyException("expected operands of rank 1 or more, got a scalar")
        if dtype(self.lhs) is not dtype(self.rhs):
            raise VerifyException(f"element types {dtype(self.lhs)} and {dtype(self.rhs)} differ; insert graph.astype")
        if dtype(self.lhs) is BOOL:
            raise VerifyException("expected operands of numbers, got i1; insert graph.astype")
        inner_a, inner_b = a[-1], b[-2] if len(b) > 1 else b[0]
        if inner_a != inner_b and DYNAMIC_INDEX not in (inner_a, inner_b):
            raise VerifyException(
                f"contracted dimensions differ: the last of {shape_text(a)} is {inner_a}, "
                f"that of {shape_text(b)} is {inner_b}; they must be equal"
            )
        result = (*broadcast_shapes([a[:-2], b[:-2]]), *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))
        return (TensorType(tensor(self.lhs).element_type, result),)


@irdl_op_definition
class ConvOp(OpaqueOp):
    """Cross-correlation over 1 to 3 spatial axes: x is N C spatial, weight is O C/groups spatial; pads as in ONNX."""

    name = "graph.conv"
    SLACK: ClassVar[float] = 64.0
    x = operand_def(TensorType)
    weight = operand_def(TensorType)
    result = result_def(TensorType)
    strides = opt_prop_def(DenseArrayBase[IntegerType])
    pads = opt_prop_def(DenseArrayBase[IntegerType])
    dilations = opt_prop_def(DenseArrayBase[IntegerType])
    groups = opt_prop_def(IntegerAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        x, w = shape(self.x), shape(self.weight)
        spatial = len(x) - 2
        if spatial not in (1, 2, 3) or len(w) != len(x) or DYNAMIC_INDEX in (*x[1:], *w):
            raise VerifyException(
                f"expected x [N, C, spatial...] and weight [O, C/groups, spatial...] with 1 to 3 static spatial axes, "
                f"got {shape_text(x)} and {shape_text(w)}"
            )
        if dtype(self.x) is not dtype(self.weight) or not dtype(self.x).is_float:
            raise VerifyException(f"expected floats of one type, got {dtype(self.x)} and {dtype(self.weight)}")
        groups = 1 if self.groups is None else self.groups.value.data
        if groups < 1 or x[1] != w[1] * groups or w[0] % groups:
            raise VerifyException(
                f"x has {x[1]} channels, weight takes {w[1]} in each of {groups} group(s) and gives {w[0]}; "
                f"expected {w[1] * max(groups, 1)} channels and outputs divisible by the groups"
            )
        strides, dilations = ints(self.strides, [1] * spatial), ints(self.dilations, [1] * spatial)
        pads = ints(self.pads, [0] * 2 * spatial)
        for name, values, count in (("strides", strides, spatial), ("dilations", dilations, spatial)):
            if len(values) != count or any(v < 1 for v in values):
                raise VerifyException(f"attribute '{name}': expected {count} positive integers, got {list(values)}")
        if len(pads) != 2 * spatial or any(p < 0 for p in pads):
            raise VerifyException(f"attribute 'pads': expected {2 * spatial} integers >= 0, got {list(pads)}")
        extents = [
            (x[2 + k] + pads[k] + pads[spatial + k] - dilations[k] * (w[2 + k] - 1) - 1) // strides[k] + 1
            for k in range(spatial)
        ]
        if min(extents) < 1:
            raise VerifyException(
                f"the window is larger than the padded input {shape_text(x)}; no output element is left"
            )
        return (TensorType(tensor(self.x).element_type, [x[0], w[0], *extents]),)
