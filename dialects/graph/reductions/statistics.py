"""Statistics, norms and extreme positions over axes, defined by decomposition.

All take `axes` (all when absent, none when empty) and `keepdims` (false), which leaves the axes with extent 1.
f16 and bf16 are computed in f32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import (
    BoolAttr,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    TensorType,
    i64,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def

from fuse_opt.dialects.graph.creation.constant import ConstantOp, number_of, scalar_constant
from fuse_opt.dialects.graph.creation.filled import FullOp, IotaOp
from fuse_opt.dialects.graph.elementwise.arithmetic import AddOp, DivideOp, MultiplyOp, SquareOp, SubtractOp, WhereOp
from fuse_opt.dialects.graph.elementwise.comparison import EqualOp, IsfiniteOp, IsnanOp, LogicalOrOp
from fuse_opt.dialects.graph.elementwise.math import ExpOp, LogOp, SqrtOp
from fuse_opt.dialects.graph.movement.views import ReshapeOp
from fuse_opt.dialects.graph.reductions.composite import (
    FloatComposite,
    mean_of,
    narrowed,
    share_of,
    total_of,
    widened,
)
from fuse_opt.dialects.graph.reductions.reductions import (
    MaxOp,
    MinOp,
    OverAxes,
    SumSquaresOp,
    reduced_shape,
    require_elements,
    require_numbers,
)
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import ErrorBound, GraphBuilder
from fuse_opt.dialects.interfaces.properties import (
    bool_value,
    extents_array,
    flag,
    int_array,
    int_value,
    normalize_axis,
    shape_attribute,
)
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, extents_of, shape, tensor_type
from fuse_opt.dialects.types.dtypes import F64
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.dialects.types.symbolic_shape import SizeAttr


class Statistic(OverAxes, FloatComposite):
    """A number for the elements over `axes`."""

    x = operand_def(TensorType)
    result = result_def(TensorType)

    def count(self) -> int:
        """How many elements each result is of."""
        return prod(shape(self.x)[axis] for axis in self.reduced_axes())

    def error_bound(self) -> ErrorBound:
        """An error at each element summed up, next to those of the few other steps."""
        return ErrorBound(1.0, self.SLACK + max(self.count(), 0))

    def without_kept(self, builder: GraphBuilder, value: SSAValue) -> SSAValue:
        """A value that has extents of 1, in the shape of the result."""
        if flag(self.keepdims) or not self.reduced_axes():
            return value
        return builder(ReshapeOp, value, shape=int_array(reduced_shape(shape(self.x), self.reduced_axes(), False)))

    def infer_types(self) -> Sequence[AnyTensor]:
        (full,) = super().infer_types()
        extents = reduced_shape(extents_of(full), self.reduced_axes(), flag(self.keepdims))
        return (tensor_type(full.element_type, extents),)


@irdl_op_definition
class MeanOp(Statistic):
    """The arithmetic mean over `axes` (all when absent), which `keepdims` leaves with extent 1; NaN over no elements."""

    name = "graph.mean"

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        mean = mean_of(builder, widened(builder, self.x), self.reduced_axes(), flag(self.keepdims))
        return (narrowed(builder, mean, self.x),)


class Spread(Statistic):
    """What follows from the squared distances from the mean."""

    correction = opt_prop_def(Attribute)

    def _correction(self) -> float:
        return float(number_of("correction", self.correction, F64))

    def infer_types(self) -> Sequence[AnyTensor]:
        self._correction()
        return super().infer_types()

    def spread(self, builder: GraphBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The variance, and the mean with extents of 1, of a widened operand: two passes, where one would cancel."""
        axes = self.reduced_axes()
        mean = mean_of(builder, x, axes, True)
        total = total_of(builder, builder(SquareOp, builder(SubtractOp, x, mean)), axes, flag(self.keepdims))
        count, correction = self.count(), self._correction()
        degrees = count - (int(correction) if correction.is_integer() else correction)
        if isinstance(degrees, Size) or degrees > 0:  # of none the total is 0, and over 0 as it is by numbers
            return builder(MultiplyOp, total, share_of(builder, 1.0, degrees, x)), mean
        return builder(DivideOp, total, scalar_constant(builder, 0.0, x)), mean


@irdl_op_definition
class VarOp(Spread):
    """The sum of squared distances from the mean over `axes` (all when absent), divided by count - `correction` (0).

    A divisor that is not positive counts as 0: NaN where all elements are equal or there are none, else infinity, as in
    torch. `correction` 1 gives the sample variance; `keepdims` leaves the axes with extent 1. The error of the mean enters
    squared: digits are lost where the elements lie far from 0 next to their spread.
    """

    name = "graph.var"

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        variance, _ = self.spread(builder, widened(builder, self.x))
        return (narrowed(builder, variance, self.x),)


@irdl_op_definition
class StdOp(Spread):
    """The square root of `graph.var` over `axes` (all when absent), with its `correction` (0) and `keepdims` (false)."""

    name = "graph.std"

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        variance, _ = self.spread(builder, widened(builder, self.x))
        return (narrowed(builder, builder(SqrtOp, variance), self.x),)


@irdl_op_definition
class VarMeanOp(Spread):
    """Two results, `graph.var` and `graph.mean` over `axes` (all when absent), with `correction` (0) and `keepdims` (false).

    The order is torch's `var_mean`.
    """

    name = "graph.var_mean"
    mean = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        (type_,) = super().infer_types()
        return type_, type_

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        variance, mean = self.spread(builder, widened(builder, self.x))
        mean = self.without_kept(builder, mean)
        return narrowed(builder, variance, self.x), narrowed(builder, mean, self.x)


@irdl_op_definition
class LogsumexpOp(Statistic):
    """log(sum(exp(x))) over `axes` (all when absent), which `keepdims` leaves with extent 1, without overflow on the way.

    The largest element m is taken out: m + log(sum(exp(x - m))). Only -inf, and nothing, gives -inf; any inf gives inf.
    """

    name = "graph.logsumexp"

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        x, axes, keep = widened(builder, self.x), self.reduced_axes(), flag(self.keepdims)
        if not self.count():
            result = builder(LogOp, total_of(builder, builder(ExpOp, x), axes, keep))
            return (narrowed(builder, result, self.x),)
        largest = builder(MaxOp, x, axes=int_array(axes), keepdims=bool_value(True))
        zero = scalar_constant(builder, 0.0, x)
        shift = builder(WhereOp, builder(IsfiniteOp, largest), largest, zero)  # inf - inf would be NaN
        total = total_of(builder, builder(ExpOp, builder(SubtractOp, x, shift)), axes, True)
        result = builder(AddOp, builder(LogOp, total), shift)
        return (narrowed(builder, self.without_kept(builder, result), self.x),)


@irdl_op_definition
class Norm2Op(Statistic):
    """sqrt(sum(x * x)) over `axes` (all when absent), which `keepdims` leaves with extent 1; 0 over no elements.

    Squares of large elements overflow to infinity, those of small ones underflow to 0. ONNX ReduceL2.
    """

    name = "graph.norm2"

    def error_bound(self) -> ErrorBound:
        return ErrorBound(2.0 + max(self.count(), 0), 1.0)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        axes = int_array(self.reduced_axes())
        total = builder(SumSquaresOp, widened(builder, self.x), axes=axes, keepdims=bool_value(flag(self.keepdims)))
        return (narrowed(builder, builder(SqrtOp, total), self.x),)


class ExtremePosition(CompositeOp):
    """Where the extreme element lies along `axis`, or in row-major order when there is none."""

    x = operand_def(TensorType)
    result = result_def(TensorType)
    axis = opt_prop_def(IntegerAttr)
    keepdims = opt_prop_def(BoolAttr)

    EXTREME: ClassVar[type[MaxOp] | type[MinOp]]

    def _axes(self) -> tuple[int, ...]:
        rank = len(shape(self.x))
        return tuple(range(rank)) if self.axis is None else (normalize_axis(self.axis.value.data, rank),)

    def infer_types(self) -> Sequence[AnyTensor]:
        source, axes = shape(self.x), self._axes()
        require_numbers(self.x)
        require_elements(self.x, axes, "search non-empty axes")
        return (tensor_type(i64, reduced_shape(source, axes, flag(self.keepdims))),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        source, x = shape(self.x), self.x
        if self.axis is None and len(source) != 1:
            x = builder(ReshapeOp, x, shape=extents_array([prod(source)]))
        (axis,) = (0,) if self.axis is None else self._axes()
        axes, extents = int_array([axis]), [n if k == axis else 1 for k, n in enumerate(shape(x))]
        hit = builder(EqualOp, x, builder(self.EXTREME, x, axes=axes, keepdims=bool_value(True)))
        if dtype(x).is_float:
            hit = builder(LogicalOrOp, hit, builder(IsnanOp, x))
        places = builder(IotaOp, shape=shape_attribute(extents), axis=int_value(axis), dtype=i64)
        beyond = self._number(builder, extents[axis])
        found = builder(
            MinOp, builder(WhereOp, hit, places, beyond), axes=axes, keepdims=bool_value(flag(self.keepdims))
        )
        (type_,) = self.infer_types()
        if self.axis is None and flag(self.keepdims) and len(source) != 1:
            found = builder(ReshapeOp, found, shape=extents_array(extents_of(type_)))
        return (found,)

    def _number(self, builder: GraphBuilder, extent: Extent) -> SSAValue:
        if isinstance(extent, Size):
            return builder(FullOp, shape=int_array([]), dtype=i64, value=SizeAttr(extent))
        return builder(ConstantOp, value=DenseIntOrFPElementsAttr.from_list(TensorType(i64, []), [extent]))


@irdl_op_definition
class ArgmaxOp(ExtremePosition):
    """The position of the largest element along `axis` as i64, the first of several; NaN is above all others (NumPy).

    Without an axis it is the position in row-major order. `keepdims` leaves the axis (or all) with extent 1. Empty axes are
    refused.
    """

    name = "graph.argmax"
    EXTREME: ClassVar[type[MaxOp] | type[MinOp]] = MaxOp


@irdl_op_definition
class ArgminOp(ExtremePosition):
    """The position of the smallest element along `axis` as i64, the first of several; NaN is below all others (NumPy).

    Without an axis it is the position in row-major order. `keepdims` leaves the axis (or all) with extent 1. Empty axes are
    refused.
    """

    name = "graph.argmin"
    EXTREME: ClassVar[type[MaxOp] | type[MinOp]] = MinOp
