"""Convolutions of bytes, exact in i32."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IntegerAttr, IntegerType, TensorType, UnitAttr, i32
from xdsl.ir import OpResult, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.contractions.convolution_base import Windows, windows_of
from fuse_opt.dialects.graph.contractions.matmul import MatmulOp
from fuse_opt.dialects.graph.elementwise.arithmetic import AstypeOp, MultiplyOp
from fuse_opt.dialects.graph.movement.pad_roll_tile import PadOp
from fuse_opt.dialects.graph.movement.views import PermuteDimsOp, ReshapeOp
from fuse_opt.dialects.graph.reductions.reductions import SumOp
from fuse_opt.dialects.graph.windows.windows import SlidingWindowsOp
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import extents_array, int_array
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, shape, shape_text, tensor_type
from fuse_opt.dialects.types.dtypes import I8, I16, U8


@irdl_op_definition
class ConvIntegerOp(CompositeOp):
    """Sums in i32 of products of bytes, channels innermost: x is N spatial C (ui8 or i8), weight spatial C O (i8).

    The result is N spatial O. Attributes `strides`, `pads`, `dilations` and `groups` as in ONNX `ConvInteger`, over 1 to 3
    spatial axes; what is padded counts as 0, and C of the weight is of a group. Zero points are the caller's: of x subtract
    `zero * sum(weight)` behind it, having padded with that zero by `graph.pad` before. Where no implementation takes it, it is
    a product of bytes with the elements that windows see, which are copied once for each of a window; of channels with a filter
    each, sums of products by element of a window, which are fused with what follows.
    """

    name = "graph.conv_integer"
    x = operand_def(TensorType)
    weight = operand_def(TensorType)
    result = result_def(TensorType)
    strides = opt_prop_def(DenseArrayBase[IntegerType])
    pads = opt_prop_def(DenseArrayBase[IntegerType])
    dilations = opt_prop_def(DenseArrayBase[IntegerType])
    groups = opt_prop_def(IntegerAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        x, w = shape(self.x), shape(self.weight)
        if len(x) not in (3, 4, 5) or len(w) != len(x) or DYNAMIC_INDEX in (*x[1:], *w):
            raise VerifyException(
                "expected x [N, spatial..., C] and weight [spatial..., C, O] with 1 to 3 static spatial axes, "
                f"got {shape_text(x)} and {shape_text(w)}"
            )
        if dtype(self.x) not in (U8, I8) or dtype(self.weight) is not I8:
            raise VerifyException(
                f"expected x of ui8 or i8 and a weight of i8, got {dtype(self.x)} and {dtype(self.weight)}"
            )
        groups = self._group_count()
        if x[-1] != groups * w[-2] or w[-1] % groups:
            raise VerifyException(
                f"{groups} groups of {w[-2]} channels need {groups * w[-2]}, and filters by {groups}; "
                f"x has {x[-1]} channels and weight {w[-1]} filters"
            )
        extents = self._windows().positions(x[1:-1], w[:-2])
        return (tensor_type(i32, [x[0], *extents, w[-1]]),)

    def _windows(self) -> Windows:
        return windows_of(len(shape(self.x)) - 2, self.strides, self.pads, self.dilations)

    def _group_count(self) -> int:
        count = 1 if self.groups is None else self.groups.value.data
        if count < 1:
            raise VerifyException(f"attribute 'groups': expected a positive integer, got {count}")
        return count

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        if self._group_count() == shape(self.x)[-1] == shape(self.weight)[-1]:
            return (self._by_channels(builder),)
        (*window, channels, filters), groups = shape(self.weight), self._group_count()
        depth, rank = prod(window) * channels, len(shape(self.x))
        rows = builder(PermuteDimsOp, self.weight, axes=int_array([rank - 1, *range(rank - 1)]))
        matrix = builder(ReshapeOp, rows, shape=int_array([*_several(groups), filters // groups, depth]))
        columns = builder(PermuteDimsOp, matrix, axes=int_array([0, 2, 1] if groups > 1 else [1, 0]))
        sums = builder(MatmulOp, self._unfolded(builder), columns, dtype=i32)
        if groups > 1:  # [N, groups, positions, filters of a group]
            sums = builder(PermuteDimsOp, sums, axes=int_array([0, 2, 1, 3]))
        return (builder(ReshapeOp, sums, shape=extents_array(shape(self.result))),)

    def _padded(self, builder: GraphBuilder) -> SSAValue:
        windows, x = self._windows(), self.x
        if any((*windows.begins, *windows.ends)):
            x = builder(PadOp, x, pads=int_array([0, *windows.begins, 0, 0, *windows.ends, 0]))
            if isinstance(x, OpResult):
                x.op.attributes["no_fuse"] = UnitAttr()  # each element of a window would ask again where the padding is
        return x

    def _by_channels(self, builder: GraphBuilder) -> SSAValue:
        """Of channels with a filter each: sums over windows of products of bytes, which i16 has all of."""
        seen = self._seen(builder)
        spatial, rank = len(shape(self.x)) - 2, len(shape(seen))
        weight = builder(ReshapeOp, self.weight, shape=int_array(shape(seen)[1 + spatial :]))
        wide = [builder(AstypeOp, value, dtype=I16.attribute) for value in (seen, weight)]
        terms = builder(AstypeOp, builder(MultiplyOp, *wide), dtype=i32)
        return builder(SumOp, terms, axes=int_array(range(1 + spatial, rank - 1)))

    def _unfolded(self, builder: GraphBuilder) -> SSAValue:
        """
        What windows see: [N, groups if there are several, positions, elements of a window and channels of a group]. Elements are
        copied once for each of a window, in stretches of channels.
        """
        (*kernel, channels, _), groups, (many, *places, _) = shape(self.weight), self._group_count(), shape(self.result)
        seen, positions = self._seen(builder), prod(places)
        if groups > 1:
            apart = extents_array([many, positions, prod(kernel), groups, channels])
            seen = builder(PermuteDimsOp, builder(ReshapeOp, seen, shape=apart), axes=int_array([0, 3, 1, 2, 4]))
        depth = prod(kernel) * channels
        return builder(ReshapeOp, seen, shape=extents_array([many, *_several(groups), positions, depth]))

    def _seen(self, builder: GraphBuilder) -> SSAValue:
        """What windows see: [N, positions, their elements, C]."""
        windows, spatial = self._windows(), len(shape(self.x)) - 2
        axes = range(1, 1 + spatial)
        seen = builder(
            SlidingWindowsOp, self._padded(builder), window=int_array(shape(self.weight)[:-2]), axes=int_array(axes),
            strides=int_array(windows.strides), dilations=int_array(windows.dilations),
        )  # fmt: skip
        order = [0, *axes, *range(2 + spatial, 2 + 2 * spatial), 1 + spatial]
        return builder(PermuteDimsOp, seen, axes=int_array(order))


def _several(groups: int) -> list[int]:
    return [groups] if groups > 1 else []
