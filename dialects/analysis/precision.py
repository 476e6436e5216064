"""How floats of 16 bits are rounded inside of kernels, as a function says it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from xdsl.dialects.builtin import BFloat16Type, Float16Type, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation

PRECISION = "graph.precision"
"""
The attribute of a function that says what its kernels get where no option of `schedule-kernels` does: "strict", every op
rounds, or "kernel", f16 and bf16 stay f32 inside of a kernel and are rounded at its results.
"""
STRICT, KERNEL = "strict", "kernel"


def precision_problem(function: FuncOp) -> str | None:
    """What is wrong with the attribute, if anything is."""
    given = function.attributes.get(PRECISION)
    if given is None or given in (StringAttr(STRICT), StringAttr(KERNEL)):
        return None
    return f'\'{PRECISION}\': expected "{STRICT}" or "{KERNEL}", got {given}; change or remove it'


def precision_of(function: FuncOp) -> str:
    """What the function says; strict where it says nothing."""
    given = function.attributes.get(PRECISION)
    return given.data if isinstance(given, StringAttr) else STRICT


def rounds(ops: Iterable[Operation]) -> bool:
    """Whether one of the ops gives f16 or bf16: whether it matters where numbers are rounded."""
    types = (value.type for op in ops for value in op.results)
    return any(isinstance(each, TensorType) and _is_narrow(cast("TensorType[Attribute]", each)) for each in types)


def _is_narrow(kind: TensorType[Attribute]) -> bool:
    return isinstance(kind.element_type, BFloat16Type | Float16Type)
