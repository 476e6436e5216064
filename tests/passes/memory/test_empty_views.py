"""Views of no elements: what the planner and the verifier of plans say of them has to agree."""

from __future__ import annotations

import pytest

import fuse_opt

TEXT = """
func.func @main(%x: tensor<bf16>) -> (tensor<SHAPExbf16>, tensor<0xbf16>) {
  %0 = graph.reshape %x {shape = array<i64: -1>} : (tensor<bf16>) -> tensor<1xbf16>
  %1 = graph.slice %0 {starts = array<i64: 0>, stops = array<i64: 0>} : (tensor<1xbf16>) -> tensor<0xbf16>
  %2 = graph.exp %1 : (tensor<0xbf16>) -> tensor<0xbf16>
  %3 = graph.reshape %2 {shape = array<i64: LIST>} : (tensor<0xbf16>) -> tensor<SHAPExbf16>
  func.return %3, %2 : tensor<SHAPExbf16>, tensor<0xbf16>
}
"""


@pytest.mark.parametrize(("shape", "extents"), [("0", "0"), ("0x3", "0, 3"), ("4x0", "4, 0")])
@pytest.mark.parametrize("passes", ["wrap-kernels,plan-memory", "fuse-elementwise,fuse-row,plan-memory", "default"])
def test_plans_verify(shape: str, extents: str, passes: str) -> None:
    """Found by a random program: a reshape of nothing was no alias to the planner, and one to the verifier."""
    module = fuse_opt.optimize(TEXT.replace("SHAPE", shape).replace("LIST", extents), passes)
    assert "func.return" in str(module)
