"""Backward forms of pooling: each element gathers from the windows that hold it, so nothing is scattered."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    BoolAttr,
    DenseArrayBase,
    IntegerType,
    TensorType,
)
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.creation.constant import scalar_constant
from fuse_opt.dialects.graph.elementwise.arithmetic import WhereOp
from fuse_opt.dialects.graph.elementwise.comparison import EqualOp
from fuse_opt.dialects.graph.movement.views import ReshapeOp, SliceOp
from fuse_opt.dialects.graph.reductions.composite import narrowed, widened
from fuse_opt.dialects.graph.reductions.reductions import SumOp
from fuse_opt.dialects.graph.windows.pool_geometry import (
    Pool,
    divided_by_counts,
    flat_places,
    padded_by,
    require_floats,
    spatial_extents,
)
from fuse_opt.dialects.graph.windows.windows import SlidingWindowsOp, WindowSumOp, positive
from fuse_opt.dialects.interfaces.op import ErrorBound, GraphBuilder
from fuse_opt.dialects.interfaces.properties import flag, int_array, shape_attribute, stated_extents
from fuse_opt.dialects.interfaces.shapes import AnyTensor, agree, dtype, shape, shape_text, tensor, tensor_type
from fuse_opt.dialects.types.dtypes import I64
from fuse_opt.dialects.types.extents import is_number
from fuse_opt.dialects.types.symbolic_shape import ShapeAttr


class PoolBackward(Pool):
    """The gradient of what was pooled, of spatial `extents`, from that of the result."""

    extents = prop_def(DenseArrayBase[IntegerType] | ShapeAttr)

    def error_bound(self) -> ErrorBound:
        return ErrorBound(2.0, self.window_elements())

    def grad_type(self, grad: SSAValue) -> AnyTensor:
        """The type of the gradient; raises VerifyException when the result's is not that of such a pooling."""
        require_floats(grad)
        count = len(spatial_extents(grad))
        extents = self.spatial(count)
        if DYNAMIC_INDEX in shape(grad):  # sizes are said before types have them
            extents = tuple(n if is_number(n) else DYNAMIC_INDEX for n in extents)
        expected = [DYNAMIC_INDEX if axis is None else axis.windows for axis in self.axes_of(extents)]
        if not agree(shape(grad)[2:], expected):
            raise VerifyException(
                f"operand 'grad': expected {count} spatial extents {expected}, which pooling of {list(extents)} gives, "
                f"got {shape_text(shape(grad)[2:])}"
            )
        return tensor_type(tensor(grad).element_type, [*shape(grad)[:2], *extents])

    def spatial(self, count: int) -> tuple[int, ...]:
        """The extents; raises VerifyException unless they are so many."""
        if not isinstance(self.extents, ShapeAttr):
            return positive("extents", self.extents, count)
        if len(extents := stated_extents(self.extents)) != count:
            raise VerifyException(f"attribute 'extents': expected {count} extents, got {shape_text(extents)}")
        return extents

    def spread(self, builder: GraphBuilder, x: SSAValue, value: int) -> SSAValue:
        """Results of windows at the places where these start, `value` between and around them.

        The windows of it that are one apart are, for each element of what was pooled, the results of windows that hold it. Where
        strides leave out some of an extent that is a size, there is as much behind the last one as there may be, and then cut.
        """
        axes, leading = self.known_axes(stated_extents(self.extents)), list(shape(x)[:2])
        if any(axis.stride > 1 for axis in axes):
            apart = [*leading, *chain.from_iterable((axis.windows, 1) for axis in axes)]
            x = builder(ReshapeOp, x, shape=shape_attribute(apart))
            behind = list(chain.from_iterable((0, axis.stride - 1) for axis in axes))
            x = padded_by(builder, x, [0] * len(behind), behind, value)
            x = builder(ReshapeOp, x, shape=shape_attribute([*leading, *(axis.windows * axis.stride for axis in axes)]))
        low = [axis.span - 1 - axis.low for axis in axes]
        high = [axis.extent + axis.low - axis.windows * axis.stride for axis in axes]
        most = [h if is_number(h) else axis.span - 1 - axis.high for h, axis in zip(high, axes, strict=True)]
        x = padded_by(builder, x, low, most, value)
        if most == high:
            return x
        stops = [*shape(x)[:2], *(axis.extent + axis.span - 1 for axis in axes)]
        return builder(SliceOp, x, starts=int_array([0] * len(stops)), stops=shape_attribute(stops))

    def holding(self) -> dict[str, DenseArrayBase[IntegerType]]:
        """The properties of the windows of what `spread` gives."""
        return {"window": self.kernel_shape, **({} if self.dilations is None else {"dilations": self.dilations})}


@irdl_op_definition
class AvgPoolBackwardOp(PoolBackward):
    """The gradient of `graph.avg_pool` by x, of spatial `extents`, from `grad`, that of the result.

    The other attributes are those of the pooling: `kernel_shape`, `strides` (1), `pads` (0), `dilations` (1), `ceil_mode`
    (false), `count_include_pad` (false).
    """

    name = "graph.avg_pool_backward"
    grad = operand_def(TensorType)
    result = result_def(TensorType)
    count_include_pad = opt_prop_def(BoolAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        return (self.grad_type(self.grad),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        axes = self.known_axes(stated_extents(self.extents))
        shares = divided_by_counts(builder, widened(builder, self.grad), axes, flag(self.count_include_pad))
        total = builder(WindowSumOp, self.spread(builder, shares, 0), **self.holding())
        return (narrowed(builder, total, self.grad),)


@irdl_op_definition
class MaxPoolBackwardOp(PoolBackward):
    """The gradient of `graph.max_pool` by x, of spatial `extents`, from `grad` and `indices` of max_pool_with_indices.

    Each element of `grad` goes to the place that its index names, where such add up. The other attributes are those of the
    pooling: `kernel_shape`, `strides` (1), `pads` (0), `dilations` (1), `ceil_mode` (false), `over_tensor` (false). An
    index that names no element of its window counts for nothing.
    """

    name = "graph.max_pool_backward"
    grad = operand_def(TensorType)
    indices = operand_def(TensorType)
    result = result_def(TensorType)
    over_tensor = opt_prop_def(BoolAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        if dtype(self.indices) is not I64 or not agree(shape(self.indices), shape(self.grad)):
            expected = f"{shape_text(shape(self.grad))} of i64"
            raise VerifyException(f"operand 'indices': expected {expected}, got '{self.indices.type}'")
        return (self.grad_type(self.grad),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        extents = stated_extents(self.extents)
        whole = [*shape(self.grad)[:2], *extents]
        counted = whole if flag(self.over_tensor) else list(extents)
        own = builder(ReshapeOp, flat_places(builder, counted), shape=shape_attribute([*counted, *[1] * len(extents)]))
        grad, indices = (
            builder(SlidingWindowsOp, self.spread(builder, value, fill), **self.holding())
            for value, fill in ((widened(builder, self.grad), 0), (self.indices, -1))
        )
        mine = builder(WhereOp, builder(EqualOp, indices, own), grad, scalar_constant(builder, 0.0, grad))
        axes = int_array(range(len(whole), len(whole) + len(extents)))
        return (narrowed(builder, builder(SumOp, mine, axes=axes), self.grad),)
