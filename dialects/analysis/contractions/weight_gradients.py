"""Kernels of a convolution's gradient by its weight and the pointwise ops behind it, as code can be generated for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import LARGEST_COPY, least_copy, sums_of
from fuse_opt.dialects.analysis.contractions.result_places import result_places
from fuse_opt.dialects.analysis.loop_body import LoopBody, Unschedulable, member_ops, resolve, seen_through, trace
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.layouts import any_encoded
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import dtype, is_sized, is_static
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.dtypes import F32, F64, DType
from fuse_opt.dialects.types.extents import estimate, is_number
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr

FEWEST_COLUMNS = 8
"""Channels, or those of neighbouring taps, that fill so little of a vector that vectors are of positions below."""

FEWEST_CHANNELS = 16
"""Side by side in a copy, of narrow elements; fewer are joined with those of neighbouring taps."""
MOST_JOINED = 32
"""Columns of a row of a window that are one panel."""
MOST_TAPS = 128
"""Of a window: a task has sums for each of them."""


@dataclass(frozen=True, slots=True)
class WeightGradient:
    """A gradient by a weight, and what is stored of it: `epilogue` loads the gradient, `raw`, where it stores."""

    op: OpaqueOp
    contraction: WindowContraction
    """The convolution, merged."""
    grad: SSAValue
    x: SSAValue
    epilogue: LoopBody
    places: Mapping[Dim, IndexExpr]
    """The dimensions of the epilogue, by groups, filters, and channels with their taps."""

    @property
    def raw(self) -> SSAValue:
        return self.op.results[0]

    @property
    def sums(self) -> DType:
        """In which it is computed: of narrow floats both operands are widened as they are copied."""
        return sums_of(self.op)

    def contracted(self) -> set[SSAValue]:
        """What is read before the epilogue."""
        return {self.grad, self.x}


def joins_taps(of: WindowContraction) -> bool:
    """Whether the taps of a row of a window lie side by side with their channels, where these are few."""
    few = of.channels < FEWEST_CHANNELS and of.channels * of.window[2] <= MOST_JOINED
    return few and of.window[2] > 1 and of.dilations[2] == 1


def columns_of(of: WindowContraction) -> int:
    """Neighbours of a merged contraction's input that are met by a position: channels, or those of a row of a window."""
    return of.channels * of.window[2] if joins_taps(of) else of.channels


def has_few_columns(of: WindowContraction) -> bool:
    """Whether vectors are of positions, for each channel of each filter: where there are few, as of depthwise convolutions."""
    return columns_of(of) < FEWEST_COLUMNS


def weight_product(of: WindowContraction) -> Contraction:
    """The product whose result is the gradient: for each group, of filters by channels and taps."""
    depth, columns = of.batch * prod(of.positions), of.channels * of.taps
    return Contraction((of.groups,), of.filters, columns, depth, (0, 0, 0), (0, 0, 0))


def weight_gradient_problem(op: OpaqueOp) -> Unschedulable | None:
    """Why no code is generated for an op as a gradient by a weight; None where it can be."""
    values = (*op.operands, *op.results)
    if not all(map(is_sized, values)):
        return Unschedulable("dynamic-shape", "it has unknown shapes", op)
    if (of := op.weight_gradient()) is None:
        return Unschedulable("no-convolution", f"'{op.name}' is no gradient by a weight", op)
    if any_encoded(values):
        return Unschedulable("layout", f"'{op.name}' reads or writes another order than the row-major one", op)
    kinds, of = {dtype(value) for value in values}, of.merged()
    if len(kinds) > 1 or sums_of(op) not in (F32, F64):
        message = f"'{op.name}' is of {dtype(op.results[0])}; code is generated for f16, bf16, f32, f64"
        return Unschedulable("element-type", message, op)
    if not all(map(is_static, values)) and sums_of(op) is not dtype(op.results[0]):
        return Unschedulable("element-type", f"'{op.name}' widens a batch of unknown extent", op)
    if not estimate(of.operations):
        return Unschedulable("extents", f"'{op.name}' sums up nothing", op)
    if not all(map(is_number, of.positions)):
        return Unschedulable("extents", f"'{op.name}' sums over positions of unknown extents", op)
    if of.taps > MOST_TAPS:
        return Unschedulable("large-window", f"'{op.name}' has windows of {of.taps} elements", op)
    if (size := _least_copy(of) * sums_of(op).itemsize) > LARGEST_COPY:
        return Unschedulable("large-copy", f"'{op.name}' copies {size} bytes for a position", op)
    return None


def _least_copy(of: WindowContraction) -> int:
    """Elements of the input around the fewest positions of a block."""
    if has_few_columns(of):
        return least_copy(of)
    reached = of.window[0] * prod(d * (k - 1) + 1 for d, k in zip(of.dilations[1:], of.window[1:], strict=True))
    return reached * FEWEST_CHANNELS


def trace_weight_gradient(results: Sequence[SSAValue], members: Collection[Operation]) -> WeightGradient:
    """The gradient of a group that gives `results`, with what follows it. Raises Unschedulable."""
    ops, boundaries = member_ops(members), seen_through(members)
    opaque = [op for op in ops if isinstance(op, OpaqueOp)]
    if len(opaque) != 1 or len(opaque[0].results) != 1:
        raise Unschedulable("no-convolution", "it holds no gradient by a weight, or several opaque ops")
    op = opaque[0]
    if (problem := weight_gradient_problem(op)) is not None:
        raise problem
    grad, x = (resolve(value, boundaries) for value in op.operands[:2])
    if grad.owner in ops or x.owner in ops:
        raise Unschedulable("prologue", f"an operand of '{op.name}' is computed in the kernel", op)
    if not all(is_sized(value) for inner in ops for value in (*inner.operands, *inner.results)):
        raise Unschedulable("dynamic-shape", "it has unknown shapes", op)
    of = op.weight_gradient()
    assert of is not None
    epilogue = trace(results, members, [op])
    places = result_places(epilogue, op.results[0], weight_product(of.merged()))
    return WeightGradient(op, of.merged(), grad, x, epilogue, places)
