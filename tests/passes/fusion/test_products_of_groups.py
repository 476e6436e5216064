"""How many products a group has is worked out once, and anew when groups become one."""

from __future__ import annotations

from unittest.mock import patch

from ir_testing import function, parse

from fuse_opt.dialects.graph.contractions.matmul import MatmulOp
from fuse_opt.passes.fusion.engine.group_graph import GroupGraph
from fuse_opt.passes.fusion.engine.limits import Limits
from fuse_opt.passes.fusion.fuse_attention import products_in

X = "tensor<8x8xf32>"
TEXT = f"""
func.func @main(%x: {X}) -> {X} {{
  %0 = graph.matmul %x, %x : ({X}, {X}) -> {X}
  %1 = graph.exp %0 : ({X}) -> {X}
  %2 = graph.matmul %1, %x : ({X}, {X}) -> {X}
  func.return %2 : {X}
}}
"""


def test_products_are_counted_once_for_each_group() -> None:
    graph = GroupGraph(function(parse(TEXT)).body.block, Limits())
    groups = [group for group in graph.groups() if group.inputs and group.outputs]
    with patch.object(MatmulOp, "contraction", autospec=True, side_effect=MatmulOp.contraction) as asked:
        assert [products_in(group) for group in groups] == [1, 0, 1]
        assert [products_in(group) for group in groups] == [1, 0, 1]
        assert asked.call_count == 2
    assert graph.merge(groups) is None
    assert [products_in(group) for group in graph.groups() if group.count == 3] == [2]
