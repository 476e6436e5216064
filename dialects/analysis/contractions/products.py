"""Kernels of one product and the pointwise ops behind it, as code can be generated for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.contractions.computed_operands import computed_operand, read_by
from fuse_opt.dialects.analysis.contractions.operand_access import OperandAccess, operand_access
from fuse_opt.dialects.analysis.contractions.packed_panels import LANE_BYTES, MOST_VECTORS
from fuse_opt.dialects.analysis.contractions.result_places import result_places
from fuse_opt.dialects.analysis.loop_body import LoopBody, Unschedulable, member_ops, trace
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import dtype, is_sized, shape
from fuse_opt.dialects.types.dtypes import BF16, F16, F32, F64, I8, I32, U8, DType
from fuse_opt.dialects.types.encodings import OrderAttr
from fuse_opt.dialects.types.extents import is_number
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr

MATMUL = "matmul"
"""The schedule kind of a generated product."""
GROUP = 4
"""Bytes that instructions multiply and add at a time."""
TAKEN: frozenset[tuple[DType, DType, DType]] = frozenset(
    [
        *((element, element, element) for element in (F32, F64, F16, BF16)),
        *((element, element, F32) for element in (F16, BF16)),
        (I8, I8, I32),
        (U8, I8, I32),
    ]
)
"""Element types of the operands and the result for which code is generated."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product, and what is stored of it: `epilogue` loads the product's result, `raw`, where it stores."""

    op: OpaqueOp
    contraction: Contraction
    """Its rows and columns are as far from each other as they are in memory; those of a batch are where `lhs` and `rhs` say."""
    lhs: OperandAccess
    rhs: OperandAccess
    epilogue: LoopBody
    places: Mapping[Dim, IndexExpr]
    """The dimensions of the epilogue, by the axes of the product's result."""

    @property
    def raw(self) -> SSAValue:
        return self.op.results[0]

    def contracted(self) -> set[SSAValue]:
        """What is read before the epilogue."""
        return read_by(self.lhs) | read_by(self.rhs)


def product_problem(op: OpaqueOp) -> Unschedulable | None:
    """Why no code is generated for an op as a product; None where it can be."""
    if not all(map(is_sized, (*op.operands, *op.results))):
        return Unschedulable("dynamic-shape", "it has unknown shapes", op)
    if (contraction := op.contraction()) is None:
        return Unschedulable("no-product", f"'{op.name}' is no product of two operands", op)
    return _problem(op, contraction)


def _problem(op: OpaqueOp, contraction: Contraction) -> Unschedulable | None:
    types = [dtype(value) for value in (*op.operands[:2], op.results[0])]
    if tuple(types) not in TAKEN:
        names = ", ".join(map(str, types[:2]))
        message = (
            f"'{op.name}' is of {names} to {types[2]}; code is generated for floats, and for 8-bit integers to i32"
        )
        return Unschedulable("element-type", message, op)
    for extent, what in ((contraction.columns, "columns"), (contraction.depth, "elements to add")):
        if not is_number(extent) and types[0] in (I8, U8):
            return Unschedulable(
                "sizes", f"'{op.name}' has {extent} {what}; code is generated for a number of them", op
            )
    if not contraction.operations:
        return Unschedulable("empty", f"'{op.name}' has no elements to add", op)
    return None


def product_of(kernel: KernelOp) -> Product:
    """The product of a kernel, with what is around it. Raises Unschedulable: why no code is generated for it."""
    return trace_product(list(kernel.yielded()), dict.fromkeys(kernel.block.ops))


def trace_product(results: Sequence[SSAValue], members: Collection[Operation]) -> Product:
    """The product of a group that gives `results`, with what is around it. Raises Unschedulable."""
    ops = member_ops(members)
    opaque = [op for op in ops if isinstance(op, OpaqueOp)]
    if len(opaque) != 1 or len(opaque[0].results) != 1:
        raise Unschedulable("no-product", "it holds no product, or several opaque ops")
    op = opaque[0]
    if (problem := product_problem(op)) is not None:
        raise problem
    if not all(is_sized(value) for inner in ops for value in (*inner.operands, *inner.results)):
        raise Unschedulable("dynamic-shape", "it has unknown shapes", op)
    contraction, lhs, rhs = product_operands(op, members)
    if (problem := _problem(op, contraction)) is not None:
        raise problem
    epilogue = trace(results, members, [op])
    alike = dtype(op.operands[0]) is dtype(op.operands[1])
    if alike and _is_transposed(op.results[0], contraction):
        swapped = replace(contraction.swapped(), in_memory=True)
        places = result_places(epilogue, op.results[0], swapped)
        return Product(op, swapped, rhs.transposed(), lhs.transposed(), epilogue, places)
    product = Product(op, contraction, lhs, rhs, epilogue, result_places(epilogue, op.results[0], contraction))
    is_column = contraction.columns == 1 and is_number(contraction.rows)
    return _as_row(product) if is_column and alike else product


def _is_transposed(raw: SSAValue, contraction: Contraction) -> bool:
    """Whether a product's result lies with its rows side by side: it is that of its operands in the other order."""
    found, extents = encoding(raw), shape(raw)
    rank = len(extents)
    if (
        not isinstance(found, OrderAttr)
        or contraction.in_memory
        or extents[-2:] != (contraction.rows, contraction.columns)
    ):
        return False
    return found.order == (*range(rank - 2), rank - 1, rank - 2)


def _as_row(product: Product) -> Product:
    """A product that is a column as one that is a row, where elements are stored beside each other."""
    lhs, rhs = product.rhs.transposed(), product.lhs.transposed()
    contraction = product.contraction.swapped()
    try:
        places = result_places(product.epilogue, product.raw, contraction)
    except Unschedulable:
        return product
    return Product(product.op, contraction, lhs, rhs, product.epilogue, places)


def group_in_panels(left: DType, right: DType, sums: DType) -> int:
    """
    How many neighbours of a column lie side by side in panels that tiles of a product of these elements read where they are; 0
    where they read a copy of their own, as of narrow floats.
    """
    if left is right is sums and sums in (F32, F64):
        return 1
    return GROUP if left in (U8, I8) and right is I8 else 0


def product_operands(op: OpaqueOp, members: Collection[Operation]) -> tuple[Contraction, OperandAccess, OperandAccess]:
    """A product as memory has its rows and columns, and where its operands are read. Raises Unschedulable."""
    of = op.contraction()
    assert of is not None
    lhs = _operand(op.operands[0], of.lhs, (*of.batch, of.rows, of.depth), members, {op})
    rhs = _operand(op.operands[1], of.rhs, (*of.batch, of.depth, of.columns), members, {op})
    if lhs.panels is not None:
        raise Unschedulable("strides", "the columns of the left operand are in panels", op)
    elements = dtype(lhs.value), dtype(rhs.value), dtype(op.results[0])
    if rhs.panels is not None and (rhs.panels.group, rhs.column) != (group := group_in_panels(*elements), group):
        message = f"the columns of the right operand are in panels, with groups of {rhs.panels.group} rows"
        raise Unschedulable("strides", message, op)
    if rhs.panels is not None:
        _check_width(op, rhs.panels.width)
    strides = [(*s[:-2], access.row, access.column) for s, access in ((of.lhs, lhs), (of.rhs, rhs))]
    return replace(of, lhs=strides[0], rhs=strides[1]), lhs, rhs


def _check_width(op: OpaqueOp, width: int) -> None:
    """Raises Unschedulable where panels of the right operand fill no vector of sums, or more than registers hold."""
    lanes = LANE_BYTES // dtype(op.results[0]).itemsize
    if not lanes <= width <= MOST_VECTORS * lanes:
        message = f"panels of the right operand have {width} columns; tiles read {lanes} to {MOST_VECTORS * lanes}"
        raise Unschedulable("strides", message, op)


def _operand(
    value: SSAValue,
    strides: Sequence[int],
    extents: Sequence[int],
    members: Collection[Operation],
    outside: Collection[Operation],
) -> OperandAccess:
    """Where an operand is read, or what computes it. Raises Unschedulable."""
    try:
        return operand_access(value, strides, extents, members, outside)
    except Unschedulable as reason:
        if reason.code != "prologue":
            raise
    return computed_operand(value, strides, extents, members, outside)
