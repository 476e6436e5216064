"""What a kernel of a convolution is: of schedule kind `conv`, a convolution or a gradient of one by its input or its weight.

Of kind `conv_winograd` it is a convolution by 3x3 windows, and what follows it, by tiles of 2x2 positions: fewer products than
windows have. A tile reads 4x4 elements of a channel, d. With the filter's transform U = G g G^T its sums are A^T (sum over
channels of U * (B^T d B)) A: sixteen multiplications where four windows have thirty-six (Winograd 1980; Lavin and Gray 2016).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution, convolution_problem, trace_convolution
from fuse_opt.dialects.analysis.contractions.input_gradients import (
    InputGradient,
    input_gradient_problem,
    trace_input_gradient,
)
from fuse_opt.dialects.analysis.contractions.weight_gradients import (
    WeightGradient,
    trace_weight_gradient,
    weight_gradient_problem,
)
from fuse_opt.dialects.analysis.loop_body import LoopBody, Unschedulable, member_ops, resolve, seen_through
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.interfaces.transformed_weight import PRODUCTS, SIDE, TransformedWeight
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.dtypes import F32

ConvKernel = Convolution | InputGradient | WeightGradient


def conv_problem(op: OpaqueOp) -> Unschedulable | None:
    """Why no code is generated for an op; None where it is."""
    if op.weight_gradient() is not None:
        return weight_gradient_problem(op)
    if op.window_contraction() is None and op.input_gradient() is not None:
        return input_gradient_problem(op)
    return convolution_problem(op)


def trace_conv(results: Sequence[SSAValue], members: Collection[Operation]) -> ConvKernel:
    """What a group that gives `results` computes. Raises Unschedulable: why no code is generated for it."""
    for op in member_ops(members):
        if isinstance(op, OpaqueOp) and op.weight_gradient() is not None:
            return trace_weight_gradient(results, members)
        if isinstance(op, OpaqueOp) and op.window_contraction() is None and op.input_gradient() is not None:
            return trace_input_gradient(results, members)
    return trace_convolution(results, members)


def conv_kernel_of(kernel: KernelOp) -> ConvKernel:
    """What a kernel computes. Raises Unschedulable."""
    return trace_conv(list(kernel.yielded()), dict.fromkeys(kernel.block.ops))


WINOGRAD = "conv_winograd"
"""The schedule kind."""
FEWEST_LANES = 16
"""Channels, and filters: fewer fill no vector of what is transformed."""


@dataclass(frozen=True, slots=True)
class WinogradConvolution:
    """A convolution, whose weight is one of filters or of their transforms."""

    of: Convolution

    @property
    def epilogue(self) -> LoopBody:
        return self.of.epilogue

    @property
    def is_transformed(self) -> bool:
        """Whether filters are transformed, in panels; if not, as the op has them."""
        return self.of.panel is not None

    def contracted(self) -> set[SSAValue]:
        """What is read before the epilogue."""
        return self.of.contracted()


def winograd_problem(op: OpaqueOp) -> Unschedulable | None:
    """Why no code is generated for an op by such tiles; None where it can be."""
    if (problem := convolution_problem(op)) is not None:
        return problem
    windows = op.window_contraction()
    assert windows is not None
    code = _other_windows(windows.merged())
    if code is None and dtype(op.results[0]) is not F32:
        code = "element-type"
    return None if code is None else Unschedulable(code, f"'{op.name}' is no convolution of f32 by 3x3 neighbours", op)


def _other_windows(of: WindowContraction) -> str | None:
    """What keeps a merged contraction from having such tiles."""
    if of.groups > 1:
        return "groups"
    if of.window != (1, 3, 3) or of.flipped:
        return "window"
    if any(step != 1 for step in of.strides):
        return "stride"
    if any(step != 1 for step in of.dilations[1:]):
        return "dilation"
    return "few-channels" if min(of.channels, of.filters) < FEWEST_LANES else None


def trace_winograd(results: Sequence[SSAValue], members: Collection[Operation]) -> WinogradConvolution:
    """The convolution of a group that gives `results`, with what follows it. Raises Unschedulable."""
    for op in member_ops(members):
        if isinstance(op, OpaqueOp) and (problem := winograd_problem(op)) is not None:
            raise problem
    return WinogradConvolution(trace_convolution(results, members, _weight))


def winograd_kernel_of(kernel: KernelOp) -> WinogradConvolution:
    """What a kernel computes. Raises Unschedulable."""
    return trace_winograd(list(kernel.yielded()), dict.fromkeys(kernel.block.ops))


def winograd_tiles(of: WindowContraction) -> int:
    """Tiles of an image, of a merged contraction; the last ones of odd extents are not full."""
    return of.positions[0] * (-(-of.positions[1] // SIDE)) * (-(-of.positions[2] // SIDE))


def packed_filters(of: WindowContraction, width: int) -> int:
    """Elements of transformed filters in panels so wide."""
    return -(-of.filters // width) * width * of.channels * PRODUCTS


def _weight(
    op: OpaqueOp, contraction: WindowContraction, members: Collection[Operation]
) -> tuple[SSAValue, int | None]:
    """The weight in memory, and the filters of a panel where it is transformed. Raises Unschedulable where it is computed."""
    boundaries, inside = seen_through(members), member_ops(members)
    weight = resolve(op.operands[1], boundaries)
    if weight.owner not in inside:
        return weight, None
    if isinstance(weight.owner, TransformedWeight):
        found = resolve(weight.owner.operands[0], boundaries)
        if found.owner not in inside:
            return found, shape(found)[-1]
    raise Unschedulable("prologue", f"the weight of '{op.name}' is computed in the kernel", op)
