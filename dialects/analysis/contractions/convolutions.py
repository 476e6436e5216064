"""Kernels of one convolution and the pointwise ops behind it, as code can be generated for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.contractions.operand_access import OperandAccess, operand_access
from fuse_opt.dialects.analysis.contractions.packed_panels import seen_product, sized_block
from fuse_opt.dialects.analysis.contractions.result_places import result_places
from fuse_opt.dialects.analysis.loop_body import (
    LoopBody,
    Unschedulable,
    member_ops,
    resolve,
    seen_through,
    trace,
)
from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import dtype, is_sized, shape
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.dtypes import BF16, F16, F32, F64, DType
from fuse_opt.dialects.types.extents import estimate, is_number
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr

CONV = "conv"
"""The schedule kind of a generated convolution."""
FEWEST_POSITIONS = 4
"""Of a result, below which a product by a library is faster: a quarter of a vector is level with it (measured, AVX2)."""
COPIED_POSITIONS = 32
"""Of a task, at least, whose part of the input has to fit a copy."""
MOST_TAPS = 512
"""Of a window, whose places are a table."""
FEWEST_LANES = 16
"""Channels of a depthwise convolution whose vectors are of channels."""
LARGEST_COPY = 384 << 10
"""Bytes of the input that the fewest positions of a task read: they are copied to the stack, with zeros around them."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution, and what is stored of it: `epilogue` loads the convolution's result, `raw`, where it stores."""

    op: OpaqueOp
    contraction: WindowContraction
    x: SSAValue
    weight: SSAValue
    epilogue: LoopBody
    places: Mapping[Dim, IndexExpr]
    """The dimensions of the epilogue, by groups, filters and positions of the convolution's result."""
    panel: int | None = None
    """Filters of a panel, where the weight is packed."""

    @property
    def raw(self) -> SSAValue:
        return self.op.results[0]

    @property
    def sums(self) -> DType:
        """In which it is computed: of narrow floats both operands are widened as they are copied."""
        return sums_of(self.op)

    @property
    def widens(self) -> bool:
        return self.sums is not dtype(self.raw)

    @property
    def is_alone(self) -> bool:
        """Whether the kernel's result is the convolution's, element by element in memory, and nothing else is stored."""
        stores, extents = self.epilogue.stores, (*self.epilogue.row_extents, *self.epilogue.column_extents)
        if self.widens or len(stores) != 1 or stores[0].node.value is not self.raw or stores[0].node.op is not None:
            return False
        return stores[0].address == stores[0].node.address and prod(extents) == prod(shape(self.raw))

    def contracted(self) -> set[SSAValue]:
        """What is read before the epilogue."""
        return {self.x, self.weight}


def sums_of(op: OpaqueOp) -> DType:
    """The element type of the sums of a convolution."""
    element = dtype(op.results[0])
    return F32 if element in (F16, BF16) else element


def convolution_problem(op: OpaqueOp) -> Unschedulable | None:
    """Why no code is generated for an op as a convolution; None where it can be."""
    if not all(map(is_sized, (*op.operands, *op.results))):
        return Unschedulable("dynamic-shape", "it has unknown shapes", op)
    if (contraction := op.window_contraction()) is None:
        return Unschedulable("no-convolution", f"'{op.name}' is no convolution whose windows read what lies there", op)
    if not _are_known(op, contraction):
        return Unschedulable("layout", f"'{op.name}' reads or writes another order than row-major or channels-last", op)
    contraction, raw = contraction.merged(), op.results[0]
    if not all(map(is_number, (contraction.groups, contraction.channels, contraction.filters, *contraction.window))):
        return Unschedulable("sizes", f"'{op.name}' has channels, filters or windows of unknown extents", op)
    if sums_of(op) not in (F32, F64) or any(dtype(value) is not dtype(raw) for value in op.operands[:2]):
        return Unschedulable(
            "element-type", f"'{op.name}' is of {dtype(raw)}; code is generated for f16, bf16, f32, f64", op
        )
    if (count := estimate(prod(contraction.positions[1:]))) < FEWEST_POSITIONS or not estimate(contraction.operations):
        return Unschedulable("few-positions", f"'{op.name}' has a result of {count} positions", op)
    if contraction.taps > MOST_TAPS:
        return Unschedulable("large-window", f"'{op.name}' has windows of {contraction.taps} elements", op)
    if contraction.has_any_extents:
        lies_otherwise = contraction.x_last or contraction.result_last
        return Unschedulable("sizes", f"'{op.name}' has channels innermost", op) if lies_otherwise else None
    if contraction.result_last and contraction.is_depthwise:
        return _lanes_problem(op, contraction)
    copies = not contraction.reads_in_place or sums_of(op) is not dtype(raw)
    if copies and (size := least_copy(contraction) * sums_of(op).itemsize) > LARGEST_COPY:
        return Unschedulable("large-copy", f"'{op.name}' copies {size} bytes for a few positions", op)
    return None


def _are_known(op: OpaqueOp, contraction: WindowContraction) -> bool:
    """Whether values lie as the contraction says: in row-major order, or with channels innermost."""
    x, weight, result = encoding(op.operands[0]), encoding(op.operands[1]), encoding(op.results[0])
    if weight is not None or (contraction.result_last and contraction.groups > 1 and not contraction.is_depthwise):
        return False
    return (x is not None) == contraction.x_last and (result is not None) == contraction.result_last


def _lanes_problem(op: OpaqueOp, contraction: WindowContraction) -> Unschedulable | None:
    """Why no code is generated for a depthwise convolution whose result has channels innermost; None where it is."""
    if contraction.groups < FEWEST_LANES:
        return Unschedulable("few-channels", f"'{op.name}' has {contraction.groups} channels, which fill no vector", op)
    reached = contraction.window[0] * (contraction.dilations[1] * (contraction.window[1] - 1) + 1)
    row = (contraction.positions[2] - 1) * contraction.strides[2] + contraction.dilations[2] * contraction.window[2]
    if (size := reached * row * FEWEST_LANES * sums_of(op).itemsize) > LARGEST_COPY:
        return Unschedulable("large-copy", f"'{op.name}' copies {size} bytes for a row of positions", op)
    return None


def least_copy(contraction: WindowContraction) -> int:
    """Elements of the input around the fewest positions of a task, of a merged contraction."""
    return contraction.channels * contraction.reached(1, min(contraction.positions[-1], COPIED_POSITIONS))


_FindWeight = Callable[[OpaqueOp, WindowContraction, Collection[Operation]], tuple[SSAValue, int | None]]


def trace_convolution(
    results: Sequence[SSAValue], members: Collection[Operation], find_weight: _FindWeight | None = None
) -> Convolution:
    """
    The convolution of a group that gives `results`, with what follows it; `find_weight` says which its weight is, and how many
    filters a panel of it has. Raises Unschedulable.
    """
    ops, boundaries = member_ops(members), seen_through(members)
    opaque = [op for op in ops if isinstance(op, OpaqueOp)]
    if len(opaque) != 1 or len(opaque[0].results) != 1:
        raise Unschedulable("no-convolution", "it holds no convolution, or several opaque ops")
    op = opaque[0]
    if (problem := convolution_problem(op)) is not None:
        raise problem
    contraction, x = op.window_contraction(), resolve(op.operands[0], boundaries)
    assert contraction is not None
    if x.owner in ops:
        raise Unschedulable("prologue", f"an operand of '{op.name}' is computed in the kernel", op)
    weight, panel = (find_weight or _weight)(op, contraction.merged(), members)
    if panel is not None and sums_of(op) is not dtype(op.results[0]):
        raise Unschedulable("element-type", f"the weight of '{op.name}', of narrow floats, is in panels", op)
    if (
        panel is not None
        and contraction.has_any_extents
        and sized_block(contraction.merged(), sums_of(op).itemsize) is None
    ):
        raise Unschedulable("large-copy", f"'{op.name}', of filters in panels, copies too much for a few positions", op)
    if not all(is_sized(value) for inner in ops for value in (*inner.operands, *inner.results)):
        raise Unschedulable("dynamic-shape", "it has unknown shapes", op)
    epilogue = trace(results, members, [op])
    places = result_places(epilogue, op.results[0], contraction.merged().result_product())
    return Convolution(op, contraction.merged(), x, weight, epilogue, places, panel)


def _weight(
    op: OpaqueOp, contraction: WindowContraction, members: Collection[Operation]
) -> tuple[SSAValue, int | None]:
    """The weight in memory, and the filters of a panel where it is packed. Raises Unschedulable where it is computed."""
    weight = resolve(op.operands[1], seen_through(members))
    if weight.owner not in member_ops(members):
        return weight, None
    access, depth = filter_access(op, members), contraction.channels * contraction.taps
    panel = access.row if access.panels is None else access.panels.width
    distance = depth * panel if access.panels is None else access.panels.distance
    where = (access.row, access.column, distance, access.offset)
    if contraction.groups > 1 or contraction.flipped or where != (panel, 1, depth * panel, IndexExpr()):
        raise Unschedulable(
            "strides", f"the weight of '{op.name}' is not read as it lies, nor in panels of filters", op
        )
    return access.value, panel


def filter_access(op: OpaqueOp, members: Collection[Operation]) -> OperandAccess:
    """
    Where the weight of a convolution is read as a matrix, with a row for each channel and tap and a column for each filter.
    Raises Unschedulable where it is none.
    """
    contraction = op.window_contraction()
    assert contraction is not None
    product = seen_product(contraction.merged())
    return operand_access(op.operands[1], product.rhs, (product.depth, product.columns), members, [op])
