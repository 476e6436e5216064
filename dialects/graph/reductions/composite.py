"""What composite ops share: their base, and the decompositions that several of them start with."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import FloatAttr, StringAttr
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.creation.constant import scalar_constant
from fuse_opt.dialects.graph.creation.filled import ReciprocalOfSizeOp
from fuse_opt.dialects.graph.elementwise.arithmetic import (
    AddOp,
    AstypeOp,
    DivideOp,
    MultiplyOp,
    ReciprocalOp,
    SquareOp,
    SubtractOp,
)
from fuse_opt.dialects.graph.elementwise.math import ExpOp, RsqrtOp
from fuse_opt.dialects.graph.movement.views import ReshapeOp
from fuse_opt.dialects.graph.reductions.reductions import MaxOp, SumOp
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import bool_value, extents_array, int_array
from fuse_opt.dialects.interfaces.shapes import AnyTensor, agree, dtype, shape, shape_text, tensor, tensor_type
from fuse_opt.dialects.types.size import Size
from fuse_opt.dialects.types.symbolic_shape import SizeAttr


def number(attribute: FloatAttr | None, default: float) -> float:
    """The number of an attribute, or the default when it is absent."""
    return default if attribute is None else attribute.value.data


def choice(name: str, attribute: StringAttr | None, allowed: Sequence[str]) -> str:
    """The word of an attribute, the first allowed when it is absent; raises VerifyException when it is none of them."""
    word = allowed[0] if attribute is None else attribute.data
    if word not in allowed:
        names = " or ".join(f'"{known}"' for known in allowed)
        raise VerifyException(f"attribute '{name}': expected {names}, got \"{word}\"")
    return word


def check_shape(name: str, value: SSAValue, expected: Sequence[int]) -> None:
    """Raises VerifyException unless the operand called `name` is of this shape, as far as both are known."""
    if not agree(shape(value), expected):
        given = shape_text(shape(value))
        raise VerifyException(f"operand '{name}': expected shape {shape_text(expected)}, got {given}")


def check_parameters(
    x: SSAValue, extents: Sequence[int], parameters: Sequence[SSAValue], names: Sequence[str]
) -> AnyTensor:
    """The type of parameters of x; raises VerifyException when those given are not named or not of these extents."""
    if len(parameters) > len(names):
        raise VerifyException(f"expected at most the operands {', '.join(names)} behind x, got {len(parameters)}")
    for name, value in zip(names, parameters, strict=False):
        check_shape(name, value, extents)
    return tensor_type(tensor(x).element_type, extents)


def total_of(builder: GraphBuilder, x: SSAValue, axes: Sequence[int], keepdims: bool = False) -> SSAValue:
    """The sum over axes; over none, the value itself."""
    return builder(SumOp, x, axes=int_array(axes), keepdims=bool_value(keepdims)) if axes else x


def mean_of(builder: GraphBuilder, x: SSAValue, axes: Sequence[int], keepdims: bool) -> SSAValue:
    total = builder(SumOp, x, axes=int_array(axes), keepdims=bool_value(keepdims))
    return builder(MultiplyOp, total, share_of(builder, 1.0, prod(shape(x)[axis] for axis in axes), x))


def share_of(builder: GraphBuilder, value: float, count: float | Size, like: SSAValue) -> SSAValue:
    """A number over a count, as a 0-d value of the type of `like`; NaN over 0."""
    if not isinstance(count, Size):
        return scalar_constant(builder, value / count if count else float("nan"), like)
    factor = builder(ReciprocalOfSizeOp, size=SizeAttr(count), dtype=dtype(like).compute.attribute)
    share = factor if value == 1 else builder(MultiplyOp, factor, scalar_constant(builder, value, factor))
    return narrowed(builder, share, like)


def divided(builder: GraphBuilder, x: SSAValue, divisor: float | Size) -> SSAValue:
    """A floating-point value over a number, or over a size by its reciprocal."""
    if isinstance(divisor, Size):
        return builder(MultiplyOp, x, share_of(builder, 1.0, divisor, x))
    return builder(DivideOp, x, scalar_constant(builder, divisor, x))


def widened(builder: GraphBuilder, x: SSAValue) -> SSAValue:
    """The value in the type it is computed in: a sum of halves may pass their largest number though its mean does not."""
    given = dtype(x)
    return x if given.compute is given else builder(AstypeOp, x, dtype=given.compute.attribute)


def narrowed(builder: GraphBuilder, value: SSAValue, like: SSAValue) -> SSAValue:
    return value if dtype(value) is dtype(like) else builder(AstypeOp, value, dtype=dtype(like).attribute)


def scaled(builder: GraphBuilder, x: SSAValue, parameters: Sequence[SSAValue]) -> SSAValue:
    """x * scale + bias, as far as the parameters go."""
    for op_type, value in zip((MultiplyOp, AddOp), parameters, strict=False):
        x = builder(op_type, x, value)
    return x


def inverse_root(builder: GraphBuilder, x: SSAValue, epsilon: float) -> SSAValue:
    """1 / sqrt(x + epsilon)."""
    return builder(RsqrtOp, builder(AddOp, x, scalar_constant(builder, epsilon, x)))


def standardized(builder: GraphBuilder, x: SSAValue, axes: Sequence[int], epsilon: float) -> tuple[SSAValue, SSAValue]:
    """(x - mean) / sqrt(variance + epsilon) over axes, and the factor 1 / sqrt(variance + epsilon)."""
    centred = builder(SubtractOp, x, mean_of(builder, x, axes, True))
    variance = mean_of(builder, builder(SquareOp, centred), axes, True)
    factor = inverse_root(builder, variance, epsilon)
    return builder(MultiplyOp, centred, factor), factor


def standardized_gradient(
    builder: GraphBuilder, grad: SSAValue, normal: SSAValue, factor: SSAValue, axes: Sequence[int]
) -> SSAValue:
    """The gradient before `standardized`, of that behind it: without its mean and its part along the normalised values."""
    along = mean_of(builder, builder(MultiplyOp, grad, normal), axes, True)
    rest = builder(SubtractOp, grad, mean_of(builder, grad, axes, True))
    return builder(MultiplyOp, factor, builder(SubtractOp, rest, builder(MultiplyOp, normal, along)))


def softmax_of(builder: GraphBuilder, x: SSAValue, axis: int) -> SSAValue:
    """exp(x - max) * (1 / sum(exp(x - max))) along an axis that is not empty."""
    axes, keep = int_array([axis]), bool_value(True)
    weights = builder(ExpOp, builder(SubtractOp, x, builder(MaxOp, x, axes=axes, keepdims=keep)))
    return shares_of(builder, weights, builder(SumOp, weights, axes=axes, keepdims=keep))


def shares_of(builder: GraphBuilder, parts: SSAValue, total: SSAValue) -> SSAValue:
    """Parts of totals that are at least 1, or NaN: by one reciprocal of each total, which cannot overflow."""
    return builder(MultiplyOp, parts, builder(ReciprocalOp, total))


def reshaped(builder: GraphBuilder, x: SSAValue, extents: Sequence[int]) -> SSAValue:
    return x if shape(x) == tuple(extents) else builder(ReshapeOp, x, shape=extents_array(extents))


def on_axis(builder: GraphBuilder, value: SSAValue, axis: int, rank: int) -> SSAValue:
    """A tensor of rank 1 as one of a higher rank: its elements lie along `axis`, all other extents are 1."""
    if axis == rank - 1:
        return value  # broadcasting aligns it
    extents = [1] * rank
    extents[axis] = shape(value)[0]
    return builder(ReshapeOp, value, shape=extents_array(extents))


class FloatComposite(CompositeOp):
    """Shape and element type are those of the first operand, which must be of floats."""

    SLACK: ClassVar[float] = 32.0

    def infer_types(self) -> Sequence[AnyTensor]:
        self.check_floats(self._operands)
        return (tensor(self._operands[0]),)

    def check_floats(self, values: Sequence[SSAValue], first: int = 0) -> None:
        """Raises VerifyException unless the values, operands from number `first` on, are floats of one type."""
        for place, value in enumerate(values, start=first):
            given = dtype(value)
            if not given.is_float or given is not dtype(self._operands[0]):
                raise VerifyException(
                    f"operand {place}: expected floats of one type, got '{value.type}'; insert graph.astype"
                )
