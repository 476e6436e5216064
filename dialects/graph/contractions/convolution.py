"""Convolutions and their backward forms.

All are over 1 to 3 spatial axes, channels first, and without a bias: add it with `graph.add`, which is fused with what
follows. Their attributes are those of ONNX: `strides`, `dilations` (default 1 everywhere), `pads` (default 0; the
beginnings of all axes, then the ends), `groups` (default 1). The batch may be of dynamic extent, and so may the spatial axes of
what a convolution or a transposed one reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IntegerType, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.contractions.convolution_base import Convolution, Windows, integers
from fuse_opt.dialects.graph.elementwise.arithmetic import AddOp, MultiplyOp
from fuse_opt.dialects.graph.movement.pad_roll_tile import PadOp
from fuse_opt.dialects.graph.movement.views import PermuteDimsOp, ReshapeOp, SliceOp
from fuse_opt.dialects.graph.movement.winograd import WinogradTapsOp
from fuse_opt.dialects.graph.reductions.reductions import SumOp
from fuse_opt.dialects.graph.windows.windows import SlidingWindowsOp
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.dialects.interfaces.op import GraphBuilder, GraphOp
from fuse_opt.dialects.interfaces.properties import int_array, ints, shape_attribute
from fuse_opt.dialects.interfaces.shapes import (
    AnyTensor,
    agree,
    dtype,
    is_static,
    shape,
    shape_text,
    tensor,
    tensor_type,
)
from fuse_opt.dialects.interfaces.transformed_weight import TransformedWeight
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.dtypes import F32, F64
from fuse_opt.dialects.types.encodings import OrderAttr
from fuse_opt.dialects.types.extents import is_number, may_exceed

_WRITTEN_TAPS, _MOST_TAPS = 9, 25
"""Products of a sum that is written out, and of one that a kernel goes over in a loop."""


def _is_channels_last(value: SSAValue) -> bool:
    """Whether channels lie innermost (NHWC)."""
    found = encoding(value)
    return isinstance(found, OrderAttr) and found.order == (0, *range(2, len(shape(value))), 1)


@irdl_op_definition
class ConvOp(Convolution):
    """Cross-correlation over 1 to 3 spatial axes: x is N C spatial, weight is O C/groups spatial; pads as in ONNX.

    Attributes `strides`, `pads`, `dilations` and `groups` as in ONNX `Conv`. A bias is a `graph.add` of its own. Narrow
    floats are computed in f32 and rounded once.
    """

    name = "graph.conv"
    TAKES_ORDERS: ClassVar[bool] = True
    x = operand_def(TensorType)
    weight = operand_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        x, w = self.operand_shapes("x [N, C, spatial...] and weight [O, C/groups, spatial...]", known=1)
        self.check_groups(x[1], w[1], w[0])
        extents = self.windows(len(x) - 2).positions(x[2:], w[2:])
        return (tensor_type(tensor(self.x).element_type, [x[0], w[0], *extents]),)

    def as_sums(self, builder: GraphBuilder) -> SSAValue | None:
        """Of a channel by a filter of its own, where sums are of the operands' type and all lies in rows."""
        of = self.window_contraction() if all(map(is_static, (*self._operands, self.result))) else None
        lies = [encoding(value) for value in (*self._operands, self.result)]
        if of is None or not of.is_depthwise or dtype(self.x) is not F32 or of.taps > _MOST_TAPS or any(lies):
            return None
        if not prod(shape(self.result)):
            return None
        windows = self.windows(len(of.window))
        pads = int_array([0, 0, *windows.begins, 0, 0, *windows.ends])
        padded = builder(PadOp, self.x, pads=pads) if any(ints(pads)) else self.x
        return (self._by_taps if of.taps <= _WRITTEN_TAPS else self._by_windows)(builder, padded, of.window, windows)

    def otherwise(self, builder: GraphBuilder) -> SSAValue | None:
        if (even := self.with_even_pads(builder, self.x)) is None:
            return None
        return builder(ConvOp, even[0], self.weight, **{**self._kept(), "pads": even[1]})

    def _by_taps(
        self, builder: GraphBuilder, padded: SSAValue, window: Sequence[int], windows: Windows
    ) -> SSAValue | None:
        """Tap by tap, each as large as the result."""
        rank = len(shape(self.result))
        positions, total = shape(self.result)[2:], None
        for tap in product(*map(range, window)):
            starts = [k * d for k, d in zip(tap, windows.dilations, strict=True)]
            stops = [a + (n - 1) * s + 1 for a, n, s in zip(starts, positions, windows.strides, strict=True)]
            seen = builder(
                SliceOp, padded, starts=int_array([0, 0, *starts]),
                stops=int_array([*shape(padded)[:2], *stops]), steps=int_array([1, 1, *windows.strides]),
            )  # fmt: skip
            weight = builder(
                SliceOp, self.weight, starts=int_array([0, 0, *tap]),
                stops=int_array([*shape(self.weight)[:2], *(k + 1 for k in tap)]),
            )  # fmt: skip
            factor = builder(ReshapeOp, weight, shape=int_array([shape(self.weight)[0], *[1] * (rank - 2)]))
            term = builder(MultiplyOp, seen, factor)
            total = term if total is None else builder(AddOp, total, term)
        return total

    def _by_windows(
        self, builder: GraphBuilder, padded: SSAValue, window: Sequence[int], windows: Windows
    ) -> SSAValue | None:
        """Over windows, their elements as further axes."""
        rank, axes = len(shape(self.result)), len(window)
        lies = {"strides": int_array(windows.strides), "dilations": int_array(windows.dilations)}
        seen = builder(SlidingWindowsOp, padded, window=int_array(window), **lies)
        weight = builder(ReshapeOp, self.weight, shape=int_array([shape(self.weight)[0], *[1] * axes, *window]))
        terms = builder(MultiplyOp, seen, weight)
        return builder(SumOp, terms, axes=int_array(range(rank, rank + axes)))

    def canonical(self) -> GraphOp | None:
        """With the zeros that were put around its operand as pads of its own."""
        pad = self.x.owner
        zeros = pad.zeros_around() if isinstance(pad, PadOp) else None
        if not isinstance(pad, PadOp) or zeros is None or any(map(any, zeros[:2])):
            return None
        windows = self.windows(len(zeros) - 2)
        begins = [mine + before for mine, (before, _) in zip(windows.begins, zeros[2:], strict=True)]
        ends = [mine + behind for mine, (_, behind) in zip(windows.ends, zeros[2:], strict=True)]
        return ConvOp.build_op(pad.x, self.weight, **{**self.properties, "pads": int_array([*begins, *ends])})

    def contraction(self) -> Contraction | None:
        """Of windows of one element over channels that lie innermost, in the operand and in the result."""
        x, weight, positions = shape(self.x), shape(self.weight), shape(self.result)[2:]
        windows = self.windows(len(x) - 2)
        if prod(weight[2:]) != 1 or self.group_count() > 1 or positions != x[2:] or not windows.are_single():
            return None
        if DYNAMIC_INDEX in positions:
            return None
        if not (_is_channels_last(self.x) and _is_channels_last(self.result)):
            return None
        count, channels, filters = prod(positions), x[1], weight[0]
        lhs, rhs = (channels * count, 1, count), (0, 1, channels)
        return Contraction((x[0],), count, filters, channels, lhs, rhs, in_memory=True)

    def scaled_axes(self) -> tuple[int, int] | None:
        return 0, 1

    def transformed_weight(self) -> type[TransformedWeight] | None:
        return WinogradTapsOp

    def window_contraction(self) -> WindowContraction | None:
        x, weight, result = (shape(value) for value in (self.x, self.weight, self.result))
        return self.over_windows(x, weight, result[2:], _is_channels_last(self.x), _is_channels_last(self.result))


@irdl_op_definition
class ConvTransposeOp(Convolution):
    """Transposed convolution, as ONNX `ConvTranspose` and torch: each element of x adds its multiple of a window.

    x is N C spatial, weight is C O/groups spatial, the result N O spatial with extents
    `(n - 1) * stride + dilation * (k - 1) + 1 - pads + output_padding`. `output_padding` (default 0) must be less than
    the stride or the dilation of its axis; `strides`, `pads`, `dilations` and `groups` are those of the convolution
    whose gradient it is. Generated code reads zeros beyond x: beside them a weight that is infinite or NaN gives NaN, where
    the sum that the reference makes leaves it out. One program takes batches and images of any
    extent; of narrow floats images where strides are 1 or windows lie side by side.
    """

    name = "graph.conv_transpose"
    x = operand_def(TensorType)
    weight = operand_def(TensorType)
    output_padding = opt_prop_def(DenseArrayBase[IntegerType])

    def infer_types(self) -> Sequence[AnyTensor]:
        x, w = self.operand_shapes("x [N, C, spatial...] and weight [C, O/groups, spatial...]", known=1)
        spatial, groups = len(x) - 2, self.group_count()
        if groups < 1 or x[1] != w[0] or w[0] % groups:
            raise VerifyException(
                f"x has {x[1]} channels, weight takes {w[0]} in {groups} group(s); "
                "expected as many, divisible by the groups"
            )
        windows = self.windows(spatial)
        added = integers("output_padding", self.output_padding, spatial, 0, 0)
        limits = [max(s, d) for s, d in zip(windows.strides, windows.dilations, strict=True)]
        if any(more >= limit for more, limit in zip(added, limits, strict=True)):
            raise VerifyException(
                f"attribute 'output_padding': expected less than the stride or the dilation of the axis, got {list(added)}"
            )
        covered = zip(windows.covered(x[2:], w[2:]), added, strict=True)
        extents = [n if n == DYNAMIC_INDEX else n + more for n, more in covered]
        if any(n != DYNAMIC_INDEX and not may_exceed(n, 0) for n in extents):
            raise VerifyException(f"the pads leave no output element: the extents would be {extents}; make them less")
        return (tensor_type(tensor(self.x).element_type, [x[0], w[1] * groups, *extents]),)

    def canonical(self) -> GraphOp | None:
        """Of narrow floats, any images, windows side by side: a filter for each element of a window, moved to its place."""
        x, weight = shape(self.x), shape(self.weight)
        windows, rank, channels = self.windows(len(x) - 2), len(x), weight[0]
        extents, window, filters = x[2:], weight[2:], weight[1]
        is_apart = windows == Windows(tuple(window), (0,) * len(window), (0,) * len(window), (1,) * len(window))
        plain = is_apart and self.group_count() == 1 and not any(ints(self.output_padding, [0]))
        plain = plain and not any(map(encoding, (self.x, self.weight, self.result)))
        plain = plain and dtype(self.x) not in (F32, F64)  # of which code is generated as of a gradient
        if not plain or prod(window) == 1 or DYNAMIC_INDEX in extents or all(map(is_number, extents)):
            return None
        builder, many = GraphBuilder(), filters * prod(window)
        matrix = builder(ReshapeOp, self.weight, shape=int_array([channels, many]))
        matrix = builder(PermuteDimsOp, matrix, axes=int_array([1, 0]))
        single = builder(ReshapeOp, matrix, shape=int_array([many, channels, *[1] * len(window)]))
        sums = builder(ConvOp, self.x, single)
        sums = builder(ReshapeOp, sums, shape=shape_attribute([x[0], filters, *window, *extents]))
        beside = [axis for k in range(len(window)) for axis in (rank + k, 2 + k)]
        moved = builder(PermuteDimsOp, sums, axes=int_array([0, 1, *beside]))
        return ReshapeOp.build_op(moved, shape=shape_attribute(shape(self.result)))

    def otherwise(self, builder: GraphBuilder) -> SSAValue | None:
        return self.over_larger(builder, ints(self.output_padding, [0] * (len(shape(self.x)) - 2)))

    def scaled_axes(self) -> tuple[int, int] | None:
        return (1, 1) if self.group_count() == 1 else None

    def window_contraction(self) -> WindowContraction | None:
        return self.gathered()

    def input_gradient(self) -> WindowContraction | None:
        return self.scattered()


@irdl_op_definition
class ConvBackwardDataOp(Convolution):
    """Gradient of `graph.conv` with respect to its input: `grad` is N O spatial as its result, `weight` its weight.

    `shape` holds the input's spatial extents, which the result's do not tell where a stride left a rest; the batch is
    that of `grad`, the channels follow from the weight. The other attributes are those of the convolution. Weights that
    are infinite or NaN are as in `graph.conv_transpose`.
    """

    name = "graph.conv_backward_data"
    grad = operand_def(TensorType)
    weight = operand_def(TensorType)
    shape = prop_def(DenseArrayBase[IntegerType])

    def infer_types(self) -> Sequence[AnyTensor]:
        grad, w = self.operand_shapes("grad [N, O, spatial...] and weight [O, C/groups, spatial...]")
        spatial = len(grad) - 2
        extents = integers("shape", self.shape, spatial, 1)
        channels = w[1] * self.group_count()
        self.check_groups(channels, w[1], w[0])
        expected = (w[0], *self.windows(spatial).positions(extents, w[2:]))
        if grad[1:] != expected:
            raise VerifyException(
                f"grad of shape {shape_text(grad)} is no result of a convolution of {shape_text(extents)} with weight "
                f"{shape_text(w)}; expected {shape_text((grad[0], *expected))}"
            )
        return (tensor_type(tensor(self.grad).element_type, [grad[0], channels, *extents]),)

    def otherwise(self, builder: GraphBuilder) -> SSAValue | None:
        windows, extents = self.windows(len(shape(self.grad)) - 2), shape(self.result)[2:]
        pads = zip(extents, windows.begins, windows.ends, strict=True)
        larger = int_array([n + a + b - 2 * min(a, b) for n, a, b in pads])
        return self.over_larger(builder, [0] * len(extents), shape=larger)

    def scaled_axes(self) -> tuple[int, int] | None:
        return (1, 1) if self.group_count() == 1 else None

    def window_contraction(self) -> WindowContraction | None:
        return self.gathered()

    def input_gradient(self) -> WindowContraction | None:
        return self.scattered()


@irdl_op_definition
class ConvBackwardWeightOp(Convolution):
    """Gradient of `graph.conv` with respect to its weight: `grad` is N O spatial as its result, `x` its input.

    `kernel_shape` holds the weight's spatial extents, as in ONNX; the other attributes are those of the convolution. An
    empty batch gives zeros. One program takes batches of any extent, of f32 and f64; of narrow floats each has its own.
    """

    name = "graph.conv_backward_weight"
    grad = operand_def(TensorType)
    x = operand_def(TensorType)
    kernel_shape = prop_def(DenseArrayBase[IntegerType])

    def infer_types(self) -> Sequence[AnyTensor]:
        grad, x = self.operand_shapes("grad [N, O, spatial...] and x [N, C, spatial...]", 1)
        spatial, groups = len(x) - 2, self.group_count()
        kernel = integers("kernel_shape", self.kernel_shape, spatial, 1)
        self.check_groups(x[1], x[1] // max(groups, 1), grad[1])
        expected = (x[0], grad[1], *self.windows(spatial).positions(x[2:], kernel))
        if not agree(grad, expected):
            raise VerifyException(
                f"grad of shape {shape_text(grad)} is no result of a convolution of {shape_text(x)} with windows "
                f"{shape_text(kernel)}; expected {shape_text(expected)}"
            )
        return (tensor_type(tensor(self.grad).element_type, [grad[1], x[1] // groups, *kernel]),)

    def otherwise(self, builder: GraphBuilder) -> SSAValue | None:
        if (even := self.with_even_pads(builder, self.x)) is None:
            return None
        return builder(ConvBackwardWeightOp, self.grad, even[0], **{**self._kept(), "pads": even[1]})

    def weight_gradient(self) -> WindowContraction | None:
        x, weight, grad = (shape(value) for value in (self.x, self.result, self.grad))
        return self.over_windows(x, weight, grad[2:], False, False)
