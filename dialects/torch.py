"""The `torch` dialect: a call of one of PyTorch's own kernels inside a program, run by the torch backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, IntegerType, StringAttr, TensorType
from xdsl.ir import Attribute, Dialect, SSAValue
from xdsl.irdl import irdl_op_definition, prop_def, var_operand_def, var_result_def

from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import int_value
from fuse_opt.dialects.interfaces.shapes import AnyTensor, tensor


@irdl_op_definition
class AtenOp(OpaqueOp):
    """
    A call of the aten operator `callee`. Operands are memory: what the call reads of it, and its other arguments, is
    what call `number` of the traced graph says, and `arguments` shows. Two calls are never taken for one.

    A result that is no tensor of a supported element type and known shape stands in the program as an i8 of rank 0.
    """

    name = "torch.aten"
    ACCEPTS_STORAGE: ClassVar[bool] = True
    RUN_BY_CALLER: ClassVar[bool] = True
    inputs = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)
    callee = prop_def(StringAttr)
    number = prop_def(IntegerAttr[IntegerType])
    arguments = prop_def(StringAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        return [tensor(value) for value in self.results]


def aten_call(
    callee: str, number: int, arguments: str, operands: Sequence[SSAValue], results: Sequence[Attribute]
) -> AtenOp:
    """A new call."""
    properties = {"callee": StringAttr(callee), "number": int_value(number), "arguments": StringAttr(arguments)}
    return AtenOp.create(operands=operands, result_types=results, properties=properties)


TORCH = Dialect("torch", [AtenOp])
