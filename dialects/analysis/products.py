"""Kernels of one product and the pointwise ops behind it, as code can be generated for them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.ir import BlockArgument, SSAValue

from fuse_opt.dialects.analysis.loop_body import LoopBody, Unschedulable, trace
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import dtype, is_static, shape
from fuse_opt.dialects.types.dtypes import F32, F64

MATMUL = "matmul"
"""The schedule kind of a generated product."""
FEWEST_COLUMNS = 16
"""Of a result, below which its rows fill no vector."""
FEW_ROWS = 32
"""Rows for which the right operand is read where it lies, as a copy of it would take as long."""
LONGEST_COPY = 4096
"""Elements of a row of a transposed left operand, which is copied to the stack."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product, and what is stored of it: `epilogue` loads the product's result, `raw`, where it stores."""

    op: OpaqueOp
    contraction: Contraction
    lhs: BlockArgument
    rhs: BlockArgument
    epilogue: LoopBody

    @property
    def raw(self) -> SSAValue:
        return self.op.results[0]


def product_problem(op: OpaqueOp) -> Unschedulable | None:
    """Why no code is generated for an op as a product; None where it can be."""
    if not all(map(is_static, (*op.operands, *op.results))):
        return Unschedulable("dynamic-shape", "it has unknown shapes", op)
    if (contraction := op.contraction()) is None:
        return Unschedulable("no-product", f"'{op.name}' is no product of two operands", op)
    raw, (lhs, rhs) = op.results[0], op.operands[:2]
    if dtype(raw) not in (F32, F64) or any(dtype(value) is not dtype(raw) for value in (lhs, rhs)):
        return Unschedulable("element-type", f"'{op.name}' is of {dtype(raw)}; code is generated for f32 and f64", op)
    if not contraction.operations or contraction.columns < FEWEST_COLUMNS:
        return Unschedulable("few-columns", f"'{op.name}' has a result of {contraction.columns} columns", op)
    if contraction.rows <= FEW_ROWS and contraction.rhs[-1] != 1:
        return Unschedulable("few-rows", f"'{op.name}' has {contraction.rows} rows, and a transposed operand", op)
    if contraction.lhs[-1] != 1 and contraction.depth > LONGEST_COPY:
        return Unschedulable("long-rows", f"'{op.name}' has rows of {contraction.depth} elements to transpose", op)
    return None


def product_of(kernel: KernelOp) -> Product:
    """The product of a kernel, with its epilogue. Raises Unschedulable: why no code is generated for it."""
    opaque = [op for op in kernel.ops() if isinstance(op, OpaqueOp)]
    if len(opaque) != 1 or len(opaque[0].results) != 1:
        raise Unschedulable("no-product", "it holds no product, or several opaque ops")
    op = opaque[0]
    if (problem := product_problem(op)) is not None:
        raise problem
    contraction, (lhs, rhs) = op.contraction(), op.operands[:2]
    assert contraction is not None
    if not isinstance(lhs, BlockArgument) or not isinstance(rhs, BlockArgument):
        raise Unschedulable("prologue", f"an operand of '{op.name}' is computed in the kernel", op)
    if not all(map(is_static, (*kernel.operands, *kernel.results))):
        raise Unschedulable("dynamic-shape", "it has unknown shapes", op)
    others = dict.fromkeys(each for each in kernel.block.ops if each is not op)
    epilogue = trace(list(kernel.yielded()), others)
    _check_epilogue(epilogue, op)
    return Product(op, contraction, lhs, rhs, epilogue)


def _check_epilogue(epilogue: LoopBody, op: OpaqueOp) -> None:
    raw = op.results[0]
    if epilogue.is_row:
        raise Unschedulable("epilogue", "what follows the product reduces", op)
    if prod(epilogue.row_extents) != prod(shape(raw)):
        raise Unschedulable("unequal-results", f"the results have not as many elements as that of '{op.name}'", op)
    wanted = {store.address for store in epilogue.stores}
    for load in epilogue.loads():
        if load.value is raw and {load.address} != wanted:
            raise Unschedulable("epilogue", f"the result of '{op.name}' is read at other elements than are stored", op)
