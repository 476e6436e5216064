"""Ops are told apart by the classes that they derive from."""

from __future__ import annotations

from itertools import product

import pytest
from ir_testing import parse
from xdsl.dialects.func import ReturnOp

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.kernel import OutlinedOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.structured_op import StructuredOp

PROGRAM = """
func.func @main(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = "fused.kernel"(%a) ({
  ^bb0(%b: tensor<4x4xf32>):
    %1 = graph.exp %b : (tensor<4x4xf32>) -> tensor<4x4xf32>
    "fused.yield"(%1) : (tensor<4x4xf32>) -> ()
  }) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
"""


def test_an_instance_is_what_its_class_derives_from() -> None:
    classes = (GraphOp, StructuredOp, OpaqueOp, OutlinedOp, KernelOp, ReturnOp)
    ops = list(parse(PROGRAM).walk())
    assert {type(op) for op in ops} & {KernelOp, ReturnOp}
    for op, class_ in product(ops, classes):
        assert isinstance(op, class_) is issubclass(type(op), class_) is (class_ in type(op).__mro__)
    assert any(isinstance(op, GraphOp | OutlinedOp) for op in ops)


def test_what_is_abstract_has_no_instances() -> None:
    with pytest.raises(TypeError, match="abstract"):
        OpaqueOp(operands=[], result_types=[])  # pyright: ignore[reportAbstractUsage]
