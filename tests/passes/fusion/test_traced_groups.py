"""Groups that are alike are traced once, and no others: by what their ops are, and by what these read of each other."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
from ir_testing import parse
from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.bare_ops import sweep_functions
from fuse_opt.dialects.analysis.contractions.product_copies import Computed
from fuse_opt.dialects.analysis.loop_body import Unschedulable
from fuse_opt.passes.fusion.engine.traced_groups import TracedGroups

MAIN = """func.func @main(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %z: tensor<4x1xf32>) {{
  {}
  func.return
}}"""
ADD = "%a = graph.add %x, %y : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>"
MAX = "%b = graph.max %a {axes = array<i64: 1>, keepdims = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>"
KERNEL = """%a = fused.kernel(%p = %x : tensor<4x8xf32>, %q = %y : tensor<4x8xf32>) -> (tensor<4x8xf32>) {
    %s = graph.add %p, %q : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    fused.yield %s : tensor<4x8xf32>
  }"""
DIFFERENT = {
    "an operand": (ADD.replace("%y :", "%x :"), MAX),
    "a property": (
        ADD,
        MAX.replace("keepdims = true", "keepdims = false").replace("-> tensor<4x1xf32>", "-> tensor<4xf32>"),
    ),
    "a type": (ADD.replace("%y", "%z").replace("8xf32>)", "1xf32>)"), MAX),
    "an op": (ADD.replace("graph.add", "graph.multiply"), MAX),
    "a kernel": (KERNEL, MAX),
    "fewer ops": (ADD,),
}


def ops_of(*lines: str) -> list[Operation]:
    (block,) = sweep_functions(parse(MAIN.format("\n  ".join(lines))))
    return list(block.ops)[:-1]


class Traces:
    """Counts what is traced; refuses groups with a maximum."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, results: Sequence[SSAValue], members: Collection[Operation]) -> object:
        self.count += 1
        for op in members:
            if op.name == "graph.max":
                raise Unschedulable("maximum", f"it has '{op.name}'", op)
        return results


def test_alike_groups_are_traced_once() -> None:
    groups, traces = TracedGroups(), Traces()
    for lines in [(ADD, MAX), (ADD, MAX), (ADD,), (ADD,)]:
        ops = ops_of(*lines)
        refusal = groups.refuse(traces.trace, ops[-1].results, dict.fromkeys(ops))
        assert (None if refusal is None else (refusal.code, refusal.message)) == (
            ("maximum", "it has 'graph.max'") if MAX in lines else None
        )
    assert traces.count == 2


@pytest.mark.parametrize("lines", DIFFERENT.values(), ids=DIFFERENT)
def test_what_differs_is_traced_again(lines: tuple[str, ...]) -> None:
    groups, traces = TracedGroups(), Traces()
    for ops in (ops_of(ADD, MAX), ops_of(*lines)):
        groups.refuse(traces.trace, ops[-1].results, dict.fromkeys(ops))
    assert traces.count == 2


def test_what_is_computed_in_copies_is_found_once() -> None:
    """Not where nobody asks, and apart from groups of which nobody does."""
    groups, traces, found = TracedGroups(), Traces(), list[object]()

    def computes(traced: object) -> Sequence[Computed]:
        found.append(traced)
        return [Computed(ops[0].operands[0], (), 1, 2, 3)]

    for ops in (ops_of(ADD), ops_of(ADD)):
        members = dict.fromkeys(ops)
        assert groups.refuse(traces.trace, ops[-1].results, members) is None
        answer = groups.computed(traces.trace, computes, ops[-1].results, members)
        assert isinstance(answer, list) and (answer[0].work, answer[0].times, answer[0].copied) == (1, 2, 3)
    assert (traces.count, len(found)) == (2, 1)


def test_other_results_are_another_group() -> None:
    groups, traces, ops = TracedGroups(), Traces(), ops_of(ADD, MAX)
    values = [op.results[0] for op in ops]
    for results in (values, values[:1], values[1:], values[::-1], values):
        groups.refuse(traces.trace, results, dict.fromkeys(ops))
    assert traces.count == 4
