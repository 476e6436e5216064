"""What composite records share: their base, and the decompositions that several of them start with."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from .graph_arithmetic import AstypeOp, MultiplyOp, SquareOp, SubtractOp
from .graph_constant import scalar_constant
from .graph_op import AnyTensor, CompositeOp, GraphBuilder, bool_value, dtype, int_array, shape, tensor
from .graph_reductions import SumOp


def mean_of(builder: GraphBuilder, x: SSAValue, axes: Sequence[int], keepdims: bool) -> SSAValue:
    total = builder(SumOp, x, axes=int_array(axes), keepdims=bool_value(keepdims))
    count = prod(shape(x)[axis] for axis in axes)
    return builder(MultiplyOp, total, scalar_constant(builder, 1.0 / count if count else float("nan"), x))


def widened(builder: GraphBuilder, x: SSAValue) -> SSAValue:
    """The value in the type it is computed in: a sum of halves may pass their largest number though its mean does not."""
    given = dtype(x)
    return x if given.compute is given else builder(AstypeOp, x, dtype=given.compute.attribute)


def narrowed(builder: GraphBuilder, value: SSAValue, like: SSAValue) -> SSAValue:
    return value if dtype(value) is dtype(like) else builder(AstypeOp, value, dtype=dtype(like).attribute)


def variance_of(builder: GraphBuilder, x: SSAValue, axes: Sequence[int], keepdims: bool) -> SSAValue:
    """The mean of squared distances from the mean: two passes, exact where one pass would cancel."""
    centred = builder(SubtractOp, x, mean_of(builder, x, axes, True))
    return mean_of(builder, builder(SquareOp, centred), axes, keepdims)


class FloatComposite(CompositeOp):
    """Shape and element type are those of the first operand, which must be of floats."""

    SLACK: ClassVar[float] = 32.0

    def infer_types(self) -> Sequence[AnyTensor]:
        x = self._operands[0]
        for number, value in enumerate(self._operands):
            if not dtype(value).is_float or dtype(value) is not dtype(x):
                raise VerifyException(f"operand {number}: expected floats of one type, got '{value.type}'")
        return (tensor(x),)
