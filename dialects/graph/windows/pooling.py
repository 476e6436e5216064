"""Pooling over the 1 to 3 spatial axes of x [N, C, spatial...], and its backward forms, by reductions of sliding windows.

Attributes are those of ONNX: `kernel_shape`, `strides` (1), `pads` (0; before all axes, then after them), `dilations` (1)
and `ceil_mode` (false). On an axis of n elements a window spans s = dilation * (kernel - 1) + 1 of them and there are
floor((n + pads - s) / stride) + 1 windows; with `ceil_mode` the quotient is rounded up, without windows that would start
in the padding behind. Pads are below s, and every window has an element that is none of the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    BoolAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    IntegerType,
    TensorType,
    i64,
)
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.creation.constant import ConstantOp
from fuse_opt.dialects.graph.elementwise.arithmetic import WhereOp
from fuse_opt.dialects.graph.elementwise.comparison import EqualOp, IsnanOp, LogicalOrOp
from fuse_opt.dialects.graph.movement.views import ReshapeOp
from fuse_opt.dialects.graph.reductions.composite import narrowed, widened
from fuse_opt.dialects.graph.reductions.reductions import MaxOp, MinOp, extreme, require_elements, require_numbers
from fuse_opt.dialects.graph.reductions.statistics import MeanOp
from fuse_opt.dialects.graph.windows.pool_geometry import (
    Pool,
    divided_by_counts,
    flat_places,
    padded_by,
    require_floats,
    spatial_extents,
)
from fuse_opt.dialects.graph.windows.windows import SlidingWindowsOp, WindowMaxOp, WindowSumOp, positive
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import ErrorBound, GraphBuilder
from fuse_opt.dialects.interfaces.properties import bool_value, flag, int_array, ints, shape_attribute
from fuse_opt.dialects.interfaces.shapes import (
    AnyTensor,
    dtype,
    extents_of,
    is_static,
    shape,
    shape_text,
    tensor,
    tensor_type,
)
from fuse_opt.dialects.types.dtypes import I64
from fuse_opt.dialects.types.extents import least


class MaxPooling(Pool):
    x = operand_def(TensorType)
    y = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        require_numbers(self.x)
        return (tensor_type(tensor(self.x).element_type, self.pooled(self.x)),)


@irdl_op_definition
class MaxPoolOp(MaxPooling):
    """The largest element of each window of x [N, C, spatial...]; padding is below all elements, and NaN above.

    Attributes as in ONNX MaxPool: `kernel_shape`, `strides` (1), `pads` (0), `dilations` (1), `ceil_mode` (false).
    """

    name = "graph.max_pool"

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        axes = self.known_axes(spatial_extents(self.x))
        if not is_static(self.x) and all(axis.dilation == 1 and least(axis.extent) > 0 for axis in axes):
            # A window with padding has the elements next to it: to see these twice is less work than to ask where it is.
            padded = padded_by(
                builder, self.x, [axis.low for axis in axes], [axis.behind for axis in axes], mode="edge"
            )
        else:
            padded = self.padded(builder, self.x, axes, extreme(dtype(self.x), False))
        return (builder(WindowMaxOp, padded, **self.windows(axes)),)


@irdl_op_definition
class MaxPoolWithIndicesOp(MaxPooling):
    """`graph.max_pool`, and where in x each largest element lies: the first of several, or the first NaN, as i64.

    Positions count row-major through the spatial axes alone (torch), or with `over_tensor` (false) through all of x (ONNX).
    """

    name = "graph.max_pool_with_indices"
    indices = result_def(TensorType)
    over_tensor = opt_prop_def(BoolAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        (type_,) = super().infer_types()
        return type_, tensor_type(i64, extents_of(type_))

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        axes = self.known_axes(spatial_extents(self.x))
        rank, largest = len(shape(self.x)), int(extreme(I64, True))
        padded = self.padded(builder, self.x, axes, extreme(dtype(self.x), False))
        result = builder(WindowMaxOp, padded, **self.windows(axes))
        places = flat_places(builder, shape(self.x)[0 if flag(self.over_tensor) else 2 :])
        places = self.padded(builder, places, axes, largest)  # padding is never the first
        elements = builder(SlidingWindowsOp, padded, **self.windows(axes))
        wide = builder(ReshapeOp, result, shape=shape_attribute([*shape(result), *[1] * len(axes)]))
        hit = builder(EqualOp, elements, wide)
        if dtype(self.x).is_float:
            hit = builder(LogicalOrOp, hit, builder(IsnanOp, elements))
        beyond = builder(ConstantOp, value=DenseIntOrFPElementsAttr.from_list(TensorType(i64, []), [largest]))
        found = builder(WhereOp, hit, builder(SlidingWindowsOp, places, **self.windows(axes)), beyond)
        return result, builder(MinOp, found, axes=int_array(range(rank, rank + len(axes))))


@irdl_op_definition
class AvgPoolOp(Pool):
    """The mean of each window of x [N, C, spatial...], without the padding or, with `count_include_pad` (false), with it.

    Attributes as in ONNX AveragePool: `kernel_shape`, `strides` (1), `pads` (0), `dilations` (1), `ceil_mode` (false). What
    `ceil_mode` lets a window reach beyond the padding is never counted (torch).
    """

    name = "graph.avg_pool"
    x = operand_def(TensorType)
    y = result_def(TensorType)
    count_include_pad = opt_prop_def(BoolAttr)

    def error_bound(self) -> ErrorBound:
        return ErrorBound(2.0, self.window_elements())

    def infer_types(self) -> Sequence[AnyTensor]:
        require_floats(self.x)
        return (tensor_type(tensor(self.x).element_type, self.pooled(self.x)),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        axes = self.known_axes(spatial_extents(self.x))
        padded = self.padded(builder, widened(builder, self.x), axes, 0)
        total = builder(WindowSumOp, padded, **self.windows(axes))
        mean = divided_by_counts(builder, total, axes, flag(self.count_include_pad))
        return (narrowed(builder, mean, self.x),)


class Whole(CompositeOp):
    """A window that takes in all of the spatial axes."""

    x = operand_def(TensorType)
    y = result_def(TensorType)

    def reduced(self) -> list[int]:
        if len(extents := shape(self.x)) < 3:
            raise VerifyException(f"expected x [N, C, spatial...], got {shape_text(extents)}")
        return list(range(2, len(extents)))

    def infer_types(self) -> Sequence[AnyTensor]:
        ones = [1] * len(self.reduced())
        return (tensor_type(tensor(self.x).element_type, [*shape(self.x)[:2], *ones]),)


@irdl_op_definition
class GlobalMaxPoolOp(Whole):
    """The largest element of each plane of x [N, C, spatial...], as [N, C, 1...] (ONNX GlobalMaxPool); NaN when any is."""

    name = "graph.global_max_pool"

    def infer_types(self) -> Sequence[AnyTensor]:
        require_numbers(self.x)
        type_ = super().infer_types()
        require_elements(self.x, self.reduced(), "pool non-empty planes")
        return type_

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        return (builder(MaxOp, self.x, axes=int_array(self.reduced()), keepdims=bool_value(True)),)


@irdl_op_definition
class GlobalAvgPoolOp(Whole):
    """The mean of each plane of x [N, C, spatial...], as [N, C, 1...] (ONNX GlobalAveragePool); NaN for empty planes."""

    name = "graph.global_avg_pool"

    def error_bound(self) -> ErrorBound:
        return ErrorBound(2.0, 2.0 + max(prod(shape(self.x)[2:]), 0))

    def infer_types(self) -> Sequence[AnyTensor]:
        require_floats(self.x)
        return super().infer_types()

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        return (builder(MeanOp, self.x, axes=int_array(self.reduced()), keepdims=bool_value(True)),)


@irdl_op_definition
class AdaptiveAvgPoolOp(CompositeOp):
    """The means of equal parts of each plane of x [N, C, spatial...], `output_size` of them along the spatial axes (torch).

    The extents must be multiples of `output_size`; else the parts would overlap.
    """

    name = "graph.adaptive_avg_pool"
    x = operand_def(TensorType)
    y = result_def(TensorType)
    output_size = prop_def(DenseArrayBase[IntegerType])

    def error_bound(self) -> ErrorBound:
        return ErrorBound(2.0, prod(max(n, 1) for n in self._parts()))

    def _parts(self) -> list[int]:
        """The extents of a part."""
        extents = spatial_extents(self.x)
        sizes = positive("output_size", self.output_size, len(extents))
        if any(n % size or n == 0 for n, size in zip(extents, sizes, strict=True) if n != DYNAMIC_INDEX):
            raise VerifyException(
                f"attribute 'output_size': expected divisors of the spatial extents {shape_text(extents)}, "
                f"got {list(sizes)}; use graph.avg_pool for other windows"
            )
        return [n if n == DYNAMIC_INDEX else n // size for n, size in zip(extents, sizes, strict=True)]

    def infer_types(self) -> Sequence[AnyTensor]:
        require_floats(self.x)
        self._parts()
        return (tensor_type(tensor(self.x).element_type, [*shape(self.x)[:2], *ints(self.output_size)]),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        parts = int_array(self._parts())
        return (builder(AvgPoolOp, self.x, kernel_shape=parts, strides=parts),)
