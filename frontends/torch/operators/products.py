"""Products of matrices and vectors: sums where they are small, generated products, or else calls of PyTorch's.

A call costs microseconds and cuts the program in two: up to some hundred multiplications a sum is done before that, and its
neighbours fuse with it. Vectors are read once whatever computes the product, so that products with them are sums, too.
"""

from __future__ import annotations

from math import prod

from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import BF16, F16, F32, F64, I32
from fuse_opt.dialects.types.extents import estimate, is_number
from fuse_opt.dialects.types.size import Extent
from fuse_opt.frontends.torch.fx.handler import Call, NotCoveredError, handlers

PRODUCTS, handler = handlers()
_SMALL = 512
"""Multiplications: measured with one thread, up to here a kernel takes no longer than what a call costs beside the product."""
_FEW_ROWS = 4
"""Rows for which weights of bf16 are read where they lie: a linear layer of them takes about half of the time that it takes by
PyTorch's own kernels, one of twelve twice as long (measured with AMX)."""


@handler("aten.mm.default", "aten.bmm.default")
def _mm(call: Call) -> SSAValue:
    return call.result(_product(call, call.tensor("self"), call.tensor("mat2")))


@handler("aten.addmm.default", "aten.baddbmm.default")
def _addmm(call: Call) -> SSAValue:
    names = ("mat1", "mat2") if "mat1" in call.arguments else ("batch1", "batch2")
    product = _product(call, *(call.tensor(name) for name in names))
    element = dtype(product)
    if call["alpha"] != 1:
        product = call.emit.multiply(product, call.number(call["alpha"], element))
    if call["beta"] == 0 and not call.exported:  # what is in the bias is not looked at, NaN neither
        return call.result(product)
    bias = call.cast(call.tensor("self"), element)
    if call["beta"] != 1:
        bias = call.emit.multiply(bias, call.number(call["beta"], element))
    return call.result(call.emit.add(product, bias))


def _product(call: Call, a: SSAValue, b: SSAValue) -> SSAValue:
    """The product of two (stacks of) matrices; narrow floats give f32, to be rounded once."""
    if call.exported:
        return call.emit.matmul(a, b)
    *stack, rows, inner = shape(a)
    columns = shape(b)[-1]
    if estimate(prod((*stack, rows, inner, columns))) > _SMALL:
        call.leave_to_library()
        if dtype(a) not in (F32, F64, F16) and not (dtype(a) is BF16 and not stack and _are_few(rows)):
            raise NotCoveredError(f"is run by PyTorch's own kernel, which is faster for products of {dtype(a)}")
        if not is_number(inner) and is_number(rows) and is_number(columns):
            sums = f"sums of {inner} terms, which is faster for {rows} times {columns} of them"
            raise NotCoveredError(f"is run by PyTorch's own kernel for {sums}")
        return call.emit.matmul(a, b, dtype=F32 if dtype(a) in (F16, BF16) else None)
    left = call.reshaped(a, [*stack, rows, 1, inner])
    transposed = call.emit.permute_dims(b, axes=[*range(len(stack)), len(stack) + 1, len(stack)])
    right = call.reshaped(transposed, [*stack, 1, columns, inner])
    return _summed(call, left, right)


def _are_few(rows: Extent) -> bool:
    return is_number(rows) and rows <= _FEW_ROWS


@handler("aten._int_mm.default")
def _int_mm(call: Call) -> SSAValue:
    call.leave_to_library()
    return call.result(call.emit.matmul(call.tensor("self"), call.tensor("mat2"), dtype=I32))


def _summed(call: Call, a: SSAValue, b: SSAValue) -> SSAValue:
    """The products of elements, summed along the last axis."""
    if (element := dtype(a)).is_float and element.bits < 32:
        a, b = call.cast(a, F32), call.cast(b, F32)
    terms = call.emit.multiply(a, b)
    return call.emit.sum(terms, axes=[len(shape(terms)) - 1])


@handler("aten.mv.default", "aten.dot.default", "aten.vdot.default")
def _with_vector(call: Call) -> SSAValue:
    x, other = (
        call.tensor("self"),
        call.tensor("vec" if "vec" in call.arguments else "other" if call.has("other") else "tensor"),
    )
    return call.emit.matmul(x, other) if call.exported else call.result(_summed(call, x, other))
