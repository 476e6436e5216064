"""Where all operands are read, told at once: what is told of each alone, in time that goes with their number."""

from __future__ import annotations

import random
import sys
from typing import Any

from ir_testing import graph_ops, parse
from op_samples import row_order, single_ops

from fuse_opt.dialects.interfaces.shapes import is_static, shape
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.types.index_expr import dimensions

OPERANDS = 400
CALLS = 60
"""Of functions, for an operand of a concat, for what kind it is; one for each operand before it, without a pass over all."""


def test_all_at_once_is_each_alone() -> None:
    seen = 0
    for op in single_ops(random.Random(0), range(len(row_order()))):
        if isinstance(op, StructuredOp) and op.operands and all(map(is_static, (*op.operands, *op.results))):
            index, inner = dimensions("i", shape(op.results[0])), dimensions("r", op.reduced_extents())
            alone = [op.operand_index(number, index, inner) for number in range(len(op.operands))]
            assert list(op.operand_indices(index, inner)) == alone
            seen += 1
    assert seen > 50


def test_a_concat_of_many_is_looked_at_once() -> None:
    part, whole = "tensor<1x8xf32>", f"tensor<{OPERANDS}x8xf32>"
    names = ", ".join(f"%{k}" for k in range(OPERANDS))
    arguments = ", ".join(f"%{k}: {part}" for k in range(OPERANDS))
    (op,) = graph_ops(
        parse(
            f"func.func @main({arguments}) -> {whole} {{\n"
            f"  %r = graph.concat {names} {{axis = 0 : i64}} : ({', '.join([part] * OPERANDS)}) -> {whole}\n"
            f"  func.return %r : {whole}\n}}"
        )
    )
    assert isinstance(op, StructuredOp)
    calls, before = 0, sys.getprofile()

    def count(frame: Any, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        op.fusion_kind()
    finally:
        sys.setprofile(before)
    assert calls < CALLS * OPERANDS
