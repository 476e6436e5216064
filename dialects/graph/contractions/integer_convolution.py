"""Convolutions of bytes, exact in i32."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IntegerType, TensorType, UnitAttr, i32
from xdsl.ir import OpResult, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.contractions.convolution import Windows, windows_of
from fuse_opt.dialects.graph.contractions.matmul import MatmulOp
from fuse_opt.dialects.graph.movement.join_split import StackOp
from fuse_opt.dialects.graph.movement.pad_roll_tile import PadOp
from fuse_opt.dialects.graph.movement.views import PermuteDimsOp, ReshapeOp, SliceOp
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import extents_array, int_array, int_value
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, shape, shape_text, tensor_type
from fuse_opt.dialects.types.dtypes import I8, U8


@irdl_op_definition
class ConvIntegerOp(CompositeOp):
    """Sums in i32 of products of bytes, channels innermost: x is N spatial C (ui8 or i8), weight spatial C O (i8).

    The result is N spatial O. Attributes `strides`, `pads` and `dilations` as in ONNX `ConvInteger`, over 1 to 3 spatial axes;
    what is padded counts as 0. Zero points are the caller's: of x subtract `zero * sum(weight)` behind it, having padded with
    that zero by `graph.pad` before. It is a product of bytes with the elements that windows see, which are copied once for each
    of a window, where no implementation takes it.
    """

    name = "graph.conv_integer"
    x = operand_def(TensorType)
    weight = operand_def(TensorType)
    result = result_def(TensorType)
    strides = opt_prop_def(DenseArrayBase[IntegerType])
    pads = opt_prop_def(DenseArrayBase[IntegerType])
    dilations = opt_prop_def(DenseArrayBase[IntegerType])

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
        if x[-1] != w[-2]:
            raise VerifyException(f"x has {x[-1]} channels and weight takes {w[-2]}; they must be equal")
        extents = self._windows().positions(x[1:-1], w[:-2])
        return (tensor_type(i32, [x[0], *extents, w[-1]]),)

    def _windows(self) -> Windows:
        return windows_of(len(shape(self.x)) - 2, self.strides, self.pads, self.dilations)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        rank, (*window, channels, filters) = len(shape(self.x)), shape(self.weight)
        x = builder(PermuteDimsOp, self.x, axes=int_array([0, rank - 1, *range(1, rank - 1)]))
        weight = builder(PermuteDimsOp, self.weight, axes=int_array([rank - 1, rank - 2, *range(rank - 2)]))
        seen = self._unfolded(x, builder)
        matrix = builder(ReshapeOp, weight, shape=int_array([filters, channels * prod(window)]))
        columns = builder(PermuteDimsOp, matrix, axes=int_array([1, 0]))
        sums = builder(MatmulOp, seen, columns, dtype=i32)
        return (builder(ReshapeOp, sums, shape=extents_array(shape(self.result))),)

    def _unfolded(self, x: SSAValue, builder: GraphBuilder) -> SSAValue:
        """
        What windows see: [N, positions, C and elements of a window], of x with channels before spatial axes. Elements are copied
        once for each of a window, in rows as they lie; what is padded is padded before.
        """
        windows, kernel, (many, *places, _) = self._windows(), shape(self.weight)[:-2], shape(self.result)
        if any((*windows.begins, *windows.ends)):
            x = builder(PadOp, x, pads=int_array([0, 0, *windows.begins, 0, 0, *windows.ends]))
            if isinstance(x, OpResult):
                x.op.attributes["no_fuse"] = UnitAttr()  # each element of a window would ask again where the padding is
        channels = shape(x)[1]
        parts = [self._part(x, tap, windows, places, builder) for tap in product(*map(range, kernel))]
        rows = parts[0] if len(parts) == 1 else builder(StackOp, *parts, axis=int_value(2))
        flat = builder(ReshapeOp, rows, shape=extents_array([many, channels * prod(kernel), prod(places)]))
        return builder(PermuteDimsOp, flat, axes=int_array([0, 2, 1]))

    def _part(
        self, x: SSAValue, tap: Sequence[int], windows: Windows, places: Sequence[int], builder: GraphBuilder
    ) -> SSAValue:
        """Of all windows, one element of each."""
        starts = [t * dilation for t, dilation in zip(tap, windows.dilations, strict=True)]
        reached = zip(starts, places, windows.strides, strict=True)
        stops = [start + (count - 1) * step + 1 for start, count, step in reached]
        return builder(
            SliceOp, x, starts=int_array([0, 0, *starts]), stops=extents_array([*shape(x)[:2], *stops]),
            steps=int_array([1, 1, *windows.strides]),
        )  # fmt: skip
