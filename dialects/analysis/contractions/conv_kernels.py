"""What a kernel of schedule kind `conv` is: a convolution, or a gradient of one by its input or its weight."""

from __future__ import annotations

from collections.abc import Collection, Sequence

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
from fuse_opt.dialects.analysis.loop_body import Unschedulable, member_ops
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp

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
