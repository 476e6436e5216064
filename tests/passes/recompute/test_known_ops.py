"""What is known of ops by their structure is what each of them would say itself."""

from __future__ import annotations

import pytest
from gradients import gradient
from ir_testing import parse
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Operation

from fuse_opt.dialects.analysis.storage import functions_of
from fuse_opt.dialects.fused import RECOMPUTED
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.passes.devices.device import find_device
from fuse_opt.passes.recompute import known_ops
from fuse_opt.passes.recompute.known_ops import KnownOps, facts_of, knowing, work_seconds

OTHERS = """
func.func @other(%x: tensor<4x4xf32>, %y: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<8xf32>, tensor<4x4xf32>) {
  %a = graph.sum %x {axes = array<i64: 0>} : (tensor<4x4xf32>) -> tensor<4xf32>
  %b = graph.sum %y {axes = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<8xf32>
  %k = graph.exp %x {keep_live} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %e = graph.exp %k : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %p = graph.permute_dims %e {axes = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = graph.tanh %p : (tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %a, %b, %c : tensor<4xf32>, tensor<8xf32>, tensor<4x4xf32>
}
"""


def ops() -> list[Operation]:
    module = parse(gradient(6) + OTHERS)
    return [op for function in functions_of(module) for op in function.body.block.ops]


def test_it_is_what_each_op_says() -> None:
    device, all_ops = find_device("cpu"), ops()
    expected = [(facts_of(op), work_seconds(op, device)) for op in all_ops]
    with knowing() as known:
        for _ in range(2):
            assert [(facts_of(op), work_seconds(op, device)) for op in all_ops] == expected
        with knowing() as inner:
            assert inner is known
    with knowing(KnownOps()) as other:
        assert other is not known


def test_equal_layers_and_copies_are_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def seconds(op: GraphOp, device: object) -> float:
        asked.append(op.name)
        return 1.0

    monkeypatch.setattr(known_ops, "alone_seconds", seconds)
    device = find_device("cpu")
    with knowing():
        for op in (*ops(), *ops()):
            work_seconds(op, device)
            op.attributes[RECOMPUTED] = IntegerAttr(7, i64)
            work_seconds(op, device)
    assert asked == ["graph.matmul"]
