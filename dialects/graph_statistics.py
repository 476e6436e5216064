"""Statistics and norms over axes, defined by decomposition."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import BoolAttr, DenseArrayBase, IntegerType, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def

from .graph_composites import FloatComposite, mean_of, narrowed, variance_of, widened
from .graph_op import AnyTensor, GraphBuilder, flag, ints, normalize_axes, shape


class Moment(FloatComposite):
    """A mean or variance over `axes` (all when absent)."""

    x = operand_def(TensorType)
    result = result_def(TensorType)
    axes = opt_prop_def(DenseArrayBase[IntegerType])
    keepdims = opt_prop_def(BoolAttr)

    def reduced_axes(self) -> tuple[int, ...]:
        rank = len(shape(self.x))
        return normalize_axes(ints(self.axes, range(rank)), rank)

    def infer_types(self) -> Sequence[AnyTensor]:
        (full,) = super().infer_types()
        axes, keep = self.reduced_axes(), flag(self.keepdims)
        extents = [1 if a in axes else n for a, n in enumerate(full.get_shape()) if keep or a not in axes]
        return (TensorType(full.element_type, extents),)


@irdl_op_definition
class MeanOp(Moment):
    """Arithmetic mean."""

    name = "graph.mean"

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        mean = mean_of(builder, widened(builder, self.x), self.reduced_axes(), flag(self.keepdims))
        return (narrowed(builder, mean, self.x),)


@irdl_op_definition
class VarOp(Moment):
    """Population variance (divided by the count)."""

    name = "graph.var"

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        variance = variance_of(builder, widened(builder, self.x), self.reduced_axes(), flag(self.keepdims))
        return (narrowed(builder, variance, self.x),)
