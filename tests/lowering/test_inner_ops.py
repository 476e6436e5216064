"""The ops in a block are what xDSL's own walk gives, in its order."""

from __future__ import annotations

from ir_testing import CONTEXT
from xdsl.dialects import arith, scf
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block

from fuse_opt.lowering.inner_ops import inner_of, inner_ops
from fuse_opt.tools.source.parsing import parse_module

NESTED = """
func.func @main(%c: i1, %n: index) -> index {
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  scf.if %c {
    scf.for %i = %0 to %n step %1 {
      %2 = arith.addi %i, %n : index
    }
  } else {
    %3 = arith.muli %n, %n : index
    "scf.parallel"(%0, %n, %1) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
    ^bb0(%j: index):
      %4 = arith.addi %j, %1 : index
      "scf.reduce"() : () -> ()
    }) : (index, index, index) -> ()
  }
  "scf.parallel"(%0, %n, %1) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
  ^bb0(%j: index):
    "scf.reduce"() : () -> ()
  }) : (index, index, index) -> ()
  %5 = scf.if %c -> (index) {
    scf.yield %0 : index
  } else {
    scf.yield %n : index
  }
  func.return %5 : index
}
"""


def test_order_is_that_of_the_text() -> None:
    (function,) = parse_module(NESTED, "test.mlir", CONTEXT).body.block.ops
    assert isinstance(function, FuncOp)
    body = function.body.block
    assert inner_ops(body) == list(body.walk()) and len(inner_ops(body)) > 15
    for kind in (scf.ParallelOp, arith.AddiOp, scf.IfOp, arith.SubiOp):
        assert inner_of(body, kind) == [op for op in body.walk() if isinstance(op, kind)]


def test_a_block_without_ops() -> None:
    assert inner_ops(Block()) == [] == inner_of(Block(), arith.AddiOp)
