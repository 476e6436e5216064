"""What a function on tensors must be like to become one on buffers."""

from __future__ import annotations

from xdsl.dialects import func
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.analysis.kernel_access import is_library
from fuse_opt.dialects.analysis.storage import MOST_BYTES, StorageMap, byte_size, value_name
from fuse_opt.dialects.fused import KernelOp, OutlinedOp
from fuse_opt.dialects.implementation.queries import inplace_operands
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.layouts import check_encoding
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import is_sized
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.scalar import is_one_number
from fuse_opt.dialects.types.extents import may_exceed
from fuse_opt.lowering.convert.memory import is_constant
from fuse_opt.lowering.errors import LoweringError


def check_convertible(function: func.FuncOp) -> None:
    """Raises LoweringError for what the passes before should have taken care of."""
    for value in function.body.block.args:
        _check_static(value, function)
    for op in function.body.block.ops:
        match op:
            case OutlinedOp() | func.ReturnOp():
                pass
            case CompositeOp():
                raise LoweringError(f"'{op.name}' is composite; run decompose and wrap-kernels first", op)
            case StructuredOp() if not op.operands and (op.stored_value() is not None or is_one_number(op.body())):
                pass
            case StructuredOp() if all(map(is_sized, (*op.operands, *op.results))) and op.is_alias():
                pass
            case GraphOp():
                raise LoweringError(f"'{op.name}' is not in a kernel; run wrap-kernels first", op)
            case _:
                raise LoweringError(
                    f"'{op.name}' cannot be lowered: expected fused.kernel, constants and views in '{function.sym_name.data}'",
                    op,
                )
        for value in op.results:
            _check_static(value, op)


def _check_static(value: SSAValue, op: Operation) -> None:
    try:
        check_encoding(value)
    except VerifyException as error:
        raise LoweringError(f"'{op.name}': {value_name(value)} is of {error}", op) from error
    try:
        if is_sized(value):
            if may_exceed(MOST_BYTES, byte_size(value) or 0):
                return
            problem = f"has the type {value.type}; expected fewer than 2**63 bytes"
        else:
            problem = f"has the dynamic type {value.type}; give static shapes and run infer-shapes"
    except VerifyException:
        problem = f"is of type {value.type}; expected a tensor"
    raise LoweringError(f"'{op.name}': {value_name(value)} {problem}", op)


def check_in_place(function: func.FuncOp, storages: StorageMap) -> None:
    """Raises LoweringError for a kernel that would write to memory that is not the program's to write."""
    for op in function.body.block.ops:
        if not isinstance(op, KernelOp):
            continue
        for result, operand in op.inplace_pairs():
            storage = storages.of(op.results[result])
            name = value_name(op.operands[operand])
            if storage.kind == "argument" and not storage.donated:
                raise LoweringError(
                    f"'fused.kernel' inplace: {name} is memory of an argument that is not given up; "
                    "write graph.donated on the argument, or remove the property", op
                )  # fmt: skip
            if is_constant(storage):
                raise LoweringError(f"'fused.kernel' inplace: {name} is a constant; remove the property", op)
            if is_library(op) and operand not in inplace_operands(op)[result]:
                problem = "is read by an implementation that does not offer to overwrite it"
                raise LoweringError(f"'fused.kernel' inplace: {name} {problem}; remove the property", op)
            if byte_size(op.results[result]) != byte_size(op.operands[operand]):
                raise LoweringError(f"'fused.kernel' inplace: {name} has another size than the result", op)
