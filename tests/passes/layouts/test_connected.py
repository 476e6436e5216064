"""Ops that take any order are connected by the values that they have in one, and what lies between them and others is listed."""

from __future__ import annotations

from ir_testing import function, parse

from fuse_opt.passes.layouts.connected import Connected
from fuse_opt.passes.layouts.followed import Values

X, W = "tensor<1x8x4x4xf32>", "tensor<8x8x1x1xf32>"
BLOCK = f"""
func.func @main(%x: {X}, %w: {W}) -> {X} {{
  %0 = graph.conv %x, %w : ({X}, {W}) -> {X}
  %1 = graph.add %0, %x : ({X}, {X}) -> {X}
  %2 = graph.relu %1 : ({X}) -> {X}
  %3 = graph.conv %2, %w : ({X}, {W}) -> {X}
  %4 = graph.tanh %3 : ({X}) -> {X}
  func.return %4 : {X}
}}
"""


def connected_of(has_groups: bool) -> Connected:
    ops, types = list(function(parse(BLOCK)).body.block.ops), Values()
    sites = {place: types.alike(ops[place], tuple(ops[place].operands)) for place in (0, 3)}
    return Connected(ops, sites, types, has_groups)


def test_pointwise_ops_are_connected_and_windows_between_them_are_not() -> None:
    found = connected_of(has_groups=True)
    assert {place: found.root(place) for place in found.alike} == {1: 1, 2: 1, 4: 4}
    between = [(place, number, maker) for place, number, _, _, maker in found.between]
    assert between == [
        (0, 0, None),
        (0, 1, None),
        (1, 0, 0),
        (1, 1, None),
        (3, 0, 2),
        (3, 1, None),
        (4, 0, 3),
        (5, 0, 4),
    ]


def test_without_groups_other_ops_read_as_it_is_written() -> None:
    found = connected_of(has_groups=False)
    between = [(place, number, maker) for place, number, _, _, maker in found.between]
    assert not found.alike
    assert between == [(0, 0, None), (0, 1, None), (1, 0, 0), (3, 0, None), (3, 1, None), (4, 0, 3)]
