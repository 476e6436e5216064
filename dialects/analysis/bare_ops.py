"""Ops as they are outside of kernels and in them: who makes a value, what every kernel copies, and where programs are."""

from __future__ import annotations

from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.stored_values import holds_stored
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.scalar import is_one_number


def sweep_functions(module: Operation, stored: bool = False) -> list[Block]:
    """
    The blocks whose ops are tensor programs: those of functions, outermost first; with values of storage kinds where `stored`
    says so.
    """
    functions = [op for op in module.walk() if op.name == "func.func" and (stored or not holds_stored(op))]
    return [block for op in functions for region in op.regions for block in region.blocks]


def bare_source(value: SSAValue) -> SSAValue:
    """The value as the bare op that makes it gives it, in a kernel or outside, or the function's argument that it is."""
    while True:
        owner = value.owner
        if isinstance(value, OpResult) and isinstance(owner, KernelOp):
            value = owner.yielded()[value.index]
        elif isinstance(value, BlockArgument) and isinstance(kernel := value.block.parent_op(), KernelOp):
            value = kernel.operands[value.index]
        else:
            return value


def is_creation(op: Operation | Block) -> bool:
    """Whether an op gives one number everywhere, from nothing, so that every kernel may have its own copy."""
    if not isinstance(op, StructuredOp) or op.operands or op.stored_value() is not None:
        return False
    return is_one_number(op.body())
